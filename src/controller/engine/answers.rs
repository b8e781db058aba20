//! Handling of the API server's responses to writes. It runs in the main loop.

use k8s_openapi::jiff::Timestamp;
use tracing::{debug, error, info, warn};

use super::{Engine, TaskResult};
use crate::controller::apply::WriteError;
use crate::controller::prepull::PullResultWrite;
use crate::controller::refused::{ErrorClass, class, is_by_webhook, message};
use crate::controller::report::RolloutEvent;
use crate::controller::report::refused::WRITE_REFUSED;
use crate::controller::surge::{SurgeRequest, SurgeResult};
use crate::controller::write_backoff::WriteBackoff;
use crate::controller::{advanced, apply, contest, permissions};
use crate::core::{Action, NodeName, Pod, PodRef, PodRevision, PodUid, WriteFailures, WriteVerb};
use crate::index::{PodWrite, RequeueDelay, SetKey, SetRecord, WriteAnswer};
use crate::k8s;
use crate::k8s::client::Failure;

/// Pod or node to which a write refers, in logs and Events.
#[derive(Clone, Copy)]
enum WrittenTo<'a> {
    Pod(&'a PodRef),
    /// Node on which a surge pod is created, and the name of the old pod there.
    Node(&'a NodeName, &'a str),
}

impl<'a> WrittenTo<'a> {
    fn name(self) -> &'a str {
        match self {
            Self::Pod(pod) => pod.name.as_str(),
            Self::Node(_, beside) => beside,
        }
    }

    fn uid(self) -> Option<&'a PodUid> {
        match self {
            Self::Pod(pod) => Some(&pod.uid),
            Self::Node(..) => None,
        }
    }
}

/// Converts the error of a write to the response that expectations (pending writes) record.
pub(super) fn answer(refusal: &WriteError) -> WriteAnswer {
    match refusal.failure() {
        Some(Failure::Gone) => WriteAnswer::Gone,
        Some(Failure::Conflict) => WriteAnswer::Conflict,
        Some(Failure::Unreachable) if !is_by_webhook(refusal) => WriteAnswer::Unanswered,
        Some(
            Failure::Forbidden
            | Failure::Refused
            | Failure::Blocked
            | Failure::Throttled
            | Failure::Unreachable,
        )
        | None => WriteAnswer::Refused,
    }
}

/// State of a pod when a write to it began. It is stored for the log, because the pod may be gone when the response arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WrittenPod {
    node: NodeName,
    /// State of the pod in words, for the log.
    was: &'static str,
}

impl WrittenPod {
    pub(super) fn new(node: &NodeName, pod: &Pod) -> Self {
        let was = match pod.revision {
            _ if pod.in_place.is_over => "a failed or completed pod",
            PodRevision::Current => "a superfluous pod",
            PodRevision::Outdated | PodRevision::Unknown => "an outdated pod",
        };
        Self {
            node: node.clone(),
            was,
        }
    }
}

/// Logs a write that stops a pod.
fn log(key: &SetKey, WrittenPod { node, was }: &WrittenPod, pod: &PodRef, write: &PodWrite) {
    match write {
        PodWrite::Deletion => {
            info!(daemonset = %key, %node, pod = %pod.name, "Deleted {was}");
        }
        PodWrite::Eviction => {
            info!(daemonset = %key, %node, pod = %pod.name, "Evicted {was}");
        }
        PodWrite::PreDeleteHook => {
            info!(daemonset = %key, %node, pod = %pod.name, "Marked {was} PreparingDelete");
        }
        PodWrite::InPlacePatch { to, from: Some(_) } => {
            info!(daemonset = %key, %node, pod = %pod.name, revision = %to, "Rolled a pod back in place");
        }
        PodWrite::InPlacePatch { to: revision, .. } => {
            info!(daemonset = %key, %node, pod = %pod.name, %revision, "Updated a pod in place");
        }
        PodWrite::ImageRequest(_) | PodWrite::Other(_) => {}
    }
}

impl Engine {
    pub(super) fn take_done(&mut self, done: Result<TaskResult, tokio::task::JoinError>) {
        let Ok(done) = done else { return }; // the task was aborted at shutdown
        let now = self.parts.clock.now();
        let key = match done {
            TaskResult::Acted {
                key,
                action,
                written,
                result,
                handed,
            } => {
                // After another error, the write may have taken effect, or it is repeated.
                let is_rejected = result
                    .as_ref()
                    .is_err_and(|error| class(error).is_rejection());
                if let Some(tracer) = self.parts.tracer.as_mut().filter(|_| is_rejected)
                    && !matches!(action, Action::DeleteAfterSurge { .. })
                {
                    tracer.forget_pod(&key, action.pod());
                }
                self.note_acted(&key, (&action, written.as_ref()), &result, now);
                if let Action::DeleteAfterSurge { successor, .. } = action {
                    self.note_handed_over(&key, successor, handed, now);
                }
                key
            }
            TaskResult::Surged(key, wanted, made) => {
                self.note_surged(&key, &wanted, made, now);
                key
            }
            TaskResult::Created(key, created) => {
                self.note_created(&key, created, now);
                // Creations are not counted in `under_way`, so only requeue the DaemonSet.
                return self.requeue(key, RequeueDelay::Short);
            }
            TaskResult::Revised(key, read) => {
                self.note_revised(&key, read, now);
                key
            }
            TaskResult::AdvancedTask(key, tended) => {
                self.note_tended(&key, tended, now);
                key
            }
            TaskResult::Reported(key, result, rival) => {
                if let Some(rival) = rival {
                    self.publish_contested(&key, rival.as_deref());
                }
                self.note_reported(&key, result, now);
                key
            }
            TaskResult::Published => return,
            TaskResult::Failed(key) => {
                error!(daemonset = %key, "A task failed; its DaemonSet is reconciled again");
                self.parts.metrics.task_failed();
                // The results of the task are lost. The next list of the pods shows which writes succeeded.
                if let Some(set) = self.index.set_mut(&key) {
                    set.lose_answers(now);
                }
                if let Some(state) = self.state.sets.get_mut(&key) {
                    state.pods.slow_down(now);
                    state.reports.slow_down(now);
                }
                key
            }
            TaskResult::Looked(key, looked) => {
                let feed = &mut self.parts.feed;
                let fed = (self.parts.lookups).take(feed, &mut self.index, &key, looked);
                if let Some(notice) = fed.1 {
                    self.publish(&key, &notice);
                }
                self.take_fed(fed.0);
                key
            }
        };
        if let Some(state) = self.state.sets.get_mut(&key) {
            state.under_way = state.under_way.saturating_sub(1);
            if state.under_way == 0 {
                self.requeue(key, RequeueDelay::Short);
            }
        }
    }

    /// Records created surge pods. From now on, the index contains them, even before the watch reports them.
    ///
    /// If the result of a creation is unknown, and the watch doesn't report the pod in time, the creation is requested again.
    fn note_surged(
        &mut self,
        key: &SetKey,
        wanted: &[SurgeRequest],
        made: Result<Vec<SurgeResult>, WriteError>,
        now: Timestamp,
    ) {
        let answers = match made {
            Ok(answers) => answers,
            Err(refusal) => {
                // The revision could not be read, so none of the pods was created.
                for wanted in wanted {
                    self.note_made(key, wanted, Err(&refusal), now);
                }
                return;
            }
        };
        for (wanted, answer) in wanted.iter().zip(answers) {
            let result = match answer {
                Ok(pod) => {
                    info!(daemonset = %key, node = %wanted.node, revision = %wanted.revision, "Created a surge pod");
                    let set = self.index.set(key);
                    let is_known = |pod: &k8s::Pod| {
                        set.is_some_and(|set| set.place_of(&pod.uid().into()).is_some())
                    };
                    // If the watch has already reported the pod, ignore the pod in the response: the version from the watch is
                    // newer.
                    if let Some(pod) = pod.filter(|pod| !is_known(pod)) {
                        self.index.apply_pod(key, &pod, now);
                    }
                    Ok(())
                }
                Err(refusal) => Err(refusal),
            };
            self.note_made(key, wanted, result.as_ref().copied(), now);
        }
    }

    fn note_made(
        &mut self,
        key: &SetKey,
        wanted: &SurgeRequest,
        result: Result<(), &WriteError>,
        now: Timestamp,
    ) {
        if let (Some(tracer), Err(_)) = (&mut self.parts.tracer, &result) {
            tracer.forget_pod(key, &wanted.beside);
        }
        // The writer has already resolved a name conflict: it checked that the existing pod is the surge pod.
        self.end_write(key, &wanted.action(), result, now);
        let beside = wanted.beside.name.as_str();
        let about = WrittenTo::Node(&wanted.node, beside);
        self.remember(key, about, WriteVerb::Create, result, now);
    }

    fn note_acted(
        &mut self,
        key: &SetKey,
        (action, written): (&Action, Option<&WrittenPod>),
        result: &Result<(), WriteError>,
        now: Timestamp,
    ) {
        let pod = action.pod();
        self.end_write(key, action, result.as_ref().copied(), now);
        self.note_answer(key, pod, WriteVerb::from_action(action), result, now);
        let Some(set) = self.index.set_mut(key) else {
            return;
        };
        let write = PodWrite::from_action(action);
        let answer = result.as_ref().map_err(WriteError::of_budget);
        if let (PodWrite::Eviction, Ok(()) | Err(Some(_))) = (&write, &answer) {
            set.note_eviction(&pod.uid, answer.err().flatten(), now);
        }
        if let (Ok(()), Some(written)) = (result, written) {
            log(key, written, pod, &write);
        }
        if key.is_advanced() {
            self.publish_of_write(key, &pod.name, &write, result.is_ok(), now);
        }
    }

    /// Records the result of making the DaemonSet the owner of a surge pod; `None`: the transfer of ownership was not tried.
    fn note_handed_over(
        &mut self,
        key: &SetKey,
        successor: PodRef,
        handed: Option<Result<(), WriteError>>,
        now: Timestamp,
    ) {
        let action = Action::TransferOwnership(successor);
        match handed {
            Some(handed) => self.note_acted(key, (&action, None), &handed, now),
            None => {
                if let Some(set) = self.index.set_mut(key) {
                    set.end_write(&action, WriteAnswer::Refused, now);
                }
            }
        }
    }

    /// Records the response to a pending write. Some responses, such as a timeout, leave open whether the write took effect.
    fn end_write(
        &mut self,
        key: &SetKey,
        action: &Action,
        result: Result<(), &WriteError>,
        now: Timestamp,
    ) {
        if let Some(set) = self.index.set_mut(key) {
            let answer = result.map_or_else(answer, |()| WriteAnswer::Accepted);
            set.end_write(action, answer, now);
        }
    }

    /// Records the result of a write to an existing pod.
    fn note_answer(
        &mut self,
        key: &SetKey,
        pod: &PodRef,
        what: WriteVerb,
        result: &Result<(), WriteError>,
        now: Timestamp,
    ) {
        let result = result.as_ref().copied();
        self.remember(key, WrittenTo::Pod(pod), what, result, now);
    }

    /// Records the result of writing the outcome of an image pull to its pod.
    pub(super) fn note_pull_write(&mut self, write: &PullResultWrite) {
        let (now, result) = (self.parts.clock.now(), write.result.as_ref().copied());
        let about = WrittenTo::Pod(&write.pod);
        self.remember(&write.key, about, WriteVerb::Tell, result, now);
        self.requeue(write.key.clone(), RequeueDelay::Short);
    }

    /// Records the result of a write for its pod or node. After a failure, the next writes go to other pods and nodes.
    ///
    /// While the API server itself has problems, all writes to pods of the DaemonSet slow down.
    fn remember(
        &mut self,
        key: &SetKey,
        about: WrittenTo<'_>,
        what: WriteVerb,
        result: Result<(), &WriteError>,
        now: Timestamp,
    ) {
        let failed = result
            .err()
            .map(|error| (class(error), message(error, about.name())));
        let class = failed.as_ref().map(|(class, _)| *class);
        let leadership = self.parts.leadership.borrow().clone();
        let mut lasting = false;
        if let Some(state) = self.state.sets.get_mut(key) {
            match class {
                None => state.pods = WriteBackoff::default(),
                Some(ErrorClass::Busy) => lasting = state.pods.is_lasting(&leadership, now),
                Some(_) => {}
            }
        }
        let mut is_refused = false;
        let is_unfit = class == Some(ErrorClass::Invalid) && what == WriteVerb::UpdateInPlace;
        if let Some(set) = self.index.set_mut(key) {
            let note = |write_failures: &mut WriteFailures, node: &NodeName| {
                is_refused = write_failures.is_refused(node, what);
                let place = (node, about.uid());
                let Some((class, message)) = &failed else {
                    return write_failures.accept(node, what);
                };
                match class {
                    ErrorClass::Invalid if is_unfit => {
                        write_failures.note_unfit(about.uid().cloned())
                    }
                    ErrorClass::Rejected | ErrorClass::NotPermitted | ErrorClass::Invalid => {
                        write_failures.refuse(place, what, message, now);
                    }
                    ErrorClass::Conflict => write_failures.conflict(place, what, message, now),
                    ErrorClass::Internal => write_failures.count_failure(place, what, message, now),
                    // If an earlier write to the pod failed, or the API server keeps failing, this pod gets a backoff. Otherwise
                    // the pod keeps its slot (its place among the pods being updated) and is tried again at once.
                    ErrorClass::Busy if lasting || is_refused => {
                        write_failures.count_failure(place, what, message, now);
                    }
                    ErrorClass::Busy | ErrorClass::Ignored => {}
                }
            };
            match about {
                WrittenTo::Pod(pod) => set.note_write(&pod.uid, note),
                WrittenTo::Node(node, _) => set.note_write_on(node, note),
            }
        }
        // A pod whose write failed before has its own backoff, so its next failure must not delay writes to other pods.
        if let (Some(ErrorClass::Busy | ErrorClass::Internal), false, Some(state)) =
            (class, is_refused, self.state.sets.get_mut(key))
        {
            state.pods.slow_down(now);
        }
        match (failed, result) {
            (Some((_, message)), _) if is_unfit => self.publish_unfit(key, about, &message),
            (_, Err(error)) => self.note_refusal(key, error, Some(what)),
            (_, Ok(())) => {}
        }
    }

    /// Publishes that pods are recreated because the API server rejects updating them in place.
    fn publish_unfit(&self, key: &SetKey, about: WrittenTo<'_>, sentence: &str) {
        let notice = RolloutEvent {
            warning: true,
            reason: "NotInPlace",
            note: format!(
                "pods are recreated, not updated in place: the API server rejects the change: {sentence}"
            ),
            ..RolloutEvent::default()
        };
        info!(daemonset = %key, pod = about.name(), "{}", notice.note);
        self.publish(key, &notice);
    }

    /// Records the answer to a status write. A failed status write doesn't block writes to pods.
    fn note_reported(
        &mut self,
        key: &SetKey,
        result: Result<Option<u64>, WriteError>,
        now: Timestamp,
    ) {
        let set = self.index.set_mut(key);
        let result = result.map(|version| set.map(|set| set.answer_report(version)));
        let result = result.map(drop);
        if let Some(state) = self.state.sets.get_mut(key) {
            state.reports.note(&result, now);
        }
        if let Err(refusal) = &result {
            if let Some(set) = self.index.set_mut(key) {
                set.lose_report();
            }
            self.note_refusal(key, refusal, None);
            self.publish_unreported(key, refusal);
        }
    }

    /// Publishes once that another client keeps overwriting the status. `rival` is the field manager of the client, if known.
    fn publish_contested(&self, key: &SetKey, rival: Option<&str>) {
        let rival = rival.map_or_else(
            || "An unknown client".to_owned(),
            |rival| format!("Field manager {rival:?}"),
        );
        let note = format!(
            "{rival} keeps overwriting the status that yurt-ds writes, which delays status updates by up to {} minutes. Find \
             and stop the other client: kubectl -n {} get {} {} --show-managed-fields -o yaml",
            contest::PAUSES.1.as_secs() / 60,
            key.namespace,
            if key.is_advanced() { "ads" } else { "ds" },
            key.name,
        );
        warn!(daemonset = %key, note, "Another client overwrites the status");
        let notice = RolloutEvent {
            warning: true,
            reason: "StatusOverwritten",
            note,
            ..RolloutEvent::default()
        };
        self.publish(key, &notice);
    }

    /// Publishes an Event that the conditions are outdated. The conditions can't report this, because they can't be written.
    fn publish_unreported(&self, key: &SetKey, error: &WriteError) {
        if !matches!(class(error), ErrorClass::Rejected | ErrorClass::Invalid) {
            return; // a missing permission is reported in an Event of its own
        }
        // Don't replace the DaemonSet's name by a placeholder, unlike the name of a pod: a short name may also be part of other
        // words.
        let message = message(error, "");
        // Server-side apply rejects fields that the CustomResourceDefinition lacks.
        let definition = if message.contains("field not declared in schema") {
            "; the CustomResourceDefinition in the cluster is not the one of yurt-ds. Install it: kubectl apply -k \
             manifests/components/advanced"
        } else {
            ""
        };
        let notice = RolloutEvent {
            warning: true,
            reason: WRITE_REFUSED,
            note: format!(
                "the API server rejects the status of the DaemonSet: {message}{definition}{}",
                self.unreported(key)
            ),
            ..RolloutEvent::default()
        };
        self.publish(key, &notice);
    }

    /// Returns a sentence about the consequences of a status that cannot be written.
    fn unreported(&self, key: &SetKey) -> String {
        let set = self.index.set(key);
        let forgets = if set.is_some_and(SetRecord::is_stopped_unseen) {
            ". A restart of the controller would forget that the guard stopped this revision; pause the DaemonSet (paused: \
             \"true\") to prevent that. on-failure: RevertInPlace does not start"
        } else {
            ""
        };
        format!(
            ". The conditions stay outdated until a write succeeds. Current state: yurt-ds ctl status{forgets}"
        )
    }

    /// Reports a rejected write once. `write` is the step of a rollout that needed the write, if any.
    pub(super) fn note_refusal(
        &mut self,
        key: &SetKey,
        refusal: &WriteError,
        write: Option<WriteVerb>,
    ) {
        let WriteError::Failed {
            verb,
            resource,
            error,
        } = refusal
        else {
            return;
        };
        let lacks_permission = class(refusal) == ErrorClass::NotPermitted;
        match error.failure() {
            Failure::Gone | Failure::Conflict => {
                debug!(daemonset = %key, %error, "The cached object was outdated");
            }
            // The status already reports the PodDisruptionBudget, so a blocked eviction is not logged as a warning at each attempt.
            Failure::Blocked => {
                debug!(daemonset = %key, %error, "A disruption budget blocks the eviction")
            }
            Failure::Forbidden if lacks_permission => {
                let granted_by = permissions::granted_by(verb, resource, key.kind, write);
                self.parts.lacking.report_write(verb, resource, granted_by);
                let follows = match *resource {
                    apply::STATUS | advanced::STATUS => self.unreported(key),
                    _ => String::new(),
                };
                let note = format!(
                    "the service account may not {verb} {resource} (HTTP 403). Grant it: kubectl apply -k {granted_by}{follows}"
                );
                warn!(daemonset = %key, verb, resource, %error, "Not permitted");
                let notice = RolloutEvent {
                    warning: true,
                    reason: permissions::PERMISSION_MISSING,
                    note,
                    ..RolloutEvent::default()
                };
                if let Some((about, severity)) = self.event(key, &notice) {
                    let topic = format!("{verb} {resource} {granted_by}");
                    let events = &self.parts.events;
                    events.publish_on(&about, severity, notice.reason, &topic, &notice.note);
                }
            }
            Failure::Forbidden | Failure::Refused | Failure::Throttled | Failure::Unreachable => {
                warn!(daemonset = %key, verb, resource, %error, "A write failed; retrying");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::testing::{current, old};

    /// Regression test: on a real cluster, the log called evicted pods outdated although they had the current revision.
    #[test]
    fn the_log_names_the_kind_of_a_deleted_pod() {
        let was = |pod: &Pod| WrittenPod::new(&"n1".into(), pod).was;
        assert_eq!(was(&old(1)), "an outdated pod");
        assert_eq!(was(&current(2)), "a superfluous pod");
        for mut ended in [old(1), current(2)] {
            ended.in_place.is_over = true;
            assert_eq!(was(&ended), "a failed or completed pod");
        }
    }
}
