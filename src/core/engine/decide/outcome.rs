//! Outcome of a plan whose actions are chosen: counts, phase, and time of the next evaluation.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::PlanDraft;
use super::counts::begins;
use super::wake::leaving;
use crate::core::action::Action;
use crate::core::engine::class::Class;
use crate::core::engine::domains::is_others_turn;
use crate::core::engine::overdue::TimedOut;
use crate::core::engine::phase::{self, RolloutFacts};
use crate::core::engine::timeouts::budget_patience;
use crate::core::fleet::Node;
use crate::core::fleet::write_failures::WriteGroup;
use crate::core::id::NodeName;
use crate::core::instant::later;
use crate::core::plan::{Counts, PauseStand, Phase, Plan, Reversal, Stall, WaveStand};
use crate::core::verdict::{Guarded, Offline, Progress, Revert, Verdict, WaveShut};

/// Shortest `min-interval` whose end is reported. With a shorter interval, the conditions would change after every updated pod.
const TOLD_INTERVAL: Duration = Duration::from_secs(60);

impl PlanDraft<'_> {
    pub(super) fn finish(mut self, phase: Option<Phase>) -> Plan {
        let actions = std::mem::take(&mut self.actions);
        let mut refused = self
            .evaluation
            .preconditions
            .retry_gate
            .again(actions.iter());
        let (actions, tried_again) = self
            .evaluation
            .preconditions
            .retry_gate
            .without_held(actions);
        self.actions = actions;
        self.mark_rejected(&mut refused);
        self.mark_domains();
        let counts = self.counts();
        let waves = match phase {
            Some(phase) if phase.is_behind() => Vec::new(),
            _ => self.waves(),
        };
        let retry_gate = &self.evaluation.preconditions.retry_gate;
        let begun = self.actions.iter().filter(|action| action.begins());
        let troubled = self.troubled();
        let is_next = |action: &Action| troubled.iter().any(|node| is_about(action, node));
        let begun = begun.filter(|action| !is_next(action));
        let tried = begun.filter(|action| !retry_gate.is_again(action)).count();
        let moving =
            tried > self.evaluation.preconditions.asking.again() || self.waits_for_next_second();
        let blocked = self.blocked_until().filter(|_| !moving);
        let of_rollout = || self.rollout_phase(&counts, blocked, moving);
        let (phase, wake) = match phase.map_or_else(of_rollout, |phase| (phase, None)) {
            (Phase::Stalled(Stall::WritesRefused), _) if self.others_follow() => {
                (Phase::Progressing, None)
            }
            (Phase::Progressing, _) if !moving && self.is_behind_a_failed_wave(&counts) => {
                (Phase::Stalled(Stall::FailedByRevision), None)
            }
            known => known,
        };
        let TimedOut {
            nodes: mut overdue,
            next: overdue_at,
        } = TimedOut::new(
            self.evaluation.fleet,
            &self.verdicts,
            counts.surging > 0,
            self.evaluation.now,
        );
        overdue.retain(|position| !self.leaves_now(*position));
        let due = [wake, overdue_at, tried_again, self.refused_again(&refused)];
        let next_wake = self.changes().chain(due.into_iter().flatten()).min();
        Plan {
            actions: self.actions,
            recreates: self.recreates,
            verdicts: self.verdicts,
            pulls: self.pulls,
            pulls_await: self.pulls_await,
            counts,
            phase,
            opens: self.opens,
            tells_opening: self.evaluation.strategy.min_interval >= TOLD_INTERVAL,
            invalid: self.invalid,
            domains: self.domains,
            guarded: self.evaluation.guard.gate,
            record: self.evaluation.guard.record,
            reversal: self.reversal,
            pause: self.pause,
            waves,
            overdue,
            blocked: blocked.is_some(),
            refused: self.evaluation.fleet.write_failures.only(&refused),
            next_wake,
        }
    }

    /// Returns the times at which verdicts change without an event.
    fn changes(&self) -> impl Iterator<Item = Timestamp> {
        self.turns()
            .chain(self.evaluation.fleet.crowd.wake)
            .chain(self.evaluation.scope.next_change())
            .chain(self.opens)
            .chain(self.pulls_again)
            .chain(self.evaluation.guard.changes)
            .chain(self.gate_changes())
            .chain(self.reverts_again)
            .chain(self.asked_again())
            .chain(self.pause.as_ref().map(PauseStand::changes))
    }

    /// Returns the phase of the rollout, and the time at which it changes without an event.
    fn rollout_phase(
        &self,
        counts: &Counts,
        blocked: Option<Timestamp>,
        moving: bool,
    ) -> (Phase, Option<Timestamp>) {
        let reverts = |reversal: &Reversal| !reversal.under_way.is_empty();
        // A stopped revision is reported even if only offline nodes are still outdated.
        let is_held = counts.outdated + counts.offline_outdated > 0
            || self.reversal.as_ref().is_some_and(reverts);
        let stopped = match self.evaluation.guard.gate {
            Some(Guarded::Stopped(stopped)) => Some(stopped).filter(|_| is_held),
            _ => None,
        };
        let facts = RolloutFacts {
            fleet: self.evaluation.fleet,
            verdicts: &self.verdicts,
            counts,
            stopped,
            blocked,
            moving,
            is_evaluating: self.is_evaluating(),
        };
        phase::of_rollout(&facts, self.evaluation.now)
    }

    /// Returns the nodes whose pods keep ending. A new pod on such a node is no progress. Empty if this plan writes nothing.
    fn troubled(&self) -> Vec<&Node> {
        match self.actions.is_empty() {
            true => Vec::new(),
            false => {
                let nodes = self.evaluation.fleet.nodes.iter();
                nodes.filter(|node| node.trouble.is_some()).collect()
            }
        }
    }

    /// Returns true if this plan deletes the second pod of the node at `position`. Then the node's deadline starts now.
    fn leaves_now(&self, position: usize) -> bool {
        let pods = &self.evaluation.fleet.nodes[position].pods;
        self.verdicts[position] == Verdict::InProgress(Progress::SurgeLeaving)
            && (self.actions.iter().filter(|action| action.ends()))
                .any(|action| pods.iter().any(|pod| pod.uid == action.pod().uid))
    }

    /// Returns true while the guard evaluates the loss of an updated node, or holds the network responsible for losses.
    fn is_evaluating(&self) -> bool {
        matches!(
            self.evaluation.guard.gate,
            Some(Guarded::Inconclusive { .. })
        )
    }

    /// Sets the verdict of nodes with rejected writes, even if this plan retries the writes. The writes are added to `refused`.
    fn mark_rejected(&mut self, refused: &mut BTreeSet<(NodeName, WriteGroup)>) {
        if self.evaluation.fleet.write_failures.has_no_failures() {
            return;
        }
        let terms = self.evaluation.terms;
        for (position, node) in self.evaluation.fleet.nodes.iter().enumerate() {
            let part = match (self.verdicts[position], &self.evaluation.classes[position]) {
                (Verdict::Refused { .. } | Verdict::Budget { .. }, _) => None,
                (Verdict::InProgress(Progress::SurgeStarting), Class::Outdated { .. }) => {
                    Some(WriteGroup::Create)
                }
                (
                    Verdict::InProgress(Progress::SurgeTakingOver | Progress::SurgeLeaving),
                    Class::Surging(_),
                )
                | (Verdict::InProgress(Progress::Replacing | Progress::Reverting { .. }), _)
                | (Verdict::Revert(Revert::Pending), _)
                | (Verdict::HookPending { since: None, .. }, _) => Some(WriteGroup::Step),
                (Verdict::InProgress(Progress::Terminating), _)
                    if node
                        .pods
                        .iter()
                        .any(|pod| self.evaluation.fleet.write_failures.is_in_doubt(node, pod)) =>
                {
                    Some(WriteGroup::Step)
                }
                (Verdict::PullPending(_), _) => Some(WriteGroup::Tell),
                // The controller closed the readiness gate of this pod, and the API server rejects the write that opens it. That's
                // why the pod isn't Ready.
                (Verdict::InProgress(Progress::Starting | Progress::NotYetAvailable { .. }), _)
                    if refused.contains(&(node.name.clone(), WriteGroup::Tell)) =>
                {
                    Some(WriteGroup::Tell)
                }
                (Verdict::Held { .. } | Verdict::Partition | Verdict::NotSelected, _)
                    if (self.evaluation.summary.withheld_until(position, terms))
                        .is_some_and(|until| until == Timestamp::MAX) =>
                {
                    Some(WriteGroup::Tell)
                }
                _ => continue,
            };
            let parts = match &part {
                Some(part) => std::slice::from_ref(part),
                None => &[WriteGroup::Step, WriteGroup::Create],
            };
            let at = |part: &WriteGroup| {
                let failure = self
                    .evaluation
                    .preconditions
                    .retry_gate
                    .at(&node.name, *part)?;
                Some((*part, failure.since))
            };
            let Some((part, since)) = parts.iter().find_map(at) else {
                continue;
            };
            self.verdicts[position] = Verdict::Refused { since };
            refused.insert((node.name.clone(), part));
        }
    }

    /// Sets the verdict of nodes that wait because replacements may only begin in other failure domains now.
    fn mark_domains(&mut self) {
        let Some(topology) = self.evaluation.strategy.topology.as_ref() else {
            return;
        };
        let is_marked = |node: &Node| node.pods.iter().any(|pod| pod.exit.preparing.is_some());
        for (node, verdict) in self.evaluation.fleet.nodes.iter().zip(&mut self.verdicts) {
            let waits = *verdict == Verdict::Budget { broken: false } && !is_marked(node);
            if waits && is_others_turn(topology, node, &self.domains) {
                *verdict = Verdict::AwaitingDomain;
            }
        }
    }

    /// Returns true if a node could be updated, but waits for the next second because too many writes were rejected in this second.
    fn waits_for_next_second(&self) -> bool {
        self.evaluation.preconditions.retry_gate.is_full()
            && self.verdicts.iter().any(Verdict::awaits_turn)
    }

    /// Returns true if the rollout also waits for something other than rejected writes, so that it is not stalled.
    fn others_follow(&self) -> bool {
        let follows = |verdict: &Verdict| match *verdict {
            Verdict::PullPending(stage) => !stage.has_failed(),
            Verdict::Guarded(_) | Verdict::BlockedByPdb { .. } => true,
            Verdict::WaveNotOpen { why, .. } => why.is_named(),
            _ => false,
        };
        self.opens.is_some() || self.verdicts.iter().any(follows)
    }

    /// Returns the state of each wave after this plan, for display.
    fn waves(&self) -> Vec<WaveStand> {
        let mut waves = self
            .evaluation
            .preconditions
            .wave_progress
            .report(self.evaluation.strategy.max_unavailable);
        if waves.is_empty() {
            return waves;
        }
        for (position, (class, verdict)) in self
            .evaluation
            .classes
            .iter()
            .zip(&self.verdicts)
            .enumerate()
        {
            if let Class::Outdated {
                available: true, ..
            } = class
            {
                let wave = self
                    .evaluation
                    .preconditions
                    .wave_progress
                    .of_node(position);
                waves[wave].taken += usize::from(begins(verdict));
            }
        }
        waves
    }

    /// Returns the time from which a rollout counts as stalled if only disruption budgets block it. `None` if the rollout also
    /// waits for anything else.
    fn blocked_until(&self) -> Option<Timestamp> {
        let (mut until, mut others) = (None, self.opens.is_some());
        for (position, verdict) in self.verdicts.iter().enumerate() {
            match *verdict {
                Verdict::BlockedByPdb { since, obstruction } => {
                    until = until.max(Some(later(since, budget_patience(obstruction))));
                    let pod = leaving(&self.evaluation.fleet.nodes[position]);
                    others |=
                        pod.is_some_and(|pod| self.evaluation.preconditions.asking.is_hurried(pod));
                }
                Verdict::InProgress(_)
                | Verdict::HookPending { .. }
                | Verdict::PullPending(_)
                | Verdict::Revert(_)
                | Verdict::Guarded(_) => others = true,
                Verdict::FailedByRevision { cause, .. } => others |= cause.holds_slot(),
                Verdict::WaveNotOpen { why, .. } => others |= why.is_named(),
                _ => {}
            }
        }
        until.filter(|_| !others)
    }

    /// Returns true if all remaining online nodes wait for a wave in which a node failed. Then only an operator can continue the
    /// rollout.
    fn is_behind_a_failed_wave(&self, counts: &Counts) -> bool {
        let is_shut = |why: Option<Verdict>| {
            let Some(Verdict::WaveNotOpen { why, .. }) = why else {
                return false;
            };
            matches!(why, WaveShut::Charged { .. })
        };
        let waiting = self.verdicts.iter();
        let waiting = waiting.filter(|verdict| is_shut(Some(**verdict))).count();
        let moves = |(position, verdict): (usize, &Verdict)| match verdict {
            Verdict::Offline(Offline::Settling { .. }) => {
                !is_shut(self.evaluation.preconditions.shut_at(position))
            }
            verdict => verdict.is_in_flight(),
        };
        waiting > 0 && waiting == counts.outdated && !self.verdicts.iter().enumerate().any(moves)
    }
}

/// Returns true if `action` writes to a pod of `node`, or creates a pod there.
fn is_about(action: &Action, node: &Node) -> bool {
    match action {
        Action::Surge { node: name, .. } => node.name == *name,
        action => node.pods.iter().any(|pod| pod.uid == action.pod().uid),
    }
}
