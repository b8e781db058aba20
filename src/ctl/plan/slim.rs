//! Nodes, pods and revisions without what no plan needs.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::core::fleet::in_place::InPlaceState;
use crate::core::names::REVISION_HASH_LABEL;
use crate::core::revision::hash_of;
use crate::k8s::object::readable;
use crate::k8s::{dated, is_known, nullable, resource, time};

/// What annotations are kept beside those that the engine knows: those of this family, wherever they come from.
const FAMILY: &str = "openyurt.io/";

/// The condition of nodes and pods that says so.
const READY: &str = "Ready";

/// The image of a container of which only the contents are known, and that another one is to follow.
const OLD_IMAGE: &str = "before-the-update";

/// A Node without what no plan needs (images alone are ten kilobytes).
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct SlimNode {
    #[serde(deserialize_with = "slim", default)]
    pub(super) metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable", default)]
    pub(super) spec: SlimNodeSpec,
    #[serde(deserialize_with = "nullable", default)]
    pub(super) status: SlimNodeStatus,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct SlimNodeSpec {
    #[serde(skip_serializing_if = "Value::is_null")]
    taints: Value,
    #[serde(skip_serializing_if = "Value::is_null")]
    unschedulable: Value,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct SlimNodeStatus {
    #[serde(deserialize_with = "ready_alone")]
    pub(super) conditions: Vec<SlimCondition>,
}

/// The only condition of nodes that a plan looks at; what the others stand for are taints.
fn ready_alone<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<SlimCondition>, D::Error> {
    let mut conditions: Vec<SlimCondition> = nullable(deserializer)?;
    conditions.retain(|condition| condition.kind == READY);
    Ok(conditions)
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SlimCondition {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(
        deserialize_with = "time::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub(super) last_transition_time: Option<Time>,
}

/// The condition that says that it is Ready, if it is.
fn ready(conditions: &[SlimCondition]) -> Option<&SlimCondition> {
    let mut conditions = conditions.iter();
    conditions.find(|one| one.kind == READY && one.status == "True")
}

/// Since when that is so.
fn ready_since(conditions: &[SlimCondition]) -> Option<Timestamp> {
    let since = ready(conditions)?.last_transition_time.as_ref()?;
    Some(since.0)
}

impl SlimNode {
    /// Whether it is Ready.
    pub(super) fn is_ready(&self) -> bool {
        ready(&self.status.conditions).is_some()
    }

    /// Since when it is Ready.
    pub(super) fn ready_since(&self) -> Option<Timestamp> {
        ready_since(&self.status.conditions)
    }
}

/// A Pod without the template's details.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct SlimPod {
    #[serde(deserialize_with = "slim", default)]
    pub(super) metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable", default)]
    pub(super) spec: SlimPodSpec,
    #[serde(deserialize_with = "nullable", default)]
    pub(super) status: SlimPodStatus,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SlimPodSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) node_name: Option<String>,
    #[serde(deserialize_with = "nullable")]
    containers: Vec<SlimContainer>,
    #[serde(skip_serializing_if = "Value::is_null")]
    affinity: Value,
    #[serde(skip_serializing_if = "Value::is_null")]
    tolerations: Value,
    #[serde(skip_serializing_if = "Value::is_null")]
    readiness_gates: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    termination_grace_period_seconds: Option<i64>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct SlimContainer {
    name: String,
    image: String,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SlimPodStatus {
    #[serde(deserialize_with = "nullable")]
    pub(super) phase: String,
    #[serde(
        deserialize_with = "time::optional",
        skip_serializing_if = "Option::is_none"
    )]
    start_time: Option<Time>,
    #[serde(rename = "podIP", skip_serializing_if = "Option::is_none")]
    pod_ip: Option<String>,
    #[serde(deserialize_with = "nullable")]
    pub(super) conditions: Vec<SlimCondition>,
    #[serde(deserialize_with = "nullable")]
    pub(super) container_statuses: Vec<SlimContainerStatus>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SlimContainerStatus {
    pub(super) name: String,
    image: String,
    #[serde(rename = "imageID")]
    image_id: String,
    ready: bool,
    pub(super) restart_count: i64,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub(super) state: Value,
    #[serde(skip_serializing_if = "Value::is_null")]
    last_state: Value,
}

impl SlimPod {
    /// Whether it is Ready.
    pub(super) fn is_ready(&self) -> bool {
        ready(&self.status.conditions).is_some()
    }

    /// Since when it is Ready.
    pub(super) fn ready_since(&self) -> Option<Timestamp> {
        ready_since(&self.status.conditions)
    }

    /// The hash of its revision.
    pub(super) fn revision(&self) -> Option<&String> {
        self.metadata.labels.as_ref()?.get(REVISION_HASH_LABEL)
    }

    /// Names the image of every container that its update in place has not reached yet: some runtimes know images by their
    /// contents alone, and a played kubelet would take one for whatever the spec names now.
    pub(super) fn name_old_images(&mut self) {
        let Some(update) = self.in_place() else {
            return;
        };
        for container in &mut self.status.container_statuses {
            let restarts = u32::try_from(container.restart_count).unwrap_or_default();
            if update.is_unchanged(&container.name, &container.image_id, restarts)
                && container.image.starts_with("sha256:")
            {
                OLD_IMAGE.clone_into(&mut container.image);
            }
        }
    }

    /// What it remembers of its last update in place.
    pub(super) fn in_place(&self) -> Option<InPlaceState> {
        InPlaceState::of(self.metadata.annotations.as_ref()?)
    }
}

/// A ControllerRevision, with the time of the last write: what was lost before that is not its fault.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct SlimRevision {
    #[serde(deserialize_with = "dated", default)]
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    pub(super) revision: i64,
    #[serde(default)]
    pub(super) data: Value,
}

impl SlimRevision {
    /// Its hash; `set` is the name of the DaemonSet.
    pub(super) fn hash(&self, set: &str) -> String {
        let labels = self.metadata.labels.as_ref();
        let label = labels.and_then(|labels| labels.get(REVISION_HASH_LABEL));
        let name = self.metadata.name.as_deref().unwrap_or_default();
        hash_of(label.map(String::as_str), name, set).to_string()
    }
}

resource!(
    SlimNode,
    k8s_openapi::ClusterResourceScope,
    "Node",
    "",
    "v1",
    "nodes"
);
resource!(
    SlimPod,
    k8s_openapi::NamespaceResourceScope,
    "Pod",
    "",
    "v1",
    "pods"
);
resource!(
    SlimRevision,
    k8s_openapi::NamespaceResourceScope,
    "ControllerRevision",
    "apps",
    "v1",
    "controllerrevisions"
);

readable!(SlimNode, SlimPod, SlimRevision);

/// `metadata` without what belongs to others.
fn slim<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct Slim {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        #[serde(deserialize_with = "time::optional")]
        creation_timestamp: Option<Time>,
        #[serde(deserialize_with = "time::optional")]
        deletion_timestamp: Option<Time>,
        deletion_grace_period_seconds: Option<i64>,
        labels: Option<std::collections::BTreeMap<String, String>>,
        annotations: Option<std::collections::BTreeMap<String, String>>,
        owner_references: Option<Vec<OwnerReference>>,
        finalizers: Option<Vec<String>>,
    }
    let slim = Slim::deserialize(deserializer)?;
    let mut annotations = slim.annotations.unwrap_or_default();
    annotations.retain(|key, _| is_kept(key));
    Ok(ObjectMeta {
        name: slim.name,
        namespace: slim.namespace,
        uid: slim.uid,
        creation_timestamp: slim.creation_timestamp,
        deletion_timestamp: slim.deletion_timestamp,
        deletion_grace_period_seconds: slim.deletion_grace_period_seconds,
        labels: slim.labels,
        annotations: Some(annotations),
        owner_references: slim.owner_references,
        finalizers: slim.finalizers,
        ..ObjectMeta::default()
    })
}

/// Whether an annotation may matter to a plan.
pub(super) fn is_kept(key: &str) -> bool {
    is_known(key)
        || key
            .split_once('/')
            .is_some_and(|(domain, _)| domain.ends_with(FAMILY.trim_end_matches('/')))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::core::names::IN_PLACE_STATE;

    #[test]
    fn a_container_that_its_update_has_not_reached_runs_none_of_the_images_that_are_named() {
        let state = json!({
            "revision": "5d4f8", "updateTimestamp": "2027-01-15T08:00:00Z",
            "lastContainerStatuses": { "reached": before("sha256:1"), "waits": before("sha256:1"), "named": before("web:1") },
        });
        let status = |name: &str, image: &str, image_id: &str| json!({ "name": name, "image": image, "imageID": image_id, "restartCount": 3 });
        let mut pod: SlimPod = serde_json::from_value(json!({
            "metadata": { "annotations": { IN_PLACE_STATE: state.to_string() } },
            "status": { "containerStatuses": [
                status("reached", "sha256:2", "sha256:2"),
                status("waits", "sha256:1", "sha256:1"),
                status("named", "web:1", "web:1"),
            ] },
        }))
        .unwrap();
        pod.name_old_images();
        let statuses = pod.status.container_statuses.iter();
        let images: Vec<&str> = statuses.map(|status| status.image.as_str()).collect();
        assert_eq!(images, ["sha256:2", OLD_IMAGE, "web:1"]);
    }

    fn before(image_id: &str) -> Value {
        json!({ "imageID": image_id, "restartCount": 3 })
    }
}
