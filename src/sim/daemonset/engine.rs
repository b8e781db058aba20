//! Task of the DaemonSet controller. Watch events and responses update its caches, and changed DaemonSets are synced.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::jiff::SignedDuration;
use kube::api::{ApiResource, DynamicObject};
use kube::{Api, Client, Error};
use serde_json::json;
use tokio::time::Instant;

use super::history::{self, History};
use super::manage::{ManagePlan, ManagedNode, ManagedView};
use super::options::DaemonSetsOptions;
use super::pods::by_node;
use super::set::Set;
use super::write::{DaemonSetWrite, DaemonSetWriter, NativeWriteAnswer};
use super::{status, template};
use crate::backoff;
use crate::clock::Clock;
use crate::core::eligibility::{Effect, Taint};
use crate::core::names::REVISION_HASH_LABEL;
use crate::k8s::{Node, Pod};
use crate::sim::events::EventSink;
use crate::sim::queue::Queue;
use crate::sim::watched::{Cache, WatchedChange, WatchedKey, backlog, events, key};

/// Maximum number of pods that one sync creates or deletes, as in the native controller.
const BURST: usize = 250;
/// First back-off after a failed write. The back-off doubles up to `RETRY_MAX`.
const RETRY: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(15);
/// First back-off before a failed pod on the same node is deleted again. The back-off doubles up to `FAILED_POD_MAX`, as in the
/// native controller.
const FAILED_POD: Duration = Duration::from_secs(1);
const FAILED_POD_MAX: Duration = Duration::from_secs(15 * 60);

type Done = (WatchedKey, Vec<NativeWriteAnswer>, Result<(), Error>);

pub(super) struct DaemonSetsController {
    client: Client,
    clock: Clock,
    options: DaemonSetsOptions,
    recorder: EventSink,
    objects: Cache<DynamicObject>,
    sets: BTreeMap<WatchedKey, Set>,
    pods: Cache<Pod>,
    node_objects: Cache<Node>,
    nodes: BTreeMap<String, ManagedNode>,
    revisions: Cache<DynamicObject>,
    /// Keys of pods by the UID of their controlling owner. Pods without a controlling owner have the UID "".
    owned: BTreeMap<String, BTreeSet<WatchedKey>>,
    progress: BTreeMap<WatchedKey, Progress>,
    /// Time and back-off of the last deletion of a failed pod, by UID and generation of the DaemonSet and by node.
    failed: BTreeMap<(String, i64, String), (Instant, Duration)>,
    due: Queue<WatchedKey>,
    under_way: FuturesUnordered<BoxFuture<'static, Done>>,
}

/// Progress of the syncs of one DaemonSet.
#[derive(Default)]
struct Progress {
    queued: bool,
    /// True while writes for the DaemonSet are in flight.
    busy: bool,
    /// True if the DaemonSet changed during the writes, so that another sync is needed.
    again: bool,
    failures: u32,
    /// Time until which no pods are created or deleted, because a write failed.
    held: Option<Instant>,
}

impl DaemonSetsController {
    pub(super) fn new(client: Client, clock: Clock, options: DaemonSetsOptions) -> Self {
        Self {
            recorder: EventSink::new(client.clone(), clock.clone(), "daemonset-controller"),
            client,
            clock,
            options,
            objects: Cache::default(),
            sets: BTreeMap::new(),
            pods: Cache::default(),
            node_objects: Cache::default(),
            nodes: BTreeMap::new(),
            revisions: Cache::default(),
            owned: BTreeMap::new(),
            progress: BTreeMap::new(),
            failed: BTreeMap::new(),
            due: Queue::default(),
            under_way: FuturesUnordered::new(),
        }
    }

    pub(super) async fn run(mut self) {
        let client = || self.client.clone();
        let sets = ApiResource::erase::<DaemonSet>(&());
        let revisions = ApiResource::erase::<ControllerRevision>(&());
        let mut sets = events(Api::<DynamicObject>::all_with(client(), &sets), "");
        let mut revisions = events(Api::<DynamicObject>::all_with(client(), &revisions), "");
        let mut pods = events(Api::<Pod>::all(client()), "");
        if let Some(pace) = self.options.backlog {
            pods = backlog(pods, pace);
        }
        let mut nodes = events(Api::<Node>::all(client()), "");
        loop {
            tokio::select! {
                biased;
                Some((key, answers, result)) = self.under_way.next() => {
                    self.done(key, answers, result);
                }
                Some(event) = sets.next() => {
                    let changes = self.objects.event(event);
                    changes.iter().for_each(|change| self.set_changed(change));
                    self.look_at_all_once_synced();
                }
                Some(event) = revisions.next() => {
                    let changes = self.revisions.event(event);
                    changes.iter().for_each(|change| self.revision_changed(change));
                    self.look_at_all_once_synced();
                }
                Some(event) = pods.next() => {
                    let changes = self.pods.event(event);
                    changes.iter().for_each(|change| self.pod_changed(change));
                    self.look_at_all_once_synced();
                }
                Some(event) = nodes.next() => {
                    let changes = self.node_objects.event(event);
                    changes.iter().for_each(|change| self.node_changed(&change.key));
                    self.look_at_all_once_synced();
                }
                () = self.due.wait() => {
                    while let Some(key) = self.due.take() {
                        self.sync(&key);
                    }
                }
            }
        }
    }

    fn is_synced(&self) -> bool {
        self.objects.is_synced()
            && self.revisions.is_synced()
            && self.pods.is_synced()
            && self.node_objects.is_synced()
    }

    /// Syncs all DaemonSets once the first lists are complete. Before that, no DaemonSet is synced.
    fn look_at_all_once_synced(&mut self) {
        if self.is_synced() && self.progress.is_empty() {
            self.look_at_all();
        }
    }

    fn look_at_all(&mut self) {
        for key in self.sets.keys().cloned().collect::<Vec<_>>() {
            self.look_at(&key);
        }
    }

    /// Plans a sync of a DaemonSet after a short delay, so that simultaneous changes cause a single sync.
    fn look_at(&mut self, key: &WatchedKey) {
        self.look_at_after(key, self.options.gather);
    }

    fn look_at_after(&mut self, key: &WatchedKey, delay: Duration) {
        if !self.is_synced() {
            return; // all DaemonSets are synced once the first lists are complete
        }
        let progress = self.progress.entry(key.clone()).or_default();
        let soon = delay <= self.options.gather;
        if !(soon && progress.queued) {
            progress.queued |= soon;
            self.due.add(delay, key.clone());
        }
    }

    fn set_changed(&mut self, change: &WatchedChange<DynamicObject>) {
        let key = &change.key;
        match self.objects.get(key).map(Set::read) {
            Some(set) => {
                self.sets.insert(key.clone(), set);
                self.look_at(key);
            }
            None => {
                self.sets.remove(key);
                self.progress.remove(key);
                let uid = change
                    .before
                    .as_ref()
                    .and_then(|set| set.metadata.uid.as_deref());
                self.failed
                    .retain(|(set, _, _), _| Some(set.as_str()) != uid);
            }
        }
    }

    fn revision_changed(&mut self, change: &WatchedChange<DynamicObject>) {
        let now = self.revisions.get(&change.key);
        let owners = [change.before.as_ref(), now];
        let owners = owners.into_iter().flatten();
        let owners = owners.flat_map(|r| r.metadata.owner_references.iter().flatten());
        let keys: BTreeSet<WatchedKey> = owners
            .map(|owner| WatchedKey::new(&change.key.namespace, &owner.name))
            .collect();
        let keys = keys.into_iter().filter(|key| self.sets.contains_key(key));
        for key in keys.collect::<Vec<_>>() {
            self.look_at(&key);
        }
    }

    fn pod_changed(&mut self, change: &WatchedChange<Pod>) {
        let owner = |pod: &Pod| {
            pod.controller()
                .map_or_else(String::new, |owner| owner.uid.clone())
        };
        let now = self.pods.get(&change.key);
        let before = change.before.as_ref().map(owner);
        let after = now.map(owner);
        let labels = now
            .or(change.before.as_ref())
            .and_then(|pod| pod.metadata.labels.clone());
        if before != after {
            if let Some(pods) = before.as_ref().and_then(|owner| self.owned.get_mut(owner)) {
                pods.remove(&change.key);
            }
            if let Some(owner) = &after {
                let pods = self.owned.entry(owner.clone()).or_default();
                pods.insert(change.key.clone());
            }
            self.owned.retain(|_, pods| !pods.is_empty());
        }
        let labels = labels.unwrap_or_default();
        let concerned = |set: &Set| {
            let uid = Some(&set.uid);
            let orphan = after.as_deref() == Some("");
            let label = |key: &str| labels.get(key).map(String::as_str);
            before.as_ref() == uid
                || after.as_ref() == uid
                || orphan && set.selector.as_ref().is_some_and(|s| s.matches(label))
        };
        let namespace = &change.key.namespace;
        let sets = self.sets.range(WatchedKey::new(namespace, "")..);
        let sets = sets.take_while(|(key, _)| key.namespace == *namespace);
        let keys = sets
            .filter(|(_, set)| concerned(set))
            .map(|(key, _)| key.clone());
        for key in keys.collect::<Vec<_>>() {
            self.look_at(&key);
        }
    }

    fn node_changed(&mut self, key: &WatchedKey) {
        let record = self.node_objects.get(key).map(record);
        let changed = self.nodes.get(&key.name) != record.as_ref();
        match record {
            Some(record) => self.nodes.insert(key.name.clone(), record),
            None => self.nodes.remove(&key.name),
        };
        if changed {
            self.look_at_all();
        }
    }

    /// Determines the next step for a DaemonSet and starts it.
    fn sync(&mut self, key: &WatchedKey) {
        let Some(progress) = self.progress.get_mut(key) else {
            return;
        };
        progress.queued = false;
        if progress.busy {
            progress.again = true;
            return;
        }
        progress.held = progress.held.filter(|held| *held > Instant::now());
        let held = progress.held.is_some();
        let Some(set) = self.sets.get(key).filter(|set| !set.is_deleted) else {
            return;
        };
        let next = self.next(set, held);
        for (node, uid) in next.failed {
            let entry = self.failed.entry((uid, next.generation, node));
            let (last, wait) = entry.or_insert((Instant::now(), FAILED_POD / 2));
            *last = Instant::now();
            *wait = (*wait * 2).min(FAILED_POD_MAX);
        }
        if let Some(delay) = next.look_again {
            self.look_at_after(
                key,
                delay.max(self.options.gather + Duration::from_millis(1)),
            );
        }
        if !next.writes.is_empty() {
            self.start(key, next.writes);
        }
    }

    fn start(&mut self, key: &WatchedKey, writes: Vec<DaemonSetWrite>) {
        let Some(set) = self.sets.get(key) else {
            return;
        };
        let writer = DaemonSetWriter {
            client: self.client.clone(),
            namespace: key.namespace.clone(),
            set: key.name.clone(),
            recorder: self.recorder.about(ObjectReference {
                api_version: Some("apps/v1".to_owned()),
                kind: Some("DaemonSet".to_owned()),
                namespace: Some(key.namespace.clone()),
                name: Some(key.name.clone()),
                uid: Some(set.uid.clone()),
                ..ObjectReference::default()
            }),
        };
        let key = key.clone();
        self.progress.entry(key.clone()).or_default().busy = true;
        self.under_way.push(Box::pin(async move {
            let (answers, result) = writer.run(writes).await;
            (key, answers, result)
        }));
    }

    /// Returns the next step of a sync. The order is that of the native controller: revisions, pods, old revisions, status.
    fn next(&self, set: &Set, held: bool) -> Next {
        let mut next = Next {
            generation: set.generation,
            ..Next::default()
        };
        if set.selector.is_none() {
            return next;
        }
        let revisions = self.revisions.in_namespace(&set.namespace);
        let relabel = |from: &str, to: &str| self.relabel(set, from, to);
        let (hash, old) = match history::read(set, revisions, relabel) {
            History::Write(writes) => {
                next.writes = writes;
                return next;
            }
            History::Known { hash, old } => (hash, old),
        };
        let (mine, claims) = self.claim(set);
        if !claims.is_empty() {
            next.writes = claims;
            return next;
        }
        let by_node = by_node(mine.iter().copied());
        let view = ManagedView {
            set,
            hash: &hash,
            nodes: &self.nodes,
            pods: &by_node,
            now: self.clock.now(),
        };
        if !held {
            self.pods_to_write(&view, &mut next);
            if next.writes.is_empty() {
                let live = |hash: &str| {
                    let of = |pod: &&Pod| pod.label(REVISION_HASH_LABEL) == Some(hash);
                    mine.iter().any(of)
                };
                next.writes = history::superfluous(set, &old, live);
            }
        }
        let counted = status::count(&view);
        if next.writes.is_empty() {
            let patch = status::patch(&view, &counted, true);
            next.writes
                .extend(patch.map(|patch| DaemonSetWrite::Status { patch }));
        }
        next.look_again_in(counted.next.map(|at| {
            let wait: SignedDuration = at.duration_since(view.now);
            wait.unsigned_abs()
        }));
        next
    }

    fn pods_to_write(&self, view: &ManagedView<'_>, next: &mut Next) {
        let soonest: Cell<Option<Duration>> = Cell::new(None);
        let key = |node: &str| (view.set.uid.clone(), view.set.generation, node.to_owned());
        let may_retry = |node: &str| {
            let Some((last, wait)) = self.failed.get(&key(node)) else {
                return true;
            };
            let left = wait.saturating_sub(last.elapsed());
            if !left.is_zero() {
                soonest.set(Some(soonest.get().map_or(left, |other| other.min(left))));
            }
            left.is_zero()
        };
        let mut todo = view.manage(may_retry);
        if todo.create.is_empty() && todo.delete.is_empty() {
            todo = view.roll();
        }
        next.look_again_in(soonest.get());
        let failed = std::mem::take(&mut todo.failed).into_iter();
        next.failed = failed
            .map(|node| (node.to_owned(), view.set.uid.clone()))
            .collect();
        next.writes = to_writes(view, &todo);
    }

    /// Returns the pods of a DaemonSet, and the writes that adopt matching pods and release pods that no longer match.
    fn claim(&self, set: &Set) -> (Vec<&Pod>, Vec<DaemonSetWrite>) {
        let mut mine = Vec::new();
        let mut writes = Vec::new();
        let keys = |owner: &str| self.owned.get(owner).into_iter().flatten();
        let pods = |owner: &str| keys(owner).filter_map(|key| self.pods.get(key));
        let selected = |pod: &Pod| {
            let label = |key: &str| pod.label(key);
            set.selector.as_ref().is_some_and(|s| s.matches(label))
        };
        for pod in pods(&set.uid) {
            if selected(pod) || pod.is_deleting() {
                mine.push(pod)
            } else {
                writes.push(DaemonSetWrite::Pod {
                    name: key(pod).name,
                    patch: json!({ "metadata": { "uid": pod.metadata.uid, "ownerReferences": [
                        { "$patch": "delete", "uid": set.uid },
                    ] } }),
                })
            }
        }
        let here = |pod: &&Pod| pod.metadata.namespace.as_ref() == Some(&set.namespace);
        let orphans = pods("").filter(here).filter(|pod| !pod.is_deleting());
        for pod in orphans.filter(|pod| selected(pod)) {
            writes.push(DaemonSetWrite::Pod {
                name: key(pod).name,
                patch: json!({ "metadata": {
                    "uid": pod.metadata.uid, "ownerReferences": [set.owner()],
                } }),
            });
        }
        (mine, writes)
    }

    /// Returns the writes that change the revision label of pods from a duplicate revision (`from`) to the revision that is kept
    /// (`to`).
    fn relabel(&self, set: &Set, from: &str, to: &str) -> Vec<DaemonSetWrite> {
        let keys = self.owned.get(&set.uid).into_iter().flatten();
        let pods = keys.filter_map(|key| self.pods.get(key));
        pods.filter(|pod| pod.label(REVISION_HASH_LABEL) == Some(from))
            .map(|pod| DaemonSetWrite::Pod {
                name: key(pod).name,
                patch: json!({ "metadata": { "labels": { REVISION_HASH_LABEL: to } } }),
            })
            .collect()
    }

    /// Applies the responses of a sync's writes to the caches, then syncs the DaemonSet again.
    fn done(
        &mut self,
        key: WatchedKey,
        answers: Vec<NativeWriteAnswer>,
        result: Result<(), Error>,
    ) {
        for answer in answers {
            self.take_in(&key, answer);
        }
        if self.under_way.is_empty() {
            self.pods.quiet();
            self.revisions.quiet();
            self.objects.quiet();
        }
        let Some(progress) = self.progress.get_mut(&key) else {
            return;
        };
        progress.busy = false;
        progress.again = false;
        match result {
            Ok(()) => progress.failures = 0,
            Err(error) => {
                tracing::debug!(%error, daemonset = key.name, "Writes of the DaemonSet controller failed");
                progress.failures += 1;
                let wait = backoff::pause(RETRY, progress.failures, RETRY_MAX);
                progress.held = Some(Instant::now() + wait);
                self.look_at_after(&key, wait + Duration::from_millis(1));
            }
        }
        self.look_at(&key);
    }

    fn take_in(&mut self, key: &WatchedKey, answer: NativeWriteAnswer) {
        match answer {
            NativeWriteAnswer::Pod(pod) => {
                if let Some(change) = self.pods.answer(*pod) {
                    self.pod_changed(&change);
                }
            }
            NativeWriteAnswer::PodGone(name) => {
                if let Some(change) = self.pods.take(&WatchedKey::new(&key.namespace, &name)) {
                    self.pod_changed(&change);
                }
            }
            NativeWriteAnswer::Revision(revision) => {
                self.revisions.answer(*revision);
            }
            NativeWriteAnswer::RevisionGone(name) => {
                self.revisions.take(&WatchedKey::new(&key.namespace, &name));
            }
            NativeWriteAnswer::Set(set) => {
                if let Some(change) = self.objects.answer(*set) {
                    self.set_changed(&change);
                }
            }
            NativeWriteAnswer::Stale => {}
        }
    }
}

#[derive(Default)]
struct Next {
    generation: i64,
    writes: Vec<DaemonSetWrite>,
    /// Nodes whose failed pod is deleted in this step, with the UID of the pod's DaemonSet.
    failed: Vec<(String, String)>,
    look_again: Option<Duration>,
}

impl Next {
    fn look_again_in(&mut self, delay: Option<Duration>) {
        self.look_again = match (self.look_again, delay) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
}

fn to_writes(view: &ManagedView<'_>, todo: &ManagePlan<'_>) -> Vec<DaemonSetWrite> {
    let create = todo
        .create
        .iter()
        .take(BURST)
        .map(|node| DaemonSetWrite::NewPod {
            object: template::pod(view.set, view.hash, node),
        });
    let delete = todo
        .delete
        .iter()
        .take(BURST)
        .map(|pod| DaemonSetWrite::DropPod {
            name: key(*pod).name,
            uid: pod.uid().to_owned(),
        });
    create.chain(delete).collect()
}

fn record(node: &Node) -> ManagedNode {
    let labels = node.metadata.labels.iter().flatten();
    let taints = node.spec.taints.iter();
    ManagedNode {
        labels: labels
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect(),
        taints: taints
            .filter_map(|taint| {
                Some(Taint {
                    key: taint.key.as_str().into(),
                    value: taint.value.as_str().into(),
                    effect: Effect::from_word(&taint.effect)?,
                })
            })
            .collect(),
    }
}
