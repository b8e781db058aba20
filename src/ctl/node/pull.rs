//! Progress of an image pull, derived from the node's pods. Has no side effects.

use std::time::Duration;

use super::answer::{Pods, one_line};
use super::pod::{AnnouncedUpdate, PulledImages};
use crate::k8s::Pod;

/// Time after a request in which a failure with the same text as before the request is ignored, because it may be the old failure.
/// Later, a failure with this text counts as the result of the request: a new failure may have the same text.
const SETTLE: Duration = Duration::from_secs(10);

/// Requested pull of the images of a pod.
#[derive(Clone, Debug)]
pub(super) struct AwaitedPull {
    key: String,
    uid: String,
    /// State of the images before the request.
    before: Option<PulledImages>,
}

#[derive(Clone, Debug)]
pub(super) enum PullProgress<'a> {
    /// The pull was requested.
    Asked,
    /// The images are being pulled.
    Pulling,
    /// The images are on the node.
    Pulled(&'a Pod),
    /// The pull failed, with the reason.
    Failed(&'a Pod, String),
    /// The pod has no newer revision any longer, so no image is pulled.
    Withdrawn,
    /// The pod is gone or is being deleted.
    Gone,
}

impl AwaitedPull {
    /// Records the pod and the state of its images before the request.
    pub(super) fn from_pod(pod: &Pod) -> Self {
        Self {
            key: one_line(&pod.key()),
            uid: pod.uid().to_owned(),
            before: PulledImages::of(pod),
        }
    }

    /// Returns the pod's name as `namespace/name`.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// Returns the progress. `after` is the time since the request.
    pub(super) fn stage<'a>(&self, pods: &'a Pods, after: Duration) -> PullProgress<'a> {
        let mut found = pods.items.iter().filter(|pod| pod.uid() == self.uid);
        let Some(pod) = found.next().filter(|pod| !pod.is_deleting()) else {
            return PullProgress::Gone;
        };
        if AnnouncedUpdate::of(pod) != Some(AnnouncedUpdate::Available) {
            return PullProgress::Withdrawn;
        }
        match PulledImages::of(pod) {
            Some(PulledImages::Pulled) => PullProgress::Pulled(pod),
            Some(PulledImages::Pulling) => PullProgress::Pulling,
            Some(failed) if Some(&failed) == self.before.as_ref() && after < SETTLE => {
                PullProgress::Asked
            }
            Some(PulledImages::Failed(why)) => PullProgress::Failed(pod, why),
            Some(PulledImages::Stale) | None => PullProgress::Asked,
        }
    }

    /// Returns a line about the progress.
    pub(super) fn describe(&self, stage: &PullProgress<'_>) -> String {
        let key = &self.key;
        match stage {
            PullProgress::Asked => format!("{key}: waiting for the pull to begin"),
            PullProgress::Pulling => format!("{key}: pulling images"),
            PullProgress::Pulled(_) => format!("{key}: images pulled"),
            PullProgress::Failed(_, why) => format!("{key}: pull failed: {}", one_line(why)),
            PullProgress::Withdrawn => format!("{key}: no newer version any more"),
            PullProgress::Gone => format!("{key}: gone"),
        }
    }
}
