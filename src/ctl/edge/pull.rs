//! From a request to pull to images on the node: how far it is, judged from what the node tells. Pure.

use std::time::Duration;

use super::answer::{Pods, one_line};
use super::pod::{AnnouncedUpdate, LocalPod, PulledImages};

/// A failure that was there before the request counts as its result only after this long: what is told may be a moment
/// behind, and the next failure may have the very same words.
const SETTLE: Duration = Duration::from_secs(10);

/// A pod whose images are to be pulled.
#[derive(Clone, Debug)]
pub(super) struct AwaitedPull {
    key: String,
    uid: String,
    /// What was told before the request.
    before: Option<PulledImages>,
}

/// How far it is.
#[derive(Clone, Debug)]
pub(super) enum PullProgress<'a> {
    /// Asked for.
    Asked,
    /// Under way.
    Pulling,
    /// On the node.
    Pulled(&'a LocalPod),
    /// Could not be pulled; why.
    Failed(&'a LocalPod, String),
    /// Nothing newer waits any more.
    Withdrawn,
    /// The pod is no more.
    Gone,
}

impl AwaitedPull {
    /// That for a pod.
    pub(super) fn from_pod(pod: &LocalPod) -> Self {
        Self {
            key: one_line(&pod.key()),
            uid: pod.uid().to_owned(),
            before: pod.images(),
        }
    }

    /// The pod, as `namespace/name`.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// How far it is, that long after the request.
    pub(super) fn stage<'a>(&self, pods: &'a Pods, after: Duration) -> PullProgress<'a> {
        let mut found = pods.items.iter().filter(|pod| pod.uid() == self.uid);
        let Some(pod) = found.next().filter(|pod| !pod.is_deleting()) else {
            return PullProgress::Gone;
        };
        if pod.update() != Some(AnnouncedUpdate::Available) {
            return PullProgress::Withdrawn;
        }
        match pod.images() {
            Some(PulledImages::Pulled) => PullProgress::Pulled(pod),
            Some(PulledImages::Pulling) => PullProgress::Pulling,
            Some(failed) if Some(&failed) == self.before.as_ref() && after < SETTLE => {
                PullProgress::Asked
            }
            Some(PulledImages::Failed(why)) => PullProgress::Failed(pod, why),
            Some(PulledImages::Stale) | None => PullProgress::Asked,
        }
    }

    /// How far it is, for people.
    pub(super) fn told(&self, stage: &PullProgress<'_>) -> String {
        let key = &self.key;
        match stage {
            PullProgress::Asked => format!("{key}: waiting for the pull to begin"),
            PullProgress::Pulling => format!("{key}: pulling images"),
            PullProgress::Pulled(_) => format!("{key}: images pulled"),
            PullProgress::Failed(_, why) => format!("{key}: pulling failed: {}", one_line(why)),
            PullProgress::Withdrawn => format!("{key}: nothing newer waits any more"),
            PullProgress::Gone => format!("{key}: gone"),
        }
    }
}
