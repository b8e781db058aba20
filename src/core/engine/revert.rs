//! Rollback of pods in place, from the revision that the guard stopped to an earlier revision (`on-failure: RevertInPlace`,
//! requested in kubernetes/kubernetes#23211).
//!
//! ```text
//! stop stored on the DaemonSet ──► pods of that revision, in this order: failed ─► not available ─► available, as slots are free
//!                                        │ one patch: images, labels, and the revision that is rolled back
//!                                        ▼
//!                                  Reverting ──available──► Revert(Done), until another revision or `resume`
//! ```
//!
//! The DaemonSet's template stays unchanged, so the native controller creates every new pod from the stopped revision. If a user
//! deletes a pod, its successor is rolled back, too. Each pod is rolled back once.
//!
//! # Choice of the revision
//! All pods are rolled back to the same revision. It is chosen when the guard stops the current revision, and stored in the guard's
//! record. The older revision with the most Ready pods is chosen. If several older revisions have equally many, the newest of them
//! is chosen.
//!
//! The majority decides, because the previous revision of a single pod may have failed earlier. A revision that the guard stopped
//! before is chosen only if no other older revision still exists.
//!
//! # Preconditions
//! A rollback starts when the stop is stored on the DaemonSet, so that a restarted controller continues the rollback. Unavailable
//! pods serve no requests, so budget, waves and maintenance windows don't limit their rollback.
//!
//! For an available pod, a slot of `max-unavailable` must be free, its maintenance window must be open, its node must have settled,
//! and updates must be allowed in its failure domain. Images are not pre-pulled, because the node ran them recently.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;

use super::class::Class;
use super::classify::settling;
use super::scope::RolloutScope;
use crate::core::fleet::in_place::{self, InPlacePatch, Recreate};
use crate::core::fleet::record::FailureRecord;
use crate::core::fleet::write_failures::WriteVerb;
use crate::core::fleet::{Fleet, Node, Pod, Readiness, RollbackTarget, Targeting};
use crate::core::id::{PodRevision, Revision, RevisionState};
use crate::core::plan::Reversal;
use crate::core::settings::{Mode, OnFailure, Strategy};
use crate::core::verdict::{Progress, Stopped};

#[cfg(test)]
mod tests;

/// Returns the revision to which pods of `record`'s revision are rolled back; `None` if no older revision exists.
pub(super) fn before(fleet: &Fleet, record: &FailureRecord) -> Option<Revision> {
    let mut votes: BTreeMap<&Revision, usize> = BTreeMap::new();
    let pods = fleet.nodes.iter().flat_map(|node| &node.pods);
    let votes_for = |pod: &&Pod| {
        !pod.terminating && pod.revision == PodRevision::Outdated && pod.ready_since.is_some()
    };
    for pod in pods.filter(votes_for) {
        if let Some(revision) = &pod.in_place.revision {
            *votes.entry(revision).or_default() += 1;
        }
    }
    let known = fleet.rollback_targets.revisions.iter();
    let best = known.max_by_key(|(revision, past)| {
        (
            !record.stopped_before.contains(revision),
            votes.get(revision).copied().unwrap_or_default(),
            past.number,
        )
    });
    best.map(|(revision, _)| revision.clone())
}

/// Returns the guard's record if the current revision is stopped because of failed nodes, and no operator resumed it.
fn stop<'a>(strategy: &Strategy, fleet: &'a Fleet) -> Option<&'a FailureRecord> {
    let RevisionState::Current(revision) = &fleet.revision else {
        return None;
    };
    let record = fleet.record.as_ref()?;
    let is_about = record.revision == *revision && strategy.resume.as_ref() != Some(revision);
    let holds = fleet.replaces && strategy.mode == Mode::AdvancedRollingUpdate;
    let failed = record.stopped == Some(Stopped::FailedByRevision);
    (is_about && holds && failed).then_some(record)
}

/// Returns the living pod of a node if it was rolled back from the revision of `record`.
fn rolled_back<'a>(record: &FailureRecord, node: &'a Node) -> Option<&'a Pod> {
    let mut alive = node.pods.iter().filter(|pod| !pod.terminating);
    let is_back = |pod: &&Pod| {
        pod.revision == PodRevision::Outdated
            && pod.in_place.reverted_from.as_ref() == Some(&record.revision)
    };
    alive.next().filter(is_back)
}

/// Returns true if the pod of the node at `position` was rolled back from the revision that the guard stopped.
pub(super) fn is_back(strategy: &Strategy, fleet: &Fleet, position: usize) -> bool {
    stop(strategy, fleet)
        .is_some_and(|record| rolled_back(record, &fleet.nodes[position]).is_some())
}

/// Gives nodes with a rolled-back pod that is not available the class [`Class::InProgress`].
///
/// Without this class, these nodes would count as outdated and be updated again. With it, they take a slot.
pub(super) fn mark(strategy: &Strategy, fleet: &Fleet, classes: &mut [Class]) {
    let Some(record) = stop(strategy, fleet) else {
        return;
    };
    for (node, class) in fleet.nodes.iter().zip(classes) {
        let is_down = Class::Outdated {
            available: false,
            settling: None,
        };
        if *class == is_down
            && let Some(pod) = rolled_back(record, node)
        {
            let since = pod.revised();
            *class = Class::InProgress(Progress::Reverting { since });
        }
    }
}

/// Rank of an available pod in the order of rollbacks.
const AVAILABLE: u8 = 2;

/// Pod to roll back.
pub(super) struct RevertTurn {
    /// Rank: 0 if the pod failed, 1 if it is not available for another reason, 2 ([`AVAILABLE`]) if it is available.
    rank: u8,
    pub(super) position: usize,
    pub(super) patch: InPlacePatch,
}

impl RevertTurn {
    /// Returns true if the pod is available, so that its rollback needs a slot.
    pub(super) fn is_available(&self) -> bool {
        self.rank == AVAILABLE
    }
}

/// Pods to roll back now, sorted by rank.
#[derive(Default)]
pub(super) struct RevertTurns {
    /// Pods that can be rolled back.
    pub(super) turns: Vec<RevertTurn>,
    /// Positions of nodes that returned recently. Their pods are rolled back after the nodes have settled.
    pub(super) settling: Vec<usize>,
    /// Progress of the rollback; `None` if nothing is rolled back.
    pub(super) reversal: Option<Reversal>,
    /// Earliest time at which more pods can be rolled back without an event.
    pub(super) again: Option<Timestamp>,
}

/// Returns the pods of the stopped revision to roll back. `classes` are the classes after [`mark`].
///
/// Pods on offline nodes are rolled back when the nodes return. Nodes that `hold` or `selector` excludes, and nodes with a surge
/// pod, keep their pods.
pub(super) fn turns(
    strategy: &Strategy,
    fleet: &Fleet,
    classes: &[Class],
    scope: &RolloutScope,
    now: Timestamp,
) -> RevertTurns {
    let Some(record) = stop_to_revert(strategy, fleet) else {
        return RevertTurns::default();
    };
    if record.before.is_none() && before(fleet, record).is_some() {
        return RevertTurns::default(); // this plan only chooses the revision, which has to be stored first
    }
    let mut reversal = Reversal {
        to: record.before.clone(),
        ..Reversal::default()
    };
    let past = past(record, fleet);
    let (mut turns, mut unsettled, mut again) = (Vec::new(), Vec::new(), None);
    for (position, (node, class)) in fleet.nodes.iter().zip(classes).enumerate() {
        if !scope.contains(position) || node.targeting != Targeting::Run {
            continue;
        }
        let Some((rank, pod)) = rank(class).zip(bad(node)) else {
            let is_back = class.is_targeted() && rolled_back(record, node).is_some();
            let is_due = |pod| patch(record, past, pod).is_ok();
            if !node.is_ready() && bad(node).is_some_and(is_due) {
                reversal.away.push(node.name.clone());
            }
            match class {
                Class::Offline { .. } | Class::NoNode => {}
                Class::InProgress(_) if is_back => reversal.under_way.push(node.name.clone()),
                _ if is_back => reversal.done.push(node.name.clone()),
                _ => {}
            }
            continue;
        };
        match patch(record, past, pod) {
            Ok(patch) => {
                let mut refused = fleet.write_failures.on(&node.name);
                match refused.any(|failure| failure.write == WriteVerb::Revert) {
                    true => {
                        reversal.stuck.push(node.name.clone());
                        reversal.why = reversal.why.or(Some(Recreate::Refused));
                    }
                    false => reversal.under_way.push(node.name.clone()),
                }
                // An unavailable pod doesn't wait for the node to settle. The pod itself may be the cause of the node's flapping.
                let settles =
                    settles_at(strategy, node, pod).filter(|at| rank == AVAILABLE && *at > now);
                again = again.into_iter().chain(settles).min();
                match settles {
                    Some(_) => unsettled.push(position),
                    None => turns.push(RevertTurn {
                        rank,
                        position,
                        patch,
                    }),
                }
            }
            Err(why) => {
                reversal.stuck.push(node.name.clone());
                reversal.why = reversal.why.or(why);
            }
        }
    }
    turns.sort_unstable_by_key(|turn| (turn.rank, turn.position));
    RevertTurns {
        turns,
        settling: unsettled,
        reversal: Some(reversal),
        again,
    }
}

/// Returns true if the pod of `node` is to be rolled back as soon as the node is online and no pause applies.
pub fn is_due(strategy: &Strategy, fleet: &Fleet, node: &Node) -> bool {
    let stopped = stop_to_revert(strategy, fleet).zip(bad(node));
    stopped.is_some_and(|(record, pod)| patch(record, past(record, fleet), pod).is_ok())
}

/// Returns the guard's record if pods of its stopped revision are to be rolled back.
fn stop_to_revert<'a>(strategy: &Strategy, fleet: &'a Fleet) -> Option<&'a FailureRecord> {
    let asked = strategy.on_failure == OnFailure::RevertInPlace && fleet.rollback_targets.stands;
    stop(strategy, fleet).filter(|_| asked)
}

/// Returns the revision to roll back to, with the change that leads there; `None` if that revision is unknown.
fn past<'a>(
    record: &'a FailureRecord,
    fleet: &'a Fleet,
) -> Option<(&'a Revision, &'a RollbackTarget)> {
    let before = record.before.as_ref()?;
    Some((before, fleet.rollback_targets.revisions.get(before)?))
}

/// Returns the rank of a node's pod in the order of rollbacks; `None` if the pod is not rolled back.
fn rank(class: &Class) -> Option<u8> {
    match class {
        Class::Failed { cause, .. } => cause.holds_slot().then_some(0),
        Class::InProgress(
            Progress::Starting
            | Progress::NotYetAvailable { .. }
            | Progress::UpdatingInPlace { .. },
        ) => Some(1),
        Class::Done => Some(AVAILABLE),
        _ => None,
    }
}

/// Returns the pod of the current revision on a node.
fn bad(node: &Node) -> Option<&Pod> {
    let mut alive = node.pods.iter().filter(|pod| !pod.terminating);
    alive
        .next()
        .filter(|pod| pod.revision == PodRevision::Current && !pod.surge)
}

fn settles_at(strategy: &Strategy, node: &Node, pod: &Pod) -> Option<Timestamp> {
    match node.readiness {
        Readiness::Ready { since } => settling(strategy, pod, since),
        _ => None,
    }
}

/// Returns the patch that rolls back a pod of the stopped revision.
///
/// # Errors
/// Returns the reason why the pod keeps its revision. It is `None` if the pod was rolled back once and then got the stopped
/// revision again.
fn patch(
    record: &FailureRecord,
    past: Option<(&Revision, &RollbackTarget)>,
    pod: &Pod,
) -> Result<InPlacePatch, Option<Recreate>> {
    if pod.in_place.reverted_from.as_ref() == Some(&record.revision) {
        return Err(None);
    }
    let (before, past) = past.ok_or(Some(Recreate::UnknownRevision))?;
    let transition = past.transition.as_ref().map_err(|why| Some(*why))?;
    let change = in_place::applicable(transition, &pod.in_place).map_err(Some)?;
    Ok(InPlacePatch {
        reverts: Some(record.revision.clone()),
        ..in_place::renewal_to(before, &pod.in_place, change)
    })
}
