//! Whether a pod fails by itself: its containers crash, or cannot be started.
//!
//! `CrashLoopBackOff` shows minutes late since Kubernetes 1.35, and not all the time: restarts and terminations are what
//! a crash is judged by.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::core::fleet::{Node, Pod};
use crate::core::instant::later;

/// Reasons with which a container does not start before somebody mends something (list of ExtendedDaemonSet).
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

/// A container that was started again this often is crashing, whatever its reason says.
pub(crate) const CRASHING_RESTARTS: u32 = 2;

/// A pod whose container crashed again and again is available only once it has been Ready for so long: before that it may be
/// between two crashes, and whoever takes it for one that runs goes on from node to node with it.
pub(crate) const PROVED_AFTER: Duration = Duration::from_secs(30);

/// When a Ready pod will have proved that it is not between two crashes; `None`: it has, or did not crash on its own account.
/// A container is started again also by an update in place, and after its node was away.
pub(super) fn proved_at(
    pod: &Pod,
    node_ready_since: Timestamp,
    now: Timestamp,
) -> Option<Timestamp> {
    // Few pods became Ready a moment ago: the containers of the others are not looked at.
    let at = later(pod.ready_since?, PROVED_AFTER);
    if at <= now {
        return None;
    }
    let mut containers = pod.in_place.containers.iter();
    let is_own = pod.in_place.update.is_none() && node_ready_since <= pod.created;
    let crashed = is_own && containers.any(|container| container.restarts >= CRASHING_RESTARTS);
    crashed.then_some(at)
}

/// In which way a pod fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failing {
    /// A container ends again and again.
    Crashes,
    /// A container cannot be started at all.
    CannotStart,
}

impl Failing {
    /// How this pod fails, if it does.
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

/// Returns how often the failing container was restarted without a request, or how many pods ended in a row.
fn crashes(pod: &Pod) -> u32 {
    let problem = pod.problem.as_ref();
    problem.map_or(0, |problem| problem.restarts.max(problem.ended))
}

/// Whether a pod on `node` fails; of those with a pod that was made beside another one, whether that does.
pub(super) fn any_on(node: &Node) -> bool {
    let surges = node.pods.iter().any(|pod| pod.surge);
    let mut pods = node.pods.iter().filter(|pod| pod.surge == surges);
    pods.any(|pod| Failing::find(pod).is_some())
}
