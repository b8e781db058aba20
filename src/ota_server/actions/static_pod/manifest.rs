//! Manifest of a static pod. The manifest is chosen from a ConfigMap, and has to describe the pod.

use std::collections::BTreeMap;

use serde_json::Value;

#[derive(Clone, Debug)]
pub(super) struct Manifest {
    pub(super) namespace: String,
    /// Name of the pod, without the name of the node.
    pub(super) name: String,
    /// Content of the manifest file.
    pub(super) text: String,
    value: Value,
}

impl Manifest {
    /// Chooses the manifest of a pod from the entries of a ConfigMap: the entry with the name of the pod, or the only entry.
    ///
    /// # Errors
    /// Returns a sentence that says what is missing, ambiguous or wrong.
    pub(super) fn choose(
        data: &BTreeMap<String, String>,
        namespace: &str,
        name: &str,
    ) -> Result<Self, String> {
        let mut named = data.iter().filter(|(key, _)| stem(key) == name);
        let (key, text) = match (named.next(), named.next(), data.len()) {
            (_, _, 0) => return Err("the ConfigMap has no entries".to_owned()),
            (Some(entry), None, _) => entry,
            (None, _, 1) => data.iter().next().ok_or("the ConfigMap has no entries")?,
            _ => {
                let keys: Vec<&str> = data.keys().map(String::as_str).collect();
                return Err(format!(
                    "the ConfigMap has the entries {}: keep one of them, or name one {name}.yaml",
                    keys.join(", ")
                ));
            }
        };
        let value = parse(text).ok_or_else(|| format!("{key} is not YAML"))?;
        if !names(&value, namespace, name) {
            return Err(format!(
                "{key} is not a v1 Pod named {name} in namespace {namespace}"
            ));
        }
        Ok(Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            text: text.clone(),
            value,
        })
    }

    /// Returns true if `text` is a manifest of this pod.
    pub(super) fn is_of_same_pod(&self, text: &str) -> bool {
        parse(text).is_some_and(|value| names(&value, &self.namespace, &self.name))
    }

    /// Returns true if `text` describes the same object, even in another format.
    pub(super) fn says_the_same_as(&self, text: &str) -> bool {
        self.text == text || parse(text).is_some_and(|value| value == self.value)
    }
}

/// Returns a ConfigMap key without its file extension.
fn stem(key: &str) -> &str {
    let endings = [".yaml", ".yml", ".json"].iter();
    endings
        .filter_map(|ending| key.strip_suffix(ending))
        .next()
        .unwrap_or(key)
}

/// Parses YAML or JSON; `None` if the text is neither.
fn parse(text: &str) -> Option<Value> {
    serde_saphyr::from_str(text).ok()
}

/// Returns true if `value` is a static pod with this namespace and name. Without a namespace in the manifest, the kubelet uses
/// `default`.
fn names(value: &Value, namespace: &str, name: &str) -> bool {
    let meta = &value["metadata"];
    let placed = match &meta["namespace"] {
        Value::Null => "default",
        Value::String(placed) if placed.is_empty() => "default",
        Value::String(placed) => placed,
        _ => return false,
    };
    value["apiVersion"] == "v1"
        && value["kind"] == "Pod"
        && meta["name"] == name
        && placed == namespace
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: nginx\n  namespace: default\n";

    fn chosen(entries: &[(&str, &str)]) -> Result<String, String> {
        let data = entries
            .iter()
            .map(|(key, text)| ((*key).to_owned(), (*text).to_owned()))
            .collect();
        Manifest::choose(&data, "default", "nginx").map(|manifest| manifest.text)
    }

    #[test]
    fn the_entry_with_the_name_of_the_pod_is_used_or_else_the_only_one() {
        let newer = format!("{POD}# newer\n");
        assert_eq!(chosen(&[("whatever", POD)]).unwrap(), POD);
        for key in ["nginx", "nginx.yaml", "nginx.yml", "nginx.json"] {
            assert_eq!(chosen(&[("a", POD), (key, &newer)]).unwrap(), newer);
        }
        let json = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"nginx"}}"#;
        assert_eq!(chosen(&[("nginx.json", json)]).unwrap(), json);
    }

    #[test]
    fn empty_ambiguous_and_foreign_config_maps_are_refused_with_a_reason() {
        assert_eq!(chosen(&[]).unwrap_err(), "the ConfigMap has no entries");
        assert_eq!(
            chosen(&[("a", POD), ("b", POD)]).unwrap_err(),
            "the ConfigMap has the entries a, b: keep one of them, or name one nginx.yaml"
        );
        assert!(chosen(&[("nginx.yaml", POD), ("nginx.yml", POD)]).is_err());
        assert_eq!(chosen(&[("a", "{")]).unwrap_err(), "a is not YAML");
        let other = "a is not a v1 Pod named nginx in namespace default";
        for (from, to) in [
            ("name: nginx", "name: ../nginx"),
            ("kind: Pod", "kind: Deployment"),
            ("apiVersion: v1", "apiVersion: v2"),
            ("namespace: default", "namespace: kube-system"),
            ("namespace: default", "namespace: [default]"),
        ] {
            assert_eq!(chosen(&[("a", &POD.replace(from, to))]).unwrap_err(), other);
        }
        for text in ["", "null", "a", "[]", "3"] {
            assert!(chosen(&[("a", text)]).is_err(), "{text:?}");
        }
    }

    #[test]
    fn manifests_are_compared_without_comments_and_order() {
        let data = [("a".to_owned(), POD.to_owned())].into();
        let manifest = Manifest::choose(&data, "default", "nginx").unwrap();
        let alike =
            "kind: Pod # as before\napiVersion: v1\nmetadata: {namespace: default, name: nginx}\n";
        assert!(manifest.says_the_same_as(alike));
        assert!(manifest.is_of_same_pod(alike));
        assert!(!manifest.says_the_same_as(&format!("{POD}  labels: {{a: b}}\n")));
        assert!(!manifest.is_of_same_pod("not: [yaml"));
    }
}
