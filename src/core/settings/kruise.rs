//! Annotations of Kruise's Advanced DaemonSet that somebody brought along to a native one.

use std::collections::BTreeMap;

use super::error::{Invalid, Note};
use super::image_predownload_parallelism::IMAGE_PREDOWNLOAD_PARALLELISM;
use crate::core::names::{KRUISE_PREDOWNLOAD_PARALLELISM, PROGRESSIVE_CREATE_POD};

/// Refuses what cannot hold: the native controller makes a pod on every node at once, whatever is asked for.
pub(super) fn refuse(annotations: &BTreeMap<String, String>) -> Result<(), Invalid> {
    match annotations.get(PROGRESSIVE_CREATE_POD) {
        // Any other value means nothing to Kruise either.
        Some(text) if text == "true" => Err(Invalid::new(
            PROGRESSIVE_CREATE_POD,
            text,
            "which is not possible for a native DaemonSet: its controller makes a pod on every node at once; remove the \
             annotation",
        )),
        _ => Ok(()),
    }
}

/// What does nothing here under that name.
pub(super) fn advice(annotations: &BTreeMap<String, String>) -> Option<Note> {
    let asked = annotations.contains_key(KRUISE_PREDOWNLOAD_PARALLELISM)
        && !annotations.contains_key(IMAGE_PREDOWNLOAD_PARALLELISM);
    asked.then(|| {
        Note::warning(format!(
            "{KRUISE_PREDOWNLOAD_PARALLELISM} has no effect on a native DaemonSet; {IMAGE_PREDOWNLOAD_PARALLELISM} may be \
             meant"
        ))
    })
}
