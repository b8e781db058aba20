//! Progressive creation: which nodes get no pod because `partition` counts for the first pods, too
//! (`scaleStrategy.partitionedScaling`, Kruise).
//!
//! Who makes the pods and who judges the nodes ask the same function, so that what is withheld is never told as missing.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;

use crate::core::fleet::{Fleet, Node, Pod, Readiness, Targeting};
use crate::core::id::PodRevision;
use crate::core::settings::Strategy;

/// The nodes without a pod that `partition` leaves so, by position in the fleet; `is_asked`: a pod was asked for there, and does
/// not show yet.
///
/// Only so many get their pods that `partition` nodes are left without a new one: first those that had one, whoever lost it
/// last before the others, then by name. From whom the rollout took the pod gets the next one in any case: that is under way,
/// and `partition` may have been raised since.
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

/// Whether a pod is made on that node when it has none.
pub(super) fn runs(node: &Node) -> bool {
    node.native == Targeting::Run && node.readiness != Readiness::Gone
}

/// Whether one pod of that node, and no second one, is new.
fn holds_new(node: &Node) -> bool {
    let is_new = |pod: &&Pod| !pod.terminating && pod.revision == PodRevision::Current;
    node.pods.iter().filter(is_new).count() == 1
}

/// When a node that had a pod lost it; one that is still ending comes after all others. `None`: it is not known to have had one.
fn lost_at(node: &Node) -> Option<Timestamp> {
    if node.pods.is_empty() {
        node.podless_since.filter(|_| node.had_pod)
    } else {
        Some(Timestamp::MAX)
    }
}
