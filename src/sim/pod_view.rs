//! Pod as the fake kubelets and the node lifecycle controller read it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::core::images::ImageKey;
use crate::k8s::{self, Condition, ContainerStatus, ReadinessGate, nullable, resource};

/// Effect of taints that evict pods which don't tolerate them.
pub(super) const NO_EXECUTE: &str = "NoExecute";

/// Fields of a Pod that are needed to run its containers and to evict it.
///
/// The controller's [`k8s::Pod`] omits commands, pull secrets, tolerations, and conditions of types that yurt-ds doesn't use. No
/// decision needs them, and parsing them in each event would take time.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PodView {
    #[serde(deserialize_with = "slim")]
    pub(super) metadata: ObjectMeta,
    pub(super) spec: PodViewSpec,
    pub(super) status: PodViewStatus,
}

resource!(
    PodView,
    k8s_openapi::NamespaceResourceScope,
    "Pod",
    "",
    "v1",
    "pods"
);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodViewSpec {
    pub(super) node_name: String,
    pub(super) containers: Vec<ContainerView>,
    pub(super) init_containers: Vec<ContainerView>,
    pub(super) readiness_gates: Vec<ReadinessGate>,
    pub(super) restart_policy: Option<String>,
    pub(super) image_pull_secrets: Vec<SecretName>,
    pub(super) host_network: bool,
    /// Tolerations that can apply to a taint with the effect NoExecute.
    #[serde(deserialize_with = "of_ends")]
    pub(super) tolerations: Vec<Value>,
}

fn of_ends<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Value>, D::Error> {
    let mut tolerations: Vec<Value> = nullable(deserializer)?;
    let concerns_ends = |effect: &Value| {
        effect
            .as_str()
            .is_none_or(|effect| ["", NO_EXECUTE].contains(&effect))
    };
    tolerations.retain(|toleration| concerns_ends(&toleration["effect"]));
    Ok(tolerations)
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ContainerView {
    pub(super) name: String,
    pub(super) image: String,
    pub(super) command: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SecretName {
    pub(super) name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodViewStatus {
    pub(super) phase: String,
    #[serde(rename = "podIP")]
    pub(super) pod_ip: Option<String>,
    pub(super) start_time: Option<Time>,
    pub(super) conditions: Vec<Condition>,
    pub(super) container_statuses: Vec<ContainerStatus>,
}

/// Deserializes `metadata` without labels, annotations and owners.
fn slim<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let meta = k8s::slim(deserializer)?;
    Ok(ObjectMeta {
        labels: None,
        annotations: None,
        owner_references: None,
        ..meta
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

    pub(super) fn is_deleted(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Returns true if the spec contains an image that the status doesn't report.
    pub(super) fn has_other_images(&self) -> bool {
        let known = &self.status.container_statuses;
        let is_other = |wanted: &ContainerView| {
            let mut known = known.iter().filter(|known| known.name == wanted.name);
            known.all(|known| !runs(known, &wanted.image))
        };
        self.spec.containers.iter().any(is_other)
    }

    /// Returns true if all containers of the pod have ended and will not be restarted.
    pub(super) fn is_finished(&self) -> bool {
        ["Succeeded", "Failed"].contains(&self.status.phase.as_str())
    }

    pub(super) fn condition(&self, kind: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|c| c.kind == kind)
    }

    /// Returns true if the pod has this condition with status `True`.
    pub(super) fn is_true(&self, kind: &str) -> bool {
        self.condition(kind).is_some_and(Condition::is_true)
    }
}

/// Returns true if the container runs the image that the pod's spec calls `image`.
///
/// Container runtimes report full image names. They report some images only by digest. Such an image is assumed to match.
pub(super) fn runs(container: &ContainerStatus, image: &str) -> bool {
    container.image.starts_with("sha256:")
        || ImageKey::from_reference(&container.image) == ImageKey::from_reference(image)
}
