//! What an owner hears: a status, a text, and a word for programs.
//!
//! Statuses and texts are those of OpenYurt, to the letter (docs/reference/node-api.md); the word in
//! `X-OTA-Reason` is ours, because OpenYurt says 403 and 500 to many different things.

use http::StatusCode;

/// An answer in words. (`GET /pods` has an answer of its own.)
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// The status.
    pub(super) status: StatusCode,
    /// The text, without a newline at its end.
    pub(super) text: String,
    /// For programs: `X-OTA-Reason`.
    pub(super) reason: &'static str,
}

impl Answer {
    /// An answer.
    pub(super) fn new(status: StatusCode, reason: &'static str, text: impl Into<String>) -> Self {
        Self {
            status,
            text: text.into(),
            reason,
        }
    }
}
