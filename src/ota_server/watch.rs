//! The watch: keeps the cache as the API server tells it, and says whether it stands.
//!
//! List once, then watch from there; a watch that ends is resumed without a list. `kube`'s own watcher is not used
//! because it does not tell when a watch stands again before something changes, and on a quiet node nothing does for
//! hours. Objects are kept as the bytes they arrive in, and a list is read object by object: one can have a megabyte.

mod turns;

use std::time::Duration;

use futures::TryStreamExt;
use kube::Client;
use kube::core::params::{ListParams, WatchParams};
use kube::core::{Request, WatchEvent};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use tracing::{info, warn};

use self::turns::Turns;
use super::cloud::{self, Cloud};
use super::last_sync::LastSync;
use super::pod::{NodePod, PodKey};
use super::pod_cache::PodCache;
use super::received::receive;
use crate::k8s::client::{self, CallError, WATCH_TIMEOUT_SECONDS};
use crate::k8s::json_list::ListSplitter;

/// Pods per page of a list: more than a kubelet runs, since a page is a request and has to wait for its turn.
const PAGE: usize = 500;
/// The longest that a page may take: the API server itself breaks off after a minute.
const LIST_DEADLINE: Duration = Duration::from_secs(75);
/// The longest that nothing of a page may come.
const LIST_SILENCE: Duration = Duration::from_secs(30);
/// The longest until a watch begins.
const WATCH_DEADLINE: Duration = Duration::from_secs(10);
/// The longest that a watch may be silent: it ends by itself before.
const SILENCE: Duration = Duration::from_secs(WATCH_TIMEOUT_SECONDS as u64 + 10);
/// A watch that ends sooner than this did not do its work: who opens the connection may be a proxy that closes it again.
/// Until then the failures before it count on. Longer than the least time between two requests, and far below what a watch
/// lasts.
const LASTING: Duration = Duration::from_secs(10);
/// Where pods are.
const PATH: &str = "/api/v1/pods";

/// What the watch needs.
pub(super) struct NodeWatch {
    /// The API server.
    pub(super) client: Client,
    /// This node.
    pub(super) node: String,
    /// What is kept.
    pub(super) pod_cache: PodCache,
    /// When something was heard last.
    pub(super) last_sync: LastSync,
    /// Whether the API server answers.
    pub(super) cloud: Cloud,
}

/// Why a watch does not stand.
#[derive(Debug)]
enum WatchError {
    /// What was missed cannot be told any more: list again.
    Gone,
    /// The API server says no, or something that makes no sense: resume.
    Refused(Refusal),
    /// Nothing came: resume.
    Silent(Refusal),
}

/// What is said of it.
#[derive(Debug)]
struct Refusal {
    error: String,
    /// How long the API server asks to be left alone.
    asked: Duration,
}

impl From<CallError> for WatchError {
    fn from(error: CallError) -> Self {
        let refusal = Refusal {
            error: error.to_string(),
            asked: cloud::asked_pause(&error).unwrap_or_default(),
        };
        match &error {
            CallError::Kube(kube::Error::Api(status)) if status.code == 410 => Self::Gone,
            error if cloud::is_silent(error) => Self::Silent(refusal),
            _ => Self::Refused(refusal),
        }
    }
}

impl WatchError {
    fn refused(error: String) -> Self {
        let asked = Duration::ZERO;
        Self::Refused(Refusal { error, asked })
    }

    fn silent(error: String) -> Self {
        let asked = Duration::ZERO;
        Self::Silent(Refusal { error, asked })
    }
}

/// Where the watch is: what it goes on from.
struct Position {
    /// The version that was seen last; `None`: list.
    version: Option<String>,
    /// Whether what was missed could not be told any more, since a watch lasted.
    gone: bool,
    /// Pods per page of the next list.
    page: usize,
}

impl NodeWatch {
    /// Watches until dropped.
    pub(super) async fn run(self) {
        let known = self.pod_cache.is_known();
        let mut turns = Turns::new(&self.node, self.cloud.clone(), known);
        let mut position = Position {
            version: None,
            gone: false,
            page: PAGE,
        };
        loop {
            if let Err(lost) = self.follow(&mut position, &mut turns).await {
                self.pod_cache.set_live(false);
                self.note(lost, &mut position, &mut turns);
            }
        }
    }

    /// Notes why the watch does not stand, and what that means for the next try.
    fn note(&self, lost: WatchError, position: &mut Position, turns: &mut Turns) {
        match &lost {
            WatchError::Silent(_) => self.cloud.lost(),
            WatchError::Gone | WatchError::Refused(_) => self.cloud.found(),
        }
        match lost {
            WatchError::Gone => {
                position.version = None;
                // A list is the way on, unless one was made for the same reason just before.
                if std::mem::replace(&mut position.gone, true) {
                    turns.note_failure(Duration::ZERO);
                }
            }
            WatchError::Refused(why) | WatchError::Silent(why) => {
                if turns.is_well() {
                    let error = why.error;
                    warn!(%error, "The watch of this node's pods failed and is tried again");
                }
                turns.note_failure(why.asked);
            }
        }
    }

    /// Lists when there is nothing to resume from, then watches until the server ends it.
    async fn follow(&self, position: &mut Position, turns: &mut Turns) -> Result<(), WatchError> {
        let from = match &position.version {
            Some(version) => version.clone(),
            None => {
                let version = self.list(&mut position.page, turns).await?;
                position.version.insert(version).clone()
            }
        };
        let params = WatchParams::default()
            .fields(&self.selector())
            .timeout(WATCH_TIMEOUT_SECONDS);
        turns.next().await;
        let request = Request::new(PATH).watch(&params, &from).map_err(odd)?;
        let opening = self.client.request_events::<Box<RawValue>>(request);
        let events = client::within(WATCH_DEADLINE, opening).await?;
        let mut events = std::pin::pin!(events);
        self.hear();
        self.pod_cache.set_live(true);
        let mut lasting = std::pin::pin!(tokio::time::sleep(LASTING));
        let mut lasts = false;
        loop {
            let heard = tokio::select! {
                biased;
                () = &mut lasting, if !lasts => {
                    lasts = true;
                    position.gone = false;
                    note_lasting(turns);
                    continue;
                }
                heard = tokio::time::timeout(SILENCE, events.try_next()) => heard,
            };
            match heard {
                Err(_) => return Err(WatchError::silent(format!("silent for {SILENCE:?}"))),
                Ok(Err(error)) => return Err(CallError::Kube(error).into()),
                Ok(Ok(Some(event))) => {
                    self.take(event, &mut position.version)?;
                    self.hear();
                }
                Ok(Ok(None)) if lasts => return Ok(()),
                Ok(Ok(None)) => {
                    return Err(WatchError::refused("the watch ended at once".to_owned()));
                }
            }
        }
    }

    fn hear(&self) {
        self.last_sync.now();
        self.cloud.found();
    }

    /// Lists all pods of this node; returns the version from which to watch.
    ///
    /// Through a thin tunnel large pods can take longer than the API server allows for one page: when that breaks off on
    /// the way, pages have half of what came.
    async fn list(&self, page: &mut usize, turns: &mut Turns) -> Result<String, WatchError> {
        let mut params = ListParams::default().fields(&self.selector());
        let mut relist = self.pod_cache.relist();
        loop {
            params.limit = u32::try_from(*page).ok();
            turns.next().await;
            let request = Request::new(PATH).list(&params).map_err(odd)?;
            let mut splitter = ListSplitter::default();
            let take = |piece: &[u8]| {
                splitter.feed(piece, |raw| {
                    let read = read(serde_json::from_slice(raw)?);
                    if let Ok(pod) = read {
                        relist.take(pod);
                    }
                    Ok(())
                })
            };
            let reading = receive(&self.client, request, LIST_SILENCE, take);
            let read = client::within(LIST_DEADLINE, reading).await;
            let count = splitter.count();
            let found = read.and_then(|()| finish(splitter));
            if found.is_err() && count > 0 {
                *page = (count / 2).max(1);
            }
            let found = found?;
            match found.metadata.next.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => {
                    relist.finish();
                    *page = PAGE;
                    self.hear();
                    return Ok(found.metadata.resource_version);
                }
            }
        }
    }

    /// Takes in what the watch says.
    fn take(
        &self,
        event: WatchEvent<Box<RawValue>>,
        version: &mut Option<String>,
    ) -> Result<(), WatchError> {
        let (found, is_deleted) = match event {
            WatchEvent::Added(raw) | WatchEvent::Modified(raw) => (read(raw), false),
            WatchEvent::Deleted(raw) => (read(raw), true),
            WatchEvent::Bookmark(bookmark) => {
                *version = Some(bookmark.metadata.resource_version);
                return Ok(());
            }
            WatchEvent::Error(status) => {
                return Err(CallError::Kube(kube::Error::Api(status)).into());
            }
        };
        let seen = match found {
            Ok(pod) => {
                let seen = pod.facts().resource_version.clone();
                if is_deleted {
                    self.pod_cache.delete(pod.key())
                } else {
                    self.pod_cache.apply(pod)
                }
                seen
            }
            // What was known of it is not true any more.
            Err(stub) => {
                if let Some(key) = stub.key() {
                    self.pod_cache.delete(&key);
                }
                stub.metadata.resource_version
            }
        };
        if !seen.is_empty() {
            *version = Some(seen);
        }
        Ok(())
    }

    fn selector(&self) -> String {
        format!("spec.nodeName={}", self.node)
    }
}

/// The failures before a watch that lasts are over.
fn note_lasting(turns: &mut Turns) {
    if turns.note_lasting() {
        info!("The watch of this node's pods stands again");
    }
}

/// What is in a page beside the pods.
fn finish(page: ListSplitter) -> Result<Page, CallError> {
    let page = page.finish().map_err(kube::Error::SerdeError);
    page.map_err(CallError::Kube)
}

/// A request that cannot even be written.
fn odd(error: kube::core::request::Error) -> WatchError {
    WatchError::refused(error.to_string())
}

/// Reads a pod; one that cannot be read is reported and costs only itself.
fn read(raw: Box<RawValue>) -> Result<NodePod, PodStub> {
    NodePod::read_or_return(raw).map_err(|(error, raw)| {
        let stub: PodStub = serde_json::from_str(raw.get()).unwrap_or_default();
        let (namespace, name) = (&stub.metadata.namespace, &stub.metadata.name);
        warn!(%namespace, %name, %error, "The API server sent a pod that cannot be read; it is left out");
        stub
    })
}

/// What can be told of a pod that cannot be read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PodStub {
    metadata: StubMeta,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StubMeta {
    #[serde(deserialize_with = "text")]
    name: String,
    #[serde(deserialize_with = "text")]
    namespace: String,
    #[serde(deserialize_with = "text")]
    resource_version: String,
}

impl PodStub {
    fn key(&self) -> Option<PodKey> {
        let StubMeta {
            name, namespace, ..
        } = &self.metadata;
        (!name.is_empty()).then(|| PodKey::new(namespace, name))
    }
}

/// A string; anything else is an empty one.
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(value.as_str().unwrap_or_default().to_owned())
}

/// What is in a page beside the pods.
#[derive(Deserialize)]
struct Page {
    metadata: PageMeta,
    /// Nothing is left here, unless it is no array.
    #[serde(rename = "items", default)]
    _items: Option<[(); 0]>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMeta {
    #[serde(default, deserialize_with = "text")]
    resource_version: String,
    #[serde(rename = "continue", default)]
    next: Option<String>,
}

#[cfg(test)]
mod tests;
