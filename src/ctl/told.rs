//! Since when the controller says something, by the conditions that it wrote.

use k8s_openapi::jiff::Timestamp;

use crate::core::messages::BLOCKED;
use crate::core::names::{ROLLOUT_COMPLETE, STALLED};
use crate::k8s::Condition;

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
