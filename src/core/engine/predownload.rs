//! Image pre-pull: pulls the new images on a node before its pod is replaced (openkruise/kruise#1339).
//!
//! ```text
//! outdated node ──next in line──► requested (PodImageReady=False) ──Puller──┬─► True: has the images
//!                     ▲                                                     └─► failed ──backoff──► next in line again
//! ```
//!
//! The pod condition `PodImageReady` stores both the request and its result. The puller, which runs the Job on the node, writes the
//! result. After a restart, the controller reads from the condition which nodes are pulling, which nodes have the images, and when
//! to retry after a failure. A node counts toward `image-predownload-parallelism` from the moment of the request.
//!
//! Requests follow the order of replacements, and nodes with a failed pull come last. Nodes that won't be replaced get no request.
//! If a node can no longer be replaced, its request is withdrawn.
//!
//! Maintenance windows limit replacements, not pulls. If the images are pulled before the window opens, the whole window is left
//! for replacements.
//!
//! With `image-predownload-min-updated-ready-pods`, requests start once that many nodes run a Ready pod of the new revision. These
//! first nodes are the *forerunners*. If images are required, only forerunners are replaced without pulled images.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::class::Class;
use super::replacement::{self, UpdateMethod};
use crate::core::action::{Action, BATCH, Pull, PullInitiator};
use crate::core::fleet::write_failures::WriteVerb;
use crate::core::fleet::{Fleet, Node, Pod, PullFailure};
use crate::core::id::{PodRevision, Revision, RevisionState};
use crate::core::instant::later;
use crate::core::plan::PullsAwait;
use crate::core::settings::{IntOrPercent, Mode, Predownload, RollingUpdateType, Strategy};
use crate::core::verdict::{PullStage, Verdict};

/// Shortest and longest pause after a failed pull.
///
/// Between these limits, the pause equals the time from the first request to the last failure, so it doubles with every attempt. If
/// a registry is down, each node tries every 15 minutes. Each attempt costs four writes.
const BACK_OFF: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(15 * 60));

/// Pre-pull settings that apply to a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Predownloading {
    /// Maximum number of nodes that pull at the same time. A percentage refers to the nodes in the rollout.
    pub parallelism: IntOrPercent,
    /// True if a replacement waits for the images of its node.
    pub required: bool,
    /// True if only nodes that are updated in place get requests. On these nodes, the kubelet would otherwise pull while the
    /// container is stopped.
    pub only_in_place: bool,
    /// Number of targeted nodes that have to run a Ready pod of the new revision before the first request.
    pub min_updated_ready: IntOrPercent,
}

impl Predownloading {
    /// Derives the settings from `strategy`; `None` if images are not pre-pulled.
    pub fn from_strategy(strategy: &Strategy) -> Option<Self> {
        let in_place = strategy.rolling_update_type == RollingUpdateType::InPlaceIfPossible;
        let asked = strategy.image_predownload_parallelism;
        // During an update in place, the kubelet stops the container before it pulls the new image. Therefore images are pulled
        // first, unless the settings disable that.
        let parallelism = asked.or(in_place.then_some(strategy.max_unavailable))?;
        let rolls = strategy.mode == Mode::AdvancedRollingUpdate;
        let required = match strategy.predownload {
            Some(predownload) => predownload == Predownload::Required,
            None => in_place,
        };
        (rolls && !parallelism.is_zero()).then_some(Self {
            parallelism,
            required,
            only_in_place: asked.is_none(),
            min_updated_ready: strategy.image_predownload_min_updated_ready_pods,
        })
    }
}

impl Predownloading {
    /// Returns true if images have to be pulled on this node before its pod is replaced.
    fn concerns(self, strategy: &Strategy, fleet: &Fleet, node: &Node) -> bool {
        let way = node
            .outdated()
            .map(|pod| replacement::way(strategy, fleet, pod));
        match way {
            Some(UpdateMethod::InPlace(change)) => !change.images.is_empty(),
            Some(UpdateMethod::Recreate(_)) => !self.only_in_place,
            None => true,
        }
    }
}

/// Image state of a node for the current revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ImageState {
    /// The node has the images, or needs none of them.
    Settled,
    /// No images were requested on the node.
    Unasked,
    /// The images were requested, and the request has no result yet.
    Asked {
        /// True if an earlier attempt failed.
        again: bool,
    },
    /// The last pull failed.
    Failed {
        /// Time at which the next pull may begin.
        retry: Timestamp,
    },
}

/// Image states of all nodes.
pub(super) struct Images<'a> {
    settings: Predownloading,
    target: &'a Revision,
    strategy: &'a Strategy,
    fleet: &'a Fleet,
    now: Timestamp,
    /// State of each node, by position in the fleet.
    states: Vec<ImageState>,
    targeted: usize,
    /// Number of targeted nodes with a Ready pod of the current revision.
    ready: usize,
}

/// New and pending requests.
#[derive(Default)]
pub(super) struct PullsAhead {
    pub(super) actions: Vec<Action>,
    /// Pending requests, in the order of nodes.
    pub(super) pulls: Vec<Pull>,
    /// Positions of the nodes that get a request in this plan.
    pub(super) asked: BTreeSet<usize>,
    /// Earliest time at which a node with a failed pull may get a new request.
    pub(super) wake: Option<Timestamp>,
    /// Set if the next requests are made only when more pods of the current revision are Ready.
    pub(super) awaits: Option<PullsAwait>,
}

impl<'a> Images<'a> {
    /// Creates an empty state, to which [`note`](Self::note) adds the nodes; `None` if images are not pre-pulled.
    pub(super) fn new(strategy: &'a Strategy, fleet: &'a Fleet, now: Timestamp) -> Option<Self> {
        let settings = Predownloading::from_strategy(strategy)?;
        let RevisionState::Current(target) = &fleet.revision else {
            return None;
        };
        Some(Self {
            settings,
            target,
            strategy,
            fleet,
            now,
            states: Vec::with_capacity(fleet.nodes.len()),
            targeted: 0,
            ready: 0,
        })
    }

    /// Adds the state of the next node, which has `class`.
    pub(super) fn note(&mut self, node: &Node, class: &Class) {
        self.targeted += usize::from(class.is_targeted());
        self.ready += usize::from(class.is_targeted() && is_updated_ready(node));
        let concerns = || self.settings.concerns(self.strategy, self.fleet, node);
        self.states.push(match class {
            Class::Done => ImageState::Settled,
            _ if concerns() => image_state(node, self.target),
            _ => ImageState::Settled,
        });
    }

    /// Returns the required and the present number of Ready pods of the current revision; `None` if enough pods are Ready for the
    /// first request.
    fn awaits(&self) -> Option<PullsAwait> {
        let needed = self.settings.min_updated_ready.resolve(self.targeted);
        (self.ready < needed).then_some(PullsAwait {
            ready: self.ready,
            needed,
        })
    }

    /// Returns the number of further forerunners: nodes that may be replaced now without the required images.
    pub(super) fn forerunners(&self, classes: &[Class]) -> usize {
        let Some(awaits) = self.awaits() else {
            return 0;
        };
        let nodes = self.fleet.nodes.iter().zip(classes);
        let begun = nodes.filter(|(node, class)| class.is_in_flight() && !is_updated_ready(node));
        (awaits.needed - awaits.ready).saturating_sub(begun.count())
    }

    /// Returns true if the node at `position` can only be replaced as a forerunner, because it can't get a request yet.
    pub(super) fn needs_forerunning(&self, position: usize) -> bool {
        let unasked = matches!(
            self.states[position],
            ImageState::Unasked | ImageState::Failed { .. }
        );
        self.settings.required && unasked && self.awaits().is_some()
    }

    /// Returns the pull that has to succeed before the node at `position` is updated; `None` if it waits for no pull.
    pub(super) fn awaited_at(&self, position: usize) -> Option<PullStage> {
        if !self.settings.required {
            return None;
        }
        match self.states[position] {
            ImageState::Settled => None,
            _ if self.needs_forerunning(position) => None,
            ImageState::Unasked => Some(PullStage::Queued { failed: false }),
            ImageState::Asked { again } => Some(PullStage::UnderWay { again }),
            ImageState::Failed { retry } if retry <= self.now => {
                Some(PullStage::Queued { failed: true })
            }
            ImageState::Failed { retry } => Some(PullStage::Failed { retry }),
        }
    }

    /// Returns the requests that `image-predownload-parallelism` allows. Percentages refer to `base` nodes.
    ///
    /// `queue` returns the waiting nodes in the order of their replacement. It is called only if a request is possible. If the API
    /// server rejected the request for a node, the next node gets one instead, until `may` allows a retry.
    pub(super) fn ask(
        &self,
        classes: &[Class],
        verdicts: &[Verdict],
        base: usize,
        queue: impl FnOnce() -> Vec<usize>,
        may: impl Fn(usize) -> bool,
    ) -> PullsAhead {
        let limit = self.settings.parallelism.resolve(base);
        let mut asking = PullsAhead::default();
        let mut pulling = 0;
        for (position, node) in self.fleet.nodes.iter().enumerate() {
            let is_asked = matches!(self.states[position], ImageState::Asked { .. });
            if is_asked && goes_on(&classes[position]) {
                // The pull on this node has ended, but its result can't be written. The node doesn't count toward
                // `image-predownload-parallelism`.
                let is_unwritten =
                    (self.fleet.write_failures).is_refused(&node.name, WriteVerb::Tell);
                let room = is_unwritten || pulling < limit;
                let waits = waits(&verdicts[position]);
                let pull = self.pull(node, room && waits);
                pulling += usize::from(pull.is_some() && !is_unwritten);
                asking.pulls.extend(pull);
            }
        }
        if let Some(awaits) = self.awaits() {
            let is_left = |(state, verdict): (&ImageState, &Verdict)| {
                matches!(state, ImageState::Unasked | ImageState::Failed { .. }) && waits(verdict)
            };
            let is_any_left = self.states.iter().zip(verdicts).any(is_left);
            asking.awaits = Some(awaits).filter(|_| is_any_left);
            return asking;
        }
        let mut room = limit.saturating_sub(pulling).min(BATCH);
        asking.wake = self.next_retry(classes);
        if room == 0 && self.fleet.write_failures.has_no_failures() {
            return asking;
        }
        let queue = queue();
        let unasked = |position: &&usize| self.states[**position] == ImageState::Unasked;
        let due = |position: &&usize| match self.states[**position] {
            ImageState::Failed { retry } => retry <= self.now,
            _ => false,
        };
        let fresh = queue.iter().filter(unasked);
        for position in fresh.chain(queue.iter().filter(due)) {
            let node = &self.fleet.nodes[*position];
            let is_tried = may(*position);
            if is_tried && room == 0 || !waits(&verdicts[*position]) {
                continue;
            }
            let Some(pod) = node.outdated() else {
                continue;
            };
            if is_tried {
                room -= 1;
                asking.asked.insert(*position);
            }
            asking.actions.push(Action::AskForImages {
                pod: pod.reference(),
                revision: self.target.clone(),
                anew: self.states[*position] == ImageState::Unasked,
            });
        }
        asking
    }

    /// Returns the earliest time at which a node with a failed pull may get a new request.
    fn next_retry(&self, classes: &[Class]) -> Option<Timestamp> {
        let states = self.states.iter().zip(classes);
        let retries = states.filter_map(|(state, class)| match (state, class) {
            (ImageState::Failed { retry }, Class::Outdated { settling: None, .. }) => Some(*retry),
            _ => None,
        });
        retries.filter(|retry| *retry > self.now).min()
    }

    /// Returns the pulls during a pause. Running pulls continue, but none begins and nothing is written.
    pub(super) fn paused_pulls(&self) -> Vec<Pull> {
        let asked = |(_, state): &(&Node, &ImageState)| matches!(state, ImageState::Asked { .. });
        let nodes = self.fleet.nodes.iter().zip(&self.states).filter(asked);
        let pulls = nodes.filter_map(|(node, _)| self.pull(node, false));
        pulls
            .map(|pull| Pull {
                may_report: false,
                ..pull
            })
            .collect()
    }

    /// Returns true if the pod on the node at `position` keeps its condition `PodImageReady`.
    ///
    /// A request is kept while the node may still be replaced. A result is kept while the pod is outdated.
    pub(super) fn keeps(&self, position: usize, class: &Class, pod: &Pod) -> bool {
        let Some(image) = &pod.image_ready else {
            return false;
        };
        let names_target = image.revision.as_ref() == Some(self.target);
        let is_asked = matches!(self.states[position], ImageState::Asked { .. });
        // The pod was updated in place and kept its condition. The result is still correct, so no write is needed.
        if pod.revision == PodRevision::Current {
            return names_target && image.status;
        }
        pod.revision == PodRevision::Outdated
            && (!image.waits || (names_target && is_asked && goes_on(class)))
    }

    fn pull(&self, node: &Node, may_start: bool) -> Option<Pull> {
        let pod = node.outdated()?;
        Some(Pull {
            pod: pod.reference(),
            node: node.name.clone(),
            revision: self.target.clone(),
            initiator: PullInitiator::Rollout,
            may_start: may_start && node.is_ready(),
            may_report: true,
        })
    }
}

/// Returns true if a node of this class keeps its request, because it waits for its replacement or is being replaced.
fn goes_on(class: &Class) -> bool {
    matches!(
        class,
        Class::Outdated { settling: None, .. } | Class::PreDeleteHook { .. } | Class::InProgress(_)
    )
}

/// Returns true if a node with this verdict still waits for its replacement.
fn waits(verdict: &Verdict) -> bool {
    matches!(
        verdict,
        Verdict::Budget { .. }
            | Verdict::BlockedByPdb { .. }
            | Verdict::Refused { .. }
            | Verdict::PullPending(_)
            | Verdict::OutOfWindow { .. }
    )
}

/// Returns true if the node runs a Ready pod of the current revision.
fn is_updated_ready(node: &Node) -> bool {
    let is_ready = |pod: &Pod| {
        !pod.terminating && pod.revision == PodRevision::Current && pod.ready_since.is_some()
    };
    node.is_ready() && node.pods.iter().any(is_ready)
}

fn image_state(node: &Node, target: &Revision) -> ImageState {
    let Some(pod) = node.outdated() else {
        return ImageState::Settled;
    };
    let image = pod.image_ready.as_ref();
    match image.filter(|image| image.revision.as_ref() == Some(target)) {
        Some(image) if image.status => ImageState::Settled,
        Some(image) if image.waits => ImageState::Asked {
            again: image.failure.is_some(),
        },
        _ if node.has_images => ImageState::Settled,
        None => ImageState::Unasked,
        Some(image) => match &image.failure {
            Some(failure) => ImageState::Failed {
                retry: retry(failure),
            },
            // Without the times of request and failure there is no backoff, so the node may get a new request immediately.
            None => ImageState::Unasked,
        },
    }
}

/// Returns the time at which a failed pull may be retried.
fn retry(failure: &PullFailure) -> Timestamp {
    let lasted = failure.failed.duration_since(failure.asked);
    let lasted = Duration::try_from(lasted.max(SignedDuration::ZERO)).unwrap_or_default();
    later(failure.failed, lasted.clamp(BACK_OFF.0, BACK_OFF.1))
}

#[cfg(test)]
mod tests;
