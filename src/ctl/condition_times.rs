//! Time since which the controller has reported a state, read from the conditions of the DaemonSet.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::core::messages::BLOCKED;
use crate::core::names::{ROLLOUT_COMPLETE, STALLED};
use crate::k8s::Condition;

/// Time for which a leader may still write conditions after it last renewed the Lease.
const HANDING_OVER: SignedDuration = SignedDuration::from_secs(30);

/// Returns true if a condition changed more than [`HANDING_OVER`] after `since`, the last renewal of the Lease. Only a controller
/// without leader election can have written it.
pub(super) fn wrote_after(conditions: &[Condition], since: Timestamp) -> bool {
    conditions.iter().any(|condition| {
        let at = condition.last_transition.as_ref().map(|time| time.0);
        at.is_some_and(|at| at.duration_since(since) > HANDING_OVER)
    })
}

/// Returns the time since which the controller has reported the rollout as incomplete.
pub(super) fn incomplete_since(conditions: &[Condition]) -> Option<Timestamp> {
    let says_so =
        |condition: &&Condition| condition.kind == ROLLOUT_COMPLETE && condition.status == "False";
    let condition = conditions.iter().find(says_so)?;
    Some(condition.last_transition.as_ref()?.0)
}

/// Returns the time since which the controller has reported that disruption budgets block evictions for too long.
pub(super) fn blocked_since(conditions: &[Condition]) -> Option<Timestamp> {
    let mut stalled = conditions
        .iter()
        .filter(|condition| condition.kind == STALLED);
    let condition =
        stalled.find(|condition| condition.status == "True" && condition.reason == BLOCKED)?;
    Some(condition.last_transition.as_ref()?.0)
}
