//! Management of Advanced DaemonSets (`apps.kruise.io`) in addition to their rollout.
//!
//! The controller creates and deletes their pods, keeps their revisions, and writes their status. For native DaemonSets,
//! Kubernetes' DaemonSet controller does this.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::DeleteParams;
use serde_json::{Value, json};
use tracing::{debug, info, warn};

use super::{Engine, NotCreated, TaskResult};
use crate::controller::advanced::{RevisionSync, RevisionsRead};
use crate::controller::apply::{WriteError, on_the_wire};
use crate::controller::owner::DaemonSetOwner;
use crate::controller::refused::{ErrorClass, class, message};
use crate::controller::report::refused::WRITE_REFUSED;
use crate::controller::report::{Report, RolloutEvent};
use crate::controller::surge::SurgeResult;
use crate::core::messages::events;
use crate::core::{
    Action, Fleet, Manage, NodeName, Pod, PodName, PodUid, Readiness, Revision, RevisionState,
    Targeting, WriteFailures, WriteVerb, manage,
};
use crate::index::{NumbersDue, Orphan, PodWrite, SetKey, StatusNumbers, WriteAnswer};
use crate::k8s::client::Failure;

/// Limit for Events about single pods.
#[derive(Clone, Copy, Debug)]
struct EventLimit {
    /// Number of Events that may be sent at once.
    burst: u32,
    /// Interval at which one more Event becomes available, up to `burst`.
    every: SignedDuration,
}

/// Limit for Events of one reason about one DaemonSet, as in client-go (`EventSourceObjectSpamFilter`).
const POD_EVENTS: EventLimit = EventLimit {
    burst: 25,
    every: SignedDuration::from_mins(5),
};

/// Limit for Normal Events about pods of all DaemonSets together. Such an Event only repeats what the pod itself shows.
///
/// The limit is a quarter of all Events that may be sent, so that Events about rollouts are neither delayed nor dropped.
const ALL_POD_EVENTS: EventLimit = EventLimit {
    burst: 60,
    every: SignedDuration::from_secs(1),
};

/// Budget for Events about single pods.
#[derive(Debug)]
pub(super) struct PodEvents {
    limit: EventLimit,
    left: u32,
    since: Option<Timestamp>,
}

impl PodEvents {
    fn new(limit: EventLimit) -> Self {
        Self {
            limit,
            left: limit.burst,
            since: None,
        }
    }

    /// Takes one Event from the budget at `now`. Returns true if it may be sent.
    fn take(&mut self, now: Timestamp) -> bool {
        let since = *self.since.get_or_insert(now);
        let gained = (now.as_second() - since.as_second()) / self.limit.every.as_secs();
        if gained > 0 {
            let gained = u32::try_from(gained).unwrap_or(self.limit.burst);
            self.left = self.left.saturating_add(gained).min(self.limit.burst);
            self.since = Some(now);
        }
        let may = self.left > 0;
        self.left = self.left.saturating_sub(1);
        may
    }
}

/// Budgets of one DaemonSet, one per reason, so that Events about created pods don't use up the budget for failed pods.
#[derive(Debug, Default)]
pub(super) struct PodEventsByReason(BTreeMap<&'static str, PodEvents>);

impl PodEventsByReason {
    fn take(&mut self, reason: &'static str, now: Timestamp) -> bool {
        let events = self.0.entry(reason);
        let events = events.or_insert_with(|| PodEvents::new(POD_EVENTS));
        events.take(now)
    }
}

/// Budget of all DaemonSets together, for Normal Events about single pods.
#[derive(Debug)]
pub(super) struct AllPodEvents(PodEvents);

impl Default for AllPodEvents {
    fn default() -> Self {
        Self(PodEvents::new(ALL_POD_EVENTS))
    }
}

/// Result of a request to create pods on several nodes.
pub(super) struct CreatedPods {
    revision: Revision,
    /// Nodes of the pods, in the order of creation.
    nodes: Vec<NodeName>,
    /// Results for the nodes that were tried, in the order of `nodes`.
    made: Result<Vec<SurgeResult>, WriteError>,
}

/// Finished operation for an Advanced DaemonSet, with its result.
pub(super) enum AdvancedTask {
    Adopted(Orphan, Result<(), WriteError>),
    /// Release of a pod, by name; `false`: the pod needed no release.
    Released(String, Result<bool, WriteError>),
    /// Deletion of revisions, by name, each with its result.
    Trimmed(Vec<(String, Result<(), WriteError>)>),
    /// Opening of a pod's readiness gate.
    Opened(Result<(), WriteError>),
}

impl Engine {
    /// Decides which pods of an Advanced DaemonSet to create and delete now. Also returns the writes that the API server rejected,
    /// for the report. A rejected write is not repeated before its retry is due.
    ///
    /// Returns `None` for a native DaemonSet, and for an Advanced one with unusable fields.
    pub(super) fn managed(
        &self,
        key: &SetKey,
        fleet: &Fleet,
        now: Timestamp,
    ) -> Option<(Manage, WriteFailures)> {
        let set = self.index.set(key)?;
        let advanced = set.advanced.as_ref().filter(|own| own.is_workable)?;
        let mut managed = manage(fleet, advanced.terms(&set.reading, now));
        let asked = std::mem::take(&mut managed.actions);
        let (actions, again, _) = fleet.write_failures.without_held(&fleet.nodes, asked, now);
        // Report rejected writes to these pods as long as the pods exist, also while the response to a repeated deletion is
        // pending.
        let refused = fleet.write_failures.of_pods_on(&fleet.nodes, |node| {
            let goes = |pod: &Pod| pod.in_place.is_over || managed.leaving.contains(&pod.uid);
            node.native == Targeting::No || node.pods.iter().any(goes)
        });
        let is_tried = |uid: &PodUid| actions.iter().any(|action| action.pod().uid == *uid);
        managed.over.retain(|(_, uid)| is_tried(uid));
        managed.wake = managed.wake.into_iter().chain(again).min();
        managed.actions = actions;
        Some((managed, refused))
    }

    /// Creates, adopts and releases pods of an Advanced DaemonSet. Returns the actions to write to existing pods, such as
    /// deletions.
    pub(super) fn reconcile_pods(
        &mut self,
        key: &SetKey,
        fleet: &Fleet,
        actions: Vec<Action>,
        managed: Option<Manage>,
        now: Timestamp,
    ) -> Vec<Action> {
        self.release(key, now);
        let Some(mut managed) = managed else {
            return match key.is_advanced() {
                true => Vec::new(), // fields are unusable, so no action on a pod is safe
                false => actions,
            };
        };
        if !self.parts.writer.may_write() {
            return actions;
        }
        self.wake_at(key, managed.wake);
        if let Some(advanced) = self
            .index
            .set_mut(key)
            .and_then(|set| set.advanced.as_mut())
        {
            advanced.set_leaving(managed.leaving.clone());
        }
        match &fleet.revision {
            RevisionState::Current(revision) => {
                self.claim(key, now);
                self.create(key, revision, std::mem::take(&mut managed.create), now);
                self.trim(key, revision);
                self.open_gates(key, fleet, &actions, now);
            }
            RevisionState::Unknown(_) => self.sync_revisions(key, now),
        }
        for (node, uid) in &managed.over {
            self.publish_failed_pod(key, node, uid, fleet, now);
        }
        managed.with_rollout(actions)
    }

    /// Creates pods on these nodes. While creations are rejected, only nodes that have not been tried yet get a pod.
    fn create(
        &mut self,
        key: &SetKey,
        revision: &Revision,
        mut nodes: Vec<NodeName>,
        now: Timestamp,
    ) {
        if nodes.is_empty() {
            return;
        }
        let state = self.state.sets.entry(key.clone()).or_default();
        let refused = state.creations.holds(now);
        if let Some(until) = state.pods.holds(now) {
            return self.wake_at(key, Some(until));
        }
        if refused.is_some() {
            self.wake_at(key, refused);
            // During the backoff after a rejection, a node gets its pod only if no creation was tried there yet.
            let set = self.index.set(key);
            let advanced = set.and_then(|set| set.advanced.as_ref());
            nodes = advanced.map_or_else(Vec::new, |advanced| advanced.untried(nodes));
            if nodes.is_empty() {
                return;
            }
        }
        let index = &mut self.index;
        let Some(owner) = index.set(key).map(DaemonSetOwner::from_set) else {
            return;
        };
        let Some(name) = index.revision_name(&owner.uid, revision).map(str::to_owned) else {
            return; // the watch dropped the revision and is about to report another one
        };
        if let Some(advanced) = index.set_mut(key).and_then(|set| set.advanced.as_mut()) {
            advanced.begin_creation(nodes.iter(), now);
        }
        let state = self.state.sets.entry(key.clone()).or_default();
        let flows = state.created.as_ref() == Some(revision);
        let (writer, key, revision) = (self.parts.writer.clone(), key.clone(), revision.clone());
        // Creations don't count as `under_way` (unanswered writes, which delay the next decision). Expectations already prevent a
        // second request for the same node.
        self.spawn(key.clone(), async move {
            let made = writer.create_pods(&key, &owner, &name, &revision, &nodes, flows);
            let made = made.await;
            TaskResult::Created(
                key,
                CreatedPods {
                    revision,
                    nodes,
                    made,
                },
            )
        });
    }

    pub(super) fn note_created(
        &mut self,
        key: &SetKey,
        CreatedPods {
            revision,
            nodes,
            made,
        }: CreatedPods,
        now: Timestamp,
    ) {
        let (answers, unread) = match made {
            Ok(answers) => (answers, None),
            Err(refusal) => (Vec::new(), Some(refusal)),
        };
        let mut failed = unread;
        let is_any_made = answers.iter().any(Result::is_ok);
        let mut answers = answers.into_iter();
        for node in &nodes {
            // Nodes that were not tried, or whose pod was rejected, can be tried again at once. On the other nodes, the request
            // counts as pending until the watch shows the pod, or the next list of pods ends without it.
            let (ended, refused) = match answers.next() {
                None => (true, None),
                Some(Ok(pod)) => {
                    // Only log the created pod. The watch reports it too, and the index may already have a newer version from the
                    // watch.
                    if let Some(pod) = &pod {
                        let name = pod.name();
                        debug!(daemonset = %key, %node, pod = name, "Created a pod");
                        self.publish_pod(
                            key,
                            "SuccessfulCreate",
                            format!("Created pod: {name}"),
                            now,
                        );
                    }
                    (false, Some(false))
                }
                Some(Err(refusal)) => {
                    let ended = super::answers::answer(&refusal) != WriteAnswer::Unanswered;
                    failed = failed.or(Some(refusal));
                    (ended, Some(true))
                }
            };
            let Some(set) = self.index.set_mut(key) else {
                continue;
            };
            if refused == Some(false) {
                set.note_made(node, now);
            }
            if let Some(advanced) = &mut set.advanced {
                advanced.answer_creation(node, now);
                if ended {
                    advanced.end_creation(node);
                }
                if let Some(refused) = refused {
                    advanced.note_creation(node, refused);
                }
            }
        }
        if let Some(state) = self.state.sets.get_mut(key) {
            state.created = (failed.is_none() && is_any_made).then_some(revision);
            match &failed {
                Some(_) if !is_any_made => state.creations.slow_down(now),
                Some(_) => {}
                None => state.creations = Default::default(),
            }
        }
        self.note_not_created(key, failed.as_ref());
    }

    /// Records why a pod could not be created, and publishes it in one Event.
    fn note_not_created(&mut self, key: &SetKey, refusal: Option<&WriteError>) {
        let message = refusal.map(|error| message(error, ""));
        let message = message.filter(|message| !message.is_empty());
        if let Some(set) = self.index.set_mut(key) {
            let why = message
                .as_deref()
                .map(|message| events::not_created(message, &key.name).into());
            set.set_not_created(why);
        }
        let state = self.state.sets.entry(key.clone()).or_default();
        let failure = message.clone().map(NotCreated::Pod);
        if state.not_created == failure {
            return;
        }
        state.not_created = failure;
        if let Some(message) = message {
            let note = format!("Error creating: {message}");
            warn!(daemonset = %key, note, "Cannot create a pod");
            let notice = RolloutEvent {
                warning: true,
                reason: "FailedCreate",
                note,
                ..RolloutEvent::default()
            };
            self.publish(key, &notice);
        }
        if let Some(refusal) = refusal {
            self.note_refusal(key, refusal, None);
        }
    }

    /// Publishes that a failed pod is being deleted.
    fn publish_failed_pod(
        &mut self,
        key: &SetKey,
        node: &NodeName,
        uid: &PodUid,
        fleet: &Fleet,
        now: Timestamp,
    ) {
        let nodes = crate::core::fleet::by_name(&fleet.nodes, node);
        let pod = nodes.and_then(|node| node.pods.iter().find(|pod| pod.uid == *uid));
        let name = pod.map_or("", |pod| pod.name.as_str());
        // Publish the Event only before the first attempt. If the deletion is rejected, a separate Event reports that.
        if !fleet.write_failures.is_refused(node, WriteVerb::Delete) {
            let note =
                format!("Found failed daemon pod {name} on node {node}, will try to kill it");
            self.publish_of_pod(key, true, "FailedDaemonPod", note, now);
        }
        let set = self.index.set_mut(key);
        if let Some(advanced) = set.and_then(|set| set.advanced.as_mut()) {
            advanced.note_over(node, now);
        }
    }

    /// Publishes an Event about a completed write to a pod, with Kruise's text. Does nothing if Kruise has no Event for that write.
    pub(super) fn publish_of_write(
        &mut self,
        key: &SetKey,
        pod: &PodName,
        write: &PodWrite,
        done: bool,
        now: Timestamp,
    ) {
        match (write, done) {
            (PodWrite::Deletion | PodWrite::Eviction, true) => {
                self.publish_pod(key, "SuccessfulDelete", format!("Deleted pod: {pod}"), now);
            }
            (PodWrite::InPlacePatch { to, .. }, true) => {
                let note = format!("successfully update pod {pod} in-place(revision {to})");
                self.publish_pod(key, "SuccessfulUpdatePodInPlace", note, now);
            }
            _ => {}
        }
    }

    /// Publishes a Normal Event about a pod, within the limits for such Events.
    pub(super) fn publish_pod(
        &mut self,
        key: &SetKey,
        reason: &'static str,
        note: String,
        now: Timestamp,
    ) {
        self.publish_of_pod(key, false, reason, note, now);
    }

    fn publish_of_pod(
        &mut self,
        key: &SetKey,
        warning: bool,
        reason: &'static str,
        note: String,
        now: Timestamp,
    ) {
        let state = self.state.sets.entry(key.clone()).or_default();
        let may = state.pod_events.take(reason, now);
        if !may || !warning && !self.state.pod_events.0.take(now) {
            return;
        }
        let notice = RolloutEvent {
            warning,
            reason,
            note,
            ..RolloutEvent::default()
        };
        if let Some((about, severity)) = self.event(key, &notice) {
            let events = &self.parts.events;
            events.record_low_priority(&about, severity, reason, &notice.note);
        }
    }

    /// Releases pods that are owned by the DaemonSet but not matched by its selector.
    fn release(&mut self, key: &SetKey, now: Timestamp) {
        let Some(set) = self.index.set_mut(key).filter(|set| set.has_strays()) else {
            return; // the usual case
        };
        if !self.parts.writer.may_write() {
            return;
        }
        let state = self.state.sets.entry(key.clone()).or_default();
        if let Some(until) = state.pods.holds(now) {
            return self.wake_at(key, Some(until));
        }
        let owner = DaemonSetOwner::from_set(set);
        for (uid, name) in set.take_strays() {
            let (writer, owner) = (self.parts.writer.clone(), owner.clone());
            self.tended(key, async move |key| {
                let released = writer.release(&key, &owner, &name, &uid.to_string()).await;
                AdvancedTask::Released(name, released)
            });
        }
    }

    /// Adopts pods that have no controller, or whose controller is a ControllerRevision of a native DaemonSet.
    fn claim(&mut self, key: &SetKey, now: Timestamp) {
        let state = self.state.sets.entry(key.clone()).or_default();
        if let Some(until) = state.pods.holds(now) {
            return self.wake_at(key, Some(until));
        }
        let Some(set) = self.index.set_mut(key) else {
            return;
        };
        let Some(advanced) = &mut set.advanced else {
            return;
        };
        let orphans = advanced.take_orphans();
        if orphans.is_empty() {
            return; // the usual case
        }
        let owner = DaemonSetOwner::from_set(set);
        for orphan in orphans {
            info!(daemonset = %key, pod = %orphan.pod.name, "Adopting pod");
            let (writer, owner) = (self.parts.writer.clone(), owner.clone());
            self.tended(key, async move |key| {
                let adopted = writer.adopt(&key, &owner, &orphan).await;
                AdvancedTask::Adopted(orphan, adopted)
            });
        }
    }

    /// Opens the closed readiness gates of pods, except of pods that are being updated in place or get an action of `actions`.
    fn open_gates(&mut self, key: &SetKey, fleet: &Fleet, actions: &[Action], now: Timestamp) {
        let at = json!(on_the_wire(now));
        let shut = fleet
            .nodes
            .iter()
            .flat_map(|node| &node.pods)
            .filter(|pod| {
                !pod.terminating
                    && pod.in_place.gate == Some(false)
                    && !pod.in_place.is_under_way()
                    && !actions.iter().any(|action| action.pod().uid == pod.uid)
            });
        let pods: Vec<_> = shut.map(Pod::reference).collect();
        for pod in pods {
            let (writer, at) = (self.parts.writer.clone(), at.clone());
            self.tended(key, async move |key| {
                let opened = writer.set_in_place_gate(&key, &pod, true, at).await;
                AdvancedTask::Opened(opened.map(drop))
            });
        }
    }

    /// Deletes the oldest revisions beyond `revisionHistoryLimit`. Revisions that a pod runs are kept.
    fn trim(&mut self, key: &SetKey, current: &Revision) {
        let Some(set) = self.index.set(key) else {
            return;
        };
        let Some(advanced) = &set.advanced else {
            return;
        };
        if self.index.count_revisions(&set.uid) <= advanced.scaling.history_limit {
            return; // the usual case
        }
        let mut old = self.index.named_revisions_of(&set.uid);
        old.retain(|(_, facts)| facts.hash != *current);
        let surplus = old.len().saturating_sub(advanced.scaling.history_limit);
        if surplus == 0 {
            return;
        }
        let live: BTreeSet<&Revision> = set.hashes().collect();
        old.sort_by_key(|(_, facts)| facts.number);
        let gone = old.iter().filter(|(_, facts)| !live.contains(&facts.hash));
        let gone: Vec<String> = gone
            .map(|(name, _)| name.to_string())
            .take(surplus)
            .collect();
        if gone.is_empty() {
            return;
        }
        let writer = self.parts.writer.clone();
        self.tended(key, async move |key| {
            let mut trimmed = Vec::new();
            for name in gone {
                let any = DeleteParams::default();
                let answer = writer.delete_revision(&key.namespace, &name, &any).await;
                trimmed.push((name, answer));
            }
            AdvancedTask::Trimmed(trimmed)
        });
    }

    fn tended<F>(&mut self, key: &SetKey, task: impl FnOnce(SetKey) -> F)
    where
        F: Future<Output = AdvancedTask> + Send + 'static,
    {
        self.state.sets.entry(key.clone()).or_default().under_way += 1;
        let task = task(key.clone());
        let key = key.clone();
        self.spawn(key.clone(), async move {
            TaskResult::AdvancedTask(key, task.await)
        });
    }

    pub(super) fn note_tended(&mut self, key: &SetKey, tended: AdvancedTask, now: Timestamp) {
        let refusal = match tended {
            AdvancedTask::Adopted(_, Ok(())) => {
                self.forget_not_adopted(key);
                None
            }
            AdvancedTask::Adopted(orphan, answer) => answer.err().inspect(|refusal| {
                self.publish_not_adopted(key, refusal);
                // Don't retry if the pod has changed or is gone. The watch is about to report that.
                let set = self.index.set_mut(key);
                if !matches!(refusal.failure(), Some(Failure::Conflict | Failure::Gone))
                    && let Some(advanced) = set.and_then(|set| set.advanced.as_mut())
                {
                    advanced.return_orphan(orphan);
                }
            }),
            AdvancedTask::Opened(answer) => answer.err(),
            AdvancedTask::Released(pod, Ok(true)) => {
                info!(daemonset = %key, pod, "Released a pod that the selector no longer matches");
                None
            }
            AdvancedTask::Released(_, answer) => answer.err(),
            AdvancedTask::Trimmed(answers) => {
                let uid = self.index.set(key).map(|set| set.uid.clone());
                let mut refusal = None;
                for (name, answer) in answers {
                    match (answer, &uid) {
                        (Ok(()), Some(uid)) => self.index.forget_revision(uid, &name),
                        (Ok(()), None) => {}
                        (Err(answer), _) => refusal = Some(answer),
                    }
                }
                refusal
            }
        };
        if let Some(refusal) = refusal {
            self.note_refusal(key, &refusal, None);
            if let Some(state) = self.state.sets.get_mut(key) {
                state.pods.note(&Err(refusal), now);
            }
        }
    }

    /// Publishes one Event about all pods that cannot be adopted. No pod is created on the node of such a pod.
    fn publish_not_adopted(&mut self, key: &SetKey, refusal: &WriteError) {
        if !class(refusal).is_rejection() {
            return;
        }
        let message = message(refusal, "");
        let reason = format!("existing pods cannot be adopted: {message}");
        if let Some(set) = self.index.set_mut(key) {
            set.set_not_created(Some(reason.as_str().into()));
        }
        let state = self.state.sets.entry(key.clone()).or_default();
        let failure = Some(NotCreated::Adoption(message));
        if state.not_created == failure {
            return;
        }
        state.not_created = failure;
        let notice = RolloutEvent {
            warning: true,
            reason: WRITE_REFUSED,
            note: format!("{reason}; no other pods are created on their nodes; retrying"),
            ..RolloutEvent::default()
        };
        self.publish(key, &notice);
    }

    /// Forgets the last adoption failure. Called after a successful adoption, because the other pods can probably be adopted too.
    fn forget_not_adopted(&mut self, key: &SetKey) {
        let Some(state) = self.state.sets.get_mut(key) else {
            return;
        };
        let is_about_adoption = |known: &mut NotCreated| matches!(known, NotCreated::Adoption(_));
        if state.not_created.take_if(is_about_adoption).is_some()
            && let Some(set) = self.index.set_mut(key)
        {
            set.set_not_created(None);
        }
    }

    /// Starts a task that finds or creates the revision with the current template.
    fn sync_revisions(&mut self, key: &SetKey, now: Timestamp) {
        let state = self.state.sets.entry(key.clone()).or_default();
        if let Some(until) = state.revisions.holds(now) {
            return self.wake_at(key, Some(until));
        }
        let Some(set) = self.index.set(key) else {
            return;
        };
        let mut pods: BTreeMap<Revision, Vec<_>> = BTreeMap::new();
        for (hash, pod) in set.hashed_pods() {
            pods.entry(hash).or_default().push(pod);
        }
        let sync = RevisionSync {
            key: key.clone(),
            owner: DaemonSetOwner::from_set(set),
            template: set.template,
            selector: set.selector.clone(),
            pods,
            collisions: set.advanced.as_ref().map_or(0, |own| own.collisions),
        };
        state.under_way += 1;
        let writer = self.parts.writer.clone();
        self.spawn(key.clone(), async move {
            let read = writer.sync_revisions(&sync).await;
            TaskResult::Revised(sync.key, read)
        });
    }

    /// Records the revisions that a task found or created for the DaemonSet.
    pub(super) fn note_revised(
        &mut self,
        key: &SetKey,
        read: Result<RevisionsRead, WriteError>,
        now: Timestamp,
    ) {
        let result = match read {
            Ok(read) => {
                if let Some(set) = self.index.set_mut(key) {
                    let uid = set.uid.clone();
                    if let Some(advanced) = &mut set.advanced
                        && !read.revisions.is_empty()
                    {
                        advanced.collisions = read.collisions;
                    }
                    for name in &read.removed {
                        self.index.forget_revision(&uid, name);
                    }
                }
                for revision in &read.revisions {
                    self.index.apply_revision(revision);
                }
                match read.revisions.is_empty() {
                    // The cached template is outdated, so no revision matches it. The watch is about to report the current
                    // template.
                    true => Err(None),
                    false => Ok(()),
                }
            }
            Err(refusal) => Err(Some(refusal)),
        };
        let refusal = match result {
            Ok(()) => {
                if let Some(state) = self.state.sets.get_mut(key) {
                    state.revisions = Default::default();
                    state.not_created = None;
                }
                if let Some(set) = self.index.set_mut(key) {
                    set.set_not_created(None);
                }
                return;
            }
            Err(refusal) => refusal,
        };
        if let Some(state) = self.state.sets.get_mut(key) {
            state.revisions.slow_down(now);
            let until = state.revisions.holds(now);
            self.wake_at(key, until);
        }
        if let Some(refusal) = refusal {
            self.note_unrevised(key, &refusal);
        }
    }

    /// Records why a revision could not be written, and publishes it in one Event.
    fn note_unrevised(&mut self, key: &SetKey, refusal: &WriteError) {
        self.note_refusal(key, refusal, None);
        if matches!(class(refusal), ErrorClass::Conflict | ErrorClass::Ignored) {
            return;
        }
        let message = message(refusal, "");
        if let Some(set) = self.index.set_mut(key) {
            set.set_not_created(Some(message.as_str().into()));
        }
        let state = self.state.sets.entry(key.clone()).or_default();
        let failure = Some(NotCreated::Revision(message.clone()));
        if state.not_created == failure {
            return;
        }
        state.not_created = failure;
        let notice = RolloutEvent {
            warning: true,
            reason: WRITE_REFUSED,
            note: format!(
                "the API server rejects the ControllerRevision of the current template: {message}"
            ),
            ..RolloutEvent::default()
        };
        self.publish(key, &notice);
    }

    /// Returns the whole status of an Advanced DaemonSet; `None`: the status is unchanged, or can't be written yet.
    pub(super) fn report_advanced(
        &mut self,
        key: &SetKey,
        report: &Report,
        changes: bool,
        now: Timestamp,
    ) -> Option<(Vec<Value>, StatusNumbers)> {
        let set = self.index.set(key)?;
        let then = set.advanced.as_ref()?.counted_until(set.generation, now);
        if let Some(then) = then.filter(|_| !changes) {
            self.wake_at(key, Some(then)); // the status cannot be written yet, so don't count nodes
            return None;
        }
        let state = set.revision_state(&self.index.revisions_of(&set.uid));
        let is_current = matches!(state, RevisionState::Current(_));
        let numbers = self.index.numbers(key, &state, is_current, now)?;
        let set = self.index.set(key)?;
        let conditions = report.complete(&set.conditions, now);
        let unseen = set.is_report_unseen(now);
        let due = set.advanced.as_ref()?.numbers_due(&numbers, unseen, now);
        match due {
            NumbersDue::No if !changes => return None,
            NumbersDue::At(then) if !changes => {
                self.wake_at(key, Some(then));
                return None;
            }
            _ => {}
        }
        Some((conditions, numbers))
    }

    /// Returns the time at which the numbers in the status of an Advanced DaemonSet change even without an event.
    pub(super) fn counts_again(
        &self,
        key: &SetKey,
        fleet: &Fleet,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let set = self.index.set(key)?;
        set.advanced.as_ref()?;
        if set.min_ready == Duration::ZERO {
            return None;
        }
        let online = fleet
            .nodes
            .iter()
            .filter(|node| node.readiness != Readiness::Gone);
        let ready = online
            .flat_map(|node| &node.pods)
            .filter_map(|pod| pod.ready_since);
        let ripe = ready.map(|since| crate::core::instant::later(since, set.min_ready));
        ripe.filter(|at| *at > now).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: at a start on a real cluster, Events about created pods used up the budget, and eight evictions had no
    /// Event.
    #[test]
    fn creation_events_do_not_use_the_budget_of_failed_pod_events() {
        let now = Timestamp::from_second(1000).unwrap();
        let mut events = PodEventsByReason::default();
        let mut sent = |reason| (0..100).filter(|_| events.take(reason, now)).count();
        let reasons = ["SuccessfulCreate", "FailedDaemonPod", "SuccessfulCreate"];
        assert_eq!(reasons.map(&mut sent), [25, 25, 0]);
    }

    #[test]
    fn pod_events_are_limited_to_a_burst_and_refill_one_by_one() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut events = PodEvents::new(POD_EVENTS);
        let sent =
            |events: &mut PodEvents, second| (0..100).filter(|_| events.take(at(second))).count();
        assert_eq!(sent(&mut events, 1000), 25);
        assert_eq!(sent(&mut events, 1299), 0);
        assert_eq!(sent(&mut events, 1300), 1);
        assert_eq!(sent(&mut events, 1300 + 3 * 300), 3);
        assert_eq!(sent(&mut events, 1_000_000), 25);
        let AllPodEvents(mut all) = AllPodEvents::default();
        assert_eq!(
            [1000, 1000, 1001, 1011].map(|second| sent(&mut all, second)),
            [60, 0, 1, 10]
        );
    }
}
