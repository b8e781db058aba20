//! What is said of writes that the API server refuses: in the condition about them, and once in an Event.

use super::conditions::{condition, short};
use super::rollout_event::RolloutEvent;
use crate::core::messages::refusals::Group;
use crate::core::names::REFUSED;
use crate::core::rollout_state::ReportedFailures;
use crate::core::{Plan, RevisionState, WriteFailures};
use crate::k8s::Condition;

/// Reason of the Event, and of the condition.
pub(in crate::controller) const WRITE_REFUSED: &str = "WriteRefused";

/// The condition about it, while there is something to say; `known` is how it stands, and counts while it is not known what is
/// rolled out.
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

/// The Event for a sentence that was not reported before. A missing permission has an Event of its own.
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

/// The same; `about` is how the sentence begins, and `known` what was reported about the same.
pub(super) fn news(
    refused: &WriteFailures,
    about: &str,
    known: Option<&ReportedFailures>,
) -> Option<RolloutEvent> {
    let is_told = |sentence: &str| known.is_some_and(|known| known.says(sentence));
    let groups = refused.groups();
    let is_fresh = |group: &&Group<'_>| !is_told(group.sentence) && !group.lacks_permission();
    let group = groups.iter().find(is_fresh)?;
    Some(RolloutEvent {
        warning: true,
        reason: WRITE_REFUSED,
        // More nodes that are refused in these words are no news.
        note: format!(
            "{about}: the API server refuses to {} (first on {}): {}; other nodes have their turn, and it is tried again",
            group.write.words(),
            group.nodes.first().map_or("", |node| node.as_str()),
            group.sentence
        ),
        ..RolloutEvent::default()
    })
}
