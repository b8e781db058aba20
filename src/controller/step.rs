//! Main steps of a rollout, for notifications and traces.

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
    /// The rollout is complete.
    Complete,
}

/// State of a rollout in a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReportedState {
    /// Nothing is reported, the settings are invalid, or the current revision is unknown.
    Unknown,
    /// The rollout makes progress or waits.
    Moving,
    Stalled,
    Paused,
    Complete,
}

impl ReportedState {
    fn new(reported: &Reported) -> Self {
        match &*reported.reason {
            _ if reported.complete => Self::Complete,
            _ if reported.stalled_since.is_some() => Self::Stalled,
            "Paused" => Self::Paused,
            "" | "InvalidSettings" | "NativeControllerBehind" => Self::Unknown,
            _ => Self::Moving,
        }
    }
}

impl Step {
    /// Returns the step between two reports; `None` if the rollout is in the same state, or if a state is unknown.
    ///
    /// `has_outdated` is true if the second report is about outdated nodes. Without them, nothing starts: the pods of a new
    /// DaemonSet are only created.
    pub(super) fn between(before: &Reported, after: &Reported, has_outdated: bool) -> Option<Self> {
        use ReportedState::{Complete, Moving, Paused, Stalled, Unknown};
        let is_first = before.reason.is_empty();
        let same_revision = before.revision == after.revision;
        let same_reason = before.reason == after.reason;
        match (ReportedState::new(before), ReportedState::new(after)) {
            (_, Unknown) => None,
            (Complete, Complete) | (Paused, Paused) | (Moving, Moving) if same_revision => None,
            (Stalled, Stalled) if same_revision && same_reason => None,
            (_, Complete) => (!is_first).then_some(Self::Complete),
            (_, Stalled) => Some(Self::Stalled),
            (_, Paused) => Some(Self::Paused),
            (Stalled | Paused, Moving) if same_revision => Some(Self::Resumed),
            (Unknown, Moving) if same_revision && !is_first => None,
            (_, Moving) => has_outdated.then_some(Self::Started),
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

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    fn reported(revision: &str, reason: &str) -> Reported {
        let stalls = ["NoProgress", "PodsDoNotStart", "WritesRefused"];
        Reported {
            revision: Some(revision.into()),
            complete: reason == "Complete",
            reason: reason.into(),
            stalled_since: stalls.contains(&reason).then_some(Timestamp::UNIX_EPOCH),
            ..Reported::default()
        }
    }

    #[test]
    fn each_change_of_the_reported_state_is_one_step() {
        for (before, after, expected) in [
            (("a", "Complete"), ("b", "Progressing"), Some(Step::Started)),
            (
                ("a", "Complete"),
                ("b", "AwaitingOwners"),
                Some(Step::Started),
            ),
            (("b", "Progressing"), ("b", "StaleData"), None),
            (("b", "Progressing"), ("b", "WaveNotOpen"), None),
            (
                ("b", "Progressing"),
                ("b", "NoProgress"),
                Some(Step::Stalled),
            ),
            (("b", "NoProgress"), ("b", "NoProgress"), None),
            (
                ("b", "NoProgress"),
                ("b", "PodsDoNotStart"),
                Some(Step::Stalled),
            ),
            (
                ("b", "WritesRefused"),
                ("b", "Progressing"),
                Some(Step::Resumed),
            ),
            (
                ("b", "NoProgress"),
                ("b", "WaveNotOpen"),
                Some(Step::Resumed),
            ),
            (("b", "NoProgress"), ("b", "Complete"), Some(Step::Complete)),
            (
                ("b", "NoProgress"),
                ("a", "Progressing"),
                Some(Step::Started),
            ),
            (("b", "Progressing"), ("b", "Paused"), Some(Step::Paused)),
            (("b", "Paused"), ("b", "Paused"), None),
            (("b", "Paused"), ("b", "StaleData"), Some(Step::Resumed)),
            (("b", "InvalidSettings"), ("b", "Progressing"), None),
            (("b", "Progressing"), ("b", "InvalidSettings"), None),
            (("b", "Complete"), ("b", "Complete"), None),
            (("b", "Complete"), ("b", "Progressing"), Some(Step::Started)),
        ] {
            let (old, new) = (reported(before.0, before.1), reported(after.0, after.1));
            let found = Step::between(&old, &new, true);
            assert_eq!(found, expected, "{before:?} to {after:?}");
        }
    }

    #[test]
    fn the_first_report_of_a_daemonset_without_outdated_nodes_is_no_step() {
        let nothing = Reported::default();
        for reason in ["Progressing", "Complete"] {
            assert_eq!(Step::between(&nothing, &reported("a", reason), false), None);
        }
        let first = reported("a", "Progressing");
        let complete = reported("a", "Complete");
        assert_eq!(
            Step::between(&first, &complete, false),
            Some(Step::Complete)
        );
    }
}
