//! `image-predownload-timeout-seconds`: how long a node may pull the new images.

use std::time::Duration;

use super::error::{Expected, Invalid};
use super::image_predownload_parallelism::tell_if_off;
use super::mode::Mode;
use super::reader::Reader;
use super::setting::{Setting, Syntax};
use super::value::count;

/// How long a node may pull the new images, in seconds (Kruise).
pub const IMAGE_PREDOWNLOAD_TIMEOUT_SECONDS: &str =
    "apps.openyurt.io/image-predownload-timeout-seconds";

/// What holds when nothing is set: 450 MB over 1 Mbit/s. Images that cannot be had are found out much earlier; only a registry
/// that takes connections and never answers looks like a slow one.
pub const DEFAULT_IMAGE_PREDOWNLOAD_TIMEOUT: Duration = Duration::from_secs(60 * 60);

const EXPECTED: Expected = Expected("use a whole number of seconds from 1 upward, such as 300");

pub(super) const SETTING: Setting = Setting {
    key: IMAGE_PREDOWNLOAD_TIMEOUT_SECONDS,
    summary: "how long a node may pull the new images in one attempt; what was downloaded until then stays for the next one",
    syntax: Syntax::Text("a whole number of seconds, as `300`"),
    default: "`3600`",
    modes: &[Mode::AdvancedRollingUpdate, Mode::Ota],
    check: |reader| read(reader).map(drop),
    ..Setting::ROLLING
};

pub(super) fn read(reader: &mut Reader<'_>) -> Result<Duration, Invalid> {
    let Some(written) = reader.written(IMAGE_PREDOWNLOAD_TIMEOUT_SECONDS) else {
        return Ok(DEFAULT_IMAGE_PREDOWNLOAD_TIMEOUT);
    };
    let seconds = written.read(|text| count(text).map_err(|flaw| flaw.expecting(EXPECTED)))?;
    tell_if_off(reader, IMAGE_PREDOWNLOAD_TIMEOUT_SECONDS);
    // A Job counts in nanoseconds, and whoever writes as much means "for ever".
    let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
    Ok(Duration::from_secs(seconds.into()))
}
