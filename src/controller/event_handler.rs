//! Applies watch events to the index. Returns which DaemonSets to reconcile.

mod unreadable;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::watcher::Event;

use self::unreadable::{UnreadableObjects, WatchId};
use super::caches::{AdvancedAbsence, CacheWatch, Input, Watches};
use super::kinds::{Kinds, resource_of};
use super::watch_groups::Group;
use crate::core::PodUid;
use crate::index::{Index, RequeueDelay, SetChange, SetKey, SetKind};
use crate::k8s::{self, Item, Unreadable, UnreadableReason, meta_of};

/// Resources whose first lists must be complete before any decision, in addition to those of the DaemonSets.
pub(super) const CLUSTER_WIDE: [&str; 2] = ["nodes", "controllerrevisions"];

/// Number of unnecessary groups at which all DaemonSets are regrouped into as few groups as possible. The DaemonSets of a [`Group`]
/// share their watches.
const SPARE_GROUPS: usize = 8;

/// Watches that feed the index, with the progress of their lists.
pub(super) struct EventHandler {
    caches: Watches,
    groups: Vec<GroupWatch>,
    started: u64,
    /// Watch of nodes. Node events list the images on a node, and only images of DaemonSets are kept. So this watch starts after
    /// the lists of DaemonSets and revisions.
    nodes_watch: Option<CacheWatch>,
    nodes: Listing<BTreeSet<String>>,
    sets: Listing<BTreeSet<SetKey>>,
    advanced: Listing<BTreeSet<SetKey>>,
    /// True if the revisions of all DaemonSets in the first list have been listed.
    has_revisions: bool,
    unreadable: UnreadableObjects,
}

/// Watch whose data is too old to act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StaleWatch {
    pub(super) resource: &'static str,
    /// Time since the watch last received data.
    pub(super) age: Duration,
}

/// Watches of the pods and the ControllerRevisions of one group of DaemonSets.
#[derive(Debug)]
struct GroupWatch {
    group: Group,
    pods: Watch<BTreeMap<SetKey, BTreeSet<PodUid>>>,
    revisions: Watch<BTreeSet<(String, String)>>,
}

/// One watch of a group, with the progress of its list.
#[derive(Debug)]
struct Watch<T> {
    number: u64,
    listing: Listing<T>,
    /// Time at which the current list began.
    began: Option<Timestamp>,
    watch: CacheWatch,
}

impl<T: Default> Watch<T> {
    fn new(number: u64, watch: CacheWatch) -> Self {
        Self {
            number,
            listing: Listing::default(),
            began: None,
            watch,
        }
    }

    /// Records that a list begins.
    fn begin(&mut self, now: Timestamp) {
        self.listing.begin();
        self.began = Some(now);
    }

    fn is_complete(&self) -> bool {
        self.listing.complete
    }

    fn is_settled(&self) -> bool {
        self.listing.is_settled()
    }
}

/// Progress of a list. `seen` collects the objects that the list has contained so far.
#[derive(Debug, Default)]
struct Listing<T> {
    seen: T,
    /// True if at least one list was completed.
    complete: bool,
    /// True if a list is in progress.
    arrives: bool,
}

impl<T: Default> Listing<T> {
    fn begin(&mut self) {
        self.seen = T::default();
        self.arrives = true;
    }

    fn is_settled(&self) -> bool {
        self.complete && !self.arrives
    }

    /// Completes the list. Returns the listed objects.
    fn finish(&mut self) -> T {
        self.complete = true;
        self.arrives = false;
        std::mem::take(&mut self.seen)
    }
}

/// Consequences of a watch event.
#[derive(Debug, Default)]
pub(super) struct Enqueue {
    /// DaemonSets to reconcile, each with a delay.
    pub(super) requeued: Vec<(SetKey, RequeueDelay)>,
    /// DaemonSets that are deleted or no longer managed.
    pub(super) gone: Vec<SetKey>,
    /// True if the set of unmanaged DaemonSets to report may have changed.
    pub(super) unmanaged: bool,
    /// Reason why Advanced DaemonSets are not rolled out from now on.
    pub(super) absence: Option<AdvancedAbsence>,
    /// Resources whose list was just completed.
    pub(super) complete: Vec<&'static str>,
    /// Object that has just become unreadable, with its resource.
    pub(super) unreadable: Option<(&'static str, Box<Unreadable>)>,
    /// True if the number of unreadable objects may have changed.
    pub(super) recount: bool,
}

impl Enqueue {
    /// Combines two results of one event: unreadable objects are taken from `self`, everything else from `rest`.
    fn and(self, rest: Self) -> Self {
        Self {
            unreadable: self.unreadable,
            recount: self.recount,
            ..rest
        }
    }

    fn sets(delay: RequeueDelay, keys: impl IntoIterator<Item = SetKey>) -> Self {
        let requeued = keys.into_iter().map(|key| (key, delay)).collect();
        Self {
            requeued,
            ..Self::default()
        }
    }
}

impl EventHandler {
    /// Creates an event handler that has received no events.
    pub(super) fn new(caches: Watches, kinds: &Kinds) -> Self {
        let unless = |is_watched: bool| Listing {
            complete: !is_watched,
            ..Listing::default()
        };
        Self {
            caches,
            groups: Vec::new(),
            started: 0,
            nodes_watch: None,
            nodes: Listing::default(),
            sets: unless(kinds.native),
            advanced: unless(kinds.advanced),
            has_revisions: false,
            unreadable: UnreadableObjects::default(),
        }
    }

    /// Returns true if the first lists of nodes, DaemonSets and revisions are complete.
    pub(super) fn is_complete(&self) -> bool {
        self.nodes.complete && self.knows_sets() && self.has_revisions
    }

    /// Returns true if all DaemonSets have been listed.
    fn knows_sets(&self) -> bool {
        self.sets.complete && self.advanced.complete
    }

    /// Returns the progress of the list of DaemonSets of this kind.
    fn listing(&mut self, kind: SetKind) -> &mut Listing<BTreeSet<SetKey>> {
        match kind {
            SetKind::Native => &mut self.sets,
            SetKind::Advanced => &mut self.advanced,
        }
    }

    /// Returns true if no list is in progress.
    pub(super) fn is_settled(&self) -> bool {
        let is_settled =
            |known: &GroupWatch| known.pods.is_settled() && known.revisions.is_settled();
        self.nodes.is_settled()
            && self.sets.is_settled()
            && self.advanced.is_settled()
            && self.groups.iter().all(is_settled)
    }

    /// Lists the pods of all DaemonSets again. Needed when this replica becomes the leader: the previous leader may have just
    /// deleted pods, which the cache still shows.
    pub(super) fn look_again(&mut self, index: &mut Index) {
        if !self.knows_sets() {
            return;
        }
        let before = self.started;
        self.regroup(index);
        for position in 0..self.groups.len() {
            let known = &self.groups[position];
            if known.pods.number <= before {
                let group = known.group.clone();
                self.groups[position].pods = self.watch_pods(&group);
                self.groups[position].sync(index);
            }
        }
    }

    /// Lists the pods of one DaemonSet again. Until the list is complete, the DaemonSet is not reconciled.
    pub(super) fn look_again_at(&mut self, index: &mut Index, key: &SetKey) {
        self.leave(key);
        self.join(index, key);
    }

    /// Applies an event of a watch.
    pub(super) fn take(&mut self, index: &mut Index, input: Input, now: Timestamp) -> Enqueue {
        let mut fed = self.take_input(index, input, now);
        if !self.unreadable.is_empty() {
            let groups = &self.groups;
            let goes_on = |(_, number): WatchId| {
                let mut numbers = groups
                    .iter()
                    .flat_map(|known| [known.pods.number, known.revisions.number]);
                number == 0 || numbers.any(|known| known == number)
            };
            fed.recount |= self.unreadable.retain(goes_on);
        }
        let mut groups = self.groups.iter();
        if self.sets.complete
            && self.advanced.complete
            && !self.has_revisions
            && groups.all(|known| known.revisions.is_complete())
        {
            self.has_revisions = true;
            fed.complete.push("controllerrevisions");
            self.nodes_watch = Some(self.caches.nodes());
        }
        fed
    }

    /// Returns a stale watch that a decision about this DaemonSet depends on, if there is one.
    pub(super) fn stale(&self, key: &SetKey) -> Option<StaleWatch> {
        let of_cluster = ["nodes", resource_of(key.kind)].into_iter();
        let of_cluster = of_cluster.map(|resource| (resource, self.caches.stale(resource)));
        let mut groups = self.groups.iter();
        let group = groups.find(|known| known.group.members.contains_key(key));
        let of_group = group.into_iter().flat_map(|known| {
            let (pods, revisions) = (known.pods.watch.stale(), known.revisions.watch.stale());
            [("pods", pods), ("controllerrevisions", revisions)]
        });
        let mut all = of_cluster.chain(of_group);
        all.find_map(|(resource, age)| {
            Some(StaleWatch {
                resource,
                age: age?,
            })
        })
    }

    /// Resources with a stale watch, each with the age of the data.
    pub(super) fn stale_resources(&self) -> impl Iterator<Item = (&'static str, Duration)> {
        self.caches.stale_resources()
    }

    /// Number of currently unreadable objects by resource and reason.
    pub(super) fn count_unreadable(&self) -> BTreeMap<(&'static str, UnreadableReason), usize> {
        self.unreadable.counts()
    }

    /// Tracks the unreadable objects of a watch. `salvaged` returns the reason why an object could be read only in part.
    fn follow_unreadable<K: kube::Resource>(
        &mut self,
        watch: WatchId,
        event: &Event<Item<K>>,
        salvaged: impl Fn(&K) -> Option<Unreadable>,
    ) -> Enqueue {
        let mut outcome = Enqueue::default();
        match event {
            Event::Init => self.unreadable.begin(watch),
            Event::InitDone => outcome.recount = self.unreadable.finish(watch),
            Event::InitApply(item) | Event::Apply(item) => {
                let unreadable = match item {
                    Ok(object) => salvaged(object),
                    Err(unreadable) => Some((**unreadable).clone()),
                };
                match unreadable {
                    Some(unreadable) => {
                        outcome.recount = true;
                        if self.unreadable.note(watch, &unreadable) {
                            outcome.unreadable = Some((watch.0, Box::new(unreadable)));
                        }
                    }
                    None if self.unreadable.is_empty() => {}
                    None => outcome.recount = self.forget_unreadable(watch, item),
                }
            }
            Event::Delete(_) if self.unreadable.is_empty() => {}
            Event::Delete(item) => outcome.recount = self.forget_unreadable(watch, item),
        }
        outcome
    }

    fn forget_unreadable<K: kube::Resource>(&mut self, watch: WatchId, item: &Item<K>) -> bool {
        let meta = meta_of(item);
        let (namespace, name) = (meta.namespace.as_deref(), meta.name.as_deref());
        self.unreadable.forget(watch, namespace, name)
    }

    fn take_input(&mut self, index: &mut Index, input: Input, now: Timestamp) -> Enqueue {
        match input {
            Input::Node(event) => {
                let followed = self.follow_unreadable(("nodes", 0), &event, |_| None);
                followed.and(self.node(index, event, now))
            }
            Input::Set(event) => self.take_set(index, SetKind::Native, event),
            Input::Advanced(event) => self.take_set(index, SetKind::Advanced, event),
            Input::NoAdvanced(why) => Enqueue {
                absence: why,
                ..self.lose_advanced(index)
            },
            Input::Revision(number, event) => {
                let watch = ("controllerrevisions", number);
                let followed = self.follow_unreadable(watch, &event, |_| None);
                followed.and(self.revision(index, number, event, now))
            }
            Input::Pod(number, requested, event) => {
                let followed = self.follow_unreadable(("pods", number), &event, |_| None);
                followed.and(self.pod(index, number, event, requested, now))
            }
            Input::Order(in_order) => {
                Enqueue::sets(RequeueDelay::Short, index.know_order(in_order))
            }
        }
    }

    fn node(
        &mut self,
        index: &mut Index,
        event: Event<Item<k8s::Node>>,
        now: Timestamp,
    ) -> Enqueue {
        let name = |item| meta_of::<k8s::Node>(item).name.clone();
        match event {
            Event::Init => self.nodes.begin(),
            Event::InitApply(item) => {
                self.nodes.seen.extend(name(&item));
                return Enqueue::sets(RequeueDelay::Short, index.take_listed_node(&item, now));
            }
            Event::Apply(item) => {
                return Enqueue::sets(RequeueDelay::Short, index.take_listed_node(&item, now));
            }
            Event::Delete(item) => {
                let concerned = index.delete_node(&name(&item).unwrap_or_default());
                return Enqueue::sets(RequeueDelay::Short, concerned);
            }
            Event::InitDone => {
                let seen = self.nodes.finish();
                return Enqueue {
                    complete: vec!["nodes"],
                    ..Enqueue::sets(RequeueDelay::Short, index.retain_nodes(&seen))
                };
            }
        }
        Enqueue::default()
    }

    fn take_set(
        &mut self,
        index: &mut Index,
        kind: SetKind,
        event: Event<Item<k8s::DaemonSet>>,
    ) -> Enqueue {
        let salvaged = |set: &k8s::DaemonSet| set.spec.unreadable.as_deref().cloned();
        let followed = self.follow_unreadable((resource_of(kind), 0), &event, salvaged);
        followed.and(self.set(index, kind, event))
    }

    fn set(
        &mut self,
        index: &mut Index,
        kind: SetKind,
        event: Event<Item<k8s::DaemonSet>>,
    ) -> Enqueue {
        match event {
            Event::Init => self.listing(kind).begin(),
            Event::InitApply(item) => {
                self.listing(kind).seen.extend(key_of(kind, &item));
                if let Ok(set) = item {
                    return self.apply_set(index, &set);
                }
            }
            Event::Apply(Ok(set)) => return self.apply_set(index, &set),
            // The metadata of the DaemonSet is unreadable too, so the previous version of the DaemonSet stays in the index.
            Event::Apply(Err(_)) => {}
            Event::Delete(item) => {
                let gone = key_of(kind, &item).filter(|key| self.drop_set(index, key));
                return Enqueue {
                    gone: gone.into_iter().collect(),
                    ..Enqueue::default()
                };
            }
            Event::InitDone => return self.finish_sets(index, kind),
        }
        Enqueue::default()
    }

    /// Removes all Advanced DaemonSets, because they are not served or are left to Kruise.
    fn lose_advanced(&mut self, index: &mut Index) -> Enqueue {
        let is_any = index.keys().any(SetKey::is_advanced);
        if self.advanced.complete && !is_any {
            Enqueue::default()
        } else {
            self.finish_sets(index, SetKind::Advanced)
        }
    }

    /// Handles the end of a list of DaemonSets of this kind.
    fn finish_sets(&mut self, index: &mut Index, kind: SetKind) -> Enqueue {
        let was_known = self.knows_sets();
        let seen = self.listing(kind).finish();
        if kind == SetKind::Native {
            index.retain_strays(&seen);
        }
        let keys = index.keys().filter(|key| key.kind == kind);
        let gone: Vec<SetKey> = keys.filter(|key| !seen.contains(key)).cloned().collect();
        for key in &gone {
            self.drop_set(index, key);
        }
        if !was_known && self.knows_sets() {
            self.regroup(index);
        }
        Enqueue {
            gone,
            complete: vec![resource_of(kind)],
            ..Enqueue::default()
        }
    }

    /// Applies a DaemonSet from a watch or a live read.
    pub(super) fn apply_set(&mut self, index: &mut Index, set: &k8s::DaemonSet) -> Enqueue {
        let Some(key) = SetKey::of_set(set) else {
            return Enqueue::default();
        };
        match index.apply_set(set) {
            SetChange::Ignored => Enqueue {
                unmanaged: index.is_stray(&key),
                ..Enqueue::default()
            },
            SetChange::Updated => Enqueue::sets(RequeueDelay::Zero, [key]),
            SetChange::Watch(_) => {
                self.leave(&key);
                // During the first list, wait: when the list is complete, all its DaemonSets are grouped together.
                if self.knows_sets() {
                    self.join(index, &key);
                }
                Enqueue::default()
            }
            SetChange::Unwatch => {
                self.leave(&key);
                Enqueue {
                    unmanaged: index.is_stray(&key),
                    gone: vec![key],
                    ..Enqueue::default()
                }
            }
        }
    }

    /// Watches a DaemonSet in a [`Group`] of its own. If that makes too many groups, regroups all DaemonSets into as few as
    /// possible.
    fn join(&mut self, index: &mut Index, key: &SetKey) {
        let Some(set) = index.set(key) else {
            return;
        };
        let alone = Group::all([(key, set.selector.as_str())]);
        if self.groups.len() >= SPARE_GROUPS {
            let selectors = index.keys().filter_map(|key| selector(index, key));
            if self.groups.len() >= Group::all(selectors).len() + SPARE_GROUPS {
                return self.regroup(index);
            }
        }
        alone.into_iter().for_each(|group| self.watch(index, group));
    }

    /// Stops watching the pods of this DaemonSet.
    fn leave(&mut self, key: &SetKey) {
        for known in &mut self.groups {
            known.group.members.remove(key);
        }
        self.groups.retain(|known| !known.group.members.is_empty());
    }

    /// Regroups all DaemonSets into as few groups as possible. Unchanged groups keep their watches.
    fn regroup(&mut self, index: &mut Index) {
        let wanted = Group::all(index.keys().filter_map(|key| selector(index, key)));
        self.groups.retain(|known| wanted.contains(&known.group));
        for group in wanted {
            if !self.groups.iter().any(|known| known.group == group) {
                self.watch(index, group);
            }
        }
    }

    fn watch(&mut self, index: &mut Index, group: Group) {
        let pods = self.watch_pods(&group);
        self.started += 1;
        let revisions = Watch::new(self.started, self.caches.revisions(&group, self.started));
        let watched = GroupWatch {
            group,
            pods,
            revisions,
        };
        watched.sync(index);
        self.groups.push(watched);
    }

    fn watch_pods(&mut self, group: &Group) -> Watch<BTreeMap<SetKey, BTreeSet<PodUid>>> {
        self.started += 1;
        Watch::new(self.started, self.caches.pods(group, self.started))
    }

    fn drop_set(&mut self, index: &mut Index, key: &SetKey) -> bool {
        self.leave(key);
        index.delete_set(key)
    }

    fn revision(
        &mut self,
        index: &mut Index,
        number: u64,
        event: Event<Item<k8s::ControllerRevision>>,
        now: Timestamp,
    ) -> Enqueue {
        let mut groups = self.groups.iter_mut();
        let Some(known) = groups.find(|known| known.revisions.number == number) else {
            return Enqueue::default();
        };
        let members = &known.group.members;
        let of_member = |meta: &ObjectMeta| {
            let owner = meta.owner_references.iter().flatten().next()?;
            let key = index.key_of(&owner.uid)?;
            let is_at_home = meta.namespace.as_deref() == Some(&*key.namespace);
            (is_at_home && members.contains_key(key)).then(|| owner.uid.clone())
        };
        let is_listed = matches!(event, Event::InitApply(_));
        match event {
            Event::Init => known.revisions.begin(now),
            Event::InitApply(item) | Event::Apply(item) => {
                let meta = meta_of(&item);
                let Some(owner) = of_member(meta) else {
                    return Enqueue::default();
                };
                if is_listed {
                    let name = meta.name.clone().unwrap_or_default();
                    known.revisions.listing.seen.insert((owner, name));
                }
                let concerned = index.take_listed_revision(&item);
                return Enqueue::sets(RequeueDelay::Zero, concerned);
            }
            Event::Delete(item) => {
                let concerned = index.delete_revision(meta_of(&item));
                return Enqueue::sets(RequeueDelay::Zero, concerned);
            }
            Event::InitDone => {
                let seen = known.revisions.listing.finish();
                let of_group = |key: &SetKey| members.contains_key(key);
                let mut concerned = index.retain_revisions(of_group, &seen);
                if known.pods.is_complete() {
                    concerned.extend(members.keys().cloned());
                }
                known.sync(index);
                return Enqueue::sets(RequeueDelay::Zero, concerned);
            }
        }
        Enqueue::default()
    }

    fn pod(
        &mut self,
        index: &mut Index,
        number: u64,
        event: Event<Item<k8s::Pod>>,
        requested: Timestamp,
        now: Timestamp,
    ) -> Enqueue {
        let mut groups = self.groups.iter_mut();
        let Some(known) = groups.find(|known| known.pods.number == number) else {
            return Enqueue::default();
        };
        let requeued = match event {
            Event::Init => {
                known.pods.begin(requested);
                Vec::new()
            }
            Event::InitApply(Err(pod)) => {
                let requeued = known.note_unreadable_pod(index, &pod);
                if let Some(uid) = &pod.metadata.uid {
                    for (key, _) in &requeued {
                        let seen = known.pods.listing.seen.entry(key.clone()).or_default();
                        seen.insert(uid.as_str().into());
                    }
                }
                requeued
            }
            Event::Apply(Err(pod)) => known.note_unreadable_pod(index, &pod),
            Event::Delete(Err(pod)) => known.delete_pod(index, &pod.metadata),
            Event::InitApply(Ok(pod)) => {
                let requeued = known.apply_pod(index, &pod, now);
                if let Some(uid) = &pod.metadata.uid {
                    for (key, _) in &requeued {
                        let seen = known.pods.listing.seen.entry(key.clone()).or_default();
                        seen.insert(uid.as_str().into());
                    }
                }
                requeued
            }
            Event::Apply(Ok(pod)) => {
                let mut requeued = known.take_from_others(index, &pod, now);
                requeued.extend(known.apply_pod(index, &pod, now));
                requeued
            }
            Event::Delete(Ok(pod)) => known.delete_pod(index, &pod.metadata),
            Event::InitDone => known.finish_pods(index),
        };
        Enqueue {
            requeued,
            ..Enqueue::default()
        }
    }
}

impl GroupWatch {
    /// Applies a pod to the DaemonSet that owns it. Returns the DaemonSets to reconcile.
    fn apply_pod(
        &self,
        index: &mut Index,
        pod: &k8s::Pod,
        now: Timestamp,
    ) -> Vec<(SetKey, RequeueDelay)> {
        let label = |key: &str| pod.label(key);
        if let Some(key) = self
            .owner_of(index, &pod.metadata)
            .filter(|key| self.group.selects(key, label))
        {
            let delay = index.apply_pod(&key, pod, now);
            return delay.map(|delay| (key, delay)).into_iter().collect();
        }
        // No DaemonSet of the group owns the pod. A former owner has to forget the pod, and a DaemonSet whose selector matches may
        // adopt the pod.
        let mut requeued = Vec::new();
        for key in self.neighbours(&pod.metadata) {
            let delay = if self.group.selects(key, label) {
                index.apply_pod(key, pod, now)
            } else {
                index.set_mut(key).map(|set| set.delete_pod(pod.uid()))
            };
            requeued.extend(delay.map(|delay| (key.clone(), delay)));
        }
        requeued
    }

    /// Removes a pod from the DaemonSets that may have owned it before its current owner.
    ///
    /// Not needed for the pods of a list. When the list ends, each DaemonSet forgets the pods that the list doesn't contain.
    fn take_from_others(
        &self,
        index: &mut Index,
        pod: &k8s::Pod,
        now: Timestamp,
    ) -> Vec<(SetKey, RequeueDelay)> {
        let uid = PodUid::from(pod.uid());
        let Some(owner) = self.owner_of(index, &pod.metadata) else {
            return Vec::new();
        };
        let set = index.set(&owner);
        if set.is_none_or(|set| set.place_of(&uid).is_some()) {
            return Vec::new();
        }
        let label = |key: &str| pod.label(key);
        self.neighbours(&pod.metadata)
            .filter(|key| **key != owner && self.group.selects(key, label))
            .filter_map(|key| Some((key.clone(), index.apply_pod(key, pod, now)?)))
            .collect()
    }

    /// Records an unreadable pod if it belongs to a DaemonSet of this group.
    fn note_unreadable_pod(
        &self,
        index: &mut Index,
        pod: &Unreadable,
    ) -> Vec<(SetKey, RequeueDelay)> {
        let Some(key) = self.owner_of(index, &pod.metadata) else {
            return Vec::new();
        };
        index.note_unreadable_pod(&key, pod);
        vec![(key, RequeueDelay::Short)]
    }

    fn delete_pod(&self, index: &mut Index, pod: &ObjectMeta) -> Vec<(SetKey, RequeueDelay)> {
        let uid = pod.uid.as_deref().unwrap_or_default();
        let mut requeued = Vec::new();
        for key in self.neighbours(pod) {
            if let Some(set) = index.set_mut(key) {
                requeued.push((key.clone(), set.delete_pod(uid)));
            }
        }
        requeued
    }

    /// Handles the end of a list of the group's pods.
    fn finish_pods(&mut self, index: &mut Index) -> Vec<(SetKey, RequeueDelay)> {
        let began = self.pods.began;
        let mut seen = self.pods.listing.finish();
        for key in self.group.members.keys() {
            if let Some(set) = index.set_mut(key) {
                set.retain_pods(&seen.remove(key).unwrap_or_default(), began);
            }
        }
        self.sync(index);
        let members = self.group.members.keys();
        members
            .map(|key| (key.clone(), RequeueDelay::Short))
            .collect()
    }

    /// Marks the DaemonSets of the group as complete once their pods and revisions are listed. No decision is made about a
    /// DaemonSet before that.
    fn sync(&self, index: &mut Index) {
        for key in self.group.members.keys() {
            if let Some(set) = index.set_mut(key) {
                set.synced = self.pods.is_complete() && self.revisions.is_complete();
            }
        }
    }

    /// Returns the DaemonSet of this group that owns the pod.
    fn owner_of(&self, index: &Index, pod: &ObjectMeta) -> Option<SetKey> {
        let mut owners = pod.owner_references.iter().flatten();
        let key = owners.find_map(|owner| index.key_of(&owner.uid))?;
        // Anyone can write any UID to an owner reference. Owners in another namespace are invalid, so the namespace is checked too.
        let is_at_home = pod.namespace.as_deref() == Some(&*key.namespace);
        (is_at_home && self.group.members.contains_key(key)).then(|| key.clone())
    }

    /// DaemonSets of the group in the same namespace as the pod.
    fn neighbours(&self, pod: &ObjectMeta) -> impl Iterator<Item = &SetKey> {
        let namespace = pod.namespace.clone().unwrap_or_default();
        let members = self.group.members.keys();
        members.filter(move |key| *key.namespace == *namespace)
    }
}

/// Returns the key of a DaemonSet, even if the object is unreadable.
fn key_of(kind: SetKind, item: &Item<k8s::DaemonSet>) -> Option<SetKey> {
    match item {
        Ok(set) => SetKey::of_set(set),
        Err(unreadable) => SetKey::from_meta(&unreadable.metadata).map(|key| key.as_kind(kind)),
    }
}

fn selector<'a>(index: &'a Index, key: &'a SetKey) -> Option<(&'a SetKey, &'a str)> {
    Some((key, index.set(key)?.selector.as_str()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    /// Watches these Advanced DaemonSets. In each pair, the first text is name and UID, and the second the value of the label `key`
    /// that the DaemonSet selects.
    fn watched(index: &mut Index, sets: &[(&str, &str)]) -> GroupWatch {
        for (name, value) in sets {
            let labels = json!({ "key": value });
            let set: k8s::AdvancedDaemonSet = serde_json::from_value(json!({
                "apiVersion": "apps.kruise.io/v1beta1",
                "kind": "DaemonSet",
                "metadata": { "name": name, "namespace": "default", "uid": name, "generation": 1 },
                "spec": {
                    "selector": { "matchLabels": labels },
                    "template": { "metadata": { "labels": labels }, "spec": {} },
                },
            }))
            .unwrap();
            index.apply_set(&set.into());
        }
        let group = Group::all(index.keys().filter_map(|key| selector(index, key)));
        let [group] = <[Group; 1]>::try_from(group).unwrap();
        let silent = || CacheWatch::silent();
        GroupWatch {
            group,
            pods: Watch::new(1, silent()),
            revisions: Watch::new(2, silent()),
        }
    }

    /// Returns a pod. `owner` is the DaemonSet that controls it, and `key` the value of its label `key`.
    fn pod(owner: Option<&str>, key: Option<&str>, version: &str) -> Value {
        let owner = owner.map(|name| {
            json!({
                "apiVersion": "apps.kruise.io/v1beta1",
                "kind": "DaemonSet",
                "name": name,
                "uid": name,
                "controller": true,
            })
        });
        json!({
            "metadata": {
                "name": "pod",
                "namespace": "default",
                "uid": "pod",
                "resourceVersion": version,
                "labels": key.map(|key| json!({ "key": key })),
                "ownerReferences": owner.into_iter().collect::<Vec<_>>(),
            },
            "spec": { "nodeName": "node" },
        })
    }

    fn ending(mut pod: Value) -> Value {
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        pod
    }

    fn ready(mut pod: Value) -> Value {
        pod["status"] = json!({ "conditions": [{ "type": "Ready", "status": "True" }] });
        pod
    }

    /// Cases from the unit tests of Kruise's event handlers. In each case, one pod changes, and the test compares which DaemonSets
    /// are reconciled.
    #[tokio::test]
    async fn a_pod_event_requeues_previous_current_and_possible_owners() {
        const ONE: &str = "ds01";
        const TWO: &str = "ds02";
        /// Runs one case. `before` (`None`: the pod is new) and `after` are the pod before and after the change. `woken` are the
        /// DaemonSets to reconcile.
        #[track_caller]
        fn case(sets: &[(&str, &str)], before: Option<Value>, after: Value, woken: &[&str]) {
            let mut index = Index::default();
            let watched = watched(&mut index, sets);
            let mut take = |pod: Value| {
                let pod: k8s::Pod = serde_json::from_value(pod).unwrap();
                let mut requeued = watched.take_from_others(&mut index, &pod, NOW);
                requeued.extend(watched.apply_pod(&mut index, &pod, NOW));
                requeued.retain(|(_, delay)| *delay != RequeueDelay::Never);
                let mut names: Vec<String> = requeued
                    .iter()
                    .map(|(key, _)| key.name.to_string())
                    .collect();
                names.sort();
                names
            };
            before.map(&mut take);
            assert_eq!(take(after), woken);
        }
        let apart = [(ONE, "v1"), (TWO, "v2")];
        let alike = [(ONE, "v1"), (TWO, "v1")];
        let of = |owner: &'static str, version| pod(Some(owner), Some("v1"), version);
        let orphan = |version| pod(None, Some("v1"), version);
        // Kruise's cases 63 to 66: a pod is created.
        case(&alike, None, ending(orphan("1")), &[]);
        case(&apart, None, pod(None, None, "1"), &[]);
        case(&alike, None, orphan("1"), &[ONE, TWO]);
        case(&apart, None, pod(Some(TWO), Some("v2"), "1"), &[TWO]);
        // Kruise's cases 67 to 71: a pod with an owner changes.
        case(&alike, Some(of(ONE, "1")), of(ONE, "1"), &[]);
        case(&alike, Some(of(ONE, "1")), ending(of(ONE, "2")), &[ONE]);
        case(
            &alike,
            Some(of(ONE, "1")),
            ending(of(TWO, "2")),
            &[ONE, TWO],
        );
        case(&alike, Some(of(ONE, "1")), of(TWO, "2"), &[ONE, TWO]);
        case(&alike, Some(of(ONE, "1")), ready(of(ONE, "2")), &[ONE]);
        // Kruise's cases 72 and 73: a pod without an owner changes, or a pod loses its owner.
        case(&alike, Some(orphan("1")), orphan("2"), &[]);
        let three = [(ONE, "v1"), (TWO, "v1"), ("ds03", "v1")];
        case(&three, Some(of(ONE, "1")), orphan("2"), &[ONE, TWO, "ds03"]);
    }

    /// While a list is repeated, it is complete but not settled: the objects of the previous list are known, and newer ones may be
    /// missing.
    #[test]
    fn a_repeated_list_is_complete_but_not_settled() {
        let state = |listing: &Listing<BTreeSet<String>>| (listing.complete, listing.is_settled());
        let mut listing = Listing::default();
        assert_eq!(state(&listing), (false, false));
        listing.begin();
        listing.seen.insert("node".to_owned());
        assert_eq!(listing.finish().len(), 1);
        assert_eq!(state(&listing), (true, true));
        listing.begin();
        assert_eq!(state(&listing), (true, false));
        assert!(listing.finish().is_empty());
        assert_eq!(state(&listing), (true, true));
    }
}
