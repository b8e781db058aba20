//! Value that this replica reported last. It counts instead of the value in the DaemonSet's status, even after the watch shows the
//! report.

/// Value in the last report of this replica, such as the guard's record.
///
/// It replaces the value in the status as long as this replica leads, because other replicas don't report in that time.
#[derive(Debug, Default)]
pub(super) enum LastReported<T> {
    /// This replica has reported nothing, so the value in the DaemonSet's status counts.
    #[default]
    Nothing,
    /// The reported value counts, even while the DaemonSet's status differs.
    Reported(Option<T>),
}

impl<T: Clone> LastReported<T> {
    /// Returns the reported value. If nothing was reported, returns `stands`, the value in the status.
    pub(super) fn or(&self, stands: impl FnOnce() -> Option<T>) -> Option<T> {
        match self {
            Self::Reported(record) => record.clone(),
            Self::Nothing => stands(),
        }
    }
}
