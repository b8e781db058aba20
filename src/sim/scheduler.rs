//! Simple scheduler. It binds a pod to the node that the pod's affinity names, or to the next node that fits.
//!
//! A node fits if the pod's node selector, required node affinity and tolerations allow it, as in the native scheduler. Resources
//! and priorities are ignored. A pod that fits no node waits until a node changes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ApiResource, DynamicObject, PostParams, Request};
use kube::core::Status;
use kube::{Api, Client, Resource as _};
use serde_json::{Value, json};

use crate::core::Labels;
use crate::core::Targeting;
use crate::core::eligibility::{NodeFacts, Scheduling};
use crate::sim::queue::Queue;
use crate::sim::watched::{Cache, WatchedKey, events, key};
use crate::task::Task;

/// Delay before a failed binding is retried.
const RETRY: Duration = Duration::from_secs(1);
/// Maximum number of bindings in flight.
const PARALLEL: usize = 64;

/// Starts the scheduler. It stops when the returned task is dropped.
pub fn start(client: Client) -> Task {
    Task::spawn(Scheduler::new(client).run())
}

struct Scheduler {
    client: Client,
    pods: Cache<DynamicObject>,
    nodes: Cache<DynamicObject>,
    /// Pods that have no node yet.
    waiting: BTreeSet<WatchedKey>,
    /// Pods whose binding is in flight or done, with their nodes.
    bound: BTreeMap<WatchedKey, String>,
    under_way: FuturesUnordered<BoxFuture<'static, (WatchedKey, kube::Result<()>)>>,
    due: Queue<WatchedKey>,
    /// Position of the last chosen node, so that pods are distributed evenly.
    turn: usize,
}

impl Scheduler {
    fn new(client: Client) -> Self {
        Self {
            client,
            pods: Cache::default(),
            nodes: Cache::default(),
            waiting: BTreeSet::new(),
            bound: BTreeMap::new(),
            under_way: FuturesUnordered::new(),
            due: Queue::default(),
            turn: 0,
        }
    }

    async fn run(mut self) {
        let all = |resource| Api::<DynamicObject>::all_with(self.client.clone(), &resource);
        let mut pods = events(all(ApiResource::erase::<Pod>(&())), "spec.nodeName=");
        let mut nodes = events(all(ApiResource::erase::<Node>(&())), "");
        loop {
            tokio::select! {
                biased;
                Some((key, result)) = self.under_way.next() => self.answered(key, &result),
                Some(event) = nodes.next() => {
                    if !self.nodes.event(event).is_empty() {
                        self.waiting.extend(self.pods.iter().map(|(key, _)| key.clone()));
                    }
                }
                Some(event) = pods.next() => {
                    for change in self.pods.event(event) {
                        if self.pods.get(&change.key).is_none() {
                            self.bound.remove(&change.key);
                        }
                        self.waiting.insert(change.key);
                    }
                }
                () = self.due.wait() => self.waiting.extend(self.due.take()),
                () = std::future::ready(()), if self.may_bind() => self.bind_next(),
            }
        }
    }

    fn may_bind(&self) -> bool {
        !self.waiting.is_empty() && self.nodes.is_synced() && self.under_way.len() < PARALLEL
    }

    fn bind_next(&mut self) {
        let Some(key) = self.waiting.pop_first() else {
            return;
        };
        let Some(pod) = self.pods.get(&key) else {
            return;
        };
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let going = pod.metadata.deletion_timestamp.is_some();
        if going || self.bound.get(&key) == Some(&uid) {
            return;
        }
        let Some(node) = self.fitting(&pod.data["spec"]) else {
            return;
        };
        self.turn += 1;
        self.bound.insert(key.clone(), uid.clone());
        let client = self.client.clone();
        self.under_way.push(Box::pin(async move {
            let result = bind(&client, &key, &uid, &node).await;
            (key, result)
        }));
    }

    fn answered(&mut self, key: WatchedKey, result: &kube::Result<()>) {
        if let Err(error) = result {
            tracing::debug!(%error, pod = key.name, "Cannot bind a pod");
            self.bound.remove(&key);
            self.due.add(RETRY, key);
        }
    }

    /// Returns the node for a pod: the node that its affinity names. Without such an affinity, returns the next node in turn that
    /// fits.
    fn fitting(&self, spec: &Value) -> Option<String> {
        let scheduling = Scheduling::from_template(&json!({ "spec": spec }));
        let fits = |node: &DynamicObject| {
            attracted(&scheduling, node) && untolerated(&spec["tolerations"], node).is_none()
        };
        if let Some(name) = named(spec) {
            let node = self.nodes.get(&WatchedKey::new("", name))?;
            return fits(node).then(|| name.to_owned());
        }
        let count = self.nodes.iter().count().max(1);
        let turned = self.nodes.iter().cycle().skip(self.turn % count);
        let mut nodes = turned.take(count).map(|(_, node)| node);
        nodes.find(|node| fits(node)).map(|node| key(node).name)
    }
}

/// Returns the node that the affinity of a DaemonSet's pod names.
fn named(spec: &Value) -> Option<&str> {
    let required =
        &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let [term] = required["nodeSelectorTerms"].as_array()?.as_slice() else {
        return None;
    };
    let fields = term["matchFields"].as_array()?.iter();
    let mut names =
        fields.filter(|field| field["key"] == "metadata.name" && field["operator"] == "In");
    names.next()?["values"][0].as_str()
}

/// Returns true if node selector and node affinity allow the node. Taints are ignored.
fn attracted(scheduling: &Scheduling, node: &DynamicObject) -> bool {
    let labels = node.metadata.labels.iter().flatten();
    let labels: Labels = labels
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    let facts = NodeFacts {
        name: node.metadata.name.as_deref().unwrap_or_default(),
        labels: &labels,
        taints: &[],
    };
    scheduling.targeting(&facts) == Targeting::Run
}

/// Returns the first taint that keeps a pod with these tolerations off the node.
pub(crate) fn untolerated<'a>(tolerations: &Value, node: &'a DynamicObject) -> Option<&'a Value> {
    let taints = node.data["spec"]["taints"].as_array().into_iter().flatten();
    let mut repelling = taints.filter(|taint| taint["effect"] != "PreferNoSchedule");
    repelling.find(|taint| {
        let mut tolerations = tolerations.as_array().into_iter().flatten();
        !tolerations.any(|toleration| tolerates(toleration, taint))
    })
}

pub(crate) fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let text = |value: &'_ Value| value.as_str().unwrap_or_default().to_owned();
    let (key, effect) = (text(&toleration["key"]), text(&toleration["effect"]));
    let exists = toleration["operator"] == "Exists";
    (effect.is_empty() || effect == text(&taint["effect"]))
        && (key == text(&taint["key"]) || key.is_empty() && exists)
        && (exists || text(&toleration["value"]) == text(&taint["value"]))
}

async fn bind(client: &Client, key: &WatchedKey, uid: &str, node: &str) -> kube::Result<()> {
    let WatchedKey { namespace, name } = key;
    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": { "name": name, "namespace": namespace, "uid": uid },
        "target": { "apiVersion": "v1", "kind": "Node", "name": node },
    });
    let body = binding.to_string().into_bytes();
    let pods = Request::new(Pod::url_path(&(), Some(namespace)));
    let request = pods.create_subresource("binding", name, &PostParams::default(), body);
    let request = request.map_err(kube::Error::BuildRequest)?;
    client.request::<Status>(request).await.map(drop)
}
