//! Tests of invalid requests. The expected response codes are those of kube-apiserver 1.36.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use super::{Cluster, cluster};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SETS: &str = "/apis/apps/v1/namespaces/default/daemonsets";
const PODS: &str = "/api/v1/namespaces/default/pods";
pub(super) const JSON: &str = "application/json";
pub(super) const MERGE: &str = "application/merge-patch+json";
pub(super) const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// Returns code and body of the response to a request.
pub(super) async fn send(
    cluster: &Cluster,
    method: &str,
    path: &str,
    kind: &str,
    body: &str,
) -> (u16, Value) {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", kind)
        .body(Full::new(Bytes::from(body.to_owned())))
        .unwrap();
    let response = cluster.handle(request).await.unwrap();
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

fn config_map(name: &str) -> String {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } }).to_string()
}

/// Returns a ConfigMap with owner references, given by UID and `controller`.
fn owned(owners: &[(&str, bool)]) -> String {
    let owner = |(uid, controller): &(&str, bool)| json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": uid, "controller": controller });
    let owners: Vec<Value> = owners.iter().map(owner).collect();
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "owned", "ownerReferences": owners },
    })
    .to_string()
}

#[tokio::test(start_paused = true)]
async fn a_terminating_object_accepts_no_new_finalizers() {
    let cluster = cluster();
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "x", "finalizers": ["a.b/c"] },
    });
    assert_eq!(
        send(&cluster, "POST", MAPS, JSON, &object.to_string())
            .await
            .0,
        201
    );
    let one = format!("{MAPS}/x");
    assert_eq!(send(&cluster, "DELETE", &one, JSON, "").await.0, 200);
    let with = |finalizers: Value| json!({ "metadata": { "finalizers": finalizers } }).to_string();
    let more = with(json!(["a.b/c", "d.e/f"]));
    assert_eq!(send(&cluster, "PATCH", &one, MERGE, &more).await.0, 422);
    let same = with(json!(["a.b/c"]));
    assert_eq!(send(&cluster, "PATCH", &one, MERGE, &same).await.0, 200);
    assert_eq!(
        send(&cluster, "PATCH", &one, MERGE, &with(json!([])))
            .await
            .0,
        200
    );
}

fn daemon_set(change: impl Fn(&mut Value)) -> String {
    let mut object = json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": { "name": "d" },
        "spec": {
            "selector": { "matchLabels": { "a": "b" } },
            "template": {
                "metadata": { "labels": { "a": "b" } },
                "spec": { "containers": [{ "name": "c", "image": "i" }] },
            },
        },
    });
    change(&mut object["spec"]);
    object.to_string()
}

/// `kubectl get --sort-by` requests a table with complete objects, because it sorts by their fields.
#[tokio::test(start_paused = true)]
async fn a_table_includes_the_requested_objects() {
    let cluster = cluster();
    send(&cluster, "POST", MAPS, JSON, &config_map("x")).await;
    let table = async |query: &str| {
        let request = http::Request::builder()
            .uri(format!("{MAPS}{query}"))
            .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
            .body(Full::new(Bytes::new()))
            .unwrap();
        let response = cluster.handle(request).await.unwrap();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let table: Value = serde_json::from_slice(&body).unwrap();
        if table["kind"] == "Table" {
            table["rows"][0]["object"]["kind"].clone()
        } else {
            table["message"].clone()
        }
    };
    assert_eq!(table("").await, "PartialObjectMetadata");
    assert_eq!(
        table("?includeObject=Metadata").await,
        "PartialObjectMetadata"
    );
    assert_eq!(table("?includeObject=Object").await, "ConfigMap");
    assert_eq!(table("?includeObject=None").await, Value::Null);
    let refused = table("?includeObject=Some").await;
    assert!(
        refused.as_str().unwrap().contains("includeObject"),
        "{refused}"
    );
}

#[tokio::test(start_paused = true)]
async fn bad_requests_get_the_status_of_a_real_server() {
    let cluster = cluster();
    assert_eq!(
        send(&cluster, "POST", MAPS, JSON, &config_map("x")).await.0,
        201
    );
    let one = format!("{MAPS}/x");
    let in_one = |query: &str| format!("{MAPS}?{query}");
    let other = json!({ "metadata": { "name": "x", "resourceVersion": "1" } }).to_string();
    let cases: &[(&str, &str, &str, &str, u16, &str)] = &[
        ("GET", "/nope", JSON, "", 404, "NotFound"),
        ("GET", "/api/v1/foos", JSON, "", 404, "NotFound"),
        ("GET", &format!("{one}/foo"), JSON, "", 404, "NotFound"),
        ("GET", &format!("{MAPS}/%zz"), JSON, "", 400, "BadRequest"),
        ("FOO", &one, JSON, "", 405, "MethodNotAllowed"),
        ("PUT", MAPS, JSON, "{}", 405, "MethodNotAllowed"),
        (
            "POST",
            "/api/v1/configmaps",
            JSON,
            "{}",
            405,
            "MethodNotAllowed",
        ),
        ("POST", MAPS, JSON, "{", 400, "BadRequest"),
        ("POST", MAPS, JSON, "[]", 400, "BadRequest"),
        ("POST", MAPS, JSON, "{}", 422, "Invalid"),
        ("POST", MAPS, JSON, r#"{"kind":"Pod"}"#, 400, "BadRequest"),
        ("POST", MAPS, JSON, r#"{"metadata":5}"#, 400, "BadRequest"),
        (
            "POST",
            MAPS,
            "text/plain",
            "{}",
            415,
            "UnsupportedMediaType",
        ),
        ("POST", MAPS, JSON, &config_map("Bad_Name"), 422, "Invalid"),
        ("POST", MAPS, JSON, &owned(&[("", false)]), 422, "Invalid"),
        (
            "POST",
            MAPS,
            JSON,
            &owned(&[("1", true), ("2", true)]),
            422,
            "Invalid",
        ),
        ("POST", MAPS, JSON, &config_map("x"), 409, "AlreadyExists"),
        (
            "PUT",
            &format!("{MAPS}/y"),
            JSON,
            &config_map("y"),
            404,
            "NotFound",
        ),
        (
            "PUT",
            &format!("{MAPS}/y"),
            JSON,
            &config_map("z"),
            400,
            "BadRequest",
        ),
        ("PUT", &one, JSON, &other, 409, "Conflict"),
        ("PATCH", &one, JSON, "{}", 415, "UnsupportedMediaType"),
        ("PATCH", &one, MERGE, "{", 400, "BadRequest"),
        ("PATCH", &one, MERGE, r#"{"data":5}"#, 422, "Invalid"),
        ("PATCH", &one, MERGE, &other, 409, "Conflict"),
        (
            "DELETE",
            &one,
            JSON,
            r#"{"preconditions":{"uid":"u"}}"#,
            409,
            "Conflict",
        ),
        (
            "DELETE",
            &one,
            JSON,
            r#"{"propagationPolicy":"Up"}"#,
            422,
            "Invalid",
        ),
        (
            "DELETE",
            "/api/v1/namespaces/default",
            JSON,
            "",
            403,
            "Forbidden",
        ),
        (
            "GET",
            &in_one("labelSelector=a%3D%3D%3D"),
            JSON,
            "",
            400,
            "BadRequest",
        ),
        (
            "GET",
            &in_one("fieldSelector=a%3Db"),
            JSON,
            "",
            400,
            "BadRequest",
        ),
        ("GET", &in_one("limit=x"), JSON, "", 400, "BadRequest"),
        ("GET", &in_one("continue=x"), JSON, "", 400, "BadRequest"),
        (
            "GET",
            &in_one("resourceVersion=99999"),
            JSON,
            "",
            504,
            "Timeout",
        ),
        (
            "GET",
            &in_one("sendInitialEvents=true"),
            JSON,
            "",
            422,
            "Invalid",
        ),
        (
            "GET",
            &in_one("watch=1&sendInitialEvents=true"),
            JSON,
            "",
            422,
            "Invalid",
        ),
        (
            "GET",
            &in_one("resourceVersionMatch=Exact"),
            JSON,
            "",
            422,
            "Invalid",
        ),
        (
            "POST",
            &in_one("dryRun=Some"),
            JSON,
            &config_map("y"),
            422,
            "Invalid",
        ),
        (
            "POST",
            &in_one("fieldValidation=x"),
            JSON,
            &config_map("y"),
            422,
            "Invalid",
        ),
    ];
    for (method, path, kind, body, code, reason) in cases {
        let (got, status) = send(&cluster, method, path, kind, body).await;
        let said = format!("{method} {path} {body}: {got} {status}");
        assert_eq!(
            (got, status["reason"].as_str()),
            (*code, Some(*reason)),
            "{said}"
        );
        assert_eq!(status["kind"], "Status", "{said}");
        assert!(
            status["message"]
                .as_str()
                .is_some_and(|text| !text.is_empty()),
            "{said}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_too_long_body_is_rejected() {
    let body = "x".repeat(3 * 1024 * 1024 + 1);
    let (code, status) = send(&cluster(), "POST", MAPS, JSON, &body).await;
    assert_eq!(
        (code, status["reason"].as_str()),
        (413, Some("RequestEntityTooLarge"))
    );
}

#[tokio::test(start_paused = true)]
async fn an_invalid_daemonset_is_rejected_with_the_invalid_field() {
    let cluster = cluster();
    let cases: Vec<(&str, String)> = vec![
        (
            "spec.selector",
            daemon_set(|spec| spec["selector"] = json!({})),
        ),
        (
            "spec.template.metadata.labels",
            daemon_set(|spec| spec["template"]["metadata"]["labels"] = json!({ "a": "c" })),
        ),
        (
            "spec.template.spec.containers",
            daemon_set(|spec| spec["template"]["spec"]["containers"] = json!([])),
        ),
        (
            "spec.template.spec.containers[0].image",
            daemon_set(|spec| spec["template"]["spec"]["containers"] = json!([{ "name": "c" }])),
        ),
        (
            "spec.template.spec.restartPolicy",
            daemon_set(|spec| spec["template"]["spec"]["restartPolicy"] = "Never".into()),
        ),
        (
            "spec.updateStrategy",
            daemon_set(|spec| spec["updateStrategy"] = json!({ "type": "Whenever" })),
        ),
        (
            "spec.updateStrategy.rollingUpdate.maxUnavailable",
            daemon_set(|spec| {
                spec["updateStrategy"] = json!({ "rollingUpdate": { "maxUnavailable": 0 } });
            }),
        ),
        (
            "spec.minReadySeconds",
            daemon_set(|spec| spec["minReadySeconds"] = (-1).into()),
        ),
    ];
    for (field, body) in cases {
        let (code, status) = send(&cluster, "POST", SETS, JSON, &body).await;
        assert_eq!(code, 422, "{field}: {status}");
        assert_eq!(status["details"]["causes"][0]["field"], field, "{status}");
    }
    assert_eq!(
        send(&cluster, "POST", SETS, JSON, &daemon_set(|_| {}))
            .await
            .0,
        201
    );
    let path = format!("{SETS}/d");
    let patch = json!({ "spec": { "selector": { "matchLabels": { "a": "c" } } } }).to_string();
    let (code, status) = send(&cluster, "PATCH", &path, STRATEGIC, &patch).await;
    assert_eq!(code, 422);
    assert!(
        status.to_string().contains("field is immutable"),
        "{status}"
    );
}

#[tokio::test(start_paused = true)]
async fn unknown_fields_are_an_error_only_under_strict_validation() {
    let cluster = cluster();
    let body = daemon_set(|spec| spec["colour"] = "red".into());
    let strict = format!("{SETS}?fieldValidation=Strict");
    let (code, status) = send(&cluster, "POST", &strict, JSON, &body).await;
    assert_eq!(code, 400);
    assert!(status.to_string().contains("spec.colour"), "{status}");
    let (code, made) = send(&cluster, "POST", SETS, JSON, &body).await;
    assert_eq!((code, made["spec"].get("colour")), (201, None));
}

#[tokio::test(start_paused = true)]
async fn kubelet_subresources_are_not_implemented_and_the_error_explains_it() {
    let cluster = cluster();
    let log = format!("{PODS}/p/log");
    assert_eq!(send(&cluster, "GET", &log, JSON, "").await.0, 404);
    let pod = json!({
        "metadata": { "name": "p" },
        "spec": { "containers": [{ "name": "c", "image": "i" }] },
    });
    assert_eq!(
        send(&cluster, "POST", PODS, JSON, &pod.to_string()).await.0,
        201
    );
    let (code, status) = send(&cluster, "GET", &log, JSON, "").await;
    assert_eq!(code, 501);
    assert!(
        status["message"]
            .as_str()
            .unwrap()
            .contains("no containers")
    );
}

#[tokio::test(start_paused = true)]
async fn protobuf_bodies_of_typed_commands_are_read_and_unknown_ones_rejected() {
    let cluster = cluster();
    const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
    let field = |number: u8, bytes: &[u8]| {
        let mut out = vec![number << 3 | 2, u8::try_from(bytes.len()).unwrap()];
        out.extend_from_slice(bytes);
        out
    };
    let envelope = |kind: &str, raw: &[u8]| {
        let meta = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
        let body = [b"k8s\0".to_vec(), field(1, &meta), field(2, raw)].concat();
        String::from_utf8(body).unwrap()
    };
    let raw = field(1, &field(1, b"edge"));
    let body = envelope("Namespace", &raw);
    let (code, made) = send(&cluster, "POST", "/api/v1/namespaces", PROTOBUF, &body).await;
    assert_eq!(
        (code, made["metadata"]["name"].as_str()),
        (201, Some("edge"))
    );
    for bad in ["", "k8s\0\u{1}", "k8s\0\n\u{7f}"] {
        let (code, _) = send(&cluster, "POST", "/api/v1/namespaces", PROTOBUF, bad).await;
        assert!(matches!(code, 400 | 415), "{bad:?}: {code}");
    }
    let unknown = envelope("Namespace", &field(9, b"x"));
    let (code, _) = send(&cluster, "POST", "/api/v1/namespaces", PROTOBUF, &unknown).await;
    assert_eq!(code, 415);
}
