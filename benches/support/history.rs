//! Changes from several watches, in the order in which the API server made them.
//!
//! The API server numbers the changes of all objects in one sequence (resourceVersion). The numbers show the real order of changes
//! from several watches. Each change also has the time at which this process received it. A controller can't have known the change
//! earlier.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;

use super::plane::now;

/// Recorded change, with its number in the API server's sequence and the time at which it was received.
#[derive(Clone, Debug)]
pub(crate) struct Entry<F> {
    pub(crate) version: u64,
    pub(crate) at: Duration,
    pub(crate) fact: F,
}

/// Watches that record changes until dropped.
pub(crate) struct History<F> {
    began: Instant,
    heard: Arc<Mutex<Vec<Entry<F>>>>,
    tasks: Vec<JoinHandle<()>>,
}

impl<F: Clone + Send + 'static> History<F> {
    /// Returns a history without watches. Recorded times are relative to this moment.
    pub(crate) fn new() -> Self {
        Self {
            began: now(),
            heard: Arc::default(),
            tasks: Vec::new(),
        }
    }

    /// Adds a watch of these objects. `fact` converts an object to a change. Its second argument is true if the object was deleted.
    pub(crate) fn watch<K>(
        &mut self,
        api: Api<K>,
        fact: impl Fn(&K, bool) -> Option<F> + Send + 'static,
    ) where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let (heard, began) = (self.heard.clone(), self.began);
        self.tasks.push(tokio::spawn(async move {
            let events = watcher(api, watcher::Config::default()).default_backoff();
            let mut events = std::pin::pin!(events);
            while let Some(event) = events.next().await {
                let (object, gone) = match event {
                    Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => {
                        (object, false)
                    }
                    Ok(watcher::Event::Delete(object)) => (object, true),
                    Ok(watcher::Event::Init | watcher::Event::InitDone) | Err(_) => continue,
                };
                let version = object.resource_version().unwrap_or_default();
                let Ok(version) = version.parse() else {
                    continue;
                };
                if let Some(fact) = fact(&object, gone) {
                    let at = began.elapsed();
                    lock(&heard).push(Entry { version, at, fact });
                }
            }
        }));
    }

    /// Returns all changes so far, in the order of their resourceVersion.
    pub(crate) fn entries(&self) -> Vec<Entry<F>> {
        let mut entries = lock(&self.heard).clone();
        entries.sort_by_key(|entry| entry.version);
        entries
    }
}

impl<F> Drop for History<F> {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Returns the node of a pod. Before the scheduler binds the pod, this is the node in its node affinity.
pub(crate) fn node_of(pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    if let Some(node) = &spec.node_name {
        return Some(node.clone());
    }
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let terms = affinity
        .required_during_scheduling_ignored_during_execution
        .as_ref()?;
    let fields = terms.node_selector_terms.first()?.match_fields.as_ref()?;
    fields.first()?.values.as_ref()?.first().cloned()
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter();
    let mut conditions = conditions.flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|one| one.type_ == "Ready" && one.status == "True")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
