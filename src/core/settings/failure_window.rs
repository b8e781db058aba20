//! `failure-window`: time after the creation of a node's new pod within which a failure counts against the revision.

use std::time::Duration;

use super::error::Invalid;
use super::reader::Reader;
use super::setting::{Setting, Syntax};

/// Time after the creation of a node's new pod within which a failure counts against the revision, as a duration.
pub const FAILURE_WINDOW: &str = "apps.openyurt.io/failure-window";
/// Default of `failure-window`, unless `minReadySeconds` is longer. Later failures probably have another cause than the update.
pub(in crate::core) const DEFAULT_FAILURE_WINDOW: Duration = Duration::from_secs(5 * 60);

/// Maximum value. With a longer one, the unit is probably wrong: a failure a day after the update has another cause.
const LIMIT: Duration = Duration::from_secs(24 * 60 * 60);

pub(super) const SETTING: Setting = Setting {
    key: FAILURE_WINDOW,
    summary: "time after the creation of a new pod during which a failure of its node counts against the revision",
    syntax: Syntax::Duration(LIMIT),
    default: "`5m`, `minReadySeconds` if longer",
    check: |reader| read(reader).map(drop),
    default_on: |reader| {
        let window = DEFAULT_FAILURE_WINDOW.max(reader.source.min_ready());
        Some(humantime::format_duration(window).to_string())
    },
    ..Setting::ROLLING
};

pub(super) fn read(reader: &mut Reader<'_>) -> Result<Option<Duration>, Invalid> {
    reader.duration(FAILURE_WINDOW, LIMIT)
}
