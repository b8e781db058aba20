//! Pods that ended for good (`Succeeded`, or `Failed` because of an eviction or a rejection by the kubelet), by node.
//!
//! The native controller deletes each ended pod and creates the next one. The existing pods don't show that several ended one after
//! the other, a *series*. Therefore the next pod gets the problem of the last one until it is Ready. After several ended pods, the
//! node itself has the problem until a pod has been Ready for a while.
//!
//! After a restart, the DaemonSet's condition shows the nodes on which such a series stalls the rollout.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::pod::PodRecord;
use crate::core::engine::failing::{CRASHING_RESTARTS, PROVED_AFTER};
use crate::core::foreign::{WORD, cut};
use crate::core::instant::later;
use crate::core::words::line;
use crate::core::{NodeName, PodProblem, PodUid, Revision, RolloutState};
use crate::k8s;

/// Maximum time between two ended pods of one series. It is longer than the backoff of the native controller, which waits at most
/// 15 minutes before it creates the next pod (`FailedPodsBackoff`).
const TOGETHER: SignedDuration = SignedDuration::from_hours(1);

/// Maximum number of nodes. If there are more, nodes on which no pod ended within [`TOGETHER`] are dropped.
const KEPT: usize = 1024;

/// Series of pods that ended before this process started, from the DaemonSet's condition.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RecalledProblem {
    hash: Revision,
    reason: Arc<str>,
    detail: Arc<str>,
}

impl RecalledProblem {
    /// Returns the reason in the condition why pods keep ending on `node`; `None` if it doesn't name the node.
    pub(super) fn new(state: &RolloutState, node: &NodeName) -> Option<Self> {
        let failing = state.failing_on(node)?;
        Some(Self {
            hash: state.reported.revision.clone()?,
            reason: failing.reason.clone(),
            detail: failing.message.clone(),
        })
    }

    /// Returns a series that continues this one.
    fn begin(self, now: Timestamp) -> Series {
        Series {
            hash: Some(self.hash),
            times: 0,
            is_recalled: true,
            last: None,
            at: now,
            reason: self.reason,
            detail: self.detail,
        }
    }
}

/// Series of ended pods of one revision, by node.
#[derive(Debug, Default)]
pub(super) struct Ended(BTreeMap<NodeName, Series>);

#[derive(Debug)]
struct Series {
    hash: Option<Revision>,
    /// Number of ended pods that this process observed.
    times: u32,
    /// True if the series was restored from the condition.
    ///
    /// The condition doesn't contain how many pods ended. So they don't count as failures of the revision.
    is_recalled: bool,
    /// Last ended pod, the time at which its end was observed, and the reason.
    last: Option<PodUid>,
    at: Timestamp,
    reason: Arc<str>,
    detail: Arc<str>,
}

impl Ended {
    /// Records a change of a pod on `node`. A pod that belongs to a series gets the problem of the series.
    pub(super) fn note(
        &mut self,
        node: &NodeName,
        pod: &k8s::Pod,
        record: &mut PodRecord,
        now: Timestamp,
        recalled: impl FnOnce() -> Option<RecalledProblem>,
    ) {
        if record.ready_since().is_none()
            && (record.pod.in_place.is_over || record.pod.problem.is_none())
        {
            self.recall(node, now, recalled);
        }
        if record.pod.in_place.is_over {
            self.count(node, record, pod, now);
        }
        let series = self.0.get(node);
        let series = series.filter(|series| series.hash.as_ref() == record.hash());
        if let Some(series) = series
            && record.ready_since().is_none()
            && record.pod.problem.is_none()
        {
            Arc::make_mut(&mut record.pod).problem = Some(series.problem().into());
        }
    }

    /// Returns the problem of `node` if enough pods of the revision `hash` ended there, one after the other.
    pub(super) fn trouble(
        &mut self,
        node: &NodeName,
        hash: &Revision,
        now: Timestamp,
        recalled: impl FnOnce() -> Option<RecalledProblem>,
    ) -> Option<PodProblem> {
        self.recall(node, now, recalled);
        let series = self.0.get(node)?;
        let lasts = series.is_recalled || series.times >= CRASHING_RESTARTS;
        (lasts && series.hash.as_ref() == Some(hash)).then(|| series.problem())
    }

    /// Restores the series from the condition, unless this process has seen pods end on the node.
    fn recall(
        &mut self,
        node: &NodeName,
        now: Timestamp,
        recalled: impl FnOnce() -> Option<RecalledProblem>,
    ) {
        if !self.0.contains_key(node)
            && let Some(recalled) = recalled()
        {
            self.0.insert(node.clone(), recalled.begin(now));
        }
    }

    /// Ends the series if the pod in `before` was Ready for a while. If this pod ends later, a new series begins.
    ///
    /// Returns true if there was a series.
    pub(super) fn end(
        &mut self,
        node: &NodeName,
        before: Option<&PodRecord>,
        now: Timestamp,
    ) -> bool {
        let Some(before) = before else {
            return false;
        };
        let is_proved = before
            .ready_since()
            .is_some_and(|since| later(since, PROVED_AFTER) <= now);
        let series = self.0.get(node);
        let ends = is_proved && series.is_some_and(|series| series.hash.as_ref() == before.hash());
        ends && self.0.remove(node).is_some()
    }

    fn count(&mut self, node: &NodeName, record: &PodRecord, pod: &k8s::Pod, now: Timestamp) {
        if self.0.len() >= KEPT {
            self.0
                .retain(|_, series| now.duration_since(series.at) < TOGETHER);
        }
        let before = self.0.remove(node).filter(|series| {
            series.hash.as_ref() == record.hash() && now.duration_since(series.at) < TOGETHER
        });
        let is_known = before
            .as_ref()
            .is_some_and(|series| series.last.as_ref() == Some(&record.pod.uid));
        let before_this = before.as_ref().map_or(0, |series| series.times);
        let series = Series {
            hash: record.hash().cloned(),
            times: before_this + u32::from(!is_known),
            is_recalled: before.as_ref().is_some_and(|series| series.is_recalled),
            last: Some(record.pod.uid.clone()),
            at: before.filter(|_| is_known).map_or(now, |series| series.at),
            reason: cut(reason(pod), WORD).into(),
            detail: line(&pod.status.message).into(),
        };
        self.0.insert(node.clone(), series);
    }
}

impl Series {
    fn problem(&self) -> PodProblem {
        PodProblem {
            reason: self.reason.clone(),
            detail: self.detail.clone(),
            restarts: 0,
            ended: self.times,
        }
    }
}

/// Returns the reason why a pod ended, as the kubelet reports it for the pod or for one of its containers.
fn reason(pod: &k8s::Pod) -> &str {
    let statuses = &pod.status.container_statuses;
    let mut ended = statuses
        .iter()
        .filter_map(|one| one.state.terminated.as_ref());
    let reasons = [
        pod.status.reason.as_str(),
        ended.next().map_or("", |state| state.reason.as_str()),
        pod.status.phase.as_str(),
    ];
    let mut reasons = reasons.into_iter().filter(|word| !word.is_empty());
    reasons.next().unwrap_or_default()
}
