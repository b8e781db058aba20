//! What is told in an Event.

/// A change of state worth an Event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::controller) struct RolloutEvent {
    /// Event type `Warning` rather than `Normal`.
    pub(in crate::controller) warning: bool,
    /// Event reason.
    pub(in crate::controller) reason: &'static str,
    /// One sentence.
    pub(in crate::controller) note: String,
    /// What makes it the same Event when it is said again, also by another replica; `None`: it may be said twice.
    pub(in crate::controller) mark: Option<String>,
    /// What makes it the same news as one of a moment ago that does not show yet, although the words are others by now.
    pub(in crate::controller) news: Option<String>,
}

impl RolloutEvent {
    /// Whether `told` said this already.
    pub(in crate::controller) fn repeats(&self, told: &Self) -> bool {
        self == told || self.news.is_some() && self.news == told.news
    }
}
