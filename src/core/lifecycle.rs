//! The preDelete hook: before a pod is deleted, another program has to agree to the deletion.
//!
//! This is `lifecycle.preDelete` of Kruise's Advanced DaemonSet. A pod with one of the configured labels or finalizers is
//! *hooked*. Before the controller replaces a hooked pod, it marks the pod `PreparingDelete`. It deletes the pod after another
//! program has removed the label or finalizer. If a marked pod is kept after all, the controller removes the mark; Kruise does not.
//!
//! This module contains only data. The module `engine::removal` makes the decisions.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::foreign::quoted;
use super::labels::Labels;
use super::names::{IN_PLACE_UPDATE, PRE_DELETE, PRE_NORMAL};
use super::selector::{is_label_key, is_label_value};

/// Expected form of the value of `lifecycle`, for error messages.
const EXPECTED: &str =
    r#"use JSON such as {"preDelete": {"labelsHandler": {"example.io/drain": "true"}}}"#;

/// Configuration of the preDelete hook: labels and finalizers that delay the deletion of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PreDelete {
    /// Labels that make a pod hooked. Both key and value have to match.
    pub labels: BTreeMap<String, String>,
    /// Finalizers that make a pod hooked.
    pub finalizers: Vec<String>,
    /// True if a pod with the readiness gate `KruisePodReady` is made not Ready before its hook runs.
    pub mark_not_ready: bool,
}

impl PreDelete {
    /// Returns true if at least one label or finalizer is configured, so that pods can be hooked.
    pub fn asks(&self) -> bool {
        !self.labels.is_empty() || !self.finalizers.is_empty()
    }

    /// Parses the JSON of `spec.lifecycle` in Kruise's format; `None` if it contains no hook.
    ///
    /// # Errors
    /// Returns the end of a sentence that begins with "KEY is VALUE, …".
    pub fn read(text: &str) -> Result<Option<Self>, String> {
        let value: Value = serde_json::from_str(text)
            .map_err(|error| format!("which is not JSON ({error}); {EXPECTED}"))?;
        let Value::Object(fields) = value else {
            return Err(format!("which is not a JSON object; {EXPECTED}"));
        };
        let mut hook = None;
        for (name, value) in fields {
            match (name.as_str(), value) {
                (_, Value::Null) => {}
                (PRE_DELETE, value) => hook = Some(Self::read_hook(value)?),
                (IN_PLACE_UPDATE, _) => {
                    return Err(format!(
                        "of which {IN_PLACE_UPDATE} is not supported for DaemonSets, as in Kruise; remove it"
                    ));
                }
                // Kruise accepts `preNormal` for a DaemonSet without any effect.
                (PRE_NORMAL, _) => {}
                (other, _) => return Err(unknown(other, "preDelete")),
            }
        }
        Ok(hook)
    }

    fn read_hook(value: Value) -> Result<Self, String> {
        let Value::Object(fields) = value else {
            return Err(format!(
                "of which {PRE_DELETE} is not a JSON object; {EXPECTED}"
            ));
        };
        let mut hook = Self::default();
        for (name, value) in fields {
            let wrong =
                |what: &str| format!("of which {PRE_DELETE}.{name} is not {what}; {EXPECTED}");
            match (name.as_str(), value) {
                (_, Value::Null) => {}
                ("labelsHandler", value) => {
                    hook.labels = serde_json::from_value(value)
                        .map_err(|_| wrong("a map of labels with strings as values"))?;
                    let mut labels = hook.labels.iter();
                    if !labels.all(|(key, value)| is_label_key(key) && is_label_value(value)) {
                        return Err(wrong("a map of valid labels"));
                    }
                }
                ("finalizersHandler", value) => {
                    hook.finalizers =
                        serde_json::from_value(value).map_err(|_| wrong("a list of finalizers"))?;
                    // A finalizer has the syntax of a label key. No pod could have an invalid one.
                    if !hook.finalizers.iter().all(|name| is_label_key(name)) {
                        return Err(wrong("a list of valid finalizers"));
                    }
                }
                ("markPodNotReady", value) => {
                    hook.mark_not_ready =
                        serde_json::from_value(value).map_err(|_| wrong("true or false"))?;
                }
                (other, _) => {
                    return Err(unknown(
                        &format!("{PRE_DELETE}.{other}"),
                        "labelsHandler, finalizersHandler and markPodNotReady",
                    ));
                }
            }
        }
        Ok(hook)
    }

    /// Returns true if the pod has one of the configured labels or finalizers.
    pub fn hooks(&self, exit: &Exit) -> bool {
        self.awaited(exit).next().is_some()
    }

    /// Returns the labels and finalizers that have to be removed from a pod before its deletion. Their format is `label
    /// example.io/drain=true` and `finalizer example.io/lb`.
    pub fn awaited<'a>(&'a self, exit: &'a Exit) -> impl Iterator<Item = String> + 'a {
        let labels = self
            .labels
            .iter()
            .filter(|(key, value)| exit.labels.get(key) == Some(value.as_str()))
            .map(|(key, value)| format!("label {key}={value}"));
        let finalizers = self
            .finalizers
            .iter()
            .filter(|listed| exit.finalizers.iter().any(|found| **found == ***listed))
            .map(|finalizer| format!("finalizer {finalizer}"));
        labels.chain(finalizers)
    }
}

fn unknown(field: &str, known: &str) -> String {
    format!(
        "which has the unknown field {} (known: {known})",
        quoted(field)
    )
}

/// Facts about a pod that affect its deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Exit {
    /// Labels of the pod.
    pub labels: Labels,
    /// Finalizers of the pod.
    pub finalizers: Vec<Arc<str>>,
    /// The mark `PreparingDelete` on the pod; `None` if the pod doesn't have it.
    pub preparing: Option<PreDeleteHook>,
    /// The pod's readiness gate `KruisePodReady`; `None` if it has no such gate.
    pub gate: Option<Box<Gate>>,
}

/// State of a pod that waits for its preDelete hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PreDeleteHook {
    /// Time at which the pod began to wait for the hook; `None` if the mark doesn't record it.
    pub since: Option<Timestamp>,
}

/// State of the readiness gate `KruisePodReady`, from the condition of the same name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gate {
    /// Status of the condition, true for `True`; `None` if it was never set.
    pub status: Option<bool>,
    /// Keys that keep the condition `False`. `None` if the message has another format; the controller must not change it then.
    pub keys: Option<Vec<GateKey>>,
    /// Time at which the status became `True`; `None` if it isn't `True`, or if the time is unknown.
    pub opened: Option<Timestamp>,
}

/// Reason of one program to keep a pod not Ready, in the format of the message that Kruise writes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GateKey {
    /// Name of the program that set the key.
    #[serde(rename = "userAgent")]
    pub user_agent: String,
    /// Reason that the program gave.
    pub key: String,
}

/// Write to the condition of the readiness gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateWrite {
    /// New status of the condition, true for `True`.
    pub open: bool,
    /// New message of the condition.
    pub message: String,
    /// True if the status changes. `lastTransitionTime` then has to be set.
    pub flips: bool,
}

impl Gate {
    /// Parses the condition of the readiness gate. If the condition is absent, the gate has no status and no keys.
    pub fn read(condition: Option<(bool, &str)>) -> Self {
        let Some((open, message)) = condition else {
            return Self {
                status: None,
                keys: Some(Vec::new()),
                opened: None,
            };
        };
        Self {
            status: Some(open),
            keys: match message {
                "" => Some(Vec::new()),
                json => serde_json::from_str(json).ok(),
            },
            opened: None,
        }
    }

    /// Returns this gate with `at` as the time of the last change of its status.
    pub fn changed_at(self, at: Option<Timestamp>) -> Self {
        Self {
            opened: at.filter(|_| self.status == Some(true)),
            ..self
        }
    }

    /// Returns true if the keys that keep the pod not Ready include the controller's own [`GateKey`].
    pub(super) fn is_ours(&self) -> bool {
        self.keys.iter().flatten().any(|key| *key == own_key())
    }

    /// Returns the write that adds the controller's key and so makes the pod not Ready.
    ///
    /// Returns `None` if the gate already has the key, or if its message has another format.
    pub(super) fn shut(&self) -> Option<GateWrite> {
        let mut keys = self.keys.clone()?;
        if keys.contains(&own_key()) && self.status == Some(false) {
            return None;
        }
        keys.push(own_key());
        self.write(keys)
    }

    /// Returns the write that removes the controller's key; `None` if the gate doesn't have it.
    pub(super) fn open(&self) -> Option<GateWrite> {
        let mut keys = self.keys.clone()?;
        keys.retain(|key| *key != own_key());
        self.is_ours().then(|| self.write(keys)).flatten()
    }

    /// Returns the write that sets the status to `True` for the first time; `None` if the gate has a status.
    pub(super) fn begin(&self) -> Option<GateWrite> {
        self.status
            .is_none()
            .then(|| self.write(Vec::new()))
            .flatten()
    }

    /// Returns the write that stores these keys. The status is `True` only if there are none.
    ///
    /// The keys are sorted by user agent and then by key, as in Kruise.
    fn write(&self, mut keys: Vec<GateKey>) -> Option<GateWrite> {
        keys.sort();
        keys.dedup();
        let open = keys.is_empty();
        let message = if open {
            String::new()
        } else {
            serde_json::to_string(&keys).ok()?
        };
        Some(GateWrite {
            open,
            message,
            flips: self.status != Some(open),
        })
    }
}

/// Returns the controller's key. Kruise uses the same key, so each controller can remove a key that the other one added.
fn own_key() -> GateKey {
    GateKey {
        user_agent: "Lifecycle".into(),
        key: "preDeleteHook".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(labels: &[(&str, &str)], finalizers: &[&str]) -> Exit {
        Exit {
            labels: labels.iter().copied().collect(),
            finalizers: finalizers.iter().map(|name| (*name).into()).collect(),
            ..Exit::default()
        }
    }

    /// Checks the rules of Kruise's `IsPodHooked`.
    #[test]
    fn a_pod_is_hooked_by_any_listed_finalizer_or_label_with_exactly_that_value() {
        let text = r#"{"preDelete": {"labelsHandler": {"a": "1", "b": "2"}, "finalizersHandler": ["x.io/y"]}}"#;
        let hook = PreDelete::read(text).unwrap().unwrap();
        let case = |exit: Exit, awaited: &[&str]| {
            assert_eq!(hook.awaited(&exit).collect::<Vec<_>>(), awaited);
            assert_eq!(hook.hooks(&exit), !awaited.is_empty());
        };
        case(exit(&[], &[]), &[]);
        case(exit(&[("a", "2"), ("c", "1")], &["x.io/z"]), &[]);
        case(exit(&[("a", "1")], &[]), &["label a=1"]);
        case(exit(&[], &["k.io/l", "x.io/y"]), &["finalizer x.io/y"]);
        case(
            exit(&[("a", "1"), ("b", "2")], &["x.io/y"]),
            &["label a=1", "label b=2", "finalizer x.io/y"],
        );
        assert!(!PreDelete::default().hooks(&exit(&[("a", "1")], &["x.io/y"])));
    }

    /// Checks the rules of Kruise's webhook.
    #[test]
    fn a_lifecycle_is_parsed_like_kruise_and_errors_name_the_field() {
        let marks = |text: &str| {
            PreDelete::read(text)
                .unwrap()
                .map(|hook| hook.mark_not_ready)
        };
        assert_eq!(marks("{}"), None);
        assert_eq!(marks(r#"{"preDelete": null}"#), None);
        assert_eq!(marks(r#"{"preDelete": {}}"#), Some(false));
        assert_eq!(
            marks(r#"{"preDelete": {"markPodNotReady": true}}"#),
            Some(true)
        );
        assert_eq!(
            marks(r#"{"preNormal": {"finalizersHandler": ["x"]}}"#),
            None
        );
        let case = |text: &str, says: &str| {
            let why = PreDelete::read(text).unwrap_err();
            assert!(why.contains(says), "{text}: {why}");
        };
        case("", "which is not JSON");
        case("[]", "which is not a JSON object");
        case(r#"{"inPlaceUpdate": {}}"#, "inPlaceUpdate is not supported");
        case(
            r#"{"postDelete": {}}"#,
            "unknown field postDelete (known: preDelete)",
        );
        case(r#"{"preDelete": []}"#, "preDelete is not a JSON object");
        case(
            r#"{"preDelete": {"labelHandler": {}}}"#,
            "unknown field preDelete.labelHandler",
        );
        case(
            r#"{"preDelete": {"labelsHandler": {"a": true}}}"#,
            "preDelete.labelsHandler is not a map of labels",
        );
        case(
            r#"{"preDelete": {"labelsHandler": {"example.io/drain": "true "}}}"#,
            "preDelete.labelsHandler is not a map of valid labels",
        );
        case(
            r#"{"preDelete": {"finalizersHandler": ["example.io/lb", "bad one"]}}"#,
            "preDelete.finalizersHandler is not a list of valid finalizers",
        );
        case(
            r#"{"preDelete": {"finalizersHandler": "x"}}"#,
            "preDelete.finalizersHandler is not a list",
        );
        case(
            r#"{"preDelete": {"markPodNotReady": "true"}}"#,
            "preDelete.markPodNotReady is not true or false",
        );
    }

    /// Checks the rules for Kruise's `KruisePodReady`: several programs keep the pod not Ready, each with its own key.
    #[test]
    fn a_gate_is_open_only_while_no_client_keeps_it_shut() {
        const OWN: &str = r#"[{"userAgent":"Lifecycle","key":"preDeleteHook"}]"#;
        const BOTH: &str =
            r#"[{"userAgent":"Drain","key":"x"},{"userAgent":"Lifecycle","key":"preDeleteHook"}]"#;
        const OTHER: &str = r#"[{"userAgent":"Drain","key":"x"}]"#;
        let written = |write: Option<GateWrite>| write.map(|w| (w.open, w.message, w.flips));
        let says = |open, text: &str, flips| Some((open, text.to_owned(), flips));
        let gate = |status, message| Gate::read(Some((status, message)));
        assert_eq!(written(Gate::read(None).begin()), says(true, "", true));
        assert_eq!(written(gate(false, OTHER).begin()), None);
        assert_eq!(written(gate(true, "").shut()), says(false, OWN, true));
        assert_eq!(written(Gate::read(None).shut()), says(false, OWN, true));
        assert_eq!(written(gate(false, OTHER).shut()), says(false, BOTH, false));
        assert_eq!(written(gate(false, OWN).shut()), None);
        assert_eq!(written(gate(false, BOTH).open()), says(false, OTHER, false));
        assert_eq!(written(gate(false, OWN).open()), says(true, "", true));
        assert_eq!(written(gate(false, OTHER).open()), None);
        // The controller leaves a message unchanged if another program wrote it in its own format.
        assert_eq!(written(gate(false, "drained").shut()), None);
        assert_eq!(written(gate(false, "drained").open()), None);
    }
}
