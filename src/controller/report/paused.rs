//! Messages about a paused rollout: a condition, and a daily reminder in an Event.

use super::conditions::condition;
use super::rollout_event::RolloutEvent;
use crate::core::messages::{paused_words, still_paused};
use crate::core::names::PAUSED_CONDITION;
use crate::core::rollout_state::ReportedPause;
use crate::core::words::NAMED;
use crate::core::{NodeName, Plan, RevisionState, instant};
use crate::k8s::Condition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Reason of the Event that reminds operators of a pause.
const REMINDER: &str = "StillPaused";

/// Returns the state of a pause to save. `known` is the state saved before.
///
/// The state changes when a pause begins, when a reminder is due, and when another node gets the new revision. A node remains in
/// the state while its pod is briefly missing.
pub(super) fn memory(
    plan: &Plan,
    state: &RevisionState,
    known: Option<&ReportedPause>,
) -> Option<ReportedPause> {
    let stand = plan.pause.as_ref()?;
    let record = stand.record;
    // While the current revision is unknown, no node counts as running it. In that case, keep the saved nodes.
    let is_behind = matches!(state, RevisionState::Unknown(_)) && !stand.reminds;
    let covers = |known: &ReportedPause| {
        let mut newcomers = stand.newcomers.iter();
        known.more || newcomers.all(|name| known.newcomers.contains(name))
    };
    let same = known.filter(|known| known.record == record);
    match same.filter(|known| is_behind || covers(known)) {
        Some(known) => Some(known.clone()),
        None => Some(ReportedPause {
            record,
            newcomers: stand.newcomers.iter().take(NAMED).cloned().collect(),
            more: stand.newcomers.len() > NAMED,
        }),
    }
}

/// Returns the condition about a pause. `known` is the current condition. While the current revision is unknown, `known` is kept.
pub(super) fn to_condition(
    plan: &Plan,
    state: &RevisionState,
    memory: Option<&ReportedPause>,
    known: Option<&Condition>,
) -> Condition {
    let (Some(stand), Some(memory)) = (&plan.pause, memory) else {
        return condition(PAUSED_CONDITION, false, "NotPaused", "");
    };
    let revision = match (state, known.filter(|known| known.status == "True")) {
        (RevisionState::Current(revision), _) => format!("revision {revision}"),
        (RevisionState::Unknown(_), Some(known)) if !stand.reminds => return known.clone(),
        (RevisionState::Unknown(_), _) => "the new revision".to_owned(),
    };
    let names: Vec<&str> = memory.newcomers.iter().map(NodeName::as_str).collect();
    let meanwhile = if names.is_empty() {
        String::new()
    } else {
        format!(
            ". Updated during the pause: {}{}",
            names.join(", "),
            if memory.more { " and others" } else { "" }
        )
    };
    let message = format!(
        "{revision}: {}, since {}{meanwhile}",
        paused_words(stand.until),
        instant::words(stand.record.since)
    );
    Condition {
        last_transition: Some(Time(stand.record.since)),
        ..condition(PAUSED_CONDITION, true, "Paused", &message)
    }
}

/// Returns the Event that reminds operators of a pause, if it is due.
pub(super) fn reminder(plan: &Plan, revision: &str) -> Option<RolloutEvent> {
    let stand = plan.pause.as_ref().filter(|stand| stand.reminds)?;
    let days = stand.record.reminded;
    let note = format!("{revision}: {}", still_paused(plan, stand));
    Some(RolloutEvent {
        // A pause with an end needs no action by an operator, so its Event is not a Warning.
        warning: stand.until.is_none(),
        reason: REMINDER,
        note,
        mark: Some(format!(
            "paused-{:x}-{days}",
            stand.record.since.as_second()
        )),
        ..RolloutEvent::default()
    })
}
