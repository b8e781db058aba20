//! A node with a scripted server: HTTP over in-memory pipes, in virtual time.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use clap::Parser;
use futures::FutureExt;
use http::{Method, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::cli::ctl::Verb;
use crate::cli::node::SERVER;
use crate::cli::{Cli, Command};
use crate::clock::Clock;
use crate::ctl::node::{Connector, NodeClient, Stream, perform_on_node};
use crate::ctl::{CliError, Code, Screen};

/// Node with a scripted server.
#[derive(Clone)]
pub(super) struct Node(Arc<Mutex<State>>);

/// Data of the server, and its responses.
pub(super) struct State {
    pub(super) pods: Vec<Value>,
    /// Age of the data in seconds, as the server reports it.
    pub(super) age: Option<u64>,
    /// Response body of `GET /yurt-ds/v1/upgrades`.
    pub(super) upgrades: Option<Value>,
    /// Status code and body of the response to a POST.
    pub(super) reply: (u16, &'static str),
    /// Reason header of the response to a POST.
    pub(super) reason: Option<&'static str>,
    /// True if the server accepts connections.
    pub(super) listens: bool,
    /// Requests received so far, as `METHOD path`.
    pub(super) requests: Vec<String>,
    /// Number of requests whose response was 304 (Not Modified).
    pub(super) unchanged: usize,
    /// Change of the node after a POST.
    pub(super) then: Option<fn(&Node)>,
    version: u64,
}

impl Node {
    pub(super) fn with(pods: impl IntoIterator<Item = Value>) -> Self {
        Self(Arc::new(Mutex::new(State {
            pods: pods.into_iter().collect(),
            age: Some(0),
            upgrades: None,
            reply: (200, "Start updating pod default/web-1"),
            reason: None,
            listens: true,
            requests: Vec::new(),
            unchanged: 0,
            then: None,
            version: 1,
        })))
    }

    /// Returns the state for a change. The next response has a new entity tag.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.0.lock().unwrap();
        state.version += 1;
        state
    }

    /// Returns the state for reading. The entity tag does not change.
    pub(super) fn seen(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Changes the state after the given number of seconds.
    pub(super) fn after(&self, seconds: u64, change: impl FnOnce(&mut State) + Send + 'static) {
        let node = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            change(&mut node.state());
        });
    }

    fn connector(&self) -> Connector {
        let node = self.clone();
        Arc::new(move || {
            let node = node.clone();
            async move {
                if !node.seen().listens {
                    return Err(std::io::Error::from_raw_os_error(111));
                }
                let (ours, theirs) = tokio::io::duplex(1024);
                tokio::spawn(async move {
                    let service = service_fn(move |request| {
                        let node = node.clone();
                        async move { Ok::<_, Infallible>(node.answer(&request)) }
                    });
                    let builder = hyper::server::conn::http1::Builder::new();
                    let _ = builder
                        .serve_connection(TokioIo::new(theirs), service)
                        .await;
                });
                Ok(Box::new(ours) as Box<dyn Stream>)
            }
            .boxed()
        })
    }

    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        assert_eq!(request.headers()["host"], "127.0.0.1:10267");
        let path = request.uri().to_string();
        let mut state = self.seen();
        state.requests.push(format!("{} {path}", request.method()));
        if request.method() == Method::POST {
            let (status, text) = state.reply;
            let mut response = Response::builder().status(status);
            if let Some(reason) = state.reason {
                response = response.header("X-OTA-Reason", reason);
            }
            let then = state.then;
            drop(state);
            if let Some(then) = then {
                then(self);
            }
            return response.body(Full::from(text)).unwrap();
        }
        let body = match path.as_str() {
            "/pods" => json!({ "kind": "PodList", "apiVersion": "v1", "items": state.pods }),
            "/yurt-ds/v1/upgrades" if state.upgrades.is_some() => state.upgrades.clone().unwrap(),
            _ => {
                let missing = Response::builder().status(404);
                return missing.body(Full::from("404 page not found")).unwrap();
            }
        };
        let etag = format!("\"{}\"", state.version);
        let mut response = Response::builder().header("ETag", &etag);
        if let Some(age) = state.age {
            response = response.header("X-Cache-Age", age);
        }
        if request
            .headers()
            .get("If-None-Match")
            .is_some_and(|sent| *sent == etag)
        {
            state.unchanged += 1;
            return response.status(304).body(Full::default()).unwrap();
        }
        response.body(Full::from(body.to_string())).unwrap()
    }

    /// Runs a command on the node, and returns its output and its result.
    pub(super) async fn run(&self, line: &str) -> (String, Result<Code, CliError>) {
        run(self.connector(), line, false).await
    }

    /// Runs a command with a live screen, as on a terminal.
    pub(super) async fn run_live(&self, line: &str) -> (String, Result<Code, CliError>) {
        run(self.connector(), line, true).await
    }

    /// Runs a command that has to succeed, and returns its output.
    pub(super) async fn text(&self, line: &str) -> String {
        let (text, ended) = self.run(line).await;
        assert_eq!(ended, Ok(Code::Complete), "{line}: {text}");
        text
    }

    /// Runs a command that has to fail without output, and returns its error.
    pub(super) async fn error(&self, line: &str) -> CliError {
        let (text, ended) = self.run(line).await;
        assert_eq!(text, "", "nothing is printed before a failure");
        ended.unwrap_err()
    }
}

/// Returns a connector that responds to any request with these bytes. With `and_silence`, the connection then stays open; otherwise
/// it ends.
pub(super) fn bytes(answer: impl Into<Vec<u8>>, and_silence: bool) -> Connector {
    let answer = answer.into();
    Arc::new(move || {
        let answer = answer.clone();
        async move {
            let (ours, mut theirs) = tokio::io::duplex(1 << 16);
            tokio::spawn(async move {
                let mut head = [0; 1024];
                let _ = theirs.read(&mut head).await;
                let _ = theirs.write_all(&answer).await;
                if and_silence {
                    std::future::pending::<()>().await;
                }
            });
            Ok(Box::new(ours) as Box<dyn Stream>)
        }
        .boxed()
    })
}

/// Runs a command that uses the connector, and returns its output and its result.
pub(super) async fn run(
    connect: Connector,
    line: &str,
    live: bool,
) -> (String, Result<Code, CliError>) {
    let words = format!("yurt-ds ctl {line}");
    let Command::Ctl(args) = Cli::parse_from(words.split(' ')).command else {
        panic!("not ctl")
    };
    let Verb::Node(verb) = &args.verb else {
        panic!("not a verb of a node")
    };
    let epoch: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
    let clock = Clock::starting_at(epoch);
    let client = NodeClient::through(verb.server().unwrap_or(SERVER), connect).unwrap();
    let client = client.in_namespace(args.access.namespace.clone());
    let mut out = Vec::new();
    let mut screen = Screen::new(&mut out, live, false);
    let ended = perform_on_node(verb, &client, &mut screen, &clock).await;
    (String::from_utf8(out).unwrap(), ended)
}

/// Returns a pod of the DaemonSet `default/web` with revision `r1`, up to date and Ready.
pub(super) fn pod(name: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "default", "uid": format!("uid-{name}"),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": { "controller-revision-hash": "r1" },
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "web", "uid": "uid-web", "controller": true,
            }],
        },
        "spec": { "nodeName": "n1", "containers": [{ "name": "c", "image": "web:1" }] },
        "status": {
            "phase": "Running",
            "conditions": [
                { "type": "Ready", "status": "True" },
                { "type": "PodNeedUpgrade", "status": "False", "message": "controllerrevision: r1" },
            ],
            "containerStatuses": [{ "name": "c", "ready": true, "imageID": "sha256:1", "state": { "running": {} } }],
        },
    })
}

/// Returns a pod like [`pod`] with an available upgrade.
pub(super) fn outdated(name: &str) -> Value {
    condition(
        pod(name),
        "PodNeedUpgrade",
        "True",
        "",
        "controllerrevision: r2",
    )
}

pub(super) fn condition(
    mut pod: Value,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
) -> Value {
    let conditions = pod["status"]["conditions"].as_array_mut().unwrap();
    conditions.retain(|condition| condition["type"] != kind);
    conditions.push(json!({
        "type": kind, "status": status, "reason": reason, "message": message,
    }));
    pod
}

pub(super) fn of_namespace(mut pod: Value, namespace: &str) -> Value {
    pod["metadata"]["namespace"] = json!(namespace);
    pod
}

pub(super) fn deleting(mut pod: Value) -> Value {
    pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:59:00Z");
    pod
}

/// Sets the revision of the pod, and reports it as up to date.
pub(super) fn revision(mut pod: Value, hash: &str) -> Value {
    pod["metadata"]["labels"]["controller-revision-hash"] = json!(hash);
    condition(
        pod,
        "PodNeedUpgrade",
        "False",
        "",
        &format!("controllerrevision: {hash}"),
    )
}

/// Sets the reason for which the container of the pod waits.
pub(super) fn waiting(pod: Value, reason: &str, message: &str) -> Value {
    let mut pod = condition(pod, "Ready", "False", "ContainersNotReady", "");
    pod["status"]["containerStatuses"] = json!([{
        "name": "c", "ready": false, "imageID": "", "state": { "waiting": { "reason": reason, "message": message } },
    }]);
    pod
}
