//! Cache of the watched objects (nodes, DaemonSets, ControllerRevisions, pods), from which each DaemonSet's [`Fleet`] is built.
//!
//! ```text
//! k8s::{Node, DaemonSet, ControllerRevision, Pod} ──apply──► Index ──view──► ParsedSettings + Fleet ──► core::decide
//!                      own writes ──Expectations──►
//! ```
//!
//! The index does no I/O and has no clock: the caller passes `now`.
//!
//! When the controller sees that a node or pod becomes Ready or NotReady, it records the time by its own clock. So the wrong clock
//! of a node can't shorten or lengthen a wait. For a change from before the controller's start, the index uses the time in the
//! object. It limits that time to the period between the object's creation and now.

mod advanced;
mod crowd_index;
mod disruptions;
mod ended;
mod expectations;
mod fleet_cache;
mod guarded;
mod joined;
mod key;
mod last_reported;
mod legacy;
mod node;
mod pod;
mod pod_index;
mod pod_problem;
mod set;
mod texts;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;

use crate::core::eligibility::Obstacle;
use crate::core::images::ImageKey;
use crate::core::messages;
use crate::core::revision::{RevisionFacts, adopted, hash_of};
use crate::core::{
    Fleet, InView, Invalid, NodeName, ParsedSettings, Revision, RevisionState, Strategy, Targeting,
    settings,
};
use crate::k8s::{self, Item, Unreadable};

pub(crate) use crate::core::names::OWN_CONDITIONS;
pub use advanced::{AdvancedRecord, NumbersDue, Orphan, StatusNumbers};
pub use expectations::{PodWrite, UNSEEN, WriteAnswer};
pub use key::{SetKey, SetKind};
pub use set::{PodController, RequeueDelay, SetRecord};

use node::NodeRecord;
use texts::Texts;

/// Cached state of all watched objects.
#[derive(Debug, Default)]
pub struct Index {
    nodes: BTreeMap<NodeName, NodeRecord>,
    sets: BTreeMap<SetKey, Box<SetRecord>>,
    /// Keys of `sets`, by UID of the DaemonSet.
    uids: BTreeMap<Arc<str>, SetKey>,
    revisions: BTreeMap<Arc<str>, BTreeMap<Arc<str>, OwnedRevision>>,
    /// Parse errors of unreadable ControllerRevisions, by the UID of their owner and by name.
    unreadable_revisions: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Arc<str>>>,
    texts: Texts,
    /// DaemonSets that are not managed although their owners may expect that they are.
    unmanaged: BTreeMap<SetKey, Unmanaged>,
    /// Images for which the index records the nodes that have them: the images of all revisions of DaemonSets that pre-pull images.
    wanted: BTreeSet<ImageKey>,
    /// See [`Fleet::in_order`].
    in_order: bool,
}

#[derive(Debug)]
struct OwnedRevision {
    daemonset: SetKey,
    facts: RevisionFacts,
}

/// DaemonSet that is not managed although its owner may expect that it is.
///
/// Either its annotations only look like settings of yurt-ds, or finalizers of other programs prevent its deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmanaged {
    /// UID of the DaemonSet.
    pub uid: Arc<str>,
    /// Reason of the Event about the DaemonSet.
    pub reason: &'static str,
    /// Message of the Event.
    pub text: Arc<str>,
}

impl Unmanaged {
    /// Returns a suffix for the name of the Event. All replicas compute the same suffix, so together they write only one Event.
    pub fn mark(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.text.hash(&mut hasher);
        format!("{}-{:x}", self.reason.to_lowercase(), hasher.finish())
    }
}

/// Effect of a changed DaemonSet on the watch of its pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetChange {
    /// The DaemonSet needs neither a watch nor a decision.
    Ignored,
    /// The pods are watched already. Only a new decision is needed.
    Updated,
    /// Start a watch of the pods, with this label selector.
    Watch(String),
    /// Stop the watch of the pods.
    Unwatch,
}

impl Index {
    /// Records whether the native controller sees changes of several pods in the order in which they happened
    /// ([`Fleet::in_order`]). Before the first call, the index assumes that the order may differ.
    ///
    /// Returns the DaemonSets whose decision may change.
    pub fn know_order(&mut self, in_order: bool) -> Vec<SetKey> {
        if std::mem::replace(&mut self.in_order, in_order) == in_order {
            Vec::new()
        } else {
            self.sets.keys().cloned().collect()
        }
    }

    /// Stores a Node. Returns the DaemonSets whose decision may change.
    pub fn apply_node(&mut self, node: &k8s::Node, now: Timestamp) -> Vec<SetKey> {
        let Some(name) = node.metadata.name.as_deref() else {
            return Vec::new();
        };
        let name = NodeName::from(self.texts.share(name));
        let known = self.nodes.get(&name);
        let record = NodeRecord::read(node, known, &mut self.texts, &self.wanted, now);
        self.take_node(name, record)
    }

    fn take_node(&mut self, name: NodeName, record: NodeRecord) -> Vec<SetKey> {
        if self.nodes.get(&name) == Some(&record) {
            return Vec::new();
        }
        let before = self.nodes.insert(name.clone(), record);
        self.touch(&name);
        let after = self.nodes.get(&name);
        self.sets_concerned(&name, before.as_ref(), after)
    }

    /// Records that a Node is unreadable. Returns the DaemonSets whose decision may change.
    pub fn note_unreadable_node(&mut self, name: &str) -> Vec<SetKey> {
        let name = NodeName::from(self.texts.share(name));
        let record = NodeRecord::unreadable(self.nodes.get(&name));
        self.take_node(name, record)
    }

    /// Removes a deleted Node. Returns the DaemonSets whose decision may change.
    pub fn delete_node(&mut self, name: &str) -> Vec<SetKey> {
        let name = NodeName::from(name);
        let before = self.nodes.remove(&name);
        self.touch(&name);
        for set in self.sets.values_mut() {
            set.podless.remove(&name);
        }
        self.sets_concerned(&name, before.as_ref(), None)
    }

    /// Removes the Nodes that a complete list doesn't contain. Returns the DaemonSets whose decision may change.
    pub fn retain_nodes(&mut self, seen: &BTreeSet<String>) -> Vec<SetKey> {
        let gone: Vec<NodeName> = self
            .nodes
            .keys()
            .filter(|name| !seen.contains(name.as_str()))
            .cloned()
            .collect();
        let concerned: BTreeSet<SetKey> = gone
            .iter()
            .flat_map(|name| self.delete_node(name.as_str()))
            .collect();
        concerned.into_iter().collect()
    }

    fn touch(&mut self, node: &NodeName) {
        for set in self.sets.values_mut() {
            set.cache.mark_dirty(node);
        }
    }

    fn sets_concerned(
        &self,
        name: &NodeName,
        before: Option<&NodeRecord>,
        after: Option<&NodeRecord>,
    ) -> Vec<SetKey> {
        let wanted = |set: &SetRecord, node: Option<&NodeRecord>| {
            node.is_some_and(|node| set.scheduling.targeting(&node.facts(name)) == Targeting::Run)
        };
        let concerned =
            |set: &SetRecord| set.has_pods_on(name) || wanted(set, before) || wanted(set, after);
        self.sets
            .iter()
            .filter(|(_, set)| concerned(set))
            .map(|(key, _)| key.clone())
            .collect()
    }

    /// Stores a Node from a list, which may be unreadable. Returns the DaemonSets whose decision may change.
    pub fn take_listed_node(&mut self, node: &Item<k8s::Node>, now: Timestamp) -> Vec<SetKey> {
        match node {
            Ok(node) => self.apply_node(node, now),
            Err(unreadable) => {
                let name = unreadable.metadata.name.as_deref();
                name.map_or_else(Vec::new, |name| self.note_unreadable_node(name))
            }
        }
    }

    /// Stores a ControllerRevision from a list, which may be unreadable. Returns its DaemonSet if that is known.
    pub fn take_listed_revision(
        &mut self,
        revision: &Item<k8s::ControllerRevision>,
    ) -> Option<SetKey> {
        match revision {
            Ok(revision) => self.apply_revision(revision),
            Err(unreadable) => {
                let meta = &unreadable.metadata;
                let owner = meta.owner_references.iter().flatten().next()?;
                let key = self.uids.get(&*owner.uid).cloned()?;
                if meta.namespace.as_deref() != Some(&*key.namespace) {
                    return None;
                }
                let name = meta.name.as_deref()?;
                self.note_unreadable_revision(&owner.uid, name, &unreadable.error);
                Some(key)
            }
        }
    }

    /// Stores a DaemonSet. Returns the effect on the watch of its pods.
    pub fn apply_set(&mut self, set: &k8s::DaemonSet) -> SetChange {
        let change = self.take_set(set);
        if change != SetChange::Ignored {
            self.look_for_images();
        }
        change
    }

    fn take_set(&mut self, set: &k8s::DaemonSet) -> SetChange {
        let record = SetRecord::read(set);
        let key = record.key();
        if key.namespace.is_empty() || key.name.is_empty() {
            return SetChange::Ignored;
        }
        let stray = match record.reading {
            ParsedSettings::NotOurs => unmanaged(set),
            ParsedSettings::Strategy { .. } | ParsedSettings::Invalid(..) => undeletable(set),
        };
        match stray {
            Some(stray) => drop(self.unmanaged.insert(key.clone(), stray)),
            None => drop(self.unmanaged.remove(&key)),
        }
        let known = self.sets.get_mut(&key);
        if record.is_finished() || set.metadata.deletion_timestamp.is_some() {
            return if self.remove_set(&key) {
                SetChange::Unwatch
            } else {
                SetChange::Ignored
            };
        }
        match known {
            Some(known) if known.uid == record.uid && known.selector == record.selector => {
                if known.update(record) {
                    SetChange::Updated
                } else {
                    SetChange::Ignored
                }
            }
            _ => {
                self.remove_set(&key);
                let selector = record.selector.clone();
                self.uids.insert(record.uid.clone(), key.clone());
                self.sets.insert(key, Box::new(record));
                SetChange::Watch(selector)
            }
        }
    }

    /// Removes a DaemonSet. Returns true if its pods were watched.
    pub fn delete_set(&mut self, key: &SetKey) -> bool {
        self.unmanaged.remove(key);
        self.remove_set(key)
    }

    /// Removes a DaemonSet and its revisions. If it is watched again, its revisions are listed again.
    fn remove_set(&mut self, key: &SetKey) -> bool {
        let removed = self.sets.remove(key);
        if let Some(set) = &removed {
            self.uids.remove(&set.uid);
            self.revisions.remove(&set.uid);
            self.unreadable_revisions.remove(&set.uid);
        }
        removed.is_some()
    }

    /// Returns the DaemonSet with this UID, if it is known.
    pub fn key_of(&self, uid: &str) -> Option<&SetKey> {
        self.uids.get(uid)
    }

    /// Stores a ControllerRevision. Returns the DaemonSet that owns it.
    pub fn apply_revision(&mut self, revision: &k8s::ControllerRevision) -> Option<SetKey> {
        let meta = &revision.metadata;
        let owner = meta
            .owner_references
            .iter()
            .flatten()
            .find(|owner| owner.kind == "DaemonSet")?;
        let (namespace, name) = (meta.namespace.as_deref()?, meta.name.as_deref()?);
        self.forget_unreadable_revision(&owner.uid, name);
        let label = meta
            .labels
            .as_ref()
            .and_then(|labels| labels.get(crate::core::names::REVISION_HASH_LABEL));
        let template = revision.template.as_ref()?;
        let facts = RevisionFacts {
            number: revision.revision,
            hash: hash_of(label.map(String::as_str), name, &owner.name),
            made: meta.creation_timestamp.as_ref().map(|time| time.0),
            adopted: adopted(meta),
            template: template.fingerprint,
            shape: template.shape.clone(),
            images: template.images.as_slice().into(),
        };
        let kind = SetKind::of_api_version(&owner.api_version);
        let daemonset = SetKey::of_kind(kind, namespace, &owner.name);
        let owned = self.revisions.entry(owner.uid.as_str().into()).or_default();
        owned.insert(
            name.into(),
            OwnedRevision {
                daemonset: daemonset.clone(),
                facts,
            },
        );
        if self.pulls_ahead(&daemonset) {
            self.look_for_images();
        }
        Some(daemonset)
    }

    /// Records that a ControllerRevision can't be parsed, with the reason. `owner` is the UID of its DaemonSet.
    ///
    /// Until it can be parsed, the settings of the DaemonSet count as invalid ([`Self::reading`]).
    pub fn note_unreadable_revision(&mut self, owner: &str, name: &str, why: &Arc<str>) {
        let owned = self.unreadable_revisions.entry(owner.into()).or_default();
        owned.insert(name.into(), why.clone());
    }

    fn forget_unreadable_revision(&mut self, owner: &str, name: &str) {
        if let Some(owned) = self.unreadable_revisions.get_mut(owner) {
            owned.remove(name);
            if owned.is_empty() {
                self.unreadable_revisions.remove(owner);
            }
        }
    }

    fn pulls_ahead(&self, key: &SetKey) -> bool {
        self.sets.get(key).is_some_and(|set| set.pulls_ahead())
    }

    /// Updates `wanted`, the set of images that are recorded for each Node.
    ///
    /// The index records the images of a Node when the Node changes next. That takes at most five minutes, because the kubelet
    /// updates the Node's status at least that often.
    fn look_for_images(&mut self) {
        let sets = self.sets.values().filter(|set| set.pulls_ahead());
        let owned = sets.filter_map(|set| self.revisions.get(&set.uid));
        let revisions = owned.flat_map(BTreeMap::values);
        let images = revisions.flat_map(|owned| owned.facts.images.iter());
        let fixed = images.filter(|image| !image.moves);
        self.wanted = fixed.map(|image| image.key).collect();
    }

    /// Removes the ControllerRevision with this metadata, even if its content can't be parsed. Returns the DaemonSet that owned it.
    pub fn delete_revision(&mut self, meta: &ObjectMeta) -> Option<SetKey> {
        let owner = &*meta.owner_references.iter().flatten().next()?.uid;
        let name = meta.name.as_deref()?;
        let was_unreadable = self.unreadable_revisions.contains_key(owner);
        self.forget_unreadable_revision(owner, name);
        let removed = self.revisions.get_mut(owner).and_then(|owned| {
            let removed = owned.remove(name);
            removed.map(|removed| (removed, owned.is_empty()))
        });
        let Some((removed, is_empty)) = removed else {
            return was_unreadable.then(|| self.uids.get(owner).cloned())?;
        };
        if is_empty {
            self.revisions.remove(owner);
        }
        let daemonset = removed.daemonset;
        if self.pulls_ahead(&daemonset) {
            self.look_for_images();
        }
        Some(daemonset)
    }

    /// Removes the ControllerRevisions that a complete list doesn't contain, of the DaemonSets for which `of` is true.
    ///
    /// `seen` has the owner's UID and the name of each ControllerRevision in the list. Returns the DaemonSets whose decision may
    /// change.
    pub fn retain_revisions(
        &mut self,
        of: impl Fn(&SetKey) -> bool,
        seen: &BTreeSet<(String, String)>,
    ) -> Vec<SetKey> {
        let mut concerned = BTreeSet::new();
        for (owner, owned) in &mut self.revisions {
            owned.retain(|name, revision| {
                let entry = (owner.to_string(), name.to_string());
                let kept = !of(&revision.daemonset) || seen.contains(&entry);
                if !kept {
                    concerned.insert(revision.daemonset.clone());
                }
                kept
            });
        }
        self.revisions.retain(|_, owned| !owned.is_empty());
        let uids = &self.uids;
        self.unreadable_revisions.retain(|owner, owned| {
            let key = uids.get(owner).filter(|key| of(key));
            owned.retain(|name, _| {
                let entry = (owner.to_string(), name.to_string());
                let kept = key.is_none() || seen.contains(&entry);
                concerned.extend(key.filter(|_| !kept).cloned());
                kept
            });
            !owned.is_empty()
        });
        concerned.into_iter().collect()
    }

    /// Returns the DaemonSets that are not managed although their owners may expect that they are.
    pub fn unmanaged(&self) -> impl Iterator<Item = (&SetKey, &Unmanaged)> {
        self.unmanaged.iter()
    }

    /// Returns true if the DaemonSet is one of [`unmanaged`](Self::unmanaged).
    pub fn is_stray(&self, key: &SetKey) -> bool {
        self.unmanaged.contains_key(key)
    }

    /// Removes the [`unmanaged`](Self::unmanaged) DaemonSets that a complete list doesn't contain.
    pub fn retain_strays(&mut self, seen: &BTreeSet<SetKey>) {
        self.unmanaged.retain(|key, _| seen.contains(key));
    }

    /// Returns the record of a DaemonSet.
    pub fn set(&self, key: &SetKey) -> Option<&SetRecord> {
        self.sets.get(key).map(|set| &**set)
    }

    /// Returns the record of a DaemonSet to change it, when the controller itself writes to the DaemonSet or its pods.
    pub fn set_mut(&mut self, key: &SetKey) -> Option<&mut SetRecord> {
        self.sets.get_mut(key).map(|set| &mut **set)
    }

    /// Stores a pod that may belong to the DaemonSet `key`. Returns the delay of the next decision; `None` if the DaemonSet is
    /// unknown.
    pub fn apply_pod(
        &mut self,
        key: &SetKey,
        pod: &k8s::Pod,
        now: Timestamp,
    ) -> Option<RequeueDelay> {
        let set = self.sets.get_mut(key)?;
        Some(set.apply_pod(pod, &mut self.texts, now))
    }

    /// Records that a pod of a DaemonSet can't be parsed, with the reason.
    ///
    /// Until the pod is readable, no pod on its node is changed. If the node is unknown, no pod of the DaemonSet is changed.
    pub fn note_unreadable_pod(&mut self, key: &SetKey, unreadable: &Unreadable) {
        let node = unreadable
            .node
            .as_deref()
            .map(|node| self.texts.share(node));
        if let Some(set) = self.sets.get_mut(key) {
            set.note_unreadable_pod(unreadable, node.map(NodeName::from));
        }
    }

    /// Forgets what this replica reported in conditions. Afterwards, the status of each DaemonSet counts again, because another
    /// replica may have written it.
    pub fn forget_reported(&mut self) {
        self.sets.values_mut().for_each(|set| set.forget_reported());
    }

    /// Returns the managed DaemonSets. A DaemonSet that is no longer managed is included until its conditions are removed.
    pub fn keys(&self) -> impl Iterator<Item = &SetKey> {
        self.sets.keys()
    }

    /// Returns the revisions of the DaemonSet with this UID.
    pub fn revisions_of(&self, uid: &str) -> Vec<RevisionFacts> {
        self.revisions
            .get(uid)
            .into_iter()
            .flat_map(BTreeMap::values)
            .map(|owned| owned.facts.clone())
            .collect()
    }

    /// Returns the number of revisions of a DaemonSet.
    pub fn count_revisions(&self, uid: &str) -> usize {
        self.revisions.get(uid).map_or(0, BTreeMap::len)
    }

    /// Returns the revisions of a DaemonSet, each with the name of its ControllerRevision.
    pub fn named_revisions_of(&self, uid: &str) -> Vec<(Arc<str>, RevisionFacts)> {
        let owned = self.revisions.get(uid).into_iter().flatten();
        owned
            .map(|(name, owned)| (name.clone(), owned.facts.clone()))
            .collect()
    }

    /// Removes the ControllerRevision with this name after the controller deleted it.
    pub fn forget_revision(&mut self, uid: &str, name: &str) {
        if let Some(owned) = self.revisions.get_mut(uid) {
            owned.remove(name);
        }
    }

    /// Returns the numbers for the status of an Advanced DaemonSet; `None` if the DaemonSet is unknown or native.
    ///
    /// `handled` is true if the controller has observed the current generation.
    pub fn numbers(
        &self,
        key: &SetKey,
        state: &RevisionState,
        handled: bool,
        now: Timestamp,
    ) -> Option<StatusNumbers> {
        let set = self.sets.get(key)?;
        set.advanced.as_ref()?;
        let nodes = self.nodes.iter().map(|(name, record)| {
            let native = set.scheduling.native_targeting(&record.facts(name));
            (name, native)
        });
        let counts = set.counts(nodes, now);
        Some(set.numbers(counts, state, handled))
    }

    /// Returns the name of the ControllerRevision with this hash; `None` if it is unknown.
    ///
    /// The name can't be derived from the hash, because an adopted revision has the name of the DaemonSet that created it.
    pub fn revision_name(&self, uid: &str, hash: &Revision) -> Option<&str> {
        let mut owned = self.revisions.get(uid)?.iter();
        let found = owned.find(|(_, owned)| owned.facts.hash == *hash);
        found.map(|(name, _)| &**name)
    }

    /// Returns the names of all nodes, sorted.
    pub fn node_names(&self) -> impl Iterator<Item = &NodeName> {
        self.nodes.keys()
    }

    /// Returns the fleet of a DaemonSet at `now`: the cached objects, as they are after the controller's pending writes.
    pub fn fleet(&mut self, key: &SetKey, now: Timestamp) -> Option<Arc<Fleet>> {
        self.joined(key, None, now)
    }

    /// Returns the fleet for a decision by `strategy`. Nodes that the decision doesn't need are only counted, in [`Fleet::crowd`].
    ///
    /// The caller passes the resulting `InView` to [`widen`](Self::widen).
    pub fn view(
        &mut self,
        key: &SetKey,
        strategy: &Strategy,
        now: Timestamp,
    ) -> Option<Arc<Fleet>> {
        self.joined(key, Some(strategy), now)
    }

    /// Records whether the nodes that a [view](Self::view) lists were enough for a decision at `now`.
    ///
    /// Returns true if they were not enough. The caller then has to decide again with a new view, which lists more nodes.
    pub fn widen(&mut self, key: &SetKey, view: InView, now: Timestamp) -> bool {
        let set = self.sets.get_mut(key);
        set.is_some_and(|set| set.cache.widen(view, now))
    }

    fn joined(
        &mut self,
        key: &SetKey,
        strategy: Option<&Strategy>,
        now: Timestamp,
    ) -> Option<Arc<Fleet>> {
        let uid = self.sets.get(key)?.uid.clone();
        let revisions = self.revisions_of(&uid);
        let set = self.sets.get_mut(key)?;
        set.confirm(&revisions);
        let around = joined::Surroundings {
            key,
            nodes: &self.nodes,
            revisions: &revisions,
            basis: &set.basis(&revisions),
            // The yurt-ds controller creates the pods of an Advanced DaemonSet itself, and it sees its own changes in order.
            in_order: self.in_order || key.is_advanced(),
            now,
        };
        Some(joined::fleet(set, &around, strategy))
    }

    /// Returns the settings of a DaemonSet. They count as invalid if one of its ControllerRevisions can't be parsed, or if one of
    /// its pods can't be parsed and the node of the pod is unknown.
    pub fn reading(&self, key: &SetKey) -> Option<Cow<'_, ParsedSettings>> {
        let set = self.sets.get(key)?;
        let unreadable = match set.reading {
            ParsedSettings::NotOurs => None,
            _ => self.unreadable_part(set),
        };
        Some(match unreadable {
            Some(invalid) => Cow::Owned(set.reading.refused(invalid)),
            None => Cow::Borrowed(&set.reading),
        })
    }

    /// Returns the error about the first unreadable object that concerns more than one node of the DaemonSet.
    fn unreadable_part(&self, set: &SetRecord) -> Option<Invalid> {
        let revisions = self.unreadable_revisions.get(&set.uid);
        let revision = revisions.and_then(BTreeMap::first_key_value);
        let revision = revision.map(|(name, why)| ("ControllerRevision", &**name, &**why));
        let (kind, name, why) = revision.or_else(|| {
            let (name, why) = set.unreadable_pod_somewhere()?;
            Some(("Pod", name.as_str(), why))
        })?;
        let what = format!("{kind} {}/{name}", set.namespace);
        Some(Invalid::unreadable(&what, why))
    }

    /// Returns the reason why the DaemonSet runs no pod on a node; `None` if it runs one, or if the DaemonSet or the node is
    /// unknown.
    pub fn obstacle(&self, key: &SetKey, node: &NodeName) -> Option<Obstacle> {
        let facts = self.nodes.get(node)?.facts(node);
        self.sets.get(key)?.scheduling.obstacle(&facts)
    }

    /// Returns the revision hashes of this DaemonSet's pods that no known ControllerRevision has.
    pub fn unknown_hashes(&self, key: &SetKey) -> Vec<Revision> {
        let Some(set) = self.sets.get(key) else {
            return Vec::new();
        };
        let revisions = self.revisions_of(&set.uid);
        set.unknown_hashes(&revisions)
    }
}

/// Finalizers of the garbage collector. It removes them itself after it has deleted or orphaned the DaemonSet's pods.
const OF_DELETION: [&str; 2] = ["foregroundDeletion", "orphan"];

/// Returns a report if finalizers of other programs keep a deleted DaemonSet from being removed.
fn undeletable(set: &k8s::DaemonSet) -> Option<Unmanaged> {
    let meta = &set.metadata;
    meta.deletion_timestamp.as_ref()?;
    let finalizers = meta.finalizers.iter().flatten().map(String::as_str);
    let others: Vec<&str> = finalizers
        .filter(|finalizer| !OF_DELETION.contains(finalizer))
        .collect();
    (!others.is_empty()).then(|| Unmanaged {
        uid: meta.uid.as_deref().unwrap_or_default().into(),
        reason: "BeingDeleted",
        text: messages::undeletable(&others).into(),
    })
}

/// Returns a report if the DaemonSet is not managed, but has settings that look like those of yurt-ds.
fn unmanaged(set: &k8s::DaemonSet) -> Option<Unmanaged> {
    let meta = &set.metadata;
    let source = set.settings();
    let text = settings::stray(
        source.annotations,
        source.update_strategy,
        source.in_template,
    )?;
    Some(Unmanaged {
        uid: meta.uid.as_deref().unwrap_or_default().into(),
        reason: "Unmanaged",
        text: text.into(),
    })
}

#[cfg(test)]
mod tests;
