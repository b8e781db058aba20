//! `approved-waves`: waves that an operator has approved for a revision.

use std::fmt;
use std::sync::Arc;

use super::error::{Expected, Invalid, ParseError};
use super::reader::Reader;
use super::setting::{Setting, Syntax};
use super::value::Written;
use crate::core::id::Revision;

/// Waves that an operator has approved, each with the revision: `canary@HASH`, separated by commas.
pub const APPROVED_WAVES: &str = "apps.openyurt.io/approved-waves";

const EXPECTED: Expected = Expected("use WAVE@HASH such as canary@5d4f8c7b9, separated by commas");

pub(super) const SETTING: Setting = Setting {
    key: APPROVED_WAVES,
    summary: "waves with `approve: manual` that are approved, each for one revision; `ctl approve` writes it",
    syntax: Syntax::Text("`WAVE@HASH`, separated by commas"),
    default: "none",
    check: |reader| read(reader).map(drop),
    ..Setting::ROLLING
};

/// Approval of a wave for one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    /// Name of the wave.
    pub wave: Arc<str>,
    /// Approved revision.
    pub revision: Revision,
}

impl fmt::Display for Approval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.wave, self.revision)
    }
}

pub(super) fn read(reader: &mut Reader<'_>) -> Result<Vec<Approval>, Invalid> {
    let Some(written) = reader.written(APPROVED_WAVES) else {
        return Ok(Vec::new());
    };
    let entries = written.bounded()?.split(',').map(str::trim);
    let entries = entries.filter(|entry| !entry.is_empty());
    let entries = entries.map(|text| Written { text, ..written }.read(approval));
    entries.collect()
}

/// Parses one approval, such as `canary@5d4f8c`.
fn approval(text: &str) -> Result<Approval, ParseError> {
    match text.split_once('@') {
        Some((wave, hash)) if !wave.is_empty() && !hash.is_empty() => Ok(Approval {
            wave: wave.into(),
            revision: hash.into(),
        }),
        _ => Err(ParseError::Unknown(EXPECTED)),
    }
}
