//! Progressive creation: `partition` also limits the creation of pods on nodes without a pod, so some nodes get no pod. Kruise
//! calls the setting `scaleStrategy.partitionedScaling`.
//!
//! Both the creation of pods and the evaluation of nodes call [`withheld`]. Therefore a pod that is withheld on purpose is never
//! reported as missing.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;

use crate::core::fleet::{Fleet, Node, Pod, Readiness, Targeting};
use crate::core::id::PodRevision;
use crate::core::settings::Strategy;

/// Returns the nodes that `partition` leaves without a pod, by position in the fleet.
///
/// `is_asked` returns true if a pod was requested for the node and is not in the cache yet.
///
/// Pods are created until only `partition` nodes have no pod of the current revision. Nodes that lost a pod get a new one first,
/// starting with the node that lost its pod last. All other nodes follow by name.
///
/// A node whose pod the rollout deleted always gets a new one. Otherwise it would stay empty if `partition` were raised during the
/// replacement.
pub(super) fn withheld(
    strategy: &Strategy,
    fleet: &Fleet,
    is_asked: impl Fn(&Node) -> bool,
) -> BTreeSet<usize> {
    let nodes = || {
        let nodes = fleet.nodes.iter().enumerate();
        nodes.filter(|(_, node)| runs(node))
    };
    let targeted = fleet.crowd.len() + nodes().count();
    let partition = strategy.partition.resolve_down(targeted);
    if partition == 0 {
        return BTreeSet::new();
    }
    let has_place = |node: &Node| is_asked(node) || holds_new(node);
    let taken = nodes().filter(|(_, node)| has_place(node)).count();
    let mut places = targeted.saturating_sub(taken).saturating_sub(partition);
    let lacks = |(_, node): &(usize, &Node)| {
        !has_place(node) && node.pods.iter().all(|pod| pod.terminating)
    };
    let mut lacking: Vec<(usize, &Node)> = nodes().filter(lacks).collect();
    lacking.sort_by_key(|(_, node)| (!node.emptied, Reverse(lost_at(node))));
    let waits = lacking.into_iter().filter(|(_, node)| {
        let gets = node.emptied || places > 0;
        places = places.saturating_sub(1);
        !gets
    });
    waits.map(|(position, _)| position).collect()
}

/// Returns true if the controller creates a pod on this node when it has none.
pub(super) fn runs(node: &Node) -> bool {
    node.native == Targeting::Run && node.readiness != Readiness::Gone
}

/// Returns true if exactly one living pod of this node has the current revision.
fn holds_new(node: &Node) -> bool {
    let is_new = |pod: &&Pod| !pod.terminating && pod.revision == PodRevision::Current;
    node.pods.iter().filter(is_new).count() == 1
}

/// Returns the time at which a node lost its pod; `None` if the node isn't known to have had one.
///
/// A terminating pod counts as the latest loss of all.
fn lost_at(node: &Node) -> Option<Timestamp> {
    if node.pods.is_empty() {
        node.podless_since.filter(|_| node.had_pod)
    } else {
        Some(Timestamp::MAX)
    }
}
