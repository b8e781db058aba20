//! Tests of the agent with the embedded API server, in virtual time.

mod door;
mod foreign;
mod state;

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{Agent, AgentConfig};
use crate::clock::Clock;
use crate::sim::cluster::{Cluster, ClusterOptions, Fault};

const NODE: &str = "edge-1";

struct World {
    cluster: Cluster,
    clock: Clock,
    pods: Api<Pod>,
}

impl World {
    fn new() -> Self {
        let clock = Clock::starting_at("2030-01-01T00:00:00Z".parse().unwrap());
        let cluster = Cluster::new(ClusterOptions::new(clock.clone(), 1));
        let pods = Api::namespaced(cluster.client("test"), "default");
        Self {
            cluster,
            clock,
            pods,
        }
    }

    fn config(&self) -> AgentConfig {
        AgentConfig {
            client: self.cluster.client("agent"),
            node: NODE.to_owned(),
            clock: self.clock.clone(),
            state_dir: None,
            manifest_dir: "/nowhere".into(),
            allowed_hosts: Vec::new(),
            listen: None,
        }
    }

    async fn create(&self, name: &str, node: &str) {
        let pod = json!({
            "metadata": { "name": name },
            "spec": { "nodeName": node, "containers": [{ "name": "main", "image": "nginx:1.19.4" }] },
        });
        let pod = serde_json::from_value(pod).unwrap();
        self.pods
            .create(&PostParams::default(), &pod)
            .await
            .unwrap();
    }

    async fn label(&self, name: &str, value: Value) {
        let patch = Patch::Merge(json!({ "metadata": { "labels": { "version": value } } }));
        let params = PatchParams::default();
        self.pods.patch(name, &params, &patch).await.unwrap();
    }

    /// Returns the number of requests of the agent so far.
    fn requests(&self) -> u64 {
        let all = self.cluster.requests();
        let of_agent = all.iter().filter(|count| count.user_agent == "agent");
        of_agent.map(|count| count.number).sum()
    }
}

async fn get(agent: &Agent, path: &str, headers: &[(&str, &str)]) -> (Response<()>, String) {
    let mut request = Request::get(path).header("host", "127.0.0.1");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Empty::<Bytes>::new()).unwrap();
    let (head, body) = agent.answer(request).await.into_parts();
    let text = body.collect().await.unwrap().to_bytes();
    let text = String::from_utf8(text.to_vec()).unwrap();
    (Response::from_parts(head, ()), text)
}

/// Returns the names of the pods that the agent serves.
async fn names(agent: &Agent) -> Vec<String> {
    let (head, text) = get(agent, "/pods", &[]).await;
    assert_eq!(head.status(), 200, "{text}");
    let list: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(list["kind"], "PodList");
    let items = list["items"].as_array().unwrap();
    let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap().to_owned();
    items.iter().map(name).collect()
}

fn header<'a>(head: &'a Response<()>, name: &str) -> &'a str {
    head.headers()
        .get(name)
        .map_or("", |value| value.to_str().unwrap())
}

async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn pods_of_this_node_are_served_without_a_request_per_read() {
    let world = World::new();
    world.create("a", NODE).await;
    world.create("b", "edge-2").await;
    let agent = Agent::start(world.config()).unwrap();
    let (head, text) = get(&agent, "/pods", &[]).await;
    assert_eq!(
        (head.status().as_u16(), text.as_str()),
        (500, "Get pod list failed")
    );
    assert_eq!(get(&agent, "/ready", &[]).await.0.status(), 503);
    pass(SECOND).await;
    assert_eq!(get(&agent, "/ready", &[]).await.0.status(), 200);
    assert_eq!(names(&agent).await, ["a"]);
    assert_eq!(world.requests(), 2);
    world.create("c", NODE).await;
    pass(SECOND).await;
    assert_eq!(names(&agent).await, ["a", "c"]);
    world
        .pods
        .delete("a", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    pass(SECOND).await;
    assert_eq!(names(&agent).await, ["c"]);
    assert_eq!(world.requests(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_client_with_the_current_list_gets_304() {
    let world = World::new();
    world.create("a", NODE).await;
    let agent = Agent::start(world.config()).unwrap();
    pass(SECOND).await;
    let (head, _) = get(&agent, "/pods", &[]).await;
    assert_eq!(header(&head, "content-type"), "application/json");
    assert_eq!(header(&head, "x-cache-age"), "1");
    let etag = header(&head, "etag").to_owned();
    let (head, text) = get(&agent, "/pods", &[("if-none-match", &etag)]).await;
    assert_eq!((head.status().as_u16(), text.as_str()), (304, ""));
    assert_eq!(header(&head, "etag"), etag);
    world.label("a", json!("2")).await;
    pass(SECOND).await;
    let (head, _) = get(&agent, "/pods", &[("if-none-match", &etag)]).await;
    assert_eq!(head.status(), 200);
    assert_ne!(header(&head, "etag"), etag);
}

#[tokio::test(start_paused = true)]
async fn reads_work_without_the_cloud_and_report_their_age() {
    let world = World::new();
    world.create("a", NODE).await;
    let agent = Agent::start(world.config()).unwrap();
    pass(SECOND).await;
    world.cluster.stop();
    pass(300 * SECOND).await;
    let (head, _) = get(&agent, "/pods", &[]).await;
    assert_eq!(header(&head, "x-cache-age"), "301");
    assert!(!agent.is_live());
    world.cluster.start();
    pass(70 * SECOND).await;
    assert!(agent.is_live());
    let (head, _) = get(&agent, "/pods", &[]).await;
    let age: u64 = header(&head, "x-cache-age").parse().unwrap();
    assert!(age <= 70, "{age}");
    assert_eq!(names(&agent).await, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn missed_changes_are_listed_after_the_watch_returns() {
    let world = World::new();
    world.create("a", NODE).await;
    let agent = Agent::start(world.config()).unwrap();
    pass(SECOND).await;
    let broken = world
        .cluster
        .faults()
        .add(|request: &crate::sim::cluster::RequestInfo| {
            if request.user_agent == "agent" {
                Fault::Status(500, None)
            } else {
                Fault::Pass
            }
        });
    world.cluster.disconnect_watches();
    pass(SECOND).await;
    world.create("b", NODE).await;
    world.cluster.compact();
    pass(30 * SECOND).await;
    assert_eq!(names(&agent).await, ["a"]);
    drop(broken);
    pass(75 * SECOND).await; // Up to a minute until the retry, then a watch that gets 410, then a list.
    assert_eq!(names(&agent).await, ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_that_reaches_the_cloud_again_restores_the_watch_within_seconds() {
    let world = World::new();
    world.create("a", NODE).await;
    let agent = Agent::start(world.config()).unwrap();
    pass(20 * SECOND).await;
    world.cluster.stop();
    pass(200 * SECOND).await; // From now on, the watch retries only once a minute.
    world.cluster.start();
    let upgrade = "/openyurt.io/v1/namespaces/default/pods/a/upgrade";
    let request = Request::post(upgrade).header("host", "127.0.0.1");
    let request = request.body(Empty::<Bytes>::new()).unwrap();
    assert_eq!(
        agent.answer(request).await.status(),
        403,
        "read, and nothing new waits for it"
    );
    pass(5 * SECOND + SECOND / 10).await;
    assert!(agent.is_live());
}
