//! Tenant: a namespace, nodes and one DaemonSet. The test simulates the kubelets of the nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use futures::future::{join_all, try_join_all};
use http::Request;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Client;
use serde_json::{Value, json};
use yurt_ds::clock::Clock;
use yurt_ds::task::Task;

use super::PROMPT;
use super::plane::{Plane, patience, until};
use crate::support::objects::{DAEMON, Daemon, image_patch};
use crate::support::picture::node_name;

/// Polling interval of the simulated kubelets.
const PULSE: Duration = Duration::from_millis(100);

/// Tenant with one DaemonSet on its own nodes.
pub(super) struct Fleet<'a> {
    plane: &'a Plane,
    /// Name of the namespace and prefix of the node names.
    pub(super) name: String,
    nodes: usize,
    image: String,
    kubelets: Arc<Mutex<Kubelets>>,
    _task: Task,
}

/// State of the simulated kubelets of a tenant.
#[derive(Default)]
struct Kubelets {
    /// Nodes that are offline, so that their kubelets do nothing.
    silent: BTreeSet<String>,
    /// UIDs of pods that the kubelets have started.
    started: BTreeSet<String>,
    /// Nodes of pods that were deleted, by the UID of the pod.
    deleted: BTreeMap<String, String>,
    /// Largest number of nodes that lacked a Ready pod at the same time; `None` until all nodes have had one.
    most_missing: Option<usize>,
}

impl<'a> Fleet<'a> {
    /// Creates a tenant and waits until every node runs a Ready pod.
    pub(super) async fn create(
        plane: &'a Plane,
        name: &str,
        nodes: usize,
        daemon: Daemon,
    ) -> anyhow::Result<Self> {
        let namespace = json!({ "metadata": { "name": name } });
        plane.create("/api/v1/namespaces", &namespace).await?;
        if plane.is_real {
            until("a service account", patience(), async || {
                let path = format!("/api/v1/namespaces/{name}/serviceaccounts/default");
                plane.read(&path).await.map(|_| None)
            })
            .await?;
        }
        let kubelets = Arc::<Mutex<Kubelets>>::default();
        let task = play(
            plane.client.clone(),
            name.to_owned(),
            nodes,
            kubelets.clone(),
        );
        let fleet = Self {
            plane,
            name: name.to_owned(),
            nodes,
            image: "nginx:1".to_owned(),
            kubelets,
            _task: Task::spawn(task),
        };
        try_join_all((1..=nodes).map(|number| fleet.add_node(number))).await?;
        let manifest = daemon.image(&fleet.image).manifest(name);
        plane.create(&fleet.path("daemonsets"), &manifest).await?;
        until("every node runs a pod", patience(), async || {
            fleet.missing_pods().await
        })
        .await?;
        Ok(fleet)
    }

    async fn add_node(&self, number: usize) -> anyhow::Result<()> {
        let name = self.node(number);
        let node = json!({ "metadata": { "name": name, "labels": self.node_labels(true) } });
        self.plane.create("/api/v1/nodes", &node).await?;
        let room = json!({ "cpu": "32", "memory": "256Gi", "pods": "250" });
        self.set_node(number, json!({ "capacity": room, "allocatable": room }))
            .await?;
        self.online(number).await
    }

    /// Returns the labels of a node of the tenant. The DaemonSet selects the node if `is_wanted` is true.
    pub(super) fn node_labels(&self, is_wanted: bool) -> Value {
        if is_wanted {
            json!({ "tenant": self.name, "scenario": self.name })
        } else {
            json!({ "tenant": self.name })
        }
    }

    /// Returns the name of the tenant's node with this number.
    pub(super) fn node(&self, number: usize) -> String {
        node_name(&self.name, number)
    }

    /// Returns the API path of the tenant's objects of a resource.
    pub(super) fn path(&self, resource: &str) -> String {
        let group = match resource {
            "daemonsets" | "controllerrevisions" => "/apis/apps/v1",
            "jobs" => "/apis/batch/v1",
            "leases" => "/apis/coordination.k8s.io/v1",
            _ => "/api/v1",
        };
        format!("{group}/namespaces/{}/{resource}", self.name)
    }

    /// Returns the API path of the tenant's DaemonSet.
    pub(super) fn daemon(&self) -> String {
        format!("{}/{DAEMON}", self.path("daemonsets"))
    }

    /// Writes the status of a node as its kubelet does.
    pub(super) async fn set_node(&self, number: usize, status: Value) -> anyhow::Result<()> {
        let path = format!("/api/v1/nodes/{}/status", self.node(number));
        self.plane.patch(&path, &json!({ "status": status })).await
    }

    async fn set_ready(&self, number: usize, status: &str) -> anyhow::Result<()> {
        let now = Time(Clock::System.now());
        let ready = json!({
            "type": "Ready", "status": status, "reason": "Test", "message": "",
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        });
        self.set_node(number, json!({ "conditions": [ready] }))
            .await
    }

    /// Sets the Ready condition of a node. The kubelet continues to start and end pods.
    pub(super) async fn flap(&self, number: usize, is_ready: bool) -> anyhow::Result<()> {
        let status = if is_ready { "True" } else { "False" };
        self.set_ready(number, status).await
    }

    /// Takes a node offline: its kubelet does nothing, and its Ready condition is `Unknown`.
    pub(super) async fn offline(&self, number: usize) -> anyhow::Result<()> {
        lock(&self.kubelets).silent.insert(self.node(number));
        self.set_ready(number, "Unknown").await
    }

    /// Brings a node online again.
    pub(super) async fn online(&self, number: usize) -> anyhow::Result<()> {
        lock(&self.kubelets).silent.remove(&self.node(number));
        self.set_ready(number, "True").await
    }

    /// Changes the DaemonSet to an image that it has not had before.
    pub(super) async fn change_image(&mut self) -> anyhow::Result<()> {
        let number = self.image.trim_start_matches("nginx:");
        let next: u32 = number.parse()?;
        self.image = format!("nginx:{}", next + 1);
        self.plane
            .patch(&self.daemon(), &image_patch(&self.image))
            .await
    }

    /// Changes the image and checks that the rollout completes within [`PROMPT`].
    pub(super) async fn roll(&mut self) -> anyhow::Result<()> {
        self.change_image().await?;
        self.until_complete(PROMPT).await
    }

    /// Waits until every online node runs the current image and the DaemonSet reports a complete rollout.
    pub(super) async fn until_complete(&self, limit: Duration) -> anyhow::Result<()> {
        let what = format!("the rollout of {} is complete", self.name);
        until(&what, limit, async || {
            if let Some(missing) = self.missing_pods().await? {
                return Ok(Some(missing));
            }
            let conditions = self.conditions().await?;
            let is_complete =
                |told: &Value| told["type"] == "RolloutComplete" && told["status"] == "True";
            let is_complete = conditions.iter().any(is_complete);
            Ok((!is_complete).then(|| format!("conditions: {}", Value::from(conditions))))
        })
        .await
    }

    pub(super) async fn conditions(&self) -> anyhow::Result<Vec<Value>> {
        let daemon = self.plane.read(&self.daemon()).await?;
        let conditions = daemon["status"]["conditions"].as_array().cloned();
        Ok(conditions.unwrap_or_default())
    }

    /// Returns a description of the online nodes without a Ready pod of the current image; `None` if there are none.
    async fn missing_pods(&self) -> anyhow::Result<Option<String>> {
        let updated = self.updated().await?;
        let silent = lock(&self.kubelets).silent.clone();
        let missing: Vec<String> = (1..=self.nodes)
            .map(|number| self.node(number))
            .filter(|node| !silent.contains(node) && !updated.contains(node))
            .collect();
        let text = format!("no Ready pod of {} on {}", self.image, missing.join(", "));
        Ok((!missing.is_empty()).then_some(text))
    }

    /// Returns the names of the nodes with a Ready pod of the current image.
    pub(super) async fn updated(&self) -> anyhow::Result<BTreeSet<String>> {
        let pods = self.pods().await?;
        let is_updated = |pod: &&Value| is_ready(pod) && image(pod) == self.image;
        Ok(pods
            .iter()
            .filter(is_updated)
            .map(|pod| node(pod).to_owned())
            .collect())
    }

    /// Waits until the pod on a node runs the current image.
    pub(super) async fn until_updated(&self, number: usize) -> anyhow::Result<()> {
        let wanted = self.node(number);
        until(&format!("{wanted} is updated"), PROMPT, async || {
            let updated = self.updated().await?;
            let conditions = || async { self.conditions().await.unwrap_or_default() };
            if updated.contains(&wanted) {
                Ok(None)
            } else {
                Ok(Some(format!(
                    "conditions: {}",
                    Value::from(conditions().await)
                )))
            }
        })
        .await
    }

    pub(super) async fn pod_on(&self, number: usize) -> anyhow::Result<Value> {
        let wanted = self.node(number);
        let mut pods = self.pods().await?.into_iter();
        let found = pods.find(|pod| node(pod) == wanted && !is_deleted(pod));
        found.with_context(|| format!("no pod on {wanted}"))
    }

    async fn pods(&self) -> anyhow::Result<Vec<Value>> {
        let list = self.plane.read(&self.path("pods")).await?;
        Ok(items(&list))
    }

    /// Waits until an outdated node is updated, or until a condition names the node.
    ///
    /// The controller may be unable to decode the node's objects. Then it may leave the pod, but it must report the node.
    pub(super) async fn until_updated_or_named(&self, number: usize) -> anyhow::Result<()> {
        let wanted = self.node(number);
        let what = format!("{wanted} is updated, or a condition names it");
        until(&what, PROMPT, async || {
            let conditions = self.conditions().await?;
            // Consider only the controller's conditions, because a test may have written other conditions to the same status.
            let names = |told: &Value| {
                told["message"]
                    .as_str()
                    .is_some_and(|text| text.contains(&wanted))
            };
            if conditions.iter().any(names) || self.updated().await?.contains(&wanted) {
                return Ok(None);
            }
            Ok(Some(format!("conditions: {}", Value::from(conditions))))
        })
        .await
    }

    /// Waits until the rollout is complete, or until a condition reports an object of the tenant that can't be read.
    pub(super) async fn until_complete_or_unreadable(&self) -> anyhow::Result<()> {
        let what = format!("{} is updated, or says that it cannot be read", self.name);
        until(&what, PROMPT, async || {
            let conditions = self.conditions().await?;
            let says = |told: &Value| {
                let said = format!("{} {}", told["reason"], told["message"]).to_lowercase();
                ["cannot read", "cannot be read", "unreadable"]
                    .iter()
                    .any(|words| said.contains(words))
            };
            if conditions.iter().any(says) {
                return Ok(None);
            }
            let missing = self.missing_pods().await?;
            Ok(missing.map(|text| format!("{text}; conditions: {}", Value::from(conditions))))
        })
        .await
    }

    /// Returns the nodes of all deleted pods so far. A node may occur several times.
    pub(super) fn deleted(&self) -> Vec<String> {
        lock(&self.kubelets).deleted.values().cloned().collect()
    }

    /// Returns the largest number of nodes that lacked a Ready pod at the same time.
    pub(super) fn most_missing(&self) -> usize {
        lock(&self.kubelets).most_missing.unwrap_or_default()
    }

    /// Removes all objects of the tenant that exist.
    pub(super) async fn remove(&self) {
        let paths = [
            format!(
                "/apis/apps.kruise.io/v1beta1/namespaces/{}/daemonsets",
                self.name
            ),
            format!("{}?propagationPolicy=Background", self.path("daemonsets")),
            self.path("controllerrevisions"),
            self.path("pods"),
            self.path("jobs"),
            self.path("leases"),
            self.path("events"),
            format!("/api/v1/nodes?labelSelector=tenant%3D{}", self.name),
            format!("/api/v1/namespaces/{}", self.name),
        ];
        for path in paths {
            let _ = self.plane.delete(&path).await;
        }
    }
}

/// Returns a DaemonSet whose pods yurt-ds may replace all at once.
pub(super) fn at_once() -> Daemon {
    Daemon::new()
        .max_unavailable("100%")
        .annotate("ready-settle", "0s")
}

/// Simulates the kubelets: starts pods when they are bound to a node, and ends them when they are deleted.
async fn play(client: Client, namespace: String, nodes: usize, kubelets: Arc<Mutex<Kubelets>>) {
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    loop {
        if let Ok(list) = send(&client, "GET", &path, &Value::Null).await {
            let list: Value = serde_json::from_str(&list).unwrap_or_default();
            let due = lock(&kubelets).take(&items(&list), nodes);
            let acts = due.iter().map(|pod| act(&client, &path, pod));
            let failed = join_all(acts).await;
            for uid in failed.into_iter().flatten() {
                lock(&kubelets).started.remove(&uid);
            }
        }
        tokio::time::sleep(PULSE).await;
    }
}

impl Kubelets {
    /// Records the state of the tenant's pods. Returns the pods to start or to end.
    fn take(&mut self, pods: &[Value], nodes: usize) -> Vec<Value> {
        let ready = pods.iter().filter(|pod| is_ready(pod)).map(node);
        let missing = nodes - ready.collect::<BTreeSet<_>>().len().min(nodes);
        match &mut self.most_missing {
            Some(most) => *most = missing.max(*most),
            None if missing == 0 => self.most_missing = Some(0),
            None => {}
        }
        let mut due = Vec::new();
        for pod in pods {
            let (node, uid) = (node(pod), uid(pod));
            if is_deleted(pod) {
                self.deleted.insert(uid.to_owned(), node.to_owned());
            }
            if node.is_empty() || self.silent.contains(node) {
                continue;
            }
            if is_deleted(pod) || self.started.insert(uid.to_owned()) {
                due.push(pod.clone());
            }
        }
        due
    }
}

/// Starts a pod, or ends it if it is deleted. If the request fails, returns the UID of the pod.
async fn act(client: &Client, pods: &str, pod: &Value) -> Option<String> {
    let path = format!(
        "{pods}/{}",
        pod["metadata"]["name"].as_str().unwrap_or_default()
    );
    let done = match is_deleted(pod) {
        true => {
            let path = format!("{path}?gracePeriodSeconds=0");
            send(client, "DELETE", &path, &Value::Null).await
        }
        false => {
            let status = json!({ "status": running(pod, &json!(Time(Clock::System.now()))) });
            send(client, "PATCH", &format!("{path}/status"), &status).await
        }
    };
    done.err().map(|_| uid(pod).to_owned())
}

/// Returns the status of a pod that has been running since this time.
pub(super) fn running(pod: &Value, since: &Value) -> Value {
    let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"];
    let conditions = conditions
        .map(|kind| json!({ "type": kind, "status": "True", "lastTransitionTime": since }));
    json!({
        "phase": "Running",
        "startTime": since,
        "hostIP": "192.0.2.1",
        "podIP": "192.0.2.2",
        "podIPs": [{ "ip": "192.0.2.2" }],
        "conditions": conditions,
        "containerStatuses": [{
            "name": "nginx", "image": image(pod), "imageID": image(pod), "ready": true, "started": true,
            "restartCount": 0, "containerID": format!("fake://{}", uid(pod)),
            "state": { "running": { "startedAt": since } },
        }],
    })
}

async fn send(client: &Client, method: &str, path: &str, body: &Value) -> anyhow::Result<String> {
    let body = if body.is_null() {
        Vec::new()
    } else {
        body.to_string().into_bytes()
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/strategic-merge-patch+json");
    Ok(client.request_text(request.body(body)?).await?)
}

fn items(list: &Value) -> Vec<Value> {
    list["items"].as_array().cloned().unwrap_or_default()
}

fn node(pod: &Value) -> &str {
    pod["spec"]["nodeName"].as_str().unwrap_or_default()
}

fn uid(pod: &Value) -> &str {
    pod["metadata"]["uid"].as_str().unwrap_or_default()
}

fn image(pod: &Value) -> &str {
    pod["spec"]["containers"][0]["image"]
        .as_str()
        .unwrap_or_default()
}

fn is_deleted(pod: &Value) -> bool {
    !pod["metadata"]["deletionTimestamp"].is_null()
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let is_true = |told: &Value| told["type"] == "Ready" && told["status"] == "True";
    !is_deleted(pod) && conditions.is_some_and(|told| told.iter().any(is_true))
}

fn lock(kubelets: &Mutex<Kubelets>) -> MutexGuard<'_, Kubelets> {
    kubelets.lock().unwrap_or_else(PoisonError::into_inner)
}
