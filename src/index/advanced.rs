//! Part of the index that only Advanced DaemonSets need: settings for the creation of pods, requested pods, orphans, and the
//! status.

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

/// Minimum interval between two writes of the status in which only numbers changed.
///
/// A changed condition is written at once. In total, a rollout writes the status about once a second at most.
const BETWEEN_COUNTS: SignedDuration = SignedDuration::from_millis(1250);

/// Number of nodes with rejected pods at which the controller stops trying other nodes. The cause then probably concerns all nodes.
const REFUSED_NODES: usize = 10;

/// Pod that the DaemonSet should adopt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// The pod to adopt.
    pub pod: PodRef,
    /// UID of the ControllerRevision that controls the pod; `None` if the pod has no controller. A pod that a ControllerRevision
    /// controls is a surge pod of a native DaemonSet (`max-surge`).
    pub revision: Option<String>,
}

/// State that only an Advanced DaemonSet has.
#[derive(Debug)]
pub struct AdvancedRecord {
    /// Settings for creating the pods.
    pub scaling: Scaling,
    /// True if pods can be created from the spec, and its selector finds them. Otherwise the controller leaves the pods alone.
    pub is_workable: bool,
    /// Status fields of the object except conditions.
    pub stands: AdvancedStatus,
    /// Nodes for which a pod was requested, as long as the watch doesn't show the pod. The time is that of the request, or of its
    /// answer if there is one.
    creating: BTreeMap<NodeName, Timestamp>,
    /// Nodes in `creating` whose request has no answer yet. The API server may still create the pod, so a list without the pod
    /// proves nothing.
    asked: BTreeSet<NodeName>,
    /// Backoff for deleting failed pods.
    backoff: FailedPodsBackoff,
    /// Pods to adopt: the selector matches them, and they have no controller. Surge pods of a native DaemonSet, which a
    /// ControllerRevision controls, are also adopted.
    orphans: BTreeMap<PodUid, Orphan>,
    /// All orphans with their nodes. No pod is created on such a node until the orphan is adopted or gone.
    free: BTreeMap<PodUid, NodeName>,
    /// Pods that are deleted, but not by the rollout. Their deletion doesn't count as a replacement.
    leaving: BTreeSet<PodUid>,
    /// Number of new revisions whose name was already in use: `status.collisionCount`.
    pub collisions: i64,
    /// Nodes that had a pod that is gone now.
    held: BTreeSet<NodeName>,
    /// Nodes for which the API server rejected a pod, with the number of rejections in a row.
    refused: BTreeMap<NodeName, u32>,
    /// Numbers in the last write of the status, with the time of the write.
    sent: Option<(StatusNumbers, Timestamp)>,
}

/// Status fields other than conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusNumbers {
    /// Counts of nodes and pods.
    pub counts: DaemonSetCounts,
    /// Current revision; `None` if unknown.
    pub revision: Option<Revision>,
    /// Generation of the DaemonSet that was observed.
    pub observed: i64,
    /// Number of new revisions whose name was already in use: `status.collisionCount`.
    pub collisions: i64,
}

fn stands(set: &k8s::DaemonSet) -> AdvancedStatus {
    let mut stands = set.status.advanced.as_deref().cloned().unwrap_or_default();
    stands.conditions = Vec::new();
    stands
}

fn uid_of(pod: &k8s::Pod) -> PodUid {
    pod.uid().into()
}

/// Decision about a write of numbers to the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumbersDue {
    /// No write is needed, because the status has these numbers or a write with them was sent.
    No,
    /// Write now.
    Now,
    /// Write at this time, if the numbers still differ then.
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

    /// Applies a newer version of the object.
    ///
    /// Returns true if the settings for pod creation changed, or if the status differs from the last write.
    pub(super) fn update(&mut self, newer: Self) -> bool {
        let changed = (self.scaling, self.is_workable) != (newer.scaling, newer.is_workable);
        (self.scaling, self.is_workable) = (newer.scaling, newer.is_workable);
        let differs = self.stands != newer.stands;
        self.stands = newer.stands;
        changed || differs && self.numbers_in_status().as_ref() != self.sent_numbers()
    }

    /// Resets the backoffs after a user changed the DaemonSet. Failed pods are then deleted at once.
    pub(super) fn forget_failures(&mut self) {
        self.backoff.reset();
        self.refused.clear();
    }

    /// Records the answer to the creation of a pod on `node`: rejected if `refused` is true, otherwise accepted.
    pub fn note_creation(&mut self, node: &NodeName, refused: bool) {
        if refused {
            *self.refused.entry(node.clone()).or_default() += 1;
        } else {
            self.refused.remove(node);
        }
    }

    /// Returns the nodes in `nodes` for which a pod may be created although the API server rejected pods for other nodes. Nodes
    /// with a rejected pod have to wait.
    ///
    /// If the API server rejected pods for many nodes, the cause probably concerns the whole DaemonSet, such as a quota. The result
    /// is then empty.
    pub fn untried(&self, mut nodes: Vec<NodeName>) -> Vec<NodeName> {
        if self.refused.len() < REFUSED_NODES {
            nodes.retain(|node| !self.refused.contains_key(node))
        } else {
            nodes.clear()
        }
        nodes
    }

    /// Returns the input for the decision on which pods to create and to delete.
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

    /// Records that pods are requested for these nodes.
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

    /// Records that the request for `node` was answered, or timed out, at `now`. The watch has to show the pod within a certain
    /// time after that.
    pub fn answer_creation(&mut self, node: &NodeName, now: Timestamp) {
        self.asked.remove(node);
        if let Some(at) = self.creating.get_mut(node) {
            *at = now;
        }
    }

    /// Records that the requests without an answer will never get one.
    pub(super) fn lose_answers(&mut self, now: Timestamp) {
        for node in std::mem::take(&mut self.asked) {
            self.answer_creation(&node, now);
        }
    }

    /// Records that the pod of `node` is in the cache, or that it was not created.
    pub fn end_creation(&mut self, node: &NodeName) {
        self.creating.remove(node);
    }

    /// Returns the time at which the pods have to be listed again, to find out if the requested pods exist. `None` if the API
    /// server has answered none of the requests in `creating`.
    pub(super) fn creation_due(&self) -> Option<Timestamp> {
        let answered = self.creating.iter();
        let answered = answered.filter(|(node, _)| !self.asked.contains(*node));
        answered.map(|(_, at)| later(*at, UNANSWERED)).min()
    }

    /// Drops the requests whose result a complete list of pods shows. The list started at `began`; without that time, no request is
    /// dropped.
    pub(super) fn retain_creations(&mut self, began: Option<Timestamp>) {
        let Some(began) = began else { return };
        let asked = &self.asked;
        self.creating
            .retain(|node, at| asked.contains(node) || later(*at, UNANSWERED) > began);
    }

    /// Records that a failed pod on `node` was deleted.
    pub fn note_over(&mut self, node: &NodeName, now: Timestamp) {
        self.backoff.note(node, now);
    }

    /// Records a pod that the DaemonSet doesn't own. Returns true if the pod became an orphan, or was one and now has a controller.
    pub(super) fn note_orphan(&mut self, pod: &k8s::Pod) -> bool {
        if pod.controller().is_some() {
            self.forget_orphan(&uid_of(pod))
        } else {
            self.note_to_adopt(pod, None)
        }
    }

    /// Records a pod to adopt: a surge pod of a native DaemonSet, controlled by a ControllerRevision.
    ///
    /// Returns true if the pod was not recorded before.
    pub(super) fn note_made_beside(&mut self, pod: &k8s::Pod) -> bool {
        let revision = pod.controller();
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

    /// Forgets an orphan. Returns true if its node waited for the adoption, so that a pod may now be created there.
    pub(super) fn forget_orphan(&mut self, uid: &PodUid) -> bool {
        self.orphans.remove(uid);
        self.free.remove(uid).is_some()
    }

    /// Removes and returns the orphans to adopt. An orphan is added again only when it changes.
    pub fn take_orphans(&mut self) -> Vec<Orphan> {
        std::mem::take(&mut self.orphans).into_values().collect()
    }

    /// Adds an orphan again that could not be adopted. Has no effect if it is gone, or if a newer version was added.
    pub fn return_orphan(&mut self, orphan: Orphan) {
        let uid = &orphan.pod.uid;
        if self.free.contains_key(uid) {
            self.orphans.entry(uid.clone()).or_insert(orphan);
        }
    }

    pub(super) fn note_held(&mut self, node: &NodeName) {
        if !self.held.contains(node) {
            self.held.insert(node.clone());
        }
    }

    /// Returns true if `node` had a pod that is gone.
    pub(super) fn had_pod(&self, node: &NodeName) -> bool {
        self.held.contains(node)
    }

    /// Forgets nodes that no longer exist.
    pub(super) fn keep_held(&mut self, is_there: impl FnMut(&NodeName) -> bool) {
        self.held.retain(is_there);
    }

    /// Sets the pods that are deleted for other reasons than the rollout.
    pub fn set_leaving(&mut self, leaving: BTreeSet<PodUid>) {
        self.leaving = leaving;
    }

    /// Returns true if the pod is deleted for another reason than the rollout.
    pub(super) fn is_leaving(&self, uid: &PodUid) -> bool {
        self.leaving.contains(uid)
    }

    /// Decides when to write these numbers.
    ///
    /// They are compared with the status. If the watch doesn't show the last write yet (`unseen`), they are compared with that
    /// write.
    pub fn numbers_due(&self, numbers: &StatusNumbers, unseen: bool, now: Timestamp) -> NumbersDue {
        let stands = self.numbers_in_status();
        let known = if unseen {
            self.sent_numbers()
        } else {
            stands.as_ref()
        };
        match &self.sent {
            _ if known == Some(numbers) => NumbersDue::No,
            // The revision or the generation changed, and not only counts. Write at once.
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

    /// Returns the time before which numbers of this generation must not be written again; `None` if they may be written now.
    pub fn counted_until(&self, generation: i64, now: Timestamp) -> Option<Timestamp> {
        let (sent, at) = self.sent.as_ref()?;
        let until = at.checked_add(BETWEEN_COUNTS).ok()?;
        (sent.observed == generation && until > now).then_some(until)
    }

    /// Returns the numbers that were sent last.
    pub fn sent_numbers(&self) -> Option<&StatusNumbers> {
        self.sent.as_ref().map(|(sent, _)| sent)
    }

    fn numbers_in_status(&self) -> Option<StatusNumbers> {
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

    /// Records that the numbers could not be written.
    pub(super) fn lose_numbers(&mut self) {
        self.sent = None;
    }
}
