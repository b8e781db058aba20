//! `update-strategy`: marks a DaemonSet as managed and sets its rollout mode.

use super::error::{Invalid, Note};
use super::mode::{Mode, is_surging};
use super::reader::SettingsSource;
use super::setting::{Setting, Syntax};
use crate::core::foreign::quoted;
use crate::core::names::{ON_DELETE, UPDATE_STRATEGY_TYPE_FIELD};

/// Rollout mode: `AdvancedRollingUpdate` (alias `auto`) or `OTA`, ignoring case (OpenYurt).
pub const UPDATE_STRATEGY: &str = "apps.openyurt.io/update-strategy";
/// Old key of `update-strategy`, from OpenYurt's proposal of 2022. It is read if the current key is absent.
pub const UPGRADE_STRATEGY: &str = "apps.openyurt.io/upgrade-strategy";

pub(super) const SETTING: Setting = Setting {
    key: UPDATE_STRATEGY,
    old_key: Some(UPGRADE_STRATEGY),
    summary: "what replaces old pods: the controller, or each node owner (`OTA`); `SurgingRollingUpdate` sets `max-surge` to 1; the key `upgrade-strategy` works, too",
    syntax: Syntax::Text("`AdvancedRollingUpdate` (`auto`), `SurgingRollingUpdate` or `OTA`"),
    default: "none: not managed",
    modes: &Mode::ALL,
    is_native: true,
    // This check runs first, because without a mode no other setting is read.
    check: |reader| read(&reader.source, &mut reader.notes).map_or(Ok(()), |mode| mode.map(drop)),
    default_on: |reader| {
        let mode = reader.source.fields.and(of_type(&reader.source).ok())?;
        Some(format!("`{mode}`, by {UPDATE_STRATEGY_TYPE_FIELD}"))
    },
};

/// Returns the mode; `None` if the DaemonSet is not managed. An Advanced DaemonSet is always managed.
///
/// If the current key is present, the old key is ignored. This also applies if the current value is invalid: otherwise the old key
/// could start an unwanted rollout.
pub(super) fn read(
    source: &SettingsSource<'_>,
    notes: &mut Vec<Note>,
) -> Option<Result<Mode, Invalid>> {
    let annotated = annotated(source, notes);
    match source.fields {
        Some(_) => Some(annotated.unwrap_or_else(|| of_type(source))),
        None => annotated,
    }
}

/// Returns the mode from the update strategy of an Advanced DaemonSet. It applies if no annotation sets a mode.
fn of_type(source: &SettingsSource<'_>) -> Result<Mode, Invalid> {
    match source.update_strategy {
        None | Some("" | "RollingUpdate") => Ok(Mode::AdvancedRollingUpdate),
        Some(ON_DELETE) => Ok(Mode::OnDelete),
        Some(other) => Err(Invalid::new(
            UPDATE_STRATEGY_TYPE_FIELD,
            other,
            format!("which is not a valid value; use RollingUpdate or {ON_DELETE}"),
        )),
    }
}

/// Returns the mode that the annotations set; `None` if they set none.
fn annotated(source: &SettingsSource<'_>, notes: &mut Vec<Note>) -> Option<Result<Mode, Invalid>> {
    let (key, old_key) = (source.name(UPDATE_STRATEGY), source.name(UPGRADE_STRATEGY));
    let old = source.written(UPGRADE_STRATEGY);
    let Some(written) = source.written(UPDATE_STRATEGY) else {
        let old = old?;
        let mode: Result<Mode, Invalid> = old.parse();
        if let Ok(mode) = &mode {
            let mode = if is_surging(old.text) {
                old.text.to_owned()
            } else {
                mode.to_string()
            };
            notes.push(Note::advice(format!(
                "{old_key} is deprecated; use {key}: {mode}"
            )));
        }
        return Some(mode);
    };
    let mode = written.parse();
    if let (Ok(mode), Some(old)) = (&mode, old)
        && old.text.parse() != Ok(*mode)
    {
        notes.push(Note::warning(format!(
            "{key} is {mode} and overrides {old_key}, which is {:?}; remove {old_key}",
            quoted(old.text)
        )));
    }
    Some(mode)
}

/// Returns true if `update-strategy` is the KEP's name for a rolling update with surge.
pub(super) fn surges(source: &SettingsSource<'_>) -> bool {
    let written = source.written(UPDATE_STRATEGY);
    let written = written.or_else(|| source.written(UPGRADE_STRATEGY));
    written.is_some_and(|written| is_surging(written.text))
}
