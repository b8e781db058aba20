//! From watch events to the index: which DaemonSets have to be decided again.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use kube::runtime::watcher::Event;

use super::caches::{AdvancedAbsence, CacheWatch, Caches, Input};
use super::groups::Group;
use super::kinds::{Kinds, resource_of};
use crate::core::PodUid;
use crate::index::{Index, RequeueDelay, SetChange, SetKey, SetKind};
use crate::k8s;

/// What is watched in the whole cluster; nothing is decided before all of it has been listed.
pub(super) const CLUSTER_WIDE: [&str; 2] = ["nodes", "controllerrevisions"];

/// More watches than this beside those that would do are put together.
const SPARE_GROUPS: usize = 8;

/// The watches that feed the index, and which of them have told everything once.
pub(super) struct Feed {
    caches: Caches,
    groups: Vec<GroupWatch>,
    started: u64,
    /// Begins when the others have told which images to look for.
    nodes_watch: Option<CacheWatch>,
    nodes: Listing<BTreeSet<String>>,
    sets: Listing<BTreeSet<SetKey>>,
    advanced: Listing<BTreeSet<SetKey>>,
    /// Whether the revisions of the DaemonSets that were there at first are known.
    has_revisions: bool,
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
    _watch: CacheWatch,
}

impl<T: Default> Watch<T> {
    fn new(number: u64, watch: CacheWatch) -> Self {
        Self {
            number,
            listing: Listing::default(),
            began: None,
            _watch: watch,
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
pub(super) struct FeedOutcome {
    /// DaemonSets to decide again, and how soon.
    pub(super) requeued: Vec<(SetKey, RequeueDelay)>,
    /// DaemonSets that are gone, or ours no longer.
    pub(super) gone: Vec<SetKey>,
    /// What there is to say of DaemonSets that are not ours may have changed.
    pub(super) strays: bool,
    /// Why Advanced DaemonSets are left alone from now on.
    pub(super) absence: Option<AdvancedAbsence>,
    /// Complete lists of these resources have arrived.
    pub(super) complete: Vec<&'static str>,
}

impl FeedOutcome {
    fn of(delay: RequeueDelay, keys: impl IntoIterator<Item = SetKey>) -> Self {
        let requeued = keys.into_iter().map(|key| (key, delay)).collect();
        Self {
            requeued,
            ..Self::default()
        }
    }
}

impl Feed {
    /// Nothing is told yet.
    pub(super) fn new(caches: Caches, kinds: &Kinds) -> Self {
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
    pub(super) fn take(&mut self, index: &mut Index, input: Input, now: Timestamp) -> FeedOutcome {
        let mut fed = self.take_input(index, input, now);
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

    fn take_input(&mut self, index: &mut Index, input: Input, now: Timestamp) -> FeedOutcome {
        match input {
            Input::Node(event) => self.node(index, event, now),
            Input::Set(event) => self.set(index, SetKind::Native, event),
            Input::Advanced(event) => self.set(index, SetKind::Advanced, event),
            Input::NoAdvanced(why) => FeedOutcome {
                absence: why,
                ..self.lose_advanced(index)
            },
            Input::Revision(number, event) => self.revision(index, number, event, now),
            Input::Pod(number, said, event) => self.pod(index, number, (event, said), now),
            Input::Order(in_order) => {
                FeedOutcome::of(RequeueDelay::Short, index.know_order(in_order))
            }
        }
    }

    fn node(&mut self, index: &mut Index, event: Event<k8s::Node>, now: Timestamp) -> FeedOutcome {
        match event {
            Event::Init => self.nodes.begin(),
            Event::InitApply(node) => {
                self.nodes.seen.extend(node.metadata.name.clone());
                return FeedOutcome::of(RequeueDelay::Short, index.apply_node(&node, now));
            }
            Event::Apply(node) => {
                return FeedOutcome::of(RequeueDelay::Short, index.apply_node(&node, now));
            }
            Event::Delete(node) => {
                return FeedOutcome::of(
                    RequeueDelay::Short,
                    index.delete_node(node.metadata.name.as_deref().unwrap_or_default()),
                );
            }
            Event::InitDone => {
                let seen = self.nodes.finish();
                return FeedOutcome {
                    complete: vec!["nodes"],
                    ..FeedOutcome::of(RequeueDelay::Short, index.retain_nodes(&seen))
                };
            }
        }
        FeedOutcome::default()
    }

    fn set(
        &mut self,
        index: &mut Index,
        kind: SetKind,
        event: Event<k8s::DaemonSet>,
    ) -> FeedOutcome {
        match event {
            Event::Init => self.listing(kind).begin(),
            Event::InitApply(set) => {
                self.listing(kind).seen.extend(SetKey::of_set(&set));
                return self.apply_set(index, &set);
            }
            Event::Apply(set) => return self.apply_set(index, &set),
            Event::Delete(set) => {
                let gone = SetKey::of_set(&set).filter(|key| self.drop_set(index, key));
                return FeedOutcome {
                    gone: gone.into_iter().collect(),
                    ..FeedOutcome::default()
                };
            }
            Event::InitDone => return self.finish_sets(index, kind),
        }
        FeedOutcome::default()
    }

    /// There are no Advanced DaemonSets to roll out, or not any more.
    fn lose_advanced(&mut self, index: &mut Index) -> FeedOutcome {
        let is_any = index.keys().any(SetKey::is_advanced);
        match self.advanced.complete && !is_any {
            true => FeedOutcome::default(),
            false => self.finish_sets(index, SetKind::Advanced),
        }
    }

    /// A complete list of the DaemonSets of a kind has arrived.
    fn finish_sets(&mut self, index: &mut Index, kind: SetKind) -> FeedOutcome {
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
        FeedOutcome {
            gone,
            complete: vec![resource_of(kind)],
            ..FeedOutcome::default()
        }
    }

    /// Takes in a DaemonSet, watched or read.
    pub(super) fn apply_set(&mut self, index: &mut Index, set: &k8s::DaemonSet) -> FeedOutcome {
        let Some(key) = SetKey::of_set(set) else {
            return FeedOutcome::default();
        };
        match index.apply_set(set) {
            SetChange::Ignored => FeedOutcome {
                strays: index.is_stray(&key),
                ..FeedOutcome::default()
            },
            SetChange::Updated => FeedOutcome::of(RequeueDelay::Zero, [key]),
            SetChange::Watch(_) => {
                self.leave(&key);
                // All of the first list are put into groups at its end.
                if self.knows_sets() {
                    self.join(index, &key);
                }
                FeedOutcome::default()
            }
            SetChange::Unwatch => {
                self.leave(&key);
                FeedOutcome {
                    strays: index.is_stray(&key),
                    gone: vec![key],
                    ..FeedOutcome::default()
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
        event: Event<k8s::ControllerRevision>,
        now: Timestamp,
    ) -> FeedOutcome {
        let mut groups = self.groups.iter_mut();
        let Some(known) = groups.find(|known| known.revisions.number == number) else {
            return FeedOutcome::default();
        };
        let members = &known.group.members;
        let of_member = |revision: &k8s::ControllerRevision| {
            let owner = revision.metadata.owner_references.iter().flatten().next()?;
            let key = index.key_of(&owner.uid)?;
            members.contains_key(key).then(|| owner.uid.clone())
        };
        let is_listed = matches!(event, Event::InitApply(_));
        match event {
            Event::Init => known.revisions.begin(now),
            Event::InitApply(revision) | Event::Apply(revision) => {
                let Some(owner) = of_member(&revision) else {
                    return FeedOutcome::default();
                };
                if is_listed {
                    let name = revision.metadata.name.clone().unwrap_or_default();
                    known.revisions.listing.seen.insert((owner, name));
                }
                return FeedOutcome::of(RequeueDelay::Zero, index.apply_revision(&revision));
            }
            Event::Delete(revision) => {
                return FeedOutcome::of(RequeueDelay::Zero, index.delete_revision(&revision));
            }
            Event::InitDone => {
                let seen = known.revisions.listing.finish();
                let of_group = |key: &SetKey| members.contains_key(key);
                let mut concerned = index.retain_revisions(of_group, &seen);
                if known.pods.is_complete() {
                    concerned.extend(members.keys().cloned());
                }
                known.sync(index);
                return FeedOutcome::of(RequeueDelay::Zero, concerned);
            }
        }
        FeedOutcome::default()
    }

    fn pod(
        &mut self,
        index: &mut Index,
        number: u64,
        (event, said): (Event<k8s::Pod>, Timestamp),
        now: Timestamp,
    ) -> FeedOutcome {
        let mut groups = self.groups.iter_mut();
        let Some(known) = groups.find(|known| known.pods.number == number) else {
            return FeedOutcome::default();
        };
        let requeued = match event {
            Event::Init => {
                known.pods.begin(said);
                Vec::new()
            }
            Event::InitApply(pod) => {
                let requeued = known.apply_pod(index, &pod, now);
                if let Some(uid) = &pod.metadata.uid {
                    for (key, _) in &requeued {
                        let seen = known.pods.listing.seen.entry(key.clone()).or_default();
                        seen.insert(uid.as_str().into());
                    }
                }
                requeued
            }
            Event::Apply(pod) => {
                let mut requeued = known.take_from_others(index, &pod, now);
                requeued.extend(known.apply_pod(index, &pod, now));
                requeued
            }
            Event::Delete(pod) => known.delete_pod(index, &pod),
            Event::InitDone => known.finish_pods(index),
        };
        FeedOutcome {
            requeued,
            ..FeedOutcome::default()
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
            .owner_of(index, pod)
            .filter(|key| self.group.selects(key, label))
        {
            let delay = index.apply_pod(&key, pod, now);
            return delay.map(|delay| (key, delay)).into_iter().collect();
        }
        // Nobody's, or that of a DaemonSet which is gone: whoever knew it as its own learns that it is not any more.
        let mut requeued = Vec::new();
        for key in self.neighbours(pod) {
            let uid = || pod.metadata.uid.as_deref().unwrap_or_default();
            let delay = match self.group.selects(key, label) {
                true => index.apply_pod(key, pod, now),
                false => index.set_mut(key).map(|set| set.delete_pod(uid())),
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
        let Some(owner) = self.owner_of(index, pod) else {
            return Vec::new();
        };
        let set = index.set(&owner);
        if set.is_none_or(|set| set.place_of(&uid).is_some()) {
            return Vec::new();
        }
        let labels = pod.metadata.labels.as_ref();
        let label = |key: &str| labels?.get(key).map(String::as_str);
        self.neighbours(pod)
            .filter(|key| **key != owner && self.group.selects(key, label))
            .filter_map(|key| Some((key.clone(), index.apply_pod(key, pod, now)?)))
            .collect()
    }

    fn delete_pod(&self, index: &mut Index, pod: &k8s::Pod) -> Vec<(SetKey, RequeueDelay)> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
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
    fn owner_of(&self, index: &Index, pod: &k8s::Pod) -> Option<SetKey> {
        let mut owners = pod.metadata.owner_references.iter().flatten();
        let key = owners.find_map(|owner| index.key_of(&owner.uid))?;
        self.group.members.contains_key(key).then(|| key.clone())
    }

    /// Its DaemonSets in the namespace of the pod.
    fn neighbours(&self, pod: &k8s::Pod) -> impl Iterator<Item = &SetKey> {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let members = self.group.members.keys();
        members.filter(move |key| *key.namespace == *namespace)
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
