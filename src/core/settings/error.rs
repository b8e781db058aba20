//! Messages about settings: errors for invalid values, and notes about valid ones.

use std::fmt;
use std::time::Duration;

use crate::core::foreign::{SENTENCE, cut, quoted};
use crate::core::names::UPDATE_STRATEGY_TYPE_FIELD;

/// Invalid setting, with its value and the expected form. The `Display` text is one sentence with the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// Annotation or field that is invalid.
    pub key: String,
    /// Invalid value, truncated to a length that fits into an Event; empty if an object cannot be read.
    pub value: String,
    /// Problem and remedy, as text that continues the sentence "KEY is VALUE,".
    pub why: String,
    /// True if `spec` as a whole, or another object of the DaemonSet, is unreadable. Then the DaemonSet's pods and revisions may be
    /// unknown.
    pub is_object: bool,
}

/// Note about valid settings, which is reported once, by an Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// True for a mistake (Event type `Warning`), false for advice (`Normal`).
    pub warning: bool,
    /// Text of the note, in one sentence.
    pub text: String,
}

/// Reason why a value is invalid. The `Display` text continues the sentence "KEY is VALUE," and ends with the remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// A required value is missing, for example the name of a wave.
    Missing(Expected),
    /// The value is empty.
    Empty(Expected),
    /// The value begins or ends with white space. The parser doesn't guess what was meant.
    WhiteSpace(Expected),
    /// The value is not one of the expected words.
    Unknown(Expected),
    /// The value is a negative number.
    Negative(Expected),
    /// The value is zero, which is not allowed here.
    Zero(Expected),
    /// The number has a fraction.
    Fraction(Expected),
    /// The duration exceeds this limit.
    TooLong(Duration),
}

/// Description of the expected value, as advice that begins with "use".
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

    /// Returns the error for an unreadable part of a DaemonSet. `what` names the part: a field, or an object such as a pod.
    pub fn unreadable(what: &str, why: &str) -> Self {
        let why = format!("{why}; correct it: until then, yurt-ds changes no pod of the DaemonSet");
        Self {
            is_object: true,
            ..Self::new(what, "", why)
        }
    }

    /// Returns true if a native DaemonSet still has the update strategy `RollingUpdate` instead of `OnDelete`.
    ///
    /// Then the native controller replaces the pods itself. An Advanced DaemonSet may have either type.
    pub fn is_native_update(&self) -> bool {
        self.key == UPDATE_STRATEGY_TYPE_FIELD && *self.value == *"RollingUpdate"
    }

    /// Returns the consequence for the pods of the DaemonSet, as part of a message.
    pub fn consequence(&self) -> &'static str {
        if self.is_native_update() {
            "yurt-ds replaces no pods; Kubernetes' own rolling update replaces them and ignores the annotations"
        } else {
            "no pod is replaced until the settings are corrected"
        }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_object && self.value.is_empty() {
            return write!(f, "{} cannot be read: {}", self.key, self.why);
        }
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
    /// Returns the same error, with `expected` as the description of the expected value.
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
            Self::Missing(expected) => write!(f, "because it is not set; {expected}"),
            Self::Empty(expected) => write!(f, "which is empty; {expected}"),
            Self::WhiteSpace(expected) => {
                write!(
                    f,
                    "which has surrounding white space; remove it, and {expected}"
                )
            }
            Self::Unknown(expected) => write!(f, "which is not a valid value; {expected}"),
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
