//! Large ControllerRevisions of other owners. A controller lists them together with the revisions of its DaemonSets.

use std::path::Path;

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};

use super::compare::{Figure, figure};
use super::controller::{Controller, SETTLE};
use super::plane::Plane;
use super::sets::Sets;

/// Number of large revisions to create.
pub(crate) const COUNT: usize = 100;
/// Number of 100-byte environment variables in each revision. Together they take 1 MB, below etcd's limit of 1.5 MB.
const VARIABLES: usize = 10_000;

/// Measures the memory of a controller after its start from this binary.
pub(crate) async fn start(binary: &Path, plane: &Plane, sets: &Sets) -> Result<Vec<Figure>> {
    sets.forget_reports().await?;
    let controller = Controller::start(binary, plane, sets.kind).await?;
    sets.wait_for_reports().await?;
    tokio::time::sleep(SETTLE).await;
    Ok(vec![
        figure("peak RSS of a start, MiB", controller.peak()?, 1),
        figure("RSS after it, MiB", controller.resident()?, 1),
        figure("CPU of the start, s", controller.usage()?.cpu, 2),
    ])
}

/// Creates this many large revisions in the namespace of the DaemonSets.
pub(crate) async fn make(client: &Client, count: usize) -> Result<()> {
    if count == 0 {
        return Ok(());
    }
    let owner = owner(client).await?;
    let revisions: Api<ControllerRevision> = Api::default_namespaced(client.clone());
    for number in 0..count {
        let revision = revision(number, &owner)?;
        revisions.create(&PostParams::default(), &revision).await?;
    }
    Ok(())
}

/// Creates an owner for the revisions, in place of a StatefulSet. The garbage collector keeps the revisions as long as their owner
/// exists.
async fn owner(client: &Client) -> Result<Value> {
    let owners: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let owner = serde_json::from_value(json!({"metadata": {"name": "other"}}))?;
    let owner = owners.create(&PostParams::default(), &owner).await?;
    let uid = owner.metadata.uid.context("a UID")?;
    Ok(
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": uid, "controller": true}),
    )
}

fn revision(number: usize, owner: &Value) -> Result<ControllerRevision> {
    let variable =
        |variable| json!({"name": format!("VARIABLE_{variable:05}"), "value": "x".repeat(64)});
    let container = json!({"name": "main", "image": "other:v1",
        "env": (0..VARIABLES).map(variable).collect::<Vec<_>>()});
    let template =
        json!({"metadata": {"labels": {"app": "other"}}, "spec": {"containers": [container]}});
    let revision = json!({"metadata": {"name": format!("other-{number:03}"), "labels": {"app": "other"},
        "ownerReferences": [owner]}, "revision": number, "data": {"spec": {"template": template}}});
    Ok(serde_json::from_value(revision)?)
}
