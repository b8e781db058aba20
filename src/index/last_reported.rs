//! The last report: a write takes a moment to show in the status.

/// The last reported value.
///
/// Unlike a pending write it counts as long as this replica is the leader, because no other replica reports.
#[derive(Debug, Default)]
pub(super) enum LastReported<T> {
    /// This replica reported nothing: the status of the DaemonSet counts.
    #[default]
    Nothing,
    /// The reported value, even if the status of the DaemonSet still differs.
    Reported(Option<T>),
}

impl<T: Clone> LastReported<T> {
    /// Returns the last reported value, or else the value `stands` from the status.
    pub(super) fn or(&self, stands: impl FnOnce() -> Option<T>) -> Option<T> {
        match self {
            Self::Reported(record) => record.clone(),
            Self::Nothing => stands(),
        }
    }
}
