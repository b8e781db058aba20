//! Compares the responses of the embedded API server with those of a real one.
//!
//! The scenarios run on both API servers. If the embedded one accepted an invalid request or returned another error, the scenarios
//! could miss a bug in the controller. So each request of [`requests`] goes to both servers, in order. Both must respond with the
//! same code, the same reason, and the same [`shape`] of the object. [`KNOWN`] lists the accepted differences.
//!
//! `YURT_DS_SUITE_KUBECONFIG` names the real cluster. Without it the comparison is skipped.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use http::Request;
use kube::Client;
use serde_json::{Value, json};
use tokio::time::sleep;
use yurt_ds::clock::Clock;
use yurt_ds::sim::cluster::{Cluster, ClusterOptions};

use crate::support::real;

/// Content types of request bodies.
const JSON: &str = "application/json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";

/// Accepted differences by the name of the request, each with the reason why it can't affect a controller.
const KNOWN: &[(&str, &str)] = &[
    (
        "status: a negative number",
        "the native controller writes these numbers",
    ),
    (
        "budget: no percentage",
        "budgets are made by users, who see what the real server says of them",
    ),
    (
        "lease: a time at the end of the calendar",
        "the embedded server stores what its own library can hold; `tests/isolation.rs` plays such times on real ones",
    ),
    ("node: a time at the end of the calendar", "the same"),
];

/// Request that is sent to both API servers.
struct Asked {
    name: &'static str,
    method: &'static str,
    path: String,
    kind: &'static str,
    /// Body of the request. In it, `"UID"` stands for the UID of the pod that the request named `pod` created.
    body: Value,
}

/// Returns the path of a core resource in the test's namespace.
fn of_core(rest: &str) -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/{rest}")
}

fn of(group: &str, rest: &str) -> String {
    format!("/apis/{group}/namespaces/{NAMESPACE}/{rest}")
}

const NAMESPACE: &str = "answers";

/// Returns a pod with two containers that are not in alphabetical order.
fn pod(name: &str, change: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "labels": { "app": "x" } },
        "spec": {
            "nodeName": "answers-1",
            "containers": [{ "name": "b", "image": "i:1" }, { "name": "a", "image": "i:1" }],
        },
    });
    json_patch::merge(&mut pod, &change);
    pod
}

fn daemonset(name: &str, change: Value) -> Value {
    let mut set = json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": { "name": name },
        "spec": {
            "selector": { "matchLabels": { "app": "d" } },
            "updateStrategy": { "type": "OnDelete" },
            "template": {
                "metadata": { "labels": { "app": "d" } },
                "spec": {
                    "nodeSelector": { "no": "where" },
                    "containers": [{ "name": "c", "image": "i:1" }],
                },
            },
        },
    });
    json_patch::merge(&mut set, &change);
    set
}

fn eviction(name: &str, precondition: Value) -> Value {
    json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": { "name": name },
        "deleteOptions": { "preconditions": precondition },
    })
}

fn owners(controllers: &[(&str, bool)]) -> Value {
    let owner = |(uid, controller): &(&str, bool)| json!({ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "o", "uid": uid, "controller": controller });
    let owners: Vec<Value> = controllers.iter().map(owner).collect();
    json!({ "metadata": { "ownerReferences": owners } })
}

/// Returns a patch that sets the images of these containers, in this order.
fn images(images: &[(&str, &str)]) -> Value {
    let image = |(name, image): &(&str, &str)| json!({ "name": name, "image": image });
    let images: Vec<Value> = images.iter().map(image).collect();
    json!({ "spec": { "containers": images } })
}

fn event(name: &str, change: Value) -> Value {
    let mut event = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": { "name": name },
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "example.com/controller",
        "reportingInstance": "one",
        "action": "Act",
        "reason": "Reason",
        "type": "Warning",
        "note": "note",
        "regarding": { "apiVersion": "v1", "kind": "Pod", "name": "x", "namespace": NAMESPACE },
    });
    json_patch::merge(&mut event, &change);
    event
}

/// Returns an object with this name and `spec`.
fn object(version: &str, kind: &str, name: &str, spec: Value) -> Value {
    json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name }, "spec": spec })
}

fn lease(name: &str, spec: Value) -> Value {
    object("coordination.k8s.io/v1", "Lease", name, spec)
}

fn job(name: &str, restart: &str) -> Value {
    let containers = json!([{ "name": "c", "image": "i" }]);
    let pods = json!({ "spec": { "restartPolicy": restart, "containers": containers } });
    object(
        "batch/v1",
        "Job",
        name,
        json!({ "suspend": true, "template": pods }),
    )
}

fn budget(name: &str, spec: Value) -> Value {
    object("policy/v1", "PodDisruptionBudget", name, spec)
}

/// Returns all requests to send to both API servers, in order.
fn requests() -> Vec<Asked> {
    let mut all = Vec::new();
    let mut ask = |name, method, path: String, kind, body: Value| {
        all.push(Asked {
            name,
            method,
            path,
            kind,
            body,
        });
    };
    let pods = of_core("pods");
    let one = of_core("pods/p1");
    let status = of_core("pods/p1/status");
    let evict = of_core("pods/p1/eviction");

    // Requests that create pods.
    for (name, body) in [
        ("pod", pod("p1", json!({}))),
        ("pod: again", pod("p1", json!({}))),
        ("pod: no name", pod("P_1", json!({}))),
        (
            "pod: no containers",
            pod("p2", json!({ "spec": { "containers": [] } })),
        ),
        (
            "pod: a container twice",
            pod("p2", images(&[("a", "i"), ("a", "i")])),
        ),
        (
            "pod: a long label",
            pod(
                "p2",
                json!({ "metadata": { "labels": { "app": "x".repeat(64) } } }),
            ),
        ),
        (
            "pod: no label key",
            pod("p2", json!({ "metadata": { "labels": { "a b": "x" } } })),
        ),
        (
            "pod: another namespace",
            pod("p2", json!({ "metadata": { "namespace": "other" } })),
        ),
        (
            "pod: a version",
            pod("p2", json!({ "metadata": { "resourceVersion": "5" } })),
        ),
        (
            "pod: two controllers",
            pod("p2", owners(&[("1", true), ("2", true)])),
        ),
        (
            "pod: an owner without UID",
            pod("p2", owners(&[("", false)])),
        ),
        (
            "pod: another kind",
            json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "p2" } }),
        ),
    ] {
        ask(name, "POST", pods.clone(), JSON, body);
    }

    // Patches of pods: in-place updates, labels, owner references.
    for (name, body) in [
        ("patch: one image", images(&[("a", "i:2")])),
        (
            "patch: images in the order of names",
            images(&[("a", "i:3"), ("b", "i:3")]),
        ),
        (
            "patch: images in the pod's order",
            images(&[("b", "i:4"), ("a", "i:4")]),
        ),
        ("patch: an empty image", images(&[("a", "")])),
        ("patch: an image with a space", images(&[("a", " i:5")])),
        ("patch: one more container", images(&[("c", "i:5")])),
        (
            "patch: a variable",
            json!({ "spec": { "containers": [{ "name": "a", "env": [{ "name": "x", "value": "y" }] }] } }),
        ),
        (
            "patch: one container less",
            json!({ "spec": { "containers": [{ "name": "a", "$patch": "delete" }] } }),
        ),
        (
            "patch: another node",
            json!({ "spec": { "nodeName": "answers-2" } }),
        ),
        (
            "patch: labels",
            json!({ "metadata": { "labels": { "k": "v", "app": null } } }),
        ),
        (
            "patch: an old version",
            json!({ "metadata": { "resourceVersion": "1", "labels": { "k": "w" } } }),
        ),
        (
            "patch: another UID",
            json!({ "metadata": { "uid": "nope", "labels": { "k": "w" } } }),
        ),
        (
            "patch: its UID",
            json!({ "metadata": { "uid": "UID", "labels": { "k": "w" } } }),
        ),
        (
            "patch: another name",
            json!({ "metadata": { "name": "p9" } }),
        ),
        (
            "patch: a finalizer without domain",
            json!({ "metadata": { "finalizers": ["x"] } }),
        ),
        (
            "patch: a finalizer",
            json!({ "metadata": { "finalizers": ["example.com/x"] } }),
        ),
        (
            "patch: two controllers",
            owners(&[("1", true), ("2", true)]),
        ),
        ("patch: an owner without UID", owners(&[("", false)])),
        (
            "patch: the status, with the pod",
            json!({ "status": { "phase": "Running" } }),
        ),
    ] {
        ask(name, "PATCH", one.clone(), STRATEGIC, body);
    }
    ask(
        "patch: containers replaced",
        "PATCH",
        one.clone(),
        MERGE,
        images(&[("a", "i:6")]),
    );
    ask(
        "patch: none there",
        "PATCH",
        of_core("pods/none"),
        STRATEGIC,
        json!({ "metadata": { "labels": { "k": "v" } } }),
    );
    ask(
        "patch: a test that fails",
        "PATCH",
        one.clone(),
        JSON_PATCH,
        json!([{ "op": "test", "path": "/metadata/labels/k", "value": "nope" }]),
    );
    ask(
        "patch: a path that is not there",
        "PATCH",
        one.clone(),
        JSON_PATCH,
        json!([{ "op": "remove", "path": "/metadata/labels/none" }]),
    );
    ask(
        "patch: no kind of patch",
        "PATCH",
        one.clone(),
        JSON,
        json!({}),
    );
    for (name, body) in [
        (
            "status: a gate",
            json!({ "status": { "conditions": [{ "type": "KruisePodReady", "status": "True" }] } }),
        ),
        (
            "status: and another node",
            json!({ "spec": { "nodeName": "z" }, "status": { "message": "m" } }),
        ),
        (
            "status: and labels",
            json!({ "metadata": { "labels": { "s": "s" } } }),
        ),
    ] {
        ask(name, "PATCH", status.clone(), STRATEGIC, body);
    }

    // Requests that delete or evict pods.
    ask(
        "evict: another UID",
        "POST",
        evict.clone(),
        JSON,
        eviction("p1", json!({ "uid": "x" })),
    );
    ask(
        "evict: another name",
        "POST",
        evict.clone(),
        JSON,
        eviction("p2", json!({})),
    );
    ask(
        "evict: none there",
        "POST",
        of_core("pods/none/eviction"),
        JSON,
        eviction("none", json!({})),
    );
    for (name, body) in [
        (
            "delete: another UID",
            json!({ "preconditions": { "uid": "x" } }),
        ),
        (
            "delete: an old version",
            json!({ "preconditions": { "resourceVersion": "1" } }),
        ),
        ("delete", json!({ "preconditions": { "uid": "UID" } })),
        ("delete: again", json!({})),
    ] {
        ask(name, "DELETE", one.clone(), JSON, body);
    }
    ask(
        "leaving: an image",
        "PATCH",
        one.clone(),
        STRATEGIC,
        images(&[("a", "i:7")]),
    );
    ask(
        "leaving: one more finalizer",
        "PATCH",
        one.clone(),
        STRATEGIC,
        json!({ "metadata": { "finalizers": ["example.com/y"] } }),
    );
    ask(
        "leaving: no finalizer",
        "PATCH",
        one.clone(),
        MERGE,
        json!({ "metadata": { "finalizers": [] } }),
    );
    ask(
        "delete: none there",
        "DELETE",
        of_core("pods/none"),
        JSON,
        json!({}),
    );

    // Requests about DaemonSets and ControllerRevisions.
    let sets = of("apps/v1", "daemonsets");
    let set = of("apps/v1", "daemonsets/d");
    for (name, body) in [
        ("set", daemonset("d", json!({}))),
        (
            "set: no selector",
            daemonset("e", json!({ "spec": { "selector": null } })),
        ),
        (
            "set: another selector",
            daemonset(
                "e",
                json!({ "spec": { "selector": { "matchLabels": { "app": "z" } } } }),
            ),
        ),
        (
            "set: no strategy",
            daemonset(
                "e",
                json!({ "spec": { "updateStrategy": { "type": "Foo" } } }),
            ),
        ),
        (
            "set: no budget",
            daemonset(
                "e",
                json!({ "spec": { "updateStrategy": {
                "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 0, "maxSurge": 0 },
            } } }),
            ),
        ),
        (
            "set: negative seconds",
            daemonset("e", json!({ "spec": { "minReadySeconds": -1 } })),
        ),
        (
            "set: negative history",
            daemonset("e", json!({ "spec": { "revisionHistoryLimit": -1 } })),
        ),
        (
            "set: pods that end",
            daemonset(
                "e",
                json!({ "spec": { "template": { "spec": { "restartPolicy": "Never" } } } }),
            ),
        ),
    ] {
        ask(name, "POST", sets.clone(), JSON, body);
    }
    for (name, body) in [
        (
            "set: its selector",
            json!({ "spec": { "selector": { "matchLabels": { "app": "q" } } } }),
        ),
        (
            "set: an image",
            json!({ "spec": { "template": { "spec": { "containers": [{ "name": "c", "image": "i:2" }] } } } }),
        ),
        (
            "set: an annotation",
            json!({ "metadata": { "annotations": { "a": "b" } } }),
        ),
        (
            "set: a large annotation",
            json!({ "metadata": { "annotations": { "a": "x".repeat(300_000) } } }),
        ),
        (
            "set: no annotation",
            json!({ "metadata": { "annotations": { "a b": "x" } } }),
        ),
        (
            "set: a number",
            json!({ "metadata": { "annotations": { "a": 1 } } }),
        ),
    ] {
        ask(name, "PATCH", set.clone(), STRATEGIC, body);
    }
    let set_status = of("apps/v1", "daemonsets/d/status");
    for (name, body) in [
        (
            "status: a condition",
            json!({ "status": { "conditions": [{ "type": "X", "status": "True" }] } }),
        ),
        (
            "status: a negative number",
            json!({ "status": { "currentNumberScheduled": -1 } }),
        ),
    ] {
        ask(name, "PATCH", set_status.clone(), STRATEGIC, body);
    }
    let stale = daemonset("d", json!({ "metadata": { "resourceVersion": "1" } }));
    ask("set: put over a later one", "PUT", set.clone(), JSON, stale);
    ask(
        "set: put under another name",
        "PUT",
        set,
        JSON,
        daemonset("z", json!({})),
    );
    let revisions = of("apps/v1", "controllerrevisions");
    let revision = |name: &str, data: Value, number: i64| {
        json!({
            "apiVersion": "apps/v1", "kind": "ControllerRevision",
            "metadata": { "name": name }, "data": data, "revision": number,
        })
    };
    ask(
        "revision",
        "POST",
        revisions.clone(),
        JSON,
        revision("r1", json!({ "spec": {} }), 1),
    );
    ask(
        "revision: again",
        "POST",
        revisions.clone(),
        JSON,
        revision("r1", json!({ "spec": {} }), 1),
    );
    ask(
        "revision: no data",
        "POST",
        revisions.clone(),
        JSON,
        revision("r2", Value::Null, 1),
    );
    ask(
        "revision: a negative number",
        "POST",
        revisions,
        JSON,
        revision("r2", json!({}), -1),
    );
    let revision = of("apps/v1", "controllerrevisions/r1");
    ask(
        "revision: other data",
        "PATCH",
        revision.clone(),
        MERGE,
        json!({ "data": { "a": 1 } }),
    );
    ask(
        "revision: its number",
        "PATCH",
        revision,
        MERGE,
        json!({ "revision": 7 }),
    );

    // Requests about Leases, Events, Jobs, PodDisruptionBudgets and nodes.
    let leases = of("coordination.k8s.io/v1", "leases");
    for (name, body) in [
        (
            "lease",
            lease(
                "l",
                json!({ "holderIdentity": "a", "leaseDurationSeconds": 15 }),
            ),
        ),
        (
            "lease: no duration",
            lease(
                "m",
                json!({ "holderIdentity": "a", "leaseDurationSeconds": 0 }),
            ),
        ),
        (
            "lease: no time",
            lease("m", json!({ "renewTime": "yesterday" })),
        ),
        (
            "lease: a time at the end of the calendar",
            lease("m", json!({ "renewTime": "9999-12-31T23:59:59.000000Z" })),
        ),
    ] {
        ask(name, "POST", leases.clone(), JSON, body);
    }
    let mut stale = lease("l", json!({ "holderIdentity": "b" }));
    stale["metadata"]["resourceVersion"] = json!("1");
    ask(
        "lease: put over a later one",
        "PUT",
        of("coordination.k8s.io/v1", "leases/l"),
        JSON,
        stale,
    );
    let events = of("events.k8s.io/v1", "events");
    for (name, body) in [
        ("event", event("v1", json!({}))),
        (
            "event: a long note",
            event("v2", json!({ "note": "n".repeat(1025) })),
        ),
        ("event: no type", event("v2", json!({ "type": "Foo" }))),
        ("event: no action", event("v2", json!({ "action": "" }))),
        (
            "event: no controller",
            event("v2", json!({ "reportingController": "a b" })),
        ),
        (
            "event: of another namespace",
            event("v2", json!({ "regarding": { "namespace": "default" } })),
        ),
    ] {
        ask(name, "POST", events.clone(), JSON, body);
    }
    let jobs = of("batch/v1", "jobs");
    ask("job", "POST", jobs.clone(), JSON, job("j", "Never"));
    ask(
        "job: pods that never end",
        "POST",
        jobs.clone(),
        JSON,
        job("k", "Always"),
    );
    ask(
        "job: a long name",
        "POST",
        jobs,
        JSON,
        job(&"j".repeat(64), "Never"),
    );
    let budgets = of("policy/v1", "poddisruptionbudgets");
    for (name, spec) in [
        (
            "budget: both limits",
            json!({ "minAvailable": 1, "maxUnavailable": 1 }),
        ),
        ("budget: no percentage", json!({ "minAvailable": "x%" })),
    ] {
        ask(name, "POST", budgets.clone(), JSON, budget("b", spec));
    }
    let node = "/api/v1/nodes/answers-1";
    ask(
        "node: an annotation",
        "PATCH",
        node.to_owned(),
        MERGE,
        json!({ "metadata": { "annotations": { "a": "b" } } }),
    );
    let far =
        json!({ "type": "Ready", "status": "True", "lastTransitionTime": "9999-12-31T23:59:59Z" });
    ask(
        "node: a time at the end of the calendar",
        "PATCH",
        format!("{node}/status"),
        STRATEGIC,
        json!({ "status": { "conditions": [far] } }),
    );

    // Invalid reads: lists with bad parameters, and an object and a resource that don't exist.
    for (name, path) in [
        (
            "list: no label selector",
            of_core("pods?labelSelector=a%20in"),
        ),
        ("list: no field", of_core("pods?fieldSelector=spec.foo%3Dx")),
        ("list: no limit", of_core("pods?limit=x")),
        ("list: nothing to go on from", of_core("pods?continue=zzz")),
        ("read: none there", of_core("pods/none")),
        ("read: no such resource", of_core("foos")),
    ] {
        ask(name, "GET", path, JSON, Value::Null);
    }
    all
}

/// Response to a request: the code, the reason of an error, and the compared part of the object.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    code: u16,
    reason: String,
    object: Value,
}

/// Returns the part of an object that must be equal on both servers. Omits defaults, generated names, times and resource versions,
/// because they differ.
fn shape(object: &Value) -> Value {
    let meta = &object["metadata"];
    let containers = object["spec"]["containers"].as_array();
    let containers = containers.map(|all| {
        let both = |one: &Value| json!([one["name"], one["image"]]);
        all.iter().map(both).collect::<Vec<_>>()
    });
    // Skip the conditions of Nodes: the controllers of a real cluster may write them at any moment.
    let conditions = object["status"]["conditions"].as_array();
    let conditions = conditions.filter(|_| object["kind"] != "Node").map(|all| {
        let both = |one: &Value| json!([one["type"], one["status"]]);
        all.iter().map(both).collect::<Vec<_>>()
    });
    let (mut labels, mut annotations) = (meta["labels"].clone(), meta["annotations"].clone());
    for texts in [&mut labels, &mut annotations] {
        if let Some(texts) = texts.as_object_mut() {
            texts.retain(|key, _| !key.contains("kubernetes.io") && key != "controller-uid");
        }
    }
    json!({
        "kind": object["kind"],
        "name": meta["name"],
        "labels": labels,
        "annotations": annotations,
        "finalizers": meta["finalizers"],
        "generation": meta["generation"],
        "containers": containers,
        "conditions": conditions,
        "data": object["data"],
        "revision": object["revision"],
    })
}

/// One of the two API servers.
struct Server {
    client: Client,
    /// UID of the pod that the request named `pod` created.
    uid: String,
}

impl Server {
    async fn answer(&mut self, asked: &Asked) -> anyhow::Result<Answer> {
        let body = match &asked.body {
            Value::Null => String::new(),
            body => body
                .to_string()
                .replace("\"UID\"", &format!("{:?}", self.uid)),
        };
        let request = Request::builder()
            .method(asked.method)
            .uri(&asked.path)
            .header("content-type", asked.kind)
            .body(body.into_bytes())?;
        match self.client.request_text(request).await {
            Ok(text) => {
                let object: Value = serde_json::from_str(&text)?;
                if asked.name == "pod" {
                    object["metadata"]["uid"]
                        .as_str()
                        .context("no UID")?
                        .clone_into(&mut self.uid);
                }
                Ok(Answer {
                    code: 200,
                    reason: String::new(),
                    object: shape(&object),
                })
            }
            Err(kube::Error::Api(status)) => Ok(Answer {
                code: status.code,
                reason: status.reason.clone(),
                object: Value::Null,
            }),
            Err(error) => Err(error).context(asked.name),
        }
    }

    /// Creates the namespace and the node that the requests refer to.
    async fn prepare(&self) -> anyhow::Result<()> {
        for (path, name) in [
            ("/api/v1/namespaces", NAMESPACE),
            ("/api/v1/nodes", "answers-1"),
        ] {
            let body = json!({ "metadata": { "name": name } }).to_string();
            let request = Request::post(path).header("content-type", JSON);
            let made = self
                .client
                .request_text(request.body(body.into_bytes())?)
                .await;
            made.with_context(|| format!("create {name}"))?;
        }
        Ok(())
    }

    async fn remove(&self) {
        for path in [
            of_core("pods?gracePeriodSeconds=0"),
            "/api/v1/nodes/answers-1".to_owned(),
            format!("/api/v1/namespaces/{NAMESPACE}"),
        ] {
            let request = Request::delete(path).body(Vec::new()).expect("a request");
            let _ = self.client.request_text(request).await;
        }
    }
}

async fn compare(mut real: Server, mut embedded: Server) -> anyhow::Result<Vec<String>> {
    real.prepare().await?;
    embedded.prepare().await?;
    // Wait for the default service account. A controller creates it after the namespace, and pods can't be created before it
    // exists.
    let account = of_core("serviceaccounts/default");
    for _ in 0..100 {
        let request = Request::get(account.as_str()).body(Vec::new())?;
        if real.client.request_text(request).await.is_ok() {
            break;
        }
        sleep(Duration::from_millis(100)).await;
    }
    let known: BTreeMap<&str, &str> = KNOWN.iter().copied().collect();
    let mut differences = Vec::new();
    for asked in requests() {
        let expected = real.answer(&asked).await?;
        let answer = embedded.answer(&asked).await?;
        match (expected == answer, known.contains_key(asked.name)) {
            (true, false) | (false, true) => {}
            (true, true) => differences.push(format!("{}: no longer a difference", asked.name)),
            (false, false) => {
                differences.push(format!(
                    "{}:\n  real     {expected:?}\n  embedded {answer:?}",
                    asked.name
                ));
            }
        }
    }
    real.remove().await;
    Ok(differences)
}

#[test]
fn both_api_servers_answer_alike() {
    let Some(kubeconfig) = real::kubeconfig() else {
        eprintln!(
            "SKIPPED: no real API server to compare with; {} names no kubeconfig",
            real::KUBECONFIG
        );
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let differences = runtime.expect("a runtime").block_on(async {
        let client = real::client(&kubeconfig, "yurt-ds-answers")
            .await
            .expect("a cluster");
        let cluster = Cluster::new(ClusterOptions::new(Clock::System, 1).with_advanced());
        let server = |client| Server {
            client,
            uid: String::new(),
        };
        compare(server(client), server(cluster.client("yurt-ds-answers"))).await
    });
    let differences = differences.expect("answers");
    println!(
        "{} requests, {} known differences",
        requests().len(),
        KNOWN.len()
    );
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
