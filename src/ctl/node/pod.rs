//! A pod as the node's server reports it, with only the fields that `ctl` uses. Any field may be missing or have any content.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;

use crate::core::names::{
    POD_IMAGE_READY, POD_NEED_UPGRADE, PULL_IMAGE_FAIL, REVISION_HASH_LABEL, UNTOLERATED_TAINT,
};
use crate::core::revision_in;
use crate::k8s::{Condition, nullable};

/// Fields of a pod that `ctl` shows or needs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LocalPod {
    #[serde(deserialize_with = "nullable")]
    metadata: LocalPodMeta,
    #[serde(deserialize_with = "nullable")]
    spec: LocalPodSpec,
    #[serde(deserialize_with = "nullable")]
    status: LocalPodStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LocalPodMeta {
    #[serde(deserialize_with = "nullable")]
    name: String,
    #[serde(deserialize_with = "nullable")]
    namespace: String,
    #[serde(deserialize_with = "nullable")]
    uid: String,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    #[serde(deserialize_with = "nullable")]
    labels: std::collections::BTreeMap<String, String>,
    #[serde(deserialize_with = "nullable")]
    owner_references: Vec<OwnerReference>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LocalPodSpec {
    #[serde(deserialize_with = "nullable")]
    node_name: String,
    #[serde(deserialize_with = "nullable")]
    init_containers: Vec<LocalContainer>,
    #[serde(deserialize_with = "nullable")]
    containers: Vec<LocalContainer>,
}

/// A container, or an init container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LocalContainer {
    /// Name of the container.
    #[serde(deserialize_with = "nullable")]
    pub(super) name: String,
    /// Image of the container.
    #[serde(deserialize_with = "nullable")]
    pub(super) image: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LocalPodStatus {
    #[serde(deserialize_with = "nullable")]
    conditions: Vec<Condition>,
    #[serde(deserialize_with = "nullable")]
    init_container_statuses: Vec<LocalContainerStatus>,
    #[serde(deserialize_with = "nullable")]
    container_statuses: Vec<LocalContainerStatus>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LocalContainerStatus {
    #[serde(deserialize_with = "nullable")]
    ready: bool,
    #[serde(deserialize_with = "nullable")]
    restart_count: i64,
    #[serde(rename = "imageID", deserialize_with = "nullable")]
    image_id: String,
    #[serde(deserialize_with = "nullable")]
    state: LocalContainerState,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct LocalContainerState {
    waiting: Option<Detail>,
    terminated: Option<Detail>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Detail {
    #[serde(deserialize_with = "nullable")]
    reason: String,
    #[serde(deserialize_with = "nullable")]
    message: String,
    #[serde(deserialize_with = "nullable")]
    exit_code: i64,
}

/// Reasons for which a container waits while it starts normally.
const PATIENCE: [&str; 3] = ["", "ContainerCreating", "PodInitializing"];

/// Problem that keeps a pod from running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    /// Reason in one word, such as `ImagePullBackOff`.
    pub(super) word: String,
    /// Message of the kubelet; may be empty.
    pub(super) message: String,
}

/// Update state according to the pod's condition `PodNeedUpgrade`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnnouncedUpdate {
    /// A newer revision is available, and the node owner may upgrade.
    Available,
    /// The pod runs the revision that it should run.
    UpToDate,
}

impl AnnouncedUpdate {
    /// Returns the name of this state in JSON and YAML.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Available => "available",
            Self::UpToDate => "upToDate",
        }
    }
}

/// State of the images that are pulled ahead of an upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PulledImages {
    /// The images are on the node.
    Pulled,
    /// The pull was requested.
    Pulling,
    /// The pull failed, with the reason.
    Failed(String),
    /// The reported state is about another revision than the one that an upgrade would install.
    Stale,
}

impl PulledImages {
    /// Returns the name of this state in JSON and YAML.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Pulled => "pulled",
            Self::Pulling => "pulling",
            Self::Failed(_) => "failed",
            Self::Stale => "stale",
        }
    }
}

impl LocalPod {
    /// Returns the name.
    pub(super) fn name(&self) -> &str {
        &self.metadata.name
    }

    /// Returns the namespace.
    pub(super) fn namespace(&self) -> &str {
        &self.metadata.namespace
    }

    /// Returns `namespace/name`.
    pub(super) fn key(&self) -> String {
        format!("{}/{}", self.metadata.namespace, self.metadata.name)
    }

    /// Returns the UID, which differs for a later pod of the same name.
    pub(super) fn uid(&self) -> &str {
        &self.metadata.uid
    }

    /// Returns the node of the pod.
    pub(super) fn node(&self) -> &str {
        &self.spec.node_name
    }

    /// Returns the creation time.
    pub(super) fn created(&self) -> Option<Timestamp> {
        self.metadata.creation_timestamp.as_ref().map(|time| time.0)
    }

    /// Returns true if the pod is being deleted.
    pub(super) fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Returns the controlling owner, or else the first owner.
    pub(super) fn owner(&self) -> Option<&OwnerReference> {
        let owners = &self.metadata.owner_references;
        let mut controllers = owners.iter().filter(|owner| owner.controller == Some(true));
        controllers.next().or(owners.first())
    }

    /// Returns the DaemonSet that owns the pod.
    pub(super) fn daemonset(&self) -> Option<&str> {
        let owner = self.owner().filter(|owner| owner.kind == "DaemonSet")?;
        Some(&owner.name)
    }

    /// Returns the hash of the revision that the pod was created from.
    pub(super) fn revision(&self) -> Option<&str> {
        let hash = self.metadata.labels.get(REVISION_HASH_LABEL)?;
        (!hash.is_empty()).then_some(hash.as_str())
    }

    /// Returns all containers, each with a flag that is true for init containers.
    pub(super) fn containers(&self) -> impl Iterator<Item = (&LocalContainer, bool)> {
        let first = self.spec.init_containers.iter().map(|found| (found, true));
        first.chain(self.spec.containers.iter().map(|found| (found, false)))
    }

    /// Returns true if the pod is Ready.
    pub(super) fn is_ready(&self) -> bool {
        self.condition("Ready").is_some_and(is_true)
    }

    /// Returns the numbers of ready containers and of all containers.
    pub(super) fn ready_containers(&self) -> (usize, usize) {
        let statuses = &self.status.container_statuses;
        let ready = statuses.iter().filter(|status| status.ready).count();
        (ready, self.spec.containers.len())
    }

    /// Returns true if the images of all containers have been pulled.
    pub(super) fn has_images(&self) -> bool {
        let statuses = &self.status.container_statuses;
        !statuses.is_empty() && statuses.iter().all(|status| !status.image_id.is_empty())
    }

    /// Returns the problem that keeps the pod from running.
    pub(super) fn problem(&self) -> Option<Problem> {
        let init = self.status.init_container_statuses.iter();
        let mut found = init
            .chain(&self.status.container_statuses)
            .filter_map(LocalContainerStatus::problem);
        found.next().or_else(|| {
            let scheduled = self.condition("PodScheduled")?;
            (scheduled.status == "False").then(|| Problem {
                word: scheduled.reason.clone(),
                message: scheduled.message.clone(),
            })
        })
    }

    /// Returns the update state; `None` if the pod has no such condition.
    pub(super) fn update(&self) -> Option<AnnouncedUpdate> {
        match self.condition(POD_NEED_UPGRADE)?.status.as_str() {
            "True" => Some(AnnouncedUpdate::Available),
            "False" => Some(AnnouncedUpdate::UpToDate),
            _ => None,
        }
    }

    /// Returns the reason, in one word, why an upgrade without `--force` is refused; `None` if it is not refused.
    pub(super) fn refused(&self) -> Option<&'static str> {
        let condition = self.condition(POD_NEED_UPGRADE)?;
        let is_repelled = is_true(condition) && condition.reason == UNTOLERATED_TAINT;
        is_repelled.then_some(UNTOLERATED_TAINT)
    }

    /// Returns the hash of the revision that the pod should run, according to its condition.
    pub(super) fn target(&self) -> Option<&str> {
        hash(self.condition(POD_NEED_UPGRADE)?)
    }

    /// Returns the state of the images that are pulled ahead; `None` if no pull was requested.
    pub(super) fn images(&self) -> Option<PulledImages> {
        let condition = self.condition(POD_IMAGE_READY)?;
        let other = hash(condition).is_some_and(|hash| self.target().is_some_and(|it| it != hash));
        Some(match condition.status.as_str() {
            _ if other => PulledImages::Stale,
            "True" => PulledImages::Pulled,
            _ if condition.reason == PULL_IMAGE_FAIL => {
                PulledImages::Failed(condition.message.clone())
            }
            _ => PulledImages::Pulling,
        })
    }

    fn condition(&self, kind: &str) -> Option<&Condition> {
        let mut conditions = self.status.conditions.iter();
        conditions.find(|condition| condition.kind == kind)
    }
}

impl LocalContainerStatus {
    fn problem(&self) -> Option<Problem> {
        let waiting = self.state.waiting.as_ref();
        let waiting = waiting.filter(|waiting| !PATIENCE.contains(&waiting.reason.as_str()));
        let ended = self.state.terminated.as_ref();
        let ended = ended.filter(|ended| ended.exit_code != 0);
        let detail = waiting.or(ended)?;
        let mut message = detail.message.clone();
        if self.restart_count > 0 {
            let restarts = format!("restarted {} times", self.restart_count);
            message = if message.is_empty() {
                restarts
            } else {
                format!("{restarts}; {message}")
            };
        }
        let word = if detail.reason.is_empty() {
            format!("exit code {}", detail.exit_code)
        } else {
            detail.reason.clone()
        };
        Some(Problem { word, message })
    }
}

fn is_true(condition: &Condition) -> bool {
    condition.status == "True"
}

/// Returns the revision hash in a condition's message; `None` if the message has another form.
fn hash(condition: &Condition) -> Option<&str> {
    revision_in(&condition.message).filter(|hash| !hash.is_empty())
}
