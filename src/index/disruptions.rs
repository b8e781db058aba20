//! Disruptions: the time at which the last pod was removed from each node. It is kept until the next pod there is Ready.
//!
//! The removal of a pod can cut the node's connection (CNI, VPN, tunnel). The node may be lost only after the pod is gone, or even
//! after the next pod is created. The API server then no longer shows the removal, but the guard needs the time of the removal.

use std::collections::BTreeMap;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::pod::PodRecord;
use crate::core::{Leaving, NodeName, Pod, PodUid, Revision, RevisionState};

/// Maximum number of entries. If there are more, entries older than the longest failure window are dropped.
const KEPT: usize = 1024;

/// Longest failure window.
const LONGEST: SignedDuration = SignedDuration::from_hours(24);

/// Start of the last removal of a pod, by node.
#[derive(Debug, Default)]
pub(super) struct Disruptions {
    begun: BTreeMap<NodeName, Disruption>,
    /// Deletions that the controller requested and that have no answer yet. The node can be lost before the answer.
    sent: BTreeMap<NodeName, (PodUid, Timestamp)>,
}

#[derive(Debug)]
struct Disruption {
    pod: PodUid,
    at: Timestamp,
    /// Revision hash of that pod. `None` if the pod was outdated.
    hash: Option<Revision>,
    /// True if the controller deleted that pod. Also true if it deleted an earlier pod, and no pod has been Ready since.
    is_ours: bool,
    /// True if the pod was already terminating when the controller first saw it. Then `at` is by the API server's clock.
    is_read: bool,
}

impl Disruptions {
    /// Records a change of a pod on `node`.
    pub(super) fn note(
        &mut self,
        node: &NodeName,
        before: Option<&PodRecord>,
        record: &PodRecord,
        now: Timestamp,
    ) {
        let was_leaving = before.is_some_and(|before| before.pod.terminating);
        if record.pod.terminating && !was_leaving && !record.pod.surge {
            let uid = &record.pod.uid;
            let at = match (self.asked_by_us(node, uid), before) {
                (Some(at), _) => at,
                (None, Some(_)) => now,
                (None, None) => asked_at(&record.pod).map_or(now, |at| at.min(now)),
            };
            let disruption = Disruption {
                pod: uid.clone(),
                at,
                hash: record.hash().cloned(),
                is_ours: self.is_ours(node),
                is_read: before.is_none(),
            };
            self.begin(node.clone(), disruption);
        } else if !record.pod.terminating
            && record.ready_since().is_some()
            && self
                .begun
                .get(node)
                .is_some_and(|left| left.hash.as_ref() != record.hash())
        {
            self.begun.remove(node);
        }
    }

    /// Records that the controller is about to delete the outdated pod `pod` of `node`.
    pub(super) fn send(&mut self, node: NodeName, pod: PodUid, now: Timestamp) {
        self.sent.insert(node, (pod, now));
    }

    /// Records the answer to the deletion of `pod`.
    ///
    /// If the pod was deleted, the time of the request counts, because the node may have been lost before the answer.
    pub(super) fn answer(&mut self, pod: &PodUid, carried_out: bool) {
        let mut sent = self.sent.iter();
        let found = sent.find(|(_, (sent, _))| sent == pod);
        let Some(node) = found.map(|(node, _)| node.clone()) else {
            return;
        };
        if let Some((pod, at)) = self.sent.remove(&node).filter(|_| carried_out) {
            let disruption = Disruption {
                pod,
                at,
                hash: None,
                is_ours: true,
                is_read: false,
            };
            self.begin(node, disruption);
        }
    }

    /// Drops the deletions without an answer, because they will never get one.
    pub(super) fn lose_answers(&mut self) {
        self.sent.clear();
    }

    /// Returns true if the controller deleted a pod of `node`, and no pod has been Ready there since.
    pub(super) fn is_ours(&self, node: &NodeName) -> bool {
        self.begun.get(node).is_some_and(|left| left.is_ours)
    }

    /// Returns the time at which the controller requested the deletion of the pod; `None` if it did not.
    fn asked_by_us(&self, node: &NodeName, pod: &PodUid) -> Option<Timestamp> {
        let sent = self.sent.get(node).map(|(sent, at)| (sent, *at));
        let begun = self.begun.get(node).map(|left| (&left.pod, left.at));
        let mut known = sent.into_iter().chain(begun);
        known.find_map(|(asked, at)| (asked == pod).then_some(at))
    }

    /// Records the beginning of a removal from `node`.
    fn begin(&mut self, node: NodeName, disruption: Disruption) {
        let at = disruption.at;
        if self.begun.len() >= KEPT {
            self.begun
                .retain(|_, left| at.duration_since(left.at) < LONGEST);
        }
        self.begun.insert(node, disruption);
    }

    /// Returns the time at which the last pod of a revision other than `current` began to leave `node`.
    ///
    /// If a removal was in progress when the controller first saw the pod, it may belong to an earlier rollout. It is ignored if it
    /// began before `current` was `adopted`. Observed removals are dropped when the template changes.
    pub(super) fn at(
        &self,
        node: &NodeName,
        current: &RevisionState,
        adopted: Option<Timestamp>,
    ) -> Option<Timestamp> {
        let RevisionState::Current(current) = current else {
            return None;
        };
        if let Some((_, at)) = self.sent.get(node) {
            return Some(*at);
        }
        let left = self.begun.get(node)?;
        let is_current = left.hash.as_ref() == Some(current);
        let is_earlier = left.is_read && adopted.is_some_and(|adopted| left.at < adopted);
        (!is_current && !is_earlier).then_some(left.at)
    }
}

/// Returns the time at which the deletion of the pod was requested, by the API server's clock.
fn asked_at(pod: &Pod) -> Option<Timestamp> {
    let Leaving { ends, grace, .. } = **pod.leaving.as_ref()?;
    ends.checked_sub(grace).ok()
}
