//! The main loop. One task owns the index, applies watch events and answers to writes, decides, and starts writes.
//!
//! ```text
//! watches ──Input──► EventHandler ──► Index ──dirty──► pass: fleet → decide → report ──► writes (tasks) ──TaskResult──► Index
//!                                             ▲ after a short pause, so that a burst of events is one pass
//! ```
//!
//! A pass decides about each DaemonSet that changed or is due. It skips a DaemonSet with unanswered writes until all of them are
//! answered. The loop reads the time only from `Clock`.

mod advanced;
mod answers;
mod writes;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use self::advanced::{AdvancedTask, AllPodEvents, CreatedPods, PodEventsByReason};
use super::advanced::RevisionsRead;
use super::apply::{WriteError, Writer};
use super::caches::{AdvancedAbsence, Input};
use super::contest::Contest;
use super::event_handler::{Enqueue, EventHandler, StaleWatch};
use super::events::{Events, Severity, Subject};
use super::gathering::WakeupBatching;
use super::lease::Leadership;
use super::live_reads::{LookupResult, Lookups};
use super::metrics::Metrics;
use super::notify::{self, Notifier};
use super::permissions::DeniedPermissions;
use super::prepull::{PullRequest, PullResultWrite, Puller};
use super::report::{Report, RolloutEvent, RolloutFacts};
use super::surge::{SurgeRequest, SurgeResult};
use super::trace::Tracer;
use super::write_backoff::WriteBackoff;
use crate::clock::Clock;
use crate::core::instant::earlier;
use crate::core::messages::kept_words;
use crate::core::{
    Action, Fleet, Invalid, Note, ParsedSettings, Plan, Pull, Revision, RevisionState,
    RevisionUnknown, StaleData, Strategy, SurgeRelease, WriteFailures, decide_in_view, release,
    upkeep,
};
use crate::index::{Index, RequeueDelay, SetKey, SetRecord, Unmanaged};
use crate::k8s::{Condition, Unreadable};
use crate::serve::ReadinessHandle;
use crate::shutdown::Shutdown;

/// Shortest delay between a change and the pass that handles it. All events about one replaced pod arrive within this delay.
const SHORT_DELAY: Duration = Duration::from_millis(5);

/// Delay after a change that doesn't allow another update, such as a created or deleted pod.
const LONG_DELAY: Duration = Duration::from_millis(200);

/// Length of the pause after a pass, as a multiple of the duration of the pass.
///
/// The pause limits the CPU time of decisions to two percent of a core, unless a pass takes longer than 10 ms ([`LONGEST_REST`]).
/// Changes during the pause are handled together. Only changes of DaemonSets and revisions don't wait for its end.
const REST: u32 = 50;

/// Maximum pause after a pass. It is short compared with the time that replacing a pod takes.
const LONGEST_REST: Duration = Duration::from_millis(500);

/// Time for which the native controller may lag behind a change of the DaemonSet before the status reports the lag.
const LASTING: SignedDuration = SignedDuration::from_secs(5);

/// Interval between passes over all DaemonSets, in case a change didn't enqueue its DaemonSet. Such a pass reads only the cache.
const FULL_PASS: Duration = Duration::from_secs(300);

/// Interval between checks for stale watches.
const FRESHNESS: Duration = Duration::from_secs(5);

/// Maximum sleep of the event loop while a decision is planned. After a jump of the wall clock, planned decisions are late by at
/// most this time.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// Dependencies of the loop.
pub(super) struct EngineParts {
    pub(super) feed: EventHandler,
    pub(super) inputs: mpsc::Receiver<Input>,
    pub(super) leadership: watch::Receiver<Leadership>,
    pub(super) writer: Writer,
    pub(super) puller: Puller,
    pub(super) pull_writes: mpsc::UnboundedReceiver<PullResultWrite>,
    pub(super) lookups: Lookups,
    pub(super) lacking: DeniedPermissions,
    pub(super) events: Events,
    /// Sender of notifications; `None`: there are no notifications.
    pub(super) notifier: Option<Notifier>,
    /// Recorder of traces; `None`: there are no traces.
    pub(super) tracer: Option<Tracer>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) readiness: ReadinessHandle,
    pub(super) gathering: WakeupBatching,
    pub(super) clock: Clock,
    /// Namespace of the Lease. Events about the controller itself refer to the Lease.
    pub(super) lease_namespace: String,
}

/// Loop that owns all state of the controller.
pub(super) struct Engine {
    parts: EngineParts,
    /// Cached objects, overlaid with writes that the watches don't show yet.
    index: Index,
    state: EngineState,
}

/// State of the loop in addition to the index.
#[derive(Default)]
struct EngineState {
    dirty: BTreeSet<SetKey>,
    sets: BTreeMap<SetKey, SetState>,
    done: JoinSet<TaskResult>,
    next_pass: Option<Instant>,
    rested: Option<Instant>,
    leading: bool,
    /// Resources with a stale watch.
    stale: BTreeSet<&'static str>,
    /// DaemonSets that look managed but are not, as last reported in Events.
    unmanaged: BTreeMap<SetKey, Unmanaged>,
    /// Budget for Normal Events about single pods, for all Advanced DaemonSets together.
    pod_events: AllPodEvents,
}

/// State of the loop for one DaemonSet.
#[derive(Default)]
struct SetState {
    /// Number of unanswered writes and lookups.
    under_way: usize,
    /// Time of the next decision about the DaemonSet if no event comes first.
    wake: Option<Timestamp>,
    /// Backoff of writes to pods (`pods`) and to the status of the DaemonSet (`reports`) while the API server has problems.
    pods: WriteBackoff,
    reports: WriteBackoff,
    /// Corrections of a status that another client overwrites.
    contest: Contest,
    /// Time since which the native controller has lagged behind a change of the DaemonSet.
    behind_since: Option<Timestamp>,
    /// Conditions of the DaemonSet, and the Events that were published while it had them.
    ///
    /// An Event is not published again while the cache still shows these conditions. Expectations (pending writes) don't help here:
    /// they end when the cache shows a write, and no watch shows Events.
    announced: (Vec<Condition>, Vec<RolloutEvent>),
    /// ID of the last step that was sent to the receivers of notifications and traces.
    last_step: Option<String>,
    /// Revision whose pods are recreated although an update in place was requested, as reported in an Event.
    recreated: Option<Revision>,
    /// Published notes on the settings of the DaemonSet.
    noted: Vec<String>,
    /// True if a Warning was published that surge pods remain although the DaemonSet is no longer managed.
    kept: bool,
    /// Backoff after the API server rejected pods (`creations`) or revisions (`revisions`) of an Advanced DaemonSet.
    creations: WriteBackoff,
    revisions: WriteBackoff,
    /// Revision for which the API server accepted all pods of the last request. The next request for the revision starts with a
    /// larger batch.
    created: Option<Revision>,
    /// Last reported failure that keeps pods of an Advanced DaemonSet from being created.
    not_created: Option<NotCreated>,
    /// Budgets for Events about single pods.
    pod_events: PodEventsByReason,
}

/// Failure that keeps pods of an Advanced DaemonSet from being created, with the API server's message.
#[derive(Clone, Debug, PartialEq, Eq)]
enum NotCreated {
    /// A pod could not be created.
    Pod(String),
    /// An existing pod could not be adopted.
    Adoption(String),
    /// The ControllerRevision of the template could not be written.
    Revision(String),
}

/// Result of a task of the loop, which the loop applies to its state.
enum TaskResult {
    Acted {
        key: SetKey,
        action: Action,
        /// State of the pod before the write; `None`: the pod was gone.
        written: Option<answers::WrittenPod>,
        result: Result<(), WriteError>,
        /// Result of making the DaemonSet the owner of the surge pod, after the old pod was deleted; `None`: not tried.
        handed: Option<Result<(), WriteError>>,
    },
    Surged(
        SetKey,
        Vec<SurgeRequest>,
        Result<Vec<SurgeResult>, WriteError>,
    ),
    /// Status write, with the resulting resource version.
    ///
    /// The last field is set if another client overwrites the status. It contains the field manager of that client, or `None` if
    /// the field manager is unknown.
    Reported(
        SetKey,
        Result<Option<u64>, WriteError>,
        Option<Option<String>>,
    ),
    Created(SetKey, CreatedPods),
    /// Result of comparing the revisions with the current template, or of writing a new revision for the template.
    Revised(SetKey, Result<RevisionsRead, WriteError>),
    AdvancedTask(SetKey, AdvancedTask),
    Looked(SetKey, LookupResult),
    /// Event that was sent or dropped. There is no result to record.
    Published,
    /// The task panicked, so its result is unknown.
    Failed(SetKey),
}

impl Engine {
    pub(super) fn new(parts: EngineParts) -> Self {
        Self {
            parts,
            index: Index::default(),
            state: EngineState::default(),
        }
    }

    /// Runs until shutdown is requested, then waits for pending writes.
    pub(super) async fn run(mut self, mut shutdown: Shutdown) {
        self.note_leadership();
        let mut full_pass = tokio::time::interval(FULL_PASS);
        full_pass.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut freshness = tokio::time::interval(FRESHNESS);
        freshness.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut inputs = Vec::new();
        loop {
            let wake = self.next_wake();
            tokio::select! {
                biased;
                () = shutdown.requested() => break,
                changed = self.parts.leadership.changed() => {
                    if changed.is_err() {
                        break;
                    }
                    self.note_leadership();
                }
                Some(done) = self.state.done.join_next() => self.take_done(done),
                Some(write) = self.parts.pull_writes.recv() => self.note_pull_write(&write),
                // The pass has priority over inputs, so that a flood of inputs cannot delay it. Inputs that arrive during the pass
                // are handled by the next pass.
                () = tokio::time::sleep_until(wake) => self.pass(),
                _ = full_pass.tick() => self.all_dirty(),
                _ = freshness.tick() => self.note_freshness(),
                received = self.parts.inputs.recv_many(&mut inputs, 128) => {
                    if received == 0 {
                        break;
                    }
                    inputs.drain(..).for_each(|input| self.take(input));
                }
            }
        }
        self.finish().await;
    }

    /// Waits for pending writes. Starts no new ones.
    async fn finish(mut self) {
        self.parts.writer.close();
        while self.state.done.join_next().await.is_some() {}
        self.parts.puller.finish().await;
    }

    fn take(&mut self, input: Input) {
        let now = self.parts.clock.now();
        let fed = self.parts.feed.take(&mut self.index, input, now);
        self.parts.gathering.settle(self.parts.feed.is_settled());
        self.take_fed(fed);
    }

    fn take_fed(&mut self, fed: Enqueue) {
        for resource in fed.complete {
            self.parts.readiness.done(resource);
            debug!(resource, "Listed");
            self.all_dirty();
        }
        for key in fed.gone {
            self.state.sets.remove(&key);
            self.state.dirty.remove(&key);
            self.parts.lookups.forget(&key);
            self.parts.puller.forget(&key);
            self.parts.metrics.forget(&key);
            if let Some(tracer) = &mut self.parts.tracer {
                tracer.forget(&key);
            }
        }
        for (key, delay) in fed.requeued {
            self.requeue(key, delay);
        }
        if let Some(why @ AdvancedAbsence::OfKruise) = fed.absence {
            self.publish_absence(why);
        }
        if fed.unmanaged {
            self.look_soon();
        }
        if fed.recount {
            let counts = self.parts.feed.count_unreadable();
            self.parts.metrics.unreadable(&counts);
        }
        if let Some((resource, unreadable)) = fed.unreadable {
            self.report_unreadable(resource, &unreadable);
        }
    }

    /// Logs an unreadable object. If this replica leads, also publishes an Event about it.
    fn report_unreadable(&self, resource: &'static str, unreadable: &Unreadable) {
        let meta = &unreadable.metadata;
        let name = meta.name.as_deref().unwrap_or_default();
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        warn!(resource, namespace, name, error = %unreadable, "Skipped an unreadable object");
        if name.is_empty() || !self.parts.writer.may_write() {
            return;
        }
        let about = Subject::of_resource(resource, meta);
        let note = format!(
            "yurt-ds cannot read this object and does not change it: {unreadable}. Correct or delete it."
        );
        self.parts
            .events
            .publish(&about, Severity::Warning, "Unreadable", &note);
    }

    /// If this replica leads, publishes that Advanced DaemonSets are not rolled out.
    fn publish_absence(&mut self, why: AdvancedAbsence) {
        if !self.parts.writer.may_write() {
            return;
        }
        let about = Subject::lease(&self.parts.lease_namespace);
        let events = &self.parts.events;
        events.publish(&about, Severity::Warning, "KruiseRuns", why.message());
    }

    /// Schedules a pass even if no managed DaemonSet changed.
    fn look_soon(&mut self) {
        let planned = self.state.next_pass.into_iter();
        self.state.next_pass = planned.chain([Instant::now() + LONG_DELAY]).min();
    }

    fn requeue(&mut self, key: SetKey, delay: RequeueDelay) {
        let now = Instant::now();
        let rested = |at: Instant| self.state.rested.map_or(at, |rested| rested.max(at));
        let earliest = match delay {
            RequeueDelay::Never => return,
            RequeueDelay::Long => rested(now + LONG_DELAY),
            RequeueDelay::Short => rested(now + SHORT_DELAY),
            RequeueDelay::Zero => now,
        };
        if self.index.set(&key).is_none() {
            return;
        }
        self.state.dirty.insert(key);
        self.parts.metrics.queue_depth(self.state.dirty.len());
        let planned = self.state.next_pass.into_iter().chain([earliest]);
        self.state.next_pass = planned.min();
    }

    fn all_dirty(&mut self) {
        let keys: Vec<SetKey> = self.index.keys().cloned().collect();
        keys.into_iter()
            .for_each(|key| self.requeue(key, RequeueDelay::Short));
    }

    /// Handles a change of leadership.
    ///
    /// A new leader lists all pods again, because its cache may not show the last deletions of the previous leader yet. A former
    /// leader stops exporting metrics of DaemonSets.
    fn note_leadership(&mut self) {
        let leading = self.parts.leadership.borrow_and_update().may_write();
        if leading && !std::mem::replace(&mut self.state.leading, leading) {
            self.parts.feed.look_again(&mut self.index);
            self.index.forget_reported();
            self.all_dirty();
            self.look_soon();
        }
        if !leading {
            self.parts.metrics.forget_all();
            if let Some(tracer) = &mut self.parts.tracer {
                tracer.forget_all();
            }
        }
        self.state.leading = leading;
    }

    fn next_wake(&self) -> Instant {
        let now = self.parts.clock.now();
        let until = |at: Timestamp| {
            Duration::try_from(at.duration_since(now))
                .unwrap_or_default()
                .min(LONGEST_SLEEP)
        };
        let sets = self.state.sets.values().filter_map(|set| set.wake);
        let due = sets
            .min()
            .map(|at| Instant::now() + until(at).max(Duration::from_millis(1)));
        let next = self.state.next_pass.into_iter().chain(due).min();
        next.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600))
    }

    /// Makes a decision about every DaemonSet that changed or whose wake-up time has come.
    fn pass(&mut self) {
        let now = self.parts.clock.now();
        self.state.next_pass = None;
        if !self.parts.feed.is_complete() {
            return;
        }
        let awake = self
            .state
            .sets
            .iter()
            .filter(|(_, set)| set.wake.is_some_and(|at| at <= now));
        let awake: Vec<SetKey> = awake.map(|(key, _)| key.clone()).collect();
        self.state.dirty.extend(awake);
        let began = Instant::now();
        for key in std::mem::take(&mut self.state.dirty) {
            self.reconcile(&key, now);
        }
        self.publish_unmanaged();
        self.parts.metrics.queue_depth(self.state.dirty.len());
        let rest = (began.elapsed() * REST).min(LONGEST_REST);
        self.state.rested = Some(Instant::now() + rest);
    }

    /// Publishes one Event about each DaemonSet that looks managed but is not, for example because a setting is missing.
    ///
    /// The Event has the same name on all replicas, so the API server rejects duplicates. Nothing else records that the Event was
    /// sent, because the controller writes nothing to such a DaemonSet.
    fn publish_unmanaged(&mut self) {
        let unmanaged = self.index.unmanaged();
        if !self.parts.writer.may_write() || unmanaged.eq(&self.state.unmanaged) {
            return;
        }
        let unmanaged = self.index.unmanaged();
        let unmanaged = unmanaged.map(|(key, stray)| (key.clone(), stray.clone()));
        let known = std::mem::replace(&mut self.state.unmanaged, unmanaged.collect());
        let (unmanaged, events) = (&self.state.unmanaged, &self.parts.events);
        for (key, stray) in unmanaged
            .iter()
            .filter(|(key, stray)| known.get(key) != Some(stray))
        {
            let about = Subject::daemonset(&key.namespace, &key.name, &stray.uid);
            let mark = stray.mark();
            let event = events.publish_with_mark(
                &about,
                Severity::Warning,
                stray.reason,
                &stray.text,
                &mark,
            );
            self.state.done.spawn(async move {
                event.await;
                TaskResult::Published
            });
        }
    }

    fn reconcile(&mut self, key: &SetKey, now: Timestamp) {
        let state = self.state.sets.entry(key.clone()).or_default();
        state.wake = None;
        if state.under_way > 0 {
            return; // the last answer requeues the DaemonSet
        }
        let Some(set) = self.index.set_mut(key) else {
            self.state.sets.remove(key);
            return;
        };
        if !set.synced {
            return; // the DaemonSet is requeued when its pods are listed
        }
        let (min_ready, due) = (set.min_ready, set.pending_due());
        let Some(reading) = self.index.reading(key).map(Cow::into_owned) else {
            return;
        };
        if due.is_some_and(|due| due <= now) {
            self.parts.feed.look_again_at(&mut self.index, key);
            return;
        }
        if let Some(stale) = self.parts.feed.stale(key) {
            self.hold(key, &reading, stale, now);
            return;
        }
        let done = match reading {
            ParsedSettings::Strategy { strategy, notes } => {
                self.roll_out(key, &strategy, notes, now)
            }
            ParsedSettings::Invalid(invalid, strategy) => {
                self.keep_invalid(key, &invalid, &strategy, now)
            }
            ParsedSettings::NotOurs => self.release_daemonset(key, min_ready, now),
        };
        if done.is_some() {
            self.wake_at(key, due);
        }
    }

    /// Decides on a DaemonSet with valid settings, and starts the writes. Returns `None` if it is not ready for a decision.
    fn roll_out(
        &mut self,
        key: &SetKey,
        strategy: &Strategy,
        notes: Vec<Note>,
        now: Timestamp,
    ) -> Option<()> {
        let began = Instant::now();
        let (fleet, plan) = self.decided(key, strategy, now)?;
        self.parts.metrics.reconciled(began.elapsed());
        if self.state.leading
            && let Some(set) = self.index.set(key)
        {
            let phase = plan.reported_phase(set.state.was_complete(&fleet.revision));
            let metrics = &self.parts.metrics;
            metrics.record_plan(key.clone(), &plan, phase);
        }
        let on_revision = strategy.notes_on(&fleet.revision);
        let notes = notes.into_iter().chain(on_revision);
        let notes: Vec<Note> = notes.chain(plan.notes_on_nodes(&fleet)).collect();
        self.publish_notes(key, &notes);
        self.carry_out(key, &fleet, plan, now);
        Some(())
    }

    /// Reports invalid settings. Replaces no pods, but removes surge pods and creates the pods of an Advanced DaemonSet.
    fn keep_invalid(
        &mut self,
        key: &SetKey,
        invalid: &Invalid,
        strategy: &Strategy,
        now: Timestamp,
    ) -> Option<()> {
        let fleet = self.index.fleet(key, now)?;
        if self.state.leading {
            self.parts.metrics.record_invalid(key.clone());
        }
        let left_ota = invalid.is_native_update();
        if left_ota {
            self.set_desired_pulls(key, Vec::new());
        }
        let set = self.index.set(key);
        let report = set.map(|set| Report::of_invalid(set, invalid));
        let released = upkeep(strategy, invalid, &fleet, now);
        let (released, _) = without_refused(&fleet, released, now);
        self.publish_surge_kept(key, &released);
        let managed = self.managed(key, &fleet, now).map(|(managed, _)| managed);
        let actions = self.reconcile_pods(key, &fleet, released.actions, managed, now);
        self.write(key, actions, report, now);
        self.wake_at(key, released.wake);
        Some(())
    }

    /// Removes the surge pods, conditions and labels that yurt-ds wrote, because the DaemonSet is no longer managed.
    fn release_daemonset(
        &mut self,
        key: &SetKey,
        min_ready: Duration,
        now: Timestamp,
    ) -> Option<()> {
        let fleet = self.index.fleet(key, now)?;
        self.parts.metrics.forget(key);
        if let Some(tracer) = &mut self.parts.tracer {
            tracer.forget(key);
        }
        let released = release(&fleet, min_ready, now);
        let is_released = released.actions.is_empty();
        let (released, refused) = without_refused(&fleet, released, now);
        self.set_desired_pulls(key, Vec::new());
        self.publish_surge_kept(key, &released);
        let set = self.index.set(key);
        let is_over =
            is_released && !released.waits && !set.is_some_and(SetRecord::has_uncertain_writes);
        let report = match set.filter(|_| !refused.has_no_failures()) {
            Some(set) => Some(Report::of_release(set, &refused)),
            None => is_over.then(Report::of_nothing), // after all other writes, because removing the conditions ends management
        };
        self.write(key, released.actions, report, now);
        self.wake_at(key, released.wake);
        Some(())
    }

    /// Stops writes to the pods of a DaemonSet because the cached data is stale. The status reports this if the rollout has work
    /// left.
    fn hold(&mut self, key: &SetKey, reading: &ParsedSettings, stale: StaleWatch, now: Timestamp) {
        let ParsedSettings::Strategy { strategy, .. } = reading else {
            return;
        };
        let Some((fleet, plan)) = self.decided(key, strategy, now) else {
            return;
        };
        let stale = StaleData {
            resource: stale.resource,
            heard: earlier(now, stale.age),
        };
        let plan = plan.withheld(stale, fleet.record.as_ref());
        let Some(set) = self.index.set(key) else {
            return;
        };
        if self.state.leading {
            self.parts
                .metrics
                .record_plan(key.clone(), &plan, plan.phase);
        }
        let mut report = Report::of_plan(set, &fleet, &plan, false, now);
        if self.sends_facts() {
            report.add_facts(&set.state.reported, &fleet, &plan);
        }
        self.write(key, Vec::new(), Some(report), now);
    }

    /// Records which watches became stale or recovered.
    fn note_freshness(&mut self) {
        let stale: BTreeMap<&'static str, Duration> = self.parts.feed.stale_resources().collect();
        let readiness = |resource: &str| format!("watch of {resource}");
        for (resource, age) in &stale {
            if !self.state.stale.contains(resource) {
                let seconds = age.as_secs();
                warn!(
                    resource,
                    seconds, "A watch receives no data; pods are not changed until it recovers"
                );
                self.parts.readiness.wait_for(&readiness(resource));
            }
        }
        for resource in &self.state.stale {
            if !stale.contains_key(resource) {
                info!(resource, "A watch recovered");
                self.parts.readiness.done(&readiness(resource));
            }
        }
        let stale: BTreeSet<&'static str> = stale.into_keys().collect();
        if stale != self.state.stale {
            self.state.stale = stale;
            self.all_dirty();
        }
    }

    /// Returns the plan of a DaemonSet, with the part of the fleet on which it is based.
    fn decided(
        &mut self,
        key: &SetKey,
        strategy: &Strategy,
        now: Timestamp,
    ) -> Option<(Arc<Fleet>, Plan)> {
        loop {
            let fleet = self.index.view(key, strategy, now)?;
            let (plan, view) = decide_in_view(strategy, &fleet, now);
            if !self.index.widen(key, view, now) {
                return Some((fleet, plan));
            }
        }
    }

    /// Schedules the next decision about this DaemonSet for the time `at` or earlier.
    fn wake_at(&mut self, key: &SetKey, at: Option<Timestamp>) {
        if let Some(state) = self.state.sets.get_mut(key) {
            state.wake = state.wake.into_iter().chain(at).min();
        }
    }

    /// Publishes a Warning, once, about surge pods of a DaemonSet that is no longer managed. They remain next to the old pods. The
    /// Warning says what to do about them.
    fn publish_surge_kept(&mut self, key: &SetKey, released: &SurgeRelease) {
        let state = self.state.sets.entry(key.clone()).or_default();
        let was_published = std::mem::replace(&mut state.kept, !released.kept.is_empty());
        if was_published || released.kept.is_empty() || !self.parts.writer.may_write() {
            return;
        }
        let notice = RolloutEvent {
            warning: true,
            reason: "SurgeKept",
            note: kept_words(released),
            ..RolloutEvent::default()
        };
        self.publish(key, &notice);
    }

    /// Passes the desired image pulls of a DaemonSet to the puller.
    fn set_desired_pulls(&self, key: &SetKey, pulls: Vec<Pull>) {
        if let Some(set) = self.index.set(key) {
            let request = |pull| PullRequest {
                key: key.clone(),
                set_uid: set.uid.clone(),
                generation: set.generation,
                timeout: set.pull_timeout(),
                pull,
            };
            let pulls = pulls.into_iter().map(request).collect();
            self.parts.puller.set_desired(key, pulls);
        }
    }

    fn carry_out(&mut self, key: &SetKey, fleet: &Fleet, mut plan: Plan, now: Timestamp) {
        let behind = plan.phase.is_behind();
        if !behind {
            // While the current revision is unknown, the plan contains no pulls, and the previous pulls continue.
            self.set_desired_pulls(key, std::mem::take(&mut plan.pulls));
        }
        let state = self.state.sets.entry(key.clone()).or_default();
        let since = *state.behind_since.get_or_insert(now);
        if !behind {
            state.behind_since = None;
        }
        let lasting_at = since
            .checked_add(LASTING)
            .ok()
            .filter(|at| behind && *at > now);
        let lasting = behind && lasting_at.is_none();
        state.wake = plan.next_wake.into_iter().chain(lasting_at).min();
        self.publish_recreation(key, fleet, &plan);
        let is_made_here = |reason| key.is_advanced() && reason != RevisionUnknown::UnknownRevision;
        match fleet.revision {
            RevisionState::Unknown(reason) if !is_made_here(reason) => {
                self.look_up(key, reason, since, now);
            }
            _ => {}
        }
        let managed = self.managed(key, fleet, now).map(|(managed, refused)| {
            plan.refused.join(refused);
            managed
        });
        let may_write = self.parts.writer.may_write();
        if may_write {
            if let (Some(tracer), Some(set)) = (&mut self.parts.tracer, self.index.set(key)) {
                tracer.end_pods(set, fleet, &plan, now);
            }
            if !key.is_advanced() {
                self.ask_why_missing(key, fleet, &plan, now);
            }
            self.ask_why_not_ready(key, fleet, &plan, now);
        }
        let sends_facts = self.sends_facts();
        let set = self.index.set_mut(key);
        let report = set.map(|set| {
            let mut report = Report::of_plan(set, fleet, &plan, lasting, now);
            if sends_facts {
                report.add_facts(&set.state.reported, fleet, &plan);
            }
            if may_write {
                set.set_last_record(plan.record.take());
            }
            report
        });
        let actions = self.reconcile_pods(key, fleet, plan.actions, managed, now);
        let counts_again = self.counts_again(key, fleet, now);
        self.wake_at(key, counts_again);
        self.write(key, actions, report, now);
    }

    /// Returns true if something outside the cluster gets the facts of reports.
    fn sends_facts(&self) -> bool {
        self.parts.notifier.is_some() || self.parts.tracer.is_some()
    }

    /// Publishes, once per revision, that pods are recreated although an update in place was requested.
    fn publish_recreation(&mut self, key: &SetKey, fleet: &Fleet, plan: &Plan) {
        let (RevisionState::Current(revision), Some(why)) = (&fleet.revision, plan.recreates)
        else {
            return;
        };
        let state = self.state.sets.entry(key.clone()).or_default();
        if state.recreated.as_ref() == Some(revision) || !self.parts.writer.may_write() {
            return;
        }
        state.recreated = Some(revision.clone());
        let notice = RolloutEvent {
            warning: false,
            reason: "NotInPlace",
            note: format!(
                "revision {revision}: pods are recreated, not updated in place: {}",
                why.words()
            ),
            ..RolloutEvent::default()
        };
        self.publish(key, &notice);
    }

    /// Publishes notes on valid settings, each of them once.
    fn publish_notes(&mut self, key: &SetKey, notes: &[Note]) {
        let texts: Vec<String> = notes.iter().map(|note| note.text.clone()).collect();
        let state = self.state.sets.entry(key.clone()).or_default();
        if state.noted == texts || !self.parts.writer.may_write() {
            return;
        }
        let known = std::mem::replace(&mut state.noted, texts);
        for note in notes.iter().filter(|note| !known.contains(&note.text)) {
            let notice = RolloutEvent {
                warning: note.warning,
                reason: "Settings",
                note: note.text.clone(),
                ..RolloutEvent::default()
            };
            self.publish(key, &notice);
        }
    }

    /// Sends a step of a rollout to the receivers of notifications and traces, unless the last report made the same step. Its
    /// status may not have been written.
    fn send_step(&mut self, key: &SetKey, facts: &RolloutFacts, now: Timestamp) {
        let Some(set) = self.index.set(key) else {
            return;
        };
        let id = notify::step_id(set, facts);
        let state = self.state.sets.entry(key.clone()).or_default();
        if state.last_step.as_ref() == Some(&id) {
            return;
        }
        if let Some(notifier) = &self.parts.notifier {
            notifier.notify(set, id.clone(), facts);
        }
        if let Some(tracer) = &mut self.parts.tracer {
            tracer.record(set, facts, now);
        }
        state.last_step = Some(id);
    }

    /// Publishes the Events of a report. An Event is not repeated until the conditions of the DaemonSet change in the cache.
    fn record(&mut self, key: &SetKey, notices: &[RolloutEvent]) {
        let Some(set) = self.index.set(key) else {
            return;
        };
        let present = set.conditions.clone();
        let state = self.state.sets.entry(key.clone()).or_default();
        if state.announced.0 != present {
            state.announced = (present, Vec::new());
        }
        let is_new =
            |notice: &&RolloutEvent| !state.announced.1.iter().any(|last| notice.repeats(last));
        let fresh: Vec<RolloutEvent> = notices.iter().filter(is_new).cloned().collect();
        for notice in fresh {
            let Some((about, severity)) = self.event(key, &notice) else {
                return;
            };
            let events = &self.parts.events;
            if events.record(&about, severity, notice.reason, &notice.note) {
                let state = self.state.sets.entry(key.clone()).or_default();
                state.announced.1.push(notice);
            }
        }
    }

    fn publish(&self, key: &SetKey, notice: &RolloutEvent) {
        if let Some((about, severity)) = self.event(key, notice) {
            self.parts
                .events
                .publish(&about, severity, notice.reason, &notice.note);
        }
    }

    fn event(&self, key: &SetKey, notice: &RolloutEvent) -> Option<(Subject, Severity)> {
        let set = self.index.set(key)?;
        let about = Subject::of_set(key, &set.uid);
        let severity = if notice.warning {
            Severity::Warning
        } else {
            Severity::Normal
        };
        Some((about, severity))
    }
}

/// Splits the writes to pods of a DaemonSet that is no longer managed. Returns the writes to send now, and the writes that the API
/// server rejected, which are retried later.
fn without_refused(
    fleet: &Fleet,
    released: SurgeRelease,
    now: Timestamp,
) -> (SurgeRelease, WriteFailures) {
    let write_failures = &fleet.write_failures;
    let (actions, again, refused) =
        write_failures.without_held(&fleet.nodes, released.actions, now);
    let released = SurgeRelease {
        actions,
        wake: released.wake.into_iter().chain(again).min(),
        ..released
    };
    (released, refused)
}
