//! What is said of settings: why a value cannot be used, and what the owner should know of those that can.

use std::fmt;
use std::time::Duration;

use crate::core::foreign::{SENTENCE, cut, quoted};
use crate::core::names::UPDATE_STRATEGY_TYPE_FIELD;

/// A setting that cannot be used: key, value and what was expected. Its `Display` is one sentence with the cure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// The annotation or field.
    pub key: String,
    /// Its value as found, cut to a length that fits into an Event.
    pub value: String,
    /// What is wrong and the cure; continues the sentence "KEY is VALUE, …".
    pub why: String,
    /// True if an object or all of `spec` is unreadable, not one setting. The pods and their revisions may then be unknown too.
    pub is_object: bool,
}

/// Something about valid settings that the owner should know, once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Whether it is a mistake (Event type `Warning`) or advice (`Normal`).
    pub warning: bool,
    /// One sentence.
    pub text: String,
}

/// Why a value cannot be used. Its `Display` continues the sentence "KEY is VALUE, …" and ends with the cure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// It is not there.
    Missing(Expected),
    /// There is nothing in it.
    Empty(Expected),
    /// It starts or ends with white space; nobody guesses what was meant.
    WhiteSpace(Expected),
    /// It is something else.
    Unknown(Expected),
    /// It is below zero.
    Negative(Expected),
    /// It is zero, where that means nothing.
    Zero(Expected),
    /// It has a fraction.
    Fraction(Expected),
    /// A duration above the limit.
    TooLong(Duration),
}

/// What was expected instead, as an advice: "use …".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected(pub &'static str);

impl Invalid {
    pub(super) fn new(key: &str, value: &str, why: impl Into<String>) -> Self {
        Self {
            key: cut(key, SENTENCE).into_owned(),
            value: quoted(value),
            why: cut(&why.into(), SENTENCE).into_owned(),
            is_object: false,
        }
    }

    /// Something of a DaemonSet that cannot be read: `what` is a field, or an object that belongs to it.
    pub fn unreadable(what: &str, why: &str) -> Self {
        let why = format!("{why}: correct or delete it, the DaemonSet is left alone until then");
        Self {
            is_object: true,
            ..Self::new(what, "unreadable", why)
        }
    }

    /// Whether it is `spec.updateStrategy` that is not `OnDelete`: then the native controller replaces the pods. Of an Advanced
    /// DaemonSet only what is neither of both types cannot be used.
    pub fn is_native_update(&self) -> bool {
        self.key == UPDATE_STRATEGY_TYPE_FIELD && *self.value == *"RollingUpdate"
    }

    /// What follows for the pods.
    pub fn consequence(&self) -> &'static str {
        if self.is_native_update() {
            "yurt-ds replaces nothing; Kubernetes' own rolling update does, whatever the annotations say"
        } else {
            "nothing is replaced before the settings are corrected"
        }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {:?}, {}", self.key, self.value, self.why)
    }
}

impl Note {
    pub(super) fn advice(text: String) -> Self {
        Self::new(false, &text)
    }

    pub(in crate::core) fn warning(text: String) -> Self {
        Self::new(true, &text)
    }

    fn new(warning: bool, text: &str) -> Self {
        let text = cut(text, SENTENCE).into_owned();
        Self { warning, text }
    }
}

impl ParseError {
    /// The same of a value of another kind.
    pub(super) fn expecting(self, expected: Expected) -> Self {
        match self {
            Self::Missing(_) => Self::Missing(expected),
            Self::Empty(_) => Self::Empty(expected),
            Self::WhiteSpace(_) => Self::WhiteSpace(expected),
            Self::Unknown(_) => Self::Unknown(expected),
            Self::Negative(_) => Self::Negative(expected),
            Self::Zero(_) => Self::Zero(expected),
            Self::Fraction(_) => Self::Fraction(expected),
            Self::TooLong(limit) => Self::TooLong(limit),
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(expected) => write!(f, "which is missing; {expected}"),
            Self::Empty(expected) => write!(f, "which is empty; {expected}"),
            Self::WhiteSpace(expected) => {
                write!(
                    f,
                    "which has surrounding white space: remove it; {expected}"
                )
            }
            Self::Unknown(expected) => write!(f, "which is not known here; {expected}"),
            Self::Negative(expected) => write!(f, "which is negative; {expected}"),
            Self::Zero(expected) => write!(f, "which is zero; {expected}"),
            Self::Fraction(expected) => write!(f, "which is not a whole number; {expected}"),
            Self::TooLong(limit) => write!(
                f,
                "which is too long; use at most {}",
                humantime::format_duration(*limit)
            ),
        }
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}
