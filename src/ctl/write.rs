//! Writes that fail if the object has changed since it was read.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, RemoveOperation, TestOperation};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::access::CALL_DEADLINE;
use super::code::Code;
use super::context::Context;
use super::daemonset_api::whole;
use super::error::CliError;
use super::look::Look;
use super::lookup;
use super::view::ClusterView;
use crate::index::SetKey;
use crate::k8s::client::{Failure, within};

/// Field manager of `yurt-ds ctl`.
pub(super) const FIELD_MANAGER: &str = "yurt-ds-ctl";
/// Maximum number of attempts for a write that conflicts with other writes (409). The API server also retries within each attempt.
const ATTEMPTS: usize = 20;

/// Maximum number of attempts to read and write a DaemonSet that changes between the read and the write.
const LOOKS: usize = 5;

/// Result of evaluating a rollout for a new value of an annotation.
pub(super) enum Annotation {
    /// The annotation is not written. The text explains the reason to the caller.
    Kept(String),
    /// The annotation is written.
    Set {
        value: String,
        /// Message for the caller after the write.
        message: String,
    },
}

/// Sets an annotation of a DaemonSet to the value that `judge` computes from the rollout. Returns the message for the caller.
///
/// # Errors
/// Returns errors of `judge`, of reading and of writing, and an error if the DaemonSet keeps changing.
pub(super) async fn annotate(
    context: &Context,
    key: &SetKey,
    annotation: &str,
    judge: impl Fn(&ClusterView, &Look) -> Result<Annotation, CliError>,
) -> Result<String, CliError> {
    let access = &context.access;
    let api = whole(&access.client, key);
    for _ in 0..LOOKS {
        // Read the object first: a change after this read makes the write fail.
        let doing = format!("read DaemonSet {key}");
        let found = access.find(&doing, api.get(&key.name)).await?;
        // If the object is missing, `lookup::look` returns the error.
        let seen = found.map(|set| set.metadata).unwrap_or_default();
        let (view, look) = lookup::look(access, key, context.clock.now()).await?;
        let (value, message) = match judge(&view, &look)? {
            Annotation::Kept(message) => return Ok(message),
            Annotation::Set { value, message } => (value, message),
        };
        let changes = vec![set(&["metadata", "annotations", annotation], json!(value))];
        let doing = format!("annotate DaemonSet {key}");
        if write_if_unchanged(context, &doing, key, &seen, changes).await? {
            return Ok(message);
        }
    }
    Err(CliError::new(
        Code::Failed,
        format!("Nothing was changed, because {key} changed during every attempt. Try again."),
    ))
}

/// Returns the operation that adds or replaces a field.
pub(super) fn set(path: &[&str], value: Value) -> PatchOperation {
    let path = pointer(path);
    PatchOperation::Add(AddOperation { path, value })
}

/// Returns the operation that removes an existing field.
pub(super) fn remove(path: &[&str]) -> PatchOperation {
    let path = pointer(path);
    PatchOperation::Remove(RemoveOperation { path })
}

/// Returns the operation that makes the patch fail unless the field has this value.
fn test(path: &[&str], value: Value) -> PatchOperation {
    let path = pointer(path);
    PatchOperation::Test(TestOperation { path, value })
}

fn pointer(path: &[&str]) -> PointerBuf {
    PointerBuf::from_tokens(path.iter().copied())
}

/// Changes a DaemonSet if specification and annotations are the same as in `seen`. Returns false if they have changed.
///
/// One JSON patch with `test` operations (RFC 6902) compares them. It does not compare the status: the controller writes it all the
/// time, and no decision depends on it.
///
/// # Errors
/// Fails for every reason except a changed DaemonSet. `doing` names the operation in the error.
pub(super) async fn write_if_unchanged(
    context: &Context,
    doing: &str,
    key: &SetKey,
    seen: &ObjectMeta,
    changes: Vec<PatchOperation>,
) -> Result<bool, CliError> {
    let access = &context.access;
    let api = whole(&access.client, key);
    let params = PatchParams {
        field_manager: Some(FIELD_MANAGER.into()),
        ..PatchParams::default()
    };
    let annotations = seen.annotations.as_ref();
    let as_seen = [
        Some(test(&["metadata", "uid"], json!(seen.uid))),
        Some(test(&["metadata", "generation"], json!(seen.generation))),
        annotations.map(|seen| test(&["metadata", "annotations"], json!(seen))),
    ];
    let operations = as_seen.into_iter().flatten().chain(changes).collect();
    let patch = Patch::Json::<()>(json_patch::Patch(operations));
    for _ in 0..ATTEMPTS {
        let error = match within(CALL_DEADLINE, api.patch(&key.name, &params, &patch)).await {
            Ok(_) => return Ok(true),
            Err(error) => error,
        };
        let is_conflict = error.failure() == Failure::Conflict;
        if !is_conflict && error.failure() != Failure::Refused {
            return Err(access.explain(doing, &error));
        }
        // A failed `test` operation has the same status code as an invalid object (422). Read the object to distinguish them.
        let now = access.find(doing, api.get_metadata(&key.name)).await?;
        if now.is_none_or(|now| !is_same(seen, &now.metadata)) {
            return Ok(false);
        }
        if !is_conflict {
            return Err(access.explain(doing, &error));
        }
    }
    Ok(false)
}

/// Returns true if the specification and annotations are unchanged.
fn is_same(seen: &ObjectMeta, now: &ObjectMeta) -> bool {
    (&seen.uid, seen.generation) == (&now.uid, now.generation)
        && seen.deletion_timestamp == now.deletion_timestamp
        && seen
            .annotations
            .iter()
            .flatten()
            .eq(now.annotations.iter().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ctl::tests::CtlWorld;

    #[tokio::test(start_paused = true)]
    async fn a_conditional_write_ignores_status_changes_and_fails_after_other_changes() {
        let world = CtlWorld::with_nodes(1).await;
        let key: SetKey = "default/web".parse().unwrap();
        let seen = world.sets().get("web").await.unwrap().metadata;
        let write = async |value: &str| {
            let changes = vec![set(
                &["metadata", "annotations", "example.io/a"],
                json!(value),
            )];
            write_if_unchanged(&world.context, "annotate it", &key, &seen, changes).await
        };
        let status = Patch::Merge(json!({ "status": { "numberMisscheduled": 7 } }));
        let params = PatchParams::default();
        let patched = world.sets().patch_status("web", &params, &status).await;
        assert_ne!(
            patched.unwrap().metadata.resource_version,
            seen.resource_version
        );
        assert_eq!(write("1").await, Ok(true));
        // The second write fails because the first one changed the object.
        assert_eq!(write("2").await, Ok(false));
        let now = world.sets().get("web").await.unwrap().metadata;
        assert_eq!(now.annotations.unwrap()["example.io/a"], "1");
        assert_eq!(world.writes(), 2, "one request each");
    }

    #[tokio::test(start_paused = true)]
    async fn errors_of_the_api_server_are_reported() {
        let world = CtlWorld::with_nodes(1).await;
        let key: SetKey = "default/web".parse().unwrap();
        let seen = world.sets().get("web").await.unwrap().metadata;
        let changes = vec![remove(&["spec", "nothing"])];
        let ended = write_if_unchanged(&world.context, "change it", &key, &seen, changes).await;
        assert!(ended.unwrap_err().text.contains("change it"));
    }
}
