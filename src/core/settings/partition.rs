//! `partition`: number of nodes that keep the old revision.

use super::error::Invalid;
use super::reader::Reader;
use super::setting::Setting;
use super::value::IntOrPercent;

/// Number or percentage of the targeted nodes (rounded down) that keep the old revision (KEP, Kruise).
pub const PARTITION: &str = "apps.openyurt.io/partition";

pub(super) const SETTING: Setting = Setting {
    key: PARTITION,
    summary: "targeted nodes that keep the old revision: the last by name (Advanced DaemonSet: the first); percentages are \
              rounded down; lower it to continue",
    default: "`0`",
    check: |reader| read(reader).map(drop),
    ..Setting::ROLLING
};

pub(super) fn read(reader: &mut Reader<'_>) -> Result<IntOrPercent, Invalid> {
    let share = reader.parse(PARTITION)?;
    Ok(share.unwrap_or(IntOrPercent::NONE))
}
