//! Checks of objects that are written in one version of the CRD and read in the other one, and of changes to these objects.

use serde_json::{Value, json};

use super::server::{Server, definition};
use super::{VERSIONS, web};

/// Collects differences between actual and expected values.
struct Judge(Vec<String>);

impl Judge {
    #[track_caller]
    fn same(&mut self, what: &str, found: &Value, expected: &Value) {
        if found != expected {
            self.0
                .push(format!("{what}: {found} instead of {expected}"));
        }
    }

    fn refused(&mut self, what: &str, answer: Result<Value, String>, words: &str) {
        match answer {
            Err(said) if said.contains(words) => {}
            other => self
                .0
                .push(format!("{what}: {other:?} instead of {words:?}")),
        }
    }

    fn taken(&mut self, what: &str, answer: Result<Value, String>) -> Value {
        answer.unwrap_or_else(|said| {
            self.0.push(format!("{what}: {said}"));
            Value::Null
        })
    }
}

/// Runs all checks. Returns the differences that they found.
pub(super) async fn play(server: &Server) -> Vec<String> {
    let mut judge = Judge(Vec::new());
    for (from, to) in [("v1alpha1", "v1beta1"), ("v1beta1", "v1alpha1")] {
        nothing_is_lost(server, &mut judge, from, to).await;
        stays_as_small(server, &mut judge, from, to).await;
        changes(server, &mut judge, from, to).await;
        apply_on_the_server(server, &mut judge, from, to).await;
    }
    defaults_are_no_change(server, &mut judge).await;
    judge.0
}

/// Returns a DaemonSet with every field set.
fn full(name: &str) -> Value {
    web(&json!({
        "metadata": {
            "name": name,
            "annotations": { "daemonset.kruise.io/progressive-create-pod": "true", "example.com/note": "kept" },
        },
        "spec": {
            "minReadySeconds": 5,
            "burstReplicas": "10%",
            "revisionHistoryLimit": 3,
            "updateStrategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {
                    "rollingUpdateType": "Surging",
                    "maxUnavailable": 0,
                    "maxSurge": "30%",
                    "partition": "50%",
                    "paused": false,
                    "selector": {
                        "matchLabels": { "zone": "a" },
                        "matchExpressions": [{ "key": "edge", "operator": "In", "values": ["true"] }],
                    },
                },
            },
            "lifecycle": {
                "preDelete": { "labelsHandler": { "held": "true" }, "finalizersHandler": ["example.com/held"], "markPodNotReady": true },
                "preNormal": { "markPodNotReady": false },
            },
            "scaleStrategy": { "partitionedScaling": true },
            "template": {
                "metadata": {
                    "labels": { "tier": "edge" },
                    "annotations": { "example.com/note": "kept" },
                    "finalizers": ["example.com/held"],
                    "creationTimestamp": null,
                },
                "spec": {
                    "restartPolicy": "Always",
                    "hostNetwork": true,
                    "tolerations": [{ "operator": "Exists" }],
                    "containers": [{
                        "name": "main",
                        "image": "web:1",
                        "ports": [{ "containerPort": 80 }],
                        "resources": { "limits": { "cpu": 1 } },
                        "tomorrow": { "list": [1, null, "two"] },
                    }],
                    "initContainers": [{ "name": "first", "image": "init:1" }],
                    "volumes": [{ "name": "data", "emptyDir": {} }],
                    "tomorrow": { "nested": { "deep": true } },
                },
            },
        },
    }))
}

/// Returns a status with all its numbers and both names of the revision.
fn status() -> Value {
    json!({
        "currentNumberScheduled": 3,
        "numberMisscheduled": 0,
        "desiredNumberScheduled": 4,
        "numberReady": 3,
        "updatedNumberScheduled": 2,
        "numberAvailable": 3,
        "numberUnavailable": 1,
        "observedGeneration": 1,
        "collisionCount": 0,
        "conditions": [{
            "type": "Complete",
            "status": "False",
            "lastTransitionTime": "2026-07-02T09:56:09Z",
            "reason": "Updating",
            "message": "2 of 4",
        }],
        "updateRevision": "7d4f",
        "daemonSetHash": "7d4f",
    })
}

async fn nothing_is_lost(server: &Server, judge: &mut Judge, from: &str, to: &str) {
    let name = format!("full-{from}");
    let written = full(&name);
    judge.taken(&name, server.create(from, &written, false).await);
    let change = json!({ "status": status() });
    judge.taken(&name, server.merge(from, &name, true, &change).await);
    for version in [from, to] {
        let read = server.get(version, &name).await;
        let what = format!("{name} by {version}");
        judge.same(&what, &read["spec"], &written["spec"]);
        judge.same(&what, &read["status"], &status());
        let annotations = &written["metadata"]["annotations"];
        judge.same(&what, &read["metadata"]["annotations"], annotations);
        let api = format!("apps.kruise.io/{version}");
        judge.same(&what, &read["apiVersion"], &api.into());
        let again = judge.taken(&what, server.replace(version, &read).await);
        judge.same(&what, &again["metadata"]["generation"], &1.into());
        let rewritten = &again["metadata"]["resourceVersion"];
        judge.same(&what, rewritten, &read["metadata"]["resourceVersion"]);
    }
}

/// Checks that conversion adds no fields to an object, except defaults.
async fn stays_as_small(server: &Server, judge: &mut Judge, from: &str, to: &str) {
    // As in Kruise, `rollingUpdate` must always be present, because the health check of Argo CD reads `paused` from it.
    let standard = json!({ "rollingUpdateType": "Standard" });
    for (suffix, strategy, expected) in [
        (
            "least",
            Value::Null,
            json!({ "type": "RollingUpdate", "rollingUpdate": standard }),
        ),
        (
            "deleted",
            json!({ "type": "OnDelete" }),
            json!({ "type": "OnDelete", "rollingUpdate": standard }),
        ),
        (
            "rolling",
            json!({ "rollingUpdate": {} }),
            json!({ "type": "RollingUpdate", "rollingUpdate": standard }),
        ),
        (
            "nulls",
            json!({ "rollingUpdate": { "rollingUpdateType": "InPlaceIfPossible" } }),
            json!({ "type": "RollingUpdate", "rollingUpdate": { "rollingUpdateType": "InPlaceIfPossible" } }),
        ),
    ] {
        let name = format!("{suffix}-{from}");
        let mut written =
            web(&json!({ "metadata": { "name": name }, "spec": { "updateStrategy": strategy } }));
        if suffix == "nulls" {
            // Some clients write null for unset fields. The API server must treat null like an absent field.
            for field in [
                "burstReplicas",
                "minReadySeconds",
                "lifecycle",
                "scaleStrategy",
                "revisionHistoryLimit",
            ] {
                written["spec"][field] = Value::Null;
            }
            written["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] = Value::Null;
            written["spec"]["template"]["spec"]["activeDeadlineSeconds"] = Value::Null;
            written["status"] = Value::Null;
        }
        judge.taken(&name, server.create(from, &written, false).await);
        let read = server.get(to, &name).await;
        let spec = json!({
            "burstReplicas": 250,
            "revisionHistoryLimit": 10,
            "selector": { "matchLabels": { "app": "web" } },
            "updateStrategy": expected,
            "template": web(&json!({}))["spec"]["template"],
        });
        judge.same(&name, &read["spec"], &spec);
        judge.same(&name, &read["status"], &Value::Null);
        judge.same(&name, &read["metadata"]["annotations"], &Value::Null);
    }
}

async fn changes(server: &Server, judge: &mut Judge, from: &str, to: &str) {
    let name = format!("changed-{from}");
    let named = json!({ "metadata": { "name": name } });
    judge.taken(&name, server.create(from, &web(&named), false).await);
    let frozen = "spec.selector: Invalid value: is immutable";
    for version in [from, to] {
        for selector in [
            json!({ "matchLabels": { "app": "web", "tier": "edge" } }),
            json!({ "matchExpressions": [{ "key": "app", "operator": "Exists" }] }),
        ] {
            let labels = json!({ "app": "web", "tier": "edge" });
            let change = json!({ "spec": { "selector": selector, "template": { "metadata": { "labels": labels } } } });
            judge.refused(
                &name,
                server.merge(version, &name, false, &change).await,
                frozen,
            );
        }
        for change in [
            json!({ "burstReplicas": 5 }),
            json!({ "minReadySeconds": 7 }),
            json!({ "revisionHistoryLimit": 0 }),
            json!({ "scaleStrategy": { "partitionedScaling": true } }),
            json!({ "lifecycle": { "preDelete": {} } }),
            json!({ "updateStrategy": { "rollingUpdate": { "maxUnavailable": "20%" } } }),
            json!({ "updateStrategy": { "rollingUpdate": { "maxUnavailable": null, "maxSurge": 1 } } }),
            json!({ "updateStrategy": { "type": "OnDelete", "rollingUpdate": null } }),
            json!({ "updateStrategy": { "type": "RollingUpdate" } }),
            json!({ "template": { "metadata": { "labels": { "tier": "edge" } } } }),
        ] {
            let what = format!("{name} by {version}: {change}");
            let change = json!({ "spec": change });
            judge.taken(&what, server.merge(version, &name, false, &change).await);
        }
        let both = json!({ "spec": { "updateStrategy": { "rollingUpdate": { "maxUnavailable": 1, "maxSurge": 1 } } } });
        judge.refused(
            &name,
            server.merge(version, &name, false, &both).await,
            "cannot both be more than 0",
        );
        let half = json!({ "status": { "numberReady": 1 } });
        let words = "desiredNumberScheduled: Required value";
        judge.refused(
            &name,
            server.merge(version, &name, true, &half).await,
            words,
        );
        let twice = json!({ "type": "Complete", "status": "True" });
        let mut double = status();
        double["conditions"] = json!([twice, twice]);
        let double = json!({ "status": double });
        judge.refused(
            &name,
            server.merge(version, &name, true, &double).await,
            "Duplicate value",
        );
    }
    let before = server.get(to, &name).await["metadata"]["generation"].clone();
    let change = json!({ "status": status() });
    let after = judge.taken(&name, server.merge(to, &name, true, &change).await);
    judge.same(&name, &after["metadata"]["generation"], &before);
}

/// Checks that two field managers don't affect each other's fields, in whichever API version each of them writes. Also checks that
/// applying the same object again changes nothing.
async fn apply_on_the_server(server: &Server, judge: &mut Judge, from: &str, to: &str) {
    let name = format!("applied-{from}");
    let whole = web(&json!({ "metadata": { "name": name } }));
    let first = judge.taken(&name, server.apply(from, "first", &whole).await);
    let again = judge.taken(&name, server.apply(from, "first", &whole).await);
    let (version, now) = (
        &first["metadata"]["resourceVersion"],
        &again["metadata"]["resourceVersion"],
    );
    judge.same(&name, now, version);
    let part = json!({
        "kind": "DaemonSet",
        "metadata": { "name": name },
        "spec": { "updateStrategy": { "rollingUpdate": { "paused": true } } },
    });
    let paused = judge.taken(&name, server.apply(to, "second", &part).await);
    judge.same(
        &name,
        &paused["spec"]["updateStrategy"]["rollingUpdate"]["paused"],
        &true.into(),
    );
    let kept = judge.taken(&name, server.apply(from, "first", &whole).await);
    judge.same(
        &name,
        &kept["spec"]["updateStrategy"]["rollingUpdate"]["paused"],
        &true.into(),
    );
    let mut other = part;
    other["spec"]["template"] =
        json!({ "spec": { "containers": [{ "name": "main", "image": "web:2" }] } });
    judge.refused(&name, server.apply(to, "second", &other).await, "conflict");
}

/// Checks that the API server fills in defaults when it reads an object that was stored before the defaults existed.
///
/// Neither a read nor a later unrelated write may increase the generation.
async fn defaults_are_no_change(server: &Server, judge: &mut Judge) {
    let mut bare = definition();
    let versions = bare["spec"]["versions"].as_array_mut().expect("versions");
    for version in versions {
        without_defaults(&mut version["schema"]);
    }
    server.define(&bare).await;
    let name = "stored-before";
    let set = web(
        &json!({ "metadata": { "name": name }, "spec": { "updateStrategy": { "rollingUpdate": {} } } }),
    );
    // Retry, because the API server uses a changed CRD only after a moment.
    let mut bare = false;
    for _ in 0..100 {
        let tried = server
            .create("v1alpha1", &set, true)
            .await
            .expect("it is taken");
        bare = tried["spec"]["burstReplicas"].is_null();
        if bare {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert!(bare, "the definition without defaults never takes effect");
    judge.taken(name, server.create("v1alpha1", &set, false).await);
    server.define(&definition()).await;
    let has_defaults = |set: &Value| set["spec"]["burstReplicas"] == 250;
    for version in VERSIONS {
        let read = server.until(version, name, has_defaults).await;
        judge.same(name, &read["metadata"]["generation"], &1.into());
        let kind = &read["spec"]["updateStrategy"]["rollingUpdate"]["rollingUpdateType"];
        judge.same(name, kind, &"Standard".into());
        for change in [
            json!({ "metadata": { "labels": { "written-by": version } } }),
            json!({ "metadata": { "annotations": { "written-by": version } } }),
        ] {
            let written = judge.taken(name, server.merge(version, name, false, &change).await);
            judge.same(name, &written["metadata"]["generation"], &1.into());
        }
        let change = json!({ "status": status() });
        let written = judge.taken(name, server.merge(version, name, true, &change).await);
        judge.same(name, &written["metadata"]["generation"], &1.into());
    }
}

fn without_defaults(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.remove("default");
            fields.values_mut().for_each(without_defaults);
        }
        Value::Array(items) => items.iter_mut().for_each(without_defaults),
        _ => {}
    }
}
