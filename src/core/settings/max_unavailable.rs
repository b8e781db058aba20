//! `max-unavailable`: number of nodes that may lack an available pod at once, and its combination with `max-surge`.
//!
//! | `max-surge` | `max-unavailable` | result |
//! |---|---|---|
//! | absent | any value | no surge; `max-unavailable` as defined by OpenYurt, where `0` means the default |
//! | `0` | absent, or above 0 | no surge; `max-unavailable` as defined by OpenYurt |
//! | `0` | `0` | invalid, because no pod could ever be replaced |
//! | above 0 | absent, or `0` | surge; no pod is ever unavailable |
//! | above 0 | above 0 | surge, and unavailable pods |
//!
//! If two pods of the template cannot run on one node, `max-surge` is ignored. Then old pods are deleted first, and
//! `max-unavailable` is at least 1.

use serde_json::Value;

use super::error::{Invalid, Note};
use super::max_surge::{self, MAX_SURGE};
use super::mode::{Mode, SURGING};
use super::reader::Reader;
use super::setting::Setting;
use super::update_strategy::UPDATE_STRATEGY;
use super::value::{IntOrPercent, Written};
use crate::core::engine::surge::exclusive::Exclusive;
use crate::core::foreign::quoted;
use crate::core::names::ROLLING_UPDATE_MAX_UNAVAILABLE_FIELD;

/// Number or percentage of targeted nodes that may lack an available pod at once; see [`crate::core::Strategy`] (OpenYurt, ACK
/// Edge).
pub const MAX_UNAVAILABLE: &str = "apps.openyurt.io/max-unavailable";
/// Default of `max-unavailable`, which also applies for `0` and `0%` (OpenYurt).
pub const DEFAULT_MAX_UNAVAILABLE: IntOrPercent = IntOrPercent::Percent(10);

/// Default of `max-unavailable` on an Advanced DaemonSet without surge (Kruise).
pub const DEFAULT_OF_ADVANCED: IntOrPercent = IntOrPercent::Number(1);

pub(super) const SETTING: Setting = Setting {
    key: MAX_UNAVAILABLE,
    summary: "nodes that may be without an available pod at the same time; percentages are rounded up, and `0` means the default",
    default: "`10%`",
    is_native: true,
    check: |reader| shares(reader).map(drop),
    default_on: |reader| Some(shares(reader).ok()?.max_unavailable.to_string()),
    ..Setting::ROLLING
};

/// Values of `max-unavailable` and `max-surge`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shares {
    pub(super) max_unavailable: IntOrPercent,
    pub(super) max_surge: IntOrPercent,
}

/// Parses `max-unavailable` and `max-surge`.
pub(super) fn shares(reader: &mut Reader<'_>) -> Result<Shares, Invalid> {
    let max_surge = max_surge::read(reader)?;
    if max_surge.is_zero() {
        refuse_standstill(reader)?;
        return Ok(Shares {
            max_unavailable: without_surge(reader)?,
            max_surge,
        });
    }
    let shares = Shares {
        max_unavailable: reader.parse(MAX_UNAVAILABLE)?.unwrap_or(IntOrPercent::NONE),
        max_surge,
    };
    if let Some(exclusive) = reader.source.exclusive {
        return Ok(one_after_the_other(reader, shares, exclusive));
    }
    if let Some(preempting) = reader.source.preempting {
        let key = reader.name(MAX_SURGE);
        reader.warn(format!(
            "{key} is {max_surge}, and the template's {preempting}: on a node without room for two pods, the new pod preempts \
             pods of lower priority. To prevent that, use a PriorityClass with preemptionPolicy: Never, or remove {key}"
        ));
    }
    Ok(shares)
}

/// Parses `max-unavailable` and `max-surge` of a DaemonSet with invalid settings. An invalid value counts as absent.
pub(super) fn usable_shares(reader: &mut Reader<'_>) -> Shares {
    let max_surge = max_surge::read(reader).unwrap_or(IntOrPercent::NONE);
    let default = match reader.source.fields {
        Some(_) => DEFAULT_OF_ADVANCED,
        None => DEFAULT_MAX_UNAVAILABLE,
    };
    let max_unavailable = if max_surge.is_zero() {
        without_surge(reader).unwrap_or(default)
    } else {
        IntOrPercent::NONE
    };
    Shares {
        max_unavailable,
        max_surge,
    }
}

/// Rejects zero for both settings together, because no pod could ever be replaced.
///
/// A `max-unavailable` of 0 alone is valid. Without `max-surge`, it means the default (OpenYurt).
fn refuse_standstill(reader: &Reader<'_>) -> Result<(), Invalid> {
    if reader.source.fields.is_some() {
        return Ok(()); // as in Kruise, 0 is replaced by 1 in an Advanced DaemonSet
    }
    let is_zero = |written: &Written<'_>| written.text.parse().is_ok_and(IntOrPercent::is_zero);
    let surge = reader.written(MAX_SURGE).filter(is_zero);
    match (surge, reader.written(MAX_UNAVAILABLE).filter(is_zero)) {
        (Some(surge), Some(unavailable)) => Err(surge.refused(format!(
            "and {} is zero too, so no pod could ever be replaced; set one of them to 1 or more, or remove one",
            unavailable.name
        ))),
        _ => Ok(()),
    }
}

fn without_surge(reader: &mut Reader<'_>) -> Result<IntOrPercent, Invalid> {
    if reader.source.fields.is_some() {
        let share = reader.parse::<IntOrPercent>(MAX_UNAVAILABLE)?;
        let share = share.filter(|share| !share.is_zero());
        return Ok(share.unwrap_or(DEFAULT_OF_ADVANCED));
    }
    let share = match reader.parse::<IntOrPercent>(MAX_UNAVAILABLE)? {
        Some(share) => share,
        None if reader.mode == Mode::Ota => DEFAULT_MAX_UNAVAILABLE,
        None => left_over(reader)?,
    };
    Ok(if share.is_zero() {
        DEFAULT_MAX_UNAVAILABLE
    } else {
        share
    })
}

/// Returns `maxUnavailable` of the native rolling update. It applies if the annotation is absent, because both have the same
/// meaning.
fn left_over(reader: &mut Reader<'_>) -> Result<IntOrPercent, Invalid> {
    let text = match reader.source.rolling_update_max_unavailable {
        None | Some(Value::Null) => return Ok(DEFAULT_MAX_UNAVAILABLE),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let name = ROLLING_UPDATE_MAX_UNAVAILABLE_FIELD;
    let share: IntOrPercent = Written { name, text: &text }.parse()?;
    if share.is_zero() {
        return Ok(DEFAULT_MAX_UNAVAILABLE);
    }
    reader.notes.push(Note::advice(format!(
        "{name} ({share}) applies because {} is not set; set that annotation instead",
        reader.source.name(MAX_UNAVAILABLE)
    )));
    Ok(share)
}

/// Returns the values for a template of which two pods cannot run on one node: no surge, and at least one unavailable pod.
fn one_after_the_other(reader: &mut Reader<'_>, shares: Shares, exclusive: &Exclusive) -> Shares {
    let max_unavailable = if shares.max_unavailable.is_zero() {
        IntOrPercent::Number(1)
    } else {
        shares.max_unavailable
    };
    let what = match reader.written(MAX_SURGE) {
        Some(written) => format!("{} is {}", written.name, quoted(written.text)),
        None => format!("{} is {SURGING}", reader.name(UPDATE_STRATEGY)),
    };
    let key = reader.name(MAX_UNAVAILABLE);
    reader.warn(format!(
        "{what}, but {exclusive}. Old pods are deleted before the new ones start ({key}: {max_unavailable})"
    ));
    Shares {
        max_unavailable,
        max_surge: IntOrPercent::NONE,
    }
}
