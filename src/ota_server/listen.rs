//! Connections.

use std::convert::Infallible;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::agent::Agent;
use crate::shutdown::Shutdown;

const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves until the end is asked for.
pub async fn serve(listener: TcpListener, agent: Agent, mut shutdown: Shutdown) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = shutdown.requested() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                connections.spawn(serve_stream(stream, agent.clone()));
            },
        }
    }
}

/// Serves one connection to its end.
pub async fn serve_stream(io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, agent: Agent) {
    let service = service_fn(move |request| {
        let agent = agent.clone();
        async move { Ok::<_, Infallible>(agent.answer(request).await) }
    });
    let _ended = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(io), service)
        .await;
}
