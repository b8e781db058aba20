//! Pods that leave by eviction (`disruption: evict`), and PodDisruptionBudgets that refuse it.
//!
//! The answer to an eviction is the only way to know: budgets are not watched. Whoever asks writes down the answer in
//! [`Evictions`]; a plan asks accordingly.
//!
//! ```text
//!          ┌──────────────── refused ◄────────────────┐
//!          ▼                                          │
//! refused: nobody is asked ──back-off is over──► one is asked ──accepted──► one at a time, as slots allow
//! ```
//!

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;

use crate::core::action::Action;
use crate::core::fleet::evictions::{BudgetClass, EvictionAnswer, Evictions};
use crate::core::fleet::{Fleet, Pod};
use crate::core::settings::{Disruption, Strategy};
use crate::core::verdict::{Progress, Verdict};

/// Whom a plan may ask to go.
#[derive(Debug)]
pub(super) struct EvictionRequests<'a> {
    /// `None`: pods are deleted, and nobody else has a say.
    answers: Option<&'a Evictions>,
    now: Timestamp,
    /// When a pod of the fleet became Ready last.
    newest: Option<Timestamp>,
    /// For whom this plan asks once more.
    asked: BTreeSet<BudgetClass>,
    /// So many of these were refused before.
    again: usize,
}

impl<'a> EvictionRequests<'a> {
    /// As it is at `now`.
    pub(super) fn new(strategy: &Strategy, fleet: &'a Fleet, now: Timestamp) -> Self {
        let answers = (strategy.disruption == Disruption::Evict).then_some(&fleet.evictions);
        let pods = || fleet.nodes.iter().flat_map(|node| &node.pods);
        let known = answers.is_some_and(|answers| !answers.is_empty());
        Self {
            answers,
            now,
            newest: if known {
                pods().filter_map(|pod| pod.ready_since).max()
            } else {
                None
            },
            asked: BTreeSet::new(),
            again: 0,
        }
    }

    /// Whether anybody was refused.
    pub(super) fn is_any_refused(&self) -> bool {
        self.answers.is_some_and(|answers| !answers.is_empty())
    }

    /// What is said of a pod that may not go, as far as known.
    pub(super) fn blocked(&self, pod: &Pod) -> Option<Verdict> {
        match self.answers?.answer(pod)? {
            EvictionAnswer::Refused { refusal, since, .. } => Some(Verdict::BlockedByPdb {
                since: *since,
                obstruction: refusal.obstruction,
            }),
            EvictionAnswer::Accepted => None,
        }
    }

    /// When this pod, which may not go, may be asked for again.
    pub(super) fn due(&self, pod: &Pod) -> Option<Timestamp> {
        Some(self.answers?.answer(pod)?.due(self.newest))
    }

    /// Whether this pod may be asked for now: one at a time of those that were refused.
    pub(super) fn may_ask(&self, pod: &Pod) -> bool {
        let due = self.due(pod);
        due.is_none_or(|due| due <= self.now && !self.asked.contains(&BudgetClass::from_pod(pod)))
    }

    /// Whether it is about to be asked again although the back-off is not over: somebody became Ready meanwhile.
    pub(super) fn is_hurried(&self, pod: &Pod) -> bool {
        let answer = self.answers.and_then(|answers| answers.answer(pod));
        answer.is_some_and(|answer| answer.due(self.newest) < answer.due(None))
    }

    /// Asks for a pod that may go as far as we are concerned: what to write, and what is said of it if there is something
    /// to say.
    pub(super) fn ask(&mut self, pod: &Pod) -> (Option<Action>, Option<Verdict>) {
        let replacing = Some(Verdict::InProgress(Progress::Replacing));
        let Some(answers) = self.answers else {
            return (Some(Action::Delete(pod.reference())), replacing);
        };
        let blocked = self.blocked(pod);
        if !self.may_ask(pod) {
            return (None, blocked);
        }
        if answers.answer(pod).is_some() {
            self.asked.insert(BudgetClass::from_pod(pod));
        }
        self.again += usize::from(blocked.is_some());
        (Some(Action::Evict(pod.reference())), blocked.or(replacing))
    }

    /// How many pods this plan asks for that were refused before.
    pub(super) fn again(&self) -> usize {
        self.again
    }
}
