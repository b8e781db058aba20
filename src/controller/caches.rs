//! The watches: each is one task that turns what the API server says into [`Input`]s for the engine.
//!
//! A watch that fails begins again after a pause that grows to ten seconds, until it tells something; what it missed arrives as a complete list
//! between `Init` and `InitDone`, and whatever is not in that list is gone. The queue is bounded: a watch waits when the
//! engine is busy, and the API server buffers.

use std::fmt::Debug;
use std::sync::Arc;

use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::NamespaceResourceScope;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::task::JoinHandle;

use super::complaints::Complaints;
use super::groups::Group;
use super::metrics::Metrics;
use super::server;
use crate::backoff::Backoff;
use crate::k8s::client::{self, CallError, Failure, WATCH_TIMEOUT_SECONDS};
use crate::k8s::{ControllerRevision, DaemonSet, Node, Pod};

/// Objects per page of a list: small enough that a page never weighs much (nodes take 14 KB each on the wire). Pages of 250 pods
/// made the process three megabytes larger for good.
const PAGE: u32 = 100;

/// Inputs that wait for the engine. A few thousand pods change at once at most, and each input takes half a kilobyte.
const QUEUE: usize = 512;

/// What a watch says.
#[derive(Debug)]
pub(super) enum Input {
    /// Of Nodes.
    Node(Event<Node>),
    /// Of DaemonSets.
    Set(Event<DaemonSet>),
    /// Of the ControllerRevisions of a group; the number tells this watch from others.
    Revision(u64, Event<ControllerRevision>),
    /// Of the pods of a group; the number tells this watch from others.
    Pod(u64, Event<Pod>),
    /// Whether the native controller learns of changes in their order ([`Fleet::in_order`](crate::core::Fleet::in_order)).
    Order(bool),
}

/// A watch that ends when this is dropped.
#[derive(Debug)]
pub(super) struct CacheWatch(JoinHandle<()>);

impl Drop for CacheWatch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Starts watches and hands what they say to the engine.
#[derive(Clone)]
pub(super) struct Caches {
    client: Client,
    metrics: Arc<Metrics>,
    complaints: Complaints,
    sender: mpsc::Sender<Input>,
}

impl Caches {
    /// No watch yet, and where all of them will speak.
    pub(super) fn new(
        client: Client,
        metrics: Arc<Metrics>,
        complaints: Complaints,
    ) -> (Self, mpsc::Receiver<Input>) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        (
            Self {
                client,
                metrics,
                complaints,
                sender,
            },
            receiver,
        )
    }

    /// The version of the API server, once.
    pub(super) fn version(&self) -> CacheWatch {
        let (client, sender) = (self.client.clone(), self.sender.clone());
        CacheWatch(tokio::spawn(async move {
            let in_order = server::is_in_order(&client).await;
            let _ended = sender.send(Input::Order(in_order)).await;
        }))
    }

    /// All Nodes.
    pub(super) fn nodes(&self) -> CacheWatch {
        self.start(
            "nodes",
            Api::all(self.client.clone()),
            config(),
            Input::Node,
        )
    }

    /// All DaemonSets.
    pub(super) fn sets(&self) -> CacheWatch {
        self.start(
            "daemonsets",
            Api::all(self.client.clone()),
            config(),
            Input::Set,
        )
    }

    /// The ControllerRevisions of a group: they carry the labels of the pods.
    pub(super) fn revisions(&self, group: &Group, number: u64) -> CacheWatch {
        let config = config().labels(&group.selector);
        self.start(
            "controllerrevisions",
            self.of(group),
            config,
            move |event| Input::Revision(number, event),
        )
    }

    /// The pods of a group.
    pub(super) fn pods(&self, group: &Group, number: u64) -> CacheWatch {
        let config = config().labels(&group.selector);
        self.start("pods", self.of(group), config, move |event| {
            Input::Pod(number, event)
        })
    }

    fn of<K>(&self, group: &Group) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        match &group.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }

    fn start<K>(
        &self,
        resource: &'static str,
        api: Api<K>,
        config: watcher::Config,
        input: impl Fn(Event<K>) -> Input + Send + 'static,
    ) -> CacheWatch
    where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let (sender, metrics) = (self.sender.clone(), self.metrics.clone());
        let complaints = self.complaints.clone();
        CacheWatch(tokio::spawn(async move {
            let mut events = patient(watcher(api, config)).boxed();
            loop {
                match events.try_next().await {
                    Ok(Some(event)) => {
                        if tells(&event) {
                            complaints.answered(resource);
                        }
                        let input = match sender.try_send(input(event)) {
                            Ok(()) => continue,
                            Err(TrySendError::Closed(_)) => return,
                            Err(TrySendError::Full(input)) => input,
                        };
                        metrics.queue_overflowed();
                        if sender.send(input).await.is_err() {
                            return;
                        }
                    }
                    Ok(None) => return,
                    Err(error) => {
                        metrics.watch_restarted(resource);
                        let failure = failure(&error);
                        let error = told(error);
                        complaints.failed(resource, failure, &error);
                    }
                }
            }
        }))
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

/// How every watch is asked for.
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

    use super::*;
    use tokio::time::Instant;

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
}
