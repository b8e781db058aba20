//! What a DaemonSet of one kind is as one of the other: a manifest, and what has to be said of it.

use serde_json::{Map, Value, json};

use crate::core::SetKind;
use crate::core::names::TEMPLATE_GENERATION_ANNOTATION;

/// What kubectl compares the next apply with; it is about the other kind.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Annotations that say what was true of the other object, and are not carried over.
const LEFT_BEHIND: [&str; 2] = [LAST_APPLIED, TEMPLATE_GENERATION_ANNOTATION];
/// Of the specification what both kinds have.
const COMMON: [&str; 4] = [
    "selector",
    "template",
    "minReadySeconds",
    "revisionHistoryLimit",
];

/// A DaemonSet as the other kind has it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Translation {
    /// Its manifest.
    pub(super) object: Value,
    /// Settings that stand in another place there, as "THERE: VALUE becomes HERE: VALUE".
    pub(super) moved: Vec<String>,
    /// What has no counterpart, each as a sentence.
    pub(super) lost: Vec<String>,
}

impl Translation {
    /// The same DaemonSet as one of `kind`, still without settings in its specification: with its name, its labels, its
    /// annotations, its other owners, and what both kinds have of the specification.
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

    /// An annotation of it.
    pub(super) fn annotation(&self, key: &str) -> Option<&str> {
        self.object["metadata"]["annotations"][key].as_str()
    }

    /// Sets an annotation.
    pub(super) fn annotate(&mut self, key: &str, value: &str) {
        self.object["metadata"]["annotations"][key] = json!(value);
    }

    /// Takes an annotation away, and says what it was.
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

    /// The keys of its annotations.
    pub(super) fn annotated(&self) -> Vec<String> {
        let annotations = self.object["metadata"]["annotations"].as_object();
        annotations
            .into_iter()
            .flatten()
            .map(|(key, _)| key.clone())
            .collect()
    }
}

/// A value as somebody would write it: a text without its quotes.
pub(super) fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}
