//! `lifecycle`: hook that has to allow the deletion of a pod.

use std::sync::Arc;

use super::error::Invalid;
use super::reader::Reader;
use super::setting::{Setting, Syntax};
use crate::core::lifecycle::PreDelete;

/// Hook that has to allow the deletion of a pod, as the JSON of an Advanced DaemonSet's `spec.lifecycle` (Kruise).
pub const LIFECYCLE: &str = "apps.openyurt.io/lifecycle";

pub(super) const SETTING: Setting = Setting {
    key: LIFECYCLE,
    summary: r#"hook that must finish before a pod is deleted, as in Kruise: `{"preDelete": {"labelsHandler": {"example.io/drain": "true"}}}`"#,
    syntax: Syntax::Text("JSON"),
    default: "none",
    check: |reader| read(reader).map(drop),
    ..Setting::ROLLING
};

pub(super) fn read(reader: &mut Reader<'_>) -> Result<Option<Arc<PreDelete>>, Invalid> {
    let Some(written) = reader.written(LIFECYCLE) else {
        return Ok(None);
    };
    let hook = PreDelete::read(written.bounded()?).map_err(|why| written.refused(why))?;
    Ok(hook.map(Arc::new))
}
