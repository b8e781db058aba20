//! Deadlines of nodes that are being updated, and the stalls that follow. Every state that can take a slot has a deadline.
//!
//! A pod that is being deleted has to end within its grace period plus [`MARGIN`]. A missing pod has to be created, and a new pod
//! has to be scheduled, within [`MISSING_GRACE`]. Other steps, such as the start of a pod, have to end within
//! [`PROGRESS_DEADLINE`]. Hooks, disruption budgets and rejected writes have their own limits (see [`timeouts`](super::timeouts)).

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::timeouts::{
    HOOK_PATIENCE, MARGIN, MISSING_GRACE, PROGRESS_DEADLINE, REFUSAL_PATIENCE, budget_patience,
};
use super::{failing, surge};
use crate::core::fleet::{Fleet, Node, Pod, Readiness};
use crate::core::id::PodRevision;
use crate::core::instant::later;
use crate::core::names::UNSCHEDULABLE;
use crate::core::plan::Stall;
use crate::core::verdict::{Progress, Verdict};

/// Returns the reason why `node` with this `verdict` makes no progress; `None` if it makes progress, or is within its deadline.
pub fn stall_of(node: &Node, verdict: &Verdict, now: Timestamp) -> Option<Stall> {
    stuck(node, verdict, MISSING_GRACE, now).ok()
}

/// Returns the reason why `node` makes no progress; `Err` with the time of the next check otherwise, if time alone can change the
/// result. `grace` is the time that a pod may be missing.
pub(super) fn stuck(
    node: &Node,
    verdict: &Verdict,
    grace: Duration,
    now: Timestamp,
) -> Result<Stall, Option<Timestamp>> {
    let by_deadline = |since: Option<Timestamp>, grace: Duration, stall: Stall| match since
        .map(|at| later(at, grace))
    {
        Some(at) if at <= now => Ok(stall),
        at => Err(at),
    };
    match *verdict {
        Verdict::FailedByRevision { cause, .. } => {
            if cause.holds_slot() {
                Ok(Stall::PodsDoNotStart)
            } else {
                Err(None)
            }
        }
        Verdict::BlockedByPdb { since, obstruction } => by_deadline(
            Some(since),
            budget_patience(obstruction),
            Stall::BlockedByPdb,
        ),
        Verdict::Refused { since } => {
            by_deadline(Some(since), REFUSAL_PATIENCE, Stall::WritesRefused)
        }
        Verdict::HookPending { overdue: true, .. } => Ok(Stall::HookPending),
        Verdict::HookPending { since, .. } => by_deadline(since, HOOK_PATIENCE, Stall::HookPending),
        Verdict::InProgress(progress) if fails(node, progress) => Ok(Stall::PodsDoNotStart),
        Verdict::InProgress(Progress::NotYetAvailable { .. }) if is_between_crashes(node, now) => {
            Ok(Stall::PodsDoNotStart)
        }
        Verdict::InProgress(progress @ (Progress::SurgeStarting | Progress::Starting))
            if let Some(since) = unscheduled_since(node, progress == Progress::SurgeStarting) =>
        {
            by_deadline(Some(since), MISSING_GRACE, Stall::PodsDoNotStart)
        }
        // The node keeps its old pod. A second pod that doesn't end delays the completion of the rollout.
        ref verdict if verdict.is_kept() => match gone_by(node) {
            Some(at) if at <= now => Ok(Stall::NoProgress),
            at => Err(at),
        },
        Verdict::InProgress(progress) => match deadline(node, progress, grace) {
            Some((at, stall)) if at <= now => Ok(stall),
            _ if is_between_pods(node, progress) => Ok(Stall::PodsDoNotStart),
            Some((at, _)) => Err(Some(at)),
            None => Err(None),
        },
        _ => Err(None),
    }
}

/// Returns true if a pod of this node crashed repeatedly and is Ready now.
pub fn is_between_crashes(node: &Node, now: Timestamp) -> bool {
    let Readiness::Ready { since } = node.readiness else {
        return false;
    };
    let mut alive = node.pods.iter().filter(|pod| !pod.terminating);
    alive.any(|pod| failing::proved_at(pod, since, now).is_some())
}

/// Returns the time since which the surge pod of this node (`true`), or the pod that the DaemonSet owns (`false`), is
/// unschedulable.
fn unscheduled_since(node: &Node, beside: bool) -> Option<Timestamp> {
    let made = node.pods.iter().filter(|pod| pod.surge == beside);
    made.filter(|pod| lacks_place(pod))
        .map(|pod| pod.created)
        .min()
}

/// Returns true if the kubelet of this node rejects pods because the node lacks resources.
pub(in crate::core) fn rejects(node: &Node) -> bool {
    let problem = node.trouble.as_ref();
    problem
        .is_some_and(|problem| *problem.reason == *"Evicted" || problem.reason.starts_with("OutOf"))
}

/// Returns true if a pod of this node is unschedulable.
pub(in crate::core) fn is_unscheduled(node: &Node) -> bool {
    node.pods.iter().any(lacks_place)
}

fn lacks_place(pod: &Pod) -> bool {
    let problem = pod.problem.as_ref();
    problem.is_some_and(|problem| *problem.reason == *UNSCHEDULABLE)
}

/// Returns the time that a pod may be missing. It is longer for the first pods of a DaemonSet, because all are created at once.
pub(super) fn missing_grace(fleet: &Fleet) -> Duration {
    if fleet.replaces || fleet.not_created.is_some() {
        MISSING_GRACE
    } else {
        PROGRESS_DEADLINE
    }
}

/// Returns the time by which all pods that are being deleted on this node should be gone.
///
/// Returns `None` if no pod is being deleted, or if the cache doesn't show the end of a grace period yet.
pub(super) fn gone_by(node: &Node) -> Option<Timestamp> {
    let back = match node.readiness {
        Readiness::Ready { since } => since,
        Readiness::NotReady { .. } | Readiness::Unreadable | Readiness::Gone => Timestamp::MAX,
    };
    let ends = ending(node).filter_map(|pod| Some(pod.leaving.as_deref()?.ends));
    Some(later(ends.max()?.max(back), MARGIN))
}

/// Returns the terminating pods that have to be gone before the node is done.
///
/// If another pod is alive, an ended pod that only a finalizer keeps is not included. The native controller ignores such a pod,
/// too.
pub(in crate::core) fn ending(node: &Node) -> impl Iterator<Item = &Pod> {
    let lives = node.pods.iter().any(|pod| !pod.terminating);
    let is_awaited = move |pod: &&Pod| pod.terminating && !(lives && pod.has_ended());
    node.pods.iter().filter(is_awaited)
}

/// Returns the deadline of a node in progress and the stall that follows; `None` if only an event can change its state.
pub(super) fn deadline(
    node: &Node,
    progress: Progress,
    missing_grace: Duration,
) -> Option<(Timestamp, Stall)> {
    let no_progress = |since: Timestamp| Some((later(since, PROGRESS_DEADLINE), Stall::NoProgress));
    let surging = || node.pods.iter().filter(|pod| pod.surge);
    let made = || surging().map(|pod| pod.created).max();
    let own = || surge::own(node).find(|pod| !pod.terminating);
    match progress {
        Progress::Missing { since } if node.is_barred() => {
            Some((later(since?, missing_grace), Stall::PodsKeptAway))
        }
        Progress::Missing { since } => Some((later(since?, missing_grace), Stall::PodsNotCreated)),
        Progress::Terminating
        | Progress::OldTerminating
        | Progress::SurgeLeaving
        | Progress::SurgeTakingOver
            if ending(node).next().is_some() =>
        {
            Some((gone_by(node)?, Stall::NoProgress))
        }
        // The surge pod waits until the native controller creates a pod (see [`surge`](super::surge), before Kubernetes 1.33).
        Progress::SurgeTakingOver if own().is_none() => {
            // A finalizer may keep the object of an ended pod. The native controller ignores such a pod and creates another one.
            let ended = surge::own(node).filter_map(|pod| Some(pod.leaving.as_deref()?.ends));
            let since = node.podless_since.or_else(|| ended.max())?;
            Some((later(since, MISSING_GRACE), Stall::PodsNotCreated))
        }
        Progress::SurgeTakingOver => {
            let ready = node.pods.iter().filter_map(|pod| pod.ready_since).max();
            no_progress(ready.or_else(made)?)
        }
        // The surge pod stays until the pod that the DaemonSet owns is available.
        Progress::SurgeLeaving => {
            let unready = own().map(Pod::unready);
            no_progress(unready.max(made())?)
        }
        Progress::SurgeStarting => no_progress(surging().map(Pod::unready).max()?),
        Progress::Starting => no_progress(node.pods.iter().map(Pod::unready).max()?),
        Progress::UpdatingInPlace { .. } | Progress::Surplus => {
            no_progress(node.pods.iter().map(Pod::revised).max()?)
        }
        Progress::Reverting { since } => no_progress(since),
        // A pod that became Ready in time only has to stay Ready. A pod that became Ready late or repeatedly may never become
        // available.
        Progress::NotYetAvailable { .. } | Progress::SurgeYoung { .. } => {
            let pod = node.pods.iter().max_by_key(|pod| pod.revised())?;
            let (by, stall) = no_progress(pod.unready())?;
            (pod.ready_since? >= by).then_some((by, stall))
        }
        Progress::Replacing | Progress::Terminating | Progress::OldTerminating => None,
    }
}

/// Returns true if a pod of this node fails, and the node's progress depends on that pod.
pub(super) fn fails(node: &Node, progress: Progress) -> bool {
    let starts = matches!(
        progress,
        Progress::Starting
            | Progress::UpdatingInPlace { .. }
            | Progress::Reverting { .. }
            | Progress::SurgeStarting
    );
    starts && (node.trouble.is_some() || failing::any_on(node))
}

/// Returns true if the pods of this node keep ending, and none of them is Ready now.
pub(in crate::core) fn is_between_pods(node: &Node, progress: Progress) -> bool {
    let is_between = matches!(
        progress,
        Progress::Missing { .. }
            | Progress::Terminating
            | Progress::OldTerminating
            | Progress::SurgeLeaving
            | Progress::Surplus
    );
    let is_there = |pod: &Pod| pod.revision == PodRevision::Current && pod.ready_since.is_some();
    is_between && node.trouble.is_some() && !node.pods.iter().any(is_there)
}

/// Returns the pod that has to become available before the node makes progress; `None` if the node waits for something else.
pub(super) fn awaited(node: &Node, progress: Progress) -> Option<&Pod> {
    let newest = || node.pods.iter().max_by_key(|pod| pod.created);
    let is_ending = ending(node).next().is_some();
    match progress {
        Progress::Starting
        | Progress::UpdatingInPlace { .. }
        | Progress::Reverting { .. }
        | Progress::NotYetAvailable { .. }
        | Progress::SurgeStarting
        | Progress::SurgeYoung { .. } => newest(),
        Progress::SurgeLeaving if !is_ending => surge::own(node).find(|pod| !pod.terminating),
        _ => None,
    }
}
