//! Image pre-pull: pulls images to a node before the pod on that node is updated, for example at the request of a node owner.
//!
//! ```text
//! engine ──PullRequests (all of a DaemonSet, when they change)──► Puller ──┬─► Job on the node
//!                                                                          └─► pod condition PodImageReady
//! ```
//!
//! The interface is small, so that other ways to pull (by the node's agent over CRI) and other reasons to pull can be added. The
//! engine declares which images should be on which node (level-triggered). The puller pulls them and writes the result.
//!
//! The pod's condition is the only state: a pull is desired while the condition requests it. Jobs contain the pod's UID and the
//! revision, so a restarted controller finds its Jobs again.
//!
//! # Limits of the Job controller
//! The Job controller ends a pull after its deadline (`activeDeadlineSeconds`). It also deletes a finished Job that yurt-ds left
//! (`ttlSecondsAfterFinished`). The rest needs more than the status of the Job:
//!
//! - A Job whose image can't be pulled never fails: its container doesn't start. So [`status`] reads the Job's pod.
//! - A Job of an image without the program `true` fails although the image was pulled. The status of the Job's pod shows that the
//!   image is there.
//! - If the Job controller can't create the pod, no condition of the Job contains the reason. So the Events of the Job are read.
//! - A Job that is no longer desired would run until its deadline. The next pull of the same revision needs the same Job name. So
//!   yurt-ds deletes each Job after writing the result.
//!
//! # Order
//! [`slots`] limits concurrent pulls per namespace and DaemonSet. The pulls of one DaemonSet start in the order of their requests.
//! If two pods of a node need the same image, there are two Jobs, and the container runtime downloads the image once.

mod api_calls;
mod job_store;
mod manifest;
mod planner;
mod puller;
mod slots;
mod status;

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

/// Image pull that the engine wants, for one pod and revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PullRequest {
    pub(super) key: SetKey,
    pub(super) set_uid: Arc<str>,
    /// Generation of the DaemonSet whose template contains the images.
    pub(super) generation: i64,
    /// Maximum duration of the pull.
    pub(super) timeout: Duration,
    /// Pod, node and revision of the pull.
    pub(super) pull: Pull,
}

/// Result of a pull.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PullOutcome {
    /// All images are on the node.
    Pulled,
    /// The pull failed, for this reason.
    Failed(String),
}

/// Dependencies of the puller.
#[derive(Clone)]
pub(super) struct PullerParts {
    pub(super) client: Client,
    pub(super) writer: Writer,
    pub(super) leadership: watch::Receiver<Leadership>,
    pub(super) events: Events,
    pub(super) metrics: Arc<Metrics>,
    pub(super) clock: Clock,
    pub(super) written: mpsc::UnboundedSender<PullResultWrite>,
}

/// Result of writing the outcome of a pull to the pod, if the rollout requested the pull. The engine handles a rejection like that
/// of any other write.
#[derive(Debug)]
pub(super) struct PullResultWrite {
    pub(super) key: SetKey,
    /// Pod whose status was written.
    pub(super) pod: PodRef,
    pub(super) result: Result<(), WriteError>,
}

type DesiredPulls = BTreeMap<SetKey, Vec<PullRequest>>;

/// Puller: carries out the desired pulls while this replica leads.
pub(super) struct Puller {
    desired: watch::Sender<DesiredPulls>,
    task: JoinHandle<()>,
}

impl Puller {
    /// Starts the puller without desired pulls. Until there are some, it only looks for Jobs of the previous leader.
    pub(super) fn start(parts: PullerParts) -> Self {
        let (desired, desired_changes) = watch::channel(DesiredPulls::new());
        Self {
            desired,
            task: tokio::spawn(puller::run(parts, desired_changes)),
        }
    }

    /// Sets the desired pulls of a DaemonSet, sorted by node. Earlier pulls that are not among them are abandoned.
    pub(super) fn set_desired(&self, key: &SetKey, pulls: Vec<PullRequest>) {
        self.desired.send_if_modified(|all| {
            let differs = all.get(key) != Some(&pulls);
            if differs {
                all.insert(key.clone(), pulls);
            }
            differs
        });
    }

    /// Forgets a DaemonSet that is gone or no longer managed. The garbage collector deletes its Jobs together with its pods.
    pub(super) fn forget(&self, key: &SetKey) {
        self.desired
            .send_if_modified(|all| all.remove(key).is_some());
    }

    /// Waits for pending writes. Starts no new ones.
    pub(super) async fn finish(self) {
        drop(self.desired);
        let _ended = self.task.await;
    }
}

#[cfg(test)]
mod tests;
