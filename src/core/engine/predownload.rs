//! Images that are on a node before its pod is replaced (openkruise/kruise#1339).
//!
//! ```text
//! outdated node ──its turn──► asked (PodImageReady=False) ──Puller──┬─► True: has them
//!                     ▲                                             └─► failed ──back-off──► its turn again
//! ```
//!
//! The pod condition `PodImageReady` is request, result and memory: whoever pulls answers there, and a restart of the
//! controller finds out from it who pulls, who has the images, and when to try again after a failure. So a node counts
//! for `image-predownload-parallelism` from the moment in which it is asked.
//!
//! Nodes are asked in the order of replacements, those that failed before after all others. Who will not be replaced is
//! not asked, and who cannot be any more is asked no longer. Maintenance windows govern replacements and not pulls: what
//! is pulled ahead of a window leaves the window to the replacements.
//!
//! With `image-predownload-min-updated-ready-pods` nobody is asked before so many nodes run a Ready pod of the new revision. The
//! first ones are its forerunners: they are replaced without their images, where those are required as well, and no others are.

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

/// The shortest and the longest pause after a pull that failed; between them it is as long as the failing lasted so far,
/// so it doubles. A registry that is down is asked every quarter of an hour and node, four writes each.
const BACK_OFF: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(15 * 60));

/// Pulling ahead, as the settings ask for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Predownloading {
    /// How many nodes pull at once, of those that take part in the rollout.
    pub parallelism: IntOrPercent,
    /// Whether a replacement waits for the images of its node.
    pub required: bool,
    /// Whether nodes are asked only where the kubelet would pull while the pod is down: where it gets images in place.
    pub only_in_place: bool,
    /// How many of the targeted nodes have to run a Ready pod of the new revision before anybody is asked.
    pub min_updated_ready: IntOrPercent,
}

impl Predownloading {
    /// What the settings amount to; `None`: nothing is pulled ahead.
    pub fn from_strategy(strategy: &Strategy) -> Option<Self> {
        let in_place = strategy.rolling_update_type == RollingUpdateType::InPlaceIfPossible;
        let asked = strategy.image_predownload_parallelism;
        // A kubelet stops the container before it pulls: in place, the images are there first unless somebody says no.
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
    /// Whether the replacement of the pod on this node brings images that somebody wants there first.
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

/// How a node stands with the images of the current revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ImageState {
    /// It has them, or runs no outdated pod.
    Settled,
    /// Nobody has asked it for them.
    Unasked,
    /// It is asked and has not answered.
    Asked {
        /// Whether an earlier attempt failed.
        again: bool,
    },
    /// The last attempt failed.
    Failed {
        /// When the next one may begin.
        retry: Timestamp,
    },
}

/// How all nodes stand.
pub(super) struct Images<'a> {
    settings: Predownloading,
    target: &'a Revision,
    strategy: &'a Strategy,
    fleet: &'a Fleet,
    now: Timestamp,
    /// By position in the fleet.
    stands: Vec<ImageState>,
    /// How many nodes are targeted.
    targeted: usize,
    /// How many of them run a Ready pod of the current revision.
    ready: usize,
}

/// Whom to ask, and whose request stands.
#[derive(Default)]
pub(super) struct PullsAhead {
    /// Requests to write.
    pub(super) actions: Vec<Action>,
    /// Requests that stand, in the order of nodes.
    pub(super) pulls: Vec<Pull>,
    /// Whose request is written by this plan.
    pub(super) asked: BTreeSet<usize>,
    /// When a node may be asked again.
    pub(super) wake: Option<Timestamp>,
    /// That somebody would be asked if more pods of the current revision were Ready.
    pub(super) awaits: Option<PullsAwait>,
}

impl<'a> Images<'a> {
    /// To be told of every node by [`note`](Self::note); `None`: nothing is pulled ahead.
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
            stands: Vec::with_capacity(fleet.nodes.len()),
            targeted: 0,
            ready: 0,
        })
    }

    /// Notes how the next node stands, the one of `class`.
    pub(super) fn note(&mut self, node: &Node, class: &Class) {
        self.targeted += usize::from(class.is_targeted());
        self.ready += usize::from(class.is_targeted() && is_updated_ready(node));
        let concerns = || self.settings.concerns(self.strategy, self.fleet, node);
        self.stands.push(match class {
            Class::Done => ImageState::Settled,
            _ if concerns() => stand(node, self.target),
            _ => ImageState::Settled,
        });
    }

    /// How many pods of the current revision have to be Ready before anybody is asked, while fewer are.
    fn awaits(&self) -> Option<PullsAwait> {
        let needed = self.settings.min_updated_ready.resolve(self.targeted);
        (self.ready < needed).then_some(PullsAwait {
            ready: self.ready,
            needed,
        })
    }

    /// How many nodes may be replaced now without images that are required.
    pub(super) fn forerunners(&self, classes: &[Class]) -> usize {
        let Some(awaits) = self.awaits() else {
            return 0;
        };
        let nodes = self.fleet.nodes.iter().zip(classes);
        let begun = nodes.filter(|(node, class)| class.is_in_flight() && !is_updated_ready(node));
        (awaits.needed - awaits.ready).saturating_sub(begun.count())
    }

    /// Whether the node at `position` can be replaced only as a forerunner: nobody asks it for images that are required.
    pub(super) fn needs_forerunning(&self, position: usize) -> bool {
        let unasked = matches!(
            self.stands[position],
            ImageState::Unasked | ImageState::Failed { .. }
        );
        self.settings.required && unasked && self.awaits().is_some()
    }

    /// What the replacement of the node at `position` waits for, if it does.
    pub(super) fn awaited_at(&self, position: usize) -> Option<PullStage> {
        if !self.settings.required {
            return None;
        }
        match self.stands[position] {
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

    /// Asks as many nodes as there is room for; `base` nodes take part. `queue` tells those that wait for their
    /// replacement, in the order of it, which is worked out only where somebody can be asked. Whose request the API server
    /// refused, and is not to be tried again now as `may` says, takes no room: the next one is asked.
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
            let is_asked = matches!(self.stands[position], ImageState::Asked { .. });
            if is_asked && goes_on(&classes[position]) {
                // Its pull has ended, and that may not be written: it takes no room either.
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
            let is_left = |(stand, verdict): (&ImageState, &Verdict)| {
                matches!(stand, ImageState::Unasked | ImageState::Failed { .. }) && waits(verdict)
            };
            let is_any_left = self.stands.iter().zip(verdicts).any(is_left);
            asking.awaits = Some(awaits).filter(|_| is_any_left);
            return asking;
        }
        let mut room = limit.saturating_sub(pulling).min(BATCH);
        asking.wake = self.next_retry(classes);
        if room == 0 && self.fleet.write_failures.has_no_failures() {
            return asking;
        }
        let queue = queue();
        let unasked = |position: &&usize| self.stands[**position] == ImageState::Unasked;
        let due = |position: &&usize| match self.stands[**position] {
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
                anew: self.stands[*position] == ImageState::Unasked,
            });
        }
        asking
    }

    /// When the next node that failed may be asked again.
    fn next_retry(&self, classes: &[Class]) -> Option<Timestamp> {
        let stands = self.stands.iter().zip(classes);
        let retries = stands.filter_map(|(stand, class)| match (stand, class) {
            (ImageState::Failed { retry }, Class::Outdated { settling: None, .. }) => Some(*retry),
            _ => None,
        });
        retries.filter(|retry| *retry > self.now).min()
    }

    /// While all is paused nothing begins and nothing is written; what is under way goes on.
    pub(super) fn rest(&self) -> Vec<Pull> {
        let asked = |(_, stand): &(&Node, &ImageState)| matches!(stand, ImageState::Asked { .. });
        let nodes = self.fleet.nodes.iter().zip(&self.stands).filter(asked);
        let pulls = nodes.filter_map(|(node, _)| self.pull(node, false));
        pulls
            .map(|pull| Pull {
                tells: false,
                ..pull
            })
            .collect()
    }

    /// Whether the condition `PodImageReady` of a pod on the node at `position` stays: as a request while the node may
    /// still be replaced, as a result while the pod is outdated.
    pub(super) fn keeps(&self, position: usize, class: &Class, pod: &Pod) -> bool {
        let Some(image) = &pod.image_ready else {
            return false;
        };
        let names_target = image.revision.as_ref() == Some(self.target);
        let is_asked = matches!(self.stands[position], ImageState::Asked { .. });
        // A result on a pod that was updated in place says the truth, and nobody has to write.
        if pod.revision == PodRevision::Current {
            return names_target && image.status;
        }
        pod.revision == PodRevision::Outdated
            && (!image.waits || (names_target && is_asked && goes_on(class)))
    }

    fn pull(&self, node: &Node, begins: bool) -> Option<Pull> {
        let pod = node.outdated()?;
        Some(Pull {
            pod: pod.reference(),
            node: node.name.clone(),
            revision: self.target.clone(),
            initiator: PullInitiator::Rollout,
            begins: begins && node.is_ready(),
            tells: true,
        })
    }
}

/// Whether a request stands on a node of this class: it waits for its replacement, or is in the middle of it.
fn goes_on(class: &Class) -> bool {
    matches!(
        class,
        Class::Outdated { settling: None, .. } | Class::PreDeleteHook { .. } | Class::InProgress(_)
    )
}

/// Whether a node of this verdict will be replaced, and is not being replaced now.
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

/// Whether a node runs a Ready pod of the current revision.
fn is_updated_ready(node: &Node) -> bool {
    let is_ready = |pod: &Pod| {
        !pod.terminating && pod.revision == PodRevision::Current && pod.ready_since.is_some()
    };
    node.is_ready() && node.pods.iter().any(is_ready)
}

fn stand(node: &Node, target: &Revision) -> ImageState {
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
            // It says neither when it failed nor when it was asked for.
            None => ImageState::Unasked,
        },
    }
}

/// When to try again.
fn retry(failure: &PullFailure) -> Timestamp {
    let lasted = failure.failed.duration_since(failure.asked);
    let lasted = Duration::try_from(lasted.max(SignedDuration::ZERO)).unwrap_or_default();
    later(failure.failed, lasted.clamp(BACK_OFF.0, BACK_OFF.1))
}

#[cfg(test)]
mod tests;
