use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use futures::FutureExt as _;
use http::Response;
use http_body_util::BodyExt as _;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::*;
use crate::controller::outbox::Transport;
use crate::controller::{self, ControllerConfig, Kinds, Traces, WakeupBatching, lease};
use crate::core::SetKind;
use crate::k8s::client::Role;
use crate::serve::ReadinessHandle;
use crate::shutdown;
use crate::sim::cluster::Fault;
use crate::sim::kubelet::{Behaviour, FakeNodeSpec, KubeletOptions};
use crate::sim::world::{World, WorldSetup};

/// Embedded cluster with one DaemonSet, the notifications that a receiver got, and the spans that a collector got.
pub(in crate::controller) struct Story {
    world: World,
    client: Client,
    kind: SetKind,
    got: Arc<Mutex<Vec<Value>>>,
    spans: Arc<Mutex<Vec<Value>>>,
    controller: Option<JoinHandle<()>>,
}

impl Story {
    pub(in crate::controller) async fn begin(kind: SetKind, nodes: usize) -> Self {
        let world = World::start(WorldSetup {
            clock: Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap()),
            seed: 1,
            kubelets: KubeletOptions::default(),
            controller: false,
            advanced: true,
        });
        let nodes = (1..=nodes).map(|number| FakeNodeSpec::named(format!("n{number}")));
        world.kubelets.add_nodes(nodes.collect()).await.unwrap();
        let broken = Behaviour {
            image_error: true,
            ..Behaviour::default()
        };
        world.kubelets.behaviour("web:bad", broken).await.unwrap();
        let slow = Behaviour {
            start: Duration::from_secs(60),
            ..Behaviour::default()
        };
        world.kubelets.behaviour("web:slow", slow).await.unwrap();
        let client = world.client();
        let mut story = Self {
            world,
            client,
            kind,
            got: Arc::default(),
            spans: Arc::default(),
            controller: None,
        };
        let spec = json!({
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "c", "image": "web:1" }] },
            },
        });
        let mut set = json!({
            "apiVersion": kind.api_version(), "kind": "DaemonSet",
            "metadata": { "name": "web" }, "spec": spec,
        });
        if kind == SetKind::Native {
            set["spec"]["updateStrategy"] = json!({ "type": "OnDelete" });
            set["metadata"]["annotations"] =
                json!({ "apps.openyurt.io/update-strategy": "AdvancedRollingUpdate" });
        }
        let set: DynamicObject = serde_json::from_value(set).unwrap();
        let params = PostParams::default();
        story.sets().create(&params, &set).await.unwrap();
        story.start();
        sleep(Duration::from_secs(60)).await;
        story
    }

    fn sets(&self) -> Api<DynamicObject> {
        let (group, version) = self.kind.api_version().split_once('/').unwrap();
        let resource = ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: self.kind.api_version().to_owned(),
            kind: "DaemonSet".to_owned(),
            plural: "daemonsets".to_owned(),
        };
        Api::namespaced_with(self.client.clone(), "default", &resource)
    }

    /// Returns a receiver that accepts every notification.
    fn receiver(&self) -> Notifications {
        let got = self.got.clone();
        let transport: Transport = Arc::new(move |request| {
            let got = got.clone();
            async move {
                let media_type = "application/cloudevents+json";
                assert_eq!(request.headers()["content-type"], media_type);
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let content = serde_json::from_slice(&body).unwrap();
                got.lock().unwrap().push(content);
                Ok(Response::new(()).into_parts().0)
            }
            .boxed()
        });
        Notifications {
            endpoint: Endpoint::through(transport),
            signer: None,
            cluster: Some("plant-7".to_owned()),
        }
    }

    /// Returns a collector that accepts every batch of spans.
    fn collector(&self) -> Traces {
        let got = self.spans.clone();
        let transport: Transport = Arc::new(move |request| {
            let got = got.clone();
            async move {
                assert_eq!(request.headers()["content-type"], "application/json");
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let content: Value = serde_json::from_slice(&body).unwrap();
                let resource = &content["resourceSpans"][0];
                let name = &resource["resource"]["attributes"][0]["value"]["stringValue"];
                assert_eq!(name, "yurt-ds");
                let spans = resource["scopeSpans"][0]["spans"].as_array().unwrap();
                got.lock().unwrap().extend(spans.iter().cloned());
                Ok(Response::new(()).into_parts().0)
            }
            .boxed()
        });
        Traces(Endpoint::through(transport))
    }

    /// Returns the spans that the collector got within this time.
    pub(in crate::controller) async fn spans_after(&self, seconds: u64) -> Vec<Value> {
        sleep(Duration::from_secs(seconds)).await;
        std::mem::take(&mut *self.spans.lock().unwrap())
    }

    fn config(&self, notifications: Notifications) -> ControllerConfig {
        ControllerConfig {
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
            readiness: ReadinessHandle::default(),
            gathering: WakeupBatching::default(),
            kinds: Kinds::BOTH,
            notifications: Some(notifications),
            traces: Some(self.collector()),
        }
    }

    fn start(&mut self) {
        let config = self.config(self.receiver());
        let (end, shutdown) = shutdown::channel();
        self.controller = Some(tokio::spawn(async move {
            let _end = end;
            controller::run(config, shutdown).await;
        }));
    }

    async fn kill(&mut self) {
        if let Some(controller) = self.controller.take() {
            controller.abort();
            let _aborted = controller.await;
        }
    }

    /// Kills the controller at an arbitrary moment, and starts another one.
    pub(in crate::controller) async fn change_leader(&mut self) {
        self.kill().await;
        self.start();
    }

    async fn patch(&self, patch: Value) {
        let params = PatchParams::default();
        let patch = Patch::Merge(&patch);
        self.sets().patch("web", &params, &patch).await.unwrap();
    }

    pub(in crate::controller) async fn image(&self, image: &str) {
        let containers = json!([{ "name": "c", "image": image }]);
        self.patch(json!({ "spec": { "template": { "spec": { "containers": containers } } } }))
            .await;
    }

    /// Returns the notifications that arrive within this time.
    pub(in crate::controller) async fn after(&self, seconds: u64) -> Vec<Value> {
        sleep(Duration::from_secs(seconds)).await;
        std::mem::take(&mut *self.got.lock().unwrap())
    }
}

impl Drop for Story {
    fn drop(&mut self) {
        if let Some(controller) = self.controller.take() {
            controller.abort();
        }
    }
}

/// Returns the last words of the types.
fn steps(notifications: &[Value]) -> Vec<&str> {
    let kinds = notifications.iter().map(|content| content["type"].as_str());
    kinds
        .map(|kind| {
            kind.and_then(|kind| kind.strip_prefix(TYPE_PREFIX))
                .unwrap()
        })
        .collect()
}

async fn a_rollout_is_notified(kind: SetKind) {
    let story = Story::begin(kind, 3).await;
    assert_eq!(steps(&story.after(0).await), ["complete"]);
    story.image("web:2").await;
    let good = story.after(120).await;
    assert_eq!(steps(&good), ["started", "complete"]);
    story.image("web:bad").await;
    let bad = story.after(900).await;
    assert_eq!(steps(&bad), ["started", "stalled"]);
    let stalled = &bad[1];
    let data = &stalled["data"];
    assert_eq!(stalled["specversion"], "1.0");
    assert_eq!(stalled["cluster"], "plant-7");
    assert_eq!(stalled["subject"], data["revision"]);
    assert_eq!(data["reason"], "PodsDoNotStart");
    let message = data["message"].as_str().unwrap();
    let node = data["nodes"][0]["name"].as_str().unwrap();
    let expected = format!("the new image cannot be pulled on {node}");
    assert!(message.contains(&expected), "{message}");
    assert_eq!(data["nodes"][0]["verdict"], "FailedByRevision");
    assert_eq!(data["counts"]["targeted"], 3);
    assert_eq!(data["counts"]["updated"], 0);
    assert_eq!(data["nodesOmitted"], 0);
    let source = format!(
        "/apis/{}/namespaces/default/daemonsets/web",
        kind.api_version()
    );
    assert_eq!(stalled["source"], source);
    story.image("web:3").await;
    assert_eq!(steps(&story.after(120).await), ["started", "complete"]);
    assert_eq!(story.after(86_400).await, Vec::<Value>::new());
}

#[test]
fn a_name_of_the_cluster_is_short_and_printable() {
    let of = |name: &str| {
        Notifications::from_args(&NotifyArgs {
            notify_url: Some("http://127.0.0.1:1/".to_owned()),
            notify_cluster: Some(name.to_owned()),
            ..NotifyArgs::default()
        })
    };
    assert!(of("plant-7").is_ok());
    for name in ["plant\n7", &"p".repeat(254)] {
        let error = of(name).err().unwrap().to_string();
        assert!(error.starts_with("--notify-cluster must have"), "{error}");
    }
}

/// Returns the distinct IDs of notifications.
fn ids(notifications: &[Value]) -> BTreeSet<&str> {
    let ids = notifications.iter().map(|content| content["id"].as_str());
    ids.flatten().collect()
}

#[tokio::test(start_paused = true)]
async fn a_rollout_that_goes_back_and_forth_has_another_id_each_time() {
    let story = Story::begin(SetKind::Native, 3).await;
    story.after(0).await;
    let mut all = Vec::new();
    for image in ["web:bad", "web:slow", "web:bad", "web:slow", "web:bad"] {
        story.image(image).await;
        all.extend(story.after(20).await);
    }
    let started = steps(&all).into_iter().filter(|step| *step == "started");
    assert_eq!(started.count(), 5, "{all:#?}");
    assert_eq!(ids(&all).len(), all.len(), "{all:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_rollout_resumes_when_its_writes_are_accepted_again() {
    let story = Story::begin(SetKind::Native, 3).await;
    story.after(0).await;
    let denied = story.world.cluster.deny(|request| {
        request.user_agent.contains("controller)")
            && (request.verb.as_str(), request.resource.as_str()) == ("delete", "pods")
    });
    story.image("web:2").await;
    assert_eq!(steps(&story.after(120).await), ["started", "stalled"]);
    drop(denied);
    let after = story.after(600).await;
    assert_eq!(steps(&after), ["resumed", "complete"]);
}

#[tokio::test(start_paused = true)]
async fn start_stall_and_completion_of_a_native_daemonset_are_notified() {
    a_rollout_is_notified(SetKind::Native).await;
}

#[tokio::test(start_paused = true)]
async fn start_stall_and_completion_of_an_advanced_daemonset_are_notified() {
    a_rollout_is_notified(SetKind::Advanced).await;
}

#[tokio::test(start_paused = true)]
async fn a_pause_and_its_end_are_notified_each_time_with_another_id() {
    let story = Story::begin(SetKind::Native, 25).await;
    let paused =
        |value| json!({ "metadata": { "annotations": { "apps.openyurt.io/paused": value } } });
    story.after(0).await;
    story.patch(paused(Some("true"))).await;
    story.image("web:2").await;
    let mut all = story.after(60).await;
    assert_eq!(all[0]["data"]["nodes"].as_array().map(Vec::len), Some(20));
    assert_eq!(all[0]["data"]["nodesOmitted"], 5);
    for value in [None, Some("true"), None] {
        story.patch(paused(value)).await;
        all.extend(story.after(2).await);
        // Nodes that the fleet only counts are omitted nodes, too.
        let data = &all[all.len() - 1]["data"];
        let listed = data["nodes"].as_array().map_or(0, Vec::len) as u64;
        let number = |value: &Value| value.as_u64().unwrap();
        let outdated = number(&data["counts"]["outdated"]);
        assert!(listed + number(&data["nodesOmitted"]) >= outdated, "{data}");
    }
    all.extend(story.after(600).await);
    let expected = ["paused", "resumed", "paused", "resumed", "complete"];
    assert_eq!(steps(&all), expected);
    assert_eq!(ids(&all).len(), expected.len(), "{all:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_repeats_an_unfinished_report_with_the_same_id() {
    let mut story = Story::begin(SetKind::Native, 3).await;
    story.after(0).await;
    let refusing = story.world.cluster.faults().add(|request| {
        let is_status = request.resource == "daemonsets" && request.subresource == "status";
        if is_status && request.user_agent.contains("controller)") {
            Fault::Status(500, None)
        } else {
            Fault::Pass
        }
    });
    story.image("web:slow").await;
    let first = story.after(20).await;
    assert_eq!(steps(&first), ["started"]);
    story.change_leader().await;
    let second = story.after(20).await;
    assert_eq!(steps(&second), ["started"]);
    assert_eq!(first[0]["id"], second[0]["id"]);
    drop(refusing);
    assert_eq!(steps(&story.after(900).await), ["complete"]);
    story.change_leader().await;
    assert_eq!(story.after(900).await, Vec::<Value>::new());
}

#[tokio::test(start_paused = true)]
async fn a_dead_receiver_delays_no_rollout() {
    let mut story = Story::begin(SetKind::Native, 3).await;
    story.kill().await;
    let transport: Transport = Arc::new(|_| std::future::pending().boxed());
    let config = story.config(Notifications {
        endpoint: Endpoint::through(transport),
        ..story.receiver()
    });
    let (end, shutdown) = shutdown::channel();
    let running = tokio::spawn(controller::run(config, shutdown));
    sleep(Duration::from_secs(10)).await;
    story.image("web:2").await;
    sleep(Duration::from_secs(60)).await;
    let set = story.sets().get("web").await.unwrap();
    assert_eq!(set.data["status"]["updatedNumberScheduled"], 3);
    end.request();
    let ended = tokio::time::timeout(Duration::from_secs(5), running).await;
    assert!(ended.is_ok());
}
