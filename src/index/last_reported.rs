//! Value that was reported last. It bridges the time until the watch shows the write of the report.

/// Value that was reported last.
///
/// Unlike a pending write, it is used as long as this replica leads, because other replicas don't report in that time.
#[derive(Debug, Default)]
pub(super) enum LastReported<T> {
    /// This replica has reported nothing, so the status of the DaemonSet is used.
    #[default]
    Nothing,
    /// Reported value, which is used even while the status of the DaemonSet differs.
    Reported(Option<T>),
}

impl<T: Clone> LastReported<T> {
    /// Returns the value that was reported last. If there is none, returns `stands`, the value in the status.
    pub(super) fn or(&self, stands: impl FnOnce() -> Option<T>) -> Option<T> {
        match self {
            Self::Reported(record) => record.clone(),
            Self::Nothing => stands(),
        }
    }
}
