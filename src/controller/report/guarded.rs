//! What the guard says: of a revision that it stopped, and in the condition in which it remembers.

use super::condition;
use crate::api::Condition;
use crate::core::names::GUARD;
use crate::core::remedy::{nevertheless, way_on};
use crate::core::words::named;
use crate::core::{Fleet, Guarded, NodeName, Plan, Record, Stall};
use crate::index::SetRecord;

/// The ways on from a revision that the guard stopped, the best first.
pub(super) fn ways_on(set: &SetRecord, fleet: &Fleet, record: &Record) -> String {
    let key = set.key();
    format!(
        "{}; {} (annotation resume: {})",
        way_on(fleet, &key),
        nevertheless(&key),
        record.revision
    )
}

/// What the guard says of a revision that it stopped; `way_on` is what a person can do.
pub(super) fn stopped_words(
    (fleet, plan): (&Fleet, &Plan),
    stall: Stall,
    record: &Record,
    way_on: &str,
) -> String {
    match stall {
        Stall::ReplacedTwice => format!(
            "stopped by the guard: the pods on {} were replaced twice for this revision and are outdated again; something \
             else makes pods of another revision there. Find it; then {way_on}",
            named(record.replaced_twice.iter().map(NodeName::as_str), 0)
        ),
        _ => format!(
            "stopped by the guard: {}; {way_on}",
            plan.failed_words(fleet)
        ),
    }
}

/// Whether the guard had stopped the revision of `plan` already.
pub(super) fn is_stopped(told: Option<&Record>, plan: &Plan) -> bool {
    told.is_some_and(|told| {
        let same = |record: &Record| record.revision == told.revision;
        told.stopped.is_some() && plan.record.as_ref().is_some_and(same)
    })
}

/// Whether the same stall was told of the same revision, and not that the guard stopped it.
pub(super) fn same_stall(
    before: Option<&Condition>,
    plan: &Plan,
    reason: &str,
    same_revision: bool,
) -> bool {
    let is_stopped = matches!(plan.guarded, Some(Guarded::Stopped(_)));
    !is_stopped && same_revision && before.is_some_and(|before| before.reason == reason)
}

/// The condition in which the guard remembers.
pub(super) fn sheet(record: &Record) -> Condition {
    let stopped = record.stopped.is_some();
    condition(GUARD, stopped, record.reason(), &record.to_string())
}
