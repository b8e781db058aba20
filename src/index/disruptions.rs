//! When pods were last seen to leave their nodes, until a successor was Ready there.
//!
//! The removal of a pod can take its node down (CNI, VPN, tunnel). Then the pod may be gone, or its successor made, before
//! anybody hears of the loss: nothing on the API server tells any more what was done to that node, and how long before.

use std::collections::BTreeMap;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::pod::PodRecord;
use crate::core::{Leaving, NodeName, Pod, Revision, RevisionState};

/// Beyond so many, those are forgotten that are older than any failure window.
const KEPT: usize = 1024;

/// The longest failure window.
const LONGEST: SignedDuration = SignedDuration::from_hours(24);

/// By node when its last pod began to leave.
#[derive(Debug, Default)]
pub(super) struct Disruptions(BTreeMap<NodeName, Disruption>);

#[derive(Debug)]
struct Disruption {
    at: Timestamp,
    /// The hash of the pod that left; `None`: it was outdated.
    hash: Option<Revision>,
    /// Whether we deleted it, or the one before it.
    is_ours: bool,
    /// Whether we read that in the pod, and did not see it happen: then `at` is by the API server's clock.
    is_read: bool,
}

impl Disruptions {
    /// Takes in what became of a pod on `node`.
    pub(super) fn note(
        &mut self,
        node: &NodeName,
        (before, record): (Option<&PodRecord>, &PodRecord),
        now: Timestamp,
    ) {
        let was_leaving = before.is_some_and(|before| before.pod.terminating);
        if record.pod.terminating && !was_leaving && !record.pod.surge {
            let at = match before {
                Some(_) => now,
                None => asked_at(&record.pod).map_or(now, |at| at.min(now)),
            };
            let disruption = Disruption {
                at,
                hash: record.hash().cloned(),
                is_ours: self.is_ours(node),
                is_read: before.is_none(),
            };
            self.begin(node.clone(), disruption);
        } else if !record.pod.terminating
            && record.ready_since().is_some()
            && self
                .0
                .get(node)
                .is_some_and(|left| left.hash.as_ref() != record.hash())
        {
            self.0.remove(node);
        }
    }

    /// We deleted the outdated pod of `node`.
    pub(super) fn begin_ours(&mut self, node: NodeName, at: Timestamp) {
        let disruption = Disruption {
            at,
            hash: None,
            is_ours: true,
            is_read: false,
        };
        self.begin(node, disruption);
    }

    /// Whether we deleted a pod of `node`, and no successor was Ready since.
    pub(super) fn is_ours(&self, node: &NodeName) -> bool {
        self.0.get(node).is_some_and(|left| left.is_ours)
    }

    /// A pod begins to leave `node`.
    fn begin(&mut self, node: NodeName, disruption: Disruption) {
        let at = disruption.at;
        if self.0.len() >= KEPT {
            self.0
                .retain(|_, left| at.duration_since(left.at) < LONGEST);
        }
        self.0.insert(node, disruption);
    }

    /// When the last pod of another revision than `current` began to leave `node`. What was read in a pod and happened before
    /// that revision was `adopted` was done for another one; what was seen is forgotten with the template.
    pub(super) fn at(
        &self,
        node: &NodeName,
        (current, adopted): (&RevisionState, Option<Timestamp>),
    ) -> Option<Timestamp> {
        let RevisionState::Current(current) = current else {
            return None;
        };
        let left = self.0.get(node)?;
        let is_current = left.hash.as_ref() == Some(current);
        let is_earlier = left.is_read && adopted.is_some_and(|adopted| left.at < adopted);
        (!is_current && !is_earlier).then_some(left.at)
    }
}

/// When its deletion was asked for, by the API server's clock.
fn asked_at(pod: &Pod) -> Option<Timestamp> {
    let Leaving { ends, grace, .. } = **pod.leaving.as_ref()?;
    ends.checked_sub(grace).ok()
}
