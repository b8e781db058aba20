//! In which order the nodes that may be replaced now have their turn.
//!
//! | rank | what decides | why |
//! |---|---|---|
//! | 1 | the wave | late returners of earlier waves are served at once |
//! | 2 | a broken old pod before an available one | a repair takes nothing away |
//! | 3 | the unfinished revision before older ones | fix-forward: that revision may be what is broken (zone-aware-controllers#6) |
//! | 4 | on the unfinished revision: the pod made last first | it has been looked at the least |
//! | 5 | the name of the node, by the [`NodeOrder`] of the strategy | somebody has to be first |
//!
//! # What is unfinished
//! Of the revisions that waiting nodes run, the one with the greatest number is unfinished when the fleet itself shows
//! that it never reached everybody: another waiting node runs an older revision still, or (a rollback in the middle of a
//! rollout) a node kept a pod of what is now the current revision, made before a pod of that one. Both follow from pods and
//! the numbers of ControllerRevisions, so a restart of the controller changes no order. Only nodes that are online and take
//! part are looked at: a straggler that is away makes nobody's rollout unfinished.

use std::cmp::Reverse;

use k8s_openapi::jiff::Timestamp;

use super::class::Class;
use super::pod_summary::PodSummary;
use super::scope::RolloutScope;
use crate::core::fleet::{Crowd, Fleet};
use crate::core::settings::{NodeOrder, Strategy};

/// The order of one pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order {
    /// The number of the revision whose rollout was overtaken.
    unfinished: Option<i64>,
    names: NodeOrder,
}

/// Where a node stands in the queue: the least is first. Positions in a fleet are in the order of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Turn {
    /// Its wave.
    pub(super) wave: usize,
    /// Whether its old pod is available.
    pub(super) available: bool,
    /// Whether it never met the unfinished revision.
    untouched: bool,
    /// When its pod of the unfinished revision was made.
    made: Reverse<Option<Timestamp>>,
    /// Its place by name: less is earlier.
    place: usize,
    /// Its position in the fleet.
    pub(super) position: usize,
}

impl Order {
    /// The order in which the outdated nodes of a fleet are served.
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

    /// Whether nodes of one wave whose old pods serve have their turns by name alone.
    pub(super) fn is_by_name(&self) -> bool {
        self.unfinished.is_none()
    }

    /// Where the outdated node at `position` stands.
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

/// The number of the revision that was overtaken before it reached everybody.
fn unfinished(
    classes: &[Class],
    crowd: &Crowd,
    summary: &PodSummary<'_>,
    scope: &RolloutScope,
) -> Option<i64> {
    // The greatest number with its newest pod, the least number, the oldest pod of the current revision.
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

    /// Nodes in the order in which they are replaced, one at a time, when everything else stays as it is.
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
    fn a_plain_rollout_goes_by_name() {
        let nodes = vec![
            node("a", old(1).made(30)),
            node("b", current(2).made(500)),
            node("c", old(1).made(40)),
        ];
        assert_eq!(order(nodes), ["a", "c"]);
    }

    #[test]
    fn an_overtaken_revision_goes_first_and_its_newest_pod_before_all() {
        let nodes = vec![
            node("a", old(1).made(30)),
            node("b", old(2).made(40)),
            node("c", old(2).made(50)),
            node("d", old(1).made(60).broken()),
        ];
        assert_eq!(order(nodes), ["d", "c", "b", "a"]);
    }

    #[test]
    fn a_rollback_in_the_middle_begins_with_what_was_updated_last() {
        let nodes = vec![
            node("a", current(3).made(10)),
            node("b", old(2).made(40)),
            node("c", old(2).made(50)),
        ];
        assert_eq!(order(nodes), ["c", "b"]);
    }

    #[test]
    fn a_straggler_that_is_away_makes_no_revision_unfinished() {
        let nodes = vec![
            node("a", old(1).made(30)).away(),
            node("b", old(2).made(40)),
            node("c", old(2).made(50)),
        ];
        assert_eq!(order(nodes), ["b", "c"]);
    }
}
