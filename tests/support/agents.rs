//! Client for the node agents. It sends HTTP requests over TCP or Unix sockets.

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

/// `Host` header with the usual port of agents. Agents accept it even if they listen on another port in a test.
pub(crate) const HOST: &str = "127.0.0.1:10267";

/// Time limit for a response of an agent. An agent usually responds much faster, so the limit only matters on busy machines.
const DEADLINE: Duration = Duration::from_secs(10 * BUSY as u64);

/// Connection to an agent over TCP or a Unix socket.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

type Connect =
    Arc<dyn Fn() -> BoxFuture<'static, io::Result<Box<dyn Stream>>> + Send + Sync + 'static>;

/// Settings with which an agent is started.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// Name of the agent's node.
    pub(crate) node: String,
    /// Directory in which the agent stores its state.
    pub(crate) home: PathBuf,
    /// Directory with the manifests of the node's static pods.
    pub(crate) manifests: PathBuf,
    /// Link between the agent and the API server.
    pub(crate) link: Link,
}

/// Client of a running agent. The agent is killed when the last clone of the client is dropped.
#[derive(Clone)]
pub(crate) struct Agent {
    /// Address that the agent listens on; `None` if the agent has no TCP port.
    pub(crate) address: Option<SocketAddr>,
    connect: Connect,
    log: Arc<dyn Fn() -> String + Send + Sync>,
    _life: Arc<dyn Send + Sync>,
}

#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Agent {
    /// Returns a client that uses `connect` to open connections. The agent is killed when `life` is dropped.
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

    /// Returns a client for an agent that listens on this address. The agent is killed when `life` is dropped.
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

    /// Returns a client for an agent that listens on this Unix socket. The agent is killed when `life` is dropped.
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

    /// Returns the end of the agent's log; empty if there is no log.
    pub(crate) fn log(&self) -> String {
        (self.log)()
    }

    /// Sends a request on a new connection and returns the response.
    ///
    /// # Errors
    /// Returns an error if the connection fails or there is no response.
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
            Err(_) => bail!("{}: no response within {DEADLINE:?}", what()),
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

/// Returns addresses of this machine other than 127.0.0.1: another loopback address and, if possible, the address for outgoing
/// connections.
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
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns a header of the response; empty if it is absent.
    pub(crate) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.and_then(|value| value.to_str().ok()).unwrap_or("")
    }
}
