//! Properties of pods on which the native controller's decisions depend.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::set::Set;
use crate::core::names::{REVISION_HASH_LABEL, TEMPLATE_GENERATION_LABEL};
use crate::k8s::Pod;

/// Pods of one DaemonSet by node, each node's oldest pod first.
pub(super) type ByNode<'a> = BTreeMap<&'a str, Vec<&'a Pod>>;

/// Returns the time at which the pod became Ready; `None` if it is not Ready.
pub(super) fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let ready = pod.condition("Ready")?;
    let since = ready.last_transition.as_ref();
    ready
        .is_true()
        .then(|| since.map_or(Timestamp::MAX, |time| time.0))
}

/// Returns the time from which the pod counts as available if it stays Ready; `None` if it is not Ready.
pub(super) fn available_at(pod: &Pod, min_ready: Duration) -> Option<Timestamp> {
    let since = ready_since(pod)?;
    if min_ready.is_zero() {
        return Some(Timestamp::MIN);
    }
    let wait = SignedDuration::try_from(min_ready).unwrap_or(SignedDuration::MAX);
    Some(since.saturating_add(wait).unwrap_or(Timestamp::MAX))
}

pub(super) fn is_available(pod: &Pod, min_ready: Duration, now: Timestamp) -> bool {
    available_at(pod, min_ready).is_some_and(|at| at <= now)
}

/// Returns true if the pod was created from the current template, according to its hash or template generation.
pub(super) fn is_updated(pod: &Pod, set: &Set, hash: &str) -> bool {
    let generation = set.template_generation.as_deref();
    pod.label(REVISION_HASH_LABEL) == Some(hash)
        || generation.is_some() && pod.label(TEMPLATE_GENERATION_LABEL) == generation
}

/// Groups pods by the node on which they run or for which they were created. A deleted pod whose containers have ended is ignored.
pub(super) fn by_node<'a>(pods: impl Iterator<Item = &'a Pod>) -> ByNode<'a> {
    let mut nodes = ByNode::new();
    for pod in pods.filter(|pod| !(pod.is_deleting() && pod.is_over())) {
        if let Some(node) = pod.spec.target_node() {
            nodes.entry(node).or_default().push(pod);
        }
    }
    for pods in nodes.values_mut() {
        pods.sort_by_key(|pod| age(pod));
    }
    nodes
}

/// Returns the sort key of a pod: first pods that are bound to a node, then older pods, then by name.
fn age(pod: &Pod) -> (bool, Option<Timestamp>, Option<&str>) {
    let bound = pod.spec.node_name.as_deref().unwrap_or_default();
    let created = pod.metadata.creation_timestamp.as_ref();
    (
        bound.is_empty(),
        created.map(|time| time.0),
        pod.metadata.name.as_deref(),
    )
}
