//! What is remembered of an Advanced DaemonSet beyond a native one: how its pods are made, which were asked for, which have
//! lost their owner, and its numbers.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::expectations::UNANSWERED;
use crate::core::instant::later;
use crate::core::{
    DaemonSetCounts, FailedPodsBackoff, ManageTerms, NodeName, ParsedSettings, PodRef, PodUid,
    Revision, Scaling,
};
use crate::k8s;
use crate::k8s::AdvancedStatus;

/// The least time between two writes of numbers alone; with those of conditions, which come at once, a rollout writes no more than
/// once a second.
const BETWEEN_COUNTS: SignedDuration = SignedDuration::from_millis(1250);

/// Where pods were refused on so many nodes in turn, the next node is no other.
const REFUSED_NODES: usize = 10;

/// A pod to adopt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// The pod.
    pub pod: PodRef,
    /// UID of the ControllerRevision that controls it and gives it up: a native DaemonSet made the pod for `max-surge`.
    pub revision: Option<String>,
}

/// What an Advanced DaemonSet has beyond a native one.
#[derive(Debug)]
pub struct AdvancedRecord {
    /// How its pods are made.
    pub scaling: Scaling,
    /// Whether they can be made and found; otherwise nothing is done.
    pub is_workable: bool,
    /// Its status as it stands on it, without conditions.
    pub stands: AdvancedStatus,
    /// Nodes for which a pod was asked, and when that was answered, until it shows or nobody expects it any more.
    creating: BTreeMap<NodeName, Timestamp>,
    /// Those of them that nobody has answered for yet: no list can tell what becomes of them.
    asked: BTreeSet<NodeName>,
    /// When pods that are over may go.
    backoff: FailedPodsBackoff,
    /// Pods to adopt: its selector matches them, and nothing controls them, or a ControllerRevision of a native DaemonSet does.
    orphans: BTreeMap<PodUid, Orphan>,
    /// All of them, with their nodes: until one is adopted, or gone, no other is made beside it.
    free: BTreeMap<PodUid, NodeName>,
    /// Pods that go whatever the rollout says: nobody replaces them by that.
    leaving: BTreeSet<PodUid>,
    /// How often a revision had to get another name because its own was taken.
    pub collisions: i64,
    /// Nodes of which a pod is gone; no more than there are nodes.
    held: BTreeSet<NodeName>,
    /// Nodes for which the API server refused a pod, and how often in a row.
    refused: BTreeMap<NodeName, u32>,
    /// The numbers that were sent last, and when.
    sent: Option<(StatusNumbers, Timestamp)>,
}

/// What the status says beside conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusNumbers {
    /// How many nodes there are of each kind.
    pub counts: DaemonSetCounts,
    /// The current revision; `None`: it is not known yet.
    pub revision: Option<Revision>,
    /// The generation that was handled.
    pub observed: i64,
    /// How often a revision had to get another name because its own was taken.
    pub collisions: i64,
}

fn stands(set: &k8s::DaemonSet) -> AdvancedStatus {
    let mut stands = set.status.advanced.as_deref().cloned().unwrap_or_default();
    stands.conditions = Vec::new();
    stands
}

fn uid_of(pod: &k8s::Pod) -> PodUid {
    pod.metadata.uid.as_deref().unwrap_or_default().into()
}

/// Whether numbers are to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumbersDue {
    /// They stand there already, or were sent.
    No,
    /// Now.
    Now,
    /// Then, if they are the same.
    At(Timestamp),
}

impl AdvancedRecord {
    pub(super) fn read(set: &k8s::DaemonSet) -> Option<Box<Self>> {
        let fields = set.spec.fields.as_ref()?;
        Some(Box::new(Self {
            scaling: fields.scaling,
            is_workable: fields.is_workable(),
            stands: stands(set),
            creating: BTreeMap::new(),
            asked: BTreeSet::new(),
            backoff: FailedPodsBackoff::default(),
            orphans: BTreeMap::new(),
            free: BTreeMap::new(),
            leaving: BTreeSet::new(),
            collisions: set
                .status
                .advanced
                .as_ref()
                .and_then(|status| status.collision_count)
                .unwrap_or(0),
            held: BTreeSet::new(),
            refused: BTreeMap::new(),
            sent: None,
        }))
    }

    /// Takes over a newer version of the object. Returns whether its pods are created differently now, or its status has other
    /// numbers than were written.
    pub(super) fn update(&mut self, newer: Self) -> bool {
        let changed = (self.scaling, self.is_workable) != (newer.scaling, newer.is_workable);
        (self.scaling, self.is_workable) = (newer.scaling, newer.is_workable);
        let differs = self.stands != newer.stands;
        self.stands = newer.stands;
        changed || differs && self.numbers_that_stand().as_ref() != self.sent_numbers()
    }

    /// The object was changed by its owner: pods that are over go at once again.
    pub(super) fn forget_failures(&mut self) {
        self.backoff.reset();
        self.refused.clear();
    }

    /// Remembers whether a pod for `node` was refused.
    pub fn note_creation(&mut self, node: &NodeName, refused: bool) {
        if refused {
            *self.refused.entry(node.clone()).or_default() += 1;
        } else {
            self.refused.remove(node);
        }
    }

    /// Of these nodes those that may be tried while refusals are waited for: none was refused there. Where many were in turn it is
    /// the DaemonSet that is refused (a quota), and nobody is tried.
    pub fn untried(&self, mut nodes: Vec<NodeName>) -> Vec<NodeName> {
        if self.refused.len() < REFUSED_NODES {
            nodes.retain(|node| !self.refused.contains_key(node))
        } else {
            nodes.clear()
        }
        nodes
    }

    /// What the choice of pods depends on.
    pub fn terms<'a>(&'a self, reading: &'a ParsedSettings, now: Timestamp) -> ManageTerms<'a> {
        ManageTerms {
            strategy: reading.usable(),
            keeps_pairs: matches!(reading, ParsedSettings::Invalid(..)),
            scaling: self.scaling,
            creating: &self.creating,
            refused: &self.refused,
            orphans: &self.free,
            backoff: &self.backoff,
            now,
        }
    }

    /// Pods are asked for on these nodes.
    pub fn begin_creation<'a>(
        &mut self,
        nodes: impl Iterator<Item = &'a NodeName>,
        now: Timestamp,
    ) {
        for node in nodes {
            self.creating.insert(node.clone(), now);
            self.asked.insert(node.clone());
        }
    }

    /// The API server, or nobody within the deadline, has answered for that one at `now`: from then on it has to show.
    pub fn answer_creation(&mut self, node: &NodeName, now: Timestamp) {
        self.asked.remove(node);
        if let Some(at) = self.creating.get_mut(node) {
            *at = now;
        }
    }

    /// Nobody will answer for those that were asked for.
    pub(super) fn lose_answers(&mut self, now: Timestamp) {
        for node in std::mem::take(&mut self.asked) {
            self.answer_creation(&node, now);
        }
    }

    /// That one shows, or it was not made.
    pub fn end_creation(&mut self, node: &NodeName) {
        self.creating.remove(node);
    }

    /// When the pods have to be listed anew because nobody knows whether one was made.
    pub(super) fn creation_due(&self) -> Option<Timestamp> {
        let answered = self.creating.iter();
        let answered = answered.filter(|(node, _)| !self.asked.contains(*node));
        answered.map(|(_, at)| later(*at, UNANSWERED)).min()
    }

    /// A complete list of the pods began then.
    pub(super) fn retain_creations(&mut self, began: Option<Timestamp>) {
        let Some(began) = began else { return };
        let asked = &self.asked;
        self.creating
            .retain(|node, at| asked.contains(node) || later(*at, UNANSWERED) > began);
    }

    /// A pod that is over went.
    pub fn note_over(&mut self, node: &NodeName, now: Timestamp) {
        self.backoff.note(node, now);
    }

    /// Takes in a pod that is not this DaemonSet's; whether it is news that it could be.
    pub(super) fn note_orphan(&mut self, pod: &k8s::Pod) -> bool {
        let mut owners = pod.metadata.owner_references.iter().flatten();
        if owners.any(|owner| owner.controller == Some(true)) {
            self.forget_orphan(&uid_of(pod))
        } else {
            self.note_to_adopt(pod, None)
        }
    }

    /// Takes in a pod that a native DaemonSet made for `max-surge`: a ControllerRevision controls it. Returns whether that is news.
    pub(super) fn note_made_beside(&mut self, pod: &k8s::Pod) -> bool {
        let mut owners = pod.metadata.owner_references.iter().flatten();
        let revision = owners.find(|owner| owner.controller == Some(true));
        self.note_to_adopt(pod, revision.map(|revision| revision.uid.clone()))
    }

    fn note_to_adopt(&mut self, pod: &k8s::Pod, revision: Option<String>) -> bool {
        let (meta, uid) = (&pod.metadata, uid_of(pod));
        if meta.deletion_timestamp.is_some() {
            return self.forget_orphan(&uid);
        }
        if let Some(node) = pod.spec.target_node() {
            self.free.insert(uid.clone(), node.into());
        }
        let pod = PodRef {
            name: meta.name.as_deref().unwrap_or_default().into(),
            uid: uid.clone(),
            resource_version: meta.resource_version.as_deref().unwrap_or_default().into(),
        };
        let orphan = Orphan { pod, revision };
        self.orphans.insert(uid, orphan).is_none()
    }

    /// Forgets an orphan; whether a pod can be made in its place now.
    pub(super) fn forget_orphan(&mut self, uid: &PodUid) -> bool {
        self.orphans.remove(uid);
        self.free.remove(uid).is_some()
    }

    /// The orphans, each told once: whoever adopts one hears of it again only when it changes.
    pub fn take_orphans(&mut self) -> Vec<Orphan> {
        std::mem::take(&mut self.orphans).into_values().collect()
    }

    /// This one could not be adopted; it is told once more, unless it is another one by now.
    pub fn return_orphan(&mut self, orphan: Orphan) {
        let uid = &orphan.pod.uid;
        if self.free.contains_key(uid) {
            self.orphans.entry(uid.clone()).or_insert(orphan);
        }
    }

    /// A pod of that node is gone.
    pub(super) fn note_held(&mut self, node: &NodeName) {
        if !self.held.contains(node) {
            self.held.insert(node.clone());
        }
    }

    /// Whether a pod of that node is.
    pub(super) fn had_pod(&self, node: &NodeName) -> bool {
        self.held.contains(node)
    }

    /// Of the other nodes it is forgotten: they are gone.
    pub(super) fn keep_held(&mut self, is_there: impl FnMut(&NodeName) -> bool) {
        self.held.retain(is_there);
    }

    /// From now on these pods go whatever the rollout says.
    pub fn set_leaving(&mut self, leaving: BTreeSet<PodUid>) {
        self.leaving = leaving;
    }

    /// Whether this pod does.
    pub(super) fn is_leaving(&self, uid: &PodUid) -> bool {
        self.leaving.contains(uid)
    }

    /// Says when to write these numbers. They are compared with the ones that were sent while these are `unseen`, and with the status
    /// otherwise.
    pub fn numbers_due(&self, numbers: &StatusNumbers, unseen: bool, now: Timestamp) -> NumbersDue {
        let stands = self.numbers_that_stand();
        let known = if unseen {
            self.sent_numbers()
        } else {
            stands.as_ref()
        };
        match &self.sent {
            _ if known == Some(numbers) => NumbersDue::No,
            // What changed more than how many: at once.
            Some((sent, _))
                if (&sent.revision, sent.observed) != (&numbers.revision, numbers.observed) =>
            {
                NumbersDue::Now
            }
            Some((_, at)) => match at.checked_add(BETWEEN_COUNTS) {
                Ok(then) if then > now => NumbersDue::At(then),
                _ => NumbersDue::Now,
            },
            None => NumbersDue::Now,
        }
    }

    /// Until when numbers of this generation are not written again, if that is after `now`.
    pub fn counted_until(&self, generation: i64, now: Timestamp) -> Option<Timestamp> {
        let (sent, at) = self.sent.as_ref()?;
        let until = at.checked_add(BETWEEN_COUNTS).ok()?;
        (sent.observed == generation && until > now).then_some(until)
    }

    /// The numbers that were sent last.
    pub fn sent_numbers(&self) -> Option<&StatusNumbers> {
        self.sent.as_ref().map(|(sent, _)| sent)
    }

    fn numbers_that_stand(&self) -> Option<StatusNumbers> {
        let revision = self.stands.update_revision.as_deref();
        let same = revision == self.stands.daemon_set_hash.as_deref();
        Some(StatusNumbers {
            counts: self.stands.counts()?,
            revision: revision.filter(|_| same).map(Revision::from),
            observed: self.stands.observed_generation?,
            collisions: self.stands.collision_count.unwrap_or(0),
        })
    }

    /// These numbers are sent at `now`.
    pub fn begin_numbers(&mut self, numbers: StatusNumbers, now: Timestamp) {
        self.sent = Some((numbers, now));
    }

    /// They were not written.
    pub(super) fn lose_numbers(&mut self) {
        self.sent = None;
    }
}
