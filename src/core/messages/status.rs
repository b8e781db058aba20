//! Status sentences: the text of conditions about a rollout, with a reason from a closed list and the next steps.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::core::fleet::Fleet;
use crate::core::foreign::cut;
use crate::core::id::RevisionUnknown;
use crate::core::kind::SetKind;
use crate::core::names::PROGRESSING;
use crate::core::plan::{Phase, Stall};
use crate::core::words::{append, joined};

/// Reason for a rollout in which no further update begins before a wave opens.
pub const WAVE_NOT_OPEN: &str = "WaveNotOpen";

/// Reason for a rollout in which all remaining nodes wait for their maintenance windows.
pub(super) const OUT_OF_WINDOW: &str = "OutOfWindow";

/// Reason for a rollout in which all next nodes have to pull their images first.
pub(super) const PULL_PENDING: &str = "PullPending";

/// Reason for a rollout in which only nodes with a hold are left, and the holds will end. `ctl` uses it, but no condition.
pub const HELD: &str = "Held";

/// Reason for a rollout in which disruption budgets block every eviction.
pub const BLOCKED: &str = "BlockedByPDB";

/// Reason for a rollout that waits for the native controller.
pub const NATIVE_BEHIND: &str = "NativeControllerBehind";

/// Reason for a rollout in which the API server rejects all remaining writes.
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
    /// First part of the sentence, without the revision. It contains the next step if there is one.
    pub head: String,
    /// Fact: [`head`](Self::head) without next steps.
    pub fact: String,
    /// Further parts of the sentence, in order.
    pub clauses: Vec<Clause>,
    /// Next steps for the operator, best first.
    pub next: Vec<NextStep>,
}

/// Part of a status sentence after its head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Clause {
    /// Fact. It may be truncated.
    Fact(String),
    /// Next step. It is never truncated.
    Step(NextStep),
}

impl From<String> for Clause {
    fn from(fact: String) -> Self {
        Self::Fact(fact)
    }
}

impl fmt::Display for Clause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fact(fact) => f.write_str(fact),
            Self::Step(step) => step.fmt(f),
        }
    }
}

impl StatusSentence {
    pub(super) fn new(reason: &'static str, head: impl Into<String>) -> Self {
        let head = head.into();
        Self {
            reason,
            fact: head.clone(),
            head,
            clauses: Vec::new(),
            next: Vec::new(),
        }
    }

    /// Adds a next step to the list and to the sentence.
    pub(super) fn with_next(mut self, next: Option<NextStep>) -> Self {
        self.clauses.extend(next.clone().map(Clause::Step));
        self.next.extend(next);
        self
    }

    pub(super) fn with(mut self, facts: impl IntoIterator<Item = String>) -> Self {
        self.clauses.extend(facts.into_iter().map(Clause::Fact));
        self
    }

    pub(super) fn without_steps(&self) -> Self {
        let facts = self.clauses.iter();
        let facts = facts.filter(|clause| matches!(clause, Clause::Fact(_)));
        Self {
            head: self.fact.clone(),
            clauses: facts.cloned().collect(),
            ..self.clone()
        }
    }

    /// Returns the parts of the sentence after its head.
    pub(super) fn details(&self) -> impl Iterator<Item = String> {
        self.clauses.iter().map(ToString::to_string)
    }

    /// Returns the full text, without the revision.
    pub fn sentence(&self) -> String {
        joined([self.head.clone()].into_iter().chain(self.details()))
    }

    /// Returns the head and as many clauses as fit into `room` characters. Next steps are left out or complete, never truncated.
    pub fn short(&self, room: usize) -> String {
        // The head may contain a command, which would be useless if truncated. If the head is too long, use the fact alone.
        let head = if self.head.chars().count() < room {
            &self.head
        } else {
            &self.fact
        };
        let mut text = cut(head, room.saturating_sub(1)).into_owned();
        for clause in &self.clauses {
            let left = room.saturating_sub(text.chars().count() + ". ".len());
            match clause {
                _ if clause.to_string().chars().count() <= left => {
                    append(&mut text, &clause.to_string());
                }
                Clause::Fact(fact) if left >= LEAST => {
                    append(&mut text, &cut(fact, left - 1));
                    break;
                }
                Clause::Fact(_) | Clause::Step(_) => break,
            }
        }
        text
    }
}

/// Reason for a rollout that waits because the controller's data is too old.
pub const STALE_DATA: &str = "StaleData";

/// Reasons for a rollout that has begun and continues automatically.
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

    /// Returns true if the phase lasts until an operator acts.
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

/// Describes what the responsible controller has not done yet, so that the current revision is unknown.
pub fn behind_words(kind: SetKind, behind: RevisionUnknown) -> String {
    let controller = kind.controller();
    match behind {
        RevisionUnknown::NotObserved => {
            format!("{controller} has not observed the latest change")
        }
        RevisionUnknown::NoRevision => format!("{controller} has not created a ControllerRevision"),
        RevisionUnknown::Tie => format!("{controller} is merging equal ControllerRevisions"),
        RevisionUnknown::Mismatch => {
            "the newest ControllerRevision does not contain the current template yet".to_owned()
        }
        RevisionUnknown::UnknownRevision => {
            "the controller is reading the revision of a pod from the API server".to_owned()
        }
    }
}

/// Explains why the API server rejects the ControllerRevision for the template. `None` if it doesn't, or if Kubernetes creates the
/// ControllerRevisions.
pub(super) fn unrevised(fleet: &Fleet) -> Option<String> {
    let why = fleet.not_created.as_ref();
    let why = why.filter(|_| fleet.kind == SetKind::Advanced && fleet.revision_is_unknown())?;
    Some(format!(
        "the API server rejects the ControllerRevision: {why}"
    ))
}

/// Returns the remedy for a current revision that stays unknown.
pub fn behind_remedy(kind: SetKind, behind: RevisionUnknown) -> &'static str {
    match (behind, kind) {
        (RevisionUnknown::UnknownRevision, _) => {
            "check the log of the yurt-ds controller for errors about revisions"
        }
        (_, SetKind::Advanced) => {
            "check if the yurt-ds controller serves Advanced DaemonSets, and its log for rejected writes"
        }
        (_, SetKind::Native) => {
            "check if kube-controller-manager runs, and its log for rejected writes"
        }
    }
}

/// A next step. As text, it consists of the step, a colon and the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextStep {
    /// Action to take, or the purpose of the command.
    pub text: String,
    /// Command to run. It is never truncated or wrapped.
    pub command: Option<String>,
}

impl NextStep {
    /// Returns a next step without a command.
    pub fn plain(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            command: None,
        }
    }

    /// Returns a next step with a command. `text` is the purpose of the command.
    pub fn command(text: impl Into<String>, command: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            command: Some(command.into()),
        }
    }

    /// Returns the next step with `words` before its text.
    pub(super) fn after(self, words: &str) -> Self {
        Self {
            text: format!("{words}{}", self.text),
            ..self
        }
    }
}

impl fmt::Display for NextStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        match &self.command {
            Some(command) => write!(f, ": {command}"),
            None => Ok(()),
        }
    }
}

impl Serialize for NextStep {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
