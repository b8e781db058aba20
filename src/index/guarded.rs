//! What the guard told, whether it shows on the DaemonSet yet or not, and which nodes we replaced for a revision.

use std::collections::{BTreeMap, BTreeSet};

use super::last_reported::LastReported;
use crate::core::{FailureRecord, NodeName, PodUid, Revision, RevisionState, RolloutState};

/// What is known beside the condition on the DaemonSet.
#[derive(Debug, Default)]
pub(super) struct GuardedRevision {
    reported: LastReported<FailureRecord>,
    replaced: Replaced,
}

/// Deletions that were carried out. The first one per node is only known here, and forgotten with the process; from the
/// second on the node is in the [`FailureRecord`].
#[derive(Debug, Default)]
struct Replaced {
    /// For which revision.
    revision: Option<Revision>,
    once: BTreeSet<NodeName>,
    twice: BTreeSet<NodeName>,
    /// Deletions without an answer yet.
    pending: BTreeMap<PodUid, NodeName>,
}

impl GuardedRevision {
    /// What has to be remembered now.
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

    /// What was reported last.
    pub(super) fn known(&self, reported: &RolloutState) -> Option<FailureRecord> {
        self.reported.or(|| reported.guard.clone())
    }

    /// Whether it stands on the DaemonSet that the revision was stopped, and what it is taken back to.
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

    /// A pod of this node is about to be deleted for `revision`.
    pub(super) fn begin(&mut self, uid: PodUid, node: NodeName, revision: Option<&Revision>) {
        if self.replaced.revision.as_ref() != revision {
            self.replaced = Replaced {
                revision: revision.cloned(),
                ..Replaced::default()
            };
        }
        self.replaced.pending.insert(uid, node);
    }

    /// That deletion was answered: carried out, or not. Returns its node.
    pub(super) fn end(&mut self, uid: &PodUid, carried_out: bool) -> Option<NodeName> {
        let node = self.replaced.pending.remove(uid)?;
        if carried_out && !self.replaced.once.insert(node.clone()) {
            self.replaced.twice.insert(node.clone());
        }
        Some(node)
    }

    /// The template is another one: a revision that comes back begins anew.
    pub(super) fn forget_replaced(&mut self) {
        self.replaced = Replaced::default();
    }
}
