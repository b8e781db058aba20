//! A second pod beside the old one: what becomes of the two (`max-surge`).
//!
//! ```text
//! old pod ───────────────────────────────► deleted once the new one is available ──► gone
//!         made beside it: new pod ─► starting ─► available ─────► handed over to the DaemonSet
//! ```
//!
//! The native controller keeps the oldest of several pods that it owns on a node, and does not surge under `OnDelete`.
//! So the new pod belongs to the DaemonSet's ControllerRevision until the old one is terminating; only then is it handed
//! over. Everything that has to be remembered for that is in the two pods: whatever happened between two looks, a
//! restart of ours included, the table of [`step`] says how it goes on.
//!
//! A native controller before Kubernetes 1.33 learns of changes of one pod in their order, but of two pods in the order in
//! which each of them changed *first* since it looked (client-go's `DeltaFIFO`; `InOrderInformers` replaced it). If it lags,
//! it may see the new pod handed over while the old one still looks alive, and removes the younger of the two. There
//! ([`Fleet::in_order`] is false) only one thing proves that it saw the old pod go: that it made its own next one. The new
//! pod is handed over then, and the native controller removes the one that it made, which is the youngest.
//!
//! Nobody here judges pods of a revision that is not known: the fleet as a whole is held until it is.

pub(crate) mod exclusive;
pub(crate) mod preempting;
#[cfg(test)]
mod tests;

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::terms::Terms;
use crate::core::action::Action;
use crate::core::fleet::{Fleet, Node, Pod, Readiness, Targeting};
use crate::core::id::{NodeName, PodName, PodRevision};
use crate::core::instant::later;
use crate::core::settings::Strategy;
use crate::core::verdict::{Cause, Progress, Verdict};

/// A new pod that failed for good (evicted, refused by its kubelet) stays this long before the next one is made, so that
/// a node where it cannot run does not see one after the other.
const AGAIN: Duration = Duration::from_secs(60);

/// The pods of the DaemonSet itself on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnPod {
    /// There is none.
    None,
    /// Those that are there are terminating.
    Leaving,
    /// We asked for the deletion of the last one, and do not know what became of that.
    InDoubt,
    /// One of an older revision.
    Outdated { available: bool },
    /// One of the current revision; `younger` than the pod that we made, so that the native controller would remove this
    /// one of the two.
    Current { available: bool, younger: bool },
    /// More than one; the native controller is about to remove all but one.
    Several,
}

/// The pod that we made beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SurgePod {
    /// Not Ready.
    Starting,
    /// Ready, but not yet for `minReadySeconds`.
    NotYetAvailable { available_at: Timestamp },
    /// Ready for long enough.
    Available,
    /// Of a revision that is current no longer.
    Outdated { ready: bool },
    /// Failed or ended for good; from then on there may be another one.
    Ended { again: Timestamp },
    /// Terminating.
    Leaving,
}

/// What is done with the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SurgeStep {
    /// Nothing yet.
    Wait,
    /// The DaemonSet's own pod is deleted (or evicted), then the new one is handed over, as soon as that is safe.
    DeleteAfterSurge,
    /// The new one is handed over to the DaemonSet.
    TransferOwnership,
    /// The new one is deleted.
    Remove,
}

/// The state of a node with a pod that we made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SurgePair {
    /// What is done now.
    pub(super) step: SurgeStep,
    /// In words.
    pub(super) progress: Progress,
    /// Whether one of the two is available.
    pub(super) served: bool,
    /// Whether the DaemonSet's own pod is outdated, and not available.
    pub(super) broken: bool,
    /// Whether there is something left to be updated.
    pub(super) outdated: bool,
    /// Whether the old pod stays where a node is to keep its pod: what has not begun, or waits for its hook, has a way back.
    pub(super) has_way_back: bool,
    /// When time alone changes that.
    pub(super) turn: Option<Timestamp>,
    /// Since when, and in which way, the new pod fails on the revision's account; the guard says so.
    pub(super) failed: Option<(Timestamp, Cause)>,
}

/// What to do, for every pair.
///
/// | own pod ╲ our pod | starting | young | available | outdated, not Ready | outdated, Ready | ended | terminating |
/// |---|---|---|---|---|---|---|---|
/// | none | hand over¹ | hand over¹ | hand over¹ | remove | hand over¹ | remove | wait |
/// | terminating | hand over¹ | hand over¹ | hand over¹ | remove | hand over¹ | remove | wait |
/// | terminating, or not | wait | wait | wait | wait | wait | wait | wait |
/// | outdated, broken | wait | wait | **retire** | remove | **retire** | remove after a minute | wait |
/// | outdated, available | wait | wait | **retire** | remove | remove | remove after a minute | wait |
/// | current, available, younger | remove | remove | hand over | remove | remove | remove | wait |
/// | current, available, older | remove | remove | remove | remove | remove | remove | wait |
/// | current, not available, younger | hand over | hand over | hand over | remove | wait | remove | wait |
/// | current, not available, older | remove | wait | wait | remove | wait | remove | wait |
/// | several | wait | wait | wait | wait | wait | wait | wait |
///
/// ¹ Where the native controller may learn of it before it learns that the old one goes: wait for the pod that it makes then.
///
/// Why: without an own pod (somebody deleted it, we died after deleting it, its node was drained) the native controller
/// makes one as soon as the old one is gone; ours takes that place, and should the native controller have been faster,
/// its pod is younger and is the one that it removes. A rollback makes ours outdated: it goes, the serving one stays.
/// Where ours is all that serves, it stays until there is something better. While it is not known whether the old one goes
/// (it changed meanwhile, or nobody answered), ours is not handed over: of the two the native controller would keep the old one.
fn step(own: OwnPod, spare: SurgePod, in_order: bool, now: Timestamp) -> SurgeStep {
    match (own, spare) {
        (OwnPod::Several | OwnPod::InDoubt, _) | (_, SurgePod::Leaving) => SurgeStep::Wait,
        (OwnPod::Outdated { .. }, SurgePod::Ended { again }) if again > now => SurgeStep::Wait,
        (_, SurgePod::Ended { .. } | SurgePod::Outdated { ready: false }) => SurgeStep::Remove,
        (OwnPod::Current { younger: true, .. }, SurgePod::Available) => {
            SurgeStep::TransferOwnership
        }
        (
            OwnPod::Current {
                available: true, ..
            },
            _,
        ) => SurgeStep::Remove,
        (OwnPod::None | OwnPod::Leaving, _) if in_order => SurgeStep::TransferOwnership,
        (OwnPod::None | OwnPod::Leaving, _) => SurgeStep::Wait,
        (OwnPod::Outdated { available: false }, SurgePod::Outdated { .. }) => {
            SurgeStep::DeleteAfterSurge
        }
        (OwnPod::Outdated { available: true }, SurgePod::Outdated { .. }) => SurgeStep::Remove,
        (OwnPod::Outdated { .. }, SurgePod::Available) => SurgeStep::DeleteAfterSurge,
        (OwnPod::Outdated { .. }, SurgePod::Starting | SurgePod::NotYetAvailable { .. }) => {
            SurgeStep::Wait
        }
        (OwnPod::Current { .. }, SurgePod::Outdated { .. }) => SurgeStep::Wait,
        (OwnPod::Current { younger: true, .. }, _) => SurgeStep::TransferOwnership,
        (OwnPod::Current { .. }, SurgePod::Starting) => SurgeStep::Remove,
        (OwnPod::Current { .. }, SurgePod::NotYetAvailable { .. } | SurgePod::Available) => {
            SurgeStep::Wait
        }
    }
}

/// The pod of ours on this node that matters: those of which it has more than one are superfluous. One that serves comes
/// before one that does not, of whatever revision.
pub(super) fn spare(node: &Node) -> Option<&Pod> {
    let made = || node.pods.iter().filter(|pod| pod.surge);
    let rank = |pod: &&Pod| {
        let current = pod.revision == PodRevision::Current;
        (
            pod.terminating,
            pod.in_place.is_over,
            pod.ready_since.is_none(),
            !current,
        )
    };
    made().min_by_key(rank)
}

/// Whether two pods are on this node, whatever becomes of either. One that has ended, and is only kept from vanishing, needs
/// no room any more; the native controller does not count it either.
pub(super) fn is_doubled(node: &Node) -> bool {
    node.pods.iter().filter(|pod| !pod.has_ended()).count() > 1
}

/// Whether a pod beside the one that serves is still terminating.
pub(super) fn is_followed(node: &Node) -> bool {
    let mut pods = node.pods.iter();
    pods.any(|pod| pod.terminating && !pod.has_ended())
}

/// Whether the old pod on this node has a way back although another one stands beside it: it waits for its hook, or will.
pub(super) fn has_way_back(strategy: &Strategy, node: &Node) -> bool {
    let old = alive(node).filter(|pod| pod.revision == PodRevision::Outdated);
    let hook = strategy.pre_delete.as_ref();
    old.is_some_and(|old| {
        old.exit.preparing.is_some() || hook.is_some_and(|hook| hook.hooks(&old.exit))
    })
}

/// The DaemonSet's own pods on this node.
pub(in crate::core) fn own(node: &Node) -> impl Iterator<Item = &Pod> {
    node.pods.iter().filter(|pod| !pod.surge)
}

/// Returns true if an outdated pod of the DaemonSet itself is on this node and not terminating.
pub(super) fn has_old(node: &Node) -> bool {
    own(node).any(|pod| !pod.terminating && pod.revision == PodRevision::Outdated)
}

/// The DaemonSet's own pod that serves, or should: alive, and the only one.
pub(super) fn alive(node: &Node) -> Option<&Pod> {
    let mut alive = own(node).filter(|pod| !pod.terminating);
    alive.next().filter(|_| alive.next().is_none())
}

impl SurgePair {
    /// The pair of a node that is online; `None` when there is no pod of ours.
    pub(super) fn new(node: &Node, terms: Terms) -> Option<Self> {
        let made = spare(node)?;
        let now = terms.now;
        let available_at = |pod: &Pod| terms.available_at(pod);
        let available = |pod: &Pod| terms.is_available(pod);
        let spare = match (made.revision, terms.counts_at(made)) {
            _ if made.terminating => SurgePod::Leaving,
            _ if made.in_place.is_over => SurgePod::Ended {
                again: later(made.created, AGAIN),
            },
            (PodRevision::Outdated, ready) => SurgePod::Outdated {
                ready: ready.is_some(),
            },
            (_, Some(at)) if at <= now => SurgePod::Available,
            (_, Some(available_at)) => SurgePod::NotYetAvailable { available_at },
            (_, None) => SurgePod::Starting,
        };
        let mut pods = own(node).filter(|pod| !pod.terminating);
        let own = match (pods.next(), pods.next()) {
            (None, _) if own(node).next().is_none() => OwnPod::None,
            (None, _) if own(node).any(|pod| pod.in_doubt) => OwnPod::InDoubt,
            (None, _) => OwnPod::Leaving,
            (Some(_), Some(_)) => OwnPod::Several,
            (Some(pod), None) if pod.revision == PodRevision::Current => OwnPod::Current {
                available: available(pod),
                younger: age(pod) > age(made),
            },
            (Some(pod), None) => OwnPod::Outdated {
                available: available(pod),
            },
        };
        let step = step(own, spare, terms.in_order, now);
        let in_time = |pod: &Pod| available_at(pod).filter(|at| *at > now);
        let turn = match spare {
            SurgePod::Ended { again } => Some(again).filter(|again| *again > now),
            SurgePod::NotYetAvailable { available_at } => Some(available_at),
            _ => None,
        };
        let alive = node.pods.iter().filter(|pod| !pod.terminating);
        Some(Self {
            step,
            progress: progress(step, spare),
            served: alive.clone().any(available),
            broken: own == OwnPod::Outdated { available: false },
            outdated: true,
            has_way_back: false,
            turn: alive.filter_map(in_time).chain(turn).min(),
            failed: None,
        })
    }

    /// The only living pod of a node, beside which the one before it is still terminating: until that one is gone nothing
    /// begins there, and the node takes the room of two.
    pub(super) fn followed(pod: &Pod, terms: Terms) -> Self {
        let available_at = terms.available_at(pod);
        let (served, outdated) = (
            terms.is_available(pod),
            pod.revision == PodRevision::Outdated,
        );
        Self {
            step: SurgeStep::Wait,
            progress: Progress::OldTerminating,
            served,
            broken: outdated && !served,
            outdated,
            has_way_back: outdated,
            turn: available_at.filter(|at| *at > terms.now),
            failed: None,
        }
    }

    /// What is said of the node: that its new pod fails, or else this.
    pub(super) fn failed_or(&self, otherwise: Verdict) -> Verdict {
        match self.failed {
            Some((since, cause)) => Verdict::FailedByRevision { since, cause },
            None => otherwise,
        }
    }

    /// What to write now; `leaves` is what makes the old pod go, where that is the step.
    pub(super) fn actions(
        &self,
        node: &Node,
        leaves: Option<Action>,
        in_order: bool,
    ) -> Vec<Action> {
        writes(node, self.step, leaves, in_order)
    }
}

/// What a step writes, after what is superfluous was removed.
fn writes(node: &Node, step: SurgeStep, leaves: Option<Action>, in_order: bool) -> Vec<Action> {
    let mut actions = superfluous(node);
    actions.extend(spare(node).and_then(|made| match step {
        SurgeStep::TransferOwnership => Some(Action::TransferOwnership(made.reference())),
        SurgeStep::Remove => Some(Action::Delete(made.reference())),
        SurgeStep::DeleteAfterSurge if in_order => {
            leaves.map(|leaves| leaves.before(made.reference()))
        }
        SurgeStep::DeleteAfterSurge => leaves,
        SurgeStep::Wait => None,
    }));
    actions
}

/// What is said of it.
fn progress(step: SurgeStep, spare: SurgePod) -> Progress {
    match (step, spare) {
        (SurgeStep::Remove, _) | (_, SurgePod::Leaving | SurgePod::Outdated { .. }) => {
            Progress::SurgeLeaving
        }
        (SurgeStep::DeleteAfterSurge | SurgeStep::TransferOwnership, _)
        | (SurgeStep::Wait, SurgePod::Available) => Progress::SurgeTakingOver,
        (SurgeStep::Wait, SurgePod::NotYetAvailable { available_at }) => {
            Progress::SurgeYoung { available_at }
        }
        (SurgeStep::Wait, SurgePod::Starting | SurgePod::Ended { .. }) => Progress::SurgeStarting,
    }
}

/// Of several pods of ours on a node all but one go: two of our replicas may have made one each.
fn superfluous(node: &Node) -> Vec<Action> {
    let kept = spare(node).map(|pod| &pod.uid);
    let made = node.pods.iter().filter(|pod| pod.surge && !pod.terminating);
    made.filter(|pod| Some(&pod.uid) != kept)
        .map(|pod| Action::Delete(pod.reference()))
        .collect()
}

/// What becomes of the pod of ours on a node where no pod belongs (any more), which keeps its old one, or that is not rolled
/// out (by us) any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WithdrawnPair {
    step: SurgeStep,
    /// In words.
    pub(super) progress: Progress,
    /// When time alone changes that.
    pub(super) turn: Option<Timestamp>,
}

impl WithdrawnPair {
    /// The native controller removes the DaemonSet's own pod or leaves it, and does not know ours. `None`: there is none of
    /// ours that stays or has to be ended by us.
    ///
    /// Nobody takes down what serves: as long as ours does and the DaemonSet's own pod does not, both stay.
    pub(super) fn new(node: &Node, terms: Terms) -> Option<Self> {
        let made = spare(node).filter(|made| !made.terminating)?;
        let in_doubt = own(node).any(|pod| pod.in_doubt);
        let mut living = own(node).filter(|pod| !pod.terminating && !pod.in_place.is_over);
        let (own, several) = (living.next(), living.next().is_some());
        // Made after the old one was gone: of the two, the native controller removes this one.
        let is_third = |pod: &Pod| age(pod) > age(made) && pod.ready_since.is_none();
        let step = match (node.readiness, node.targeting, own) {
            // What ran there goes with the node; what never did would wait for it for ever.
            (Readiness::Gone, _, _) if made.started.is_some() => return None,
            (Readiness::Gone, _, _) | (_, Targeting::No, _) => SurgeStep::Remove,
            _ if made.in_place.is_over => SurgeStep::Remove,
            (_, _, None) if in_doubt || !terms.in_order => SurgeStep::Wait,
            (_, _, None) => SurgeStep::TransferOwnership,
            _ if several => SurgeStep::Wait,
            (_, _, Some(own)) if is_third(own) && made.ready_since.is_some() => {
                SurgeStep::TransferOwnership
            }
            (_, _, Some(_)) if made.started.is_none() => SurgeStep::Remove,
            // Which of the two serves is not known before the node is back.
            (Readiness::NotReady { .. }, _, _) => SurgeStep::Wait,
            (_, _, Some(own)) if terms.is_available(own) => SurgeStep::Remove,
            _ if made.ready_since.is_none() => SurgeStep::Remove,
            _ => SurgeStep::Wait,
        };
        let in_time = |own: &Pod| terms.available_at(own).filter(|at| *at > terms.now);
        Some(Self {
            step,
            progress: match own {
                None if step != SurgeStep::Remove => Progress::SurgeTakingOver,
                _ => Progress::SurgeLeaving,
            },
            turn: own.and_then(in_time).filter(|_| step == SurgeStep::Wait),
        })
    }

    /// Whether ours serves, and the DaemonSet's own pod does not.
    fn keeps(&self) -> bool {
        (self.step, self.progress) == (SurgeStep::Wait, Progress::SurgeLeaving)
    }
}

/// What to write about pods of ours on nodes where no pod belongs (any more), or which keep their old one.
pub(super) fn leave(node: &Node, terms: Terms) -> Vec<Action> {
    let step = WithdrawnPair::new(node, terms).map_or(SurgeStep::Wait, |parting| parting.step);
    writes(node, step, None, terms.in_order)
}

/// What becomes of the pods that were made beside others in a fleet that is not rolled out (by us) any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SurgeRelease {
    /// What to write.
    pub actions: Vec<Action>,
    /// Whether something that we made stays for now: until the native controller, a node or a pod has done its part.
    pub waits: bool,
    /// When time alone changes that.
    pub wake: Option<Timestamp>,
    /// The nodes where what we made is all that serves beside the DaemonSet's own pod, and stays until that one does.
    pub kept: Vec<NodeName>,
}

/// What to write so that nothing of ours is left in a fleet that is not rolled out (by us) any more.
pub(super) fn release(fleet: &Fleet, terms: Terms) -> SurgeRelease {
    let mut release = SurgeRelease::default();
    let made = fleet.nodes.iter().filter(|node| spare(node).is_some());
    for node in made {
        release.actions.extend(leave(node, terms));
        let Some(parting) = WithdrawnPair::new(node, terms) else {
            continue;
        };
        release.waits |= parting.step == SurgeStep::Wait;
        release.wake = release.wake.into_iter().chain(parting.turn).min();
        if parting.keeps() && node.is_ready() {
            release.kept.push(node.name.clone());
        }
    }
    release
}

/// What tells which of two pods the native controller takes for the younger one.
fn age(pod: &Pod) -> (Timestamp, &PodName) {
    (pod.created, &pod.name)
}
