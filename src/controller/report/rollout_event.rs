//! Content of an Event about a rollout.

/// Event about a change of a rollout's state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::controller) struct RolloutEvent {
    /// True for the Event type `Warning`, false for `Normal`.
    pub(in crate::controller) warning: bool,
    pub(in crate::controller) reason: &'static str,
    pub(in crate::controller) note: String,
    /// Suffix of the Event's name. The API server then rejects the same Event from another replica as a duplicate. `None`: the
    /// Event may be repeated.
    pub(in crate::controller) mark: Option<String>,
    /// Key of what the Event reports. Of two Events with the same key, the second is not published, even if its note differs. This
    /// holds until the DaemonSet's conditions show the report.
    pub(in crate::controller) news: Option<String>,
}

impl RolloutEvent {
    /// Returns true if `last` has the same content or the same `news` key.
    pub(in crate::controller) fn repeats(&self, last: &Self) -> bool {
        self == last || self.news.is_some() && self.news == last.news
    }
}
