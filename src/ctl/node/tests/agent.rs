//! Tests of the node commands with the real agent and the real controller, in the embedded cluster.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::node::run;
use crate::clock::Clock;
use crate::ctl::node::{Connector, Stream};
use crate::ctl::{CliError, Code};
use crate::ota_server::{Agent, AgentConfig, serve_stream};
use crate::sim::cluster::Fault;
use crate::sim::kubelet::{self, Behaviour, FakeNodeSpec};
use crate::sim::world::{World as Sim, WorldSetup};

/// Time in which native controllers, kubelets and the yurt-ds controller react to a change.
const A_MOMENT: Duration = Duration::from_secs(60);

/// The DaemonSet `default/web` with OTA on the nodes n1 and n2, and the agent of n1.
struct World {
    sim: Sim,
    agent: Agent,
}

impl World {
    async fn start() -> Self {
        let epoch: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let clock = Clock::starting_at(epoch);
        let sim = Sim::start(WorldSetup {
            clock: clock.clone(),
            seed: 1,
            kubelets: kubelet::KubeletOptions::default(),
            controller: true,
            advanced: false,
        });
        let nodes = ["n1", "n2"].map(FakeNodeSpec::named);
        sim.kubelets.add_nodes(nodes.into()).await.unwrap();
        let agent = Agent::start(AgentConfig {
            client: sim.cluster.client("ota-server"),
            node: "n1".into(),
            clock,
            state_dir: None,
            manifest_dir: "/nowhere".into(),
            allowed_hosts: Vec::new(),
            listen: None,
        });
        let world = Self {
            sim,
            agent: agent.unwrap(),
        };
        let set = json!({
            "metadata": { "name": "web", "annotations": { "apps.openyurt.io/update-strategy": "OTA" } },
            "spec": {
                "selector": { "matchLabels": { "app": "web" } },
                "updateStrategy": { "type": "OnDelete" },
                "template": {
                    "metadata": { "labels": { "app": "web" } },
                    "spec": { "containers": [{ "name": "c", "image": "web:1" }] },
                },
            },
        });
        let set = serde_json::from_value(set).unwrap();
        let sets = world.sets();
        sets.create(&PostParams::default(), &set).await.unwrap();
        sleep(A_MOMENT).await;
        world
    }

    /// Starts a world in which a newer revision is available for the pods.
    async fn outdated() -> Self {
        let world = Self::start().await;
        world.set_image("web:2").await;
        world
    }

    fn sets(&self) -> Api<DaemonSet> {
        Api::namespaced(self.sim.cluster.client("test"), "default")
    }

    async fn patch(&self, patch: Value) {
        let (params, patch) = (PatchParams::default(), Patch::Strategic(patch));
        self.sets().patch("web", &params, &patch).await.unwrap();
        sleep(A_MOMENT).await;
    }

    async fn set_image(&self, image: &str) {
        let containers = json!([{ "name": "c", "image": image }]);
        self.patch(json!({ "spec": { "template": { "spec": { "containers": containers } } } }))
            .await;
    }

    /// Returns the UID of the only pod on `node`.
    async fn uid_on(&self, node: &str) -> String {
        let pods: Api<Pod> = Api::namespaced(self.sim.cluster.client("test"), "default");
        let params = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let mut pods = pods.list(&params).await.unwrap().items;
        assert_eq!(pods.len(), 1);
        pods.remove(0).metadata.uid.unwrap()
    }

    fn connector(&self) -> Connector {
        let agent = self.agent.clone();
        Arc::new(move || {
            let (ours, theirs) = tokio::io::duplex(1 << 16);
            tokio::spawn(serve_stream(theirs, agent.clone()));
            async { Ok(Box::new(ours) as Box<dyn Stream>) }.boxed()
        })
    }

    async fn run(&self, line: &str) -> (String, Result<Code, CliError>) {
        run(self.connector(), line, false).await
    }

    async fn text(&self, line: &str) -> String {
        let (text, ended) = self.run(line).await;
        assert_eq!(ended, Ok(Code::Complete), "{line}: {text}");
        text
    }

    async fn error(&self, line: &str) -> CliError {
        self.run(line).await.1.unwrap_err()
    }
}

#[tokio::test(start_paused = true)]
async fn upgrade_shows_new_images_and_replaces_one_pod() {
    let world = World::start().await;
    assert!(world.text("pods").await.contains("up to date"));
    assert_eq!(world.text("upgrade").await, "No updates are available.\n");
    world.set_image("web:2").await;
    assert!(world.text("pods").await.contains("available"));
    let text = world.text("upgrade").await;
    assert!(text.contains("c: web:1 → web:2\n"), "{text}");
    let before = [world.uid_on("n1").await, world.uid_on("n2").await];
    let text = world.text("upgrade web --wait --timeout 5m").await;
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].starts_with("Start updating pod default/web-"),
        "{text}"
    );
    assert!(lines[1].starts_with("[1/4] default/web-"), "{text}");
    assert!(lines.last().unwrap().contains(" is Ready with revision "));
    let after = [world.uid_on("n1").await, world.uid_on("n2").await];
    assert_ne!(before[0], after[0]);
    assert_eq!(before[1], after[1]);
    sleep(A_MOMENT).await;
    assert!(world.text("pods").await.contains("up to date"));
    let error = world.error("upgrade web --wait").await;
    assert_eq!(error.code, Code::Refused);
    assert!(error.text.contains("No update is announced"), "{error}");
}

/// Returns the behaviour of an image that cannot be pulled, because no registry has it.
fn missing() -> Behaviour {
    Behaviour {
        image_error: true,
        ..Behaviour::default()
    }
}

#[tokio::test(start_paused = true)]
async fn upgrade_wait_reports_a_version_that_does_not_start() {
    let world = World::start().await;
    world
        .sim
        .kubelets
        .behaviour("web:2", missing())
        .await
        .unwrap();
    world.set_image("web:2").await;
    let (text, ended) = world.run("upgrade web --wait --timeout 10m").await;
    assert_eq!(ended, Ok(Code::Progressing), "{text}");
    assert!(text.contains("ImagePull"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn imagepull_pulls_images_before_the_upgrade() {
    let world = World::outdated().await;
    let text = world.text("imagepull web --wait --timeout 10m").await;
    assert!(
        text.starts_with("Image pre-pull requested for pod default/web-"),
        "{text}"
    );
    assert!(text.contains("are on this node"), "{text}");
    assert!(world.text("pods").await.contains("pulled"));
    world.text("upgrade web --wait --timeout 10m").await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_pull_is_reported_and_blocks_the_upgrade_unless_forced() {
    let world = World::start().await;
    world
        .sim
        .kubelets
        .behaviour("web:2", missing())
        .await
        .unwrap();
    world.set_image("web:2").await;
    for _ in 0..2 {
        let (text, ended) = world.run("imagepull web --wait --timeout 20m").await;
        assert_eq!(ended, Ok(Code::PullFailed), "{text}");
        assert!(text.contains("could not be pulled: "), "{text}");
    }
    let error = world.error("upgrade web").await;
    assert_eq!(error.code, Code::Refused);
    assert!(error.text.contains("Pull the images again"), "{error}");
    world.text("upgrade web --force").await;
}

#[tokio::test(start_paused = true)]
async fn without_the_cloud_pods_are_listed_and_no_upgrade_starts() {
    let world = World::outdated().await;
    let before = world.uid_on("n1").await;
    {
        let faults = world.sim.cluster.faults();
        let _away = faults.add(|request| match request.user_agent.as_str() {
            "ota-server" => Fault::Hang,
            _ => Fault::Pass,
        });
        sleep(Duration::from_secs(600)).await;
        let text = world.text("pods").await;
        assert!(
            text.contains("the node is not connected to the cloud"),
            "{text}"
        );
        let error = world.error("upgrade web --wait").await;
        assert_eq!(error.code, Code::Disconnected);
        let said = "OTA upgrade is not allowed when node is disconnected to cloud";
        assert!(error.text.starts_with(said), "{error}");
    }
    sleep(A_MOMENT * 5).await;
    assert_eq!(world.uid_on("n1").await, before, "nothing happens later");
    world.text("upgrade web --wait").await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_upgrade_reports_that_the_daemonset_was_paused() {
    let world = World::outdated().await;
    world
        .patch(json!({ "metadata": { "annotations": { "apps.openyurt.io/paused": "true" } } }))
        .await;
    let error = world.error("upgrade web").await;
    assert_eq!(error.code, Code::Refused);
    assert!(error.text.contains("DaemonSet is paused"), "{error}");
}
