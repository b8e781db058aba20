//! `max-domains`: number of failure domains in which updates may be in progress at once.

use super::error::Invalid;
use super::reader::Reader;
use super::setting::{Setting, Syntax};
use super::value::count;

/// Number of domains of `topology-key` in which updates may be in progress at once.
pub const MAX_DOMAINS: &str = "apps.openyurt.io/max-domains";

pub(super) const SETTING: Setting = Setting {
    key: MAX_DOMAINS,
    summary: "values of `topology-key` in which nodes are updated at the same time",
    syntax: Syntax::Text("a whole number from `1`"),
    default: "`1`",
    check: |reader| read(reader).map(drop),
    ..Setting::ROLLING
};

pub(super) fn read(reader: &mut Reader<'_>) -> Result<usize, Invalid> {
    let written = reader.written(MAX_DOMAINS);
    written.map_or(Ok(1), |written| written.read(count))
}
