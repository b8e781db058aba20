//! State of a pull, according to its Job and the Job's pod. Pure; [`super::planner`] adds time.
//!
//! The exit code of a container is irrelevant, because an image without the program `true` is pulled too. What matters is the
//! progress of the kubelet: if a container was created, ran, ended or could not be started, its image is on the node.

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use super::manifest::CONTAINER_PREFIX;

/// Waiting reasons that occur only after the image was pulled.
const AFTER_THE_PULL: [&str; 7] = [
    "CreateContainerConfigError",
    "CreateContainerError",
    "PreCreateHookError",
    "PreStartHookError",
    "PostStartHookError",
    "RunContainerError",
    "CrashLoopBackOff",
];

/// Waiting reasons that another attempt can't resolve.
const FINAL: [&str; 3] = [
    "InvalidImageName",
    "ErrImageNeverPull",
    "SignatureValidationFailed",
];

/// Waiting reasons after a failed attempt that the kubelet will repeat.
const REPEATED: [&str; 4] = [
    "ErrImagePull",
    BACK_OFF,
    "ImageInspectError",
    "RegistryUnavailable",
];
const BACK_OFF: &str = "ImagePullBackOff";

/// Parts of error messages, in lower case, that mean that another attempt would fail too.
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

/// Termination reason that the kubelet writes for a container that it never ran.
const NEVER_SEEN: &str = "ContainerStatusUnknown";

/// State of a pull.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PullJudgement {
    /// The pull is in progress.
    Pulling,
    /// All images are on the node.
    Pulled,
    /// The pull failed, for this reason.
    Failed(String),
    /// The pull has a problem that may be temporary.
    Problem(PullProblem, String),
}

/// Kind of problem of a pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PullProblem {
    /// An attempt failed, for a temporary reason.
    Failing {
        /// True if the kubelet waits before the next attempt; false if an attempt has just failed.
        backs_off: bool,
    },
    /// The kubelet accepted the pod but can't start it, most often because of the node's network plug-in.
    NotStarting,
    /// The Job has no pod, because of a quota, an admission rule, or a slow Job controller.
    NoPod,
    /// The Job ended, but it is not known how its pod ended: Job and pod are reported by different watches.
    Ended,
}

impl PullProblem {
    /// Returns how long the problem may last before the pull counts as failed.
    pub(super) fn patience(self) -> Duration {
        Duration::from_secs(match self {
            Self::Failing { .. } => 60,
            Self::NotStarting | Self::NoPod => 120,
            Self::Ended => 5,
        })
    }

    /// Returns true if both are the same kind of problem.
    pub(super) fn is_like(self, other: Self) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}

/// Returns the state of the pull by this Job. `pod` is the Job's pod, if it exists.
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

/// Returns the deadline of the Job.
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
    // The Job controller deletes the pod when the Job exceeds its deadline. Then the Job contains the reason, so wait for it.
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
