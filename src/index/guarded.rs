//! Part of the index for the guard: its last record, even if the watch doesn't show it yet. Also the nodes whose pods were deleted
//! for a revision.

use std::collections::{BTreeMap, BTreeSet};

use super::last_reported::LastReported;
use crate::core::{FailureRecord, NodeName, PodUid, Revision, RevisionState, RolloutState};

/// State of the guard, in addition to the record in the status.
#[derive(Debug, Default)]
pub(super) struct GuardedRevision {
    reported: LastReported<FailureRecord>,
    replaced: Replaced,
}

/// Deletions of pods for one revision that were carried out.
///
/// The first deletion on a node is only in memory, so it is forgotten on a restart. The second one is stored in the
/// [`FailureRecord`].
#[derive(Debug, Default)]
struct Replaced {
    /// Revision for which the pods were deleted.
    revision: Option<Revision>,
    once: BTreeSet<NodeName>,
    twice: BTreeSet<NodeName>,
    /// Deletions without an answer.
    pending: BTreeMap<PodUid, NodeName>,
}

impl GuardedRevision {
    /// Returns the record to report, with the nodes whose pods were deleted twice.
    pub(super) fn record(
        &self,
        reported: &RolloutState,
        state: &RevisionState,
    ) -> Option<FailureRecord> {
        let mut record = self.known(reported);
        let RevisionState::Current(revision) = state else {
            return record;
        };
        if self.replaced.revision.as_ref() == Some(revision) && !self.replaced.twice.is_empty() {
            let mut of_it = FailureRecord::begun(record.as_ref(), revision);
            of_it
                .replaced_twice
                .extend(self.replaced.twice.iter().cloned());
            record = Some(of_it);
        }
        record
    }

    /// Returns the record that was reported last.
    pub(super) fn known(&self, reported: &RolloutState) -> Option<FailureRecord> {
        self.reported.or(|| reported.guard.clone())
    }

    /// Returns true if the DaemonSet's status contains both the stop and the revision to roll back to.
    pub(super) fn stands(&self, reported: &RolloutState) -> bool {
        let stop = |record: FailureRecord| (record.revision, record.stopped, record.before);
        let seen = reported.guard.clone().map(stop);
        seen.is_some() && seen == self.known(reported).map(stop)
    }

    pub(super) fn set_last_reported(&mut self, record: Option<FailureRecord>) {
        self.reported = LastReported::Reported(record);
    }

    pub(super) fn forget_reported(&mut self) {
        self.reported = LastReported::Nothing;
    }

    /// Records that a pod of this node is about to be deleted for `revision`.
    pub(super) fn begin(&mut self, uid: PodUid, node: NodeName, revision: Option<&Revision>) {
        if self.replaced.revision.as_ref() != revision {
            self.replaced = Replaced {
                revision: revision.cloned(),
                ..Replaced::default()
            };
        }
        self.replaced.pending.insert(uid, node);
    }

    /// Records the answer to a deletion; `carried_out` is true if the pod was deleted. Returns the node of the pod.
    pub(super) fn end(&mut self, uid: &PodUid, carried_out: bool) -> Option<NodeName> {
        let node = self.replaced.pending.remove(uid)?;
        if carried_out && !self.replaced.once.insert(node.clone()) {
            self.replaced.twice.insert(node.clone());
        }
        Some(node)
    }

    /// Forgets the deletions, because the template changed. If a revision becomes current again, its deletions are counted from
    /// zero.
    pub(super) fn forget_replaced(&mut self) {
        self.replaced = Replaced::default();
    }
}
