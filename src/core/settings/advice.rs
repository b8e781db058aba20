//! Annotations of our family that have no effect: slips of the pen.

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

/// So many slips are named; who makes more of them reads these first.
const LIMIT: usize = 8;
/// Edits between two names that look alike.
const NEAR: usize = 2;

/// A warning for every key that looks as if it should do something and does nothing. Keys of the family that belong to
/// other parts of OpenYurt look different and are left alone.
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

/// What a percentage above 100 comes to: OpenYurt takes it, and there is no more than everybody.
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

/// That OTA does not use settings which are there, unless the notes `told` name them already.
pub(super) fn on_ota(annotations: &BTreeMap<String, String>, told: &[Note]) -> Option<Note> {
    let is_unused = |key: &str| setting(key).is_some_and(|known| !known.is_heeded_by(Mode::Ota));
    let is_told = |key: &str| told.iter().any(|note| note.text.contains(key));
    let unused = annotations.keys().map(String::as_str);
    let unused = unused.filter(|key| is_unused(key) && !is_told(key));
    let unused: Vec<&str> = unused.take(LIMIT).collect();
    let has = if unused.len() == 1 { "has" } else { "have" };
    (!unused.is_empty()).then(|| {
        let unused = unused.join(", ");
        Note::advice(format!(
            "{unused} {has} no effect under OTA, where the owner of each node decides"
        ))
    })
}

/// What to say of a DaemonSet that is not ours although its annotations look as if it should be; `None`: they do not, or
/// the native controller replaces its pods.
///
/// `in_template`: settings among the annotations of the pods' template.
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
            "{}: under {ON_DELETE} and without {UPDATE_STRATEGY} nobody replaces the pods of this DaemonSet",
            parts.join("; ")
        )
    })
}

/// The same as [`advice`] of a DaemonSet that may be anybody's: a short name that only resembles one of ours is left alone.
fn slip(key: &str) -> Option<String> {
    let (_, name) = split(key);
    (name.len() >= LONG).then(|| advice(key)).flatten()
}

/// What to say of a setting that stands on the pods instead of on the DaemonSet.
fn misplaced(key: &str) -> String {
    format!(
        "{key} has no effect in spec.template.metadata.annotations; it belongs to the DaemonSet's own"
    )
}

/// The prefix of a key, its slash included, and its name.
fn split(key: &str) -> (&str, &str) {
    key.split_at(key.rfind('/').map_or(0, |slash| slash + 1))
}

/// Whether somebody who wrote this prefix may have meant ours: the family's name is in it, or nearly. Without any prefix only
/// a name of several words, as it stands, is likely to be meant.
fn may_be_ours(prefix: &str, name: &str) -> bool {
    match prefix {
        ANNOTATION_PREFIX => true,
        "" => name.contains('-') && keys().any(|known| split(known).1 == name),
        _ => {
            prefix.contains("openyurt")
                || prefix.len().abs_diff(ANNOTATION_PREFIX.len()) <= NEAR
                    && distance(prefix, ANNOTATION_PREFIX) <= NEAR
        }
    }
}

/// Names of at least so many letters are hardly alike by chance.
const LONG: usize = 8;

fn advice(key: &str) -> Option<String> {
    let (prefix, name) = split(key);
    if is_setting(key) || !may_be_ours(prefix, name) {
        return None;
    }
    let meant = keys().find(|known| looks_like(name, split(known).1))?;
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
