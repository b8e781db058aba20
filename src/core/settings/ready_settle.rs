//! `ready-settle`: time that a returned node has to be Ready before its pod is updated.

use std::time::Duration;

use super::error::Invalid;
use super::reader::Reader;
use super::setting::{Setting, Syntax};

/// Time that a returned node has to be Ready before its pod is updated, as a duration (`30s`).
pub const READY_SETTLE: &str = "apps.openyurt.io/ready-settle";
/// Default of `ready-settle`. It is a little shorter than the time after which Kubernetes marks a silent node NotReady by default.
pub const DEFAULT_READY_SETTLE: Duration = Duration::from_secs(30);

/// Maximum value. A longer duration probably has a wrong unit.
const LIMIT: Duration = Duration::from_secs(24 * 60 * 60);

pub(super) const SETTING: Setting = Setting {
    key: READY_SETTLE,
    summary: "time for which a node must be Ready after it reconnects, before its pod is updated",
    syntax: Syntax::Duration(LIMIT),
    default: "`30s`",
    check: |reader| read(reader).map(drop),
    ..Setting::ROLLING
};

pub(super) fn read(reader: &mut Reader<'_>) -> Result<Duration, Invalid> {
    let settle = reader.duration(READY_SETTLE, LIMIT)?;
    Ok(settle.unwrap_or(DEFAULT_READY_SETTLE))
}
