//! Stream of an open watch: the current objects or the missed events, then new events and regular bookmarks.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::present::Form;
use super::resources::Resource;
use super::store::{OpenedWatch, Store, StoreChange, StoreSignal, watch_line};

/// Interval between bookmarks, about the same as in kube-apiserver.
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);

/// Options of a watch, from the request.
pub(crate) struct WatchOptions {
    /// Resource whose objects are watched.
    pub(crate) resource: &'static Resource,
    /// Representation in which objects are sent.
    pub(crate) form: Form,
    /// True if the client requested bookmarks.
    pub(crate) bookmarks: bool,
    /// True to send the bookmark that marks the end of the initial events.
    pub(crate) initial_end: bool,
    /// Time after which the server ends the watch.
    pub(crate) timeout: Duration,
}

/// Guard that removes the watcher from the store when the client has disconnected.
struct Registered {
    store: Arc<Mutex<Store>>,
    resource: &'static Resource,
    id: u64,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.store
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .unwatch(self.resource.storage, self.id);
    }
}

struct Watch {
    registered: Registered,
    manner: WatchOptions,
    first: VecDeque<Bytes>,
    queue: mpsc::Receiver<StoreSignal>,
    tick: Interval,
    end: Instant,
}

/// Returns the lines that a watch sends, until its timeout.
pub(crate) fn lines(
    store: Arc<Mutex<Store>>,
    opened: OpenedWatch,
    manner: WatchOptions,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    let mut first: VecDeque<Bytes> = opened
        .present
        .iter()
        .map(|stored| {
            manner
                .form
                .line(manner.resource, StoreChange::Added, stored)
        })
        .collect();
    for (change, event) in &opened.replay {
        first.push_back(manner.form.event_line(manner.resource, *change, event));
    }
    if manner.initial_end {
        first.push_back(bookmark(&manner, opened.version, true));
    }
    let mut tick = tokio::time::interval(BOOKMARK_PERIOD);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick.reset();
    let end = Instant::now() + manner.timeout;
    let registered = Registered {
        store,
        resource: manner.resource,
        id: opened.id,
    };
    let watch = Watch {
        registered,
        manner,
        first,
        queue: opened.queue,
        tick,
        end,
    };
    futures::stream::unfold(Some(watch), |watch| async move {
        let mut watch = watch?;
        match watch.next().await {
            Some(Ok(line)) => Some((Ok(line), Some(watch))),
            Some(Err(broken)) => Some((Err(broken), None)),
            None => None,
        }
    })
}

impl Watch {
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        if let Some(line) = self.first.pop_front() {
            return Some(Ok(line));
        }
        loop {
            tokio::select! {
                biased;
                signal = self.queue.recv() => return self.tell(signal?),
                () = tokio::time::sleep_until(self.end) => return None,
                _ = self.tick.tick(), if self.manner.bookmarks => self.ask_for_bookmark(),
            }
        }
    }

    fn tell(&self, signal: StoreSignal) -> Option<io::Result<Bytes>> {
        Some(match signal {
            StoreSignal::Event(change, event) => {
                Ok(self
                    .manner
                    .form
                    .event_line(self.manner.resource, change, &event))
            }
            StoreSignal::Bookmark(version) => Ok(bookmark(&self.manner, version, false)),
            StoreSignal::Disconnect => Err(io::Error::new(
                io::ErrorKind::ConnectionReset,
                "the connection of this watch was interrupted",
            )),
        })
    }

    /// Adds a bookmark to the watcher's queue. So the bookmark is sent after all earlier events.
    fn ask_for_bookmark(&self) {
        let registered = &self.registered;
        registered
            .store
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .bookmark(registered.resource.storage, registered.id);
    }
}

fn bookmark(manner: &WatchOptions, version: u64, initial_end: bool) -> Bytes {
    let mut object = json!({
        "kind": manner.resource.kind,
        "apiVersion": manner.resource.api_version(),
        "metadata": { "resourceVersion": version.to_string(), "creationTimestamp": null },
    });
    if initial_end {
        object["metadata"]["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
    }
    let object = manner.form.bookmark(manner.resource, object);
    watch_line("BOOKMARK", object.to_string().as_bytes())
}
