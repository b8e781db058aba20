//! The watches: each is one task that turns what the API server says into [`Input`]s for the engine.
//!
//! A watch that fails begins again after a pause that grows to ten seconds; what it missed arrives as a complete list
//! between `Init` and `InitDone`, and whatever is not in that list is gone. The queue is bounded: a watch waits when the
//! engine is busy, and the API server buffers.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use kube::runtime::watcher::{self, Event, watcher};
use kube::runtime::{WatchStreamExt, utils::Backoff};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::task::JoinHandle;
use tracing::warn;

use super::metrics::Metrics;
use super::server;
use crate::api::{ControllerRevision, DaemonSet, Node, Pod};
use crate::client::WATCH_TIMEOUT_SECONDS;
use crate::index::SetKey;

/// Objects per page of a list: small enough that a page never weighs much (nodes take 14 KB each on the wire).
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
    /// Of ControllerRevisions.
    Revision(Event<ControllerRevision>),
    /// Of the pods of one DaemonSet; the number tells this watch from an earlier one.
    Pod(SetKey, u64, Event<Pod>),
    /// Whether the native controller learns of changes in their order ([`Fleet::in_order`](crate::core::Fleet::in_order)).
    Order(bool),
}

/// A watch that ends when this is dropped.
#[derive(Debug)]
pub(super) struct Watch(JoinHandle<()>);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Starts watches and hands what they say to the engine.
#[derive(Clone)]
pub(super) struct Caches {
    client: Client,
    metrics: Arc<Metrics>,
    sender: mpsc::Sender<Input>,
}

impl Caches {
    /// No watch yet, and where all of them will speak.
    pub(super) fn new(client: Client, metrics: Arc<Metrics>) -> (Self, mpsc::Receiver<Input>) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        (
            Self {
                client,
                metrics,
                sender,
            },
            receiver,
        )
    }

    /// The version of the API server, once.
    pub(super) fn version(&self) -> Watch {
        let (client, sender) = (self.client.clone(), self.sender.clone());
        Watch(tokio::spawn(async move {
            let in_order = server::is_in_order(&client).await;
            let _ended = sender.send(Input::Order(in_order)).await;
        }))
    }

    /// All Nodes.
    pub(super) fn nodes(&self) -> Watch {
        self.start(
            "nodes",
            Api::all(self.client.clone()),
            config(),
            Input::Node,
        )
    }

    /// All DaemonSets.
    pub(super) fn sets(&self) -> Watch {
        self.start(
            "daemonsets",
            Api::all(self.client.clone()),
            config(),
            Input::Set,
        )
    }

    /// All ControllerRevisions.
    pub(super) fn revisions(&self) -> Watch {
        self.start(
            "controllerrevisions",
            Api::all(self.client.clone()),
            config(),
            Input::Revision,
        )
    }

    /// The pods of one DaemonSet.
    pub(super) fn pods(&self, key: &SetKey, selector: &str, number: u64) -> Watch {
        let api = Api::namespaced(self.client.clone(), &key.namespace);
        let key = key.clone();
        self.start("pods", api, config().labels(selector), move |event| {
            Input::Pod(key.clone(), number, event)
        })
    }

    fn start<K>(
        &self,
        resource: &'static str,
        api: Api<K>,
        config: watcher::Config,
        input: impl Fn(Event<K>) -> Input + Send + 'static,
    ) -> Watch
    where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let (sender, metrics) = (self.sender.clone(), self.metrics.clone());
        Watch(tokio::spawn(async move {
            let mut failing = false;
            let mut events = watcher(api, config).backoff(Patience::default()).boxed();
            loop {
                match events.try_next().await {
                    Ok(Some(event)) => {
                        failing = false;
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
                        if !std::mem::replace(&mut failing, true) {
                            let error = format!("{:#}", anyhow::Error::from(error));
                            warn!(resource, %error, "A watch failed and is tried again");
                        }
                    }
                }
            }
        }))
    }
}

/// How every watch is asked for.
pub(super) fn config() -> watcher::Config {
    watcher::Config::default()
        .timeout(WATCH_TIMEOUT_SECONDS)
        .page_size(PAGE)
}

/// Pauses between attempts: half a second, doubling, at most ten.
#[derive(Debug)]
pub(super) struct Patience(Duration);

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

impl Default for Patience {
    fn default() -> Self {
        Self(FIRST_PAUSE)
    }
}

impl Iterator for Patience {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = self.0;
        self.0 = (pause * 2).min(LONGEST_PAUSE);
        Some(pause)
    }
}

impl Backoff for Patience {
    fn reset(&mut self) {
        self.0 = FIRST_PAUSE;
    }
}
