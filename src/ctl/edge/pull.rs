//! From a request to pull to images on the node: how far it is, judged from what the node tells. Pure.

use std::time::Duration;

use super::answer::{Pods, one_line};
use super::pod::{Images, Pod, Update};

/// A failure that was there before the request counts as its result only after this long: what is told may be a moment
/// behind, and the next failure may have the very same words.
const SETTLE: Duration = Duration::from_secs(10);

/// A pod whose images are to be pulled.
#[derive(Clone, Debug)]
pub(super) struct Pull {
    key: String,
    uid: String,
    /// What was told before the request.
    before: Option<Images>,
}

/// How far it is.
#[derive(Clone, Debug)]
pub(super) enum Stage<'a> {
    /// Asked for.
    Asked,
    /// Under way.
    Pulling,
    /// On the node.
    Pulled(&'a Pod),
    /// Could not be pulled; why.
    Failed(&'a Pod, String),
    /// Nothing newer waits any more.
    Withdrawn,
    /// The pod is no more.
    Gone,
}

impl Pull {
    /// That for a pod.
    pub(super) fn of(pod: &Pod) -> Self {
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
    pub(super) fn stage<'a>(&self, pods: &'a Pods, after: Duration) -> Stage<'a> {
        let mut found = pods.items.iter().filter(|pod| pod.uid() == self.uid);
        let Some(pod) = found.next().filter(|pod| !pod.is_deleting()) else {
            return Stage::Gone;
        };
        if pod.update() != Some(Update::Available) {
            return Stage::Withdrawn;
        }
        match pod.images() {
            Some(Images::Pulled) => Stage::Pulled(pod),
            Some(Images::Pulling) => Stage::Pulling,
            Some(failed) if Some(&failed) == self.before.as_ref() && after < SETTLE => Stage::Asked,
            Some(Images::Failed(why)) => Stage::Failed(pod, why),
            Some(Images::Stale) | None => Stage::Asked,
        }
    }

    /// How far it is, for people.
    pub(super) fn told(&self, stage: &Stage<'_>) -> String {
        let key = &self.key;
        match stage {
            Stage::Asked => format!("{key}: waiting for the pull to begin"),
            Stage::Pulling => format!("{key}: pulling images"),
            Stage::Pulled(_) => format!("{key}: images pulled"),
            Stage::Failed(_, why) => format!("{key}: pulling failed: {}", one_line(why)),
            Stage::Withdrawn => format!("{key}: nothing newer waits any more"),
            Stage::Gone => format!("{key}: gone"),
        }
    }
}
