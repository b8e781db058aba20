//! Why a command has no answer.

use std::fmt;

use super::code::Code;
use crate::core::foreign::{TEXT, styled};

/// Why there is no answer: a sentence or two for a person, and an exit code for a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CliError {
    /// The exit code.
    pub code: Code,
    /// What was tried, what happened, and what to do.
    pub text: String,
    /// The API server's words when the caller lacks a right; `None` for any other error.
    pub refusal: Option<String>,
}

impl CliError {
    /// An error with that code.
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
        // Sentences of its own stand on lines of their own.
        let shown = styled(&self.text, &["\n"]);
        match shown.char_indices().nth(TEXT) {
            Some((end, _)) => write!(f, "{}…", &shown[..end]),
            None => f.write_str(&shown),
        }
    }
}

impl std::error::Error for CliError {}
