//! The controller's work after one event in the middle of a rollout.
//!
//! The event is a new pod that becomes Ready. The index stores it and collects the nodes that the decision needs. Then the engine
//! makes the decision.

use std::hint::black_box;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use yurt_ds::core::{Action, NodeName, ParsedSettings, Plan, Strategy, decide_in_view};
use yurt_ds::index::{Index, SetKey, WriteAnswer};

/// Rollout in which half of the nodes are done, a tenth are in progress, and a fifth are offline.
pub(crate) struct Rollout {
    index: Index,
    key: SetKey,
    strategy: Strategy,
    /// Nodes whose new pod is starting.
    starting: Vec<usize>,
    clock: i64,
}

const BEGINNING: i64 = 1_900_000_000;
const PODS_MADE: i64 = BEGINNING - 80_000;

impl Rollout {
    /// Returns a rollout on this many nodes.
    pub(crate) fn new(nodes: usize) -> Self {
        let key = SetKey::new("edge", "agent");
        let mut index = Index::default();
        index.apply_set(&parsed(daemonset()));
        for (number, hash) in [(1, "old"), (2, "new")] {
            index.apply_revision(&parsed(revision(number, hash)));
        }
        let mut starting = Vec::new();
        for i in 0..nodes {
            let is_ready = !i.is_multiple_of(5);
            index.apply_node(&parsed(node(i, is_ready)), at(BEGINNING - 90_000));
            let place = i * 37 % 100;
            let pod = match place {
                0..50 if is_ready => pod(i, "new", Some(BEGINNING - 500)),
                50..60 if is_ready => {
                    starting.push(i);
                    pod(i, "new", None)
                }
                _ => pod(i, "old", Some(PODS_MADE)),
            };
            index.apply_pod(&key, &parsed(pod), at(BEGINNING));
        }
        index.set_mut(&key).expect("it was told").synced = true;
        let reading = index.reading(&key).expect("it was told").into_owned();
        let ParsedSettings::Strategy { strategy, .. } = reading else {
            panic!("the settings are good");
        };
        let mut rollout = Self {
            index,
            key,
            strategy: *strategy,
            starting,
            clock: BEGINNING,
        };
        // Start updates until the budget is used up. Then each measured step frees one slot and starts one update.
        loop {
            let plan = rollout.decide();
            if plan.actions.is_empty() {
                return rollout;
            }
            rollout.carry_out(&plan);
        }
    }

    /// Makes one more new pod Ready and decides again. Returns the duration and the number of pods that the decision replaces.
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    pub(crate) fn step(&mut self) -> (Duration, usize) {
        let i = self.starting.pop().expect("there are as many as steps");
        self.clock += 1;
        let pod = parsed(pod(i, "new", Some(self.clock)));
        let began = Instant::now();
        self.index.apply_pod(&self.key, &pod, at(self.clock));
        let plan = black_box(self.decide());
        let took = began.elapsed();
        self.carry_out(&plan);
        (took, plan.actions.len())
    }

    fn decide(&mut self) -> Plan {
        let now = at(self.clock);
        loop {
            let fleet = self.index.view(&self.key, &self.strategy, now);
            let fleet = fleet.expect("it was told");
            let (plan, view) = decide_in_view(&self.strategy, &fleet, now);
            if !self.index.widen(&self.key, view, now) {
                return plan;
            }
        }
    }

    /// Applies the actions of a plan to the fleet, as if the API server accepted all writes.
    fn carry_out(&mut self, plan: &Plan) {
        let now = at(self.clock);
        let set = self.index.set_mut(&self.key).expect("it was told");
        for action in &plan.actions {
            assert!(matches!(action, Action::Delete(_)), "{action:?}");
            set.begin_write(action, now);
            set.end_write(action, WriteAnswer::Accepted, now);
        }
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX)
}

fn parsed<T: DeserializeOwned>(object: Value) -> T {
    serde_json::from_str(&object.to_string()).expect("it is written as Kubernetes writes it")
}

fn name(i: usize) -> NodeName {
    format!("edge-node-{i:06}").as_str().into()
}

fn daemonset() -> Value {
    json!({"metadata": {"name": "agent", "namespace": "edge", "uid": "ds", "generation": 2, "resourceVersion": "2",
        "annotations": {"apps.openyurt.io/update-strategy": "AdvancedRollingUpdate", "apps.openyurt.io/max-unavailable": "10%"}},
        "spec": {"selector": {"matchLabels": {"app": "agent"}}, "updateStrategy": {"type": "OnDelete"},
            "template": template("new")}, "status": {"observedGeneration": 2}})
}

fn template(version: &str) -> Value {
    json!({"metadata": {"labels": {"app": "agent"}},
        "spec": {"containers": [{"name": "main", "image": format!("agent:{version}")}]}})
}

fn owner() -> Value {
    json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "ds", "controller": true}])
}

fn revision(number: i64, hash: &str) -> Value {
    json!({"metadata": {"name": format!("agent-{hash}"), "namespace": "edge", "labels": {"controller-revision-hash": hash},
        "creationTimestamp": at(BEGINNING - 100_000 + number).to_string(), "ownerReferences": owner()},
        "revision": number, "data": {"spec": {"template": template(hash)}}})
}

fn node(i: usize, is_ready: bool) -> Value {
    let status = if is_ready { "True" } else { "Unknown" };
    json!({"metadata": {"name": name(i).as_str(), "labels": {"kubernetes.io/os": "linux"}}, "status": {"conditions": [
        {"type": "Ready", "status": status, "lastTransitionTime": at(BEGINNING - 90_000).to_string()}]}})
}

fn pod(i: usize, hash: &str, ready: Option<i64>) -> Value {
    let made = ready.filter(|_| hash == "old").unwrap_or(BEGINNING - 501);
    let mut conditions = Vec::new();
    if let Some(ready) = ready {
        let since = at(ready).to_string();
        conditions.push(json!({"type": "Ready", "status": "True", "lastTransitionTime": since}));
    }
    json!({"metadata": {"name": format!("agent-{i:06}-{hash}"), "uid": format!("{i:08x}-0000-0000-0000-00000000{:04x}", hash.len()),
        "resourceVersion": format!("{}", 10 + ready.unwrap_or(0)), "creationTimestamp": at(made).to_string(),
        "labels": {"app": "agent", "controller-revision-hash": hash}, "ownerReferences": owner()},
        "spec": {"nodeName": name(i).as_str(), "containers": [{"name": "main", "image": format!("agent:{hash}")}]},
        "status": {"startTime": at(made).to_string(), "conditions": conditions}})
}
