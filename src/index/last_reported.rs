//! What was reported in conditions last: what is written takes a moment to show.

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
