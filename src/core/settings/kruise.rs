//! Checks of a native DaemonSet for Kruise annotations that only work on an Advanced DaemonSet.

use std::collections::BTreeMap;

use super::error::{Invalid, Note};
use crate::core::names::{ANNOTATION_PREFIX, KRUISE_PREDOWNLOADS, PROGRESSIVE_CREATE_POD};

/// Rejects annotations that cannot work on a native DaemonSet, because Kubernetes creates its pods on all nodes at once.
pub(super) fn refuse(annotations: &BTreeMap<String, String>) -> Result<(), Invalid> {
    match annotations.get(PROGRESSIVE_CREATE_POD) {
        // As in Kruise, only the exact value `true` has an effect.
        Some(text) if text == "true" => Err(Invalid::new(
            PROGRESSIVE_CREATE_POD,
            text,
            "which is not supported for native DaemonSets: Kubernetes creates the pods of all nodes at once; remove the annotation",
        )),
        _ => Ok(()),
    }
}

/// Returns warnings about Kruise annotations that have no effect on a native DaemonSet.
pub(super) fn advice(annotations: &BTreeMap<String, String>) -> impl Iterator<Item = Note> {
    let set = KRUISE_PREDOWNLOADS.into_iter();
    let set = set.filter(|key| annotations.contains_key(*key));
    set.filter_map(|key| {
        let ours = our_setting(key);
        let is_meant = !annotations.contains_key(&ours);
        is_meant.then(|| {
            Note::warning(format!(
                "{key} has no effect on a native DaemonSet; use {ours}"
            ))
        })
    })
}

/// Returns the yurt-ds annotation with the same meaning as the Kruise annotation `key`.
pub fn our_setting(key: &'static str) -> String {
    format!("{ANNOTATION_PREFIX}{}", name(key))
}

/// Returns the part of a Kruise annotation after the prefix, which is also the name of the setting with the same meaning.
pub(super) fn name(key: &'static str) -> &'static str {
    key.split_once('/').map_or(key, |(_, name)| name)
}
