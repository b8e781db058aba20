//! Since when the controller says something, by the conditions that it wrote.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::core::messages::BLOCKED;
use crate::core::names::{ROLLOUT_COMPLETE, STALLED};
use crate::k8s::Condition;

/// A leader may have written that long after it renewed its Lease for the last time.
const HANDING_OVER: SignedDuration = SignedDuration::from_secs(30);

/// Reports a change of these conditions that is later than `since` by more than a handover of the Lease takes.
pub(super) fn wrote_after(conditions: &[Condition], since: Timestamp) -> bool {
    conditions.iter().any(|condition| {
        let at = condition.last_transition.as_ref().map(|time| time.0);
        at.is_some_and(|at| at.duration_since(since) > HANDING_OVER)
    })
}

/// Since when these conditions say that the rollout is not complete.
pub(super) fn incomplete_since(conditions: &[Condition]) -> Option<Timestamp> {
    let says_so = |told: &&Condition| told.kind == ROLLOUT_COMPLETE && told.status == "False";
    let told = conditions.iter().find(says_so)?;
    Some(told.last_transition.as_ref()?.0)
}

/// Since when the controller says that disruption budgets let no pod go, and that this lasts too long.
pub(super) fn blocked_since(conditions: &[Condition]) -> Option<Timestamp> {
    let mut stalled = conditions.iter().filter(|told| told.kind == STALLED);
    let told = stalled.find(|told| told.status == "True" && told.reason == BLOCKED)?;
    Some(told.last_transition.as_ref()?.0)
}
