//! `maintenance-window`: times at which updates may begin.

use std::sync::Arc;

use super::error::Invalid;
use super::reader::Reader;
use super::setting::{Setting, Syntax};
use crate::core::window::Windows;

/// Times at which updates of a DaemonSet may begin. A value on a Node overrides it there; see [`crate::core::window`].
pub const MAINTENANCE_WINDOW: &str = "apps.openyurt.io/maintenance-window";

pub(super) const SETTING: Setting = Setting {
    key: MAINTENANCE_WINDOW,
    summary: "times at which updates may start; the same annotation on a Node takes precedence",
    syntax: Syntax::Text("`Mon-Fri 22:00-05:00 Europe/Berlin`, more after `;`"),
    default: "always",
    check: |reader| read(reader).map(drop),
    ..Setting::ROLLING
};

pub(super) fn read(reader: &mut Reader<'_>) -> Result<Option<Arc<Windows>>, Invalid> {
    let Some(written) = reader.written(MAINTENANCE_WINDOW) else {
        return Ok(None);
    };
    match Windows::read(written.bounded()?) {
        Ok(windows) => Ok(Some(Arc::new(windows))),
        Err(unreadable) => Err(written.refused(format!("of which {unreadable}"))),
    }
}
