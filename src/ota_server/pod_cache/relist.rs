//! List that replaces the cached pods one by one as it arrives. So old and new pods are not in memory at the same time.

use std::collections::BTreeMap;

use super::PodCache;
use crate::ota_server::pod::{NodePod, PodKey};

/// List in progress. If it fails, the cache keeps the newest received version of each pod.
pub(in crate::ota_server) struct Relist<'a> {
    cache: &'a PodCache,
    /// Pods listed so far. They are in the cache too, except during the first list, because clients must not see an incomplete
    /// list.
    listed: BTreeMap<PodKey, NodePod>,
}

impl<'a> Relist<'a> {
    pub(super) fn new(cache: &'a PodCache) -> Self {
        Self {
            cache,
            listed: BTreeMap::new(),
        }
    }

    /// Adds the next pod of the list.
    pub(in crate::ota_server) fn take(&mut self, pod: NodePod) {
        let pod = self.cache.shared(pod);
        if self.cache.is_known() {
            self.pass(&pod);
        }
        self.listed.insert(pod.key().clone(), pod);
    }

    /// Adds a pod to the cache, and removes the cached pods that the list has skipped.
    ///
    /// The list is sorted, so a cached pod that the list has skipped was deleted. If such a pod was created again, the watch adds
    /// it.
    fn pass(&self, pod: &NodePod) {
        let is_passed =
            |key: &PodKey| key.in_list().lt(pod.key().in_list()) && !self.listed.contains_key(key);
        self.cache.change(|pods| {
            let pods = pods.get_or_insert_default();
            pods.retain(|key, _| !is_passed(key));
            pods.insert(pod.key().clone(), pod.clone());
        });
    }

    /// Completes the list, and removes all cached pods that it does not have.
    pub(in crate::ota_server) fn finish(self) {
        self.cache.replace(self.listed.into_values());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(key: &str, version: u32) -> NodePod {
        let (namespace, name) = key.split_once('/').unwrap();
        let raw = format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"{namespace}","resourceVersion":"{version}"}}}}"#
        );
        NodePod::read(serde_json::value::RawValue::from_string(raw).unwrap()).unwrap()
    }

    fn kept(cache: &PodCache) -> Vec<String> {
        let pods = cache.pods().unwrap_or_default();
        let shown = |pod: &NodePod| format!("{} {}", pod.key(), pod.facts().resource_version);
        pods.iter().map(shown).collect()
    }

    #[test]
    fn a_list_replaces_pods_one_by_one_and_removes_skipped_ones() {
        let cache = PodCache::default();
        // "-" sorts before "/", so the API server lists the namespace a-b before a.
        cache.replace(["a/1", "a/2", "a-b/1", "c/1", "d/1"].map(|key| pod(key, 1)));
        let same = cache.pod(pod("a/2", 1).key()).unwrap();
        let mut relist = cache.relist();
        relist.take(pod("a/2", 1));
        assert_eq!(kept(&cache), ["a/2 1", "c/1 1", "d/1 1"]);
        relist.take(pod("c/1", 7));
        assert_eq!(kept(&cache), ["a/2 1", "c/1 7", "d/1 1"]);
        let found = cache.pod(same.key()).unwrap();
        assert!(
            found.is_same(&same),
            "what did not change stays the same in memory"
        );
        relist.finish();
        assert_eq!(kept(&cache), ["a/2 1", "c/1 7"]);
    }

    #[test]
    fn a_list_in_another_order_is_complete() {
        let cache = PodCache::default();
        cache.replace(["a/1", "b/1"].map(|key| pod(key, 1)));
        let mut relist = cache.relist();
        relist.take(pod("b/1", 1));
        relist.take(pod("a/1", 1));
        relist.finish();
        assert_eq!(kept(&cache), ["a/1 1", "b/1 1"]);
    }

    #[test]
    fn a_partial_first_list_is_hidden_and_an_interrupted_relist_removes_no_pod() {
        let cache = PodCache::default();
        let mut relist = cache.relist();
        relist.take(pod("a/1", 1));
        assert!(!cache.is_known());
        drop(relist);
        assert!(!cache.is_known());
        cache.replace(["a/1", "b/1"].map(|key| pod(key, 1)));
        let mut relist = cache.relist();
        relist.take(pod("a/1", 2));
        drop(relist);
        assert_eq!(kept(&cache), ["a/1 2", "b/1 1"]);
    }
}
