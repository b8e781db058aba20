//! What was told in a condition: what is written takes a moment to show.

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
