//! View of one node and its pods for messages: names, problems, update methods, and the answer about the node.

use super::rollout::RolloutView;
use crate::core::engine::deadline::stall_of;
use crate::core::engine::replacement::{UpdateMethod, way};
use crate::core::fleet::{Node, Pod, PodProblem};
use crate::core::foreign::cut;
use crate::core::id::PodRevision;
use crate::core::plan::Stall;
use crate::core::verdict::Verdict;
use crate::core::words::spaced;

/// View of one node of a rollout.
#[derive(Clone, Copy)]
pub(super) struct NodeView<'a> {
    pub(super) rollout: &'a RolloutView<'a>,
    pub(super) position: usize,
    pub(super) node: &'a Node,
    pub(super) verdict: &'a Verdict,
}

/// Reason for the verdict of one node, with the remedy. Sentences have no final full stop.
pub(super) struct Answer<'a> {
    pub(super) reason: Option<String>,
    pub(super) because: String,
    /// Remedy. It is computed only on demand, because the computation may have to read all nodes.
    pub(super) next: Box<dyn Fn() -> String + 'a>,
}

impl<'a> Answer<'a> {
    pub(super) fn new(because: impl Into<String>, next: impl Fn() -> String + 'a) -> Self {
        Self {
            reason: None,
            because: because.into(),
            next: Box::new(next),
        }
    }

    pub(super) fn reason(self, reason: impl Into<String>) -> Self {
        let reason = Some(reason.into());
        Self { reason, ..self }
    }
}

/// Maximum length of a cause in a table cell, in characters.
const CAUSE: usize = 69;

pub(super) fn newest(node: &Node) -> Option<&Pod> {
    node.pods.iter().max_by_key(|pod| pod.created)
}

/// Returns the problem of the node's newest pod. If that pod reports none, returns the reason why earlier pods of the revision
/// ended.
fn problem(node: &Node) -> Option<&PodProblem> {
    let newest = newest(node);
    let is_next = newest.is_none_or(|pod| pod.revision == PodRevision::Current);
    let before = node.trouble.as_deref().filter(|_| is_next);
    newest.and_then(|pod| pod.problem.as_deref()).or(before)
}

pub(super) fn problem_word(node: &Node) -> Option<String> {
    Some(problem(node)?.word().to_owned())
}

/// Returns the problem of the node's pod, with the number of restarts, after a colon; empty if there is none.
pub(super) fn problem_words(node: &Node) -> String {
    let Some(problem) = problem(node) else {
        return String::new();
    };
    let words = problem.words();
    match (problem.ended, problem.restarts) {
        (0 | 1, 0) => format!(": {words}"),
        (0, 1) => format!(": {words}, 1 restart"),
        (0, restarts) => format!(": {words}, {restarts} restarts"),
        (ended, _) => format!(": {words}, {ended} pods have ended"),
    }
}

/// Returns the details of the pod's problem from the kubelet or the scheduler; `None` if there are none.
pub(super) fn problem_cause(node: &Node) -> Option<String> {
    let cause = &problem(node)?.detail;
    (!cause.is_empty()).then(|| cut(cause, CAUSE).into_owned())
}

/// Returns true if whole pods keep ending on the node, and not only a container in a pod. A problem that was read from the
/// DaemonSet's condition doesn't show the difference. Then the newest pod decides: it has ended, or there is none.
pub(super) fn are_seen_to_end(node: &Node) -> bool {
    let has_ended = newest(node).is_none_or(|pod| pod.in_place.is_over);
    let problem = node.trouble.as_ref();
    problem.is_some_and(|problem| problem.ended > 1 || has_ended)
}

/// Returns the word for the pod's revision relative to the current one.
pub fn revision_word(pod: &Pod) -> &'static str {
    match pod.revision {
        PodRevision::Current => "current",
        PodRevision::Outdated => "outdated",
        PodRevision::Unknown => "unknown",
    }
}

impl<'a> NodeView<'a> {
    pub(super) fn new(rollout: &'a RolloutView<'a>, position: usize) -> Self {
        Self {
            rollout,
            position,
            node: &rollout.fleet.nodes[position],
            verdict: &rollout.plan.verdicts[position],
        }
    }

    /// Returns the name of the node's newest pod with a leading space.
    pub(super) fn pod(&self) -> String {
        spaced(newest(self.node).map(|pod| &pod.name))
    }

    pub(super) fn find(&self, is_wanted: impl Fn(&Pod) -> bool) -> Option<&'a Pod> {
        self.node.pods.iter().find(|pod| is_wanted(pod))
    }

    /// Returns the command that shows the node's newest pod.
    pub(super) fn describe_pod(&self) -> String {
        let namespace = &self.rollout.key.namespace;
        format!("kubectl -n {namespace} describe pod{}", self.pod())
    }

    /// Returns the command that shows why Kubernetes creates no pod.
    pub(super) fn failed_creations(&self) -> String {
        let namespace = &self.rollout.key.namespace;
        format!("kubectl -n {namespace} get events --field-selector reason=FailedCreate")
    }

    /// Returns the stall that the node causes; `None` if it is not past its deadline.
    pub(super) fn stall(&self) -> Option<Stall> {
        stall_of(self.node, self.verdict, self.rollout.now)
    }

    /// Returns true if a pod of the node waits for its preDelete hook.
    pub(super) fn is_preparing(&self) -> bool {
        self.find(|pod| pod.exit.preparing.is_some()).is_some()
    }

    /// Returns the labels and finalizers that must be removed from the node's pods before their deletion.
    pub(super) fn awaited_hooks(&self) -> Vec<String> {
        let Some(hook) = &self.rollout.strategy.pre_delete else {
            return Vec::new();
        };
        let pods = self.node.pods.iter();
        let alive = pods.filter(|pod| !pod.terminating && !pod.surge);
        alive.flat_map(|pod| hook.awaited(&pod.exit)).collect()
    }

    /// Returns the update method for the node's outdated pod.
    pub(super) fn method(&self) -> UpdateMethod {
        let outdated = self.find(|pod| !pod.terminating && pod.revision == PodRevision::Outdated);
        outdated.map_or(UpdateMethod::Recreate(None), |pod| {
            way(self.rollout.strategy, self.rollout.fleet, pod)
        })
    }
}
