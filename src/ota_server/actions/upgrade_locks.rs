//! Locks that allow one action per pod at a time, and prevent a second deletion of the pod.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use crate::ota_server::pod::{NodePod, PodKey};
use crate::ota_server::pod_cache::PodCache;

/// Locks by UID of the pod. A lock also marks its pod as deleted until the cache shows the deletion.
#[derive(Clone, Debug, Default)]
pub(super) struct UpgradeLocks(Arc<Mutex<BTreeMap<String, Arc<LockState>>>>);

#[derive(Debug)]
struct LockState {
    key: PodKey,
    turn: Arc<AsyncMutex<()>>,
    deleted: AtomicBool,
}

/// Lock of one call for a pod. The next call for the pod waits until this lock is dropped.
#[derive(Debug)]
pub(super) struct UpgradeLock {
    slot: Arc<LockState>,
    /// True if the caller had to wait for another call.
    pub(super) waited: bool,
    _turn: OwnedMutexGuard<()>,
}

impl UpgradeLocks {
    /// Waits until no other call for the pod is in progress, and returns the lock.
    pub(super) async fn take(&self, pod: &NodePod, pod_cache: &PodCache) -> UpgradeLock {
        let slot = self.slot(pod, pod_cache);
        let (waited, turn) = match slot.turn.clone().try_lock_owned() {
            Ok(turn) => (false, turn),
            Err(_) => (true, slot.turn.clone().lock_owned().await),
        };
        UpgradeLock {
            slot,
            waited,
            _turn: turn,
        }
    }

    fn slot(&self, pod: &NodePod, pod_cache: &PodCache) -> Arc<LockState> {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slots.retain(|uid, slot| {
            let deleted = slot.deleted.load(Ordering::Relaxed);
            Arc::strong_count(slot) > 1 || deleted && !is_shown(pod_cache, &slot.key, uid)
        });
        let uid = &pod.facts().uid;
        let slot = slots.entry(uid.clone()).or_insert_with(|| {
            Arc::new(LockState {
                key: pod.key().clone(),
                turn: Arc::default(),
                deleted: AtomicBool::new(false),
            })
        });
        slot.clone()
    }
}

impl UpgradeLock {
    /// Returns true if the API server has accepted the deletion of this pod.
    pub(super) fn is_deleted(&self) -> bool {
        self.slot.deleted.load(Ordering::Relaxed)
    }

    /// Records that the API server accepted the deletion, so that no later call deletes the pod again.
    pub(super) fn deleted(&self) {
        self.slot.deleted.store(true, Ordering::Relaxed);
    }
}

/// Returns true if the cache is live and shows that the pod is gone or terminating.
fn is_shown(pod_cache: &PodCache, key: &PodKey, uid: &str) -> bool {
    pod_cache.is_live()
        && pod_cache.pod(key).is_none_or(|pod| {
            let facts = pod.facts();
            facts.deleting || facts.uid != uid
        })
}
