//! Pod: metadata, node, containers and status.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::condition::{Condition, of_types};
use super::meta::{nullable, slim};
use super::resource::resource;
use super::time;
use crate::core::names::{
    IN_PLACE_UPDATE_READY, KRUISE_POD_READY, POD_IMAGE_READY, POD_NEED_UPGRADE, REVISION_HASH_LABEL,
};

/// The fields of a `v1` Pod that decisions need, and the fields that `ctl` shows on a node. Any field may be missing or null.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Pod {
    /// Metadata, reduced to the needed fields.
    #[serde(deserialize_with = "slim", default)]
    pub metadata: ObjectMeta,
    /// Specification, reduced to the needed fields.
    #[serde(deserialize_with = "nullable", default)]
    pub spec: PodSpec,
    /// Status, reduced to the needed fields.
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

/// Fields of a JSON object that are not parsed yet.
type Fields<'a> = BTreeMap<String, &'a RawValue>;

/// Top-level fields of a Pod that are parsed.
const PARTS: [&str; 3] = ["metadata", "spec", "status"];

impl Pod {
    /// Parses the fields of metadata, spec and status for which `is_wanted(part, field, value)` is true. Other fields count as
    /// missing, so they may have any content.
    ///
    /// # Errors
    /// Returns an error if `json` is not an object, or if a wanted field has the wrong type.
    pub(crate) fn read_fields(
        json: &RawValue,
        is_wanted: impl Fn(&str, &str, &RawValue) -> bool,
    ) -> serde_json::Result<Self> {
        let parts: Fields<'_> = serde_json::from_str(json.get())?;
        let mut wanted: BTreeMap<&str, Fields<'_>> = BTreeMap::new();
        for part in PARTS {
            let fields = parts.get(part).map_or("null", |fields| fields.get());
            let mut fields: Fields<'_> = serde_json::from_str(fields).unwrap_or_default();
            fields.retain(|field, value| is_wanted(part, field, value));
            wanted.insert(part, fields);
        }
        join(&wanted)
    }

    /// Parses a pod. A field of metadata, spec or status with the wrong type counts as missing.
    ///
    /// # Errors
    /// Returns an error if `json` is not an object.
    pub(crate) fn read_leniently(json: &RawValue) -> serde_json::Result<Self> {
        let is_readable = |part: &str, field: &str, value: &RawValue| {
            let alone = BTreeMap::from([(part, BTreeMap::from([(field, value)]))]);
            join(&alone).is_ok()
        };
        serde_json::from_str(json.get()).or_else(|_| Self::read_fields(json, is_readable))
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Returns the namespace.
    pub fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// Returns `namespace/name`.
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace(), self.name())
    }

    /// Returns the UID. A later pod with the same name has another UID.
    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// Returns the value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// Returns the revision hash in the pod's label; `None` if there is none.
    pub fn revision(&self) -> Option<&str> {
        self.label(REVISION_HASH_LABEL)
            .filter(|hash| !hash.is_empty())
    }

    /// Returns the owner that controls the pod (`controller: true`).
    pub fn controller(&self) -> Option<&OwnerReference> {
        let mut owners = self.metadata.owner_references.iter().flatten();
        owners.find(|owner| owner.controller == Some(true))
    }

    /// Returns the owner that controls the pod. If there is none, returns the first owner.
    pub fn owner(&self) -> Option<&OwnerReference> {
        let owners = self.metadata.owner_references.as_deref();
        self.controller().or_else(|| owners?.first())
    }

    /// Returns true if the pod is being deleted.
    pub fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Returns the condition of this type.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        let mut conditions = self.status.conditions.iter();
        conditions.find(|condition| condition.kind == kind)
    }

    /// Returns true if the condition `Ready` is `True`.
    pub fn is_ready(&self) -> bool {
        self.condition("Ready").is_some_and(Condition::is_true)
    }

    /// Returns true if the pod has ended, so that its containers never run again.
    pub fn is_over(&self) -> bool {
        ["Failed", "Succeeded"].contains(&self.status.phase.as_str())
    }
}

/// Parses a pod from JSON that is split into parts.
fn join(parts: &impl Serialize) -> serde_json::Result<Pod> {
    serde_json::from_str(&serde_json::to_string(parts)?)
}

/// Specification of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// Name of the node to which the pod is bound.
    pub node_name: Option<String>,
    /// Containers of the pod.
    #[serde(deserialize_with = "nullable")]
    pub containers: Vec<Container>,
    /// Init containers of the pod.
    #[serde(deserialize_with = "nullable")]
    pub init_containers: Vec<Container>,
    /// Node affinity. The native controller creates each pod with its node in this field; the scheduler sets `nodeName` later.
    affinity: Option<Affinity>,
    /// Condition types that must be `True` before the pod becomes Ready.
    #[serde(deserialize_with = "nullable")]
    readiness_gates: Vec<ReadinessGate>,
}

/// Condition type that must be `True` before the pod becomes Ready.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReadinessGate {
    /// Type of the condition.
    #[serde(deserialize_with = "nullable")]
    pub condition_type: String,
}

/// A container in the specification.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Container {
    /// Name of the container.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// Image of the container.
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
    #[serde(deserialize_with = "nullable")]
    key: String,
    #[serde(deserialize_with = "nullable")]
    operator: String,
    #[serde(deserialize_with = "nullable")]
    values: Vec<String>,
}

impl PodSpec {
    /// Returns all containers in the order of their start. The flag is true for init containers.
    pub fn in_order(&self) -> impl Iterator<Item = (&Container, bool)> {
        let init = self
            .init_containers
            .iter()
            .map(|container| (container, true));
        init.chain(self.containers.iter().map(|container| (container, false)))
    }

    /// Returns true if the pod has a readiness gate of this type.
    pub fn has_gate(&self, kind: &str) -> bool {
        let mut gates = self.readiness_gates.iter();
        gates.any(|gate| gate.condition_type == kind)
    }

    /// Returns the node of the pod. If the pod is not bound yet, returns the node that its affinity names.
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

/// Status of a pod, as the kubelet reports it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// Generation of the pod's spec that the status is about; `None` from kubelets before Kubernetes 1.34.
    pub observed_generation: Option<i64>,
    /// Phase: `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    #[serde(deserialize_with = "nullable")]
    pub phase: String,
    /// Reason for the phase in one word, such as `Evicted`; usually empty.
    #[serde(deserialize_with = "nullable")]
    pub reason: String,
    /// Message about the phase in one sentence.
    #[serde(deserialize_with = "nullable")]
    pub message: String,
    /// Time at which the kubelet accepted the pod.
    #[serde(deserialize_with = "time::optional")]
    pub start_time: Option<Time>,
    /// Conditions of the pod. Only the types in `CONDITIONS` are kept.
    #[serde(deserialize_with = "conditions")]
    pub conditions: Vec<Condition>,
    /// Statuses of the containers.
    #[serde(deserialize_with = "nullable")]
    pub container_statuses: Vec<ContainerStatus>,
    /// Statuses of the init containers.
    #[serde(deserialize_with = "nullable")]
    pub init_container_statuses: Vec<ContainerStatus>,
}

/// Types of the conditions that are kept. Decisions need no others, and every watch event of a pod repeats all of them.
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

/// Status of a container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    /// Name of the container.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// Image that the container runs, as reported by the container runtime.
    #[serde(deserialize_with = "nullable")]
    pub image: String,
    /// Digest of the image, as reported by the container runtime.
    #[serde(rename = "imageID", deserialize_with = "nullable")]
    pub image_id: String,
    /// True if the container passes its readiness probe.
    #[serde(deserialize_with = "nullable")]
    pub ready: bool,
    /// Number of restarts of the container.
    #[serde(deserialize_with = "nullable")]
    pub restart_count: i64,
    /// Current state of the container.
    #[serde(deserialize_with = "nullable")]
    pub state: ContainerState,
    /// State of the container before its last restart.
    #[serde(deserialize_with = "nullable")]
    pub last_state: ContainerState,
}

/// State of a container. At most one field is present.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    /// The container has not started.
    pub waiting: Option<StateDetail>,
    /// The container is running.
    pub running: Option<Running>,
    /// The container has ended.
    pub terminated: Option<StateDetail>,
}

/// State of a running container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Running {
    /// Start time, according to the node's clock.
    #[serde(deserialize_with = "time::optional")]
    pub started_at: Option<Time>,
}

/// Reason why a container waits or has ended.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StateDetail {
    /// Reason of the state, such as `ErrImagePull`.
    #[serde(deserialize_with = "nullable")]
    pub reason: String,
    /// Message of the kubelet about the state.
    #[serde(deserialize_with = "nullable")]
    pub message: String,
    /// Exit code; `None` if the container has not ended.
    pub exit_code: Option<i32>,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn raw(pod: &Value) -> Box<RawValue> {
        RawValue::from_string(pod.to_string()).unwrap()
    }

    /// A pod that cannot be parsed as a whole.
    fn odd() -> Box<RawValue> {
        raw(&json!({
            "metadata": { "name": "n", "annotations": 7, "labels": { "a": "b" }, "x\"y": [] },
            "spec": "nothing",
            "status": {
                "phase": "Running",
                "startTime": "12345-01-01T00:00:00Z",
                "containerStatuses": [{ "name": null, "restartCount": null, "state": null }],
            },
        }))
    }

    #[test]
    fn a_field_with_unexpected_content_counts_as_missing() {
        assert!(serde_json::from_str::<Pod>(odd().get()).is_err());
        let pod = Pod::read_leniently(&odd()).unwrap();
        assert_eq!((pod.name(), pod.label("a")), ("n", Some("b")));
        assert_eq!(pod.status.phase, "Running");
        assert!(pod.status.start_time.is_none());
        assert_eq!(pod.status.container_statuses.len(), 1);
        for other in ["7", "null", "\"pod\""] {
            let other = RawValue::from_string(other.to_owned()).unwrap();
            assert!(Pod::read_leniently(&other).is_err(), "{other}");
        }
    }

    #[test]
    fn unread_fields_may_have_any_content() {
        let pod = Pod::read_fields(&odd(), |_, field, _| ["name", "phase"].contains(&field));
        let pod = pod.unwrap();
        assert_eq!((pod.name(), pod.label("a")), ("n", None));
        assert_eq!(pod.status.phase, "Running");
        assert!(Pod::read_fields(&odd(), |_, field, _| field == "startTime").is_err());
    }

    #[test]
    fn the_first_owner_is_kept_if_none_controls_the_pod() {
        let owner = |kind: &str, controller: bool| json!({ "apiVersion": "v1", "kind": kind, "name": kind, "uid": kind, "controller": controller });
        for (owners, expected, kept) in [
            (vec![owner("A", false), owner("B", true)], "B", 1),
            (vec![owner("A", false), owner("B", false)], "A", 2),
            (vec![owner("DaemonSet", false), owner("B", true)], "B", 2),
        ] {
            let pod = json!({ "metadata": { "ownerReferences": owners } });
            let pod: Pod = serde_json::from_value(pod).unwrap();
            assert_eq!(pod.owner().unwrap().kind, expected);
            assert_eq!(pod.metadata.owner_references.unwrap().len(), kept);
        }
    }
}
