//! Image pre-pull: what owners of nodes asked for with `imagepull` is pulled before they say "upgrade".
//!
//! ```text
//! engine ──DesiredPulls (all of a DaemonSet, when they change)──► Puller ──┬─► Job on the node     (jobs)
//!                                                                    └─► pod condition PodImageReady
//! ```
//!
//! The door is small because there will be other ways to pull (by the node's agent over CRI) and other reasons (ahead of a
//! rolling update): whoever wants images says what should be there on which node, level-triggered; whoever pulls makes it true
//! and writes how it ended. A desired pull ends when its condition does not ask any more, so the condition is the only memory:
//! Jobs carry the pod's UID and the revision, and are found again after a restart.
//!
//! # Order
//! [`slots`] divides the pulls that run at once between namespaces and DaemonSets. A DaemonSet's pulls begin in the order in which
//! they were asked for. Two pods of one node that want the same image are two Jobs: the node's runtime downloads it once.

mod calls;
mod job_store;
mod jobs;
mod judge;
mod manifest;
mod name;
mod planner;
mod pull_state;
mod request;
mod slots;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::apply::{WriteError, Writer};
use super::events::Events;
use super::lease::Leadership;
use super::metrics::Metrics;
use crate::clock::Clock;
use crate::core::{PodRef, Pull};
use crate::index::SetKey;

/// Everything that the nodes of one DaemonSet are to pull.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DesiredPulls {
    /// UID of the DaemonSet.
    pub(super) uid: Arc<str>,
    /// Generation of the DaemonSet whose template is meant.
    pub(super) generation: i64,
    /// How long one of them may take.
    pub(super) timeout: Duration,
    /// The desired pulls, in the order of nodes.
    pub(super) pulls: Vec<Pull>,
}

/// How a pull ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PullOutcome {
    /// Every image is on the node.
    Pulled,
    /// It cannot be had, and why in one sentence.
    Failed(String),
}

/// What desired pulls are made true with.
pub(super) struct PullerParts {
    pub(super) client: Client,
    pub(super) writer: Writer,
    pub(super) leadership: watch::Receiver<Leadership>,
    pub(super) events: Events,
    pub(super) metrics: Arc<Metrics>,
    pub(super) clock: Clock,
    pub(super) written: mpsc::UnboundedSender<PullResultWrite>,
}

/// What became of writing how a pull of the rollout ended: a refusal is remembered like that of any other write.
#[derive(Debug)]
pub(super) struct PullResultWrite {
    /// Of which DaemonSet.
    pub(super) key: SetKey,
    /// To which pod.
    pub(super) pod: PodRef,
    /// The answer.
    pub(super) result: Result<(), WriteError>,
}

/// All desired pulls, by DaemonSet.
type AllDesiredPulls = BTreeMap<SetKey, Arc<DesiredPulls>>;

/// Makes desired pulls true while this replica leads.
pub(super) struct Puller {
    desired: watch::Sender<AllDesiredPulls>,
    task: JoinHandle<()>,
}

impl Puller {
    /// Starts without desired pulls; asks nothing of the API server before there is one, but for what an earlier leader left.
    pub(super) fn start(parts: PullerParts) -> Self {
        let (desired, desired_changes) = watch::channel(AllDesiredPulls::new());
        Self {
            desired,
            task: tokio::spawn(jobs::run(parts, desired_changes)),
        }
    }

    /// From now on these are the desired pulls of a DaemonSet. What was desired before and is not any more is given up.
    pub(super) fn set_desired(&self, key: &SetKey, desired: DesiredPulls) {
        self.desired.send_if_modified(|all| {
            let same = all.get(key).is_some_and(|known| **known == desired);
            if !same {
                all.insert(key.clone(), Arc::new(desired));
            }
            !same
        });
    }

    /// The DaemonSet is gone, or ours no longer; its Jobs go with its pods.
    pub(super) fn forget(&self, key: &SetKey) {
        self.desired
            .send_if_modified(|all| all.remove(key).is_some());
    }

    /// Lets the writes under way end; nothing new begins.
    pub(super) async fn finish(self) {
        drop(self.desired);
        let _ended = self.task.await;
    }
}

#[cfg(test)]
mod tests;
