//! Events about changes of state, sent in the background.
//!
//! Each change of state has one Event, which is not repeated while the state lasts. Events about single pods are limited. Writes to
//! pods never wait for an Event. Events that the API server rejects are kept with their original time and sent again. Events that
//! exceed a limit or are older than an hour are counted and dropped.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{debug, warn};

use super::metrics::Metrics;
use crate::backoff::Backoff;
use crate::clock::Clock;
use crate::core::foreign::shown;
use crate::core::names;
use crate::index::SetKey;
use crate::k8s::client::{Failure, WRITE_DEADLINE, within};

/// Maximum number of Events in the queue. After a start of the controller, there may be one Event for each DaemonSet of a large
/// cluster.
const QUEUE: usize = 256;
/// Maximum number of queued Events about single pods. These Events have a queue of their own.
const ASIDES: usize = 64;
/// Maximum number of Events per minute and replica, without those of [`Events::publish_with_mark`]. All DaemonSets of a large
/// cluster can change state within this limit, and the load on the API server stays low.
const PER_MINUTE: u32 = 240;
/// Maximum number of attempts to send an Event while the API server doesn't respond or throttles requests. `PAUSE` is the time
/// between two attempts.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_secs(2);
/// Shortest and longest pause before rejected Events are sent again.
const AGAIN: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(30));
/// Time after which the last note (text of an Event) about an object is forgotten. The API server deletes Events after the same
/// time by default.
const REMEMBERED: SignedDuration = SignedDuration::from_hours(1);
/// Maximum time for sending queued Events at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);
/// Length limit of the API for notes, in bytes.
const NOTE_LIMIT: usize = 1024;
/// Length limit for the object's name at the start of an Event's name. Names may have 253 bytes, so this leaves space for a
/// suffix.
const NAME_LIMIT: usize = 220;
/// Length limit of the API for names of reporting instances.
const INSTANCE_LIMIT: usize = 128;

/// Object that an Event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// API version of the object.
    pub api_version: &'static str,
    /// Kind of the object.
    pub kind: &'static str,
    /// Namespace of the object. The Event is created there too.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// UID of the object; empty: unknown.
    pub uid: String,
}

impl Subject {
    /// Returns the subject for a native DaemonSet.
    pub fn daemonset(namespace: &str, name: &str, uid: &str) -> Self {
        Self {
            api_version: "apps/v1",
            kind: "DaemonSet",
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
        }
    }

    /// Returns the subject for the DaemonSet with this key.
    pub fn of_set(key: &SetKey, uid: &str) -> Self {
        let subject = Self::daemonset(&key.namespace, &key.name, uid);
        if key.is_advanced() {
            Self {
                api_version: names::KRUISE_VERSION,
                ..subject
            }
        } else {
            subject
        }
    }

    /// Returns the subject for an object of a watched resource.
    pub fn of_resource(resource: &str, meta: &ObjectMeta) -> Self {
        let (api_version, kind) = match resource {
            "nodes" => ("v1", "Node"),
            "pods" => ("v1", "Pod"),
            "controllerrevisions" => ("apps/v1", "ControllerRevision"),
            "daemonsets" => ("apps/v1", "DaemonSet"),
            _ => (names::KRUISE_VERSION, "DaemonSet"),
        };
        Self {
            api_version,
            kind,
            // Events about cluster-scoped objects have to be created in this namespace.
            namespace: meta
                .namespace
                .clone()
                .unwrap_or_else(|| "default".to_owned()),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
        }
    }

    /// Returns the subject for Events about the controller itself: the Lease of the replicas.
    pub fn lease(namespace: &str) -> Self {
        Self {
            api_version: "coordination.k8s.io/v1",
            kind: "Lease",
            namespace: namespace.to_owned(),
            name: names::LEASE.to_owned(),
            uid: String::new(),
        }
    }
}

/// Severity of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The Event only informs.
    Normal,
    /// An operator should act.
    Warning,
}

/// Last notes (texts of Events), each with its time. The key consists of the object, and of the reason with the topic.
type LastNotes = BTreeMap<(String, String), (String, Timestamp)>;

/// Queue of Events. Cloning is cheap, and no method blocks.
#[derive(Clone)]
pub struct Events {
    client: Client,
    queue: Sender<Event>,
    /// Queue of Events about single pods. They are sent only while the other queue is empty.
    asides: Sender<Event>,
    /// Last note (text of an Event) for each object, reason and topic, with the time of the last attempt to publish it.
    last_notes: Arc<Mutex<LastNotes>>,
    clock: Clock,
    instance: String,
    metrics: Arc<Metrics>,
    /// Counter in the names of Events, because two may be created in the same instant.
    number: Arc<AtomicU64>,
}

/// Task that sends the Events.
#[derive(Debug)]
pub struct EventSender(JoinHandle<()>);

/// Starts the task that sends Events. `instance` is the name of this replica in each Event.
pub fn start(
    client: Client,
    instance: &str,
    clock: Clock,
    metrics: Arc<Metrics>,
) -> (Events, EventSender) {
    let (queue, queued) = mpsc::channel(QUEUE);
    let (asides, beside) = mpsc::channel(ASIDES);
    let events = Events {
        client: client.clone(),
        queue,
        asides,
        last_notes: Arc::default(),
        clock,
        instance: cut(instance, INSTANCE_LIMIT).to_owned(),
        metrics: metrics.clone(),
        number: Arc::default(),
    };
    let sending = tokio::spawn(send_all(client, queued, beside, metrics));
    (events, EventSender(sending))
}

impl EventSender {
    /// Waits at most [`SHUTDOWN_TIMEOUT`] until queued Events are sent. All clones of [`Events`] must be dropped before.
    pub async fn finish(self) {
        if timeout(SHUTDOWN_TIMEOUT, self.0).await.is_err() {
            warn!("Some Events were not sent before the shutdown");
        }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Events");
        shown
            .field("last_notes", &self.last_notes)
            .finish_non_exhaustive()
    }
}

impl Events {
    /// Publishes an Event about a problem that may be detected repeatedly.
    ///
    /// Skips a note that equals the last note about the same object with the same reason, unless the last attempt to publish it was
    /// at least an hour ago. For changes of state, use [`record`](Self::record).
    pub fn publish(&self, about: &Subject, severity: Severity, reason: &str, note: &str) {
        self.publish_on(about, severity, reason, "", note);
    }

    /// Publishes a note like [`publish`](Self::publish), for a reason with several topics. The note is compared only with the
    /// last note on the same topic.
    pub fn publish_on(
        &self,
        about: &Subject,
        severity: Severity,
        reason: &str,
        topic: &str,
        note: &str,
    ) {
        let key = (subject_key(about), format!("{reason}/{topic}"));
        let note = cut(note, NOTE_LIMIT);
        let now = self.clock.now();
        let mut last_notes = self
            .last_notes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        last_notes.retain(|_, (_, at)| now.duration_since(*at) < REMEMBERED);
        if let Some((last, at)) = last_notes.get_mut(&key)
            && last == note
        {
            *at = now;
            return;
        }
        if self.record(about, severity, reason, note) {
            last_notes.insert(key, (note.to_owned(), now));
        }
    }

    /// Queues an Event, even if it equals an earlier one. Returns false if the queue is full.
    pub fn record(&self, about: &Subject, severity: Severity, reason: &str, note: &str) -> bool {
        let note = cut(note, NOTE_LIMIT);
        let event = self.event(about, severity, reason, note);
        let sent = self.queue.try_send(event).is_ok();
        if !sent {
            self.metrics.event_dropped("queue_full");
        }
        sent
    }

    /// Queues an Event about a single pod. The Event is sent when no Event about a rollout is waiting. It is dropped if the queue
    /// is full.
    pub fn record_low_priority(
        &self,
        about: &Subject,
        severity: Severity,
        reason: &str,
        note: &str,
    ) {
        let event = self.event(about, severity, reason, cut(note, NOTE_LIMIT));
        if self.asides.try_send(event).is_err() {
            self.metrics.event_dropped("queue_full");
        }
    }

    /// Sends an Event immediately, without the queue. The future completes when the Event was sent or dropped.
    ///
    /// The name of the Event is derived from `mark`. So the API server rejects a second Event with the same `mark`, even from
    /// another replica.
    pub fn publish_with_mark(
        &self,
        about: &Subject,
        severity: Severity,
        reason: &str,
        note: &str,
        mark: &str,
    ) -> impl Future<Output = ()> + use<> {
        let mut event = self.event(about, severity, reason, cut(note, NOTE_LIMIT));
        event.metadata.name = Some(format!("{}.{mark}", cut(&about.name, NAME_LIMIT)));
        let (client, metrics) = (self.client.clone(), self.metrics.clone());
        async move {
            if let Err((_, why)) = send(&client, event, &metrics).await {
                metrics.event_dropped(why.word());
            }
        }
    }

    /// Forgets the last notes about an object, so that the next note is published even if it equals them.
    pub fn forget(&self, about: &Subject) {
        let object = subject_key(about);
        let mut last_notes = self
            .last_notes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        last_notes.retain(|(key, _), _| *key != object);
    }

    fn event(&self, about: &Subject, severity: Severity, reason: &str, note: &str) -> Event {
        let now = self.clock.now();
        let name = cut(&about.name, NAME_LIMIT);
        let number = self.number.fetch_add(1, Ordering::Relaxed) % 0x100;
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{name}.{:x}{number:02x}", now.as_nanosecond())),
                namespace: Some(about.namespace.clone()),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(now)),
            type_: Some(format!("{severity:?}")),
            reason: Some(reason.to_owned()),
            action: Some("Rollout".to_owned()),
            note: Some(cut(&shown(note), NOTE_LIMIT).to_owned()),
            regarding: Some(ObjectReference {
                api_version: Some(about.api_version.to_owned()),
                kind: Some(about.kind.to_owned()),
                namespace: Some(about.namespace.clone()),
                name: Some(about.name.clone()),
                uid: Some(about.uid.clone()).filter(|uid| !uid.is_empty()),
                ..ObjectReference::default()
            }),
            reporting_controller: Some(names::CONTROLLER.to_owned()),
            reporting_instance: Some(self.instance.clone()),
            ..Event::default()
        }
    }
}

fn subject_key(about: &Subject) -> String {
    format!(
        "{}/{}/{}/{}",
        about.kind, about.namespace, about.name, about.uid
    )
}

/// Returns `text`, cut to at most `limit` bytes at a character boundary.
fn cut(text: &str, limit: usize) -> &str {
    let mut end = limit.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

async fn send_all(
    client: Client,
    mut queued: Receiver<Event>,
    mut beside: Receiver<Event>,
    metrics: Arc<Metrics>,
) {
    let (mut budget, mut unsent) = (Budget::new(), UnsentEvents::default());
    loop {
        let event = tokio::select! {
            biased;
            event = queued.recv() => match event {
                None => return,
                Some(event) => event,
            },
            () = sleep_until(unsent.again), if !unsent.events.is_empty() => {
                unsent.try_again(&client, &mut budget, &metrics).await;
                continue;
            }
            Some(event) = beside.recv() => event,
        };
        if !budget.take() {
            metrics.event_dropped("too_many");
        } else if let Err(refused) = send(&client, event, &metrics).await {
            unsent.keep(refused, &metrics);
        }
    }
}

/// Event that the API server rejected, with the kind of failure.
type Refused = (Event, Failure);

/// Rejected Events, each with the time of the first rejection, oldest first.
struct UnsentEvents {
    events: VecDeque<(Refused, Instant)>,
    /// Time of the next attempt to send the rejected Events.
    again: Instant,
    backoff: Backoff,
}

impl Default for UnsentEvents {
    fn default() -> Self {
        Self {
            events: VecDeque::new(),
            again: Instant::now(),
            backoff: Self::backoff(),
        }
    }
}

impl UnsentEvents {
    fn backoff() -> Backoff {
        Backoff::between(AGAIN.0, AGAIN.1)
    }

    fn wait(&mut self) {
        self.again = Instant::now() + self.backoff.pause();
    }

    /// Keeps a rejected Event for another attempt. If there are too many, drops the oldest one.
    fn keep(&mut self, refused: Refused, metrics: &Metrics) {
        if self.events.is_empty() {
            warn!("The API server rejects Events; retrying for up to an hour");
            self.backoff = Self::backoff();
            self.wait();
        }
        if self.events.len() == QUEUE {
            self.drop_oldest(metrics);
        }
        self.events.push_back((refused, Instant::now()));
    }

    fn drop_oldest(&mut self, metrics: &Metrics) {
        if let Some(((_, why), _)) = self.events.pop_front() {
            metrics.event_dropped(why.word());
        }
    }

    /// Sends rejected Events in order, until one is rejected again or the budget is used up.
    async fn try_again(&mut self, client: &Client, budget: &mut Budget, metrics: &Metrics) {
        while let Some(((event, _), since)) = self.events.front() {
            if since.elapsed() >= REMEMBERED.unsigned_abs() {
                self.drop_oldest(metrics);
                continue;
            }
            if !budget.take() || send(client, event.clone(), metrics).await.is_err() {
                break;
            }
            self.events.pop_front();
            self.backoff = Self::backoff();
        }
        self.wait();
    }
}

/// Sends one Event. A repeated attempt uses the same name, so it creates no duplicate.
///
/// # Errors
/// If the API server rejected the Event or didn't respond, but may accept the Event later.
async fn send(client: &Client, event: Event, metrics: &Metrics) -> Result<(), Refused> {
    let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    let (reason, note) = (event.reason.as_deref(), event.note.as_deref());
    let about = event
        .regarding
        .as_ref()
        .and_then(|about| about.name.as_deref());
    debug!(reason, note, namespace, about, "Event");
    let mut left = TRIES;
    loop {
        left -= 1;
        let outcome = within(WRITE_DEADLINE, api.create(&PostParams::default(), &event)).await;
        let Err(error) = outcome else {
            metrics.write("create", "events", Ok(()));
            return Ok(());
        };
        let failure = error.failure();
        metrics.write("create", "events", Err(failure));
        match failure {
            Failure::Conflict => return Ok(()), // an earlier attempt created the Event
            Failure::Throttled | Failure::Unreachable if left > 0 => sleep(PAUSE).await,
            // The namespace is gone, so the Event can't be created any more.
            Failure::Gone => {
                metrics.event_dropped(failure.word());
                return Ok(());
            }
            _ => {
                debug!(%error, "Cannot create an Event");
                return Err((event, failure));
            }
        }
    }
}

/// Token bucket that refills at a constant rate.
struct Budget {
    tokens: u32,
    filled: Instant,
}

impl Budget {
    fn new() -> Self {
        Self {
            tokens: PER_MINUTE,
            filled: Instant::now(),
        }
    }

    fn take(&mut self) -> bool {
        let one = Duration::from_secs(60) / PER_MINUTE;
        while self.tokens < PER_MINUTE && self.filled.elapsed() >= one {
            self.tokens += 1;
            self.filled += one;
        }
        if self.tokens == PER_MINUTE {
            self.filled = Instant::now();
        }
        let left = self.tokens.checked_sub(1);
        self.tokens = left.unwrap_or_default();
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http::{Request, Response};
    use http_body_util::{BodyExt, Full};
    use kube::client::Body;
    use std::convert::Infallible;

    type Notes = Arc<Mutex<Vec<String>>>;

    /// Returns a server that fails the given number of times and then accepts all Events.
    fn server(notes: &Notes, failures: usize) -> Client {
        let notes = notes.clone();
        let left = Arc::new(Mutex::new(failures));
        Client::new(
            tower::service_fn(move |request: Request<Body>| {
                let (notes, left) = (notes.clone(), left.clone());
                async move {
                    let body = request
                        .into_body()
                        .collect()
                        .await
                        .expect("a body")
                        .to_bytes();
                    let mut left = left.lock().unwrap();
                    let code = if *left == 0 { 201 } else { 503 };
                    *left = left.saturating_sub(1);
                    if code == 201 {
                        let event: Event = serde_json::from_slice(&body).unwrap();
                        notes.lock().unwrap().push(event.note.unwrap());
                    }
                    let body = Full::new(if code == 201 { body } else { Bytes::new() });
                    Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
                }
            }),
            "default",
        )
    }

    fn begin(notes: &Notes, failures: usize) -> (Events, EventSender, Arc<Metrics>) {
        let metrics = Metrics::new();
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        let (events, sending) = start(server(notes, failures), "me", clock, metrics.clone());
        (events, sending, metrics)
    }

    fn agent() -> Subject {
        Subject::daemonset("shop", "agent", "u1")
    }

    #[tokio::test(start_paused = true)]
    async fn a_repeated_event_text_is_published_once_until_the_text_changes() {
        let notes = Notes::default();
        let (events, sending, _) = begin(&notes, 0);
        for note in ["a", "a", "b", "b", "a"] {
            events.publish(&agent(), Severity::Normal, "RolloutStarted", note);
        }
        events.forget(&agent());
        events.publish(&agent(), Severity::Normal, "RolloutStarted", "a");
        drop(events);
        sending.finish().await;
        assert_eq!(*notes.lock().unwrap(), ["a", "b", "a", "a"]);
    }

    /// Regression test: on a real cluster, Events about two missing permissions alternated. The text of each Event differed from
    /// the last one, so both Events were published again and again.
    #[tokio::test(start_paused = true)]
    async fn event_texts_on_different_topics_are_deduplicated_separately() {
        let notes = Notes::default();
        let (events, sending, _) = begin(&notes, 0);
        for (topic, note) in [("x", "a"), ("y", "b"), ("x", "a"), ("y", "b"), ("x", "c")] {
            let reason = "PermissionMissing";
            events.publish_on(&agent(), Severity::Warning, reason, topic, note);
        }
        drop(events);
        sending.finish().await;
        assert_eq!(*notes.lock().unwrap(), ["a", "b", "c"]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_text_that_is_unused_for_an_hour_is_forgotten() {
        let notes = Notes::default();
        let (events, sending, _) = begin(&notes, 0);
        let say = |note: &str| events.publish(&agent(), Severity::Warning, "WriteRefused", note);
        for _ in 0..5 {
            say("a");
            sleep(Duration::from_secs(1800)).await;
        }
        events.publish(&agent(), Severity::Normal, "Settings", "b");
        sleep(Duration::from_secs(3601)).await;
        say("a");
        assert_eq!(events.last_notes.lock().unwrap().len(), 1);
        drop(events);
        sending.finish().await;
        assert_eq!(*notes.lock().unwrap(), ["a", "b", "a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_recorded_state_change_is_published_even_if_its_text_repeats() {
        let notes = Notes::default();
        let (events, sending, _) = begin(&notes, 0);
        for note in ["a", "a"] {
            assert!(events.record(&agent(), Severity::Warning, "RolloutStalled", note));
        }
        drop(events);
        sending.finish().await;
        assert_eq!(*notes.lock().unwrap(), ["a", "a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_is_published_after_a_brief_server_failure() {
        let notes = Notes::default();
        let (events, _sending, _) = begin(&notes, 2);
        events.publish(&agent(), Severity::Warning, "InvalidSettings", "x");
        sleep(Duration::from_secs(10)).await;
        assert_eq!(*notes.lock().unwrap(), ["x"]);
    }

    /// Regression test: on a real cluster, a policy rejected Events for a minute, and the Event about a stalled rollout was lost.
    #[tokio::test(start_paused = true)]
    async fn rejected_events_are_retried_in_order_and_dropped_after_an_hour() {
        let notes = Notes::default();
        let (events, _sending, metrics) = begin(&notes, 20);
        for note in ["a", "b"] {
            events.record(&agent(), Severity::Warning, "RolloutStalled", note);
        }
        sleep(Duration::from_secs(300)).await;
        assert_eq!(*notes.lock().unwrap(), ["a", "b"]);
        assert!(!metrics.encode().contains("yurt_ds_events_dropped_total{"));
        let (events, _sending, metrics) = begin(&notes, usize::MAX);
        events.record(&agent(), Severity::Warning, "RolloutStalled", "never");
        sleep(Duration::from_secs(4000)).await;
        let dropped = "yurt_ds_events_dropped_total{reason=\"unreachable\"} 1";
        assert!(metrics.encode().contains(dropped), "{}", metrics.encode());
    }

    #[tokio::test(start_paused = true)]
    async fn events_are_rate_limited_and_dropped_events_are_counted() {
        let notes = Notes::default();
        let (events, _sending, metrics) = begin(&notes, 0);
        for n in 0..1000 {
            events.publish(&agent(), Severity::Normal, "RolloutStarted", &n.to_string());
        }
        sleep(Duration::from_secs(1)).await;
        let sent = notes.lock().unwrap().len();
        assert_eq!(sent, PER_MINUTE as usize);
        let page = metrics.encode();
        let full = format!(
            "yurt_ds_events_dropped_total{{reason=\"queue_full\"}} {}",
            1000 - QUEUE
        );
        assert!(page.contains(&full), "{page}");
        sleep(Duration::from_secs(10)).await;
        events.publish(&agent(), Severity::Normal, "RolloutStarted", "later");
        sleep(Duration::from_secs(1)).await;
        assert_eq!(notes.lock().unwrap().last().unwrap(), "later");
    }

    #[test]
    fn long_event_texts_are_cut_between_characters() {
        assert_eq!(cut("aäb", 2), "a");
        assert_eq!(cut("aäb", 3), "aä");
        assert_eq!(cut("aäb", 9), "aäb");
    }
}
