//! Error type of `ctl` commands.

use std::fmt;

use super::code::Code;
use crate::core::foreign::{TEXT, styled};

/// Error of a command: a sentence or two for the user, and an exit code for scripts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CliError {
    /// Exit code.
    pub code: Code,
    /// Description of what was tried, what happened, and what to do.
    pub text: String,
    /// API server's message if the caller lacks a right; `None` for other errors.
    pub refusal: Option<String>,
}

impl CliError {
    /// Creates an error with the given exit code.
    pub fn new(code: Code, text: impl Into<String>) -> Self {
        let text = text.into();
        Self {
            code,
            text,
            refusal: None,
        }
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Escape control characters, but keep line breaks: texts of `ctl` may have several lines.
        let shown = styled(&self.text, &["\n"]);
        match shown.char_indices().nth(TEXT) {
            Some((end, _)) => write!(f, "{}…", &shown[..end]),
            None => f.write_str(&shown),
        }
    }
}

impl std::error::Error for CliError {}
