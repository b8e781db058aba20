//! `image-predownload-parallelism`: number of nodes that pull the new images at the same time, before their update.

use super::error::Invalid;
use super::max_unavailable::shares;
use super::mode::Mode;
use super::predownload::{PREDOWNLOAD, Predownload};
use super::reader::Reader;
use super::rolling_update_type::is_in_place;
use super::setting::Setting;
use super::value::IntOrPercent;

/// Number or percentage of nodes that pull the new images at the same time, before their update (Kruise, ACK Edge).
pub const IMAGE_PREDOWNLOAD_PARALLELISM: &str = "apps.openyurt.io/image-predownload-parallelism";

pub(super) const SETTING: Setting = Setting {
    key: IMAGE_PREDOWNLOAD_PARALLELISM,
    summary: "nodes that pull the new images at the same time, before their update",
    default: "off; in place `max-unavailable`",
    check: |reader| read(reader).map(drop),
    default_on: |reader| {
        if is_in_place(reader) && reader.source.fields.is_none() {
            Some(shares(reader).ok()?.max_unavailable.to_string())
        } else {
            Some("off".to_owned())
        }
    },
    ..Setting::ROLLING
};

/// Parses the setting. `None` if it is absent; then images are only pre-pulled for updates in place.
///
/// Zero disables pre-pulls, so it is invalid with `predownload: required`.
pub(super) fn read(reader: &mut Reader<'_>) -> Result<Option<IntOrPercent>, Invalid> {
    let predownload = reader.parse::<Predownload>(PREDOWNLOAD).ok().flatten();
    let Some(written) = reader.written(IMAGE_PREDOWNLOAD_PARALLELISM) else {
        if reader.source.fields.is_some() && predownload.is_none() {
            return Ok(Some(IntOrPercent::NONE)); // as in Kruise, an Advanced DaemonSet pre-pulls only if the setting is present
        }
        if predownload.is_some() {
            tell_if_off(reader, PREDOWNLOAD);
        }
        return Ok(None);
    };
    let share: IntOrPercent = written.parse()?;
    if share.is_zero() && predownload == Some(Predownload::Required) {
        return Err(written.refused(format!(
            "so no node would ever pull the images that {}: required waits for; use at least 1, or best-effort",
            reader.name(PREDOWNLOAD)
        )));
    }
    Ok(Some(share))
}

/// Adds a warning that the setting `key` has no effect, unless images are pre-pulled.
///
/// Under OTA, node owners request the pulls, so there is no warning.
pub(super) fn tell_if_off(reader: &mut Reader<'_>, key: &'static str) {
    let parallelism = reader.name(IMAGE_PREDOWNLOAD_PARALLELISM);
    let is_advanced = reader.source.fields.is_some();
    let or = match is_advanced && reader.written(PREDOWNLOAD).is_none() {
        true => "", // an Advanced DaemonSet doesn't pre-pull for updates in place either
        false if is_in_place(reader) => return,
        false => " or an in-place update",
    };
    let is_asked = reader.written(IMAGE_PREDOWNLOAD_PARALLELISM).is_some();
    if is_asked || reader.mode != Mode::AdvancedRollingUpdate {
        return;
    }
    let key_here = reader.name(key);
    let text = format!(
        "{key_here} has no effect without {parallelism}{or}; set the number of nodes that pull at once"
    );
    reader.is_without_effect(key, text);
}
