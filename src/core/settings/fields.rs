//! Settings in the spec fields of an Advanced DaemonSet (Kruise).
//!
//! | field | setting |
//! |---|---|
//! | `spec.updateStrategy.rollingUpdate.maxUnavailable` | `max-unavailable`, default 1 |
//! | `….maxSurge`, `….partition`, `….selector`, `….paused` | the setting of the same name |
//! | `….rollingUpdateType` | `rolling-update-type`; `Surging` means a `max-surge` of 1 with a `max-unavailable` of 0 |
//! | `spec.lifecycle` | `lifecycle` |
//! | annotations `apps.kruise.io/image-predownload-…` | `image-predownload-…` |
//!
//! If a setting has both a field and an annotation, the field counts. If the field is absent, the annotation applies. So a native
//! DaemonSet keeps its settings when it is converted to an Advanced DaemonSet.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde_json::Value;

use super::error::{Invalid, Note};
use super::kruise;
use super::value::{IntOrPercent, LONGEST};
use crate::core::eligibility;
use crate::core::foreign::beginning;
use crate::core::foreign::quoted;
use crate::core::names::{
    ANNOTATION_PREFIX, KRUISE_PREDOWNLOADS, PROGRESSIVE_CREATE_POD, REVISION_HASH_LABEL,
    TEMPLATE_GENERATION_LABEL,
};
use crate::core::selector::Selector;

/// Default of `spec.burstReplicas`, as in Kruise.
pub const DEFAULT_BURST: IntOrPercent = IntOrPercent::Number(250);

/// Default of `spec.revisionHistoryLimit` (Kubernetes).
pub const DEFAULT_HISTORY_LIMIT: usize = 10;

/// Fields of `spec.updateStrategy.rollingUpdate` that are settings, with their paths. A field and its setting have the same name in
/// different spellings.
const FIELDS: [(&str, &str); 6] = [
    (
        "maxUnavailable",
        "spec.updateStrategy.rollingUpdate.maxUnavailable",
    ),
    ("maxSurge", "spec.updateStrategy.rollingUpdate.maxSurge"),
    ("partition", "spec.updateStrategy.rollingUpdate.partition"),
    ("selector", "spec.updateStrategy.rollingUpdate.selector"),
    ("paused", "spec.updateStrategy.rollingUpdate.paused"),
    (
        ROLLING_UPDATE_TYPE,
        "spec.updateStrategy.rollingUpdate.rollingUpdateType",
    ),
];
const ROLLING_UPDATE_TYPE: &str = "rollingUpdateType";
const LIFECYCLE: (&str, &str) = ("lifecycle", "spec.lifecycle");
const BURST_FIELD: &str = "spec.burstReplicas";
const HISTORY_FIELD: &str = "spec.revisionHistoryLimit";

/// Deprecated rolling update type, under which the new pod is created next to the old one (Kruise, `v1alpha1`).
const SURGING: &str = "Surging";

/// Parts of an Advanced DaemonSet that configure its rollout.
#[derive(Clone, Copy, Debug)]
pub struct AdvancedSpec<'a> {
    /// `spec.updateStrategy.rollingUpdate`.
    pub rolling_update: Option<&'a Value>,
    /// `spec.lifecycle`.
    pub lifecycle: Option<&'a Value>,
    /// `spec.burstReplicas`.
    pub burst_replicas: Option<&'a Value>,
    /// `spec.revisionHistoryLimit`.
    pub revision_history_limit: Option<i64>,
    /// `spec.scaleStrategy.partitionedScaling`.
    pub partitioned_scaling: Option<bool>,
    /// `metadata.annotations`.
    pub annotations: &'a BTreeMap<String, String>,
}

/// Fields of an Advanced DaemonSet, as strings for the settings to parse.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSettings {
    /// Path and value of each setting, by the name of its field or Kruise annotation.
    written: BTreeMap<&'static str, (&'static str, String)>,
    /// First error that is found before the settings are parsed: in a field that is no rollout setting, or in a `selector` that is
    /// not an object.
    invalid: Option<Invalid>,
    /// Limits on the creation of pods.
    pub scaling: Scaling,
    /// True if no pod can be created from the spec, or if the DaemonSet's selector wouldn't match such a pod. Then the controller
    /// creates and deletes no pods.
    is_unworkable: bool,
}

/// Limits for the pods and the revision history of an Advanced DaemonSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scaling {
    /// Maximum number of pods that are created at once, and of pods that are deleted at once (`spec.burstReplicas`).
    ///
    /// Percentages refer to the targeted nodes. At least one pod is allowed.
    pub burst: IntOrPercent,
    /// True if `partition` also keeps nodes without a pod from getting their first one (`spec.scaleStrategy.partitionedScaling`).
    pub partitioned: bool,
    /// Number of old revisions to keep (`spec.revisionHistoryLimit`). Revisions that a pod still has don't count.
    pub history_limit: usize,
}

impl Default for Scaling {
    fn default() -> Self {
        Self {
            burst: DEFAULT_BURST,
            partitioned: false,
            history_limit: DEFAULT_HISTORY_LIMIT,
        }
    }
}

impl Scaling {
    /// Returns the maximum number of pods to create at once, and of pods to delete at once.
    ///
    /// Absolute values may exceed `targeted`, because pods may have to be deleted from nodes that are no longer targeted.
    pub(in crate::core) fn at_once(&self, targeted: usize) -> usize {
        match self.burst {
            IntOrPercent::Number(pods) => pods as usize,
            share @ IntOrPercent::Percent(_) => share.resolve_down(targeted).max(1),
        }
    }
}

impl FieldSettings {
    /// Reads the settings from the fields of an Advanced DaemonSet.
    pub fn from_spec(spec: AdvancedSpec<'_>) -> Self {
        let mut fields = Self::default();
        let block = |name: &str| {
            spec.rolling_update?
                .get(name)
                .filter(|value| !value.is_null())
        };
        for (name, path) in FIELDS {
            match block(name) {
                // The field has to be an object, not a string in the syntax of `kubectl -l`. Only the annotation allows that
                // syntax.
                Some(value) if name == "selector" && !value.is_object() => {
                    let why = "which is not a label selector; use matchLabels or matchExpressions";
                    let invalid = Invalid::new(path, &text(value), why);
                    fields.invalid.get_or_insert(invalid);
                }
                Some(value) => fields.write(name, path, value),
                None => {}
            }
        }
        if block(ROLLING_UPDATE_TYPE).and_then(Value::as_str) == Some(SURGING) {
            for (name, path) in FIELDS {
                let text = match name {
                    "maxSurge" => "1",
                    "maxUnavailable" => "0",
                    _ => continue,
                };
                let place = fields.written.entry(name);
                place.or_insert_with(|| (path, text.to_owned()));
            }
            fields.written.remove(ROLLING_UPDATE_TYPE);
        }
        if let Some(lifecycle) = spec.lifecycle.filter(|value| !value.is_null()) {
            fields.write(LIFECYCLE.0, LIFECYCLE.1, lifecycle);
        }
        // A Kruise annotation counts unless the DaemonSet also has the yurt-ds annotation with the same meaning.
        for place in KRUISE_PREDOWNLOADS {
            let (name, mut keys) = (kruise::name(place), spec.annotations.keys());
            let text = spec.annotations.get(place);
            if let Some(text) = text.filter(|_| !keys.any(|key| is_field_of(name, key))) {
                fields.written.insert(name, (place, text.clone()));
            }
        }
        let annotated = || {
            let text = spec.annotations.get(PROGRESSIVE_CREATE_POD);
            text.is_some_and(|text| text == "true")
        };
        fields.scaling.partitioned = spec.partitioned_scaling.unwrap_or_else(annotated);
        fields.read_burst(spec.burst_replicas);
        fields.read_history(spec.revision_history_limit);
        fields
    }

    /// Checks that the selector matches the labels of the template. The validation rules of the CRD also require that, but an API
    /// server may not enforce them.
    pub fn with_pods(mut self, selector: &Value, template: &Value) -> Self {
        if let Err(invalid) = check_pods(selector, template) {
            self.is_unworkable = true;
            self.invalid = Some(invalid);
        }
        self
    }

    /// Records that `spec` can't be decoded, so that all its fields are invalid.
    pub fn unreadable(mut self, spec: &Value, why: &str) -> Self {
        self.is_unworkable = true;
        let why = format!("which is invalid ({why}); correct it");
        self.invalid = Some(Invalid {
            is_object: true,
            ..Invalid::new("spec", &quoted(&text(spec)), why)
        });
        self
    }

    /// Returns true if pods can be created from the spec, and its selector finds them.
    pub fn is_workable(&self) -> bool {
        !self.is_unworkable
    }

    fn write(&mut self, name: &'static str, path: &'static str, value: &Value) {
        // A value longer than the limit is invalid, so only one byte more than the limit is kept.
        let text = beginning(&text(value), LONGEST + 1).to_owned();
        self.written.insert(name, (path, text));
    }

    fn read_burst(&mut self, value: Option<&Value>) {
        let Some(value) = value.filter(|value| !value.is_null()) else {
            return;
        };
        let text = text(value);
        match IntOrPercent::above_zero(&text) {
            Ok(burst) => self.scaling.burst = burst,
            Err(flaw) => {
                self.invalid
                    .get_or_insert(Invalid::new(BURST_FIELD, &text, flaw.to_string()));
            }
        }
    }

    fn read_history(&mut self, limit: Option<i64>) {
        let Some(limit) = limit else { return };
        match usize::try_from(limit) {
            Ok(limit) => self.scaling.history_limit = limit,
            Err(_) => {
                let why = "which is negative; set the number of old revisions to keep, 0 or more";
                self.invalid
                    .get_or_insert(Invalid::new(HISTORY_FIELD, &limit.to_string(), why));
            }
        }
    }

    /// Returns the path and the value of a setting's field; `None` if the field is absent.
    pub(super) fn written(&self, key: &str) -> Option<(&'static str, &str)> {
        let mut written = self.written.iter();
        let (_, (path, text)) = written.find(|(name, _)| is_field_of(name, key))?;
        Some((path, text))
    }

    /// Returns the first error about a field that is no rollout setting; `Ok` if all such fields are valid.
    pub(super) fn check(&self) -> Result<(), Invalid> {
        self.invalid.clone().map_or(Ok(()), Err)
    }

    /// Returns warnings about annotations that fields override.
    pub(super) fn advice(&self, annotations: &BTreeMap<String, String>) -> Vec<Note> {
        let mut notes = Vec::new();
        for (name, (path, text)) in &self.written {
            let mut keys = annotations.keys();
            let key = keys.find(|key| is_field_of(name, key));
            if let Some(key) = key.filter(|_| path.starts_with("spec.")) {
                notes.push(Note::warning(format!(
                    "{path} is {text} and overrides the annotation {key}; remove the annotation"
                )));
            }
        }
        notes
    }
}

/// Set of the settings of an Advanced DaemonSet whose value is in a spec field and not in an annotation.
///
/// It has one bit for each entry of [`FIELDS`], and one for `lifecycle`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecidingFields(u8);

impl DecidingFields {
    /// Adds the setting `key` to the set, if it has a field.
    pub fn with(self, key: &str) -> Self {
        let bit = fields().position(|(name, _)| is_field_of(name, key));
        Self(self.0 | bit.map_or(0, |bit| 1 << bit))
    }

    /// Returns the path of a setting's field; `None` if the setting is not in this set.
    pub(super) fn path_of(self, key: &str) -> Option<&'static str> {
        let mut known = fields().enumerate();
        let found = known.find(|(_, (name, _))| is_field_of(name, key));
        let (_, (_, path)) = found.filter(|(bit, _)| self.0 & (1 << bit) > 0)?;
        Some(path)
    }
}

/// Returns the fields that are settings.
fn fields() -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    FIELDS.iter().chain([&LIFECYCLE])
}

/// Returns the path of a setting's field on an Advanced DaemonSet; `None` if it has none.
pub fn path_of(key: &str) -> Option<&'static str> {
    let found = fields().find(|(name, _)| is_field_of(name, key));
    found.map(|(_, path)| *path)
}

/// Returns true if `field` and `key` mean the same setting, such as `maxUnavailable` and `apps.openyurt.io/max-unavailable`.
///
/// For a Kruise annotation, `field` is its name without the prefix.
fn is_field_of(field: &str, key: &str) -> bool {
    let Some(name) = key.strip_prefix(ANNOTATION_PREFIX) else {
        return false;
    };
    let plain = name.chars().filter(|letter| *letter != '-');
    field == name || plain.eq(field.chars().map(|letter| letter.to_ascii_lowercase()))
}

/// Checks that `selector` matches the pods of `template` in every revision.
fn check_pods(selector: &Value, template: &Value) -> Result<(), Invalid> {
    let refused = |field: &str, value: &Value, why: &str| {
        Err(Invalid::new(field, &quoted(&text(value)), why.to_owned()))
    };
    let (field, written) = ("spec.selector", selector);
    let Ok(selector) = Selector::from_json(selector) else {
        return refused(
            field,
            written,
            "which is not a label selector; use matchLabels",
        );
    };
    if selector == Selector::default() {
        let why = "which selects every pod of the namespace (SelectingAll); select a label of the template";
        return refused(field, written, why);
    }
    let containers = template
        .pointer("/spec/containers")
        .and_then(Value::as_array);
    if containers.is_none_or(Vec::is_empty) {
        let why = "which has no containers; use a valid pod template";
        return refused("spec.template", template, why);
    }
    if let Err(flaw) = eligibility::template::check(template) {
        let field = format!("spec.template.{}", flaw.path);
        let why = format!("which Kubernetes rejects in a pod; use {}", flaw.expected);
        return refused(&field, flaw.value, &why);
    }
    let labels = template.pointer("/metadata/labels");
    // Every pod has these two labels with values that differ between revisions. So the selector has to match any values.
    let is_found = |other: &str| {
        selector.matches(|key| match key {
            REVISION_HASH_LABEL | TEMPLATE_GENERATION_LABEL => {
                Some(other).filter(|text| !text.is_empty())
            }
            key => labels?.get(key)?.as_str(),
        })
    };
    if ["", "a", "b"].into_iter().all(is_found) {
        Ok(())
    } else {
        refused(
            field,
            written,
            "which does not match the labels of the template, so it would not select the DaemonSet's own pods; give the \
             template these labels",
        )
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
