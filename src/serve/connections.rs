//! The connections of one listener, each with a task of its own: the loop of every server here.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tracing::warn;

/// Time to breathe when a connection cannot be accepted, mostly for want of file descriptors: do not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// Source of connections.
pub(crate) trait Listener {
    /// A connection.
    type Stream;

    /// Waits for the next connection. Dropping the future loses none.
    fn next(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;

    /// Returns the address of the other side; `None` where it has none.
    fn peer(stream: &Self::Stream) -> Option<IpAddr>;
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<TcpStream> {
        let (stream, _) = self.accept().await?;
        let _only_slower_without = stream.set_nodelay(true);
        Ok(stream)
    }

    fn peer(stream: &TcpStream) -> Option<IpAddr> {
        Some(stream.peer_addr().ok()?.ip())
    }
}

/// A listener, and the tasks that serve what it accepted. They end with this.
#[derive(Debug)]
pub(crate) struct Connections<L = TcpListener> {
    listener: L,
    tasks: JoinSet<()>,
    is_failing: bool,
}

impl<L: Listener> Connections<L> {
    /// Those of this listener; none yet.
    pub(crate) fn on(listener: L) -> Self {
        Self {
            listener,
            tasks: JoinSet::new(),
            is_failing: false,
        }
    }

    /// The next one. Whoever stops to wait loses none.
    ///
    /// # Errors
    /// When it cannot be accepted, after a pause; the log says so once until one can.
    pub(crate) async fn accept(&mut self) -> io::Result<L::Stream> {
        let accepted = loop {
            tokio::select! {
                Some(_ended) = self.tasks.join_next() => {}
                accepted = self.listener.next() => break accepted,
            }
        };
        match accepted {
            Ok(stream) => {
                self.is_failing = false;
                Ok(stream)
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_failing, true) {
                    warn!(%error, "Cannot accept a connection");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
                Err(error)
            }
        }
    }

    /// Serves one of them to its end.
    pub(crate) fn spawn(&mut self, connection: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(connection);
    }

    /// Accepts nothing more, has all told to finish by `closing`, and waits for them; what is late is cut.
    pub(crate) async fn end(self, grace: Duration, closing: impl Future<Output = ()>) {
        let Self {
            listener,
            mut tasks,
            ..
        } = self;
        drop(listener);
        let ended = async {
            closing.await;
            while tasks.join_next().await.is_some() {}
        };
        let _what_is_late_is_cut = tokio::time::timeout(grace, ended).await;
    }
}
