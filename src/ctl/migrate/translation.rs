//! Translation of a DaemonSet to the other kind: a manifest, and notes about the settings.

use serde_json::{Map, Value, json};

use crate::core::SetKind;
use crate::core::names::TEMPLATE_GENERATION_ANNOTATION;

/// Annotation that `kubectl apply` compares with the next manifest. Its value describes the old kind.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Annotations that the translation removes, because they describe the old object.
const LEFT_BEHIND: [&str; 2] = [LAST_APPLIED, TEMPLATE_GENERATION_ANNOTATION];
/// Fields of the specification that are the same in both kinds.
const COMMON: [&str; 4] = [
    "selector",
    "template",
    "minReadySeconds",
    "revisionHistoryLimit",
];

/// A DaemonSet translated to the other kind.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Translation {
    /// Manifest of the translated DaemonSet.
    pub(super) object: Value,
    /// Sentences about settings that moved to another field or annotation: "OLD: VALUE becomes NEW: VALUE".
    pub(super) moved: Vec<String>,
    /// Sentences about settings that the other kind does not have.
    pub(super) lost: Vec<String>,
}

impl Translation {
    /// Begins a translation with everything that both kinds have in common.
    ///
    /// These are name, labels, annotations, owner references, and the fields of the specification in [`COMMON`].
    pub(super) fn begin(source: &Value, kind: SetKind) -> Self {
        let meta = &source["metadata"];
        let mut metadata = Map::new();
        for key in ["name", "namespace", "labels", "ownerReferences"] {
            if !meta[key].is_null() {
                metadata.insert(key.to_owned(), meta[key].clone());
            }
        }
        let mut annotations = meta["annotations"].as_object().cloned().unwrap_or_default();
        annotations.retain(|key, _| !LEFT_BEHIND.contains(&key.as_str()));
        if !annotations.is_empty() {
            metadata.insert("annotations".to_owned(), Value::Object(annotations));
        }
        let mut spec = Map::new();
        for key in COMMON {
            if !source["spec"][key].is_null() {
                spec.insert(key.to_owned(), source["spec"][key].clone());
            }
        }
        Self {
            object: json!({
                "apiVersion": kind.api_version(),
                "kind": "DaemonSet",
                "metadata": metadata,
                "spec": spec,
            }),
            moved: Vec::new(),
            lost: Vec::new(),
        }
    }

    pub(super) fn annotation(&self, key: &str) -> Option<&str> {
        self.object["metadata"]["annotations"][key].as_str()
    }

    pub(super) fn annotate(&mut self, key: &str, value: &str) {
        self.object["metadata"]["annotations"][key] = json!(value);
    }

    /// Removes an annotation and returns its value.
    pub(super) fn take(&mut self, key: &str) -> Option<String> {
        let annotations = self.object["metadata"].get_mut("annotations")?;
        let annotations = annotations.as_object_mut()?;
        let value = annotations.remove(key)?;
        if annotations.is_empty() {
            self.object["metadata"]
                .as_object_mut()?
                .remove("annotations");
        }
        Some(value.as_str().unwrap_or_default().to_owned())
    }

    pub(super) fn annotated(&self) -> Vec<String> {
        let annotations = self.object["metadata"]["annotations"].as_object();
        annotations
            .into_iter()
            .flatten()
            .map(|(key, _)| key.clone())
            .collect()
    }
}

/// Returns a value as the text of an annotation. Strings have no quotes.
pub(super) fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}
