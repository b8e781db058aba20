//! `predownload`: rule for the update of a node that lacks the new images.

use std::str::FromStr;

use super::error::{Expected, Invalid, ParseError};
use super::reader::Reader;
use super::rolling_update_type::is_in_place;
use super::setting::{Setting, Syntax};
use super::value::word;

/// Rule for the update of a node that lacks the new images: `required` or `best-effort`; see [`Predownload`].
pub const PREDOWNLOAD: &str = "apps.openyurt.io/predownload";

const EXPECTED: Expected = Expected("use required or best-effort");

pub(super) const SETTING: Setting = Setting {
    key: PREDOWNLOAD,
    summary: "`required`: a node is updated only after it has the images; `best-effort`: the pull only starts earlier",
    syntax: Syntax::Text("`best-effort` or `required`"),
    default: "`best-effort`; in place `required`",
    check: |reader| read(reader).map(drop),
    default_on: |reader| is_in_place(reader).then(|| "`required`".to_owned()),
    ..Setting::ROLLING
};

/// Rule for the update of a node that lacks the new images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Predownload {
    /// The update waits until the node has the images.
    Required,
    /// The update doesn't wait. Images are still pre-pulled if possible.
    BestEffort,
}

impl FromStr for Predownload {
    type Err = ParseError;

    /// Parses `required` or `best-effort`, ignoring case.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let words = [
            ("required", Self::Required),
            ("best-effort", Self::BestEffort),
        ];
        word(text, words, EXPECTED)
    }
}

pub(super) fn read(reader: &mut Reader<'_>) -> Result<Option<Predownload>, Invalid> {
    reader.parse(PREDOWNLOAD)
}
