//! Phrases about the pods of a node: names, problems and update methods.

use super::rollout::RolloutView;
use crate::core::engine::replacement::{UpdateMethod, way};
use crate::core::fleet::in_place::Recreate;
use crate::core::fleet::{Node, Pod, PodProblem};
use crate::core::foreign::cut;
use crate::core::id::PodRevision;

/// Text for a pod whose disruption budget rejected the last eviction but would allow it now.
pub(super) const ASKED_AGAIN: &str = "evicted when its PodDisruptionBudget is asked again: it refused the last time, and allows it now";

pub(super) fn newest(node: &Node) -> Option<&Pod> {
    node.pods.iter().max_by_key(|pod| pod.created)
}

/// Returns a phrase for the node's newest pod. It says if the pod was updated in place.
pub(super) fn its_pod(node: &Node) -> &'static str {
    match newest(node).and_then(|pod| pod.in_place.update) {
        None => "its new pod",
        Some(_) => "its pod, updated in place,",
    }
}

/// Returns the name of the node's newest pod with a leading space.
pub(super) fn pod_name(node: &Node) -> String {
    newest(node).map_or_else(String::new, |pod| format!(" {}", pod.name))
}

/// Returns the name of the node's newest pod that is not terminating, with a leading space.
pub(super) fn living_name(node: &Node) -> String {
    let alive = node.pods.iter().filter(|pod| !pod.terminating);
    alive
        .max_by_key(|pod| pod.created)
        .map_or_else(String::new, |pod| format!(" {}", pod.name))
}

/// Returns the name of the node's terminating pod in parentheses, with a leading space.
pub(super) fn terminating_name(node: &Node) -> String {
    let mut pods = node.pods.iter();
    pods.find(|pod| pod.terminating)
        .map_or_else(String::new, |pod| format!(" ({})", pod.name))
}

/// Returns the problem of the node's newest pod, or else the problem of earlier pods of the current revision.
fn trouble(node: &Node) -> Option<&PodProblem> {
    let newest = newest(node);
    let is_next = newest.is_none_or(|pod| pod.revision == PodRevision::Current);
    let before = node.trouble.as_deref().filter(|_| is_next);
    newest.and_then(|pod| pod.problem.as_deref()).or(before)
}

/// Returns true if this process saw pods end on the node repeatedly. A problem that comes from a condition may be that of a
/// container.
pub(super) fn are_seen_to_end(node: &Node) -> bool {
    let has_ended = newest(node).is_none_or(|pod| pod.in_place.is_over);
    let trouble = node.trouble.as_ref();
    trouble.is_some_and(|problem| problem.ended > 1 || has_ended)
}

/// Describes a node on which pods keep ending.
pub(super) fn ending_words(node: &Node) -> (Option<String>, String) {
    let problem = node.trouble.as_deref();
    let ended = problem.filter(|problem| problem.ended > 1);
    let ended = ended.map_or_else(String::new, |problem| format!(", {} so far", problem.ended));
    let why = problem.map_or_else(String::new, |problem| {
        format!(" ({}{ended})", problem.words())
    });
    let because = format!("has new pods that end one after another{why}");
    (problem.map(|problem| problem.word().to_owned()), because)
}

pub(super) fn trouble_word(node: &Node) -> Option<String> {
    Some(trouble(node)?.word().to_owned())
}

pub(super) fn trouble_words(node: &Node) -> String {
    let Some(problem) = trouble(node) else {
        return String::new();
    };
    let words = problem.words();
    match (problem.ended, problem.restarts) {
        (0 | 1, 0) => format!(" ({words})"),
        (0, 1) => format!(" ({words}, 1 restart)"),
        (0, restarts) => format!(" ({words}, {restarts} restarts)"),
        (ended, _) => format!(" ({words}, {ended} pods ended so)"),
    }
}

/// Maximum length of a cause in a table cell, in characters.
const CAUSE: usize = 69;

/// Returns the details of the pod's problem from the kubelet or the scheduler; `None` if there are none.
pub(super) fn trouble_cause(node: &Node) -> Option<String> {
    let said = &trouble(node)?.detail;
    (!said.is_empty()).then(|| cut(said, CAUSE).into_owned())
}

/// Returns the word for the pod's revision relative to the current one.
pub fn revision_word(pod: &Pod) -> &'static str {
    match pod.revision {
        PodRevision::Current => "current",
        PodRevision::Outdated => "outdated",
        PodRevision::Unknown => "unknown",
    }
}

/// Returns true if the node's surge pod is Ready and its old pod is not.
pub(super) fn is_kept(node: &Node) -> bool {
    let ready = |surge: bool| {
        let mut pods = node.pods.iter();
        pods.any(|pod| pod.surge == surge && !pod.terminating && pod.ready_since.is_some())
    };
    ready(true) && !ready(false)
}

/// Returns the labels and finalizers that must be removed from the node's pods before their deletion.
pub(super) fn awaited(rollout: &RolloutView<'_>, node: &Node) -> Vec<String> {
    let Some(hook) = &rollout.strategy.pre_delete else {
        return Vec::new();
    };
    let alive = node
        .pods
        .iter()
        .filter(|pod| !pod.terminating && !pod.surge);
    alive.flat_map(|pod| hook.awaited(&pod.exit)).collect()
}

/// Returns the update method for the node's outdated pod.
pub(super) fn way_of(rollout: &RolloutView<'_>, node: &Node) -> UpdateMethod {
    let mut pods = node.pods.iter();
    let outdated = pods.find(|pod| !pod.terminating && pod.revision == PodRevision::Outdated);
    outdated.map_or(UpdateMethod::Recreate(None), |pod| {
        way(rollout.strategy, rollout.fleet, pod)
    })
}

pub(super) fn not_in_place(why: Option<Recreate>) -> String {
    why.map_or_else(String::new, |why| {
        format!("; not in place: {}", why.words())
    })
}

/// Returns the name of the pod that the DaemonSet owns, and not that of a surge pod.
pub(super) fn own(node: &Node) -> &str {
    let mut pods = node.pods.iter();
    let own = pods.find(|pod| !pod.surge && !pod.terminating);
    own.map_or("", |pod| pod.name.as_str())
}
