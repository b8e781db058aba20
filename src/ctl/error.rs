//! Why a command has no answer.

use std::fmt;

use super::code::Code;

/// Why there is no answer: a sentence or two for a person, and an exit code for a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CliError {
    /// The exit code.
    pub code: Code,
    /// What was tried, what happened, and what to do.
    pub text: String,
}

impl CliError {
    /// An error with that code.
    pub fn new(code: Code, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { code, text }
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for CliError {}
