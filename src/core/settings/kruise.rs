//! Annotations of Kruise's Advanced DaemonSet that somebody brought along to a native one.

use std::collections::BTreeMap;

use super::error::{Invalid, Note};
use crate::core::names::{ANNOTATION_PREFIX, KRUISE_PREDOWNLOADS, PROGRESSIVE_CREATE_POD};

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

/// The annotation of ours that is the setting of that name.
pub fn our_setting(key: &'static str) -> String {
    format!("{ANNOTATION_PREFIX}{}", name(key))
}

/// The name of an annotation, which a setting here has as well.
pub(super) fn name(key: &'static str) -> &'static str {
    key.split_once('/').map_or(key, |(_, name)| name)
}
