//! Writes that hold only for what was looked at.

use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::Context;
use super::access::Trouble;
use crate::client::{Failure, within};
use crate::index::SetKey;

/// Who writes, for the API server's records.
pub(super) const FIELD_MANAGER: &str = "yurt-ds-ctl";
/// One call to the API server; a person waits for it.
const DEADLINE: Duration = Duration::from_secs(30);
/// How often a write is tried again that only a status was faster than. On a large fleet in mid-rollout the native
/// controller writes several a second, and this is many times as quick.
const ATTEMPTS: usize = 20;

/// Which kind of patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A merge patch.
    Merge,
    /// A strategic merge patch.
    Strategic,
}

/// Patches a DaemonSet, if its specification and annotations are still those of `seen`; false when they are not.
///
/// The status is not looked at: the native controller writes it all the time, and nothing of what people ask for rests
/// on it.
///
/// # Errors
/// Everything else, explained; `doing` says what for.
pub(super) async fn write_if_unchanged(
    context: &Context,
    doing: &str,
    key: &SetKey,
    seen: &ObjectMeta,
    (kind, mut patch): (Kind, Value),
) -> Result<bool, Trouble> {
    let access = &context.access;
    let api: Api<DaemonSet> = Api::namespaced(access.client.clone(), &key.namespace);
    let params = PatchParams {
        field_manager: Some(FIELD_MANAGER.into()),
        ..PatchParams::default()
    };
    patch["metadata"]["uid"] = json!(seen.uid);
    patch["metadata"]["resourceVersion"] = json!(seen.resource_version);
    for _ in 0..ATTEMPTS {
        let wanted = match kind {
            Kind::Merge => Patch::Merge(&patch),
            Kind::Strategic => Patch::Strategic(&patch),
        };
        match within(DEADLINE, api.patch(&key.name, &params, &wanted)).await {
            Ok(_) => return Ok(true),
            Err(error) if error.failure() == Failure::Conflict => {}
            Err(error) => return Err(access.explain(doing, &error)),
        }
        let Some(now) = access.find(doing, api.get_metadata(&key.name)).await? else {
            return Ok(false);
        };
        if !is_same(seen, &now.metadata) {
            return Ok(false);
        }
        patch["metadata"]["resourceVersion"] = json!(now.metadata.resource_version);
    }
    Ok(false)
}

/// Whether nobody asked for anything else meanwhile.
fn is_same(seen: &ObjectMeta, now: &ObjectMeta) -> bool {
    (&seen.uid, seen.generation) == (&now.uid, now.generation)
        && seen.deletion_timestamp == now.deletion_timestamp
        && seen
            .annotations
            .iter()
            .flatten()
            .eq(now.annotations.iter().flatten())
}
