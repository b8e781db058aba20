//! Settings in fields: what the spec of an Advanced DaemonSet says of its rollout (Kruise).
//!
//! | field | setting |
//! |---|---|
//! | `spec.updateStrategy.rollingUpdate.maxUnavailable` | `max-unavailable`, by default 1 |
//! | `….maxSurge`, `….partition`, `….selector`, `….paused` | those of that name |
//! | `….rollingUpdateType` | `rolling-update-type`; `Surging` is a `max-surge` of 1 beside a `max-unavailable` of 0 |
//! | `spec.lifecycle` | `lifecycle` |
//! | annotation `apps.kruise.io/image-predownload-parallelism` | `image-predownload-parallelism` |
//!
//! A field decides before the annotation of the same meaning, which counts where the field is absent: whoever makes an
//! Advanced DaemonSet of a native one keeps what was set.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde_json::Value;

use super::image_predownload_parallelism::IMAGE_PREDOWNLOAD_PARALLELISM;
use super::lifecycle::LIFECYCLE;
use super::max_surge::MAX_SURGE;
use super::max_unavailable::MAX_UNAVAILABLE;
use super::partition::PARTITION;
use super::paused::PAUSED;
use super::rolling_update_type::ROLLING_UPDATE_TYPE;
use super::selector::SELECTOR;
use super::value::Share;
use super::{Invalid, Note};
use crate::core::names::{KRUISE_PREDOWNLOAD_PARALLELISM, PROGRESSIVE_CREATE_POD};

/// `spec.burstReplicas` where nothing is set (Kruise).
pub const DEFAULT_BURST: Share = Share::Number(250);

/// `spec.revisionHistoryLimit` where nothing is set (Kubernetes).
pub const DEFAULT_HISTORY_LIMIT: usize = 10;

/// Where each setting stands that has a field.
const FIELDS: [(&str, &str, &str); 6] = [
    (
        MAX_UNAVAILABLE,
        "maxUnavailable",
        "spec.updateStrategy.rollingUpdate.maxUnavailable",
    ),
    (
        MAX_SURGE,
        "maxSurge",
        "spec.updateStrategy.rollingUpdate.maxSurge",
    ),
    (
        PARTITION,
        "partition",
        "spec.updateStrategy.rollingUpdate.partition",
    ),
    (
        SELECTOR,
        "selector",
        "spec.updateStrategy.rollingUpdate.selector",
    ),
    (PAUSED, "paused", "spec.updateStrategy.rollingUpdate.paused"),
    (
        ROLLING_UPDATE_TYPE,
        "rollingUpdateType",
        "spec.updateStrategy.rollingUpdate.rollingUpdateType",
    ),
];
const LIFECYCLE_FIELD: &str = "spec.lifecycle";
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
    /// By the key of the setting: where it stands, and what is written there.
    written: BTreeMap<&'static str, (&'static str, String)>,
    /// What cannot be used of the fields that are no settings of the rollout.
    invalid: Option<Invalid>,
    /// How its pods are made.
    pub scaling: Scaling,
}

/// How the pods of an Advanced DaemonSet are made, and what is kept of its past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scaling {
    /// How many pods are made at once, and how many are deleted; of the targeted nodes, at least one (`spec.burstReplicas`).
    pub burst: Share,
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
            Share::Number(pods) => pods as usize,
            share @ Share::Percent(_) => share.resolve_down(targeted).max(1),
        }
    }
}

impl FieldSettings {
    /// Reads the fields.
    pub fn of(spec: AdvancedSpec<'_>) -> Self {
        let mut fields = Self::default();
        let block = |name: &str| {
            spec.rolling_update?
                .get(name)
                .filter(|value| !value.is_null())
        };
        for (key, name, path) in FIELDS {
            match block(name) {
                // As a text it could be one that annotations are written in.
                Some(value) if key == SELECTOR && !value.is_object() => {
                    let why = "which is no label selector; use matchLabels or matchExpressions";
                    let invalid = Invalid::new(path, &text(value), why);
                    fields.invalid.get_or_insert(invalid);
                }
                Some(value) => fields.write(key, path, value),
                None => {}
            }
        }
        if block("rollingUpdateType").and_then(Value::as_str) == Some(SURGING) {
            let path = |wanted: &str| FIELDS.iter().find(|(key, ..)| *key == wanted);
            let mut set = |key: &'static str, text: &str| {
                let path = path(key).map_or(key, |(_, _, path)| path);
                let place = fields.written.entry(key);
                place.or_insert_with(|| (path, text.to_owned()));
            };
            set(MAX_SURGE, "1");
            set(MAX_UNAVAILABLE, "0");
            fields.written.remove(ROLLING_UPDATE_TYPE);
        }
        if let Some(lifecycle) = spec.lifecycle.filter(|value| !value.is_null()) {
            fields.write(LIFECYCLE, LIFECYCLE_FIELD, lifecycle);
        }
        // A percentage means nothing to Kruise.
        let parallelism = spec.annotations.get(KRUISE_PREDOWNLOAD_PARALLELISM);
        if let Some(text) = parallelism
            && !spec.annotations.contains_key(IMAGE_PREDOWNLOAD_PARALLELISM)
        {
            let written = (KRUISE_PREDOWNLOAD_PARALLELISM, text.clone());
            fields
                .written
                .insert(IMAGE_PREDOWNLOAD_PARALLELISM, written);
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

    fn write(&mut self, key: &'static str, path: &'static str, value: &Value) {
        self.written.insert(key, (path, text(value)));
    }

    fn read_burst(&mut self, value: Option<&Value>) {
        let Some(value) = value.filter(|value| !value.is_null()) else {
            return;
        };
        let text = text(value);
        match Share::above_zero(&text) {
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
        let (path, text) = self.written.get(key)?;
        Some((path, text))
    }

    /// What of the fields that are no settings cannot be used.
    pub(super) fn check(&self) -> Result<(), Invalid> {
        self.invalid.clone().map_or(Ok(()), Err)
    }

    /// Annotations that count for nothing because a field says it.
    pub(super) fn advice(&self, annotations: &BTreeMap<String, String>) -> Vec<Note> {
        let told = self.written.iter().filter(|(key, (path, _))| {
            path.starts_with("spec.") && annotations.contains_key(**key)
        });
        let note = |(key, (path, text)): (&&str, &(&str, String))| {
            Note::warning(format!(
                "{path} is {text}, and {key} has no effect beside it; remove the annotation"
            ))
        };
        told.map(note).collect()
    }
}

/// What sentences call the place of a setting on an Advanced DaemonSet; `None`: it has no field.
pub(super) fn path_of(key: &str) -> Option<&'static str> {
    let of_field = || FIELDS.iter().find(|(known, ..)| *known == key);
    match key == LIFECYCLE {
        true => Some(LIFECYCLE_FIELD),
        false => of_field().map(|(_, _, path)| *path),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
