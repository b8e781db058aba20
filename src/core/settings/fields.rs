//! Settings in fields: what the spec of an Advanced DaemonSet says of its rollout (Kruise).
//!
//! | field | setting |
//! |---|---|
//! | `spec.updateStrategy.rollingUpdate.maxUnavailable` | `max-unavailable`, by default 1 |
//! | `….maxSurge`, `….partition`, `….selector`, `….paused` | those of that name |
//! | `….rollingUpdateType` | `rolling-update-type`; `Surging` is a `max-surge` of 1 beside a `max-unavailable` of 0 |
//! | `spec.lifecycle` | `lifecycle` |
//! | annotations `apps.kruise.io/image-predownload-…` | `image-predownload-…` |
//!
//! A field decides before the annotation of the same meaning, which counts where the field is absent: whoever makes an
//! Advanced DaemonSet of a native one keeps what was set.

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

/// `spec.burstReplicas` where nothing is set (Kruise).
pub const DEFAULT_BURST: IntOrPercent = IntOrPercent::Number(250);

/// `spec.revisionHistoryLimit` where nothing is set (Kubernetes).
pub const DEFAULT_HISTORY_LIMIT: usize = 10;

/// The fields of `spec.updateStrategy.rollingUpdate` that are settings, each with its path. A setting and its field have the same
/// name, each in the spelling of its place.
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

/// The deprecated type of a rolling update that makes new pods beside old ones (Kruise, `v1alpha1`).
const SURGING: &str = "Surging";

/// The parts of an Advanced DaemonSet that say how it is rolled out.
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

/// What the fields of an Advanced DaemonSet say, as texts that the settings read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSettings {
    /// By the name of the field, or of an annotation of Kruise: where it stands, and what is written there.
    written: BTreeMap<&'static str, (&'static str, String)>,
    /// What cannot be used of the fields that are no settings of the rollout.
    invalid: Option<Invalid>,
    /// How its pods are made.
    pub scaling: Scaling,
    /// That no pod can be made or found by what is written: nothing at all is done then.
    is_unworkable: bool,
}

/// How the pods of an Advanced DaemonSet are made, and what is kept of its past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scaling {
    /// How many pods are made at once, and how many are deleted; of the targeted nodes, at least one (`spec.burstReplicas`).
    pub burst: IntOrPercent,
    /// Whether `partition` also limits the first pods (`spec.scaleStrategy.partitionedScaling`).
    pub partitioned: bool,
    /// How many revisions are kept that no pod runs any more (`spec.revisionHistoryLimit`).
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
    /// How many pods are made, and how many are deleted, at once where so many nodes are targeted. A number is that number: pods may
    /// have to go from more nodes than there are left.
    pub(in crate::core) fn at_once(&self, targeted: usize) -> usize {
        match self.burst {
            IntOrPercent::Number(pods) => pods as usize,
            share @ IntOrPercent::Percent(_) => share.resolve_down(targeted).max(1),
        }
    }
}

impl FieldSettings {
    /// Reads the fields.
    pub fn from_spec(spec: AdvancedSpec<'_>) -> Self {
        let mut fields = Self::default();
        let block = |name: &str| {
            spec.rolling_update?
                .get(name)
                .filter(|value| !value.is_null())
        };
        for (name, path) in FIELDS {
            match block(name) {
                // As a text it could be one that annotations are written in.
                Some(value) if name == "selector" && !value.is_object() => {
                    let why = "which is no label selector; use matchLabels or matchExpressions";
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
        // A parallelism in percent means nothing to Kruise.
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

    /// The same of a DaemonSet with this selector and template, which have to fit together: an API server that knows the rules of the
    /// definition refuses others.
    pub fn with_pods(mut self, selector: &Value, template: &Value) -> Self {
        if let Err(invalid) = check_pods(selector, template) {
            self.is_unworkable = true;
            self.invalid = Some(invalid);
        }
        self
    }

    /// The same of one whose `spec` cannot be read at all, and why.
    pub fn unreadable(mut self, spec: &Value, why: &str) -> Self {
        self.is_unworkable = true;
        let why = format!("which cannot be read ({why}); correct it");
        self.invalid = Some(Invalid {
            is_object: true,
            ..Invalid::new("spec", &quoted(&text(spec)), why)
        });
        self
    }

    /// Whether pods can be made and found.
    pub fn is_workable(&self) -> bool {
        !self.is_unworkable
    }

    fn write(&mut self, name: &'static str, path: &'static str, value: &Value) {
        // A longer one cannot be used, and is not kept.
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
                let why = "which is negative; use how many old revisions are kept, 0 or more";
                self.invalid
                    .get_or_insert(Invalid::new(HISTORY_FIELD, &limit.to_string(), why));
            }
        }
    }

    /// Where that setting stands, and what is written there.
    pub(super) fn written(&self, key: &str) -> Option<(&'static str, &str)> {
        let mut written = self.written.iter();
        let (_, (path, text)) = written.find(|(name, _)| is_field_of(name, key))?;
        Some((path, text))
    }

    /// What of the fields that are no settings cannot be used.
    pub(super) fn check(&self) -> Result<(), Invalid> {
        self.invalid.clone().map_or(Ok(()), Err)
    }

    /// Annotations that count for nothing because a field says it.
    pub(super) fn advice(&self, annotations: &BTreeMap<String, String>) -> Vec<Note> {
        let mut notes = Vec::new();
        for (name, (path, text)) in &self.written {
            let mut keys = annotations.keys();
            let key = keys.find(|key| is_field_of(name, key));
            if let Some(key) = key.filter(|_| path.starts_with("spec.")) {
                notes.push(Note::warning(format!(
                    "{path} is {text}, and {key} has no effect beside it; remove the annotation"
                )));
            }
        }
        notes
    }
}

/// Which settings fields of an Advanced DaemonSet decide, or would: those of which no annotation is there instead. A bit for
/// each line of [`FIELDS`], and one for `lifecycle`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecidingFields(u8);

impl DecidingFields {
    /// With that setting, if it has a field.
    pub fn with(self, key: &str) -> Self {
        let bit = fields().position(|(name, _)| is_field_of(name, key));
        Self(self.0 | bit.map_or(0, |bit| 1 << bit))
    }

    /// The field of that setting, if it decides.
    pub(super) fn path_of(self, key: &str) -> Option<&'static str> {
        let mut known = fields().enumerate();
        let found = known.find(|(_, (name, _))| is_field_of(name, key));
        let (_, (_, path)) = found.filter(|(bit, _)| self.0 & (1 << bit) > 0)?;
        Some(path)
    }
}

/// The fields that are settings.
fn fields() -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    FIELDS.iter().chain([&LIFECYCLE])
}

/// What sentences call the place of a setting on an Advanced DaemonSet; `None`: it has no field.
pub fn path_of(key: &str) -> Option<&'static str> {
    let found = fields().find(|(name, _)| is_field_of(name, key));
    found.map(|(_, path)| *path)
}

/// Whether the field of that name is the setting of that key: `maxUnavailable`, `apps.openyurt.io/max-unavailable`. An annotation
/// of Kruise has its very name.
fn is_field_of(field: &str, key: &str) -> bool {
    let Some(name) = key.strip_prefix(ANNOTATION_PREFIX) else {
        return false;
    };
    let plain = name.chars().filter(|letter| *letter != '-');
    field == name || plain.eq(field.chars().map(|letter| letter.to_ascii_lowercase()))
}

/// Whether the pods of `template` are found by `selector`, whatever their revision.
fn check_pods(selector: &Value, template: &Value) -> Result<(), Invalid> {
    let refused = |field: &str, value: &Value, why: &str| {
        Err(Invalid::new(field, &quoted(&text(value)), why.to_owned()))
    };
    let (field, told) = ("spec.selector", selector);
    let Ok(selector) = Selector::from_json(selector) else {
        return refused(field, told, "which is no label selector; use matchLabels");
    };
    if selector == Selector::default() {
        let why =
            "which selects every pod of the namespace (SelectingAll); name a label of the template";
        return refused(field, told, why);
    }
    let containers = template
        .pointer("/spec/containers")
        .and_then(Value::as_array);
    if containers.is_none_or(Vec::is_empty) {
        let why = "which has no containers; give the template of a pod";
        return refused("spec.template", template, why);
    }
    if let Err(flaw) = eligibility::template::check(template) {
        let field = format!("spec.template.{}", flaw.path);
        let why = format!("which Kubernetes refuses in a pod; use {}", flaw.expected);
        return refused(&field, flaw.value, &why);
    }
    let labels = template.pointer("/metadata/labels");
    // The labels that every pod gets beside its own differ from one to the next.
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
            told,
            "which does not match the labels of the template, with any controller-revision-hash: its pods would never be found; \
             give the template these labels",
        )
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
