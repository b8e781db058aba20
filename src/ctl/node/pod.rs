//! State of a pod that matters to a node owner: problems, available update, pulled images.

use crate::core::names::{POD_IMAGE_READY, POD_NEED_UPGRADE, PULL_IMAGE_FAIL, UNTOLERATED_TAINT};
use crate::k8s::{ContainerStatus, Pod};

/// Waiting reasons of a container that starts normally.
const PATIENCE: [&str; 3] = ["", "ContainerCreating", "PodInitializing"];

/// Problem that keeps a pod from running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    /// Reason in one word, such as `ImagePullBackOff`.
    pub(super) word: String,
    /// Message of the kubelet; may be empty.
    pub(super) message: String,
}

impl Problem {
    /// Returns the problem that keeps the pod from running.
    pub(super) fn of(pod: &Pod) -> Option<Self> {
        let init = pod.status.init_container_statuses.iter();
        let mut found = init
            .chain(&pod.status.container_statuses)
            .filter_map(Self::of_container);
        found.next().or_else(|| {
            let scheduled = pod.condition("PodScheduled")?;
            (scheduled.status == "False").then(|| Self {
                word: scheduled.reason.clone(),
                message: scheduled.message.clone(),
            })
        })
    }

    fn of_container(container: &ContainerStatus) -> Option<Self> {
        let waiting = container.state.waiting.as_ref();
        let waiting = waiting.filter(|waiting| !PATIENCE.contains(&waiting.reason.as_str()));
        let ended = container.state.terminated.as_ref();
        let ended = ended.filter(|ended| ended.exit_code.is_some_and(|code| code != 0));
        let detail = waiting.or(ended)?;
        let mut message = detail.message.clone();
        if container.restart_count > 0 {
            let restarts = format!("restarted {} times", container.restart_count);
            message = if message.is_empty() {
                restarts
            } else {
                format!("{restarts}; {message}")
            };
        }
        let word = if detail.reason.is_empty() {
            format!("exit code {}", detail.exit_code.unwrap_or_default())
        } else {
            detail.reason.clone()
        };
        Some(Self { word, message })
    }
}

/// Update state in the pod's condition `PodNeedUpgrade`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnnouncedUpdate {
    /// A newer revision is available for an upgrade by the node owner.
    Available,
    /// The pod runs the current revision.
    UpToDate,
}

impl AnnouncedUpdate {
    /// Returns the update state; `None` if the pod has no such condition.
    pub(super) fn of(pod: &Pod) -> Option<Self> {
        match pod.condition(POD_NEED_UPGRADE)?.status.as_str() {
            "True" => Some(Self::Available),
            "False" => Some(Self::UpToDate),
            _ => None,
        }
    }

    /// Returns the name of this state in JSON and YAML.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Available => "available",
            Self::UpToDate => "upToDate",
        }
    }
}

/// State of an image pull in advance of an upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PulledImages {
    /// The images are on the node.
    Pulled,
    /// The pull was requested.
    Pulling,
    /// The pull failed, with the reason.
    Failed(String),
    /// The state is about another revision than the one that an upgrade would install.
    Stale,
}

impl PulledImages {
    /// Returns the state of the pull; `None` if no pull was requested.
    pub(super) fn of(pod: &Pod) -> Option<Self> {
        let condition = pod.condition(POD_IMAGE_READY)?;
        let offered = pod.condition(POD_NEED_UPGRADE);
        Some(match condition.status.as_str() {
            _ if offered.is_some_and(|offered| offered.names_other_revision(condition)) => {
                Self::Stale
            }
            "True" => Self::Pulled,
            _ if condition.reason == PULL_IMAGE_FAIL => Self::Failed(condition.message.clone()),
            _ => Self::Pulling,
        })
    }

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

/// Returns the name of the DaemonSet that owns the pod.
pub(super) fn daemonset(pod: &Pod) -> Option<&str> {
    let owner = pod.owner().filter(|owner| owner.kind == "DaemonSet")?;
    Some(&owner.name)
}

/// Returns the reason in one word for which an upgrade without `--force` is refused; `None` if it is not refused.
pub(super) fn refused(pod: &Pod) -> Option<&'static str> {
    let offered = pod.condition(POD_NEED_UPGRADE)?;
    offered.is_repelled().then_some(UNTOLERATED_TAINT)
}

/// Returns the hash of the current revision, as the pod's condition `PodNeedUpgrade` has it.
pub(super) fn target(pod: &Pod) -> Option<&str> {
    pod.condition(POD_NEED_UPGRADE)?.hash()
}

/// Returns true if the images of all containers have been pulled.
pub(super) fn has_images(pod: &Pod) -> bool {
    let statuses = &pod.status.container_statuses;
    !statuses.is_empty() && statuses.iter().all(|status| !status.image_id.is_empty())
}
