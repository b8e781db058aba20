//! What the API server says of a pod, its DaemonSet and the revisions of that: read before anything is written.
//!
//! The conditions that invite to an upgrade are left behind by a controller that may be away, and the cache is as old as the
//! watch. So the question is asked again of the objects themselves, by the procedure that the controller goes by. A write follows only an answer: a server that hangs executes nothing later.

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

/// The longest that an owner waits for the API server to tell what it knows; the reference has the same.
pub(super) const DEADLINE: Duration = Duration::from_secs(2);
/// The longest that an owner waits for a write, after the API server answered all questions: an admission webhook may take ten
/// seconds by its default, and a write that is given up halfway may still be carried out.
pub(super) const WRITE_DEADLINE: Duration = Duration::from_secs(10);
/// Bytes of a pod that is large, and how many of these are read at once: each is in memory twice then.
const LARGE: usize = 128 << 10;
const LARGE_AT_ONCE: usize = 2;
/// Manifests with the rights of the agents.
const BASE: &str = "manifests/base/ota-server";
/// Selectors remembered; a node has not that many DaemonSets.
const SELECTORS: usize = 256;

/// Reads from the API server. Cheap to clone; all clones are one.
#[derive(Clone)]
pub(super) struct ApiReader {
    client: Client,
    cloud: Cloud,
    pod_cache: PodCache,
    /// Held while a large pod is read.
    large: Arc<Semaphore>,
    /// By UID of the DaemonSet; a selector never changes.
    selectors: Arc<Mutex<BTreeMap<String, String>>>,
}

/// A pod and what it is judged by, as they were read together.
pub(super) struct JudgedPod {
    /// The pod.
    pub(super) pod: Result<NodePod, CallError>,
    /// Its DaemonSet with the revisions.
    pub(super) set: Result<(DaemonSet, Vec<ControllerRevision>), CallError>,
}

/// Whether a pod is to be replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LiveJudgement {
    /// It is outdated; that is the current revision.
    Outdated(Revision),
    /// It is not, or nobody can tell.
    Refused(Reason),
    /// What was read does not fit together: perhaps something changed in between.
    InDoubt,
}

impl ApiReader {
    /// Nothing read yet.
    pub(super) fn new(client: Client, cloud: Cloud, pod_cache: PodCache) -> Self {
        Self {
            client,
            cloud,
            pod_cache,
            large: Arc::new(Semaphore::new(LARGE_AT_ONCE)),
            selectors: Arc::default(),
        }
    }

    /// The pod.
    pub(super) async fn pod(&self, key: &PodKey) -> Result<NodePod, CallError> {
        let request = requests::<k8s::Pod>(&key.namespace).get(&key.name, &GetParams::default());
        self.call(DEADLINE, self.fetch_pod(key, request)).await
    }

    /// Any other object of that namespace.
    pub(super) async fn get<K>(&self, namespace: &str, name: &str) -> Result<K, CallError>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let request = requests::<K>(namespace).get(name, &GetParams::default());
        self.call(DEADLINE, self.fetch(request)).await
    }

    /// The objects of that namespace with these labels.
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

    /// Sends a write; of the answer only success or failure counts.
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

    /// The pod, its DaemonSet and the revisions; side by side when that is possible.
    ///
    /// The revisions may be as old as the API server's memory of them: for the newest list it waits up to 100 ms after
    /// any write, since Kubernetes 1.31. Pod and DaemonSet are always the newest, and revisions that do not fit to them
    /// leave the judgement in doubt.
    pub(super) async fn look(&self, key: &PodKey, owner: &OwnerReference) -> JudgedPod {
        let set = self.set(&key.namespace, owner, ListParams::default().match_any());
        let (pod, set) = tokio::join!(self.pod(key), set);
        JudgedPod { pod, set }
    }

    /// The same, all of it the newest, one after the other: no pod that was read then runs a revision that was made
    /// after the list.
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
                        return Ok((set, Vec::new())); // it is not ours, whatever its revisions are
                    };
                    self.remember(&set, &selector);
                    let revisions = list(selector).await?;
                    Ok((set, revisions))
                }
            }
        };
        self.call(DEADLINE, both).await
    }

    /// The pod in the room of the one in the cache, if they are equal, and of large ones few at a time.
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
            // The API server quotes the group: `in API group "apps.kruise.io"`.
            let apply = if error.to_string().contains(KRUISE_GROUP) {
                ADVANCED_RBAC
            } else {
                BASE
            };
            warn!(%error, apply, "The service account lacks a permission that these manifests grant");
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

/// Requests for objects of this kind in that namespace.
pub(super) fn requests<K: Resource<DynamicType = ()>>(namespace: &str) -> Request {
    Request::new(K::url_path(&(), Some(namespace)))
}

/// Judges a pod by its DaemonSet and the revisions; `last`: nothing will be read again.
pub(super) fn judge(
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
        // Its owner is another one by now: judged by memory, it was still this one.
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

/// What is still open after two looks is decided: a revision that is not there was deleted, and one that cannot be
/// compared is judged by its number.
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
