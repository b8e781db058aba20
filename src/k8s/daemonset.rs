//! A DaemonSet: its settings, a fingerprint of its template, and where its pods belong.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;

use super::condition::Condition;
use super::meta::{nullable, slim};
use super::resource::resource;
use crate::core::eligibility::Scheduling;
use crate::core::revision::TemplateFingerprint;
use crate::core::strategy::is_setting;
use crate::core::{Exclusive, Preempting};

/// The part of an `apps/v1` DaemonSet that is decided upon.
#[derive(Clone, Debug, Deserialize)]
pub struct DaemonSet {
    /// Slim metadata.
    #[serde(deserialize_with = "slim", default)]
    pub metadata: ObjectMeta,
    /// Slim spec.
    #[serde(deserialize_with = "nullable", default)]
    pub spec: DaemonSetSpec,
    /// Slim status.
    #[serde(deserialize_with = "nullable", default)]
    pub status: DaemonSetStatus,
}

resource!(
    DaemonSet,
    k8s_openapi::NamespaceResourceScope,
    "DaemonSet",
    "apps",
    "v1",
    "daemonsets"
);

/// What the DaemonSet asks for.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "RawSpec")]
pub struct DaemonSetSpec {
    /// Selector of its pods, as written.
    pub selector: Value,
    /// How the native controller replaces pods.
    pub update_strategy: UpdateStrategy,
    /// How long a pod has to be Ready to be available.
    pub min_ready: Duration,
    /// Settings of ours among the annotations of the template, where they have no effect.
    pub in_template: Vec<String>,
    /// Fingerprint of the template.
    pub template: TemplateFingerprint,
    /// Where its pods belong.
    pub scheduling: Scheduling,
    /// Why two of its pods cannot run on one node, if so.
    pub exclusive: Option<Exclusive>,
    /// What lets its pods drive others off a node without room, if anything.
    pub preempting: Option<Preempting>,
}

/// `spec.updateStrategy`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UpdateStrategy {
    /// `OnDelete` or `RollingUpdate`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Settings of `RollingUpdate`, which may be left over.
    pub rolling_update: Option<Value>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawSpec {
    selector: Value,
    #[serde(deserialize_with = "nullable")]
    update_strategy: UpdateStrategy,
    min_ready_seconds: Option<i64>,
    template: Value,
}

impl Default for DaemonSetSpec {
    fn default() -> Self {
        RawSpec::default().into()
    }
}

impl From<RawSpec> for DaemonSetSpec {
    fn from(raw: RawSpec) -> Self {
        Self {
            selector: raw.selector,
            update_strategy: raw.update_strategy,
            min_ready: Duration::from_secs(
                raw.min_ready_seconds.unwrap_or(0).try_into().unwrap_or(0),
            ),
            in_template: settings_in(&raw.template),
            template: TemplateFingerprint::of(&raw.template),
            scheduling: Scheduling::from_template(&raw.template),
            exclusive: Exclusive::of(&raw.template),
            preempting: Preempting::of(&raw.template),
        }
    }
}

fn settings_in(template: &Value) -> Vec<String> {
    let annotations = template["metadata"]["annotations"].as_object();
    let keys = annotations
        .into_iter()
        .flat_map(|annotations| annotations.keys());
    keys.filter(|key| is_setting(key)).cloned().collect()
}

/// What the native controller last said, and our conditions beside it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonSetStatus {
    /// The generation that the native controller has handled.
    pub observed_generation: Option<i64>,
    /// All conditions.
    #[serde(deserialize_with = "nullable")]
    pub conditions: Vec<Condition>,
}
