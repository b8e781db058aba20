//! Shared code of the native controllers: caches that are updated by watches and by responses to the controller's own writes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Debug;
use std::pin::Pin;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{Stream, StreamExt as _};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep_until};

use crate::k8s::client::WATCH_TIMEOUT_SECONDS;

/// Maximum number of requests that one controller has in flight.
const PARALLEL: usize = 64;

/// Key of an object in a [`Cache`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WatchedKey {
    /// Namespace; empty for cluster-scoped kinds.
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl WatchedKey {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

pub(crate) fn key<K: Resource>(object: &K) -> WatchedKey {
    let meta = object.meta();
    WatchedKey {
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
    }
}

/// Watch without an end. It reconnects automatically.
pub(crate) type WatchEvents<K> = Pin<Box<dyn Stream<Item = Event<K>> + Send>>;

/// Watches the objects of `api` that the field selector `fields` selects. An empty selector selects all objects.
pub(crate) fn events<K>(api: Api<K>, fields: &str) -> WatchEvents<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let config = watcher::Config::default().timeout(WATCH_TIMEOUT_SECONDS);
    let config = match fields {
        "" => config,
        fields => config.fields(fields),
    };
    let stream = watch(api, config).default_backoff();
    Box::pin(stream.filter_map(|event| async {
        event
            .inspect_err(|error| tracing::debug!(%error, "A watch failed; restarting it"))
            .ok()
    }))
}

/// Delays the events of a watch. This simulates a busy controller with client-go's `DeltaFIFO` queue (before Kubernetes 1.33).
///
/// The queue delivers one object per `pace`, with all pending events of that object. Objects are ordered by their first pending
/// event, so a later event can be delivered before an earlier event of another object.
pub(crate) fn backlog<K>(events: WatchEvents<K>, pace: Duration) -> WatchEvents<K>
where
    K: Resource + Send + 'static,
{
    let backlog = Backlog {
        events,
        pace,
        turns: VecDeque::new(),
        changes: BTreeMap::new(),
        pending: VecDeque::new(),
        next: Instant::now(),
    };
    let next = async |mut backlog: Backlog<K>| Some((backlog.next().await?, backlog));
    Box::pin(futures::stream::unfold(backlog, next))
}

struct Backlog<K> {
    events: WatchEvents<K>,
    pace: Duration,
    /// Changed objects, ordered by their first pending event.
    turns: VecDeque<WatchedKey>,
    changes: BTreeMap<WatchedKey, Vec<Event<K>>>,
    /// Events of the current object that remain to be delivered.
    pending: VecDeque<Event<K>>,
    /// Time at which the events of the next object are delivered.
    next: Instant,
}

impl<K: Resource> Backlog<K> {
    async fn next(&mut self) -> Option<Event<K>> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Some(event);
            }
            tokio::select! {
                biased;
                event = self.events.next() => match event? {
                    Event::Apply(object) => self.add(key(&object), Event::Apply(object)),
                    Event::Delete(object) => self.add(key(&object), Event::Delete(object)),
                    list => return Some(list),
                },
                () = sleep_until(self.next), if !self.turns.is_empty() => {
                    let turn = self.turns.pop_front();
                    let changes = turn.and_then(|key| self.changes.remove(&key));
                    self.pending.extend(changes.into_iter().flatten());
                    self.next = Instant::now() + self.pace;
                }
            }
        }
    }

    fn add(&mut self, key: WatchedKey, event: Event<K>) {
        if self.turns.is_empty() {
            self.next = Instant::now() + self.pace;
        }
        let changes = self.changes.entry(key.clone()).or_default();
        if changes.is_empty() {
            self.turns.push_back(key);
        }
        changes.push(event);
    }
}

/// Cache of objects by key. Objects that are older than the cached version are ignored.
#[derive(Debug)]
pub(crate) struct Cache<K> {
    objects: BTreeMap<WatchedKey, K>,
    /// Keys of cached objects that the relist in progress has not contained so far; `None` if there is no relist.
    unseen: Option<BTreeSet<WatchedKey>>,
    /// True once the first list is complete.
    synced: bool,
    /// UIDs of deleted objects. A pending write may still return such an object, and this response is ignored.
    gone: BTreeSet<String>,
}

/// Change of the cache: the key of an object and the object's old version. The new version is in the cache, if the object still
/// exists.
#[derive(Debug)]
pub(crate) struct WatchedChange<K> {
    pub(crate) key: WatchedKey,
    pub(crate) before: Option<K>,
}

impl<K> Default for Cache<K> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            unseen: None,
            synced: false,
            gone: BTreeSet::new(),
        }
    }
}

impl<K: Resource + Clone> Cache<K> {
    /// Updates the cache with an event of the watch.
    pub(crate) fn event(&mut self, event: Event<K>) -> Vec<WatchedChange<K>> {
        match event {
            Event::Init => {
                self.unseen = Some(self.objects.keys().cloned().collect());
                Vec::new()
            }
            Event::InitApply(object) => {
                if let Some(unseen) = &mut self.unseen {
                    unseen.remove(&key(&object));
                }
                self.put(object).into_iter().collect()
            }
            Event::InitDone => {
                self.synced = true;
                let unseen = self.unseen.take().unwrap_or_default();
                unseen.iter().filter_map(|key| self.take(key)).collect()
            }
            Event::Apply(object) => self.put(object).into_iter().collect(),
            Event::Delete(object) => {
                self.gone.extend(object.meta().uid.clone());
                let key = key(&object);
                let same = |cached: &K| cached.meta().uid == object.meta().uid;
                let known = self.objects.get(&key).is_some_and(same);
                known
                    .then(|| self.take(&key))
                    .flatten()
                    .into_iter()
                    .collect()
            }
        }
    }

    /// Updates the cache with the response to one of the controller's own writes.
    pub(crate) fn answer(&mut self, object: K) -> Option<WatchedChange<K>> {
        let uid = object.meta().uid.as_deref().unwrap_or_default();
        if self.gone.contains(uid) {
            None
        } else {
            self.put(object)
        }
    }

    /// Clears the UIDs of deleted objects. Must be called only while no write is in flight, because then no outdated response can
    /// arrive.
    pub(crate) fn quiet(&mut self) {
        self.gone.clear();
    }

    fn put(&mut self, object: K) -> Option<WatchedChange<K>> {
        let key = key(&object);
        let old = self.objects.get(&key);
        if old.is_some_and(|old| version(old) >= version(&object)) {
            return None;
        }
        let before = self.objects.insert(key.clone(), object);
        Some(WatchedChange { key, before })
    }

    /// Removes an object from the cache.
    pub(crate) fn take(&mut self, key: &WatchedKey) -> Option<WatchedChange<K>> {
        let before = self.objects.remove(key)?;
        Some(WatchedChange {
            key: key.clone(),
            before: Some(before),
        })
    }

    pub(crate) fn is_synced(&self) -> bool {
        self.synced
    }

    pub(crate) fn get(&self, key: &WatchedKey) -> Option<&K> {
        self.objects.get(key)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&WatchedKey, &K)> + Clone {
        self.objects.iter()
    }

    pub(crate) fn in_namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a K> {
        self.objects
            .range(WatchedKey::new(namespace, "")..)
            .take_while(move |(key, _)| key.namespace == namespace)
            .map(|(_, object)| object)
    }
}

/// Returns the resourceVersion as a number, or the maximum if it is not a number. A newer version has a higher number.
pub(crate) fn version<K: Resource>(object: &K) -> u64 {
    let version = object.meta().resource_version.as_deref();
    version.and_then(|v| v.parse().ok()).unwrap_or(u64::MAX)
}

/// Requests in flight, with a limit on their number.
pub(crate) struct WatchedWrites<T> {
    waiting: VecDeque<BoxFuture<'static, T>>,
    under_way: FuturesUnordered<BoxFuture<'static, T>>,
}

impl<T> Default for WatchedWrites<T> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            under_way: FuturesUnordered::new(),
        }
    }
}

impl<T> WatchedWrites<T> {
    pub(crate) fn add(&mut self, write: impl Future<Output = T> + Send + 'static) {
        self.waiting.push_back(Box::pin(write));
    }

    /// Returns the result of the next request that completes. Waits indefinitely if there is none.
    pub(crate) async fn next(&mut self) -> T {
        while self.under_way.len() < PARALLEL
            && let Some(write) = self.waiting.pop_front()
        {
            self.under_way.push(write);
        }
        match self.under_way.next().await {
            Some(answer) => answer,
            None => std::future::pending().await,
        }
    }
}
