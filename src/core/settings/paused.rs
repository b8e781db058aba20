//! `paused`: pause of updates, with an optional end.

use k8s_openapi::jiff::Timestamp;

use super::error::{Expected, Invalid, ParseError};
use super::mode::Mode;
use super::reader::Reader;
use super::setting::{Setting, Syntax};
use super::value::bare;

/// `true`, `false`, or an RFC 3339 time at which the pause ends (KEP "RollingUpdate enhancement", Kruise).
pub const PAUSED: &str = "apps.openyurt.io/paused";

const EXPECTED: Expected =
    Expected("use true, false, or the time at which the pause ends, such as 2030-01-31T18:00:00Z");

pub(super) const SETTING: Setting = Setting {
    key: PAUSED,
    summary: "stops updates until you resume, or until the given time",
    syntax: Syntax::Text("`true`, `false` or a time (RFC 3339)"),
    default: "not paused",
    // Under OTA, the setting also applies. An invalid value may be meant as a pause, so it must stop the rollout.
    modes: &Mode::ALL,
    is_native: true,
    check: |reader| read(reader).map(drop),
    ..Setting::ROLLING
};

/// Pause that the settings request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// The pause ends when an operator resumes the rollout.
    Indefinite,
    /// The pause ends at this time.
    Until(Timestamp),
}

impl Pause {
    /// Parses `true` or `false`, ignoring case, or the RFC 3339 time at which the pause ends.
    ///
    /// # Errors
    /// Returns a [`ParseError`] for any other value.
    pub fn parse(text: &str) -> Result<Option<Self>, ParseError> {
        let text = bare(text, EXPECTED)?;
        if text.eq_ignore_ascii_case("true") {
            return Ok(Some(Self::Indefinite));
        }
        if text.eq_ignore_ascii_case("false") {
            return Ok(None);
        }
        match text.parse::<Timestamp>() {
            Ok(until) => Ok(Some(Self::Until(until))),
            Err(_) => Err(ParseError::Unknown(EXPECTED)),
        }
    }
}

pub(super) fn read(reader: &mut Reader<'_>) -> Result<Option<Pause>, Invalid> {
    match reader.written(PAUSED) {
        Some(written) => written.read(Pause::parse),
        None => Ok(None),
    }
}
