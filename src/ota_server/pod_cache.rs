//! Cache of the pods of this node. The watch writes it, and requests read it.
//!
//! A pod can have a megabyte, so each pod is in memory only once. A new list replaces the cached pods one by one as it arrives. Old
//! pods that are still being sent to slow clients have a memory limit.

mod lent;
mod relist;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use self::lent::Lenders;
pub(super) use self::lent::LentPods;
pub(super) use self::relist::Relist;
use super::pod::{NodePod, PodKey};

/// Cache of the node's pods. Cheap to clone: all clones share the cache.
#[derive(Clone, Debug)]
pub(super) struct PodCache(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<PodCacheState>,
    changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct PodCacheState {
    /// Pods by key; `None` until the first list is complete, or the saved pods were loaded from disk.
    pods: Option<BTreeMap<PodKey, NodePod>>,
    /// True if the watch is live. Then a pod that is not in the cache is not on this node.
    live: bool,
    /// Snapshots of the pods for answers in progress.
    lenders: Lenders,
}

impl PodCacheState {
    /// Keeps the memory of outdated pods in the snapshots below its limit.
    fn reclaim(&mut self) {
        let pods = &self.pods;
        self.lenders.reclaim(|pod| {
            let newest = pods.as_ref().and_then(|pods| pods.get(pod.key()));
            newest.is_some_and(|newest| newest.is_same(pod))
        });
    }
}

impl Default for PodCache {
    fn default() -> Self {
        Self(Arc::new(Shared {
            state: Mutex::default(),
            changes: watch::channel(0).0,
        }))
    }
}

impl PodCache {
    pub(super) fn pod(&self, key: &PodKey) -> Option<NodePod> {
        self.state().pods.as_ref()?.get(key).cloned()
    }

    /// Returns all pods, sorted by namespace and name; `None` if they are not known yet ([`Self::is_known`]).
    pub(super) fn pods(&self) -> Option<Vec<NodePod>> {
        let state = self.state();
        Some(state.pods.as_ref()?.values().cloned().collect())
    }

    /// Returns a snapshot of all pods, sorted by namespace and name; `None` if they are not known yet ([`Self::is_known`]). The
    /// pods are then sent one by one.
    pub(super) fn lend(&self) -> Option<LentPods> {
        let mut state = self.state();
        let pods = state.pods.as_ref()?.values().cloned().collect();
        Some(state.lenders.lend(pods))
    }

    /// Returns the cached pod if it equals `pod`, and `pod` otherwise. So equal pods are in memory only once.
    pub(super) fn shared(&self, pod: NodePod) -> NodePod {
        let kept = self.pod(pod.key());
        kept.filter(|kept| kept.is_equal(&pod)).unwrap_or(pod)
    }

    /// Starts a list, which replaces the cached pods one by one.
    pub(super) fn relist(&self) -> Relist<'_> {
        Relist::new(self)
    }

    /// Returns true if the pods are known from a list or from disk.
    pub(super) fn is_known(&self) -> bool {
        self.state().pods.is_some()
    }

    /// Returns true if the watch is live. Then a pod that is not in the cache is not on this node.
    pub(super) fn is_live(&self) -> bool {
        self.state().live
    }

    /// Waits until `is_met` returns true for the cached pod, or for `None` if the pod is not in the cache. Returns false if the
    /// wait takes longer than `within`.
    pub(super) async fn until(
        &self,
        key: &PodKey,
        within: Duration,
        is_met: impl Fn(Option<&NodePod>) -> bool,
    ) -> bool {
        let mut changes = self.0.changes.subscribe();
        let met = changes.wait_for(|_| is_met(self.pod(key).as_ref()));
        matches!(tokio::time::timeout(within, met).await, Ok(Ok(_)))
    }

    /// Returns a receiver of the change counter, which grows with each change of the cache.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    pub(super) fn replace(&self, pods: impl IntoIterator<Item = NodePod>) {
        let pods = pods.into_iter().map(|pod| (pod.key().clone(), pod));
        self.change(|kept| *kept = Some(pods.collect()));
    }

    pub(super) fn apply(&self, pod: NodePod) {
        self.change(|pods| {
            let pods = pods.get_or_insert_default();
            pods.insert(pod.key().clone(), pod);
        });
    }

    pub(super) fn delete(&self, key: &PodKey) {
        self.change(|pods| {
            if let Some(pods) = pods {
                pods.remove(key);
            }
        });
    }

    pub(super) fn set_live(&self, live: bool) {
        self.state().live = live;
    }

    fn change(&self, how: impl FnOnce(&mut Option<BTreeMap<PodKey, NodePod>>)) {
        let mut state = self.state();
        how(&mut state.pods);
        state.reclaim();
        drop(state);
        self.0.changes.send_modify(|number| *number += 1);
    }

    fn state(&self) -> MutexGuard<'_, PodCacheState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
