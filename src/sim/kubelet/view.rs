//! Pod as a fake kubelet reads it. The type has few fields, so that watching the pods of thousands of nodes is cheap.

use std::borrow::Cow;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Resource;
use kube::api::ObjectMeta;
use serde::{Deserialize, Deserializer};

use crate::core::images::ImageKey;

/// Fields of a Pod that a kubelet needs.
///
/// The pod type in `k8s` has the fields that decisions need; this type has the fields that running the containers needs.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct PodView {
    #[serde(deserialize_with = "slim")]
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    pub(super) spec: Spec,
    #[serde(default)]
    pub(super) status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Spec {
    #[serde(default)]
    pub(super) node_name: String,
    #[serde(default)]
    pub(super) containers: Vec<ContainerView>,
    #[serde(default)]
    pub(super) init_containers: Vec<ContainerView>,
    #[serde(default)]
    pub(super) readiness_gates: Vec<SeenGate>,
    pub(super) restart_policy: Option<String>,
    #[serde(default)]
    pub(super) image_pull_secrets: Vec<SecretName>,
    #[serde(default)]
    pub(super) host_network: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct ContainerView {
    pub(super) name: String,
    #[serde(default)]
    pub(super) image: String,
    #[serde(default)]
    pub(super) command: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct SecretName {
    #[serde(default)]
    pub(super) name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SeenGate {
    pub(super) condition_type: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Status {
    pub(super) phase: Option<String>,
    #[serde(rename = "podIP")]
    pub(super) pod_ip: Option<String>,
    pub(super) start_time: Option<Time>,
    #[serde(default)]
    pub(super) conditions: Vec<SeenCondition>,
    #[serde(default)]
    pub(super) container_statuses: Vec<ContainerStatusView>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SeenCondition {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) status: String,
    pub(super) last_transition_time: Option<Time>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ContainerStatusView {
    pub(super) name: String,
    #[serde(default)]
    pub(super) image: String,
    #[serde(default, rename = "imageID")]
    pub(super) image_id: String,
    #[serde(default)]
    pub(super) ready: bool,
    #[serde(default)]
    pub(super) restart_count: i32,
    #[serde(default)]
    pub(super) state: SeenContainerState,
}

impl ContainerStatusView {
    /// Returns true if the container runs the image that a specification calls `image`.
    ///
    /// Container runtimes report full names. They report some images only by digest, which is then assumed to match.
    pub(super) fn means(&self, image: &str) -> bool {
        self.image.starts_with("sha256:")
            || ImageKey::from_reference(&self.image) == ImageKey::from_reference(image)
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct SeenContainerState {
    pub(super) running: Option<SeenRunning>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SeenRunning {
    pub(super) started_at: Option<Time>,
}

/// Metadata fields that a kubelet needs, before conversion.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimMeta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    deletion_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
}

fn slim<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    let meta = SlimMeta::deserialize(from)?;
    Ok(ObjectMeta {
        name: meta.name,
        namespace: meta.namespace,
        uid: meta.uid,
        resource_version: meta.resource_version,
        generation: meta.generation,
        deletion_timestamp: meta.deletion_timestamp,
        deletion_grace_period_seconds: meta.deletion_grace_period_seconds,
        ..ObjectMeta::default()
    })
}

impl PodView {
    pub(super) fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    pub(super) fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    pub(super) fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// Returns the pod's resourceVersion as a number. A newer version has a higher number.
    pub(super) fn version(&self) -> u64 {
        version(&self.metadata)
    }

    pub(super) fn is_deleted(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Returns true if the spec contains an image that the status doesn't report.
    pub(super) fn has_other_images(&self) -> bool {
        let known = &self.status.container_statuses;
        let is_other = |wanted: &ContainerView| {
            let mut known = known.iter().filter(|known| known.name == wanted.name);
            known.all(|known| !known.means(&wanted.image))
        };
        self.spec.containers.iter().any(is_other)
    }

    /// Returns true if all containers of the pod have ended and will not be restarted.
    pub(super) fn is_finished(&self) -> bool {
        matches!(self.status.phase.as_deref(), Some("Succeeded" | "Failed"))
    }

    pub(super) fn condition(&self, kind: &str) -> Option<&SeenCondition> {
        self.status.conditions.iter().find(|c| c.kind == kind)
    }

    /// Returns true if the pod has this condition with status `True`.
    pub(super) fn is_true(&self, kind: &str) -> bool {
        self.condition(kind).is_some_and(|c| c.status == "True")
    }
}

/// Returns the resourceVersion as a number, or the maximum if it is not a number.
pub(super) fn version(meta: &ObjectMeta) -> u64 {
    meta.resource_version
        .as_deref()
        .and_then(|version| version.parse().ok())
        .unwrap_or(u64::MAX)
}

impl Resource for PodView {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Pod".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "pods".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
