//! Listeners. They accept connections, give each a permit, and finish requests in progress at shutdown.
//!
//! ```text
//! port, loopback peers only ─┐
//! socket, by mode and group ─┼► permits (256 each) ──► connection (hyper) ──► agent.admit ──► body ──► agent.act ──► answer
//! port for probes ───────────┘
//! ```
//!
//! Every wait on a connection has a time limit, and connections don't wait for each other. Each listener has its own permits, so
//! connections to the port cannot use up the permits of the socket.

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

/// Maximum number of connections per listener. The users of a device need fewer, and this number fits into its memory.
const CONNECTIONS: usize = 256;
/// Maximum time for requests in progress at shutdown.
const GRACE: Duration = Duration::from_secs(5);

/// Serves a TCP port until shutdown is requested, then finishes requests in progress.
///
/// A listener on a loopback address serves only loopback peers.
pub async fn serve(listener: TcpListener, agent: Agent, shutdown: Shutdown) {
    serve_all(Port::on(listener), Endpoint::Port, agent, shutdown).await;
}

/// Serves a Unix socket until shutdown is requested. Then finishes requests in progress and removes the file of the socket.
pub(super) async fn serve_socket(socket: Socket, agent: Agent, shutdown: Shutdown) {
    serve_all(socket, Endpoint::Socket, agent, shutdown).await;
}

/// Serves the kubelet's probes on a TCP port until shutdown is requested. Rejects all other requests.
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
            permits.revoke_one(); // Accepting fails without free file descriptors, so free one.
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

/// Serves one connection of any kind until it is closed.
pub async fn serve_stream(io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, agent: Agent) {
    let permit = ConnectionPermit::unlimited();
    connection::serve(io, agent, Endpoint::Port, permit).await;
}

/// Returns the answer to a new connection while busy connections have all permits.
fn full() -> Reply {
    let mut reply = reply::words(&Answer::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "Full",
        "All 256 connections are busy, and nothing was done. Try again in a second",
    ));
    let soon = HeaderValue::from_static("1");
    reply.headers_mut().insert(RETRY_AFTER, soon);
    reply
}
