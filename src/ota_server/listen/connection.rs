//! One connection. `hyper` implements HTTP. The permit determines when the connection has to end. This module sends the error
//! responses that `hyper` cannot send.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Collected};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio_io_timeout::TimeoutStream;

use super::super::agent::Agent;
use super::super::answer::Answer;
use super::super::origin::Endpoint;
use super::super::reply::{self, Reply};
use crate::serve::permits::{ConnectionPermit, ConnectionState, PermitSignal};

/// Maximum time to receive a request head, from the start of the connection or the end of the previous answer.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time without progress while an answer is sent.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a request head in bytes. Browsers send the cookies of all programs on localhost, so the limit is generous.
const HEAD_LIMIT: usize = 16 << 10;
/// Maximum time to send the last answer and read the rest of the request. If a socket is closed with unread bytes, the client loses
/// the answer.
const LINGER: Duration = Duration::from_secs(1);

/// First bytes of a client that expects HTTP/2.
const HTTP_2: &[u8] = b"PRI * HTTP/2.0";

/// Reason for the end of a connection.
enum End {
    /// All requests have been answered.
    Answered,
    /// The client gets this error answer, and the connection ends.
    Error(Answer),
}

/// Serves one connection until it is closed.
pub(super) async fn serve<IO>(
    io: IO,
    agent: Agent,
    endpoint: Endpoint,
    mut permit: ConnectionPermit,
) where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut io = TimeoutStream::new(io);
    io.set_write_timeout(Some(WRITE_TIMEOUT));
    let state = permit.state();
    let service = service_fn(
        move |request| -> BoxFuture<'static, Result<Reply, Infallible>> {
            Box::pin(answer(agent.clone(), endpoint, state.clone(), request))
        },
    );
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_LIMIT)
        .serve_connection(TokioIo::new(Box::pin(io)), service);
    let (mut ended, mut is_ending) = (None, false);
    while ended.is_none() {
        let speaking = std::future::poll_fn(|cx| connection.poll_without_shutdown(cx));
        let signal = tokio::select! {
            biased;
            done = speaking => {
                ended = Some(done.err());
                PermitSignal::Stay
            }
            signal = permit.signalled(), if !is_ending => signal,
        };
        match signal {
            PermitSignal::Stay => {}
            PermitSignal::Leave if is_unheard(permit.current()) => break,
            // Accept no further requests. A request that was received completely still gets its answer.
            PermitSignal::Leave | PermitSignal::End => {
                is_ending = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
        }
    }
    let parts = connection.into_parts();
    let is_waited_for = permit.current() == ConnectionState::Silent || !parts.read_buf.is_empty();
    let end = match ended {
        None => End::Error(crowded()),
        Some(Some(_)) if parts.read_buf.starts_with(HTTP_2) => End::Error(version()),
        Some(Some(error)) if error.is_timeout() && is_waited_for => End::Error(head_too_slow()),
        Some(_) => End::Answered,
    };
    let linger = permit.linger();
    drop(permit); // The last answer needs no permit.
    let response = match end {
        End::Answered => Bytes::new(),
        End::Error(answer) => error_response(reply::words(&answer)).await,
    };
    close(parts.io.into_inner(), response, linger).await;
}

/// Returns true if no request has been read completely, so that the client can safely repeat its request.
fn is_unheard(state: ConnectionState) -> bool {
    matches!(state, ConnectionState::Silent | ConnectionState::Slow)
}

/// Answers one request and updates the state of the connection.
async fn answer(
    agent: Agent,
    endpoint: Endpoint,
    state: watch::Sender<ConnectionState>,
    request: Request<Incoming>,
) -> Result<Reply, Infallible> {
    state.send_replace(ConnectionState::Slow);
    let busy = || {
        state.send_replace(ConnectionState::Busy);
    };
    let reply = agent.answer_after(request, endpoint, busy).await;
    state.send_replace(ConnectionState::Idle);
    Ok(reply)
}

/// Encodes the last response of a connection.
pub(super) async fn error_response(reply: Reply) -> Bytes {
    let (head, body) = reply.into_parts();
    // A body that is a text never fails.
    let body = body.collect().await.map(Collected::to_bytes);
    let body = body.unwrap_or_default();
    let mut text = BytesMut::with_capacity(512 + body.len());
    let status = head.status;
    let reason = status.canonical_reason().unwrap_or_default();
    text.extend_from_slice(format!("HTTP/1.1 {} {reason}\r\n", status.as_str()).as_bytes());
    for (name, value) in &head.headers {
        text.extend_from_slice(name.as_str().as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value.as_bytes());
        text.extend_from_slice(b"\r\n");
    }
    let rest = format!(
        "content-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    text.extend_from_slice(rest.as_bytes());
    text.extend_from_slice(&body);
    text.freeze()
}

/// Sends a response and closes the connection. With `linger`, first reads until the client closes its side, so that the client
/// receives the response.
pub(super) async fn close<IO: AsyncRead + AsyncWrite + Unpin>(
    io: IO,
    response: Bytes,
    linger: Option<OwnedSemaphorePermit>,
) {
    let speaking = async {
        let mut io = pin!(io);
        io.write_all(&response).await?;
        io.shutdown().await?;
        let mut unread = [0; 1024];
        while linger.is_some() && io.read(&mut unread).await? > 0 {}
        std::io::Result::Ok(())
    };
    let _heard_or_not = tokio::time::timeout(LINGER, speaking).await;
}

fn head_too_slow() -> Answer {
    Answer::new(
        StatusCode::REQUEST_TIMEOUT,
        "HeadTooSlow",
        "The request did not arrive within 5 seconds. Connect again to send a request",
    )
}

fn version() -> Answer {
    Answer::new(
        StatusCode::HTTP_VERSION_NOT_SUPPORTED,
        "Version",
        "This server supports only HTTP/1.1 and HTTP/1.0",
    )
}

/// Returns the answer to a connection that has sent no complete request, and whose permit is needed for a new connection.
fn crowded() -> Answer {
    Answer::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "Crowded",
        "This idle connection was closed for a new one, because 256 connections are open. Connect again to send a request",
    )
}
