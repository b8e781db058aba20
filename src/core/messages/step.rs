//! Next steps that an operator can take for a rollout.

use std::fmt;

use serde::{Serialize, Serializer};

/// A next step. In its text form, the command follows the text and a colon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextStep {
    /// Action to take, or the purpose of the command.
    pub text: String,
    /// Command to run. It is never truncated or wrapped.
    pub command: Option<String>,
}

impl NextStep {
    /// Returns a next step without a command.
    pub fn plain(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            command: None,
        }
    }

    /// Returns a next step with a command; `text` is the purpose of the command.
    pub fn command(text: impl Into<String>, command: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            command: Some(command.into()),
        }
    }

    /// Returns the next step with `words` before its text.
    pub(super) fn after(self, words: &str) -> Self {
        Self {
            text: format!("{words}{}", self.text),
            ..self
        }
    }
}

impl fmt::Display for NextStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        match &self.command {
            Some(command) => write!(f, ": {command}"),
            None => Ok(()),
        }
    }
}

impl Serialize for NextStep {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
