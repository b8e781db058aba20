//! A Pod: whose it is, where it runs, and how it is doing.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::{Deserialize, Deserializer};

use super::condition::{Condition, of_types};
use super::meta::{nullable, slim};
use super::resource::resource;
use super::time;
use crate::core::names::{
    IN_PLACE_UPDATE_READY, KRUISE_POD_READY, POD_IMAGE_READY, POD_NEED_UPGRADE,
};

/// The part of a `v1` Pod that is decided upon.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Pod {
    /// Slim metadata.
    #[serde(deserialize_with = "slim", default)]
    pub metadata: ObjectMeta,
    /// Slim spec.
    #[serde(deserialize_with = "nullable", default)]
    pub spec: PodSpec,
    /// Slim status.
    #[serde(deserialize_with = "nullable", default)]
    pub status: PodStatus,
}

resource!(
    Pod,
    k8s_openapi::NamespaceResourceScope,
    "Pod",
    "",
    "v1",
    "pods"
);

impl Pod {
    /// Whether no container of it runs any more, nor will.
    pub fn is_over(&self) -> bool {
        ["Failed", "Succeeded"].contains(&self.status.phase.as_str())
    }
}

/// Where the pod runs, or is to run.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// Name of the node it is bound to.
    pub node_name: Option<String>,
    /// Its containers.
    #[serde(deserialize_with = "nullable")]
    pub containers: Vec<Container>,
    /// Its init containers.
    #[serde(deserialize_with = "nullable")]
    pub init_containers: Vec<Container>,
    /// The native controller names the node here before the scheduler binds the pod.
    affinity: Option<Affinity>,
    /// Conditions that have to be `True` before the pod is Ready.
    #[serde(deserialize_with = "nullable")]
    readiness_gates: Vec<ReadinessGate>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ReadinessGate {
    condition_type: String,
}

/// A container as asked for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Container {
    /// Its name.
    pub name: String,
    /// Its image.
    #[serde(deserialize_with = "nullable")]
    pub image: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Affinity {
    node_affinity: Option<NodeAffinity>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct NodeAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    required: Option<NodeSelector>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeSelector {
    #[serde(deserialize_with = "nullable")]
    node_selector_terms: Vec<Term>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Term {
    #[serde(deserialize_with = "nullable")]
    match_fields: Vec<Requirement>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Requirement {
    key: String,
    operator: String,
    #[serde(deserialize_with = "nullable")]
    values: Vec<String>,
}

impl PodSpec {
    /// Whether the pod is Ready only while the condition of this type is `True`.
    pub fn has_gate(&self, kind: &str) -> bool {
        let mut gates = self.readiness_gates.iter();
        gates.any(|gate| gate.condition_type == kind)
    }

    /// The node it runs on, or the one it was made for.
    pub fn target_node(&self) -> Option<&str> {
        let bound = self.node_name.as_deref().filter(|name| !name.is_empty());
        bound.or_else(|| {
            let required = self
                .affinity
                .as_ref()?
                .node_affinity
                .as_ref()?
                .required
                .as_ref()?;
            let fields = required
                .node_selector_terms
                .iter()
                .flat_map(|term| &term.match_fields);
            let named =
                |field: &&Requirement| field.key == "metadata.name" && field.operator == "In";
            fields
                .filter(named)
                .find_map(|field| field.values.first())
                .map(String::as_str)
        })
    }
}

/// How the pod is doing, as its kubelet says.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// The generation of the pod that this is about; kubelets before Kubernetes 1.34 do not say.
    pub observed_generation: Option<i64>,
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    #[serde(deserialize_with = "nullable")]
    pub phase: String,
    /// Why it is in this phase, in one word (`Evicted`); mostly empty.
    #[serde(deserialize_with = "nullable")]
    pub reason: String,
    /// The same in a sentence.
    #[serde(deserialize_with = "nullable")]
    pub message: String,
    /// When the kubelet accepted it.
    #[serde(deserialize_with = "time::optional")]
    pub start_time: Option<Time>,
    /// Those of its conditions that matter.
    #[serde(deserialize_with = "conditions")]
    pub conditions: Vec<Condition>,
    /// One entry per container.
    #[serde(deserialize_with = "nullable")]
    pub container_statuses: Vec<ContainerStatus>,
    /// One entry per init container.
    #[serde(deserialize_with = "nullable")]
    pub init_container_statuses: Vec<ContainerStatus>,
}

/// Every event of a pod comes with all of its conditions; most say nothing that is decided upon.
const CONDITIONS: [&str; 6] = [
    IN_PLACE_UPDATE_READY,
    "Ready",
    "PodScheduled",
    POD_NEED_UPGRADE,
    POD_IMAGE_READY,
    KRUISE_POD_READY,
];

fn conditions<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Condition>, D::Error> {
    of_types(deserializer, &CONDITIONS)
}

/// How one container is doing.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    /// Name of the container.
    pub name: String,
    /// The image that it runs, as its runtime calls it.
    #[serde(deserialize_with = "nullable")]
    pub image: String,
    /// The content of that image.
    #[serde(rename = "imageID", deserialize_with = "nullable")]
    pub image_id: String,
    /// Whether it passes its readiness probe.
    #[serde(deserialize_with = "nullable")]
    pub ready: bool,
    /// How often it was started again.
    #[serde(deserialize_with = "nullable")]
    pub restart_count: i64,
    /// What it does now.
    #[serde(deserialize_with = "nullable")]
    pub state: ContainerState,
    /// How it ended last.
    #[serde(deserialize_with = "nullable")]
    pub last_state: ContainerState,
}

/// At most one of the three is present.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    /// Not started yet.
    pub waiting: Option<StateDetail>,
    /// Runs.
    pub running: Option<Running>,
    /// Ended.
    pub terminated: Option<StateDetail>,
}

/// A container that runs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Running {
    /// Since when, by the clock of its node.
    #[serde(deserialize_with = "time::optional")]
    pub started_at: Option<Time>,
}

/// Why a container waits or ended.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StateDetail {
    /// A word such as `ErrImagePull`.
    #[serde(deserialize_with = "nullable")]
    pub reason: String,
    /// What its kubelet says about it.
    #[serde(deserialize_with = "nullable")]
    pub message: String,
    /// Exit code, of a container that ended.
    pub exit_code: Option<i32>,
}
