//! What the loop makes of the API server's answers.

use k8s_openapi::jiff::Timestamp;
use tracing::{debug, info, warn};

use super::{Done, Engine};
use crate::client::Failure;
use crate::controller::apply::Refusal;
use crate::controller::permissions;
use crate::controller::report::Notice;
use crate::controller::surge::{Made, Wanted};
use crate::core::{PodRef, PodUid};
use crate::index::{Doubt, Overlay, SetKey, Stir, Write};

impl Engine {
    pub(super) fn take_done(&mut self, done: Result<Done, tokio::task::JoinError>) {
        let Ok(done) = done else { return };
        let now = self.parts.clock.now();
        let key = match done {
            Done::Replaced(key, pod, write, result) => {
                self.note_replaced(&key, &pod, write, &result, now);
                self.note_answer(&key, &result, now);
                key
            }
            Done::Retired(key, pod, write, successor, handed) => {
                self.note_replaced(&key, &pod, write, &Ok(()), now);
                if handed.is_err() {
                    self.forget_sent(&key, &successor);
                }
                self.note_answer(&key, &handed, now);
                key
            }
            Done::Patched(key, uid, result) => {
                if result.is_err() {
                    self.forget_sent(&key, &uid);
                    if let Some(set) = self.parts.feed.index.set_mut(&key) {
                        set.lift_request(&uid);
                    }
                }
                self.note_answer(&key, &result, now);
                key
            }
            Done::Surged(key, wanted, made) => {
                self.note_surged(&key, &wanted, made, now);
                key
            }
            Done::Reported(key, result) => {
                self.note_reported(&key, &result, now);
                key
            }
            Done::Told => return,
            Done::Looked(key, looked) => {
                let fed = self.parts.lookups.take(&mut self.parts.feed, &key, looked);
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
                self.mark(key, Stir::Soon);
            }
        }
    }

    /// Takes in the pods that were made: they count from now on, whenever the watch tells of them. One that exists already,
    /// or may, is asked for again when it should long have shown.
    fn note_surged(
        &mut self,
        key: &SetKey,
        wanted: &[Wanted],
        made: Result<Vec<Made>, Refusal>,
        now: Timestamp,
    ) {
        let answers = match made {
            Ok(answers) => answers,
            Err(refusal) => vec![Err(refusal)],
        };
        for (wanted, answer) in wanted.iter().zip(answers) {
            let result = match answer {
                Ok(pod) => {
                    info!(daemonset = %key, node = %wanted.node, revision = %wanted.revision, "Made a pod beside an old one");
                    if let (Some(pod), Some(set)) = (pod, self.parts.feed.index.set_mut(key)) {
                        set.apply_pod(&pod, now);
                    }
                    Ok(())
                }
                Err(refusal) => Err(refusal),
            };
            if let Some(state) = self.state.sets.get_mut(key) {
                state.surges.note(&result, now);
            }
            if result.as_ref().is_err_and(Refusal::is_certain) {
                self.forget_sent(key, &wanted.beside.uid);
            }
            self.note_refusal(key, &result);
        }
    }

    /// What was sent for this pod may be sent again.
    fn forget_sent(&mut self, key: &SetKey, uid: &PodUid) {
        if let Some(state) = self.state.sets.get_mut(key) {
            state.patched.retain(|(pod, _), _| pod != uid);
        }
    }

    fn note_replaced(
        &mut self,
        key: &SetKey,
        pod: &PodRef,
        write: Write,
        result: &Result<(), Refusal>,
        now: Timestamp,
    ) {
        let Some(set) = self.parts.feed.index.set_mut(key) else {
            return;
        };
        set.end_replacement(&pod.uid, result.is_ok(), now);
        let answer = result.as_ref().map_err(Refusal::of_budget);
        if let (Write::Eviction, Ok(()) | Err(Some(_))) = (&write, &answer) {
            set.note_eviction(&pod.uid, answer.err().flatten(), now);
        }
        let node = set.place_of(&pod.uid).map(ToString::to_string);
        let node = node.unwrap_or_default();
        let doubt = match result {
            Ok(()) => {
                match &write {
                    Write::Deletion => {
                        info!(daemonset = %key, %node, pod = %pod.name, "Deleted an outdated pod");
                    }
                    Write::Eviction => {
                        info!(daemonset = %key, %node, pod = %pod.name, "Evicted an outdated pod");
                    }
                    Write::Preparing => {
                        info!(daemonset = %key, %node, pod = %pod.name, "Marked an outdated pod PreparingDelete");
                    }
                    Write::Renewal { to, from: Some(_) } => {
                        info!(daemonset = %key, %node, pod = %pod.name, revision = %to, "Took a pod back in place");
                    }
                    Write::Renewal { to: revision, .. } => {
                        info!(daemonset = %key, %node, pod = %pod.name, %revision, "Updated a pod in place");
                    }
                }
                return;
            }
            Err(refusal) => match refusal.failure() {
                Some(Failure::Gone) => return, // the watch is about to say so
                Some(Failure::Conflict) => Doubt::Conflict(pod.resource_version.clone()),
                Some(Failure::Unreachable) => Doubt::Unanswered,
                Some(
                    Failure::Forbidden | Failure::Refused | Failure::Blocked | Failure::Throttled,
                )
                | None => {
                    set.lift(&pod.uid);
                    return;
                }
            },
        };
        let overlay = Overlay {
            at: now,
            write,
            doubt,
        };
        set.lay_over(pod.uid.clone(), overlay);
    }

    /// Slows down while the API server refuses writes to pods.
    fn note_answer(&mut self, key: &SetKey, result: &Result<(), Refusal>, now: Timestamp) {
        if let Some(state) = self.state.sets.get_mut(key) {
            state.pods.note(result, now);
        }
        self.note_refusal(key, result);
    }

    /// The same for reports, which do not hold up pods.
    fn note_reported(&mut self, key: &SetKey, result: &Result<(), Refusal>, now: Timestamp) {
        if let Some(state) = self.state.sets.get_mut(key) {
            state.reports.note(result, now);
            if result.is_err() {
                state.reported = None;
            }
        }
        self.note_refusal(key, result);
    }

    /// Says once what a person has to mend.
    fn note_refusal(&mut self, key: &SetKey, result: &Result<(), Refusal>) {
        let Err(Refusal::Failed {
            verb,
            resource,
            error,
        }) = result
        else {
            return;
        };
        match error.failure() {
            Failure::Gone | Failure::Conflict => {
                debug!(daemonset = %key, %error, "The view was old");
            }
            // The status says it, once.
            Failure::Blocked => debug!(daemonset = %key, %error, "A disruption budget refuses"),
            Failure::Forbidden => {
                let granted_by = permissions::granted_by(verb, resource);
                let note = format!(
                    "the API server refuses to {verb} {resource} (HTTP 403): grant it to the controller's role \
                     ({granted_by}), or look for a quota or an admission webhook that denies it"
                );
                warn!(daemonset = %key, verb, resource, %error, "Not permitted");
                let notice = Notice {
                    warning: true,
                    reason: permissions::PERMISSION_MISSING,
                    note,
                    mark: None,
                };
                self.publish(key, &notice);
            }
            Failure::Refused | Failure::Throttled | Failure::Unreachable => {
                warn!(daemonset = %key, verb, resource, %error, "A write failed and is tried again");
            }
        }
    }
}
