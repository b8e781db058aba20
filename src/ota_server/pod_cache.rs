//! The pods of this node, as the watch told them. One writer (the watch), many readers (requests).
//!
//! A pod can have a megabyte, so each is in memory once: a list replaces pods one by one while it arrives, and what answers
//! are still being sent from is bounded.

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

/// The pods of this node. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub(super) struct PodCache(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<PodCacheState>,
    changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct PodCacheState {
    /// `None` before anything was ever known.
    pods: Option<BTreeMap<PodKey, NodePod>>,
    /// Whether the watch stands, so that what is not here is not there.
    live: bool,
    /// What answers are being sent from.
    lenders: Lenders,
}

impl PodCacheState {
    /// Lets nobody keep much that is not the newest any more.
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
    /// That pod, if it is known here.
    pub(super) fn pod(&self, key: &PodKey) -> Option<NodePod> {
        self.state().pods.as_ref()?.get(key).cloned()
    }

    /// All pods by namespace and name; `None` before anything was ever known.
    pub(super) fn pods(&self) -> Option<Vec<NodePod>> {
        let state = self.state();
        Some(state.pods.as_ref()?.values().cloned().collect())
    }

    /// All pods by namespace and name, to be sent one by one; `None` before anything was ever known.
    pub(super) fn lend(&self) -> Option<LentPods> {
        let mut state = self.state();
        let pods = state.pods.as_ref()?.values().cloned().collect();
        Some(state.lenders.lend(pods))
    }

    /// The same pod as it is kept here if it has not changed, so that it is in memory once.
    pub(super) fn shared(&self, pod: NodePod) -> NodePod {
        let kept = self.pod(pod.key());
        kept.filter(|kept| kept.is_equal(&pod)).unwrap_or(pod)
    }

    /// Begins to take in everything there is, one by one.
    pub(super) fn relist(&self) -> Relist<'_> {
        Relist::new(self)
    }

    /// Whether anything was ever known.
    pub(super) fn is_known(&self) -> bool {
        self.state().pods.is_some()
    }

    /// Whether the watch stands, so that what is not here is not there.
    pub(super) fn is_live(&self) -> bool {
        self.state().live
    }

    /// Waits until `is_met` holds for that pod (or its absence), at most that long; says whether it does.
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

    /// Told whenever something changed; the number only grows.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// Everything there is.
    pub(super) fn replace(&self, pods: impl IntoIterator<Item = NodePod>) {
        let pods = pods.into_iter().map(|pod| (pod.key().clone(), pod));
        self.change(|kept| *kept = Some(pods.collect()));
    }

    /// A pod that is new or changed.
    pub(super) fn apply(&self, pod: NodePod) {
        self.change(|pods| {
            let pods = pods.get_or_insert_default();
            pods.insert(pod.key().clone(), pod);
        });
    }

    /// A pod that is gone.
    pub(super) fn delete(&self, key: &PodKey) {
        self.change(|pods| {
            if let Some(pods) = pods {
                pods.remove(key);
            }
        });
    }

    /// Whether the watch stands.
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
