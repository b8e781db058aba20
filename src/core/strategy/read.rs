//! From the annotations of a DaemonSet to a [`Reading`].
//!
//! One state for everything that cannot be used: [`Invalid`], which names the first such setting. What only is of no
//! use (an old key, a value that the mode does not look at) becomes a [`Note`].

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::RollingUpdateType::InPlaceIfPossible;
use super::surge::{self, Shares};
use super::value::{Expected, Flaw, duration, selector};
use super::{
    Disruption, Invalid, Mode, Note, OnFailure, Pause, Predownload, Reading, RollingUpdateType,
    Share, Strategy, advice, failing, kruise, sequence, wave,
};
use crate::core::engine::surge::exclusive::Exclusive;
use crate::core::engine::surge::preempting::Preempting;
use crate::core::lifecycle::PreDelete;
use crate::core::names::{
    DISRUPTION, IMAGE_PREDOWNLOAD_PARALLELISM, LIFECYCLE, MAINTENANCE_WINDOW, MAX_UNAVAILABLE,
    MIN_INTERVAL, ON_DELETE, PARTITION, PAUSED, PREDOWNLOAD, RAMP_UP, READY_SETTLE,
    ROLLING_UPDATE_MAX_UNAVAILABLE_FIELD, ROLLING_UPDATE_TYPE, SELECTOR, UPDATE_STRATEGY,
    UPDATE_STRATEGY_TYPE_FIELD, UPGRADE_STRATEGY,
};
use crate::core::selector::Selector;
use crate::core::window::Windows;

/// `max-unavailable` when nothing is set, and when `0` or `0%` is set (OpenYurt).
pub const DEFAULT_MAX_UNAVAILABLE: Share = Share::Percent(10);
/// A longer interval is more likely a wrong unit: a thousand nodes would take years.
const MIN_INTERVAL_LIMIT: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// What may be missing or there twice when nothing is set.
const WITHOUT_SURGE: Shares = Shares {
    max_unavailable: DEFAULT_MAX_UNAVAILABLE,
    max_surge: NOTHING,
};
/// `partition` when nothing is set.
const NOTHING: Share = Share::Number(0);
/// `ready-settle` when nothing is set: a little less than the default time after which a silent node is NotReady.
pub const DEFAULT_READY_SETTLE: Duration = Duration::from_secs(30);
/// Nobody waits longer for a node to settle; a longer value is more likely a wrong unit.
pub const READY_SETTLE_LIMIT: Duration = Duration::from_secs(24 * 60 * 60);

/// Longest value that is quoted whole; Events and conditions have limits.
const QUOTED: usize = 64;

/// Where the settings of a DaemonSet stand.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// `metadata.annotations`.
    pub annotations: &'a BTreeMap<String, String>,
    /// `spec.updateStrategy.type`; `None` stands for the API server's default, `RollingUpdate`.
    pub update_strategy: Option<&'a str>,
    /// `spec.updateStrategy.rollingUpdate.maxUnavailable`, left over from another type: used when the annotation is
    /// absent.
    pub rolling_update_max_unavailable: Option<&'a Value>,
    /// `spec.minReadySeconds`.
    pub min_ready_seconds: i64,
    /// Settings among the annotations of the template, where they have no effect.
    pub in_template: &'a [String],
    /// Why two pods of the template cannot run on one node, if so.
    pub exclusive: Option<&'a Exclusive>,
    /// What lets pods of the template drive others off a node without room, if anything.
    pub preempting: Option<&'a Preempting>,
}

/// Reads the settings of a DaemonSet.
pub fn read(source: &Source<'_>) -> Reading {
    let mut notes = Vec::new();
    let mode = match read_mode(source.annotations, &mut notes) {
        None => return Reading::NotOurs,
        Some(Err(invalid)) => return Reading::Invalid(invalid),
        Some(Ok(mode)) => mode,
    };
    match read_settings(source, mode, &mut notes) {
        Err(invalid) => Reading::Invalid(invalid),
        Ok(strategy) => {
            notes.extend(advice::on_keys(source.annotations, source.in_template));
            notes.extend(advice::on_percentages(source.annotations));
            if mode == Mode::Ota {
                notes.extend(advice::on_ota(source.annotations, &notes));
            }
            notes.extend(kruise::advice(source.annotations));
            Reading::Strategy { strategy, notes }
        }
    }
}

/// The current key decides alone as soon as it is there, even when its value is bad: falling back to the old key would
/// start something that nobody asked for.
fn read_mode(
    annotations: &BTreeMap<String, String>,
    notes: &mut Vec<Note>,
) -> Option<Result<Mode, Invalid>> {
    let old = annotations.get(UPGRADE_STRATEGY);
    let Some(text) = annotations.get(UPDATE_STRATEGY) else {
        let mode: Result<Mode, Invalid> = parse(UPGRADE_STRATEGY, old?);
        if let (Ok(mode), Some(old)) = (&mode, old) {
            let mode = match surge::is_surging(old) {
                true => old.clone(),
                false => mode.to_string(),
            };
            notes.push(Note::advice(format!(
                "{UPGRADE_STRATEGY} is an old key; use {UPDATE_STRATEGY}: {mode} instead"
            )));
        }
        return Some(mode);
    };
    let mode = parse(UPDATE_STRATEGY, text);
    if let (Ok(mode), Some(old)) = (&mode, old)
        && old.parse() != Ok(*mode)
    {
        notes.push(Note::warning(format!(
            "{UPDATE_STRATEGY} is {mode} and wins over {UPGRADE_STRATEGY}, which is {:?}; remove the latter",
            quoted(old)
        )));
    }
    Some(mode)
}

fn read_settings(
    source: &Source<'_>,
    mode: Mode,
    notes: &mut Vec<Note>,
) -> Result<Strategy, Invalid> {
    require_on_delete(source.update_strategy)?;
    used_in(mode, kruise::refuse(source.annotations), (), notes)?;
    let shares = surge::read(source, mode, notes);
    let Shares {
        max_unavailable,
        max_surge,
    } = used_in(mode, shares, WITHOUT_SURGE, notes)?;
    let ready_settle = read_ready_settle(source.annotations);
    let predownload = used_in(mode, read_predownload(source.annotations), None, notes)?;
    let parallelism = read_parallelism(source.annotations, predownload, notes);
    let on_failure = used_in(
        mode,
        failing::reaction(source.annotations),
        OnFailure::Stop,
        notes,
    )?;
    Ok(Strategy {
        on_failure,
        mode,
        max_unavailable,
        max_surge,
        partition: used_in(mode, read_partition(source.annotations), NOTHING, notes)?,
        selector: used_in(mode, read_selector(source.annotations), None, notes)?,
        min_interval: used_in(
            mode,
            read_min_interval(source.annotations),
            Duration::ZERO,
            notes,
        )?,
        ramp_up: used_in(mode, read_ramp_up(source.annotations), None, notes)?,
        window: used_in(mode, read_window(source.annotations), None, notes)?,
        image_predownload_parallelism: used_in(mode, parallelism, None, notes)?,
        predownload,
        waves: used_in(mode, wave::read(source.annotations, notes), None, notes)?,
        topology: used_in(
            mode,
            sequence::topology(source.annotations, notes),
            None,
            notes,
        )?,
        rolling_update_type: used_in(
            mode,
            read_rolling_update_type(source.annotations),
            RollingUpdateType::Standard,
            notes,
        )?,
        broken_unlimited: used_in(mode, failing::broken(source.annotations), false, notes)?,
        failure_window: used_in(mode, failing::window(source.annotations), None, notes)?,
        failure_threshold: used_in(mode, failing::threshold(source.annotations), None, notes)?,
        resume: used_in(mode, failing::resume(source.annotations), None, notes)?,
        pre_delete: used_in(mode, read_lifecycle(source.annotations), None, notes)?,
        disruption: used_in(
            mode,
            read_disruption(source.annotations),
            Disruption::Delete,
            notes,
        )?,
        pause: read_pause(source.annotations)?,
        min_ready: min_ready(source.min_ready_seconds),
        ready_settle: used_in(mode, ready_settle, DEFAULT_READY_SETTLE, notes)?,
    })
}

/// OTA looks at neither the budget nor the settle time, so a bad value of these only deserves a warning there.
fn used_in<T>(
    mode: Mode,
    setting: Result<T, Invalid>,
    default: T,
    notes: &mut Vec<Note>,
) -> Result<T, Invalid> {
    match (mode, setting) {
        (Mode::Ota, Err(invalid)) => {
            notes.push(Note::warning(format!("{invalid} (OTA does not use it)")));
            Ok(default)
        }
        (_, setting) => setting,
    }
}

fn require_on_delete(update_strategy: Option<&str>) -> Result<(), Invalid> {
    // The API server's default.
    let found = update_strategy.unwrap_or("RollingUpdate");
    if found == ON_DELETE {
        return Ok(());
    }
    Err(Invalid {
        key: UPDATE_STRATEGY_TYPE_FIELD.into(),
        value: quoted(found),
        why: format!(
            "so the native controller replaces the pods; set it to {ON_DELETE}, or remove the annotation \
             {UPDATE_STRATEGY}"
        ),
    })
}

/// Without surge.
pub(super) fn read_max_unavailable(
    source: &Source<'_>,
    mode: Mode,
    notes: &mut Vec<Note>,
) -> Result<Share, Invalid> {
    let share = match source.annotations.get(MAX_UNAVAILABLE) {
        Some(text) => parse(MAX_UNAVAILABLE, text)?,
        None if mode == Mode::Ota => DEFAULT_MAX_UNAVAILABLE,
        None => read_left_over(source.rolling_update_max_unavailable, notes)?,
    };
    Ok(if share.is_zero() {
        DEFAULT_MAX_UNAVAILABLE
    } else {
        share
    })
}

/// The native field as a fallback: whoever set it meant the same thing.
fn read_left_over(value: Option<&Value>, notes: &mut Vec<Note>) -> Result<Share, Invalid> {
    let text = match value {
        None | Some(Value::Null) => return Ok(DEFAULT_MAX_UNAVAILABLE),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let share: Share = parse(ROLLING_UPDATE_MAX_UNAVAILABLE_FIELD, &text)?;
    if share.is_zero() {
        return Ok(DEFAULT_MAX_UNAVAILABLE);
    }
    notes.push(Note::advice(format!(
        "{ROLLING_UPDATE_MAX_UNAVAILABLE_FIELD} is {share} and used because {MAX_UNAVAILABLE} is not set; set that instead"
    )));
    Ok(share)
}

fn read_partition(annotations: &BTreeMap<String, String>) -> Result<Share, Invalid> {
    annotations
        .get(PARTITION)
        .map_or(Ok(NOTHING), |text| parse(PARTITION, text))
}

fn read_selector(annotations: &BTreeMap<String, String>) -> Result<Option<Selector>, Invalid> {
    let Some(text) = annotations.get(SELECTOR) else {
        return Ok(None);
    };
    let selector = selector(text).map_err(|flaw| invalid(SELECTOR, text, flaw))?;
    Ok(Some(selector))
}

fn read_min_interval(annotations: &BTreeMap<String, String>) -> Result<Duration, Invalid> {
    let Some(text) = annotations.get(MIN_INTERVAL) else {
        return Ok(Duration::ZERO);
    };
    duration(text, MIN_INTERVAL_LIMIT).map_err(|flaw| invalid(MIN_INTERVAL, text, flaw))
}

fn read_ramp_up(annotations: &BTreeMap<String, String>) -> Result<Option<Share>, Invalid> {
    let Some(text) = annotations.get(RAMP_UP) else {
        return Ok(None);
    };
    let first: Share = parse(RAMP_UP, text)?;
    if first.is_zero() {
        return Err(invalid(RAMP_UP, text, Flaw::Zero(Expected::Share)));
    }
    Ok(Some(first))
}

fn read_window(annotations: &BTreeMap<String, String>) -> Result<Option<Arc<Windows>>, Invalid> {
    let Some(text) = annotations.get(MAINTENANCE_WINDOW) else {
        return Ok(None);
    };
    match Windows::read(text) {
        Ok(windows) => Ok(Some(Arc::new(windows))),
        Err(unreadable) => Err(Invalid {
            key: MAINTENANCE_WINDOW.into(),
            value: quoted(text),
            why: format!("of which {unreadable}"),
        }),
    }
}

fn read_predownload(
    annotations: &BTreeMap<String, String>,
) -> Result<Option<Predownload>, Invalid> {
    let text = annotations.get(PREDOWNLOAD);
    text.map(|text| parse(PREDOWNLOAD, text)).transpose()
}

/// Nothing pulls ahead without it, unless pods are updated in place; zero is nothing, and not enough for who waits for the images.
fn read_parallelism(
    annotations: &BTreeMap<String, String>,
    predownload: Option<Predownload>,
    notes: &mut Vec<Note>,
) -> Result<Option<Share>, Invalid> {
    let Some(text) = annotations.get(IMAGE_PREDOWNLOAD_PARALLELISM) else {
        let in_place = read_rolling_update_type(annotations) == Ok(InPlaceIfPossible);
        if predownload.is_some() && !in_place {
            notes.push(Note::warning(format!(
                "{PREDOWNLOAD} has no effect without {IMAGE_PREDOWNLOAD_PARALLELISM} (or an update in place): set how many nodes pull at once"
            )));
        }
        return Ok(None);
    };
    let share: Share = parse(IMAGE_PREDOWNLOAD_PARALLELISM, text)?;
    if share.is_zero() && predownload == Some(Predownload::Required) {
        return Err(Invalid {
            key: IMAGE_PREDOWNLOAD_PARALLELISM.into(),
            value: quoted(text),
            why: format!(
                "so no node would ever pull what {PREDOWNLOAD}: required waits for; use at least 1, or best-effort"
            ),
        });
    }
    Ok(Some(share))
}

fn read_rolling_update_type(
    annotations: &BTreeMap<String, String>,
) -> Result<RollingUpdateType, Invalid> {
    let text = annotations.get(ROLLING_UPDATE_TYPE);
    text.map_or(Ok(RollingUpdateType::Standard), |text| {
        parse(ROLLING_UPDATE_TYPE, text)
    })
}

fn read_lifecycle(
    annotations: &BTreeMap<String, String>,
) -> Result<Option<Arc<PreDelete>>, Invalid> {
    let Some(text) = annotations.get(LIFECYCLE) else {
        return Ok(None);
    };
    let hook = PreDelete::read(text).map_err(|why| Invalid {
        key: LIFECYCLE.into(),
        value: quoted(text),
        why,
    })?;
    Ok(hook.map(Arc::new))
}

fn read_disruption(annotations: &BTreeMap<String, String>) -> Result<Disruption, Invalid> {
    let text = annotations.get(DISRUPTION);
    text.map_or(Ok(Disruption::Delete), |text| parse(DISRUPTION, text))
}

fn read_pause(annotations: &BTreeMap<String, String>) -> Result<Option<Pause>, Invalid> {
    match annotations.get(PAUSED) {
        None => Ok(None),
        Some(text) => Pause::parse(text).map_err(|flaw| invalid(PAUSED, text, flaw)),
    }
}

fn read_ready_settle(annotations: &BTreeMap<String, String>) -> Result<Duration, Invalid> {
    match annotations.get(READY_SETTLE) {
        None => Ok(DEFAULT_READY_SETTLE),
        Some(text) => {
            duration(text, READY_SETTLE_LIMIT).map_err(|flaw| invalid(READY_SETTLE, text, flaw))
        }
    }
}

/// The API server refuses what is negative or exceeds 32 bits; the bounds keep later sums from overflowing.
fn min_ready(seconds: i64) -> Duration {
    let seconds = seconds.clamp(0, i64::from(i32::MAX));
    Duration::from_secs(seconds.unsigned_abs())
}

pub(super) fn parse<T: FromStr<Err = Flaw>>(key: &str, text: &str) -> Result<T, Invalid> {
    text.parse().map_err(|flaw| invalid(key, text, flaw))
}

pub(super) fn invalid(key: &str, value: &str, flaw: Flaw) -> Invalid {
    Invalid {
        key: key.into(),
        value: quoted(value),
        why: flaw.to_string(),
    }
}

/// At most [`QUOTED`] characters of it.
pub(in crate::core) fn quoted(value: &str) -> String {
    match value.char_indices().nth(QUOTED) {
        None => value.into(),
        Some((end, _)) => format!("{}…", &value[..end]),
    }
}

impl Note {
    pub(super) fn advice(text: String) -> Self {
        Self {
            warning: false,
            text,
        }
    }

    pub(in crate::core) fn warning(text: String) -> Self {
        Self {
            warning: true,
            text,
        }
    }
}
