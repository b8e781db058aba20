//! DaemonSet: settings, fingerprint of the template, and scheduling constraints of the pods.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::{Value, json};

use super::bounds;
use super::condition::Condition;
use super::meta::{authored, nullable, slim};
use super::object::{Parts, Unreadable, part};
use super::resource::resource;
use crate::core::eligibility::Scheduling;
use crate::core::names::{ON_DELETE, OWN_CONDITIONS};
use crate::core::revision::TemplateFingerprint;
use crate::core::settings::{
    AdvancedSpec, FieldSettings, Invalid, ParsedSettings, SettingsSource, is_setting, read,
};
use crate::core::{DaemonSetCounts, Exclusive, Preempting};

/// The fields of an `apps/v1` DaemonSet that decisions need.
#[derive(Clone, Debug, Deserialize)]
pub struct DaemonSet {
    /// Metadata, reduced to the needed fields.
    #[serde(deserialize_with = "authored", default)]
    pub metadata: ObjectMeta,
    /// Specification, reduced to the needed fields.
    #[serde(deserialize_with = "nullable", default)]
    pub spec: DaemonSetSpec,
    /// Status, reduced to the needed fields.
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

impl DaemonSet {
    /// Parses the settings. If the object is unreadable, the settings are invalid.
    pub fn reading(&self) -> ParsedSettings {
        match (read(&self.settings()), &self.spec.unreadable) {
            (ParsedSettings::NotOurs, _) => ParsedSettings::NotOurs,
            (reading, Some(unreadable)) => {
                reading.refused(Invalid::unreadable("the DaemonSet", &unreadable.error))
            }
            (reading, None) => reading,
        }
    }

    /// Returns the parts of the object that contain settings or affect them.
    pub fn settings(&self) -> SettingsSource<'_> {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        let (spec, strategy) = (&self.spec, &self.spec.update_strategy);
        SettingsSource {
            annotations: self.metadata.annotations.as_ref().unwrap_or(&NONE),
            update_strategy: strategy.kind.as_deref(),
            rolling_update_max_unavailable: strategy
                .rolling_update
                .as_ref()
                .and_then(|block| block.get("maxUnavailable"))
                .filter(|_| spec.fields.is_none()),
            min_ready_seconds: i64::try_from(spec.min_ready.as_secs()).unwrap_or(i64::MAX),
            in_template: &spec.in_template,
            exclusive: spec.exclusive.as_ref(),
            preempting: spec.preempting.as_ref(),
            fields: spec.fields.as_deref(),
        }
    }

    /// Returns true for an Advanced DaemonSet.
    pub fn is_advanced(&self) -> bool {
        self.spec.fields.is_some()
    }

    /// Parses a native DaemonSet. If it has neither settings nor conditions of yurt-ds, its template is skipped.
    ///
    /// Such a template is never needed, and it can be a megabyte long.
    ///
    /// # Errors
    /// Returns an error if a field has the wrong type, or if the nesting is too deep.
    pub(super) fn parse_as_far_as_needed(json: &[u8]) -> serde_json::Result<Self> {
        let parts: WithoutTemplate = serde_json::from_slice(json)?;
        let annotations = parts.metadata.annotations.as_ref();
        let is_ours = annotations.is_some_and(|all| all.keys().any(|key| is_setting(key)))
            || (parts.status.conditions.iter()).any(|known| OWN_CONDITIONS.contains(&&*known.kind));
        if is_ours {
            serde_json::from_slice(json)
        } else {
            Ok(Self {
                metadata: parts.metadata,
                spec: DaemonSetSpec {
                    in_template: parts.spec.settings_in_template(),
                    update_strategy: parts.spec.update_strategy,
                    ..DaemonSetSpec::default()
                },
                status: parts.status,
            })
        }
    }

    /// Creates a DaemonSet from the readable parts of an unreadable object. Its `spec` contains the error.
    pub(super) fn salvaged(parts: &Parts<'_>, why: &Unreadable) -> Option<Self> {
        let mut status: DaemonSetStatus = part(parts.status).unwrap_or_default();
        bounds::keep_few(&mut status.conditions);
        Some(Self {
            metadata: salvaged_metadata(parts)?,
            spec: DaemonSetSpec {
                update_strategy: UpdateStrategy {
                    kind: Some(ON_DELETE.to_owned()),
                    rolling_update: None,
                },
                unreadable: Some(Box::new(why.clone())),
                ..DaemonSetSpec::default()
            },
            status,
        })
    }
}

/// A native DaemonSet without its template.
#[derive(Deserialize)]
struct WithoutTemplate {
    #[serde(deserialize_with = "slim", default)]
    metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable", default)]
    spec: SpecWithoutTemplate,
    #[serde(deserialize_with = "nullable", default)]
    status: DaemonSetStatus,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct SpecWithoutTemplate {
    #[serde(deserialize_with = "nullable")]
    update_strategy: UpdateStrategy,
    #[serde(deserialize_with = "nullable")]
    template: TemplateHead,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct TemplateHead {
    #[serde(deserialize_with = "slim")]
    metadata: ObjectMeta,
}

impl SpecWithoutTemplate {
    fn settings_in_template(&self) -> Vec<String> {
        let annotations = self.template.metadata.annotations.iter().flatten();
        let keys = annotations.map(|(key, _)| key);
        keys.filter(|key| is_setting(key)).cloned().collect()
    }
}

fn salvaged_metadata(parts: &Parts<'_>) -> Option<ObjectMeta> {
    let mut reader = serde_json::Deserializer::from_str(parts.metadata?.get());
    let metadata = slim(&mut reader).ok()?;
    (metadata.name.is_some() && metadata.uid.is_some()).then_some(metadata)
}

/// Specification of a DaemonSet.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "RawSpec")]
pub struct DaemonSetSpec {
    /// Selector of the pods, as written in the object.
    pub selector: Value,
    /// Update strategy (`spec.updateStrategy`).
    pub update_strategy: UpdateStrategy,
    /// Time for which a pod must be Ready to count as available.
    pub min_ready: Duration,
    /// Names of yurt-ds annotations in the pod template. They have no effect there, so they are reported.
    pub in_template: Vec<String>,
    /// Fingerprint of the template.
    pub template: TemplateFingerprint,
    /// Scheduling constraints, which decide on which nodes the DaemonSet's pods run.
    pub scheduling: Scheduling,
    /// Reason why two pods of the DaemonSet cannot run on one node; `None` if they can.
    pub exclusive: Option<Exclusive>,
    /// Part of the template that lets the pods preempt other pods on a full node; `None` if they can't.
    pub preempting: Option<Preempting>,
    /// Settings in the fields of an Advanced DaemonSet; `None` for a native one.
    pub fields: Option<Box<FieldSettings>>,
    /// Error if the object is unreadable. All other fields then have their default values.
    pub unreadable: Option<Box<Unreadable>>,
}

/// Update strategy (`spec.updateStrategy`).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UpdateStrategy {
    /// Type of the strategy: `OnDelete` or `RollingUpdate`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Settings in `rollingUpdate`. They are also kept if the type is `OnDelete`.
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
    // Only Advanced DaemonSets have the following fields.
    lifecycle: Option<Value>,
    burst_replicas: Option<Value>,
    revision_history_limit: Option<i64>,
    #[serde(deserialize_with = "nullable")]
    scale_strategy: ScaleStrategy,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ScaleStrategy {
    partitioned_scaling: Option<bool>,
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
            scheduling: Scheduling::from_template(&raw.template),
            exclusive: Exclusive::from_template(&raw.template),
            preempting: Preempting::from_template(&raw.template),
            template: TemplateFingerprint::of_whole(raw.template),
            fields: None,
            unreadable: None,
        }
    }
}

/// The fields of an Advanced DaemonSet (`apps.kruise.io`) that decisions need. It is converted into a [`DaemonSet`] whose spec
/// contains `fields`.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "RawAdvanced")]
pub struct AdvancedDaemonSet {
    /// Metadata, reduced to the needed fields.
    pub metadata: ObjectMeta,
    pub(super) spec: DaemonSetSpec,
    pub(super) status: DaemonSetStatus,
}

resource!(
    AdvancedDaemonSet,
    k8s_openapi::NamespaceResourceScope,
    "DaemonSet",
    "apps.kruise.io",
    "v1beta1",
    "daemonsets"
);

#[derive(Deserialize)]
struct RawAdvanced {
    #[serde(deserialize_with = "authored", default)]
    metadata: ObjectMeta,
    // Keep spec and status as JSON first. Otherwise a value of the wrong type would make the whole list unreadable.
    #[serde(default)]
    spec: Value,
    #[serde(default)]
    status: Value,
}

impl AdvancedDaemonSet {
    /// Creates an Advanced DaemonSet from the readable parts of an unreadable object. Its `spec` contains the error.
    pub(super) fn salvaged(parts: &Parts<'_>, why: &Unreadable) -> Option<Self> {
        let raw = RawAdvanced {
            metadata: salvaged_metadata(parts)?,
            spec: Value::Null,
            status: part(parts.status).unwrap_or_default(),
        };
        let mut set = Self::with_spec(raw, Err(why.to_string()));
        bounds::keep_few(&mut set.status.conditions);
        if let Some(advanced) = &mut set.status.advanced {
            bounds::keep_few(&mut advanced.conditions);
        }
        set.spec.unreadable = Some(Box::new(why.clone()));
        Some(set)
    }
}

impl From<RawAdvanced> for AdvancedDaemonSet {
    fn from(mut raw: RawAdvanced) -> Self {
        // Move the template instead of cloning it, because it can be most of the object.
        let template = raw.spec.get_mut("template").map(Value::take);
        let spec = match RawSpec::deserialize(&raw.spec) {
            Ok(spec) => Ok(RawSpec {
                template: template.unwrap_or_default(),
                ..spec
            }),
            Err(error) => {
                if let Some(template) = template {
                    raw.spec["template"] = template;
                }
                Err(error.to_string())
            }
        };
        Self::with_spec(raw, spec)
    }
}

impl AdvancedDaemonSet {
    /// Creates an Advanced DaemonSet with its parsed spec, or with the parser's error.
    fn with_spec(raw: RawAdvanced, spec: Result<RawSpec, String>) -> Self {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        let (spec, unreadable) = match spec {
            Ok(spec) => (spec, None),
            Err(error) => (RawSpec::default(), Some(error)),
        };
        let status = AdvancedStatus::deserialize(&raw.status).unwrap_or_default();
        let fields = FieldSettings::from_spec(AdvancedSpec {
            rolling_update: spec.update_strategy.rolling_update.as_ref(),
            lifecycle: spec.lifecycle.as_ref(),
            burst_replicas: spec.burst_replicas.as_ref(),
            revision_history_limit: spec.revision_history_limit,
            partitioned_scaling: spec.scale_strategy.partitioned_scaling,
            annotations: raw.metadata.annotations.as_ref().unwrap_or(&NONE),
        });
        let fields = match unreadable {
            Some(why) => fields.unreadable(&raw.spec, &why),
            None => fields.with_pods(&spec.selector, &spec.template),
        };
        let mut spec = DaemonSetSpec {
            fields: Some(Box::new(fields)),
            ..spec.into()
        };
        // Only `paused` is needed here, because `ctl pause` and `ctl resume` change it. `fields` contains all settings.
        let rolling_update = spec.update_strategy.rolling_update.take();
        let paused = rolling_update.and_then(|block| block["paused"].as_bool());
        spec.update_strategy.rolling_update = paused.map(|paused| json!({ "paused": paused }));
        Self {
            metadata: raw.metadata,
            spec,
            status: DaemonSetStatus {
                observed_generation: status.observed_generation,
                desired_number_scheduled: status.desired_number_scheduled,
                conditions: status.conditions.clone(),
                advanced: Some(Box::new(status)),
            },
        }
    }
}

impl From<AdvancedDaemonSet> for DaemonSet {
    fn from(set: AdvancedDaemonSet) -> Self {
        Self {
            metadata: set.metadata,
            spec: set.spec,
            status: set.status,
        }
    }
}

/// The status of an Advanced DaemonSet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AdvancedStatus {
    /// Generation that the controller of Advanced DaemonSets has observed.
    pub observed_generation: Option<i64>,
    /// Conditions of the DaemonSet.
    #[serde(deserialize_with = "nullable")]
    pub conditions: Vec<Condition>,
    /// Number of new revisions whose name was already in use, so that they got another one (`collisionCount`).
    pub collision_count: Option<i64>,
    /// Hash of the current revision in `v1beta1`.
    pub update_revision: Option<String>,
    /// Hash of the current revision in `v1alpha1`.
    pub daemon_set_hash: Option<String>,
    desired_number_scheduled: Option<usize>,
    current_number_scheduled: Option<usize>,
    number_misscheduled: Option<usize>,
    number_ready: Option<usize>,
    number_available: Option<usize>,
    number_unavailable: Option<usize>,
    updated_number_scheduled: Option<usize>,
}

impl AdvancedStatus {
    /// Returns the numbers of pods in the status; `None` if a required one is missing.
    pub fn counts(&self) -> Option<DaemonSetCounts> {
        Some(DaemonSetCounts {
            desired: self.desired_number_scheduled?,
            current: self.current_number_scheduled?,
            misscheduled: self.number_misscheduled?,
            ready: self.number_ready?,
            available: self.number_available.unwrap_or(0),
            unavailable: self.number_unavailable.unwrap_or(0),
            updated: self.updated_number_scheduled?,
        })
    }
}

fn settings_in(template: &Value) -> Vec<String> {
    let annotations = template["metadata"]["annotations"].as_object();
    let keys = annotations
        .into_iter()
        .flat_map(|annotations| annotations.keys());
    keys.filter(|key| is_setting(key)).cloned().collect()
}

/// Status that the native controller writes, including the conditions of yurt-ds.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonSetStatus {
    /// Generation that the native controller has observed.
    pub observed_generation: Option<i64>,
    /// Number of nodes that should run a pod, as counted by the native controller.
    pub desired_number_scheduled: Option<usize>,
    /// Conditions of the DaemonSet, including those of yurt-ds.
    #[serde(deserialize_with = "nullable")]
    pub conditions: Vec<Condition>,
    /// Status of an Advanced DaemonSet; `None` for a native one.
    #[serde(skip)]
    pub advanced: Option<Box<AdvancedStatus>>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::ParsedSettings;
    use crate::core::revision::TemplateWriter;
    use crate::core::settings::read;

    /// Returns the errors that an Advanced DaemonSet with this spec reports; empty if the spec is valid.
    fn error_of(spec: Value) -> String {
        let object = json!({ "metadata": { "namespace": "shop", "name": "agent", "uid": "u" }, "spec": spec, "status": 7 });
        let set: AdvancedDaemonSet =
            serde_json::from_value(object).expect("any object of the kind");
        match read(&DaemonSet::from(set).settings()) {
            ParsedSettings::Invalid(invalid, _) => invalid.to_string(),
            _ => String::new(),
        }
    }

    #[test]
    fn malformed_objects_are_read_and_invalid_fields_are_named() {
        let template = json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [{ "name": "c", "image": "i" }] } });
        let selector = json!({ "matchLabels": { "a": "b" } });
        let with = |key: &str, value: Value| {
            let mut spec = json!({ "selector": selector, "template": template });
            spec[key] = value;
            error_of(spec)
        };
        assert_eq!(with("minReadySeconds", json!(5)), "");
        for (key, value, expected) in [
            ("updateStrategy", json!("hello"), "which is invalid"),
            ("minReadySeconds", json!("x"), "which is invalid"),
            ("scaleStrategy", json!([1, 2]), "which is invalid"),
            ("selector", json!({}), "spec.selector is"),
            ("selector", json!({}), "every pod of the namespace"),
            (
                "selector",
                json!({ "matchLabels": { "a": "c" } }),
                "does not match the labels",
            ),
            (
                "selector",
                json!({ "matchExpressions": [{ "key": "controller-revision-hash", "operator": "DoesNotExist" }] }),
                "does not match the labels",
            ),
            ("template", json!(null), "has no containers"),
            ("template", json!("nothing"), "has no containers"),
            ("burstReplicas", json!(-1), "spec.burstReplicas is"),
        ] {
            let error = with(key, value);
            assert!(error.contains(expected), "{key}: {error}");
        }
        for spec in [json!(null), json!("x"), json!([])] {
            assert_ne!(error_of(spec.clone()), "", "{spec}");
        }
    }

    #[test]
    fn kruise_annotations_that_are_settings_are_kept() {
        for key in crate::core::names::KRUISE_PREDOWNLOADS {
            let object = json!({
                "metadata": { "namespace": "shop", "name": "agent", "uid": "u", "annotations": { key: "x" } },
                "spec": {
                    "selector": { "matchLabels": { "a": "b" } },
                    "template": { "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [{ "name": "c", "image": "i" }] } },
                },
            });
            let set: AdvancedDaemonSet = serde_json::from_value(object).expect("a whole object");
            let ParsedSettings::Invalid(invalid, _) = read(&DaemonSet::from(set).settings()) else {
                panic!("{key} is not read");
            };
            assert_eq!(invalid.key, key);
        }
    }

    #[test]
    fn the_last_writer_of_the_template_is_kept() {
        let entry = |manager: &str, time: &str, fields: Value| json!({ "manager": manager, "time": time, "fieldsV1": fields });
        let template = json!({ "f:spec": { "f:template": { "f:spec": {} } } });
        let object = json!({
            "metadata": {
                "name": "agent",
                "creationTimestamp": "2026-01-05T08:00:00Z",
                "managedFields": [
                    entry("yurt-ds-ctl", "2026-01-05T08:02:00Z", template.clone()),
                    entry("kubectl", "2026-01-05T08:01:00Z", template),
                    entry("kubectl", "2026-01-05T08:03:00Z", json!({ "f:metadata": {} })),
                ],
            },
            "spec": { "updateStrategy": { "type": "OnDelete" } },
        });
        let set: DaemonSet = serde_json::from_value(object.clone()).expect("a DaemonSet");
        assert_eq!(
            TemplateWriter::from_meta(&set.metadata)
                .expect("a writer")
                .manager,
            "yurt-ds-ctl"
        );
        let set: AdvancedDaemonSet = serde_json::from_value(object).expect("a DaemonSet");
        let set = DaemonSet::from(set);
        assert_eq!(
            TemplateWriter::from_meta(&set.metadata)
                .expect("a writer")
                .manager,
            "yurt-ds-ctl"
        );
    }
}
