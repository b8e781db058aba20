//! `max-surge`: number of nodes that may run a new pod next to the old one. [`super::max_unavailable`] explains both settings
//! together.

use super::error::{Invalid, ParseError};
use super::mode::SURGING;
use super::reader::Reader;
use super::rolling_update_type::{ROLLING_UPDATE_TYPE, RollingUpdateType, is_in_place};
use super::setting::Setting;
use super::update_strategy::{UPDATE_STRATEGY, surges};
use super::value::{IntOrPercent, SHARE};

/// Number or percentage of targeted nodes that may run a new pod next to the old one at once (KEP, Kruise).
pub const MAX_SURGE: &str = "apps.openyurt.io/max-surge";

pub(super) const SETTING: Setting = Setting {
    key: MAX_SURGE,
    summary: "nodes that may run the old and the new pod at the same time, until the new pod is available; `max-unavailable` \
              is then `0` by default",
    default: "`0`",
    is_native: true,
    check: |reader| read(reader).map(drop),
    default_on: |reader| surges(&reader.source).then(|| ONE.to_string()),
    ..Setting::ROLLING
};

/// Value of `max-surge` if `update-strategy` is `SurgingRollingUpdate`.
const ONE: IntOrPercent = IntOrPercent::Number(1);

/// Parses the setting. With `SurgingRollingUpdate`, an absent value means 1, and 0 is invalid (a rule of the KEP).
pub(super) fn read(reader: &mut Reader<'_>) -> Result<IntOrPercent, Invalid> {
    let surging = surges(&reader.source);
    let written = reader.written(MAX_SURGE);
    let max_surge = match &written {
        Some(written) => written.parse()?,
        None if surging => ONE,
        None => IntOrPercent::NONE,
    };
    // A pod that is updated in place has no successor, so there is nothing to surge (as in the KEP and in Kruise).
    if !max_surge.is_zero() && is_in_place(reader) {
        let why = format!(
            "which cannot be combined with {}: {:?}; remove one of them",
            reader.name(ROLLING_UPDATE_TYPE),
            RollingUpdateType::InPlaceIfPossible
        );
        let by_its_name = || Invalid::new(reader.name(UPDATE_STRATEGY), SURGING, why.clone());
        return Err(written.map_or_else(by_its_name, |written| written.refused(why.clone())));
    }
    match written {
        Some(written) if surging && max_surge.is_zero() => {
            written.read(|_| Err(ParseError::Zero(SHARE)))
        }
        _ => Ok(max_surge),
    }
}
