//! Order in which the nodes that may be replaced now are updated.
//!
//! | rank | criterion | reason |
//! |---|---|---|
//! | 1 | wave | nodes of earlier waves that return late are updated at once |
//! | 2 | broken old pods before available ones | a repair makes no node unavailable |
//! | 3 | unfinished revision before older ones | fix-forward: that revision may be the broken one (zone-aware-controllers#6) |
//! | 4 | on the unfinished revision: newest pod first | the newest pod has run for the shortest time |
//! | 5 | name of the node, by the [`NodeOrder`] of the strategy | makes the order total |
//!
//! # Unfinished revision
//! Among the revisions of waiting nodes, the one with the greatest number is unfinished if its rollout did not complete. Either of
//! these facts shows an incomplete rollout:
//!
//! - Another waiting node still runs an older revision.
//! - A node kept a pod of the current revision that is older than a pod of the unfinished revision. Then an operator rolled back in
//!   the middle of the rollout.
//!
//! Both facts follow from pods and the numbers of ControllerRevisions, so a restart of the controller doesn't change the order.
//! Only online nodes that take part count. An offline node that missed an update doesn't make a revision unfinished.

use std::cmp::Reverse;

use k8s_openapi::jiff::Timestamp;

use super::class::Class;
use super::pod_summary::PodSummary;
use super::scope::RolloutScope;
use crate::core::fleet::{Crowd, Fleet};
use crate::core::settings::{NodeOrder, Strategy};

/// Order in which one plan updates nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order {
    /// Number of the unfinished revision, if any.
    unfinished: Option<i64>,
    names: NodeOrder,
}

/// Place of a node in the queue. The node with the smallest place is updated first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Turn {
    pub(super) wave: usize,
    /// True if the node's old pod is available.
    pub(super) available: bool,
    /// False if the node runs the unfinished revision, and is therefore updated earlier.
    untouched: bool,
    /// Time at which the node's pod got the unfinished revision; `None` if the pod has another revision.
    made: Reverse<Option<Timestamp>>,
    /// Rank by name under the strategy's [`NodeOrder`]; the lowest is updated first.
    place: usize,
    /// Position in the fleet, which is sorted by name.
    pub(super) position: usize,
}

impl Order {
    /// Returns the order in which the outdated nodes of a fleet are updated.
    pub(super) fn new(
        strategy: &Strategy,
        fleet: &Fleet,
        classes: &[Class],
        summary: &PodSummary<'_>,
        scope: &RolloutScope,
    ) -> Self {
        let unfinished = fleet
            .replaces
            .then(|| unfinished(classes, &fleet.crowd, summary, scope))
            .flatten();
        Self {
            unfinished,
            names: strategy.order,
        }
    }

    /// Returns true if nodes of one wave with available old pods are ordered by their names alone.
    pub(super) fn is_by_name(&self) -> bool {
        self.unfinished.is_none()
    }

    /// Returns the place of the outdated node at `position`.
    pub(super) fn turn(
        &self,
        summary: &PodSummary<'_>,
        position: usize,
        wave: usize,
        available: bool,
    ) -> Turn {
        let asked = self.unfinished.and_then(|_| summary.living(position));
        let unfinished = asked.filter(|pod| Some(pod.number) == self.unfinished);
        Turn {
            wave,
            available,
            untouched: unfinished.is_none(),
            made: Reverse(unfinished.map(|pod| pod.revised)),
            place: match self.names {
                NodeOrder::Ascending => position,
                NodeOrder::Descending => usize::MAX - position,
            },
            position,
        }
    }
}

/// Returns the number of the unfinished revision, which was replaced before its rollout completed.
fn unfinished(
    classes: &[Class],
    crowd: &Crowd,
    summary: &PodSummary<'_>,
    scope: &RolloutScope,
) -> Option<i64> {
    // For the waiting nodes, find the smallest and the greatest revision number, and the newest pod with the greatest number. For
    // the done nodes, find the oldest pod.
    let numbers = crowd.numbers.filter(|_| crowd.waiting > 0);
    let mut newest = numbers
        .map(|(_, greatest)| greatest)
        .zip(crowd.newest_waiting);
    let mut least = numbers.map(|(least, _)| least);
    let mut oldest_current = crowd.oldest_done.filter(|_| crowd.done > 0);
    for (position, class) in classes.iter().enumerate() {
        let is_waiting = matches!(
            class,
            Class::Outdated { settling: None, .. } | Class::PreDeleteHook { .. }
        );
        if !is_waiting && *class != Class::Done {
            continue;
        }
        if !scope.contains(position) {
            continue;
        }
        let Some(pod) = summary.living(position) else {
            continue;
        };
        if is_waiting {
            newest = newest.max(Some((pod.number, pod.revised)));
            least = Some(least.map_or(pod.number, |least| least.min(pod.number)));
        } else {
            oldest_current = Some(oldest_current.map_or(pod.revised, |at| at.min(pod.revised)));
        }
    }
    let (number, made) = newest?;
    let is_older_left = least.is_some_and(|least| least < number);
    let is_rolled_back = oldest_current.is_some_and(|oldest| oldest < made);
    (is_older_left || is_rolled_back).then_some(number)
}

#[cfg(test)]
mod tests {
    use crate::core::fleet::Node;
    use crate::core::testing::{at, current, fleet, node, old};
    use crate::core::{Action, IntOrPercent, Mode, Strategy, decide};

    /// Returns the nodes in the order in which one plan replaces their pods.
    fn order(nodes: Vec<Node>) -> Vec<String> {
        let strategy = Strategy {
            max_unavailable: IntOrPercent::Percent(100),
            ..Strategy::with_mode(Mode::AdvancedRollingUpdate)
        };
        let plan = decide(&strategy, &fleet(nodes), at(1_000));
        let name = |action: &Action| action.pod().name.to_string();
        plan.actions.iter().map(name).collect()
    }

    #[test]
    fn a_plain_rollout_follows_the_node_names() {
        let nodes = vec![
            node("a", old(1).made(30)),
            node("b", current(2).made(500)),
            node("c", old(1).made(40)),
        ];
        assert_eq!(order(nodes), ["a", "c"]);
    }

    #[test]
    fn pods_of_an_unfinished_revision_are_updated_first_newest_first() {
        let nodes = vec![
            node("a", old(1).made(30)),
            node("b", old(2).made(40)),
            node("c", old(2).made(50)),
            node("d", old(1).made(60).broken()),
        ];
        assert_eq!(order(nodes), ["d", "c", "b", "a"]);
    }

    #[test]
    fn a_rollback_during_a_rollout_starts_with_the_last_updated_nodes() {
        let nodes = vec![
            node("a", current(3).made(10)),
            node("b", old(2).made(40)),
            node("c", old(2).made(50)),
        ];
        assert_eq!(order(nodes), ["c", "b"]);
    }

    #[test]
    fn an_offline_node_does_not_make_a_revision_unfinished() {
        let nodes = vec![
            node("a", old(1).made(30)).away(),
            node("b", old(2).made(40)),
            node("c", old(2).made(50)),
        ];
        assert_eq!(order(nodes), ["b", "c"]);
    }
}
