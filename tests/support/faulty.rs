//! Proxy between a controller and its API server. It delays, stalls or breaks requests.
//!
//! The controller connects to the proxy over plain HTTP/1.1. The proxy forwards each request with the credentials of the test. A
//! rule causes a fault in requests with certain verbs and resources. Rules can be changed at any time, even for open watches.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::try_unfold;
use http::header::{ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, HOST, TRANSFER_ENCODING};
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use yurt_ds::sim::dice::mix;
use yurt_ds::task::Task;

/// Kind of request that a rule can select.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verb {
    /// Read of one object.
    Get,
    /// List of objects.
    List,
    /// Watch of objects, streaming lists included.
    Watch,
    /// Any request that can change something.
    Write,
}

impl Verb {
    pub(crate) const ALL: &[Self] = &[Self::Get, Self::List, Self::Watch, Self::Write];
}

/// Fault that a rule causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Holds requests, responses and watch events until the rule is removed.
    Stall,
    /// Holds each request for this time before it is forwarded.
    Delay(Duration),
    /// Breaks the connection for this many of 1,000 requests and chunks of responses.
    Drop(u64),
}

/// Rule that causes a fault in requests with certain verbs and resources.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    /// Verbs of the requests that the rule applies to.
    pub(crate) verbs: &'static [Verb],
    /// Resources of the requests that the rule applies to. An empty list means all.
    pub(crate) resources: &'static [&'static str],
    pub(crate) fault: Fault,
}

/// Verb and resource of a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Asked {
    verb: Verb,
    resource: String,
}

/// Running proxy. It stops when dropped.
pub(crate) struct FaultProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    _task: Task,
}

struct Shared {
    upstream: Client,
    rules: watch::Sender<Vec<Rule>>,
    /// Number of times that the test has reset all open watches.
    resets: watch::Sender<u64>,
    counts: Mutex<BTreeMap<Asked, u64>>,
    rolls: AtomicU64,
}

type Carried = UnsyncBoxBody<Bytes, io::Error>;

impl FaultProxy {
    /// Starts a proxy without rules. It forwards requests with this client.
    pub(crate) async fn start(upstream: Client) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            upstream,
            rules: watch::Sender::new(Vec::new()),
            resets: watch::Sender::new(0),
            counts: Mutex::default(),
            rolls: AtomicU64::new(0),
        });
        let accepting = accept(listener, shared.clone());
        Ok(Self {
            address,
            shared,
            _task: Task::spawn(accepting),
        })
    }

    /// Returns a kubeconfig with the proxy as its server.
    pub(crate) fn kubeconfig(&self) -> String {
        let server = format!("http://{}", self.address);
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "proxy", "cluster": { "server": server } }],
            "users": [{ "name": "proxy", "user": {} }],
            "contexts": [{ "name": "proxy", "context": { "cluster": "proxy", "user": "proxy" } }],
            "current-context": "proxy",
        });
        config.to_string()
    }

    /// Replaces all rules.
    pub(crate) fn set(&self, rules: &[Rule]) {
        self.shared.rules.send_replace(rules.to_vec());
    }

    /// Breaks the connections of all open watches.
    pub(crate) fn reset_watches(&self) {
        self.shared.resets.send_modify(|number| *number += 1);
    }

    /// Returns the number of requests with this verb and resource so far.
    pub(crate) fn count(&self, verb: Verb, resource: &str) -> u64 {
        let resource = resource.to_owned();
        let counts = self.shared.counts.lock();
        let counts = counts.unwrap_or_else(PoisonError::into_inner);
        counts.get(&Asked { verb, resource }).copied().unwrap_or(0)
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut open = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let shared = shared.clone();
        open.spawn(serve(stream, shared));
        while open.try_join_next().is_some() {}
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let shared = shared.clone();
        async move { shared.forward(request).await }
    });
    // Ignore errors: a rule that breaks connections causes them on purpose.
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

impl Shared {
    async fn forward(self: Arc<Self>, request: Request<Incoming>) -> io::Result<Response<Carried>> {
        let asked = Asked::of(&request);
        self.count(&asked);
        self.pass(&asked, true).await?;
        let (mut head, body) = request.into_parts();
        for header in [HOST, CONNECTION, AUTHORIZATION, ACCEPT_ENCODING] {
            head.headers.remove(header);
        }
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        let request = Request::from_parts(head, Body::from(body));
        let answer = self
            .upstream
            .send(request)
            .await
            .map_err(io::Error::other)?;
        self.pass(&asked, false).await?;
        let (mut head, body) = answer.into_parts();
        for header in [CONNECTION, TRANSFER_ENCODING] {
            head.headers.remove(header);
        }
        Ok(Response::from_parts(head, self.carry(asked, body)))
    }

    /// Forwards the chunks of a response. The rules that are set when a chunk arrives apply to it.
    fn carry(self: Arc<Self>, asked: Asked, body: Body) -> Carried {
        let resets = self.resets.subscribe();
        let chunks = try_unfold(
            (self, asked, body, resets),
            |(shared, asked, mut body, mut resets)| async move {
                let next = tokio::select! {
                    _ = resets.changed(), if asked.verb == Verb::Watch => return Err(reset()),
                    next = body.frame() => next,
                };
                let Some(frame) = next else { return Ok(None) };
                let frame = frame.map_err(io::Error::other)?;
                shared.pass(&asked, false).await?;
                Ok(Some((frame, (shared, asked, body, resets))))
            },
        );
        StreamBody::new(chunks).boxed_unsync()
    }

    /// Applies the current rules to a request or to a chunk of a response.
    async fn pass(&self, asked: &Asked, is_request: bool) -> io::Result<()> {
        let faults: Vec<Fault> = self
            .rules
            .borrow()
            .iter()
            .filter(|rule| rule.applies(asked))
            .map(|rule| rule.fault)
            .collect();
        for fault in faults {
            match fault {
                Fault::Drop(share) if self.roll() < share => return Err(reset()),
                Fault::Delay(time) if is_request => tokio::time::sleep(time).await,
                _ => {}
            }
        }
        let mut rules = self.rules.subscribe();
        let is_open = |rules: &Vec<Rule>| {
            !rules
                .iter()
                .any(|rule| rule.fault == Fault::Stall && rule.applies(asked))
        };
        // The wait can't fail, because `self` owns the sender.
        let _ = rules.wait_for(is_open).await;
        Ok(())
    }

    /// Returns a pseudorandom number below 1,000. Equal sequences of requests get equal numbers.
    fn roll(&self) -> u64 {
        mix(self.rolls.fetch_add(1, Ordering::Relaxed)) % 1000
    }

    fn count(&self, asked: &Asked) {
        let counts = self.counts.lock();
        let mut counts = counts.unwrap_or_else(PoisonError::into_inner);
        *counts.entry(asked.clone()).or_default() += 1;
    }
}

impl Rule {
    fn applies(&self, asked: &Asked) -> bool {
        let is_resource = |resource: &&str| *resource == asked.resource;
        self.verbs.contains(&asked.verb)
            && (self.resources.is_empty() || self.resources.iter().any(is_resource))
    }
}

impl Asked {
    fn of<B>(request: &Request<B>) -> Self {
        let mut parts: Vec<&str> = request.uri().path().trim_matches('/').split('/').collect();
        let skipped = if parts[0] == "api" { 2 } else { 3 };
        parts.drain(..skipped.min(parts.len()));
        if parts.len() > 2 && parts[0] == "namespaces" {
            parts.drain(..2);
        }
        let query = request.uri().query().unwrap_or_default();
        let is_watch = query
            .split('&')
            .any(|part| ["watch=true", "watch=1"].contains(&part));
        let verb = match *request.method() {
            Method::GET if is_watch => Verb::Watch,
            Method::GET if parts.len() > 1 => Verb::Get,
            Method::GET => Verb::List,
            _ => Verb::Write,
        };
        let resource = parts.first().copied().unwrap_or_default().to_owned();
        Self { verb, resource }
    }
}

fn reset() -> io::Error {
    io::Error::new(
        io::ErrorKind::ConnectionReset,
        "the test broke the connection",
    )
}

#[test]
fn requests_are_told_apart_by_verb_and_resource() {
    for (method, uri, verb, resource) in [
        (
            "GET",
            "/api/v1/nodes?watch=true&resourceVersion=5",
            Verb::Watch,
            "nodes",
        ),
        ("GET", "/api/v1/nodes?limit=100", Verb::List, "nodes"),
        ("GET", "/api/v1/nodes/one", Verb::Get, "nodes"),
        ("DELETE", "/api/v1/namespaces/a/pods/b", Verb::Write, "pods"),
        (
            "GET",
            "/apis/apps/v1/namespaces/a/daemonsets?watch=1",
            Verb::Watch,
            "daemonsets",
        ),
        ("GET", "/api/v1/namespaces/a", Verb::Get, "namespaces"),
        ("GET", "/version", Verb::List, ""),
    ] {
        let request = Request::builder().method(method).uri(uri).body(());
        let asked = Asked::of(&request.expect("a request"));
        assert_eq!(
            (asked.verb, asked.resource.as_str()),
            (verb, resource),
            "{method} {uri}"
        );
    }
}
