//! One connection: request after request, each with its limits, and a last word when it has to end.
//!
//! This speaks HTTP/1.1 by itself, since `hyper` closes slow and malformed connections without a word, and every limit
//! here is to be answered with one.

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::request::Parts;
use http::{Method, StatusCode, Version};
use hyper::body::Body;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until, timeout};

use super::super::agent::Agent;
use super::super::answer::Answer;
use super::super::reply::{self, Reply};
use super::super::route::Route;
use super::head::{self, Chunks, Framing};
use super::seats::{Order, Phase, Seat};

/// The longest that a head may take: from the start of a connection, or from its first byte on a used one.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest that a body may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest that a used connection may be silent.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest that an answer may make no progress.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest that a last word may take. It is also waited for what is still being sent, since closing a socket with
/// bytes unread makes the other side forget the answer.
const FAREWELL: Duration = Duration::from_secs(1);
/// A buffer that is empty and larger than this is given back.
const KEPT_BUFFER: usize = 4 << 10;
/// Room for the next read.
const READ: usize = 1 << 10;

/// One connection.
pub(super) struct Connection<IO> {
    io: IO,
    agent: Agent,
    seat: Seat,
    buffer: BytesMut,
    /// Whether it was answered at least once.
    used: bool,
}

/// How a connection ends.
enum End {
    /// The other side is gone, or has nothing to hear.
    Silent,
    /// Answered, and nothing more is read.
    Answered,
    /// With these last words.
    Words(Box<Reply>),
}

impl From<Answer> for End {
    fn from(answer: Answer) -> Self {
        Self::Words(reply::words(&answer).into())
    }
}

impl From<std::io::Error> for End {
    fn from(_: std::io::Error) -> Self {
        Self::Silent
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Connection<IO> {
    /// A connection that just began.
    pub(super) fn new(io: IO, agent: Agent, seat: Seat) -> Self {
        Self {
            io,
            agent,
            seat,
            buffer: BytesMut::new(),
            used: false,
        }
    }

    /// Serves it to its end.
    pub(super) async fn run(mut self) {
        let end = loop {
            match self.next().await {
                Ok(()) => {}
                Err(end) => break end,
            }
        };
        let Self {
            io, agent, seat, ..
        } = self;
        let patience = seat.patience();
        drop(seat); // a last word takes nobody's place
        match end {
            End::Silent => {}
            End::Answered => farewell(io, Bytes::new(), patience).await,
            End::Words(reply) => farewell(io, last_words(*reply, &agent), patience).await,
        }
    }

    /// One request.
    async fn next(&mut self) -> Result<(), End> {
        let head = self.head().await?;
        self.seat.set(Phase::Slow);
        let keeps_alive = head::keeps_alive(&head);
        let admitted = self.agent.admit(&head);
        let body = head::framing(&head);
        let (reply, is_read) = match (admitted, body) {
            (Ok(route), body) => {
                self.body(&head, body?).await?;
                (self.act(route, &head).await?, true)
            }
            (Err(refusal), body) => (*refusal, body == Ok(Framing::Length(0))),
        };
        let stays = keeps_alive && is_read && self.seat.order() == Order::Stay;
        self.answer(reply, &head, stays).await?;
        if !stays {
            return Err(End::Answered);
        }
        self.used = true;
        if self.buffer.is_empty() && self.buffer.capacity() > KEPT_BUFFER {
            self.buffer = BytesMut::new();
        }
        Ok(())
    }

    /// Waits for a head.
    async fn head(&mut self) -> Result<Parts, End> {
        let mut is_idle = self.used && self.buffer.is_empty();
        self.seat.set(match self.used {
            true => Phase::Idle,
            false => Phase::Silent,
        });
        let mut began = Instant::now();
        let mut may_be_complete = !self.buffer.is_empty();
        loop {
            if may_be_complete && let Some(head) = head::take(&mut self.buffer)? {
                return Ok(head);
            }
            let limit = if is_idle { IDLE_TIMEOUT } else { HEAD_TIMEOUT };
            let before = self.buffer.len();
            self.buffer.reserve(READ);
            tokio::select! {
                biased;
                read = self.io.read_buf(&mut self.buffer) => if read? == 0 {
                    return Err(End::Silent);
                },
                order = self.seat.ordered() => return Err(self.dismissed(order)),
                () = sleep_until(began + limit) => return Err(match is_idle {
                    true => End::Silent,
                    false => head_too_slow().into(),
                }),
            }
            if std::mem::take(&mut is_idle) {
                began = Instant::now();
            }
            // The first piece shows what never becomes a head; after that only a whole line can complete one.
            may_be_complete = before == 0
                || self.buffer.len() >= head::LIMIT
                || self.buffer[before..].contains(&b'\n');
        }
    }

    fn dismissed(&self, order: Order) -> End {
        let is_expected = self.used && self.buffer.is_empty();
        match order {
            Order::End if is_expected => End::Silent,
            Order::End => ending().into(),
            Order::Leave | Order::Stay => crowded().into(),
        }
    }

    /// Reads a body to its end.
    async fn body(&mut self, head: &Parts, framing: Framing) -> Result<(), End> {
        let expects_continue = head::expects_continue(head)?;
        if expects_continue && framing != Framing::Length(0) && self.buffer.is_empty() {
            let go_on = Bytes::from_static(b"HTTP/1.1 100 Continue\r\n\r\n");
            self.write(go_on).await?;
        }
        let deadline = Instant::now() + BODY_TIMEOUT;
        let mut chunks = Chunks::default();
        let mut left = match framing {
            Framing::Length(length) => usize::try_from(length).unwrap_or(usize::MAX),
            Framing::Chunked => 0,
        };
        loop {
            let ended = match framing {
                Framing::Length(_) => {
                    let here = left.min(self.buffer.len());
                    self.buffer.advance(here);
                    left -= here;
                    left == 0
                }
                Framing::Chunked => chunks.take(&mut self.buffer)?,
            };
            if ended {
                return Ok(());
            }
            self.buffer.reserve(READ);
            tokio::select! {
                biased;
                read = self.io.read_buf(&mut self.buffer) => if read? == 0 {
                    return Err(End::Silent);
                },
                () = taken(&mut self.seat) => return Err(crowded().into()),
                () = sleep_until(deadline) => return Err(body_too_slow().into()),
            }
        }
    }

    /// Does what is asked for, as long as the one who asked is there to hear the answer.
    async fn act(&mut self, route: Route, head: &Parts) -> Result<Reply, End> {
        self.seat.set(Phase::Busy);
        let agent = self.agent.clone();
        let acting = agent.act(route, head);
        let reply = tokio::select! {
            biased;
            reply = acting => reply,
            end = self.gone() => return Err(end),
        };
        self.seat.set(Phase::Slow);
        Ok(reply)
    }

    /// Waits until the other side closes the connection.
    async fn gone(&mut self) -> End {
        while self.buffer.len() < head::LIMIT {
            self.buffer.reserve(READ);
            match self.io.read_buf(&mut self.buffer).await {
                Ok(0) | Err(_) => return End::Silent,
                Ok(_) => {} // the next request, early
            }
        }
        std::future::pending().await
    }

    /// Sends an answer.
    async fn answer(&mut self, reply: Reply, head: &Parts, stays: bool) -> Result<(), End> {
        let connection = match (stays, head.version) {
            (false, _) => "close",
            (true, Version::HTTP_10) => "keep-alive",
            (true, _) => "",
        };
        let start = Bytes::from(start(&reply, &self.agent, connection));
        match head.method {
            Method::HEAD => self.write(start).await,
            _ => self.write(start.chain(body_of(reply))).await,
        }
    }

    async fn write(&mut self, mut bytes: impl Buf) -> Result<(), End> {
        while bytes.has_remaining() {
            tokio::select! {
                biased;
                written = timeout(WRITE_TIMEOUT, self.io.write_buf(&mut bytes)) => match written {
                    Ok(Ok(0)) | Ok(Err(_)) | Err(_) => return Err(End::Silent),
                    Ok(Ok(_)) => {}
                },
                () = taken(&mut self.seat) => return Err(End::Silent),
            }
        }
        Ok(self.io.flush().await?)
    }
}

/// Waits until this seat is given to somebody else.
async fn taken(seat: &mut Seat) {
    if seat.ordered().await != Order::Leave {
        std::future::pending().await
    }
}

/// The whole body: these are all in one piece.
fn body_of(reply: Reply) -> Bytes {
    let mut body = reply.into_body();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::Pin::new(&mut body).poll_frame(&mut context) {
        std::task::Poll::Ready(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
        _ => Bytes::new(),
    }
}

/// An answer behind which the connection is closed.
pub(super) fn last_words(reply: Reply, agent: &Agent) -> Bytes {
    let mut text = start(&reply, agent, "close");
    text.extend_from_slice(&body_of(reply));
    text.into()
}

/// An answer up to its body.
fn start(reply: &Reply, agent: &Agent, connection: &str) -> Vec<u8> {
    let status = reply.status();
    let mut text = Vec::with_capacity(512);
    text.extend_from_slice(b"HTTP/1.1 ");
    text.extend_from_slice(status.as_str().as_bytes());
    text.push(b' ');
    text.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    text.extend_from_slice(b"\r\n");
    let mut line = |name: &str, value: &[u8]| {
        text.extend_from_slice(name.as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value);
        text.extend_from_slice(b"\r\n");
    };
    for (name, value) in reply.headers() {
        line(name.as_str(), value.as_bytes());
    }
    if status != StatusCode::NOT_MODIFIED {
        let length = reply.body().size_hint().lower();
        line("content-length", length.to_string().as_bytes());
    }
    line("date", agent.date().as_bytes());
    if !connection.is_empty() {
        line("connection", connection.as_bytes());
    }
    text.extend_from_slice(b"\r\n");
    text
}

/// Says the last words, and waits until they are heard, if there is patience left for that.
pub(super) async fn farewell<IO: AsyncRead + AsyncWrite + Unpin>(
    mut io: IO,
    words: Bytes,
    patience: Option<OwnedSemaphorePermit>,
) {
    let speaking = async {
        io.write_all(&words).await?;
        io.shutdown().await?;
        let mut unread = [0; 1024];
        while patience.is_some() && io.read(&mut unread).await? > 0 {}
        std::io::Result::Ok(())
    };
    let _heard_or_not = timeout(FAREWELL, speaking).await;
}

fn head_too_slow() -> Answer {
    Answer::new(
        StatusCode::REQUEST_TIMEOUT,
        "HeadTooSlow",
        "The request did not arrive within 5 seconds: connect when there is something to ask",
    )
}

fn body_too_slow() -> Answer {
    Answer::new(
        StatusCode::REQUEST_TIMEOUT,
        "BodyTooSlow",
        "The body did not arrive within 5 seconds: send none, it is not read",
    )
}

/// For who has no seat any more.
fn crowded() -> Answer {
    Answer::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "Crowded",
        "There are 256 connections, and this one was silent when another came: connect again to ask",
    )
}

fn ending() -> Answer {
    Answer::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "Ending",
        "This server ends; nothing was done. Ask again when it is back",
    )
}
