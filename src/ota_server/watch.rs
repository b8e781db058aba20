//! Watch of the pods of this node. It keeps the cache up to date and reports if it is live.
//!
//! It lists once and then watches from there; a watch that ends is resumed without a list. Objects are kept as the bytes
//! received, and a list is read object by object, because one object can have a megabyte.
//!
//! `kube`'s own watcher is not used, because it doesn't report that a watch is live before the first event. On a quiet node,
//! there may be no event for hours.

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

/// Pods per page of a list: more than a kubelet runs, because each page is a request that [`Turns`] may delay.
const PAGE: usize = 500;
/// Longest time of a page. The API server itself stops after a minute.
const LIST_DEADLINE: Duration = Duration::from_secs(75);
/// Longest pause in a page.
const LIST_SILENCE: Duration = Duration::from_secs(30);
/// Longest time until a watch begins.
const WATCH_DEADLINE: Duration = Duration::from_secs(10);
/// Longest silence of a watch. The server ends it before that.
const SILENCE: Duration = Duration::from_secs(WATCH_TIMEOUT_SECONDS as u64 + 10);
/// Time after which a watch counts as working. One that ends sooner may come from a proxy that accepts and closes connections.
/// Until then, earlier failures still count.
///
/// It is longer than the minimum time between two requests, and much shorter than a usual watch.
const LASTING: Duration = Duration::from_secs(10);
/// Path of pods in the API.
const PATH: &str = "/api/v1/pods";

/// Dependencies of the watch.
pub(super) struct NodeWatch {
    /// Client of the API server.
    pub(super) client: Client,
    /// Name of this node.
    pub(super) node: String,
    /// Cache of the pods.
    pub(super) pod_cache: PodCache,
    /// Time of the last confirmation by the API server.
    pub(super) last_sync: LastSync,
    /// Connection state of the API server.
    pub(super) cloud: Cloud,
}

/// Reason why a watch is not live.
#[derive(Debug)]
enum WatchError {
    /// The server no longer has the missed events: list again.
    Gone,
    /// The API server rejects the request or responds with nonsense: resume.
    Refused(Refusal),
    /// No response: resume.
    Silent(Refusal),
}

/// Details of a failure.
#[derive(Debug)]
struct Refusal {
    error: String,
    /// Pause that the API server asks for.
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

/// Position from which the watch continues.
struct Position {
    /// Last seen version; `None`: list.
    version: Option<String>,
    /// True if missed events were lost since a watch last worked.
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

    /// Notes why the watch is not live, and prepares the next attempt.
    fn note(&self, lost: WatchError, position: &mut Position, turns: &mut Turns) {
        match &lost {
            WatchError::Silent(_) => self.cloud.lost(),
            WatchError::Gone | WatchError::Refused(_) => self.cloud.found(),
        }
        match lost {
            WatchError::Gone => {
                position.version = None;
                // A list is the next step, unless the previous one had the same reason.
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

    /// Lists if there is nothing to resume from, then watches until the server ends it.
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

    /// Lists all pods of this node and returns the version from which to watch.
    ///
    /// Over a thin tunnel, a page of large pods can take longer than the API server allows. If a page is cut off, the next pages
    /// have half as many pods as had arrived.
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

    /// Applies an event of the watch.
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
            // The cached version of the pod is outdated.
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

/// Ends the count of failures after a watch has worked for a while.
fn note_lasting(turns: &mut Turns) {
    if turns.note_lasting() {
        info!("The watch of this node's pods stands again");
    }
}

/// Parses the fields of a page besides the pods.
fn finish(page: ListSplitter) -> Result<Page, CallError> {
    let page = page.finish().map_err(kube::Error::SerdeError);
    page.map_err(CallError::Kube)
}

/// Returns the error of a request that cannot be built.
fn odd(error: kube::core::request::Error) -> WatchError {
    WatchError::refused(error.to_string())
}

/// Parses a pod. An unreadable one is logged and affects only itself.
fn read(raw: Box<RawValue>) -> Result<NodePod, PodStub> {
    NodePod::read_or_return(raw).map_err(|(error, raw)| {
        let stub: PodStub = serde_json::from_str(raw.get()).unwrap_or_default();
        let (namespace, name) = (&stub.metadata.namespace, &stub.metadata.name);
        warn!(%namespace, %name, %error, "The API server sent a pod that cannot be read; it is left out");
        stub
    })
}

/// Readable fields of an unreadable pod.
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

/// Deserializes a string; any other value is an empty one.
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(value.as_str().unwrap_or_default().to_owned())
}

/// The fields of a page besides the pods.
#[derive(Deserialize)]
struct Page {
    metadata: PageMeta,
    /// The splitter removes the items, so only an empty array remains.
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
