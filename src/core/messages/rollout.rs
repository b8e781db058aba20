//! A rollout at a moment, as somebody looks at it who asks: what is true, what was decided, and what a controller told.

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

/// The name of a DaemonSet, as it stands in sentences and commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetName<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name there.
    pub name: &'a str,
}

impl fmt::Display for SetName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A rollout of which somebody asks how it stands, node by node.
#[derive(Clone, Copy)]
pub struct RolloutView<'a> {
    /// The DaemonSet.
    pub key: SetName<'a>,
    /// Its settings; what is assumed where they cannot be used.
    pub strategy: &'a Strategy,
    /// What cannot be used.
    pub invalid: Option<&'a Invalid>,
    /// What is true.
    pub fleet: &'a Fleet,
    /// What was decided.
    pub plan: &'a Plan,
    /// Its phase for a person.
    pub phase: Phase,
    /// Since when it is in that phase, as far as a controller told.
    pub phase_since: Option<Timestamp>,
    /// Since when it is not complete, as far as a controller told.
    pub incomplete_since: Option<Timestamp>,
    /// Whether a disruption budget refused the controller the last time, and it has not asked again yet: it does within
    /// [`BACK_OFF`](crate::core::fleet::evictions::BACK_OFF), whatever the budget allows now.
    pub asks_again: bool,
    /// When it was first looked at: whatever is dated so may be older.
    pub first_look: Timestamp,
    /// The present.
    pub now: Timestamp,
}

impl<'a> RolloutView<'a> {
    /// The revision that nodes should run; `None` while it is not known.
    pub fn revision(&self) -> Option<&'a Revision> {
        self.fleet.revision.current()
    }

    /// Nodes with an available pod that this plan would replace: the controller's next step, not yet taken.
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

    /// Whether the guard stopped the present revision.
    pub fn is_stopped(&self) -> bool {
        matches!(self.plan.guarded, Some(Guarded::Stopped(_)))
    }

    /// Whether nothing may be replaced now.
    pub fn is_paused(&self) -> bool {
        is_paused(self.strategy, self.now)
    }

    /// Why nothing goes on, not even what has begun; `None`: it does.
    pub(super) fn standstill(&self) -> Option<&'static str> {
        match self.invalid {
            Some(_) => Some("a setting cannot be used"),
            None => self.is_paused().then_some("the rollout is paused"),
        }
    }

    /// The pause that holds, if one does.
    pub fn pause(&self) -> Option<&'a PauseStand> {
        // What cannot be used is assumed to be paused, and is not.
        self.plan.pause.as_ref().filter(|_| self.invalid.is_none())
    }

    /// What there is to say of `max-unavailable` (`down`), of `max-surge` (`beside`), or of both: of what allows something.
    pub fn limits(&self, down: String, beside: String) -> String {
        match (self.plan.counts.surge_allowed, self.plan.counts.allowed) {
            (0, _) => down,
            (_, 0) => beside,
            _ => format!("{down}, {beside}"),
        }
    }

    /// Nodes that fail by the revision, without a second pod: they take a slot of either kind.
    pub fn failing_alone(&self) -> usize {
        let nodes = self.fleet.nodes.iter().zip(&self.plan.verdicts);
        let failing = nodes.filter(|(node, verdict)| {
            let fails =
                matches!(verdict, Verdict::FailedByRevision { cause, .. } if cause.holds_slot());
            fails && node.pods.iter().all(|pod| !pod.surge)
        });
        failing.count()
    }

    /// Nodes that this plan would give a second pod: the controller's next step, not yet taken.
    pub fn next_surging(&self) -> usize {
        let made = self.plan.actions.iter().filter_map(|action| match action {
            Action::Surge { node, .. } => Some(node),
            _ => None,
        });
        let made: BTreeSet<&NodeName> = made.collect();
        // Who was refused one, and is asked for again, is not counted in the first place.
        let begins = Verdict::InProgress(Progress::SurgeStarting);
        let nodes = self.fleet.nodes.iter().zip(&self.plan.verdicts);
        let begun =
            nodes.filter(|(node, verdict)| **verdict == begins && made.contains(&node.name));
        begun.count()
    }

    /// Nodes that have a second pod now.
    pub fn surging(&self) -> usize {
        self.plan.counts.surging.saturating_sub(self.next_surging())
    }

    /// Slots of `max-surge` that are taken now. Nodes that fail with their only pod keep one, as far as there are any.
    pub fn surge_taken(&self) -> usize {
        let surging = self.surging();
        let allowed = self.plan.counts.surge_allowed;
        surging.max(allowed.min(surging + self.failing_alone()))
    }

    /// Slots of the budget that are taken now.
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

/// Returns true if a pod of the current revision counts as available at that time because it has to prove its revision, not because
/// of `minReadySeconds`.
pub(super) fn awaits_proof(rollout: &RolloutView<'_>, node: &Node, counts_at: Timestamp) -> bool {
    let is_young = |since: Timestamp| later(since, rollout.strategy.min_ready) < counts_at;
    let mut pods = node.pods.iter();
    pods.any(|pod| {
        pod.revision == PodRevision::Current
            && !pod.terminating
            && pod.ready_since.is_some_and(is_young)
    })
}

/// Whether its pod is of the current revision.
fn has_current(node: &Node) -> bool {
    let mut alive = node.pods.iter().filter(|pod| !pod.terminating);
    alive.any(|pod| pod.revision == PodRevision::Current)
}

/// Whether its pod waits for its hook already.
fn is_preparing(node: &Node) -> bool {
    node.pods.iter().any(|pod| pod.exit.preparing.is_some())
}
