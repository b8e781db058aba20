//! The watch: keeps the cache as the API server tells it, and says whether it stands.
//!
//! List once, then watch from there; a watch that ends is resumed without a list. `kube`'s own watcher is not used
//! because it does not tell when a watch stands again before something changes, and on a quiet node nothing does for
//! hours. Objects are kept as the bytes they arrive in.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use futures::TryStreamExt;
use kube::Client;
use kube::core::params::{ListParams, WatchParams};
use kube::core::{Request, WatchEvent};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use tracing::{info, warn};

use super::cloud::{self, Cloud};
use super::last_sync::LastSync;
use super::pod::{NodePod, PodKey};
use super::pod_cache::PodCache;
use crate::k8s::client::{self, CallError, WATCH_TIMEOUT_SECONDS};

/// Pods per page of a list: few enough that a page never weighs much (6 KB each), enough for most nodes.
const PAGE: u32 = 50;
/// The longest that a page may take: 300 KB through a thin tunnel.
const LIST_DEADLINE: Duration = Duration::from_secs(30);
/// The longest until a watch begins.
const WATCH_DEADLINE: Duration = Duration::from_secs(10);
/// The longest that a watch may be silent: it ends by itself before.
const SILENCE: Duration = Duration::from_secs(WATCH_TIMEOUT_SECONDS as u64 + 10);
/// A watch that ends sooner than this did not do its work: who opens the connection may be a proxy that closes it again.
/// Until then the failures before it count on. As long as the longest pause, and far below what a watch lasts.
const LASTING: Duration = Duration::from_secs(10);
/// The first pause after a failure; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
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
    Refused(String),
    /// Nothing came: resume.
    Silent(String),
}

impl From<CallError> for WatchError {
    fn from(error: CallError) -> Self {
        match &error {
            CallError::Kube(kube::Error::Api(status)) if status.code == 410 => Self::Gone,
            error if cloud::is_silent(error) => Self::Silent(error.to_string()),
            error => Self::Refused(error.to_string()),
        }
    }
}

impl NodeWatch {
    /// Watches until dropped.
    pub(super) async fn run(self) {
        let mut version = None;
        let mut failures = 0;
        loop {
            let lost = match self.follow(&mut version, &mut failures).await {
                Ok(()) => continue,
                Err(lost) => lost,
            };
            self.pod_cache.set_live(false);
            match &lost {
                WatchError::Silent(_) => self.cloud.lost(),
                WatchError::Gone | WatchError::Refused(_) => self.cloud.found(),
            }
            match lost {
                WatchError::Gone => version = None,
                WatchError::Refused(error) | WatchError::Silent(error) if failures == 0 => {
                    warn!(%error, "The watch of this node's pods failed and is tried again");
                }
                _ => {}
            }
            tokio::time::sleep(self.pause(failures)).await;
            failures = failures.saturating_add(1);
        }
    }

    /// Lists when there is nothing to resume from, then watches until the server ends it.
    async fn follow(
        &self,
        version: &mut Option<String>,
        failures: &mut u32,
    ) -> Result<(), WatchError> {
        let from = match version {
            Some(version) => version.clone(),
            None => version.insert(self.list().await?).clone(),
        };
        let params = WatchParams::default()
            .fields(&self.selector())
            .timeout(WATCH_TIMEOUT_SECONDS);
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
                    note_lasting(failures);
                    continue;
                }
                heard = tokio::time::timeout(SILENCE, events.try_next()) => heard,
            };
            match heard {
                Err(_) => return Err(WatchError::Silent(format!("silent for {SILENCE:?}"))),
                Ok(Err(error)) => return Err(CallError::Kube(error).into()),
                Ok(Ok(Some(event))) => {
                    self.take(event, version)?;
                    self.hear();
                }
                Ok(Ok(None)) if lasts => return Ok(()),
                Ok(Ok(None)) => {
                    return Err(WatchError::Refused("the watch ended at once".to_owned()));
                }
            }
        }
    }

    fn hear(&self) {
        self.last_sync.now();
        self.cloud.found();
    }

    /// Lists all pods of this node; returns the version from which to watch.
    async fn list(&self) -> Result<String, WatchError> {
        let mut params = ListParams::default().fields(&self.selector()).limit(PAGE);
        let mut pods = Vec::new();
        loop {
            let request = Request::new(PATH).list(&params).map_err(odd)?;
            let page: Page = client::within(LIST_DEADLINE, self.client.request(request)).await?;
            pods.extend(page.items.into_iter().filter_map(|raw| read(raw).ok()));
            match page.metadata.next.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => {
                    self.pod_cache.replace(pods);
                    self.hear();
                    return Ok(page.metadata.resource_version);
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
                match is_deleted {
                    true => self.pod_cache.delete(pod.key()),
                    false => self.pod_cache.apply(pod),
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

    /// How long to wait after so many failures: between half and the whole of it, other for every node, so that a fleet
    /// does not return all at once, and the same in every run.
    fn pause(&self, failures: u32) -> Duration {
        let whole = FIRST_PAUSE
            .saturating_mul(1 << failures.min(8))
            .min(LONGEST_PAUSE);
        let mut hasher = DefaultHasher::new();
        (&self.node, failures).hash(&mut hasher);
        let percent = 50 + u32::try_from(hasher.finish() % 51).unwrap_or(50);
        whole * percent / 100
    }
}

/// The failures before a watch that lasts are over.
fn note_lasting(failures: &mut u32) {
    if std::mem::take(failures) > 0 {
        info!("The watch of this node's pods stands again");
    }
}

/// A request that cannot even be written.
fn odd(error: kube::core::request::Error) -> WatchError {
    WatchError::Refused(error.to_string())
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

#[derive(Deserialize)]
struct Page {
    metadata: PageMeta,
    #[serde(default, deserialize_with = "items")]
    items: Vec<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMeta {
    #[serde(default, deserialize_with = "text")]
    resource_version: String,
    #[serde(rename = "continue", default)]
    next: Option<String>,
}

fn items<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Box<RawValue>>, D::Error> {
    Option::<Vec<_>>::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use http::{Request, Response};
    use http_body_util::Full;
    use std::sync::{Arc, Mutex};

    const GOOD: &str = r#"{"metadata":{"name":"good","namespace":"n","resourceVersion":"5"}}"#;
    const ODD: &str =
        r#"{"metadata":{"name":"odd","namespace":"n","resourceVersion":"6","ownerReferences":7}}"#;

    /// An API server that says these things, one after the other, and then nothing any more.
    fn server(says: &[String]) -> (Client, Arc<Mutex<Vec<String>>>) {
        let says = Arc::new(Mutex::new(says.iter().rev().cloned().collect::<Vec<_>>()));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let asking = asked.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            asking.lock().unwrap().push(request.uri().to_string());
            let text = says.lock().unwrap().pop();
            async move {
                match text {
                    Some(text) => Ok(Response::new(Full::new(bytes::Bytes::from(text)))),
                    None => std::future::pending::<Result<_, std::io::Error>>().await,
                }
            }
        });
        (Client::new(service, "default"), asked)
    }

    fn names(pod_cache: &PodCache) -> Vec<String> {
        let pods = pod_cache.pods().unwrap_or_default();
        pods.iter().map(|pod| pod.key().name.clone()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_cannot_be_read_costs_only_itself() {
        let list =
            format!(r#"{{"metadata":{{"resourceVersion":"4"}},"items":[{ODD},{GOOD},3,{{}}]}}"#);
        let broken = GOOD.replace(r#""5""#, r#""8","ownerReferences":7"#);
        let next = GOOD.replace("good", "next").replace(r#""5""#, r#""9""#);
        let watch = format!(
            "{{\"type\":\"ADDED\",\"object\":{next}}}\n{{\"type\":\"MODIFIED\",\"object\":{broken}}}\ngarbage\n"
        );
        let odd_bookmark = r#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"12"}}}"#;
        let (client, asked) = server(&[list, watch, format!("{odd_bookmark}\n")]);
        let pod_cache = PodCache::default();
        let watch = NodeWatch {
            client,
            node: "edge".to_owned(),
            pod_cache: pod_cache.clone(),
            last_sync: LastSync::new(Clock::starting_at("2030-01-01T00:00:00Z".parse().unwrap())),
            cloud: Cloud::default(),
        };
        let watching = tokio::spawn(watch.run());
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(names(&pod_cache), ["next"]);
        assert!(!pod_cache.is_live());
        tokio::time::sleep(Duration::from_secs(5)).await;
        let asked = asked.lock().unwrap().join("\n");
        for expected in [
            "limit=50",
            "resourceVersion=4",
            "resourceVersion=8",
            "resourceVersion=12",
        ] {
            assert!(asked.contains(expected), "{expected} in {asked}");
        }
        assert!(
            asked
                .lines()
                .all(|uri| uri.contains("fieldSelector=spec.nodeName%3Dedge")),
            "{asked}"
        );
        watching.abort();
    }

    /// A tunnel without its other end, a load balancer without a backend.
    #[tokio::test(start_paused = true)]
    async fn a_proxy_that_accepts_and_closes_is_asked_less_and_less_often() {
        let list = r#"{"metadata":{"resourceVersion":"4"},"items":[]}"#.to_owned();
        let closed = std::iter::repeat_n(String::new(), 1000);
        let says: Vec<String> = [list].into_iter().chain(closed).collect();
        let (client, asked) = server(&says);
        let watch = NodeWatch {
            client,
            node: "edge".to_owned(),
            pod_cache: PodCache::default(),
            last_sync: LastSync::new(Clock::System),
            cloud: Cloud::default(),
        };
        let watching = tokio::spawn(watch.run());
        tokio::time::sleep(Duration::from_secs(120)).await;
        let asked = asked.lock().unwrap().len();
        assert!((12..=30).contains(&asked), "{asked} requests in 120 s");
        watching.abort();
    }

    #[test]
    fn pauses_grow_to_ten_seconds_and_differ_from_node_to_node() {
        let pauses = |node: &str| {
            let watch = NodeWatch {
                client: server(&[]).0,
                node: node.to_owned(),
                pod_cache: PodCache::default(),
                last_sync: LastSync::new(Clock::System),
                cloud: Cloud::default(),
            };
            [0, 1, 4, 100].map(|failures| watch.pause(failures))
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let _entered = runtime.enter();
        for (pause, whole) in pauses("a").into_iter().zip([500, 1000, 8000, 10_000]) {
            let whole = Duration::from_millis(whole);
            assert!(pause >= whole / 2 && pause <= whole, "{pause:?} {whole:?}");
        }
        assert_ne!(pauses("a"), pauses("b"));
        assert_eq!(pauses("a"), pauses("a"));
    }
}
