//! What is remembered of a DaemonSet that is ours: its settings, its pods, and what we wrote and do not see yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;

use super::advanced::{AdvancedRecord, StatusNumbers};
use super::disruptions::Disruptions;
use super::ended::{Ended, RecalledProblem};
use super::fleet_cache::{Basis, FleetCache};
use super::guarded::GuardedRevision;
use super::key::{SetKey, SetKind};
use super::last_reported::LastReported;
use super::legacy;
use super::node::NodeRecord;
use super::pending::{PendingWrites, PodWrite, WriteAnswer};
use super::pod::{PodRecord, SharedParts};
use super::pod_index::PodIndex;
use super::texts::Texts;
use crate::core::eligibility::Scheduling;
use crate::core::engine::patience::MISSING_GRACE;
use crate::core::fleet::in_place::{InPlaceTransition, InPlaceTransitions};
use crate::core::images::TemplateImage;
use crate::core::names::{
    OWN_CONDITIONS, REVISION_HASH_LABEL, ROLLOUT_STATE, TEMPLATE_GENERATION_ANNOTATION,
};
use crate::core::plan::Stall;
use crate::core::revision::{
    RevisionFacts, RollbackMark, TemplateFingerprint, current, earlier, judge, number_of,
};
use crate::core::selector::Selector;
use crate::core::settings::{DEFAULT_IMAGE_PREDOWNLOAD_TIMEOUT, read};
use crate::core::{
    Action, DaemonSetCounts, Evictions, FailureRecord, Invalid, Node, NodeName, OnFailure,
    PauseRecord, Pod, PodName, PodProblem, PodRef, PodRevision, PodUid, Pods, Predownloading,
    Reading, Refusal, Refusals, Revision, RevisionState, RollbackTarget, RollbackTargets,
    RollingUpdateType, RolloutState, Targeting, instant,
};
use crate::k8s;

/// That a node has no pod.
#[derive(Clone, Copy, Debug)]
pub(super) struct Podless {
    since: Timestamp,
    /// Whether one belongs there. When that changes, the wait begins anew.
    is_targeted: bool,
}

/// A DaemonSet.
#[derive(Debug)]
pub struct SetRecord {
    /// Its name.
    pub name: Arc<str>,
    /// Where it is.
    pub namespace: Arc<str>,
    /// Its UID.
    pub uid: Arc<str>,
    /// `metadata.generation`.
    pub generation: i64,
    /// `status.observedGeneration`.
    pub observed: i64,
    /// What its annotations say.
    pub reading: Reading,
    /// Its template.
    pub template: TemplateFingerprint,
    /// Marks of its last rollback.
    pub rollback_mark: RollbackMark,
    /// Our conditions as they stand on it.
    pub conditions: Vec<k8s::Condition>,
    /// What they remember of the rollout.
    pub state: Arc<RolloutState>,
    /// Why that cannot be read; the rollout goes on as if nothing were remembered.
    pub state_error: Option<Arc<str>>,
    /// The label selector of its pods, as a query.
    pub selector: String,
    /// Whether the pods are known completely.
    pub synced: bool,
    /// How long its pods have to be Ready to be available.
    pub min_ready: Duration,
    /// What it has beyond a native one; `None`: it is one.
    pub advanced: Option<Box<AdvancedRecord>>,
    pub(super) scheduling: Scheduling,
    pub(super) podless: BTreeMap<NodeName, Podless>,
    /// Pods that we have to let go if they are still there: the selector does not match them any more.
    strays: BTreeSet<(PodUid, String)>,
    disruptions: Disruptions,
    /// Why the native controller could not make a pod.
    not_created: LastReported<Arc<str>>,
    /// Why pods do not become available.
    not_ready: LastReported<BTreeMap<PodName, Arc<str>>>,
    ended: Ended,
    /// Since when it is not known what is rolled out.
    behind_since: Option<Timestamp>,
    template_generation: Option<String>,
    pods: PodIndex,
    shared: SharedParts,
    /// Writes of ours to it and its pods that do not show yet.
    pending: PendingWrites,
    /// How evictions were answered.
    pub(super) evictions: Evictions,
    /// How other writes were refused.
    refusals: LastReported<Refusals>,
    absent: BTreeSet<Revision>,
    trusted: Option<i64>,
    /// The template for which the newest revision was found last.
    confirmed: Option<TemplateFingerprint>,
    version: Option<u64>,
    /// Its pods that cannot be read.
    unreadable: BTreeMap<PodUid, UnreadablePod>,
    pub(super) cache: FleetCache,
    pub(super) guard: GuardedRevision,
    pause: LastReported<PauseRecord>,
}

/// A pod that cannot be read.
#[derive(Debug)]
struct UnreadablePod {
    name: PodName,
    /// Its node, as far as that could be read.
    node: Option<NodeName>,
    why: Arc<str>,
}

/// How soon a DaemonSet is decided again after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequeueDelay {
    /// Not because of it.
    Never,
    /// Before long: it frees no slot, only words and numbers follow it.
    Long,
    /// After the burst it is part of: it may let the rollout go on.
    Short,
    /// At once: the owner of the DaemonSet asked for something else.
    Zero,
}

/// Controller of a pod of a DaemonSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodController {
    /// The DaemonSet itself.
    DaemonSet,
    /// A ControllerRevision of the DaemonSet: the pod was made beside an old one (`max-surge` of a native DaemonSet).
    Revision,
}

impl PodController {
    /// Returns what controls a pod of the DaemonSet with this UID; `None` if the pod belongs to something else.
    ///
    /// A pod made for `max-surge` is controlled by a ControllerRevision and has the DaemonSet as a second owner. Kubernetes
    /// removes the second owner when the DaemonSet is deleted without its pods. Then the name of the revision decides.
    pub fn of(meta: &ObjectMeta, set: &str) -> Option<Self> {
        let owners = || meta.owner_references.iter().flatten();
        let controller = owners().find(|owner| owner.controller == Some(true))?;
        if controller.uid == set {
            return Some(Self::DaemonSet);
        }
        let label = |key| meta.labels.as_ref()?.get(key).map(String::as_str);
        let own = owners().any(|owner| owner.uid == set);
        let was_own = || {
            let hash = label(REVISION_HASH_LABEL).unwrap_or_default();
            let others = owners().any(|owner| owner.kind == "DaemonSet");
            // One that was adopted keeps the name that another DaemonSet gave it.
            let names = !hash.is_empty() && controller.name.ends_with(&format!("-{hash}"));
            !others && names
        };
        (controller.kind == "ControllerRevision" && (own || was_own())).then_some(Self::Revision)
    }
}

impl SetRecord {
    pub(super) fn read(set: &k8s::DaemonSet) -> Self {
        let meta = &set.metadata;
        let reading = match (read(&set.settings()), &set.spec.unreadable) {
            (Reading::NotOurs, _) => Reading::NotOurs,
            (reading, Some(unreadable)) => {
                let invalid = Invalid::unreadable("spec", &unreadable.error);
                reading.refused(invalid)
            }
            (reading, None) => reading,
        };
        let own = |condition: &&k8s::Condition| OWN_CONDITIONS.contains(&condition.kind.as_str());
        let annotation = |key| {
            meta.annotations
                .as_ref()
                .and_then(|annotations| annotations.get(key))
                .cloned()
        };
        let conditions: Vec<_> = set.status.conditions.iter().filter(own).cloned().collect();
        let (state, state_error) = match reported_state(&conditions) {
            Ok(state) => (state, None),
            Err(error) => (RolloutState::default(), Some(error.to_string().into())),
        };
        Self {
            name: meta.name.as_deref().unwrap_or_default().into(),
            namespace: meta.namespace.as_deref().unwrap_or_default().into(),
            uid: meta.uid.as_deref().unwrap_or_default().into(),
            generation: meta.generation.unwrap_or_default(),
            observed: set.status.observed_generation.unwrap_or_default(),
            reading,
            template: set.spec.template,
            rollback_mark: RollbackMark::of(meta),
            state: Arc::new(state),
            state_error,
            conditions,
            selector: Selector::from_json(&set.spec.selector)
                .map(|selector| selector.to_query())
                .unwrap_or_default(),
            synced: false,
            min_ready: set.spec.min_ready,
            advanced: AdvancedRecord::read(set),
            scheduling: set.spec.scheduling.clone(),
            podless: BTreeMap::new(),
            strays: BTreeSet::new(),
            disruptions: Disruptions::default(),
            not_created: LastReported::Nothing,
            not_ready: LastReported::Nothing,
            ended: Ended::default(),
            behind_since: None,
            template_generation: annotation(TEMPLATE_GENERATION_ANNOTATION),
            pods: PodIndex::default(),
            shared: SharedParts::default(),
            pending: PendingWrites::default(),
            evictions: Evictions::default(),
            refusals: LastReported::default(),
            absent: BTreeSet::new(),
            trusted: None,
            confirmed: None,
            unreadable: BTreeMap::new(),
            cache: FleetCache::default(),
            guard: GuardedRevision::default(),
            pause: LastReported::default(),
            version: meta
                .resource_version
                .as_deref()
                .and_then(|version| version.parse().ok()),
        }
    }

    /// Namespace and name.
    pub fn key(&self) -> SetKey {
        let kind = match self.is_advanced() {
            true => SetKind::Advanced,
            false => SetKind::Native,
        };
        SetKey {
            kind,
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }

    /// Its numbers at `now`, over these nodes with whether a pod belongs there.
    pub(super) fn counts<'a>(
        &self,
        nodes: impl Iterator<Item = (&'a NodeName, Targeting)>,
        now: Timestamp,
    ) -> DaemonSetCounts {
        let mut counts = DaemonSetCounts::default();
        let mut pods = Vec::new();
        for (name, native) in nodes {
            pods.clear();
            pods.extend(self.pods_on(name));
            counts.add(native, &pods, self.min_ready, now);
        }
        counts
    }

    /// What stands in the status beside conditions, as it should be.
    pub(super) fn numbers(
        &self,
        counts: DaemonSetCounts,
        state: &RevisionState,
        handled: bool,
    ) -> StatusNumbers {
        let stands = self.advanced.as_ref().map(|advanced| &advanced.stands);
        let before = || {
            let told = stands.and_then(|stands| stands.update_revision.as_deref());
            told.map(Revision::from)
        };
        StatusNumbers {
            counts,
            revision: match state {
                RevisionState::Current(revision) => Some(revision.clone()),
                RevisionState::Unknown(_) => before(),
            },
            observed: match handled {
                true => self.generation,
                false => self.observed,
            },
            collisions: self.advanced.as_ref().map_or(0, |own| own.collisions),
        }
    }

    /// Whether it is an Advanced DaemonSet.
    pub fn is_advanced(&self) -> bool {
        self.advanced.is_some()
    }

    /// The pods on a node.
    pub(super) fn pods_on(&self, node: &NodeName) -> impl Iterator<Item = &Pod> {
        self.pods.on(node).iter().map(|record| &*record.pod)
    }

    /// Whether there is nothing (left) for us to do: not ours, and no condition of ours on it.
    pub(super) fn is_finished(&self) -> bool {
        self.reading == Reading::NotOurs && self.conditions.is_empty()
    }

    /// Takes over what a newer version of the same object says; false when that is nothing new.
    ///
    /// An older version is ignored: a live read may have been faster than the watch. Versions are compared as numbers
    /// where they are numbers (KEP-5504).
    pub(super) fn update(&mut self, newer: Self) -> bool {
        if newer
            .version
            .zip(self.version)
            .is_some_and(|(newer, known)| newer < known)
        {
            return false;
        }
        self.version = newer.version;
        if self.generation != newer.generation
            && let Some(advanced) = &mut self.advanced
        {
            advanced.forget_failures();
        }
        let scaling = match (&mut self.advanced, newer.advanced) {
            (Some(advanced), Some(newer)) => advanced.update(*newer),
            _ => false,
        };
        let same = !scaling
            && self.generation == newer.generation
            && self.observed == newer.observed
            && self.reading == newer.reading
            && self.template == newer.template
            && self.rollback_mark == newer.rollback_mark
            && self.conditions == newer.conditions
            && self.min_ready == newer.min_ready
            && self.template_generation == newer.template_generation;
        if same {
            return false;
        }
        if self.template_generation != newer.template_generation {
            self.guard.forget_replaced();
            self.disruptions = Disruptions::default();
            self.ended = Ended::default();
        }
        self.generation = newer.generation;
        self.observed = newer.observed;
        self.reading = newer.reading;
        self.template = newer.template;
        self.rollback_mark = newer.rollback_mark;
        self.conditions = newer.conditions;
        self.state = newer.state;
        self.state_error = newer.state_error;
        self.min_ready = newer.min_ready;
        if self.scheduling != newer.scheduling {
            self.scheduling = newer.scheduling;
            self.cache.forget();
        }
        self.template_generation = newer.template_generation;
        true
    }

    /// Takes in a pod; one that is neither this DaemonSet's nor made by us beside one of it is forgotten.
    pub(super) fn apply_pod(
        &mut self,
        pod: &k8s::Pod,
        texts: &mut Texts,
        now: Timestamp,
    ) -> RequeueDelay {
        let uid = PodUid::from(pod.metadata.uid.as_deref().unwrap_or_default());
        self.forget_unreadable(&uid);
        let Some(controller) = PodController::of(&pod.metadata, &self.uid) else {
            let gone = match self.remove_pod(&uid) {
                true => self.of_loss(),
                false => RequeueDelay::Never,
            };
            let advanced = self.advanced.as_mut();
            let is_orphan = advanced.is_some_and(|advanced| advanced.note_orphan(pod));
            return match is_orphan {
                true => RequeueDelay::Short,
                false => gone,
            };
        };
        let by_revision = controller == PodController::Revision;
        let is_to_adopt = self
            .advanced
            .as_mut()
            .is_some_and(|advanced| match by_revision {
                true => advanced.note_made_beside(pod),
                false => {
                    advanced.forget_orphan(&uid);
                    false
                }
            });
        let before = self.pods.get(&uid).cloned();
        // Of an Advanced DaemonSet it depends on the pods beside it.
        let paired = || before.as_ref().is_some_and(|before| before.pod.surge);
        let surge = by_revision || self.is_advanced() && paired();
        let at = (self.min_ready, now);
        let record = PodRecord::read(pod, surge, before.as_ref(), &mut self.shared, at);
        let Some(mut record) = record else {
            return RequeueDelay::Never;
        };
        let node = texts.share(pod.spec.target_node().unwrap_or_default());
        let node = NodeName::from(node);
        let is_first_look = self.cache.is_first_look();
        let recalled = || RecalledProblem::of(&self.state, &node).filter(|_| is_first_look);
        if self.ended.end(&node, before.as_ref(), now) {
            self.cache.mark_dirty(&node);
        }
        self.ended.note(&node, (pod, &mut record), now, recalled);
        if before.as_ref() == Some(&record) {
            return RequeueDelay::Never;
        }
        self.disruptions
            .note(&node, (before.as_ref(), &record), now);
        let settled = self.pending.settle(&record);
        if before.is_none()
            && let Some(advanced) = &mut self.advanced
        {
            advanced.end_creation(&node);
        }
        let is_spare = |known: &PodRecord| known.pod.surge;
        // The native controller's next pod, which a pod of ours may wait for to be handed over.
        let is_third = before.is_none() && !surge && self.pods.on(&node).iter().any(is_spare);
        let delay = match before.as_ref() {
            _ if settled || is_third || is_to_adopt => RequeueDelay::Short,
            Some(before) if before.is_alike(&record) => RequeueDelay::Never,
            before => match (
                before.and_then(PodRecord::ready_since),
                record.ready_since(),
            ) {
                (None, Some(_)) => RequeueDelay::Short,
                _ if before.is_some_and(|before| before.pod.exit != record.pod.exit) => {
                    RequeueDelay::Short
                }
                _ => RequeueDelay::Long,
            },
        };
        if let Some(elsewhere) = self.pods.place_of(&uid).filter(|place| **place != node) {
            self.cache.mark_dirty(elsewhere);
        }
        self.cache.mark_dirty(&node);
        self.pods.insert(&node, record);
        delay
    }

    /// Remembers that a pod cannot be read: its node is left alone, or the whole DaemonSet if that is not known either.
    pub(super) fn note_unreadable_pod(
        &mut self,
        unreadable: &k8s::Unreadable,
        node: Option<NodeName>,
    ) {
        let meta = &unreadable.metadata;
        let mut owners = meta.owner_references.iter().flatten();
        if !owners.any(|owner| *owner.uid == *self.uid) {
            return;
        }
        let uid = PodUid::from(meta.uid.as_deref().unwrap_or_default());
        self.forget_unreadable(&uid);
        let pod = UnreadablePod {
            name: meta.name.as_deref().unwrap_or_default().into(),
            node: node.or_else(|| self.pods.place_of(&uid).cloned()),
            why: unreadable.error.clone(),
        };
        if let Some(node) = &pod.node {
            self.cache.mark_dirty(node);
        }
        self.unreadable.insert(uid, pod);
    }

    fn forget_unreadable(&mut self, uid: &PodUid) {
        if let Some(pod) = self.unreadable.remove(uid)
            && let Some(node) = &pod.node
        {
            self.cache.mark_dirty(node);
        }
    }

    /// Whether a pod on `node` cannot be read.
    pub(super) fn has_unreadable_pod_on(&self, node: &NodeName) -> bool {
        let mut pods = self.unreadable.values();
        pods.any(|pod| pod.node.as_ref() == Some(node))
    }

    /// A pod that cannot be read and of which not even the node is known, and why.
    pub(super) fn unreadable_pod_somewhere(&self) -> Option<(&PodName, &str)> {
        let mut pods = self.unreadable.values();
        let pod = pods.find(|pod| pod.node.is_none())?;
        Some((&pod.name, &pod.why))
    }

    /// Forgets a pod that is gone.
    pub fn delete_pod(&mut self, uid: &str) -> RequeueDelay {
        let uid = PodUid::from(uid);
        self.forget_unreadable(&uid);
        if let Some(PodRecord { pod, .. }) = self.pods.get(&uid)
            && !pod.terminating
            && (self.is_advanced() || pod.surge)
        {
            let stray = (uid.clone(), pod.name.to_string());
            self.strays.insert(stray);
        }
        let advanced = self.advanced.as_mut();
        let was_orphan = advanced.is_some_and(|advanced| advanced.forget_orphan(&uid));
        match self.remove_pod(&uid) {
            true => self.of_loss(),
            false if was_orphan => RequeueDelay::Short,
            false => RequeueDelay::Never,
        }
    }

    /// Whether there are such pods.
    pub fn has_strays(&self) -> bool {
        !self.strays.is_empty()
    }

    /// Takes the pods, by UID and name, that we have to let go if they are still there.
    pub fn take_strays(&mut self) -> BTreeSet<(PodUid, String)> {
        std::mem::take(&mut self.strays)
    }

    /// How soon it is decided again when a pod is gone: the native controller makes the next one, or we do.
    fn of_loss(&self) -> RequeueDelay {
        match self.is_advanced() {
            true => RequeueDelay::Short,
            false => RequeueDelay::Long,
        }
    }

    /// Forgets the pods that a complete list did not contain, and the writes that were asked for before it began: what it
    /// shows is true, whatever a lost event or an answer that never came left open.
    pub fn retain_pods(&mut self, seen: &BTreeSet<PodUid>, began: Option<Timestamp>) {
        let gone: Vec<PodUid> = self
            .pods
            .uids()
            .filter(|uid| !seen.contains(uid))
            .cloned()
            .collect();
        for uid in gone {
            self.remove_pod(&uid);
        }
        self.unreadable.retain(|uid, _| seen.contains(uid));
        self.cache.forget();
        if let Some(advanced) = &mut self.advanced {
            advanced.retain_creations(began);
        }
        let pods = &self.pods;
        self.pending
            .retain_since(began, |uid| pods.place_of(uid).is_some());
        self.synced = true;
    }

    fn remove_pod(&mut self, uid: &PodUid) -> bool {
        self.pending.forget(uid);
        self.remove(uid)
    }

    fn remove(&mut self, uid: &PodUid) -> bool {
        let node = self.pods.remove(uid);
        if let Some(node) = &node {
            self.cache.mark_dirty(node);
            if let Some(advanced) = &mut self.advanced {
                advanced.note_held(node);
            }
        }
        node.is_some()
    }

    /// A write is sent: until the watch shows it, its pod counts as it is once that has happened.
    pub fn begin_write(&mut self, action: &Action, now: Timestamp) {
        let uid = &action.pod().uid;
        self.touch_place_of(uid);
        if PodWrite::of(action).replaces() {
            self.begin_replacement(uid, now);
        }
        if let Action::Retire { successor, .. } = action {
            self.begin_write(&Action::HandOver(successor.clone()), now);
        }
        let known = self.pods.get(uid);
        self.pending.begin(action, known, now);
    }

    /// That write was answered.
    pub fn end_write(&mut self, action: &Action, answer: WriteAnswer, now: Timestamp) {
        let uid = &action.pod().uid;
        self.touch_place_of(uid);
        if PodWrite::of(action).replaces() {
            self.end_replacement(uid, answer == WriteAnswer::Accepted);
        }
        let known = self.pods.get(uid);
        self.pending.answer(action, answer, known, now);
    }

    /// Whoever sent writes failed, and will not tell how they were answered.
    pub fn lose_answers(&mut self, now: Timestamp) {
        self.cache.forget();
        self.pending.lose_answers(now);
        self.disruptions.lose_answers();
        if let Some(advanced) = &mut self.advanced {
            advanced.lose_answers(now);
        }
    }

    /// Leaves out of `actions` what was sent already and does not show yet.
    pub fn without_pending(&mut self, actions: Vec<Action>) -> Vec<Action> {
        self.pending.without_pending(actions)
    }

    /// These conditions are sent to be ours on the DaemonSet.
    pub fn begin_report(&mut self, conditions: Vec<k8s::Condition>, now: Timestamp) {
        self.pending.begin_report(conditions, now);
    }

    /// The report was written as this version of the DaemonSet; `None`: not known.
    pub fn answer_report(&mut self, version: Option<u64>) {
        self.pending.answer_report(version);
    }

    /// Returns true if these conditions were sent last.
    pub fn is_sent(&self, conditions: &[k8s::Condition]) -> bool {
        self.pending.is_sent(conditions)
    }

    /// Returns true if a report was sent that the watch may not have shown yet. Once it has, another writer made every difference.
    pub fn is_report_unseen(&self, now: Timestamp) -> bool {
        self.pending.is_report_unseen(self.version, now)
    }

    /// The report was not written.
    pub fn lose_report(&mut self) {
        self.pending.lose_report();
        if let Some(advanced) = &mut self.advanced {
            advanced.lose_numbers();
        }
    }

    /// Remembers how the eviction of a pod was answered; `None`: it goes.
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

    /// From now on that is how evictions were answered.
    pub fn set_evictions(&mut self, evictions: Evictions) {
        self.evictions = evictions;
    }

    /// Which other writes were refused, for `revision` if that is known; what is about pods that are gone is forgotten.
    pub(super) fn refusals(&mut self, revision: Option<&Revision>, nodes: &[Node]) -> Refusals {
        let mut refusals = self.known_refusals();
        if let Some(revision) = revision {
            refusals.keep_to(revision);
        }
        refusals.tidy(nodes);
        if matches!(self.refusals, LastReported::Reported(_)) {
            self.refusals = LastReported::Reported(Some(refusals.clone()));
        }
        refusals
    }

    /// Whether a write to a pod was refused, as far as that is remembered.
    pub(super) fn is_anybody_refused(&self) -> bool {
        !(self.evictions.is_empty() && self.known_refusals().is_empty())
    }

    /// Whether this pod changes too often for a write that rests on its version.
    pub fn is_contended(&self, pod: &PodUid) -> bool {
        match &self.refusals {
            LastReported::Reported(Some(refusals)) => refusals.is_contended(pod),
            _ => false,
        }
    }

    fn known_refusals(&self) -> Refusals {
        let stands = || self.state.refusals();
        self.refusals.or(stands).unwrap_or_default()
    }

    /// Remembers what became of a write to a pod that is there.
    pub fn note_write(&mut self, uid: &PodUid, note: impl FnOnce(&mut Refusals, &NodeName)) {
        if let Some(node) = self.pods.place_of(uid).cloned() {
            self.note_write_on(&node, note);
        }
    }

    /// The same of one to a node.
    pub fn note_write_on(&mut self, node: &NodeName, note: impl FnOnce(&mut Refusals, &NodeName)) {
        let mut refusals = self.known_refusals();
        note(&mut refusals, node);
        self.refusals = LastReported::Reported(Some(refusals));
    }

    fn touch_place_of(&mut self, uid: &PodUid) {
        if let Some(node) = self.pods.place_of(uid) {
            self.cache.mark_dirty(node);
        }
    }

    /// This pod is about to be deleted for the current revision. One that was made beside another is not replaced by that, nor is
    /// one that goes whatever its revision.
    fn begin_replacement(&mut self, uid: &PodUid, now: Timestamp) {
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

    /// That deletion was answered: carried out, or not (as far as known).
    fn end_replacement(&mut self, uid: &PodUid, carried_out: bool) {
        self.disruptions.answer(uid, carried_out);
        if let Some(node) = self.guard.end(uid, carried_out) {
            self.cache.mark_dirty(&node);
        }
    }

    /// When the last pod of another revision than `current` was seen to leave a node, if that is not over.
    pub(super) fn disrupted_at(
        &self,
        node: &NodeName,
        current: (&RevisionState, Option<Timestamp>),
    ) -> Option<Timestamp> {
        self.disruptions.at(node, current)
    }

    /// What the pods of `current` ended of that followed each other on a node.
    pub(super) fn trouble(
        &mut self,
        node: &NodeName,
        current: &RevisionState,
        now: Timestamp,
    ) -> Option<PodProblem> {
        let RevisionState::Current(current) = current else {
            return None;
        };
        let is_first_look = self.cache.is_first_look();
        let recalled = || RecalledProblem::of(&self.state, node).filter(|_| is_first_look);
        self.ended.trouble(node, current, now, recalled)
    }

    /// Whether we deleted the last pod of a node for the present template, and no successor was Ready since.
    pub(super) fn is_emptied(&self, node: &NodeName) -> bool {
        self.disruptions.is_ours(node) || self.cache.remembers(node)
    }

    /// Whether a pod was on a node of an Advanced DaemonSet and is gone.
    pub(super) fn had_pod(&self, node: &NodeName) -> bool {
        let advanced = self.advanced.as_ref();
        advanced.is_some_and(|advanced| advanced.had_pod(node))
    }

    /// Of the other nodes it is forgotten: they are gone.
    pub(super) fn keep_held(&mut self, is_there: impl FnMut(&NodeName) -> bool) {
        if let Some(advanced) = &mut self.advanced {
            advanced.keep_held(is_there);
        }
    }

    /// What the guard has to remember, as it was told last.
    pub fn last_record(&self) -> Option<FailureRecord> {
        self.guard.known(&self.state)
    }

    /// What the guard has to remember, as it stands on the DaemonSet.
    pub fn record_that_stands(&self) -> Option<FailureRecord> {
        self.state.guard.clone()
    }

    /// From now on that is what the guard remembers, whether it shows on the DaemonSet yet or not.
    pub fn set_last_record(&mut self, record: Option<FailureRecord>) {
        self.guard.set_last_reported(record);
    }

    /// Why the native controller could not make a pod, as far as known.
    pub(super) fn not_created(&self) -> Option<Arc<str>> {
        self.not_created.or(|| self.state.not_created.clone())
    }

    /// From now on that is why.
    pub fn set_not_created(&mut self, why: Option<Arc<str>>) {
        self.not_created = LastReported::Reported(why);
    }

    /// Why pods do not become available, as far as known.
    pub(super) fn not_ready(&self) -> BTreeMap<PodName, Arc<str>> {
        let stands = || Some(self.state.not_ready.clone());
        self.not_ready.or(stands).unwrap_or_default()
    }

    /// From now on that is why, pod by pod.
    pub fn set_not_ready(&mut self, why: BTreeMap<PodName, Arc<str>>) {
        self.not_ready = LastReported::Reported(Some(why));
    }

    /// What is remembered of its pause, as it was told last.
    pub fn last_pause(&self) -> Option<PauseRecord> {
        let stands = || Some(self.state.pause.as_ref()?.record);
        self.pause.or(stands)
    }

    /// From now on that is remembered of its pause, whether it shows on the DaemonSet yet or not.
    pub fn set_last_pause(&mut self, record: Option<PauseRecord>) {
        self.pause = LastReported::Reported(record);
    }

    /// What stands on the DaemonSet counts again: another replica may have told something else.
    pub fn forget_reported(&mut self) {
        self.lose_report();
        self.guard.forget_reported();
        self.pause = LastReported::Nothing;
        self.refusals = LastReported::Nothing;
        self.not_created = LastReported::Nothing;
        self.not_ready = LastReported::Nothing;
    }

    /// Whether a write of ours was refused or never answered, and what became of its pod is not known yet.
    pub fn has_uncertain_writes(&self) -> bool {
        self.pending.is_uncertain()
    }

    /// When the pods have to be listed anew, because a write of ours should have shown by then.
    pub fn pending_due(&self) -> Option<Timestamp> {
        let advanced = self.advanced.as_ref();
        let created = advanced.and_then(|advanced| advanced.creation_due());
        self.pending.due().into_iter().chain(created).min()
    }

    /// The node of a pod.
    pub fn place_of(&self, uid: &PodUid) -> Option<&NodeName> {
        self.pods.place_of(uid)
    }

    /// The hashes that its pods carry.
    pub fn hashes(&self) -> impl Iterator<Item = &Revision> {
        self.pods.iter().filter_map(|(_, record)| record.hash())
    }

    /// Its pods that carry a hash, each with that.
    pub fn hashed_pods(&self) -> impl Iterator<Item = (Revision, PodRef)> {
        self.pods
            .iter()
            .filter_map(|(_, record)| Some((record.hash()?.clone(), record.pod.reference())))
    }

    /// What is known of its current revision.
    pub fn revision_state(&self, revisions: &[RevisionFacts]) -> RevisionState {
        self.current_revision(revisions)
    }

    /// The name of a pod with that hash.
    pub fn pod_with(&self, hash: &Revision) -> Option<&PodName> {
        let mut pods = self.pods.iter().map(|(_, record)| record);
        let found = pods.find(|record| record.hash() == Some(hash));
        found.map(|record| record.name())
    }

    /// Remembers that no revision of that hash exists: its pods are outdated.
    pub fn note_absent(&mut self, hash: Revision) {
        self.absent.insert(hash);
    }

    /// From now on the greatest revision of this generation is trusted, whatever template it seems to hold.
    ///
    /// Of an Advanced DaemonSet revisions are compared always: this controller writes them.
    pub fn trust_greatest(&mut self, generation: i64) {
        self.trusted = Some(generation).filter(|_| !self.is_advanced());
    }

    /// Whether the greatest revision of the present generation is trusted without comparing templates.
    pub fn trusts_greatest(&self) -> bool {
        self.trusted == Some(self.generation)
    }

    /// The value of the label `pod-template-generation` of a pod that is made now.
    pub fn template_generation(&self) -> Option<&str> {
        self.template_generation.as_deref()
    }

    /// Whether the native controller has handled the present generation.
    ///
    /// Of an Advanced DaemonSet that is this one.
    pub fn is_observed(&self) -> bool {
        self.is_advanced() || self.observed >= self.generation
    }

    /// Whether the template was that of the newest revision when a fleet was made last.
    pub fn is_template_current(&self) -> bool {
        self.confirmed == Some(self.template)
    }

    /// How long one of its nodes may pull images.
    pub fn pull_timeout(&self) -> Duration {
        match &self.reading {
            Reading::Strategy { strategy, .. } => strategy.image_predownload_timeout,
            Reading::Invalid(..) | Reading::NotOurs => DEFAULT_IMAGE_PREDOWNLOAD_TIMEOUT,
        }
    }

    /// Whether its nodes pull images ahead of their replacement.
    pub(super) fn pulls_ahead(&self) -> bool {
        match &self.reading {
            Reading::Strategy { strategy, .. } => Predownloading::of(strategy).is_some(),
            Reading::Invalid(..) | Reading::NotOurs => false,
        }
    }

    /// Whether the node `name` has all of `images`: it lists them, or its pod is Ready and of a revision that has them too.
    pub(super) fn has_images(
        &self,
        name: &NodeName,
        record: &NodeRecord,
        images: &[TemplateImage],
        revisions: &[RevisionFacts],
    ) -> bool {
        let pods = self.pods.on(name).iter();
        let ready = pods.filter(|record| record.ready_since().is_some());
        let run = |pod: &PodRecord| {
            let of_pod = |known: &&RevisionFacts| Some(&known.hash) == pod.hash();
            revisions.iter().find(of_pod)
        };
        let running: Vec<&RevisionFacts> = ready.filter_map(run).collect();
        images.iter().all(|image| {
            let mut run = running.iter().flat_map(|facts| facts.images.iter());
            !image.moves && (record.lists(image.key) || run.any(|other| other.key == image.key))
        })
    }

    pub(super) fn has_pods_on(&self, node: &NodeName) -> bool {
        !self.pods.on(node).is_empty()
    }

    /// Names and uids of its pods, with the node of each.
    pub fn pods(&self) -> impl Iterator<Item = (&NodeName, &Pod)> {
        self.pods.iter().map(|(node, record)| (node, &*record.pod))
    }

    /// One of them, and its node.
    pub fn pod(&self, uid: &PodUid) -> Option<(&NodeName, &Pod)> {
        let record = self.pods.get(uid)?;
        Some((self.pods.place_of(uid)?, &*record.pod))
    }

    /// Remembers which template was found in the newest revision.
    pub(super) fn confirm(&mut self, revisions: &[RevisionFacts]) {
        let newest = revisions.iter().max_by_key(|revision| revision.number);
        let found = newest.filter(|newest| newest.template == self.template);
        self.confirmed = found.map(|newest| newest.template);
    }

    pub(super) fn current_revision(&self, revisions: &[RevisionFacts]) -> RevisionState {
        current(
            revisions,
            &self.template,
            self.is_observed(),
            self.trusts_greatest(),
        )
    }

    pub(super) fn unknown_hashes(&self, revisions: &[RevisionFacts]) -> Vec<Revision> {
        let RevisionState::Current(target) = self.current_revision(revisions) else {
            return Vec::new();
        };
        let unknown = self.pods.iter().map(|(_, record)| record);
        let unknown = unknown
            .filter(|record| self.revision_of(record, &target, revisions) == PodRevision::Unknown);
        let hashes: BTreeSet<Revision> = unknown
            .filter_map(|record| record.hash().cloned())
            .collect();
        hashes.into_iter().collect()
    }

    fn revision_of(
        &self,
        record: &PodRecord,
        target: &Revision,
        revisions: &[RevisionFacts],
    ) -> PodRevision {
        let hash = record.hash();
        match judge(
            hash.map(Revision::as_str),
            record.generation(),
            target,
            revisions,
            self.template_generation.as_deref(),
        ) {
            PodRevision::Unknown if hash.is_some_and(|hash| self.absent.contains(hash)) => {
                PodRevision::Outdated
            }
            judged => judged,
        }
    }

    /// How pods of old revisions become those of the current one, where that is to happen in place.
    pub(super) fn transitions(
        &self,
        state: &RevisionState,
        revisions: &[RevisionFacts],
    ) -> InPlaceTransitions {
        let RevisionState::Current(target) = state else {
            return InPlaceTransitions::new();
        };
        let asked = match &self.reading {
            Reading::Strategy { strategy, .. } => strategy.rolling_update_type,
            Reading::NotOurs | Reading::Invalid(..) => RollingUpdateType::Standard,
        };
        let new = revisions.iter().find(|known| known.hash == *target);
        let Some(new) = new.filter(|_| asked == RollingUpdateType::InPlaceIfPossible) else {
            return InPlaceTransitions::new();
        };
        let generation = self.template_generation.as_deref();
        let old = revisions.iter().filter(|known| known.hash != *target);
        let between =
            |old: &RevisionFacts| InPlaceTransition::between(&old.shape, &new.shape, generation);
        old.map(|old| (old.hash.clone(), between(old))).collect()
    }

    /// How pods of the current revision get back to older ones, where somebody asked for that.
    pub(super) fn rollback_targets(
        &self,
        state: &RevisionState,
        revisions: &[RevisionFacts],
    ) -> RollbackTargets {
        let asked = match &self.reading {
            Reading::Strategy { strategy, .. } => strategy.on_failure == OnFailure::RevertInPlace,
            Reading::NotOurs | Reading::Invalid(..) => false,
        };
        let RevisionState::Current(current) = state else {
            return RollbackTargets::default();
        };
        let current = revisions.iter().find(|known| known.hash == *current);
        let Some(current) = current.filter(|_| asked) else {
            return RollbackTargets::default();
        };
        let older = earlier(revisions, &current.hash).into_iter();
        // Nobody knows the generation of an older template any more, and the present one would be a lie.
        let past = |old: &RevisionFacts| RollbackTarget {
            number: old.number,
            transition: InPlaceTransition::between(&current.shape, &old.shape, None),
        };
        RollbackTargets {
            stands: self.guard.stands(&self.state),
            revisions: older.map(|old| (old.hash.clone(), past(old))).collect(),
        }
    }

    /// Whether the guard stopped the revision, and that does not stand on the DaemonSet.
    pub fn is_stopped_unseen(&self) -> bool {
        let stopped = self
            .last_record()
            .is_some_and(|record| record.stopped.is_some());
        stopped && !self.guard.stands(&self.state)
    }

    /// The images of the current revision, where it matters who has them.
    fn wanted_images(&self, revisions: &[RevisionFacts]) -> Option<Arc<[TemplateImage]>> {
        let RevisionState::Current(target) = self.current_revision(revisions) else {
            return None;
        };
        let current = revisions.iter().find(|known| known.hash == target);
        let current = current.filter(|_| self.pulls_ahead());
        current.map(|current| current.images.clone())
    }

    /// What the judgement of every pod rests on.
    pub(super) fn basis(&self, revisions: &[RevisionFacts]) -> Basis {
        let state = self.current_revision(revisions);
        let is_current =
            |known: &&RevisionFacts| state == RevisionState::Current(known.hash.clone());
        let adopted = revisions
            .iter()
            .find(is_current)
            .and_then(|known| known.adopted);
        Basis {
            images: self.wanted_images(revisions),
            adopted,
            state,
            known: revisions
                .iter()
                .map(|known| (known.hash.clone(), known.number))
                .collect(),
            absent: self.absent.clone(),
            template_generation: self.template_generation.clone(),
        }
    }

    /// Names of the nodes that hold pods, in order.
    pub(super) fn places_of_pods(&self) -> impl Iterator<Item = &NodeName> {
        self.pods.nodes()
    }

    /// The pods on a node with their revisions judged, and what we wrote laid over them.
    pub(super) fn judged_pods(
        &mut self,
        node: &NodeName,
        state: &RevisionState,
        revisions: &[RevisionFacts],
    ) -> Pods {
        let mut known = std::mem::take(&mut self.pods); // only while they are judged
        let judge = |record: &mut PodRecord| {
            let revision = match state {
                RevisionState::Current(target) => self.revision_of(record, target, revisions),
                RevisionState::Unknown(_) => PodRevision::Unknown,
            };
            let number = number_of(record.hash(), revisions);
            let of_template = self.is_of_template(record);
            let known = (
                record.pod.revision,
                record.pod.number,
                record.pod.of_template,
            );
            if known != (revision, number, of_template) {
                let pod = Arc::make_mut(&mut record.pod);
                (pod.revision, pod.number, pod.of_template) = (revision, number, of_template);
            }
            self.pending.shown(&record.pod)
        };
        let mut pods: Pods = known.on_mut(node).iter_mut().map(judge).collect();
        if self.advanced.is_some() && known.on(node).len() > 1 {
            let spare = pods.spare().map(|pod| pod.uid.clone());
            for pod in pods.iter_mut() {
                pod.surge = spare.as_ref() == Some(&pod.uid);
            }
            for record in known.on_mut(node) {
                let surge = spare.as_ref() == Some(&record.pod.uid);
                if record.pod.surge != surge {
                    Arc::make_mut(&mut record.pod).surge = surge;
                }
            }
        } else if let [record] = known.on_mut(node)
            && self.advanced.is_some()
            && record.pod.surge
        {
            Arc::make_mut(&mut record.pod).surge = false;
            pods.iter_mut().for_each(|pod| pod.surge = false);
        }
        self.pods = known;
        pods
    }

    /// Whether a pod was made for the template as it is now; true where nothing tells. One that was taken back from a newer
    /// one was not, and carries no generation.
    fn is_of_template(&self, record: &PodRecord) -> bool {
        let told = record.generation().zip(self.template_generation.as_deref());
        let is_taken_back = record.pod.in_place.reverted_from.is_some();
        !is_taken_back && told.is_none_or(|(pod, template)| pod == template)
    }

    /// Notes whether `node` has no pod, and then whether one belongs there; returns since when that is so.
    pub(super) fn note_podless(
        &mut self,
        node: &NodeName,
        podless: Option<bool>,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let Some(is_targeted) = podless else {
            if !self.podless.is_empty() {
                self.podless.remove(node);
            }
            return None;
        };
        let since = match self.cache.is_first_look() {
            true => self.missing_since().map_or(now, |since| since.min(now)),
            false => now,
        };
        let begins = Podless { since, is_targeted };
        let known = self.podless.entry(node.clone()).or_insert(begins);
        if known.is_targeted != is_targeted {
            *known = begins;
        }
        Some(known.since)
    }

    /// A pod was made there and does not show yet: what is waited for from now on is that, not that one is made.
    pub fn note_made(&mut self, node: &NodeName, now: Timestamp) {
        if let Some(known) = self.podless.get_mut(node) {
            known.since = now;
            self.cache.mark_dirty(node);
        }
    }

    /// Notes whether it is known what is rolled out; since when it is not.
    pub(super) fn note_behind(
        &mut self,
        state: &RevisionState,
        now: Timestamp,
    ) -> Option<Timestamp> {
        self.behind_since = match (state, self.behind_since) {
            (RevisionState::Current(_), _) => None,
            (RevisionState::Unknown(_), Some(since)) => Some(since),
            (RevisionState::Unknown(_), None) => {
                let since = self.state.reported.behind_since;
                Some(since.unwrap_or(now).min(now))
            }
        };
        self.behind_since
    }

    /// Since when pods are missing at the least, as far as it stands on the DaemonSet: at a first look that is not known.
    fn missing_since(&self) -> Option<Timestamp> {
        let stalls = [Stall::PodsNotCreated, Stall::PodsKeptAway].into_iter();
        let since = stalls.filter_map(|stall| self.state.stalled_since(stall.reason()));
        Some(instant::earlier(since.min()?, MISSING_GRACE))
    }
}

/// Returns what these conditions remember of a rollout.
fn reported_state(conditions: &[k8s::Condition]) -> serde_json::Result<RolloutState> {
    let mut told = conditions.iter();
    match told.find(|told| told.kind == ROLLOUT_STATE) {
        Some(told) => RolloutState::read(&told.message),
        None => Ok(legacy::read(conditions).unwrap_or_default()),
    }
}
