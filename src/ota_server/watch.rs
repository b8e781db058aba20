//! Watch of the pods of this node. It updates the cache, and reports whether the watch is live.
//!
//! The agent lists once and then watches. A watch that ends is resumed from the last version, without a list. Pods are kept as the
//! bytes that were received, and a list is parsed pod by pod, because one pod can have a megabyte.
//!
//! The watcher of `kube` is not used, because it reports a live watch only after the first event. On a quiet node, the first event
//! may come hours later.

mod turns;

use std::time::Duration;

use futures::TryStreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
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
use crate::k8s::object::identity;

/// Number of pods per page of a list. A node runs fewer pods, so a list is usually one request. [`Turns`] may delay each request.
const PAGE: usize = 500;
/// Timeout for a page. The API server itself stops after a minute.
const LIST_DEADLINE: Duration = Duration::from_secs(75);
/// Maximum time without data while a page is received.
const LIST_SILENCE: Duration = Duration::from_secs(30);
/// Timeout for the beginning of the response to a watch request.
const WATCH_DEADLINE: Duration = Duration::from_secs(10);
/// Maximum time without data in a watch. The API server ends a watch earlier, after its timeout.
const SILENCE: Duration = Duration::from_secs(WATCH_TIMEOUT_SECONDS as u64 + 10);
/// Duration after which a watch counts as working, and resets the number of failures. A shorter watch may come from a proxy that
/// accepts connections and closes them.
///
/// The duration is longer than the minimum time between two requests, and much shorter than a usual watch.
const LASTING: Duration = Duration::from_secs(10);
/// URL path of all pods.
const PATH: &str = "/api/v1/pods";

/// Dependencies of the watch.
pub(super) struct NodeWatch {
    pub(super) client: Client,
    pub(super) node: String,
    pub(super) pod_cache: PodCache,
    /// Time of the last confirmation by the API server.
    pub(super) last_sync: LastSync,
    pub(super) cloud: Cloud,
}

/// Reason for which a watch is not live.
#[derive(Debug)]
enum WatchError {
    /// The API server no longer has the events that the watch missed, so the pods have to be listed again.
    Gone,
    /// The API server rejected the request, or sent an unreadable response. The watch is resumed.
    Refused(Refusal),
    /// There was no response. The watch is resumed.
    Silent(Refusal),
}

/// Details of a failed list or watch.
#[derive(Debug)]
struct Refusal {
    error: String,
    /// Pause that the API server asked for.
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
    /// Last seen resourceVersion; `None` if the pods have to be listed.
    version: Option<String>,
    /// True if the last watch ended because the API server no longer has the missed events (410 Gone), and no watch has worked
    /// since.
    gone: bool,
    /// Maximum number of pods per page of the next list.
    page: usize,
}

impl NodeWatch {
    /// Keeps the cache up to date until dropped.
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

    /// Records why the watch is not live, and prepares the next attempt.
    fn note(&self, lost: WatchError, position: &mut Position, turns: &mut Turns) {
        match &lost {
            WatchError::Silent(_) => self.cloud.lost(),
            WatchError::Gone | WatchError::Refused(_) => self.cloud.found(),
        }
        match lost {
            WatchError::Gone => {
                position.version = None;
                // A list follows without a backoff. If the watch after that list ends in the same way, this counts as a failure,
                // and the next list is delayed.
                if std::mem::replace(&mut position.gone, true) {
                    turns.note_failure(Duration::ZERO);
                }
            }
            WatchError::Refused(why) | WatchError::Silent(why) => {
                if turns.is_well() {
                    let error = why.error;
                    warn!(%error, "The watch of this node's pods failed; retrying");
                }
                turns.note_failure(why.asked);
            }
        }
    }

    /// Watches until the API server ends the watch. First lists the pods if there is no version to resume from.
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
                Err(_) => return Err(WatchError::silent(format!("no data for {SILENCE:?}"))),
                Ok(Err(error)) => return Err(CallError::Kube(error).into()),
                Ok(Ok(Some(event))) => {
                    self.take(event, &mut position.version)?;
                    self.hear();
                }
                Ok(Ok(None)) if lasts => return Ok(()),
                Ok(Ok(None)) => {
                    return Err(WatchError::refused(
                        "the watch ended immediately".to_owned(),
                    ));
                }
            }
        }
    }

    fn hear(&self) {
        self.last_sync.now();
        self.cloud.found();
    }

    /// Lists all pods of this node, and returns the version from which to watch.
    ///
    /// Over a slow connection, a page of large pods can take longer than the API server allows. If a page is cut off, the next
    /// pages have half as many pods as had arrived.
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
            // The changed pod cannot be parsed, so the cached version is outdated. Remove it.
            Err(meta) => {
                let namespace = meta.namespace.unwrap_or_default();
                if let Some(name) = meta.name {
                    self.pod_cache.delete(&PodKey { namespace, name });
                }
                meta.resource_version.unwrap_or_default()
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

/// Resets the number of failures after a watch has worked for [`LASTING`].
fn note_lasting(turns: &mut Turns) {
    if turns.note_lasting() {
        info!("The watch of this node's pods works again");
    }
}

/// Parses the fields of a page except the pods.
fn finish(page: ListSplitter) -> Result<Page, CallError> {
    let page = page.finish().map_err(kube::Error::SerdeError);
    page.map_err(CallError::Kube)
}

/// Returns the error for a request that could not be built.
fn odd(error: kube::core::request::Error) -> WatchError {
    WatchError::refused(error.to_string())
}

/// Parses a pod. Logs an unreadable pod, which doesn't affect other pods.
///
/// # Errors
/// Returns the readable fields of the unreadable pod's `metadata`.
fn read(raw: Box<RawValue>) -> Result<NodePod, Box<ObjectMeta>> {
    NodePod::read_or_return(raw).map_err(|(error, raw)| {
        let meta = Box::new(identity(raw.get().as_bytes()));
        let (namespace, name) = (meta.namespace.as_deref(), meta.name.as_deref());
        warn!(namespace, name, %error, "Skipped an unreadable pod");
        meta
    })
}

/// Deserializes a string. Returns an empty string for any other value.
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(value.as_str().unwrap_or_default().to_owned())
}

/// Fields of a page except the pods.
#[derive(Deserialize)]
struct Page {
    metadata: PageMeta,
    // The splitter removes the items before the rest is parsed, so the array is always empty.
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
