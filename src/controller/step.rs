//! Main steps of a rollout, for notifications and traces.

use super::report::{RolloutEvent, RolloutFacts};
use crate::core::rollout_state::Reported;

/// Main step of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A revision begins to roll out.
    Started,
    /// The rollout continues after a stall or a pause.
    Resumed,
    /// The rollout needs an operator.
    Stalled,
    /// The rollout is paused.
    Paused,
    /// All online nodes run the revision.
    Complete,
}

impl Step {
    /// Returns the step that an Event reports; `None` if it reports another fact. `before` is the previous report.
    pub(super) fn of_event(
        event: &RolloutEvent,
        before: &Reported,
        facts: &RolloutFacts,
    ) -> Option<Self> {
        let was_held = before.stalled_since.is_some() || *before.reason == *"Paused";
        match event.reason {
            "RolloutStarted" if was_held && before.revision == facts.revision => {
                Some(Self::Resumed)
            }
            "RolloutStarted" => Some(Self::Started),
            "RolloutStalled" => Some(Self::Stalled),
            "RolloutPaused" => Some(Self::Paused),
            "RolloutComplete" => Some(Self::Complete),
            _ => None,
        }
    }

    /// Returns the name of the step in notifications and traces.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Resumed => "resumed",
            Self::Stalled => "stalled",
            Self::Paused => "paused",
            Self::Complete => "complete",
        }
    }
}
