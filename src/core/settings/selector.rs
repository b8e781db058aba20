//! `selector`: nodes that take part in a rollout.

use super::error::Invalid;
use super::reader::Reader;
use super::setting::{Setting, Syntax};
use super::value::selector;
use crate::core::selector::Selector;

/// Selector of the nodes that take part in a rollout, as a string or as JSON (KEP, Kruise).
pub const SELECTOR: &str = "apps.openyurt.io/selector";

pub(super) const SETTING: Setting = Setting {
    key: SELECTOR,
    summary: "label selector for the nodes that are updated; a selector without matches stops the rollout",
    syntax: Syntax::Text("labels, as `pool=canary,zone in (a,b)`, or JSON"),
    default: "all",
    check: |reader| read(reader).map(drop),
    ..Setting::ROLLING
};

pub(super) fn read(reader: &mut Reader<'_>) -> Result<Option<Selector>, Invalid> {
    let written = reader.written(SELECTOR);
    written.map(|written| written.read(selector)).transpose()
}
