//! `/live`, `/ready` and `/metrics` over plain HTTP.
//!
//! The listener comes from outside, so that a port that is taken fails at start-up and port 0 can be logged. Nothing
//! served here changes anything or says more than numbers and names of resources.

mod connections;

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::debug;

pub(crate) use self::connections::Connections;
use crate::shutdown::Shutdown;

/// Who is slower than this to send a request's head is hung up on; also the longest that an idle connection stays.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long answers in flight may take when the process ends.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Connections at once: kubelet and two Prometheus replicas need three; others wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 32;
/// What Prometheus wants to hear (OpenMetrics text).
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Everything that is served.
const PATHS: &str = "/live, /ready and /metrics";

/// What has to happen before `/ready` says yes. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct ReadinessHandle(Arc<Mutex<BTreeSet<String>>>);

impl ReadinessHandle {
    /// Not ready before [`ReadinessHandle::done`] is told the same name.
    pub fn wait_for(&self, name: &str) {
        self.pending().insert(name.to_owned());
    }

    /// That one is there.
    pub fn done(&self, name: &str) {
        self.pending().remove(name);
    }

    /// Whether nothing is awaited any more.
    pub fn is_ready(&self) -> bool {
        self.pending().is_empty()
    }

    fn pending(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is awaited, for a person; `None` when ready.
    fn awaited(&self) -> Option<String> {
        let pending = self.pending();
        let names: Vec<&str> = pending.iter().map(String::as_str).collect();
        (!names.is_empty()).then(|| names.join(", "))
    }
}

/// What the server tells.
#[derive(Clone)]
pub struct ServeState {
    /// For `/ready`.
    pub readiness: ReadinessHandle,
    /// Renders the page at `/metrics`.
    pub metrics: Arc<dyn Fn() -> String + Send + Sync>,
}

/// Takes the port.
///
/// # Errors
/// Names the address when it cannot be listened on.
pub async fn bind(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address} (--listen)"))
}

/// Serves until the end is asked for, then lets answers in flight finish.
pub async fn run(listener: TcpListener, state: ServeState, mut shutdown: Shutdown) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let graceful = GracefulShutdown::new();
    let mut connections = Connections::on(listener);
    loop {
        let accepted = tokio::select! {
            accepted = accept(&mut connections, &slots) => accepted,
            () = shutdown.requested() => break,
        };
        let Some((stream, slot)) = accepted else {
            continue;
        };
        let state = state.clone();
        let service = service_fn(move |request| answer_one(state.clone(), request));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .serve_connection(TokioIo::new(stream), service);
        let connection = graceful.watch(connection);
        connections.spawn(async move {
            if let Err(error) = connection.await {
                debug!(%error, "Connection ended early");
            }
            drop(slot);
        });
    }
    connections.end(CLOSE_TIMEOUT, graceful.shutdown()).await;
}

/// The next connection, when there is a slot for it.
async fn accept(
    connections: &mut Connections,
    slots: &Arc<Semaphore>,
) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let slot = slots.clone().acquire_owned().await.ok()?;
    let stream = connections.accept().await.ok()?;
    Some((stream, slot))
}

async fn answer_one(
    state: ServeState,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(answer(&state, request.method(), request.uri().path()))
}

/// The whole interface: pure but for the page of metrics.
fn answer(state: &ServeState, method: &Method, path: &str) -> Response<Full<Bytes>> {
    if !["/live", "/ready", "/metrics"].contains(&path) {
        let body = format!("nothing is served at {path}; there are {PATHS}\n");
        return text(StatusCode::NOT_FOUND, body);
    }
    if ![Method::GET, Method::HEAD].contains(method) {
        let body = format!("{path} answers GET and HEAD, not {method}\n");
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, body);
        let allow = HeaderValue::from_static("GET, HEAD");
        response.headers_mut().insert(ALLOW, allow);
        return response;
    }
    match path {
        "/metrics" => respond(StatusCode::OK, OPENMETRICS, (state.metrics)()),
        "/ready" => match state.readiness.awaited() {
            Some(names) => text(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("waiting for {names}\n"),
            ),
            None => text(StatusCode::OK, "ready\n".to_owned()),
        },
        // One thread does all the work: if it hangs, this is not answered either.
        _ => text(StatusCode::OK, "live\n".to_owned()),
    }
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    respond(status, "text/plain; charset=utf-8", body)
}

fn respond(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
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

    fn state() -> ServeState {
        ServeState {
            readiness: ReadinessHandle::default(),
            metrics: Arc::new(|| "# EOF\n".to_owned()),
        }
    }

    fn status(state: &ServeState, method: &Method, path: &str) -> u16 {
        answer(state, method, path).status().as_u16()
    }

    #[test]
    fn each_path_answers_get_and_head_and_nothing_else() {
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
    fn readiness_names_what_is_awaited() {
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

    /// Sends those bytes and returns all that comes back.
    async fn talk(address: SocketAddr, bytes: &[u8]) -> String {
        let bytes = bytes.to_owned();
        let talked = tokio::task::spawn_blocking(move || {
            let mut stream = std::net::TcpStream::connect(address).unwrap();
            let limit = HEADER_TIMEOUT + Duration::from_secs(1) * BUSY;
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
    async fn odd_requests_get_an_answer_or_are_hung_up_on_and_the_next_one_is_served() {
        let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
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
}
