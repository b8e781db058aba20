//! Next steps that a person can take for a rollout.

use std::fmt;

use serde::{Serialize, Serializer};

/// A next step. Its text form is the text, a colon and the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextStep {
    /// Action, or the purpose of the command.
    pub text: String,
    /// Command, which is never truncated or wrapped.
    pub command: Option<String>,
}

impl NextStep {
    /// Returns a step without a command.
    pub fn plain(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            command: None,
        }
    }

    /// Returns a command with its purpose.
    pub fn command(text: impl Into<String>, command: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            command: Some(command.into()),
        }
    }

    /// Returns the step with words before it.
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
