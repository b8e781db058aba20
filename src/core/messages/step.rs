//! What a person can do about a rollout.

use std::fmt;

use serde::{Serialize, Serializer};

/// One thing to do. In a sentence or a document: the text, a colon, and the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextStep {
    /// What to do; of a command, what it is for.
    pub text: String,
    /// The command, which is never cut or wrapped.
    pub command: Option<String>,
}

impl NextStep {
    /// Returns a step for which there is no command.
    pub fn plain(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            command: None,
        }
    }

    /// Returns a command with what it is for.
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
