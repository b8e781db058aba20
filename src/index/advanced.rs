//! Additional state of an Advanced DaemonSet: settings for creating pods, requested pods, orphans, and its status numbers.

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

/// Minimum interval between two writes that only change numbers.
///
/// Writes of conditions are immediate. Together a rollout writes at most about once a second.
const BETWEEN_COUNTS: SignedDuration = SignedDuration::from_millis(1250);

/// Number of nodes with refused pods after which no other node is tried, because the result would be the same.
const REFUSED_NODES: usize = 10;

/// A pod to adopt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// The pod.
    pub pod: PodRef,
    /// UID of the ControllerRevision that controls the pod and releases it: a native DaemonSet created the pod for `max-surge`.
    pub revision: Option<String>,
}

/// Additional state of an Advanced DaemonSet.
#[derive(Debug)]
pub struct AdvancedRecord {
    /// Settings for creating its pods.
    pub scaling: Scaling,
    /// True if its pods can be created and found; otherwise nothing is done.
    pub is_workable: bool,
    /// Current status of the object, without conditions.
    pub stands: AdvancedStatus,
    /// Nodes for which a pod was requested, with the time of the answer, until the pod shows or is no longer expected.
    creating: BTreeMap<NodeName, Timestamp>,
    /// Nodes of `creating` whose request is unanswered: a list of pods does not settle these.
    asked: BTreeSet<NodeName>,
    /// Backoff for the deletion of failed pods.
    backoff: FailedPodsBackoff,
    /// Pods to adopt: the selector matches them, and they have no controller, or the ControllerRevision of a native DaemonSet.
    orphans: BTreeMap<PodUid, Orphan>,
    /// All orphans with their nodes: no pod is created on such a node until the orphan is adopted or gone.
    free: BTreeMap<PodUid, NodeName>,
    /// Pods that are deleted regardless of the rollout: their deletion is not a replacement.
    leaving: BTreeSet<PodUid>,
    /// Number of hash collisions that forced another name for a revision.
    pub collisions: i64,
    /// Nodes that had a pod that is gone now; at most one entry per node.
    held: BTreeSet<NodeName>,
    /// Nodes for which the API server refused a pod, with the number of consecutive refusals.
    refused: BTreeMap<NodeName, u32>,
    /// Last numbers that were sent, and when.
    sent: Option<(StatusNumbers, Timestamp)>,
}

/// Status fields other than conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusNumbers {
    /// Numbers of nodes.
    pub counts: DaemonSetCounts,
    /// The current revision; `None` if it is unknown.
    pub revision: Option<Revision>,
    /// The generation that was handled.
    pub observed: i64,
    /// Number of hash collisions that forced another name for a revision.
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

/// Decision about a write of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumbersDue {
    /// No write: the status has these numbers, or they were sent.
    No,
    /// Write now.
    Now,
    /// Write at that time, if the numbers still differ.
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

    /// Takes over a newer version of the object.
    ///
    /// Returns true if its pods are now created differently, or if its status has other numbers than were sent.
    pub(super) fn update(&mut self, newer: Self) -> bool {
        let changed = (self.scaling, self.is_workable) != (newer.scaling, newer.is_workable);
        (self.scaling, self.is_workable) = (newer.scaling, newer.is_workable);
        let differs = self.stands != newer.stands;
        self.stands = newer.stands;
        changed || differs && self.numbers_that_stand().as_ref() != self.sent_numbers()
    }

    /// Resets the backoffs after a change by the owner: failed pods are deleted at once again.
    pub(super) fn forget_failures(&mut self) {
        self.backoff.reset();
        self.refused.clear();
    }

    /// Records whether a pod for `node` was refused.
    pub fn note_creation(&mut self, node: &NodeName, refused: bool) {
        if refused {
            *self.refused.entry(node.clone()).or_default() += 1;
        } else {
            self.refused.remove(node);
        }
    }

    /// Returns the nodes that may be tried while the backoff of refusals runs: no pod was refused there.
    ///
    /// If many nodes were refused, the API server refuses the whole DaemonSet (a quota), and no node is tried.
    pub fn untried(&self, mut nodes: Vec<NodeName>) -> Vec<NodeName> {
        if self.refused.len() < REFUSED_NODES {
            nodes.retain(|node| !self.refused.contains_key(node))
        } else {
            nodes.clear()
        }
        nodes
    }

    /// Returns the input for the choice of pods to create and delete.
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

    /// Records that pods on these nodes are requested.
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

    /// Records that the request for `node` was answered, or timed out, at `now`: from then on the pod should show.
    pub fn answer_creation(&mut self, node: &NodeName, now: Timestamp) {
        self.asked.remove(node);
        if let Some(at) = self.creating.get_mut(node) {
            *at = now;
        }
    }

    /// Records that the open requests will remain unanswered.
    pub(super) fn lose_answers(&mut self, now: Timestamp) {
        for node in std::mem::take(&mut self.asked) {
            self.answer_creation(&node, now);
        }
    }

    /// Records that the pod of `node` shows, or was not created.
    pub fn end_creation(&mut self, node: &NodeName) {
        self.creating.remove(node);
    }

    /// Returns when the pods have to be listed again because it is unknown whether one was created.
    pub(super) fn creation_due(&self) -> Option<Timestamp> {
        let answered = self.creating.iter();
        let answered = answered.filter(|(node, _)| !self.asked.contains(*node));
        answered.map(|(_, at)| later(*at, UNANSWERED)).min()
    }

    /// Drops the requests that a complete list of pods settles; `began` is the start of the list.
    pub(super) fn retain_creations(&mut self, began: Option<Timestamp>) {
        let Some(began) = began else { return };
        let asked = &self.asked;
        self.creating
            .retain(|node, at| asked.contains(node) || later(*at, UNANSWERED) > began);
    }

    /// Records that a failed pod of `node` was deleted.
    pub fn note_over(&mut self, node: &NodeName, now: Timestamp) {
        self.backoff.note(node, now);
    }

    /// Records a pod that the DaemonSet does not own. Returns true if it is a new orphan, or no longer one.
    pub(super) fn note_orphan(&mut self, pod: &k8s::Pod) -> bool {
        let mut owners = pod.metadata.owner_references.iter().flatten();
        if owners.any(|owner| owner.controller == Some(true)) {
            self.forget_orphan(&uid_of(pod))
        } else {
            self.note_to_adopt(pod, None)
        }
    }

    /// Records a pod that a native DaemonSet created for `max-surge`, so that a ControllerRevision controls it.
    ///
    /// Returns true if it is new.
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

    /// Forgets an orphan. Returns true if a pod can now be created in its place.
    pub(super) fn forget_orphan(&mut self, uid: &PodUid) -> bool {
        self.orphans.remove(uid);
        self.free.remove(uid).is_some()
    }

    /// Takes the orphans. Each is returned once, and again only after it changed.
    pub fn take_orphans(&mut self) -> Vec<Orphan> {
        std::mem::take(&mut self.orphans).into_values().collect()
    }

    /// Returns an orphan that could not be adopted to the queue, unless it is gone or has changed.
    pub fn return_orphan(&mut self, orphan: Orphan) {
        let uid = &orphan.pod.uid;
        if self.free.contains_key(uid) {
            self.orphans.entry(uid.clone()).or_insert(orphan);
        }
    }

    /// Records that a pod of `node` is gone.
    pub(super) fn note_held(&mut self, node: &NodeName) {
        if !self.held.contains(node) {
            self.held.insert(node.clone());
        }
    }

    /// Returns true if a pod of `node` is gone.
    pub(super) fn had_pod(&self, node: &NodeName) -> bool {
        self.held.contains(node)
    }

    /// Forgets nodes that no longer exist.
    pub(super) fn keep_held(&mut self, is_there: impl FnMut(&NodeName) -> bool) {
        self.held.retain(is_there);
    }

    /// Sets the pods that are deleted regardless of the rollout.
    pub fn set_leaving(&mut self, leaving: BTreeSet<PodUid>) {
        self.leaving = leaving;
    }

    /// Returns true if the pod is deleted regardless of the rollout.
    pub(super) fn is_leaving(&self, uid: &PodUid) -> bool {
        self.leaving.contains(uid)
    }

    /// Decides when to write these numbers.
    ///
    /// They are compared with the numbers last sent while those are `unseen`, and with the status otherwise.
    pub fn numbers_due(&self, numbers: &StatusNumbers, unseen: bool, now: Timestamp) -> NumbersDue {
        let stands = self.numbers_that_stand();
        let known = if unseen {
            self.sent_numbers()
        } else {
            stands.as_ref()
        };
        match &self.sent {
            _ if known == Some(numbers) => NumbersDue::No,
            // More than the counts changed: write at once.
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

    /// Returns until when numbers of this generation are not written again, if that is after `now`.
    pub fn counted_until(&self, generation: i64, now: Timestamp) -> Option<Timestamp> {
        let (sent, at) = self.sent.as_ref()?;
        let until = at.checked_add(BETWEEN_COUNTS).ok()?;
        (sent.observed == generation && until > now).then_some(until)
    }

    /// Returns the numbers that were sent last.
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

    /// Records that these numbers are sent at `now`.
    pub fn begin_numbers(&mut self, numbers: StatusNumbers, now: Timestamp) {
        self.sent = Some((numbers, now));
    }

    /// Records that the numbers were not written.
    pub(super) fn lose_numbers(&mut self) {
        self.sent = None;
    }
}
