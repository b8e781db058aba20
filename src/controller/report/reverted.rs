//! What is said of pods that are taken back to the revision before the one that the guard stopped.

use super::Notice;
use crate::api::Condition;
use crate::core::words::named;
use crate::core::{NodeName, Phase, Plan, Reversal};

/// What is said of it after the words about the stop. It changes when it begins and ends, not with every node.
pub(super) fn reversal_words(plan: &Plan) -> String {
    let said = plan.reversal.as_ref().and_then(said);
    said.map_or_else(String::new, |(_, words, _)| format!(". {words}"))
}

/// The Event for what is new in it since `before`, with the names of nodes.
pub(super) fn reversal(before: Option<&Condition>, plan: &Plan) -> Option<Notice> {
    if !matches!(plan.phase, Phase::Stalled(_)) {
        return None;
    }
    let (reason, words, nodes) = said(plan.reversal.as_ref()?)?;
    let revision = &plan.record.as_ref()?.revision;
    let is_told = |before: &Condition| {
        before.message.starts_with(&format!("revision {revision}:"))
            && before.message.contains(&words)
    };
    if before.is_some_and(is_told) {
        return None;
    }
    let names = named(nodes.iter().map(NodeName::as_str), 0);
    Some(Notice {
        warning: reason == NOT_REVERTED,
        reason,
        note: format!("revision {revision}: {words}: {names}"),
        mark: None,
    })
}

/// Reason of the Event when nodes keep the stopped revision.
const NOT_REVERTED: &str = "NotReverted";

/// The reason of the Event, the words, and whom they are about.
fn said(reversal: &Reversal) -> Option<(&'static str, String, &[NodeName])> {
    let Reversal {
        to,
        under_way,
        done,
        stuck,
        ..
    } = reversal;
    let to = to.as_ref().map_or("an older one", |to| to.as_str());
    if !under_way.is_empty() {
        let words = format!("RevertInPlace: pods that have it are taken back in place to {to}");
        return Some(("Reverting", words, under_way));
    }
    if !stuck.is_empty() {
        let why = reversal.why_words();
        let words = format!(
            "RevertInPlace is not possible on nodes that have it, and nothing is done there: {why}; go back with \
             yurt-ds ctl undo"
        );
        return Some((NOT_REVERTED, words, stuck));
    }
    let words =
        format!("RevertInPlace: no node that answers has it any more; taken back in place to {to}");
    (!done.is_empty()).then_some(("Reverted", words, done))
}
