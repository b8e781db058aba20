//! Writes of single conditions to an object's status. The other conditions don't change.
//!
//! A strategic merge patch identifies each condition by its type. So the kubelet or a native controller can write other conditions
//! at the same time. The patch contains the UID, so that it can't change another object with the same name.

use kube::api::{Patch, PatchParams};
use kube::core::{Request, request};
use serde_json::{Value, json};

use crate::core::message_of;
use crate::core::names::{POD_IMAGE_READY, WAIT_PULL_IMAGE};

/// Creates a patch that sets the given conditions of the object with this name and UID.
pub(crate) fn patch_conditions(
    requests: &Request,
    name: &str,
    uid: &str,
    manager: &str,
    conditions: Vec<Value>,
) -> Result<http::Request<Vec<u8>>, request::Error> {
    let parameters = PatchParams {
        field_manager: Some(manager.to_owned()),
        ..PatchParams::default()
    };
    let patch = json!({ "metadata": { "uid": uid }, "status": { "conditions": conditions } });
    requests.patch_subresource("status", name, &parameters, &Patch::Strategic(&patch))
}

/// Returns a `PodImageReady` that requests the images of a revision. If the status changes, the caller adds `lastTransitionTime`.
pub(crate) fn image_request(revision: &str) -> Value {
    json!({
        "type": POD_IMAGE_READY,
        "status": "False",
        "reason": WAIT_PULL_IMAGE,
        "message": message_of(revision),
    })
}

/// Returns the patch entry that removes the condition of the type `kind`.
pub(crate) fn removal(kind: &str) -> Value {
    json!({ "$patch": "delete", "type": kind })
}
