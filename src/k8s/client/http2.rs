//! Connections of the controller: HTTP/2 if the API server supports it.
//!
//! ```text
//! calls   (lists, writes, the Lease)      one connection
//! cluster (watches of Nodes, DaemonSets)  one connection
//! groups  (watches of pods, revisions)    16 watches per connection, 16 connections; more watches are spread evenly over them
//! ```
//!
//! `kube` supports only HTTP/1.1, where each concurrent request needs its own connection and TLS handshake. With HTTP/2, many
//! concurrent deletions share one connection. Watches never use the connection of writes and Lease renewals: unread watch events
//! can fill the flow-control window of a connection and so block it.
//!
//! API servers and proxies limit the number of streams per connection. A request above the limit waits without an error. The
//! watches of many DaemonSets' pods must not block the watch of Nodes, so the watches of Nodes and DaemonSets have their own
//! connection. A watch that waits for its response is counted and logged.
//!
//! Pings detect dead connections. On the connection for calls, they do so within the deadline of a write. A connection is opened
//! when its first request is sent.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Builder, Client as HttpClient, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ConfigExt as _};
use kube::{Client, Config};
use prometheus_client::metrics::gauge::Gauge;
use tower::ServiceBuilder;
use tracing::warn;

/// Ping settings of a connection.
#[derive(Clone, Copy)]
struct Ping {
    /// Time without data after which a ping is sent.
    interval: Duration,
    /// Time limit for the response to a ping.
    timeout: Duration,
}

/// Ping settings of the connection for calls. Interval plus timeout is shorter than [`WRITE_DEADLINE`](super::WRITE_DEADLINE).
const PING: Ping = Ping {
    interval: Duration::from_millis(1500),
    timeout: Duration::from_secs(2),
};
/// Ping settings of connections for watches, which may receive no data for a long time.
const WATCH_PING: Ping = Ping {
    interval: Duration::from_secs(30),
    timeout: Duration::from_secs(15),
};
/// Receive windows of a stream and of a connection, in bytes. They limit the memory for data that was received and not read yet.
///
/// With windows of a quarter of this size, a streaming list of 50,000 pods takes twice as long, because the thread sleeps between
/// reads (see [`WakeupBatching`](crate::controller::WakeupBatching)).
const WINDOWS: (u32, u32) = (1 << 20, 2 << 20);

/// Maximum number of watches of groups per connection. A group is one or more DaemonSets that share a watch of pods and a watch of
/// ControllerRevisions.
///
/// Most servers and proxies allow 100 streams or more (kube-apiserver, HAProxy: 100; nginx, AWS: 128). Hardened installations may
/// allow fewer.
const GROUP_STREAMS: usize = 16;
/// Maximum number of connections for watches of groups. With [`GROUP_STREAMS`] watches each, they are enough for 128 groups. With
/// 100 watches each, they are enough for 800.
const GROUP_CONNECTIONS: usize = 16;
/// Time after which a watch without a response counts as waiting. An API server normally responds as soon as it accepts the watch.
const LATE: Duration = Duration::from_secs(5);

type Connector = TimeoutConnector<HttpsConnector<HttpConnector>>;
type Http = HttpClient<Connector, Body>;

/// Creates a client for the API server of `config` without sending a request. The gauge `waiting` counts watches without a
/// response.
///
/// Lists are not compressed: the controller usually runs near the API server, where compression costs more time than the smaller
/// transfer saves.
///
/// # Errors
/// Returns an error if the certificates or headers of `config` cannot be used.
pub(super) fn client(config: &Config, waiting: Gauge) -> Result<Client> {
    let connections = Connections::new(
        connector(config)?,
        [builder(PING), builder(WATCH_PING)],
        waiting,
    );
    let connections = Arc::new(connections);
    let send = move |request| connections.clone().send(request);
    let stack = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(tower::BoxError::from)
        .service(tower::service_fn(send));
    Ok(Client::new(stack, config.default_namespace.clone()))
}

struct Connections {
    connector: Connector,
    calls: Http,
    /// Connection for watches of resources in the whole cluster.
    cluster: WatchConnection,
    /// Connections for watches of groups (pods and revisions). They are opened when needed.
    groups: Mutex<Vec<WatchConnection>>,
    watches: Builder,
    waiting: Gauge,
    late: Duration,
}

/// A connection for watches. If the server closes the connection, a new one replaces it while the old one is still closing.
#[derive(Clone)]
struct WatchConnection {
    http: Http,
    /// Number of requested or open watches.
    open: Arc<AtomicUsize>,
    /// Number of watches that have waited too long for a response.
    late: Arc<AtomicUsize>,
}

/// Counts one watch in a counter until this value is dropped.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts one waiting watch in the client's gauge until this value is dropped.
struct Waiting<'a>(&'a Gauge);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Calls,
    Cluster,
    Groups,
}

impl Place {
    fn from_request(request: &Request<Body>) -> Self {
        let mut asked = request.uri().query().unwrap_or_default().split('&');
        if !asked.any(|parameter| ["watch=true", "watch=1"].contains(&parameter)) {
            return Self::Calls;
        }
        match request.uri().path().rsplit('/').next() {
            Some("nodes" | "daemonsets") => Self::Cluster,
            _ => Self::Groups,
        }
    }
}

impl Connections {
    fn new(connector: Connector, [calls, watches]: [Builder; 2], waiting: Gauge) -> Self {
        Self {
            calls: calls.build(connector.clone()),
            cluster: WatchConnection::new(watches.build(connector.clone())),
            groups: Mutex::default(),
            connector,
            watches,
            waiting,
            late: LATE,
        }
    }

    async fn send(
        self: Arc<Self>,
        request: Request<Body>,
    ) -> Result<Response<impl hyper::body::Body<Data = Bytes, Error = hyper::Error>>, Error> {
        let (connection, watch) = match Place::from_request(&request) {
            Place::Calls => {
                let response = self.calls.request(request).await?;
                return Ok(response.map(|body| holding(body, None)));
            }
            Place::Cluster => self.cluster.begin(),
            Place::Groups => self.group(),
        };
        let path = request.uri().path().to_owned();
        let mut answer = connection.http.request(request);
        let response = match tokio::time::timeout(self.late, &mut answer).await {
            Ok(response) => response?,
            Err(_) => {
                let _late = Counted::new(&connection.late);
                if self.waiting.inc() == 0 {
                    warn!(
                        path,
                        seconds = self.late.as_secs(),
                        "The API server does not respond to a watch. The API server or a proxy may limit the streams per \
                         connection (--http2-max-streams-per-connection). The gauge yurt_ds_watch_streams_waiting counts such \
                         watches"
                    );
                }
                let _waiting = Waiting(&self.waiting);
                answer.await?
            }
        };
        Ok(response.map(|body| holding(body, Some(watch))))
    }

    /// Chooses the connection for a watch of a group: the first one with room, or a new one, or the one with the fewest watches.
    fn group(&self) -> (WatchConnection, Counted) {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let chosen = match groups.iter().find(|connection| connection.has_room()) {
            Some(chosen) => chosen,
            None if groups.len() < GROUP_CONNECTIONS => {
                let http = self.watches.build(self.connector.clone());
                groups.push(WatchConnection::new(http));
                &groups[groups.len() - 1]
            }
            None => {
                let least = groups.iter().min_by_key(|connection| connection.load());
                least.unwrap_or(&self.cluster) // never empty: there are GROUP_CONNECTIONS connections
            }
        };
        chosen.begin()
    }
}

impl WatchConnection {
    fn new(http: Http) -> Self {
        Self {
            http,
            open: Arc::default(),
            late: Arc::default(),
        }
    }

    fn begin(&self) -> (Self, Counted) {
        (self.clone(), Counted::new(&self.open))
    }

    /// Returns the number of watches that wait for a response, and the number of all watches.
    fn load(&self) -> (usize, usize) {
        let now = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        (now(&self.late), now(&self.open))
    }

    /// Returns true if another watch may use the connection. A connection on which a watch waits counts as full.
    fn has_room(&self) -> bool {
        let (late, open) = self.load();
        late == 0 && open < GROUP_STREAMS
    }
}

/// Returns the body of a response. A watch counts as open until its body is dropped.
fn holding(
    body: Incoming,
    watch: Option<Counted>,
) -> impl hyper::body::Body<Data = Bytes, Error = hyper::Error> {
    body.map_frame(move |frame| {
        let _held = &watch;
        frame
    })
}

fn builder(ping: Ping) -> Builder {
    let (window, connection_window) = WINDOWS;
    let mut builder = HttpClient::builder(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_keep_alive_interval(ping.interval)
        .http2_keep_alive_timeout(ping.timeout)
        // Begin with one stream, until the server announces its limit. Streams above the limit would be rejected.
        .http2_initial_max_send_streams(1)
        .http2_initial_stream_window_size(window)
        .http2_initial_connection_window_size(connection_window);
    builder
}

fn connector(config: &Config) -> Result<Connector> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    let tls = config.rustls_client_config()?;
    let mut https = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name = name
            .clone()
            .try_into()
            .with_context(|| format!("tls-server-name {name:?}"))?;
        https = https.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    let mut connector = TimeoutConnector::new(https.enable_all_versions().wrap_connector(tcp));
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    Ok(connector)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_is_assigned_to_its_connection() {
        for (uri, expected) in [
            ("/api/v1/nodes?watch=true&resourceVersion=5", Place::Cluster),
            ("/apis/apps/v1/daemonsets?watch=true", Place::Cluster),
            (
                "/apis/apps.kruise.io/v1beta1/daemonsets?&watch=true",
                Place::Cluster,
            ),
            ("/api/v1/pods?watch=true&resourceVersion=5", Place::Groups),
            ("/api/v1/pods?labelSelector=app%3Da&watch=1", Place::Groups),
            (
                "/apis/apps/v1/namespaces/n/controllerrevisions?watch=true",
                Place::Groups,
            ),
            ("/api/v1/nodes", Place::Calls),
            ("/api/v1/pods?labelSelector=watch%3Dtrue", Place::Calls),
            ("/api/v1/pods?watch=false", Place::Calls),
            ("/api/v1/namespaces/n/pods/watch", Place::Calls),
        ] {
            let request = Request::get(uri).body(Body::empty()).unwrap();
            assert_eq!(Place::from_request(&request), expected, "{uri}");
        }
    }

    /// An API server that responds to watches at once and ends them only on request.
    struct Server {
        address: std::net::SocketAddr,
        /// Open watches: path, and number of the connection.
        open: Arc<Mutex<Vec<(String, usize)>>>,
        /// Sending a message ends all open watches.
        end: tokio::sync::watch::Sender<()>,
        accepted: Arc<AtomicUsize>,
    }

    /// Starts a server that allows `streams` streams per connection.
    async fn serve(streams: u32) -> Server {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Server {
            address: listener.local_addr().unwrap(),
            open: Arc::default(),
            end: tokio::sync::watch::Sender::default(),
            accepted: Arc::default(),
        };
        let (open, accepted, end) = (
            server.open.clone(),
            server.accepted.clone(),
            server.end.clone(),
        );
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (open, end) = (open.clone(), end.clone());
                let number = accepted.fetch_add(1, Ordering::Relaxed);
                let service = hyper::service::service_fn(move |request: Request<Incoming>| {
                    let mut opened = open.lock().unwrap();
                    opened.push((request.uri().path().to_owned(), number));
                    let mut end = end.subscribe();
                    let (sender, body) = http_body_util::channel::Channel::<Bytes>::new(1);
                    tokio::spawn(async move {
                        let _ended = end.changed().await;
                        drop(sender);
                    });
                    std::future::ready(Ok::<_, std::convert::Infallible>(Response::new(body)))
                });
                let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .max_concurrent_streams(streams)
                    .serve_connection(hyper_util::rt::TokioIo::new(stream), service);
                tokio::spawn(connection);
            }
        });
        server
    }

    impl Server {
        /// Returns HTTP/2 connections without TLS to this server.
        fn connections(&self, late: Duration) -> Arc<Connections> {
            let mut config = Config::new(format!("http://{}", self.address).parse().unwrap());
            config.root_cert = Some(Vec::new());
            let builders = [PING, WATCH_PING].map(|ping| {
                let mut builder = builder(ping);
                builder.http2_only(true);
                builder
            });
            let connections =
                Connections::new(connector(&config).unwrap(), builders, Gauge::default());
            Arc::new(Connections {
                late,
                ..connections
            })
        }

        fn request(&self, path: &str) -> Request<Body> {
            let uri = format!("http://{}{path}", self.address);
            Request::get(uri).body(Body::empty()).unwrap()
        }

        fn opened(&self) -> usize {
            self.open.lock().unwrap().len()
        }
    }

    /// Begins a watch and reads its events to the end.
    fn watch(connections: &Arc<Connections>, server: &Server, path: &str) {
        let sent = connections.clone().send(server.request(path));
        tokio::spawn(async move {
            let response = sent.await.unwrap();
            let _all = response.into_body().collect().await;
        });
    }

    fn watch_groups(connections: &Arc<Connections>, server: &Server, count: usize) {
        for number in 0..count {
            let path = format!("/api/v1/namespaces/n/pods?watch=true&labelSelector=key-{number}");
            watch(connections, server, &path);
        }
    }

    async fn until(what: &str, holds: impl Fn() -> bool) {
        for _ in 0..600 * crate::machine::BUSY {
            if holds() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("not within the time: {what}");
    }

    const NODES: &str = "/api/v1/nodes?watch=true";

    #[tokio::test]
    async fn a_small_fleet_has_three_connections_and_a_large_one_as_many_as_it_needs() {
        let server = serve(20).await;
        let connections = server.connections(LATE);
        assert_eq!(server.accepted.load(Ordering::Relaxed), 0);
        watch(&connections, &server, NODES);
        watch(&connections, &server, "/apis/apps/v1/daemonsets?watch=true");
        watch_groups(&connections, &server, 2);
        let _version = connections.clone().send(server.request("/version")).await;
        until("five requests", || server.opened() == 5).await;
        assert_eq!(server.accepted.load(Ordering::Relaxed), 3);
        watch_groups(&connections, &server, 118);
        until("all of them", || server.opened() == 123).await;
        assert_eq!(
            server.accepted.load(Ordering::Relaxed),
            2 + 120_usize.div_ceil(GROUP_STREAMS)
        );
        assert_eq!(connections.waiting.get(), 0);
        server.end.send_replace(());
        until("none is open", || {
            let groups = connections.groups.lock().unwrap();
            groups.iter().all(|connection| connection.load() == (0, 0))
        })
        .await;
    }

    #[tokio::test]
    async fn watches_of_nodes_are_served_while_group_watches_wait_for_streams() {
        let server = serve(4).await;
        let connections = server.connections(Duration::from_secs(1));
        let groups = GROUP_CONNECTIONS * GROUP_STREAMS + 10;
        let served = GROUP_CONNECTIONS * 4;
        watch_groups(&connections, &server, groups);
        until("as many as the server takes", || server.opened() == served).await;
        until("the others wait", || {
            usize::try_from(connections.waiting.get()) == Ok(groups - served)
        })
        .await;
        // The connections for groups are full, but the watch of Nodes has its own connection and gets a response at once.
        let nodes = connections.clone().send(server.request(NODES));
        let answer =
            tokio::time::timeout(Duration::from_secs(5) * crate::machine::BUSY, nodes).await;
        assert!(answer.is_ok_and(|answer| answer.is_ok()));
        assert_eq!(server.opened(), served + 1);
        assert_eq!(
            server.accepted.load(Ordering::Relaxed),
            GROUP_CONNECTIONS + 1
        );
        // Each watch that ends frees a stream for a waiting one.
        for round in 2.. {
            server.end.send_replace(());
            let expected = (served * round).min(groups) + 1;
            until("the next ones", || server.opened() == expected).await;
            if expected == groups + 1 {
                break;
            }
        }
        until("none waits", || connections.waiting.get() == 0).await;
    }

    /// The server allows fewer streams than the client assumes. A connection on which watches wait gets no further watches.
    #[tokio::test]
    async fn a_connection_with_waiting_watches_is_full() {
        let server = serve(4).await;
        let connections = server.connections(Duration::from_secs(1));
        watch_groups(&connections, &server, 6);
        until("two wait", || connections.waiting.get() == 2).await;
        watch_groups(&connections, &server, 3);
        until("three more", || server.opened() >= 7).await;
        assert_eq!(server.opened(), 7);
        assert_eq!(server.accepted.load(Ordering::Relaxed), 2);
    }

    /// A dead connection must be detected before the deadline of a write, so that the next write gets a new connection.
    #[test]
    fn a_dead_connection_is_detected_before_the_write_deadline() {
        assert!(PING.interval + PING.timeout < super::super::WRITE_DEADLINE);
    }
}
