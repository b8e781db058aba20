//! Listeners: accept connections, give each a permit, and finish answers in progress at shutdown.
//!
//! ```text
//! port, loopback peers only ─┐
//! socket, by mode and group ─┼► permits (256 each) ──► connection (hyper) ──► agent.admit ──► body ──► agent.act ──► answer
//! port for probes ───────────┘
//! ```
//!
//! All activity of a connection has a limit and an answer, and no connection waits for another. Each listener has its own
//! permits, so many connections to the port don't affect the socket.

mod connection;
mod port;
pub(super) mod socket;

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;

use self::port::Port;
pub(super) use self::port::is_loopback;
use self::socket::Socket;
use super::agent::Agent;
use super::answer::Answer;
use super::origin::Endpoint;
use super::reply::{self, Reply};
use crate::serve::permits::{ConnectionPermit, ConnectionPermits};
use crate::serve::{Connections, Listener};
use crate::shutdown::Shutdown;

/// Maximum number of connections per listener: more than a device has users, and few enough for its memory.
const CONNECTIONS: usize = 256;
/// Longest time for answers in progress when the process ends.
const GRACE: Duration = Duration::from_secs(5);

/// Serves a TCP port until shutdown is requested, then waits for answers in progress.
///
/// A listener on a loopback address serves only loopback peers.
pub async fn serve(listener: TcpListener, agent: Agent, shutdown: Shutdown) {
    serve_all(Port::on(listener), Endpoint::Port, agent, shutdown).await;
}

/// Serves a Unix socket in the same way, and removes its file at the end.
pub(super) async fn serve_socket(socket: Socket, agent: Agent, shutdown: Shutdown) {
    serve_all(socket, Endpoint::Socket, agent, shutdown).await;
}

/// Serves only probes, in the same way.
pub(super) async fn serve_probes(listener: TcpListener, agent: Agent, shutdown: Shutdown) {
    serve_all(Port::on(listener), Endpoint::Probes, agent, shutdown).await;
}

async fn serve_all<L>(listener: L, endpoint: Endpoint, agent: Agent, mut shutdown: Shutdown)
where
    L: Listener,
    L::Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let permits = ConnectionPermits::new(CONNECTIONS);
    let mut connections = Connections::on(listener);
    loop {
        let accepted = tokio::select! {
            () = shutdown.requested() => break,
            accepted = connections.accept() => accepted,
        };
        let Ok(stream) = accepted else {
            permits.revoke_one(); // file descriptors may have run out
            continue;
        };
        match permits.acquire(L::peer(&stream)) {
            Some(permit) => {
                connections.spawn(connection::serve(stream, agent.clone(), endpoint, permit));
            }
            None => {
                let linger = permits.linger();
                connections.spawn(async move {
                    let response = connection::error_response(full()).await;
                    connection::close(stream, response, linger).await;
                });
            }
        }
    }
    connections.end(GRACE, async { permits.end() }).await;
}

/// Serves one connection of any kind to its end.
pub async fn serve_stream(io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, agent: Agent) {
    let permit = ConnectionPermit::unlimited();
    connection::serve(io, agent, Endpoint::Port, permit).await;
}

/// Returns the answer if all permits are held by busy connections.
fn full() -> Reply {
    let mut reply = reply::words(&Answer::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "Full",
        "All 256 connections are busy; nothing was done. Ask again in a second",
    ));
    let soon = HeaderValue::from_static("1");
    reply.headers_mut().insert(RETRY_AFTER, soon);
    reply
}
