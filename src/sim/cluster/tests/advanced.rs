//! Tests of Advanced DaemonSets (`apps.kruise.io`), a custom resource in two versions that the server serves after its CRD was
//! installed.

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::refusals::{JSON, MERGE, STRATEGIC, send};
use super::*;
use crate::sim::cluster::resources::Storage;

const SETS: &str = "/apis/apps.kruise.io/v1beta1/namespaces/default/daemonsets";
const OLD: &str = "/apis/apps.kruise.io/v1alpha1/namespaces/default/daemonsets";
const SET: &str = "/apis/apps.kruise.io/v1beta1/namespaces/default/daemonsets/d";
const OLD_SET: &str = "/apis/apps.kruise.io/v1alpha1/namespaces/default/daemonsets/d";
const STATUS: &str = "/apis/apps.kruise.io/v1beta1/namespaces/default/daemonsets/d/status";
const APPLY: &str = "application/apply-patch+yaml";

fn served() -> Cluster {
    let epoch: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
    Cluster::new(ClusterOptions::new(Clock::starting_at(epoch), 1).with_advanced())
}

fn set(version: &str, change: impl Fn(&mut Value)) -> Value {
    let mut object = json!({
        "apiVersion": format!("apps.kruise.io/{version}"),
        "kind": "DaemonSet",
        "metadata": { "name": "d" },
        "spec": {
            "selector": { "matchLabels": { "a": "b" } },
            "template": {
                "metadata": { "labels": { "a": "b" } },
                "spec": { "containers": [{ "name": "c", "image": "i:1" }] },
            },
        },
    });
    change(&mut object["spec"]);
    object
}

fn counts() -> Value {
    json!({
        "currentNumberScheduled": 0,
        "numberMisscheduled": 0,
        "desiredNumberScheduled": 3,
        "numberReady": 0,
        "updatedNumberScheduled": 0,
    })
}

/// Returns a cluster with one Advanced DaemonSet, and the DaemonSet as the server stored it.
async fn with_set() -> (Cluster, Value) {
    let cluster = served();
    let body = set("v1beta1", |_| {}).to_string();
    let (code, made) = send(&cluster, "POST", SETS, JSON, &body).await;
    assert_eq!(code, 201, "{made}");
    (cluster, made)
}

async fn get(cluster: &Cluster, path: &str) -> Value {
    send(cluster, "GET", path, JSON, "").await.1
}

/// Sends a write, expects success, and returns the response.
async fn write(cluster: &Cluster, method: &str, path: &str, kind: &str, body: &Value) -> Value {
    let (code, answer) = send(cluster, method, path, kind, &body.to_string()).await;
    assert!(
        matches!(code, 200 | 201),
        "{method} {path} {body}: {answer}"
    );
    answer
}

#[tokio::test(start_paused = true)]
async fn advanced_daemonsets_are_not_served_before_the_crd_is_installed() {
    let cluster = cluster();
    for path in [
        SETS,
        OLD,
        "/apis/apps.kruise.io",
        "/apis/apps.kruise.io/v1beta1",
    ] {
        let (code, status) = send(&cluster, "GET", path, JSON, "").await;
        assert_eq!((code, status["reason"].as_str()), (404, Some("NotFound")));
    }
    let body = set("v1beta1", |_| {}).to_string();
    assert_eq!(send(&cluster, "POST", SETS, JSON, &body).await.0, 404);
    for path in ["/apis", "/", "/openapi/v3"] {
        let all = get(&cluster, path).await.to_string();
        assert!(!all.contains("kruise"), "{path}: {all}");
    }
    cluster.install_advanced();
    assert_eq!(send(&cluster, "POST", SETS, JSON, &body).await.0, 201);
    for path in ["/apis", "/", "/openapi/v3"] {
        let all = get(&cluster, path).await.to_string();
        assert!(all.contains("apps.kruise.io/v1alpha1"), "{path}: {all}");
    }
}

#[tokio::test(start_paused = true)]
async fn discovery_names_both_versions_and_prefers_the_newer() {
    let cluster = served();
    let group = get(&cluster, "/apis/apps.kruise.io").await;
    let versions: Vec<&Value> = group["versions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|version| &version["version"])
        .collect();
    assert_eq!(versions, ["v1beta1", "v1alpha1"]);
    assert_eq!(
        group["preferredVersion"]["groupVersion"],
        "apps.kruise.io/v1beta1"
    );
    for version in ["v1beta1", "v1alpha1"] {
        let list = get(&cluster, &format!("/apis/apps.kruise.io/{version}")).await;
        let [set, status] = list["resources"].as_array().unwrap().as_slice() else {
            panic!("a resource and its status: {list}");
        };
        assert_eq!(set["shortNames"], json!(["daemon", "ads"]));
        assert_eq!(
            (&set["kind"], &set["categories"]),
            (&json!("DaemonSet"), &json!([]))
        );
        assert_eq!(status["name"], "daemonsets/status");
        assert_eq!(status["version"], version);
    }
    let request = ::http::Request::builder()
        .uri("/apis")
        .header(
            "accept",
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        )
        .body(http_body_util::Full::new(Bytes::new()))
        .unwrap();
    let answer = cluster.handle(request).await.unwrap().into_body();
    let answer = http_body_util::BodyExt::collect(answer).await.unwrap();
    let groups: Value = serde_json::from_slice(&answer.to_bytes()).unwrap();
    let last = groups["items"].as_array().unwrap().last().unwrap();
    assert_eq!(last["metadata"]["name"], "apps.kruise.io");
    assert_eq!(last["versions"].as_array().unwrap().len(), 2);
    assert_eq!(
        last["versions"][1]["resources"][0]["responseKind"]["version"],
        "v1alpha1"
    );
}

#[tokio::test(start_paused = true)]
async fn both_versions_show_identical_objects_except_the_version() {
    let cluster = served();
    let body = set("v1alpha1", |spec| {
        spec["scaleStrategy"] = json!({ "partitionedScaling": true });
    });
    let made = write(&cluster, "POST", OLD, JSON, &body).await;
    assert_eq!(made["apiVersion"], "apps.kruise.io/v1alpha1");
    let (mut newer, older) = (get(&cluster, SET).await, get(&cluster, OLD_SET).await);
    assert_eq!(
        (&made, &newer["apiVersion"]),
        (&older, &json!("apps.kruise.io/v1beta1"))
    );
    newer["apiVersion"] = older["apiVersion"].clone();
    assert_eq!(newer, older);
    assert_eq!(newer["spec"]["scaleStrategy"]["partitionedScaling"], true);
    for (path, version) in [(SETS, "v1beta1"), (OLD, "v1alpha1")] {
        let list = get(&cluster, path).await;
        let version = json!(format!("apps.kruise.io/{version}"));
        assert_eq!(
            (&list["kind"], &list["apiVersion"]),
            (&json!("DaemonSetList"), &version)
        );
        assert_eq!(list["items"][0]["apiVersion"], version);
    }
    let wrong = send(&cluster, "POST", SETS, JSON, &body.to_string()).await;
    assert_eq!(
        (wrong.0, wrong.1["reason"].as_str()),
        (400, Some("BadRequest"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_sends_objects_in_its_own_version() {
    let (cluster, _) = with_set().await;
    let client = cluster.client("test");
    let older = kube::api::ApiResource {
        group: "apps.kruise.io".to_owned(),
        version: "v1alpha1".to_owned(),
        api_version: "apps.kruise.io/v1alpha1".to_owned(),
        kind: "DaemonSet".to_owned(),
        plural: "daemonsets".to_owned(),
    };
    let api: Api<kube::api::DynamicObject> = Api::namespaced_with(client, "default", &older);
    let events = api.watch(&WatchParams::default(), "0").await.unwrap();
    let mut events = events.boxed();
    let patch = json!({ "spec": { "minReadySeconds": 5 } });
    write(&cluster, "PATCH", SET, MERGE, &patch).await;
    use kube::core::WatchEvent::{Added, Modified};
    for seconds in [Value::Null, json!(5)] {
        let (Some(Added(told)) | Some(Modified(told))) = events.try_next().await.unwrap() else {
            panic!("an object is told");
        };
        assert_eq!(told.types.unwrap().api_version, "apps.kruise.io/v1alpha1");
        assert_eq!(told.data["spec"]["minReadySeconds"], seconds);
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_defaults_of_the_crd_are_applied() {
    let (cluster, made) = with_set().await;
    let mut expected = set("v1beta1", |_| {})["spec"].clone();
    expected["burstReplicas"] = 250.into();
    expected["revisionHistoryLimit"] = 10.into();
    expected["updateStrategy"] = json!({
        "type": "RollingUpdate",
        "rollingUpdate": { "rollingUpdateType": "Standard" },
    });
    assert_eq!(made["spec"], expected);
    assert_eq!(made.get("status"), None);
    let patch = json!({ "spec": {
        "burstReplicas": null,
        "updateStrategy": { "type": null, "rollingUpdate": { "paused": true } },
    } });
    let patched = write(&cluster, "PATCH", SET, MERGE, &patch).await;
    expected["updateStrategy"]["rollingUpdate"] =
        json!({ "paused": true, "rollingUpdateType": "Standard" });
    assert_eq!(patched["spec"], expected);
}

#[tokio::test(start_paused = true)]
async fn the_template_is_kept_unchanged_and_unknown_fields_elsewhere_are_dropped() {
    let cluster = served();
    let template = json!({
        "metadata": { "creationTimestamp": null, "labels": { "a": "b" } },
        "spec": {
            "containers": [{
                "name": "c", "image": "i", "colour": "red",
                "resources": { "limits": { "cpu": 1, "memory": null } },
            }],
            "shape": { "round": true },
        },
    });
    let body = set("v1beta1", |spec| {
        spec["template"] = template.clone();
        spec["updateStrategy"] = json!({ "rollingUpdate": { "colour": "red" } });
    });
    let strict = format!("{SETS}?fieldValidation=Strict");
    let (code, status) = send(&cluster, "POST", &strict, JSON, &body.to_string()).await;
    assert_eq!(code, 400);
    let path = "spec.updateStrategy.rollingUpdate.colour";
    assert!(status.to_string().contains(path), "{status}");
    let made = write(&cluster, "POST", SETS, JSON, &body).await;
    assert_eq!(made["spec"]["template"], template);
    let rolling = &made["spec"]["updateStrategy"]["rollingUpdate"];
    assert_eq!(rolling, &json!({ "rollingUpdateType": "Standard" }));
}

#[tokio::test(start_paused = true)]
async fn status_and_spec_are_written_separately_and_only_the_spec_raises_the_generation() {
    let (cluster, made) = with_set().await;
    assert_eq!(made["metadata"]["generation"], 1);
    let mut both = json!({
        "metadata": { "labels": { "x": "y" } },
        "spec": { "minReadySeconds": 5 },
        "status": counts(),
    });
    let told = write(&cluster, "PATCH", STATUS, MERGE, &both).await;
    assert_eq!(told["status"], counts());
    assert_eq!(told["spec"], made["spec"]);
    assert_eq!(told["metadata"].get("labels"), None);
    assert_eq!(told["metadata"]["generation"], 1);
    both["status"]["numberReady"] = 7.into();
    let spec = write(&cluster, "PATCH", SET, MERGE, &both).await;
    assert_eq!(spec["status"], counts());
    assert_eq!(spec["spec"]["minReadySeconds"], 5);
    assert_eq!(spec["metadata"]["labels"]["x"], "y");
    assert_eq!(spec["metadata"]["generation"], 2);
    let label = json!({ "metadata": { "labels": { "x": "z" } } });
    let labelled = write(&cluster, "PATCH", SET, MERGE, &label).await;
    assert_eq!(labelled["metadata"]["generation"], 2);
    let mut whole = labelled;
    whole["status"]["numberReady"] = 3.into();
    whole["spec"]["minReadySeconds"] = 9.into();
    let told = write(&cluster, "PUT", STATUS, JSON, &whole).await;
    let seen = (
        &told["status"]["numberReady"],
        &told["spec"]["minReadySeconds"],
    );
    assert_eq!(seen, (&json!(3), &json!(5)));
    let broken = json!({ "status": { "numberReady": null } }).to_string();
    let (code, status) = send(&cluster, "PATCH", STATUS, MERGE, &broken).await;
    assert_eq!(code, 422);
    assert_eq!(
        status["details"]["causes"][0]["field"],
        "status.numberReady"
    );
}

#[tokio::test(start_paused = true)]
async fn writes_follow_the_rules_of_custom_resources() {
    let (cluster, made) = with_set().await;
    let (code, status) = send(&cluster, "PATCH", SET, STRATEGIC, "{}").await;
    assert_eq!(
        (code, status["reason"].as_str()),
        (415, Some("UnsupportedMediaType"))
    );
    assert!(
        !status["message"].as_str().unwrap().contains("strategic"),
        "{status}"
    );
    let patch = json!([{ "op": "replace", "path": "/spec/minReadySeconds", "value": 4 }]);
    let patched = write(
        &cluster,
        "PATCH",
        OLD_SET,
        "application/json-patch+json",
        &patch,
    )
    .await;
    assert_eq!(patched["spec"]["minReadySeconds"], 4);
    assert_eq!(patched["apiVersion"], "apps.kruise.io/v1alpha1");
    let blind = set("v1beta1", |_| {}).to_string();
    let (code, status) = send(&cluster, "PUT", SET, JSON, &blind).await;
    assert_eq!(code, 422);
    assert!(
        status
            .to_string()
            .contains("must be specified for an update"),
        "{status}"
    );
    let (code, _) = send(&cluster, "PUT", SET, JSON, &made.to_string()).await;
    assert_eq!(code, 409);
    let (code, _) = send(&cluster, "PUT", &format!("{SETS}/other"), JSON, &blind).await;
    assert_eq!(code, 400);
    let other = blind.replace("\"d\"", "\"other\"");
    let (code, _) = send(&cluster, "PUT", &format!("{SETS}/other"), JSON, &other).await;
    assert_eq!(code, 404);
    let (code, _) = send(&cluster, "GET", &format!("{SET}/scale"), JSON, "").await;
    assert_eq!(code, 404);
    let orphan = json!({ "propagationPolicy": "Orphan" });
    let going = write(&cluster, "DELETE", OLD_SET, JSON, &orphan).await;
    assert_eq!(going["metadata"]["finalizers"], json!(["orphan"]));
    assert_eq!(going["metadata"]["generation"], 3);
    let free = json!({ "metadata": { "finalizers": null } });
    write(&cluster, "PATCH", SET, MERGE, &free).await;
    assert_eq!(send(&cluster, "GET", OLD_SET, JSON, "").await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn apply_owns_conditions_across_both_versions() {
    let (cluster, _) = with_set().await;
    let apply = async |version: &str, manager: &str, status: Value| {
        let path = format!(
            "/apis/apps.kruise.io/{version}/namespaces/default/daemonsets/d/status?fieldManager={manager}"
        );
        let body = json!({
            "apiVersion": format!("apps.kruise.io/{version}"),
            "kind": "DaemonSet",
            "metadata": { "labels": { "not": "here" } },
            "status": status,
        });
        write(&cluster, "PATCH", &path, APPLY, &body).await
    };
    let condition = |kind: &str, status: &str| json!({ "type": kind, "status": status });
    let mut status = counts();
    status["conditions"] = json!([condition("A", "True"), condition("B", "True")]);
    apply("v1beta1", "one", status.clone()).await;
    let other = json!({ "conditions": [condition("C", "True")] });
    apply("v1beta1", "two", other).await;
    let kinds = |object: &Value| -> Vec<String> {
        let conditions = object["status"]["conditions"].as_array().unwrap();
        conditions
            .iter()
            .map(|one| {
                format!(
                    "{}={}",
                    one["type"].as_str().unwrap(),
                    one["status"].as_str().unwrap()
                )
            })
            .collect()
    };
    status["conditions"] = json!([condition("B", "False")]);
    let left = apply("v1alpha1", "one", status.clone()).await;
    assert_eq!(kinds(&left), ["B=False", "C=True"]);
    assert_eq!(left["apiVersion"], "apps.kruise.io/v1alpha1");
    let entries = left["metadata"]["managedFields"].as_array().unwrap();
    let of_one: Vec<&Value> = entries
        .iter()
        .filter(|entry| entry["manager"] == "one")
        .map(|entry| &entry["apiVersion"])
        .collect();
    assert_eq!(of_one, ["apps.kruise.io/v1alpha1"]);
    assert_eq!(left["metadata"].get("labels"), None);
    let owned = left["metadata"]["managedFields"].to_string();
    assert!(!owned.contains("f:not"), "{owned}");
    let again = apply("v1alpha1", "one", status.clone()).await;
    assert_eq!(
        again["metadata"]["resourceVersion"],
        left["metadata"]["resourceVersion"]
    );
    status.as_object_mut().unwrap().remove("conditions");
    let left = apply("v1beta1", "one", status).await;
    assert_eq!(kinds(&left), ["C=True"]);
    assert_eq!(left["status"]["desiredNumberScheduled"], 3);
}

#[tokio::test(start_paused = true)]
async fn apply_creates_an_object_and_owns_template_lists_as_a_whole() {
    let cluster = served();
    let apply = async |manager: &str, body: &Value| {
        let path = format!("{SET}?fieldManager={manager}");
        send(&cluster, "PATCH", &path, APPLY, &body.to_string()).await
    };
    let mine = set("v1beta1", |spec| {
        spec["template"]["spec"]["nodeSelector"] = json!({ "one": "1" });
    });
    let (code, made) = apply("one", &mine).await;
    assert_eq!((code, &made["metadata"]["generation"]), (201, &json!(1)));
    let other = json!({
        "apiVersion": "apps.kruise.io/v1beta1",
        "kind": "DaemonSet",
        "spec": { "template": { "spec": { "nodeSelector": { "two": "2" } } } },
    });
    let (code, both) = apply("two", &other).await;
    assert_eq!(code, 200, "{both}");
    let nodes = &both["spec"]["template"]["spec"]["nodeSelector"];
    assert_eq!(nodes, &json!({ "one": "1", "two": "2" }));
    let mut other = other;
    other["spec"]["template"]["spec"]["containers"] = json!([{ "name": "x", "image": "i" }]);
    let (code, status) = apply("two", &other).await;
    assert_eq!(code, 409);
    assert_eq!(
        status["details"]["causes"][0]["field"],
        ".spec.template.spec.containers"
    );
    let (code, taken) = apply("two&force=true", &other).await;
    assert_eq!((code, &taken["metadata"]["generation"]), (200, &json!(3)));
    let containers = taken["spec"]["template"]["spec"]["containers"].as_array();
    assert_eq!(containers.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn invalid_objects_are_rejected_with_field_and_remedy() {
    let cluster = served();
    let rolling = |settings: Value| {
        move |spec: &mut Value| {
            spec["updateStrategy"] = json!({ "rollingUpdate": settings });
        }
    };
    type Change = Box<dyn Fn(&mut Value)>;
    let one = |path: &'static str, value: Value| -> Change {
        Box::new(move |spec| {
            let (parent, field) = path.rsplit_once('/').unwrap();
            spec.pointer_mut(parent).unwrap()[field] = value.clone();
        })
    };
    let strategy = |settings: Value| -> Change { Box::new(rolling(settings)) };
    const ROLLING: &str = "spec.updateStrategy.rollingUpdate";
    let below = |field: &str| format!("{ROLLING}.{field}");
    let cases: Vec<(String, &str, Change)> = vec![
        (
            "spec.selector".to_owned(),
            "Required",
            Box::new(|spec| drop(spec.as_object_mut().unwrap().remove("selector"))),
        ),
        (
            "spec.template".to_owned(),
            "Required",
            Box::new(|spec| drop(spec.as_object_mut().unwrap().remove("template"))),
        ),
        (
            "spec.selector".to_owned(),
            "at least one label",
            one("/selector", json!({})),
        ),
        (
            "spec.selector.matchExpressions[0].operator".to_owned(),
            "\"In\"",
            one(
                "/selector/matchExpressions",
                json!([{ "key": "a", "operator": "Is" }]),
            ),
        ),
        (
            "spec.selector.matchExpressions[0]".to_owned(),
            "add at least one",
            one(
                "/selector/matchExpressions",
                json!([{ "key": "a", "operator": "In" }]),
            ),
        ),
        (
            "spec.selector.matchLabels".to_owned(),
            "example.com/app",
            one("/selector/matchLabels", json!({ "a": "b", "a b": "" })),
        ),
        (
            "spec.template".to_owned(),
            "match the selector",
            one("/template/metadata/labels", json!({ "a": "c" })),
        ),
        (
            "spec.template.spec.containers".to_owned(),
            "at least 1 items",
            one("/template/spec/containers", json!([])),
        ),
        (
            "spec.template.spec.containers[0].image".to_owned(),
            "Required",
            one("/template/spec/containers", json!([{ "name": "c" }])),
        ),
        (
            "spec.template.spec.restartPolicy".to_owned(),
            "remove it",
            one("/template/spec/restartPolicy", json!("OnFailure")),
        ),
        (
            "spec.template.spec.activeDeadlineSeconds".to_owned(),
            "remove it",
            one("/template/spec/activeDeadlineSeconds", json!(5)),
        ),
        (
            "spec.minReadySeconds".to_owned(),
            "or equal to 0",
            one("/minReadySeconds", json!(-1)),
        ),
        (
            "spec.minReadySeconds".to_owned(),
            "of type integer",
            one("/minReadySeconds", json!("5")),
        ),
        (
            "spec.revisionHistoryLimit".to_owned(),
            "or equal to 0",
            one("/revisionHistoryLimit", json!(-1)),
        ),
        (
            "spec.burstReplicas".to_owned(),
            "at least 1",
            one("/burstReplicas", json!(0)),
        ),
        (
            "spec.burstReplicas".to_owned(),
            "at least 1",
            one("/burstReplicas", json!("many")),
        ),
        (
            "spec.lifecycle.inPlaceUpdate".to_owned(),
            "preDelete",
            one(
                "/lifecycle",
                json!({ "inPlaceUpdate": { "markPodNotReady": true } }),
            ),
        ),
        (
            "spec.updateStrategy.type".to_owned(),
            "\"OnDelete\"",
            one("/updateStrategy", json!({ "type": "Whenever" })),
        ),
        (
            below("rollingUpdateType"),
            "\"InPlaceIfPossible\"",
            strategy(json!({ "rollingUpdateType": "InPlaceOnly" })),
        ),
        (
            ROLLING.to_owned(),
            "remove one of them",
            strategy(json!({ "maxUnavailable": 1, "maxSurge": "10%" })),
        ),
        (
            ROLLING.to_owned(),
            "set one of them to 1",
            strategy(json!({ "maxUnavailable": 0, "maxSurge": "0%" })),
        ),
        (
            below("maxUnavailable"),
            "from 0% to 100%",
            strategy(json!({ "maxUnavailable": "101%" })),
        ),
        (
            below("maxUnavailable"),
            "from 0% to 100%",
            strategy(json!({ "maxUnavailable": "+5%" })),
        ),
        (
            below("maxUnavailable"),
            "for example 5",
            strategy(json!({ "maxUnavailable": "5" })),
        ),
        (
            below("maxSurge"),
            "0 or more",
            strategy(json!({ "maxSurge": -1 })),
        ),
        (
            below("partition"),
            "0 or more",
            strategy(json!({ "partition": -1 })),
        ),
        (
            below("partition"),
            "for example 5",
            strategy(json!({ "partition": "half" })),
        ),
        (
            ROLLING.to_owned(),
            "remove maxSurge",
            strategy(json!({ "rollingUpdateType": "InPlaceIfPossible", "maxSurge": 1 })),
        ),
        (
            ROLLING.to_owned(),
            "remove maxUnavailable",
            strategy(json!({ "rollingUpdateType": "Surging", "maxUnavailable": 1 })),
        ),
        (
            below("selector.matchExpressions[0]"),
            "add at least one",
            strategy(
                json!({ "selector": { "matchExpressions": [{ "key": "a", "operator": "In" }] } }),
            ),
        ),
    ];
    for (field, cure, change) in &cases {
        for (path, version) in [(SETS, "v1beta1"), (OLD, "v1alpha1")] {
            let body = set(version, change);
            let (code, status) = send(&cluster, "POST", path, JSON, &body.to_string()).await;
            assert_eq!(code, 422, "{field}: {body}: {status}");
            let cause = &status["details"]["causes"][0];
            assert_eq!(cause["field"], field.as_str(), "{status}");
            let said = cause["message"].as_str().unwrap();
            assert!(said.contains(cure), "{field}: {said}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn valid_strategies_are_accepted_in_both_versions() {
    let settings = [
        json!({ "type": "RollingUpdate" }),
        json!({ "type": "OnDelete" }),
        json!({ "type": "OnDelete", "rollingUpdate": { "maxUnavailable": 0, "maxSurge": 0 } }),
        json!({ "rollingUpdate": { "maxUnavailable": "50%", "partition": "100%" } }),
        json!({ "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } }),
        json!({ "rollingUpdate": { "rollingUpdateType": "InPlaceIfPossible", "maxUnavailable": 2 } }),
        json!({ "rollingUpdate": { "rollingUpdateType": "Surging" } }),
        json!({ "rollingUpdate": { "rollingUpdateType": "Surging", "maxSurge": "10%" } }),
        json!({ "rollingUpdate": { "selector": { "matchLabels": { "pool": "a" } } } }),
    ];
    for strategy in settings {
        for (path, version) in [(SETS, "v1beta1"), (OLD, "v1alpha1")] {
            let body = set(version, |spec| spec["updateStrategy"] = strategy.clone());
            write(&served(), "POST", path, JSON, &body).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_selector_is_immutable() {
    let (cluster, _) = with_set().await;
    let other = json!({ "spec": {
        "selector": { "matchLabels": { "a": "c" } },
        "template": { "metadata": { "labels": { "a": "c" } } },
    } });
    let (code, status) = send(&cluster, "PATCH", SET, MERGE, &other.to_string()).await;
    assert_eq!(code, 422);
    let cause = &status["details"]["causes"][0];
    assert_eq!(cause["field"], "spec.selector");
    assert!(
        cause["message"].as_str().unwrap().contains("another name"),
        "{cause}"
    );
    let rest = json!({ "spec": {
        "burstReplicas": "5%",
        "minReadySeconds": 1,
        "revisionHistoryLimit": 0,
        "updateStrategy": { "type": "OnDelete" },
        "lifecycle": { "preDelete": { "labelsHandler": { "hold": "yes" } } },
        "scaleStrategy": { "partitionedScaling": true },
        "template": { "metadata": { "labels": { "x": "y" } } },
    } });
    write(&cluster, "PATCH", SET, MERGE, &rest).await;
}

#[tokio::test(start_paused = true)]
async fn an_existing_invalid_object_accepts_status_writes_and_can_be_fixed() {
    let cluster = served();
    let mut broken = set("v1beta1", |spec| spec["minReadySeconds"] = (-1).into());
    broken["metadata"]["namespace"] = "default".into();
    cluster.restore(Storage::AdvancedDaemonSets, [broken]);
    let status = json!({ "status": counts() });
    write(&cluster, "PATCH", STATUS, MERGE, &status).await;
    let label = json!({ "metadata": { "labels": { "x": "y" } } });
    write(&cluster, "PATCH", SET, MERGE, &label).await;
    let worse = json!({ "spec": { "burstReplicas": 3 } }).to_string();
    assert_eq!(send(&cluster, "PATCH", SET, MERGE, &worse).await.0, 422);
    let mended = json!({ "spec": { "minReadySeconds": 1 } });
    write(&cluster, "PATCH", SET, MERGE, &mended).await;
}

#[tokio::test(start_paused = true)]
async fn a_table_has_the_columns_of_the_crd() {
    let (cluster, _) = with_set().await;
    let table = async || -> Value {
        let request = ::http::Request::builder()
            .uri(OLD)
            .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
            .body(http_body_util::Full::new(Bytes::new()))
            .unwrap();
        let answer = cluster.handle(request).await.unwrap().into_body();
        let answer = http_body_util::BodyExt::collect(answer).await.unwrap();
        serde_json::from_slice(&answer.to_bytes()).unwrap()
    };
    let before = table().await;
    let columns: Vec<(&str, i64)> = before["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            (
                one["name"].as_str().unwrap(),
                one["priority"].as_i64().unwrap(),
            )
        })
        .collect();
    let expected = [
        ("Name", 0),
        ("DESIRED", 0),
        ("CURRENT", 0),
        ("READY", 0),
        ("UP-TO-DATE", 0),
        ("AVAILABLE", 0),
        ("AGE", 0),
        ("CONTAINERS", 1),
        ("IMAGES", 1),
    ];
    assert_eq!(columns, expected);
    let row = |table: &Value| table["rows"][0]["cells"].clone();
    let none = Value::Null;
    assert_eq!(
        row(&before),
        json!(["d", none, none, none, none, none, "0s", "c", "i:1"])
    );
    write(
        &cluster,
        "PATCH",
        STATUS,
        MERGE,
        &json!({ "status": counts() }),
    )
    .await;
    assert_eq!(
        row(&table().await),
        json!(["d", 3, 0, 0, 0, none, "0s", "c", "i:1"])
    );
}

#[tokio::test(start_paused = true)]
async fn a_revision_can_be_renumbered_and_deleted_but_its_data_is_immutable() {
    let api: Api<ControllerRevision> = Api::namespaced(cluster().client("test"), "default");
    let data = json!({ "spec": { "template": {
        "$patch": "replace", "metadata": { "labels": {} }, "spec": { "cpu": 1 },
    } } });
    let revision = serde_json::from_value(json!({
        "metadata": { "name": "r", "labels": { "controller-revision-hash": "1" } },
        "data": data,
        "revision": 1,
    }));
    let made = api
        .create(&PostParams::default(), &revision.unwrap())
        .await
        .unwrap();
    assert_eq!(made.data.unwrap().0, data);
    let params = PatchParams::default();
    let raise = Patch::Merge(json!({ "revision": 3 }));
    let raised = api.patch("r", &params, &raise).await.unwrap();
    assert_eq!((raised.revision, raised.data.unwrap().0), (3, data));
    let change = Patch::Merge(json!({ "data": { "spec": null } }));
    let refused = api.patch("r", &params, &change).await.unwrap_err();
    let kube::Error::Api(status) = refused else {
        panic!("the API server refuses");
    };
    assert_eq!(status.code, 422);
    assert!(
        status.message.contains("field is immutable"),
        "{}",
        status.message
    );
    api.delete("r", &DeleteParams::default()).await.unwrap();
    assert!(api.get_opt("r").await.unwrap().is_none());
}
