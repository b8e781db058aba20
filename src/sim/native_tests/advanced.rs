//! Native controllers, scheduler and kubelets with the pods of an Advanced DaemonSet.
//!
//! No controller of Advanced DaemonSets runs in these tests, so they create the pods themselves.

use kube::api::{ApiResource, DynamicObject};

use super::*;

impl World {
    /// Returns a cluster with nodes n1, n2, …. Advanced DaemonSets are installed after the native controllers have started.
    async fn with_advanced(nodes: usize) -> Self {
        let world = Self::with_nodes(nodes).await;
        world.cluster.install_advanced();
        pass(31).await;
        world
    }

    fn advanced(&self) -> Api<DynamicObject> {
        let resource = ApiResource {
            group: "apps.kruise.io".to_owned(),
            version: "v1beta1".to_owned(),
            api_version: "apps.kruise.io/v1beta1".to_owned(),
            kind: "DaemonSet".to_owned(),
            plural: "daemonsets".to_owned(),
        };
        Api::namespaced_with(self.client.clone(), "default", &resource)
    }

    fn all_revisions(&self) -> Api<ControllerRevision> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Creates an Advanced DaemonSet, with the pods and the revision that its controller would create. Returns its UID.
    async fn make_advanced(
        &self,
        name: &str,
        version: &str,
        spec: Value,
        nodes: &[&str],
    ) -> String {
        let set = json!({
            "apiVersion": "apps.kruise.io/v1beta1",
            "kind": "DaemonSet",
            "metadata": { "name": name },
            "spec": {
                "selector": { "matchLabels": { "app": "web" } },
                "template": { "metadata": { "labels": { "app": "web" } }, "spec": spec },
            },
        });
        let set = serde_json::from_value(set).unwrap();
        let params = PostParams::default();
        let made = self.advanced().create(&params, &set).await.unwrap();
        let uid = made.metadata.uid.unwrap();
        let owner = json!([{
            "apiVersion": format!("apps.kruise.io/{version}"), "kind": "DaemonSet", "name": name, "uid": uid,
            "controller": true, "blockOwnerDeletion": true,
        }]);
        let metadata = |name: String| {
            json!({
                "name": name,
                "labels": { "app": "web", REVISION_HASH_LABEL: "one" },
                "ownerReferences": owner,
            })
        };
        let revision = json!({
            "metadata": metadata(format!("{name}-one")), "data": { "spec": {} }, "revision": 1,
        });
        let revision = serde_json::from_value(revision).unwrap();
        self.all_revisions()
            .create(&params, &revision)
            .await
            .unwrap();
        for node in nodes {
            let mut spec = spec.clone();
            spec["affinity"] = json!({ "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [{
                    "matchFields": [{ "key": "metadata.name", "operator": "In", "values": [node] }],
                }] },
            } });
            let pod = json!({ "metadata": metadata(format!("{name}-{node}")), "spec": spec });
            let pod = serde_json::from_value(pod).unwrap();
            self.pods().create(&params, &pod).await.unwrap();
        }
        uid
    }

    async fn set_condition(&self, pod: &str, kind: &str, status: &str) {
        let patch = json!({ "status": { "conditions": [{ "type": kind, "status": status }] } });
        let params = PatchParams::default();
        let patch = Patch::Strategic(patch);
        self.pods()
            .patch_status(pod, &params, &patch)
            .await
            .unwrap();
    }
}

fn plain() -> Value {
    json!({ "containers": [{ "name": "web", "image": "nginx:1" }] })
}

fn owners(pods: &[(String, Pod)]) -> usize {
    let owners = pods.iter().map(|(_, pod)| &pod.metadata.owner_references);
    owners.flatten().map(Vec::len).sum()
}

#[tokio::test(start_paused = true)]
async fn pods_of_an_advanced_daemonset_are_bound_to_their_nodes_and_become_ready() {
    let world = World::with_advanced(3).await;
    world
        .make_advanced("web", "v1beta1", plain(), &["n1", "n3"])
        .await;
    pass(3).await;
    let pods = world.list().await;
    let nodes: Vec<&str> = pods.iter().map(|(node, _)| node.as_str()).collect();
    assert_eq!(nodes, ["n1", "n3"]);
    assert!(pods.iter().all(|(_, pod)| is_ready(pod)));
}

#[tokio::test(start_paused = true)]
async fn background_deletion_in_either_version_deletes_pods_and_revisions() {
    for version in ["v1beta1", "v1alpha1"] {
        let world = World::with_advanced(2).await;
        world
            .make_advanced("web", version, plain(), &["n1", "n2"])
            .await;
        pass(3).await;
        let params = DeleteParams::background();
        world.advanced().delete("web", &params).await.unwrap();
        pass(5).await;
        assert_eq!(world.list().await.len(), 0, "{version}");
        assert_eq!(world.revisions().await, [], "{version}");
    }
}

#[tokio::test(start_paused = true)]
async fn objects_of_an_owner_with_an_unserved_version_are_kept() {
    let world = World::with_nodes(1).await;
    world.cluster.install_advanced();
    // The cluster does not serve the API version in the owner reference, so the garbage collector assumes that the owner exists.
    world.make_advanced("web", "v1", plain(), &["n1"]).await;
    world
        .advanced()
        .delete("web", &DeleteParams::background())
        .await
        .unwrap();
    pass(60).await;
    assert_eq!(world.list().await.len(), 1);
    assert_eq!(world.revisions().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn foreground_deletion_removes_the_advanced_daemonset_after_its_pods() {
    let world = World::with_advanced(1).await;
    world
        .make_advanced("web", "v1alpha1", plain(), &["n1"])
        .await;
    pass(3).await;
    let offline = Outage::default();
    world.kubelets.set_offline("n1", offline).await.unwrap();
    let params = DeleteParams::foreground();
    world.advanced().delete("web", &params).await.unwrap();
    pass(20).await;
    assert_eq!(world.list().await.len(), 1);
    assert!(world.advanced().get_opt("web").await.unwrap().is_some());
    world.kubelets.set_online("n1").await.unwrap();
    pass(5).await;
    assert_eq!(world.list().await.len(), 0);
    assert!(world.advanced().get_opt("web").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn orphans_outlive_the_advanced_daemonset() {
    let world = World::with_advanced(2).await;
    world
        .make_advanced("web", "v1beta1", plain(), &["n1", "n2"])
        .await;
    pass(3).await;
    let params = DeleteParams::orphan();
    world.advanced().delete("web", &params).await.unwrap();
    pass(5).await;
    assert!(world.advanced().get_opt("web").await.unwrap().is_none());
    let pods = world.list().await;
    assert_eq!((pods.len(), owners(&pods)), (2, 0));
    assert_eq!(world.revisions().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_native_daemonset_of_the_same_name_does_not_change_pods_of_the_advanced_one() {
    let world = World::with_advanced(1).await;
    let uid = world
        .make_advanced("web", "v1beta1", plain(), &["n1"])
        .await;
    pass(3).await;
    world.create(on_delete()).await;
    pass(5).await;
    world.set_image("nginx:2").await;
    pass(5).await;
    let pods = world.list().await;
    let of_advanced = |pod: &Pod| {
        let owners = pod.metadata.owner_references.as_ref().unwrap();
        owners.len() == 1 && owners[0].uid == uid
    };
    let (mine, native): (Vec<_>, Vec<_>) = pods.into_iter().partition(|(_, pod)| of_advanced(pod));
    assert_eq!((mine.len(), native.len()), (1, 1));
    assert_eq!(mine[0].1.metadata.name.as_deref(), Some("web-n1"));
    assert!(mine[0].1.metadata.deletion_timestamp.is_none());
    assert_eq!(world.status().await["currentNumberScheduled"], 1);
    let revision = world.all_revisions().get("web-one").await.unwrap();
    assert_eq!(revision.revision, 1);
    assert_eq!(revision.metadata.owner_references.unwrap()[0].uid, uid);
    world
        .sets()
        .delete("web", &DeleteParams::background())
        .await
        .unwrap();
    pass(5).await;
    assert_eq!(world.names().await, ["web-n1"]);
    assert_eq!(world.revisions().await, [("web-one".to_owned(), 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_native_daemonset_adopts_no_orphan_that_its_selector_does_not_match() {
    let world = World::with_advanced(1).await;
    world
        .make_advanced("other", "v1beta1", plain(), &["n1"])
        .await;
    pass(3).await;
    let label = Patch::Merge(json!({ "metadata": { "labels": { "app": "other" } } }));
    let params = PatchParams::default();
    world
        .pods()
        .patch("other-n1", &params, &label)
        .await
        .unwrap();
    world.create(on_delete()).await;
    world
        .advanced()
        .delete("other", &DeleteParams::orphan())
        .await
        .unwrap();
    pass(5).await;
    let orphan = world.pods().get("other-n1").await.unwrap();
    assert_eq!(orphan.metadata.owner_references.unwrap_or_default(), []);
    assert_eq!(world.list().await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_ready_only_if_all_readiness_gates_are_open() {
    let world = World::with_advanced(1).await;
    let mut spec = plain();
    let gates = ["InPlaceUpdateReady", "KruisePodReady"];
    spec["readinessGates"] = json!(gates.map(|gate| json!({ "conditionType": gate })));
    world.make_advanced("web", "v1beta1", spec, &["n1"]).await;
    let ready = async || {
        pass(3).await;
        let pod = world.pods().get("web-n1").await.unwrap();
        assert_eq!(condition(&pod, "ContainersReady").as_deref(), Some("True"));
        let conditions = pod.status.as_ref().unwrap().conditions.as_ref().unwrap();
        let ready = conditions.iter().find(|one| one.type_ == "Ready").unwrap();
        let why = (ready.reason.clone(), ready.message.clone());
        (
            is_ready(&pod),
            why.0.unwrap_or_default(),
            why.1.unwrap_or_default(),
        )
    };
    let (is_ready, reason, message) = ready().await;
    assert_eq!(
        (is_ready, reason.as_str()),
        (false, "ReadinessGatesNotReady")
    );
    assert_eq!(
        message,
        "corresponding condition of pod readiness gate \"InPlaceUpdateReady\" does not exist., \
         corresponding condition of pod readiness gate \"KruisePodReady\" does not exist."
    );
    world
        .set_condition("web-n1", "InPlaceUpdateReady", "True")
        .await;
    assert!(!ready().await.0);
    world
        .set_condition("web-n1", "KruisePodReady", "True")
        .await;
    assert!(ready().await.0);
    world
        .set_condition("web-n1", "KruisePodReady", "False")
        .await;
    let (is_ready, _, message) = ready().await;
    assert!(!is_ready);
    assert_eq!(
        message,
        "the status of pod readiness gate \"KruisePodReady\" is not \"True\", but False"
    );
}

#[tokio::test(start_paused = true)]
async fn an_image_is_changed_in_place_behind_a_closed_gate() {
    let world = World::with_advanced(1).await;
    let mut spec = plain();
    spec["readinessGates"] = json!([{ "conditionType": "InPlaceUpdateReady" }]);
    world.make_advanced("web", "v1beta1", spec, &["n1"]).await;
    world
        .set_condition("web-n1", "InPlaceUpdateReady", "True")
        .await;
    pass(3).await;
    let before = world.pods().get("web-n1").await.unwrap();
    assert!(is_ready(&before));
    let image_id = |pod: &Pod| {
        let statuses = pod.status.as_ref().unwrap().container_statuses.as_ref();
        let status = statuses.unwrap()[0].clone();
        (status.image_id, status.image, status.restart_count)
    };
    // Like the controller of Advanced DaemonSets: first mark the pod as not ready (gate and Ready), and then change image and
    // label.
    let conditions = json!([
        { "type": "InPlaceUpdateReady", "status": "False", "reason": "StartInPlaceUpdate" },
        { "type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady" },
    ]);
    let params = PatchParams::default();
    let closed = Patch::Strategic(json!({ "status": { "conditions": conditions } }));
    let pods = world.pods();
    pods.patch_status("web-n1", &params, &closed).await.unwrap();
    let image = Patch::Strategic(json!({
        "metadata": { "labels": { REVISION_HASH_LABEL: "two" } },
        "spec": { "containers": [{ "name": "web", "image": "nginx:2" }] },
    }));
    pods.patch("web-n1", &params, &image).await.unwrap();
    pass(30).await;
    let after = pods.get("web-n1").await.unwrap();
    assert_eq!(after.metadata.uid, before.metadata.uid);
    let (old, new) = (image_id(&before), image_id(&after));
    assert_ne!(old.0, new.0);
    assert_eq!((new.1.as_str(), new.2), ("nginx:2", 1));
    assert_eq!(
        condition(&after, "ContainersReady").as_deref(),
        Some("True")
    );
    assert!(!is_ready(&after));
    world
        .set_condition("web-n1", "InPlaceUpdateReady", "True")
        .await;
    pass(1).await;
    assert!(is_ready(&pods.get("web-n1").await.unwrap()));
}
