//! Writes of the controller for a DaemonSet: the ones that the watches don't show yet, and the API server's answers.

use k8s_openapi::jiff::Timestamp;

use super::SetRecord;
use crate::core::{
    Action, Evictions, Node, NodeName, PodProblem, PodUid, Refusal, Revision, RevisionState,
    WriteFailures,
};
use crate::index::ended::RecalledProblem;
use crate::index::expectations::{PodWrite, WriteAnswer};
use crate::index::last_reported::LastReported;
use crate::k8s;

impl SetRecord {
    /// Records that a write is sent. Until the watch shows the write, decisions see the pod as if it had happened.
    pub fn begin_write(&mut self, action: &Action, now: Timestamp) {
        let uid = &action.pod().uid;
        self.touch_place_of(uid);
        if PodWrite::from_action(action).replaces() {
            self.begin_replacement(uid, now);
        }
        if let Action::DeleteAfterSurge { successor, .. } = action {
            self.begin_write(&Action::TransferOwnership(successor.clone()), now);
        }
        let known = self.pods.get(uid);
        self.expectations.begin(action, known, now);
    }

    /// Records the answer to a write.
    pub fn end_write(&mut self, action: &Action, answer: WriteAnswer, now: Timestamp) {
        let uid = &action.pod().uid;
        self.touch_place_of(uid);
        if PodWrite::from_action(action).replaces() {
            self.end_replacement(uid, answer == WriteAnswer::Accepted);
        }
        let known = self.pods.get(uid);
        self.expectations.answer(action, answer, known, now);
    }

    /// Records that the task that sent writes has failed, so that their answers are lost.
    pub fn lose_answers(&mut self, now: Timestamp) {
        self.cache.forget();
        self.expectations.lose_answers(now);
        self.disruptions.lose_answers();
        if let Some(advanced) = &mut self.advanced {
            advanced.lose_answers(now);
        }
    }

    /// Returns the `actions` that were not sent yet. After an action was sent, it is omitted until the watch shows its effect.
    pub fn without_pending(&mut self, actions: Vec<Action>) -> Vec<Action> {
        self.expectations.without_pending(actions)
    }

    /// Records that a report with these conditions is sent.
    pub fn begin_report(&mut self, conditions: Vec<k8s::Condition>, now: Timestamp) {
        self.expectations.begin_report(conditions, now);
    }

    /// Records the resource version of the DaemonSet after the report was written; `None` if unknown.
    pub fn answer_report(&mut self, version: Option<u64>) {
        self.expectations.answer_report(version);
    }

    /// Returns true if the last report that was sent has these conditions.
    pub fn is_sent(&self, conditions: &[k8s::Condition]) -> bool {
        self.expectations.is_sent(conditions)
    }

    /// Returns true if a report was sent that the watch may not show yet.
    ///
    /// If the result is false and the status differs from the report, another client changed the status.
    pub fn is_report_unseen(&self, now: Timestamp) -> bool {
        self.expectations.is_report_unseen(self.version, now)
    }

    /// Records that the report could not be written.
    pub fn lose_report(&mut self) {
        self.expectations.lose_report();
        if let Some(advanced) = &mut self.advanced {
            advanced.lose_numbers();
        }
    }

    /// Records the answer to the eviction of a pod. `refusal` is the reason if it was rejected.
    pub fn note_eviction(&mut self, uid: &PodUid, refusal: Option<Refusal>, now: Timestamp) {
        let mut evictions = std::mem::take(&mut self.evictions);
        let pods = || self.pods().map(|(_, pod)| pod);
        match (pods().find(|pod| pod.uid == *uid), refusal) {
            (Some(pod), Some(refusal)) => {
                evictions.tidy(pods());
                evictions.refuse(pod, refusal, now);
            }
            (Some(pod), None) => evictions.accept(pod),
            (None, _) => {}
        }
        self.evictions = evictions;
    }

    /// Replaces the recorded answers to evictions.
    pub fn set_evictions(&mut self, evictions: Evictions) {
        self.evictions = evictions;
    }

    /// Returns the rejected and failed writes other than evictions. If `revision` is known, only its writes are returned. Entries
    /// of pods that are gone are dropped.
    pub(in crate::index) fn refusals(
        &mut self,
        revision: Option<&Revision>,
        nodes: &[Node],
    ) -> WriteFailures {
        let mut write_failures = self.known_write_failures();
        if let Some(revision) = revision {
            write_failures.keep_to(revision);
        }
        write_failures.tidy(nodes);
        if matches!(self.write_failures, LastReported::Reported(_)) {
            self.write_failures = LastReported::Reported(Some(write_failures.clone()));
        }
        write_failures
    }

    /// Returns true if any rejected or failed write is recorded.
    pub(in crate::index) fn has_write_failures(&self) -> bool {
        !(self.evictions.is_empty() && self.known_write_failures().is_empty())
    }

    /// Returns true if the pod changes so often that a write for a certain resource version would fail.
    pub fn is_contended(&self, pod: &PodUid) -> bool {
        match &self.write_failures {
            LastReported::Reported(Some(write_failures)) => write_failures.is_contended(pod),
            _ => false,
        }
    }

    pub(super) fn known_write_failures(&self) -> WriteFailures {
        let stands = || self.state.refusals();
        self.write_failures.or(stands).unwrap_or_default()
    }

    /// Records the result of a write to an existing pod.
    pub fn note_write(&mut self, uid: &PodUid, note: impl FnOnce(&mut WriteFailures, &NodeName)) {
        if let Some(node) = self.pods.place_of(uid).cloned() {
            self.note_write_on(&node, note);
        }
    }

    /// Records the result of a write on a node, for example the creation of a pod.
    pub fn note_write_on(
        &mut self,
        node: &NodeName,
        note: impl FnOnce(&mut WriteFailures, &NodeName),
    ) {
        let mut write_failures = self.known_write_failures();
        note(&mut write_failures, node);
        self.write_failures = LastReported::Reported(Some(write_failures));
    }

    pub(super) fn touch_place_of(&mut self, uid: &PodUid) {
        if let Some(node) = self.pods.place_of(uid) {
            self.cache.mark_dirty(node);
        }
    }

    /// Records that the pod is about to be deleted for the current revision.
    ///
    /// A surge pod is not recorded, because its deletion is no replacement. A pod that is deleted for another reason than the
    /// rollout isn't recorded either.
    pub(super) fn begin_replacement(&mut self, uid: &PodUid, now: Timestamp) {
        let advanced = self.advanced.as_ref();
        if advanced.is_some_and(|advanced| advanced.is_leaving(uid)) {
            return;
        }
        let Some(node) = self.pods.place_of(uid) else {
            return;
        };
        if self.pods.get(uid).is_some_and(|record| !record.pod.surge) {
            let revision = self.cache.revision();
            self.guard.begin(uid.clone(), node.clone(), revision);
            self.disruptions.send(node.clone(), uid.clone(), now);
        }
    }

    /// Records the answer to a deletion. `carried_out` is true if the API server certainly deleted the pod.
    pub(super) fn end_replacement(&mut self, uid: &PodUid, carried_out: bool) {
        self.disruptions.answer(uid, carried_out);
        if let Some(node) = self.guard.end(uid, carried_out) {
            self.cache.mark_dirty(&node);
        }
    }

    /// Returns the time at which the last pod of a revision other than `current` left a node. `None` if its successor has been
    /// Ready.
    ///
    /// `adopted` is the time at which `current` became the current revision.
    pub(in crate::index) fn disrupted_at(
        &self,
        node: &NodeName,
        current: &RevisionState,
        adopted: Option<Timestamp>,
    ) -> Option<Timestamp> {
        self.disruptions.at(node, current, adopted)
    }

    /// Returns the problem of a node on which several pods of `current` ended, one after the other.
    pub(in crate::index) fn trouble(
        &mut self,
        node: &NodeName,
        current: &RevisionState,
        now: Timestamp,
    ) -> Option<PodProblem> {
        let RevisionState::Current(current) = current else {
            return None;
        };
        let is_first_look = self.cache.is_first_look();
        let recalled = || RecalledProblem::new(&self.state, node).filter(|_| is_first_look);
        self.ended.trouble(node, current, now, recalled)
    }

    /// Returns true if the controller deleted the node's last pod for the current template, and no pod has been Ready there since.
    pub(in crate::index) fn is_emptied(&self, node: &NodeName) -> bool {
        self.disruptions.is_ours(node) || self.cache.remembers(node)
    }

    /// Returns true if a node of an Advanced DaemonSet had a pod that is gone.
    pub(in crate::index) fn had_pod(&self, node: &NodeName) -> bool {
        let advanced = self.advanced.as_ref();
        advanced.is_some_and(|advanced| advanced.had_pod(node))
    }

    /// Forgets the nodes for which `is_there` is false, because they no longer exist.
    pub(in crate::index) fn keep_held(&mut self, is_there: impl FnMut(&NodeName) -> bool) {
        if let Some(advanced) = &mut self.advanced {
            advanced.keep_held(is_there);
        }
    }

    /// Returns true if the result of some write is unknown, because of a conflict or a missing answer.
    pub fn has_uncertain_writes(&self) -> bool {
        self.expectations.is_uncertain()
    }

    /// Returns the time at which the pods have to be listed again, because the watch should have shown a write by then.
    pub fn pending_due(&self) -> Option<Timestamp> {
        let advanced = self.advanced.as_ref();
        let created = advanced.and_then(|advanced| advanced.creation_due());
        self.expectations.due().into_iter().chain(created).min()
    }
}
