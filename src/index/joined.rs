//! The fleet of a DaemonSet, kept from one pass to the next: only nodes to which something happened are made anew.
//!
//! A rollout is thousands of small events; making a fleet of a thousand nodes for each burst of them would cost more than
//! everything else together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use super::SetKey;
use super::fleet_cache::Basis;
use super::node::NodeRecord;
use super::set::SetRecord;
use crate::core::fleet::in_place::InPlaceTransitions;
use crate::core::fleet::position_of;
use crate::core::revision::{RevisionFacts, earlier, undone};
use crate::core::{
    Evictions, FailureRecord, Fleet, Node, NodeName, Pod, PodRevision, Readiness, Refusals,
    RevisionState, RevisionUnknown, RollbackTargets, Targeting,
};

/// The fleet of `set` as it is now.
pub(super) fn fleet(
    key: &SetKey,
    set: &mut SetRecord,
    nodes: &BTreeMap<NodeName, NodeRecord>,
    revisions: &[RevisionFacts],
    in_order: bool,
    now: Timestamp,
) -> Arc<Fleet> {
    let present = set.basis(revisions);
    let record = set.guard.record(&set.conditions, &present.state);
    set.cache
        .remember(lost_while_touched(record.as_ref(), &present.state));
    let (fleet, basis) = (set.cache.fleet.take(), set.cache.basis.take());
    let dirty = std::mem::take(&mut set.cache.dirty);
    let mut fleet = match fleet.filter(|_| basis.as_ref() == Some(&present)) {
        Some(mut fleet) => {
            let kept = Arc::make_mut(&mut fleet);
            for name in &dirty {
                let node = node(key, set, name, nodes.get(name), &present, revisions, now);
                place(&mut kept.nodes, name, node);
            }
            fleet
        }
        None => Arc::new(Fleet {
            revision: present.state.clone(),
            behind_since: None,
            made: None,
            adopted: None,
            replaces: false,
            earlier: Vec::new(),
            undone: None,
            evictions: Evictions::default(),
            refusals: Refusals::default(),
            transitions: InPlaceTransitions::new(),
            rollback_targets: RollbackTargets::default(),
            record: None,
            pause: None,
            not_created: None,
            not_ready: BTreeMap::new(),
            in_order,
            crowd: Default::default(),
            nodes: all(key, set, nodes, &present, revisions, now),
        }),
    };
    let kept = Arc::make_mut(&mut fleet);
    let is_unknown = |pod: &Pod| pod.revision == PodRevision::Unknown;
    let met = |state: &RevisionState| matches!(state, RevisionState::Current(_));
    let target = match &present.state {
        RevisionState::Current(revision) => Some(revision),
        RevisionState::Unknown(_) => None,
    };
    let known = target.and_then(|target| revisions.iter().find(|known| known.hash == *target));
    (kept.made, kept.adopted) = (known.and_then(|known| known.made), present.adopted);
    // Without any other revision that is kept, pods and the guard still tell that this one replaces another.
    let is_outdated = |pod: &Pod| pod.revision == PodRevision::Outdated;
    kept.replaces = revisions.len() > 1
        || (record.as_ref()).is_some_and(|record| Some(&record.revision) == target)
        || (kept.nodes.iter().flat_map(|node| &node.pods)).any(is_outdated);
    let before = target.map(|current| earlier(revisions, current));
    let before = before.unwrap_or_default().into_iter();
    kept.earlier = before
        .map(|known| (known.hash.clone(), known.number))
        .collect();
    kept.undone = target.and_then(|current| undone(revisions, current));
    kept.evictions = set.evictions.clone();
    kept.refusals = set.refusals(target, &kept.nodes);
    kept.transitions = set.transitions(&present.state, revisions);
    kept.rollback_targets = set.rollback_targets(&present.state, revisions);
    kept.record = record;
    kept.pause = set.last_pause();
    kept.not_created = set.not_created();
    kept.not_ready = set.not_ready();
    kept.in_order = in_order;
    kept.revision = match &present.state {
        state
            if met(state)
                && kept
                    .nodes
                    .iter()
                    .flat_map(|node| &node.pods)
                    .any(is_unknown) =>
        {
            RevisionState::Unknown(RevisionUnknown::UnknownRevision)
        }
        state => state.clone(),
    };
    kept.behind_since = set.note_behind(&kept.revision, now);
    set.cache.looked = true;
    set.cache.fleet = Some(fleet.clone());
    set.cache.basis = Some(present);
    fleet
}

/// Every node that should run a pod or holds one, in the order of names.
fn all(
    key: &SetKey,
    set: &mut SetRecord,
    nodes: &BTreeMap<NodeName, NodeRecord>,
    basis: &Basis,
    revisions: &[RevisionFacts],
    now: Timestamp,
) -> Vec<Node> {
    let lost = set
        .places_of_pods()
        .filter(|name| !nodes.contains_key(name));
    let mut names: Vec<NodeName> = lost.chain(nodes.keys()).cloned().collect();
    names.sort();
    let mut all = Vec::with_capacity(names.len());
    all.extend(names.iter().filter_map(|name| {
        let record = nodes.get(name);
        node(key, set, name, record, basis, revisions, now)
    }));
    all
}

/// One node and its pods; `None` when no pod belongs there and there is none.
fn node(
    key: &SetKey,
    set: &mut SetRecord,
    name: &NodeName,
    record: Option<&NodeRecord>,
    basis: &Basis,
    revisions: &[RevisionFacts],
    now: Timestamp,
) -> Option<Node> {
    let pods = set.judged_pods(name, &basis.state, revisions);
    let Some(record) = record else {
        let gone = Node {
            name: name.clone(),
            labels: crate::core::Labels::default(),
            hold: None,
            window: None,
            targeting: Targeting::No,
            readiness: Readiness::Gone,
            pods,
            podless_since: None,
            disrupted_at: None,
            emptied: false,
            has_images: false,
        };
        return (!gone.pods.is_empty()).then_some(gone);
    };
    let targeting = set.scheduling.targeting(&record.facts(name));
    let emptied = set.is_emptied(name);
    if pods.is_empty() && targeting != Targeting::Run && !emptied {
        set.podless.remove(name);
        return None;
    }
    let images = basis.images.as_deref();
    let has_images = images.is_some_and(|all| set.has_images(name, record, all, revisions));
    let podless_since = set.note_podless(name, pods.iter().all(|pod| pod.surge), now);
    let disrupted_at = set.disrupted_at(name, (&basis.state, basis.adopted));
    Some(Node {
        name: name.clone(),
        labels: record.labels(),
        hold: record.holds.of(&key.namespace, &key.name).cloned(),
        window: record.window.clone(),
        targeting,
        readiness: record.readiness,
        pods,
        podless_since,
        disrupted_at,
        emptied,
        has_images,
    })
}

/// The nodes that were lost after their pod was removed for the current revision, as far as the guard remembers.
fn lost_while_touched(record: Option<&FailureRecord>, state: &RevisionState) -> BTreeSet<NodeName> {
    let is_about =
        |record: &&FailureRecord| *state == RevisionState::Current(record.revision.clone());
    let touched = record.filter(is_about).map(|record| record.touched.clone());
    touched.unwrap_or_default()
}

/// Puts `node` where it belongs in the order of names, or takes it out.
fn place(nodes: &mut Vec<Node>, name: &NodeName, node: Option<Node>) {
    match (position_of(nodes, name), node) {
        (Ok(position), Some(node)) => nodes[position] = node,
        (Ok(position), None) => drop(nodes.remove(position)),
        (Err(position), Some(node)) => nodes.insert(position, node),
        (Err(_), None) => {}
    }
}
