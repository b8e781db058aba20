//! What is said of pods that are taken back to the revision before the one that the guard stopped.

use std::fmt::Display;

use super::Notice;
use crate::core::messages::NOT_REVERTED;
use crate::core::remedy::way_on;
use crate::core::words::named;
use crate::core::{Fleet, NodeName, Phase, Plan};
use crate::k8s::Condition;

/// The Event for what is new in it since `before`, with the names of nodes.
pub(super) fn reversal(
    before: Option<&Condition>,
    (fleet, set): (&Fleet, &dyn Display),
    plan: &Plan,
) -> Option<Notice> {
    if !matches!(plan.phase, Phase::Stalled(_)) {
        return None;
    }
    let (reason, words, nodes) = plan.reversal.as_ref()?.told()?;
    let revision = &plan.record.as_ref()?.revision;
    let is_told = |before: &Condition| {
        before.message.starts_with(&format!("revision {revision}:"))
            && before.message.contains(&words)
    };
    if before.is_some_and(is_told) {
        return None;
    }
    let names = named(nodes.iter().map(NodeName::as_str), 0);
    let warning = reason == NOT_REVERTED;
    let next = match warning {
        true => format!("; {}", way_on(fleet, set)),
        false => String::new(),
    };
    Some(Notice {
        warning,
        reason,
        note: format!("revision {revision}: {words}: {names}{next}"),
        ..Notice::default()
    })
}
