//! Overdue nodes: nodes that take a slot for longer than their [`deadline`](super::deadline) allows.

use k8s_openapi::jiff::Timestamp;

use super::deadline::{ending, missing_grace, stuck};
use super::surge;
use crate::core::fleet::Fleet;
use crate::core::id::PodRevision;
use crate::core::plan::{Plan, Stall};
use crate::core::verdict::Verdict;

/// Positions in the fleet of the nodes past their deadline, and the time at which the next node passes its deadline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TimedOut {
    pub(super) nodes: Vec<usize>,
    pub(super) next: Option<Timestamp>,
}

impl TimedOut {
    /// Finds the nodes that are past their deadline at `now`.
    ///
    /// Failing pods and pending hooks are not included, because other parts of the plan report them. `has_pairs` is true if some
    /// nodes have two pods.
    pub(super) fn new(
        fleet: &Fleet,
        verdicts: &[Verdict],
        has_pairs: bool,
        now: Timestamp,
    ) -> Self {
        let mut overdue = Self::default();
        for (position, verdict) in verdicts.iter().enumerate() {
            let is_told = matches!(verdict, Verdict::InProgress(_))
                || has_pairs && verdict.is_kept() && surge::is_followed(&fleet.nodes[position]);
            if !is_told {
                continue;
            }
            match stuck(&fleet.nodes[position], verdict, missing_grace(fleet), now) {
                Ok(Stall::NoProgress | Stall::PodsNotCreated) => overdue.nodes.push(position),
                Ok(_) => {}
                Err(at) => overdue.next = overdue.next.into_iter().chain(at).min(),
            }
        }
        overdue
    }
}

impl Plan {
    /// Returns true if each overdue node only waits until its old, terminating pod is gone.
    pub(in crate::core) fn awaits_ends(&self, fleet: &Fleet) -> bool {
        self.overdue.iter().all(|position| {
            let node = &fleet.nodes[*position];
            let mut ending = ending(node).peekable();
            ending.peek().is_some() && ending.all(|pod| pod.revision == PodRevision::Outdated)
        })
    }
}

#[cfg(test)]
mod tests;
