//! Records changes of pods, nodes, DaemonSets and their revisions.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, Client, Resource, ResourceExt};
use yurt_ds::core::names::{ANNOTATION_PREFIX, REVISION_HASH_LABEL};

use super::history::{self, History, is_ready, node_of};

/// Recorded change of an object.
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
    pub(crate) fn is_of_pod(&self) -> bool {
        matches!(self, Self::Pod(_) | Self::PodGone { .. })
    }
}

/// State of a DaemonSet's pod.
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

/// Condition of a DaemonSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) kind: String,
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// Recorded change with its resourceVersion and the time at which it was received.
pub(crate) type Entry = history::Entry<Fact>;

/// Watches that record changes until dropped.
pub(crate) struct Monitor(History<Fact>);

impl Monitor {
    /// Watches the objects of a namespace and all nodes.
    pub(crate) fn start(client: &Client, namespace: &str) -> Self {
        let mut history = History::new();
        let pods = Api::<Pod>::namespaced(client.clone(), namespace);
        let sets = Api::<DaemonSet>::namespaced(client.clone(), namespace);
        let revisions = Api::<ControllerRevision>::namespaced(client.clone(), namespace);
        history.watch(Api::<Node>::all(client.clone()), |node, _| {
            Some(of_node(node))
        });
        history.watch(revisions, |one, gone| (!gone).then(|| of_revision(one))?);
        history.watch(sets, |set, gone| (!gone).then(|| of_set(set)));
        history.watch(pods, of_pod);
        Self(history)
    }

    /// Returns all changes so far, in the order of their resourceVersion.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.0.entries()
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

/// Returns the change of a pod. The label `app` names the pod's DaemonSet. The owner reference doesn't, because a surge pod (a new
/// pod next to an old one) gets it only later.
fn of_pod(pod: &Pod, gone: bool) -> Option<Fact> {
    let uid = pod.uid()?;
    if gone {
        return Some(Fact::PodGone { uid });
    }
    Some(Fact::Pod(PodFact {
        set: pod.labels().get("app")?.clone(),
        uid,
        name: pod.name_any(),
        node: node_of(pod)?,
        hash: pod.labels().get(REVISION_HASH_LABEL)?.clone(),
        ready: is_ready(pod),
        terminating: pod.metadata.deletion_timestamp.is_some(),
    }))
}
