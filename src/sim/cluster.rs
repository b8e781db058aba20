//! Embedded API server: a Kubernetes API in memory.
//!
//! Tests use it in their own process without a socket ([`Cluster::client`]), so that they control the time. kubectl and other
//! processes use HTTP on loopback ([`Cluster::serve`]). A request that the server doesn't support fails with the status of a real
//! API server and an explanation. It never appears to succeed.
//!
//! ```text
//! request ─► faults ─► http (route, verb, body) ─► access ─► verbs ─► admission ─► store ─► watchers
//!               │                                    schema, defaults, validate, patch        │
//!            counters ◄──────────────── present (object, table, metadata) ◄───────────────────┘
//! ```
//!
//! All writes happen under one lock, in order of arrival. Names, UIDs and resourceVersions depend only on the seed and on that
//! order, so runs are reproducible.

pub mod faults;
pub mod resources;
pub mod selector;
pub mod status;

mod access;
mod admission;
mod advanced;
mod apply;
mod binding;
mod budgets;
mod compute_quota;
pub(crate) mod defaults;
mod discovery;
mod disruption;
mod fields;
mod http;
mod managed_fields;
mod object;
mod openapi;
mod parsed;
mod patch;
mod pod_security;
mod present;
mod protobuf;
mod request;
mod schema;
mod serve;
mod shape;
mod store;
mod table;
mod validate;
mod verbs;
mod watch;
mod write;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::http::{Request, Response};
use bytes::Bytes;
use serde_json::{Value, json};

pub use self::faults::{Fault, FaultGuard, Faults, RequestInfo};
use self::http::ApiServer;
pub use self::http::Body;
use self::resources::Storage;
use self::store::Store;
use crate::clock::Clock;

/// Options of a cluster.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// Clock of the server.
    pub clock: Clock,
    /// Seed from which UIDs and generated names are derived.
    pub seed: u64,
    /// Number of watch events that the server keeps for each kind. A watch that resumes from an older resourceVersion gets a 410.
    pub history: usize,
    /// True if the server supports streaming lists (`sendInitialEvents`), as Kubernetes does since 1.34.
    pub streaming_lists: bool,
    /// Minor Kubernetes version that the server reports. kubectl warns if it differs from its own version by more than one.
    pub minor: u32,
    /// True if the server has Advanced DaemonSets (`apps.kruise.io`) from its start.
    pub advanced: bool,
}

impl ClusterOptions {
    /// Returns the default options: 20,000 events of history, streaming lists, Kubernetes 1.35, no custom resources.
    pub fn new(clock: Clock, seed: u64) -> Self {
        Self {
            clock,
            seed,
            history: 20_000,
            streaming_lists: true,
            minor: 35,
            advanced: false,
        }
    }

    /// Enables Advanced DaemonSets.
    #[must_use]
    pub fn with_advanced(self) -> Self {
        Self {
            advanced: true,
            ..self
        }
    }
}

/// Number of requests with the same client, verb, resource and status.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count {
    /// Value of the `User-Agent` header.
    pub user_agent: String,
    /// Verb of the requests, as in [`RequestInfo`].
    pub verb: String,
    /// Plural resource name; empty for paths that name no resource.
    pub resource: String,
    /// Subresource; empty for the object itself.
    pub subresource: String,
    /// HTTP status; 0 if there was no response because of a fault or a stopped server.
    pub code: u16,
    /// Number of these requests.
    pub number: u64,
}

type Counters = BTreeMap<(String, String, String, String, u16), u64>;

/// API server in memory. Clones are cheap and share one server.
#[derive(Clone, Debug)]
pub struct Cluster {
    server: ApiServer,
    faults: Faults,
    counters: Arc<Mutex<Counters>>,
    running: Arc<tokio::sync::watch::Sender<bool>>,
}

impl Cluster {
    /// Returns a cluster that contains only its four namespaces.
    pub fn new(options: ClusterOptions) -> Self {
        let mut store = Store::new(options.seed, options.history);
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            let namespace = first_namespace(name, &store.uid(), &options);
            store.put(Storage::Namespaces, namespace);
        }
        Self {
            server: ApiServer {
                store: Arc::new(Mutex::new(store)),
                clock: options.clock,
                streaming_lists: options.streaming_lists,
                minor: options.minor,
                custom: Arc::new(AtomicBool::new(options.advanced)),
                access: access::AccessRules::default(),
            },
            faults: Faults::default(),
            counters: Arc::default(),
            running: Arc::new(tokio::sync::watch::Sender::new(true)),
        }
    }

    /// Installs the definition of the Advanced DaemonSet (`apps.kruise.io`). The server serves the resource from then on.
    pub fn install_advanced(&self) {
        self.server.custom.store(true, Ordering::Relaxed);
    }

    /// Stores objects unchanged, with their names, UIDs, times and status.
    ///
    /// The objects are not validated. Missing fields get the API server's defaults.
    #[cfg(test)]
    pub(crate) fn restore(&self, storage: Storage, objects: impl IntoIterator<Item = Value>) {
        let mut store = lock(&self.server.store);
        for mut object in objects {
            Self::complete(storage, &mut object);
            store.put(storage, object);
        }
    }

    /// Fills in the defaults that the API server sets when an object is written.
    #[cfg(test)]
    pub(crate) fn complete(storage: Storage, object: &mut Value) {
        defaults::fill(storage, object);
    }

    /// Returns a client in this process. It needs no socket, so it also works while tokio's time is paused.
    pub fn client(&self, user_agent: &str) -> kube::Client {
        let cluster = self.clone();
        let agent = ::http::HeaderValue::from_str(user_agent)
            .unwrap_or_else(|_| ::http::HeaderValue::from_static("invalid-user-agent"));
        let service = tower::service_fn(move |mut request: Request<kube::client::Body>| {
            let cluster = cluster.clone();
            request
                .headers_mut()
                .insert(::http::header::USER_AGENT, agent.clone());
            async move { cluster.handle(request).await }
        });
        kube::Client::new(service, "default")
    }

    /// Answers one request.
    ///
    /// # Errors
    ///
    /// Fails if the connection breaks, because the server is stopped or a fault is injected.
    pub async fn handle<B>(&self, request: Request<B>) -> io::Result<Response<Body>>
    where
        B: hyper::body::Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let mut running = self.running.subscribe();
        tokio::select! {
            biased;
            _ = running.wait_for(|running| !running) => Err(away()),
            answer = self.handle_running(request) => answer,
        }
    }

    async fn handle_running<B>(&self, request: Request<B>) -> io::Result<Response<Body>>
    where
        B: hyper::body::Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (head, body) = request.into_parts();
        let parsed = match parsed::parse(&head, self.server.serves_custom()) {
            Ok(parsed) => parsed,
            Err(failure) => return Ok(http::refusal(&failure)),
        };
        let fault = self.faults.of(&parsed.info);
        let answer = match fault {
            Fault::ResetBefore => Err(reset()),
            Fault::Hang => std::future::pending().await,
            Fault::Status(code, retry_after) => Ok(http::refusal(&status::ApiFailure::of_status(
                code,
                retry_after,
            ))),
            Fault::Denied(why) => {
                let RequestInfo { resource, name, .. } = &parsed.info;
                let message = format!("{resource} {name:?} is forbidden: {why}");
                Ok(http::refusal(&status::ApiFailure::new(
                    422, "Invalid", message,
                )))
            }
            Fault::Pass | Fault::Delay(_) | Fault::ResetAfter => {
                let body = http::read(Request::from_parts(head, body)).await;
                if let Fault::Delay(time) = fault {
                    tokio::time::sleep(time).await;
                }
                let answer = match body {
                    Ok(body) => self.server.answer(&parsed, &body),
                    Err(failure) => http::refusal(&failure),
                };
                match fault {
                    Fault::ResetAfter => Err(reset()),
                    _ => Ok(answer),
                }
            }
        };
        self.count(parsed.info, &answer);
        answer
    }

    fn count(&self, info: RequestInfo, answer: &io::Result<Response<Body>>) {
        let code = answer.as_ref().map_or(0, |answer| answer.status().as_u16());
        let key = (
            info.user_agent,
            info.verb,
            info.resource,
            info.subresource,
            code,
        );
        *lock(&self.counters).entry(key).or_default() += 1;
    }

    /// Returns the numbers of requests so far, sorted by client, verb and resource.
    pub fn requests(&self) -> Vec<Count> {
        lock(&self.counters)
            .iter()
            .map(
                |((user_agent, verb, resource, subresource, code), number)| Count {
                    user_agent: user_agent.clone(),
                    verb: verb.clone(),
                    resource: resource.clone(),
                    subresource: subresource.clone(),
                    code: *code,
                    number: *number,
                },
            )
            .collect()
    }

    /// Returns the fault rules, to which tests add faults.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Denies requests that match `rule` until the guard is dropped.
    ///
    /// A denied request gets a 403 with RBAC's message. Access reviews also report it as denied.
    pub fn deny(&self, rule: impl Fn(&RequestInfo) -> bool + Send + Sync + 'static) -> FaultGuard {
        self.server.access.deny(rule)
    }

    /// Breaks the connections of all open watches.
    pub fn disconnect_watches(&self) {
        lock(&self.server.store).disconnect_watches();
    }

    /// Drops all stored watch events. A watch or list that resumes from an earlier resourceVersion gets a 410.
    pub fn compact(&self) {
        lock(&self.server.store).compact();
    }

    /// Stops the server. Open connections break, and new ones are rejected until [`Cluster::start`].
    pub fn stop(&self) {
        self.running.send_replace(false);
        self.disconnect_watches();
    }

    /// Starts the server again. All stored objects are kept.
    pub fn start(&self) {
        self.running.send_replace(true);
    }

    /// Serves plain HTTP/1.1 until `shutdown` completes. Requests in progress then have a few seconds to finish.
    ///
    /// # Errors
    ///
    /// Fails if the listener breaks.
    pub async fn serve(
        &self,
        listener: tokio::net::TcpListener,
        shutdown: impl Future<Output = ()>,
    ) -> io::Result<()> {
        serve::serve(self.clone(), listener, shutdown).await
    }

    /// Returns a kubeconfig for clients of [`Cluster::serve`] at this address.
    pub fn kubeconfig(&self, address: SocketAddr) -> String {
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "sim", "cluster": { "server": format!("http://{address}") } }],
            "users": [{ "name": "sim", "user": {} }],
            "contexts": [{ "name": "sim", "context": { "cluster": "sim", "user": "sim" } }],
            "current-context": "sim",
        });
        // kubectl accepts JSON, because JSON is valid YAML.
        format!("{config:#}\n")
    }

    fn is_running(&self) -> bool {
        *self.running.borrow()
    }

    async fn stopped(&self) {
        // The wait can only fail if the sender is dropped, but the sender belongs to `self`.
        let _ = self.running.subscribe().wait_for(|running| !running).await;
    }
}

fn first_namespace(name: &str, uid: &str, options: &ClusterOptions) -> Value {
    let mut namespace = json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": name,
            "uid": uid,
            "creationTimestamp": write::seconds(options.clock.now()),
        },
        "status": { "phase": "Active" },
    });
    defaults::fill(Storage::Namespaces, &mut namespace);
    namespace
}

fn away() -> io::Error {
    io::Error::new(
        io::ErrorKind::ConnectionRefused,
        "the API server is unavailable",
    )
}

fn reset() -> io::Error {
    io::Error::new(
        io::ErrorKind::ConnectionReset,
        "the connection was interrupted",
    )
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
