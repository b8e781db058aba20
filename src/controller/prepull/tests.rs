//! Pre-pulls from the request to the result, on the embedded cluster in virtual time (spec/openyurt-upgrade-model.md §9,
//! scenarios 79-88).

use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::client::Role;
use crate::clock::Clock;
use crate::controller::{self, lease, metrics::Metrics};
use crate::serve::Readiness;
use crate::shutdown;
use crate::sim::kubelet::{Behaviour, NodeSpec, Offline};
use crate::sim::world::{Setup, World};

const OLD: &str = "nginx:1.19.4";
const NEW: &str = "nginx:1.19.5";

/// A cluster with nodes n1, n2, …, one DaemonSet in OTA mode, and the controller.
struct Story {
    world: World,
    client: Client,
    controller: Option<JoinHandle<()>>,
}

impl Drop for Story {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Story {
    async fn begin(nodes: usize) -> Self {
        Self::with(nodes, "nginx-daemonset", |_| {}).await
    }

    /// As [`Self::begin`], with a DaemonSet of this name that `change` has changed.
    async fn with(nodes: usize, name: &str, change: impl FnOnce(&mut Value)) -> Self {
        let world = World::start(Setup {
            clock: Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap()),
            seed: 1,
            kubelets: crate::sim::kubelet::Options::default(),
            controller: false,
        });
        let nodes = (1..=nodes).map(|n| NodeSpec::named(format!("n{n}")));
        world.kubelets.add_nodes(nodes.collect()).await.unwrap();
        let mut set = json!({
            "metadata": {
                "name": name,
                "annotations": { "apps.openyurt.io/update-strategy": "OTA" },
            },
            "spec": {
                "updateStrategy": { "type": "OnDelete" },
                "selector": { "matchLabels": { "app": "nginx" } },
                "template": {
                    "metadata": { "labels": { "app": "nginx" } },
                    "spec": { "containers": [{ "name": "nginx", "image": OLD }] },
                },
            },
        });
        change(&mut set);
        let client = world.client();
        let mut story = Self {
            world,
            client,
            controller: None,
        };
        let set = serde_json::from_value(set).unwrap();
        let params = PostParams::default();
        story.sets().create(&params, &set).await.unwrap();
        story.start();
        pass(10).await;
        story
    }

    fn sets(&self) -> Api<DaemonSet> {
        Api::namespaced(self.client.clone(), "default")
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    fn jobs(&self) -> Api<Job> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Starts the controller.
    fn start(&mut self) {
        let (end, shutdown) = shutdown::channel();
        let config = controller::Config {
            client: self.world.cluster.client(&Role::Controller.user_agent()),
            clock: self.world.clock.clone(),
            settings: lease::Settings {
                namespace: "default".to_owned(),
                identity: "test".to_owned(),
                duration: Duration::from_secs(15),
                renew_deadline: Duration::from_secs(10),
                renew_every: Duration::from_secs(5),
            },
            elects: false,
            metrics: Metrics::new(),
            readiness: Readiness::default(),
        };
        self.controller = Some(tokio::spawn(async move {
            let _end = end;
            controller::run(config, shutdown).await;
        }));
    }

    /// Ends the controller in the middle of whatever it does.
    fn kill(&mut self) {
        if let Some(controller) = self.controller.take() {
            controller.abort();
        }
    }

    async fn image(&self, image: &str) {
        let name = self.set_name().await;
        let patch = json!({ "spec": { "template": { "spec": {
            "containers": [{ "name": "nginx", "image": image }],
        } } } });
        self.patch_set(&name, patch).await;
    }

    async fn patch_set(&self, name: &str, patch: Value) {
        let patch = Patch::Strategic(patch);
        let params = PatchParams::default();
        self.sets().patch(name, &params, &patch).await.unwrap();
        pass(2).await;
    }

    async fn set_name(&self) -> String {
        let sets = self.sets().list(&ListParams::default()).await.unwrap();
        sets.items[0].metadata.name.clone().unwrap()
    }

    /// The DaemonSet's pod on a node.
    async fn pod(&self, node: &str) -> Pod {
        let pods = ListParams::default().labels("app=nginx");
        let pods = self.pods().list(&pods).await.unwrap();
        let on_it = |pod: &Pod| pod.spec.as_ref().unwrap().node_name.as_deref() == Some(node);
        pods.items.into_iter().find(on_it).unwrap()
    }

    /// Status, reason and message of a condition of the pod on a node.
    async fn condition(&self, node: &str, kind: &str) -> Option<[String; 3]> {
        let pod = self.pod(node).await;
        let conditions = pod.status.unwrap().conditions.unwrap();
        let condition = conditions.into_iter().find(|known| known.type_ == kind)?;
        let text = Option::unwrap_or_default;
        Some([
            condition.status,
            text(condition.reason),
            text(condition.message),
        ])
    }

    /// What the node's agent does: asks for the images of the revision that waits.
    async fn imagepull(&self, node: &str) -> String {
        let [needed, _, message] = self.condition(node, "PodNeedUpgrade").await.unwrap();
        assert_eq!(needed, "True");
        let patch = Patch::Strategic(json!({ "status": { "conditions": [{
            "type": "PodImageReady", "status": "False", "reason": "WaitPullImage", "message": message,
        }] } }));
        let name = self.pod(node).await.metadata.name.unwrap();
        let params = PatchParams::default();
        self.pods()
            .patch_status(&name, &params, &patch)
            .await
            .unwrap();
        message
    }

    /// The condition `PodImageReady` of the pod on a node.
    async fn ready(&self, node: &str) -> [String; 3] {
        self.condition(node, "PodImageReady").await.unwrap()
    }

    async fn assert_pulled(&self, node: &str, message: &str) {
        let pulled = ["True", "PullImageSuccess", message];
        assert_eq!(self.ready(node).await, pulled);
    }

    /// The condition says that the pull failed; returns why.
    async fn failure(&self, node: &str) -> String {
        let [status, reason, message] = self.ready(node).await;
        assert_eq!(
            [&*status, &*reason],
            ["False", "PullImageFail"],
            "{message}"
        );
        let (job, why) = message.split_once(" failed: ").unwrap();
        assert!(job.starts_with("pull image job image-pre-pull-"), "{job}");
        why.to_owned()
    }

    async fn job_names(&self) -> Vec<String> {
        let jobs = self.jobs().list(&ListParams::default()).await.unwrap();
        jobs.into_iter()
            .map(|job| job.metadata.name.unwrap())
            .collect()
    }

    async fn behaviour(&self, image: &str, behaviour: Behaviour) {
        self.world
            .kubelets
            .behaviour(image, behaviour)
            .await
            .unwrap();
    }

    async fn offline(&self, node: &str) {
        let how = Offline::default();
        self.world.kubelets.set_offline(node, how).await.unwrap();
        pass(45).await;
    }
}

/// Lets so many seconds pass, in small steps so that everybody can act in between.
async fn pass(seconds: u32) {
    for _ in 0..seconds * 4 {
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

fn slow(seconds: u64) -> Behaviour {
    Behaviour {
        pull: Duration::from_secs(seconds),
        ..Behaviour::default()
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_asked_for_is_pulled_told_and_cleared_away() {
    let story = Story::begin(2).await;
    story.behaviour(NEW, slow(20)).await;
    story.image(NEW).await;
    let message = story.imagepull("n1").await;
    pass(10).await;
    assert_eq!(story.ready("n1").await[1], "WaitPullImage");
    assert_eq!(story.job_names().await.len(), 1);
    pass(15).await;
    story.assert_pulled("n1", &message).await;
    assert_eq!(story.job_names().await, Vec::<String>::new());
    assert_eq!(story.condition("n2", "PodImageReady").await, None);
    // The update now starts without a pull.
    let name = story.pod("n1").await.metadata.name.unwrap();
    story
        .pods()
        .delete(&name, &DeleteParams::default())
        .await
        .unwrap();
    pass(5).await;
    let [needed, ..] = story.condition("n1", "PodNeedUpgrade").await.unwrap();
    assert_eq!(needed, "False");
    let [ready, ..] = story.condition("n1", "Ready").await.unwrap();
    assert_eq!(ready, "True");
}
