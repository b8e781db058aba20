//! What is said of a pause: in the condition that remembers it, and once a day in an Event, so that nobody forgets it.

use super::conditions::condition;
use super::notice::Notice;
use crate::core::messages::{MEANWHILE, paused_words, still_paused};
use crate::core::names::PAUSED_CONDITION;
use crate::core::words::NAMED;
use crate::core::{NodeName, Plan, RevisionState};
use crate::k8s::Condition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Reason of the Event that reminds.
const REMINDER: &str = "StillPaused";

/// Stands for those who are not named there.
const OTHERS: &str = " and others";

/// The condition in which a pause is remembered; `before` is how it stands.
///
/// What it says changes with the settings, the revision and each reminder, and when a node that it does not name has come.
/// A node whose pod is away for a moment stays in it.
pub(super) fn sheet(
    plan: &Plan,
    revision: &str,
    state: &RevisionState,
    before: Option<&Condition>,
) -> Condition {
    let Some(stand) = &plan.pause else {
        return condition(PAUSED_CONDITION, false, "NotPaused", "");
    };
    let head = format!(
        "{revision}: {}; {}",
        paused_words(stand.until),
        stand.record
    );
    let names: Vec<&str> = stand.newcomers.iter().map(NodeName::as_str).collect();
    let covers = |rest: &str| match rest.strip_prefix(MEANWHILE) {
        None => rest.is_empty() && names.is_empty(),
        Some(told) => {
            let is_told = |name: &&str| told.split(", ").any(|known| known == *name);
            told.ends_with(OTHERS) || names.iter().all(is_told)
        }
    };
    let told = before.filter(|before| before.status == "True");
    let told = told.map(|before| before.message.as_str());
    let holds = |message: &&str| message.strip_prefix(&head).is_some_and(covers);
    // While the revision is not known, nobody can be said to have it.
    let is_behind = matches!(state, RevisionState::Unknown(_)) && !stand.reminds;
    let message = match told.filter(|message| is_behind || holds(message)) {
        Some(message) => message.to_owned(),
        None if names.is_empty() => head,
        None => {
            let others = if names.len() > NAMED { OTHERS } else { "" };
            let names = &names[..names.len().min(NAMED)];
            format!("{head}{MEANWHILE}{}{others}", names.join(", "))
        }
    };
    Condition {
        last_transition: Some(Time(stand.record.since)),
        ..condition(PAUSED_CONDITION, true, "Paused", &message)
    }
}

/// The reminder, when one is due.
pub(super) fn reminder(plan: &Plan, revision: &str) -> Option<Notice> {
    let stand = plan.pause.as_ref().filter(|stand| stand.reminds)?;
    let days = stand.record.reminded;
    let note = format!("{revision}: {}", still_paused(plan, stand));
    Some(Notice {
        // One that ends by itself needs nobody.
        warning: stand.until.is_none(),
        reason: REMINDER,
        note,
        mark: Some(format!(
            "paused-{:x}-{days}",
            stand.record.since.as_second()
        )),
        ..Notice::default()
    })
}
