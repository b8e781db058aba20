//! The decision: one pass over a fleet.
//!
//! ```text
//! nodes ──look──► classes ──guard──► classes ──scope──► classes ──gates──► candidates ──budget──► actions + verdicts ──phase──► Plan
//! ```
//!
//! # Guarantees
//! - The same input gives the same plan; nothing but the arguments is looked at.
//! - A plan that is carried out twice changes nothing more.
//! - Nodes are served in a stated order (see `order`).

mod look;
mod outcome;
mod roll;
mod slots;

use std::cell::OnceCell;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::budget::Budget;
use super::classify::Class;
use super::fleet::{Behind, Fleet, Revision, RevisionState};
use super::gates::Gates;
use super::glance::Glance;
use super::guard::Guard;
use super::in_place::Recreate;
use super::instant::later;
use super::order::Turn;
use super::overdue::BEHIND_PATIENCE;
use super::pause::{PauseStand, is_paused};
use super::plan::{Action, Phase, Plan, Pull, Stall};
use super::revert::Reversal;
use super::scope::{Kept, Scope};
use super::settings::{Invalid, Mode, Strategy};
use super::surge::{Parting, Release, Terms};
use super::unmatched::unmatched;
use super::verdict::{Progress, Verdict};
use super::waves::Front;
use super::{guard, ota, removal, revert, surge};
use look::Look;

/// What to do with `fleet` at `now`, as `strategy` asks.
///
/// # Assumptions
/// `fleet.nodes` is sorted by name and each pod of the DaemonSet stands in exactly one of them. `now` never runs
/// backwards between calls; if it does, the worst is a later replacement.
pub fn decide(strategy: &Strategy, fleet: &Fleet, now: Timestamp) -> Plan {
    let mut plan = attempt(strategy, fleet, now);
    // Whoever was refused and is tried again has a slot until the answer comes. Then it may be the one of somebody else.
    if matches!(plan.phase, Phase::Stalled(_))
        && let Some(then) = (fleet.refusals).tried_in_vain(&fleet.nodes, &plan.actions, now)
    {
        let (refusals, nodes) = then;
        let fleet = Fleet {
            refusals,
            nodes,
            ..fleet.clone()
        };
        if attempt(strategy, &fleet, now).phase == Phase::Progressing {
            plan.phase = Phase::Progressing;
        }
    }
    plan
}

/// The plan, with the slots of those who were refused in the hands of those who are tried again.
fn attempt(strategy: &Strategy, fleet: &Fleet, now: Timestamp) -> Plan {
    let mut draft = Draft::new(strategy, fleet, now);
    let revision = match &fleet.revision {
        RevisionState::Behind(behind) => return draft.hold(*behind),
        RevisionState::Current(_) if draft.meets_unknown() => {
            return draft.hold(Behind::UnknownRevision);
        }
        RevisionState::Current(revision) => revision,
    };
    if let Some(invalid) = draft.unmatched() {
        return draft.refuse(invalid);
    }
    match (strategy.mode, is_paused(strategy, now)) {
        (Mode::Ota, true) => {
            draft.pulls = draft.owners_pulls(revision, true);
            draft.pause()
        }
        (Mode::Ota, false) => {
            draft.part();
            draft.actions.extend(ota::announce(fleet, revision));
            draft.keep_marks_true();
            draft.pulls = draft.owners_pulls(revision, false);
            draft.await_owners()
        }
        (Mode::AdvancedRollingUpdate, true) => {
            if let Some(images) = &draft.gates.images {
                draft.pulls = images.rest();
            }
            draft.pause()
        }
        (Mode::AdvancedRollingUpdate, false) => {
            draft.roll();
            draft.finish(None)
        }
    }
}

/// What to write to the pods of a DaemonSet that is ours no longer (annotation removed, or not under `OnDelete`): what OTA
/// mode left behind goes, and so does every pod that was made beside another one, unless it is all there is.
///
/// `min_ready` is `spec.minReadySeconds`.
pub fn release(fleet: &Fleet, min_ready: Duration, now: Timestamp) -> Release {
    let terms = Terms {
        min_ready,
        in_order: fleet.in_order,
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

/// The positions of the outdated nodes that may be replaced at `now`, in the order in which they have their turn; a plan of
/// the same moment replaces some of them.
pub fn queue(strategy: &Strategy, fleet: &Fleet, now: Timestamp) -> Vec<usize> {
    let draft = Draft::new(strategy, fleet, now);
    draft
        .queue()
        .into_iter()
        .map(|turn| turn.position)
        .collect()
}

/// A plan in the making.
struct Draft<'a> {
    strategy: &'a Strategy,
    fleet: &'a Fleet,
    now: Timestamp,
    classes: Vec<Class>,
    glance: Glance<'a>,
    scope: Scope,
    budget: Budget,
    guard: Guard,
    gates: Gates<'a>,
    /// The pause that holds, if one does.
    pause: Option<PauseStand>,
    /// Before this instant nothing is replaced (`min-interval`).
    opens: Option<Timestamp>,
    /// The setting that turned out to match no node, if one did.
    invalid: Option<Invalid>,
    /// When a node may be asked again to pull its images.
    pulls_again: Option<Timestamp>,
    /// The failure domains that are held or have their turn.
    domains: Vec<String>,
    actions: Vec<Action>,
    /// Why pods are made anew although an update in place was asked for.
    recreates: Option<Recreate>,
    pulls: Vec<Pull>,
    verdicts: Vec<Verdict>,
    /// The nodes that wait, in the order of their turns.
    waiting: OnceCell<Vec<Turn>>,
    /// How far a stopped revision is taken back.
    reversal: Option<Reversal>,
    /// When time alone adds somebody to those who are taken back.
    reverts_again: Option<Timestamp>,
}

impl<'a> Draft<'a> {
    /// Gives every node the class and verdict that follow from its own state.
    fn new(strategy: &'a Strategy, fleet: &'a Fleet, now: Timestamp) -> Self {
        let Look {
            mut classes,
            glance,
            scope,
            members,
            openings,
            images,
        } = Look::at(strategy, fleet, now);
        let charges = guard::charge(strategy, fleet, now, &mut classes, &glance);
        revert::mark(strategy, fleet, &mut classes);
        scope.narrow(strategy, fleet.undone, &glance, &mut classes);
        let seen = (classes.as_slice(), &glance);
        let front = Front::of(strategy, fleet, members, seen, &charges, &scope, now);
        let budget = Budget::count(
            &classes,
            &scope,
            strategy,
            &front,
            (&glance, Terms::of(strategy, fleet, now)),
        );
        let mut guard = charges.conclude(strategy, fleet, &classes, &budget, now);
        if let Some(record) = &mut guard.record {
            front.note_waves(record, fleet, &classes);
        }
        let own = (openings, images);
        Self {
            strategy,
            fleet,
            now,
            budget,
            scope,
            gates: Gates::of(strategy, fleet, own, front, guard.gate, now),
            guard,
            pause: PauseStand::of(strategy, fleet, now),
            opens: None,
            invalid: None,
            pulls_again: None,
            domains: Vec::new(),
            actions: Vec::new(),
            recreates: None,
            pulls: Vec::new(),
            waiting: OnceCell::new(),
            reversal: None,
            reverts_again: None,
            verdicts: classes.iter().map(Class::verdict).collect(),
            classes,
            glance,
        }
    }

    /// Whether an online node runs a revision that is not known: this view may be older than that pod.
    fn meets_unknown(&self) -> bool {
        let is_unknown = |class: &Class| matches!(class, Class::Unknown { .. });
        self.classes.iter().any(is_unknown)
    }

    /// The images that owners of nodes ask for.
    fn owners_pulls(&self, revision: &Revision, paused: bool) -> Vec<Pull> {
        match self.glance.is_announced {
            true => ota::pulls(self.fleet, revision, paused),
            false => Vec::new(),
        }
    }

    /// What pods are judged by.
    fn terms(&self) -> Terms {
        Terms::of(self.strategy, self.fleet, self.now)
    }

    /// Has those pods go that were made beside others.
    fn part(&mut self) {
        if !self.glance.is_surging {
            return;
        }
        let terms = self.terms();
        self.actions = surge::release(self.fleet, terms).actions;
        for (position, class) in self.classes.iter_mut().enumerate() {
            let Class::Surging(pair) = class else {
                continue;
            };
            if let Some(parting) = Parting::of(&self.fleet.nodes[position], terms) {
                (pair.progress, pair.turn) = (parting.progress, parting.turn);
                let told = Verdict::InProgress(parting.progress);
                self.verdicts[position] = pair.failed_or(told);
            }
        }
        self.tell_left_behind();
    }

    /// Says of nodes to which no pod belongs (any more) that they have two.
    fn tell_left_behind(&mut self) {
        if !self.glance.is_surging {
            return;
        }
        for (position, class) in self.classes.iter().enumerate() {
            let is_left = matches!(class, Class::Repelled | Class::NotTargeted);
            if is_left && self.glance.is_paired(position) {
                let parting = Parting::of(&self.fleet.nodes[position], self.terms());
                let progress = parting.map_or(Progress::SurgeLeaving, |parting| parting.progress);
                self.verdicts[position] = Verdict::InProgress(progress);
            }
        }
    }

    /// Nothing is replaced before the native controller and this view agree on the revision.
    fn hold(mut self, behind: Behind) -> Plan {
        self.guard = Guard {
            record: self.fleet.record.clone(),
            changes: self.guard.changes,
            ..Guard::default()
        };
        for (verdict, class) in self.verdicts.iter_mut().zip(&self.classes) {
            if matches!(
                class,
                Class::Done
                    | Class::InProgress(_)
                    | Class::Surging(_)
                    | Class::Outdated { .. }
                    | Class::Preparing { .. }
                    | Class::Kept(_)
                    | Class::Unknown { .. }
            ) {
                *verdict = Verdict::NativeControllerBehind;
            }
        }
        let overdue_at = (self.fleet.behind_since).map(|since| later(since, BEHIND_PATIENCE));
        let is_overdue = overdue_at.is_some_and(|at| at <= self.now);
        let plan = self.finish(Some(match is_overdue {
            true => Phase::Stalled(Stall::NativeControllerBehind),
            false => Phase::Behind(behind),
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

    /// The setting that matches no node although somebody is outdated.
    fn unmatched(&self) -> Option<Invalid> {
        let wave = |position| self.gates.front.of_node(position);
        unmatched(self.strategy, self.fleet, &self.classes, wave)
    }

    /// Nothing is written to any pod before that setting, or the labels of nodes, are corrected.
    fn refuse(mut self, invalid: Invalid) -> Plan {
        for (verdict, class) in self.verdicts.iter_mut().zip(&self.classes) {
            if matches!(
                class,
                Class::Outdated { settling: None, .. } | Class::Kept(Kept::NotSelected)
            ) {
                *verdict = Verdict::Invalid;
            }
        }
        if let Some(images) = &self.gates.images {
            self.pulls = images.rest();
        }
        self.invalid = Some(invalid);
        self.finish(Some(Phase::Invalid))
    }

    /// Nothing is written to any pod.
    fn pause(mut self) -> Plan {
        self.tell_left_behind();
        let until = self.pause.as_ref().and_then(|stand| stand.until);
        self.tell_outdated(Verdict::Paused { until });
        let revert::Turns {
            turns, settling, ..
        } = self.reverts();
        let reverts = !(turns.is_empty() && settling.is_empty());
        if let Some(stand) = &mut self.pause {
            stand.reverts = reverts;
        }
        let turns = turns.into_iter().map(|turn| turn.position);
        self.tell_reverts(turns.chain(settling));
        let waits = reverts || self.is_any_outdated() || self.parts_later();
        let phase = waits.then_some(Phase::Paused { until });
        self.finish(phase)
    }

    /// Whether a node that keeps its pod, or to which none belongs, has one beside it that would go if nobody paused.
    fn parts_later(&self) -> bool {
        let stays =
            |class: &Class| matches!(class, Class::Kept(_) | Class::Repelled | Class::NotTargeted);
        let mut classes = self.classes.iter().enumerate();
        classes.any(|(position, class)| stays(class) && self.glance.is_paired(position))
    }

    /// The owners of the nodes decide.
    fn await_owners(mut self) -> Plan {
        self.tell_outdated(Verdict::AwaitingOwner);
        let phase = self.is_any_outdated().then_some(Phase::AwaitingOwners);
        self.finish(phase)
    }

    fn tell_outdated(&mut self, told: Verdict) {
        for (verdict, class) in self.verdicts.iter_mut().zip(&self.classes) {
            if matches!(class, Class::Outdated { settling: None, .. }) {
                *verdict = told;
            }
        }
    }

    /// Whether a targeted node is online, settled and outdated.
    fn is_any_outdated(&self) -> bool {
        let is_outdated = |class: &Class| match class {
            Class::Outdated { settling: None, .. } | Class::Preparing { .. } => true,
            Class::Surging(pair) => pair.outdated,
            _ => false,
        };
        self.classes.iter().any(is_outdated)
    }
}
