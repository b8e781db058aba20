//! Expectations: the controller's writes that the watches don't show yet.
//!
//! A stale cache would cause duplicate writes, and hide writes that are complete. Expectations prevent both.
//!
//! ```text
//!                  ┌── refused ─────────────────────────────────────────────► dropped: it did not happen
//! begun ─► sent ───┤                            ┌── shown by the watch ─────► dropped: it is known
//!                  └── accepted, or no answer ──┤
//!                                               └── not shown in time ──────► the pods are listed again: a write that
//!                                                                             the list does not show did not happen
//! ```
//!
//! All expectations expire by this rule, with one exception: the report on a DaemonSet (see [`Expectations::begin_report`]). So a
//! late watch causes no duplicate write, and a lost answer blocks nothing permanently.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::pod::PodRecord;
use crate::core::fleet::in_place::InPlaceUpdate;
use crate::core::instant::later;
use crate::core::{
    Action, OtaCondition, Pod, PodRevision, PodUid, PreDeleteHook, ResourceVersion, Revision,
};
use crate::k8s::Condition;

/// Time within which the watch has to show an accepted write. After that, the watch event counts as lost, and the pods are listed
/// again.
pub const UNSEEN: Duration = Duration::from_secs(30);

/// Time after which a request without an answer can no longer take effect. Before that, a frozen server may still carry it out.
pub(super) const UNANSWERED: Duration = Duration::from_secs(15);

/// Write to a pod, as long as the watch doesn't show it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PendingWrite {
    /// Time of the request, or of the answer if there is one.
    at: Timestamp,
    write: PodWrite,
    /// Certainty about the write, according to the answer.
    uncertainty: ExpectationState,
}

/// Change to a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodWrite {
    /// Deletion of the pod.
    Deletion,
    /// Deletion of the pod, if its PodDisruptionBudget allows it.
    Eviction,
    /// Mark by which the pod begins to wait for its preDelete hook.
    PreDeleteHook,
    /// Update in place to a revision.
    InPlacePatch {
        /// Revision that the pod is updated to.
        to: Revision,
        /// Stopped revision that the pod is rolled back from; `None` if the pod is updated to the current revision.
        from: Option<Revision>,
    },
    /// Request to pull the images of this revision on the node of the pod.
    ImageRequest(Revision),
    /// Any other change, which doesn't stop the pod: to its conditions or owner, or the creation of a surge pod next to it.
    Other(Action),
}

/// Certainty that a write has happened or will happen.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ExpectationState {
    /// Sent: the API server may carry out the write at any moment, and will answer.
    UnderWay,
    /// Accepted: the watch should show the write soon.
    Accepted,
    /// Rejected, because the cached pod was out of date. The next decision waits until the cache shows another version than this
    /// one.
    Conflict(ResourceVersion),
    /// Without an answer: the write may have happened. To repeat it does no harm.
    Unanswered,
}

/// Answer of the API server to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteAnswer {
    /// The write was carried out.
    Accepted,
    /// The write was rejected.
    Refused,
    /// The write was rejected because the cached pod was out of date.
    Conflict,
    /// The pod doesn't exist, which the watch will show soon.
    Gone,
    /// No answer arrived.
    Unanswered,
}

/// Part of a pod that a write changes. Only the last write to each part is kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Aspect {
    /// Existence and containers of the pod: its deletion or update.
    Replacement,
    /// Image pulls that are requested for the pod.
    Images,
    /// Conditions that are set.
    Conditions,
    /// Conditions that are removed.
    RemovedConditions,
    /// Marks that announce the deletion of the pod.
    Exit,
    /// Owner of the pod.
    Owner,
    /// Surge pod next to the pod.
    Beside,
}

impl PodWrite {
    /// Returns the change that `action` requests.
    pub fn from_action(action: &Action) -> Self {
        match action {
            Action::Evict(_) | Action::DeleteAfterSurge { evict: true, .. } => Self::Eviction,
            Action::Delete(_) | Action::DeleteAfterSurge { .. } => Self::Deletion,
            Action::Mark {
                preparing: Some(true),
                ..
            } => Self::PreDeleteHook,
            Action::UpdateInPlace { patch, .. } => Self::InPlacePatch {
                to: patch.revision.clone(),
                from: patch.reverts.clone(),
            },
            Action::AskForImages { revision, .. } => Self::ImageRequest(revision.clone()),
            Action::Mark { .. }
            | Action::Surge { .. }
            | Action::TransferOwnership(_)
            | Action::SetNeedUpgrade { .. }
            | Action::RemoveConditions { .. } => Self::Other(action.clone()),
        }
    }

    /// Returns true if the write updates the pod, or deletes it to create a successor. A rollback and a mark for a hook don't
    /// count.
    pub fn replaces(&self) -> bool {
        matches!(
            self,
            Self::Deletion | Self::Eviction | Self::InPlacePatch { from: None, .. }
        )
    }

    fn aspect(&self) -> Aspect {
        match self {
            Self::Deletion | Self::Eviction | Self::PreDeleteHook | Self::InPlacePatch { .. } => {
                Aspect::Replacement
            }
            Self::ImageRequest(_) => Aspect::Images,
            Self::Other(Action::RemoveConditions { .. }) => Aspect::RemovedConditions,
            Self::Other(Action::Mark { .. }) => Aspect::Exit,
            Self::Other(Action::TransferOwnership(_)) => Aspect::Owner,
            Self::Other(Action::Surge { .. }) => Aspect::Beside,
            Self::Other(_) => Aspect::Conditions,
        }
    }

    /// Returns true if a write without an answer counts as carried out, because it takes a slot or creates a pod.
    ///
    /// Other writes are repeated at once, which does no harm.
    fn counts_in_doubt(&self) -> bool {
        match self {
            Self::Other(action) => matches!(action, Action::Surge { .. }),
            Self::ImageRequest(_) => false,
            Self::Deletion | Self::Eviction | Self::PreDeleteHook | Self::InPlacePatch { .. } => {
                true
            }
        }
    }

    /// Returns true if `seen` shows that the write was carried out.
    fn shows_in(&self, seen: &PodRecord) -> bool {
        match self {
            Self::Deletion | Self::Eviction => seen.pod.terminating,
            Self::PreDeleteHook => seen.pod.terminating || seen.pod.exit.preparing.is_some(),
            Self::InPlacePatch { to, .. } => seen.pod.terminating || seen.hash() == Some(to),
            // The condition shows the request if a pull of this revision is pending or has succeeded. A failed pull may be the
            // result of an earlier request.
            Self::ImageRequest(revision) => {
                let image = seen.pod.image_ready.as_ref();
                image.is_some_and(|image| {
                    image.revision.as_ref() == Some(revision) && (image.waits || image.status)
                })
            }
            // Not checked here. Once the cache shows the change, the next plan no longer requests it, and `without_pending` drops the
            // record of this write.
            Self::Other(_) => false,
        }
    }

    /// Changes `pod` to its state after this write. `at` is the time of the request, or of the last answer.
    fn show(&self, pod: &mut Pod, at: Timestamp) {
        match self {
            Self::Deletion | Self::Eviction => pod.terminating = true,
            Self::PreDeleteHook => {
                let since = Some(at);
                pod.exit.preparing.get_or_insert(PreDeleteHook { since });
            }
            Self::InPlacePatch { to, from } => {
                pod.revision = match from {
                    None => PodRevision::Current,
                    Some(_) => PodRevision::Outdated,
                };
                pod.of_template = from.is_none();
                pod.in_place.revision = Some(to.clone());
                pod.in_place.reverted_from = from.clone();
                pod.in_place.update = Some(InPlaceUpdate {
                    at,
                    is_carried_out: false,
                });
                // The problem was that of the old containers. The new ones may not have it.
                pod.problem = None;
            }
            Self::ImageRequest(revision) => {
                let known = pod.image_ready.take();
                let same = known.filter(|known| known.revision.as_ref() == Some(revision));
                pod.image_ready = Some(
                    OtaCondition {
                        status: false,
                        revision: Some(revision.clone()),
                        waits: true,
                        repelled: false,
                        failure: same.and_then(|known| known.failure),
                    }
                    .into(),
                );
            }
            // Decisions see the pod without these writes and request them again. `without_pending` removes the repeated requests.
            Self::Other(_) => {}
        }
    }
}

impl ExpectationState {
    /// Returns true if the write has happened or is expected to happen.
    fn is_sure(&self) -> bool {
        matches!(self, Self::UnderWay | Self::Accepted)
    }
}

impl PendingWrite {
    /// Returns true if `seen` shows that the write happened, or that it didn't.
    fn is_settled_by(&self, seen: &PodRecord) -> bool {
        match &self.uncertainty {
            ExpectationState::UnderWay
            | ExpectationState::Accepted
            | ExpectationState::Unanswered => self.write.shows_in(seen),
            ExpectationState::Conflict(version) => seen.pod.resource_version != *version,
        }
    }

    /// Changes `pod` to its state after the pending write.
    fn show(&self, pod: &mut Pod) {
        if let PodWrite::Deletion | PodWrite::Eviction = self.write {
            pod.in_doubt = !pod.terminating && !self.uncertainty.is_sure();
        }
        self.write.show(pod, self.at);
    }

    /// Returns the time at which the pods have to be listed again to check the write; `None` while the answer is awaited.
    fn due(&self) -> Option<Timestamp> {
        match self.uncertainty {
            ExpectationState::UnderWay => None,
            ExpectationState::Accepted | ExpectationState::Conflict(_) => {
                Some(later(self.at, UNSEEN))
            }
            ExpectationState::Unanswered => Some(later(self.at, UNANSWERED)),
        }
    }

    /// Returns true if a complete list that started at `began` can't settle the write, because it may happen after that.
    fn outlasts(&self, began: Timestamp) -> bool {
        match self.uncertainty {
            ExpectationState::UnderWay => true,
            ExpectationState::Accepted | ExpectationState::Conflict(_) => self.at > began,
            ExpectationState::Unanswered => later(self.at, UNANSWERED) > began,
        }
    }
}

/// Last report that was sent for a DaemonSet.
#[derive(Clone, Debug)]
struct SentReport {
    conditions: Vec<Condition>,
    at: Timestamp,
    /// Resource version of the DaemonSet after the report was written; `None` if unknown.
    version: Option<u64>,
}

/// Writes of the controller for one DaemonSet that the watches don't show yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Expectations {
    /// Writes to each pod, at most one per [`Aspect`].
    pods: BTreeMap<PodUid, Vec<PendingWrite>>,
    report: Option<SentReport>,
}

impl Expectations {
    /// Records that `action` is sent at `now`; `known` is the cached pod.
    pub(super) fn begin(&mut self, action: &Action, known: Option<&PodRecord>, now: Timestamp) {
        let uid = &action.pod().uid;
        if let Action::RemoveConditions { .. } = action {
            self.keep(uid, |pending| pending.write.aspect() != Aspect::Images);
        }
        let pending = PendingWrite {
            at: now,
            write: PodWrite::from_action(action),
            uncertainty: ExpectationState::UnderWay,
        };
        self.insert(uid.clone(), pending, known);
    }

    /// Records a write. Has no effect if the cached pod `known` shows its result already, or if there is no such pod.
    fn insert(&mut self, uid: PodUid, pending: PendingWrite, known: Option<&PodRecord>) {
        self.retract(&uid, &pending.write);
        if known.is_some_and(|known| !pending.is_settled_by(known)) {
            self.pods.entry(uid).or_default().push(pending);
        }
    }

    /// Records the answer to `action` at `now`; `known` is the cached pod.
    pub(super) fn answer(
        &mut self,
        action: &Action,
        answer: WriteAnswer,
        known: Option<&PodRecord>,
        now: Timestamp,
    ) {
        let (pod, write) = (action.pod(), PodWrite::from_action(action));
        let uncertainty = match answer {
            WriteAnswer::Accepted | WriteAnswer::Gone => {
                // Update the record of the write. If there is none, the watch has already shown the write, and none is added.
                let writes = self.pods.get_mut(&pod.uid).into_iter().flatten();
                for pending in writes.filter(|pending| pending.write == write) {
                    (pending.at, pending.uncertainty) = (now, ExpectationState::Accepted);
                }
                return;
            }
            WriteAnswer::Conflict if write.aspect() == Aspect::Replacement => {
                ExpectationState::Conflict(pod.resource_version.clone())
            }
            WriteAnswer::Unanswered if write.counts_in_doubt() => ExpectationState::Unanswered,
            WriteAnswer::Refused | WriteAnswer::Conflict | WriteAnswer::Unanswered => {
                return self.retract(&pod.uid, &write);
            }
        };
        let pending = PendingWrite {
            at: now,
            write,
            uncertainty,
        };
        self.insert(pod.uid.clone(), pending, known);
    }

    /// Returns the `actions` that have not been sent yet. Records of writes that are not in `actions` are dropped: the plan no
    /// longer requests them, because the cache shows them.
    pub(super) fn without_pending(&mut self, actions: Vec<Action>) -> Vec<Action> {
        if self.pods.is_empty() {
            return actions;
        }
        let mut unseen = BTreeSet::new();
        let is_fresh = |action: &Action| {
            let uid = &action.pod().uid;
            let mut writes = self.pods.get(uid).into_iter().flatten();
            let sent = writes.find(|pending| match &pending.write {
                PodWrite::Other(sent) => sent.says_the_same(action),
                _ => false,
            });
            unseen.extend(sent.map(|pending| (uid.clone(), pending.write.aspect())));
            sent.is_none()
        };
        let fresh = actions.into_iter().filter(is_fresh).collect();
        self.pods.retain(|uid, writes| {
            writes.retain(|pending| match &pending.write {
                write @ PodWrite::Other(_) => unseen.contains(&(uid.clone(), write.aspect())),
                _ => true,
            });
            !writes.is_empty()
        });
        fresh
    }

    /// Records that the task that sent writes has failed. The writes without an answer may never get one.
    pub(super) fn lose_answers(&mut self, now: Timestamp) {
        let writes = self.pods.values_mut().flatten();
        for pending in writes.filter(|pending| pending.uncertainty == ExpectationState::UnderWay) {
            (pending.at, pending.uncertainty) = (now, ExpectationState::Unanswered);
        }
        self.report = None;
    }

    /// Drops the record of `write`, and of any other write to the same part of the pod, because `write` certainly didn't happen.
    fn retract(&mut self, uid: &PodUid, write: &PodWrite) {
        self.keep(uid, |pending| pending.write.aspect() != write.aspect());
    }

    /// Drops all writes to a pod that is gone.
    pub(super) fn forget(&mut self, uid: &PodUid) {
        self.pods.remove(uid);
    }

    /// Drops the records of writes whose result `seen` shows. Returns true if one of them was a deletion or update of the pod.
    pub(super) fn settle(&mut self, seen: &PodRecord) -> bool {
        let mut settled = false;
        self.keep(seen.uid(), |pending| {
            let is_settled = pending.is_settled_by(seen);
            settled |= is_settled && pending.write.aspect() == Aspect::Replacement;
            !is_settled
        });
        settled
    }

    /// Drops the records of writes that a complete list of pods would show. `began` is the start of the list. `is_there` is true
    /// for the listed pods.
    pub(super) fn retain_since(
        &mut self,
        began: Option<Timestamp>,
        is_there: impl Fn(&PodUid) -> bool,
    ) {
        self.pods.retain(|uid, writes| {
            writes.retain(|pending| began.is_some_and(|began| pending.outlasts(began)));
            !writes.is_empty() && is_there(uid)
        });
    }

    /// Returns `pod` as it is after all writes that the watch doesn't show yet.
    pub(super) fn shown(&self, pod: &Arc<Pod>) -> Arc<Pod> {
        let mut shown = pod.clone();
        for pending in self.pods.get(&pod.uid).into_iter().flatten() {
            pending.show(Arc::make_mut(&mut shown));
        }
        shown
    }

    /// Returns true if the result of some write is unknown, because of a conflict or a missing answer.
    pub(super) fn is_uncertain(&self) -> bool {
        let mut writes = self.pods.values().flatten();
        writes.any(|pending| !pending.uncertainty.is_sure())
    }

    /// Returns the time at which the pods have to be listed again, because the watch should have shown a write by then.
    pub(super) fn due(&self) -> Option<Timestamp> {
        let writes = self.pods.values().flatten();
        writes.filter_map(PendingWrite::due).min()
    }

    /// Records that a report with these conditions is sent.
    ///
    /// If the watch doesn't show the report in time, the report is sent again, which changes at most a timestamp. To find out if
    /// the API server has the report, the controller would have to list all DaemonSets of the cluster.
    pub(super) fn begin_report(&mut self, conditions: Vec<Condition>, now: Timestamp) {
        self.report = Some(SentReport {
            conditions,
            at: now,
            version: None,
        });
    }

    /// Records the resource version of the DaemonSet after the report was written.
    pub(super) fn answer_report(&mut self, version: Option<u64>) {
        if let Some(sent) = &mut self.report {
            sent.version = version;
        }
    }

    /// Returns true if the last report that was sent has these conditions.
    pub(super) fn is_sent(&self, conditions: &[Condition]) -> bool {
        let sent = self.report.as_ref();
        sent.is_some_and(|sent| sent.conditions == conditions)
    }

    /// Returns true if the DaemonSet in version `seen` may be older than the report that was sent.
    pub(super) fn is_report_unseen(&self, seen: Option<u64>, now: Timestamp) -> bool {
        self.report.as_ref().is_some_and(|sent| {
            let shows = sent.version.is_some() && seen >= sent.version;
            !shows && now < later(sent.at, UNSEEN)
        })
    }

    /// Records that the report could not be written.
    pub(super) fn lose_report(&mut self) {
        self.report = None;
    }

    fn keep(&mut self, uid: &PodUid, keep: impl FnMut(&PendingWrite) -> bool) {
        if let Some(writes) = self.pods.get_mut(uid) {
            writes.retain(keep);
            if writes.is_empty() {
                self.pods.remove(uid);
            }
        }
    }
}
