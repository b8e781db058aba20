//! Taking pods back to the revision before the one that the guard stopped, in place (`on-failure: RevertInPlace`,
//! asked for in kubernetes/kubernetes#23211).
//!
//! ```text
//! stop stands on the DaemonSet ──► pods of that revision: charged ─► not available ─► available, as slots are free
//!                                        │ one patch: images, labels, and from where it was taken back
//!                                        ▼
//!                                  Reverting ──available──► Revert(Done), until another revision or `resume`
//! ```
//!
//! The DaemonSet's template stays as it is, so the native controller makes every new pod from the stopped revision: a pod
//! that somebody deletes is taken back again, each pod once.
//!
//! # Which revision is the one before
//! One for the whole fleet, chosen when the revision is stopped and remembered with that: the one that most Ready pods of
//! older revisions run; of equals, and when there is no such pod, the newest. One that the guard stopped before is none, as
//! long as another is kept. A vote and not each pod's own past, for what a pod ran before may be the bad revision of yesterday.
//!
//! # What it waits for
//! Only for the stop to stand on the DaemonSet: whoever starts in the middle finds it there. Pods that are not available have
//! nothing to lose; neither budget, waves nor windows hold them. One that is available needs a slot of `max-unavailable`, an
//! open window, its domain's turn, and a node that has been back for long enough. Images are not asked for first: the node ran them a moment ago.

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

/// Which revision was the one before that of `record`, as far as the fleet shows.
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

/// The record of a current revision that nodes failed by, and that nobody resumed.
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

/// The pod that is alive on a node, if it was taken back from the stopped revision.
fn taken_back<'a>(record: &FailureRecord, node: &'a Node) -> Option<&'a Pod> {
    let mut alive = node.pods.iter().filter(|pod| !pod.terminating);
    let is_back = |pod: &&Pod| {
        pod.revision == PodRevision::Outdated
            && pod.in_place.reverted_from.as_ref() == Some(&record.revision)
    };
    alive.next().filter(is_back)
}

/// Whether the node at `position` has a pod that was taken back from the revision which the guard stopped.
pub(super) fn is_back(strategy: &Strategy, fleet: &Fleet, position: usize) -> bool {
    stop(strategy, fleet).is_some_and(|record| taken_back(record, &fleet.nodes[position]).is_some())
}

/// RevertTurns the nodes whose pod was taken back and is not available (yet) into ones in progress: they keep a slot, and nobody
/// else's turn depends on whether they are to be updated.
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
            && let Some(pod) = taken_back(record, node)
        {
            let since = pod.revised();
            *class = Class::InProgress(Progress::Reverting { since });
        }
    }
}

/// The rank of a pod that is available.
const AVAILABLE: u8 = 2;

/// A pod that is to be taken back.
pub(super) struct RevertTurn {
    /// 0: its node is charged; 1: it is not available; 2: it is.
    rank: u8,
    /// Position of its node in the fleet.
    pub(super) position: usize,
    /// What to write.
    pub(super) patch: InPlacePatch,
}

impl RevertTurn {
    /// Whether the pod is available, and so has something to lose.
    pub(super) fn is_available(&self) -> bool {
        self.rank == AVAILABLE
    }
}

/// Who is to be taken back at `now`, in the order of turns.
#[derive(Default)]
pub(super) struct RevertTurns {
    /// Those who can be.
    pub(super) turns: Vec<RevertTurn>,
    /// Positions of those who can be when their nodes have been back for long enough.
    pub(super) settling: Vec<usize>,
    /// How far it is; `None`: nothing is taken back.
    pub(super) reversal: Option<Reversal>,
    /// When time alone adds somebody.
    pub(super) again: Option<Timestamp>,
}

/// Who has the stopped revision and is to be taken back. `classes` are those after [`mark`].
///
/// Nodes that are offline follow when they are back; those that `hold` or `selector` leave alone, and those with a second
/// pod beside the old one, are left alone here, too.
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
        return RevertTurns::default(); // it is chosen by this very plan, and has to stand first
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
            let is_back = class.is_targeted() && taken_back(record, node).is_some();
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
                match refused.any(|denial| denial.write == WriteVerb::Revert) {
                    true => {
                        reversal.stuck.push(node.name.clone());
                        reversal.why = reversal.why.or(Some(Recreate::Refused));
                    }
                    false => reversal.under_way.push(node.name.clone()),
                }
                // One that is not available may be what makes its node come and go.
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

/// Whether `node` has a pod of the revision that the guard stopped which is taken back as soon as its node answers and nobody
/// pauses.
pub fn is_due(strategy: &Strategy, fleet: &Fleet, node: &Node) -> bool {
    let stopped = stop_to_revert(strategy, fleet).zip(bad(node));
    stopped.is_some_and(|(record, pod)| patch(record, past(record, fleet), pod).is_ok())
}

/// The record of a revision from which pods are taken back.
fn stop_to_revert<'a>(strategy: &Strategy, fleet: &'a Fleet) -> Option<&'a FailureRecord> {
    let asked = strategy.on_failure == OnFailure::RevertInPlace && fleet.rollback_targets.stands;
    stop(strategy, fleet).filter(|_| asked)
}

/// The revision that pods are taken back to, and how they get there; `None`: it is not known.
fn past<'a>(
    record: &'a FailureRecord,
    fleet: &'a Fleet,
) -> Option<(&'a Revision, &'a RollbackTarget)> {
    let before = record.before.as_ref()?;
    Some((before, fleet.rollback_targets.revisions.get(before)?))
}

/// In which order a node with the current revision has its turn; `None`: not at all.
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

/// The pod of the current revision on a node.
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

/// What to write into a pod of the stopped revision.
///
/// # Errors
/// Why it keeps that; `None`: it was taken back once, and somebody gave it the stopped revision again.
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
