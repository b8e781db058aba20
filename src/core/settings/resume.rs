//! `resume`: revision whose rollout continues although the guard stopped it.

use super::error::{Invalid, Note};
use super::reader::Reader;
use super::setting::{Setting, Syntax};
use crate::core::id::Revision;

/// Hash of the revision whose rollout continues although the guard stopped it.
pub const RESUME: &str = "apps.openyurt.io/resume";

pub(super) const SETTING: Setting = Setting {
    key: RESUME,
    summary: "revision that continues although the guard stopped it; `ctl resume` writes it",
    syntax: Syntax::Text("the hash of a revision"),
    default: "none",
    check: |reader| read(reader).map(drop),
    ..Setting::ROLLING
};

/// Parses the hash of the revision, as in the label `controller-revision-hash` of pods.
pub(super) fn read(reader: &mut Reader<'_>) -> Result<Option<Revision>, Invalid> {
    read_hash(
        reader,
        RESUME,
        "use the hash in the condition Stalled, or yurt-ds ctl resume",
    )
}

/// Parses a revision hash. `hint` is the part of the error that explains where to find the hash.
pub(super) fn read_hash(
    reader: &mut Reader<'_>,
    key: &'static str,
    hint: &str,
) -> Result<Option<Revision>, Invalid> {
    let Some(written) = reader.written(key) else {
        return Ok(None);
    };
    let is_hash = |text: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        !text.is_empty() && text.len() <= 63 && text.bytes().all(plain)
    };
    if is_hash(written.text) {
        Ok(Some(written.text.into()))
    } else {
        Err(written.refused(format!("which is not a revision hash; {hint}")))
    }
}

/// Returns the note about `resume`, which tells if it names the current revision.
pub(super) fn note(resume: &Revision, current: &Revision) -> Note {
    Note::advice(if resume == current {
        format!(
            "{RESUME} names this revision: until the annotation is removed, failed nodes don't count, and the guard does not \
             stop the rollout"
        )
    } else {
        format!(
            "{RESUME} has no effect: it names revision {resume}, but the current one is {current}. Remove it, or set it to \
             the current one to continue"
        )
    })
}
