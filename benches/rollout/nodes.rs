//! Nodes with fake kubelets.

use std::time::Duration;

use anyhow::Result;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::plane::wait_within;

/// Number of pods that each node may have. The fake kubelet's default is too small for many DaemonSets.
const ROOM: &str = "10000";

/// Adds nodes until there are this many, and waits until all are Ready.
pub(crate) async fn make_nodes(client: &Client, count: usize) -> Result<()> {
    let api: Api<Node> = Api::all(client.clone());
    let present = api.list_metadata(&ListParams::default()).await?.items.len();
    let results = stream::iter(present..count).map(|number| {
        let api = api.clone();
        async move {
            api.create(&PostParams::default(), &node(number))
                .await
                .map(drop)
        }
    });
    results.buffer_unordered(32).try_collect::<()>().await?;
    wait_for_ready(&api).await
}

/// Takes the first `count` nodes offline: the fake kubelet ignores them and their pods, and they are not Ready.
pub(crate) async fn take_offline(client: &Client, count: usize) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let annotation = marked(&json!("true"));
    for pod in pods.list(&ListParams::default()).await? {
        let on = pod.spec.and_then(|spec| spec.node_name).unwrap_or_default();
        let number: usize = on.trim_start_matches("node-").parse().unwrap_or(usize::MAX);
        if number < count {
            let name = pod.metadata.name.unwrap_or_default();
            pods.patch(&name, &PatchParams::default(), &annotation)
                .await?;
        }
    }
    for number in 0..count {
        let name = name(number);
        nodes
            .patch(&name, &PatchParams::default(), &annotation)
            .await?;
        let time = Timestamp::now().to_string();
        let condition = json!({"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "lastTransitionTime": time});
        let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
        nodes
            .patch_status(&name, &PatchParams::default(), &patch)
            .await?;
    }
    Ok(())
}

/// Brings these nodes online again. Existing pods stay as they are.
pub(crate) async fn bring_back(client: &Client, count: usize) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    for number in 0..count {
        let (name, annotation) = (name(number), marked(&Value::Null));
        nodes
            .patch(&name, &PatchParams::default(), &annotation)
            .await?;
    }
    wait_for_ready(&nodes).await
}

/// Returns a patch of the annotation that makes the fake kubelet ignore a node or a pod.
fn marked(offline: &Value) -> Patch<Value> {
    Patch::Merge(json!({"metadata": {"annotations": {"offline": offline}}}))
}

/// Waits until all nodes are Ready.
async fn wait_for_ready(nodes: &Api<Node>) -> Result<()> {
    let (limit, pause) = (Duration::from_secs(600), Duration::from_millis(500));
    wait_within(limit, pause, "the nodes", || async {
        let nodes = nodes.list(&ListParams::default()).await?.items;
        Ok(nodes.iter().all(is_ready))
    })
    .await
}

pub(crate) fn name(number: usize) -> String {
    format!("node-{number:05}")
}

pub(crate) fn node(number: usize) -> Node {
    let name = name(number);
    let room = json!({"cpu": "32", "memory": "256Gi", "pods": ROOM});
    serde_json::from_value(json!({"metadata": {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"},
        "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}},
        "status": {"allocatable": room, "capacity": room}}))
    .expect("a node")
}

fn is_ready(node: &Node) -> bool {
    let conditions = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
