//! Builds the fleet of a DaemonSet and keeps it between decisions. Only changed nodes are built again.
//!
//! A rollout consists of thousands of small events. To build a fleet of a thousand nodes for each burst of events would cost more
//! than everything else together. Decisions need only the number of unchanged nodes, so these nodes are counted and not listed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::SetKey;
use super::crowd_index::CrowdIndex;
use super::fleet_cache::Basis;
use super::node::NodeRecord;
use super::set::SetRecord;
use crate::core::engine::crowd::may_be_counted;
use crate::core::fleet::in_place::InPlaceTransitions;
use crate::core::fleet::position_of;
use crate::core::instant::later;
use crate::core::revision::{RevisionFacts, RollbackCandidates, undone};
use crate::core::{
    Crowd, Evictions, FailureRecord, Fleet, Node, NodeName, PodRevision, Readiness, RevisionState,
    RevisionUnknown, RollbackTargets, Strategy, Targeting, WriteFailures,
};

/// Data from which a fleet is built, in addition to the record of the DaemonSet.
pub(super) struct Surroundings<'a> {
    pub(super) key: &'a SetKey,
    pub(super) nodes: &'a BTreeMap<NodeName, NodeRecord>,
    pub(super) revisions: &'a [RevisionFacts],
    pub(super) basis: &'a Basis,
    pub(super) in_order: bool,
    pub(super) now: Timestamp,
}

/// Returns the fleet of `set` at the time `around.now`.
///
/// With a strategy, the fleet lists only the nodes that a decision by this strategy needs. The others are counted
/// ([`crowd`](crate::core::engine::crowd)).
pub(super) fn fleet(
    set: &mut SetRecord,
    around: &Surroundings<'_>,
    strategy: Option<&Strategy>,
) -> Arc<Fleet> {
    let Surroundings {
        basis,
        in_order,
        now,
        ..
    } = *around;
    let record = set.guard.record(&set.state, &basis.state);
    set.cache
        .remember(lost_while_touched(record.as_ref(), &basis.state));
    let is_proven = is_proven(set, around);
    let fleet_flags = [in_order, is_proven];
    let counts = strategy.filter(|strategy| {
        may_be_counted(strategy, now) && !set.cache.is_wide(now) && !set.has_write_failures()
    });
    let is_of = |crowd: &CrowdIndex| counts.is_some_and(|by| crowd.is_of(by, fleet_flags));
    let known = set.cache.crowd.take();
    let is_as_before = known.as_ref().map_or(counts.is_none(), is_of);
    let is_same = set.cache.basis.as_ref() == Some(basis);
    let is_kept = is_same && is_as_before;
    let crowd = known.filter(|_| is_kept);
    let fleet = set.cache.fleet.take().filter(|_| is_kept);
    let dirty = std::mem::take(&mut set.cache.dirty);
    let (mut fleet, crowd) = match fleet {
        Some(mut fleet) => {
            let nodes = std::mem::take(&mut Arc::make_mut(&mut fleet).nodes);
            let mut list = List { nodes, crowd };
            let due = (list.crowd.as_mut()).map(|crowd| crowd.due(record.as_ref(), now));
            for name in dirty.iter().chain(due.iter().flatten()) {
                list.renew(set, around, name);
            }
            list.balance(set, around);
            Arc::make_mut(&mut fleet).nodes = list.nodes;
            (fleet, list.crowd)
        }
        None => {
            let new = |by| CrowdIndex::new(by, record.as_ref(), fleet_flags);
            let list = List::of_all(set, around, counts.map(new));
            (Arc::new(with_placeholders(list.nodes)), list.crowd)
        }
    };
    let kept = Arc::make_mut(&mut fleet);
    kept.crowd = crowd.as_ref().map(CrowdIndex::numbers).unwrap_or_default();
    kept.is_proven = is_proven;
    update_common_fields(set, around, kept, record);
    kept.behind_since = set.note_behind(&kept.revision, now);
    set.cache.was_built = true;
    set.cache.fleet = Some(fleet.clone());
    if !is_same {
        set.cache.basis = Some(basis.clone());
    }
    set.cache.crowd = crowd;
    debug_assert_eq!(forgotten(set, around, &fleet), None);
    fleet
}

/// Minimum time between the creation of a revision and the time at which it last became current, if it was also current before.
///
/// A shorter time proves nothing: both times are in whole seconds, and the native controller may write to a new revision once more.
const ADOPTED_LATER: Duration = Duration::from_secs(2);

/// Returns the value of [`Fleet::is_proven`]. It is true if the current revision was current before, or works according to a
/// decision.
fn is_proven(set: &SetRecord, around: &Surroundings<'_>) -> bool {
    let Some(current) = around.basis.state.current() else {
        return false;
    };
    let known = (around.revisions.iter()).find(|known| known.hash == *current);
    let made = known.and_then(|known| known.made);
    let ran_before = made
        .zip(around.basis.adopted)
        .is_some_and(|(made, adopted)| adopted > later(made, ADOPTED_LATER));
    ran_before || set.cache.is_proven(current)
}

/// Returns a node that is wrong in the cached fleet, if there is one.
///
/// Only debug builds call this function, to find changes that an update of single nodes missed.
fn forgotten(set: &mut SetRecord, around: &Surroundings<'_>, fleet: &Fleet) -> Option<NodeName> {
    let crowd = set.cache.crowd.take();
    let is_right = |name: &NodeName, node: Option<Node>| {
        let listed = position_of(&fleet.nodes, name).ok();
        let listed = listed.map(|position| &fleet.nodes[position]);
        match (&crowd, listed) {
            (Some(crowd), None) => crowd.agrees(name, node.as_ref(), around.now),
            (Some(crowd), Some(_)) if crowd.counts(name) => false,
            _ => listed == node.as_ref(),
        }
    };
    let names = names(set, around).into_iter();
    let mut read = names.map(|name| (node(set, around, &name), name));
    let wrong = read.find(|(node, name)| !is_right(name, node.clone()));
    let wrong = wrong.map(|(_, name)| name);
    set.cache.crowd = crowd;
    wrong
}

/// Returns a fleet with these nodes. [`update_common_fields`] sets all other fields.
fn with_placeholders(nodes: Vec<Node>) -> Fleet {
    Fleet {
        revision: RevisionState::Unknown(RevisionUnknown::NotObserved),
        behind_since: None,
        made: None,
        adopted: None,
        is_proven: false,
        replaces: false,
        earlier: Vec::new(),
        undone: None,
        evictions: Evictions::default(),
        write_failures: WriteFailures::default(),
        transitions: InPlaceTransitions::new(),
        rollback_targets: RollbackTargets::default(),
        record: None,
        pause: None,
        kind: Default::default(),
        not_created: None,
        not_ready: BTreeMap::new(),
        in_order: false,
        nodes,
        crowd: Crowd::default(),
    }
}

/// Updates the fields of the fleet that are not about single nodes.
fn update_common_fields(
    set: &mut SetRecord,
    around: &Surroundings<'_>,
    kept: &mut Fleet,
    record: Option<FailureRecord>,
) {
    let Surroundings {
        key,
        revisions,
        basis,
        ..
    } = *around;
    let target = basis.state.current();
    let known = target.and_then(|target| revisions.iter().find(|known| known.hash == *target));
    (kept.made, kept.adopted) = (known.and_then(|known| known.made), basis.adopted);
    // Older ControllerRevisions may have been deleted. Even then, outdated pods or the guard's record show that the current
    // revision is not the first one.
    let has = |nodes: &[Node], revision: PodRevision| {
        let mut pods = nodes.iter().flat_map(|node| &node.pods);
        pods.any(|pod| pod.revision == revision)
    };
    kept.replaces = revisions.len() > 1
        || (record.as_ref()).is_some_and(|record| Some(&record.revision) == target)
        || kept.crowd.outdated > 0
        || has(&kept.nodes, PodRevision::Outdated);
    kept.revision = match &basis.state {
        RevisionState::Current(_) if has(&kept.nodes, PodRevision::Unknown) => {
            RevisionState::Unknown(RevisionUnknown::UnknownRevision)
        }
        state => state.clone(),
    };
    let candidates = target
        .map(|current| RollbackCandidates::new(revisions, current, &set.rollback_mark))
        .unwrap_or_default();
    let before = candidates.revisions.into_iter();
    kept.earlier = before
        .map(|known| (known.hash.clone(), known.number))
        .collect();
    kept.undone = target.and_then(|current| undone(revisions, current));
    kept.evictions = set.evictions.clone();
    kept.write_failures = set.refusals(target, &kept.nodes);
    kept.transitions = set.transitions(&basis.state, revisions);
    kept.rollback_targets = set.rollback_targets(&basis.state, revisions);
    kept.record = record;
    kept.pause = set.last_pause();
    kept.kind = key.kind;
    kept.not_created = set.not_created();
    kept.not_ready = set.not_ready();
    kept.in_order = around.in_order;
}

/// Nodes of a fleet that is being built. Some are listed, the others are counted in `crowd`.
struct List {
    /// Listed nodes, sorted by name.
    nodes: Vec<Node>,
    crowd: Option<CrowdIndex>,
}

impl List {
    /// Builds all nodes that should run a pod or have one. Nodes that need not be listed are counted.
    fn of_all(set: &mut SetRecord, around: &Surroundings<'_>, crowd: Option<CrowdIndex>) -> Self {
        set.keep_held(|name| around.nodes.contains_key(name));
        let names = names(set, around);
        let room = if crowd.is_some() { 0 } else { names.len() };
        let mut list = Self {
            nodes: Vec::with_capacity(room),
            crowd,
        };
        for name in names {
            let node = node(set, around, &name);
            let looked_at = list.looked_at(&name, node, around.now);
            list.nodes.extend(looked_at);
        }
        list
    }

    /// Builds the node `name` again.
    fn renew(&mut self, set: &mut SetRecord, around: &Surroundings<'_>, name: &NodeName) {
        let node = node(set, around, name);
        let looked_at = self.looked_at(name, node, around.now);
        place(&mut self.nodes, name, looked_at);
    }

    /// Returns the node if it has to be listed; otherwise counts it and returns `None`.
    fn looked_at(&mut self, name: &NodeName, node: Option<Node>, now: Timestamp) -> Option<Node> {
        let Some(crowd) = &mut self.crowd else {
            return node;
        };
        match node {
            Some(node) => (!crowd.take(&node, now)).then_some(node),
            None => {
                crowd.forget(name);
                None
            }
        }
    }

    /// Moves waiting nodes between the list and the counts until the list has as many waiting nodes as the crowd index wants.
    fn balance(&mut self, set: &mut SetRecord, around: &Surroundings<'_>) {
        let next = |crowd: &mut CrowdIndex| crowd.next_to_show().or_else(|| crowd.next_to_hide());
        while let Some(name) = self.crowd.as_mut().and_then(next) {
            self.renew(set, around, &name);
        }
    }
}

/// Returns the names of all nodes that may belong to the fleet, sorted.
fn names(set: &SetRecord, around: &Surroundings<'_>) -> Vec<NodeName> {
    let nodes = around.nodes;
    let lost = set
        .places_of_pods()
        .filter(|name| !nodes.contains_key(name));
    let mut names: Vec<NodeName> = lost.chain(nodes.keys()).cloned().collect();
    names.sort();
    names
}

/// Returns a node with its pods; `None` if the node has no pod and should run none.
fn node(set: &mut SetRecord, around: &Surroundings<'_>, name: &NodeName) -> Option<Node> {
    let Surroundings {
        key,
        nodes,
        revisions,
        basis,
        now,
        ..
    } = *around;
    let pods = set.judged_pods(name, &basis.state, revisions);
    let Some(record) = nodes.get(name) else {
        set.keep_held(|held| held != name);
        let gone = Node {
            name: name.clone(),
            labels: crate::core::Labels::default(),
            hold: None,
            window: None,
            targeting: Targeting::No,
            native: Targeting::No,
            readiness: Readiness::Gone,
            pods,
            losses: None,
            cut_off: false,
            podless_since: None,
            disrupted_at: None,
            emptied: false,
            kept_away_by: None,
            had_pod: false,
            trouble: None,
            has_images: false,
        };
        return (!gone.pods.is_empty()).then_some(gone);
    };
    let facts = record.facts(name);
    let targeting = set.scheduling.targeting(&facts);
    let emptied = set.is_emptied(name);
    if pods.is_empty() && targeting != Targeting::Run && !emptied {
        set.podless.remove(name);
        return None;
    }
    let images = basis.images.as_deref();
    let has_images = images.is_some_and(|all| set.has_images(name, record, all, revisions));
    let podless = pods.iter().all(|pod| pod.surge);
    let podless = podless.then_some(targeting == Targeting::Run);
    let podless_since = set.note_podless(name, podless, now);
    let trouble = set.trouble(name, &basis.state, now);
    let kept_away_by = emptied.then(|| set.scheduling.obstacle(&record.facts(name)));
    let kept_away_by = kept_away_by.flatten().map(|it| it.to_string().into());
    let disrupted_at = set.disrupted_at(name, &basis.state, basis.adopted);
    Some(Node {
        name: name.clone(),
        labels: record.labels(),
        hold: record.holds.get(&key.namespace, &key.name).cloned(),
        window: record.window.clone(),
        targeting,
        native: if set.is_advanced() {
            set.scheduling.native_targeting(&record.facts(name))
        } else {
            targeting
        },
        readiness: if set.has_unreadable_pod_on(name) {
            Readiness::Unreadable
        } else {
            record.readiness
        },
        losses: record.losses.clone(),
        cut_off: record.is_cut_off(),
        pods,
        podless_since,
        disrupted_at,
        emptied,
        kept_away_by,
        had_pod: set.had_pod(name),
        trouble: trouble.map(Box::new),
        has_images,
    })
}

/// Returns the nodes that were lost after their pod was deleted for the current revision, from the guard's record.
fn lost_while_touched(record: Option<&FailureRecord>, state: &RevisionState) -> BTreeSet<NodeName> {
    let is_about =
        |record: &&FailureRecord| *state == RevisionState::Current(record.revision.clone());
    let touched = record
        .filter(is_about)
        .map(|record| record.updated_before_loss.clone());
    touched.unwrap_or_default()
}

/// Inserts, replaces or removes the node `name` in `nodes`, which are sorted by name.
fn place(nodes: &mut Vec<Node>, name: &NodeName, node: Option<Node>) {
    match (position_of(nodes, name), node) {
        (Ok(position), Some(node)) => nodes[position] = node,
        (Ok(position), None) => drop(nodes.remove(position)),
        (Err(position), Some(node)) => nodes.insert(position, node),
        (Err(_), None) => {}
    }
}
