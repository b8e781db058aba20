//! Properties of evictions: no pod is deleted that has to be evicted, a pod whose eviction was rejected takes no slot, and the
//! number of requests is limited.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::Strategy as _;

use super::world::{RateLimit, World};
use super::{Random, carry_out, config, deleted, fleets, now, shares, strategies};
use crate::core::engine::replacement::{UpdateMethod, way};
use crate::core::fleet::Hold;
use crate::core::{Strategy, *};

fn evicting() -> impl Random<Strategy> {
    let surge = prop_oneof![4 => Just(IntOrPercent::Number(0)), 1 => shares()];
    (strategies(), surge).prop_map(|(strategy, max_surge)| Strategy {
        mode: Mode::AdvancedRollingUpdate,
        disruption: Disruption::Evict,
        max_surge,
        ..strategy
    })
}

fn refusal() -> Refusal {
    Refusal {
        budget: Some("web".into()),
        obstruction: Obstruction::Exhausted,
    }
}

/// Gives the pods labels by which disruption budgets can distinguish them. Pods of one group get the same labels.
fn told_apart(mut fleet: Fleet, groups: &[usize]) -> Fleet {
    let pods = fleet.nodes.iter_mut().flat_map(|node| &mut node.pods);
    for (pod, group) in pods.zip(groups.iter().cycle()) {
        pod.exit.labels = [("group", group.to_string())].into_iter().collect();
    }
    fleet
}

/// Returns the fleet after some evictions were rejected. `since` contains groups and seconds: the eviction of the group's first pod
/// was rejected so many seconds ago.
fn refused(fleet: Fleet, groups: &[usize], since: &[(usize, i64)]) -> Fleet {
    let mut fleet = told_apart(fleet, groups);
    for (group, ago) in since {
        let group = group.to_string();
        let pods = fleet.nodes.iter().flat_map(|node| &node.pods);
        let mut alike = pods.filter(|pod| pod.exit.labels.get("group") == Some(group.as_str()));
        if let Some(pod) = alike.next().cloned() {
            let at = super::after(now(), -ago);
            fleet.evictions.refuse(&pod, refusal(), at);
        }
    }
    fleet
}

fn groups() -> impl Random<Vec<usize>> {
    vec(0..4_usize, 1..8)
}

fn refusals() -> impl Random<Vec<(usize, i64)>> {
    vec((0..4_usize, 0..30_i64), 0..4)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn nothing_is_deleted_where_pods_are_to_be_evicted(
        strategy in evicting(), fleet in fleets(), groups in groups(), since in refusals(),
    ) {
        let fleet = refused(fleet, &groups, &since);
        let plan = decide(&strategy, &fleet, now());
        for action in &plan.actions {
            let is_deletion = matches!(action, Action::Delete(_) | Action::DeleteAfterSurge { evict: false, .. });
            prop_assert!(!is_deletion, "{action:?}");
        }
        let again = decide(&strategy, &fleet, now());
        prop_assert_eq!(plan, again);
    }

    /// Checks that rejected evictions are retried for only one pod per group of equally labelled pods at a time, and not before the
    /// end of the backoff.
    #[test]
    fn of_pods_that_were_refused_one_is_asked_at_a_time_and_not_too_early(
        strategy in evicting(), fleet in fleets(), groups in groups(), since in refusals(),
    ) {
        let fleet = refused(fleet, &groups, &since);
        let plan = decide(&strategy, &fleet, now());
        let pods = || fleet.nodes.iter().flat_map(|node| &node.pods);
        let goes = |action: &&Action| matches!(action, Action::Delete(_) | Action::Evict(_));
        let asked: Vec<_> = plan.actions.iter().filter(goes).map(Action::pod).collect();
        let mut questions = Vec::new();
        for pod in pods().filter(|pod| asked.iter().any(|gone| gone.uid == pod.uid)) {
            if fleet.evictions.refusal_of(pod).is_some() {
                questions.push((pod.exit.labels.clone(), pod.ready_since.is_some()));
            }
        }
        let all = questions.len();
        questions.sort();
        questions.dedup();
        prop_assert_eq!(questions.len(), all);
        let newest = pods().filter_map(|pod| pod.ready_since).max();
        let hurries = |ago: i64| newest.is_some_and(|newest| newest > super::after(now(), -ago));
        let early = |ago: &i64| *ago < 10 && !hurries(*ago);
        if since.iter().all(|(_, ago)| early(ago)) {
            prop_assert_eq!(all, 0);
        }
    }

    /// Checks that blocked nodes don't affect other nodes: the plan is the same as if a hold excluded the blocked nodes.
    #[test]
    fn who_may_not_go_takes_nothing_from_the_others(
        strategy in evicting(), fleet in fleets(), number in 1..6_u32, groups in groups(), group in 0..4_usize,
    ) {
        let strategy = Strategy {
            max_unavailable: IntOrPercent::Number(number),
            max_surge: IntOrPercent::Number(0),
            partition: IntOrPercent::Number(0),
            pre_delete: None,
            ramp_up: None,
            waves: None,
            failure_threshold: Some(IntOrPercent::Percent(100)),
            ..strategy
        };
        let mut fleet = told_apart(fleet, &groups);
        fleet.record = None;
        for node in &mut fleet.nodes {
            node.hold = None;
            // Remove hooks and unfinished updates. With them, a pod would take a slot on a waiting node, but none on a node with a
            // hold.
            for pod in &mut node.pods {
                (pod.exit.preparing, pod.exit.gate) = (None, None);
                (pod.in_place.update, pod.in_place.unfinished) = (None, Default::default());
            }
        }
        let is_refused = |pod: &Pod| {
            let label = pod.exit.labels.get("group");
            label == Some(group.to_string().as_str()) && pod.ready_since.is_some()
        };
        let mut blocked = fleet.clone();
        let pods: Vec<Pod> = fleet.nodes.iter().flat_map(|node| node.pods.clone()).collect();
        if let Some(pod) = pods.iter().find(|pod| is_refused(pod)) {
            blocked.evictions.refuse(pod, refusal(), super::after(now(), 10));
        }
        let mut held = fleet;
        for node in &mut held.nodes {
            let old = |pod: &Pod| pod.revision == PodRevision::Outdated && !pod.terminating;
            let first = node.pods.iter().find(|pod| old(pod));
            // A pod that is updated in place needs no eviction, so only a pod that would be recreated is blocked.
            let leaves = |pod: &Pod| matches!(way(&strategy, &blocked, pod), UpdateMethod::Recreate(_));
            if first.is_some_and(|pod| is_refused(pod) && leaves(pod)) {
                node.hold = Some(Hold { until: None, reason: "".into(), unreadable: false });
            }
        }
        let (plan, other) = (decide(&strategy, &blocked, now()), decide(&strategy, &held, now()));
        // Compare the plans only if both count the same slots. A pod that is not yet available takes a slot on a waiting node, but
        // none on a node with a hold.
        if strategy.min_ready.is_zero() && strategy.max_unavailable.resolve(other.counts.base) == plan.counts.allowed {
            let turns = |fleet: &Fleet| {
                let mut turns = queue(&strategy, fleet, now());
                turns.retain(|position| held.nodes[*position].hold.is_none());
                turns
            };
            if turns(&blocked) == turns(&held) {
                prop_assert_eq!(deleted(&plan), deleted(&other));
            } else if strategy.topology.is_none() {
                // A revision counts as unfinished only if waiting nodes run it, and nodes with a hold don't wait. So the plans may
                // choose different nodes, but equally many.
                prop_assert_eq!(deleted(&plan).len(), deleted(&other).len());
            }
        }
        let lacking = super::lacking(&carry_out(&blocked, &plan), &plan, &strategy, now());
        prop_assert!(deleted(&plan).is_empty() || plan.counts.unavailable >= lacking.min(plan.counts.allowed));
    }
}

/// Model of a cluster with a disruption budget.
struct Guarded {
    world: World,
    size: usize,
    /// Number of pods that have to be healthy, as in `minAvailable`.
    least: usize,
    evictions: Evictions,
    strategy: Strategy,
    last: Option<(Fleet, Plan)>,
    asked: usize,
}

impl Guarded {
    fn fleet(&self) -> Fleet {
        let mut fleet = self.world.fleet();
        fleet.evictions = self.evictions.clone();
        fleet
    }

    fn healthy(&self) -> usize {
        let fleet = self.world.fleet();
        let pods = fleet.nodes.iter().flat_map(|node| &node.pods);
        pods.filter(|pod| !pod.terminating && pod.ready_since.is_some())
            .count()
    }

    /// Simulates one second. The engine decides after changes, and at the times that it requested.
    fn pass(&mut self) {
        self.world.pass();
        self.world.observe();
        loop {
            let (fleet, now) = (self.fleet(), self.world.now());
            let has_reason = self.last.as_ref().is_none_or(|(seen, plan)| {
                *seen != fleet || plan.next_wake.is_some_and(|wake| wake <= now)
            });
            if !has_reason {
                return;
            }
            let plan = decide(&self.strategy, &fleet, now);
            let evicts = |action: &&Action| matches!(action, Action::Evict(_));
            let evictions: Vec<Action> = plan.actions.iter().filter(evicts).cloned().collect();
            assert_eq!(evictions.len(), plan.actions.len());
            for action in evictions {
                let pods = fleet.nodes.iter().flat_map(|node| &node.pods);
                let mut pods = pods.filter(|pod| pod.uid == action.pod().uid);
                let pod = pods.next().expect("the pod is there");
                self.asked += 1;
                let healthy = self.healthy();
                let spares = healthy.checked_sub(usize::from(pod.ready_since.is_some()));
                if spares.is_some_and(|left| left >= self.least) {
                    self.evictions.accept(pod);
                    let actions = vec![action];
                    self.world.apply(&Plan {
                        actions,
                        ..plan.clone()
                    });
                } else {
                    self.evictions.refuse(pod, refusal(), now);
                }
            }
            self.last = Some((fleet, plan));
        }
    }

    fn phase(&self) -> Phase {
        self.last.as_ref().expect("decided").1.phase
    }
}

fn paces() -> impl Random<Vec<RateLimit>> {
    let pace = (0..4_i64, 1..8_i64).prop_map(|(to_terminate, to_start)| RateLimit {
        to_terminate,
        to_create: 1,
        to_start,
        to_recover: None,
    });
    vec(pace, 1..10)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_rollout_waits_for_its_budget_without_asking_all_the_time_and_goes_on_when_it_may(
        paces in paces(), number in 1..12_u32, least in 0..12_usize,
    ) {
        let size = paces.len();
        let strategy = Strategy {
            max_unavailable: IntOrPercent::Number(number),
            disruption: Disruption::Evict,
            ..Strategy::with_mode(Mode::AdvancedRollingUpdate)
        };
        let mut guarded = Guarded {
            world: World::settled(&paces), size, least, strategy,
            evictions: Evictions::default(), last: None, asked: 0,
        };
        guarded.world.wanted = 1;
        if least >= size {
            for _ in 0..1_000 {
                guarded.pass();
            }
            prop_assert!(guarded.world.replaced.is_empty());
            prop_assert_eq!(guarded.phase(), Phase::Stalled(Stall::BlockedByPdb));
            // At first, the controller may request as many evictions as `max-unavailable` allows. After that, it may request one
            // every two minutes.
            prop_assert!(guarded.asked <= size + 14, "asked {} times", guarded.asked);
            guarded.least = size - 1;
        }
        for _ in 0..300 + 40 * i64::try_from(guarded.size).unwrap_or(0) {
            guarded.pass();
        }
        prop_assert_eq!(guarded.phase(), Phase::Complete { offline: 0, kept: 0 });
        prop_assert_eq!(guarded.world.replaced.len(), size);
        let plan = &guarded.last.as_ref().expect("decided").1;
        prop_assert_eq!((&plan.actions[..], plan.next_wake), (&[][..], None));
    }
}
