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
#[cfg(test)]
mod tests;

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::classify::later;
use super::fleet::{Fleet, Node, Pod, PodName, PodRevision, Readiness, Targeting};
use super::ota::reference;
use super::plan::Action;
use super::verdict::{Cause, Progress, Verdict};

/// A new pod that failed for good (evicted, refused by its kubelet) stays this long before the next one is made, so that
/// a node where it cannot run does not see one after the other.
const AGAIN: Duration = Duration::from_secs(60);

/// The pods of the DaemonSet itself on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Own {
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
enum Spare {
    /// Not Ready.
    Starting,
    /// Ready, but not yet for `minReadySeconds`.
    Young { available_at: Timestamp },
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
pub(super) enum Step {
    /// Nothing yet.
    Wait,
    /// The DaemonSet's own pod is deleted (or evicted), then the new one is handed over, as soon as that is safe.
    Retire,
    /// The new one is handed over to the DaemonSet.
    HandOver,
    /// The new one is deleted.
    Remove,
}

/// The state of a node with a pod that we made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    /// What is done now.
    pub(super) step: Step,
    /// In words.
    pub(super) progress: Progress,
    /// Whether one of the two is available.
    pub(super) served: bool,
    /// Whether the DaemonSet's own pod is outdated, and not available.
    pub(super) broken: bool,
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
fn step(own: Own, spare: Spare, in_order: bool, now: Timestamp) -> Step {
    match (own, spare) {
        (Own::Several | Own::InDoubt, _) | (_, Spare::Leaving) => Step::Wait,
        (Own::Outdated { .. }, Spare::Ended { again }) if again > now => Step::Wait,
        (_, Spare::Ended { .. } | Spare::Outdated { ready: false }) => Step::Remove,
        (Own::Current { younger: true, .. }, Spare::Available) => Step::HandOver,
        (
            Own::Current {
                available: true, ..
            },
            _,
        ) => Step::Remove,
        (Own::None | Own::Leaving, _) if in_order => Step::HandOver,
        (Own::None | Own::Leaving, _) => Step::Wait,
        (Own::Outdated { available: false }, Spare::Outdated { .. }) => Step::Retire,
        (Own::Outdated { available: true }, Spare::Outdated { .. }) => Step::Remove,
        (Own::Outdated { .. }, Spare::Available) => Step::Retire,
        (Own::Outdated { .. }, Spare::Starting | Spare::Young { .. }) => Step::Wait,
        (Own::Current { .. }, Spare::Outdated { .. }) => Step::Wait,
        (Own::Current { younger: true, .. }, _) => Step::HandOver,
        (Own::Current { .. }, Spare::Starting) => Step::Remove,
        (Own::Current { .. }, Spare::Young { .. } | Spare::Available) => Step::Wait,
    }
}

/// The pod of ours on this node that matters: those of which it has more than one are superfluous.
pub(super) fn spare(node: &Node) -> Option<&Pod> {
    let made = || node.pods.iter().filter(|pod| pod.surge);
    let rank = |pod: &&Pod| {
        let current = pod.revision == PodRevision::Current;
        (
            pod.terminating,
            pod.in_place.is_over,
            !current,
            pod.ready_since.is_none(),
        )
    };
    made().min_by_key(rank)
}

/// The DaemonSet's own pods on this node.
pub(super) fn own(node: &Node) -> impl Iterator<Item = &Pod> {
    node.pods.iter().filter(|pod| !pod.surge)
}

/// The DaemonSet's own pod that serves, or should: alive, and the only one.
pub(super) fn alive(node: &Node) -> Option<&Pod> {
    let mut alive = own(node).filter(|pod| !pod.terminating);
    alive.next().filter(|_| alive.next().is_none())
}

impl Pair {
    /// The pair of a node that is online; `None` when there is no pod of ours.
    pub(super) fn of(
        node: &Node,
        min_ready: Duration,
        in_order: bool,
        now: Timestamp,
    ) -> Option<Self> {
        let made = spare(node)?;
        let available_at = |pod: &Pod| pod.ready_since.map(|since| later(since, min_ready));
        let available = |pod: &Pod| available_at(pod).is_some_and(|at| at <= now);
        let spare = match (made.revision, available_at(made)) {
            _ if made.terminating => Spare::Leaving,
            _ if made.in_place.is_over => Spare::Ended {
                again: later(made.created, AGAIN),
            },
            (PodRevision::Outdated, ready) => Spare::Outdated {
                ready: ready.is_some(),
            },
            (_, Some(at)) if at <= now => Spare::Available,
            (_, Some(available_at)) => Spare::Young { available_at },
            (_, None) => Spare::Starting,
        };
        let mut pods = own(node).filter(|pod| !pod.terminating);
        let own = match (pods.next(), pods.next()) {
            (None, _) if own(node).next().is_none() => Own::None,
            (None, _) if own(node).any(|pod| pod.in_doubt) => Own::InDoubt,
            (None, _) => Own::Leaving,
            (Some(_), Some(_)) => Own::Several,
            (Some(pod), None) if pod.revision == PodRevision::Current => Own::Current {
                available: available(pod),
                younger: age(pod) > age(made),
            },
            (Some(pod), None) => Own::Outdated {
                available: available(pod),
            },
        };
        let step = step(own, spare, in_order, now);
        let in_time = |pod: &Pod| available_at(pod).filter(|at| *at > now);
        let turn = match spare {
            Spare::Ended { again } => Some(again).filter(|again| *again > now),
            Spare::Young { available_at } => Some(available_at),
            _ => None,
        };
        let alive = node.pods.iter().filter(|pod| !pod.terminating);
        Some(Self {
            step,
            progress: progress(step, spare),
            served: alive.clone().any(available),
            broken: own == Own::Outdated { available: false },
            turn: alive.filter_map(in_time).chain(turn).min(),
            failed: None,
        })
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
fn writes(node: &Node, step: Step, leaves: Option<Action>, in_order: bool) -> Vec<Action> {
    let mut actions = superfluous(node);
    actions.extend(spare(node).and_then(|made| match step {
        Step::HandOver => Some(Action::HandOver(reference(made))),
        Step::Remove => Some(Action::Delete(reference(made))),
        Step::Retire if in_order => leaves.map(|leaves| leaves.before(reference(made))),
        Step::Retire => leaves,
        Step::Wait => None,
    }));
    actions
}

/// What is said of it.
fn progress(step: Step, spare: Spare) -> Progress {
    match (step, spare) {
        (Step::Remove, _) | (_, Spare::Leaving | Spare::Outdated { .. }) => Progress::SurgeLeaving,
        (Step::Retire | Step::HandOver, _) | (Step::Wait, Spare::Available) => {
            Progress::SurgeTakingOver
        }
        (Step::Wait, Spare::Young { available_at }) => Progress::SurgeYoung { available_at },
        (Step::Wait, Spare::Starting | Spare::Ended { .. }) => Progress::SurgeStarting,
    }
}

/// Of several pods of ours on a node all but one go: two of our replicas may have made one each.
fn superfluous(node: &Node) -> Vec<Action> {
    let kept = spare(node).map(|pod| &pod.uid);
    let made = node.pods.iter().filter(|pod| pod.surge && !pod.terminating);
    made.filter(|pod| Some(&pod.uid) != kept)
        .map(|pod| Action::Delete(reference(pod)))
        .collect()
}

/// What becomes of the pod of ours on a node where no pod belongs (any more), or that is not rolled out (by us) any more: the
/// native controller removes its own pod or leaves it, and does not know ours. `None`: there is none that stays or has to be
/// ended by us.
fn parting(node: &Node, in_order: bool) -> Option<Step> {
    let made = spare(node).filter(|made| !made.terminating)?;
    let serving = own(node).find(|pod| !pod.terminating && !pod.in_place.is_over);
    // Made after the old one was gone: of the two, the native controller removes this one.
    let is_third = |pod: &Pod| age(pod) > age(made) && pod.ready_since.is_none();
    Some(match (node.readiness, node.targeting) {
        // What ran there goes with the node; what never did would wait for it for ever.
        (Readiness::Gone, _) if made.started.is_some() => return None,
        (Readiness::Gone, _) | (_, Targeting::No) => Step::Remove,
        _ if made.in_place.is_over => Step::Remove,
        _ if serving.is_some_and(is_third) && made.ready_since.is_some() => Step::HandOver,
        _ if serving.is_some() => Step::Remove,
        _ if in_order => Step::HandOver,
        _ => Step::Wait,
    })
}

/// What to write about pods of ours on nodes where no pod belongs (any more).
pub(super) fn leave(node: &Node, in_order: bool) -> Vec<Action> {
    let step = parting(node, in_order).unwrap_or(Step::Wait);
    writes(node, step, None, in_order)
}

/// What to write so that nothing of ours is left in a fleet that is not rolled out (by us) any more.
pub(super) fn release(fleet: &Fleet) -> Vec<Action> {
    let made = fleet.nodes.iter().filter(|node| spare(node).is_some());
    made.flat_map(|node| leave(node, fleet.in_order)).collect()
}

/// Whether a pod of ours in a fleet that is not rolled out (by us) any more still waits for the native controller.
pub(super) fn is_released_later(fleet: &Fleet) -> bool {
    let mut nodes = fleet.nodes.iter();
    nodes.any(|node| parting(node, fleet.in_order) == Some(Step::Wait))
}

/// What tells which of two pods the native controller takes for the younger one.
fn age(pod: &Pod) -> (Timestamp, &PodName) {
    (pod.created, &pod.name)
}
