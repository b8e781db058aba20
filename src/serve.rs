//! `/live`, `/ready` and `/metrics` over plain HTTP.
//!
//! ```text
//! metrics listener ──► permits (16) ──► /metrics, /live, /ready
//! probe listener ────► permits (64) ──► /live, /ready
//! ```
//!
//! `/ready?verbose` also lists the state of everything that readiness and writes depend on.
//!
//! The caller opens the listeners, so that it can report a port in use at start-up and log the number chosen for port 0. No
//! request changes anything, and responses contain only numbers and names of resources.
//!
//! A connection serves one request. It has a permit, and time limits for the request head, for progress and in total. A new
//! connection can revoke the permit of an old one, so clients that send nothing or never read don't block others. The probe
//! listener has its own permits, so many requests to `/metrics` don't delay probes.

mod connections;
mod page;
pub(crate) mod permits;

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_io_timeout::TimeoutStream;
use tracing::debug;

pub(crate) use self::connections::{Connections, Listener};
pub use self::page::MetricsPage;
use self::permits::{ConnectionPermit, ConnectionPermits, ConnectionState, PermitSignal};
use crate::shutdown::Shutdown;

/// Time limit for receiving a request head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time without progress while a response is sent.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum duration of a connection. It exceeds the scrape timeout of Prometheus (10 s), for responses of several megabytes.
const LIFETIME: Duration = Duration::from_secs(30);
/// Time limit for responses in progress at shutdown.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum size of a request head, in bytes.
const HEAD_LIMIT: usize = 16 << 10;
/// Maximum number of connections to the metrics listener. The kubelet and two Prometheus replicas need three.
const METRICS_CONNECTIONS: usize = 16;
/// Maximum number of connections to the probe listener. A response fits into the socket's buffer, so a connection costs only a
/// few kilobytes.
const PROBE_CONNECTIONS: usize = 64;
/// Content type of OpenMetrics text, for Prometheus.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Conditions that must be met before the program is ready, by name. Cheap to clone; all clones share the set.
#[derive(Clone, Debug, Default)]
pub struct ReadinessHandle(watch::Sender<BTreeSet<String>>);

impl ReadinessHandle {
    /// Delays readiness until [`ReadinessHandle::done`] is called with this name.
    pub fn wait_for(&self, name: &str) {
        self.0.send_modify(|pending| {
            pending.insert(name.to_owned());
        });
    }

    /// Records that the condition `name` is met. The program is ready when all conditions are met.
    pub fn done(&self, name: &str) {
        self.0.send_if_modified(|pending| pending.remove(name));
    }

    /// Returns true if nothing delays readiness.
    pub fn is_ready(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Waits until nothing delays readiness.
    pub async fn ready(&self) {
        let mut pending = self.0.subscribe();
        let _never_fails = pending.wait_for(BTreeSet::is_empty).await;
    }

    /// Returns the names that delay readiness as text; `None` when ready.
    fn awaited(&self) -> Option<String> {
        let pending = self.0.borrow();
        let names: Vec<&str> = pending.iter().map(String::as_str).collect();
        (!names.is_empty()).then(|| names.join(", "))
    }
}

/// Data from which requests are answered.
#[derive(Clone)]
pub struct ServeState {
    /// Readiness that `/ready` reports.
    pub readiness: ReadinessHandle,
    /// Page at `/metrics`; `None` on a listener for probes only.
    pub page: Option<MetricsPage>,
    /// Returns the checks that `/ready?verbose` lists.
    pub checks: Arc<dyn Fn() -> Vec<SelfCheck> + Send + Sync>,
}

/// Result of a check that the program makes of its own state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelfCheck {
    /// Subject of the check, such as `permissions`.
    pub name: &'static str,
    /// False if an operator should act.
    pub is_good: bool,
    /// Result for people, in one line.
    pub result: String,
}

impl ServeState {
    fn paths(&self) -> &'static [&'static str] {
        match self.page {
            Some(_) => &["/live", "/ready", "/metrics"],
            None => &["/live", "/ready"],
        }
    }

    fn connections(&self) -> usize {
        match self.page {
            Some(_) => METRICS_CONNECTIONS,
            None => PROBE_CONNECTIONS,
        }
    }
}

/// Listens on an address; `flag` is the flag that sets it.
///
/// # Errors
/// If the address cannot be used. The error names address and flag.
pub async fn bind(address: SocketAddr, flag: &str) -> Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address} ({flag})"))
}

/// Serves until shutdown is requested, then waits for responses in progress.
pub async fn run(listener: TcpListener, state: ServeState, mut shutdown: Shutdown) {
    let permits = ConnectionPermits::new(state.connections());
    let mut connections = Connections::on(listener);
    loop {
        let accepted = tokio::select! {
            accepted = connections.accept() => accepted,
            () = shutdown.requested() => break,
        };
        let Ok(stream) = accepted else {
            permits.revoke_one(); // accepting fails if file descriptors have run out, so free one
            continue;
        };
        let peer = stream.peer_addr().map(|peer| peer.ip());
        if let Some(permit) = permits.acquire(peer.ok()) {
            connections.spawn(serve_one(stream, state.clone(), permit));
        }
    }
    connections
        .end(CLOSE_TIMEOUT, async { permits.end() })
        .await;
}

/// Serves one connection until its request is answered, its time limit is reached or its permit is revoked.
async fn serve_one<IO>(io: IO, state: ServeState, mut permit: ConnectionPermit)
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let mut io = TimeoutStream::new(io);
    io.set_write_timeout(Some(WRITE_TIMEOUT));
    let progress = permit.state();
    let service = service_fn(|request: Request<Incoming>| {
        progress.send_replace(ConnectionState::Idle);
        let answer = answer(&state, request.method(), request.uri());
        std::future::ready(Ok::<_, Infallible>(answer))
    });
    // Serve one request per connection, so that each connection keeps at most one unsent response in memory.
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(false)
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_LIMIT)
        .serve_connection(TokioIo::new(Box::pin(io)), service);
    let mut connection = pin!(connection);
    let mut is_ending = false;
    let serving = async {
        loop {
            tokio::select! {
                // Poll the connection before the permit, so that a request that has arrived is answered even if the permit is
                // revoked.
                biased;
                ended = connection.as_mut() => return ended,
                signal = permit.signalled(), if !is_ending => match signal {
                    PermitSignal::End => {
                        is_ending = true;
                        connection.as_mut().graceful_shutdown();
                    }
                    PermitSignal::Leave | PermitSignal::Stay => return Ok(()),
                },
            }
        }
    };
    if let Ok(Err(error)) = tokio::time::timeout(LIFETIME, serving).await {
        debug!(%error, "A connection ended early");
    }
}

/// Returns the response to a request.
fn answer(state: &ServeState, method: &Method, uri: &Uri) -> Response<Full<Bytes>> {
    let path = uri.path();
    let paths = state.paths();
    if !paths.contains(&path) {
        let paths = paths.join(", ");
        let body = format!("unknown path {path}; available: {paths}\n");
        return text(StatusCode::NOT_FOUND, body);
    }
    if ![Method::GET, Method::HEAD].contains(method) {
        let body = format!("{path} supports GET and HEAD, not {method}\n");
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, body);
        let allow = HeaderValue::from_static("GET, HEAD");
        response.headers_mut().insert(ALLOW, allow);
        return response;
    }
    match (path, &state.page) {
        ("/metrics", Some(page)) => respond(StatusCode::OK, OPENMETRICS, page.bytes()),
        ("/ready", _) => ready(state, is_verbose(uri)),
        // /live needs no check: all work runs on one thread, so a controller that hangs doesn't respond.
        _ => text(StatusCode::OK, "live\n".to_owned()),
    }
}

/// Returns true if the query contains `verbose`, as in the probes of Kubernetes' own components.
fn is_verbose(uri: &Uri) -> bool {
    let parameters = uri.query().unwrap_or_default().split('&');
    let mut keys = parameters.filter_map(|parameter| parameter.split('=').next());
    keys.any(|key| key == "verbose")
}

fn ready(state: &ServeState, is_verbose: bool) -> Response<Full<Bytes>> {
    let (status, verdict) = match state.readiness.awaited() {
        Some(names) => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("waiting for {names}\n"),
        ),
        None => (StatusCode::OK, "ready\n".to_owned()),
    };
    let mut body = String::new();
    if is_verbose {
        for check in (state.checks)() {
            let sign = if check.is_good { '+' } else { '-' };
            // Writing to a string never fails.
            let _infallible = writeln!(body, "[{sign}] {}: {}", check.name, check.result);
        }
    }
    body.push_str(&verdict);
    text(status, body)
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    respond(status, "text/plain; charset=utf-8", body.into())
}

fn respond(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::BUSY;
    use crate::shutdown;
    use std::io::{Read as _, Write as _};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    fn state() -> ServeState {
        ServeState {
            readiness: ReadinessHandle::default(),
            page: Some(MetricsPage::new(|| "# EOF\n".to_owned())),
            checks: Arc::new(|| {
                let check = |name, is_good| SelfCheck {
                    name,
                    is_good,
                    result: "as told".to_owned(),
                };
                vec![check("leader", true), check("permissions", false)]
            }),
        }
    }

    fn status(state: &ServeState, method: &Method, path: &str) -> u16 {
        answer(state, method, &path.parse().unwrap_or_default())
            .status()
            .as_u16()
    }

    #[test]
    fn each_path_accepts_only_get_and_head() {
        let state = state();
        for path in ["/live", "/ready", "/metrics"] {
            assert_eq!(status(&state, &Method::GET, path), 200);
            assert_eq!(status(&state, &Method::HEAD, path), 200);
            assert_eq!(status(&state, &Method::POST, path), 405);
        }
        for path in ["/", "", "/metrics/", "/live/..", "//live", "*"] {
            assert_eq!(status(&state, &Method::GET, path), 404, "{path}");
        }
    }

    #[test]
    fn readiness_names_the_pending_resources() {
        let state = state();
        state.readiness.wait_for("nodes");
        state.readiness.wait_for("pods");
        assert_eq!(state.readiness.awaited().as_deref(), Some("nodes, pods"));
        assert_eq!(status(&state, &Method::GET, "/ready"), 503);
        assert_eq!(status(&state, &Method::GET, "/live"), 200);
        state.readiness.done("nodes");
        state.readiness.done("pods");
        assert!(state.readiness.is_ready());
        assert_eq!(status(&state, &Method::GET, "/ready"), 200);
    }

    #[tokio::test]
    async fn the_verbose_form_of_ready_lists_the_checks_before_the_verdict() {
        use http_body_util::BodyExt as _;
        let state = state();
        state.readiness.wait_for("nodes");
        let checks = "[+] leader: as told\n[-] permissions: as told\n";
        for (query, checks) in [("", ""), ("?verbose", checks), ("?x&verbose=true", checks)] {
            let uri = format!("/ready{query}").parse().unwrap();
            let response = answer(&state, &Method::GET, &uri);
            assert_eq!(response.status(), 503, "{query}");
            let body = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body, format!("{checks}waiting for nodes\n"), "{query}");
        }
    }

    /// Sends `bytes` and returns everything received.
    async fn talk(address: SocketAddr, bytes: &[u8]) -> String {
        let bytes = bytes.to_owned();
        let talked = tokio::task::spawn_blocking(move || {
            let mut stream = std::net::TcpStream::connect(address).unwrap();
            let limit = HEAD_TIMEOUT + Duration::from_secs(1) * BUSY;
            stream.set_read_timeout(Some(limit)).unwrap();
            stream.write_all(&bytes).unwrap();
            let mut answer = Vec::new();
            if let Err(error) = stream.read_to_end(&mut answer) {
                let reset = std::io::ErrorKind::ConnectionReset;
                assert_eq!(error.kind(), reset, "{error}");
            }
            String::from_utf8_lossy(&answer).into_owned()
        });
        talked.await.unwrap()
    }

    #[tokio::test]
    async fn odd_requests_are_answered_or_disconnected_and_the_next_one_is_served() {
        let listener = bind("127.0.0.1:0".parse().unwrap(), "--listen")
            .await
            .unwrap();
        let address = listener.local_addr().unwrap();
        let (trigger, ended) = shutdown::channel();
        let server = tokio::spawn(run(listener, state(), ended));
        let long = format!(
            "GET /{} HTTP/1.1\r\nconnection: close\r\n\r\n",
            "x".repeat(9000)
        );
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(300));
        for odd in [
            "\r\n\r\n\r\n",
            "GET\r\n\r\n",
            "GET /live HTTP/9.9\r\n\r\n",
            "GET /live HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
            "GET /../../etc/passwd HTTP/1.1\r\nconnection: close\r\n\r\n",
            "GET http://[::1/ HTTP/1.1\r\n\r\n",
            "\u{0}\u{1}\u{2}\u{16}\u{3}\u{1}\r\n\r\n",
            long.as_str(),
            many.as_str(),
        ] {
            let answer = talk(address, odd.as_bytes()).await;
            assert!(!answer.starts_with("HTTP/1.1 2"), "{odd:.40} got {answer}");
        }
        let good = b"GET /metrics HTTP/1.1\r\nconnection: close\r\n\r\n";
        let answer = talk(address, good).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.ends_with("# EOF\n"), "{answer}");
        trigger.request();
        server.await.unwrap();
        assert!(TcpStream::connect(address).await.is_err());
    }
    /// Metrics and probe listeners like those of the controller. The metrics page is larger than any socket buffer.
    struct Doors {
        metrics: SocketAddr,
        probes: SocketAddr,
        _end: shutdown::Trigger,
    }

    const PAGE: usize = 16 << 20;

    async fn open() -> Doors {
        let (end, ending) = shutdown::channel();
        let mut addresses = Vec::new();
        for page in [Some(MetricsPage::new(|| "x".repeat(PAGE))), None] {
            let listener = bind("127.0.0.1:0".parse().unwrap(), "--listen").await;
            let listener = listener.unwrap();
            addresses.push(listener.local_addr().unwrap());
            let state = ServeState { page, ..state() };
            tokio::spawn(run(listener, state, ending.clone()));
        }
        Doors {
            metrics: addresses[0],
            probes: addresses[1],
            _end: end,
        }
    }

    /// Opens connections that request `path` many times and never read a response.
    async fn flood(address: SocketAddr, path: &str, connections: usize) -> Vec<TcpStream> {
        let requests = format!("GET {path} HTTP/1.1\r\n\r\n").repeat(100);
        let mut flood = Vec::new();
        for _ in 0..connections {
            let stream = TcpStream::connect(address).await.unwrap();
            let _what_fits = stream.try_write(requests.as_bytes());
            flood.push(stream);
        }
        flood
    }

    async fn gets(address: SocketAddr, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\n\r\n");
        talk(address, request.as_bytes()).await
    }

    async fn probes_succeed(doors: &Doors) {
        for address in [doors.probes, doors.metrics] {
            for (path, word) in [("/live", "live\n"), ("/ready", "ready\n")] {
                let answer = gets(address, path).await;
                assert!(answer.ends_with(word), "{path}: {answer:?}");
            }
        }
    }

    #[tokio::test]
    async fn slow_metrics_readers_fail_no_probe_and_no_scrape() {
        let doors = open().await;
        let mut floods = Vec::new();
        for _ in 0..4 {
            floods.push(flood(doors.metrics, "/metrics", 2 * METRICS_CONNECTIONS).await);
            probes_succeed(&doors).await;
        }
        let answer = gets(doors.metrics, "/metrics").await;
        assert!(answer.len() > PAGE, "{} bytes", answer.len());
        assert!(
            gets(doors.probes, "/metrics")
                .await
                .starts_with("HTTP/1.1 404 ")
        );
    }

    #[tokio::test]
    async fn many_connections_to_the_probe_port_fail_no_probe() {
        let doors = open().await;
        let mut floods = Vec::new();
        for path in ["/live", "/ready", "/metrics"] {
            floods.push(flood(doors.probes, path, 2 * PROBE_CONNECTIONS).await);
            for _silent in 0..2 * PROBE_CONNECTIONS {
                floods.push(vec![TcpStream::connect(doors.probes).await.unwrap()]);
            }
            probes_succeed(&doors).await;
        }
    }

    /// Returns the time after which the server closes a connection whose client reads `bytes` bytes per second.
    async fn ends_after(bytes: usize) -> Duration {
        let (mut near, far) = tokio::io::duplex(64);
        let permit = ConnectionPermits::new(1).acquire(None).unwrap();
        let page = Some(MetricsPage::new(|| "x".repeat(PAGE)));
        let served = tokio::spawn(serve_one(far, ServeState { page, ..state() }, permit));
        let request = b"GET /metrics HTTP/1.1\r\n\r\n";
        near.write_all(request).await.unwrap();
        let began = tokio::time::Instant::now();
        let mut some = vec![0; bytes];
        while !served.is_finished() {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if bytes > 0 {
                let _read = near.read(&mut some).await;
            }
        }
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_stalled_or_slow_reader_is_disconnected() {
        let second = Duration::from_secs(1);
        let stands = ends_after(0).await;
        assert!(stands <= WRITE_TIMEOUT + second, "{stands:?}");
        let trickles = ends_after(1).await;
        assert!(trickles > WRITE_TIMEOUT + second, "{trickles:?}");
        assert!(trickles <= LIFETIME + second, "{trickles:?}");
    }
}
