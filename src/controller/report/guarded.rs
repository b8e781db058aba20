//! Messages about a rollout that the guard stopped. The guard stops a revision when too many nodes fail with it.

use super::conditions::{condition, short};
use crate::core::names::GUARD;
use crate::core::rollout_state::Reported;
use crate::core::{FailureRecord, Guarded, Plan};
use crate::k8s::Condition;

/// Returns true if the guard had already stopped the revision of `plan` at the previous report. `known` is the record in that
/// report.
pub(super) fn is_stopped(known: Option<&FailureRecord>, plan: &Plan) -> bool {
    known.is_some_and(|known| {
        let same =
            |record: &FailureRecord| record.revision == known.revision && record.stopped.is_some();
        known.stopped.is_some() && plan.record.as_ref().is_some_and(same)
    })
}

/// Returns true if the same stall of the same revision was already reported. Always false if the guard stopped the revision,
/// because [`is_stopped`] covers that case.
pub(super) fn same_stall(known: Option<&Reported>, reported: &Reported, plan: &Plan) -> bool {
    let is_same = |known: &Reported| {
        known.stalled_since.is_some()
            && known.revision == reported.revision
            && known.reason == reported.reason
    };
    !stops(plan) && reported.revision.is_some() && known.is_some_and(is_same)
}

/// Returns the `news` key of a stall. The key is the same for all reports of one stall, even if they name different nodes.
pub(super) fn stall_news(plan: &Plan, revision: &str, reason: &str) -> String {
    let stop = if stops(plan) { "stopped" } else { "stalled" };
    format!("{revision} {stop} {reason}")
}

fn stops(plan: &Plan) -> bool {
    matches!(plan.guarded, Some(Guarded::Stopped(_)))
}

/// Returns the condition `Guard`. It shows the guard's record of failed nodes.
pub(super) fn to_condition(record: &FailureRecord) -> Condition {
    let stopped = record.stopped.is_some();
    condition(GUARD, stopped, record.reason(), &short(&record.to_string()))
}
