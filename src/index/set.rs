//! Record of a managed DaemonSet: settings, pods, and the controller's writes that the watches don't show yet.

mod pods;
mod reported;
mod revisions;
mod writes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;

use super::advanced::{AdvancedRecord, StatusNumbers};
use super::disruptions::Disruptions;
use super::ended::Ended;
use super::expectations::Expectations;
use super::fleet_cache::FleetCache;
use super::guarded::GuardedRevision;
use super::key::{SetKey, SetKind};
use super::last_reported::LastReported;
use super::legacy;
use super::pod::SharedParts;
use super::pod_index::PodIndex;
use crate::core::eligibility::Scheduling;
use crate::core::names::{
    OWN_CONDITIONS, REVISION_HASH_LABEL, ROLLOUT_STATE, TEMPLATE_GENERATION_ANNOTATION,
};
use crate::core::revision::{RollbackMark, TemplateFingerprint};
use crate::core::selector::Selector;
use crate::core::{
    DaemonSetCounts, Evictions, NodeName, ParsedSettings, PauseRecord, PodName, PodUid, Revision,
    RevisionState, RolloutState, Targeting, WriteFailures,
};
use crate::k8s;

#[derive(Clone, Copy, Debug)]
pub(super) struct Podless {
    since: Timestamp,
    /// True if the node should run a pod. When this changes, the time without a pod starts again.
    is_targeted: bool,
}

/// Everything that the controller knows about one DaemonSet.
#[derive(Debug)]
pub struct SetRecord {
    /// Name of the DaemonSet.
    pub name: Arc<str>,
    /// Namespace of the DaemonSet.
    pub namespace: Arc<str>,
    /// UID of the DaemonSet.
    pub uid: Arc<str>,
    /// `metadata.generation`.
    pub generation: i64,
    /// `status.observedGeneration`.
    pub observed: i64,
    /// Settings of the DaemonSet.
    pub reading: ParsedSettings,
    /// Fingerprint of the pod template.
    pub template: TemplateFingerprint,
    /// Marks that the last rollback left on the DaemonSet.
    pub rollback_mark: RollbackMark,
    /// Conditions in the status that this controller writes.
    pub conditions: Vec<k8s::Condition>,
    /// State of the rollout in the condition `RolloutState`.
    pub state: Arc<RolloutState>,
    /// Error if the condition `RolloutState` could not be parsed. The rollout then continues without its content.
    pub state_error: Option<Arc<str>>,
    /// Label selector of the pods, in the form of a query parameter.
    pub selector: String,
    /// True if all pods and revisions have been listed.
    pub synced: bool,
    /// Time for which a pod has to be Ready to be available.
    pub min_ready: Duration,
    /// Additional state of an Advanced DaemonSet; `None` for a native one.
    pub advanced: Option<Box<AdvancedRecord>>,
    pub(super) scheduling: Scheduling,
    pub(super) podless: BTreeMap<NodeName, Podless>,
    /// Pods that the selector no longer matches, by UID and name. The controller has to release them, if they still exist.
    unmanaged: BTreeSet<(PodUid, String)>,
    disruptions: Disruptions,
    /// Reason why the API server rejects new pods, from an Event of the native controller.
    not_created: LastReported<Arc<str>>,
    /// Reasons why pods don't become available, by pod.
    not_ready: LastReported<BTreeMap<PodName, Arc<str>>>,
    ended: Ended,
    /// Time at which the current revision became unknown.
    behind_since: Option<Timestamp>,
    template_generation: Option<String>,
    pods: PodIndex,
    shared: SharedParts,
    /// Writes to the DaemonSet and its pods that the watches don't show yet.
    expectations: Expectations,
    /// Rejected evictions.
    pub(super) evictions: Evictions,
    /// Other writes that the API server rejected, or that failed.
    write_failures: LastReported<WriteFailures>,
    absent: BTreeSet<Revision>,
    trusted: Option<i64>,
    /// Fingerprint of the template, if the newest revision contained it when the fleet was last built.
    confirmed: Option<TemplateFingerprint>,
    version: Option<u64>,
    unreadable: BTreeMap<PodUid, UnreadablePod>,
    pub(super) cache: FleetCache,
    pub(super) guard: GuardedRevision,
    pause: LastReported<PauseRecord>,
}

/// Pod that cannot be parsed.
#[derive(Debug)]
struct UnreadablePod {
    name: PodName,
    /// Node of the pod; `None` if it could not be parsed.
    node: Option<NodeName>,
    why: Arc<str>,
}

/// Delay between a change and the next decision about the DaemonSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequeueDelay {
    /// No decision is needed.
    Never,
    /// The change frees no slot and only affects reports, so the decision can wait longer.
    Long,
    /// The rollout may be able to continue, so the decision follows as soon as the current burst of changes ends.
    Short,
    /// A user changed the DaemonSet, so the decision follows at once.
    Zero,
}

/// Owner that controls a pod of a DaemonSet (`controller: true` in its owner references).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodController {
    /// The DaemonSet itself.
    DaemonSet,
    /// A ControllerRevision of the DaemonSet, so the pod is a surge pod (`max-surge` of a native DaemonSet).
    Revision,
}

impl PodController {
    /// Returns the controller of the pod with this metadata; `None` if it is neither the DaemonSet with the UID `set` nor one of
    /// its revisions.
    ///
    /// A surge pod is controlled by a ControllerRevision and has the DaemonSet as a second owner. Kubernetes removes the second
    /// owner when the DaemonSet is deleted without its pods. Then the name of the ControllerRevision decides.
    pub fn new(meta: &ObjectMeta, set: &str) -> Option<Self> {
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
            // Compare only the end of the name. A revision that was adopted from another DaemonSet has a name with another
            // beginning.
            let names = !hash.is_empty() && controller.name.ends_with(&format!("-{hash}"));
            !others && names
        };
        (controller.kind == "ControllerRevision" && (own || was_own())).then_some(Self::Revision)
    }
}

impl SetRecord {
    pub(super) fn read(set: &k8s::DaemonSet) -> Self {
        let meta = &set.metadata;
        let reading = set.reading();
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
            rollback_mark: RollbackMark::from_meta(meta),
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
            unmanaged: BTreeSet::new(),
            disruptions: Disruptions::default(),
            not_created: LastReported::Nothing,
            not_ready: LastReported::Nothing,
            ended: Ended::default(),
            behind_since: None,
            template_generation: annotation(TEMPLATE_GENERATION_ANNOTATION),
            pods: PodIndex::default(),
            shared: SharedParts::default(),
            expectations: Expectations::default(),
            evictions: Evictions::default(),
            write_failures: LastReported::default(),
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

    /// Returns kind, namespace and name of the DaemonSet.
    pub fn key(&self) -> SetKey {
        let kind = if self.is_advanced() {
            SetKind::Advanced
        } else {
            SetKind::Native
        };
        SetKey {
            kind,
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }

    /// Counts nodes and pods for the status, as of `now`. `nodes` yields all nodes with their
    /// [`Node::native`](crate::core::Node::native).
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

    /// Returns the numbers for the status of the DaemonSet.
    pub(super) fn numbers(
        &self,
        counts: DaemonSetCounts,
        state: &RevisionState,
        handled: bool,
    ) -> StatusNumbers {
        let stands = self.advanced.as_ref().map(|advanced| &advanced.stands);
        let before = || {
            let revision = stands.and_then(|stands| stands.update_revision.as_deref());
            revision.map(Revision::from)
        };
        StatusNumbers {
            counts,
            revision: match state {
                RevisionState::Current(revision) => Some(revision.clone()),
                RevisionState::Unknown(_) => before(),
            },
            observed: if handled {
                self.generation
            } else {
                self.observed
            },
            collisions: self.advanced.as_ref().map_or(0, |own| own.collisions),
        }
    }

    /// Returns true if this is an Advanced DaemonSet.
    pub fn is_advanced(&self) -> bool {
        self.advanced.is_some()
    }

    /// Returns true if the record can be dropped: the DaemonSet is not managed, and its status has no conditions of yurt-ds.
    pub(super) fn is_finished(&self) -> bool {
        self.reading == ParsedSettings::NotOurs && self.conditions.is_empty()
    }

    /// Applies a newer version of the object. Returns false if nothing relevant changed.
    ///
    /// An older version is ignored. The watch can be behind a live read, which then returned a newer version. Resource versions are
    /// compared as numbers, if they are numbers (KEP-5504).
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
}

/// Returns the state of the rollout that these conditions contain.
fn reported_state(conditions: &[k8s::Condition]) -> serde_json::Result<RolloutState> {
    let mut all = conditions.iter();
    match all.find(|found| found.kind == ROLLOUT_STATE) {
        Some(found) => RolloutState::read(&found.message),
        None => Ok(legacy::read(conditions).unwrap_or_default()),
    }
}
