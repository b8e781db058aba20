//! Clients of the node agents: a small HTTP client that works over any stream.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::link::Link;
use super::machine::BUSY;

/// `Host` header with the port of the specification. Agents accept it even when a test lets them listen elsewhere.
pub(crate) const HOST: &str = "127.0.0.1:10267";

/// Longest time that an answer may take. Agents answer faster; the margin is for busy machines.
const DEADLINE: Duration = Duration::from_secs(10 * BUSY as u64);

/// Connection to an agent.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

type Connect =
    Arc<dyn Fn() -> BoxFuture<'static, io::Result<Box<dyn Stream>>> + Send + Sync + 'static>;

/// Settings of an agent.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// Name of its node.
    pub(crate) node: String,
    /// Directory of its state.
    pub(crate) home: PathBuf,
    /// Directory of static pod manifests.
    pub(crate) manifests: PathBuf,
    /// Link to the API server.
    pub(crate) link: Link,
}

/// Running agent. It is killed when its last clone is dropped.
#[derive(Clone)]
pub(crate) struct Agent {
    /// Address that it listens on. `None` if it has no TCP socket.
    pub(crate) address: Option<SocketAddr>,
    connect: Connect,
    log: Arc<dyn Fn() -> String + Send + Sync>,
    _life: Arc<dyn Send + Sync>,
}

/// Answer of an agent.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// Status code.
    pub(crate) status: StatusCode,
    /// Headers.
    pub(crate) headers: HeaderMap,
    /// Body.
    pub(crate) body: Bytes,
}

impl Agent {
    /// Returns an agent that lives as long as `life`.
    pub(crate) fn new<F>(
        life: impl Send + Sync + 'static,
        log: impl Fn() -> String + Send + Sync + 'static,
        connect: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = io::Result<Box<dyn Stream>>> + Send + 'static,
    {
        Self {
            address: None,
            connect: Arc::new(move || Box::pin(connect())),
            log: Arc::new(log),
            _life: Arc::new(life),
        }
    }

    /// Returns an agent that listens on this address and lives as long as `life`.
    pub(crate) fn at(
        address: SocketAddr,
        life: impl Send + Sync + 'static,
        log: impl Fn() -> String + Send + Sync + 'static,
    ) -> Self {
        let connect = move || async move {
            let stream = TcpStream::connect(address).await?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        };
        Self {
            address: Some(address),
            ..Self::new(life, log, connect)
        }
    }

    /// Returns an agent that listens on this Unix socket and lives as long as `life`.
    pub(crate) fn at_socket(path: PathBuf, life: impl Send + Sync + 'static) -> Self {
        let connect = move || {
            let path = path.clone();
            async move {
                let stream = UnixStream::connect(path).await?;
                Ok(Box::new(stream) as Box<dyn Stream>)
            }
        };
        Self::new(life, String::new, connect)
    }

    /// Returns the end of its log. Empty if it has no log.
    pub(crate) fn log(&self) -> String {
        (self.log)()
    }

    /// Sends a request on a new connection.
    ///
    /// # Errors
    /// If there is no answer.
    pub(crate) async fn call(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> anyhow::Result<Answer> {
        let mut request = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| *name == "host") {
            request = request.header(http::header::HOST, HOST);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Empty::<Bytes>::new())?;
        let what = || format!("{method} {path}");
        match tokio::time::timeout(DEADLINE, self.send(request)).await {
            Ok(answer) => answer.with_context(what),
            Err(_) => bail!("{}: no answer within {DEADLINE:?}", what()),
        }
    }

    async fn send(&self, request: Request<Empty<Bytes>>) -> anyhow::Result<Answer> {
        let stream = (self.connect)().await.context("connect to the agent")?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let answer = async {
            let answer = sender.send_request(request).await?;
            let (head, body) = answer.into_parts();
            let body = body.collect().await?.to_bytes();
            anyhow::Ok(Answer {
                status: head.status,
                headers: head.headers,
                body,
            })
        };
        let answer = answer.await;
        connection.abort();
        answer
    }
}

/// Returns other addresses of this machine: one on loopback and, if there is one, the outgoing address.
pub(crate) fn other_addresses() -> Vec<IpAddr> {
    let outer = || {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect("192.0.2.1:9")?; // sends nothing, only selects a route
        io::Result::Ok(socket.local_addr()?.ip())
    };
    let mut found = vec![IpAddr::from([127, 0, 0, 2])];
    found.extend(outer().ok().filter(|address| !address.is_loopback()));
    found
}

impl Answer {
    /// Returns the body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns a header as text. Empty if it is absent.
    pub(crate) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.and_then(|value| value.to_str().ok()).unwrap_or("")
    }
}
