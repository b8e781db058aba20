//! Tests with other programs on the port of a node's server. Each of them has to cause an error message, and none a panic.

use serde_json::json;

use super::node::{Node, bytes, pod, run};
use crate::ctl::Code;

fn answer(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

async fn case(answer: impl Into<Vec<u8>>, and_silence: bool, code: Code, words: &[&str]) {
    let (text, ended) = run(bytes(answer, and_silence), "pods", false).await;
    assert_eq!(text, "");
    let error = ended.unwrap_err();
    assert_eq!(error.code, code, "{error}");
    for word in words {
        assert!(error.text.contains(word), "{word}: {error}");
    }
    assert!(
        !error.text.contains('\x1b') && error.text.len() < 1500,
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn foreign_servers_are_recognized() {
    let unusable = Code::Unreachable;
    let check = "component=ota-server";
    case(
        answer("200 OK", "<html>hello"),
        false,
        unusable,
        &["with a PodList", "<html>hello", check],
    )
    .await;
    case(
        answer("200 OK", ""),
        false,
        unusable,
        &["with a PodList", "answer is empty"],
    )
    .await;
    case(
        answer("200 OK", "{\"items\":[]}"),
        false,
        unusable,
        &["kind is \"\""],
    )
    .await;
    case(
        answer("200 OK", "{\"kind\":\"PodList\",\"items\":7}"),
        false,
        unusable,
        &["with a PodList"],
    )
    .await;
    case(answer("200 OK", "[]"), false, unusable, &["with a PodList"]).await;
    case(
        answer("200 OK", "{\"kind\":\"\x1b[31m\"}"),
        false,
        unusable,
        &["with a PodList"],
    )
    .await;
    case(
        answer("404 Not Found", "404 page not found"),
        false,
        unusable,
        &["HTTP 404"],
    )
    .await;
    case(
        answer("401 Unauthorized", "{\"kind\":\"Status\"}"),
        false,
        unusable,
        &["HTTP 401"],
    )
    .await;
    case(
        answer("304 Not Modified", ""),
        false,
        unusable,
        &["HTTP 304"],
    )
    .await;
    case(
        answer("500 Oh", "Get pod list failed"),
        false,
        unusable,
        &["has no list of pods yet"],
    )
    .await;
    case(
        "SSH-2.0-OpenSSH_9.6\r\n",
        false,
        unusable,
        &["it is not HTTP", check],
    )
    .await;
    case("", false, unusable, &["cannot be decoded", check]).await;
    case(
        "",
        true,
        unusable,
        &["no complete response within 20s", check],
    )
    .await;
    let half = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{\"kind\":";
    case(half, false, unusable, &["cannot be decoded", check]).await;
    case(half, true, unusable, &["no complete response within 20s"]).await;
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"kin\r\nzz";
    case(chunked, false, unusable, &["cannot be decoded"]).await;
    let foreign =
        "HTTP/1.1 421 Misdirected Request\r\nX-OTA-Reason: Host\r\nContent-Length: 4\r\n\r\nnot!";
    case(
        foreign,
        false,
        Code::Refused,
        &["rejected the request: not! (HTTP 421"],
    )
    .await;
}

#[tokio::test]
async fn an_endless_response_is_aborted() {
    let mut endless = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
    endless.resize(65 << 20, b' ');
    case(endless, true, Code::Unreachable, &["more than 64 MiB"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_agent_is_reported_with_the_next_step() {
    let node = Node::with([]);
    node.state().listens = false;
    let error = node.error("pods").await;
    assert_eq!(error.code, Code::Unreachable);
    for word in [
        "http://127.0.0.1:10267: connection refused",
        "kubectl -n yurt-ds-edge get pods -o wide -l app.kubernetes.io/component=ota-server",
        "YURT_DS_SERVER",
        "YurtHub",
    ] {
        assert!(error.text.contains(word), "{word}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_with_a_lost_response_is_reported_as_possibly_received() {
    let node = Node::with([super::outdated("web-1")]);
    node.state().then = Some(|_| panic!("the connection ends in the middle of the answer"));
    let error = node.error("upgrade web-1").await;
    assert_eq!(error.code, Code::Unreachable);
    assert!(
        error.text.contains("may have received the request"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn malformed_pods_are_shown_as_far_as_possible() {
    let mut odd = pod("odd");
    odd["metadata"]["creationTimestamp"] = json!(null);
    odd["metadata"]["labels"] = json!({ "controller-revision-hash": "" });
    odd["spec"] = json!(null);
    odd["status"] = json!({ "conditions": [
        { "type": "PodNeedUpgrade", "status": "Maybe" },
        { "type": "PodImageReady", "status": "False", "reason": "PullImageFail", "message": "a\nb\u{1b}[2J" },
    ] });
    let node = Node::with([
        odd,
        json!({}),
        json!({ "metadata": null }),
        json!({ "metadata": { "name": "x" } }),
        json!({ "metadata": { "name": "y", "creationTimestamp": 7 }, "spec": [], "status": { "conditions": {} } }),
    ]);
    let text = node.text("pods -o wide").await;
    assert!(text.contains("failed: a b\\u{1b}[2J"), "{text}");
    assert_eq!(text.lines().count(), 4, "{text}");
    assert!(!text.contains('\x1b'), "{text}");
    let empty = answer(
        "200 OK",
        "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"items\":null}",
    );
    let (text, ended) = run(bytes(empty, false), "pods", false).await;
    assert_eq!(
        (text.as_str(), ended),
        ("No pod runs on this node.\n", Ok(Code::Complete))
    );
}
