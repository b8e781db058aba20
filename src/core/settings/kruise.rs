//! Kruise annotations for Advanced DaemonSets that are set on a native one.

use std::collections::BTreeMap;

use super::error::{Invalid, Note};
use crate::core::names::{ANNOTATION_PREFIX, KRUISE_PREDOWNLOADS, PROGRESSIVE_CREATE_POD};

/// Rejects annotations that cannot work, because the native controller creates pods on all nodes at once.
pub(super) fn refuse(annotations: &BTreeMap<String, String>) -> Result<(), Invalid> {
    match annotations.get(PROGRESSIVE_CREATE_POD) {
        // Kruise ignores any other value too.
        Some(text) if text == "true" => Err(Invalid::new(
            PROGRESSIVE_CREATE_POD,
            text,
            "which is not possible for a native DaemonSet: its controller makes a pod on every node at once; remove the \
             annotation",
        )),
        _ => Ok(()),
    }
}

/// Returns warnings about annotations that have no effect on a native DaemonSet.
pub(super) fn advice(annotations: &BTreeMap<String, String>) -> impl Iterator<Item = Note> {
    let set = KRUISE_PREDOWNLOADS.into_iter();
    let set = set.filter(|key| annotations.contains_key(*key));
    set.filter_map(|key| {
        let ours = our_setting(key);
        let is_meant = !annotations.contains_key(&ours);
        is_meant.then(|| {
            Note::warning(format!(
                "{key} has no effect on a native DaemonSet; {ours} may be meant"
            ))
        })
    })
}

/// Returns the yurt-ds annotation with the same meaning.
pub fn our_setting(key: &'static str) -> String {
    format!("{ANNOTATION_PREFIX}{}", name(key))
}

/// Returns the name of an annotation. The setting with the same meaning has the same name.
pub(super) fn name(key: &'static str) -> &'static str {
    key.split_once('/').map_or(key, |(_, name)| name)
}
