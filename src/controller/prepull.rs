//! Image pre-pull: what owners of nodes asked for with `imagepull` is pulled before they say "upgrade".
//!
//! ```text
//! engine ──DesiredPulls (all of a DaemonSet, when they change)──► Puller ──┬─► Job on the node     (jobs)
//!                                                                    └─► pod condition PodImageReady
//! ```
//!
//! The door is small because there will be other ways to pull (by the node's agent over CRI) and other reasons (ahead of a
//! rolling update): whoever wishes says what should be there on which node, level-triggered; whoever pulls makes it true
//! and writes how it ended. A wish ends when its condition does not ask any more, so the condition is the only memory:
//! Jobs carry the pod's UID and the revision, and are found again after a restart.
//!
//! # Order
//! First wished, first pulled, and then by name; at most [`planner::PER_SET`] of a DaemonSet and [`planner::IN_ALL`] in all at
//! once. Two pods of one node that wish the same image are two Jobs: the node's runtime downloads it once.

mod calls;
mod job_store;
mod jobs;
mod judge;
mod manifest;
mod name;
mod planner;
mod pull_state;
mod request;

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::apply::Writer;
use super::events::Events;
use super::lease::Leadership;
use super::metrics::Metrics;
use crate::clock::Clock;
use crate::core::Pull;
use crate::index::SetKey;

/// Everything that the nodes of one DaemonSet wish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DesiredPulls {
    /// UID of the DaemonSet.
    pub(super) uid: Arc<str>,
    /// Generation of the DaemonSet whose template is meant.
    pub(super) generation: i64,
    /// The wishes, in the order of nodes.
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

/// What wishes are made true with.
pub(super) struct PullerParts {
    pub(super) client: Client,
    pub(super) writer: Writer,
    pub(super) leadership: watch::Receiver<Leadership>,
    pub(super) events: Events,
    pub(super) metrics: Arc<Metrics>,
    pub(super) clock: Clock,
}

/// All wishes, by DaemonSet.
type AllDesiredPulls = BTreeMap<SetKey, Arc<DesiredPulls>>;

/// Makes wishes true while this replica leads.
pub(super) struct Puller {
    wishes: watch::Sender<AllDesiredPulls>,
    task: JoinHandle<()>,
}

impl Puller {
    /// Starts without wishes; asks nothing of the API server before there is one, but for what an earlier leader left.
    pub(super) fn start(parts: PullerParts) -> Self {
        let (wishes, wished) = watch::channel(AllDesiredPulls::new());
        Self {
            wishes,
            task: tokio::spawn(jobs::run(parts, wished)),
        }
    }

    /// From now on these are the wishes of a DaemonSet. What was wished before and is not any more is given up.
    pub(super) fn wish(&self, key: &SetKey, wishes: DesiredPulls) {
        self.wishes.send_if_modified(|all| {
            let same = all.get(key).is_some_and(|known| **known == wishes);
            if !same {
                all.insert(key.clone(), Arc::new(wishes));
            }
            !same
        });
    }

    /// The DaemonSet is gone, or ours no longer; its Jobs go with its pods.
    pub(super) fn forget(&self, key: &SetKey) {
        self.wishes
            .send_if_modified(|all| all.remove(key).is_some());
    }

    /// Lets the writes under way end; nothing new begins.
    pub(super) async fn finish(self) {
        drop(self.wishes);
        let _ended = self.task.await;
    }
}

#[cfg(test)]
mod tests;
