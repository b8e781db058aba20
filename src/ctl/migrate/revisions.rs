//! ControllerRevisions in exactly the form in which Kubernetes' own controller writes them.
//!
//! Kubernetes' controller compares bytes: a revision is the current one if its data equals the data that the controller would
//! write. This data is the template as the API server stores it, with sorted keys and `$patch: replace`
//! (`pkg/controller/daemon/update.go`, `getPatch` and `Match`).
//!
//! yurt-ds and Kruise write the template as it was applied, without defaults. So each revision is rewritten in Kubernetes' form
//! before the native DaemonSet is created. Its name, number and hash remain, so that Kubernetes finds the revision of the running
//! pods.

use kube::Resource as _;
use kube::api::{DeleteParams, PostParams};
use kube::core::Request;
use serde_json::{Value, json};

use crate::core::revision::TemplateFingerprint;
use crate::ctl::access::Access;
use crate::ctl::error::CliError;
use crate::ctl::write::FIELD_MANAGER;
use crate::index::SetKey;
use crate::k8s::{ControllerRevision, go_json};

/// Returns the template in a revision; `None` if there is none.
fn template(revision: &Value) -> Option<&Value> {
    revision.pointer("/data/spec/template")
}

/// Returns the revision with new data and without an owner, so that the new DaemonSet adopts it.
pub(super) fn rewritten(revision: &Value, data: &Value) -> Value {
    let meta = &revision["metadata"];
    json!({
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": meta["name"],
            "namespace": meta["namespace"],
            "labels": meta["labels"],
            "annotations": meta["annotations"],
        },
        "revision": revision["revision"],
        "data": data,
    })
}

/// Returns true if the stored revision certainly has the bytes that Kubernetes' controller would write for this data.
///
/// Rust and Go encode JSON to the same bytes if no character has to be escaped. With escaped characters, the API server's response
/// does not show which bytes are stored.
pub(super) fn is_written(revision: &Value, data: &Value) -> bool {
    let text = data.to_string();
    revision["data"] == *data && go_json(data) == text
}

pub(super) fn number(revision: &Value) -> i64 {
    revision["revision"].as_i64().unwrap_or(0)
}

pub(super) fn name(revision: &Value) -> &str {
    revision["metadata"]["name"].as_str().unwrap_or_default()
}

/// Returns true if the object with this UID controls the revision.
pub(super) fn is_controlled_by(revision: &Value, uid: &str) -> bool {
    let owners = revision["metadata"]["ownerReferences"].as_array();
    let mut owners = owners.into_iter().flatten();
    owners.any(|owner| owner["controller"] == true && owner["uid"] == uid)
}

/// Returns true if the templates of both revisions create the same pods.
pub(super) fn are_alike(one: &Value, other: &Value) -> bool {
    let fingerprint = |revision| template(revision).map(TemplateFingerprint::from_template);
    fingerprint(one).is_some() && fingerprint(one) == fingerprint(other)
}

/// Checks with dry runs that a revision can be rewritten. The check comes first, because the deletion of the DaemonSet cannot be
/// undone.
///
/// # Errors
/// Fails if the caller may not delete or create the revision.
pub(super) async fn try_rewrite(
    access: &Access,
    key: &SetKey,
    revision: &Value,
) -> Result<(), CliError> {
    let name = name(revision);
    let doing = format!("replace controllerrevision {name} (dry run)");
    let params = DeleteParams {
        dry_run: true,
        ..DeleteParams::default()
    };
    let deletion = Request::new(path(key)).delete(name, &params);
    access.call(&doing, send(access, deletion)).await?;
    // Use another name for the dry run, because the revision still exists.
    let mut renamed = revision.clone();
    renamed["metadata"]["name"] = json!(format!("{name}-new"));
    let creation = Request::new(path(key)).create(&posted(true), go_json(&renamed).into_bytes());
    access.call(&doing, send(access, creation)).await.map(drop)
}

/// Returns the parameters of a POST with the field manager of yurt-ds.
pub(super) fn posted(dry_run: bool) -> PostParams {
    PostParams {
        dry_run,
        field_manager: Some(FIELD_MANAGER.into()),
    }
}

/// Creates a ControllerRevision with the JSON encoding that Kubernetes' own controllers use.
///
/// # Errors
/// Fails if the caller may not create the revision.
pub(super) async fn create(access: &Access, key: &SetKey, object: &Value) -> Result<(), CliError> {
    let request = Request::new(path(key)).create(&posted(false), go_json(object).into_bytes());
    let doing = format!("create controllerrevision {}", name(object));
    access.call(&doing, send(access, request)).await.map(drop)
}

/// Deletes a ControllerRevision; succeeds if it does not exist.
///
/// # Errors
/// Fails if the caller may not delete the revision.
pub(super) async fn delete(access: &Access, key: &SetKey, name: &str) -> Result<(), CliError> {
    let request = Request::new(path(key)).delete(name, &DeleteParams::default());
    let doing = format!("delete controllerrevision {name}");
    access.find(&doing, send(access, request)).await.map(drop)
}

/// Returns the URL path of ControllerRevisions in the namespace.
pub(super) fn path(key: &SetKey) -> String {
    ControllerRevision::url_path(&(), Some(&key.namespace))
}

/// Sends a request to the API server.
///
/// # Errors
/// Returns errors of the API server.
pub(super) async fn send(
    access: &Access,
    request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
) -> kube::Result<Value> {
    let request = request.map_err(kube::Error::BuildRequest)?;
    access.client.request(request).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::revision::data_of;

    #[test]
    fn revision_data_has_the_bytes_that_kubernetes_writes() {
        let stored = json!({
            "spec": { "containers": [{ "name": "a", "args": ["a<b"] }] },
            "metadata": { "labels": { "b": "1", "a": "2" }, "creationTimestamp": null },
        });
        assert_eq!(
            go_json(&data_of(stored)),
            concat!(
                r#"{"spec":{"template":{"$patch":"replace","metadata":{"creationTimestamp":null,"labels":{"a":"2","b":"1"}},"#,
                r#""spec":{"containers":[{"args":["a\u003cb"],"name":"a"}]}}}}"#
            )
        );
    }

    #[test]
    fn only_data_without_escaped_characters_counts_as_written() {
        let is_kept = |argument: &str| {
            let data = data_of(json!({ "spec": { "args": [argument] } }));
            is_written(&json!({ "data": data }), &data)
        };
        assert!(is_kept("plain"));
        assert!(!is_kept("a > b"));
        assert!(!is_written(&json!({ "data": {} }), &data_of(json!({}))));
    }
}
