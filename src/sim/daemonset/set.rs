//! DaemonSet as the native controller reads it.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use crate::core::eligibility::Scheduling;
use crate::core::names::TEMPLATE_GENERATION_ANNOTATION;
use crate::core::selector::Selector;

/// DaemonSet. Its template is kept as JSON, so that no field is lost. All other fields are parsed.
#[derive(Clone, Debug)]
pub(super) struct Set {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) annotations: Value,
    pub(super) is_deleted: bool,
    pub(super) generation: i64,
    pub(super) template_generation: Option<String>,
    pub(super) template: Value,
    /// Selector; `None` if it is invalid or selects everything. The native controller ignores a DaemonSet with such a selector.
    pub(super) selector: Option<Selector>,
    pub(super) scheduling: Scheduling,
    pub(super) strategy: NativeStrategy,
    pub(super) min_ready: Duration,
    pub(super) history_limit: usize,
    pub(super) status: Value,
}

/// Update strategy (`spec.updateStrategy`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NativeStrategy {
    OnDelete,
    RollingUpdate {
        max_unavailable: Value,
        max_surge: Value,
    },
}

impl Set {
    pub(super) fn read(object: &DynamicObject) -> Self {
        let meta = &object.metadata;
        let spec = &object.data["spec"];
        let annotations = meta.annotations.clone().unwrap_or_default();
        Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            is_deleted: meta.deletion_timestamp.is_some(),
            generation: meta.generation.unwrap_or_default(),
            template_generation: annotations.get(TEMPLATE_GENERATION_ANNOTATION).cloned(),
            annotations: json!(annotations),
            template: spec["template"].clone(),
            selector: selector(&spec["selector"]),
            scheduling: Scheduling::from_template(&spec["template"]),
            strategy: strategy(&spec["updateStrategy"]),
            min_ready: Duration::from_secs(spec["minReadySeconds"].as_u64().unwrap_or(0)),
            history_limit: spec["revisionHistoryLimit"]
                .as_u64()
                .and_then(|limit| limit.try_into().ok())
                .unwrap_or(10),
            status: object.data["status"].clone(),
        }
    }

    /// Returns an owner reference that makes the DaemonSet the controlling owner of an object.
    pub(super) fn owner(&self) -> OwnerReference {
        OwnerReference {
            api_version: "apps/v1".to_owned(),
            kind: "DaemonSet".to_owned(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }
    }

    /// Returns true if the rolling update uses surge, so that a node may have two pods.
    pub(super) fn surges(&self) -> bool {
        match &self.strategy {
            NativeStrategy::OnDelete => false,
            NativeStrategy::RollingUpdate { max_surge, .. } => scaled(max_surge, 100, 0) > 0,
        }
    }
}

fn selector(selector: &Value) -> Option<Selector> {
    let read = Selector::from_json(selector).ok()?;
    (!read.to_query().is_empty()).then_some(read)
}

fn strategy(strategy: &Value) -> NativeStrategy {
    match strategy["type"].as_str() {
        Some("OnDelete") => NativeStrategy::OnDelete,
        _ => NativeStrategy::RollingUpdate {
            max_unavailable: strategy["rollingUpdate"]["maxUnavailable"].clone(),
            max_surge: strategy["rollingUpdate"]["maxSurge"].clone(),
        },
    }
}

/// Returns a number unchanged, or a percentage of `total` rounded up.
pub(super) fn scaled(value: &Value, total: usize, default: usize) -> usize {
    let number = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    match value {
        Value::Number(n) => n.as_u64().map_or(0, number),
        Value::String(text) => {
            let percent = text.strip_suffix('%').and_then(|n| n.parse().ok());
            percent.map_or(default, |percent: usize| (total * percent).div_ceil(100))
        }
        _ => default,
    }
}
