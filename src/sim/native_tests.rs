//! Tests of the native controllers and fake kubelets together on the embedded cluster, in virtual time.

mod advanced;

use std::time::Duration;

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::cluster::{Cluster, ClusterOptions};
use super::kubelet::{Behaviour, FakeNodeSpec, Kubelets, Outage};
use super::pulse::SilentNodes;
use super::{kubelet, native};
use crate::clock::Clock;
use crate::core::names::{REVISION_HASH_LABEL, TEMPLATE_GENERATION_LABEL};
use crate::task::Task;

struct World {
    cluster: Cluster,
    client: Client,
    kubelets: Kubelets,
    _tasks: Vec<Task>,
}

impl World {
    /// Returns a cluster with the native controllers and the nodes n1, n2, ….
    async fn with_nodes(count: usize) -> Self {
        let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
        let cluster = Cluster::new(ClusterOptions::new(clock.clone(), 1));
        let client = |agent: &str| cluster.client(agent);
        let pulse = SilentNodes::default();
        let options = kubelet::KubeletOptions {
            pulse: Some(pulse.clone()),
            ..kubelet::KubeletOptions::default()
        };
        let kubelets = Kubelets::start(client("kubelet"), clock.clone(), options);
        let tasks = native::start(client, &clock, pulse, Duration::from_secs(40));
        let nodes = (1..=count).map(|n| FakeNodeSpec::named(format!("n{n}")));
        kubelets.add_nodes(nodes.collect()).await.unwrap();
        Self {
            client: cluster.client("test"),
            cluster,
            kubelets,
            _tasks: tasks,
        }
    }

    fn sets(&self) -> Api<DaemonSet> {
        Api::namespaced(self.client.clone(), "default")
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    async fn create(&self, strategy: Value) {
        let set = json!({
            "metadata": { "name": "web" },
            "spec": {
                "selector": { "matchLabels": { "app": "web" } },
                "updateStrategy": strategy,
                "template": {
                    "metadata": { "labels": { "app": "web" } },
                    "spec": { "containers": [{ "name": "web", "image": "nginx:1" }] },
                },
            },
        });
        let set = serde_json::from_value(set).unwrap();
        self.sets()
            .create(&PostParams::default(), &set)
            .await
            .unwrap();
    }

    async fn patch(&self, patch: Value) {
        let params = PatchParams::default();
        let patch = Patch::Strategic(patch);
        self.sets().patch("web", &params, &patch).await.unwrap();
    }

    async fn set_image(&self, image: &str) {
        let containers = json!([{ "name": "web", "image": image }]);
        let spec = json!({ "template": { "spec": { "containers": containers } } });
        self.patch(json!({ "spec": spec })).await;
    }

    /// Returns all pods with the names of their nodes, sorted by node.
    async fn list(&self) -> Vec<(String, Pod)> {
        let pods = self.pods().list(&ListParams::default()).await.unwrap();
        let node = |pod: &Pod| pod.spec.as_ref().unwrap().node_name.clone();
        let mut pods: Vec<(String, Pod)> = pods
            .into_iter()
            .map(|pod| (node(&pod).unwrap_or_default(), pod))
            .collect();
        pods.sort_by_key(|(node, pod)| (node.clone(), pod.metadata.name.clone()));
        pods
    }

    async fn names(&self) -> Vec<String> {
        let pods = self.list().await.into_iter();
        pods.map(|(_, pod)| pod.metadata.name.unwrap()).collect()
    }

    async fn on(&self, node: &str) -> Vec<Pod> {
        let pods = self.list().await.into_iter();
        pods.filter(|(n, _)| n == node)
            .map(|(_, pod)| pod)
            .collect()
    }

    async fn status(&self) -> Value {
        let set = self.sets().get("web").await.unwrap();
        serde_json::to_value(set.status.unwrap()).unwrap()
    }

    async fn revisions(&self) -> Vec<(String, i64)> {
        let api: Api<ControllerRevision> = Api::namespaced(self.client.clone(), "default");
        let list = api.list(&ListParams::default()).await.unwrap();
        let mut all: Vec<(String, i64)> = list
            .into_iter()
            .map(|r| (r.metadata.name.unwrap(), r.revision))
            .collect();
        all.sort_by_key(|(_, number)| *number);
        all
    }

    /// Returns the status of a node's Ready condition, and the node's taints.
    async fn node(&self, name: &str) -> (String, Vec<String>) {
        let api: Api<Node> = Api::all(self.client.clone());
        let node = api.get(name).await.unwrap();
        let conditions = node.status.unwrap().conditions.unwrap();
        let ready = conditions.iter().find(|c| c.type_ == "Ready").unwrap();
        let taints = node.spec.unwrap().taints.unwrap_or_default().into_iter();
        let taints = taints.map(|taint| format!("{}:{}", taint.key, taint.effect));
        (ready.status.clone(), taints.collect())
    }

    async fn delete(&self, name: &str) {
        let params = DeleteParams::default();
        self.pods().delete(name, &params).await.unwrap();
    }
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

fn on_delete() -> Value {
    json!({ "type": "OnDelete" })
}

fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").as_deref() == Some("True")
}

fn condition(pod: &Pod, kind: &str) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let condition = conditions.iter().find(|c| c.type_ == kind)?;
    Some(condition.status.clone())
}

fn image(pod: &Pod) -> &str {
    pod.spec.as_ref().unwrap().containers[0]
        .image
        .as_deref()
        .unwrap()
}

fn restarts(pod: &Pod) -> i32 {
    let statuses = pod.status.as_ref().unwrap().container_statuses.as_ref();
    statuses.unwrap()[0].restart_count
}

#[tokio::test(start_paused = true)]
async fn every_node_gets_a_pod_that_becomes_ready() {
    let world = World::with_nodes(3).await;
    world.create(on_delete()).await;
    pass(3).await;
    let pods = world.list().await;
    let nodes: Vec<&str> = pods.iter().map(|(node, _)| node.as_str()).collect();
    assert_eq!(nodes, ["n1", "n2", "n3"]);
    assert!(pods.iter().all(|(_, pod)| is_ready(pod)));
    let status = world.status().await;
    for key in [
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "updatedNumberScheduled",
        "numberReady",
        "numberAvailable",
    ] {
        assert_eq!(status[key], 3, "{key}");
    }
    assert_eq!(status["observedGeneration"], 1);
    let labels = pods[0].1.metadata.labels.as_ref().unwrap();
    assert_eq!(labels[TEMPLATE_GENERATION_LABEL], "1");
    let revisions = world.revisions().await;
    assert_eq!(
        revisions,
        [(format!("web-{}", labels[REVISION_HASH_LABEL]), 1)]
    );
    assert!(
        pods[0]
            .1
            .metadata
            .name
            .as_ref()
            .unwrap()
            .starts_with("web-")
    );
}

#[tokio::test(start_paused = true)]
async fn under_on_delete_old_pods_stay_and_a_deleted_one_is_replaced_by_a_new_one() {
    let world = World::with_nodes(2).await;
    world.create(on_delete()).await;
    pass(3).await;
    let before = world.names().await;
    world.set_image("nginx:2").await;
    pass(60).await;
    assert_eq!(world.names().await, before);
    assert_eq!(world.status().await["updatedNumberScheduled"], json!(null));
    world.delete(&before[0]).await;
    pass(5).await;
    let pods = world.list().await;
    assert_eq!(
        (image(&pods[0].1), image(&pods[1].1)),
        ("nginx:2", "nginx:1")
    );
    assert!(is_ready(&pods[0].1));
    assert_eq!(world.status().await["updatedNumberScheduled"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_terminating_pod_on_an_offline_node_blocks_its_successor() {
    let world = World::with_nodes(2).await;
    world.create(on_delete()).await;
    pass(3).await;
    world
        .kubelets
        .set_offline("n1", Outage::default())
        .await
        .unwrap();
    let name = world.names().await[0].clone();
    world.delete(&name).await;
    pass(300).await;
    let pods = world.on("n1").await;
    assert_eq!(pods.len(), 1);
    assert_eq!(pods[0].metadata.name.as_ref(), Some(&name));
    assert!(pods[0].metadata.deletion_timestamp.is_some());
    world.kubelets.set_online("n1").await.unwrap();
    pass(5).await;
    let pods = world.on("n1").await;
    assert_eq!(pods.len(), 1);
    assert_ne!(pods[0].metadata.name.as_ref(), Some(&name));
    assert!(is_ready(&pods[0]));
}

#[tokio::test(start_paused = true)]
async fn of_two_pods_on_a_node_the_younger_is_deleted() {
    let world = World::with_nodes(1).await;
    world.create(on_delete()).await;
    pass(10).await;
    let old = world.list().await.remove(0).1;
    let mut second = old.clone();
    second.metadata.name = Some("second".to_owned());
    second.metadata.resource_version = None;
    second.metadata.uid = None;
    second.status = None;
    world
        .pods()
        .create(&PostParams::default(), &second)
        .await
        .unwrap();
    pass(5).await;
    assert_eq!(world.names().await, [old.metadata.name.unwrap()]);
}

#[tokio::test(start_paused = true)]
async fn a_rollback_raises_the_old_revision_and_restarts_no_pod() {
    let world = World::with_nodes(2).await;
    world.create(on_delete()).await;
    pass(3).await;
    let (first, names) = (world.revisions().await, world.names().await);
    world.set_image("nginx:2").await;
    pass(1).await;
    let second = world.revisions().await;
    assert_eq!(second.len(), 2);
    world.set_image("nginx:1").await;
    pass(1).await;
    let third = world.revisions().await;
    assert_eq!(third, [second[1].clone(), (first[0].0.clone(), 3)]);
    assert_eq!(world.names().await, names);
    assert_eq!(world.status().await["updatedNumberScheduled"], 2);
}

#[tokio::test(start_paused = true)]
async fn a_rollback_is_dated_on_the_old_revision() {
    let world = World::with_nodes(1).await;
    world.create(on_delete()).await;
    pass(3).await;
    let first = world.revisions().await[0].0.clone();
    world.set_image("nginx:2").await;
    pass(60).await;
    world.set_image("nginx:1").await;
    pass(3).await;
    let api: Api<ControllerRevision> = Api::namespaced(world.client.clone(), "default");
    let meta = api.get(&first).await.unwrap().metadata;
    let made = meta.creation_timestamp.as_ref().unwrap().0;
    let adopted = crate::core::revision::adopted(&meta).unwrap();
    assert_eq!(world.revisions().await[1].0, first);
    assert!(adopted.duration_since(made).as_secs() >= 60, "{adopted}");
}

#[tokio::test(start_paused = true)]
async fn revisions_beyond_the_limit_are_deleted_unless_a_pod_runs_them() {
    let world = World::with_nodes(1).await;
    world.create(on_delete()).await;
    pass(3).await;
    let first = world.revisions().await[0].0.clone();
    world
        .patch(json!({ "spec": { "revisionHistoryLimit": 1 } }))
        .await;
    for n in 2..6 {
        world.set_image(&format!("nginx:{n}")).await;
        pass(1).await;
    }
    let left = world.revisions().await;
    let numbers: Vec<i64> = left.iter().map(|(_, number)| *number).collect();
    assert_eq!((left[0].0.clone(), numbers), (first, vec![1, 5]));
}

#[tokio::test(start_paused = true)]
async fn the_native_rolling_update_keeps_its_limit_and_is_blocked_by_offline_nodes() {
    let world = World::with_nodes(4).await;
    let rolling = json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 1 } });
    world.create(rolling).await;
    pass(3).await;
    world.set_image("nginx:2").await;
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let ready = world
            .list()
            .await
            .iter()
            .filter(|(_, pod)| is_ready(pod))
            .count();
        assert!(ready >= 3, "{ready}");
    }
    assert!(
        world
            .list()
            .await
            .iter()
            .all(|(_, pod)| image(pod) == "nginx:2")
    );
    world
        .kubelets
        .set_offline("n1", Outage::MARKED)
        .await
        .unwrap();
    pass(1).await;
    world.set_image("nginx:3").await;
    pass(600).await;
    let pods = world.list().await;
    assert!(pods.iter().all(|(_, pod)| image(pod) == "nginx:2"));
}

#[tokio::test(start_paused = true)]
async fn with_surge_the_old_pod_is_deleted_when_the_new_one_is_available() {
    let world = World::with_nodes(2).await;
    let surge =
        json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 0, "maxSurge": 1 } });
    world.create(surge).await;
    pass(3).await;
    world.set_image("nginx:2").await;
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        for node in ["n1", "n2"] {
            let pods = world.on(node).await;
            let serving = pods.iter().filter(|pod| is_ready(pod));
            assert!(serving.count() >= 1, "{node}");
        }
    }
    let pods = world.list().await;
    assert_eq!(pods.len(), 2);
    assert!(pods.iter().all(|(_, pod)| image(pod) == "nginx:2"));
}

#[tokio::test(start_paused = true)]
async fn foreign_conditions_survive_writes_of_kubelet_and_controller() {
    let world = World::with_nodes(1).await;
    world.create(on_delete()).await;
    pass(3).await;
    let name = world.names().await.remove(0);
    let foreign =
        json!({ "status": { "conditions": [{ "type": "PodNeedUpgrade", "status": "True" }] } });
    let params = PatchParams::default();
    world
        .pods()
        .patch_status(&name, &params, &Patch::Strategic(&foreign))
        .await
        .unwrap();
    world
        .sets()
        .patch_status("web", &params, &Patch::Strategic(&foreign))
        .await
        .unwrap();
    let containers = json!({ "spec": { "containers": [{ "name": "web", "image": "nginx:9" }] } });
    world
        .pods()
        .patch(&name, &params, &Patch::Strategic(containers))
        .await
        .unwrap();
    pass(5).await;
    let pod = world.pods().get(&name).await.unwrap();
    assert_eq!(condition(&pod, "PodNeedUpgrade").as_deref(), Some("True"));
    assert_eq!((restarts(&pod), is_ready(&pod)), (1, true));
    world.delete(&name).await;
    pass(5).await;
    let status = world.status().await;
    assert_eq!(status["conditions"][0]["type"], "PodNeedUpgrade");
}

#[tokio::test(start_paused = true)]
async fn a_crashing_container_restarts_with_growing_backoff() {
    let world = World::with_nodes(1).await;
    let crash = Behaviour {
        crash_after: Some(Duration::from_secs(1)),
        ..Behaviour::default()
    };
    world.kubelets.behaviour("nginx:*", crash).await.unwrap();
    world.create(on_delete()).await;
    let mut restarted = Vec::new();
    for second in 0..100 {
        pass(1).await;
        let pods = world.list().await;
        let count = restarts_or_none(&pods);
        if count > restarted.len() {
            restarted.push(second);
        }
    }
    let gaps: Vec<i32> = restarted.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(gaps, [12, 22, 42]);
}

fn restarts_or_none(pods: &[(String, Pod)]) -> usize {
    let statuses = pods
        .first()
        .and_then(|(_, pod)| pod.status.as_ref()?.container_statuses.as_ref());
    statuses.map_or(0, |statuses| statuses[0].restart_count.try_into().unwrap())
}

#[tokio::test(start_paused = true)]
async fn an_image_that_kills_its_node_does_so_after_every_boot_until_replaced() {
    let world = World::with_nodes(1).await;
    let deadly = Behaviour {
        kills_node_after: Some(Duration::from_secs(5)),
        ..Behaviour::default()
    };
    world.kubelets.behaviour("nginx:2", deadly).await.unwrap();
    world.create(on_delete()).await;
    pass(3).await;
    world.set_image("nginx:2").await;
    let old = world.names().await.remove(0);
    world.delete(&old).await;
    pass(20).await;
    let doomed = world.on("n1").await.remove(0);
    world.delete(doomed.metadata.name.as_deref().unwrap()).await;
    pass(20).await;
    assert_eq!(world.on("n1").await.len(), 1, "the node is down");
    world.kubelets.set_online("n1").await.unwrap();
    pass(20).await;
    let pod = world.on("n1").await.remove(0);
    assert_ne!(pod.metadata.uid, doomed.metadata.uid);
    world.delete(pod.metadata.name.as_deref().unwrap()).await;
    pass(20).await;
    let uid = world.on("n1").await.remove(0).metadata.uid;
    assert_eq!(uid, pod.metadata.uid, "the node is down again");
}

#[tokio::test(start_paused = true)]
async fn an_orphan_is_adopted_and_a_pod_that_stops_matching_is_released() {
    let world = World::with_nodes(1).await;
    world.create(on_delete()).await;
    pass(3).await;
    let name = world.names().await.remove(0);
    let params = PatchParams::default();
    let bare = Patch::Merge(json!({ "metadata": { "ownerReferences": null } }));
    world.pods().patch(&name, &params, &bare).await.unwrap();
    pass(1).await;
    let owners = |pod: Pod| pod.metadata.owner_references.unwrap_or_default().len();
    assert_eq!(owners(world.pods().get(&name).await.unwrap()), 1);
    let other = Patch::Merge(json!({ "metadata": { "labels": { "app": "other" } } }));
    world.pods().patch(&name, &params, &other).await.unwrap();
    pass(3).await;
    assert_eq!(owners(world.pods().get(&name).await.unwrap()), 0);
    assert_eq!(world.on("n1").await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn pods_follow_node_labels_and_taints() {
    let world = World::with_nodes(2).await;
    world.create(on_delete()).await;
    pass(3).await;
    let nodes: Api<Node> = Api::all(world.client.clone());
    let taint = |effect| json!({ "spec": { "taints": [{ "key": "k", "effect": effect }] } });
    let params = PatchParams::default();
    let none = Patch::Merge(taint("NoSchedule"));
    nodes.patch("n1", &params, &none).await.unwrap();
    pass(3).await;
    assert_eq!(world.list().await.len(), 2);
    let status = world.status().await;
    assert_eq!(
        (
            &status["desiredNumberScheduled"],
            &status["numberMisscheduled"]
        ),
        (&json!(1), &json!(1))
    );
    nodes
        .patch("n1", &params, &Patch::Merge(taint("NoExecute")))
        .await
        .unwrap();
    pass(3).await;
    assert_eq!(world.list().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_silent_node_becomes_unknown_after_the_grace_period_and_its_pods_not_ready() {
    let world = World::with_nodes(2).await;
    world.create(on_delete()).await;
    pass(3).await;
    let before = world.list().await;
    world
        .kubelets
        .set_offline("n1", Outage::default())
        .await
        .unwrap();
    pass(39).await;
    assert_eq!(world.node("n1").await, ("True".to_owned(), Vec::new()));
    pass(2).await;
    let taints = ["NoSchedule", "NoExecute"].map(|e| format!("node.kubernetes.io/unreachable:{e}"));
    assert_eq!(
        world.node("n1").await,
        ("Unknown".to_owned(), taints.to_vec())
    );
    assert!(!is_ready(&world.on("n1").await[0]));
    assert_eq!(world.status().await["desiredNumberScheduled"], 1);
    world.kubelets.set_online("n1").await.unwrap();
    pass(2).await;
    assert_eq!(world.node("n1").await, ("True".to_owned(), Vec::new()));
    let after = world.list().await;
    assert!(after.iter().all(|(_, pod)| is_ready(pod)));
    let uids = |pods: &[(String, Pod)]| -> Vec<Option<String>> {
        pods.iter()
            .map(|(_, pod)| pod.metadata.uid.clone())
            .collect()
    };
    assert_eq!(uids(&before), uids(&after));
}

#[tokio::test(start_paused = true)]
async fn pods_of_an_autonomous_node_are_never_marked_not_ready() {
    let world = World::with_nodes(0).await;
    let node = FakeNodeSpec::named("n1").annotation("apps.openyurt.io/binding", "true");
    world.kubelets.add_node(node).await.unwrap();
    world.create(on_delete()).await;
    pass(3).await;
    let offline = Outage::default();
    world.kubelets.set_offline("n1", offline).await.unwrap();
    pass(600).await;
    assert_eq!(world.node("n1").await.0, "Unknown");
    assert!(is_ready(&world.on("n1").await[0]));
}

#[tokio::test(start_paused = true)]
async fn ordinary_pods_are_evicted_from_an_unreachable_node_after_five_minutes() {
    let world = World::with_nodes(1).await;
    let pod = json!({
        "metadata": { "name": "plain" },
        "spec": { "containers": [{ "name": "c", "image": "nginx:1" }] },
    });
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let pods = world.pods();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    pass(3).await;
    assert!(is_ready(&pods.get("plain").await.unwrap()));
    let offline = Outage::default();
    world.kubelets.set_offline("n1", offline).await.unwrap();
    pass(40 + 298).await;
    let deleted = |pod: Pod| pod.metadata.deletion_timestamp.is_some();
    assert!(!deleted(pods.get("plain").await.unwrap()));
    pass(5).await;
    assert!(deleted(pods.get("plain").await.unwrap()));
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_removed_node_are_deleted_after_a_while() {
    let world = World::with_nodes(2).await;
    world.create(on_delete()).await;
    pass(3).await;
    world.kubelets.remove_node("n1").await.unwrap();
    pass(30).await;
    assert_eq!(world.list().await.len(), 2);
    pass(15).await;
    assert_eq!(world.list().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn background_deletion_of_a_daemonset_deletes_its_pods_and_revisions() {
    let world = World::with_nodes(2).await;
    world.create(on_delete()).await;
    pass(3).await;
    let params = DeleteParams::background();
    world.sets().delete("web", &params).await.unwrap();
    pass(5).await;
    assert_eq!(world.list().await.len(), 0);
    assert_eq!(world.revisions().await, []);
}

#[tokio::test(start_paused = true)]
async fn foreground_deletion_removes_the_daemonset_after_its_pods() {
    let world = World::with_nodes(1).await;
    world.create(on_delete()).await;
    pass(3).await;
    let offline = Outage::default();
    world.kubelets.set_offline("n1", offline).await.unwrap();
    let params = DeleteParams::foreground();
    world.sets().delete("web", &params).await.unwrap();
    pass(20).await;
    assert_eq!(world.list().await.len(), 1);
    assert!(world.sets().get_opt("web").await.unwrap().is_some());
    world.kubelets.set_online("n1").await.unwrap();
    pass(5).await;
    assert_eq!(world.list().await.len(), 0);
    assert!(world.sets().get_opt("web").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn orphans_outlive_their_daemonset_and_are_adopted_by_its_successor() {
    let world = World::with_nodes(2).await;
    world.create(on_delete()).await;
    pass(3).await;
    let names = world.names().await;
    let params = DeleteParams::orphan();
    world.sets().delete("web", &params).await.unwrap();
    pass(5).await;
    assert!(world.sets().get_opt("web").await.unwrap().is_none());
    assert_eq!(world.names().await, names);
    world.create(on_delete()).await;
    pass(5).await;
    assert_eq!(world.names().await, names);
    assert_eq!(world.revisions().await.len(), 1);
    assert_eq!(world.status().await["updatedNumberScheduled"], 2);
}

#[tokio::test(start_paused = true)]
async fn a_job_completes_or_fails_and_is_deleted_after_its_ttl() {
    let world = World::with_nodes(1).await;
    let crash = Behaviour {
        crash_after: Some(Duration::from_secs(1)),
        ..Behaviour::default()
    };
    let stuck = Behaviour {
        image_error: true,
        ..Behaviour::default()
    };
    world.kubelets.behaviour("crash", crash).await.unwrap();
    world.kubelets.behaviour("stuck", stuck).await.unwrap();
    let jobs: Api<Job> = Api::namespaced(world.client.clone(), "default");
    for (name, image) in [("good", "nginx:1"), ("bad", "crash"), ("late", "stuck")] {
        let job = json!({
            "metadata": { "name": name },
            "spec": {
                "backoffLimit": 1, "activeDeadlineSeconds": 100, "ttlSecondsAfterFinished": 60,
                "template": { "spec": {
                    "nodeName": "n1", "restartPolicy": "Never",
                    "containers": [{ "name": "c", "image": image }],
                } },
            },
        });
        let job = serde_json::from_value(job).unwrap();
        jobs.create(&PostParams::default(), &job).await.unwrap();
    }
    let outcome = async |name: &str| {
        let status = jobs.get(name).await.unwrap().status.unwrap();
        let conditions = status.conditions.unwrap_or_default();
        let last = conditions
            .last()
            .map(|c| (c.type_.clone(), c.reason.clone().unwrap()));
        (last, status.succeeded, status.failed)
    };
    let ended = |kind: &str, reason: &str| Some((kind.to_owned(), reason.to_owned()));
    pass(30).await;
    let good = (ended("Complete", "CompletionsReached"), Some(1), None);
    assert_eq!(outcome("good").await, good);
    let bad = (ended("Failed", "BackoffLimitExceeded"), None, Some(2));
    assert_eq!(outcome("bad").await, bad);
    assert_eq!(outcome("late").await.0, None);
    pass(75).await;
    let names = async || -> Vec<String> {
        let all = jobs.list(&ListParams::default()).await.unwrap();
        all.into_iter()
            .map(|job| job.metadata.name.unwrap())
            .collect()
    };
    assert_eq!(names().await, ["late"]);
    assert_eq!(outcome("late").await.0, ended("Failed", "DeadlineExceeded"));
    pass(70).await;
    assert!(names().await.is_empty());
    assert!(world.list().await.is_empty());
}
