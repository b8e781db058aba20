//! View of one rollout at one time, for `ctl`: current state, decision, and reports of the controller.

use std::collections::BTreeSet;
use std::fmt;

use crate::core::action::Action;
use crate::core::engine::pause::is_paused;
use crate::core::fleet::{Fleet, Node, Pod};
use crate::core::id::{NodeName, PodRevision, Revision};
use crate::core::instant::later;
use crate::core::plan::{PauseStand, Phase, Plan};
use crate::core::settings::{Invalid, Strategy};
use crate::core::verdict::{Guarded, Progress, Verdict};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// Namespace and name of a DaemonSet, as sentences and commands show them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetName<'a> {
    /// Namespace of the DaemonSet.
    pub namespace: &'a str,
    /// Name within the namespace.
    pub name: &'a str,
}

impl fmt::Display for SetName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// View of one rollout, with everything that is needed to explain each node.
#[derive(Clone, Copy)]
pub struct RolloutView<'a> {
    /// Name of the DaemonSet.
    pub key: SetName<'a>,
    /// Settings, with defaults for invalid ones.
    pub strategy: &'a Strategy,
    /// First invalid setting.
    pub invalid: Option<&'a Invalid>,
    /// Current state of the nodes and pods.
    pub fleet: &'a Fleet,
    /// Decision of the controller for the current state.
    pub plan: &'a Plan,
    /// Phase of the rollout to report.
    pub phase: Phase,
    /// Time at which the rollout entered the phase, as reported by a controller.
    pub phase_since: Option<Timestamp>,
    /// Time at which the rollout became incomplete, as reported by a controller.
    pub incomplete_since: Option<Timestamp>,
    /// True if a disruption budget rejected the last eviction and the controller has not retried it yet.
    ///
    /// The retry follows within [`BACK_OFF`](crate::core::fleet::evictions::BACK_OFF), even if the budget still allows no eviction.
    pub asks_again: bool,
    /// Time at which the objects were first read. A state that seems to have begun at this time may have begun earlier.
    pub first_read: Timestamp,
    /// Time of the view, which the messages treat as the present.
    pub now: Timestamp,
}

impl<'a> RolloutView<'a> {
    /// Returns the current revision; `None` while it is unknown.
    pub fn revision(&self) -> Option<&'a Revision> {
        self.fleet.revision.current()
    }

    /// Returns the number of nodes whose available pod this plan replaces. The controller has not made the writes yet.
    pub fn next(&self) -> usize {
        let nodes = self.fleet.nodes.iter().zip(&self.plan.verdicts);
        let next = nodes.filter(|(node, verdict)| {
            let begins = match verdict {
                Verdict::InProgress(Progress::Replacing) => true,
                Verdict::InProgress(Progress::Reverting { .. }) => has_current(node),
                Verdict::HookPending { .. } => !is_preparing(node),
                _ => false,
            };
            begins && self.is_served(node)
        });
        next.count()
    }

    /// Returns true if the guard stopped the current revision.
    pub fn is_stopped(&self) -> bool {
        matches!(self.plan.guarded, Some(Guarded::Stopped(_)))
    }

    /// Returns true if the strategy's pause is in effect now. A pause that has ended doesn't count.
    pub fn is_paused(&self) -> bool {
        is_paused(self.strategy, self.now)
    }

    /// Returns the active pause; `None` if the rollout is not paused.
    pub fn pause(&self) -> Option<&'a PauseStand> {
        // If a setting is invalid, the plan contains a pause that no user requested. It is not reported.
        self.plan.pause.as_ref().filter(|_| self.invalid.is_none())
    }

    /// Joins the texts about `max-unavailable` and `max-surge`. If one of the limits is zero, its text is omitted.
    pub fn limits(&self, unavailable: String, surge: String) -> String {
        match (self.plan.counts.surge_allowed, self.plan.counts.allowed) {
            (0, _) => unavailable,
            (_, 0) => surge,
            _ => format!("{unavailable}, {surge}"),
        }
    }

    /// Returns the number of nodes without a surge pod that fail with the revision. Each takes a slot of `max-unavailable` and one
    /// of `max-surge`.
    pub fn failing_alone(&self) -> usize {
        let nodes = self.fleet.nodes.iter().zip(&self.plan.verdicts);
        let failing = nodes.filter(|(node, verdict)| {
            let fails =
                matches!(verdict, Verdict::FailedByRevision { cause, .. } if cause.holds_slot());
            fails && node.pods.iter().all(|pod| !pod.surge)
        });
        failing.count()
    }

    /// Returns the number of nodes for which this plan creates a surge pod. The controller has not created it yet.
    pub fn next_surging(&self) -> usize {
        let made = self.plan.actions.iter().filter_map(|action| match action {
            Action::Surge { node, .. } => Some(node),
            _ => None,
        });
        let made: BTreeSet<&NodeName> = made.collect();
        // Count only nodes whose first attempt begins now. A node that retries a rejected creation has another verdict.
        let begins = Verdict::InProgress(Progress::SurgeStarting);
        let nodes = self.fleet.nodes.iter().zip(&self.plan.verdicts);
        let begun =
            nodes.filter(|(node, verdict)| **verdict == begins && made.contains(&node.name));
        begun.count()
    }

    /// Returns the number of nodes that have a surge pod now.
    pub fn surging(&self) -> usize {
        self.plan.counts.surging.saturating_sub(self.next_surging())
    }

    /// Returns the number of `max-surge` slots in use, at most the limit. A node whose only pod fails also takes one.
    pub fn surge_taken(&self) -> usize {
        let surging = self.surging();
        let allowed = self.plan.counts.surge_allowed;
        surging.max(allowed.min(surging + self.failing_alone()))
    }

    /// Returns the number of `max-unavailable` slots in use.
    pub fn unavailable(&self) -> usize {
        self.plan.counts.unavailable.saturating_sub(self.next())
    }

    fn is_served(&self, node: &Node) -> bool {
        node.pods.iter().any(|pod| self.is_available(pod))
    }

    fn is_available(&self, pod: &Pod) -> bool {
        let young = SignedDuration::try_from(self.strategy.min_ready).unwrap_or_default();
        let available = |since: Timestamp| since.checked_add(young).ok() <= Some(self.now);
        !pod.terminating && pod.ready_since.is_some_and(available)
    }
}

/// Returns true if a pod of the current revision counts as available only at `counts_at`, because its revision is not known to work
/// yet ([`Fleet::is_proven`]).
///
/// After `minReadySeconds` alone, the pod would be available earlier.
pub(super) fn awaits_proof(rollout: &RolloutView<'_>, node: &Node, counts_at: Timestamp) -> bool {
    let is_young = |since: Timestamp| later(since, rollout.strategy.min_ready) < counts_at;
    let mut pods = node.pods.iter();
    pods.any(|pod| {
        pod.revision == PodRevision::Current
            && !pod.terminating
            && pod.ready_since.is_some_and(is_young)
    })
}

/// Returns true if the node has a pod of the current revision.
fn has_current(node: &Node) -> bool {
    let mut alive = node.pods.iter().filter(|pod| !pod.terminating);
    alive.any(|pod| pod.revision == PodRevision::Current)
}

/// Returns true if a pod of the node waits for its preDelete hook.
fn is_preparing(node: &Node) -> bool {
    node.pods.iter().any(|pod| pod.exit.preparing.is_some())
}
