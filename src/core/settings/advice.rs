//! Warnings about yurt-ds annotations that have no effect, for example because of a typo.

use std::collections::BTreeMap;

use super::error::Note;
use super::mode::Mode;
use super::setting::Syntax;
use super::update_strategy::{UPDATE_STRATEGY, UPGRADE_STRATEGY};
use super::value::IntOrPercent;
use super::{SETTINGS, is_setting, keys, setting};
use crate::core::foreign::quoted;
use crate::core::names::{ANNOTATION_PREFIX, ON_DELETE};
use crate::core::suggest::distance;

/// Maximum number of misspelt annotations that are reported at once.
const LIMIT: usize = 8;
/// Maximum number of edits (inserted, removed or changed characters) between two names that count as similar.
const NEAR: usize = 2;

/// Returns a warning for every annotation that looks like a setting but has no effect.
///
/// Annotations of other OpenYurt components look different and are ignored.
pub(super) fn on_keys(annotations: &BTreeMap<String, String>, in_template: &[String]) -> Vec<Note> {
    let misplaced = in_template.iter().map(|key| misplaced(key));
    annotations
        .keys()
        .filter_map(|key| advice(key))
        .chain(misplaced)
        .take(LIMIT)
        .map(Note::warning)
        .collect()
}

/// Returns notes about percentages above 100. They are valid, because OpenYurt accepts them, and mean all nodes.
pub(super) fn on_percentages(annotations: &BTreeMap<String, String>) -> Vec<Note> {
    let shares = SETTINGS
        .iter()
        .filter(|setting| setting.syntax == Syntax::IntOrPercent);
    let set = shares.filter_map(|setting| {
        let text = annotations.get(setting.key)?;
        let share: IntOrPercent = text.parse().ok()?;
        matches!(share, IntOrPercent::Percent(101..)).then_some((setting.key, quoted(text)))
    });
    let note =
        |(key, text)| Note::advice(format!("{key} is {text}, which counts as 100%: all nodes"));
    set.map(note).collect()
}

/// Returns a note about settings that have no effect under OTA. Settings that are already in `notes` are omitted.
pub(super) fn on_ota(annotations: &BTreeMap<String, String>, notes: &[Note]) -> Option<Note> {
    let is_unused = |key: &str| setting(key).is_some_and(|known| !known.is_used_by(Mode::Ota));
    let is_told = |key: &str| notes.iter().any(|note| note.text.contains(key));
    let unused = annotations.keys().map(String::as_str);
    let unused = unused.filter(|key| is_unused(key) && !is_told(key));
    let unused: Vec<&str> = unused.take(LIMIT).collect();
    let has = if unused.len() == 1 { "has" } else { "have" };
    (!unused.is_empty()).then(|| {
        let unused = unused.join(", ");
        Note::advice(format!(
            "{unused} {has} no effect under OTA, because node owners start the updates"
        ))
    })
}

/// Returns a hint for a DaemonSet that is not managed although it has annotations that look like settings.
///
/// Returns `None` if it has none, or if the native controller replaces its pods. `in_template` contains the settings that were put
/// on the pod template by mistake.
pub fn stray(
    annotations: &BTreeMap<String, String>,
    update_strategy: Option<&str>,
    in_template: &[String],
) -> Option<String> {
    let has = |key: &str| annotations.contains_key(key);
    let in_template = in_template.iter().map(|key| misplaced(key));
    if update_strategy != Some(ON_DELETE) || has(UPDATE_STRATEGY) || has(UPGRADE_STRATEGY) {
        return None;
    }
    let slips = annotations.keys().filter_map(|key| slip(key));
    let settings = annotations.keys().filter(|key| is_setting(key));
    let settings: Vec<&str> = settings.map(String::as_str).take(LIMIT).collect();
    let mut parts: Vec<String> = slips.chain(in_template).take(LIMIT).collect();
    if !settings.is_empty() {
        let has = if settings.len() == 1 { "has" } else { "have" };
        parts.push(format!(
            "{} {has} no effect without {UPDATE_STRATEGY}",
            settings.join(", ")
        ));
    }
    (!parts.is_empty()).then(|| {
        format!(
            "{}. Its pods are not replaced: updateStrategy.type is {ON_DELETE} and {UPDATE_STRATEGY} is not set",
            parts.join("; ")
        )
    })
}

/// Returns a hint about a key that may be a misspelt setting. The DaemonSet may not be meant for yurt-ds at all.
///
/// So short names that only resemble a setting are ignored.
fn slip(key: &str) -> Option<String> {
    let (_, name) = split(key);
    (name.len() >= LONG).then(|| advice(key)).flatten()
}

/// Returns the warning about a setting that was put on the pod template instead of the DaemonSet.
fn misplaced(key: &str) -> String {
    format!(
        "{key} has no effect in spec.template.metadata.annotations; set it in metadata.annotations of the DaemonSet"
    )
}

/// Splits a key into its prefix, including the slash, and its name.
fn split(key: &str) -> (&str, &str) {
    key.split_at(key.rfind('/').map_or(0, |slash| slash + 1))
}

/// Returns true if a key may be meant as a setting: its prefix contains "openyurt" or "yurt-ds", or is similar to that of yurt-ds.
///
/// Without a prefix, only the exact name of a setting with several words counts.
fn may_be_ours(prefix: &str, name: &str) -> bool {
    match prefix {
        ANNOTATION_PREFIX => true,
        "" => name.contains('-') && keys().any(|known| split(known).1 == name),
        _ => {
            ["openyurt", "yurt-ds"]
                .iter()
                .any(|word| prefix.contains(word))
                || prefix.len().abs_diff(ANNOTATION_PREFIX.len()) <= NEAR
                    && distance(prefix, ANNOTATION_PREFIX) <= NEAR
        }
    }
}

/// Minimum length of a name for which similarity to a setting is unlikely to be a coincidence.
const LONG: usize = 8;

/// Returns true if the key looks like a setting but is none.
pub fn is_misspelt(key: &str) -> bool {
    meant(key).is_some()
}

/// Returns the setting that a misspelt key resembles.
fn meant(key: &str) -> Option<&'static str> {
    let (prefix, name) = split(key);
    if !may_be_ours(prefix, name) || is_setting(key) {
        return None;
    }
    keys().find(|known| looks_like(name, split(known).1))
}

fn advice(key: &str) -> Option<String> {
    let meant = meant(key)?;
    Some(format!("{key} has no effect (similar setting: {meant})"))
}

/// Returns true if the names differ only in case and separators, or by a few edits.
fn looks_like(name: &str, known: &str) -> bool {
    // Names whose lengths differ by more than `NEAR` can't be similar. Skip the slow comparison for them.
    name.len().abs_diff(known.len()) <= NEAR && {
        let plain = |text: &str| text.to_ascii_lowercase().replace(['_', '.'], "-");
        let (name, known) = (plain(name), plain(known));
        name.replace('-', "") == known.replace('-', "") || distance(&name, &known) <= NEAR
    }
}
