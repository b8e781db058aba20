//! Tests of the actions on the embedded cluster with native controllers, kubelets and the yurt-ds controller, in virtual time.

mod faults;
mod junk;
mod pull;
mod static_pods;
mod upgrade;
mod upgrades;

use std::time::Duration;

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1 as core_v1;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::*;
use crate::sim::cluster::{Fault, FaultGuard};
use crate::sim::kubelet::{self, FakeNodeSpec};
use crate::sim::world::{self, World as Sim};

/// User agent of the agent in these tests.
const AGENT: &str = "ota-server";
/// Time in which native controllers, kubelets and the yurt-ds controller finish their work.
const A_MOMENT: Duration = Duration::from_secs(60);

/// Cluster of two nodes, and the agent of node n1.
struct World {
    sim: Sim,
    client: Client,
    actions: Actions,
}

impl World {
    /// Starts a world with the first revision of `default/web`, which uses OTA on n1 and n2.
    async fn start() -> Self {
        let epoch: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let clock = Clock::starting_at(epoch);
        let sim = Sim::start(world::WorldSetup {
            clock: clock.clone(),
            seed: 1,
            kubelets: kubelet::KubeletOptions::default(),
            controller: true,
            advanced: false,
        });
        let nodes = ["n1", "n2"].map(FakeNodeSpec::named);
        sim.kubelets.add_nodes(nodes.into()).await.unwrap();
        let actions = Actions::new(Setup {
            client: sim.cluster.client(AGENT),
            pod_cache: PodCache::default(),
            cloud: Cloud::default(),
            node: "n1".to_owned(),
            clock,
            manifest_dir: PathBuf::from("/nowhere"),
        });
        let world = Self {
            client: sim.cluster.client("test"),
            sim,
            actions,
        };
        world.create_set("web").await;
        world.settle().await;
        world
    }

    /// Starts a world and changes the image, so that every pod has `PodNeedUpgrade` `True`.
    async fn outdated() -> Self {
        let world = Self::start().await;
        world.set_image("web", "nginx:2").await;
        world.settle().await;
        world
    }

    /// Waits until all components have finished their work, and updates the agent's cache.
    async fn settle(&self) {
        sleep(A_MOMENT).await;
        self.refresh().await;
    }

    /// Updates the agent's cache with the pods of n1. In production, the watch does this.
    async fn refresh(&self) {
        let params = ListParams::default().fields("spec.nodeName=n1");
        let request = kube::core::Request::new("/api/v1/pods").list(&params);
        let list: kube::core::ObjectList<NodePod> =
            self.client.request(request.unwrap()).await.unwrap();
        self.pod_cache().replace(list.items);
        self.pod_cache().set_live(true);
    }

    fn pod_cache(&self) -> &PodCache {
        &self.actions.setup.pod_cache
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), "default")
    }

    async fn create_set(&self, name: &str) {
        let set = json!({
            "metadata": { "name": name, "annotations": { "apps.openyurt.io/update-strategy": "OTA" } },
            "spec": {
                "selector": { "matchLabels": { "app": name } },
                "updateStrategy": { "type": "OnDelete" },
                "template": {
                    "metadata": { "labels": { "app": name } },
                    "spec": { "containers": [{ "name": "c", "image": "nginx:1" }] },
                },
            },
        });
        let set = serde_json::from_value(set).unwrap();
        let api = self.api::<DaemonSet>();
        api.create(&PostParams::default(), &set).await.unwrap();
    }

    async fn patch_set(&self, name: &str, patch: Value) {
        let (api, params) = (self.api::<DaemonSet>(), PatchParams::default());
        api.patch(name, &params, &Patch::Strategic(patch))
            .await
            .unwrap();
    }

    async fn set_image(&self, name: &str, image: &str) {
        let containers = json!([{ "name": "c", "image": image }]);
        let spec = json!({ "template": { "spec": { "containers": containers } } });
        self.patch_set(name, json!({ "spec": spec })).await;
    }

    /// Creates a minimal pod on n1, merged with the fields in `change`.
    async fn create_pod(&self, name: &str, change: Value) -> PodKey {
        let mut pod = json!({
            "metadata": { "name": name },
            "spec": { "nodeName": "n1", "containers": [{ "name": "c", "image": "nginx:1" }] },
        });
        json_patch::merge(&mut pod, &change);
        let pod = serde_json::from_value(pod).unwrap();
        let api = self.api::<core_v1::Pod>();
        api.create(&PostParams::default(), &pod).await.unwrap();
        PodKey::new("default", name)
    }

    async fn set_condition(&self, key: &PodKey, condition: Value) {
        let patch = Patch::Strategic(json!({ "status": { "conditions": [condition] } }));
        let api = self.api::<core_v1::Pod>();
        api.patch_status(&key.name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    /// Returns the pods of `default/web` on a node, as JSON.
    async fn pods_on(&self, node: &str) -> Vec<Value> {
        let params = ListParams::default()
            .labels("app=web")
            .fields(&format!("spec.nodeName={node}"));
        let pods = self.api::<core_v1::Pod>().list(&params).await.unwrap();
        let pods = pods.items.iter().map(serde_json::to_value);
        pods.collect::<Result<_, _>>().unwrap()
    }

    /// Returns the only pod of `default/web` on a node.
    async fn pod_on(&self, node: &str) -> Value {
        let mut pods = self.pods_on(node).await;
        assert_eq!(pods.len(), 1, "{pods:#?}");
        pods.remove(0)
    }

    async fn key_on(&self, node: &str) -> PodKey {
        PodKey::new(
            "default",
            text_of(&self.pod_on(node).await["metadata"]["name"]),
        )
    }

    async fn condition(&self, key: &PodKey, kind: &str) -> Option<Value> {
        let pod = self.api::<core_v1::Pod>().get(&key.name).await.unwrap();
        let pod = serde_json::to_value(pod).unwrap();
        let conditions = pod["status"]["conditions"].as_array().unwrap();
        conditions
            .iter()
            .find(|found| found["type"] == kind)
            .cloned()
    }

    /// Returns verb and resource of each request that the agent has sent.
    fn asked(&self) -> Vec<String> {
        let counts = self.sim.cluster.requests().into_iter();
        let mine = counts.filter(|count| count.user_agent == AGENT);
        mine.flat_map(|count| {
            let mut line = format!("{} {}", count.verb, count.resource);
            if !count.subresource.is_empty() {
                line = format!("{line}/{}", count.subresource);
            }
            vec![line; usize::try_from(count.number).unwrap()]
        })
        .collect()
    }

    /// Blocks the yurt-ds controller's requests, so that only the agent and the test write conditions.
    fn without_controller(&self) -> FaultGuard {
        self.without("yurt-ds/")
    }

    /// Injects a fault into the agent's requests with this verb. An empty verb means all of its requests.
    fn agent_meets(&self, verb: &'static str, fault: Fault) -> FaultGuard {
        let faults = self.sim.cluster.faults();
        faults.add(move |request| {
            let meant = verb.is_empty() || request.verb == verb;
            if meant && request.user_agent == AGENT {
                fault.clone()
            } else {
                Fault::Pass
            }
        })
    }

    /// Blocks all requests with this user agent.
    fn without(&self, agent: &'static str) -> FaultGuard {
        let faults = self.sim.cluster.faults();
        faults.add(move |request| {
            if request.user_agent.starts_with(agent) {
                Fault::Hang
            } else {
                Fault::Pass
            }
        })
    }

    fn writes(&self) -> Vec<String> {
        let is_write = |line: &String| !line.starts_with("get ") && !line.starts_with("list ");
        self.asked().into_iter().filter(is_write).collect()
    }
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap()
}

#[track_caller]
fn told(answer: &Answer, status: u16, reason: Reason, text: &str) {
    assert_eq!(answer.text, text);
    assert_eq!(
        (answer.status.as_u16(), answer.reason),
        (status, reason.word())
    );
}

/// Text of check 5 (no newer revision) in the answer to an upgrade.
fn row_5(key: &PodKey) -> String {
    format!(
        "Pre check update pod failed, Failed to check pod {key} status, error: Pod: {key} update status is False, can \
         not be updated"
    )
}

/// Text of check 3 (the pod is being deleted) in the answer to an upgrade.
fn row_3(key: &PodKey) -> String {
    format!(
        "Pre check update pod failed, Failed to check pod {key} status, error: Pod {key} is deleting, can not be updated"
    )
}

/// Text of check 1 (no connection to the API server) in the answer to both actions.
const ROW_1: &str = "OTA upgrade is not allowed when node is disconnected to cloud";
