//! Reasons of conditions and words of phases, from closed lists, and the parts of sentences that several of them share.

use super::{NextStep, not_created};
use crate::core::fleet::Fleet;
use crate::core::foreign::cut;
use crate::core::id::RevisionUnknown;
use crate::core::kind::SetKind;
use crate::core::names::PROGRESSING;
use crate::core::plan::{Phase, Stall};

/// Reason while nothing moves before a wave opens.
pub const WAVE_NOT_OPEN: &str = "WaveNotOpen";

/// Reason while all nodes that are left wait for their maintenance windows.
pub(super) const OUT_OF_WINDOW: &str = "OutOfWindow";

/// Reason while all nodes that could be next pull their images first.
pub(super) const PULL_PENDING: &str = "PullPending";

/// Stands for the reason in a plan while nodes are left whose holds end; no condition has it.
pub const HELD: &str = "Held";

/// Reason while a disruption budget lets no pod go.
pub const BLOCKED: &str = "BlockedByPDB";

/// Reason while it waits for the native controller.
pub const NATIVE_BEHIND: &str = "NativeControllerBehind";

/// Reason while nothing else is left than what the API server refuses.
pub const WRITES_REFUSED: &str = "WritesRefused";

/// Said of a rollout that is complete without exception.
pub(super) const COMPLETE: &str = "complete";

/// Fewest characters of a clause that still say something.
const LEAST: usize = 32;

/// What is said of a rollout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusSentence {
    /// One word, from a closed list.
    pub reason: &'static str,
    /// The beginning of the sentence, without the revision that it is about.
    pub head: String,
    /// What else is to be said, each part after a semicolon.
    pub asides: String,
    /// The fact without the next steps; the same as [`head`](Self::head) where that names none.
    pub fact: String,
    /// What to do, the best first.
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

    /// Adds a next step, also to the sentence.
    pub(super) fn with_next(mut self, next: Option<NextStep>) -> Self {
        if let Some(step) = &next {
            self.head = format!("{}; {step}", self.head);
        }
        self.next.extend(next);
        self
    }

    /// One sentence, without the revision that it is about.
    pub fn sentence(&self) -> String {
        format!("{}{}", self.head, self.asides)
    }

    /// Returns what fits into so many characters: the head, and as much of the rest as has room. No command is cut.
    pub fn short(&self, room: usize) -> String {
        // Half a command is worse than none.
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

/// Reason of a rollout that waits for fresh data.
pub const STALE_DATA: &str = "StaleData";

/// Reasons of a rollout that has begun and goes on, or will by itself.
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
    /// Its word, from a closed list.
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

    /// Whether waiting is in vain: nothing changes before a person acts.
    pub fn needs_a_person(self) -> bool {
        matches!(
            self,
            Self::Stalled(_) | Self::Paused { until: None } | Self::Invalid
        )
    }
}

impl Stall {
    /// Its word.
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

/// What whoever makes revisions and pods has not done yet.
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

/// Why the template is in no ControllerRevision yet, where this controller has to put it there and is refused that; to follow what is
/// waited for.
pub(super) fn unrevised(fleet: &Fleet) -> String {
    let why = fleet.not_created.as_ref();
    match why.filter(|_| fleet.kind == SetKind::Advanced && fleet.revision_is_unknown()) {
        Some(why) => not_created::unrevised(why),
        None => String::new(),
    }
}

/// What ends that, when it lasts.
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
