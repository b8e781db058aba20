//! Events about state changes, sent in the background.
//!
//! An Event is for a person who looks at an object and wonders: so there is one when something changed, few about single pods,
//! and no second one that says the same while it lasts. Nothing waits for an Event: what is refused is kept and tried again, with the
//! time at which it was true, and what is too much or an hour old is counted and dropped.

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

/// Events that wait to be sent: a burst of one per DaemonSet of a large cluster after a start.
const QUEUE: usize = 256;
/// The same of those about single pods.
const ASIDES: usize = 64;
/// Events per minute and replica: room for all DaemonSets of a large cluster to change their state, far below what an
/// API server notices.
const PER_MINUTE: u32 = 240;
/// How often an Event is tried while the server does not answer, and how long is waited in between.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_secs(2);
/// The shortest and the longest pause before refused Events are tried again.
const AGAIN: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(30));
/// What was not said again for so long is forgotten; the API server forgets Events after that time, too.
const REMEMBERED: SignedDuration = SignedDuration::from_hours(1);
/// How long the last Events may take when the process ends.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// The API's limit for notes, in bytes.
const NOTE_LIMIT: usize = 1024;
/// Names of objects have up to 253 bytes; this leaves room for a suffix.
const NAME_LIMIT: usize = 220;
/// The API's limit for names of reporting instances.
const INSTANCE_LIMIT: usize = 128;

/// What an Event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// As in the object.
    pub api_version: &'static str,
    /// As in the object.
    pub kind: &'static str,
    /// The Event is written there, too.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// The object's UID; empty when it is not known.
    pub uid: String,
}

impl Subject {
    /// A DaemonSet.
    pub fn daemonset(namespace: &str, name: &str, uid: &str) -> Self {
        Self {
            api_version: "apps/v1",
            kind: "DaemonSet",
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
        }
    }

    /// The DaemonSet of this key.
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

    /// An object of a watched resource.
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
            // Events about objects of the whole cluster are there.
            namespace: meta
                .namespace
                .clone()
                .unwrap_or_else(|| "default".to_owned()),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
        }
    }

    /// The Lease of the replicas: stands for the controller itself.
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

/// Whether somebody should act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Good to know.
    Normal,
    /// Needs a person.
    Warning,
}

/// By object and reason with topic the note that was said last, and when.
type LastNotes = BTreeMap<(String, String), (String, Timestamp)>;

/// The door for Events; cheap to clone, never blocks.
#[derive(Clone)]
pub struct Events {
    client: Client,
    queue: Sender<Event>,
    /// Those about single pods: they are sent while nothing else is to be.
    asides: Sender<Event>,
    /// The last note per object, reason and topic, and when somebody wanted to say it last.
    said: Arc<Mutex<LastNotes>>,
    clock: Clock,
    instance: String,
    metrics: Arc<Metrics>,
    /// Tells apart the names of Events of the same instant.
    number: Arc<AtomicU64>,
}

/// What sends them.
#[derive(Debug)]
pub struct EventSender(JoinHandle<()>);

/// Starts sending. `instance` names this replica in every Event.
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
        said: Arc::default(),
        clock,
        instance: cut(instance, INSTANCE_LIMIT).to_owned(),
        metrics: metrics.clone(),
        number: Arc::default(),
    };
    let sending = tokio::spawn(send_all(client, queued, beside, metrics));
    (events, EventSender(sending))
}

impl EventSender {
    /// Waits a little for what is queued; drop every [`Events`] before.
    pub async fn finish(self) {
        if timeout(LAST_WORDS, self.0).await.is_err() {
            warn!("Some Events were not sent before the end");
        }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Events");
        shown.field("said", &self.said).finish_non_exhaustive()
    }
}

impl Events {
    /// Says it once: the same note for the same object and reason is not repeated before another one came between, or nobody
    /// wanted to say it for an hour. For what is found out again and again; a change of state is [`announced`](Self::record).
    pub fn publish(&self, about: &Subject, severity: Severity, reason: &str, note: &str) {
        self.publish_on(about, severity, reason, "", note);
    }

    /// The same, where notes of one reason are about several topics: what is said on another one does not come between.
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
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.retain(|_, (_, at)| now.duration_since(*at) < REMEMBERED);
        if let Some((last, at)) = said.get_mut(&key)
            && last == note
        {
            *at = now;
            return;
        }
        if self.record(about, severity, reason, note) {
            said.insert(key, (note.to_owned(), now));
        }
    }

    /// Says it, whatever was said before; false when there is no room for it now.
    pub fn record(&self, about: &Subject, severity: Severity, reason: &str, note: &str) -> bool {
        let note = cut(note, NOTE_LIMIT);
        let event = self.event(about, severity, reason, note);
        let sent = self.queue.try_send(event).is_ok();
        if !sent {
            self.metrics.event_dropped("queue_full");
        }
        sent
    }

    /// Says of a single pod what happened to it, when nothing about a rollout waits to be said; with many of them some are left out.
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

    /// Says it at once. The `mark` makes it the same Event whoever says it, and however often; it ends when it was said, or
    /// cannot be.
    pub fn said_once(
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

    /// That object is gone, or what was said about it does not count any more.
    pub fn forget(&self, about: &Subject) {
        let object = subject_key(about);
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.retain(|(key, _), _| *key != object);
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

/// The text, cut to that many bytes between two characters.
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

/// An Event that did not arrive, and why not.
type Refused = (Event, Failure);

/// Events that were refused, and since when each waits; the oldest first.
struct UnsentEvents {
    events: VecDeque<(Refused, Instant)>,
    /// When they are tried again.
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

    /// Keeps one; with too many the oldest goes.
    fn keep(&mut self, refused: Refused, metrics: &Metrics) {
        if self.events.is_empty() {
            warn!("Events are refused: they are kept, and tried again for an hour");
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

    /// Sends what is taken now, in order, as far as there is room for it.
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

/// Sends one; the name makes a second try harmless. `Err`: it was refused, and may be taken later.
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
            Failure::Conflict => return Ok(()), // the first try had arrived
            Failure::Throttled | Failure::Unreachable if left > 0 => sleep(PAUSE).await,
            // With the namespace, whom it tells something is gone.
            Failure::Gone => {
                metrics.event_dropped(failure.word());
                return Ok(());
            }
            _ => {
                debug!(%error, "Cannot send an Event");
                return Err((event, failure));
            }
        }
    }
}

/// A bucket that refills evenly.
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

    /// A server that takes every Event, after failing as often as told.
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
    async fn the_same_note_is_said_once_until_another_came_between() {
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

    /// Found on a real cluster: two rights that were missing were told again and again, in turn.
    #[tokio::test(start_paused = true)]
    async fn notes_on_several_topics_do_not_come_between_each_other() {
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
    async fn what_nobody_wanted_to_say_for_an_hour_is_forgotten() {
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
        assert_eq!(events.said.lock().unwrap().len(), 1);
        drop(events);
        sending.finish().await;
        assert_eq!(*notes.lock().unwrap(), ["a", "b", "a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_of_state_is_announced_however_often_it_comes() {
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
    async fn a_server_that_fails_for_a_moment_gets_the_event_later() {
        let notes = Notes::default();
        let (events, _sending, _) = begin(&notes, 2);
        events.publish(&agent(), Severity::Warning, "InvalidSettings", "x");
        sleep(Duration::from_secs(10)).await;
        assert_eq!(*notes.lock().unwrap(), ["x"]);
    }

    /// Found on a real cluster: a policy refused Events for a minute, and that the rollout had stalled was never said.
    #[tokio::test(start_paused = true)]
    async fn what_is_refused_for_a_while_is_said_then_in_the_same_order() {
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
    async fn no_flood_gets_through_and_what_is_dropped_is_counted() {
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
    fn long_notes_are_cut_between_characters() {
        assert_eq!(cut("aäb", 2), "a");
        assert_eq!(cut("aäb", 3), "aä");
        assert_eq!(cut("aäb", 9), "aäb");
    }
}
