//! Index of the nodes that a fleet counts instead of listing them. It is kept between decisions (see
//! [`crowd`](crate::core::engine::crowd)).

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;

use crate::core::action::BATCH;
use crate::core::engine::crowd::{Bystander, Standing, named};
use crate::core::{Crowd, FailureRecord, Node, NodeName, NodeOrder, Strategy};

/// Usual number of waiting nodes that are listed: about as many as one decision in the middle of a rollout updates.
const FEW: usize = 16;

/// Counted nodes of a fleet, by their state.
#[derive(Debug)]
pub(super) struct CrowdIndex {
    strategy: Strategy,
    /// The fields `in_order` and `is_proven` of the fleet for which the nodes were counted.
    fleet_flags: [bool; 2],
    done: BTreeSet<NodeName>,
    /// Counted nodes that wait for their update, sorted by name. They are updated in this order, or in the reverse order
    /// ([`NodeOrder`]).
    waiting: BTreeSet<NodeName>,
    /// Listed nodes that wait for their update. They are updated before the nodes in `waiting`.
    shown: BTreeSet<NodeName>,
    /// Intended size of `shown`.
    window: usize,
    /// Counted nodes that are offline or being updated, with the time at which they have to be evaluated again.
    others: BTreeMap<NodeName, (Standing, Option<Timestamp>)>,
    /// The times in `others`, sorted.
    deadlines: BTreeSet<(Timestamp, NodeName)>,
    /// Nodes that the guard's record contains. They are always listed.
    named: BTreeSet<NodeName>,
    numbers: Crowd,
}

impl CrowdIndex {
    pub(super) fn new(
        strategy: &Strategy,
        record: Option<&FailureRecord>,
        fleet_flags: [bool; 2],
    ) -> Self {
        Self {
            strategy: strategy.clone(),
            fleet_flags,
            done: BTreeSet::new(),
            waiting: BTreeSet::new(),
            shown: BTreeSet::new(),
            window: FEW,
            others: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            named: named(record).cloned().collect(),
            numbers: Crowd::default(),
        }
    }

    /// Returns true if the index was built for this strategy and these fields of the fleet.
    pub(super) fn is_of(&self, strategy: &Strategy, fleet_flags: [bool; 2]) -> bool {
        self.fleet_flags == fleet_flags && self.strategy == *strategy
    }

    /// Returns the counts for the fleet.
    pub(super) fn numbers(&self) -> Crowd {
        Crowd {
            next: self.next_waiting().cloned(),
            wake: self.deadlines.first().map(|(at, _)| *at),
            ..self.numbers.clone()
        }
    }

    /// Returns the nodes to evaluate again at `now`: nodes whose deadline has passed, and nodes that were added to the guard's
    /// record or removed from it.
    pub(super) fn due(&mut self, record: Option<&FailureRecord>, now: Timestamp) -> Vec<NodeName> {
        let deadlines = self.deadlines.iter();
        let late = deadlines.take_while(|(at, _)| *at <= now);
        let mut due: Vec<NodeName> = late.map(|(_, name)| name.clone()).collect();
        let is_known = |name: &NodeName| self.named.contains(name);
        if named(record).count() != self.named.len() || !named(record).all(is_known) {
            let named = named(record).cloned().collect();
            due.extend(self.named.symmetric_difference(&named).cloned());
            self.named = named;
        }
        due
    }

    /// Evaluates a node at `now`. Returns true if it is counted, so that it must not be listed.
    pub(super) fn take(&mut self, node: &Node, now: Timestamp) -> bool {
        self.forget(&node.name);
        let bystander = Bystander::new(&self.strategy, node, self.fleet_flags, now);
        let Some(bystander) = bystander.filter(|_| !self.named.contains(&node.name)) else {
            return false;
        };
        let name = node.name.clone();
        match bystander.standing {
            Standing::Waiting if self.is_shown(&name) => {
                self.shown.insert(name);
                return false;
            }
            Standing::Waiting => drop(self.waiting.insert(name)),
            Standing::Done => drop(self.done.insert(name)),
            standing => {
                let deadline = bystander.until.map(|until| (until, name.clone()));
                self.deadlines.extend(deadline);
                self.others.insert(name, (standing, bystander.until));
            }
        }
        self.numbers.add(&bystander);
        true
    }

    pub(super) fn forget(&mut self, name: &NodeName) {
        if self.shown.remove(name) {
            return;
        }
        let standing = if self.done.remove(name) {
            Standing::Done
        } else if self.waiting.remove(name) {
            Standing::Waiting
        } else if let Some((standing, until)) = self.others.remove(name) {
            if let Some(until) = until {
                self.deadlines.remove(&(until, name.clone()));
            }
            standing
        } else {
            return;
        };
        self.numbers.remove(standing);
    }

    /// Returns true if the node is counted as one with an available pod of the current revision.
    pub(super) fn counts_as_done(&self, name: &NodeName) -> bool {
        self.done.contains(name)
    }

    pub(super) fn counts(&self, name: &NodeName) -> bool {
        self.standing(name).is_some()
    }

    /// Returns true if the index is correct about the node at `now`: it counts the node in its actual state, or the node has to be
    /// listed and isn't counted.
    pub(super) fn agrees(&self, name: &NodeName, node: Option<&Node>, now: Timestamp) -> bool {
        let is = node.and_then(|node| Bystander::new(&self.strategy, node, self.fleet_flags, now));
        let is = is.map(|bystander| bystander.standing);
        self.standing(name) == is && !(is.is_some() && self.named.contains(name))
    }

    fn standing(&self, name: &NodeName) -> Option<Standing> {
        let done = self.done.contains(name).then_some(Standing::Done);
        let waiting = || self.waiting.contains(name).then_some(Standing::Waiting);
        let other = || self.others.get(name).map(|(standing, _)| *standing);
        done.or_else(waiting).or_else(other)
    }

    /// Returns the counted waiting node that is updated first.
    fn next_waiting(&self) -> Option<&NodeName> {
        match self.strategy.order {
            NodeOrder::Ascending => self.waiting.first(),
            NodeOrder::Descending => self.waiting.last(),
        }
    }

    /// Returns true if a waiting node has to be listed: it is updated before a listed one, or the list has room for the next node.
    fn is_shown(&self, name: &NodeName) -> bool {
        let order = self.strategy.order;
        let is_before = |other: &NodeName| order.is_before(name, other);
        let has_room = self.shown.len() < self.window;
        let last = match order {
            NodeOrder::Ascending => self.shown.last(),
            NodeOrder::Descending => self.shown.first(),
        };
        last.is_some_and(is_before) || has_room && self.next_waiting().is_none_or(is_before)
    }

    /// Returns the next counted node to list; `None` if enough waiting nodes are listed.
    pub(super) fn next_to_show(&self) -> Option<NodeName> {
        let has_room = self.shown.len() < self.window;
        self.next_waiting().filter(|_| has_room).cloned()
    }

    /// Removes the listed waiting node that is updated last, and returns it. Does nothing and returns `None` unless too many nodes
    /// are listed.
    ///
    /// The caller passes the node to [`take`](Self::take), which counts it.
    pub(super) fn next_to_hide(&mut self) -> Option<NodeName> {
        let is_crowded = self.shown.len() > 2 * self.window;
        let pop = |shown: &mut BTreeSet<NodeName>| match self.strategy.order {
            NodeOrder::Ascending => shown.pop_last(),
            NodeOrder::Descending => shown.pop_first(),
        };
        is_crowded.then(|| pop(&mut self.shown)).flatten()
    }

    /// Increases the number of waiting nodes to list. Returns false if the number already was the maximum.
    pub(super) fn show_more(&mut self) -> bool {
        std::mem::replace(&mut self.window, BATCH) < BATCH
    }

    /// Reduces the number of waiting nodes to list to the usual one.
    pub(super) fn show_few(&mut self) {
        self.window = FEW;
    }
}
