//! Problems that keep a pod from starting, as reported by the kubelet or the scheduler.

use std::sync::Arc;

use crate::core::PodProblem;

use crate::core::fleet::in_place::InPlaceState;
use crate::core::foreign::{WORD, cut};
use crate::core::names::UNSCHEDULABLE;
use crate::core::words::line;
use crate::k8s;

/// Waiting reasons of a container whose image cannot be pulled. They alternate: one is for the failed attempt, the other for the
/// wait before the next attempt.
const PULLS: [&str; 2] = ["ErrImagePull", "ImagePullBackOff"];

/// Prefixes that containerd adds to the error of an image pull. The image name and a quote follow.
const WRAPPERS: [&str; 2] = [
    "failed to pull and unpack image \"",
    "failed to resolve reference \"",
];

/// Returns the problem of the first container that doesn't start: the reason why it waits or terminated.
///
/// If the container terminated before an update in place, that is no problem of the new container and is ignored.
pub(super) fn problem(pod: &k8s::Pod, state: Option<&InPlaceState>) -> Option<PodProblem> {
    let status = &pod.status;
    let seen = is_seen(pod);
    let containers = status
        .init_container_statuses
        .iter()
        .chain(&status.container_statuses);
    containers
        .filter(|container| !container.ready)
        .find_map(|container| {
            let count = u32::try_from(container.restart_count).unwrap_or_default();
            let name = container.name.as_str();
            // The status shows the container from before the update in place. Its problem is ignored while the kubelet hasn't seen
            // the update. A crash back-off is always ignored, because only the old container ran.
            let is_as_before =
                state.is_some_and(|state| state.is_unchanged(name, &container.image_id, count));
            let backs_off = container.state.waiting.as_ref();
            let backs_off = backs_off.is_some_and(|state| state.reason == "CrashLoopBackOff");
            if is_as_before && (seen == Some(false) || backs_off) {
                return None;
            }
            let waiting = container.state.waiting.as_ref();
            // The kubelet may have seen the update and still report an error about an earlier image. Ignore it.
            let is_superseded = |state: &InPlaceState| {
                let message = waiting.map_or("", |waiting| waiting.message.as_str());
                state.is_about_superseded(name, image_of(pod, name), message)
            };
            if is_as_before && state.is_some_and(is_superseded) {
                return None;
            }
            if state.is_some() && is_of_former(container, image_of(pod, name)) {
                return None;
            }
            let waiting = waiting.filter(|state| {
                !["", "ContainerCreating", "PodInitializing"].contains(&state.reason.as_str())
            });
            let own = state.map_or(count, |state| state.own_restarts(name, count));
            let is_first = state.is_some_and(|state| state.changes(name)) && own == 0;
            let present = container
                .state
                .terminated
                .as_ref()
                .filter(|_| !is_as_before);
            let last = container
                .last_state
                .terminated
                .as_ref()
                .filter(|_| !is_first);
            let mut ended = present.into_iter().chain(last);
            let ended = ended.find(|state| state.exit_code != Some(0));
            let detail = waiting.or(ended)?;
            Some(PodProblem {
                reason: cut(&detail.reason, WORD).into(),
                detail: waiting.map_or_else(Default::default, detail_of),
                restarts: own,
                ended: 0,
            })
        })
}

/// Returns true if the container never ran, and the kubelet has not yet seen the change of its image.
///
/// For such a container, the kubelet reports the image by the name in the spec. So another name shows that the kubelet uses an
/// older spec.
fn is_of_former(container: &k8s::ContainerStatus, image: &str) -> bool {
    let never_ran = container.image_id.is_empty() && container.restart_count == 0;
    never_ran && !container.image.is_empty() && container.image != image
}

/// Returns true if the kubelet has seen the current version of the pod; `None` if it doesn't report this.
pub(super) fn is_seen(pod: &k8s::Pod) -> Option<bool> {
    let observed = pod.status.observed_generation?;
    Some(observed >= pod.metadata.generation?)
}

/// Returns the image that the pod's spec requests for a container.
fn image_of<'a>(pod: &'a k8s::Pod, name: &str) -> &'a str {
    let mut containers = pod.spec.containers.iter();
    let container = containers.find(|container| container.name == name);
    container.map_or("", |container| container.image.as_str())
}

/// Returns the problem of a pod that cannot be scheduled, from its condition `PodScheduled`.
pub(super) fn unscheduled(condition: &k8s::Condition) -> Option<PodProblem> {
    let waits = condition.status == "False" && condition.reason == UNSCHEDULABLE;
    // The part about preemption comes after the cause and is dropped.
    let cause = condition.message.split(" preemption:").next();
    waits.then(|| PodProblem {
        reason: UNSCHEDULABLE.into(),
        detail: line(cause.unwrap_or_default()).into(),
        restarts: 0,
        ended: 0,
    })
}

/// Returns `problem`. If it is a failed image pull without an error message, it gets the message of the previous attempt, from
/// `before`.
pub(super) fn as_before(problem: PodProblem, before: Option<&PodProblem>) -> PodProblem {
    let pulls = |problem: &PodProblem| PULLS.contains(&&*problem.reason);
    match before.filter(|known| pulls(known) && pulls(&problem) && problem.detail.is_empty()) {
        Some(known) => PodProblem {
            detail: known.detail.clone(),
            ..problem
        },
        None => problem,
    }
}

/// Returns the error of an image pull without the prefixes of gRPC and containerd, which only repeat the image name.
fn pull_error(message: &str) -> String {
    let is_grpc = message.starts_with("rpc error: code = ");
    let grpc = message.split_once(" desc = ").filter(|_| is_grpc);
    let mut error = grpc.map_or(message, |(_, error)| error);
    let mut image = None;
    let wrapped = |error: &'_ str| {
        let named = WRAPPERS
            .iter()
            .find_map(|before| error.strip_prefix(before));
        let (name, error) = named?.split_once("\": ")?;
        Some((name.len(), error.len()))
    };
    while let Some((name, rest)) = wrapped(error) {
        let end = error.len() - rest - "\": ".len();
        image = error.get(end - name..end);
        error = &error[error.len() - rest..];
    }
    match image.filter(|image| !error.contains(image)) {
        Some(image) => format!("{image}: {error}"),
        None => error.to_owned(),
    }
}

/// Returns the kubelet's message about a waiting container, without the parts that differ between attempts.
fn detail_of(detail: &k8s::StateDetail) -> Arc<str> {
    let message = detail.message.as_str();
    match detail.reason.as_str() {
        "CrashLoopBackOff" => Arc::default(),
        // Since Kubernetes 1.31 this message contains the error of the pull.
        "ImagePullBackOff" => {
            let why = message.split_once("ErrImagePull: ");
            line(&pull_error(why.map_or("", |(_, why)| why))).into()
        }
        "ErrImagePull" => line(&pull_error(message)).into(),
        _ => line(message).into(),
    }
}
