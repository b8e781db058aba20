//! Connection between a node's agent and its API server. Tests can cut or freeze it.
//!
//! On the embedded cluster, the link holds or fails requests within the test's process, in virtual time. On a real cluster, it is a
//! byte proxy with a separate source address for each node. The audit log contains this address, so requests can be attributed to
//! agents.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::Request;
use hyper::body::{Body, Frame};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use yurt_ds::sim::cluster::Cluster;
use yurt_ds::task::Task;

/// State of the connection between an agent and its API server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Way {
    /// Requests and responses pass.
    #[default]
    Open,
    /// Existing connections are broken, and new ones are refused.
    Cut,
    /// Existing connections stay open, but no data passes.
    Frozen,
}

/// Connection between one agent and its API server. Clones share its state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Link(Arc<watch::Sender<Way>>);

impl Link {
    pub(crate) fn set(&self, way: Way) {
        self.0.send_replace(way);
    }

    fn way(&self) -> Way {
        *self.0.borrow()
    }

    /// Waits until the link is open. Returns an error if it is cut.
    async fn opened(&self) -> io::Result<()> {
        let mut changes = self.0.subscribe();
        loop {
            match *changes.borrow_and_update() {
                Way::Open => return Ok(()),
                Way::Cut => return Err(broken()),
                Way::Frozen => {}
            }
            changes.changed().await.map_err(|_| broken())?;
        }
    }

    /// Waits until the link is cut. Returns the error for the request.
    async fn cut(&self) -> io::Error {
        let mut changes = self.0.subscribe();
        let _ = changes.wait_for(|way| *way == Way::Cut).await;
        broken()
    }
}

fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the link is cut")
}

/// Number of requests from an agent to the API server, by verb and resource, without watches.
pub(crate) type Asked = BTreeMap<(String, String), usize>;

/// Returns a client of the embedded cluster whose requests go through `link`.
pub(crate) fn client(cluster: &Cluster, user_agent: &str, link: &Link) -> kube::Client {
    let (cluster, link) = (cluster.clone(), link.clone());
    let agent = http::HeaderValue::from_str(user_agent).expect("a header");
    let service = tower::service_fn(move |mut request: Request<kube::client::Body>| {
        let (cluster, link) = (cluster.clone(), link.clone());
        let headers = request.headers_mut();
        headers.insert(http::header::USER_AGENT, agent.clone());
        async move {
            link.opened().await?;
            let answer = tokio::select! {
                answer = cluster.handle(request) => answer?,
                cut = link.cut() => return Err(cut),
            };
            link.opened().await?;
            Ok::<_, io::Error>(answer.map(|body| Gated::new(body, link)))
        }
    });
    kube::Client::new(service, "default")
}

/// Response body whose data passes only while the link is open.
struct Gated<B> {
    body: Pin<Box<B>>,
    link: Link,
    gate: BoxFuture<'static, io::Result<()>>,
    open: bool,
}

impl<B> Gated<B> {
    fn new(body: B, link: Link) -> Self {
        Self {
            body: Box::pin(body),
            gate: Box::pin(std::future::pending()),
            link,
            open: true,
        }
    }
}

impl<B: Body<Data = Bytes, Error = io::Error>> Body for Gated<B> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        loop {
            if self.open {
                // This future completes when the link is no longer open. It then wakes the task.
                let link = self.link.clone();
                if link.way() == Way::Open {
                    let mut changed = Box::pin(closed(link));
                    if changed.as_mut().poll(context).is_pending() {
                        self.gate = changed;
                        return self.body.as_mut().poll_frame(context);
                    }
                }
                self.open = false;
                let link = self.link.clone();
                self.gate = Box::pin(async move { link.opened().await });
            }
            match self.gate.as_mut().poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(Ok(())) => self.open = true,
            }
        }
    }
}

async fn closed(link: Link) -> io::Result<()> {
    let mut changes = link.0.subscribe();
    let _ = changes.wait_for(|way| *way != Way::Open).await;
    Ok(())
}

/// Byte proxy between an agent and a real API server. It stops when dropped.
pub(crate) struct Proxy {
    /// Address that the agent connects to.
    pub(crate) address: SocketAddr,
    _task: Task,
}

impl Proxy {
    /// Starts a proxy for this server, controlled by `link`. If the server is on this machine, the proxy connects from `source`.
    pub(crate) async fn start(
        server: SocketAddr,
        source: Ipv4Addr,
        link: Link,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let accept = async move {
            let mut open = tokio::task::JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                let link = link.clone();
                open.spawn(async move { carry(near, server, source, link).await });
                while open.try_join_next().is_some() {}
            }
        };
        Ok(Self {
            address,
            _task: Task::spawn(accept),
        })
    }
}

async fn carry(
    mut near: TcpStream,
    server: SocketAddr,
    source: Ipv4Addr,
    link: Link,
) -> io::Result<()> {
    if link.opened().await.is_err() {
        return near.set_zero_linger();
    }
    let socket = TcpSocket::new_v4()?;
    if server.ip() == IpAddr::V4(Ipv4Addr::LOCALHOST) {
        socket.bind(SocketAddr::new(IpAddr::V4(source), 0))?;
    }
    let mut far = socket.connect(server).await?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let is_cut = {
        let (near_read, near_write) = near.split();
        let (far_read, far_write) = far.split();
        let both = futures::future::try_join(
            pump(near_read, far_write, &link),
            pump(far_read, near_write, &link),
        );
        tokio::select! {
            ended = both => ended.is_err(),
            _ = link.cut() => true,
        }
    };
    if is_cut {
        // Without lingering, closing the sockets resets both connections.
        near.set_zero_linger()?;
        far.set_zero_linger()?;
    }
    Ok(())
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    link: &Link,
) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut buffer).await?;
        link.opened().await?;
        if read == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..read]).await?;
    }
}
