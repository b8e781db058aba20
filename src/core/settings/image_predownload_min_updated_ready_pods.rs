//! `image-predownload-min-updated-ready-pods`: number of Ready pods of the new revision that are required before other nodes pull
//! its images.

use super::error::Invalid;
use super::image_predownload_parallelism::tell_if_off;
use super::reader::Reader;
use super::setting::Setting;
use super::value::IntOrPercent;

/// Number or percentage of targeted nodes that have to run a Ready pod of the new revision before other nodes pre-pull its images
/// (Kruise).
pub const IMAGE_PREDOWNLOAD_MIN_UPDATED_READY_PODS: &str =
    "apps.openyurt.io/image-predownload-min-updated-ready-pods";

pub(super) const SETTING: Setting = Setting {
    key: IMAGE_PREDOWNLOAD_MIN_UPDATED_READY_PODS,
    summary: "new pods that must be Ready before other nodes pull the images; the first nodes are updated without a pull",
    default: "`0`",
    check: |reader| read(reader).map(drop),
    ..Setting::ROLLING
};

pub(super) fn read(reader: &mut Reader<'_>) -> Result<IntOrPercent, Invalid> {
    let share: Option<IntOrPercent> = reader.parse(IMAGE_PREDOWNLOAD_MIN_UPDATED_READY_PODS)?;
    if share.is_some() {
        tell_if_off(reader, IMAGE_PREDOWNLOAD_MIN_UPDATED_READY_PODS);
    }
    Ok(share.unwrap_or(IntOrPercent::NONE))
}
