//! `image-predownload-timeout-seconds`: maximum duration of an image pull on a node.

use std::time::Duration;

use super::error::{Expected, Invalid};
use super::image_predownload_parallelism::tell_if_off;
use super::mode::Mode;
use super::reader::Reader;
use super::setting::{Setting, Syntax};
use super::value::count;

/// Maximum duration of an image pull on a node, in seconds (Kruise).
pub const IMAGE_PREDOWNLOAD_TIMEOUT_SECONDS: &str =
    "apps.openyurt.io/image-predownload-timeout-seconds";

/// Default, which is enough for 450 MB at 1 Mbit/s.
///
/// The timeout is only needed for a registry that accepts connections and never responds, because such a registry looks like a slow
/// one. A missing image is detected much earlier.
pub const DEFAULT_IMAGE_PREDOWNLOAD_TIMEOUT: Duration = Duration::from_secs(60 * 60);

const EXPECTED: Expected = Expected("use a whole number of seconds, at least 1, such as 300");

pub(super) const SETTING: Setting = Setting {
    key: IMAGE_PREDOWNLOAD_TIMEOUT_SECONDS,
    summary: "time limit of one pull attempt; the next attempt keeps what was downloaded",
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
    // Kubernetes converts the timeout of the Job to nanoseconds, in which larger values overflow. Such a value means "no limit", so
    // it is replaced by `u32::MAX`.
    let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
    Ok(Duration::from_secs(seconds.into()))
}
