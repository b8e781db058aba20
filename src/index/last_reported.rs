//! What was reported in conditions last: what is written takes a moment to show.

use crate::core::RevisionState;
use crate::core::names::ROLLOUT_COMPLETE;
use crate::k8s::Condition;

/// Whether these conditions say that the rollout of the current revision is complete.
pub(crate) fn was_complete(conditions: &[Condition], revision: &RevisionState) -> bool {
    let RevisionState::Current(revision) = revision else {
        return false;
    };
    let is_complete = |told: &Condition| told.kind == ROLLOUT_COMPLETE && told.status == "True";
    let mut complete = conditions.iter().filter(|told| is_complete(told));
    complete.any(|told| told_revision(told) == Some(revision.as_str()))
}

/// The revision that a condition is about.
pub(crate) fn told_revision(told: &Condition) -> Option<&str> {
    let (revision, _) = told.message.strip_prefix("revision ")?.split_once(':')?;
    Some(revision)
}

/// What was reported last. Not a pending write: it counts for as long as this replica leads, because nobody else reports.
#[derive(Debug, Default)]
pub(super) enum LastReported<T> {
    /// Nothing by us: what stands on the DaemonSet counts.
    #[default]
    Nothing,
    /// This, also where the DaemonSet says something else so far.
    Reported(Option<T>),
}

impl<T: Clone> LastReported<T> {
    /// What was reported last, or else what `stands` on the DaemonSet.
    pub(super) fn or(&self, stands: impl FnOnce() -> Option<T>) -> Option<T> {
        match self {
            Self::Reported(record) => record.clone(),
            Self::Nothing => stands(),
        }
    }
}
