//! Tests of migrations on the embedded cluster, in both directions, with and without a controller.

mod applied_again;
mod extended;
mod interrupted;
mod refused;
mod surge;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::controller::Kinds;
use crate::core::names::REVISION_HASH_LABEL;
use crate::ctl::Code;
use crate::ctl::tests::CtlWorld;
use crate::k8s::AdvancedDaemonSet;
use crate::k8s::client::Role;
use crate::shutdown;
use crate::sim::cluster::faults::{Fault, FaultGuard};
use crate::sim::gc;
use crate::sim::world::start_controller;
use crate::task::Task;

/// Time in which controllers and kubelets react to a change.
const A_MOMENT: Duration = Duration::from_secs(60);

/// Cluster that serves both kinds, with a garbage collector and the DaemonSet `default/web`.
struct Migrating {
    world: CtlWorld,
    _collector: Task,
}

impl Migrating {
    async fn with_nodes(count: usize) -> Self {
        let world = CtlWorld::with_nodes(count).await;
        world.cluster.install_advanced();
        let collector = gc::start(world.cluster.client("gc"));
        tokio::time::sleep(A_MOMENT).await;
        Self {
            world,
            _collector: collector,
        }
    }

    fn start_controller(&self) -> (shutdown::Trigger, JoinHandle<()>) {
        let client = self.world.cluster.client(&Role::Controller.user_agent());
        let kinds = Kinds {
            native: true,
            advanced: true,
        };
        start_controller(client, self.world.context.clock.clone(), kinds)
    }

    /// Creates two nodes, and waits until a controller has reported on the DaemonSet.
    async fn with_controller() -> (Self, (shutdown::Trigger, JoinHandle<()>)) {
        let cluster = Self::with_nodes(2).await;
        let controller = cluster.start_controller();
        tokio::time::sleep(A_MOMENT).await;
        (cluster, controller)
    }

    fn advanced(&self) -> Api<DynamicObject> {
        let kind = ApiResource::erase::<AdvancedDaemonSet>(&());
        Api::namespaced_with(self.world.client.clone(), "default", &kind)
    }

    async fn native(&self) -> Value {
        serde_json::to_value(self.world.sets().get("web").await.unwrap()).unwrap()
    }

    /// Returns UID and revision hash of each node's pod.
    async fn pods(&self) -> BTreeMap<String, (String, String)> {
        let pods: Api<Pod> = Api::namespaced(self.world.client.clone(), "default");
        let pods = pods.list(&Default::default()).await.unwrap();
        let told = |pod: &Pod| {
            let node = pod.spec.as_ref().unwrap().node_name.clone();
            let hash = pod.labels()[REVISION_HASH_LABEL].clone();
            (node.unwrap(), (pod.uid().unwrap(), hash))
        };
        pods.iter().map(told).collect()
    }

    /// Returns number and hash of every revision, the oldest first.
    async fn revisions(&self) -> Vec<(i64, String)> {
        let all: Api<ControllerRevision> = Api::namespaced(self.world.client.clone(), "default");
        let all = all.list(&Default::default()).await.unwrap();
        let told = |one: &ControllerRevision| {
            let hash = one.labels().get(REVISION_HASH_LABEL).cloned();
            (one.revision, hash.unwrap_or_default())
        };
        let mut told: Vec<(i64, String)> = all.iter().map(told).collect();
        told.sort();
        told
    }

    async fn set_advanced_image(&self, image: &str) {
        let containers = json!([{ "name": "c", "image": image }]);
        self.patch_advanced(
            json!({ "spec": { "template": { "spec": { "containers": containers } } } }),
        )
        .await;
    }

    async fn patch_advanced(&self, patch: Value) {
        let patch = Patch::Merge(patch);
        let patched = self
            .advanced()
            .patch("web", &PatchParams::default(), &patch)
            .await;
        patched.unwrap();
        tokio::time::sleep(A_MOMENT).await;
    }
}

#[tokio::test(start_paused = true)]
async fn migration_to_the_other_kind_and_back_restarts_no_pod() {
    let cluster = Migrating::with_nodes(3).await;
    let _controller = cluster.start_controller();
    let world = &cluster.world;
    world.set_image("web:2").await;
    let (pods, revisions) = (cluster.pods().await, cluster.revisions().await);
    let dry = world.text("migrate web --to advanced --dry-run").await;
    for words in [
        "would become an Advanced DaemonSet",
        "maxUnavailable: 10%",
        "apiVersion: apps.kruise.io/v1beta1",
    ] {
        assert!(dry.contains(words), "{words}: {dry}");
    }
    assert!(cluster.advanced().get_opt("web").await.unwrap().is_none());
    let output = world.text("migrate web --to advanced").await;
    assert!(
        output.contains("is now an Advanced DaemonSet (apps.kruise.io/v1beta1)"),
        "{output}"
    );
    tokio::time::sleep(A_MOMENT).await;
    assert_eq!(cluster.pods().await, pods);
    assert_eq!(cluster.revisions().await, revisions);
    assert_eq!(world.code("status ads/web --wait").await, Code::Complete);
    // The controller of Advanced DaemonSets creates the revision of web:3, which is not in Kubernetes' form.
    cluster.set_advanced_image("web:3").await;
    assert_eq!(world.code("status web --wait").await, Code::Complete);
    let (pods, revisions) = (cluster.pods().await, cluster.revisions().await);
    assert_eq!(revisions.len(), 3);
    let output = world.text("migrate web --to native").await;
    assert!(
        output
            .contains("rollingUpdate.maxUnavailable becomes apps.openyurt.io/max-unavailable: 10%"),
        "{output}"
    );
    tokio::time::sleep(A_MOMENT).await;
    assert_eq!(cluster.pods().await, pods);
    assert_eq!(cluster.revisions().await, revisions);
    let set = cluster.native().await;
    let annotations = &set["metadata"]["annotations"];
    assert_eq!(annotations["apps.openyurt.io/paused"], Value::Null);
    assert_eq!(set["status"]["updatedNumberScheduled"], 3);
    assert_eq!(world.code("status web --wait").await, Code::Complete);
    world.text("undo web").await;
    tokio::time::sleep(A_MOMENT).await;
    let after = cluster.pods().await;
    assert!(
        after.values().all(|(_, hash)| *hash == revisions[1].1),
        "{after:?}"
    );
    let output = world.text("migrate web --to native").await;
    assert!(
        output.contains("is already a native DaemonSet (apps/v1)"),
        "{output}"
    );
}

#[tokio::test(start_paused = true)]
async fn migration_during_a_rollout_keeps_the_revision_of_each_pod() {
    let cluster = Migrating::with_nodes(4).await;
    let world = &cluster.world;
    let running = cluster.start_controller();
    world.text("migrate web --to advanced").await;
    cluster
        .patch_advanced(
            json!({ "spec": { "updateStrategy": { "rollingUpdate": { "partition": 2 } } } }),
        )
        .await;
    cluster.set_advanced_image("web:2").await;
    let before = cluster.pods().await;
    let hashes: BTreeSet<&String> = before.values().map(|(_, hash)| hash).collect();
    assert_eq!(hashes.len(), 2);
    world.text("migrate web --to native").await;
    tokio::time::sleep(A_MOMENT).await;
    assert_eq!(cluster.pods().await, before);
    assert_eq!(
        cluster.native().await["status"]["updatedNumberScheduled"],
        2
    );
    world.text("migrate web --to advanced").await;
    tokio::time::sleep(A_MOMENT).await;
    assert_eq!(cluster.pods().await, before);
    // A migration must not restart pods even if no yurt-ds controller is running.
    running.0.request();
    running.1.await.unwrap();
    world.text("migrate web --to native").await;
    tokio::time::sleep(A_MOMENT).await;
    assert_eq!(cluster.pods().await, before);
    let output = world.text("migrate web --to advanced").await;
    assert!(
        output.contains("The yurt-ds controller has not processed it yet"),
        "{output}"
    );
    tokio::time::sleep(A_MOMENT).await;
    assert_eq!(cluster.pods().await, before);
}

/// Makes the API server reject `ctl`'s creation of `resource` once the old DaemonSet has been deleted.
fn refuse_after_deletion(cluster: &Migrating, resource: &'static str) -> FaultGuard {
    let deletions = Arc::new(AtomicUsize::new(0));
    cluster.world.cluster.faults().add(move |request| {
        if request.user_agent != "ctl" {
            return Fault::Pass;
        }
        match (request.verb.as_str(), request.resource.as_str()) {
            // Count deletions: the first one is a dry run, the second one is real.
            ("delete", "daemonsets") => drop(deletions.fetch_add(1, Ordering::Relaxed)),
            ("create", made) if made == resource && deletions.load(Ordering::Relaxed) > 1 => {
                return Fault::Status(403, None);
            }
            _ => {}
        }
        Fault::Pass
    })
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_migration_is_finished_by_the_same_command() {
    for resource in ["daemonsets", "controllerrevisions"] {
        let cluster = Migrating::with_nodes(2).await;
        let world = &cluster.world;
        let _controller = cluster.start_controller();
        world.text("migrate web --to advanced").await;
        cluster.set_advanced_image("web:2").await;
        let (pods, revisions) = (cluster.pods().await, cluster.revisions().await);
        let fault = refuse_after_deletion(&cluster, resource);
        let (_, ended) = world.run("migrate web --to native").await;
        let error = ended.unwrap_err();
        for words in [
            "saved in the ControllerRevision web-migration",
            "yurt-ds ctl migrate default/web --to native",
        ] {
            assert!(error.text.contains(words), "{words}: {error}");
        }
        drop(fault);
        tokio::time::sleep(A_MOMENT).await;
        let error = world.error("migrate web --to native --dry-run").await;
        assert_eq!(error.code, Code::Refused);
        let error = world.error("migrate web --to advanced").await;
        assert!(error.text.contains("Finish it first"), "{error}");
        let output = world.text("migrate web --to native").await;
        assert!(
            output.starts_with("The interrupted migration of default/web"),
            "{output}"
        );
        tokio::time::sleep(A_MOMENT).await;
        assert_eq!(cluster.pods().await, pods);
        assert_eq!(cluster.revisions().await, revisions);
        assert_eq!(
            cluster.native().await["status"]["updatedNumberScheduled"],
            2
        );
    }
}

#[tokio::test(start_paused = true)]
async fn objects_that_the_api_server_would_reject_are_refused_before_the_deletion() {
    let cluster = Migrating::with_nodes(1).await;
    let world = &cluster.world;
    for (verb, words) in [
        ("create", "Not allowed to create the DaemonSet"),
        ("delete", "Not allowed to delete the DaemonSet"),
    ] {
        let fault = world.cluster.faults().add(move |request| {
            let is_it = request.user_agent == "ctl"
                && request.resource == "daemonsets"
                && request.verb == verb;
            if is_it {
                Fault::Status(403, None)
            } else {
                Fault::Pass
            }
        });
        let error = world.error("migrate web --to advanced").await;
        assert!(error.text.contains(words), "{words}: {error}");
        drop(fault);
    }
    assert_eq!(
        cluster.native().await["metadata"]["deletionTimestamp"],
        Value::Null
    );
    assert_eq!(cluster.revisions().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn migration_is_refused_with_a_reason_and_changes_nothing() {
    let cluster = Migrating::with_nodes(1).await;
    let world = &cluster.world;
    let refused = async |patch: Value, code: Code, words: &str| {
        world.patch(patch).await;
        let error = world.error("migrate ds/web --to advanced").await;
        assert_eq!(error.code, code, "{error}");
        assert!(error.text.contains(words), "{words}: {error}");
        assert!(error.text.contains("nothing was changed"), "{error}");
    };
    let finalizers = |list: Value| json!({ "metadata": { "finalizers": list } });
    refused(
        finalizers(json!(["example.io/keep"])),
        Code::Refused,
        "the finalizer example.io/keep",
    )
    .await;
    world
        .patch(
            json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": ["example.io/keep"] } }),
        )
        .await;
    let owner = json!([{ "apiVersion": "v1", "kind": "Agent", "name": "edge", "uid": "u", "controller": true }]);
    refused(
        json!({ "metadata": { "ownerReferences": owner } }),
        Code::Refused,
        "Agent edge controls it",
    )
    .await;
    world
        .patch(json!({ "metadata": { "ownerReferences": [{ "$patch": "delete", "uid": "u" }] } }))
        .await;
    let annotations = json!({ "apps.openyurt.io/max-unavailable": "lots" });
    refused(
        json!({ "metadata": { "annotations": annotations } }),
        Code::Invalid,
        "is \"lots\"",
    )
    .await;
    let annotations = json!({ "apps.openyurt.io/max-unavailable": null });
    let advanced = json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "DaemonSet", "metadata": { "name": "web" },
        "spec": { "selector": { "matchLabels": { "app": "other" } }, "template": {
            "metadata": { "labels": { "app": "other" } },
            "spec": { "containers": [{ "name": "c", "image": "web:1" }] },
        } },
    });
    let advanced = serde_json::from_value(advanced).unwrap();
    cluster
        .advanced()
        .create(&Default::default(), &advanced)
        .await
        .unwrap();
    refused(
        json!({ "metadata": { "annotations": annotations } }),
        Code::Refused,
        "of the same name exists",
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn without_the_crd_nothing_is_deleted() {
    let world = CtlWorld::with_nodes(1).await;
    let error = world.error("migrate web --to advanced").await;
    assert_eq!(error.code, Code::Refused);
    assert!(
        error
            .text
            .contains("kubectl apply -k manifests/components/advanced"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn eject_turns_an_advanced_daemonset_into_a_native_one() {
    let cluster = Migrating::with_nodes(2).await;
    let world = &cluster.world;
    let _controller = cluster.start_controller();
    world.text("migrate web --to advanced").await;
    cluster
        .patch_advanced(
            json!({ "spec": { "updateStrategy": { "rollingUpdate": { "paused": true } } } }),
        )
        .await;
    cluster.set_advanced_image("web:2").await;
    let error = world.error("eject web").await;
    assert_eq!(error.code, Code::Refused);
    assert!(
        error.text.contains("2 of 2 nodes run an old revision"),
        "{error}"
    );
    cluster
        .patch_advanced(
            json!({ "spec": { "updateStrategy": { "rollingUpdate": { "paused": null } } } }),
        )
        .await;
    let pods = cluster.pods().await;
    let dry = world.text("eject web --dry-run").await;
    // The dry run prints the DaemonSet that is returned to Kubernetes, not the paused one that is created first.
    let (_, manifest) = dry.split_once("---\n").unwrap();
    assert!(
        manifest.contains("type: RollingUpdate") && manifest.contains("maxUnavailable: 10%"),
        "{dry}"
    );
    assert!(!manifest.contains("apps.openyurt.io/"), "{dry}");
    let output = world.text("eject web").await;
    assert!(
        output.contains("default/web was handed back to Kubernetes."),
        "{output}"
    );
    tokio::time::sleep(A_MOMENT).await;
    assert_eq!(cluster.pods().await, pods);
    let set = cluster.native().await;
    assert_eq!(
        set["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"],
        "10%"
    );
    let annotations = set["metadata"]["annotations"].as_object().unwrap();
    assert!(
        annotations
            .keys()
            .all(|key| !key.starts_with("apps.openyurt.io/")),
        "{set}"
    );
    assert!(cluster.advanced().get_opt("web").await.unwrap().is_none());
}
