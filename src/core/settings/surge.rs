//! `max-surge`, `max-unavailable`, and what the two are together.
//!
//! | `max-surge` | `max-unavailable` | then |
//! |---|---|---|
//! | absent | anything | no surge; OpenYurt's meaning of `max-unavailable`, `0` included |
//! | `0` | absent, or above 0 | the same |
//! | `0` | `0` | refused: nothing could ever be replaced |
//! | above 0 | absent, or `0` | nothing is ever unavailable |
//! | above 0 | above 0 | both |
//!
//! `update-strategy: SurgingRollingUpdate` stands for `AdvancedRollingUpdate` with a `max-surge` of 1 where none is set, and
//! never of 0 (the KEP's own rule). Where two pods of the template cannot run on one node, pods are deleted first all
//! the same, one at least.

use super::RollingUpdateType::{self, InPlaceIfPossible};
use super::read::{Source, invalid, parse, quoted, read_max_unavailable};
use super::value::{Expected, Flaw};
use super::{Invalid, Mode, Note, Share};
use crate::core::names::{
    MAX_SURGE, MAX_UNAVAILABLE, ROLLING_UPDATE_TYPE, UPDATE_STRATEGY, UPGRADE_STRATEGY,
};

/// The KEP's name for a rolling update that surges ("DaemonSet RollingUpdate enhancement").
const SURGING: &str = "SurgingRollingUpdate";
const NONE: Share = Share::Number(0);
const ONE: Share = Share::Number(1);

/// What may be missing, and what may be there twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shares {
    pub(super) max_unavailable: Share,
    pub(super) max_surge: Share,
}

/// Whether this value of `update-strategy` is the KEP's name for a rolling update that surges.
pub(super) fn is_surging(text: &str) -> bool {
    text.eq_ignore_ascii_case(SURGING)
}

/// Reads both settings.
pub(super) fn read(
    source: &Source<'_>,
    mode: Mode,
    notes: &mut Vec<Note>,
) -> Result<Shares, Invalid> {
    let annotations = source.annotations;
    let strategy = annotations.get(UPDATE_STRATEGY);
    let strategy = strategy.or_else(|| annotations.get(UPGRADE_STRATEGY));
    let surging = strategy.is_some_and(|text| is_surging(text));
    let asked = annotations.get(MAX_SURGE);
    let max_surge = match asked {
        Some(text) => parse(MAX_SURGE, text)?,
        None if surging => ONE,
        None => NONE,
    };
    if let (false, Some(InPlaceIfPossible)) = (max_surge.is_zero(), in_place(source)) {
        return Err(Invalid {
            key: asked.map_or(UPDATE_STRATEGY, |_| MAX_SURGE).into(),
            value: asked.map_or(SURGING.into(), |text| quoted(text)),
            why: format!(
                "which does not go together with {ROLLING_UPDATE_TYPE}: {InPlaceIfPossible:?}; remove one of the two"
            ),
        });
    }
    if max_surge.is_zero() {
        if let (true, Some(text)) = (surging, asked) {
            return Err(invalid(MAX_SURGE, text, Flaw::Zero(Expected::Share)));
        }
        refuse_standstill(source)?;
        return Ok(Shares {
            max_unavailable: read_max_unavailable(source, mode, notes)?,
            max_surge,
        });
    }
    let max_unavailable = match annotations.get(MAX_UNAVAILABLE) {
        Some(text) => parse(MAX_UNAVAILABLE, text)?,
        None => NONE,
    };
    let Some(exclusive) = source.exclusive else {
        notes.extend(source.preempting.map(|preempting| {
            Note::warning(format!(
                "{MAX_SURGE} is {max_surge}, and the template's {preempting}: on a node without room for two pods the new \
                 one drives pods of lower priority off (preemption), unless its PriorityClass says preemptionPolicy: Never; \
                 use such a class, or no {MAX_SURGE}, where that must not happen"
            ))
        }));
        return Ok(Shares {
            max_unavailable,
            max_surge,
        });
    };
    let shares = Shares {
        max_unavailable: if max_unavailable.is_zero() {
            ONE
        } else {
            max_unavailable
        },
        max_surge: NONE,
    };
    let what = asked.map_or_else(
        || format!("{UPDATE_STRATEGY} is {SURGING}"),
        |text| format!("{MAX_SURGE} is {}", quoted(text)),
    );
    notes.push(Note::warning(format!(
        "{what}, but {exclusive}: old pods are deleted before their successors start ({MAX_UNAVAILABLE}: {})",
        shares.max_unavailable
    )));
    Ok(shares)
}

/// A pod that is updated in place has no successor (KEP, Kruise).
fn in_place(source: &Source<'_>) -> Option<RollingUpdateType> {
    let text = source.annotations.get(ROLLING_UPDATE_TYPE)?;
    text.parse().ok().filter(|kind| *kind == InPlaceIfPossible)
}

/// Alone a `max-unavailable` of 0 means the default (OpenYurt); together with a `max-surge` of 0 it can only mean "never".
fn refuse_standstill(source: &Source<'_>) -> Result<(), Invalid> {
    let share = |key: &str| source.annotations.get(key)?.parse::<Share>().ok();
    let is_zero = |key: &str| share(key).is_some_and(Share::is_zero);
    if !(is_zero(MAX_SURGE) && is_zero(MAX_UNAVAILABLE)) {
        return Ok(());
    }
    let text = source.annotations.get(MAX_SURGE);
    Err(Invalid {
        key: MAX_SURGE.into(),
        value: text.map(|text| quoted(text)).unwrap_or_default(),
        why: format!(
            "and {MAX_UNAVAILABLE} is zero too, so nothing could ever be replaced; set one of the two to 1 or more, or \
             remove one"
        ),
    })
}
