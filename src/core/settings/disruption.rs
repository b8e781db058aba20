//! `disruption`: method of removing pods.

use std::str::FromStr;

use super::error::{Expected, Invalid, ParseError};
use super::reader::Reader;
use super::setting::{Setting, Syntax};
use super::value::word;

/// Method of removing pods: `delete` or `evict`; see [`Disruption`].
pub const DISRUPTION: &str = "apps.openyurt.io/disruption";

const EXPECTED: Expected = Expected("use delete or evict");

pub(super) const SETTING: Setting = Setting {
    key: DISRUPTION,
    summary: "how pods are removed: `delete`, or `evict`, which respects PodDisruptionBudgets",
    syntax: Syntax::Text("`delete` or `evict`"),
    default: "`delete`",
    check: |reader| read(reader).map(drop),
    ..Setting::ROLLING
};

/// Method of removing a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disruption {
    /// Delete the pod.
    Delete,
    /// Evict the pod, subject to PodDisruptionBudgets.
    Evict,
}

impl FromStr for Disruption {
    type Err = ParseError;

    /// Parses `delete` or `evict`, ignoring case.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let words = [("delete", Self::Delete), ("evict", Self::Evict)];
        word(text, words, EXPECTED)
    }
}

pub(super) fn read(reader: &mut Reader<'_>) -> Result<Disruption, Invalid> {
    let disruption = reader.parse(DISRUPTION)?;
    Ok(disruption.unwrap_or(Disruption::Delete))
}
