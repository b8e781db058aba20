//! What was told in a condition: what is written takes a moment to show.

use crate::api::Condition;
use crate::core::RevisionState;
use crate::core::names::ROLLOUT_COMPLETE;

/// Whether these conditions say that the rollout of the current revision is complete.
pub(crate) fn was_complete(conditions: &[Condition], revision: &RevisionState) -> bool {
    let RevisionState::Current(revision) = revision else {
        return false;
    };
    let about = format!("revision {revision}:");
    let says_so = |told: &Condition| {
        told.kind == ROLLOUT_COMPLETE && told.status == "True" && told.message.starts_with(&about)
    };
    conditions.iter().any(says_so)
}

/// What was told last.
#[derive(Debug, Default)]
pub(super) enum Told<T> {
    /// Nothing by us: what stands on the DaemonSet counts.
    #[default]
    Nothing,
    /// This, also where the DaemonSet says something else so far.
    Record(Option<T>),
}

impl<T: Clone> Told<T> {
    /// What was told last, or else what `stands` on the DaemonSet.
    pub(super) fn or(&self, stands: impl FnOnce() -> Option<T>) -> Option<T> {
        match self {
            Self::Record(record) => record.clone(),
            Self::Nothing => stands(),
        }
    }
}
