//! Creates pods on node 1 that don't belong to the DaemonSet, with a condition that falsely announces a new version.

use std::time::Duration;

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::objects::OLD;
use super::picture::condition_of;
use super::player::{Stage, from};
use super::said::{Shown, so_many};
use super::story::{Pace, secs};

/// Creates a pod without an owner and announces a new version on it.
pub(crate) async fn bare_pod(stage: Stage) -> anyhow::Result<()> {
    make_pod(&stage, "bare", json!({})).await?;
    forge(&stage, "bare", "PodNeedUpgrade", "True").await
}

/// Creates a pod that belongs to a ReplicaSet and announces a new version on it.
pub(crate) async fn pod_of_a_replica_set(stage: Stage) -> anyhow::Result<()> {
    let labels = json!({ "app": "replicated" });
    let mut owners = Value::Null;
    if stage.world.pace == Pace::Virtual {
        // The embedded cluster has no ReplicaSets. Its garbage collector assumes that owners of unknown kinds exist, so the pod
        // stays.
        owners = json!([{
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "replicated", "controller": true,
            "uid": "0b1dc0de-0000-4000-8000-000000000000",
        }]);
    }
    let metadata = json!({ "labels": labels, "ownerReferences": owners });
    make_pod(&stage, "replicated", metadata).await?;
    if stage.world.pace == Pace::Real {
        adopt(&stage, &labels).await?;
    }
    forge(&stage, "replicated", "PodNeedUpgrade", "True").await
}

/// Creates a ReplicaSet with this selector and waits until it has adopted the pod `replicated`.
async fn adopt(stage: &Stage, labels: &Value) -> anyhow::Result<()> {
    let set: ReplicaSet = from(json!({
        "metadata": { "name": "replicated" },
        "spec": {
            "replicas": 1,
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                // The service account doesn't exist, so the ReplicaSet can't create a pod. Otherwise it might create one before it
                // adopts this pod, and then delete one of the two.
                "spec": { "serviceAccountName": "nobody", "containers": [{ "name": "c", "image": OLD }] },
            },
        },
    }))?;
    let sets = stage.api::<ReplicaSet>();
    sets.create(&PostParams::default(), &set).await?;
    for _ in 0..300 {
        let pod = stage.api::<Pod>().get("replicated").await?;
        if pod.metadata.owner_references.is_some() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    anyhow::bail!("nobody adopted the pod")
}

/// Returns the manifest of a static pod with this image.
fn static_manifest(stage: &Stage, image: &str) -> String {
    let namespace = &stage.name;
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\n  namespace: {namespace}\nspec:\n  containers:\n  - name: c\n    image: {image}\n"
    )
}

/// Creates a static pod on node 1, as a manifest file and a mirror pod in the API, and announces a new version on it.
pub(crate) async fn static_pod(stage: Stage) -> anyhow::Result<()> {
    let file = stage.agents.manifests(1).join("web.yaml");
    std::fs::write(file, static_manifest(&stage, OLD))?;
    let name = stage.node(1);
    let node = Api::<Node>::all(stage.world.client.clone())
        .get(&name)
        .await?;
    let metadata = json!({
        "annotations": { "kubernetes.io/config.mirror": "0123456789abcdef", "kubernetes.io/config.source": "file" },
        "ownerReferences": [{
            "apiVersion": "v1", "kind": "Node", "name": name, "uid": node.metadata.uid, "controller": true,
        }],
    });
    let pod = format!("web-{name}");
    make_pod(&stage, &pod, metadata).await?;
    forge(&stage, &pod, "PodNeedUpgrade", "True").await?;
    if stage.world.pace == Pace::Real {
        bind_static_role(&stage).await?;
    }
    Ok(())
}

/// Lets agents read ConfigMaps in the story's namespace. In a real installation, manifests/overlays/static-pods does that for
/// kube-system.
async fn bind_static_role(stage: &Stage) -> anyhow::Result<()> {
    let role = "yurt-ds-ota-server-static-pods";
    let binding: RoleBinding = from(json!({
        "metadata": { "name": role },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
        "subjects": [{ "kind": "ServiceAccount", "name": "yurt-ds-ota-server", "namespace": "yurt-ds-edge" }],
    }))?;
    let bindings = stage.api::<RoleBinding>();
    bindings.create(&PostParams::default(), &binding).await?;
    // Wait, because the authorizers of the API server see a new binding only after a moment.
    tokio::time::sleep(secs(2)).await;
    Ok(())
}

/// Creates the ConfigMap from which the agent takes a new manifest of the static pod. The manifest has this image.
pub(crate) async fn config_map(stage: Stage, image: &str) -> anyhow::Result<()> {
    let map: ConfigMap = from(json!({
        "metadata": { "name": "yurt-static-set-web" },
        "data": { "web.yaml": static_manifest(&stage, image) },
    }))?;
    let maps = stage.api::<ConfigMap>();
    maps.create(&PostParams::default(), &map).await?;
    Ok(())
}

/// Checks that the manifest file of the static pod on node 1 has this image.
pub(crate) async fn manifest_says(stage: Stage, image: &str) -> anyhow::Result<()> {
    let found = std::fs::read_to_string(stage.agents.manifests(1).join("web.yaml"))?;
    anyhow::ensure!(found == static_manifest(&stage, image), "{found}");
    Ok(())
}

/// Expects that an agent lists two pods and that the static pod is announced as outdated.
pub(crate) fn shown_static() -> Shown {
    Shown::new("the static pod as outdated", |list, picture, node| {
        so_many(2).holds(list, picture, node)?;
        let name = format!("web-{node}");
        let items = list["items"].as_array().ok_or("no items")?;
        let pod = items.iter().find(|item| item["metadata"]["name"] == *name);
        let pod: Pod = serde_json::from_value(pod.cloned().ok_or("not listed")?)
            .map_err(|error| error.to_string())?;
        if condition_of(&pod, "PodNeedUpgrade").is_some_and(|c| c.status == "True") {
            Ok(())
        } else {
            Err("not marked yet".into())
        }
    })
}

/// Creates a pod on node 1 with this name and metadata.
async fn make_pod(stage: &Stage, name: &str, metadata: Value) -> anyhow::Result<()> {
    let mut manifest = json!({
        "metadata": metadata,
        "spec": { "nodeName": stage.node(1), "containers": [{ "name": "c", "image": OLD }] },
    });
    manifest["metadata"]["name"] = name.into();
    let pod: Pod = from(manifest)?;
    let made = stage
        .api::<Pod>()
        .create(&PostParams::default(), &pod)
        .await;
    made.map(drop).map_err(Into::into)
}

/// Writes a condition to a pod in the form in which the controller writes it.
async fn forge(stage: &Stage, pod: &str, kind: &str, status: &str) -> anyhow::Result<()> {
    let hash = stage.see(|picture| picture.current().cloned()).await;
    let message = format!("controllerrevision: {}", hash.unwrap_or_default());
    let condition = json!({ "type": kind, "status": status, "message": message });
    let patch = Patch::Strategic(json!({ "status": { "conditions": [condition] } }));
    let patched = stage
        .api::<Pod>()
        .patch_status(pod, &PatchParams::default(), &patch)
        .await;
    patched.map(drop).map_err(Into::into)
}
