//! Outdated nodes that a setting excludes from the rollout, so that they keep their old revision.
//!
//! `selector` selects the nodes that take part. `partition` is the number of nodes that keep the old revision. `hold` on a Node
//! excludes that node for some time. `selector` and `partition` work as in the KEP "RollingUpdate enhancement" and in Kruise's
//! Advanced DaemonSet.
//!
//! If another client deletes a pod on an excluded node, the new pod has the current revision. Pods are only rolled back from a
//! revision that the guard stopped (`revert`).

use k8s_openapi::jiff::Timestamp;

use super::class::{Class, Excluded};
use super::pod_summary::PodSummary;
use super::progressive;
use crate::core::fleet::{Fleet, Node};
use crate::core::settings::{Mode, NodeOrder, Strategy};
use crate::core::verdict::Progress;

/// Nodes that take part according to `selector` and `hold`. [`narrow`](Self::narrow) also applies `partition`.
#[derive(Debug)]
pub(super) struct RolloutScope {
    /// Reason why a node is excluded, by position in the fleet. Nodes after the end of the list take part.
    outside: Vec<Option<Excluded>>,
}

impl RolloutScope {
    /// Creates a scope without exclusions, with capacity for `nodes`.
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            outside: Vec::with_capacity(nodes),
        }
    }

    /// Adds the node at `position` as of `now`; called in the order of the fleet.
    pub(super) fn note(
        &mut self,
        strategy: &Strategy,
        position: usize,
        node: &Node,
        now: Timestamp,
    ) {
        let rolls = strategy.mode == Mode::AdvancedRollingUpdate;
        if rolls && let Some(kept) = outside(strategy, node, now) {
            self.outside.resize(position, None);
            self.outside.push(Some(kept));
        }
    }

    pub(super) fn contains(&self, position: usize) -> bool {
        self.reason(position).is_none()
    }

    /// Returns false if `selector` doesn't match the node at `position`. A node that is excluded by `hold` counts as selected.
    pub(super) fn is_selected(&self, position: usize) -> bool {
        self.reason(position) != Some(Excluded::NotSelected)
    }

    fn reason(&self, position: usize) -> Option<Excluded> {
        self.outside.get(position).copied().flatten()
    }

    /// Returns the earliest end of a hold, after which a node takes part again; `None` if no hold ends automatically.
    pub(super) fn next_change(&self) -> Option<Timestamp> {
        let outside = self.outside.iter().flatten();
        let ends = outside.filter_map(|kept| match kept {
            Excluded::Held(until) => *until,
            Excluded::NotSelected | Excluded::Partition => None,
        });
        ends.min()
    }

    /// Turns the classes of excluded outdated nodes into [`Class::Excluded`].
    ///
    /// Offline nodes are excluded in the same way, so that going offline doesn't change which nodes `partition` keeps. `partition`
    /// keeps no node on the revision that an operator rolled back from ([`Fleet::undone`]).
    pub(super) fn narrow(
        &self,
        strategy: &Strategy,
        fleet: &Fleet,
        summary: &PodSummary<'_>,
        classes: &mut [Class],
    ) {
        if strategy.mode != Mode::AdvancedRollingUpdate {
            return;
        }
        for (position, (class, outside)) in classes.iter_mut().zip(&self.outside).enumerate() {
            if let Some(kept) = *outside
                && is_old(summary, position, class)
            {
                *class = Class::Excluded(kept);
            }
        }
        if !strategy.partition.is_zero() {
            keep_partition(strategy, fleet.undone, summary, classes);
            if strategy.partitioned {
                keep_empty(strategy, fleet, classes);
            }
        }
    }
}

/// Returns the reason why a node is excluded. If both `hold` and `selector` exclude it, the reason is `hold`.
fn outside(strategy: &Strategy, node: &Node, now: Timestamp) -> Option<Excluded> {
    let hold = node.hold.as_ref().filter(|hold| hold.holds(now));
    let is_selected = || {
        let selector = strategy.selector.as_ref();
        selector.is_none_or(|selector| selector.matches(|key| node.labels.get(key)))
    };
    match hold {
        Some(hold) => Some(Excluded::Held(hold.until)),
        None => (!is_selected()).then_some(Excluded::NotSelected),
    }
}

/// Excludes as many outdated nodes as `partition` asks for: the ones that would be updated last.
fn keep_partition(
    strategy: &Strategy,
    undone: Option<i64>,
    summary: &PodSummary<'_>,
    classes: &mut [Class],
) {
    let may_stay = |position: usize, class: &Class| {
        let number = || summary.living(position).map(|pod| pod.number);
        is_old(summary, position, class) && (undone.is_none() || number() != undone)
    };
    let (mut targeted, mut old, mut candidates) = (0, 0, 0);
    for (position, class) in classes.iter().enumerate() {
        let is_candidate = may_stay(position, class);
        targeted += usize::from(class.is_targeted());
        old += usize::from(is_candidate || matches!(class, Class::Excluded(_)));
        candidates += usize::from(is_candidate);
    }
    let kept = strategy.partition.resolve_down(targeted);
    // Number of nodes to exclude: all candidates after the first `old - kept`.
    let mut left = candidates.saturating_sub(old.saturating_sub(kept));
    let mut keep = |(position, class): (usize, &mut Class)| {
        if left > 0 && may_stay(position, class) {
            *class = Class::Excluded(Excluded::Partition);
            left -= 1;
        }
    };
    let classes = classes.iter_mut().enumerate();
    match strategy.order {
        NodeOrder::Ascending => classes.rev().for_each(&mut keep),
        NodeOrder::Descending => classes.for_each(keep),
    }
}

/// Excludes the nodes that have no pod, and on which no pod is created because of `partition` (see `progressive`).
fn keep_empty(strategy: &Strategy, fleet: &Fleet, classes: &mut [Class]) {
    for position in progressive::withheld(strategy, fleet, |_| false) {
        if matches!(
            classes[position],
            Class::InProgress(Progress::Missing { .. })
        ) {
            classes[position] = Class::Excluded(Excluded::Partition);
        }
    }
}

/// Returns true if the node is targeted and its old pod stays unless the rollout replaces it.
fn is_old(summary: &PodSummary<'_>, position: usize, class: &Class) -> bool {
    match class {
        Class::Outdated { .. } | Class::PreDeleteHook { .. } => true,
        Class::Surging(pair) => pair.has_way_back,
        Class::Offline {
            updated: false,
            terminating: false,
            ..
        } => summary.has_pods(position) && summary.is_wanted(position),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::core::selector::Selector;
    use crate::core::testing::{at, current, fleet, node, old};
    use crate::core::{
        Exit, IntOrPercent, Mode, Node, Offline, Pod, PreDeleteHook, Progress, Readiness, Strategy,
        Targeting, Verdict, decide,
    };

    /// Regression test from a property test: the partition kept an offline, untargeted node in place of a targeted one.
    #[test]
    fn the_partition_does_not_count_offline_untargeted_nodes() {
        let since = Some(at(900));
        let leaves = Pod {
            exit: Exit {
                preparing: Some(PreDeleteHook { since }),
                ..Exit::default()
            }
            .into(),
            ..old(1)
        };
        let left = |targeting| Node {
            readiness: Readiness::NotReady { since: None },
            targeting,
            ..node("c", leaves.clone())
        };
        let strategy = Strategy {
            max_unavailable: IntOrPercent::Number(3),
            partition: IntOrPercent::Number(1),
            ..Strategy::with_mode(Mode::AdvancedRollingUpdate)
        };
        let verdicts = |targeting| {
            let nodes = vec![node("a", old(1)), node("b", old(1)), left(targeting)];
            decide(&strategy, &fleet(nodes), at(1_000)).verdicts
        };
        let goes = Verdict::InProgress(Progress::Replacing);
        assert_eq!(
            verdicts(Targeting::Run),
            [goes, goes, Verdict::Partition],
            "whether it is online plays no part"
        );
        let offline = Verdict::Offline(Offline::NotReady { since: None });
        assert_eq!(verdicts(Targeting::No), [goes, Verdict::Partition, offline]);
    }

    #[test]
    fn an_unselected_node_takes_a_slot_only_for_a_pod_that_the_rollout_deleted() {
        let strategy = Strategy {
            selector: Some(Selector::from_query("pool=canary").unwrap()),
            ..Strategy::with_mode(Mode::AdvancedRollingUpdate)
        };
        let deletions = |outside: Node| {
            let inside = Node {
                labels: [("pool", "canary")].into_iter().collect(),
                ..node("b", old(1))
            };
            let plan = decide(&strategy, &fleet(vec![outside, inside]), at(1_000));
            plan.actions.len()
        };
        let unavailable = node("a", current(2).made(990).broken());
        assert_eq!(deletions(unavailable.clone()), 1, "others deleted its pod");
        let emptied = Node {
            emptied: true,
            ..unavailable
        };
        assert_eq!(deletions(emptied), 0);
        // A pod of the first revision replaced no other pod. A pod of a later revision may be the successor of a pod that the
        // rollout deleted.
        let made = |number| {
            let pod = Pod {
                number,
                ..old(1).made(990).broken()
            };
            node("a", pod)
        };
        assert_eq!(deletions(made(1)), 1);
        assert_eq!(deletions(made(2)), 0);
    }
}
