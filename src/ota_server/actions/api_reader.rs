//! Reads of a pod, its DaemonSet and the revisions from the API server before a write.
//!
//! If no controller is running, `PodNeedUpgrade` may be stale. The cache may be stale too. So the DaemonSet and its revisions are
//! evaluated with the controller's own code. A write is sent only after all reads have succeeded, because an API server that hangs
//! might apply the write much later.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::jiff::Timestamp;
use kube::api::{GetParams, ListParams};
use kube::core::{Request, request};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tracing::warn;

use super::reason::Reason;
use crate::core::names::{ADVANCED_RBAC, KRUISE_GROUP};
use crate::core::{
    Mode, ParsedSettings, PodRevision, Revision, RevisionState, RevisionUnknown, is_paused,
};
use crate::index::{Index, SetKey, SetKind};
use crate::k8s::client::{CallError, within};
use crate::k8s::{self, AdvancedDaemonSet, ControllerRevision, DaemonSet};
use crate::ota_server::cloud::Cloud;
use crate::ota_server::pod::{NodePod, PodKey};
use crate::ota_server::pod_cache::PodCache;
use crate::ota_server::received::{receive, receive_items};

/// Timeout for reading a pod, and for reading a DaemonSet with its revisions. docs/reference/node-api.md documents it too.
pub(super) const DEADLINE: Duration = Duration::from_secs(2);
/// Timeout for a write after all reads have succeeded. It is as long as the default timeout of an admission webhook (10 s), because
/// an abandoned write may still be applied.
pub(super) const WRITE_DEADLINE: Duration = Duration::from_secs(10);
/// Size in bytes from which a pod is large. A pod is in memory twice while it is read, so at most two large pods are read at once.
const LARGE: usize = 128 << 10;
const LARGE_AT_ONCE: usize = 2;
/// Directory of the manifests that grant the agent's permissions, for error texts.
const BASE: &str = "manifests/base/ota-server";
/// Maximum number of cached selectors. A node runs fewer DaemonSets.
const SELECTORS: usize = 256;

/// Reader of the API server. Cheap to clone: all clones share their state.
#[derive(Clone)]
pub(super) struct ApiReader {
    client: Client,
    cloud: Cloud,
    pod_cache: PodCache,
    /// Limits concurrent reads of large pods, to save memory.
    large: Arc<Semaphore>,
    /// Selectors by UID of the DaemonSet. They never become stale, because the selector of a DaemonSet is immutable.
    selectors: Arc<Mutex<BTreeMap<String, String>>>,
}

/// A pod with its DaemonSet and revisions, read together.
pub(super) struct JudgedPod {
    /// The pod, or the error of reading it.
    pub(super) pod: Result<NodePod, CallError>,
    /// The pod's DaemonSet and the revisions, or the error of reading them.
    pub(super) set: Result<(DaemonSet, Vec<ControllerRevision>), CallError>,
}

/// Result of comparing a pod with the revisions of its DaemonSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LiveJudgement {
    /// The pod is outdated. The value is the revision that replaces it.
    Outdated(Revision),
    /// The pod is not outdated, or its revision cannot be determined.
    Refused(Reason),
    /// Pod, DaemonSet and revisions contradict each other. One of them may have changed between the reads.
    InDoubt,
}

impl ApiReader {
    /// Creates a reader without sending a request.
    pub(super) fn new(client: Client, cloud: Cloud, pod_cache: PodCache) -> Self {
        Self {
            client,
            cloud,
            pod_cache,
            large: Arc::new(Semaphore::new(LARGE_AT_ONCE)),
            selectors: Arc::default(),
        }
    }

    /// Reads a pod from the API server.
    pub(super) async fn pod(&self, key: &PodKey) -> Result<NodePod, CallError> {
        let request = requests::<k8s::Pod>(&key.namespace).get(&key.name, &GetParams::default());
        self.call(DEADLINE, self.fetch_pod(key, request)).await
    }

    /// Reads an object of any kind in the namespace.
    pub(super) async fn get<K>(&self, namespace: &str, name: &str) -> Result<K, CallError>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let request = requests::<K>(namespace).get(name, &GetParams::default());
        self.call(DEADLINE, self.fetch(request)).await
    }

    /// Lists the objects in the namespace with these labels.
    pub(super) async fn list<T, K>(
        &self,
        namespace: &str,
        selector: &str,
    ) -> Result<Vec<T>, CallError>
    where
        K: Resource<DynamicType = ()>,
        T: DeserializeOwned,
    {
        let params = ListParams::default().labels(selector);
        let list = self.fetch_list::<T, K>(namespace, params);
        self.call(DEADLINE, list).await
    }

    /// Sends a write and ignores the body of the response.
    pub(super) async fn write(
        &self,
        request: Result<http::Request<Vec<u8>>, request::Error>,
    ) -> Result<(), CallError> {
        let write = async {
            let request = request.map_err(kube::Error::BuildRequest)?;
            receive(&self.client, request, WRITE_DEADLINE, |_| Ok(())).await
        };
        self.call(WRITE_DEADLINE, write).await
    }

    /// Reads the pod, its DaemonSet and the revisions, concurrently if possible.
    ///
    /// Pod and DaemonSet are always the newest versions. The revisions may come from the API server's cache: since Kubernetes 1.31,
    /// a list of the newest revisions would wait up to 100 ms after any write. Old revisions may contradict the pod. In that case,
    /// [`evaluate`] returns `InDoubt`, and [`Self::look_again`] reads the newest revisions.
    pub(super) async fn look(&self, key: &PodKey, owner: &OwnerReference) -> JudgedPod {
        let set = self.set(&key.namespace, owner, ListParams::default().match_any());
        let (pod, set) = tokio::join!(self.pod(key), set);
        JudgedPod { pod, set }
    }

    /// Reads the newest pod, and then its DaemonSet and revisions.
    ///
    /// Because the revisions are read last, they include the pod's revision, unless that revision was deleted.
    pub(super) async fn look_again(&self, key: &PodKey, owner: &OwnerReference) -> JudgedPod {
        let pod = self.pod(key).await;
        let set = self.set(&key.namespace, owner, ListParams::default());
        JudgedPod {
            pod,
            set: set.await,
        }
    }

    async fn set(
        &self,
        namespace: &str,
        owner: &OwnerReference,
        freshness: ListParams,
    ) -> Result<(DaemonSet, Vec<ControllerRevision>), CallError> {
        let known = self.selectors().get(&owner.uid).cloned();
        let kind = SetKind::of_api_version(&owner.api_version);
        let set = async {
            let (name, params) = (&owner.name, GetParams::default());
            match kind {
                SetKind::Native => {
                    let request = requests::<DaemonSet>(namespace).get(name, &params);
                    self.fetch::<DaemonSet>(request).await
                }
                SetKind::Advanced => {
                    let request = requests::<AdvancedDaemonSet>(namespace).get(name, &params);
                    let set = self.fetch::<AdvancedDaemonSet>(request).await?;
                    Ok(set.into())
                }
            }
        };
        let list = |selector: String| {
            let params = freshness.labels(&selector);
            self.fetch_list::<ControllerRevision, ControllerRevision>(namespace, params)
        };
        let both = async {
            match known {
                Some(selector) => tokio::try_join!(set, list(selector)),
                None => {
                    let set = set.await?;
                    let mut index = Index::default();
                    index.apply_set(&set);
                    let key = SetKey::of_kind(kind, namespace, &owner.name);
                    let Some(selector) = index.set(&key).map(|set| set.selector.clone()) else {
                        return Ok((set, Vec::new())); // yurt-ds does not manage this DaemonSet.
                    };
                    self.remember(&set, &selector);
                    let revisions = list(selector).await?;
                    Ok((set, revisions))
                }
            }
        };
        self.call(DEADLINE, both).await
    }

    /// Reads a pod. If it equals the cached pod, returns the cached one. At most two large pods are read at once.
    async fn fetch_pod(
        &self,
        key: &PodKey,
        request: Result<http::Request<Vec<u8>>, request::Error>,
    ) -> kube::Result<NodePod> {
        let request = request.map_err(kube::Error::BuildRequest)?;
        let known = self.pod_cache.pod(key);
        let _turn = if known.is_some_and(|pod| pod.raw().len() > LARGE) {
            self.large.acquire().await.ok()
        } else {
            None
        };
        let mut text = Vec::new();
        let take = |piece: &[u8]| {
            text.extend_from_slice(piece);
            Ok(())
        };
        receive(&self.client, request, DEADLINE, take).await?;
        let pod = serde_json::from_slice(&text).map_err(kube::Error::SerdeError)?;
        Ok(self.pod_cache.shared(pod))
    }

    async fn fetch<T: DeserializeOwned>(
        &self,
        request: Result<http::Request<Vec<u8>>, request::Error>,
    ) -> kube::Result<T> {
        let request = request.map_err(kube::Error::BuildRequest)?;
        self.client.request(request).await
    }

    async fn fetch_list<T, K>(&self, namespace: &str, params: ListParams) -> kube::Result<Vec<T>>
    where
        K: Resource<DynamicType = ()>,
        T: DeserializeOwned,
    {
        let request = requests::<K>(namespace).list(&params);
        let request = request.map_err(kube::Error::BuildRequest)?;
        receive_items(&self.client, request, DEADLINE).await
    }

    async fn call<T>(
        &self,
        deadline: Duration,
        call: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, CallError> {
        let result = within(deadline, call).await;
        self.cloud.note(&result);
        if let Err(error) = &result
            && error.lacks_permission()
        {
            // The text `in API group "apps.kruise.io"` is in the error only if the permission for Advanced DaemonSets is missing.
            let apply = if error.to_string().contains(KRUISE_GROUP) {
                ADVANCED_RBAC
            } else {
                BASE
            };
            warn!(%error, apply, "The service account lacks a permission; these manifests grant it");
        }
        result
    }

    fn remember(&self, set: &DaemonSet, selector: &str) {
        let mut selectors = self.selectors();
        if selectors.len() >= SELECTORS {
            selectors.clear();
        }
        let uid = set.metadata.uid.clone().unwrap_or_default();
        selectors.insert(uid, selector.to_owned());
    }

    fn selectors(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, String>> {
        self.selectors
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a builder of requests for objects of a kind in a namespace.
pub(super) fn requests<K: Resource<DynamicType = ()>>(namespace: &str) -> Request {
    Request::new(K::url_path(&(), Some(namespace)))
}

/// Compares a pod with its DaemonSet and the revisions.
///
/// If `last` is true, the objects are not read again. Contradictions between them are then resolved by [`settle`].
pub(super) fn evaluate(
    pod: &NodePod,
    owner: &OwnerReference,
    set: &DaemonSet,
    revisions: &[ControllerRevision],
    last: bool,
    now: Timestamp,
) -> LiveJudgement {
    use LiveJudgement::{InDoubt, Outdated, Refused};
    if set.metadata.uid.as_deref() != Some(&owner.uid) || set.metadata.deletion_timestamp.is_some()
    {
        return Refused(Reason::DaemonSetGone);
    }
    let (mut index, key) = match index(pod, set, revisions, now) {
        Some(filled) => filled,
        None => return Refused(Reason::ModeChanged),
    };
    match index.reading(&key).as_deref() {
        Some(ParsedSettings::Strategy { strategy, .. }) if strategy.mode == Mode::Ota => {
            if is_paused(strategy, now) {
                return Refused(Reason::Paused);
            }
        }
        _ => return Refused(Reason::ModeChanged),
    }
    if last {
        settle(&mut index, &key, now);
    }
    let Some(fleet) = index.fleet(&key, now) else {
        return Refused(Reason::ModeChanged);
    };
    let target = match &fleet.revision {
        RevisionState::Current(target) => target.clone(),
        RevisionState::Unknown(RevisionUnknown::NotObserved) => {
            return Refused(Reason::NativeControllerBehind);
        }
        RevisionState::Unknown(_) if !last => return InDoubt,
        RevisionState::Unknown(_) => return Refused(Reason::NativeControllerBehind),
    };
    let mut pods = fleet.nodes.iter().flat_map(|node| &node.pods);
    match pods.next().map(|pod| pod.revision) {
        Some(PodRevision::Outdated) => Outdated(target),
        Some(PodRevision::Current) => Refused(Reason::NotOutdated),
        // The index has no such pod, or does not know the pod's revision: the pod's owner has changed since the cache was updated.
        Some(PodRevision::Unknown) | None => Refused(Reason::NativeControllerBehind),
    }
}

fn index(
    pod: &NodePod,
    set: &DaemonSet,
    revisions: &[ControllerRevision],
    now: Timestamp,
) -> Option<(Index, SetKey)> {
    let mut index = Index::default();
    index.apply_set(set);
    for revision in revisions {
        index.apply_revision(revision);
    }
    let key = SetKey::of_set(set)?;
    let pod: k8s::Pod = serde_json::from_str(pod.raw()).ok()?;
    index.apply_pod(&key, &pod, now)?;
    Some((index, key))
}

/// Resolves contradictions that remain after the second read. A missing revision counts as deleted, and the revision with the
/// highest number counts as the current one.
fn settle(index: &mut Index, key: &SetKey, now: Timestamp) {
    let mismatch = RevisionState::Unknown(RevisionUnknown::Mismatch);
    if index
        .fleet(key, now)
        .is_some_and(|fleet| fleet.revision == mismatch)
        && let Some(set) = index.set_mut(key)
    {
        set.trust_greatest(set.generation);
    }
    for hash in index.unknown_hashes(key) {
        if let Some(set) = index.set_mut(key) {
            set.note_absent(hash);
        }
    }
}
