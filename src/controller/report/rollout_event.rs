//! Content of an Event about a rollout.

/// Event about a change of a rollout's state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::controller) struct RolloutEvent {
    /// True for the Event type `Warning`, false for `Normal`.
    pub(in crate::controller) warning: bool,
    /// Reason of the Event.
    pub(in crate::controller) reason: &'static str,
    /// Note of the Event.
    pub(in crate::controller) note: String,
    /// Suffix for the name of the Event, which makes repetitions by any replica duplicates; `None`: the Event may be repeated.
    pub(in crate::controller) mark: Option<String>,
    /// Key that identifies a published Event until the DaemonSet shows the report, even if the note has changed meanwhile.
    pub(in crate::controller) news: Option<String>,
}

impl RolloutEvent {
    /// Returns true if this Event repeats `last`.
    pub(in crate::controller) fn repeats(&self, last: &Self) -> bool {
        self == last || self.news.is_some() && self.news == last.news
    }
}
