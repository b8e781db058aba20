//! Tests of the node commands with a scripted server, in virtual time.

mod agent;
mod node;
mod strangers;

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use self::node::{Node, condition, deleting, of_namespace, outdated, pod, revision, waiting};
use super::row::FIELDS;
use crate::ctl::Code;

const PULLING: (&str, &str) = ("WaitPullImage", "controllerrevision: r2");

fn images(pod: Value, status: &str, reason: &str, message: &str) -> Value {
    condition(pod, "PodImageReady", status, reason, message)
}

fn pulling(name: &str) -> Value {
    images(outdated(name), "False", PULLING.0, PULLING.1)
}

fn failed(name: &str) -> Value {
    images(
        outdated(name),
        "False",
        "PullImageFail",
        "pull image job x failed",
    )
}

fn pulled(name: &str) -> Value {
    images(
        outdated(name),
        "True",
        "PullImageSuccess",
        "controllerrevision: r2",
    )
}

/// Replaces the outdated pod `default/web-1` with a new pod. The stages begin after 2, 4, 6, 8 and 10 seconds.
fn replace(node: &Node) {
    node.after(2, |state| state.pods = vec![deleting(outdated("web-1"))]);
    node.after(4, |state| state.pods = Vec::new());
    node.after(6, |state| {
        state.pods = vec![waiting(
            revision(pod("web-2"), "r2"),
            "ContainerCreating",
            "",
        )];
    });
    node.after(8, |state| {
        let starting = condition(revision(pod("web-2"), "r2"), "Ready", "False", "", "");
        state.pods = vec![starting];
    });
    node.after(10, |state| state.pods = vec![revision(pod("web-2"), "r2")]);
}

#[tokio::test(start_paused = true)]
async fn pods_are_listed_with_their_update_state() {
    let mut bare = of_namespace(pod("bare"), "kube-system");
    bare["metadata"]["ownerReferences"] = json!(null);
    bare["metadata"]["labels"] = json!(null);
    bare["status"]["conditions"] = json!([{ "type": "Ready", "status": "True" }]);
    let node = Node::with([
        pulled("web-2"),
        pod("web-1"),
        bare,
        deleting(pulling("web-3")),
        waiting(failed("web-4"), "CrashLoopBackOff", "back-off"),
    ]);
    assert_eq!(
        node.text("pods").await,
        "\
NAMESPACE    POD    READY                 AGE  UPDATE      IMAGE-READY
default      web-1  1/1                   1h   up to date  -
default      web-2  1/1                   1h   available   pulled
default      web-3  1/1 Terminating       1h   available   pulling
default      web-4  0/1 CrashLoopBackOff  1h   available   failed
kube-system  bare   1/1                   1h   -           -

default/web-4: image failed: pull image job x failed
"
    );
    assert!(!node.text("pods -n kube-system").await.contains("web-1"));
    assert!(node.text("pods -n kube-system -A").await.contains("web-1"));
    assert_eq!(
        node.text("pods -n nowhere").await,
        "No pod of namespace nowhere runs on this node (5 in other namespaces: -A).\n"
    );
}

#[tokio::test(start_paused = true)]
async fn an_old_response_shows_its_age() {
    let node = Node::with([pod("web-1")]);
    for fresh in [None, Some(0), Some(120)] {
        node.state().age = fresh;
        assert!(node.text("pods").await.starts_with("NAMESPACE"));
    }
    node.state().age = Some(14 * 60);
    let text = node.text("pods").await;
    assert!(
        text.starts_with("State of 14m ago: the node is not connected to the cloud.\n\nNAMESPACE"),
        "{text}"
    );
    let rows: Value = serde_json::from_str(&node.text("pods -o json").await).unwrap();
    assert_eq!(rows[0]["cacheAgeSeconds"], 840);
}

#[tokio::test(start_paused = true)]
async fn wide_tables_and_documents_show_new_images_if_the_server_reports_them() {
    let node = Node::with([outdated("web-1")]);
    let text = node.text("pods -o wide").await;
    assert!(
        text.lines()
            .next()
            .unwrap()
            .ends_with("NODE  IMAGES  NEW IMAGES")
    );
    assert!(
        text.lines().nth(1).unwrap().ends_with("n1    web:1   -"),
        "{text}"
    );
    node.state().upgrades = Some(upgrades());
    let text = node.text("pods -o wide").await;
    assert!(
        text.lines().nth(1).unwrap().ends_with("web:1   web:2"),
        "{text}"
    );
    let rows: Value = serde_json::from_str(&node.text("pods -o json").await).unwrap();
    assert_eq!(rows[0]["containers"][0]["newImage"], "web:2");
    assert_eq!(rows[0]["update"], "available");
    let yaml = node.text("pods -o yaml").await;
    assert!(
        yaml.contains("newImage: \"web:2\"") || yaml.contains("newImage: web:2"),
        "{yaml}"
    );
}

fn upgrades() -> Value {
    json!({ "items": [{
        "namespace": "default", "pod": "web-1", "revision": "r2",
        "containers": [{ "name": "c", "image": "web:1", "newImage": "web:2" }],
    }] })
}

#[tokio::test(start_paused = true)]
async fn every_document_field_is_described_in_help() {
    fn keys(value: &Value, into: &mut BTreeSet<String>) {
        match value {
            Value::Object(map) => {
                into.extend(map.keys().cloned());
                map.values().for_each(|value| keys(value, into));
            }
            Value::Array(items) => items.iter().for_each(|item| keys(item, into)),
            _ => {}
        }
    }
    let node = Node::with([outdated("web-1")]);
    node.state().then = Some(replace);
    let mut found = BTreeSet::new();
    for line in ["pods -o json", "upgrade web-1 --wait -o json"] {
        let document = serde_json::from_str(&node.text(line).await).unwrap();
        keys(&document, &mut found);
    }
    assert!(found.len() > 20, "{found:?}");
    for key in found {
        let words = FIELDS.split(|c: char| !c.is_ascii_alphanumeric());
        assert!(words.into_iter().any(|word| word == key), "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn upgrade_without_a_pod_shows_the_pending_changes() {
    let node = Node::with([outdated("web-1"), pod("other")]);
    let text = node.text("upgrade").await;
    assert!(
        text.contains("default    web-1  web        r1 → r2   -            web:1\n"),
        "{text}"
    );
    assert!(
        text.contains("yurt-ds ctl upgrade default/web-1 --wait"),
        "{text}"
    );
    assert!(!text.contains("other"), "{text}");
    node.state().upgrades = Some(upgrades());
    let text = node.text("upgrade").await;
    assert!(text.contains("c: web:1 → web:2\n"), "{text}");
    let text = node.text("imagepull").await;
    assert!(text.contains("c: web:1 → web:2\n"), "{text}");
    assert!(
        text.contains("yurt-ds ctl imagepull default/web-1 --wait"),
        "{text}"
    );
    assert!(!text.contains("ctl upgrade"), "{text}");
    node.state().pods = vec![pod("web-1")];
    assert_eq!(node.text("upgrade").await, "No updates are available.\n");
    assert_eq!(node.text("upgrade -o json").await, "[]\n");
    node.state().pods = Vec::new();
    assert!(
        node.text("upgrade")
            .await
            .contains("no pod of this node belongs to")
    );
    assert!(
        node.seen()
            .requests
            .iter()
            .all(|request| request.starts_with("GET "))
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_prints_the_response_of_the_server() {
    let node = Node::with([outdated("web-1")]);
    let text = node.text("upgrade default/web-1").await;
    assert_eq!(text, "Start updating pod default/web-1\n");
    node.text("upgrade web-1 --force").await;
    node.text("imagepull web").await;
    let path = "POST /openyurt.io/v1/namespaces/default/pods/web-1";
    let posts: Vec<String> = node.seen().requests.clone();
    let posts: Vec<&String> = posts
        .iter()
        .filter(|request| request.starts_with("POST"))
        .collect();
    assert_eq!(
        posts,
        [
            &format!("{path}/upgrade"),
            &format!("{path}/upgrade?force=true"),
            &format!("{path}/imagepull")
        ]
    );
    let row: Value = serde_json::from_str(&node.text("upgrade web-1 -o json").await).unwrap();
    assert_eq!(row["outcome"], "Accepted");
}

#[tokio::test(start_paused = true)]
async fn unknown_names_are_answered_with_the_known_ones() {
    #[track_caller]
    fn case(error: &crate::ctl::CliError, code: Code, words: &[&str]) {
        assert_eq!(error.code, code, "{error}");
        for word in words {
            assert!(error.text.contains(word), "{word}: {error}");
        }
    }
    let mut twin = of_namespace(outdated("web-1"), "edge");
    twin["metadata"]["uid"] = json!("uid-twin");
    let node = Node::with([
        outdated("web-1"),
        twin,
        of_namespace(outdated("proxy-xk2zb"), "edge"),
    ]);
    let error = node.error("upgrade default/wbe-1").await;
    case(
        &error,
        Code::NotFound,
        &["no pod wbe-1 in namespace default", "mean default/web-1?"],
    );
    let error = node.error("upgrade proxy-xk2bz").await;
    case(&error, Code::NotFound, &["mean edge/proxy-xk2zb?"]);
    let error = node.error("upgrade default/proxy-xk2zb").await;
    case(&error, Code::NotFound, &["mean edge/proxy-xk2zb?"]);
    let error = node.error("upgrade postgres").await;
    case(&error, Code::NotFound, &["yurt-ds ctl pods"]);
    let error = node.error("upgrade web-1").await;
    case(
        &error,
        Code::Usage,
        &["default/web-1 and edge/web-1", "NAMESPACE/POD"],
    );
    let error = node.error("upgrade default/web-1 -n edge").await;
    case(&error, Code::Usage, &["Remove one of them"]);
    for typed in ["/x", "x/", "a/b/c"] {
        let error = node.error(&format!("upgrade {typed}")).await;
        case(&error, Code::Usage, &["NAMESPACE/POD"]);
    }
    node.text("upgrade web-1 -n edge").await;
    node.text("upgrade web -n default").await;
    node.state().pods.push(outdated("web-9"));
    let error = node.error("upgrade default/web").await;
    case(&error, Code::Usage, &["default/web-1 and default/web-9"]);
    node.state().pods[0] = deleting(outdated("web-1"));
    node.text("upgrade default/web").await;
    assert!(
        node.seen()
            .requests
            .iter()
            .any(|request| request.ends_with("web-9/upgrade"))
    );
    node.state().age = Some(600);
    let error = node.error("upgrade postgres").await;
    case(&error, Code::NotFound, &["may be out of date"]);
}

#[tokio::test(start_paused = true)]
async fn refusals_have_codes_and_a_next_step() {
    const GONE: &str = "Get pod failed, pods \"web-1\" not found";
    const OFFLINE: &str = "OTA upgrade is not allowed when node is disconnected to cloud";
    const NO: &str =
        "Pre check update pod failed, Failed to check pod default/web-1 status, error: …";
    let cases = [
        (
            pod("web-1"),
            403,
            NO,
            Code::Refused,
            "No update is announced",
        ),
        (
            deleting(outdated("web-1")),
            403,
            NO,
            Code::Refused,
            "already being replaced",
        ),
        (
            pulling("web-1"),
            403,
            NO,
            Code::Refused,
            "imagepull default/web-1 --wait. Or upgrade without them: --force",
        ),
        (
            failed("web-1"),
            403,
            NO,
            Code::Refused,
            "Pull the images again",
        ),
        (
            outdated("web-1"),
            400,
            "Not support ota upgrade pod type ReplicaSet",
            Code::Refused,
            "ReplicaSet",
        ),
        (
            outdated("web-1"),
            503,
            OFFLINE,
            Code::Disconnected,
            "Nothing was done",
        ),
        (
            outdated("web-1"),
            503,
            "busy",
            Code::Failed,
            "busy (HTTP 503)",
        ),
        (outdated("web-1"), 500, GONE, Code::NotFound, "ctl pods"),
        (
            outdated("web-1"),
            500,
            "Get pod failed, timeout",
            Code::Failed,
            "timeout (HTTP 500)",
        ),
        (
            outdated("web-1"),
            500,
            "Apply update failed",
            Code::Failed,
            "Apply update failed",
        ),
        (
            outdated("web-1"),
            404,
            "404 page not found",
            Code::Unreachable,
            "does not support the request upgrade",
        ),
        (outdated("web-1"), 302, "", Code::Failed, "HTTP 302"),
    ];
    for (pod, status, text, code, word) in cases {
        let node = Node::with([pod]);
        node.state().reply = (status, text);
        let error = node.error("upgrade default/web-1").await;
        assert_eq!(error.code, code, "{error}");
        assert!(
            error.text.contains(text) && error.text.contains(word),
            "{error}"
        );
        assert_eq!(node.seen().requests.len(), 2);
    }
    let node = Node::with([pulling("web-1")]);
    node.state().reply = (403, NO);
    let error = node.error("upgrade default/web-1 --force --wait").await;
    assert!(error.text.contains("does not support --force"), "{error}");
    node.state().reply = (500, "whatever");
    node.state().reason = Some("NotFound");
    let error = node.error("imagepull default/web-1").await;
    assert_eq!(error.code, Code::NotFound);
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_is_followed_until_the_new_pod_is_ready() {
    let node = Node::with([outdated("web-1")]);
    node.state().then = Some(replace);
    assert_eq!(
        node.text("upgrade web-1 --wait").await,
        "\
Start updating pod default/web-1
[1/4] default/web-1: waiting for its deletion
[1/4] default/web-1: stopping
[2/4] default/web-1: gone, waiting for the new pod
[3/4] default/web-2: pulling images and starting
[4/4] default/web-2: images pulled, not Ready yet
default/web-2 is Ready with revision r2 (before: r1), 10s after the request.
"
    );
    let state = node.seen();
    assert!(
        state.unchanged >= 4,
        "unchanged answers are not sent again: {}",
        state.unchanged
    );
    assert!(
        state.requests.len() <= 13,
        "one look a second: {:?}",
        state.requests
    );
}

#[tokio::test(start_paused = true)]
async fn progress_on_a_terminal_is_one_line() {
    let node = Node::with([outdated("web-1")]);
    node.state().then = Some(replace);
    let (text, ended) = node.run_live("upgrade web-1 --wait").await;
    assert_eq!(ended, Ok(Code::Complete));
    let lines: Vec<&str> = text.split("\x1b[1F").collect();
    assert!(lines.len() >= 10, "{text:?}");
    assert!(
        lines[2].contains("  2s [1/4] default/web-1: stopping\x1b[K\n"),
        "{lines:?}"
    );
    assert!(text.ends_with("10s after the request.\n"), "{text:?}");
}

#[tokio::test(start_paused = true)]
async fn a_new_pod_that_does_not_start_is_shown_until_the_timeout() {
    let node = Node::with([outdated("web-1")]);
    node.state().then = Some(|node| {
        node.after(1, |state| {
            let new = revision(pod("web-2"), "r2");
            state.pods = vec![waiting(new, "ErrImagePull", "no\nsuch image")];
        });
    });
    let (text, ended) = node.run("upgrade web-1 --wait --timeout 90s").await;
    assert_eq!(ended, Ok(Code::Progressing));
    assert!(
        text.contains(
            "[3/4] default/web-2: pulling images and starting: ErrImagePull (no such image)\n"
        ),
        "{text}"
    );
    assert!(
        text.contains("Not finished after 1m 30s: [3/4] default/web-2"),
        "{text}"
    );
    node.state().pods = vec![outdated("web-1")];
    let (text, ended) = node.run("upgrade web-1 --wait --timeout 9s -o json").await;
    assert_eq!(ended, Ok(Code::Progressing));
    let row: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(row["outcome"], "TimedOut");
    assert_eq!(row["pod"]["problem"], "ErrImagePull");
}

#[tokio::test(start_paused = true)]
async fn a_new_pod_of_the_old_revision_is_reported() {
    let again = |pod: fn(&str) -> Value| {
        let node = Node::with([outdated("web-1")]);
        node.after(2, move |state| state.pods = vec![pod("web-2")]);
        node
    };
    let (text, ended) = again(outdated).run("upgrade web-1 --wait").await;
    assert_eq!(ended, Ok(Code::Failed));
    assert!(text.contains("has the old revision r1 again"), "{text}");
    let text = again(pod).text("upgrade web-1 --wait").await;
    assert!(text.contains("rolled back in the meantime"), "{text}");
    fn silent(name: &str) -> Value {
        condition(pod(name), "PodNeedUpgrade", "Unknown", "", "")
    }
    let (text, ended) = again(silent).run("upgrade web-1 --wait").await;
    assert_eq!(ended, Ok(Code::Failed), "{text}");
    let node = again(silent);
    node.after(6, |state| state.pods = vec![pod("web-2")]);
    node.text("upgrade web-1 --wait").await;
}

#[tokio::test(start_paused = true)]
async fn upgrade_wait_survives_a_restart_of_the_agent() {
    let node = Node::with([outdated("web-1")]);
    node.state().then = Some(replace);
    node.after(3, |state| state.listens = false);
    node.after(9, |state| state.listens = true);
    let text = node.text("upgrade web-1 --wait").await;
    assert!(
        text.contains("does not respond (it may be restarting)"),
        "{text}"
    );
    let node = Node::with([outdated("web-1")]);
    node.after(3, |state| state.listens = false);
    let (_, ended) = node.run("upgrade web-1 --wait").await;
    assert_eq!(ended.unwrap_err().code, Code::Unreachable, "not for ever");
    node.state().listens = true;
    node.after(3, |state| state.listens = false);
    let (_, ended) = node.run("upgrade web-1 --wait --timeout 1m").await;
    assert_eq!(ended, Ok(Code::Progressing));
}

#[tokio::test(start_paused = true)]
async fn imagepull_wait_follows_until_the_images_are_pulled() {
    let node = Node::with([outdated("web-1")]);
    node.state().reply = (200, "Image pre-pull requested for pod default/web-1");
    node.after(2, |state| state.pods = vec![pulling("web-1")]);
    node.after(5, |state| state.pods = vec![pulled("web-1")]);
    assert_eq!(
        node.text("imagepull default/web-1 --wait").await,
        "Image pre-pull requested for pod default/web-1
default/web-1: waiting for the pull to begin
default/web-1: pulling images
The images for default/web-1 are on this node, 5s after the request. To replace the pod: yurt-ds ctl upgrade default/web-1 --wait
"
    );
    let row = node.text("imagepull default/web-1 --wait -o json").await;
    let row: Value = serde_json::from_str(&row).unwrap();
    assert_eq!(
        (&row["outcome"], &row["pod"]["imageReady"]),
        (&json!("Pulled"), &json!("pulled"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_pull_after_a_failed_one_may_succeed_or_fail_again() {
    let node = Node::with([failed("web-1")]);
    node.after(3, |state| state.pods = vec![pulled("web-1")]);
    node.text("imagepull web-1 --wait").await;

    let node = Node::with([failed("web-1")]);
    node.after(2, |state| state.pods = vec![pulling("web-1")]);
    node.after(20, |state| state.pods = vec![failed("web-1")]);
    let (text, ended) = node.run("imagepull web-1 --wait").await;
    assert_eq!(ended, Ok(Code::PullFailed));
    assert!(
        text.contains("could not be pulled: pull image job x failed"),
        "{text}"
    );
    assert!(text.contains("--force"), "{text}");

    let node = Node::with([failed("web-1")]);
    let (_, ended) = node.run("imagepull web-1 --wait").await;
    assert_eq!(ended, Ok(Code::PullFailed), "the very same words");
}

#[tokio::test(start_paused = true)]
async fn a_pull_that_is_no_longer_needed_ends() {
    let node = Node::with([outdated("web-1")]);
    node.after(2, |state| state.pods = vec![pod("web-1")]);
    let (text, ended) = node.run("imagepull web-1 --wait").await;
    assert_eq!(ended, Ok(Code::Failed));
    assert!(text.contains("rolled back"), "{text}");
    let node = Node::with([outdated("web-1")]);
    node.after(2, |state| state.pods = vec![outdated("web-2")]);
    let (text, ended) = node.run("imagepull web-1 --wait").await;
    assert_eq!(ended, Ok(Code::Failed));
    assert!(text.contains("is gone"), "{text}");
    let node = Node::with([pulling("web-1")]);
    let (text, ended) = node.run("imagepull web-1 --wait --timeout 30s").await;
    assert_eq!(ended, Ok(Code::Progressing));
    assert!(
        text.ends_with("Not finished after 30s: default/web-1: pulling images.\n"),
        "{text}"
    );
    tokio::time::sleep(Duration::from_secs(1)).await;
}
