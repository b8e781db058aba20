//! Snapshots of the pods for answers in progress. A snapshot shares the newest version of each pod with the cache. The memory of
//! older versions is limited.
//!
//! A client can read slowly while the pods change. Without a limit, each slow client could keep old versions of all pods in memory.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::ota_server::pod::NodePod;

/// Maximum size in bytes of the outdated pods in all snapshots. It suffices for a few changes of the largest pods, or hundreds of
/// changes of typical pods.
const OLD_AT_MOST: usize = 4 << 20;

/// Pods that one answer still has to send. If outdated pods use too much memory, they are reclaimed: the oldest answers lose their
/// pods, and fail.
#[derive(Debug)]
pub(in crate::ota_server) struct LentPods(Arc<Mutex<Lent>>);

#[derive(Debug)]
struct Lent {
    /// Remaining pods; `None` if they were reclaimed.
    pods: Option<VecDeque<NodePod>>,
}

impl LentPods {
    /// Returns the remaining pods in order; `None` if they were reclaimed.
    pub(in crate::ota_server) fn left(&self) -> Option<Vec<NodePod>> {
        let lent = lock(&self.0);
        Some(lent.pods.as_ref()?.iter().cloned().collect())
    }

    /// Returns the next pod to send.
    ///
    /// # Errors
    /// Fails if the pods were reclaimed.
    pub(in crate::ota_server) fn front(&self) -> Result<Option<NodePod>, Reclaimed> {
        let lent = lock(&self.0);
        let pods = lent.pods.as_ref().ok_or(Reclaimed)?;
        Ok(pods.front().cloned())
    }

    /// Removes the next pod, after it was sent.
    pub(in crate::ota_server) fn pop(&self) {
        if let Some(pods) = &mut lock(&self.0).pods {
            pods.pop_front();
        }
    }
}

/// Error of an answer whose pods were reclaimed, because they changed while the client read too slowly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ota_server) struct Reclaimed;

/// Snapshots of all answers in progress, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Lenders(Vec<Weak<Mutex<Lent>>>);

impl Lenders {
    pub(super) fn lend(&mut self, pods: VecDeque<NodePod>) -> LentPods {
        self.0.retain(|lent| lent.strong_count() > 0);
        let lent = Arc::new(Mutex::new(Lent { pods: Some(pods) }));
        self.0.push(Arc::downgrade(&lent));
        LentPods(lent)
    }

    /// Reclaims pods from the oldest answers until the memory of outdated pods is below the limit.
    pub(super) fn reclaim(&mut self, is_newest: impl Fn(&NodePod) -> bool) {
        let lent: Vec<_> = self.0.iter().filter_map(Weak::upgrade).collect();
        let mut old: Vec<Vec<(usize, usize)>> =
            lent.iter().map(|lent| old_in(lent, &is_newest)).collect();
        for (index, lent) in lent.iter().enumerate() {
            let kept: BTreeMap<usize, usize> = old.iter().flatten().copied().collect();
            if kept.values().sum::<usize>() <= OLD_AT_MOST {
                return;
            }
            if !std::mem::take(&mut old[index]).is_empty() {
                lock(lent).pods = None;
            }
        }
    }
}

/// Returns address and size of each outdated pod in a snapshot.
fn old_in(lent: &Mutex<Lent>, is_newest: impl Fn(&NodePod) -> bool) -> Vec<(usize, usize)> {
    let lent = lock(lent);
    let old = lent.pods.iter().flatten().filter(|pod| !is_newest(pod));
    old.map(|pod| (pod.address(), pod.raw().len())).collect()
}

fn lock(lent: &Mutex<Lent>) -> MutexGuard<'_, Lent> {
    lent.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use crate::ota_server::pod::NodePod;
    use crate::ota_server::pod_cache::PodCache;

    use super::*;

    /// Returns a pod of one megabyte.
    fn pod(name: &str, version: u32) -> NodePod {
        let filling = "x".repeat(1 << 20);
        let raw = format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"n","resourceVersion":"{version}"}},"x":"{filling}"}}"#
        );
        NodePod::read(serde_json::value::RawValue::from_string(raw).unwrap()).unwrap()
    }

    #[test]
    fn the_oldest_responses_are_aborted_first_after_too_many_changes() {
        let cache = PodCache::default();
        let names = ["a", "b", "c", "d", "e", "f"];
        cache.replace(names.map(|name| pod(name, 1)));
        let (slow, slower) = (cache.lend().unwrap(), cache.lend().unwrap());
        let nearly_done = cache.lend().unwrap();
        (0..6).for_each(|_| nearly_done.pop());
        for name in &names[..3] {
            cache.apply(pod(name, 2));
        }
        assert_eq!(
            slow.left().unwrap().len(),
            6,
            "three pods for both are no matter"
        );
        let new = cache.lend().unwrap();
        slower.pop();
        cache.apply(pod("d", 2));
        assert_eq!(slow.front().unwrap_err(), Reclaimed);
        assert_eq!(
            slower.left().unwrap().len(),
            5,
            "three old pods are left of the four"
        );
        assert_eq!(new.left().unwrap().len(), 6);
        assert!(matches!(nearly_done.front(), Ok(None)));
        cache.replace([]);
        assert!(slower.left().is_none());
        assert!(new.left().is_none());
    }
}
