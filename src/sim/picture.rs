//! States of nodes for the live view of `yurt-ds sim`. `decide` of the core computes them, as in the controller, but on data from
//! separate watches.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt as _;
use futures::stream::BoxStream;
use k8s_openapi::NamespaceResourceScope;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use crate::clock::Clock;
use crate::core::names::ROLLOUT_COMPLETE;
use crate::core::{Offline, ParsedSettings, Plan, SetKind, Verdict, decide};
use crate::index::{Index, SetKey};
use crate::k8s::{AdvancedDaemonSet, ControllerRevision, DaemonSet, Node, Pod};
use crate::task::Task;

type PictureEvents = BoxStream<'static, Result<PictureEvent, watcher::Error>>;

/// Observer of one DaemonSet. It stops when dropped.
pub(crate) struct RolloutObserver {
    index: Arc<Mutex<Index>>,
    key: SetKey,
    clock: Clock,
    _task: Task,
}

/// Snapshot of the DaemonSet's rollout.
#[derive(Clone, Debug)]
pub(crate) struct RolloutSnapshot {
    pub(crate) nodes: Vec<(String, Verdict)>,
    /// Plan from which `nodes` was taken. A verdict is the state of one node in the rollout.
    pub(crate) plan: Plan,
    /// Status and message of the condition that reports a complete rollout; `None` if the controller has not set it.
    pub(crate) complete: Option<(bool, String)>,
}

enum PictureEvent {
    Node(Event<Node>),
    Set(DaemonSet),
    Revision(Event<ControllerRevision>),
    Pod(Event<Pod>),
}

impl RolloutObserver {
    /// Starts to observe the DaemonSet. `labels` selects its pods.
    pub(crate) fn start(client: Client, clock: Clock, key: SetKey, labels: &str) -> Self {
        let index = Arc::new(Mutex::new(Index::default()));
        let follow = follow(
            client,
            clock.clone(),
            key.clone(),
            labels.to_owned(),
            index.clone(),
        );
        Self {
            index,
            key,
            clock,
            _task: Task::spawn(follow),
        }
    }

    /// Returns the current snapshot; `None` if objects are missing or yurt-ds does not manage the DaemonSet.
    pub(crate) fn look(&self) -> Option<RolloutSnapshot> {
        let now = self.clock.now();
        let mut index = lock(&self.index);
        let ParsedSettings::Strategy { strategy, .. } = index.reading(&self.key)?.into_owned()
        else {
            return None;
        };
        let fleet = index.fleet(&self.key, now)?;
        let plan = decide(&strategy, &fleet, now);
        let conditions = &index.set(&self.key)?.conditions;
        let complete = conditions.iter().find(|one| one.kind == ROLLOUT_COMPLETE);
        let names = fleet.nodes.iter().map(|node| node.name.to_string());
        Some(RolloutSnapshot {
            nodes: names.zip(plan.verdicts.iter().copied()).collect(),
            complete: complete.map(|one| (one.status == "True", one.message.clone())),
            plan,
        })
    }
}

impl RolloutSnapshot {
    /// Returns true if a node came back a moment ago, and its outdated pod waits until the node has been Ready for `ready-settle`.
    pub(crate) fn is_settling(&self) -> bool {
        let settling =
            |verdict: &Verdict| matches!(verdict, Verdict::Offline(Offline::Settling { .. }));
        self.nodes.iter().any(|(_, verdict)| settling(verdict))
    }
}

async fn follow(
    client: Client,
    clock: Clock,
    key: SetKey,
    labels: String,
    index: Arc<Mutex<Index>>,
) {
    let everything = watcher::Config::default;
    let all = |client: &Client| client.clone();
    let nodes = watch(Api::all(all(&client)), everything()).default_backoff();
    let sets = match key.kind {
        SetKind::Native => sets::<DaemonSet>(all(&client), &key, &index).await,
        SetKind::Advanced => sets::<AdvancedDaemonSet>(all(&client), &key, &index).await,
    };
    let revisions = Api::namespaced(all(&client), &key.namespace);
    let revisions = watch(revisions, everything()).default_backoff();
    let pods = Api::namespaced(client, &key.namespace);
    let pods = watch(pods, everything().labels(&labels)).default_backoff();
    let streams = [
        nodes.map(|event| event.map(PictureEvent::Node)).boxed(),
        sets,
        revisions
            .map(|event| event.map(PictureEvent::Revision))
            .boxed(),
        pods.map(|event| event.map(PictureEvent::Pod)).boxed(),
    ];
    let mut events = futures::stream::select_all(streams);
    while let Some(event) = events.next().await {
        if let Ok(event) = event {
            take(&mut lock(&index), &key, &clock, event);
        }
    }
}

/// Returns the events of all DaemonSets of a kind in the namespace.
///
/// Reads the observed DaemonSet before any event, because a pod can be assigned only to a DaemonSet that is already known.
async fn sets<K>(client: Client, key: &SetKey, index: &Mutex<Index>) -> PictureEvents
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    K: Into<DaemonSet> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let sets: Api<K> = Api::namespaced(client, &key.namespace);
    if let Ok(set) = sets.get(&key.name).await {
        lock(index).apply_set(&set.into());
    }
    let events = watch(sets, watcher::Config::default()).default_backoff();
    let pictures = events.filter_map(async |event| match event {
        Ok(Event::Apply(set) | Event::InitApply(set)) => Some(Ok(PictureEvent::Set(set.into()))),
        Ok(_) => None,
        Err(error) => Some(Err(error)),
    });
    pictures.boxed()
}

fn take(index: &mut Index, key: &SetKey, clock: &Clock, event: PictureEvent) {
    let now = clock.now();
    match event {
        PictureEvent::Node(Event::Apply(node) | Event::InitApply(node)) => {
            index.apply_node(&node, now);
        }
        PictureEvent::Node(Event::Delete(node)) => {
            index.delete_node(node.metadata.name.as_deref().unwrap_or_default());
        }
        PictureEvent::Set(set) if SetKey::of_set(&set).as_ref() == Some(key) => {
            index.apply_set(&set);
        }
        PictureEvent::Revision(Event::Apply(revision) | Event::InitApply(revision)) => {
            index.apply_revision(&revision);
        }
        PictureEvent::Revision(Event::Delete(revision)) => {
            index.delete_revision(&revision.metadata);
        }
        PictureEvent::Pod(Event::Apply(pod) | Event::InitApply(pod)) => {
            index.apply_pod(key, &pod, now);
        }
        PictureEvent::Pod(Event::Delete(pod)) => {
            if let Some(set) = index.set_mut(key) {
                set.delete_pod(pod.uid());
            }
        }
        _ => {}
    }
}

fn lock(index: &Mutex<Index>) -> MutexGuard<'_, Index> {
    index.lock().unwrap_or_else(PoisonError::into_inner)
}
