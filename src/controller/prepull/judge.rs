//! How a pull stands, from a Job and its pod. Pure; [`super::planner`] adds time.
//!
//! A container's exit code tells nothing: an image without a program `true` is pulled all the same. What counts is how far
//! the kubelet came: everything after the pull (a container that was made, ran, ended, or could not be started) proves that
//! the image is on the node.

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use super::manifest::CONTAINER_PREFIX;

/// Reasons to wait that come after the pull.
const AFTER_THE_PULL: [&str; 7] = [
    "CreateContainerConfigError",
    "CreateContainerError",
    "PreCreateHookError",
    "PreStartHookError",
    "PostStartHookError",
    "RunContainerError",
    "CrashLoopBackOff",
];

/// Reasons to wait that no second attempt mends.
const FINAL: [&str; 3] = [
    "InvalidImageName",
    "ErrImageNeverPull",
    "SignatureValidationFailed",
];

/// Reasons to wait after an attempt that failed, which the kubelet repeats.
const REPEATED: [&str; 4] = [
    "ErrImagePull",
    BACK_OFF,
    "ImageInspectError",
    "RegistryUnavailable",
];
const BACK_OFF: &str = "ImagePullBackOff";

/// What registries and runtimes say when another attempt would end the same way (lower case).
const HOPELESS: [&str; 10] = [
    "not found",
    "manifest unknown",
    "name unknown",
    "does not exist",
    "unauthorized",
    "authentication required",
    "authorization failed",
    "denied",
    "forbidden",
    "no match for platform",
];

/// A kubelet writes this end for containers that it never saw.
const NEVER_SEEN: &str = "ContainerStatusUnknown";

/// How a pull stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PullJudgement {
    /// Under way.
    Pulling,
    /// Every image is on the node.
    Pulled,
    /// It cannot be had, and why.
    Failed(String),
    /// It looks bad, and may come right.
    Problem(PullProblem, String),
}

/// Why a pull looks bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PullProblem {
    /// An attempt failed for a reason that may pass.
    Failing {
        /// Whether the kubelet waits before the next attempt, rather than having just failed.
        backs_off: bool,
    },
    /// The pod was accepted and cannot be started: the node's network plug-in, most often.
    NotStarting,
    /// The Job has no pod: quota, admission, or a Job controller that is late.
    NoPod,
    /// The Job ended and its pod tells nothing yet: the two are watched apart.
    Ended,
}

impl PullProblem {
    /// How long it may look so before it counts as failed.
    pub(super) fn patience(self) -> Duration {
        Duration::from_secs(match self {
            Self::Failing { .. } => 60,
            Self::NotStarting | Self::NoPod => 120,
            Self::Ended => 5,
        })
    }

    /// Whether both are the same problem.
    pub(super) fn is_like(self, other: Self) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}

/// How the pull of this Job stands; `pod` is its pod, when there is one.
pub(super) fn judge(job: &Job, pod: Option<&Pod>) -> PullJudgement {
    let status = job.status.clone().unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let ended = |kind: &str| {
        conditions
            .iter()
            .find(|condition| condition.type_ == kind && condition.status == "True")
    };
    if status.succeeded.unwrap_or_default() > 0 || ended("Complete").is_some() {
        return PullJudgement::Pulled;
    }
    let seen = pod.map(of_pod);
    match (ended("Failed"), seen) {
        (_, Some(end @ (PullJudgement::Pulled | PullJudgement::Failed(_)))) => end,
        (Some(end), _) if end.reason.as_deref() == Some("DeadlineExceeded") => {
            PullJudgement::Failed(format!(
                "it was not done within {}; what was downloaded stays, ask again to go on",
                limit(job)
            ))
        }
        (Some(end), _) => {
            let why = end.message.as_deref().unwrap_or("the Job failed");
            PullJudgement::Problem(PullProblem::Ended, format!("its pod is gone: {why}"))
        }
        (None, Some(judgement)) => judgement,
        (None, None) => PullJudgement::Problem(
            PullProblem::NoPod,
            "no pod was made for it: is the Job controller running?".to_owned(),
        ),
    }
}

/// How long the Job might run.
fn limit(job: &Job) -> humantime::FormattedDuration {
    let spec = job.spec.as_ref();
    let seconds = spec.and_then(|spec| spec.active_deadline_seconds);
    humantime::format_duration(Duration::from_secs(
        seconds.unwrap_or_default().unsigned_abs(),
    ))
}

fn of_pod(pod: &Pod) -> PullJudgement {
    let status = pod.status.clone().unwrap_or_default();
    let phase = status.phase.as_deref().unwrap_or_default();
    if phase == "Succeeded" {
        return PullJudgement::Pulled;
    }
    let statuses = status.container_statuses.unwrap_or_default();
    let wanted = pod.spec.iter().flat_map(|spec| &spec.containers);
    let wanted = wanted.filter(|container| container.name.starts_with(CONTAINER_PREFIX));
    let each = wanted.map(|container| {
        let of_it = |status: &&ContainerStatus| status.name == container.name;
        statuses
            .iter()
            .find(of_it)
            .map_or(PullJudgement::Pulling, of_container)
    });
    let worst = each.max_by_key(|judgement| match judgement {
        PullJudgement::Pulled => 0,
        PullJudgement::Pulling => 1,
        PullJudgement::Problem(..) => 2,
        PullJudgement::Failed(_) => 3,
    });
    let conditions = status.conditions.unwrap_or_default();
    let cannot_start = conditions.iter().any(|condition| {
        condition.type_ == "PodReadyToStartContainers" && condition.status == "False"
    });
    // The Job controller deletes the pod of a Job past its deadline: the Job says why.
    let is_ended = pod.metadata.deletion_timestamp.is_some() && status.reason.is_none();
    match worst.unwrap_or(PullJudgement::Pulling) {
        PullJudgement::Pulling | PullJudgement::Problem(..) if phase == "Failed" && is_ended => {
            PullJudgement::Problem(PullProblem::Ended, "its pod was deleted".to_owned())
        }
        PullJudgement::Pulling | PullJudgement::Problem(..) if phase == "Failed" => {
            let reason = status.reason.as_deref().unwrap_or("its pod failed");
            let said = status.message.as_deref().unwrap_or_default();
            PullJudgement::Failed(sentence(reason, said))
        }
        PullJudgement::Pulling if cannot_start => PullJudgement::Problem(
            PullProblem::NotStarting,
            "its pod cannot be started on the node (network plug-in?): see the pod's Events"
                .to_owned(),
        ),
        judgement => judgement,
    }
}

fn of_container(status: &ContainerStatus) -> PullJudgement {
    let state = status.state.clone().unwrap_or_default();
    let ended = state.terminated.as_ref();
    let ended = ended.is_some_and(|end| end.reason.as_deref() != Some(NEVER_SEEN));
    if state.running.is_some() || ended || !status.image_id.is_empty() {
        return PullJudgement::Pulled;
    }
    let waiting = state.waiting.unwrap_or_default();
    let reason = waiting.reason.as_deref().unwrap_or_default();
    let said = waiting.message.as_deref().unwrap_or_default();
    let why = || format!("{}: {}", status.image, sentence(reason, said));
    if AFTER_THE_PULL.contains(&reason) {
        PullJudgement::Pulled
    } else if FINAL.contains(&reason) {
        PullJudgement::Failed(why())
    } else if !REPEATED.contains(&reason) {
        PullJudgement::Pulling
    } else if is_hopeless(said) {
        PullJudgement::Failed(why())
    } else {
        let backs_off = reason == BACK_OFF;
        PullJudgement::Problem(PullProblem::Failing { backs_off }, why())
    }
}

fn is_hopeless(said: &str) -> bool {
    let said = said.to_lowercase();
    HOPELESS.iter().any(|words| said.contains(words))
}

fn sentence(reason: &str, said: &str) -> String {
    if said.is_empty() {
        reason.to_owned()
    } else {
        format!("{reason}: {said}")
    }
}

#[cfg(test)]
mod tests;
