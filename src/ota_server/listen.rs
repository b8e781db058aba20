//! The door: takes connections, gives each a permit, and lets answers in flight finish at the end.
//!
//! ```text
//! listener ──► permits (256) ──► connection (hyper) ──► agent.admit ──► body ──► agent.act ──► answer
//! ```
//!
//! Whatever a connection does, or does not do, has a limit and an answer, and nobody waits for somebody else.

mod connection;
mod permits;

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

use self::permits::{ConnectionPermit, ConnectionPermits};
use super::agent::Agent;
use super::answer::Answer;
use super::reply::{self, Reply};
use crate::serve::Connections;
use crate::shutdown::Shutdown;

/// Connections at once: more than any device has owners, few enough to hold.
const CONNECTIONS: usize = 256;
/// How long answers in flight may take when the process ends.
const GRACE: Duration = Duration::from_secs(5);

/// Serves until the end is asked for, then lets answers in flight finish.
pub async fn serve(listener: TcpListener, agent: Agent, mut shutdown: Shutdown) {
    let permits = ConnectionPermits::new(CONNECTIONS);
    let mut connections = Connections::on(listener);
    loop {
        let accepted = tokio::select! {
            () = shutdown.requested() => break,
            accepted = connections.accept() => accepted,
        };
        match accepted {
            Ok(stream) => welcome(stream, &agent, &permits, &mut connections),
            Err(_) => permits.revoke_one(), // if it is for want of file descriptors
        }
    }
    connections.end(GRACE, async { permits.end() }).await;
}

fn welcome(
    stream: TcpStream,
    agent: &Agent,
    permits: &ConnectionPermits,
    connections: &mut Connections,
) {
    match permits.acquire() {
        Some(permit) => {
            connections.spawn(connection::serve(stream, agent.clone(), permit));
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

/// Serves one connection to its end, wherever it comes from.
pub async fn serve_stream(io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, agent: Agent) {
    connection::serve(io, agent, ConnectionPermit::unlimited()).await;
}

/// For who finds all permits held by connections that are busy.
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
