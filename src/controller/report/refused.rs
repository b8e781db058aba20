//! Messages about writes that the API server rejects: a condition, and one Event per cause.

use super::conditions::{condition, short};
use super::rollout_event::RolloutEvent;
use crate::core::messages::refusals::Group;
use crate::core::names::REFUSED;
use crate::core::rollout_state::ReportedFailures;
use crate::core::{Plan, RevisionState, WriteFailures};
use crate::k8s::Condition;

/// Reason of the Event and of the condition about rejected writes.
pub(in crate::controller) const WRITE_REFUSED: &str = "WriteRefused";

/// Returns the condition about rejected writes, if there are any. `known` is the current condition. While the current revision is
/// unknown, `known` is kept.
pub(super) fn to_condition(
    plan: &Plan,
    revision: &str,
    known: Option<&Condition>,
) -> Option<Condition> {
    if plan.phase.is_behind() {
        return known.cloned();
    }
    let message = short(&format!("{revision}: {}", plan.refused.sentence()));
    let to_condition = || condition(REFUSED, true, WRITE_REFUSED, &message);
    (!plan.refused.has_no_failures()).then(to_condition)
}

/// Returns the Event about a failure that was not reported before.
///
/// A missing permission is skipped here, because it has its own Event.
pub(super) fn notice(
    plan: &Plan,
    state: &RevisionState,
    known: Option<&ReportedFailures>,
) -> Option<RolloutEvent> {
    let revision = state.current();
    let about = |known: &&ReportedFailures| known.revision.as_ref() == revision;
    let subject = revision.map_or_else(
        || "the new revision".to_owned(),
        |revision| format!("revision {revision}"),
    );
    news(&plan.refused, &subject, known.filter(about))
}

/// Returns the Event about a failure that `known` doesn't contain. The message begins with `about`.
pub(super) fn news(
    refused: &WriteFailures,
    about: &str,
    known: Option<&ReportedFailures>,
) -> Option<RolloutEvent> {
    let is_known = |sentence: &str| known.is_some_and(|known| known.says(sentence));
    let groups = refused.groups();
    let is_fresh = |group: &&Group<'_>| !is_known(group.sentence) && !group.lacks_permission();
    let group = groups.iter().find(is_fresh)?;
    Some(RolloutEvent {
        warning: true,
        reason: WRITE_REFUSED,
        // Only the first node is named. If the same failure occurs on other nodes, no other Event follows.
        note: format!(
            "{about}: the API server refuses to {}, first on {}: {}. Other nodes continue. Retried automatically",
            group.write.words(),
            group.nodes.first().map_or("", |node| node.as_str()),
            group.sentence
        ),
        ..RolloutEvent::default()
    })
}
