//! Annotations of our family that have no effect: slips of the pen.

use std::collections::BTreeMap;

use super::Note;
use crate::core::fleet::Revision;
use crate::core::names::{
    ANNOTATION_PREFIX, APPROVED_WAVES, DISRUPTION, FAILURE_THRESHOLD, FAILURE_WINDOW,
    IMAGE_PREDOWNLOAD_PARALLELISM, LIFECYCLE, MAINTENANCE_WINDOW, MAX_DOMAINS, MAX_SURGE,
    MAX_UNAVAILABLE, MIN_INTERVAL, ON_FAILURE, PARTITION, PAUSED, PREDOWNLOAD, RAMP_UP,
    READY_SETTLE, REPLACE_BROKEN_FIRST, RESUME, ROLLING_UPDATE_TYPE, SELECTOR, TOPOLOGY_KEY,
    UPDATE_STRATEGY, UPGRADE_STRATEGY, WAVES,
};
use crate::core::near::distance;

/// Keys that have an effect.
const KNOWN: &[&str] = &[
    UPDATE_STRATEGY,
    UPGRADE_STRATEGY,
    MAX_UNAVAILABLE,
    MAX_SURGE,
    PAUSED,
    PARTITION,
    SELECTOR,
    MIN_INTERVAL,
    RAMP_UP,
    MAINTENANCE_WINDOW,
    IMAGE_PREDOWNLOAD_PARALLELISM,
    PREDOWNLOAD,
    ROLLING_UPDATE_TYPE,
    READY_SETTLE,
    TOPOLOGY_KEY,
    MAX_DOMAINS,
    FAILURE_WINDOW,
    FAILURE_THRESHOLD,
    ON_FAILURE,
    RESUME,
    REPLACE_BROKEN_FIRST,
    LIFECYCLE,
    DISRUPTION,
    WAVES,
    APPROVED_WAVES,
];
/// So many slips are named; who makes more of them reads these first.
const LIMIT: usize = 8;
/// Edits between two names that look alike.
const NEAR: usize = 2;

/// Whether an annotation of a DaemonSet is a setting of ours.
pub fn is_setting(key: &str) -> bool {
    settings().any(|known| known == key)
}

/// Every setting of ours.
pub fn settings() -> impl Iterator<Item = &'static str> {
    KNOWN.iter().copied()
}

/// A warning for every key that looks as if it should do something and does nothing. Keys of the family that belong to
/// other parts of OpenYurt look different and are left alone.
pub(super) fn on_keys(annotations: &BTreeMap<String, String>) -> Vec<Note> {
    annotations
        .keys()
        .filter_map(|key| advice(key))
        .take(LIMIT)
        .map(Note::warning)
        .collect()
}

/// What to know of a `resume` that is not about the current revision.
pub(super) fn on_resume(resume: &Revision, current: &Revision) -> Option<Note> {
    (resume != current).then(|| Note {
        warning: false,
        text: format!(
            "{RESUME} names revision {resume}, and the current one is {current}: it has no effect; remove it, or name \
             that one to go on with it"
        ),
    })
}

fn advice(key: &str) -> Option<String> {
    let name = key.strip_prefix(ANNOTATION_PREFIX)?;
    if KNOWN.contains(&key) {
        return None;
    }
    let meant = KNOWN
        .iter()
        .find(|known| looks_like(name, &known[ANNOTATION_PREFIX.len()..]))?;
    Some(format!("{key} has no effect; {meant} may be meant"))
}

/// Equal but for letter case and separators, or a few edits away.
fn looks_like(name: &str, known: &str) -> bool {
    // Kubernetes limits names to 63 bytes; what is much longer than ours is no slip, and not worth comparing.
    name.len().abs_diff(known.len()) <= NEAR && {
        let plain = |text: &str| text.to_ascii_lowercase().replace(['_', '.'], "-");
        let (name, known) = (plain(name), plain(known));
        name.replace('-', "") == known.replace('-', "") || distance(&name, &known) <= NEAR
    }
}
