//! What the loop asks the API server for.

use std::collections::BTreeMap;

use futures::FutureExt as _;
use k8s_openapi::jiff::Timestamp;
use tracing::{info, warn};

use super::{Done, Engine, UNSEEN, patched};
use crate::controller::metrics::Withheld;
use crate::controller::owner::Owner;
use crate::controller::report::{Notice, Report};
use crate::controller::surge::Wanted;
use crate::core::engine::not_ready::Asked;
use crate::core::{Action, Behind, Fleet, Plan, Progress, RefusedWrite, Targeting, Verdict};
use crate::index::{Doubt, Overlay, SetKey, Write};

/// What becomes of `task`, a panic included: what is asked for after it must not wait for it for ever.
async fn caught(key: SetKey, task: impl Future<Output = Done>) -> Done {
    let ended = std::panic::AssertUnwindSafe(task).catch_unwind().await;
    ended.unwrap_or(Done::Failed(key))
}

impl Engine {
    /// Starts the writes, unless this replica does not lead or the API server refused a moment ago.
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
                .withheld(Withheld::NotLeader, actions.len());
            return;
        }
        if let Some(report) = report {
            self.report(key, report, now);
        }
        let state = self.state.sets.entry(key.clone()).or_default();
        if let Some(until) = state.pods.holds(now) {
            if !actions.is_empty() {
                state.wake = state.wake.into_iter().chain([until]).min();
            }
            return;
        }
        let mut wanted = Vec::new();
        for action in state.without_repetition(actions, now) {
            match action {
                Action::Surge {
                    ref node,
                    ref beside,
                    ref revision,
                } => {
                    wanted.push(Wanted {
                        node: node.clone(),
                        beside: beside.clone(),
                        revision: revision.clone(),
                    });
                    let state = self.state.sets.entry(key.clone()).or_default();
                    state.patched.insert(patched(&action), (action, now));
                }
                action => self.start(key, action, now),
            }
        }
        self.surge(key, wanted);
        let state = self.state.sets.entry(key.clone()).or_default();
        let sent = state.patched.values().map(|(_, at)| *at).min();
        let unseen = sent.and_then(|at| at.checked_add(UNSEEN).ok());
        state.wake = state.wake.into_iter().chain(unseen).min();
    }

    /// Starts what asks the API server for something; its end is told even if it fails.
    fn spawn(&mut self, key: SetKey, task: impl Future<Output = Done> + Send + 'static) {
        self.state.done.spawn(caught(key, task));
    }

    /// Makes pods beside others.
    fn surge(&mut self, key: &SetKey, wanted: Vec<Wanted>) {
        let Some(set) = self.parts.feed.index.set(key).map(Owner::of) else {
            return;
        };
        let Some(first) = wanted.first() else {
            return;
        };
        let index = &self.parts.feed.index;
        let uid = index
            .set(key)
            .map(|set| set.uid.clone())
            .unwrap_or_default();
        let Some(name) = index
            .revision_name(&uid, &first.revision)
            .map(str::to_owned)
        else {
            return; // the watch has just forgotten it, and is about to tell of another one
        };
        self.state.sets.entry(key.clone()).or_default().under_way += 1;
        let (writer, key) = (self.parts.writer.clone(), key.clone());
        self.spawn(key.clone(), async move {
            let made = writer.surge(&key, &set, &name, &wanted).await;
            Done::Surged(key, wanted, made)
        });
    }

    fn start(&mut self, key: &SetKey, action: Action, now: Timestamp) {
        let Some(whom) = self.parts.feed.index.set(key).map(Owner::of) else {
            return;
        };
        let write = match &action {
            Action::Evict(_) | Action::Retire { evict: true, .. } => Some(Write::Eviction),
            Action::Delete(_) | Action::Retire { .. } => Some(Write::Deletion),
            Action::Mark {
                preparing: Some(true),
                ..
            } => Some(Write::Preparing),
            Action::UpdateInPlace { renewal, .. } => Some(Write::Renewal {
                to: renewal.revision.clone(),
                from: renewal.reverts.clone(),
            }),
            _ => None,
        };
        if let Some(write) = write.clone()
            && let Some(set) = self.parts.feed.index.set_mut(key)
        {
            if write.replaces() {
                set.begin_replacement(&action.pod().uid);
            }
            set.lay_over(
                action.pod().uid.clone(),
                Overlay {
                    at: now,
                    write,
                    doubt: Doubt::Accepted,
                },
            );
        }
        if let Some(set) = self.parts.feed.index.set_mut(key) {
            match &action {
                Action::AskForImages { pod, revision, .. } => {
                    set.lay_request(pod.uid.clone(), revision.clone(), now);
                }
                Action::RemoveConditions { pod, .. } => set.lift_request(&pod.uid),
                _ => {}
            }
        }
        let state = self.state.sets.entry(key.clone()).or_default();
        state.under_way += 1;
        if write.is_none() {
            state
                .patched
                .insert(patched(&action), (action.clone(), now));
        }
        if let Action::Retire { successor, .. } = &action {
            let follows = Action::HandOver(successor.clone());
            state.patched.insert(patched(&follows), (follows, now));
        }
        let (writer, key) = (self.parts.writer.clone(), key.clone());
        self.spawn(key.clone(), async move {
            let result = writer.act(&key, &whom, &action, now).await;
            if let (Action::Retire { pod, successor, .. }, Ok(()), Some(write)) =
                (&action, &result, &write)
            {
                // At once, before the old pod is gone.
                let handed = writer.hand_over(&key, &whom, successor).await;
                return Done::Retired(key, pod.clone(), write.clone(), successor.clone(), handed);
            }
            match write {
                Some(write) => Done::Replaced(key, action.pod().clone(), write, result),
                None => {
                    let what = RefusedWrite::of(&action);
                    Done::Patched(key, action.pod().clone(), what, result)
                }
            }
        });
    }

    pub(super) fn report(&mut self, key: &SetKey, report: Report, now: Timestamp) {
        let Some(set) = self.parts.feed.index.set(key) else {
            return;
        };
        let conditions = report.difference(&set.conditions, now);
        let uid = set.uid.clone();
        let state = self.state.sets.entry(key.clone()).or_default();
        if conditions.is_empty() {
            state.reported = None;
            self.remember_pause(key, &report);
            return;
        }
        let waiting = |(sent, at): &(Report, Timestamp)| {
            sent.conditions == report.conditions && now.duration_since(*at) < UNSEEN
        };
        if state.reported.as_ref().is_some_and(waiting) {
            return;
        }
        if let Some(until) = state.reports.holds(now) {
            state.wake = state.wake.into_iter().chain([until]).min();
            return;
        }
        let mut first = Vec::new();
        for notice in &report.notices {
            match notice.warning {
                true => warn!(daemonset = %key, note = notice.note, "{}", notice.reason),
                false => info!(daemonset = %key, note = notice.note, "{}", notice.reason),
            }
            if let Some(mark) = &notice.mark {
                let event = self.event(key, notice);
                first.extend(event.map(|(about, severity)| {
                    let events = &self.parts.events;
                    events.said_once(&about, severity, notice.reason, &notice.note, mark)
                }));
            }
        }
        let unmarked = report.notices.iter().filter(|notice| notice.mark.is_none());
        let unmarked: Vec<Notice> = unmarked.cloned().collect();
        self.announce(key, &unmarked);
        self.remember_pause(key, &report);
        let state = self.state.sets.entry(key.clone()).or_default();
        state.reported = Some((report, now));
        state.under_way += 1;
        let (writer, key) = (self.parts.writer.clone(), key.clone());
        self.spawn(key.clone(), async move {
            // What is remembered as said has been said: whoever dies in between leaves it to the next one, whose Event is
            // the same.
            futures::future::join_all(first).await;
            let result = writer.patch_set(&key, &uid, conditions).await;
            Done::Reported(key, result)
        });
    }

    /// Has the native controller's Events read where pods are missing that should be there for a while.
    pub(super) fn ask_why_missing(
        &mut self,
        key: &SetKey,
        (fleet, plan): (&Fleet, &Plan),
        now: Timestamp,
    ) {
        let missing = plan.verdicts.iter().zip(&fleet.nodes);
        let since = missing.filter_map(|(told, node)| match *told {
            Verdict::InProgress(Progress::Missing { since })
                if node.targeting == Targeting::Run =>
            {
                since
            }
            _ => None,
        });
        let lookups = &mut self.parts.lookups;
        // The first pods of a large fleet take their time.
        let Some(since) = since.min().filter(|_| fleet.replaces) else {
            if lookups.none_missing(key)
                && let Some(set) = self.parts.feed.index.set_mut(key)
            {
                set.set_not_created(None);
            }
            return;
        };
        let Some(set) = self.parts.feed.index.set(key) else {
            return;
        };
        let (wake, lookup) = lookups.why_missing(key, &set.uid, since, now);
        let state = self.state.sets.entry(key.clone()).or_default();
        state.wake = state.wake.into_iter().chain([wake]).min();
        if let Some(lookup) = lookup {
            state.under_way += 1;
            let key = key.clone();
            self.spawn(key.clone(), async move { Done::Looked(key, lookup.await) });
        }
    }

    /// Has read what is said of pods that do not become available for nearly too long.
    pub(super) fn ask_why_not_ready(
        &mut self,
        key: &SetKey,
        (fleet, plan): (&Fleet, &Plan),
        now: Timestamp,
    ) {
        let Asked { pods, next } = plan.not_ready(fleet, now);
        let lookups = &mut self.parts.lookups;
        if pods.is_empty() {
            if lookups.none_unready(key)
                && let Some(set) = self.parts.feed.index.set_mut(key)
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
            self.spawn(key.clone(), async move { Done::Looked(key, lookup.await) });
        }
    }

    /// Reads live what the watches leave in doubt: which revision is the current one, and which one a pod has.
    pub(super) fn look_up(
        &mut self,
        key: &SetKey,
        reason: Behind,
        since: Timestamp,
        now: Timestamp,
    ) {
        let unknown = if reason == Behind::UnknownRevision {
            self.parts.feed.index.unknown_hashes(key)
        } else {
            Vec::new()
        };
        let Some(set) = self.parts.feed.index.set(key) else {
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
            self.spawn(key.clone(), async move { Done::Looked(key, lookup.await) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_ends_with_the_name_of_its_daemonset() {
        let key = SetKey::new("shop", "agent");
        match caught(key.clone(), async { panic!("a mistake") }).await {
            Done::Failed(failed) => assert_eq!(failed, key),
            _ => panic!("it did not fail"),
        }
        let reported = caught(key.clone(), async { Done::Reported(key, Ok(())) });
        assert!(matches!(reported.await, Done::Reported(_, Ok(()))));
    }
}
