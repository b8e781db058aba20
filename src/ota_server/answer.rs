//! Answer to a node owner: a status, a text, and a reason for programs.
//!
//! Statuses and texts are the same as OpenYurt's, byte for byte (docs/reference/node-api.md). OpenYurt answers many different cases
//! with 403 and 500, so yurt-ds adds the reason in `X-OTA-Reason`.

use http::StatusCode;

/// Answer that consists of a text. Lists of pods have another type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    /// Text without a trailing newline.
    pub(super) text: String,
    /// Value of `X-OTA-Reason`, for programs.
    pub(super) reason: &'static str,
}

impl Answer {
    pub(super) fn new(status: StatusCode, reason: &'static str, text: impl Into<String>) -> Self {
        Self {
            status,
            text: text.into(),
            reason,
        }
    }
}
