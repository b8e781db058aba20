//! Label and field selectors of lists and watches. Label selectors are evaluated by the same code as those of DaemonSets.

use serde_json::Value;

use super::resources::Storage;
use crate::core::selector::{Selector, is_label_key, is_label_value};

/// Parses a label selector such as `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1`. An empty text selects everything.
///
/// # Errors
///
/// Returns a message that names the invalid part.
pub(super) fn parse_labels(text: &str) -> Result<Selector, String> {
    match text.trim() {
        "" => Ok(Selector::default()),
        text => {
            Selector::from_query(text).map_err(|why| format!("unable to parse requirement: {why}"))
        }
    }
}

/// Returns true if the selector matches the object's labels.
pub(super) fn selects(selector: &Selector, object: &Value) -> bool {
    let labels = &object["metadata"]["labels"];
    selector.matches(|key| labels[key].as_str())
}

/// Checks that the key is a qualified name (`prefix/name`).
pub(crate) fn check_label_key(key: &str) -> Result<(), String> {
    if is_label_key(key) {
        return Ok(());
    }
    Err(format!(
        "{key:?} is not a qualified name: name part must consist of alphanumeric characters, '-', '_' or '.', \
         and must start and end with an alphanumeric character, with an optional DNS subdomain prefix and '/'"
    ))
}

pub(crate) fn check_label_value(value: &str) -> Result<(), String> {
    if is_label_value(value) {
        return Ok(());
    }
    Err(format!(
        "{value:?} is no label value: a valid label must be an empty string or consist of at most 63 alphanumeric \
         characters, '-', '_' or '.', and must start and end with an alphanumeric character"
    ))
}

/// Field selector: requirements that must all match. The default selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<(String, bool, String)>);

impl FieldSelector {
    /// Parses a field selector such as `metadata.name=a,spec.nodeName!=b`.
    ///
    /// # Errors
    ///
    /// Returns a message that names the invalid part or the unsupported field.
    pub fn parse(text: &str, storage: Storage) -> Result<Self, String> {
        let mut requirements = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (key, equal, value) = if let Some((key, value)) = part.split_once("!=") {
                (key, false, value)
            } else if let Some((key, value)) = part.split_once("==") {
                (key, true, value)
            } else if let Some((key, value)) = part.split_once('=') {
                (key, true, value)
            } else {
                return Err(format!(
                    "invalid field selector {text:?}; can't understand '{part}'"
                ));
            };
            let key = stored_name(key);
            if !["metadata.name", "metadata.namespace"].contains(&key.as_str())
                && !selectable(storage).contains(&key.as_str())
            {
                return Err(format!("field label not supported: {key}"));
            }
            requirements.push((key, equal, value.to_owned()));
        }
        Ok(Self(requirements))
    }

    /// Returns true if the object's fields match.
    pub(crate) fn selects(&self, object: &Value) -> bool {
        self.0
            .iter()
            .all(|(key, equal, value)| (field(object, key) == value.as_str()) == *equal)
    }

    /// Returns the value that the selector requires for a field; `None` if it requires no particular value.
    pub(crate) fn required(&self, key: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(name, equal, _)| name == key && *equal)
            .map(|(_, _, value)| value.as_str())
    }

    /// Returns true if the selector selects all objects.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Returns the name under which a field is stored. Events are stored in the form of the core group, but `events.k8s.io` has other
/// names for the same fields, such as `regarding` for `involvedObject`.
fn stored_name(key: &str) -> String {
    match key.strip_prefix("regarding.") {
        Some(rest) => format!("involvedObject.{rest}"),
        None if key == "reportingController" => "reportingComponent".to_owned(),
        None => key.to_owned(),
    }
}

fn selectable(storage: Storage) -> &'static [&'static str] {
    match storage {
        Storage::Pods => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        Storage::Events => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        Storage::Nodes => &["spec.unschedulable"],
        Storage::Secrets => &["type"],
        Storage::Jobs => &["status.successful"],
        Storage::Namespaces => &["status.phase"],
        Storage::Services => &["spec.clusterIP", "spec.type"],
        _ => &[],
    }
}

fn field<'a>(object: &'a Value, key: &str) -> &'a str {
    let mut place = object;
    let key = match key {
        "source" => "source.component",
        "status.successful" => "status.succeeded",
        key => key,
    };
    for part in key.split('.') {
        place = &place[part];
    }
    match place {
        Value::String(text) => text,
        Value::Bool(true) => "true",
        Value::Null | Value::Bool(false) if key == "spec.unschedulable" => "false",
        Value::Null | Value::Bool(false) if key == "spec.hostNetwork" => "false",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn matches(selector: &str) -> bool {
        let labels = json!({ "app": "web", "tier": "edge", "level": "7" });
        let object = json!({ "metadata": { "labels": labels } });
        selects(&parse_labels(selector).unwrap(), &object)
    }

    #[test]
    fn selectors_in_kubectl_form_match() {
        let holds = [
            "",
            "app=web",
            "app==web",
            "app",
            "!none",
            "app!=db",
            "none!=x",
            "app in (web, db)",
            "app notin (db)",
            "none notin (x)",
            "level>6",
            "level<8",
            "app=web,tier in (edge),!none",
        ];
        for selector in holds {
            assert!(matches(selector), "{selector} selects");
        }
        let fails = [
            "app=db",
            "!app",
            "none",
            "app!=web",
            "app notin (web)",
            "none in (x)",
            "level>7",
            "level<7",
            "none>1",
            "none<1",
            "app=web,none",
        ];
        for selector in fails {
            assert!(!matches(selector), "{selector} does not select");
        }
    }

    #[test]
    fn unreadable_selectors_are_rejected() {
        for selector in [
            "a===b", "a in (", "a in b", "a b", "!", "a>x", "-a=b", "a=b c", "a))",
        ] {
            assert!(parse_labels(selector).is_err(), "{selector} is refused");
        }
    }

    #[test]
    fn only_fields_that_the_kind_supports_can_be_selected() {
        let pod = json!({ "metadata": { "name": "p" }, "spec": { "nodeName": "n" } });
        let parse = |text| FieldSelector::parse(text, Storage::Pods);
        assert!(
            parse("spec.nodeName=n,metadata.name=p")
                .unwrap()
                .selects(&pod)
        );
        assert!(parse("status.phase!=Running").unwrap().selects(&pod));
        assert!(parse("spec.nodeName=").unwrap().selects(&json!({})));
        assert!(!parse("spec.nodeName!=n").unwrap().selects(&pod));
        assert!(parse("spec.colour=red").is_err());
        assert!(parse("spec.nodeName").is_err());
        assert!(FieldSelector::parse("spec.nodeName=n", Storage::Nodes).is_err());
    }
}
