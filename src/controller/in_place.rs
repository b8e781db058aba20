//! Patch for an update in place: one strategic merge patch of one pod.
//!
//! The patch contains only the changed fields. Changes by other programs are kept, such as injected containers and labels. UID and
//! resource version are preconditions: a pod that has changed since it was read is not patched.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::core::fleet::in_place::InPlaceState;
use crate::core::names::REVISION_HASH_LABEL;
use crate::core::{InPlacePatch, PodRef};

/// Returns the patch of `pod` for an update at `now`. The annotation `state_key` records the update.
pub(super) fn patch(pod: &PodRef, update: &InPlacePatch, state_key: &str, now: Timestamp) -> Value {
    let change = &update.change;
    let state = InPlaceState {
        revision: update.revision.to_string(),
        update_timestamp: Time(now),
        reverted_from: update.reverts.as_ref().map(ToString::to_string),
        last_container_statuses: update.before.clone(),
    };
    let mut labels = json!(change.labels);
    labels[REVISION_HASH_LABEL] = json!(update.revision.as_str());
    let mut annotations = json!(change.annotations);
    annotations[state_key] = json!(json!(state).to_string());
    let mut metadata = json!({
        "uid": pod.uid.to_string(),
        "labels": labels,
        "annotations": annotations,
    });
    if let Some(version) = pod.resource_version.precondition() {
        metadata["resourceVersion"] = version.into();
    }
    if !change.new_finalizers.is_empty() {
        metadata["finalizers"] = json!(change.new_finalizers);
    }
    if !change.old_finalizers.is_empty() {
        metadata["$deleteFromPrimitiveList/finalizers"] = json!(change.old_finalizers);
    }
    let mut patch = Map::from_iter([("metadata".to_owned(), metadata)]);
    if !change.images.is_empty() {
        let images = change.images.iter();
        let containers: Vec<Value> = images
            .map(|(name, image)| json!({ "name": &**name, "image": &**image }))
            .collect();
        patch.insert("spec".to_owned(), json!({ "containers": containers }));
    }
    Value::Object(patch)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use crate::core::fleet::in_place::{InPlaceChange, PreviousContainer};
    use crate::core::names::IN_PLACE_STATE;

    #[test]
    fn one_patch_contains_all_in_place_changes_and_their_preconditions() {
        let text = |text: &str| Some(text.to_owned());
        let images = [("main", "main:2"), ("first", "first:2")];
        let images = images.map(|(name, image)| (name.into(), image.into()));
        let change = InPlaceChange {
            images: images.into(),
            labels: [
                ("gone".to_owned(), None),
                ("pod-template-generation".to_owned(), text("7")),
            ]
            .into(),
            annotations: [("note".to_owned(), text("new"))].into(),
            new_finalizers: Vec::new(),
            old_finalizers: vec!["x/y".to_owned()],
        };
        let before = PreviousContainer {
            image_id: text("id"),
            restart_count: 2,
            superseded: None,
        };
        let update = InPlacePatch {
            revision: "bbb".into(),
            change: Arc::new(change),
            before: BTreeMap::from([("main".to_owned(), before)]),
            reverts: None,
            gate: None,
        };
        let pod = PodRef {
            name: "agent-x".into(),
            uid: "uid".into(),
            resource_version: "9".into(),
        };
        let memory = r#"{"lastContainerStatuses":{"main":{"imageID":"id","restartCount":2}},"revision":"bbb","updateTimestamp":"1970-01-01T00:00:00Z"}"#;
        let expected = json!({
            "metadata": {
                "uid": "uid",
                "resourceVersion": "9",
                "labels": { "gone": null, "pod-template-generation": "7", "controller-revision-hash": "bbb" },
                "annotations": { "note": "new", "apps.openyurt.io/inplace-update-state": memory },
                "$deleteFromPrimitiveList/finalizers": ["x/y"],
            },
            "spec": { "containers": [
                { "name": "main", "image": "main:2" },
                { "name": "first", "image": "first:2" },
            ] },
        });
        assert_eq!(
            patch(&pod, &update, IN_PLACE_STATE, Timestamp::UNIX_EPOCH),
            expected
        );
    }
}
