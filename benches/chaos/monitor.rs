//! Takes in what happened to pods, nodes, DaemonSets and their revisions, in the order of the API.
//!
//! The API server numbers the changes of all objects in one sequence, so what four watches told can be put into the order in
//! which it happened. Each fact also has the time at which it was heard here: no controller can have known it before.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;
use yurt_ds::core::names::{ANNOTATION_PREFIX, REVISION_HASH_LABEL};

use super::plane::now;

/// What changed.
#[derive(Clone, Debug)]
pub(crate) enum Fact {
    Pod(PodFact),
    PodGone {
        uid: String,
    },
    Node {
        name: String,
        ready: bool,
    },
    Set {
        name: String,
        settings: BTreeMap<String, String>,
        conditions: Vec<Said>,
    },
    Revision {
        set: String,
        hash: String,
        number: i64,
    },
}

impl Fact {
    /// Whether it says that a pod changed.
    pub(crate) fn is_of_pod(&self) -> bool {
        matches!(self, Self::Pod(_) | Self::PodGone { .. })
    }
}

/// A pod of a DaemonSet.
#[derive(Clone, Debug)]
pub(crate) struct PodFact {
    pub(crate) set: String,
    pub(crate) uid: String,
    pub(crate) name: String,
    pub(crate) node: String,
    pub(crate) hash: String,
    pub(crate) ready: bool,
    pub(crate) terminating: bool,
}

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) kind: String,
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// A fact with its place in the sequence, and when it was heard.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) version: u64,
    pub(crate) at: Duration,
    pub(crate) fact: Fact,
}

/// Watches until dropped.
pub(crate) struct Monitor {
    heard: Arc<Mutex<Vec<Entry>>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Monitor {
    /// Watches the objects of a namespace, and all nodes.
    pub(crate) fn start(client: &Client, namespace: &str) -> Self {
        let mut monitor = Self {
            heard: Arc::default(),
            tasks: Vec::new(),
        };
        let began = now();
        let pods = Api::<Pod>::namespaced(client.clone(), namespace);
        let sets = Api::<DaemonSet>::namespaced(client.clone(), namespace);
        let revisions = Api::<ControllerRevision>::namespaced(client.clone(), namespace);
        monitor.watch(Api::<Node>::all(client.clone()), began, |node, _| {
            Some(of_node(node))
        });
        monitor.watch(revisions, began, |one, gone| {
            (!gone).then(|| of_revision(one))?
        });
        monitor.watch(sets, began, |set, gone| (!gone).then(|| of_set(set)));
        monitor.watch(pods, began, of_pod);
        monitor
    }

    /// Everything so far, in order.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let mut entries = lock(&self.heard).clone();
        entries.sort_by_key(|entry| entry.version);
        entries
    }

    fn watch<K>(
        &mut self,
        api: Api<K>,
        began: Instant,
        fact: impl Fn(&K, bool) -> Option<Fact> + Send + 'static,
    ) where
        K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
    {
        let heard = self.heard.clone();
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
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

fn owner(object: &impl Resource) -> Option<String> {
    let owners = object.owner_references();
    let owner = owners.iter().find(|owner| owner.kind == "DaemonSet");
    owner.map(|owner| owner.name.clone())
}

fn of_node(node: &Node) -> Fact {
    let status = node.status.clone().unwrap_or_default();
    let mut conditions = status.conditions.into_iter().flatten();
    Fact::Node {
        name: node.name_any(),
        ready: conditions.any(|one| one.type_ == "Ready" && one.status == "True"),
    }
}

fn of_revision(revision: &ControllerRevision) -> Option<Fact> {
    Some(Fact::Revision {
        set: owner(revision)?,
        hash: revision.labels().get(REVISION_HASH_LABEL)?.clone(),
        number: revision.revision,
    })
}

fn of_set(set: &DaemonSet) -> Fact {
    let ours = set.annotations().iter();
    let settings = ours.filter_map(|(key, value)| {
        let name = key.strip_prefix(ANNOTATION_PREFIX)?;
        Some((name.to_owned(), value.clone()))
    });
    let status = set.status.clone().unwrap_or_default();
    let conditions = status.conditions.into_iter().flatten().map(|one| Said {
        kind: one.type_,
        status: one.status,
        reason: one.reason.unwrap_or_default(),
        message: one.message.unwrap_or_default(),
    });
    Fact::Set {
        name: set.name_any(),
        settings: settings.collect(),
        conditions: conditions.collect(),
    }
}

/// A pod belongs to the DaemonSet that its label names: one that we made beside another is handed over later.
fn of_pod(pod: &Pod, gone: bool) -> Option<Fact> {
    let uid = pod.uid()?;
    if gone {
        return Some(Fact::PodGone { uid });
    }
    let status = pod.status.clone().unwrap_or_default();
    let mut conditions = status.conditions.into_iter().flatten();
    Some(Fact::Pod(PodFact {
        set: pod.labels().get("app")?.clone(),
        uid,
        name: pod.name_any(),
        node: node_of(pod)?,
        hash: pod.labels().get(REVISION_HASH_LABEL)?.clone(),
        ready: conditions.any(|one| one.type_ == "Ready" && one.status == "True"),
        terminating: pod.metadata.deletion_timestamp.is_some(),
    }))
}

/// The node of a pod, also before the scheduler has bound it.
fn node_of(pod: &Pod) -> Option<String> {
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
