//! The watches: each is one task that turns what the API server says into [`Input`]s for the engine.
//!
//! A watch that fails begins again after a pause that grows to ten seconds, until it tells something; what it missed arrives as a complete list
//! between `Init` and `InitDone`, and whatever is not in that list is gone. The queue is bounded: a watch waits when the
//! engine is busy, and the API server buffers.
//!
//! Nodes and pods, of which there are many, are listed by the watch itself where the API server can do that (a streaming
//! list): a page costs it a walk over all that is left, and this process the room for a page. Where it cannot after all,
//! pages do.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::error::{SendError, TrySendError};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tracing::{info, warn};

use super::complaints::Complaints;
use super::groups::Group;
use super::metrics::Metrics;
use super::permissions::DeniedPermissions;
use super::server::{self, Abilities};
use crate::backoff::Backoff;
use crate::clock::Clock;
use crate::core::remedy::KRUISE_RUNS;
use crate::k8s::client::{self, CallError, Failure, WATCH_TIMEOUT_SECONDS};
use crate::k8s::{AdvancedDaemonSet, ControllerRevision, DaemonSet, Node, Pod};

/// Objects per page of a list: small enough that a page never weighs much (nodes take 14 KB each on the wire).
const PAGE: u32 = 100;

/// The same of pods, of which there are most: a page costs the API server 20 ms beside what is in it where there are 50,000
/// (Kubernetes 1.28; three times that since 1.34, where they are not listed by pages). Larger ones make no difference to it, and the
/// process larger for good.
const PODS_PAGE: u32 = 250;

/// A streaming list that is silent for so long is given up for pages: it may wait for what this API server never sends.
const LIST_SILENCE: Duration = Duration::from_secs(15);

/// Before everything is listed anew because the API server does not know any more what happened since.
const RELIST_PAUSE: Duration = Duration::from_millis(500);

/// How often is looked whether Advanced DaemonSets can be made by now.
const LOOK_FOR_ADVANCED: Duration = Duration::from_secs(60);

/// How often is looked whether Kruise's manager was started beside this one, and whether it still runs.
const LOOK_FOR_KRUISE: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Inputs that wait for the engine. A few thousand pods change at once at most, and each input takes half a kilobyte.
const QUEUE: usize = 512;

/// What a watch says.
#[derive(Debug)]
pub(super) enum Input {
    /// Of Nodes.
    Node(Event<Node>),
    /// Of DaemonSets.
    Set(Event<DaemonSet>),
    /// Of Advanced DaemonSets.
    Advanced(Event<DaemonSet>),
    /// Advanced DaemonSets are left alone, and why.
    NoAdvanced(Option<AdvancedAbsence>),
    /// Of the ControllerRevisions of a group; the number tells this watch from others.
    Revision(u64, Event<ControllerRevision>),
    /// Of the pods of a group; the number tells this watch from others. That is when it was said: a list that begins shows what was
    /// so then, and may show nothing that happened while it waited here for the engine.
    Pod(u64, Timestamp, Event<Pod>),
    /// Whether the native controller learns of changes in their order ([`Fleet::in_order`](crate::core::Fleet::in_order)).
    Order(bool),
}

/// Why Advanced DaemonSets are left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AdvancedAbsence {
    /// The API server serves none: their CustomResourceDefinition is not installed.
    NotServed,
    /// Kruise's manager runs, and makes their pods.
    OfKruise,
}

impl AdvancedAbsence {
    /// The same in words.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::NotServed => {
                "No Advanced DaemonSets: the CustomResourceDefinition daemonsets.apps.kruise.io is not installed, or does not \
                 serve v1beta1; native DaemonSets are rolled out, and it is looked for now and then (--controllers native: never)"
            }
            Self::OfKruise => KRUISE_RUNS,
        }
    }
}

/// A watch that ends when this is dropped.
#[derive(Debug)]
pub(super) struct CacheWatch(JoinHandle<()>);

impl CacheWatch {
    /// One that says nothing.
    #[cfg(test)]
    pub(super) fn silent() -> Self {
        Self(tokio::spawn(std::future::pending()))
    }
}

impl Drop for CacheWatch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What watches need.
#[derive(Clone)]
pub(super) struct CacheParts {
    pub(super) client: Client,
    pub(super) metrics: Arc<Metrics>,
    pub(super) complaints: Complaints,
    /// Hears of lists and watches that are forbidden.
    pub(super) lacking: DeniedPermissions,
    pub(super) clock: Clock,
}

/// Starts watches and hands what they say to the engine.
#[derive(Clone)]
pub(super) struct Caches {
    parts: CacheParts,
    sender: mpsc::Sender<Input>,
    /// What the API server is able to; `None`: that is not known yet.
    able: watch::Sender<Option<Abilities>>,
}

impl Caches {
    /// No watch yet, and where all of them will speak.
    pub(super) fn new(parts: CacheParts) -> (Self, mpsc::Receiver<Input>) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let able = watch::Sender::new(None);
        let caches = Self {
            parts,
            sender,
            able,
        };
        (caches, receiver)
    }

    /// The version of the API server, once.
    pub(super) fn version(&self) -> CacheWatch {
        let caches = self.clone();
        CacheWatch(tokio::spawn(async move {
            let able = server::abilities(&caches.parts.client).await;
            caches.able.send_replace(Some(able));
            let _ended = caches.sender.send(Input::Order(able.in_order)).await;
        }))
    }

    /// All Nodes.
    pub(super) fn nodes(&self) -> CacheWatch {
        self.start(
            "nodes",
            Api::all(self.parts.client.clone()),
            config(),
            ListedBy::Ability,
            Input::Node,
        )
    }

    /// All DaemonSets.
    pub(super) fn sets(&self) -> CacheWatch {
        self.start(
            "daemonsets",
            Api::all(self.parts.client.clone()),
            config(),
            ListedBy::Pages,
            Input::Set,
        )
    }

    /// All Advanced DaemonSets, as soon as there can be any.
    pub(super) fn advanced_sets(&self) -> CacheWatch {
        let caches = self.clone();
        CacheWatch(tokio::spawn(async move {
            let (mut told, mut watch) = (None, None);
            loop {
                let absence = caches.why_no_advanced().await;
                if let Some((why, _)) = absence
                    && told != Some(why)
                {
                    match why {
                        AdvancedAbsence::NotServed => info!("{}", why.words()),
                        AdvancedAbsence::OfKruise => warn!("{}", why.words()),
                    }
                }
                told = absence.map(|(why, _)| why);
                let pause = match absence {
                    Some((_, pause)) => {
                        // Before it is told that there are none any more.
                        drop(watch.take());
                        if caches.hand_on(Input::NoAdvanced(told)).await.is_err() {
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
        }))
    }

    fn watch_advanced(&self) -> CacheWatch {
        self.start::<AdvancedDaemonSet>(
            "daemonsets.apps.kruise.io",
            Api::all(self.parts.client.clone()),
            config(),
            ListedBy::Pages,
            |event| Input::Advanced(as_daemonset(event)),
        )
    }

    /// Why Advanced DaemonSets are left alone, if they are, and when to look again.
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

    /// The ControllerRevisions of a group: they carry the labels of the pods.
    pub(super) fn revisions(&self, group: &Group, number: u64) -> CacheWatch {
        let config = config().labels(&group.selector);
        self.start(
            "controllerrevisions",
            self.of(group),
            config,
            ListedBy::Pages,
            move |event| Input::Revision(number, event),
        )
    }

    /// The pods of a group.
    pub(super) fn pods(&self, group: &Group, number: u64) -> CacheWatch {
        let clock = self.parts.clock.clone();
        let config = config().labels(&group.selector).page_size(PODS_PAGE);
        self.start(
            "pods",
            self.of(group),
            config,
            ListedBy::Ability,
            move |event| Input::Pod(number, clock.now(), event),
        )
    }

    fn of<K>(&self, group: &Group) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        match &group.namespace {
            Some(namespace) => Api::namespaced(self.parts.client.clone(), namespace),
            None => Api::all(self.parts.client.clone()),
        }
    }

    fn start<K>(
        &self,
        resource: &'static str,
        api: Api<K>,
        config: watcher::Config,
        listed: ListedBy,
        input: impl Fn(Event<K>) -> Input + Send + Sync + 'static,
    ) -> CacheWatch
    where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let caches = self.clone();
        CacheWatch(tokio::spawn(async move {
            let mut streams = listed == ListedBy::Ability && caches.streams().await;
            while streams {
                // Before the list is asked for: what was written since then it may not show.
                if caches.hand_on(input(Event::Init)).await.is_err() {
                    return;
                }
                let config = config.clone().streaming_lists();
                let events = patient(watcher(api.clone(), config)).boxed();
                let list = StreamingList::AskedFor;
                match caches.tell(resource, events, Some(list), &input).await {
                    WatchEnd::Unheard => return,
                    WatchEnd::ListAnew => tokio::time::sleep(RELIST_PAUSE).await,
                    WatchEnd::NoStreamingList => streams = false,
                }
            }
            let events = patient(watcher(api, config)).boxed();
            caches.tell(resource, events, None, &input).await;
        }))
    }

    /// Whether a watch may begin with all there is, as soon as that is known.
    async fn streams(&self) -> bool {
        let mut able = self.able.subscribe();
        let able = able.wait_for(Option::is_some).await;
        able.is_ok_and(|able| able.is_some_and(|able| able.streams))
    }

    /// Hands on what a watch says; `list`: where its streaming list stands, unless it lists by pages.
    async fn tell<K>(
        &self,
        resource: &'static str,
        mut events: impl Stream<Item = watcher::Result<Event<K>>> + Unpin,
        mut list: Option<StreamingList>,
        input: &(impl Fn(Event<K>) -> Input + Sync),
    ) -> WatchEnd {
        loop {
            let next = match list {
                Some(StreamingList::Arrives) => {
                    tokio::time::timeout(LIST_SILENCE, events.try_next()).await
                }
                _ => Ok(events.try_next().await),
            };
            let Ok(next) = next else {
                let seconds = LIST_SILENCE.as_secs();
                warn!(
                    resource,
                    seconds, "A streaming list is silent: it is asked for in pages"
                );
                return WatchEnd::NoStreamingList;
            };
            if let Some(list) = &mut list {
                let is_begun = matches!(next, Ok(Some(Event::Init)));
                let end = list.take(&next);
                if end.is_some() && next.is_err() {
                    self.parts.metrics.watch_restarted(resource);
                }
                match end {
                    Some(WatchEnd::NoStreamingList) => {
                        info!(
                            resource,
                            "No streaming list is to be had: it is asked for in pages"
                        );
                        return WatchEnd::NoStreamingList;
                    }
                    Some(ended) => return ended,
                    None if is_begun => continue, // that was said when it was asked for
                    None => {}
                }
            }
            match next {
                Ok(Some(event)) => {
                    if tells(&event) {
                        self.parts.complaints.answered(resource);
                    }
                    if self.hand_on(input(event)).await.is_err() {
                        return WatchEnd::Unheard;
                    }
                }
                Ok(None) => return WatchEnd::Unheard,
                Err(error) => {
                    self.parts.metrics.watch_restarted(resource);
                    let failure = failure(&error);
                    if failure == Failure::Forbidden {
                        self.parts.lacking.tell(verb(&error), resource);
                    }
                    let error = told(error);
                    self.parts.complaints.failed(resource, failure, &error);
                }
            }
        }
    }

    /// Waits until the engine has room for that; an error: there is no engine any more.
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

/// The same event of the DaemonSet that is read in an Advanced one.
fn as_daemonset(event: Event<AdvancedDaemonSet>) -> Event<DaemonSet> {
    match event {
        Event::Apply(set) => Event::Apply(set.into()),
        Event::Delete(set) => Event::Delete(set.into()),
        Event::Init => Event::Init,
        Event::InitApply(set) => Event::InitApply(set.into()),
        Event::InitDone => Event::InitDone,
    }
}

/// How a watch learns what there was before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListedBy {
    /// Page by page.
    Pages,
    /// By the watch itself, where the API server can do that.
    Ability,
}

/// How a watch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchEnd {
    /// Nobody listens any more.
    Unheard,
    /// It cannot go on from where it was.
    ListAnew,
    /// The API server gives no streaming list.
    NoStreamingList,
}

/// Where the streaming list of a watch stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamingList {
    /// No answer yet.
    AskedFor,
    /// Its end was not seen yet.
    Arrives,
    /// All of it has arrived; what follows are changes.
    Complete,
}

impl StreamingList {
    /// Takes in what the watch says; how the watch ends, if it does.
    fn take<K>(&mut self, told: &watcher::Result<Option<Event<K>>>) -> Option<WatchEnd> {
        match (*self, told) {
            (Self::AskedFor, Ok(Some(Event::Init))) => *self = Self::Arrives,
            (_, Ok(Some(Event::InitDone))) => *self = Self::Complete,
            (Self::AskedFor, Err(watcher::Error::WatchStartFailed(error)))
                if client::failure(error) == Failure::Refused =>
            {
                return Some(WatchEnd::NoStreamingList);
            }
            (Self::Complete, told) if begins_anew(told) => return Some(WatchEnd::ListAnew),
            (_, told) if begins_anew(told) => return Some(WatchEnd::NoStreamingList),
            _ => {}
        }
        None
    }
}

/// Whether everything is listed anew after that.
fn begins_anew<K>(told: &watcher::Result<Option<Event<K>>>) -> bool {
    match told {
        Ok(event) => matches!(event, Some(Event::Init)),
        Err(watcher::Error::WatchError(status)) => status.code == 410,
        Err(error) => matches!(error, watcher::Error::NoResourceVersion),
    }
}

/// What went wrong with a watch, each thing said once.
fn told(error: watcher::Error) -> String {
    let (what, error) = match error {
        watcher::Error::InitialListFailed(error) => ("cannot list", error),
        watcher::Error::WatchStartFailed(error) => ("cannot watch", error),
        watcher::Error::WatchFailed(error) => ("the watch broke off", error),
        other => return format!("{:#}", anyhow::Error::from(other)),
    };
    format!("{what}: {}", CallError::from(error))
}

/// What was asked for, as a role names it.
fn verb(error: &watcher::Error) -> &'static str {
    match error {
        watcher::Error::InitialListFailed(_) => "list",
        _ => "watch",
    }
}

/// How every watch is asked for, unless it is more than that.
pub(super) fn config() -> watcher::Config {
    watcher::Config::default()
        .timeout(WATCH_TIMEOUT_SECONDS)
        .page_size(PAGE)
}

/// Whether the API server has told something: a list begins before it is asked for.
pub(super) fn tells<K>(event: &Event<K>) -> bool {
    !matches!(event, Event::Init)
}

/// Why a watch or its list failed, by its meaning.
fn failure(error: &watcher::Error) -> Failure {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => client::failure(error),
        watcher::Error::WatchError(status) => client::failure(&kube::Error::Api(status.clone())),
        watcher::Error::NoResourceVersion => Failure::Refused,
    }
}

/// The same events, with a pause after each failure that grows until the API server tells something.
pub(super) fn patient<K: Send>(
    events: impl Stream<Item = watcher::Result<Event<K>>> + Send,
) -> impl Stream<Item = watcher::Result<Event<K>>> + Send {
    let state = (Box::pin(events), Backoff::default(), None);
    futures::stream::unfold(state, |(mut events, mut backoff, pause)| async move {
        if let Some(pause) = pause {
            tokio::time::sleep(pause).await;
        }
        let event = events.next().await?;
        let pause = match &event {
            Err(_) => backoff.next(),
            Ok(event) if tells(event) => {
                backoff = Backoff::default();
                None
            }
            Ok(_) => None,
        };
        Some((event, (events, backoff, pause)))
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use tokio::time::Instant;

    use super::*;
    use crate::sim::cluster::{Cluster, ClusterOptions};

    fn refused() -> watcher::Result<Event<Pod>> {
        let status = kube::core::Status::failure("away", "ServiceUnavailable").with_code(503);
        Err(watcher::Error::WatchError(Box::new(status)))
    }

    /// Every attempt to list begins with a word of its own, which says nothing about the API server.
    #[tokio::test(start_paused = true)]
    async fn pauses_grow_while_lists_begin_and_fail_and_start_anew_once_something_is_told() {
        let attempt = || [Ok(Event::Init), refused()];
        let attempts = (0..7).flat_map(|_| attempt());
        let told = attempts.chain([Ok(Event::InitDone), refused(), refused()]);
        let mut events = patient(futures::stream::iter(told)).boxed();
        let mut pauses = Vec::new();
        let mut last = Instant::now();
        while let Some(event) = events.next().await {
            if last.elapsed() > Duration::ZERO {
                pauses.push(last.elapsed().as_millis());
            }
            last = Instant::now();
            drop(event);
        }
        assert_eq!(pauses, [500, 1000, 2000, 4000, 8000, 10_000, 10_000, 500]);
    }

    fn parts(client: Client, clock: Clock) -> CacheParts {
        CacheParts {
            client,
            metrics: Metrics::new(),
            complaints: Complaints::default(),
            lacking: DeniedPermissions::new().0,
            clock,
        }
    }

    /// What a watch of nodes asks a server for, and hands on until it has told everything once.
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
        let (caches, mut inputs) = Caches::new(parts(client, clock));
        let _watches = [caches.version(), caches.nodes()];
        let mut told = Vec::new();
        while told.last() != Some(&"done") {
            match inputs.recv().await.unwrap() {
                Input::Node(Event::Init) => told.push("begun"),
                Input::Node(Event::InitApply(node)) => {
                    assert_eq!(node.metadata.name.as_deref(), Some("node-1"));
                    told.push("node");
                }
                Input::Node(Event::InitDone) => told.push("done"),
                Input::Order(_) => {}
                other => panic!("{other:?}"),
            }
        }
        let asked = cluster.requests().into_iter();
        let asked = asked.filter(|count| count.resource == "nodes" && count.verb != "create");
        (told, asked.map(|count| (count.verb, count.code)).collect())
    }

    #[tokio::test(start_paused = true)]
    async fn nodes_are_listed_by_their_watch_where_the_server_can_do_that_and_by_pages_elsewhere() {
        let (told, asked) = listed(true).await;
        assert_eq!(told, ["begun", "node", "done"]);
        assert_eq!(asked, [("watch".to_owned(), 200)]);
        let (told, asked) = listed(false).await;
        assert_eq!(told, ["begun", "begun", "node", "done"]);
        for answered in [("watch".to_owned(), 422), ("list".to_owned(), 200)] {
            assert!(asked.contains(&answered), "{asked:?}");
        }
    }

    /// How a watch of pods ends that says this, and then nothing more.
    async fn ending(said: Vec<watcher::Result<Event<Pod>>>) -> (WatchEnd, Duration, usize) {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        let cluster = Cluster::new(ClusterOptions::new(clock.clone(), 1));
        let client = cluster.client("yurt-ds");
        let (caches, mut inputs) = Caches::new(parts(client, clock));
        let said = futures::stream::iter(said).chain(futures::stream::pending());
        let began = Instant::now();
        let list = Some(StreamingList::AskedFor);
        let told = caches.tell("pods", said, list, &|event| {
            Input::Pod(1, Timestamp::UNIX_EPOCH, event)
        });
        let told = tokio::time::timeout(Duration::from_secs(3600), told).await;
        let handed_on = std::iter::from_fn(|| inputs.try_recv().ok()).count();
        let told = told.unwrap_or(WatchEnd::Unheard);
        (told, began.elapsed(), handed_on)
    }

    fn gone() -> watcher::Result<Event<Pod>> {
        let status = kube::core::Status::failure("too old", "Expired").with_code(410);
        Err(watcher::Error::WatchError(Box::new(status)))
    }

    #[tokio::test(start_paused = true)]
    async fn a_streaming_list_without_an_end_is_given_up_and_one_that_is_over_is_asked_for_anew() {
        let pod = || Ok(Event::InitApply(serde_json::from_str("{}").unwrap()));
        let begun = || Ok(Event::Init);
        let (told, after, handed_on) = ending(vec![begun(), pod()]).await;
        assert_eq!(
            (told, after, handed_on),
            (WatchEnd::NoStreamingList, LIST_SILENCE, 1)
        );
        // It broke off, and was asked for again.
        let (told, after, _) = ending(vec![begun(), pod(), begun()]).await;
        assert_eq!((told, after), (WatchEnd::NoStreamingList, Duration::ZERO));
        let (told, _, _) = ending(vec![begun(), gone()]).await;
        assert_eq!(told, WatchEnd::NoStreamingList);
        // No answer at all is no reason: the server is away.
        let (told, after, _) = ending(vec![refused(), refused()]).await;
        assert_eq!(
            (told, after),
            (WatchEnd::Unheard, Duration::from_secs(3600))
        );
        // All of it arrived; then silence is good, and a version that is too old a reason to begin anew.
        let (told, after, handed_on) = ending(vec![begun(), pod(), Ok(Event::InitDone)]).await;
        assert_eq!((told, handed_on), (WatchEnd::Unheard, 2));
        assert_eq!(after, Duration::from_secs(3600));
        let (told, _, _) = ending(vec![begun(), Ok(Event::InitDone), gone()]).await;
        assert_eq!(told, WatchEnd::ListAnew);
    }
}
