//! Single conditions of an object's status, changed without touching the others.
//!
//! A strategic merge finds each condition by its type, so what a kubelet or a native controller writes at the same time
//! stays. The UID in the patch keeps it from an object that has only the name in common.

use kube::api::{Patch, PatchParams};
use kube::core::{Request, request};
use serde_json::{Value, json};

use crate::core::message_of;
use crate::core::names::{POD_IMAGE_READY, WAIT_PULL_IMAGE};

/// A patch that finds its object by name and UID, and changes the listed conditions only.
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

/// A `PodImageReady` that asks for the images of that revision. Whoever flips its status adds when that was.
pub(crate) fn image_request(revision: &str) -> Value {
    json!({
        "type": POD_IMAGE_READY,
        "status": "False",
        "reason": WAIT_PULL_IMAGE,
        "message": message_of(revision),
    })
}

/// What removes a condition of that type.
pub(crate) fn removal(kind: &str) -> Value {
    json!({ "$patch": "delete", "type": kind })
}
