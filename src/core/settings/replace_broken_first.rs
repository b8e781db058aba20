//! `replace-broken-first`: replacement of all nodes with a broken old pod at once.

use super::error::Invalid;
use super::reader::Reader;
use super::setting::{Setting, Syntax};

/// Value `unlimited`: all nodes with a broken old pod are updated at once, regardless of the budget.
pub const REPLACE_BROKEN_FIRST: &str = "apps.openyurt.io/replace-broken-first";

pub(super) const SETTING: Setting = Setting {
    key: REPLACE_BROKEN_FIRST,
    summary: "updates all nodes with a broken old pod at once, beyond `max-unavailable`",
    syntax: Syntax::Text("`unlimited`"),
    default: "within `max-unavailable`",
    check: |reader| read(reader).map(drop),
    ..Setting::ROLLING
};

/// Parses the setting; true means that all nodes with a broken old pod are updated at once.
pub(super) fn read(reader: &mut Reader<'_>) -> Result<bool, Invalid> {
    match reader.written(REPLACE_BROKEN_FIRST) {
        None => Ok(false),
        Some(written) if written.text == "unlimited" => Ok(true),
        Some(written) => Err(written.refused(
            "which is not a valid value; use unlimited, or remove it: nodes with a broken old pod are then updated first, \
             within max-unavailable",
        )),
    }
}
