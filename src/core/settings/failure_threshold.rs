//! `failure-threshold`: number of nodes that may fail before the guard stops a revision.

use super::error::Invalid;
use super::max_unavailable::shares;
use super::reader::Reader;
use super::setting::Setting;
use super::value::IntOrPercent;

/// Number or percentage of targeted nodes that may fail before the guard stops a revision.
pub const FAILURE_THRESHOLD: &str = "apps.openyurt.io/failure-threshold";

pub(super) const SETTING: Setting = Setting {
    key: FAILURE_THRESHOLD,
    summary: "targeted nodes that may fail before the revision is stopped",
    default: "`max-unavailable`, or `max-surge` if greater",
    check: |reader| read(reader).map(drop),
    default_on,
    ..Setting::ROLLING
};

pub(super) fn read(reader: &mut Reader<'_>) -> Result<Option<IntOrPercent>, Invalid> {
    reader.parse(FAILURE_THRESHOLD)
}

fn default_on(reader: &mut Reader<'_>) -> Option<String> {
    let shares = shares(reader).ok()?;
    match (shares.max_unavailable, shares.max_surge) {
        (share, other) | (other, share) if other.is_zero() => Some(share.to_string()),
        (one, other) => Some(format!("{one} or {other}, the greater")),
    }
}
