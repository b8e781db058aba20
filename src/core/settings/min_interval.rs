//! `min-interval`: minimum time between two replacements.

use std::time::Duration;

use super::error::Invalid;
use super::reader::Reader;
use super::setting::{Setting, Syntax};

/// Minimum time between two replacements, as a duration (k/k#111073).
pub const MIN_INTERVAL: &str = "apps.openyurt.io/min-interval";

/// Maximum value. A longer interval probably has a wrong unit, because an update of a thousand nodes would take years.
const LIMIT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

pub(super) const SETTING: Setting = Setting {
    key: MIN_INTERVAL,
    summary: "minimum time between two updates, which then run one at a time",
    syntax: Syntax::Duration(LIMIT),
    default: "none",
    check: |reader| read(reader).map(drop),
    ..Setting::ROLLING
};

pub(super) fn read(reader: &mut Reader<'_>) -> Result<Duration, Invalid> {
    let interval = reader.duration(MIN_INTERVAL, LIMIT)?;
    Ok(interval.unwrap_or_default())
}
