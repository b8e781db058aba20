//! Raw values of settings, and value types that several settings share.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde_json::{Value, json};

use super::error::{Expected, Invalid, ParseError};
use crate::core::selector::{Selector, is_label_key};

pub(super) const SHARE: Expected =
    Expected("use a number of nodes such as 3 or a percentage such as 10%");
const DURATION: Expected = Expected("use a duration such as 30s or 5m");
const SELECTOR: Expected = Expected(
    "use a label selector for nodes such as pool=canary,zone in (a,b), or a LabelSelector in JSON (matchLabels, matchExpressions)",
);
const LABEL_KEY: Expected = Expected("use a node label key such as topology.kubernetes.io/zone");
const COUNT: Expected = Expected("use a whole number, at least 1");

/// Maximum length of a setting, in bytes. In memory, its parsed value can be twenty times as large.
pub(crate) const LONGEST: usize = 8 << 10;

/// A raw value of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Written<'a> {
    /// Name for messages: the key of an annotation or the path of a field.
    pub(super) name: &'a str,
    /// Raw text. If a field is not a string, the text is JSON.
    pub(super) text: &'a str,
}

impl Written<'_> {
    pub(super) fn parse<T: FromStr<Err = ParseError>>(&self) -> Result<T, Invalid> {
        self.read(str::parse)
    }

    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(&str) -> Result<T, ParseError>,
    ) -> Result<T, Invalid> {
        read(self.bounded()?).map_err(|flaw| self.refused(flaw.to_string()))
    }

    /// Returns the text of the value, or an error if it is too long.
    pub(super) fn bounded(&self) -> Result<&str, Invalid> {
        if self.text.len() > LONGEST {
            Err(self.refused(format!("which is longer than {LONGEST} bytes; shorten it")))
        } else {
            Ok(self.text)
        }
    }

    /// Returns an error for this value. `why` continues the sentence "KEY is VALUE,".
    pub(super) fn refused(&self, why: impl Into<String>) -> Invalid {
        Invalid::new(self.name, self.text, why)
    }
}

/// Absolute number, or percentage of the targeted nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntOrPercent {
    /// Number of nodes.
    Number(u32),
    /// Percentage of the targeted nodes.
    Percent(u32),
}

impl IntOrPercent {
    pub(super) const NONE: Self = Self::Number(0);

    /// Returns the number of nodes out of `targeted`, at most `targeted`. Percentages are rounded up.
    ///
    /// So the result is zero only if the value or `targeted` is zero.
    pub fn resolve(self, targeted: usize) -> usize {
        let nodes = match self {
            Self::Number(nodes) => nodes as usize,
            Self::Percent(percent) => {
                let hundredths = (targeted as u128) * u128::from(percent);
                usize::try_from(hundredths.div_ceil(100)).unwrap_or(usize::MAX)
            }
        };
        nodes.min(targeted)
    }

    /// Returns the number of nodes with percentages rounded down, as `partition` requires; otherwise as [`Self::resolve`].
    pub fn resolve_down(self, targeted: usize) -> usize {
        match self {
            Self::Number(_) => self.resolve(targeted),
            Self::Percent(percent) => {
                let nodes = (targeted as u128) * u128::from(percent) / 100;
                usize::try_from(nodes).unwrap_or(usize::MAX).min(targeted)
            }
        }
    }

    /// Returns true for `0` and `0%`.
    pub fn is_zero(self) -> bool {
        matches!(self, Self::Number(0) | Self::Percent(0))
    }

    /// Returns the value as a field of Kubernetes or Kruise. Percentages are limited to 100 %.
    pub fn to_field(self) -> Value {
        match self {
            Self::Number(nodes) => json!(nodes.min(i32::MAX.unsigned_abs())),
            Self::Percent(percent) => json!(format!("{}%", percent.min(100))),
        }
    }

    /// Parses a value that must not be zero.
    pub(super) fn above_zero(text: &str) -> Result<Self, ParseError> {
        match text.parse::<Self>()? {
            share if share.is_zero() => Err(ParseError::Zero(SHARE)),
            share => Ok(share),
        }
    }
}

impl FromStr for IntOrPercent {
    type Err = ParseError;

    /// Parses ASCII digits, optionally followed by `%`. A number that is too large becomes the maximum, because both mean all
    /// nodes.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let text = bare(text, SHARE)?;
        match text.strip_suffix('%') {
            Some(percent) => whole(percent).map(Self::Percent),
            None => whole(text).map(Self::Number),
        }
    }
}

fn whole(digits: &str) -> Result<u32, ParseError> {
    let only_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if only_digits(digits) {
        return Ok(digits.parse().unwrap_or(u32::MAX));
    }
    let (sign, size) = match digits.strip_prefix('-') {
        Some(size) => (true, size),
        None => (false, digits),
    };
    Err(match size.split_once('.') {
        None if sign && only_digits(size) => ParseError::Negative(SHARE),
        Some((a, b)) if only_digits(a) && only_digits(b) => ParseError::Fraction(SHARE),
        _ => ParseError::Unknown(SHARE),
    })
}

impl fmt::Display for IntOrPercent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(nodes) => write!(f, "{nodes}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// Rejects empty values, and white space at the beginning or end. Such mistakes are hard to see.
pub(super) fn bare(text: &str, expected: Expected) -> Result<&str, ParseError> {
    if text.is_empty() {
        Err(ParseError::Empty(expected))
    } else if text.trim().len() != text.len() {
        Err(ParseError::WhiteSpace(expected))
    } else {
        Ok(text)
    }
}

/// Parses one of the given words, ignoring case.
pub(super) fn word<T>(
    text: &str,
    words: impl IntoIterator<Item = (&'static str, T)>,
    expected: Expected,
) -> Result<T, ParseError> {
    let text = bare(text, expected)?;
    let mut words = words.into_iter();
    let found = words.find(|(word, _)| text.eq_ignore_ascii_case(word));
    found
        .map(|(_, value)| value)
        .ok_or(ParseError::Unknown(expected))
}

/// Parses a selector of nodes, in the syntax of `kubectl -l` or as the JSON of a LabelSelector.
pub(super) fn selector(text: &str) -> Result<Selector, ParseError> {
    let text = bare(text, SELECTOR)?;
    let read = if text.starts_with('{') {
        let json = serde_json::from_str(text).ok();
        json.and_then(|json| Selector::from_written_json(&json).ok())
    } else {
        Selector::from_query(text).ok()
    };
    read.ok_or(ParseError::Unknown(SELECTOR))
}

/// Parses a label key.
pub(super) fn label_key(text: &str) -> Result<&str, ParseError> {
    let key = bare(text, LABEL_KEY)?;
    is_label_key(key)
        .then_some(key)
        .ok_or(ParseError::Unknown(LABEL_KEY))
}

/// Parses a number in ASCII digits, at least 1. A number that is too large becomes the maximum.
pub(super) fn count(text: &str) -> Result<usize, ParseError> {
    let text = bare(text, COUNT)?;
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        match text.parse().unwrap_or(usize::MAX) {
            0 => Err(ParseError::Zero(COUNT)),
            count => Ok(count),
        }
    } else {
        Err(ParseError::Unknown(COUNT))
    }
}

/// Parses a duration such as `30s` or `1m 30s`, at most `limit`.
pub(super) fn duration(text: &str, limit: Duration) -> Result<Duration, ParseError> {
    let text = bare(text, DURATION)?;
    match humantime::parse_duration(text) {
        Ok(duration) if duration <= limit => Ok(duration),
        Ok(_) => Err(ParseError::TooLong(limit)),
        Err(humantime::DurationError::NumberOverflow) => Err(ParseError::TooLong(limit)),
        Err(_) => Err(ParseError::Unknown(DURATION)),
    }
}
