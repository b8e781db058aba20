//! What is remembered of a DaemonSet that is ours: its settings, its pods, and what we wrote and do not see yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;

use super::asked::Asked;
use super::disruptions::Disruptions;
use super::ended::{Ended, Recalled};
use super::fleet_cache::{Basis, FleetCache};
use super::guarded::Guarded;
use super::key::SetKey;
use super::node::NodeRecord;
use super::pod::{LabelSets, PodRecord};
use super::told::Told;
use crate::core::eligibility::Scheduling;
use crate::core::engine::not_ready;
use crate::core::engine::patience::{BEHIND_PATIENCE, MISSING_GRACE};
use crate::core::fleet::in_place::{Succession, Successions, Update};
use crate::core::images::TemplateImage;
use crate::core::instant::{self, later};
use crate::core::names::{
    GUARD, INVALID_SETTINGS, PAUSED_CONDITION, PROGRESSING, REFUSED, REVISION_HASH_LABEL,
    ROLLOUT_COMPLETE, STALLED, TEMPLATE_GENERATION_ANNOTATION,
};
use crate::core::not_created;
use crate::core::plan::Stall;
use crate::core::revision::{
    RevisionFacts, TemplateFingerprint, current, earlier, judge, number_of,
};
use crate::core::said::{BEHIND_SINCE, NATIVE_BEHIND};
use crate::core::selector::Selector;
use crate::core::strategy::{Source, read};
use crate::core::{
    Evictions, Node, NodeName, OnFailure, Past, PauseRecord, Pod, PodName, PodRevision, PodUid,
    Predownloading, Preparing, Reading, Record, Refusal, Refusals, ResourceVersion, Revision,
    RevisionState, RollingUpdateType, WayBack,
};
use crate::k8s;

/// Conditions on a DaemonSet's status that are ours.
pub(crate) const OWN_CONDITIONS: [&str; 7] = [
    ROLLOUT_COMPLETE,
    PROGRESSING,
    STALLED,
    PAUSED_CONDITION,
    INVALID_SETTINGS,
    REFUSED,
    GUARD,
];

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
    /// Our conditions as they stand on it.
    pub conditions: Vec<k8s::Condition>,
    /// The label selector of its pods, as a query.
    pub selector: String,
    /// Whether the pods are known completely.
    pub synced: bool,
    /// How long its pods have to be Ready to be available.
    pub min_ready: Duration,
    pub(super) scheduling: Scheduling,
    pub(super) podless: BTreeMap<NodeName, Timestamp>,
    disruptions: Disruptions,
    /// Why the native controller could not make a pod.
    not_created: Told<Arc<str>>,
    /// Why pods do not become available.
    not_ready: Told<BTreeMap<PodName, Arc<str>>>,
    ended: Ended,
    /// Since when it is not known what is rolled out.
    behind_since: Option<Timestamp>,
    template_generation: Option<String>,
    pods: BTreeMap<NodeName, Vec<PodRecord>>,
    places: BTreeMap<PodUid, NodeName>,
    label_sets: LabelSets,
    overlay: BTreeMap<PodUid, Overlay>,
    asked: Asked,
    /// How evictions were answered.
    pub(super) evictions: Evictions,
    /// How other writes were refused.
    refusals: Told<Refusals>,
    absent: BTreeSet<Revision>,
    trusted: Option<i64>,
    /// The template for which the newest revision was found last.
    confirmed: Option<TemplateFingerprint>,
    version: Option<u64>,
    pub(super) cache: FleetCache,
    pub(super) guard: Guarded,
    pause: Told<PauseRecord>,
}

/// How soon a change wants to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stir {
    /// Not at all.
    Nothing,
    /// Before long: it frees no slot, only words and numbers follow it.
    Quietly,
    /// After the burst it is part of: it may let the rollout go on.
    Soon,
    /// Now: the owner of the DaemonSet asked for something else.
    AtOnce,
}

/// A write to a pod that we asked for and do not see yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlay {
    /// When we asked.
    pub at: Timestamp,
    /// What we asked for.
    pub write: Write,
    /// What the API server said.
    pub doubt: Doubt,
}

/// What we ask for of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// That it goes.
    Deletion,
    /// The same, if its disruption budget allows that.
    Eviction,
    /// That it waits for its hook.
    Preparing,
    /// That it becomes one of this revision in place.
    Renewal {
        /// The revision.
        to: Revision,
        /// The stopped revision that it is taken back from; `None`: the new one is the current one.
        from: Option<Revision>,
    },
}

impl Write {
    /// Whether the pod has its successor by it, or makes room for one: not that it waits, nor that it is taken back.
    pub fn replaces(&self) -> bool {
        matches!(
            self,
            Self::Deletion | Self::Eviction | Self::Renewal { from: None, .. }
        )
    }

    /// Whether `seen` shows that it was carried out.
    fn shows_in(&self, seen: &PodRecord) -> bool {
        match self {
            Self::Deletion | Self::Eviction => seen.pod.terminating,
            Self::Preparing => seen.pod.terminating || seen.pod.exit.preparing.is_some(),
            Self::Renewal { to, .. } => seen.hash.as_deref() == Some(to.as_str()),
        }
    }
}

/// How sure we are of a write of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// Under way, or accepted: it shows in the watch before long.
    Accepted,
    /// Refused because our view of the pod was old: judge again when the view has moved past this version.
    Conflict(ResourceVersion),
    /// No answer: it may have happened. Asking again is harmless.
    Unanswered,
}

impl Overlay {
    /// Whether `seen` shows that it happened, or that it did not.
    fn is_settled_by(&self, seen: &PodRecord) -> bool {
        match &self.doubt {
            Doubt::Accepted | Doubt::Unanswered => {
                seen.pod.terminating || self.write.shows_in(seen)
            }
            Doubt::Conflict(version) => seen.pod.resource_version != *version,
        }
    }

    /// Shows `pod` as it is once this has happened.
    fn show(&self, pod: &mut Pod) {
        match &self.write {
            Write::Deletion | Write::Eviction => {
                pod.in_doubt = !pod.terminating && self.doubt != Doubt::Accepted;
                pod.terminating = true;
            }
            Write::Preparing => {
                let since = Some(self.at);
                pod.exit.preparing.get_or_insert(Preparing { since });
            }
            Write::Renewal { to, from } => {
                pod.revision = match from {
                    None => PodRevision::Current,
                    Some(_) => PodRevision::Outdated,
                };
                pod.of_template = from.is_none();
                pod.in_place.revision = Some(to.clone());
                pod.in_place.reverted_from = from.clone();
                pod.in_place.update = Some(Update {
                    at: self.at,
                    is_carried_out: false,
                });
                // What kept the old containers from running says nothing of the new ones.
                pod.trouble = None;
            }
        }
    }
}

impl Doubt {
    /// How long such a write may stay unseen before somebody has to look: events are lost, and a request that was never
    /// answered may still be carried out by a server that was frozen.
    fn patience(&self) -> Duration {
        match self {
            Self::Accepted | Self::Conflict(_) => Duration::from_secs(30),
            Self::Unanswered => Duration::from_secs(15),
        }
    }
}

/// Who controls a pod.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// The DaemonSet itself.
    DaemonSet,
    /// One of its revisions: we made it, beside another one.
    Surge,
}

impl SetRecord {
    pub(super) fn read(set: &k8s::DaemonSet) -> Self {
        let meta = &set.metadata;
        let no_annotations = BTreeMap::new();
        let strategy = &set.spec.update_strategy;
        let reading = read(&Source {
            annotations: meta.annotations.as_ref().unwrap_or(&no_annotations),
            update_strategy: strategy.kind.as_deref(),
            rolling_update_max_unavailable: strategy
                .rolling_update
                .as_ref()
                .and_then(|block| block.get("maxUnavailable")),
            min_ready_seconds: i64::try_from(set.spec.min_ready.as_secs()).unwrap_or(i64::MAX),
            in_template: &set.spec.in_template,
            exclusive: set.spec.exclusive.as_ref(),
            preempting: set.spec.preempting.as_ref(),
        });
        let own = |condition: &&k8s::Condition| OWN_CONDITIONS.contains(&condition.kind.as_str());
        let annotation = |key| {
            meta.annotations
                .as_ref()
                .and_then(|annotations| annotations.get(key))
                .cloned()
        };
        Self {
            name: meta.name.as_deref().unwrap_or_default().into(),
            namespace: meta.namespace.as_deref().unwrap_or_default().into(),
            uid: meta.uid.as_deref().unwrap_or_default().into(),
            generation: meta.generation.unwrap_or_default(),
            observed: set.status.observed_generation.unwrap_or_default(),
            reading,
            template: set.spec.template,
            conditions: set.status.conditions.iter().filter(own).cloned().collect(),
            selector: Selector::from_json(&set.spec.selector)
                .map(|selector| selector.to_query())
                .unwrap_or_default(),
            synced: false,
            min_ready: set.spec.min_ready,
            scheduling: set.spec.scheduling.clone(),
            podless: BTreeMap::new(),
            disruptions: Disruptions::default(),
            not_created: Told::Nothing,
            not_ready: Told::Nothing,
            ended: Ended::default(),
            behind_since: None,
            template_generation: annotation(TEMPLATE_GENERATION_ANNOTATION),
            pods: BTreeMap::new(),
            places: BTreeMap::new(),
            label_sets: LabelSets::default(),
            overlay: BTreeMap::new(),
            asked: Asked::default(),
            evictions: Evictions::default(),
            refusals: Told::default(),
            absent: BTreeSet::new(),
            trusted: None,
            confirmed: None,
            cache: FleetCache::default(),
            guard: Guarded::default(),
            pause: Told::default(),
            version: meta
                .resource_version
                .as_deref()
                .and_then(|version| version.parse().ok()),
        }
    }

    /// Namespace and name.
    pub fn key(&self) -> SetKey {
        SetKey::new(&self.namespace, &self.name)
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
        let same = self.generation == newer.generation
            && self.observed == newer.observed
            && self.reading == newer.reading
            && self.template == newer.template
            && self.conditions == newer.conditions
            && self.min_ready == newer.min_ready
            && self.template_generation == newer.template_generation;
        if same {
            return false;
        }
        if self.template_generation != newer.template_generation {
            self.guard.forget_replaced();
            self.disruptions = Disruptions::default();
        }
        self.generation = newer.generation;
        self.observed = newer.observed;
        self.reading = newer.reading;
        self.template = newer.template;
        self.conditions = newer.conditions;
        self.min_ready = newer.min_ready;
        if self.scheduling != newer.scheduling {
            self.scheduling = newer.scheduling;
            self.cache.forget();
        }
        self.template_generation = newer.template_generation;
        true
    }

    /// Whose pod it is, as far as this DaemonSet is concerned.
    ///
    /// A pod of ours is controlled by a ControllerRevision and names the DaemonSet as a second owner. That reference goes
    /// when the DaemonSet is deleted without its pods; then the name of the revision tells whose it was.
    fn whose(&self, meta: &ObjectMeta) -> Option<Whose> {
        let owners = || meta.owner_references.iter().flatten();
        let controller = owners().find(|owner| owner.controller == Some(true))?;
        if *controller.uid == *self.uid {
            return Some(Whose::DaemonSet);
        }
        let label = |key| meta.labels.as_ref()?.get(key).map(String::as_str);
        let own = owners().any(|owner| *owner.uid == *self.uid);
        let was_own = || {
            let hash = label(REVISION_HASH_LABEL).unwrap_or_default();
            let others = owners().any(|owner| owner.kind == "DaemonSet");
            // One that was adopted keeps the name that another DaemonSet gave it.
            let names = !hash.is_empty() && controller.name.ends_with(&format!("-{hash}"));
            !others && names
        };
        (controller.kind == "ControllerRevision" && (own || was_own())).then_some(Whose::Surge)
    }

    /// Takes in a pod; one that is neither this DaemonSet's nor made by us beside one of it is forgotten.
    pub fn apply_pod(&mut self, pod: &k8s::Pod, now: Timestamp) -> Stir {
        let Some(whose) = self.whose(&pod.metadata) else {
            let uid = pod.metadata.uid.as_deref();
            return uid.map_or(Stir::Nothing, |uid| self.delete_pod(uid));
        };
        let uid = PodUid::from(pod.metadata.uid.as_deref().unwrap_or_default());
        let before = self.places.get(&uid).and_then(|node| self.pods.get(node));
        let before = before
            .and_then(|pods| pods.iter().find(|known| *known.uid() == uid))
            .cloned();
        let surge = whose == Whose::Surge;
        let Some((node, mut record)) =
            PodRecord::read(pod, surge, before.as_ref(), &mut self.label_sets, now)
        else {
            return Stir::Nothing;
        };
        let (is_first_look, conditions) = (self.cache.is_first_look(), &self.conditions);
        let recalled = || {
            let mut told = conditions.iter();
            let stalled = told.find(|told| told.kind == STALLED && told.status == "True")?;
            Recalled::read(&stalled.message, &node).filter(|_| is_first_look)
        };
        self.ended.note(&node, (pod, &mut record), now, recalled);
        if before.as_ref() == Some(&record) {
            return Stir::Nothing;
        }
        self.asked.settle(&record.pod);
        self.disruptions
            .note(&node, (before.as_ref(), &record), now);
        let settled = self.settle(&record);
        let is_spare = |known: &PodRecord| known.pod.surge;
        // The native controller's next pod, which a pod of ours may wait for to be handed over.
        let is_third = before.is_none()
            && !surge
            && (self.pods.get(&node)).is_some_and(|pods| pods.iter().any(is_spare));
        let stir = match before.as_ref() {
            _ if settled || is_third => Stir::Soon,
            Some(before) if before.is_alike(&record) => Stir::Nothing,
            before => match (
                before.and_then(PodRecord::ready_since),
                record.ready_since(),
            ) {
                (None, Some(_)) => Stir::Soon,
                _ if before.is_some_and(|before| before.pod.exit != record.pod.exit) => Stir::Soon,
                _ => Stir::Quietly,
            },
        };
        self.remove(&uid);
        self.places.insert(uid, node.clone());
        self.cache.mark_dirty(&node);
        let pods = self.pods.entry(node).or_default();
        pods.push(record);
        pods.sort_by(|a, b| (a.pod.created, &a.pod.name).cmp(&(b.pod.created, &b.pod.name)));
        stir
    }

    /// Forgets a pod that is gone.
    pub fn delete_pod(&mut self, uid: &str) -> Stir {
        match self.forget(&uid.into()) {
            true => Stir::Quietly,
            false => Stir::Nothing,
        }
    }

    /// Forgets the pods that a complete list did not contain, and what was laid over before that list began: what it
    /// shows is true, whatever a lost event or an answer that never came left open.
    pub fn retain_pods(&mut self, seen: &BTreeSet<String>, began: Option<Timestamp>) {
        let gone: Vec<PodUid> = self
            .places
            .keys()
            .filter(|uid| !seen.contains(uid.as_str()))
            .cloned()
            .collect();
        for uid in gone {
            self.forget(&uid);
        }
        self.cache.forget();
        self.asked.retain_since(began);
        let (overlay, places) = (&mut self.overlay, &self.places);
        overlay.retain(|uid, overlay| {
            let may_follow = match overlay.doubt {
                Doubt::Unanswered => overlay.doubt.patience(),
                Doubt::Accepted | Doubt::Conflict(_) => Duration::ZERO,
            };
            let outlasts = |began| later(overlay.at, may_follow) > began;
            places.contains_key(uid) && began.is_some_and(outlasts)
        });
        self.synced = true;
    }

    fn forget(&mut self, uid: &PodUid) -> bool {
        self.overlay.remove(uid);
        self.asked.lift(uid);
        self.remove(uid)
    }

    fn remove(&mut self, uid: &PodUid) -> bool {
        let Some(node) = self.places.remove(uid) else {
            return false;
        };
        self.cache.mark_dirty(&node);
        if let Some(pods) = self.pods.get_mut(&node) {
            pods.retain(|known| known.uid() != uid);
            if pods.is_empty() {
                self.pods.remove(&node);
            }
        }
        true
    }

    /// Drops what was laid over a pod once the watch shows it, or shows that it did not happen.
    fn settle(&mut self, seen: &PodRecord) -> bool {
        let overlay = self.overlay.get(seen.uid());
        let settled = overlay.is_some_and(|overlay| overlay.is_settled_by(seen));
        if settled {
            self.overlay.remove(seen.uid());
        }
        settled
    }

    /// Remembers a write that was asked for, unless what is known of the pod answers all doubts already.
    pub fn lay_over(&mut self, uid: PodUid, overlay: Overlay) {
        self.touch_place_of(&uid);
        let place = self.places.get(&uid).and_then(|node| self.pods.get(node));
        let known = place.and_then(|pods| pods.iter().find(|known| *known.uid() == uid));
        let open = known.is_some_and(|known| !overlay.is_settled_by(known));
        if open {
            self.overlay.insert(uid, overlay);
        } else {
            self.overlay.remove(&uid);
        }
    }

    /// Forgets that a write was asked for: it certainly did not happen.
    pub fn lift(&mut self, uid: &PodUid) {
        self.touch_place_of(uid);
        self.overlay.remove(uid);
    }

    /// Remembers that a pod is being asked for the images of this revision.
    pub fn lay_request(&mut self, uid: PodUid, revision: Revision, at: Timestamp) {
        self.touch_place_of(&uid);
        self.asked.lay(uid, revision, at);
    }

    /// Forgets that: the request was refused.
    pub fn lift_request(&mut self, uid: &PodUid) {
        self.touch_place_of(uid);
        self.asked.lift(uid);
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
        if matches!(self.refusals, Told::Record(_)) {
            self.refusals = Told::Record(Some(refusals.clone()));
        }
        refusals
    }

    fn known_refusals(&self) -> Refusals {
        let stands = || {
            let mut conditions = self.conditions.iter();
            let told = conditions.find(|condition| condition.kind == REFUSED)?;
            let since = told.last_transition.as_ref()?.0;
            Some(Refusals::read(&told.message, since))
        };
        self.refusals.or(stands).unwrap_or_default()
    }

    /// Remembers what became of a write to a pod that is there.
    pub fn note_write(&mut self, uid: &PodUid, note: impl FnOnce(&mut Refusals, &NodeName)) {
        if let Some(node) = self.places.get(uid).cloned() {
            self.note_write_on(&node, note);
        }
    }

    /// The same of one to a node.
    pub fn note_write_on(&mut self, node: &NodeName, note: impl FnOnce(&mut Refusals, &NodeName)) {
        let mut refusals = self.known_refusals();
        note(&mut refusals, node);
        self.refusals = Told::Record(Some(refusals));
    }

    fn touch_place_of(&mut self, uid: &PodUid) {
        if let Some(node) = self.places.get(uid) {
            self.cache.mark_dirty(node);
        }
    }

    /// This pod is about to be deleted for the current revision. One that was made beside another is not replaced by that.
    pub fn begin_replacement(&mut self, uid: &PodUid) {
        let Some(node) = self.places.get(uid) else {
            return;
        };
        let mut pods = self.pods.get(node).into_iter().flatten();
        if pods.any(|record| record.pod.uid == *uid && !record.pod.surge) {
            let revision = self.cache.revision();
            self.guard.begin(uid.clone(), node.clone(), revision);
        }
    }

    /// That deletion was answered at `now`: carried out, or not (as far as known).
    pub fn end_replacement(&mut self, uid: &PodUid, carried_out: bool, now: Timestamp) {
        if let Some(node) = self.guard.end(uid, carried_out) {
            self.cache.mark_dirty(&node);
            self.disruptions.begin_ours(node, now);
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

    /// Whether we deleted the last pod of a node for the present template, and no successor was Ready since.
    pub(super) fn is_emptied(&self, node: &NodeName) -> bool {
        self.disruptions.is_ours(node) || self.cache.remembers(node)
    }

    /// What the guard has to remember, as it was told last.
    pub fn told(&self) -> Option<Record> {
        self.guard.known(&self.conditions)
    }

    /// What the guard has to remember, as it stands on the DaemonSet.
    pub fn record_that_stands(&self) -> Option<Record> {
        super::guarded::on_daemonset(&self.conditions)
    }

    /// From now on that is what the guard remembers, whether it shows on the DaemonSet yet or not.
    pub fn tell(&mut self, record: Option<Record>) {
        self.guard.tell(record);
    }

    /// Why the native controller could not make a pod, as far as known.
    pub(super) fn not_created(&self) -> Option<Arc<str>> {
        self.not_created.or(|| {
            let mut conditions = self.conditions.iter();
            let told = conditions.find(|told| told.kind == STALLED && told.status == "True")?;
            not_created::read(&told.message).map(Arc::from)
        })
    }

    /// From now on that is why.
    pub fn set_not_created(&mut self, why: Option<Arc<str>>) {
        self.not_created = Told::Record(why);
    }

    /// Why pods do not become available, as far as known.
    pub(super) fn not_ready(&self) -> BTreeMap<PodName, Arc<str>> {
        let stands = || {
            let told = self.conditions.iter().map(|told| told.message.as_str());
            Some(told.flat_map(not_ready::read).collect())
        };
        self.not_ready.or(stands).unwrap_or_default()
    }

    /// From now on that is why, pod by pod.
    pub fn set_not_ready(&mut self, why: BTreeMap<PodName, Arc<str>>) {
        self.not_ready = Told::Record(Some(why));
    }

    /// What is remembered of its pause, as it was told last.
    pub fn told_pause(&self) -> Option<PauseRecord> {
        self.pause.or(|| {
            let mut conditions = self.conditions.iter();
            let told = conditions.find(|condition| condition.kind == PAUSED_CONDITION)?;
            let since = told.last_transition.as_ref()?.0;
            (told.status == "True").then(|| PauseRecord::read(since, &told.message))
        })
    }

    /// From now on that is remembered of its pause, whether it shows on the DaemonSet yet or not.
    pub fn tell_pause(&mut self, record: Option<PauseRecord>) {
        self.pause = Told::Record(record);
    }

    /// What stands on the DaemonSet counts again: another replica may have told something else.
    pub fn forget_told(&mut self) {
        self.guard.forget_told();
        self.pause = Told::Nothing;
        self.refusals = Told::Nothing;
        self.not_created = Told::Nothing;
        self.not_ready = Told::Nothing;
    }

    /// Whether a write of ours was refused or never answered, and what became of its pod is not known yet.
    pub fn is_in_doubt(&self) -> bool {
        let mut doubts = self.overlay.values().map(|overlay| &overlay.doubt);
        doubts.any(|doubt| *doubt != Doubt::Accepted)
    }

    /// When the pods have to be listed anew, because a write of ours should have shown by then.
    pub fn overlay_due(&self) -> Option<Timestamp> {
        let due = |overlay: &Overlay| later(overlay.at, overlay.doubt.patience());
        let deletions = self.overlay.values().map(due);
        deletions.chain(self.asked.due()).min()
    }

    /// The node of a pod.
    pub fn place_of(&self, uid: &PodUid) -> Option<&NodeName> {
        self.places.get(uid)
    }

    /// The name of a pod with that hash.
    pub fn pod_with(&self, hash: &Revision) -> Option<&PodName> {
        let mut pods = self.pods.values().flatten();
        let found = pods.find(|record| record.hash.as_deref() == Some(hash.as_str()));
        found.map(|record| record.name())
    }

    /// Remembers that no revision of that hash exists: its pods are outdated.
    pub fn note_absent(&mut self, hash: Revision) {
        self.absent.insert(hash);
    }

    /// From now on the greatest revision of this generation is trusted, whatever template it seems to hold.
    pub fn trust_greatest(&mut self, generation: i64) {
        self.trusted = Some(generation);
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
    pub fn is_observed(&self) -> bool {
        self.observed >= self.generation
    }

    /// Whether the template was that of the newest revision when a fleet was made last.
    pub fn is_template_current(&self) -> bool {
        self.confirmed == Some(self.template)
    }

    /// Whether its nodes pull images ahead of their replacement.
    pub(super) fn pulls_ahead(&self) -> bool {
        match &self.reading {
            Reading::Strategy { strategy, .. } => Predownloading::of(strategy).is_some(),
            Reading::Invalid(_) | Reading::NotOurs => false,
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
        let pods = self.pods.get(name).into_iter().flatten();
        let ready = pods.filter(|record| record.ready_since().is_some());
        let run = |pod: &PodRecord| {
            let of_pod = |known: &&RevisionFacts| Some(known.hash.as_str()) == pod.hash.as_deref();
            revisions.iter().find(of_pod)
        };
        let running: Vec<&RevisionFacts> = ready.filter_map(run).collect();
        images.iter().all(|image| {
            let mut run = running.iter().flat_map(|facts| facts.images.iter());
            !image.moves && (record.lists(image.key) || run.any(|other| other.key == image.key))
        })
    }

    pub(super) fn has_pods_on(&self, node: &NodeName) -> bool {
        self.pods.contains_key(node)
    }

    /// Names and uids of its pods, with the node of each.
    pub fn pods(&self) -> impl Iterator<Item = (&NodeName, &Pod)> {
        self.pods
            .iter()
            .flat_map(|(node, pods)| pods.iter().map(move |record| (node, &record.pod)))
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
        let unknown =
            self.pods.values().flatten().filter(|record| {
                self.revision_of(record, &target, revisions) == PodRevision::Unknown
            });
        let hashes: BTreeSet<Revision> = unknown
            .filter_map(|record| record.hash.as_deref().map(Revision::from))
            .collect();
        hashes.into_iter().collect()
    }

    fn revision_of(
        &self,
        record: &PodRecord,
        target: &Revision,
        revisions: &[RevisionFacts],
    ) -> PodRevision {
        let (hash, generation) = (record.hash.as_deref(), record.generation.as_deref());
        match judge(
            hash,
            generation,
            target,
            revisions,
            self.template_generation.as_deref(),
        ) {
            PodRevision::Unknown
                if hash.is_some_and(|hash| self.absent.contains(&Revision::from(hash))) =>
            {
                PodRevision::Outdated
            }
            judged => judged,
        }
    }

    /// How pods of old revisions become those of the current one, where that is to happen in place.
    pub(super) fn successions(
        &self,
        state: &RevisionState,
        revisions: &[RevisionFacts],
    ) -> Successions {
        let RevisionState::Current(target) = state else {
            return Successions::new();
        };
        let asked = match &self.reading {
            Reading::Strategy { strategy, .. } => strategy.rolling_update_type,
            Reading::NotOurs | Reading::Invalid(_) => RollingUpdateType::Standard,
        };
        let new = revisions.iter().find(|known| known.hash == *target);
        let Some(new) = new.filter(|_| asked == RollingUpdateType::InPlaceIfPossible) else {
            return Successions::new();
        };
        let generation = self.template_generation.as_deref();
        let old = revisions.iter().filter(|known| known.hash != *target);
        let between = |old: &RevisionFacts| Succession::between(&old.shape, &new.shape, generation);
        old.map(|old| (old.hash.clone(), between(old))).collect()
    }

    /// How pods of the current revision get back to older ones, where somebody asked for that.
    pub(super) fn way_back(&self, state: &RevisionState, revisions: &[RevisionFacts]) -> WayBack {
        let asked = match &self.reading {
            Reading::Strategy { strategy, .. } => strategy.on_failure == OnFailure::RevertInPlace,
            Reading::NotOurs | Reading::Invalid(_) => false,
        };
        let RevisionState::Current(current) = state else {
            return WayBack::default();
        };
        let current = revisions.iter().find(|known| known.hash == *current);
        let Some(current) = current.filter(|_| asked) else {
            return WayBack::default();
        };
        // Never one that somebody went back from: it is newer than the current one.
        let older = earlier(revisions, &current.hash).into_iter();
        // Nobody knows the generation of an older template any more, and the present one would be a lie.
        let past = |old: &RevisionFacts| Past {
            number: old.number,
            succession: Succession::between(&current.shape, &old.shape, None),
        };
        WayBack {
            stands: self.guard.stands(&self.conditions),
            revisions: older.map(|old| (old.hash.clone(), past(old))).collect(),
        }
    }

    /// Whether the guard stopped the revision, and that does not stand on the DaemonSet.
    pub fn is_stopped_unseen(&self) -> bool {
        let stopped = self.told().is_some_and(|record| record.stopped.is_some());
        stopped && !self.guard.stands(&self.conditions)
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
        self.pods.keys()
    }

    /// The pods on a node with their revisions judged, and what we wrote laid over them.
    pub(super) fn judged_pods(
        &self,
        node: &NodeName,
        state: &RevisionState,
        revisions: &[RevisionFacts],
    ) -> Vec<Pod> {
        let judge = |record: &PodRecord| {
            let mut pod = Pod {
                revision: match state {
                    RevisionState::Current(target) => self.revision_of(record, target, revisions),
                    RevisionState::Behind(_) => PodRevision::Unknown,
                },
                number: number_of(record.hash.as_deref(), revisions),
                of_template: self.is_of_template(record),
                image_ready: self.asked.over(&record.pod),
                ..record.pod.clone()
            };
            if let Some(overlay) = self.overlay.get(record.uid()) {
                overlay.show(&mut pod);
            }
            pod
        };
        let pods = self.pods.get(node).into_iter().flatten();
        pods.map(judge).collect()
    }

    /// Whether a pod was made for the template as it is now; true where nothing tells. One that was taken back from a newer
    /// one was not, and carries no generation.
    fn is_of_template(&self, record: &PodRecord) -> bool {
        let told = record
            .generation
            .as_deref()
            .zip(self.template_generation.as_deref());
        let is_taken_back = record.pod.in_place.reverted_from.is_some();
        !is_taken_back && told.is_none_or(|(pod, template)| pod == template)
    }

    pub(super) fn note_podless(
        &mut self,
        node: &NodeName,
        podless: bool,
        now: Timestamp,
    ) -> Option<Timestamp> {
        if !podless {
            if !self.podless.is_empty() {
                self.podless.remove(node);
            }
            return None;
        }
        let since = match self.cache.is_first_look() {
            true => self.missing_since().map_or(now, |since| since.min(now)),
            false => now,
        };
        Some(*self.podless.entry(node.clone()).or_insert(since))
    }

    /// Notes whether it is known what is rolled out; since when it is not.
    pub(super) fn note_behind(
        &mut self,
        state: &RevisionState,
        now: Timestamp,
    ) -> Option<Timestamp> {
        self.behind_since = match (state, self.behind_since) {
            (RevisionState::Current(_), _) => None,
            (RevisionState::Behind(_), Some(since)) => Some(since),
            (RevisionState::Behind(_), None) => {
                let stalled = self.stalled_since(Stall::NativeControllerBehind);
                let stalled = stalled.map(|since| instant::earlier(since, BEHIND_PATIENCE));
                let since = stalled.or_else(|| self.behind_since_told());
                Some(since.unwrap_or(now).min(now))
            }
        };
        self.behind_since
    }

    /// Since when it waits for the native controller, as it stands on the DaemonSet.
    fn behind_since_told(&self) -> Option<Timestamp> {
        let says_so =
            |told: &&k8s::Condition| told.kind == ROLLOUT_COMPLETE && told.reason == NATIVE_BEHIND;
        let told = self.conditions.iter().find(says_so)?;
        let (_, since) = told.message.split_once(BEHIND_SINCE)?;
        since.split_once(": ")?.0.parse().ok()
    }

    /// Since when it is stalled for this reason, as it stands on the DaemonSet.
    fn stalled_since(&self, stall: Stall) -> Option<Timestamp> {
        let says_so = |told: &&k8s::Condition| {
            told.kind == STALLED && told.status == "True" && told.reason == stall.reason()
        };
        let told = self.conditions.iter().find(says_so)?;
        told.last_transition.as_ref().map(|at| at.0)
    }

    /// Since when pods are missing at the least, as far as it stands on the DaemonSet: whoever looks for the first time does not know.
    fn missing_since(&self) -> Option<Timestamp> {
        let since = self.stalled_since(Stall::PodsNotCreated)?;
        Some(instant::earlier(since, MISSING_GRACE))
    }
}
