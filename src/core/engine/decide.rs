//! Decision: turns an evaluated fleet into a plan in one pass.
//!
//! The plan is drafted from a [`FleetEvaluation`]. [`roll`] replaces the pods that are next, within the budget. [`outcome`] adds
//! the counts, the phase, and the time of the next evaluation.
//!
//! # Guarantees
//! - The same input gives the same plan; only the arguments matter.
//! - Applying a plan twice has the same effect as applying it once.
//! - Nodes are updated in a defined order (see [`order`](super::order)).

mod counts;
mod outcome;
mod roll;
mod slots;
mod wake;

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::class::{Class, Excluded};
use super::crowd::{self, InView};
use super::evaluation::FleetEvaluation;
use super::guard::Guard;
use super::pause::is_paused;
use super::surge::{self, SurgeRelease, WithdrawnPair};
use super::terms::Terms;
use super::timeouts::BEHIND_PATIENCE;
use super::{ota, removal, revert};
use crate::core::action::{Action, Pull};
use crate::core::fleet::Fleet;
use crate::core::fleet::in_place::Recreate;
use crate::core::id::{Revision, RevisionState, RevisionUnknown};
use crate::core::instant::later;
use crate::core::plan::{PauseStand, Phase, Plan, PullsAwait, Reversal, Stall};
use crate::core::settings::{Invalid, Mode, Strategy};
use crate::core::verdict::{Progress, Verdict};

/// Decides what to do with `fleet` at `now` according to `strategy`.
///
/// `fleet.nodes` is sorted by name, and each pod of the DaemonSet is listed under exactly one node. If `now` decreases between
/// calls, the only effect is that a replacement may begin later.
pub fn decide(strategy: &Strategy, fleet: &Fleet, now: Timestamp) -> Plan {
    decide_in_view(strategy, fleet, now).0
}

/// Computes the plan for a fleet that lists only some nodes and counts the others ([`Fleet::crowd`]).
///
/// Don't apply the plan if [`InView`] reports that nodes are missing in the list.
pub fn decide_in_view(strategy: &Strategy, fleet: &Fleet, now: Timestamp) -> (Plan, InView) {
    let strategy = &*strategy.on(&fleet.revision);
    let (mut plan, view) = attempt(strategy, fleet, now);
    // A node keeps its slot until the API server responds to a retried write. Decide again as if the API server had rejected the
    // retried writes: if other nodes can then use the slots, the rollout is not stalled.
    if matches!(plan.phase, Phase::Stalled(_))
        && let Some(then) = (fleet.write_failures).tried_in_vain(&fleet.nodes, &plan.actions, now)
    {
        let (write_failures, nodes) = then;
        let fleet = Fleet {
            write_failures,
            nodes,
            ..fleet.clone()
        };
        if attempt(strategy, &fleet, now).0.phase == Phase::Progressing {
            plan.phase = Phase::Progressing;
        }
    }
    (plan, view)
}

/// Returns the plan, with an [`InView`] that tells if the listed nodes were enough for it. A node whose rejected write is retried
/// keeps its slot.
fn attempt(strategy: &Strategy, fleet: &Fleet, now: Timestamp) -> (Plan, InView) {
    let mut draft = PlanDraft::new(FleetEvaluation::new(strategy, fleet, now));
    if !crowd::is_calm(&draft.evaluation) {
        return (whole(draft), InView::Everybody);
    }
    let is_news = draft.evaluation.terms.is_proven && !fleet.is_proven && !fleet.crowd.is_empty();
    let wants_more = draft.roll();
    let plan = draft.finish(None);
    let view = if is_news {
        InView::Proven
    } else {
        InView::new(&plan, wants_more)
    };
    (plan, view)
}

/// Returns the plan for a fleet that is not [calm](crowd::is_calm), so that any rule may apply.
fn whole(mut draft: PlanDraft<'_>) -> Plan {
    let (strategy, fleet, now) = (
        draft.evaluation.strategy,
        draft.evaluation.fleet,
        draft.evaluation.now,
    );
    let revision = match draft.target() {
        Ok(revision) => revision,
        Err(behind) => return draft.hold(behind),
    };
    if let Some(invalid) = draft.evaluation.unmatched() {
        return draft.refuse(invalid);
    }
    match (strategy.mode, is_paused(strategy, now)) {
        (Mode::Ota, true) => {
            draft.pulls = draft.evaluation.owners_pulls(revision, true);
            draft.pause()
        }
        (Mode::Ota, false) => {
            draft.part();
            draft.actions.extend(ota::announce(fleet, revision));
            draft.keep_marks_true();
            draft.pulls = draft.evaluation.owners_pulls(revision, false);
            draft.await_owners()
        }
        (Mode::OnDelete, _) => {
            draft.part();
            draft.keep_marks_true();
            draft.await_deletions()
        }
        (Mode::AdvancedRollingUpdate, true) => {
            if let Some(images) = &draft.evaluation.preconditions.images {
                draft.pulls = images.paused_pulls();
            }
            draft.pause()
        }
        (Mode::AdvancedRollingUpdate, false) => {
            draft.roll();
            draft.finish(None)
        }
    }
}

/// Returns the pod writes for a DaemonSet with an invalid setting. They continue work that has begun, for example with surge pods
/// and readiness gates, and replace no pod.
///
/// `strategy` contains the settings that are valid.
pub fn upkeep(
    strategy: &Strategy,
    invalid: &Invalid,
    fleet: &Fleet,
    now: Timestamp,
) -> SurgeRelease {
    let is_replaced_by_kubernetes = invalid.is_native_update();
    if is_replaced_by_kubernetes || invalid.is_object {
        let mut released = if is_replaced_by_kubernetes {
            release(fleet, strategy.min_ready, now)
        } else {
            SurgeRelease::default()
        };
        released.actions.extend(removal::open_gates(fleet));
        return released;
    }
    let draft = PlanDraft::new(FleetEvaluation::new(strategy, fleet, now));
    let plan = match draft.target() {
        Ok(_) => draft.refuse(invalid.clone()),
        Err(behind) => draft.hold(behind),
    };
    SurgeRelease {
        actions: plan.actions,
        wake: plan.next_wake.filter(|wake| *wake > now),
        ..SurgeRelease::default()
    }
}

/// Returns the writes for a DaemonSet that yurt-ds no longer manages, because `update-strategy` or `OnDelete` was removed.
///
/// The writes remove the pod conditions of the strategy OTA and all surge pods. A surge pod stays while no other pod is available
/// on its node. `min_ready` is `spec.minReadySeconds`.
pub fn release(fleet: &Fleet, min_ready: Duration, now: Timestamp) -> SurgeRelease {
    let terms = Terms {
        min_ready,
        in_order: fleet.in_order,
        is_proven: true,
        now,
    };
    let mut release = surge::release(fleet, terms);
    let actions = &mut release.actions;
    actions.extend(ota::withdraw(fleet.nodes.iter().flat_map(surge::own)));
    let ready = fleet.nodes.iter().filter(|node| node.is_ready());
    let pods = ready.flat_map(|node| &node.pods);
    let alive = pods.filter(|pod| !pod.terminating);
    actions.extend(alive.filter_map(|pod| removal::stay(pod, false)));
    release
}

/// Returns the positions of the outdated nodes that may be replaced at `now`, in the order of their update.
///
/// A plan for the same time replaces the first of these nodes, as far as the budget allows.
pub fn queue(strategy: &Strategy, fleet: &Fleet, now: Timestamp) -> Vec<usize> {
    let queue = FleetEvaluation::new(strategy, fleet, now).queue();
    queue.into_iter().map(|turn| turn.position).collect()
}

/// Plan in progress.
struct PlanDraft<'a> {
    evaluation: FleetEvaluation<'a>,
    actions: Vec<Action>,
    /// Verdict of each node, by its position in [`Fleet::nodes`].
    verdicts: Vec<Verdict>,
    pause: Option<PauseStand>,
    /// Time before which `min-interval` allows no replacement.
    opens: Option<Timestamp>,
    /// Setting that matches no node, if any.
    invalid: Option<Invalid>,
    /// Failure domains in which nodes are being replaced or may be replaced next.
    domains: Vec<String>,
    /// Reason why pods are recreated although the settings request updates in place.
    recreates: Option<Recreate>,
    pulls: Vec<Pull>,
    /// Set if more pods of the new revision have to be Ready before images are requested on further nodes.
    pulls_await: Option<PullsAwait>,
    /// Time at which images may be requested again on a node with a failed pull.
    pulls_again: Option<Timestamp>,
    /// Progress of the rollback from a revision that the guard stopped.
    reversal: Option<Reversal>,
    /// Earliest time at which more pods can be rolled back without an event.
    reverts_again: Option<Timestamp>,
}

impl<'a> PlanDraft<'a> {
    /// Creates a draft without writes, in which every node has the verdict of its class.
    fn new(evaluation: FleetEvaluation<'a>) -> Self {
        Self {
            actions: Vec::new(),
            verdicts: evaluation.classes.iter().map(Class::verdict).collect(),
            pause: PauseStand::new(evaluation.strategy, evaluation.fleet, evaluation.now),
            opens: None,
            invalid: None,
            domains: Vec::new(),
            recreates: None,
            pulls: Vec::new(),
            pulls_await: None,
            pulls_again: None,
            reversal: None,
            reverts_again: None,
            evaluation,
        }
    }

    /// Deletes the surge pods, because the controller replaces no pods under `OTA` and `OnDelete`.
    fn part(&mut self) {
        if !self.evaluation.summary.is_surging {
            return;
        }
        let terms = self.evaluation.terms;
        self.actions = surge::release(self.evaluation.fleet, terms).actions;
        for (position, class) in self.evaluation.classes.iter_mut().enumerate() {
            let Class::Surging(pair) = class else {
                continue;
            };
            if let Some(parting) = WithdrawnPair::new(&self.evaluation.fleet.nodes[position], terms)
            {
                (pair.progress, pair.turn) = (parting.progress, parting.turn);
                let verdict = Verdict::InProgress(parting.progress);
                self.verdicts[position] = pair.failed_or(verdict);
            }
        }
        self.mark_left_behind();
    }

    /// Sets the verdict of nodes that still have a surge pod, although the DaemonSet should run no pod there.
    fn mark_left_behind(&mut self) {
        if !self.evaluation.summary.is_surging {
            return;
        }
        for (position, class) in self.evaluation.classes.iter().enumerate() {
            let is_left = matches!(class, Class::UntoleratedTaint | Class::NotTargeted);
            if is_left && self.evaluation.summary.is_paired(position) {
                let parting = WithdrawnPair::new(
                    &self.evaluation.fleet.nodes[position],
                    self.evaluation.terms,
                );
                let progress = parting.map_or(Progress::SurgeLeaving, |parting| parting.progress);
                self.verdicts[position] = Verdict::InProgress(progress);
            }
        }
    }

    /// Returns the current revision, or the reason why it is unknown.
    fn target(&self) -> Result<&'a Revision, RevisionUnknown> {
        match &self.evaluation.fleet.revision {
            RevisionState::Unknown(behind) => Err(*behind),
            RevisionState::Current(_) if self.evaluation.meets_unknown() => {
                Err(RevisionUnknown::UnknownRevision)
            }
            RevisionState::Current(revision) => Ok(revision),
        }
    }

    /// Opens the readiness gates of new pods (sets the pod condition to `True`) while the rollout waits, so that these pods can
    /// become Ready.
    fn open_gates(&mut self) {
        if self.evaluation.summary.is_marked {
            self.actions
                .extend(removal::open_gates(self.evaluation.fleet));
        }
    }

    /// Returns a plan that replaces nothing, because the native controller or the cache doesn't know the current revision yet.
    fn hold(mut self, behind: RevisionUnknown) -> Plan {
        self.open_gates();
        self.evaluation.guard = Guard {
            record: self.evaluation.fleet.record.clone(),
            changes: self.evaluation.guard.changes,
            ..Guard::default()
        };
        for (verdict, class) in self.verdicts.iter_mut().zip(&self.evaluation.classes) {
            if matches!(
                class,
                Class::Done
                    | Class::InProgress(_)
                    | Class::Surging(_)
                    | Class::Outdated { .. }
                    | Class::PreDeleteHook { .. }
                    | Class::Excluded(_)
                    | Class::Unknown { .. }
            ) {
                *verdict = Verdict::NativeControllerBehind;
            }
        }
        let overdue_at =
            (self.evaluation.fleet.behind_since).map(|since| later(since, BEHIND_PATIENCE));
        let is_overdue = overdue_at.is_some_and(|at| at <= self.evaluation.now);
        let plan = self.finish(Some(if is_overdue {
            Phase::Stalled(Stall::NativeControllerBehind)
        } else {
            Phase::RevisionUnknown(behind)
        }));
        Plan {
            next_wake: overdue_at
                .filter(|_| !is_overdue)
                .into_iter()
                .chain(plan.next_wake)
                .min(),
            ..plan
        }
    }

    /// Adds the writes that are needed even while no pod may be replaced: for readiness gates, for surge pods, and for pods that
    /// are marked to wait for their preDelete hook.
    fn tend(&mut self) {
        self.step_surge_pairs(false);
        self.keep_marks_true();
    }

    /// Returns a plan that replaces nothing until a user corrects the setting `invalid`, or labels a node so that it matches.
    fn refuse(mut self, invalid: Invalid) -> Plan {
        self.tend();
        for (verdict, class) in self.verdicts.iter_mut().zip(&self.evaluation.classes) {
            if matches!(
                class,
                Class::Outdated { settling: None, .. } | Class::Excluded(Excluded::NotSelected)
            ) {
                *verdict = Verdict::Invalid;
            }
        }
        if let Some(images) = &self.evaluation.preconditions.images {
            self.pulls = images.paused_pulls();
        }
        self.invalid = Some(invalid);
        self.finish(Some(Phase::Invalid))
    }

    /// Returns a plan that replaces nothing during a pause.
    fn pause(mut self) -> Plan {
        self.tend();
        let until = self.pause.as_ref().and_then(|stand| stand.until);
        self.mark_outdated(Verdict::Paused { until });
        let revert::RevertTurns {
            turns, settling, ..
        } = self.evaluation.reverts();
        let reverts = !(turns.is_empty() && settling.is_empty());
        if let Some(stand) = &mut self.pause {
            stand.reverts = reverts;
        }
        let turns = turns.into_iter().map(|turn| turn.position);
        self.tell_reverts(turns.chain(settling));
        let waits = reverts || self.evaluation.is_any_outdated() || self.evaluation.parts_later();
        let phase = waits.then_some(Phase::Paused { until });
        self.finish(phase)
    }

    /// Returns a plan that leaves the updates to the node owners.
    fn await_owners(mut self) -> Plan {
        self.mark_outdated(Verdict::AwaitingOwner);
        let phase = self
            .evaluation
            .is_any_outdated()
            .then_some(Phase::AwaitingOwners);
        self.finish(phase)
    }

    /// Returns a plan that leaves the updates to the users that delete pods.
    fn await_deletions(mut self) -> Plan {
        self.mark_outdated(Verdict::AwaitingDeletion);
        let phase = self
            .evaluation
            .is_any_outdated()
            .then_some(Phase::AwaitingDeletions);
        self.finish(phase)
    }

    fn mark_outdated(&mut self, reason: Verdict) {
        for (verdict, class) in self.verdicts.iter_mut().zip(&self.evaluation.classes) {
            if matches!(class, Class::Outdated { settling: None, .. }) {
                *verdict = reason;
            }
        }
    }
}
