//! Watches of API objects. Each watch is a task that passes the API server's events to the engine as [`Input`]s.
//!
//! A failed watch is reopened after a pause. The pause grows to ten seconds while the watch reports nothing. Missed changes arrive
//! as a complete list between `Init` and `InitDone`; objects that the list doesn't contain are gone. The queue of inputs is
//! bounded: while the engine is busy, watches wait and the API server buffers.
//!
//! Watches of nodes and pods begin with a streaming list, where the API server supports that. There are many nodes and pods, and
//! for each page of an ordinary list the API server would walk over all remaining objects.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::runtime::watcher::Event;
use tokio::sync::mpsc::error::{SendError, TrySendError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::{info, warn};

use super::freshness::{Heard, STALE_AFTER, WatchAges};
use super::log_throttle::LogThrottle;
use super::metrics::Metrics;
use super::permissions::DeniedPermissions;
use super::reflector::{Ended, PAGE, Sink, Target};
use super::server::{self, Abilities};
use super::watch_groups::Group;
use crate::backoff::Backoff;
use crate::clock::Clock;
use crate::core::remedy::KRUISE_RUNS;
use crate::k8s::client::Failure;
use crate::k8s::{AdvancedDaemonSet, ControllerRevision, DaemonSet, Item, Node, Pod, Readable};

/// Pods per page of a list.
///
/// With 50,000 pods, a page takes the API server 20 ms, plus the time for the pods in the page (Kubernetes 1.28). Since 1.34, a
/// page costs three times as much, but a streaming list replaces the pages there. Larger pages don't help the API server, and
/// permanently increase the memory of this process.
const PODS_PAGE: u32 = 250;

/// Pause before a new list when the API server no longer has the changes since the last event.
const RELIST_PAUSE: Duration = Duration::from_millis(500);

/// Interval between checks for the Advanced DaemonSet CRD.
const LOOK_FOR_ADVANCED: Duration = Duration::from_secs(60);

/// Intervals between checks for Kruise's manager: `LOOK_FOR_KRUISE` while the manager doesn't run, `LOOK_AGAIN` while it does.
const LOOK_FOR_KRUISE: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Maximum number of lists in progress for [`Group`]s of DaemonSets. An object may have megabytes, and each list holds one object
/// in memory.
const PARALLEL_LISTS: usize = 8;

/// Minimum duration of a healthy watch. A watch that ends earlier without an event counts as failed.
const SHORT_WATCH: Duration = Duration::from_secs(1);

/// Maximum number of inputs that wait for the engine. At most a few thousand pods change at once, and an input takes half a
/// kilobyte.
const QUEUE: usize = 512;

/// Message of a watch to the engine.
#[derive(Debug)]
pub(super) enum Input {
    Node(Event<Item<Node>>),
    Set(Event<Item<DaemonSet>>),
    Advanced(Event<Item<DaemonSet>>),
    /// Advanced DaemonSets are not rolled out, for the given reason.
    NoAdvanced(Option<AdvancedAbsence>),
    /// Event about a ControllerRevision of a [`Group`]. The number identifies the watch of that group.
    Revision(u64, Event<Item<ControllerRevision>>),
    /// Event about a pod of a [`Group`]. The number identifies the watch of that group.
    ///
    /// The timestamp is the time at which the watch passed on the event. For `Init`, this is the time just before the list was
    /// requested. Changes that happened later, while the event waited for the engine, may be missing from the list.
    Pod(u64, Timestamp, Event<Item<Pod>>),
    /// True if the native controller sees changes of pods in the order in which they happened
    /// ([`Fleet::in_order`](crate::core::Fleet::in_order)).
    Order(bool),
}

/// Reason why Advanced DaemonSets are not rolled out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AdvancedAbsence {
    /// The API server doesn't serve Advanced DaemonSets: the CustomResourceDefinition is not installed.
    NotServed,
    /// Kruise's manager is running, and creates the pods of Advanced DaemonSets.
    OfKruise,
}

impl AdvancedAbsence {
    /// Returns the log message for this reason.
    pub(super) fn message(self) -> &'static str {
        match self {
            Self::NotServed => {
                "Advanced DaemonSets are not rolled out: the CustomResourceDefinition daemonsets.apps.kruise.io is not \
                 installed or does not serve v1beta1. Native DaemonSets are rolled out. The controller checks again \
                 regularly; --controllers native turns the checks off"
            }
            Self::OfKruise => KRUISE_RUNS,
        }
    }
}

/// Running watch. It ends when this value is dropped.
#[derive(Debug)]
pub(super) struct CacheWatch {
    task: JoinHandle<()>,
    heard: Option<Heard>,
}

impl CacheWatch {
    fn spawn(task: impl Future<Output = ()> + Send + 'static, heard: Option<Heard>) -> Self {
        Self {
            task: tokio::spawn(task),
            heard,
        }
    }

    /// Creates a watch that never reports anything.
    #[cfg(test)]
    pub(super) fn silent() -> Self {
        Self::spawn(std::future::pending(), None)
    }

    /// Returns the age of the watch's data if the data is stale (too old to act on).
    pub(super) fn stale(&self) -> Option<Duration> {
        self.heard.as_ref()?.stale()
    }
}

impl Drop for CacheWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Dependencies of the watches.
#[derive(Clone)]
pub(super) struct CacheParts {
    pub(super) client: Client,
    pub(super) metrics: Arc<Metrics>,
    pub(super) log_throttle: LogThrottle,
    /// Receiver of reports about denied lists and watches.
    pub(super) lacking: DeniedPermissions,
    pub(super) clock: Clock,
}

/// Factory of watches that pass their events to the engine.
#[derive(Clone)]
pub(super) struct Watches {
    parts: CacheParts,
    sender: mpsc::Sender<Input>,
    /// Abilities of the API server; `None`: not yet known.
    able: watch::Sender<Option<Abilities>>,
    ages: WatchAges,
    lists: Arc<Semaphore>,
}

impl Watches {
    /// Creates the queue of inputs without any watch. Also returns the receiver of the queue.
    pub(super) fn new(parts: CacheParts) -> (Self, mpsc::Receiver<Input>) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let able = watch::Sender::new(None);
        let ages = parts.metrics.watch_ages();
        let caches = Self {
            parts,
            sender,
            able,
            ages,
            lists: Arc::new(Semaphore::new(PARALLEL_LISTS)),
        };
        (caches, receiver)
    }

    /// Reads the version of the API server in the background, until it is known.
    pub(super) fn version(&self) -> CacheWatch {
        let caches = self.clone();
        let task = async move {
            let able = server::abilities(&caches.parts.client).await;
            caches.able.send_replace(Some(able));
            let _ended = caches.sender.send(Input::Order(able.in_order)).await;
        };
        CacheWatch::spawn(task, None)
    }

    pub(super) fn nodes(&self) -> CacheWatch {
        self.start(
            "nodes",
            everything::<Node>(),
            ListedBy::Ability,
            None,
            Input::Node,
        )
    }

    pub(super) fn sets(&self) -> CacheWatch {
        let target = everything::<DaemonSet>();
        self.start("daemonsets", target, ListedBy::Pages, None, Input::Set)
    }

    /// Watches all Advanced DaemonSets while the API server serves them and Kruise doesn't run.
    pub(super) fn advanced_sets(&self) -> CacheWatch {
        let caches = self.clone();
        let task = async move {
            let (mut absent, mut watch) = (None, None);
            loop {
                let absence = caches.why_no_advanced().await;
                if let Some((why, _)) = absence
                    && absent != Some(why)
                {
                    match why {
                        AdvancedAbsence::NotServed => info!("{}", why.message()),
                        AdvancedAbsence::OfKruise => warn!("{}", why.message()),
                    }
                }
                absent = absence.map(|(why, _)| why);
                let pause = match absence {
                    Some((_, pause)) => {
                        // End the watch first. A later event of the watch would add DaemonSets again after they are reported as
                        // gone.
                        drop(watch.take());
                        if caches.hand_on(Input::NoAdvanced(absent)).await.is_err() {
                            return;
                        }
                        pause
                    }
                    None => {
                        watch.get_or_insert_with(|| caches.watch_advanced());
                        LOOK_FOR_KRUISE
                    }
                };
                tokio::time::sleep(pause).await;
            }
        };
        CacheWatch::spawn(task, None)
    }

    fn watch_advanced(&self) -> CacheWatch {
        self.start(
            ADVANCED,
            everything::<AdvancedDaemonSet>(),
            ListedBy::Pages,
            None,
            |event| Input::Advanced(as_daemonset(event)),
        )
    }

    /// Returns the reason why Advanced DaemonSets are not rolled out, if there is one, with the time until the next check.
    async fn why_no_advanced(&self) -> Option<(AdvancedAbsence, Duration)> {
        let client = &self.parts.client;
        if !server::serves_advanced(client).await {
            Some((AdvancedAbsence::NotServed, LOOK_FOR_ADVANCED))
        } else if server::is_kruise_running(client).await {
            Some((AdvancedAbsence::OfKruise, LOOK_AGAIN))
        } else {
            None
        }
    }

    /// Watches the ControllerRevisions of a group of DaemonSets. The revisions carry the same labels as the pods.
    pub(super) fn revisions(&self, group: &Group, number: u64) -> CacheWatch {
        self.start(
            "controllerrevisions",
            of_group::<ControllerRevision>(group, PAGE),
            ListedBy::Pages,
            Some(self.lists.clone()),
            move |event| Input::Revision(number, event),
        )
    }

    pub(super) fn pods(&self, group: &Group, number: u64) -> CacheWatch {
        let clock = self.parts.clock.clone();
        self.start(
            "pods",
            of_group::<Pod>(group, PODS_PAGE),
            ListedBy::Ability,
            Some(self.lists.clone()),
            move |event| Input::Pod(number, clock.now(), event),
        )
    }

    /// Returns the age of the data of a cluster-wide watch if the data is stale (too old to act on).
    pub(super) fn stale(&self, resource: &str) -> Option<Duration> {
        let age = self.ages.age(resource)?;
        (age >= STALE_AFTER).then_some(age)
    }

    /// Resources with a stale watch, each with the age of the data.
    pub(super) fn stale_resources(&self) -> impl Iterator<Item = (&'static str, Duration)> {
        let ages = self.ages.by_resource().into_iter();
        ages.filter(|(_, age)| *age >= STALE_AFTER)
    }

    fn start<K: Readable + Debug>(
        &self,
        resource: &'static str,
        target: Target,
        listed: ListedBy,
        lists: Option<Arc<Semaphore>>,
        input: impl Fn(Event<Item<K>>) -> Input + Send + Sync + 'static,
    ) -> CacheWatch {
        let heard = self.ages.follow(resource, &self.parts.clock);
        let queue = Queue {
            caches: self.clone(),
            resource,
            heard: heard.clone(),
            input,
            reported: AtomicBool::new(false),
            lists,
            permit: Mutex::new(None),
        };
        CacheWatch::spawn(queue.run(target, listed), Some(heard))
    }

    /// Waits until the API server's abilities are known. Returns true if watches may begin with a streaming list.
    async fn streams(&self) -> bool {
        let mut able = self.able.subscribe();
        let able = able.wait_for(Option::is_some).await;
        able.is_ok_and(|able| able.is_some_and(|able| able.streams))
    }

    /// Sends an input to the engine. Waits while the queue is full. Fails if the engine has ended.
    async fn hand_on(&self, input: Input) -> Result<(), SendError<Input>> {
        let input = match self.sender.try_send(input) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Closed(input)) => return Err(SendError(input)),
            Err(TrySendError::Full(input)) => input,
        };
        self.parts.metrics.queue_overflowed();
        self.sender.send(input).await
    }
}

/// Resource name of Advanced DaemonSets, with the API group.
const ADVANCED: &str = "daemonsets.apps.kruise.io";

/// Returns the target that selects all objects of a kind.
fn everything<K: Readable>() -> Target {
    Target {
        path: K::url_path(&(), None),
        labels: String::new(),
        fields: String::new(),
        page: PAGE,
    }
}

/// Returns the target that selects the objects of a group of DaemonSets.
fn of_group<K: Readable>(group: &Group, page: u32) -> Target {
    Target {
        path: K::url_path(&(), group.namespace.as_deref()),
        labels: group.selector.clone(),
        fields: String::new(),
        page,
    }
}

/// Sink that passes the events of one watch to the engine.
struct Queue<F> {
    caches: Watches,
    resource: &'static str,
    heard: Heard,
    input: F,
    /// True if an event arrived since the last list or watch ended.
    reported: AtomicBool,
    /// Limit for lists in progress; `None`: this watch is not limited.
    lists: Option<Arc<Semaphore>>,
    /// Permit for the list in progress.
    permit: Mutex<Option<OwnedSemaphorePermit>>,
}

impl<F> Queue<F> {
    /// Lists and watches until the engine ends.
    async fn run<K: Readable>(self, target: Target, listed: ListedBy)
    where
        F: Fn(Event<Item<K>>) -> Input + Send + Sync,
    {
        let client = self.caches.parts.client.clone();
        let mut backoff = Backoff::default();
        let mut version = None;
        let mut streams = listed == ListedBy::Ability && self.caches.streams().await;
        loop {
            let began = Instant::now();
            let lists = version.is_none();
            if lists {
                self.await_turn().await;
            }
            let ended = if lists && !streams {
                target
                    .list(&client, &self)
                    .await
                    .map(|at| version = Some(at))
            } else {
                target.watch(&client, &self, &mut version).await
            };
            self.end_turn();
            if self.reported.swap(false, Ordering::Relaxed) {
                backoff = Backoff::default();
            }
            let pause = match ended {
                Ok(()) if lists || began.elapsed() >= SHORT_WATCH => Duration::ZERO,
                Ok(()) => backoff.pause(),
                Err(Ended::Unheard) => return,
                Err(Ended::Expired) => {
                    version = None;
                    RELIST_PAUSE
                }
                Err(Ended::NoStreamingList(why)) => {
                    let resource = self.resource;
                    info!(
                        resource,
                        why, "Streaming list not available; listing in pages"
                    );
                    (version, streams) = (None, false);
                    Duration::ZERO
                }
                Err(ended) => {
                    self.complain(&ended);
                    backoff.pause()
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    fn complain(&self, ended: &Ended) {
        let parts = &self.caches.parts;
        parts.metrics.watch_restarted(self.resource);
        let failure = ended.failure();
        if let Ended::Failed { verb, .. } = ended
            && failure == Failure::Forbidden
        {
            parts.lacking.report(verb, self.resource);
        }
        parts
            .log_throttle
            .failed(self.resource, failure, &ended.message());
    }

    /// Waits until fewer than [`PARALLEL_LISTS`] lists are in progress.
    async fn await_turn(&self) {
        let Some(lists) = self.lists.clone() else {
            return;
        };
        let permit = lists.acquire_owned().await.ok();
        *self.permit.lock().unwrap_or_else(PoisonError::into_inner) = permit;
    }

    fn end_turn(&self) {
        drop(
            self.permit
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
    }
}

impl<K: Readable, F: Fn(Event<Item<K>>) -> Input + Send + Sync> Sink<K> for Queue<F> {
    async fn take(&self, event: Event<Item<K>>) -> bool {
        match event {
            // A list reports `Init` before its request is sent. So `Init` doesn't prove that the API server responds.
            Event::Init => {}
            _ => {
                self.reported.store(true, Ordering::Relaxed);
                self.caches.parts.log_throttle.answered(self.resource);
            }
        }
        if matches!(event, Event::InitDone) {
            self.end_turn();
        }
        self.caches.hand_on((self.input)(event)).await.is_ok()
    }

    fn heard(&self) {
        self.heard.note();
    }

    fn age(&self) -> Duration {
        self.heard.age()
    }
}

/// Converts an event about an Advanced DaemonSet to one about a DaemonSet, because decisions treat both kinds in the same way.
fn as_daemonset(event: Event<Item<AdvancedDaemonSet>>) -> Event<Item<DaemonSet>> {
    let as_set = |item: Item<AdvancedDaemonSet>| item.map(DaemonSet::from);
    match event {
        Event::Apply(item) => Event::Apply(as_set(item)),
        Event::Delete(item) => Event::Delete(as_set(item)),
        Event::Init => Event::Init,
        Event::InitApply(item) => Event::InitApply(as_set(item)),
        Event::InitDone => Event::InitDone,
    }
}

/// Method by which a watch gets the existing objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListedBy {
    /// List in pages.
    Pages,
    /// Streaming list if the API server supports it, otherwise a list in pages.
    Ability,
}

#[cfg(test)]
mod tests {
    use kube::Api;
    use serde_json::json;

    use super::*;
    use crate::sim::cluster::{Cluster, ClusterOptions};

    fn parts(client: Client, clock: Clock) -> CacheParts {
        CacheParts {
            client,
            metrics: Metrics::new(),
            log_throttle: LogThrottle::default(),
            lacking: DeniedPermissions::new().0,
            clock,
        }
    }

    /// Returns the requests of a watch of nodes, and the events until its first list is complete.
    async fn listed(streaming_lists: bool) -> (Vec<&'static str>, Vec<(String, u16)>) {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        let cluster = Cluster::new(ClusterOptions {
            streaming_lists,
            ..ClusterOptions::new(clock.clone(), 1)
        });
        let client = cluster.client("yurt-ds");
        let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(client.clone());
        let node = serde_json::from_value(json!({ "metadata": { "name": "node-1" } })).unwrap();
        nodes.create(&Default::default(), &node).await.unwrap();
        let (caches, mut inputs) = Watches::new(parts(client, clock));
        let _watches = [caches.version(), caches.nodes()];
        let mut received = Vec::new();
        while received.last() != Some(&"done") {
            match inputs.recv().await.unwrap() {
                Input::Node(Event::Init) => received.push("begun"),
                Input::Node(Event::InitApply(node)) => {
                    let node = node.expect("a readable Node");
                    assert_eq!(node.metadata.name.as_deref(), Some("node-1"));
                    received.push("node");
                }
                Input::Node(Event::InitDone) => received.push("done"),
                Input::Order(_) => {}
                other => panic!("{other:?}"),
            }
        }
        let asked = cluster.requests().into_iter();
        let asked = asked.filter(|count| count.resource == "nodes" && count.verb != "create");
        (
            received,
            asked.map(|count| (count.verb, count.code)).collect(),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn nodes_are_listed_by_a_streaming_list_or_by_pages_without_server_support() {
        let (received, asked) = listed(true).await;
        assert_eq!(received, ["begun", "node", "done"]);
        assert_eq!(asked, [("watch".to_owned(), 200)]);
        let (received, asked) = listed(false).await;
        assert_eq!(received, ["begun", "begun", "node", "done"]);
        for answered in [("watch".to_owned(), 422), ("list".to_owned(), 200)] {
            assert!(asked.contains(&answered), "{asked:?}");
        }
    }
}
