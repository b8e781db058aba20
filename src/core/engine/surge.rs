//! Surge (`max-surge`): creates a second pod next to the old one, then decides what happens to both.
//!
//! ```text
//! old pod ───────────────────────────────► deleted once the new one is available ──► gone
//!         surge pod created: new pod ─► starting ─► available ─────► ownership transferred to the DaemonSet
//! ```
//!
//! The DaemonSet must not own the surge pod from the start: if the native controller finds several pods of a DaemonSet on a node,
//! it keeps the oldest and deletes the others. Therefore the DaemonSet's ControllerRevision owns the surge pod until the old pod is
//! terminating. Only then is the ownership transferred to the DaemonSet. All state is in the two pods, so the table of [`step`]
//! also applies after a restart of the controller.
//!
//! # Before Kubernetes 1.33
//! Before that version, the native controller can process changes of two pods out of order. It sorts pods by the *first* change
//! since it last processed them (client-go's `DeltaFIFO`; `InOrderInformers` replaced it). If the native controller lags, it may
//! see the transfer of the surge pod while the old pod still looks alive. Then it deletes the surge pod, because the surge pod is
//! the younger of the two.
//!
//! On such clusters [`Fleet::in_order`] is false, and the transfer waits until the native controller has created a pod of its own.
//! This pod proves that the native controller has seen the deletion of the old one. It is the youngest, so the native controller
//! deletes it after the transfer.
//!
//! Pods of an unknown revision never reach this module: the whole fleet waits until the revision is known.

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

/// Pause between the creation of a surge pod that failed permanently (evicted, or rejected by its kubelet) and the creation of the
/// next one.
///
/// Without the pause, pods would be created in quick succession on a node where none can run.
const AGAIN: Duration = Duration::from_secs(60);

/// State of the node's *own* pods: the pods that the DaemonSet owns, in contrast to the surge pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnPod {
    /// The DaemonSet has no own pod on the node.
    None,
    /// All own pods are terminating.
    Leaving,
    /// The controller requested the deletion of the last own pod, and the API server hasn't answered.
    InDoubt,
    /// One own pod of an older revision.
    Outdated { available: bool },
    /// One own pod of the current revision.
    ///
    /// `younger` is true if it is younger than the surge pod. After a transfer of ownership, the native controller then deletes
    /// this pod and keeps the surge pod.
    Current { available: bool, younger: bool },
    /// Several own pods. The native controller is about to delete all but one.
    Several,
}

/// State of the surge pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SurgePod {
    /// The pod is not Ready.
    Starting,
    /// The pod is Ready, but doesn't count as available yet.
    NotYetAvailable { available_at: Timestamp },
    /// The pod counts as available.
    Available,
    /// The pod's revision is no longer current.
    Outdated { ready: bool },
    /// The pod has failed or completed and never runs again. The next surge pod may be created from `again` on.
    Ended { again: Timestamp },
    /// The pod is terminating.
    Leaving,
}

/// Next step for the old pod and the surge pod of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SurgeStep {
    /// Do nothing yet.
    Wait,
    /// Delete (or evict) the DaemonSet's own pod. Transfer the ownership of the surge pod as soon as that is safe.
    DeleteAfterSurge,
    /// Transfer ownership of the surge pod to the DaemonSet.
    TransferOwnership,
    /// Delete the surge pod.
    Remove,
}

/// State of a node with a surge pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SurgePair {
    pub(super) step: SurgeStep,
    /// Progress to report in the node's verdict.
    pub(super) progress: Progress,
    /// True if one of the two pods is available.
    pub(super) served: bool,
    /// True if the DaemonSet's own pod is outdated and not available.
    pub(super) broken: bool,
    /// True if the node still needs an update.
    pub(super) outdated: bool,
    /// True if the old pod can still stay if a setting excludes the node: its deletion has not begun, or its hook is pending.
    pub(super) has_way_back: bool,
    /// Earliest time at which the step or the progress changes without an event.
    pub(super) turn: Option<Timestamp>,
    /// Time and cause of the new pod's failure; `None` unless the guard counts this failure against the revision.
    pub(super) failed: Option<(Timestamp, Cause)>,
}

/// Returns the next step for every combination of pods.
///
/// | own ╲ surge pod | starting | not yet available | available | outdated, not Ready | outdated, Ready | ended | terminating |
/// |---|---|---|---|---|---|---|---|
/// | none | transfer¹ | transfer¹ | transfer¹ | remove | transfer¹ | remove | wait |
/// | terminating | transfer¹ | transfer¹ | transfer¹ | remove | transfer¹ | remove | wait |
/// | deletion in doubt | wait | wait | wait | wait | wait | wait | wait |
/// | outdated, broken | wait | wait | **delete own** | remove | **delete own** | remove after a minute | wait |
/// | outdated, available | wait | wait | **delete own** | remove | remove | remove after a minute | wait |
/// | current, available, younger | remove | remove | transfer | remove | remove | remove | wait |
/// | current, available, older | remove | remove | remove | remove | remove | remove | wait |
/// | current, not available, younger | transfer | transfer | transfer | remove | wait | remove | wait |
/// | current, not available, older | remove | wait | wait | remove | wait | remove | wait |
/// | several | wait | wait | wait | wait | wait | wait | wait |
///
/// ¹ If `in_order` is false: wait for the pod that the native controller creates next.
///
/// Reasons:
///
/// - The own pod can be missing because a user or a drain deleted it, or because the controller crashed after it deleted the pod.
///   The native controller then creates a pod as soon as the old one is gone, unless the surge pod is transferred before. If the
///   native controller is faster, its pod is the younger one, and it deletes that pod after the transfer.
/// - A rollback makes the surge pod outdated. It is deleted, and the serving pod stays.
/// - If only the surge pod serves requests, it stays until another pod serves.
/// - A deletion is in doubt if the pod changed in the meantime, or if the API server didn't respond. Then nothing is transferred,
///   because the native controller would keep the older of the two pods.
fn step(own: OwnPod, surge: SurgePod, in_order: bool, now: Timestamp) -> SurgeStep {
    match (own, surge) {
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

/// Returns the surge pod of this node. If there are several, returns the one that stays: a Ready pod is preferred, whatever its
/// revision.
pub(super) fn surge_pod(node: &Node) -> Option<&Pod> {
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

/// Returns true if this node has more than one pod, including terminating pods.
///
/// An ended pod that only a finalizer keeps doesn't count. The native controller ignores it, too.
pub(super) fn is_doubled(node: &Node) -> bool {
    node.pods.iter().filter(|pod| !pod.has_ended()).count() > 1
}

/// Returns true if the node still has a terminating pod whose containers have not all ended.
pub(super) fn is_followed(node: &Node) -> bool {
    let mut pods = node.pods.iter();
    pods.any(|pod| pod.terminating && !pod.has_ended())
}

/// Returns true if the old pod on this node can still stay: its hook is pending or has not been requested.
pub(super) fn has_way_back(strategy: &Strategy, node: &Node) -> bool {
    let old = alive(node).filter(|pod| pod.revision == PodRevision::Outdated);
    let hook = strategy.pre_delete.as_ref();
    old.is_some_and(|old| {
        old.exit.preparing.is_some() || hook.is_some_and(|hook| hook.hooks(&old.exit))
    })
}

/// Returns the pods on this node that the DaemonSet owns.
pub(in crate::core) fn own(node: &Node) -> impl Iterator<Item = &Pod> {
    node.pods.iter().filter(|pod| !pod.surge)
}

/// Returns true if the DaemonSet owns an outdated pod on this node that is not terminating.
pub(super) fn has_old(node: &Node) -> bool {
    own(node).any(|pod| !pod.terminating && pod.revision == PodRevision::Outdated)
}

/// Returns the DaemonSet's own pod that is not terminating; `None` if there is none or more than one.
pub(super) fn alive(node: &Node) -> Option<&Pod> {
    let mut alive = own(node).filter(|pod| !pod.terminating);
    alive.next().filter(|_| alive.next().is_none())
}

impl SurgePair {
    /// Returns the state of the surge pod and the old pod on an online node; `None` if the node has no surge pod.
    pub(super) fn new(node: &Node, terms: Terms) -> Option<Self> {
        let made = surge_pod(node)?;
        let now = terms.now;
        let available_at = |pod: &Pod| terms.available_at(pod);
        let available = |pod: &Pod| terms.is_available(pod);
        let surge = match (made.revision, terms.counts_at(made)) {
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
        let step = step(own, surge, terms.in_order, now);
        let in_time = |pod: &Pod| available_at(pod).filter(|at| *at > now);
        let turn = match surge {
            SurgePod::Ended { again } => Some(again).filter(|again| *again > now),
            SurgePod::NotYetAvailable { available_at } => Some(available_at),
            _ => None,
        };
        let alive = node.pods.iter().filter(|pod| !pod.terminating);
        Some(Self {
            step,
            progress: progress(step, surge),
            served: alive.clone().any(available),
            broken: own == OwnPod::Outdated { available: false },
            outdated: true,
            has_way_back: false,
            turn: alive.filter_map(in_time).chain(turn).min(),
            failed: None,
        })
    }

    /// Returns the state of a node whose single living pod has a predecessor that is still terminating.
    ///
    /// The node counts as surging. No update begins there before the predecessor is gone.
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

    /// Returns the verdict for the failure of the new pod; `otherwise` if the guard counts no failure.
    pub(super) fn failed_or(&self, otherwise: Verdict) -> Verdict {
        match self.failed {
            Some((since, cause)) => Verdict::FailedByRevision { since, cause },
            None => otherwise,
        }
    }

    /// Returns the writes of the next step. `leaves` is the write that removes the old pod; only some steps use it.
    pub(super) fn actions(
        &self,
        node: &Node,
        leaves: Option<Action>,
        in_order: bool,
    ) -> Vec<Action> {
        writes(node, self.step, leaves, in_order)
    }
}

/// Returns the writes of a step, after the deletions of superfluous surge pods.
fn writes(node: &Node, step: SurgeStep, leaves: Option<Action>, in_order: bool) -> Vec<Action> {
    let mut actions = superfluous(node);
    actions.extend(surge_pod(node).and_then(|made| match step {
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

/// Returns the progress to report for a surge pod and its next step.
fn progress(step: SurgeStep, surge: SurgePod) -> Progress {
    match (step, surge) {
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

/// Returns the deletions of all surge pods but one. Several exist if two replicas of the controller created one each.
fn superfluous(node: &Node) -> Vec<Action> {
    let kept = surge_pod(node).map(|pod| &pod.uid);
    let made = node.pods.iter().filter(|pod| pod.surge && !pod.terminating);
    made.filter(|pod| Some(&pod.uid) != kept)
        .map(|pod| Action::Delete(pod.reference()))
        .collect()
}

/// State of a surge pod that the rollout no longer needs.
///
/// Three causes are possible: its node is no longer targeted, its node keeps the old pod, or yurt-ds no longer manages the
/// DaemonSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WithdrawnPair {
    step: SurgeStep,
    /// Progress to report in the node's verdict.
    pub(super) progress: Progress,
    /// Earliest time at which the step or the progress changes without an event.
    pub(super) turn: Option<Timestamp>,
}

impl WithdrawnPair {
    /// Returns the state of the surge pod. `None` if there is none, if it is terminating, or if the pod garbage collector deletes
    /// it.
    ///
    /// The native controller decides about the DaemonSet's own pod and ignores the surge pod. If the DaemonSet should run no pod on
    /// the node, the surge pod is deleted. Otherwise, while only the surge pod is Ready, both pods stay.
    pub(super) fn new(node: &Node, terms: Terms) -> Option<Self> {
        let made = surge_pod(node).filter(|made| !made.terminating)?;
        let in_doubt = own(node).any(|pod| pod.in_doubt);
        let mut living = own(node).filter(|pod| !pod.terminating && !pod.in_place.is_over);
        let (own, several) = (living.next(), living.next().is_some());
        // True for an own pod that was created after the surge pod and is not Ready. The native controller would delete it after a
        // transfer.
        let is_third = |pod: &Pod| age(pod) > age(made) && pod.ready_since.is_none();
        let step = match (node.readiness, node.targeting, own) {
            // The pod garbage collector deletes pods that ran on the deleted node, but not pods that never started.
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
            // While the node is NotReady, it is unknown which of the two pods serves.
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

    /// Returns true if the surge pod stays because it serves and the DaemonSet's own pod doesn't.
    fn keeps(&self) -> bool {
        (self.step, self.progress) == (SurgeStep::Wait, Progress::SurgeLeaving)
    }
}

/// Returns the writes for surge pods on nodes that are not targeted or that keep their old pod.
pub(super) fn leave(node: &Node, terms: Terms) -> Vec<Action> {
    let step = WithdrawnPair::new(node, terms).map_or(SurgeStep::Wait, |parting| parting.step);
    writes(node, step, None, terms.in_order)
}

/// Result of the removal of surge pods from a fleet that yurt-ds no longer manages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SurgeRelease {
    /// Writes to send.
    pub actions: Vec<Action>,
    /// True if a surge pod can only be deleted after a change of a node or a pod.
    pub waits: bool,
    /// Earliest time at which the result changes without an event.
    pub wake: Option<Timestamp>,
    /// Nodes whose surge pod is the only serving pod. It stays until a pod of the DaemonSet serves.
    pub kept: Vec<NodeName>,
}

/// Returns the writes that remove surge pods from a fleet that yurt-ds no longer manages.
pub(super) fn release(fleet: &Fleet, terms: Terms) -> SurgeRelease {
    let mut release = SurgeRelease::default();
    let made = fleet.nodes.iter().filter(|node| surge_pod(node).is_some());
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

/// Returns the key by which the native controller compares the ages of pods.
fn age(pod: &Pod) -> (Timestamp, &PodName) {
    (pod.created, &pod.name)
}
