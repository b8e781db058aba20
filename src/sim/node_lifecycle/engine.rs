//! Task of the simulated node lifecycle controller. It marks silent nodes, sets taints, and deletes pods that may not stay.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use kube::runtime::watcher::Event;
use kube::{Api, Client, Error};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::options::NodeLifecycleOptions;
use super::taints::{may_stay, readiness, wanted};
use crate::clock::Clock;
use crate::core::names::AUTONOMY;
use crate::sim::kubelet::unknown;
use crate::sim::pod_view::PodView;
use crate::sim::queue::Queue;
use crate::sim::watched::{Cache, WatchEvents, WatchedChange, WatchedKey, WatchedWrites, events};

/// Delay before a failed write is retried.
const RETRY: Duration = Duration::from_secs(1);

/// Check or action that is planned for a later time.
enum Due {
    /// Check if a node has been silent for longer than the grace period.
    Silent(String),
    /// Check the Leases of all nodes.
    Judge,
    /// Check a node's taints.
    Node(WatchedKey),
    /// Check if a pod may stay on its node.
    Pod(WatchedKey),
    /// Try again to set a pod's Ready condition to `False`.
    Mark(WatchedKey),
    /// Delete the pods of a node that no longer exists.
    DeletedNode(String),
}

pub(super) struct NodeLifecycleController {
    client: Client,
    clock: Clock,
    options: NodeLifecycleOptions,
    nodes: Cache<DynamicObject>,
    pods: Cache<PodView>,
    /// Keys of pods by the name of their node.
    pods_by_node: BTreeMap<String, BTreeSet<WatchedKey>>,
    /// Time of each node's last Lease renewal. Unused if heartbeats come from a pulse.
    heard: BTreeMap<String, Instant>,
    /// Nodes with a write of this controller in flight.
    busy: BTreeSet<WatchedKey>,
    /// Names of nodes that don't exist although pods are bound to them.
    vanished: BTreeSet<String>,
    due: Queue<Due>,
    writes: WatchedWrites<Answer>,
}

/// Result of a write of the controller.
enum Answer {
    /// Write to a node. Contains the new Node object, if known.
    Node(WatchedKey, Option<Box<DynamicObject>>),
    /// Write of a pod's Ready condition that failed.
    Unmarked(WatchedKey),
    /// Write to a pod. True if the pod was deleted, false if it must be checked again.
    Pod(WatchedKey, bool),
    Nothing,
}

impl NodeLifecycleController {
    pub(super) fn new(client: Client, clock: Clock, options: NodeLifecycleOptions) -> Self {
        Self {
            client,
            clock,
            options,
            nodes: Cache::default(),
            pods: Cache::default(),
            pods_by_node: BTreeMap::new(),
            heard: BTreeMap::new(),
            busy: BTreeSet::new(),
            vanished: BTreeSet::new(),
            due: Queue::default(),
            writes: WatchedWrites::default(),
        }
    }

    pub(super) async fn run(mut self) {
        let client = || self.client.clone();
        let node = ApiResource::erase::<Node>(&());
        let mut nodes = events(Api::<DynamicObject>::all_with(client(), &node), "");
        let mut pods = events(Api::<PodView>::all(client()), "spec.nodeName!=");
        let (mut beats, mut pulse) = self.heartbeats();
        loop {
            tokio::select! {
                biased;
                answer = self.writes.next() => self.answered(answer),
                Some(event) = nodes.next() => {
                    let listed = matches!(event, Event::InitDone);
                    let changes = self.nodes.event(event);
                    changes.iter().for_each(|change| self.node_changed(&change.key));
                    if listed {
                        self.find_vanished();
                    }
                }
                Some(event) = pods.next() => {
                    let listed = matches!(event, Event::InitDone);
                    let changes = self.pods.event(event);
                    changes.iter().for_each(|change| self.pod_changed(change));
                    if listed {
                        self.find_vanished();
                    }
                }
                Some(event) = beats.next() => {
                    for change in Cache::default().event(event) {
                        self.heard.insert(change.key.name, Instant::now());
                    }
                }
                Ok(()) = pulse.changed() => self.listen(&mut pulse),
                () = self.due.wait() => {
                    while let Some(due) = self.due.take() {
                        self.fire(due);
                    }
                }
            }
        }
    }

    /// Returns the watch of Leases and the receiver of the pulse. The options determine which of the two delivers the heartbeats.
    fn heartbeats(
        &mut self,
    ) -> (
        WatchEvents<Lease>,
        watch::Receiver<BTreeMap<String, Instant>>,
    ) {
        if let Some(pulse) = &self.options.pulse {
            let mut receiver = pulse.subscribe();
            receiver.mark_changed();
            return (Box::pin(futures::stream::pending()), receiver);
        }
        self.due.add(self.options.grace, Due::Judge);
        let api = Api::namespaced(self.client.clone(), "kube-node-lease");
        let silent = crate::sim::pulse::SilentNodes::default();
        (events(api, ""), silent.subscribe())
    }

    fn listen(&mut self, pulse: &mut watch::Receiver<BTreeMap<String, Instant>>) {
        let silent = pulse.borrow_and_update().clone();
        for (node, since) in silent {
            let left = self.options.grace.saturating_sub(since.elapsed());
            self.due.add(left, Due::Silent(node));
        }
    }

    fn fire(&mut self, due: Due) {
        match due {
            Due::Silent(node) => {
                let pulse = self.options.pulse.as_ref().map(|pulse| pulse.subscribe());
                let since = pulse.and_then(|pulse| pulse.borrow().get(&node).copied());
                if since.is_some_and(|since| since.elapsed() >= self.options.grace) {
                    self.mark_unknown(&node);
                }
            }
            Due::Judge => self.judge(),
            Due::Node(key) => self.node_changed(&key),
            Due::Pod(key) => self.look_at_pod(&key),
            Due::Mark(key) => self.mark_pod(&key),
            Due::DeletedNode(node) => self.clear(&node),
        }
    }

    /// Marks all nodes whose Lease was not renewed within the grace period.
    fn judge(&mut self) {
        self.due.add(self.options.period, Due::Judge);
        let now = Instant::now();
        let names: Vec<String> = self.nodes.iter().map(|(key, _)| key.name.clone()).collect();
        for name in names {
            let heard = *self.heard.entry(name.clone()).or_insert(now);
            if heard.elapsed() > self.options.grace {
                self.mark_unknown(&name);
            }
        }
    }

    fn mark_unknown(&mut self, name: &str) {
        let key = WatchedKey::new("", name);
        let Some(node) = self.nodes.get(&key) else {
            return;
        };
        if readiness(node) == Some("Unknown") {
            return;
        }
        let autonomous = is_autonomous(node);
        let patch = json!({ "status": unknown(self.clock.now()) });
        self.write_node(&key, patch, Some("status"));
        tracing::debug!(node = name, "A node is silent and becomes Unknown");
        if !autonomous {
            for pod in self.pods_by_node.get(name).cloned().unwrap_or_default() {
                self.mark_pod(&pod);
            }
        }
    }

    /// Sets a pod's Ready condition to `False` if it is `True`.
    fn mark_pod(&mut self, key: &WatchedKey) {
        let Some(pod) = self.pods.get(key) else {
            return;
        };
        if !pod.is_true("Ready") {
            return;
        }
        let condition = json!({
            "type": "Ready", "status": "False", "lastTransitionTime": Time(self.clock.now()),
        });
        let patch = json!({
            "metadata": { "uid": pod.metadata.uid }, "status": { "conditions": [condition] },
        });
        let (client, key) = (self.client.clone(), key.clone());
        self.writes.add(async move {
            let pods: Api<Pod> = Api::namespaced(client, &key.namespace);
            let params = PatchParams::default();
            match pods
                .patch_status(&key.name, &params, &Patch::Strategic(patch))
                .await
            {
                Err(error) if !is_moot(&error) => Answer::Unmarked(key),
                _ => Answer::Nothing,
            }
        });
    }

    fn write_node(&mut self, key: &WatchedKey, patch: Value, subresource: Option<&'static str>) {
        self.busy.insert(key.clone());
        let (client, key) = (self.client.clone(), key.clone());
        self.writes.add(async move {
            let api = Api::<DynamicObject>::all_with(client, &ApiResource::erase::<Node>(&()));
            let params = PatchParams::default();
            let result = match subresource {
                Some(_) => {
                    api.patch_status(&key.name, &params, &Patch::Strategic(patch))
                        .await
                }
                None => api.patch(&key.name, &params, &Patch::Merge(patch)).await,
            };
            Answer::Node(key, result.ok().map(Box::new))
        });
    }

    fn node_changed(&mut self, key: &WatchedKey) {
        let Some(node) = self.nodes.get(key) else {
            self.check_vanished(&key.name);
            return;
        };
        self.vanished.remove(&key.name);
        if self.busy.contains(key) {
            return;
        }
        if let Some(taints) = wanted(node, self.clock.now()) {
            let version = node.metadata.resource_version.clone();
            let meta = json!({ "resourceVersion": version });
            let patch = json!({ "metadata": meta, "spec": { "taints": taints } });
            self.write_node(key, patch, None);
        }
        let evicts = |taint: &Value| taint["effect"] == "NoExecute";
        let taints = self.nodes.get(key).map(|node| &node.data["spec"]["taints"]);
        let mut taints = taints.and_then(Value::as_array).into_iter().flatten();
        if taints.any(evicts) {
            for pod in self
                .pods_by_node
                .get(&key.name)
                .cloned()
                .unwrap_or_default()
            {
                self.look_at_pod(&pod);
            }
        }
    }

    fn pod_changed(&mut self, change: &WatchedChange<PodView>) {
        if let Some(before) = &change.before
            && let Some(pods) = self.pods_by_node.get_mut(&before.spec.node_name)
        {
            pods.remove(&change.key);
        }
        let Some(pod) = self.pods.get(&change.key) else {
            return;
        };
        let node = pod.spec.node_name.clone();
        let pods = self.pods_by_node.entry(node.clone()).or_default();
        pods.insert(change.key.clone());
        if change.before.is_none() {
            self.look_at_pod(&change.key);
            self.check_vanished(&node);
        }
    }

    /// Deletes a pod that may no longer stay on its node, or plans the next check.
    fn look_at_pod(&mut self, key: &WatchedKey) {
        let Some(pod) = self.pods.get(key) else {
            return;
        };
        let node = WatchedKey::new("", &pod.spec.node_name);
        let Some(node) = self.nodes.get(&node) else {
            return;
        };
        let going = pod.is_deleted();
        let stay = may_stay(&pod.spec.tolerations, node, self.clock.now());
        match stay {
            Some(Duration::ZERO) if !going => self.delete(key, None),
            Some(left) if !going => self.due.add(left, Due::Pod(key.clone())),
            _ => {}
        }
    }

    fn find_vanished(&mut self) {
        self.pods_by_node.retain(|_, pods| !pods.is_empty());
        for node in self.pods_by_node.keys().cloned().collect::<Vec<_>>() {
            self.check_vanished(&node);
        }
    }

    /// Plans the deletion of the pods of a node, if the node does not exist.
    fn check_vanished(&mut self, node: &str) {
        let synced = self.nodes.is_synced() && self.pods.is_synced();
        let exists = self.nodes.get(&WatchedKey::new("", node)).is_some();
        let empty = self.pods_by_node.get(node).is_none_or(BTreeSet::is_empty);
        if synced && !exists && !empty && self.vanished.insert(node.to_owned()) {
            let due = Due::DeletedNode(node.to_owned());
            self.due.add(self.options.quarantine, due);
        }
    }

    /// Deletes the pods of a node, unless the node exists again.
    fn clear(&mut self, node: &str) {
        if self.vanished.remove(node) {
            for key in self.pods_by_node.get(node).cloned().unwrap_or_default() {
                self.delete(&key, Some(0));
            }
        }
    }

    fn delete(&mut self, key: &WatchedKey, grace: Option<u32>) {
        let uid = self.pods.get(key).and_then(|pod| pod.metadata.uid.clone());
        let params = DeleteParams {
            grace_period_seconds: grace,
            preconditions: Some(Preconditions {
                uid,
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let (client, key) = (self.client.clone(), key.clone());
        self.writes.add(async move {
            let pods: Api<Pod> = Api::namespaced(client, &key.namespace);
            let result = pods.delete(&key.name, &params).await;
            Answer::Pod(key, result.is_ok_and(|_| true))
        });
    }

    fn answered(&mut self, answer: Answer) {
        match answer {
            Answer::Node(key, node) => {
                self.busy.remove(&key);
                match node {
                    Some(node) => {
                        self.nodes.answer(*node);
                        self.node_changed(&key);
                    }
                    None => self.due.add(RETRY, Due::Node(key)),
                }
                self.nodes.quiet();
            }
            Answer::Unmarked(key) => self.due.add(RETRY, Due::Mark(key)),
            Answer::Pod(key, false) => {
                let node = self.pods.get(&key).map(|pod| pod.spec.node_name.clone());
                self.check_vanished(&node.unwrap_or_default());
                self.due.add(RETRY, Due::Pod(key));
            }
            Answer::Pod(_, true) | Answer::Nothing => {}
        }
    }
}

fn is_autonomous(node: &DynamicObject) -> bool {
    let annotations = node.metadata.annotations.as_ref();
    let value = |key: &str| annotations.and_then(|annotations| annotations.get(key));
    let [binding, autonomy, duration] = AUTONOMY;
    let yes = |key| value(key).is_some_and(|value| value == "true");
    yes(binding) || yes(autonomy) || value(duration).is_some()
}

fn is_moot(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.is_not_found() || status.is_conflict())
}
