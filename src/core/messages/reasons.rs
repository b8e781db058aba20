//! Reasons of conditions and names of phases, from closed lists. Also shared parts of sentences.

use super::{NextStep, not_created};
use crate::core::fleet::Fleet;
use crate::core::foreign::cut;
use crate::core::id::RevisionUnknown;
use crate::core::kind::SetKind;
use crate::core::names::PROGRESSING;
use crate::core::plan::{Phase, Stall};

/// Reason of a rollout in which no further update begins before a wave opens.
pub const WAVE_NOT_OPEN: &str = "WaveNotOpen";

/// Reason of a rollout in which all remaining nodes wait for their maintenance windows.
pub(super) const OUT_OF_WINDOW: &str = "OutOfWindow";

/// Reason of a rollout in which all next nodes have to pull their images first.
pub(super) const PULL_PENDING: &str = "PullPending";

/// Internal reason of a rollout in which only nodes on hold are left and the holds will end. No condition uses it.
pub const HELD: &str = "Held";

/// Reason of a rollout in which disruption budgets block every eviction.
pub const BLOCKED: &str = "BlockedByPDB";

/// Reason of a rollout that waits for the native controller.
pub const NATIVE_BEHIND: &str = "NativeControllerBehind";

/// Reason of a rollout whose remaining writes are all rejected by the API server.
pub const WRITES_REFUSED: &str = "WritesRefused";

/// Sentence for a rollout that is complete without exceptions.
pub(super) const COMPLETE: &str = "complete";

/// Minimum length to which a clause is truncated, in characters.
const LEAST: usize = 32;

/// Status sentence about a rollout, in parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusSentence {
    /// Reason of the condition, from a closed list.
    pub reason: &'static str,
    /// First part of the sentence, without the revision.
    pub head: String,
    /// Further clauses of the sentence, each after a semicolon.
    pub asides: String,
    /// Fact: [`head`](Self::head) without next steps.
    pub fact: String,
    /// Next steps for the operator, best first.
    pub next: Vec<NextStep>,
}

impl StatusSentence {
    pub(super) fn new(reason: &'static str, head: impl Into<String>) -> Self {
        let head = head.into();
        Self {
            reason,
            fact: head.clone(),
            head,
            asides: String::new(),
            next: Vec::new(),
        }
    }

    /// Adds a next step to the list and to the sentence.
    pub(super) fn with_next(mut self, next: Option<NextStep>) -> Self {
        if let Some(step) = &next {
            self.head = format!("{}; {step}", self.head);
        }
        self.next.extend(next);
        self
    }

    /// Returns the full sentence, without the revision.
    pub fn sentence(&self) -> String {
        format!("{}{}", self.head, self.asides)
    }

    /// Returns the sentence in at most `room` characters: the head, and as many clauses as fit. Commands are never truncated.
    pub fn short(&self, room: usize) -> String {
        // The head may contain a command. If the head is too long, use the fact alone: a truncated command is useless.
        let head = if self.head.chars().count() < room {
            &self.head
        } else {
            &self.fact
        };
        let mut text = cut(head, room.saturating_sub(1)).into_owned();
        for clause in self.asides.split("; ").filter(|clause| !clause.is_empty()) {
            let left = room.saturating_sub(text.chars().count() + "; ".len());
            let is_command = clause.contains("yurt-ds ") || clause.contains("kubectl ");
            if clause.chars().count() <= left {
                text = format!("{text}; {clause}");
            } else if is_command || left < LEAST {
                break;
            } else {
                return format!("{text}; {}", cut(clause, left - 1));
            }
        }
        text
    }
}

/// Reason of a rollout that is suspended because the controller's data is too old.
pub const STALE_DATA: &str = "StaleData";

/// Reasons of a rollout that has begun and continues automatically.
pub const UNDER_WAY: [&str; 9] = [
    STALE_DATA,
    PROGRESSING,
    "Inconclusive",
    OUT_OF_WINDOW,
    PULL_PENDING,
    BLOCKED,
    WAVE_NOT_OPEN,
    NATIVE_BEHIND,
    WRITES_REFUSED,
];

impl Phase {
    /// Returns the name of the phase, from a closed list.
    pub fn word(self) -> &'static str {
        match self {
            Self::Complete { .. } => "Complete",
            Self::Progressing => "Progressing",
            Self::AwaitingOwners => "AwaitingOwners",
            Self::AwaitingDeletions => "AwaitingDeletions",
            Self::RevisionUnknown(_) => NATIVE_BEHIND,
            Self::Stale(_) => STALE_DATA,
            Self::Stalled(_) => "Stalled",
            Self::Paused { .. } => "Paused",
            Self::Invalid => "Invalid",
        }
    }

    /// Returns true if the phase lasts until a person acts.
    pub fn needs_a_person(self) -> bool {
        matches!(
            self,
            Self::Stalled(_) | Self::Paused { until: None } | Self::Invalid
        )
    }
}

impl Stall {
    /// Returns the condition's reason for the stall.
    pub fn reason(self) -> &'static str {
        match self {
            Self::FailedByRevision => "FailedByRevision",
            Self::ReplacedTwice => "ReplacedTwice",
            Self::PodsDoNotStart => "PodsDoNotStart",
            Self::ImagesNotPulled => "ImagesNotPulled",
            Self::WindowNeverOpens => "WindowNeverOpens",
            Self::PodsNotCreated => "PodsNotCreated",
            Self::PodsKeptAway => "PodsKeptAway",
            Self::WritesRefused => WRITES_REFUSED,
            Self::NoProgress => "NoProgress",
            Self::HookPending => "HookPending",
            Self::BlockedByPdb => BLOCKED,
            Self::NativeControllerBehind => NATIVE_BEHIND,
        }
    }
}

/// Describes the step that the responsible controller has not taken yet, so that the current revision is unknown.
pub fn behind_words(kind: SetKind, behind: RevisionUnknown) -> String {
    let controller = kind.controller();
    match behind {
        RevisionUnknown::NotObserved => {
            format!("{controller} has not observed the latest change")
        }
        RevisionUnknown::NoRevision => format!("{controller} has not made a ControllerRevision"),
        RevisionUnknown::Tie => format!("{controller} is merging equal ControllerRevisions"),
        RevisionUnknown::Mismatch => {
            "the newest ControllerRevision does not hold the present template yet".to_owned()
        }
        RevisionUnknown::UnknownRevision => {
            "a pod carries a revision that has to be looked up".to_owned()
        }
    }
}

/// Explains why the API server rejects the ControllerRevision for the template, if this controller has to create it.
///
/// The text follows a description of the missing revision.
pub(super) fn unrevised(fleet: &Fleet) -> String {
    let why = fleet.not_created.as_ref();
    match why.filter(|_| fleet.kind == SetKind::Advanced && fleet.revision_is_unknown()) {
        Some(why) => not_created::unrevised(why),
        None => String::new(),
    }
}

/// Returns the remedy if the current revision remains unknown.
pub fn behind_remedy(kind: SetKind, behind: RevisionUnknown) -> &'static str {
    match (behind, kind) {
        (RevisionUnknown::UnknownRevision, _) => {
            "see in the log of the yurt-ds controller why it cannot read that revision"
        }
        (_, SetKind::Advanced) => {
            "see whether the yurt-ds controller serves Advanced DaemonSets, and its log for rejected writes"
        }
        (_, SetKind::Native) => {
            "see whether kube-controller-manager runs, and its log for rejected writes"
        }
    }
}
