//! Status of a pull, derived from its Job and the Job's pod. The status doesn't depend on time; [`super::planner`] handles
//! durations.
//!
//! The exit code of a container is irrelevant, because an image without the program `true` is pulled too. What matters is the
//! progress of the kubelet. If a container was created, ran, ended or could not be started, its image is on the node.

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

/// Parts of error messages, in lower case. A message with such a part means that another attempt would fail too.
const PERMANENT: [&str; 10] = [
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PullStatus {
    Pulling,
    /// An attempt failed. The kubelet waits before the next attempt, or the next attempt is in progress.
    BackingOff,
    /// All images are on the node.
    Pulled,
    /// The pull failed, for this reason.
    Failed(String),
    /// The pull has a problem that may be temporary.
    Problem(Problem, String),
}

/// Kind of problem of a pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// An attempt has just failed, for a temporary reason.
    AttemptFailed,
    /// The kubelet accepted the pod but can't start it, most often because of the node's network plug-in.
    NotStarting,
    /// The Job has no pod, because of a quota, an admission rule, or a slow Job controller.
    NoPod,
    /// The Job failed, but the end of its pod is not known yet: Job and pod are reported by different watches.
    PodLost,
}

impl Problem {
    /// Returns the maximum duration of the problem. After that, the pull counts as failed.
    pub(super) fn patience(self) -> Duration {
        Duration::from_secs(match self {
            Self::AttemptFailed => 60,
            Self::NotStarting | Self::NoPod => 120,
            Self::PodLost => 5,
        })
    }
}

/// Returns the status of the pull by this Job. `pod` is the Job's pod, if it exists.
pub(super) fn status(job: &Job, pod: Option<&Pod>) -> PullStatus {
    let conditions = job.status.iter().flat_map(|status| &status.conditions);
    let ended = |kind: &str| {
        let mut conditions = conditions.clone().flatten();
        conditions.find(|condition| condition.type_ == kind && condition.status == "True")
    };
    if ended("Complete").is_some() {
        return PullStatus::Pulled;
    }
    match (ended("Failed"), pod.map(of_pod)) {
        (_, Some(end @ (PullStatus::Pulled | PullStatus::Failed(_)))) => end,
        (Some(end), _) if end.reason.as_deref() == Some("DeadlineExceeded") => {
            PullStatus::Failed(format!(
                "it was not done within {}; what was downloaded stays, ask again to go on",
                limit(job)
            ))
        }
        (Some(end), _) => {
            let why = end.message.as_deref().unwrap_or("the Job failed");
            PullStatus::Problem(Problem::PodLost, format!("its pod is gone: {why}"))
        }
        (None, Some(status)) => status,
        (None, None) => PullStatus::Problem(
            Problem::NoPod,
            "no pod was made for it: is the Job controller running?".to_owned(),
        ),
    }
}

fn limit(job: &Job) -> humantime::FormattedDuration {
    let spec = job.spec.as_ref();
    let seconds = spec.and_then(|spec| spec.active_deadline_seconds);
    humantime::format_duration(Duration::from_secs(
        seconds.unwrap_or_default().unsigned_abs(),
    ))
}

fn of_pod(pod: &Pod) -> PullStatus {
    let status = pod.status.clone().unwrap_or_default();
    let phase = status.phase.as_deref().unwrap_or_default();
    if phase == "Succeeded" {
        return PullStatus::Pulled;
    }
    let statuses = status.container_statuses.unwrap_or_default();
    let wanted = pod.spec.iter().flat_map(|spec| &spec.containers);
    let wanted = wanted.filter(|container| container.name.starts_with(CONTAINER_PREFIX));
    let each = wanted.map(|container| {
        let of_it = |status: &&ContainerStatus| status.name == container.name;
        statuses
            .iter()
            .find(of_it)
            .map_or(PullStatus::Pulling, of_container)
    });
    let worst = each.max_by_key(|status| match status {
        PullStatus::Pulled => 0,
        PullStatus::Pulling => 1,
        PullStatus::BackingOff => 2,
        PullStatus::Problem(..) => 3,
        PullStatus::Failed(_) => 4,
    });
    let conditions = status.conditions.unwrap_or_default();
    let cannot_start = conditions.iter().any(|condition| {
        condition.type_ == "PodReadyToStartContainers" && condition.status == "False"
    });
    let worst = worst.unwrap_or(PullStatus::Pulling);
    if matches!(worst, PullStatus::Pulled | PullStatus::Failed(_)) {
        return worst;
    }
    if phase == "Failed" {
        // The Job exceeded its deadline, and its pod is being deleted. The Job gets its condition only afterwards.
        if pod.metadata.deletion_timestamp.is_some() && status.reason.is_none() {
            return PullStatus::Pulling;
        }
        let reason = status.reason.as_deref().unwrap_or("its pod failed");
        return PullStatus::Failed(sentence(reason, status.message.as_deref()));
    }
    if worst == PullStatus::Pulling && cannot_start {
        let why = "its pod cannot be started on the node (network plug-in?): see the pod's Events";
        return PullStatus::Problem(Problem::NotStarting, why.to_owned());
    }
    worst
}

fn of_container(status: &ContainerStatus) -> PullStatus {
    let state = status.state.clone().unwrap_or_default();
    let ended = state.terminated.as_ref();
    let ended = ended.is_some_and(|end| end.reason.as_deref() != Some(NEVER_SEEN));
    if state.running.is_some() || ended || !status.image_id.is_empty() {
        return PullStatus::Pulled;
    }
    let waiting = state.waiting.unwrap_or_default();
    let reason = waiting.reason.as_deref().unwrap_or_default();
    let message = waiting.message.as_deref();
    let why = || format!("{}: {}", status.image, sentence(reason, message));
    if AFTER_THE_PULL.contains(&reason) {
        PullStatus::Pulled
    } else if FINAL.contains(&reason) {
        PullStatus::Failed(why())
    } else if !REPEATED.contains(&reason) {
        PullStatus::Pulling
    } else if is_permanent(message.unwrap_or_default()) {
        PullStatus::Failed(why())
    } else if reason == BACK_OFF {
        PullStatus::BackingOff
    } else {
        PullStatus::Problem(Problem::AttemptFailed, why())
    }
}

fn is_permanent(message: &str) -> bool {
    let message = message.to_lowercase();
    PERMANENT.iter().any(|words| message.contains(words))
}

fn sentence(reason: &str, message: Option<&str>) -> String {
    match message.unwrap_or_default() {
        "" => reason.to_owned(),
        message => format!("{reason}: {message}"),
    }
}

#[cfg(test)]
mod tests;
