//! Removal of a pod: the pod first waits for its preDelete hook, a label or finalizer that another program removes. Then the
//! controller deletes or evicts the pod, depending on the settings.
//!
//! ```text
//! pod is next ──► hooked? ──yes──► marked PreparingDelete ──hook gone──► deleted or evicted
//!                     └────no───────────────────────────────────────────────►┘
//! ```
//!
//! Every replacement that removes the old pod calls [`leave`]. If a marked pod is to stay after all, [`stay`] removes the mark.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::eviction::EvictionRequests;
use super::terms::Terms;
use super::timeouts::{HOOK_PATIENCE, MARGIN, STARTING};
use crate::core::action::{Action, BATCH};
use crate::core::fleet::{Fleet, Node, Pod};
use crate::core::id::FIRST_REVISION;
use crate::core::instant::later;
use crate::core::lifecycle::{PreDelete, PreDeleteHook};
use crate::core::settings::Strategy;
use crate::core::verdict::Verdict;

/// Returns the next write for the removal of `pod` at `now`, and the new verdict of its node if it changes.
///
/// Returns no write while the pod waits for its hook or for a disruption budget.
pub(super) fn leave(
    strategy: &Strategy,
    asking: &mut EvictionRequests<'_>,
    pod: &Pod,
    now: Timestamp,
) -> (Option<Action>, Option<Verdict>) {
    let hook = strategy.pre_delete.as_ref();
    let Some(hook) = hook.filter(|hook| hook.hooks(&pod.exit)) else {
        return asking.ask(pod);
    };
    let preparing = pod.exit.preparing;
    let waits = Verdict::HookPending {
        since: preparing.and_then(|preparing| preparing.since),
        overdue: overdue_at(pod).is_some_and(|at| at <= now),
    };
    (mark(hook, pod), Some(waits))
}

/// Returns the write that marks a pod as `PreparingDelete`. With `markPodNotReady`, the write also closes the pod's readiness gate,
/// so that the pod is no longer Ready. `None` if nothing is left to write.
pub(super) fn mark(hook: &PreDelete, pod: &Pod) -> Option<Action> {
    let gate = pod.exit.gate.as_ref().filter(|_| hook.mark_not_ready);
    let gate = gate.and_then(|gate| gate.shut());
    let begins = pod.exit.preparing.is_none();
    (begins || gate.is_some()).then(|| Action::Mark {
        pod: pod.reference(),
        preparing: begins.then_some(true),
        gate,
    })
}

/// Returns true if a pod on this node still has the label or finalizer of its hook, so that its deletion has to wait.
pub(super) fn is_hooked(strategy: &Strategy, node: &Node) -> bool {
    let hook = strategy.pre_delete.as_ref();
    let mut alive = node.pods.iter().filter(|pod| !pod.terminating);
    alive.any(|pod| hook.is_some_and(|hook| hook.hooks(&pod.exit)))
}

/// Returns the time from which the pending hook of a marked pod is reported as overdue.
///
/// The wait is measured from the time in the mark. If the mark has no time, it is measured from when the pod got its revision.
pub(super) fn overdue_at(pod: &Pod) -> Option<Timestamp> {
    let PreDeleteHook { since } = pod.exit.preparing?;
    Some(later(since.unwrap_or(pod.revised()), HOOK_PATIENCE))
}

/// Returns the time until which the controller can be the cause of the unavailability of a pod that stays.
///
/// The cause is a readiness gate that the controller closed for the hook. While the gate is closed, the result is `Timestamp::MAX`.
/// `None` if the controller is not the cause. `min_ready` is `spec.minReadySeconds`.
fn shut_until(pod: &Pod, min_ready: Duration) -> Option<Timestamp> {
    let gate = pod.exit.gate.as_ref()?;
    // A pod that was never Ready can't have been taken out of service.
    pod.ready_since.or(pod.unready_since)?;
    if gate.is_ours() {
        Some(Timestamp::MAX)
    } else {
        Some(later(gate.opened?, min_ready.saturating_add(MARGIN)))
    }
}

/// Returns the time until which a node takes a slot of `max-unavailable` because its pod was out of service for a hook.
///
/// The controller took the pod out of service to delete it, and the pod stayed after all. The node takes the slot even if it does
/// not take part in the rollout.
pub(super) fn withheld_until(node: &Node, terms: Terms) -> Option<Timestamp> {
    let alive = || node.pods.iter().filter(|pod| !pod.terminating);
    if !node.is_ready() || alive().any(|pod| terms.is_available(pod)) {
        return None;
    }
    let until = |pod| shut_until(pod, terms.min_ready);
    alive().filter_map(until).max()
}

/// Returns the time until which a node takes a slot of `max-unavailable` because its pod was created recently.
///
/// The controller may have deleted the pod's predecessor. Therefore the node takes the slot even if it does not take part in the
/// rollout. A pod of the [first](FIRST_REVISION) revision has no predecessor.
pub(super) fn starting_until(node: &Node, terms: Terms) -> Option<Timestamp> {
    let alive = || node.pods.iter().filter(|pod| !pod.terminating);
    if !node.is_ready() || alive().any(|pod| terms.is_available(pod)) {
        return None;
    }
    let replacing = alive().filter(|pod| pod.number != FIRST_REVISION);
    let made = replacing.map(Pod::revised).max()?;
    Some(later(made, STARTING.max(terms.min_ready)))
}

/// Returns true if a node that keeps its old revision takes a slot at `now`. The cause is a pod that was taken out of service for
/// its hook, or that was created recently.
pub fn is_withheld(strategy: &Strategy, fleet: &Fleet, node: &Node, now: Timestamp) -> bool {
    let terms = Terms::new(strategy, fleet, now);
    let until = withheld_until(node, terms).max(starting_until(node, terms));
    until.is_some_and(|until| until > now)
}

/// Returns true if a pod waits for its hook, or has a readiness gate that the controller can close.
pub(super) fn is_marked(pod: &Pod) -> bool {
    pod.exit.preparing.is_some() || pod.exit.gate.is_some()
}

/// Returns the writes that open readiness gates `KruisePodReady` without a status, so that their pods can become Ready. Kruise's
/// controller also opens them.
///
/// The writes fit into one batch. They are also sent during a pause, and while a setting is invalid.
pub(super) fn open_gates(fleet: &Fleet) -> impl Iterator<Item = Action> {
    let ready = fleet.nodes.iter().filter(|node| node.is_ready());
    let pods = ready.flat_map(|node| &node.pods);
    pods.filter(|pod| !pod.terminating)
        .filter_map(begin)
        .take(BATCH)
}

/// Returns the write that opens the pod's readiness gate if it has no status yet. Pods that wait for a hook are skipped.
pub(super) fn begin(pod: &Pod) -> Option<Action> {
    let gate = pod.exit.gate.as_ref()?.begin()?;
    pod.exit.preparing.is_none().then(|| Action::Mark {
        pod: pod.reference(),
        preparing: None,
        gate: Some(gate),
    })
}

/// Returns the write that removes the controller's marks from a pod that stays; `None` if the pod has none.
///
/// With `opens`, the write also opens a readiness gate without a status ([`open_gates`]).
pub(super) fn stay(pod: &Pod, opens: bool) -> Option<Action> {
    let gate = pod.exit.gate.as_ref().and_then(|gate| {
        let begin = opens.then(|| gate.begin()).flatten();
        gate.open().or(begin)
    });
    let preparing = pod.exit.preparing.is_some().then_some(false);
    (gate.is_some() || preparing.is_some()).then(|| Action::Mark {
        pod: pod.reference(),
        preparing,
        gate,
    })
}
