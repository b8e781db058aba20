//! The pods of this node, as the watch told them. One writer (the watch), many readers (requests).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

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
        self.state().pods = Some(pods.collect());
        self.tell();
    }

    /// A pod that is new or changed.
    pub(super) fn apply(&self, pod: NodePod) {
        let mut state = self.state();
        let pods = state.pods.get_or_insert_default();
        pods.insert(pod.key().clone(), pod);
        drop(state);
        self.tell();
    }

    /// A pod that is gone.
    pub(super) fn delete(&self, key: &PodKey) {
        if let Some(pods) = &mut self.state().pods {
            pods.remove(key);
        }
        self.tell();
    }

    /// Whether the watch stands.
    pub(super) fn set_live(&self, live: bool) {
        self.state().live = live;
    }

    fn tell(&self) {
        self.0.changes.send_modify(|number| *number += 1);
    }

    fn state(&self) -> MutexGuard<'_, PodCacheState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
