//! A complete installation of yurt-ds on the embedded cluster, as the manifests create it.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::PostParams;
use kube::{Api, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::core::names::{LEASE, LEASE_KINDS};
use crate::ctl::tests::CtlWorld;
use crate::manifests;
use crate::sim::cluster::resources::Storage;

/// Time in which kubelets start pods.
const A_MOMENT: Duration = Duration::from_secs(60);

/// Names of the admission policies in the manifests.
const POLICIES: [&str; 6] = [
    "yurt-ds-controller-pods",
    "yurt-ds-controller-managed",
    "yurt-ds-controller-jobs",
    "yurt-ds-controller-revisions",
    "yurt-ds-controller-status",
    "yurt-ds-ota-server",
];

/// Installs controller, agents, policies and the definition of Advanced DaemonSets, and waits until the pods are Ready.
pub(in crate::ctl) async fn install(world: &CtlWorld) {
    for name in ["yurt-ds", "yurt-ds-edge"] {
        let api: Api<Namespace> = Api::all(world.client.clone());
        create(&api, json!({ "metadata": { "name": name } })).await;
    }
    let sets: Api<DaemonSet> = Api::namespaced(world.client.clone(), "yurt-ds-edge");
    create(&sets, agents()).await;
    for name in ["controller-1", "controller-2"] {
        create_controller(world, name, &controller("yurt-ds:0.1.0")).await;
    }
    let policies = POLICIES.map(policy);
    world
        .cluster
        .restore(Storage::ValidatingAdmissionPolicies, policies);
    bind_policies(world, &POLICIES);
    let definition = manifests::crd_definition();
    let storage = Storage::CustomResourceDefinitions;
    world.cluster.restore(storage, [definition]);
    tokio::time::sleep(A_MOMENT).await;
    renew(world, "yurt-ds", "native,advanced", 1).await;
}

pub(super) async fn create<K>(api: &Api<K>, object: Value)
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
{
    let object = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

/// Returns the specification of a controller's pod.
pub(super) fn controller(image: &str) -> Value {
    json!({
        "nodeName": "n1",
        "serviceAccountName": "yurt-ds-controller",
        "containers": [{ "name": "controller", "image": image, "command": ["/yurt-ds", "controller"] }],
    })
}

/// Creates a pod with the labels of the controller.
pub(super) async fn create_controller(world: &CtlWorld, name: &str, spec: &Value) {
    let labels = json!({ "app.kubernetes.io/component": "controller" });
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), "yurt-ds");
    let meta = json!({ "name": name, "labels": labels });
    create(&pods, json!({ "metadata": meta, "spec": spec })).await;
}

fn agents() -> Value {
    let labels = json!({ "app.kubernetes.io/component": "ota-server" });
    let container = json!({ "name": "ota-server", "image": "yurt-ds:0.1.0", "command": ["/yurt-ds", "ota-server"] });
    json!({
        "metadata": {
            "name": "yurt-ds-ota-server",
            "labels": labels,
            "annotations": { "apps.openyurt.io/update-strategy": "AdvancedRollingUpdate" },
        },
        "spec": {
            "updateStrategy": { "type": "OnDelete" },
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": { "containers": [container] } },
        },
    })
}

fn policy(name: &str) -> Value {
    let account = if name.contains("controller") {
        "yurt-ds:yurt-ds-controller"
    } else {
        "yurt-ds-edge:yurt-ds-ota-server"
    };
    let expression = format!("request.userInfo.username == \"system:serviceaccount:{account}\"");
    json!({
        "metadata": { "name": name, "uid": name },
        "spec": { "matchConditions": [{ "name": "account", "expression": expression }] },
    })
}

/// Stores a binding for each of these policies.
fn bind_policies(world: &CtlWorld, policies: &[&str]) {
    let binding = |name: &&str| {
        json!({
            "metadata": { "name": name, "uid": name },
            "spec": { "policyName": name, "validationActions": ["Deny"] },
        })
    };
    let storage = Storage::ValidatingAdmissionPolicyBindings;
    world.cluster.restore(storage, policies.iter().map(binding));
}

/// Writes the Lease of a controller that was renewed some seconds ago.
pub(super) async fn renew(world: &CtlWorld, namespace: &str, kinds: &str, ago: i64) {
    let at: Timestamp = world.context.clock.now() - SignedDuration::from_secs(ago);
    let lease = json!({
        "metadata": { "name": LEASE, "annotations": { LEASE_KINDS: kinds } },
        "spec": { "holderIdentity": "controller-1-abc", "renewTime": format!("{at:.6}") },
    });
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), namespace);
    // Ignore the error: there may be no Lease yet.
    let _ = leases.delete(LEASE, &Default::default()).await;
    create(&leases, lease).await;
}
