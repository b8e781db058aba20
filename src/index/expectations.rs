//! Writes of ours that the watches do not show yet: a view that is a moment old must not have them sent again, nor counted as
//! undone.
//!
//! ```text
//!                  ┌── refused ─────────────────────────────────────────────► forgotten: it did not happen
//! begun ─► sent ───┤                            ┌── shown by the watch ─────► forgotten: it is known
//!                  └── accepted, or no answer ──┤
//!                                               └── not shown in time ──────► the pods are listed anew: what the list
//!                                                                             does not show did not happen
//! ```
//!
//! That is the one rule of expiry (the report on a DaemonSet differs, and says why). Nothing is written twice because a watch is
//! late, and nothing is held back for ever because an answer was lost.

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

/// How long a write may stay unseen before somebody has to look: events are lost.
pub const UNSEEN: Duration = Duration::from_secs(30);

/// The same for a request that was not answered, which a server that was frozen may still carry out until then.
pub(super) const UNANSWERED: Duration = Duration::from_secs(15);

/// A write to a pod that does not show yet.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PendingWrite {
    /// When it was asked for, or answered.
    at: Timestamp,
    /// What was asked for.
    write: PodWrite,
    /// What the API server said.
    uncertainty: ExpectationState,
}

/// What is asked for of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodWrite {
    /// That it goes.
    Deletion,
    /// The same, if its disruption budget allows that.
    Eviction,
    /// That it waits for its hook.
    PreDeleteHook,
    /// That it becomes one of this revision in place.
    InPlacePatch {
        /// The revision.
        to: Revision,
        /// The stopped revision that it is taken back from; `None`: the new one is the current one.
        from: Option<Revision>,
    },
    /// That its node pulls the images of this revision.
    ImageRequest(Revision),
    /// Something else, which leaves it as it serves: conditions, who owns it, a pod beside it.
    Other(Action),
}

/// How sure we are of a write of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ExpectationState {
    /// Under way: it may be carried out at any moment, and will be answered.
    UnderWay,
    /// Accepted: it shows in the watch before long.
    Accepted,
    /// Refused because our view of the pod was old: judge again when the view has moved past this version.
    Conflict(ResourceVersion),
    /// No answer: it may have happened. Asking again is harmless.
    Unanswered,
}

/// How a write was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteAnswer {
    /// It is carried out.
    Accepted,
    /// It is not.
    Refused,
    /// Nor because the view of the pod was old.
    Conflict,
    /// There is no such pod; the watch is about to say so.
    Gone,
    /// Nobody knows.
    Unanswered,
}

/// What a write is about: of each, the last write to a pod counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Aspect {
    /// Whether the pod stays as it is.
    Replacement,
    /// What its node is to pull.
    Images,
    /// Conditions that say something.
    Conditions,
    /// Conditions that are taken away.
    RemovedConditions,
    /// What it says about its way out.
    Exit,
    /// Who owns it.
    Owner,
    /// The pod that is made beside it.
    Beside,
}

impl PodWrite {
    /// What `action` asks for.
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

    /// Whether the pod has its successor by it, or makes room for one: not that it waits, nor that it is taken back.
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

    /// Whether it counts as happening while nobody knows whether it does: it takes a slot or makes a pod. Anything else is asked
    /// for again at once, which does no harm.
    fn counts_in_doubt(&self) -> bool {
        match self {
            Self::Other(action) => matches!(action, Action::Surge { .. }),
            Self::ImageRequest(_) => false,
            Self::Deletion | Self::Eviction | Self::PreDeleteHook | Self::InPlacePatch { .. } => {
                true
            }
        }
    }

    /// Whether `seen` shows that it was carried out.
    fn shows_in(&self, seen: &PodRecord) -> bool {
        match self {
            Self::Deletion | Self::Eviction => seen.pod.terminating,
            Self::PreDeleteHook => seen.pod.terminating || seen.pod.exit.preparing.is_some(),
            Self::InPlacePatch { to, .. } => seen.pod.terminating || seen.hash() == Some(to),
            // A second attempt shows when it waits, the first one as soon as it is there at all.
            Self::ImageRequest(revision) => {
                let image = seen.pod.image_ready.as_ref();
                image.is_some_and(|image| {
                    image.revision.as_ref() == Some(revision) && (image.waits || image.status)
                })
            }
            // The decision tells: it does not ask for what shows.
            Self::Other(_) => false,
        }
    }

    /// Shows `pod` as it is once this has happened; it was asked for, or last uncertain, at `at`.
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
                // What kept the old containers from running says nothing of the new ones.
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
            // It is left out of what the decision asks for.
            Self::Other(_) => {}
        }
    }
}

impl ExpectationState {
    /// Whether it is expected to happen.
    fn is_sure(&self) -> bool {
        matches!(self, Self::UnderWay | Self::Accepted)
    }
}

impl PendingWrite {
    /// Whether `seen` shows that it happened, or that it did not.
    fn is_settled_by(&self, seen: &PodRecord) -> bool {
        match &self.uncertainty {
            ExpectationState::UnderWay
            | ExpectationState::Accepted
            | ExpectationState::Unanswered => self.write.shows_in(seen),
            ExpectationState::Conflict(version) => seen.pod.resource_version != *version,
        }
    }

    /// Shows `pod` as it is once this has happened.
    fn show(&self, pod: &mut Pod) {
        if let PodWrite::Deletion | PodWrite::Eviction = self.write {
            pod.in_doubt = !pod.terminating && !self.uncertainty.is_sure();
        }
        self.write.show(pod, self.at);
    }

    /// When somebody has to look; `None`: not before it is answered.
    fn due(&self) -> Option<Timestamp> {
        match self.uncertainty {
            ExpectationState::UnderWay => None,
            ExpectationState::Accepted | ExpectationState::Conflict(_) => {
                Some(later(self.at, UNSEEN))
            }
            ExpectationState::Unanswered => Some(later(self.at, UNANSWERED)),
        }
    }

    /// Whether a complete list that began then says nothing of it, because it may be carried out later.
    fn outlasts(&self, began: Timestamp) -> bool {
        match self.uncertainty {
            ExpectationState::UnderWay => true,
            ExpectationState::Accepted | ExpectationState::Conflict(_) => self.at > began,
            ExpectationState::Unanswered => later(self.at, UNANSWERED) > began,
        }
    }
}

/// The report on a DaemonSet that was sent last.
#[derive(Clone, Debug)]
struct SentReport {
    conditions: Vec<Condition>,
    at: Timestamp,
    /// The version of the DaemonSet that the write made; `None`: not known.
    version: Option<u64>,
}

/// The writes of ours to one DaemonSet and its pods that do not show yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Expectations {
    /// At most one of each aspect.
    pods: BTreeMap<PodUid, Vec<PendingWrite>>,
    report: Option<SentReport>,
}

impl Expectations {
    /// `action` is sent at `now`; `known` is what is known of its pod.
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

    /// Remembers a write, unless what is `known` of the pod settles it already, or no such pod is.
    fn insert(&mut self, uid: PodUid, pending: PendingWrite, known: Option<&PodRecord>) {
        self.retract(&uid, &pending.write);
        if known.is_some_and(|known| !pending.is_settled_by(known)) {
            self.pods.entry(uid).or_default().push(pending);
        }
    }

    /// Takes in how `action` was answered at `now`; `known` is what is known of its pod.
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
                // What shows already is not remembered again.
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

    /// Leaves out of `actions` what was sent already. What was sent and is not among them shows: it is forgotten.
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

    /// Whoever sent some of them failed: of none that is under way an answer is sure to come.
    pub(super) fn lose_answers(&mut self, now: Timestamp) {
        let writes = self.pods.values_mut().flatten();
        for pending in writes.filter(|pending| pending.uncertainty == ExpectationState::UnderWay) {
            (pending.at, pending.uncertainty) = (now, ExpectationState::Unanswered);
        }
        self.report = None;
    }

    /// Forgets `write`, or whatever was last in its place: it certainly did not happen.
    fn retract(&mut self, uid: &PodUid, write: &PodWrite) {
        self.keep(uid, |pending| pending.write.aspect() != write.aspect());
    }

    /// The pod is gone.
    pub(super) fn forget(&mut self, uid: &PodUid) {
        self.pods.remove(uid);
    }

    /// Forgets what the watch shows by now, or shows not to have happened; whether a replacement was among that.
    pub(super) fn settle(&mut self, seen: &PodRecord) -> bool {
        let mut settled = false;
        self.keep(seen.uid(), |pending| {
            let is_settled = pending.is_settled_by(seen);
            settled |= is_settled && pending.write.aspect() == Aspect::Replacement;
            !is_settled
        });
        settled
    }

    /// Forgets what a complete list that began then would have shown; `is_there` tells which pods it did.
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

    /// Shows `pod` as it is once everything that is pending has happened.
    pub(super) fn shown(&self, pod: &Arc<Pod>) -> Arc<Pod> {
        let mut shown = pod.clone();
        for pending in self.pods.get(&pod.uid).into_iter().flatten() {
            pending.show(Arc::make_mut(&mut shown));
        }
        shown
    }

    /// Whether one of them was refused or never answered, and what became of its pod is not known yet.
    pub(super) fn is_uncertain(&self) -> bool {
        let mut writes = self.pods.values().flatten();
        writes.any(|pending| !pending.uncertainty.is_sure())
    }

    /// When the pods have to be listed anew, because one of them should have shown by then.
    pub(super) fn due(&self) -> Option<Timestamp> {
        let writes = self.pods.values().flatten();
        writes.filter_map(PendingWrite::due).min()
    }

    /// These conditions are sent. A report that stays unseen is sent again: a list of DaemonSets is one of the whole cluster, and
    /// repeating a report changes at most since when it holds.
    pub(super) fn begin_report(&mut self, conditions: Vec<Condition>, now: Timestamp) {
        self.report = Some(SentReport {
            conditions,
            at: now,
            version: None,
        });
    }

    /// The report was written as this version of the DaemonSet.
    pub(super) fn answer_report(&mut self, version: Option<u64>) {
        if let Some(sent) = &mut self.report {
            sent.version = version;
        }
    }

    /// Returns true if these conditions were sent last.
    pub(super) fn is_sent(&self, conditions: &[Condition]) -> bool {
        let sent = self.report.as_ref();
        sent.is_some_and(|sent| sent.conditions == conditions)
    }

    /// Returns true if a report was sent that a DaemonSet of version `seen` may not show yet.
    pub(super) fn is_report_unseen(&self, seen: Option<u64>, now: Timestamp) -> bool {
        self.report.as_ref().is_some_and(|sent| {
            let shows = sent.version.is_some() && seen >= sent.version;
            !shows && now < later(sent.at, UNSEEN)
        })
    }

    /// The report was not written.
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
