//! Times at which the plan changes although the fleet stays the same.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;

use super::PlanDraft;
use crate::core::engine::class::Class;
use crate::core::engine::classify::lets_go_at;
use crate::core::engine::removal;
use crate::core::engine::surge::{self, WithdrawnPair};
use crate::core::engine::timeouts::failure_window;
use crate::core::fleet::write_failures::WriteGroup;
use crate::core::fleet::{Node, Pod, Targeting};
use crate::core::id::{NodeName, PodRevision};
use crate::core::instant::later;
use crate::core::verdict::{Progress, Verdict};

impl PlanDraft<'_> {
    /// Returns the times at which a node changes its class without an event, for example because it settles or its pod becomes
    /// available.
    pub(super) fn turns(&self) -> impl Iterator<Item = Timestamp> {
        fn alive(node: &Node) -> Option<&Pod> {
            node.pods.iter().find(|pod| !pod.terminating)
        }
        let terms = self.evaluation.terms;
        let available_at = move |node: &Node| terms.available_at(alive(node)?);
        // A pod that a setting excludes from the rollout frees its slot when it is available again. It also frees the slot when so
        // much time has passed that the controller can't be the cause of its unavailability.
        let serves_again = move |position: usize| {
            let is_kept = matches!(self.evaluation.classes[position], Class::Excluded(_));
            let starting = is_kept.then(|| self.evaluation.summary.starting_until(position, terms));
            let until = [
                self.evaluation.summary.withheld_until(position, terms),
                starting.flatten(),
            ];
            let mut until = until.into_iter().flatten().peekable();
            until.peek()?;
            let back = available_at(&self.evaluation.fleet.nodes[position]);
            let turns = until.chain(back);
            turns
                .filter(|at| *at > self.evaluation.now && *at < Timestamp::MAX)
                .min()
        };
        let turn = move |(position, (node, class)): (usize, (&Node, &Class))| match *class {
            Class::InProgress(Progress::NotYetAvailable { available_at }) => Some(available_at),
            Class::InProgress(Progress::Missing { .. }) if node.is_barred() => {
                let window = failure_window(self.evaluation.strategy);
                lets_go_at(node, window).filter(|at| *at < Timestamp::MAX)
            }
            Class::InProgress(Progress::Surplus) => {
                let pods = node.pods.iter().filter_map(|pod| pod.ready_since);
                let ripe = pods.map(|since| later(since, self.evaluation.strategy.min_ready));
                ripe.filter(|at| *at > self.evaluation.now).min()
            }
            Class::Surging(ref pair) => pair.turn,
            Class::Excluded(_) | Class::NotTargeted if self.evaluation.summary.is_surging => {
                let parts = WithdrawnPair::new(node, terms).and_then(|parting| parting.turn);
                parts.into_iter().chain(serves_again(position)).min()
            }
            Class::Excluded(_) => serves_again(position),
            Class::Outdated {
                settling: Some(until),
                ..
            } => Some(until),
            Class::PreDeleteHook {
                available,
                overdue,
                settling,
                ..
            } => {
                let overdue_at = alive(node).and_then(removal::overdue_at);
                let overdue_at = overdue_at.filter(|_| !overdue);
                let available_at = available_at(node).filter(|_| !available);
                let turns = [overdue_at, available_at, settling];
                turns.into_iter().flatten().min()
            }
            Class::Outdated {
                available: false, ..
            }
            | Class::InProgress(Progress::Reverting { .. })
            | Class::Unknown { available: false } => {
                let waves = self.evaluation.strategy.waves.is_some();
                let started = waves.then(|| {
                    self.evaluation
                        .summary
                        .fresh_until(self.evaluation.strategy, position)
                });
                let turns = available_at(node).into_iter().chain(started.flatten());
                let turns = turns.chain(serves_again(position));
                // If the pod was available when its rollback began, it counts as available until its image changes. Skip its time,
                // which has passed.
                turns.filter(|at| *at > self.evaluation.now).min()
            }
            _ => None,
        };
        // If a node is no longer targeted, its replacement keeps a slot as long as a failure may count against the revision.
        let window = failure_window(self.evaluation.strategy);
        let lets_go = move |(_, (node, class)): (usize, (&Node, &Class))| {
            let began = matches!(class, Class::InProgress(_) | Class::Failed { .. });
            let is_barred = began && node.targeting != Targeting::Run;
            let revised = alive(node).filter(|_| is_barred).map(Pod::revised)?;
            Some(later(revised, window)).filter(|at| *at > self.evaluation.now)
        };
        let nodes = self
            .evaluation
            .fleet
            .nodes
            .iter()
            .zip(&self.evaluation.classes);
        let nodes = nodes.enumerate();
        nodes.filter_map(move |verdict| turn(verdict).into_iter().chain(lets_go(verdict)).min())
    }

    /// Returns the next time at which a precondition of a waiting node may be met.
    pub(super) fn gate_changes(&self) -> Option<Timestamp> {
        let waits = |class: &Class| matches!(class, Class::Outdated { .. });
        let waiting = self.evaluation.classes.iter().enumerate();
        let waiting = waiting.filter(|(_, class)| waits(class));
        waiting
            .filter_map(|(position, _)| self.evaluation.preconditions.changes_at(position))
            .min()
    }

    /// Returns the next time at which a refused eviction may be retried; `None` if no eviction was refused.
    pub(super) fn asked_again(&self) -> Option<Timestamp> {
        if !self.evaluation.preconditions.asking.is_any_refused() {
            return None;
        }
        let nodes = self.evaluation.fleet.nodes.iter().zip(&self.verdicts);
        let waits = |verdict: &Verdict| {
            verdict.awaits_turn() || matches!(verdict, Verdict::BlockedByPdb { .. })
        };
        let waiting = nodes.filter(|(_, verdict)| waits(verdict));
        let due = waiting
            .filter_map(|(node, _)| self.evaluation.preconditions.asking.due(leaving(node)?));
        due.filter(|due| *due > self.evaluation.now).min()
    }

    /// Returns the next time at which rejected writes may be retried; `None` if no node waits because of them.
    pub(super) fn refused_again(
        &self,
        refused: &BTreeSet<(NodeName, WriteGroup)>,
    ) -> Option<Timestamp> {
        let retry_gate = &self.evaluation.preconditions.retry_gate;
        let matters = !refused.is_empty() || retry_gate.is_full();
        retry_gate.wake().filter(|_| matters)
    }
}

/// Returns the outdated pod of the DaemonSet that has to be removed from the node. A surge pod may be on the node, too.
pub(super) fn leaving(node: &Node) -> Option<&Pod> {
    let is_old = |pod: &&Pod| pod.revision == PodRevision::Outdated;
    surge::alive(node).filter(is_old)
}
