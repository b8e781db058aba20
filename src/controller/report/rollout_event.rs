//! Content of an Event about a rollout.

/// A change of state worth an Event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::controller) struct RolloutEvent {
    /// True for the Event type `Warning`, false for `Normal`.
    pub(in crate::controller) warning: bool,
    /// Reason of the Event.
    pub(in crate::controller) reason: &'static str,
    /// Note of the Event, one sentence.
    pub(in crate::controller) note: String,
    /// Identifies repetitions of the Event, also by other replicas; `None`: it may be repeated.
    pub(in crate::controller) mark: Option<String>,
    /// Identifies an Event that was just published and doesn't show yet, even if its note has changed since.
    pub(in crate::controller) news: Option<String>,
}

impl RolloutEvent {
    /// Returns true if `told` already reported this.
    pub(in crate::controller) fn repeats(&self, told: &Self) -> bool {
        self == told || self.news.is_some() && self.news == told.news
    }
}
