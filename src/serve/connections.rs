//! The connections of one listener. Each is served by its own task. All servers of this crate use this module.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tracing::warn;

/// Pause after accepting fails, usually because file descriptors have run out. Without a pause, the loop would use a whole CPU.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// Listener that accepts connections.
pub(crate) trait Listener {
    /// Type of a connection.
    type Stream;

    /// Waits for the next connection. No connection is lost if the future is dropped.
    fn next(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;

    /// Returns the peer's IP address; `None` for connections without one, such as those of a Unix socket.
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

/// A listener and the tasks that serve its connections. Dropping it aborts the tasks.
#[derive(Debug)]
pub(crate) struct Connections<L = TcpListener> {
    listener: L,
    tasks: JoinSet<()>,
    is_failing: bool,
}

impl<L: Listener> Connections<L> {
    /// Wraps a listener that has no connections yet.
    pub(crate) fn on(listener: L) -> Self {
        Self {
            listener,
            tasks: JoinSet::new(),
            is_failing: false,
        }
    }

    /// Accepts the next connection. No connection is lost if the future is dropped.
    ///
    /// # Errors
    /// If accepting fails; the error is returned after a pause. If several fail in a row, only the first failure is logged.
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

    /// Serves a connection in its own task.
    pub(crate) fn spawn(&mut self, connection: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(connection);
    }

    /// Closes the listener, runs `closing`, and waits for the tasks. Aborts the remaining tasks after `grace`.
    ///
    /// `closing` must signal the tasks to finish.
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
