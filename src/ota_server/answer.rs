//! Answer to a node owner: a status, a text, and a reason for programs.
//!
//! Statuses and texts are those of OpenYurt, byte for byte (docs/reference/node-api.md). The reason in `X-OTA-Reason` is an
//! addition of yurt-ds, because OpenYurt answers many different cases with 403 and 500.

use http::StatusCode;

/// An answer with a text. `GET /pods` has another type of answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// HTTP status.
    pub(super) status: StatusCode,
    /// Text without a trailing newline.
    pub(super) text: String,
    /// Value of `X-OTA-Reason`, for programs.
    pub(super) reason: &'static str,
}

impl Answer {
    /// Creates an answer from its status, reason and text.
    pub(super) fn new(status: StatusCode, reason: &'static str, text: impl Into<String>) -> Self {
        Self {
            status,
            text: text.into(),
            reason,
        }
    }
}
