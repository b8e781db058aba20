//! Image pre-pull: pulls the images that node owners requested with `imagepull`, before they start the upgrade.
//!
//! ```text
//! engine ──DesiredPulls (all of a DaemonSet, when they change)──► Puller ──┬─► Job on the node     (jobs)
//!                                                                          └─► pod condition PodImageReady
//! ```
//!
//! The interface is small because there will be other ways to pull (by the node's agent over CRI) and other reasons (before a
//! rolling update). The requesting side declares which images should be on which node (level-triggered). The pulling side makes
//! it so and writes the result.
//!
//! A desired pull ends when its condition no longer requests it, so the condition is the only state. Jobs carry the pod's UID and
//! the revision, and are found again after a restart.
//!
//! # Order
//! [`slots`] divides concurrent pulls between namespaces and DaemonSets. The pulls of a DaemonSet start in the order of their
//! requests. Two pods of one node that want the same image have two Jobs, and the node's runtime downloads it once.

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

/// All desired pulls of one DaemonSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DesiredPulls {
    /// UID of the DaemonSet.
    pub(super) uid: Arc<str>,
    /// Generation of the DaemonSet whose template is pulled.
    pub(super) generation: i64,
    /// Longest duration of one pull.
    pub(super) timeout: Duration,
    /// Desired pulls in the order of nodes.
    pub(super) pulls: Vec<Pull>,
}

/// Result of a pull.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PullOutcome {
    /// Every image is on the node.
    Pulled,
    /// It failed, with a one-sentence reason.
    Failed(String),
}

/// Dependencies of the puller.
pub(super) struct PullerParts {
    pub(super) client: Client,
    pub(super) writer: Writer,
    pub(super) leadership: watch::Receiver<Leadership>,
    pub(super) events: Events,
    pub(super) metrics: Arc<Metrics>,
    pub(super) clock: Clock,
    pub(super) written: mpsc::UnboundedSender<PullResultWrite>,
}

/// Answer to writing the result of a pull for the rollout. A refusal is recorded as that of any other write.
#[derive(Debug)]
pub(super) struct PullResultWrite {
    /// DaemonSet of the pod.
    pub(super) key: SetKey,
    /// Pod that was written to.
    pub(super) pod: PodRef,
    /// Answer of the API server.
    pub(super) result: Result<(), WriteError>,
}

/// Desired pulls of all DaemonSets.
type AllDesiredPulls = BTreeMap<SetKey, Arc<DesiredPulls>>;

/// Carries out desired pulls while this replica leads.
pub(super) struct Puller {
    desired: watch::Sender<AllDesiredPulls>,
    task: JoinHandle<()>,
}

impl Puller {
    /// Starts without desired pulls. Until there is one, it asks the API server only for Jobs of an earlier leader.
    pub(super) fn start(parts: PullerParts) -> Self {
        let (desired, desired_changes) = watch::channel(AllDesiredPulls::new());
        Self {
            desired,
            task: tokio::spawn(jobs::run(parts, desired_changes)),
        }
    }

    /// Sets the desired pulls of a DaemonSet. Earlier ones that are missing now are abandoned.
    pub(super) fn set_desired(&self, key: &SetKey, desired: DesiredPulls) {
        self.desired.send_if_modified(|all| {
            let same = all.get(key).is_some_and(|known| **known == desired);
            if !same {
                all.insert(key.clone(), Arc::new(desired));
            }
            !same
        });
    }

    /// Forgets a DaemonSet that is gone or no longer managed. Its Jobs are deleted with its pods.
    pub(super) fn forget(&self, key: &SetKey) {
        self.desired
            .send_if_modified(|all| all.remove(key).is_some());
    }

    /// Waits for pending writes. Starts nothing new.
    pub(super) async fn finish(self) {
        drop(self.desired);
        let _ended = self.task.await;
    }
}

#[cfg(test)]
mod tests;
