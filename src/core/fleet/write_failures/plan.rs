//! Selection of the rejected writes that a plan may retry.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;

use super::{FailureKey, PER_SECOND, SECOND, WriteFailure, WriteFailures, WriteGroup, WriteVerb};
use crate::core::action::Action;
use crate::core::fleet::{Node, Pod, by_name};
use crate::core::id::{NodeName, PodUid};
use crate::core::instant::later;

/// Rejected writes of one plan. The gate decides which of them the plan may retry.
#[derive(Debug)]
pub(in crate::core) struct RetryGate<'a> {
    write_failures: &'a WriteFailures,
    /// Writes that may not be retried now.
    held: BTreeSet<&'a FailureKey>,
    /// Earliest time at which more writes may be retried.
    wake: Option<Timestamp>,
    /// True if so many writes were rejected in this second that no new node is tried before its end.
    is_full: bool,
    /// Node of each pod. Only nodes with a rejected write are included.
    places: BTreeMap<&'a PodUid, &'a NodeName>,
}

impl<'a> RetryGate<'a> {
    /// Returns the gate at `now`. If several retries are due, the oldest come first. `nodes` must be sorted by name.
    pub(in crate::core) fn new(
        write_failures: &'a WriteFailures,
        nodes: &'a [Node],
        now: Timestamp,
    ) -> Self {
        let mut recent: Vec<Timestamp> = write_failures
            .by_place
            .values()
            .map(|one| one.asked)
            .collect();
        recent.retain(|asked| later(*asked, SECOND) > now);
        let room = PER_SECOND.saturating_sub(recent.len());
        let (mut due, early): (Vec<_>, Vec<_>) =
            (write_failures.by_place.iter()).partition(|(_, failure)| failure.due() <= now);
        due.sort_by_key(|(place, failure)| (failure.asked, *place));
        let late = due.split_off(room.min(due.len()));
        let is_full = room == 0;
        let next_second = (is_full || !late.is_empty()).then(|| {
            let oldest = recent.iter().min();
            oldest.map_or_else(|| later(now, SECOND), |oldest| later(*oldest, SECOND))
        });
        let wake = early.iter().map(|(_, failure)| failure.due());
        let wake = wake.chain(next_second).min();
        let held = early.into_iter().chain(late).map(|(place, _)| place);
        Self {
            write_failures,
            held: held.collect(),
            wake,
            is_full,
            places: write_failures.places(nodes),
        }
    }

    /// Returns how many of `batch` actions may begin now: all, or none until the next second.
    pub(in crate::core) fn room(&self, batch: usize) -> usize {
        if self.is_full { 0 } else { batch }
    }

    /// Returns true if no new node is tried before the end of this second.
    pub(in crate::core) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Returns true if a write of this group may be tried on the node now.
    pub(in crate::core) fn may(&self, node: &NodeName, part: WriteGroup) -> bool {
        self.held.is_empty() || !self.held.contains(&(node.clone(), part))
    }

    /// Returns the rejection of a write of this group on the node, even if the write may be retried now.
    pub(in crate::core) fn at(
        &self,
        node: &NodeName,
        part: WriteGroup,
    ) -> Option<&'a WriteFailure> {
        self.write_failures.at(node, part)
    }

    /// Returns `actions` without the writes that may not be retried now, and the time at which more may be retried.
    pub(in crate::core) fn without_held(
        &self,
        actions: Vec<Action>,
    ) -> (Vec<Action>, Option<Timestamp>) {
        if self.held.is_empty() {
            return (actions, None);
        }
        let before = actions.len();
        let may = |action: &Action| {
            let place = self.place(action);
            place.is_none_or(|place| !self.held.contains(&place))
        };
        let tried: Vec<Action> = actions.into_iter().filter(may).collect();
        let wake = self.wake.filter(|_| tried.len() < before);
        (tried, wake)
    }

    /// Returns true if `action` retries a rejected write. A retry counts as progress of the rollout only when the API server
    /// accepts it.
    pub(in crate::core) fn is_again(&self, action: &Action) -> bool {
        self.refused_at(action).is_some()
    }

    /// Returns the keys of those `actions` that retry a rejected write.
    pub(in crate::core) fn again<'b>(
        &self,
        actions: impl Iterator<Item = &'b Action>,
    ) -> BTreeSet<FailureKey> {
        actions
            .filter_map(|action| self.refused_at(action))
            .collect()
    }

    fn refused_at(&self, action: &Action) -> Option<FailureKey> {
        if self.write_failures.by_place.is_empty() {
            return None;
        }
        let place = self.place(action)?;
        self.write_failures
            .by_place
            .contains_key(&place)
            .then_some(place)
    }

    fn place(&self, action: &Action) -> Option<FailureKey> {
        let part = WriteVerb::from_action(action).part();
        let node = match action {
            Action::Surge { node, .. } => Some(node),
            action => self.places.get(&action.pod().uid).copied(),
        };
        node.map(|node| (node.clone(), part))
    }

    /// Returns the time at which more writes may be retried if nothing else changes.
    pub(in crate::core) fn wake(&self) -> Option<Timestamp> {
        self.wake
    }
}

impl WriteFailures {
    /// Returns `actions` without the writes that may not be retried at `now`.
    ///
    /// Also returns the time at which more may be retried, and the rejections that concern the actions. `nodes` must be sorted by
    /// name.
    pub fn without_held(
        &self,
        nodes: &[Node],
        actions: Vec<Action>,
        now: Timestamp,
    ) -> (Vec<Action>, Option<Timestamp>, Self) {
        let retry_gate = RetryGate::new(self, nodes, now);
        let refused = self.only(&retry_gate.again(actions.iter()));
        let (actions, again) = retry_gate.without_held(actions);
        (actions, again, refused)
    }

    /// Returns true if a rejected deletion of the pod was requested again, and the API server hasn't answered.
    pub(in crate::core) fn is_in_doubt(&self, node: &Node, pod: &Pod) -> bool {
        pod.in_doubt && self.at(&node.name, WriteGroup::Step).is_some()
    }

    /// Returns the record and the nodes as they would be if the API server rejected all retries: the retries in `actions`, and the
    /// retries that it has not answered yet.
    ///
    /// Returns `None` if there are no retries. `nodes` must be sorted by name.
    pub(in crate::core) fn tried_in_vain(
        &self,
        nodes: &[Node],
        actions: &[Action],
        now: Timestamp,
    ) -> Option<(Self, Vec<Node>)> {
        if self.by_place.is_empty() {
            return None;
        }
        let retry_gate = RetryGate::new(self, nodes, now);
        let mut tried = retry_gate.again(actions.iter().filter(|action| action.begins()));
        let in_doubt = nodes.iter().filter(|node| {
            let mut pods = node.pods.iter();
            pods.any(|pod| self.is_in_doubt(node, pod))
        });
        tried.extend(in_doubt.map(|node| (node.name.clone(), WriteGroup::Step)));
        let mut then = Some(self.clone()).filter(|_| !tried.is_empty())?;
        let mut nodes = nodes.to_vec();
        for node in &mut nodes {
            if tried.contains(&(node.name.clone(), WriteGroup::Step)) {
                for pod in node.pods.iter_mut().filter(|pod| pod.in_doubt) {
                    (pod.in_doubt, pod.terminating) = (false, false);
                }
            }
        }
        for (_, failure) in then
            .by_place
            .iter_mut()
            .filter(|(at, _)| tried.contains(at))
        {
            // Pretend that the attempt was a second ago. Rejections in the current second count against the limit and would delay
            // other nodes.
            (failure.asked, failure.times) = (now - SECOND, u32::MAX);
        }
        Some((then, nodes))
    }

    /// Returns the rejected writes to existing pods on the nodes for which `such` is true. `nodes` must be sorted by name.
    pub fn of_pods_on(&self, nodes: &[Node], such: impl Fn(&Node) -> bool) -> Self {
        let places = self.by_place.keys().filter(|(name, part)| {
            *part == WriteGroup::Step && by_name(nodes, name).is_some_and(&such)
        });
        self.only(&places.cloned().collect())
    }

    pub(in crate::core) fn only(&self, places: &BTreeSet<FailureKey>) -> Self {
        let by_place = self.by_place.iter();
        let by_place = by_place.filter(|(place, _)| places.contains(place));
        Self {
            revision: self.revision.clone(),
            by_place: by_place
                .map(|(place, failure)| (place.clone(), failure.clone()))
                .collect(),
            ..Self::default()
        }
    }

    /// Returns the node of each pod, for nodes with a rejected write.
    fn places<'a>(&self, nodes: &'a [Node]) -> BTreeMap<&'a PodUid, &'a NodeName> {
        let names: BTreeSet<&NodeName> = self.by_place.keys().map(|(name, _)| name).collect();
        let found = names.into_iter().filter_map(|name| by_name(nodes, name));
        let pods = found.flat_map(|node| node.pods.iter().map(|pod| (&pod.uid, &node.name)));
        pods.collect()
    }
}
