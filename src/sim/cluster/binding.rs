//! Binding of a pod to a node.

use serde_json::{Value, json};

use super::object::Object;
use super::request::Target;
use super::resources::Storage;
use super::status::{ApiFailure, success};
use super::store::Store;
use super::verbs;
use super::write::{WriteContext, WriteOutcome, seconds};

/// Binds an unbound pod to a node (POST `pods/NAME/binding`).
pub(crate) fn bind(
    store: &mut Store,
    target: &Target,
    body: &Value,
    writing: &WriteContext,
) -> Result<WriteOutcome, ApiFailure> {
    let node = body.text("/target/name");
    if node.is_empty() {
        return Err(ApiFailure::invalid(
            "",
            "Binding",
            &target.name,
            &[super::status::StatusCause::required("target.name", "")],
        ));
    }
    let current = verbs::get(store, target)?;
    let mut pod = current.value.clone();
    let conflict = |why: String| ApiFailure::conflict("", "pods/binding", &target.name, why);
    if pod.is_terminating() {
        return Err(conflict(format!(
            "pod {} is being deleted, cannot be assigned to a host",
            target.name
        )));
    }
    let have = pod.text("/spec/nodeName");
    if !have.is_empty() {
        return Err(conflict(format!(
            "pod {} is already assigned to node {have:?}",
            target.name
        )));
    }
    pod["spec"]["nodeName"] = node.into();
    scheduled(&mut pod, writing);
    if !writing.dry_run {
        store.put(Storage::Pods, pod);
    }
    Ok(WriteOutcome::new(201, success(json!({}))))
}

fn scheduled(pod: &mut Value, writing: &WriteContext) {
    let condition = json!({
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": null,
        "lastTransitionTime": seconds(writing.now),
    });
    let status = pod.entry_object("status");
    let conditions = status
        .entry("conditions".to_owned())
        .or_insert_with(|| json!([]));
    if let Value::Array(list) = conditions {
        list.retain(|have| have["type"] != "PodScheduled");
        list.push(condition);
    }
}
