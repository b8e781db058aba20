//! `resume`: revision that continues although the guard stopped it.

use super::error::{Invalid, Note};
use super::reader::Reader;
use super::setting::{Setting, Syntax};
use crate::core::id::Revision;

/// Hash of the revision that continues although it was stopped.
pub const RESUME: &str = "apps.openyurt.io/resume";

pub(super) const SETTING: Setting = Setting {
    key: RESUME,
    summary: "stopped revision that continues anyway; `ctl resume` writes it",
    syntax: Syntax::Text("the hash of a revision"),
    default: "none",
    check: |reader| read(reader).map(drop),
    ..Setting::ROLLING
};

/// Parses the revision hash, as in the label `controller-revision-hash` of its pods.
pub(super) fn read(reader: &mut Reader<'_>) -> Result<Option<Revision>, Invalid> {
    read_hash(
        reader,
        RESUME,
        "use the one that the condition Stalled names, or yurt-ds ctl resume",
    )
}

/// Parses a revision hash; `hint` says where to find it.
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
        Err(written.refused(format!("which is no hash of a revision; {hint}")))
    }
}

/// Returns the note that says if `resume` names the current revision.
pub(super) fn note(resume: &Revision, current: &Revision) -> Note {
    Note::advice(if resume == current {
        format!(
            "{RESUME} names this revision: nodes that fail with it are not charged to it, and the guard stops it no more, \
             until that annotation is removed"
        )
    } else {
        format!(
            "{RESUME} names revision {resume}, and the current one is {current}: it has no effect; remove it, or name \
             that one to go on with it"
        )
    })
}
