//! `start-now`: revision to which the maintenance window and `min-interval` don't apply.

use super::error::{Invalid, Note};
use super::reader::Reader;
use super::resume::read_hash;
use super::setting::{Setting, Syntax};
use crate::core::id::Revision;

/// Hash of the revision to which the DaemonSet's maintenance window and `min-interval` don't apply.
pub const START_NOW: &str = "apps.openyurt.io/start-now";

pub(super) const SETTING: Setting = Setting {
    key: START_NOW,
    summary: "revision that doesn't wait for `maintenance-window` and `min-interval` of the DaemonSet; `ctl start-now` writes it",
    syntax: Syntax::Text("the hash of a revision"),
    default: "none",
    check: |reader| read(reader).map(drop),
    ..Setting::ROLLING
};

pub(super) fn read(reader: &mut Reader<'_>) -> Result<Option<Revision>, Invalid> {
    read_hash(
        reader,
        START_NOW,
        "`kubectl get controllerrevisions` lists them, or use yurt-ds ctl start-now",
    )
}

/// Returns the note about `start-now`, which tells if it names the current revision.
pub(super) fn note(start_now: &Revision, current: &Revision) -> Note {
    Note::advice(if start_now == current {
        format!(
            "{START_NOW} names this revision: it does not wait for the DaemonSet's maintenance-window and min-interval"
        )
    } else {
        format!(
            "{START_NOW} has no effect: it names revision {start_now}, but the current one is {current}"
        )
    })
}
