//! Removal of pods by eviction (`disruption: evict`), and the PodDisruptionBudgets that refuse it.
//!
//! The controller doesn't watch budgets; only the response to an eviction shows if a budget allows it. The caller that evicts
//! stores the responses in [`Evictions`], and the next plan uses them.
//!
//! ```text
//!          ┌──────────────── refused ◄────────────────┐
//!          ▼                                          │
//! refused: no eviction ──backoff is over──► one eviction ──accepted──► one at a time, as slots allow
//! ```

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;

use crate::core::action::Action;
use crate::core::fleet::evictions::{BudgetClass, EvictionAnswer, Evictions};
use crate::core::fleet::{Fleet, Pod};
use crate::core::settings::{Disruption, Strategy};
use crate::core::verdict::{Progress, Verdict};

/// Evictions that a plan may request.
#[derive(Debug)]
pub(super) struct EvictionRequests<'a> {
    /// Responses so far; `None` if the controller deletes pods instead of evicting them, so that budgets don't apply.
    answers: Option<&'a Evictions>,
    now: Timestamp,
    /// Last time at which a pod of the fleet became Ready: a budget may then allow evictions again. `None` if no eviction was
    /// refused.
    newest: Option<Timestamp>,
    /// Groups of pods that the same budgets protect, and for which this plan already retries an eviction.
    asked: BTreeSet<BudgetClass>,
    /// Number of evictions in this plan that a budget refused before.
    again: usize,
}

impl<'a> EvictionRequests<'a> {
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

    pub(super) fn is_any_refused(&self) -> bool {
        self.answers.is_some_and(|answers| !answers.is_empty())
    }

    /// Returns the verdict of a pod whose eviction was refused.
    pub(super) fn blocked(&self, pod: &Pod) -> Option<Verdict> {
        match self.answers?.answer(pod)? {
            EvictionAnswer::Refused { refusal, since, .. } => Some(Verdict::BlockedByPdb {
                since: *since,
                obstruction: refusal.obstruction,
            }),
            EvictionAnswer::Accepted => None,
        }
    }

    /// Returns the time from which the eviction of this pod may be retried; `None` if no eviction was refused.
    pub(super) fn due(&self, pod: &Pod) -> Option<Timestamp> {
        Some(self.answers?.answer(pod)?.due(self.newest))
    }

    /// Returns true if this plan may evict the pod. A plan retries the eviction of only one pod per [`BudgetClass`].
    pub(super) fn may_ask(&self, pod: &Pod) -> bool {
        let due = self.due(pod);
        due.is_none_or(|due| due <= self.now && !self.asked.contains(&BudgetClass::from_pod(pod)))
    }

    /// Returns true if the eviction may be retried before the end of its backoff, because another pod has become Ready since.
    pub(super) fn is_hurried(&self, pod: &Pod) -> bool {
        let answer = self.answers.and_then(|answers| answers.answer(pod));
        answer.is_some_and(|answer| answer.due(self.newest) < answer.due(None))
    }

    /// Requests the removal of a pod. Returns the write, and the new verdict of the pod's node if it changes.
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

    /// Returns the number of pods that this plan evicts after an earlier refusal.
    pub(super) fn again(&self) -> usize {
        self.again
    }
}
