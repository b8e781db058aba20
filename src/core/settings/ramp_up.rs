//! `ramp-up`: number of nodes that are updated first.

use super::error::Invalid;
use super::reader::Reader;
use super::setting::Setting;
use super::value::IntOrPercent;

/// Number or percentage of nodes that are updated at once at the start of a rollout. The number doubles while no node fails.
pub const RAMP_UP: &str = "apps.openyurt.io/ramp-up";

pub(super) const SETTING: Setting = Setting {
    key: RAMP_UP,
    summary: "number of nodes to start with, at least 1; each completed node adds one, so the number doubles while no node fails",
    default: "off",
    check: |reader| read(reader).map(drop),
    ..Setting::ROLLING
};

pub(super) fn read(reader: &mut Reader<'_>) -> Result<Option<IntOrPercent>, Invalid> {
    let written = reader.written(RAMP_UP);
    written
        .map(|written| written.read(IntOrPercent::above_zero))
        .transpose()
}
