//! Store: the objects, the global resourceVersion, the log of events, and the watchers.
//!
//! Every change goes through [`Store::put`] or [`Store::remove`]. Each change gets the next resourceVersion and sends one event
//! to the watchers that may need it. An event is serialized once for all watchers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::mpsc;

use super::object::Object;
use super::resources::Storage;
use super::selector::{FieldSelector, selects};
use crate::core::selector::Selector;

/// Maximum number of events that are queued for a slow watcher. If more events arrive, the server ends the watch. kube-apiserver
/// does the same with a shorter queue.
const WATCHER_QUEUE: usize = 10_000;

/// Key of an object within its collection.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectKey {
    /// Namespace; empty for cluster-scoped objects.
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl ObjectKey {
    pub(crate) fn from_object(object: &Value) -> Self {
        Self {
            namespace: object.namespace().to_owned(),
            name: object.name().to_owned(),
        }
    }
}

/// Stored object. It is immutable; a change stores a new one.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) value: Value,
    /// resourceVersion of the object as a number.
    pub(crate) version: u64,
    json: OnceLock<Bytes>,
}

impl Stored {
    fn new(mut value: Value, version: u64) -> Arc<Self> {
        value
            .metadata_mut()
            .insert("resourceVersion".to_owned(), version.to_string().into());
        Arc::new(Self {
            value,
            version,
            json: OnceLock::new(),
        })
    }

    /// Returns the object as JSON. It is serialized at the first call.
    pub(crate) fn json(&self) -> &Bytes {
        self.json.get_or_init(|| self.value.to_string().into())
    }

    fn text(&self) -> Text {
        Text {
            version: self.version,
            json: self.json().clone(),
        }
    }
}

/// Stored object as JSON text, which takes a tenth of the memory of the parsed object.
#[derive(Debug)]
struct Text {
    version: u64,
    json: Bytes,
}

impl Text {
    fn read(&self) -> Arc<Stored> {
        Arc::new(Stored {
            value: serde_json::from_slice(&self.json).unwrap_or_default(),
            version: self.version,
            json: OnceLock::from(self.json.clone()),
        })
    }
}

/// Kind of a change. For a watcher with a selector, the kind may differ from the kind in the store: a modified object may appear or
/// disappear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreChange {
    /// The object was created, or a selector now selects it.
    Added,
    /// The object was changed.
    Modified,
    /// The object was deleted, or a selector no longer selects it.
    Deleted,
}

impl StoreChange {
    /// Returns the event type of the watch protocol.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// Entry of the log: an event with its objects as JSON text. The text is parsed again when a watch resumes from an earlier version.
#[derive(Debug)]
struct Entry {
    change: StoreChange,
    object: Text,
    previous: Option<Text>,
}

impl Entry {
    fn from_event(event: &Event) -> Self {
        Self {
            change: event.change,
            object: event.object.text(),
            previous: event.previous.as_ref().map(|previous| previous.text()),
        }
    }

    fn read(&self) -> Event {
        let previous = self.previous.as_ref().map(Text::read);
        Event::new(self.change, self.object.read(), previous)
    }
}

/// Event: the change of one object.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) change: StoreChange,
    /// Object after the change. For a deletion: the last state of the object, with the resourceVersion of the deletion.
    pub(crate) object: Arc<Stored>,
    /// Object before the change; `None` for a creation.
    pub(crate) previous: Option<Arc<Stored>>,
    left: OnceLock<Arc<Stored>>,
    lines: [OnceLock<Bytes>; 3],
}

impl Event {
    fn new(change: StoreChange, object: Arc<Stored>, previous: Option<Arc<Stored>>) -> Self {
        Self {
            change,
            object,
            previous,
            left: OnceLock::new(),
            lines: Default::default(),
        }
    }

    /// Returns the change for a watcher with this filter; `None` if the filter selects neither the old nor the new object.
    pub(crate) fn seen_by(&self, filter: &Filter) -> Option<StoreChange> {
        let is = self.change != StoreChange::Deleted && filter.selects(&self.object.value);
        let was = self
            .previous
            .as_ref()
            .is_some_and(|previous| filter.selects(&previous.value));
        match (was, is) {
            (false, true) => Some(StoreChange::Added),
            (true, true) => Some(StoreChange::Modified),
            (true, false) => Some(StoreChange::Deleted),
            (false, false) => None,
        }
    }

    /// Returns the object to send to a watcher. `seen` is the kind of the change for this watcher.
    ///
    /// If the watcher's selector no longer selects the object, the watcher gets the previous state with the new resourceVersion.
    pub(crate) fn shown(&self, seen: StoreChange) -> &Arc<Stored> {
        match (&self.previous, seen, self.change) {
            (Some(previous), StoreChange::Deleted, StoreChange::Modified) => self
                .left
                .get_or_init(|| Stored::new(previous.value.clone(), self.object.version)),
            _ => &self.object,
        }
    }

    /// Returns the event as a line of JSON. All watchers share the same bytes.
    pub(crate) fn line(&self, seen: StoreChange) -> Bytes {
        self.lines[seen as usize]
            .get_or_init(|| watch_line(seen.word(), self.shown(seen).json()))
            .clone()
    }
}

/// Returns the JSON line `{"type":…,"object":…}` of a watch.
pub(crate) fn watch_line(word: &str, object: &[u8]) -> Bytes {
    let mut line = Vec::with_capacity(object.len() + 40);
    line.extend_from_slice(b"{\"type\":\"");
    line.extend_from_slice(word.as_bytes());
    line.extend_from_slice(b"\",\"object\":");
    line.extend_from_slice(object);
    line.extend_from_slice(b"}\n");
    line.into()
}

/// Filter of a list or watch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    /// Namespace; empty for objects in all namespaces.
    pub(crate) namespace: String,
    /// Label selector that the objects must match.
    pub(crate) labels: Selector,
    /// Field selector that the objects must match.
    pub(crate) fields: FieldSelector,
}

impl Filter {
    pub(crate) fn selects(&self, object: &Value) -> bool {
        (self.namespace.is_empty() || self.namespace == object.namespace())
            && selects(&self.labels, object)
            && self.fields.selects(object)
    }

    fn route(&self) -> Route {
        if let Some(node) = self.fields.required("spec.nodeName") {
            return Route::Node(node.to_owned());
        }
        match (
            self.fields.required("metadata.name"),
            self.namespace.as_str(),
        ) {
            (Some(name), _) => Route::Name(name.to_owned()),
            (None, "") => Route::All,
            (None, namespace) => Route::Namespace(namespace.to_owned()),
        }
    }
}

/// Group of watchers that an event is sent to. Each watcher registers for the narrowest group that covers its filter, so that a
/// change of one pod doesn't wake a thousand kubelets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Route {
    All,
    Namespace(String),
    Name(String),
    Node(String),
}

fn routes(event: &Event) -> BTreeSet<Route> {
    let object = &event.object.value;
    let mut routes = BTreeSet::from([
        Route::All,
        Route::Namespace(object.namespace().to_owned()),
        Route::Name(object.name().to_owned()),
    ]);
    let states = [Some(&event.object), event.previous.as_ref()];
    for state in states.into_iter().flatten() {
        routes.insert(Route::Node(state.value.text("/spec/nodeName").to_owned()));
    }
    routes
}

/// Message to a watcher.
#[derive(Debug)]
pub(crate) enum StoreSignal {
    /// Event to send, with the kind of change for this watcher.
    Event(StoreChange, Arc<Event>),
    /// Bookmark to send: all events up to this resourceVersion were sent before.
    Bookmark(u64),
    /// Break the connection to the watcher.
    Disconnect,
}

#[derive(Debug)]
struct Watcher {
    filter: Filter,
    queue: mpsc::Sender<StoreSignal>,
}

#[derive(Debug, Default)]
struct Collection {
    objects: BTreeMap<ObjectKey, Arc<Stored>>,
    log: VecDeque<Entry>,
    /// resourceVersion up to which events were dropped from the log.
    floor: u64,
    watchers: BTreeMap<u64, Watcher>,
    on_route: BTreeMap<Route, BTreeSet<u64>>,
}

impl Collection {
    /// Drops the oldest events of the log until `left` events remain.
    fn forget_events(&mut self, left: usize) {
        while self.log.len() > left {
            if let Some(old) = self.log.pop_front() {
                self.floor = old.object.version;
            }
        }
    }

    fn forget(&mut self, id: u64) {
        let Some(watcher) = self.watchers.remove(&id) else {
            return;
        };
        let route = watcher.filter.route();
        if let Some(ids) = self.on_route.get_mut(&route) {
            ids.remove(&id);
            if ids.is_empty() {
                self.on_route.remove(&route);
            }
        }
    }

    fn tell(&mut self, event: &Arc<Event>) {
        let mut slow = Vec::new();
        for route in routes(event) {
            for id in self.on_route.get(&route).into_iter().flatten() {
                let Some(watcher) = self.watchers.get(id) else {
                    continue;
                };
                if let Some(seen) = event.seen_by(&watcher.filter) {
                    let signal = StoreSignal::Event(seen, Arc::clone(event));
                    if watcher.queue.try_send(signal).is_err() {
                        slow.push(*id);
                    }
                }
            }
        }
        for id in slow {
            self.forget(id);
        }
    }
}

/// Objects, watches and counters of the server.
#[derive(Debug)]
pub(crate) struct Store {
    version: u64,
    history: usize,
    collections: BTreeMap<Storage, Collection>,
    next_watcher: u64,
    random: Random,
}

/// Newly opened watch. The client first gets the initial events, then the events in the queue.
pub(crate) struct OpenedWatch {
    /// ID of the watcher, used to send bookmarks and to end the watch.
    pub(crate) id: u64,
    /// Current objects; empty if the watch starts from an earlier resourceVersion.
    pub(crate) present: Vec<Arc<Stored>>,
    /// Events since the resourceVersion from which the watch starts.
    pub(crate) replay: Vec<(StoreChange, Arc<Event>)>,
    /// Queue of the events that follow.
    pub(crate) queue: mpsc::Receiver<StoreSignal>,
    /// resourceVersion of the store when the watch was opened.
    pub(crate) version: u64,
}

impl Store {
    /// Returns an empty store that keeps `history` events of each kind.
    pub(crate) fn new(seed: u64, history: usize) -> Self {
        Self {
            version: 1,
            history,
            collections: BTreeMap::new(),
            next_watcher: 0,
            random: Random(seed),
        }
    }

    /// Returns the resourceVersion of the last change.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Returns a new UID, derived from the seed.
    pub(crate) fn uid(&mut self) -> String {
        let (high, low) = (self.random.next(), self.random.next());
        let (time_low, time_mid, time_high) = (high >> 32, (high >> 16) & 0xffff, high & 0x0fff);
        let (clock, node) = (0x8000 | ((low >> 48) & 0x3fff), low & 0xffff_ffff_ffff);
        format!("{time_low:08x}-{time_mid:04x}-4{time_high:03x}-{clock:04x}-{node:012x}")
    }

    /// Returns five random characters for a generated name. As in Kubernetes, there are no vowels, so that no words appear.
    pub(crate) fn suffix(&mut self) -> String {
        const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        let mut bits = self.random.next();
        (0..5)
            .map(|_| {
                let at = bits % ALPHABET.len() as u64;
                bits /= ALPHABET.len() as u64;
                char::from(ALPHABET[usize::try_from(at).unwrap_or_default()])
            })
            .collect()
    }

    pub(crate) fn get(&self, storage: Storage, key: &ObjectKey) -> Option<&Arc<Stored>> {
        self.collections.get(&storage)?.objects.get(key)
    }

    /// Returns the objects that a filter selects, ordered by namespace and name.
    ///
    /// Starts after the key `after`, or with the first object if `after` is `None`.
    pub(crate) fn select<'a>(
        &'a self,
        storage: Storage,
        filter: &'a Filter,
        after: Option<&ObjectKey>,
    ) -> impl Iterator<Item = (&'a ObjectKey, &'a Arc<Stored>)> {
        use std::ops::Bound;
        let start = match after {
            Some(key) => Bound::Excluded(key.clone()),
            None => Bound::Included(ObjectKey {
                namespace: filter.namespace.clone(),
                name: String::new(),
            }),
        };
        self.collections
            .get(&storage)
            .into_iter()
            .flat_map(move |collection| collection.objects.range((start.clone(), Bound::Unbounded)))
            .take_while(|(key, _)| filter.namespace.is_empty() || key.namespace == filter.namespace)
            .filter(|(_, stored)| filter.selects(&stored.value))
    }

    /// Creates or replaces an object. The write gets the next resourceVersion.
    pub(crate) fn put(&mut self, storage: Storage, object: Value) -> Arc<Stored> {
        self.version += 1;
        let stored = Stored::new(object, self.version);
        let collection = self.collections.entry(storage).or_default();
        let previous = collection
            .objects
            .insert(ObjectKey::from_object(&stored.value), Arc::clone(&stored));
        let change = match previous {
            Some(_) => StoreChange::Modified,
            None => StoreChange::Added,
        };
        self.log(storage, Event::new(change, Arc::clone(&stored), previous));
        stored
    }

    /// Removes an object. Watchers get its last state, with the resourceVersion of the removal.
    pub(crate) fn remove(&mut self, storage: Storage, key: &ObjectKey) -> Option<Arc<Stored>> {
        let previous = self.collections.get_mut(&storage)?.objects.remove(key)?;
        self.version += 1;
        let last = Stored::new(previous.value.clone(), self.version);
        self.log(
            storage,
            Event::new(StoreChange::Deleted, Arc::clone(&last), Some(previous)),
        );
        Some(last)
    }

    fn log(&mut self, storage: Storage, event: Event) {
        let collection = self.collections.entry(storage).or_default();
        let event = Arc::new(event);
        collection.tell(&event);
        collection.log.push_back(Entry::from_event(&event));
        collection.forget_events(self.history);
    }

    /// Opens a watch of the events after `since`. If `since` is `None`, the watch starts with the current objects.
    ///
    /// # Errors
    ///
    /// If `since` is too old, returns the oldest resourceVersion from which a watch can start.
    pub(crate) fn watch(
        &mut self,
        storage: Storage,
        filter: Filter,
        since: Option<u64>,
    ) -> Result<OpenedWatch, u64> {
        let floor = self.collections.entry(storage).or_default().floor;
        if since.is_some_and(|since| since < floor) {
            return Err(floor);
        }
        let present = match since {
            Some(_) => Vec::new(),
            None => self
                .select(storage, &filter, None)
                .map(|(_, stored)| Arc::clone(stored))
                .collect(),
        };
        let collection = self.collections.entry(storage).or_default();
        let replay = match since {
            Some(since) => collection
                .log
                .iter()
                .filter(|entry| entry.object.version > since)
                .map(|entry| Arc::new(entry.read()))
                .filter_map(|event| Some((event.seen_by(&filter)?, event)))
                .collect(),
            None => Vec::new(),
        };
        self.next_watcher += 1;
        let id = self.next_watcher;
        let (sender, queue) = mpsc::channel(WATCHER_QUEUE);
        collection
            .on_route
            .entry(filter.route())
            .or_default()
            .insert(id);
        collection.watchers.insert(
            id,
            Watcher {
                filter,
                queue: sender,
            },
        );
        Ok(OpenedWatch {
            id,
            present,
            replay,
            queue,
            version: self.version,
        })
    }

    /// Adds a bookmark to the queue of a watch. The bookmark is sent after the events in the queue.
    pub(crate) fn bookmark(&mut self, storage: Storage, id: u64) {
        let version = self.version;
        if let Some(watcher) = self
            .collections
            .get(&storage)
            .and_then(|collection| collection.watchers.get(&id))
        {
            // If the queue is full, skip this bookmark. The client still gets the queued events, and the next bookmark suffices.
            let _ = watcher.queue.try_send(StoreSignal::Bookmark(version));
        }
    }

    /// Ends a watch and removes its watcher.
    pub(crate) fn unwatch(&mut self, storage: Storage, id: u64) {
        if let Some(collection) = self.collections.get_mut(&storage) {
            collection.forget(id);
        }
    }

    /// Breaks the connection of every watch.
    pub(crate) fn disconnect_watches(&mut self) {
        for collection in self.collections.values_mut() {
            for watcher in std::mem::take(&mut collection.watchers).into_values() {
                // If the queue is full, this message is lost. The watch ends anyway, because its sender is dropped.
                let _ = watcher.queue.try_send(StoreSignal::Disconnect);
            }
            collection.on_route.clear();
        }
    }

    /// Drops all events from the log. A watch that starts from an earlier version then gets a 410.
    pub(crate) fn compact(&mut self) {
        let version = self.version;
        let storages: Vec<Storage> = self.collections.keys().copied().collect();
        for storage in storages {
            let collection = self.collections.entry(storage).or_default();
            collection.log.clear();
            collection.floor = version;
        }
    }

    /// Returns the oldest resourceVersion from which a watch of the collection can start.
    pub(crate) fn floor(&self, storage: Storage) -> u64 {
        self.collections
            .get(&storage)
            .map_or(0, |collection| collection.floor)
    }
}

/// Random numbers (SplitMix64): small, fast, and reproducible from a seed.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
