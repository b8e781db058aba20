//! Messages about pods that are rolled back. The guard stops a revision when too many nodes fail with it, and may then roll its
//! pods back.

use std::fmt::Display;

use super::RolloutEvent;
use crate::core::messages::NOT_REVERTED;
use crate::core::remedy::other_revision;
use crate::core::rollout_state::Reported;
use crate::core::words::{joined, named};
use crate::core::{Fleet, NodeName, Phase, Plan, ReversalStage};

/// Returns the Event about the current stage of the rollback, if the report `known` doesn't contain that stage. The Event names the
/// nodes.
pub(super) fn reversal(
    known: &Reported,
    fleet: &Fleet,
    set: &dyn Display,
    plan: &Plan,
) -> Option<RolloutEvent> {
    if !matches!(plan.phase, Phase::Stalled(_)) {
        return None;
    }
    let reversal = plan.reversal.as_ref()?;
    let (reason, words, nodes) = reversal.event()?;
    let revision = &plan.record.as_ref()?.revision;
    let stage = reversal.stage().map(ReversalStage::word);
    if known.revision.as_ref() == Some(revision) && known.reversal.as_deref() == stage {
        return None;
    }
    let names = named(nodes.iter().map(NodeName::as_str), 0);
    let warning = reason == NOT_REVERTED;
    let next = warning.then(|| other_revision(fleet, set));
    Some(RolloutEvent {
        warning,
        reason,
        note: joined(
            [Some(format!("revision {revision}: {words}: {names}")), next]
                .into_iter()
                .flatten(),
        ),
        ..RolloutEvent::default()
    })
}
