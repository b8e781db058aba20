//! How single values are spelled, and what is wrong with those that cannot be used.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::surge::is_surging;
use super::{Disruption, Mode, Pause, Predownload, RollingUpdateType, Share};
use crate::core::selector::{Selector, is_label_key};

/// Why a value cannot be used. Its `Display` continues the sentence "KEY is VALUE, …" and ends with the cure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
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

/// What was expected instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// A [`Mode`].
    Mode,
    /// A [`Share`].
    Share,
    /// A [`Pause`] or none.
    Pause,
    /// A duration.
    Duration,
    /// A label selector over nodes.
    Selector,
    /// A [`Predownload`].
    Predownload,
    /// A [`Disruption`].
    Disruption,
    /// The key of a node label.
    LabelKey,
    /// A count from one upward.
    Count,
    /// A [`RollingUpdateType`].
    RollingUpdateType,
    /// A list of waves.
    Waves,
    /// An entry of it.
    Wave,
    /// The name of a wave.
    WaveName,
    /// The nodes of a wave.
    WaveSelector,
    /// Who lets a wave open.
    Approve,
    /// Whether a wave may match no node.
    AllowEmpty,
    /// Waves that may open.
    Approvals,
}

impl Flaw {
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

impl fmt::Display for Flaw {
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
        f.write_str(match self {
            Self::Mode => {
"use AdvancedRollingUpdate (or its alias auto), SurgingRollingUpdate or OTA"
},
            Self::Share => "use a number of nodes such as 3 or a percentage such as 10%",
            Self::Pause => {
                "use true, false, or the time until which to pause such as 2030-01-31T18:00:00Z"
            }
            Self::RollingUpdateType => "use Standard or InPlaceIfPossible",
            Self::Duration => "use a duration such as 30s or 5m",
            Self::LabelKey => {
                "use the key of a node label such as topology.kubernetes.io/zone"
            }
            Self::Waves => {
                "use a YAML or JSON list of {name, selector, maxUnavailable, soak, approve, allowEmpty}"
            }
            Self::Wave => {
                "use an object with name, selector, maxUnavailable, soak, approve and allowEmpty"
            }
            Self::WaveName => {
                "use at most 63 letters, digits, -, _ and ., and not rest, which is the name of the last wave"
            }
            Self::WaveSelector => {
                "use a label selector over nodes such as pool=canary, a LabelSelector object (matchLabels, matchExpressions), or {} for every node"
            }
            Self::Approve => "use manual, or leave it out",
            Self::AllowEmpty => "use true or false",
            Self::Approvals => "use WAVE@HASH such as canary@5d4f8c7b9, separated by commas",
            Self::Count => "use a whole number from 1 upward",
            Self::Selector => {
                "use a label selector over nodes such as pool=canary,zone in (a,b) or the JSON of a LabelSelector (matchLabels, matchExpressions)"
            }
            Self::Predownload => "use required or best-effort",
            Self::Disruption => "use delete or evict",
        })
    }
}

/// Refuses what is empty or surrounded by white space, the two slips that look like nothing.
fn bare(text: &str, expected: Expected) -> Result<&str, Flaw> {
    if text.is_empty() {
        Err(Flaw::Empty(expected))
    } else if text.trim().len() != text.len() {
        Err(Flaw::WhiteSpace(expected))
    } else {
        Ok(text)
    }
}

impl Mode {
    /// Every mode.
    pub const ALL: [Self; 2] = [Self::AdvancedRollingUpdate, Self::Ota];
}

impl FromStr for Mode {
    type Err = Flaw;

    /// Any letter case; `auto` is an exact synonym of `AdvancedRollingUpdate`, and `SurgingRollingUpdate` one with another
    /// default of `max-surge`.
    fn from_str(text: &str) -> Result<Self, Flaw> {
        let text = bare(text, Expected::Mode)?;
        let is = |word: &str| text.eq_ignore_ascii_case(word);
        if is("AdvancedRollingUpdate") || is("auto") || is_surging(text) {
            Ok(Self::AdvancedRollingUpdate)
        } else if is("OTA") {
            Ok(Self::Ota)
        } else {
            Err(Flaw::Unknown(Expected::Mode))
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AdvancedRollingUpdate => "AdvancedRollingUpdate",
            Self::Ota => "OTA",
        })
    }
}

impl FromStr for Disruption {
    type Err = Flaw;

    /// Any letter case.
    fn from_str(text: &str) -> Result<Self, Flaw> {
        let text = bare(text, Expected::Disruption)?;
        let is = |word: &str| text.eq_ignore_ascii_case(word);
        if is("delete") {
            Ok(Self::Delete)
        } else if is("evict") {
            Ok(Self::Evict)
        } else {
            Err(Flaw::Unknown(Expected::Disruption))
        }
    }
}

impl FromStr for Predownload {
    type Err = Flaw;

    /// Any letter case.
    fn from_str(text: &str) -> Result<Self, Flaw> {
        let text = bare(text, Expected::Predownload)?;
        let is = |word: &str| text.eq_ignore_ascii_case(word);
        if is("required") {
            Ok(Self::Required)
        } else if is("best-effort") {
            Ok(Self::BestEffort)
        } else {
            Err(Flaw::Unknown(Expected::Predownload))
        }
    }
}

impl FromStr for RollingUpdateType {
    type Err = Flaw;

    /// As Kruise spells it, letter case included.
    fn from_str(text: &str) -> Result<Self, Flaw> {
        match bare(text, Expected::RollingUpdateType)? {
            "Standard" => Ok(Self::Standard),
            "InPlaceIfPossible" => Ok(Self::InPlaceIfPossible),
            _ => Err(Flaw::Unknown(Expected::RollingUpdateType)),
        }
    }
}

impl Share {
    /// How many of `targeted` nodes that is: percentages are rounded up, nothing exceeds `targeted`. Only a share of
    /// zero gives zero as long as there are nodes.
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

    /// The same with percentages rounded down, as a `partition` is.
    pub fn resolve_down(self, targeted: usize) -> usize {
        match self {
            Self::Number(_) => self.resolve(targeted),
            Self::Percent(percent) => {
                let nodes = (targeted as u128) * u128::from(percent) / 100;
                usize::try_from(nodes).unwrap_or(usize::MAX).min(targeted)
            }
        }
    }

    /// Whether it is a share of nothing.
    pub fn is_zero(self) -> bool {
        matches!(self, Self::Number(0) | Self::Percent(0))
    }
}

impl FromStr for Share {
    type Err = Flaw;

    /// ASCII digits, optionally followed by `%`. What exceeds the type is the greatest there is: it means "all" anyway.
    fn from_str(text: &str) -> Result<Self, Flaw> {
        let text = bare(text, Expected::Share)?;
        match text.strip_suffix('%') {
            Some(percent) => whole(percent).map(Self::Percent),
            None => whole(text).map(Self::Number),
        }
    }
}

fn whole(digits: &str) -> Result<u32, Flaw> {
    let only_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if only_digits(digits) {
        return Ok(digits.parse().unwrap_or(u32::MAX));
    }
    let (sign, size) = match digits.strip_prefix('-') {
        Some(size) => (true, size),
        None => (false, digits),
    };
    Err(match size.split_once('.') {
        None if sign && only_digits(size) => Flaw::Negative(Expected::Share),
        Some((a, b)) if only_digits(a) && only_digits(b) => Flaw::Fraction(Expected::Share),
        _ => Flaw::Unknown(Expected::Share),
    })
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(nodes) => write!(f, "{nodes}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl Pause {
    /// `true` and `false` in any letter case, or the RFC 3339 time at which the pause ends.
    ///
    /// # Errors
    /// Anything else, as a [`Flaw`].
    pub fn parse(text: &str) -> Result<Option<Self>, Flaw> {
        let text = bare(text, Expected::Pause)?;
        if text.eq_ignore_ascii_case("true") {
            return Ok(Some(Self::Indefinite));
        }
        if text.eq_ignore_ascii_case("false") {
            return Ok(None);
        }
        match text.parse::<Timestamp>() {
            Ok(until) => Ok(Some(Self::Until(until))),
            Err(_) => Err(Flaw::Unknown(Expected::Pause)),
        }
    }
}

/// A label selector over nodes: in the form that `kubectl -l` takes, or as the JSON of a LabelSelector.
pub(super) fn selector(text: &str) -> Result<Selector, Flaw> {
    let text = bare(text, Expected::Selector)?;
    let read = if text.starts_with('{') {
        let json = serde_json::from_str(text).ok();
        json.and_then(|json| Selector::from_written_json(&json).ok())
    } else {
        Selector::from_query(text).ok()
    };
    read.ok_or(Flaw::Unknown(Expected::Selector))
}

/// The key of a label.
pub(super) fn label_key(text: &str) -> Result<&str, Flaw> {
    let key = bare(text, Expected::LabelKey)?;
    is_label_key(key)
        .then_some(key)
        .ok_or(Flaw::Unknown(Expected::LabelKey))
}

/// ASCII digits that say 1 or more. What exceeds the type is the greatest there is.
pub(super) fn count(text: &str) -> Result<usize, Flaw> {
    let text = bare(text, Expected::Count)?;
    match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => match text.parse().unwrap_or(usize::MAX) {
            0 => Err(Flaw::Zero(Expected::Count)),
            count => Ok(count),
        },
        false => Err(Flaw::Unknown(Expected::Count)),
    }
}

/// A duration such as `30s` or `1m 30s`, at most `limit`.
pub(super) fn duration(text: &str, limit: Duration) -> Result<Duration, Flaw> {
    let text = bare(text, Expected::Duration)?;
    match humantime::parse_duration(text) {
        Ok(duration) if duration <= limit => Ok(duration),
        Ok(_) => Err(Flaw::TooLong(limit)),
        Err(humantime::DurationError::NumberOverflow) => Err(Flaw::TooLong(limit)),
        Err(_) => Err(Flaw::Unknown(Expected::Duration)),
    }
}
