//! Detection of failing pods, whose containers crash or cannot start.
//!
//! `CrashLoopBackOff` is not enough as evidence: since Kubernetes 1.35 it appears minutes late and intermittently. Therefore a
//! crash is detected from restarts and terminations.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::core::fleet::{Node, Pod};
use crate::core::instant::later;

/// Waiting reasons with which a container doesn't start until an operator acts (list from ExtendedDaemonSet).
const UNSTARTABLE: [&str; 11] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "ImageInspectError",
    "ErrImageNeverPull",
    "RegistryUnavailable",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
    "PreStartHookError",
    "PostStartHookError",
    "PreCreateHookError",
];

/// Number of restarts from which a container counts as crashing, independent of the reason in its status.
pub(crate) const CRASHING_RESTARTS: u32 = 2;

/// Time that a pod has to be Ready to count as available, if its container crashed repeatedly before.
///
/// A pod that is Ready for a shorter time may be between two crashes. If it counted as available, the rollout would spread the
/// crash to more nodes.
pub(crate) const PROVED_AFTER: Duration = Duration::from_secs(30);

/// Returns the time from which a Ready pod is known not to be between two crashes, which is [`PROVED_AFTER`] after it became Ready.
///
/// Returns `None` if that time has passed, or if no container of the pod crashed repeatedly.
///
/// Restarts after an update in place or after an absence of the node don't count, because both also restart containers.
pub(super) fn proved_at(
    pod: &Pod,
    node_ready_since: Timestamp,
    now: Timestamp,
) -> Option<Timestamp> {
    // Check the time first. Few pods became Ready recently, so most pods need no check of their containers.
    let at = later(pod.ready_since?, PROVED_AFTER);
    if at <= now {
        return None;
    }
    let mut containers = pod.in_place.containers.iter();
    let is_own = pod.in_place.update.is_none() && node_ready_since <= pod.created;
    let crashed = is_own && containers.any(|container| container.restarts >= CRASHING_RESTARTS);
    crashed.then_some(at)
}

/// Kind of failure of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failing {
    /// A container ends repeatedly.
    Crashes,
    /// A container cannot be started.
    CannotStart,
}

impl Failing {
    /// Returns the kind of the pod's failure; `None` if the pod doesn't fail.
    pub(super) fn find(pod: &Pod) -> Option<Self> {
        let problem = pod.problem.as_ref()?;
        if crashes(pod) >= CRASHING_RESTARTS || &*problem.reason == "CrashLoopBackOff" {
            Some(Self::Crashes)
        } else if UNSTARTABLE.contains(&&*problem.reason) {
            Some(Self::CannotStart)
        } else {
            None
        }
    }
}

/// Returns the number of restarts of the failing container, not counting the restart by an in-place update. If a greater number of
/// pods ended in a row on the node, returns that number instead.
fn crashes(pod: &Pod) -> u32 {
    let problem = pod.problem.as_ref();
    problem.map_or(0, |problem| problem.restarts.max(problem.ended))
}

/// Returns true if a pod on `node` fails. On nodes with a surge pod, only surge pods count.
pub(super) fn any_on(node: &Node) -> bool {
    let surges = node.pods.iter().any(|pod| pod.surge);
    let mut pods = node.pods.iter().filter(|pod| pod.surge == surges);
    pods.any(|pod| Failing::find(pod).is_some())
}
