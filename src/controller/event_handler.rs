//! From watch events to the index: which DaemonSets have to be decided again.

mod unreadable;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::watcher::Event;

use self::unreadable::{UnreadableObjects, WatchId};
use super::caches::{AdvancedAbsence, CacheWatch, Input, Watches};
use super::groups::Group;
use super::kinds::{Kinds, resource_of};
use crate::core::PodUid;
use crate::index::{Index, RequeueDelay, SetChange, SetKey, SetKind};
use crate::k8s::{self, Item, Unreadable, UnreadableReason, meta_of};

/// What is watched in the whole cluster; nothing is decided before all of it has been listed.
pub(super) const CLUSTER_WIDE: [&str; 2] = ["nodes", "controllerrevisions"];

/// More watches than this beside those that would do are put together.
const SPARE_GROUPS: usize = 8;

/// The watches that feed the index, and which of them have told everything once.
pub(super) struct EventHandler {
    caches: Watches,
    groups: Vec<GroupWatch>,
    started: u64,
    /// Begins when the others have told which images to look for.
    nodes_watch: Option<CacheWatch>,
    nodes: Listing<BTreeSet<String>>,
    sets: Listing<BTreeSet<SetKey>>,
    advanced: Listing<BTreeSet<SetKey>>,
    /// Whether the revisions of the DaemonSets that were there at first are known.
    has_revisions: bool,
    unreadable: UnreadableObjects,
}

/// A watch whose data is too old to be acted upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StaleWatch {
    /// Resource that is watched.
    pub(super) resource: &'static str,
    /// Time since it was last heard.
    pub(super) age: Duration,
}

/// What is watched of a group of DaemonSets.
#[derive(Debug)]
struct GroupWatch {
    group: Group,
    pods: Watch<BTreeMap<SetKey, BTreeSet<PodUid>>>,
    revisions: Watch<BTreeSet<(String, String)>>,
}

/// One watch of a group.
#[derive(Debug)]
struct Watch<T> {
    number: u64,
    listing: Listing<T>,
    /// When the list under way began.
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

    /// A list begins.
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

/// A complete list in the making.
#[derive(Debug, Default)]
struct Listing<T> {
    seen: T,
    /// Whether one has arrived.
    complete: bool,
    /// Whether another one is on its way.
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

    /// What it contained.
    fn finish(&mut self) -> T {
        self.complete = true;
        self.arrives = false;
        std::mem::take(&mut self.seen)
    }
}

/// What an input led to.
#[derive(Debug, Default)]
pub(super) struct Enqueue {
    /// DaemonSets to decide again, and how soon.
    pub(super) requeued: Vec<(SetKey, RequeueDelay)>,
    /// DaemonSets that are gone, or ours no longer.
    pub(super) gone: Vec<SetKey>,
    /// What there is to say of DaemonSets that are not ours may have changed.
    pub(super) unmanaged: bool,
    /// Why Advanced DaemonSets are left alone from now on.
    pub(super) absence: Option<AdvancedAbsence>,
    /// Complete lists of these resources have arrived.
    pub(super) complete: Vec<&'static str>,
    /// An object that cannot be read, of this resource, if that is news.
    pub(super) unreadable: Option<(&'static str, Box<Unreadable>)>,
    /// Set when the number of unreadable objects may have changed.
    pub(super) recount: bool,
}

impl Enqueue {
    /// Joins both outcomes of one event, of which `self` is about unreadable objects.
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
    /// Nothing is told yet.
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

    /// Whether the cluster-wide watches have told everything once.
    pub(super) fn is_complete(&self) -> bool {
        self.nodes.complete && self.knows_sets() && self.has_revisions
    }

    /// Whether every DaemonSet is known.
    fn knows_sets(&self) -> bool {
        self.sets.complete && self.advanced.complete
    }

    /// The list of the DaemonSets of a kind.
    fn listing(&mut self, kind: SetKind) -> &mut Listing<BTreeSet<SetKey>> {
        match kind {
            SetKind::Native => &mut self.sets,
            SetKind::Advanced => &mut self.advanced,
        }
    }

    /// Whether every list that was asked for has arrived.
    pub(super) fn is_settled(&self) -> bool {
        let is_settled =
            |known: &GroupWatch| known.pods.is_settled() && known.revisions.is_settled();
        self.nodes.is_settled()
            && self.sets.is_settled()
            && self.advanced.is_settled()
            && self.groups.iter().all(is_settled)
    }

    /// Lists the pods of every DaemonSet anew, because somebody else may have deleted some a moment ago.
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

    /// Lists the pods of one DaemonSet anew; nothing is decided before the list is complete.
    pub(super) fn look_again_at(&mut self, index: &mut Index, key: &SetKey) {
        self.leave(key);
        self.join(index, key);
    }

    /// Takes in what a watch said.
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

    /// The first watch that a decision about this DaemonSet rests on and whose data is too old.
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

    /// Resources of which a watch was not heard for too long, with the age of what it told.
    pub(super) fn stale_resources(&self) -> impl Iterator<Item = (&'static str, Duration)> {
        self.caches.stale_resources()
    }

    /// Number of objects that cannot be read now, by resource and reason.
    pub(super) fn count_unreadable(&self) -> BTreeMap<(&'static str, UnreadableReason), usize> {
        self.unreadable.counts()
    }

    /// Follows which objects of a watch cannot be read. `salvaged` returns why an object was read only in part.
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
            Input::Pod(number, said, event) => {
                let followed = self.follow_unreadable(("pods", number), &event, |_| None);
                followed.and(self.pod(index, number, event, said, now))
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
            // Not even its metadata can be read: what was known of it before stays.
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

    /// There are no Advanced DaemonSets to roll out, or not any more.
    fn lose_advanced(&mut self, index: &mut Index) -> Enqueue {
        let is_any = index.keys().any(SetKey::is_advanced);
        if self.advanced.complete && !is_any {
            Enqueue::default()
        } else {
            self.finish_sets(index, SetKind::Advanced)
        }
    }

    /// A complete list of the DaemonSets of a kind has arrived.
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

    /// Takes in a DaemonSet, watched or read.
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
                // All of the first list are put into groups at its end.
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

    /// Watches a DaemonSet in a group of its own, and all anew in as few as do once there are too many.
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

    /// The pods of this DaemonSet are of no interest any more.
    fn leave(&mut self, key: &SetKey) {
        for known in &mut self.groups {
            known.group.members.remove(key);
        }
        self.groups.retain(|known| !known.group.members.is_empty());
    }

    /// Watches every DaemonSet in as few groups as do; those that are as they should be stay.
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
        said: Timestamp,
        now: Timestamp,
    ) -> Enqueue {
        let mut groups = self.groups.iter_mut();
        let Some(known) = groups.find(|known| known.pods.number == number) else {
            return Enqueue::default();
        };
        let requeued = match event {
            Event::Init => {
                known.pods.begin(said);
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
    /// Takes in a pod where it belongs; says which DaemonSets looked at it.
    fn apply_pod(
        &self,
        index: &mut Index,
        pod: &k8s::Pod,
        now: Timestamp,
    ) -> Vec<(SetKey, RequeueDelay)> {
        let labels = pod.metadata.labels.as_ref();
        let label = |key: &str| labels?.get(key).map(String::as_str);
        if let Some(key) = self
            .owner_of(index, &pod.metadata)
            .filter(|key| self.group.selects(key, label))
        {
            let delay = index.apply_pod(&key, pod, now);
            return delay.map(|delay| (key, delay)).into_iter().collect();
        }
        // Nobody's, or that of a DaemonSet which is gone: whoever knew it as its own learns that it is not any more.
        let mut requeued = Vec::new();
        for key in self.neighbours(&pod.metadata) {
            let uid = || pod.metadata.uid.as_deref().unwrap_or_default();
            let delay = if self.group.selects(key, label) {
                index.apply_pod(key, pod, now)
            } else {
                index.set_mut(key).map(|set| set.delete_pod(uid()))
            };
            requeued.extend(delay.map(|delay| (key.clone(), delay)));
        }
        requeued
    }

    /// A pod that its owner did not know may have been another one's, who learns that it is not any more. A complete list needs no
    /// such look: whoever does not find its pod there forgets it.
    fn take_from_others(
        &self,
        index: &mut Index,
        pod: &k8s::Pod,
        now: Timestamp,
    ) -> Vec<(SetKey, RequeueDelay)> {
        let uid = PodUid::from(pod.metadata.uid.as_deref().unwrap_or_default());
        let Some(owner) = self.owner_of(index, &pod.metadata) else {
            return Vec::new();
        };
        let set = index.set(&owner);
        if set.is_none_or(|set| set.place_of(&uid).is_some()) {
            return Vec::new();
        }
        let labels = pod.metadata.labels.as_ref();
        let label = |key: &str| labels?.get(key).map(String::as_str);
        self.neighbours(&pod.metadata)
            .filter(|key| **key != owner && self.group.selects(key, label))
            .filter_map(|key| Some((key.clone(), index.apply_pod(key, pod, now)?)))
            .collect()
    }

    /// Takes in a pod that cannot be read, if it is one of a DaemonSet of this group.
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

    /// A complete list of its pods has arrived.
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

    /// Nothing is decided on its DaemonSets before their pods and revisions are known.
    fn sync(&self, index: &mut Index) {
        for key in self.group.members.keys() {
            if let Some(set) = index.set_mut(key) {
                set.synced = self.pods.is_complete() && self.revisions.is_complete();
            }
        }
    }

    /// The DaemonSet of this group that an owner of the pod names.
    fn owner_of(&self, index: &Index, pod: &ObjectMeta) -> Option<SetKey> {
        let mut owners = pod.owner_references.iter().flatten();
        let key = owners.find_map(|owner| index.key_of(&owner.uid))?;
        // A UID can be named in any namespace, but owns nothing outside its own.
        let is_at_home = pod.namespace.as_deref() == Some(&*key.namespace);
        (is_at_home && self.group.members.contains_key(key)).then(|| key.clone())
    }

    /// Its DaemonSets in the namespace of the pod.
    fn neighbours(&self, pod: &ObjectMeta) -> impl Iterator<Item = &SetKey> {
        let namespace = pod.namespace.clone().unwrap_or_default();
        let members = self.group.members.keys();
        members.filter(move |key| *key.namespace == *namespace)
    }
}

/// The key of a DaemonSet, readable or not.
fn key_of(kind: SetKind, item: &Item<k8s::DaemonSet>) -> Option<SetKey> {
    match item {
        Ok(set) => SetKey::of_set(set),
        Err(unreadable) => SetKey::from_meta(&unreadable.metadata).map(|key| key.as_kind(kind)),
    }
}

/// A DaemonSet with its selector.
fn selector<'a>(index: &'a Index, key: &'a SetKey) -> Option<(&'a SetKey, &'a str)> {
    Some((key, index.set(key)?.selector.as_str()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    /// The watches of these Advanced DaemonSets, which have the UIDs of their names and select pods by their label `key`.
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

    /// A pod on a node, of such an owner, with such a label.
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

    /// Which DaemonSets are decided again for what becomes of a pod (Kruise's unit tests of its event handlers).
    #[tokio::test]
    async fn a_pod_wakes_those_whose_it_is_was_or_may_become() {
        const ONE: &str = "ds01";
        const TWO: &str = "ds02";
        /// The DaemonSets with their labels, the pod before (if it was there) and after, and who is woken.
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
        // 63 to 66: one that is made.
        case(&alike, None, ending(orphan("1")), &[]);
        case(&apart, None, pod(None, None, "1"), &[]);
        case(&alike, None, orphan("1"), &[ONE, TWO]);
        case(&apart, None, pod(Some(TWO), Some("v2"), "1"), &[TWO]);
        // 67 to 71: one with an owner that changes.
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
        // 72 and 73: one that has none, or no longer.
        case(&alike, Some(orphan("1")), orphan("2"), &[]);
        let three = [(ONE, "v1"), (TWO, "v1"), ("ds03", "v1")];
        case(&three, Some(of(ONE, "1")), orphan("2"), &[ONE, TWO, "ds03"]);
    }

    /// What was known stays known while a list is made anew, and is not all there is to know.
    #[test]
    fn a_list_that_is_made_anew_is_complete_and_not_settled() {
        let told = |listing: &Listing<BTreeSet<String>>| (listing.complete, listing.is_settled());
        let mut listing = Listing::default();
        assert_eq!(told(&listing), (false, false));
        listing.begin();
        listing.seen.insert("node".to_owned());
        assert_eq!(listing.finish().len(), 1);
        assert_eq!(told(&listing), (true, true));
        listing.begin();
        assert_eq!(told(&listing), (true, false));
        assert!(listing.finish().is_empty());
        assert_eq!(told(&listing), (true, true));
    }
}
