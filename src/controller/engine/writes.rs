//! Writes of the main loop: starts a task for each request, and passes the result back to the loop.

use std::collections::BTreeMap;

use futures::FutureExt as _;
use k8s_openapi::jiff::Timestamp;
use tracing::{info, warn};

use super::answers::WrittenPod;
use super::{Engine, TaskResult};
use crate::controller::metrics::SkipReason;
use crate::controller::owner::DaemonSetOwner;
use crate::controller::report::{Report, RolloutEvent};
use crate::controller::surge::SurgeRequest;
use crate::core::engine::not_ready::UnexplainedPods;
use crate::core::{Action, Fleet, Plan, Progress, RevisionUnknown, Targeting, Verdict};
use crate::index::SetKey;

/// Runs `task`, and converts a panic to [`TaskResult::Failed`]. Otherwise the loop would wait for the task forever.
async fn caught(key: SetKey, task: impl Future<Output = TaskResult>) -> TaskResult {
    let ended = std::panic::AssertUnwindSafe(task).catch_unwind().await;
    ended.unwrap_or(TaskResult::Failed(key))
}

impl Engine {
    /// Starts writes, unless this replica doesn't lead or writes are in a backoff.
    pub(super) fn write(
        &mut self,
        key: &SetKey,
        actions: Vec<Action>,
        report: Option<Report>,
        now: Timestamp,
    ) {
        if !self.parts.writer.may_write() {
            self.parts
                .metrics
                .withheld(SkipReason::NotLeader, actions.len());
            return;
        }
        if let Some(report) = report {
            self.report(key, report, now);
        }
        let Some(set) = self.index.set_mut(key) else {
            return;
        };
        let actions = set.without_pending(actions).into_iter();
        let actions: Vec<Action> = actions
            .map(|action| {
                if set.is_contended(&action.pod().uid) {
                    action.by_uid()
                } else {
                    action
                }
            })
            .collect();
        let state = self.state.sets.entry(key.clone()).or_default();
        if let Some(until) = state.pods.holds(now) {
            if !actions.is_empty() {
                state.wake = state.wake.into_iter().chain([until]).min();
            }
            return;
        }
        let mut wanted = Vec::new();
        for action in actions {
            match action {
                Action::Surge {
                    node,
                    beside,
                    revision,
                } => wanted.push(SurgeRequest {
                    node,
                    beside,
                    revision,
                }),
                action => self.start(key, action, now),
            }
        }
        self.surge(key, wanted, now);
    }

    /// Starts a task that sends requests. Its end is reported to the loop even if it panics.
    pub(super) fn spawn(
        &mut self,
        key: SetKey,
        task: impl Future<Output = TaskResult> + Send + 'static,
    ) {
        self.state.done.spawn(caught(key, task));
    }

    /// Creates surge pods next to old pods.
    fn surge(&mut self, key: &SetKey, wanted: Vec<SurgeRequest>, now: Timestamp) {
        let index = &mut self.index;
        let (Some(owner), Some(first)) =
            (index.set(key).map(DaemonSetOwner::from_set), wanted.first())
        else {
            return;
        };
        let Some(name) = index
            .revision_name(&owner.uid, &first.revision)
            .map(str::to_owned)
        else {
            return; // the watch dropped the revision and is about to report another one
        };
        if let Some(tracer) = &mut self.parts.tracer {
            for request in &wanted {
                tracer.begin_pod(key, &request.node, &request.beside, now);
            }
        }
        if let Some(set) = index.set_mut(key) {
            let actions = wanted.iter().map(SurgeRequest::action);
            actions.for_each(|action| set.begin_write(&action, now));
        }
        self.state.sets.entry(key.clone()).or_default().under_way += 1;
        let (writer, key) = (self.parts.writer.clone(), key.clone());
        self.spawn(key.clone(), async move {
            let made = writer.surge(&key, &owner, &name, &wanted).await;
            TaskResult::Surged(key, wanted, made)
        });
    }

    fn start(&mut self, key: &SetKey, action: Action, now: Timestamp) {
        let Some(set) = self.index.set_mut(key) else {
            return;
        };
        let whom = DaemonSetOwner::from_set(set);
        let written = set.pod(&action.pod().uid);
        if let (Some(tracer), Some((node, _))) = (&mut self.parts.tracer, &written)
            && action.replaces()
        {
            tracer.begin_pod(key, node, action.pod(), now);
        }
        let written = written.map(|(node, pod)| WrittenPod::new(node, pod));
        set.begin_write(&action, now);
        self.state.sets.entry(key.clone()).or_default().under_way += 1;
        let (writer, key) = (self.parts.writer.clone(), key.clone());
        self.spawn(key.clone(), async move {
            let result = writer.act(&key, &whom, &action, now).await;
            let handed = match (&action, &result) {
                // Transfer the surge pod at once. Until the DaemonSet owns it, the native controller would create another pod on
                // the node.
                (Action::DeleteAfterSurge { successor, .. }, Ok(())) => {
                    Some(writer.transfer_ownership(&key, &whom, successor).await)
                }
                _ => None,
            };
            TaskResult::Acted {
                key,
                action,
                written,
                result,
                handed,
            }
        });
    }

    pub(super) fn report(&mut self, key: &SetKey, report: Report, now: Timestamp) {
        let Some(set) = self.index.set_mut(key) else {
            return;
        };
        let conditions = report.difference(&set.conditions, now);
        let uid = set.uid.clone();
        if conditions.is_empty() {
            set.set_last_pause(report.state.pause.as_ref().map(|pause| pause.record));
        }
        let is_sent = set.is_sent(&report.conditions);
        let is_pending = is_sent && set.is_report_unseen(now);
        let differs = !conditions.is_empty() && !is_pending;
        let whole = self.report_advanced(key, &report, differs, now);
        if !differs && whole.is_none() {
            return;
        }
        let set = self.index.set(key);
        let sent_numbers = set.and_then(|set| set.advanced.as_ref()?.sent_numbers());
        let is_repeat = is_sent
            && whole
                .as_ref()
                .is_none_or(|(_, numbers)| sent_numbers == Some(numbers));
        let is_news = differs && !is_sent;
        let state = self.state.sets.entry(key.clone()).or_default();
        let held = state.reports.holds(now);
        let held = held.or_else(|| state.contest.holds(now).filter(|_| is_repeat));
        if let Some(until) = held {
            state.wake = state.wake.into_iter().chain([until]).min();
            return;
        }
        let is_contested = is_repeat && state.contest.note(now);
        let mut first = Vec::new();
        for notice in report.notices.iter().filter(|_| is_news) {
            if notice.warning {
                warn!(daemonset = %key, note = notice.note, "{}", notice.reason)
            } else {
                info!(daemonset = %key, note = notice.note, "{}", notice.reason)
            }
            if let Some(mark) = &notice.mark {
                let event = self.event(key, notice);
                first.extend(event.map(|(about, severity)| {
                    let events = &self.parts.events;
                    events.publish_with_mark(&about, severity, notice.reason, &notice.note, mark)
                }));
            }
        }
        let unmarked = report.notices.iter().filter(|notice| notice.mark.is_none());
        let unmarked: Vec<RolloutEvent> = unmarked.cloned().collect();
        if is_news {
            self.record(key, &unmarked);
            if let Some(facts) = &report.facts {
                self.send_step(key, facts, now);
            }
        }
        if let Some(set) = self.index.set_mut(key) {
            // From now on, decisions use the pause record of this report, even before the watch shows the written status.
            set.set_last_pause(report.state.pause.as_ref().map(|pause| pause.record));
            set.begin_report(report.conditions, now);
            if let (Some(advanced), Some((_, numbers))) = (&mut set.advanced, &whole) {
                advanced.begin_numbers(numbers.clone(), now);
            }
        }
        self.state.sets.entry(key.clone()).or_default().under_way += 1;
        let (writer, key) = (self.parts.writer.clone(), key.clone());
        self.spawn(key.clone(), async move {
            // Send the Events that have a `mark` before the status. The status records them as sent. If the process dies in
            // between, the next leader sends the same Events again.
            futures::future::join_all(first).await;
            // Look for the other client before the status is written. After the write, this controller is the manager of the
            // fields, and the other client's name is lost.
            let rival = if is_contested {
                Some(writer.other_status_writer(&key).await)
            } else {
                None
            };
            let result = match whole {
                Some((whole, numbers)) => writer.apply_status(&key, &uid, &whole, &numbers).await,
                None => writer.patch_set(&key, &uid, conditions).await,
            };
            TaskResult::Reported(key, result, rival)
        });
    }

    /// Reads the native controller's Events if pods have been missing for a while. An Event says why a pod could not be created.
    pub(super) fn ask_why_missing(
        &mut self,
        key: &SetKey,
        fleet: &Fleet,
        plan: &Plan,
        now: Timestamp,
    ) {
        let missing = plan.verdicts.iter().zip(&fleet.nodes);
        let since = missing.filter_map(|(verdict, node)| match *verdict {
            Verdict::InProgress(Progress::Missing { since })
                if node.targeting == Targeting::Run =>
            {
                since
            }
            _ => None,
        });
        let lookups = &mut self.parts.lookups;
        // The first pods of a new DaemonSet take a while, so Events are read only if the rollout replaces an earlier revision.
        let Some(since) = since.min().filter(|_| fleet.replaces) else {
            if lookups.none_missing(key)
                && let Some(set) = self.index.set_mut(key)
            {
                set.set_not_created(None);
            }
            return;
        };
        let Some(set) = self.index.set(key) else {
            return;
        };
        let (wake, lookup) = lookups.why_missing(key, &set.uid, since, now);
        let state = self.state.sets.entry(key.clone()).or_default();
        state.wake = state.wake.into_iter().chain([wake]).min();
        if let Some(lookup) = lookup {
            state.under_way += 1;
            let key = key.clone();
            self.spawn(
                key.clone(),
                async move { TaskResult::Looked(key, lookup.await) },
            );
        }
    }

    /// Reads the Events and conditions of pods that don't become available. Each pod is read shortly before the report names it.
    pub(super) fn ask_why_not_ready(
        &mut self,
        key: &SetKey,
        fleet: &Fleet,
        plan: &Plan,
        now: Timestamp,
    ) {
        let UnexplainedPods { pods, next } = plan.not_ready(fleet, now);
        let lookups = &mut self.parts.lookups;
        if pods.is_empty() {
            if lookups.none_unready(key)
                && let Some(set) = self.index.set_mut(key)
            {
                set.set_not_ready(BTreeMap::new());
            }
            return self.wake_at(key, next);
        }
        let (wake, lookup) = lookups.why_not_ready(key, pods, now);
        self.wake_at(key, Some(wake));
        self.wake_at(key, next);
        if let (Some(lookup), Some(state)) = (lookup, self.state.sets.get_mut(key)) {
            state.under_way += 1;
            let key = key.clone();
            self.spawn(
                key.clone(),
                async move { TaskResult::Looked(key, lookup.await) },
            );
        }
    }

    /// Reads objects from the API server if the watches don't show which revision is the current one, or which revision a pod has.
    pub(super) fn look_up(
        &mut self,
        key: &SetKey,
        reason: RevisionUnknown,
        since: Timestamp,
        now: Timestamp,
    ) {
        let unknown = if reason == RevisionUnknown::UnknownRevision {
            self.index.unknown_hashes(key)
        } else {
            Vec::new()
        };
        let Some(set) = self.index.set(key) else {
            return;
        };
        let (wake, lookup) = self
            .parts
            .lookups
            .wanted(key, set, reason, unknown, since, now);
        let state = self.state.sets.entry(key.clone()).or_default();
        state.wake = state.wake.into_iter().chain([wake]).min();
        if let Some(lookup) = lookup {
            state.under_way += 1;
            let key = key.clone();
            self.spawn(
                key.clone(),
                async move { TaskResult::Looked(key, lookup.await) },
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panicked_task_returns_the_key_of_its_daemonset() {
        let key = SetKey::new("shop", "agent");
        match caught(key.clone(), async { panic!("a mistake") }).await {
            TaskResult::Failed(failed) => assert_eq!(failed, key),
            _ => panic!("it did not fail"),
        }
        let reported = caught(key.clone(), async {
            TaskResult::Reported(key, Ok(None), None)
        });
        assert!(matches!(
            reported.await,
            TaskResult::Reported(_, Ok(None), None)
        ));
    }
}
