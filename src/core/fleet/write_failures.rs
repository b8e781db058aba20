//! Writes that the API server rejects because of an admission policy, a webhook, a quota or missing permissions.
//!
//! Only the attempt shows if a write is rejected. Therefore the controller records the result of each write in [`WriteFailures`],
//! and plans use the record. A rejected write is retried after a pause that grows within [`BACK_OFF`]. Until then its node takes no
//! slot and doesn't block other nodes. When a write succeeds, all rejections with the same message are forgotten.
//!
//! ```text
//!             ┌──────────── rejected ◄─────────────┐
//!             ▼                                    │
//! rejected: left out ──pause is over──► tried again ──accepted──► forgotten, with all equal rejections
//! ```
//!
//! The record is about one revision. An entry is removed with its revision, pod or node. The record is part of the
//! [`RolloutState`](crate::core::RolloutState), so it survives restarts, and `ctl` can read it.

mod plan;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Node, Readiness, Targeting, by_name};
use crate::core::action::Action;
use crate::core::id::{NodeName, PodRevision, PodUid, Revision};
use crate::core::instant::later;
use crate::core::kind::SetKind;
use crate::core::names::{ADVANCED_RBAC, BASE_RBAC, IN_PLACE_RBAC, LIFECYCLE_RBAC, MAX_SURGE_RBAC};

pub(in crate::core) use plan::RetryGate;

/// Shortest and longest pause before a rejected write is retried. The pause doubles with each rejection.
pub const BACK_OFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Number of rejected writes in one [`SECOND`] after which no new node is tried for the rest of the second.
///
/// A policy may reject the writes on all nodes. Then this limits the load on the API server until every node was tried once.
pub(in crate::core) const PER_SECOND: usize = 10;
pub(in crate::core) const SECOND: Duration = Duration::from_secs(1);

/// Number of consecutive conflicts or internal errors after which a write counts as rejected. A conflict is normal if the
/// controller's cache is out of date. That rarely happens twice in a row, so five failures have another cause.
const CONFLICTS: u32 = 5;

/// Number of conflicts after which a pod is deleted by its UID alone. Its resource version then changes faster than the controller
/// can read it.
const CONTENDED: u32 = 3;

/// Maximum number of different rejection messages that are stored. Admission plugins use only a few.
const SENTENCES: usize = 16;

/// Kind of a rejected write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WriteVerb {
    /// Deletion of a pod.
    Delete,
    /// Eviction of a pod. Rejections by a disruption budget are recorded elsewhere ([`Evictions`](super::evictions::Evictions)).
    Evict,
    /// In-place update of a pod.
    UpdateInPlace,
    /// In-place rollback from a failed revision (`on-failure: RevertInPlace`).
    Revert,
    /// Mark `PreparingDelete` on a pod that has to wait for its preDelete hook.
    Mark,
    /// Transfer of a surge pod's ownership to the DaemonSet (`max-surge`).
    TransferOwnership,
    /// Creation of a surge pod (`max-surge`).
    Create,
    /// Removal of the mark `PreparingDelete`.
    Unmark,
    /// Write to the conditions of a pod.
    Tell,
}

/// Group of writes on a node. While one write waits for its retry, the other writes of the group wait, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::core) enum WriteGroup {
    /// Steps in the replacement of an existing pod.
    Step,
    /// Creation of a surge pod.
    Create,
    /// All other writes, such as updates of pod conditions.
    Tell,
}

impl WriteVerb {
    /// All kinds of writes.
    pub const ALL: [Self; 9] = [
        Self::Delete,
        Self::Evict,
        Self::UpdateInPlace,
        Self::Revert,
        Self::Mark,
        Self::TransferOwnership,
        Self::Create,
        Self::Unmark,
        Self::Tell,
    ];

    /// Returns the kind of write that `action` requests.
    pub fn from_action(action: &Action) -> Self {
        match action {
            Action::Delete(_) | Action::DeleteAfterSurge { evict: false, .. } => Self::Delete,
            Action::Evict(_) | Action::DeleteAfterSurge { evict: true, .. } => Self::Evict,
            Action::UpdateInPlace { patch, .. } if patch.reverts.is_some() => Self::Revert,
            Action::UpdateInPlace { .. } => Self::UpdateInPlace,
            Action::Mark {
                preparing: Some(true),
                ..
            } => Self::Mark,
            Action::Mark {
                preparing: Some(false),
                ..
            } => Self::Unmark,
            Action::TransferOwnership(_) => Self::TransferOwnership,
            Action::Surge { .. } => Self::Create,
            Action::Mark { .. }
            | Action::SetNeedUpgrade { .. }
            | Action::AskForImages { .. }
            | Action::RemoveConditions { .. } => Self::Tell,
        }
    }

    /// Returns the end of a message that begins with "the API server refuses to".
    pub fn words(self) -> &'static str {
        match self {
            Self::Delete => "delete pods",
            Self::Evict => "evict pods",
            Self::UpdateInPlace => "update pods in place",
            Self::Revert => "roll pods back in place",
            Self::Mark => "label pods as PreparingDelete",
            Self::TransferOwnership => "transfer pods to the DaemonSet",
            Self::Create => "create pods",
            Self::Unmark => "remove marks from pods",
            Self::Tell => "patch the conditions of pods",
        }
    }

    /// Returns the manifests with the permission for this write to the pods of a DaemonSet of this kind.
    pub fn granted_by(self, kind: SetKind) -> &'static str {
        match (self, kind) {
            (Self::Delete | Self::Evict | Self::Tell, _) => BASE_RBAC,
            (_, SetKind::Advanced) => ADVANCED_RBAC,
            (Self::UpdateInPlace | Self::Revert, SetKind::Native) => IN_PLACE_RBAC,
            (Self::Mark | Self::Unmark, SetKind::Native) => LIFECYCLE_RBAC,
            (Self::Create | Self::TransferOwnership, SetKind::Native) => MAX_SURGE_RBAC,
        }
    }

    pub(in crate::core) fn part(self) -> WriteGroup {
        match self {
            Self::Delete
            | Self::Evict
            | Self::UpdateInPlace
            | Self::Revert
            | Self::Mark
            | Self::TransferOwnership => WriteGroup::Step,
            Self::Create => WriteGroup::Create,
            Self::Unmark | Self::Tell => WriteGroup::Tell,
        }
    }
}

/// Rejected writes of one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteFailures {
    revision: Option<Revision>,
    by_place: BTreeMap<FailureKey, WriteFailure>,
    /// Number of consecutive conflicts and internal errors, by node and group of writes.
    conflicts: BTreeMap<FailureKey, u32>,
    /// Number of conflicts by pod. In a conflict, the pod changed between the read and the write.
    contended: BTreeMap<PodUid, u32>,
    /// Pods whose update in place the API server rejected, so they are recreated instead.
    unfit: BTreeSet<PodUid>,
    /// Distinct rejection messages of the API server. Equal messages share memory.
    sentences: BTreeSet<Arc<str>>,
}

/// Node, and the group of its writes that wait for a retry.
pub(in crate::core) type FailureKey = (NodeName, WriteGroup);

/// Latest rejection of a write on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteFailure {
    /// Kind of the rejected write.
    pub write: WriteVerb,
    /// Time of the first rejection.
    pub since: Timestamp,
    /// Message with which the API server rejected the write.
    pub sentence: Arc<str>,
    /// UID of the pod that the write concerns. `None` if the pod does not exist yet, or if the entry was read from a condition.
    pod: Option<PodUid>,
    asked: Timestamp,
    times: u32,
}

impl WriteFailure {
    /// Returns true if the node became Ready after the last attempt. The cause of the rejection may be gone then.
    fn is_before(&self, readiness: Readiness) -> bool {
        let asked = self.asked.max(self.since);
        matches!(readiness, Readiness::Ready { since } if since > asked)
    }

    /// Returns the time of the next attempt. It is rounded up to a full second, so that one evaluation covers many retries.
    fn due(&self) -> Timestamp {
        if self.asked == Timestamp::MIN {
            return self.asked;
        }
        let pause = BACK_OFF.0 * (1 << self.times.saturating_sub(1).min(10));
        let due = later(self.asked, pause.min(BACK_OFF.1));
        let whole = i64::from(due.subsec_nanosecond() > 0);
        Timestamp::from_second(due.as_second() + whole).unwrap_or(due)
    }
}

impl WriteFailures {
    /// Records that `write` was rejected on `node` with the message `sentence`. `pod` is the affected pod, if it exists.
    pub fn refuse(
        &mut self,
        (node, pod): (&NodeName, Option<&PodUid>),
        write: WriteVerb,
        sentence: &str,
        now: Timestamp,
    ) {
        let sentence = self.steady(sentence);
        let place = (node.clone(), write.part());
        // The entry belongs to the node. Its pods may change, but the backoff continues.
        let known = self.by_place.get(&place);
        let failure = WriteFailure {
            write,
            since: known.map_or(now, |known| known.since),
            sentence,
            pod: pod.cloned(),
            asked: now,
            times: known.map_or(1, |known| known.times + u32::from(known.asked < now)),
        };
        self.by_place.insert(place, failure);
    }

    /// Restores the rejected writes of `revision` from a condition. All of them get the time `since`, because the condition doesn't
    /// contain the times of the attempts.
    pub(in crate::core) fn remember(
        revision: Option<Revision>,
        refused: impl IntoIterator<Item = (NodeName, WriteVerb, Arc<str>)>,
        since: Timestamp,
    ) -> Self {
        let mut write_failures = Self {
            revision,
            ..Self::default()
        };
        for (node, write, sentence) in refused {
            let failure = WriteFailure {
                write,
                since,
                sentence: sentence.clone(),
                pod: None,
                asked: Timestamp::MIN,
                times: 0,
            };
            write_failures
                .by_place
                .insert((node, write.part()), failure);
            write_failures.sentences.insert(sentence);
        }
        write_failures
    }

    pub(in crate::core) fn revision(&self) -> Option<&Revision> {
        self.revision.as_ref()
    }

    pub(in crate::core) fn failures(&self) -> impl Iterator<Item = (&NodeName, &WriteFailure)> {
        self.by_place
            .iter()
            .map(|((node, _), failure)| (node, failure))
    }

    /// Records that `write` failed because the pod had changed, or because of an internal error of the API server.
    ///
    /// The write counts as rejected after `CONFLICTS` failures in a row, or at once if another node has the same failure.
    pub fn count_failure(
        &mut self,
        (node, pod): (&NodeName, Option<&PodUid>),
        write: WriteVerb,
        sentence: &str,
        now: Timestamp,
    ) {
        let place = (node.clone(), write.part());
        let met = self.conflicts.entry(place).or_default();
        *met += 1;
        let met = *met;
        let is_known =
            |failure: &WriteFailure| failure.write == write && *failure.sentence == *sentence;
        if met >= CONFLICTS || self.by_place.values().any(is_known) {
            self.refuse((node, pod), write, sentence, now);
            if let Some(failure) = self.by_place.get_mut(&(node.clone(), write.part())) {
                failure.times = failure.times.max(CONFLICTS);
            }
        }
    }

    /// Records that `write` failed because the pod had changed since it was read.
    ///
    /// Up to `CONTENDED` conflicts per pod are only counted. After that, or if the pod is unknown, a conflict is handled like an
    /// internal error.
    pub fn conflict(
        &mut self,
        place: (&NodeName, Option<&PodUid>),
        write: WriteVerb,
        sentence: &str,
        now: Timestamp,
    ) {
        match place.1.filter(|pod| !self.is_contended(pod)) {
            Some(pod) => *self.contended.entry(pod.clone()).or_default() += 1,
            None => self.count_failure(place, write, sentence, now),
        }
    }

    /// Returns true if the pod changes too often for writes that require a certain resource version.
    pub fn is_contended(&self, pod: &PodUid) -> bool {
        let met = self.contended.get(pod);
        met.is_some_and(|met| *met >= CONTENDED)
    }

    /// Adds the rejected writes on other nodes of the same fleet.
    pub fn join(&mut self, others: Self) {
        self.revision = self.revision.take().or(others.revision);
        self.by_place.extend(others.by_place);
    }

    /// Records that `write` succeeded on `node`. Rejections with the same message on other nodes are forgotten, so those writes are
    /// retried immediately.
    pub fn accept(&mut self, node: &NodeName, write: WriteVerb) {
        if self.is_empty() {
            return;
        }
        let place = (node.clone(), write.part());
        self.conflicts.remove(&place);
        let Some(ended) = self.by_place.remove(&place) else {
            return;
        };
        let is_equal = |failure: &WriteFailure| {
            failure.write == ended.write && failure.sentence == ended.sentence
        };
        self.by_place.retain(|_, failure| !is_equal(failure));
    }

    /// Records that the API server rejected an in-place update of this pod.
    pub fn note_unfit(&mut self, pod: Option<PodUid>) {
        self.unfit.extend(pod);
    }

    /// Returns true if the API server rejected an in-place update of this pod.
    pub fn is_unfit(&self, pod: &PodUid) -> bool {
        self.unfit.contains(pod)
    }

    /// Returns true if nothing is recorded.
    pub fn is_empty(&self) -> bool {
        self.by_place.is_empty()
            && self.conflicts.is_empty()
            && self.contended.is_empty()
            && self.unfit.is_empty()
    }

    /// Returns true if no rejected write is recorded. Counts of conflicts make no difference.
    pub fn has_no_failures(&self) -> bool {
        self.by_place.is_empty()
    }

    /// Returns true if a write of the same group as `write` is rejected on the node.
    pub fn is_refused(&self, node: &NodeName, write: WriteVerb) -> bool {
        self.at(node, write.part()).is_some()
    }

    /// Returns the rejected writes on this node, most severe first.
    pub fn on(&self, node: &NodeName) -> impl Iterator<Item = &WriteFailure> {
        let parts = [WriteGroup::Step, WriteGroup::Create, WriteGroup::Tell];
        let parts = parts.into_iter().filter(|_| !self.by_place.is_empty());
        parts.filter_map(|part| self.at(node, part))
    }

    fn at(&self, node: &NodeName, part: WriteGroup) -> Option<&WriteFailure> {
        if self.by_place.is_empty() {
            None
        } else {
            self.by_place.get(&(node.clone(), part))
        }
    }

    /// Keeps only the entries of `revision`. Writes for a new revision are tried without backoff.
    pub fn keep_to(&mut self, revision: &Revision) {
        if self.revision.as_ref() != Some(revision) {
            *self = Self {
                revision: Some(revision.clone()),
                ..Self::default()
            };
        }
    }

    /// Removes entries of pods and nodes that no longer exist, and of nodes that returned after the last attempt.
    ///
    /// After a node's return, the API server may accept the write. `nodes` must be sorted by name.
    pub fn tidy(&mut self, nodes: &[Node]) {
        if self.is_empty() {
            return;
        }
        self.conflicts
            .retain(|(name, _), _| by_name(nodes, name).is_some());
        self.by_place.retain(|(name, _), failure| {
            let node = by_name(nodes, name).filter(|node| !failure.is_before(node.readiness));
            let belongs = node.is_some_and(|node| node.native != Targeting::No);
            let mut pods = node.into_iter().flat_map(|node| &node.pods);
            match &failure.pod {
                Some(uid) => pods.any(|pod| pod.uid == *uid),
                None => match failure.write {
                    WriteVerb::UpdateInPlace
                    | WriteVerb::Revert
                    | WriteVerb::Mark
                    | WriteVerb::Unmark
                    | WriteVerb::Tell => pods.any(|pod| !pod.terminating),
                    // The remaining writes create, delete or transfer pods. Keep the entry while the node has a surge pod, an
                    // outdated or ended pod, or a pod that should not run there.
                    _ => pods.any(|pod| {
                        let is_new = pod.revision == PodRevision::Current && !pod.in_place.is_over;
                        pod.surge || !is_new || !belongs
                    }),
                },
            }
        });
        if !(self.unfit.is_empty() && self.contended.is_empty()) {
            let pods: BTreeSet<&PodUid> = nodes
                .iter()
                .flat_map(|node| &node.pods)
                .map(|pod| &pod.uid)
                .collect();
            self.unfit.retain(|uid| pods.contains(uid));
            self.contended.retain(|uid, _| pods.contains(uid));
        }
        if self.by_place.is_empty() {
            self.sentences.clear();
        }
    }

    /// Returns a recorded message that differs from `sentence` only in digits; `sentence` if there is none.
    ///
    /// Numbers in a message, such as the usage of a quota, change all the time. They must not make a new message.
    fn steady(&mut self, sentence: &str) -> Arc<str> {
        let letters = |text: &str| -> String {
            let letter = |letter: &char| !letter.is_ascii_digit();
            text.chars().filter(letter).collect()
        };
        let meant = letters(sentence);
        let mut known = self.sentences.iter();
        if let Some(known) = known.find(|known| letters(known) == meant) {
            return known.clone();
        }
        let sentence: Arc<str> = sentence.into();
        if self.sentences.len() < SENTENCES {
            self.sentences.insert(sentence.clone());
        }
        sentence
    }
}
