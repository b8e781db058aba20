//! `on-failure`: action for the pods of a revision that the guard stops.

use super::error::Invalid;
use super::reader::Reader;
use super::setting::{Setting, Syntax};

/// Action when the guard stops a revision: `Stop` or `RevertInPlace`.
pub const ON_FAILURE: &str = "apps.openyurt.io/on-failure";

pub(super) const SETTING: Setting = Setting {
    key: ON_FAILURE,
    summary: "action when the guard stops a revision: none (`Stop`), or roll updated pods back to the images of the previous \
              revision in place (`RevertInPlace`)",
    syntax: Syntax::Text("`Stop` or `RevertInPlace`"),
    default: "`Stop`",
    check: |reader| read(reader).map(drop),
    ..Setting::ROLLING
};

/// Action for the pods of a revision that the guard stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// Leave the pods as they are.
    Stop,
    /// Roll back the pods in place to an earlier revision; see [`crate::core::engine::revert`].
    RevertInPlace,
}

pub(super) fn read(reader: &mut Reader<'_>) -> Result<OnFailure, Invalid> {
    let Some(written) = reader.written(ON_FAILURE) else {
        return Ok(OnFailure::Stop);
    };
    let why = match written.text {
        "Stop" => return Ok(OnFailure::Stop),
        "RevertInPlace" => return Ok(OnFailure::RevertInPlace),
        "RevertSpec" => {
            "which is not supported, because it would change the template; use RevertInPlace, which rolls back only the pods, \
             or use Stop and roll back with yurt-ds ctl undo"
        }
        _ => "which is not a valid value; use Stop or RevertInPlace",
    };
    Err(written.refused(why))
}
