//! Queue of messages to one receiver outside the cluster, delivered one at a time in the background.
//!
//! Callers never wait. The queue has a fixed size and drops its oldest message. A message is sent again until the receiver accepts
//! it, rejects it, or the message is too old. Logs name the receiver without its path and query, because these may contain tokens.

mod endpoint;
mod signature;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::anyhow;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, Request, StatusCode, response};
use http_body_util::Full;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use super::metrics::{Deliveries, DeliveryOutcome as Outcome};
use crate::backoff::Backoff;
use crate::clock::Clock;
use crate::core::foreign::{cut, shown};
use crate::k8s::client::Role;

pub(super) use endpoint::Endpoint;
#[cfg(test)]
pub(super) use endpoint::Transport;
pub(super) use signature::Signer;

/// Time limit for one attempt, from the connection to the head of the response.
const DEADLINE: Duration = Duration::from_secs(10);
/// First and longest pause between two attempts.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Age from which a message is not sent again.
const PATIENCE: Duration = Duration::from_secs(600);
/// Maximum time for delivering queued messages at shutdown.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Message to deliver.
#[derive(Debug)]
pub(super) struct Message {
    /// Identifier, which is the same in each attempt.
    pub(super) id: String,
    /// Body of the request.
    pub(super) body: Bytes,
}

/// Limits of a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Maximum number of waiting messages.
    pub(super) queue: usize,
    /// Maximum size of a message in bytes.
    pub(super) size: usize,
}

/// Receiver of messages, and the form in which it gets them.
pub(super) struct Receiver {
    /// Content of the messages, such as `notification`, for log lines.
    pub(super) content: &'static str,
    /// Media type of the bodies.
    pub(super) media_type: &'static str,
    /// Limits of the queue.
    pub(super) limits: Limits,
    /// Address of the receiver.
    pub(super) endpoint: Endpoint,
    /// Signs the messages; `None`: they are not signed.
    pub(super) signer: Option<Signer>,
    /// Source of the time in signatures.
    pub(super) clock: Clock,
}

/// Queue of messages. Cloning is cheap, and no method blocks.
#[derive(Clone)]
pub(super) struct Outbox(Arc<Shared>);

struct Shared {
    queue: Mutex<Queue>,
    changed: Notify,
    limits: Limits,
    deliveries: Deliveries,
}

#[derive(Default)]
struct Queue {
    /// Waiting messages, each with the time at which it was queued, oldest first.
    waiting: VecDeque<(Message, Instant)>,
    is_closed: bool,
}

/// Task that delivers the messages.
pub(super) struct Delivery {
    shared: Arc<Shared>,
    content: &'static str,
    task: JoinHandle<()>,
}

/// Starts the task that delivers messages to `receiver`.
pub(super) fn start(receiver: Receiver, deliveries: Deliveries) -> (Outbox, Delivery) {
    let shared = Arc::new(Shared {
        queue: Mutex::default(),
        changed: Notify::new(),
        limits: receiver.limits,
        deliveries,
    });
    let content = receiver.content;
    let task = tokio::spawn(deliver_all(shared.clone(), receiver));
    let delivery = Delivery {
        shared: shared.clone(),
        content,
        task,
    };
    (Outbox(shared), delivery)
}

impl Outbox {
    /// Queues a message. Drops a message that is too large, and the oldest one if the queue is full.
    pub(super) fn send(&self, message: Message) {
        let (size, limit) = (message.body.len(), self.0.limits.size);
        if size > limit {
            warn!(
                id = message.id,
                size, limit, "Dropped a message that is too large"
            );
            self.0.count(Outcome::Rejected, 1);
            return;
        }
        let mut queue = self.0.queue();
        if queue.waiting.len() == self.0.limits.queue && queue.waiting.pop_front().is_some() {
            self.0.count(Outcome::QueueFull, 1);
        }
        queue.waiting.push_back((message, Instant::now()));
        self.0.changed.notify_one();
    }
}

impl Delivery {
    /// Waits at most [`LAST_WORDS`] until queued messages are delivered, and drops the rest.
    pub(super) async fn finish(mut self) {
        self.shared.queue().is_closed = true;
        self.shared.changed.notify_one();
        if timeout(LAST_WORDS, &mut self.task).await.is_err() {
            self.task.abort();
            // One more message was on its way.
            let unsent = self.shared.queue().waiting.len() + 1;
            self.shared.count(Outcome::Ending, unsent);
            warn!(
                unsent,
                "Some {}s were not delivered before the shutdown", self.content
            );
        }
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, outcome: Outcome, count: usize) {
        self.deliveries.add(outcome, count);
    }

    /// Waits for the next message. Returns `None` after the last one, if the queue is closed.
    async fn next(&self) -> Option<(Message, Instant)> {
        loop {
            let changed = self.changed.notified();
            {
                let mut queue = self.queue();
                if let Some(next) = queue.waiting.pop_front() {
                    return Some(next);
                }
                if queue.is_closed {
                    return None;
                }
            }
            changed.await;
        }
    }
}

async fn deliver_all(shared: Arc<Shared>, receiver: Receiver) {
    let mut is_failing = false;
    while let Some((message, since)) = shared.next().await {
        let outcome = receiver.deliver(&message, since, &mut is_failing).await;
        shared.count(outcome, 1);
    }
}

/// Reason why an attempt failed.
enum Failure {
    /// Another attempt may succeed, after this pause if the receiver names one.
    Passing(anyhow::Error, Option<Duration>),
    /// Other attempts would fail, too.
    Lasting(anyhow::Error),
}

impl Receiver {
    /// Sends the message until the receiver accepts it, rejects it, or the message is too old.
    ///
    /// `is_failing` is true while no message could be delivered. Of the failures that are retried, only the first is logged, and
    /// the recovery. Each dropped message is logged.
    async fn deliver(&self, message: &Message, since: Instant, is_failing: &mut bool) -> Outcome {
        let (content, id, to) = (self.content, &message.id, self.endpoint.name());
        let mut backoff = Backoff::between(PAUSES.0, PAUSES.1);
        loop {
            let (error, pause) = match self.attempt(message).await {
                Ok(()) => {
                    if std::mem::take(is_failing) {
                        info!(to, "The receiver accepts {content}s again");
                    }
                    return Outcome::Delivered;
                }
                Err(Failure::Lasting(error)) => {
                    warn!(to, id, "Dropped a {content}: {}", in_short(&error));
                    return Outcome::Rejected;
                }
                Err(Failure::Passing(error, pause)) => (error, pause),
            };
            let pause = pause.unwrap_or_else(|| jittered(backoff.pause()));
            let pause = pause.min(PAUSES.1);
            if since.elapsed() + pause >= PATIENCE {
                let minutes = PATIENCE.as_secs() / 60;
                warn!(
                    to,
                    id,
                    "Dropped a {content} after {minutes} minutes: {}",
                    in_short(&error)
                );
                return Outcome::Expired;
            }
            if !std::mem::replace(is_failing, true) {
                warn!(
                    to,
                    id,
                    "Cannot deliver a {content}; retrying: {}",
                    in_short(&error)
                );
            }
            sleep(pause).await;
        }
    }

    async fn attempt(&self, message: &Message) -> Result<(), Failure> {
        let passing = |error| Failure::Passing(error, None);
        let sending = async {
            let request = self.request(message).await.map_err(passing)?;
            self.endpoint.send(request).await.map_err(passing)
        };
        let answer = timeout(DEADLINE, sending).await;
        let late = |_| passing(anyhow!("no response within {DEADLINE:?}"));
        judged(&answer.map_err(late)??)
    }

    async fn request(&self, message: &Message) -> anyhow::Result<Request<Full<Bytes>>> {
        let mut request = Request::post(self.endpoint.uri())
            .header(CONTENT_TYPE, self.media_type)
            .header(USER_AGENT, Role::Controller.user_agent());
        if let Some(signer) = &self.signer {
            let second = self.clock.now().as_second();
            for (name, value) in signer.headers(&message.id, second, &message.body).await? {
                request = request.header(name, value);
            }
        }
        Ok(request.body(Full::new(message.body.clone()))?)
    }
}

/// Returns the text of an error with its causes, at most 300 characters long. It may contain text of the receiver, such as the names
/// in its certificate.
fn in_short(error: &anyhow::Error) -> String {
    cut(&shown(&format!("{error:#}")), 300).into_owned()
}

/// Decides by the head of a response if the message was delivered. The body is never read, because it may repeat the URL.
fn judged(head: &response::Parts) -> Result<(), Failure> {
    let status = head.status;
    let lasting = |advice: &str| Err(Failure::Lasting(anyhow!("HTTP {status}. {advice}")));
    match status.as_u16() {
        200..=299 => Ok(()),
        408 | 425 | 429 | 500..=599 => Err(Failure::Passing(
            anyhow!("HTTP {status}"),
            retry_after(status, &head.headers),
        )),
        300..=399 => lasting("Redirects are not followed: use the URL of the target"),
        401 | 403 => lasting("Check the secret, and the token in the URL"),
        404 | 405 | 410 => lasting("Check the URL"),
        _ => lasting("Check that the receiver accepts this format"),
    }
}

/// Returns the pause that a throttled receiver requests in seconds. Dates are ignored, because they depend on the receiver's clock.
fn retry_after(status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    let is_throttled = [
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::SERVICE_UNAVAILABLE,
    ];
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    let pause = Duration::from_secs(seconds).max(PAUSES.0);
    is_throttled.contains(&status).then_some(pause)
}

/// Returns a random duration between half of `pause` and `pause`, so that many clusters don't retry at the same moment.
fn jittered(pause: Duration) -> Duration {
    let random = ring::rand::generate::<[u8; 1]>(&ring::rand::SystemRandom::new());
    let [byte] = random.map_or([u8::MAX], ring::rand::Random::expose);
    pause / 2 + pause * u32::from(byte) / 512
}

#[cfg(test)]
mod tests;
