//! Events of the native controllers, written in the core group. After a burst of Events about one object, their rate is limited.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};

use crate::clock::Clock;

/// Maximum number of Events in a burst about one object. Afterwards, one Event is allowed every [`REFILL`]. Both values are those
/// of Kubernetes' event recorder.
const BURST: u32 = 25;
const REFILL: SignedDuration = SignedDuration::from_mins(5);

/// Writer of the Events of one component.
#[derive(Clone)]
pub(crate) struct EventSink {
    client: Client,
    clock: Clock,
    component: &'static str,
    /// Number of Events that remain allowed, and the time of the last change, by UID of the object.
    left: Arc<Mutex<BTreeMap<String, (u32, Timestamp)>>>,
}

/// Writer of Events about one object.
#[derive(Clone)]
pub(crate) struct Recorder {
    events: EventSink,
    about: ObjectReference,
}

impl EventSink {
    pub(crate) fn new(client: Client, clock: Clock, component: &'static str) -> Self {
        Self {
            client,
            clock,
            component,
            left: Arc::default(),
        }
    }

    pub(crate) fn about(&self, object: ObjectReference) -> Recorder {
        Recorder {
            events: self.clone(),
            about: object,
        }
    }

    fn may(&self, uid: &str, now: Timestamp) -> Option<u32> {
        let mut all = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let (left, since) = all.entry(uid.to_owned()).or_insert((BURST, now));
        while *left < BURST && now.duration_since(*since) >= REFILL {
            *left += 1;
            *since = since.saturating_add(REFILL).unwrap_or(now);
        }
        *left = left.checked_sub(1)?;
        Some(*left)
    }
}

impl Recorder {
    /// Writes an Event unless the object's limit is reached. Errors are ignored.
    pub(crate) async fn record(&self, kind: &str, reason: &str, note: &str) {
        let now = self.events.clock.now();
        let uid = self.about.uid.as_deref().unwrap_or_default();
        let Some(left) = self.events.may(uid, now) else {
            return;
        };
        let event = self.event(kind, reason, note, now, left);
        let namespace = self.about.namespace.as_deref().unwrap_or("default");
        let api: Api<Event> = Api::namespaced(self.events.client.clone(), namespace);
        if let Err(error) = api.create(&PostParams::default(), &event).await {
            tracing::debug!(%error, reason, "Cannot write an Event");
        }
    }

    fn event(&self, kind: &str, reason: &str, note: &str, now: Timestamp, left: u32) -> Event {
        let time = self.events.clock.time();
        let name = self.about.name.as_deref().unwrap_or_default();
        let unique = crate::sim::dice::mix(u64::from(left) ^ now.as_microsecond().unsigned_abs());
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{name}.{unique:016x}")),
                namespace: self.about.namespace.clone(),
                ..ObjectMeta::default()
            },
            type_: Some(kind.to_owned()),
            reason: Some(reason.to_owned()),
            message: Some(note.to_owned()),
            count: Some(1),
            first_timestamp: Some(time.clone()),
            last_timestamp: Some(time),
            involved_object: self.about.clone(),
            source: Some(EventSource {
                component: Some(self.events.component.to_owned()),
                host: None,
            }),
            ..Event::default()
        }
    }
}
