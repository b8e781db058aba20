//! Random stories of a native DaemonSet: whatever happens to the nodes, the rollout stays within its budget. After all nodes have
//! returned, the rollout completes automatically.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::strategy::Strategy as _;

use super::world::{RateLimit, World};
use super::{Random, after, config, is_available, later, now};
use crate::core::{Strategy, *};

/// Event of a story, which happens at one tick (a second).
#[derive(Clone, Copy, Debug)]
enum Event {
    Template(u8),
    Offline(usize),
    Online(usize),
    Taint(usize),
    Untaint(usize),
    Kill(usize),
    Crash(usize),
    /// The native controller doesn't work for so many ticks.
    NativeStops(i64),
    /// The yurt-ds controller is down for so many ticks.
    WeStop(i64),
}

/// Last tick with events. After it, all nodes return, and the rollout has to complete without another event.
const END: i64 = 150;

fn events() -> impl Random<Vec<(i64, Event)>> {
    let node = || 0..12_usize;
    let event = prop_oneof![
        3 => (0..3_u8).prop_map(Event::Template),
        6 => node().prop_map(Event::Offline),
        6 => node().prop_map(Event::Online),
        1 => node().prop_map(Event::Taint),
        1 => node().prop_map(Event::Untaint),
        2 => node().prop_map(Event::Kill),
        2 => node().prop_map(Event::Crash),
        1 => (1..20_i64).prop_map(Event::NativeStops),
        1 => (1..20_i64).prop_map(Event::WeStop),
    ];
    vec((1..END, event), 0..40)
}

pub(super) fn paces() -> impl Random<Vec<RateLimit>> {
    let pace = (
        0..5_i64,
        0..4_i64,
        1..8_i64,
        option::weighted(0.8, 0..4_i64),
    );
    let pace = pace.prop_map(
        |(to_terminate, to_create, to_start, to_recover)| RateLimit {
            to_terminate,
            to_create,
            to_start,
            to_recover,
        },
    );
    vec(pace, 1..12)
}

pub(super) fn rolling() -> impl Random<Strategy> {
    let pause = option::weighted(0.2, 0..100_i64);
    let disruption = prop_oneof![Just(Disruption::Delete), Just(Disruption::Evict)];
    (super::shares(), pause, 0..8_u64, 0..40_u64, disruption).prop_map(
        |(max_unavailable, pause, min_ready, ready_settle, disruption)| Strategy {
            disruption,
            mode: Mode::AdvancedRollingUpdate,
            max_unavailable,
            pause: pause.map(|seconds| Pause::Until(after(now(), seconds))),
            min_ready: Duration::from_secs(min_ready),
            ready_settle: Duration::from_secs(ready_settle),
            // These stories don't cover the guard. With these settings, it stops no revision.
            failure_window: Some(Duration::from_secs(30)),
            failure_threshold: Some(IntOrPercent::Percent(100)),
            ..Strategy::with_mode(Mode::AdvancedRollingUpdate)
        },
    )
}

struct Telling {
    world: World,
    strategy: Strategy,
    size: usize,
    tick: i64,
    native_back: i64,
    we_are_back: i64,
    seen: Fleet,
    /// Input and result of the last decision.
    last: Option<(Fleet, Plan)>,
    /// Nodes that lack an available pod because the controller replaced it.
    ours: BTreeSet<usize>,
    templates: u32,
}

impl Telling {
    fn new(strategy: Strategy, paces: &[RateLimit]) -> Self {
        let world = World::settled(paces);
        Self {
            seen: world.fleet(),
            world,
            strategy,
            size: paces.len(),
            tick: 0,
            native_back: 0,
            we_are_back: 0,
            last: None,
            ours: BTreeSet::new(),
            templates: 0,
        }
    }

    fn happen(&mut self, event: Event) {
        let node = |node: usize| node % self.size;
        match event {
            Event::Template(template) if template != self.world.wanted => {
                self.world.wanted = template;
                self.templates += 1;
            }
            Event::Template(_) => {}
            Event::Offline(n) => self.world.set_online(node(n), false),
            Event::Online(n) => self.world.set_online(node(n), true),
            Event::Taint(n) => self.world.set_targeted(node(n), false),
            Event::Untaint(n) => self.world.set_targeted(node(n), true),
            Event::Kill(n) => self.world.kill(node(n)),
            Event::Crash(n) => self.world.crash(node(n)),
            Event::NativeStops(ticks) => self.native_back = self.tick + ticks,
            Event::WeStop(ticks) => self.we_are_back = self.tick + ticks,
        }
    }

    /// Simulates one second: the cluster changes, and the controller decides if it has a reason.
    fn pass(&mut self) -> Result<(), TestCaseError> {
        self.tick += 1;
        self.world.pass();
        if self.tick >= self.native_back && self.tick % 2 == 0 {
            self.world.observe();
        }
        self.seen = self.world.fleet();
        self.forgive();
        if self.tick >= self.we_are_back && self.has_reason() {
            self.decide()?;
        }
        Ok(())
    }

    /// Returns true if the controller has a reason to decide: a change, or a time that it requested.
    fn has_reason(&self) -> bool {
        self.last.as_ref().is_none_or(|(fleet, plan)| {
            *fleet != self.seen || plan.next_wake.is_some_and(|wake| wake <= self.world.now())
        })
    }

    fn decide(&mut self) -> Result<(), TestCaseError> {
        let fleet = self.seen.clone();
        let plan = decide(&self.strategy, &fleet, self.world.now());
        for window in [0, 1, 4] {
            super::crowd::compare(&self.strategy, &fleet, window, self.world.now())?;
        }
        let before = self.ours.len();
        for action in &plan.actions {
            let (Action::Delete(target) | Action::Evict(target)) = action else {
                continue;
            };
            let holds = |node: &Node| node.pods.iter().any(|pod| pod.uid == target.uid);
            let place = fleet.nodes.iter().position(holds);
            // If the old pod is unavailable, its replacement makes no other node unavailable, so it doesn't count.
            let now = self.world.now();
            let is_up = |place: &usize| {
                let mut pods = fleet.nodes[*place].pods.iter();
                pods.any(|pod| is_available(pod, &self.strategy, now))
            };
            self.ours.extend(place.filter(is_up));
        }
        self.world.apply(&plan);
        let allowed = self.strategy.max_unavailable.resolve(plan.counts.targeted);
        // If fewer nodes are targeted than before, more nodes may be unavailable than the new limit allows. Even then, broken pods
        // may be repaired.
        if self.ours.len() > before {
            prop_assert!(self.ours.len() <= allowed, "{:?} of {allowed}", self.ours);
        }
        self.last = Some((fleet, plan));
        self.seen = self.world.fleet();
        Ok(())
    }

    /// Removes nodes from `ours` that have an available pod, that are offline or have not settled, or that are not eligible for a
    /// pod.
    fn forgive(&mut self) {
        let (fleet, now) = (&self.seen, self.world.now());
        self.ours.retain(|node| {
            let node = &fleet.nodes[*node];
            let mut pods = node.pods.iter();
            let settled = |since| later(since, self.strategy.ready_settle) <= now;
            matches!(node.readiness, Readiness::Ready { since } if settled(since))
                && node.targeting == Targeting::Run
                && !pods.any(|pod| is_available(pod, &self.strategy, now))
        });
    }

    /// Simulates as many seconds as the fleet needs if its nodes are updated one after the other.
    fn go_to_the_end(&mut self) -> Result<(), TestCaseError> {
        let per_node = 30 + 2 * self.strategy.min_ready.as_secs().cast_signed();
        let patience = 150 + per_node * i64::try_from(self.size).unwrap_or(i64::MAX);
        let mut quiet = 0;
        for _ in 0..patience {
            let before = self.seen.clone();
            self.pass()?;
            let waits = self
                .last
                .as_ref()
                .is_none_or(|(_, plan)| plan.next_wake.is_some());
            quiet = if waits || before != self.seen {
                0
            } else {
                quiet + 1
            };
            // In this model, every change has its effects within 20 ticks. If nothing happened for longer, nothing will.
            if quiet > 20 {
                break;
            }
        }
        Ok(())
    }

    fn plan(&self) -> &Plan {
        &self.last.as_ref().expect("decided at least once").1
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_story_ends_well(
        strategy in rolling(), paces in paces(), events in events(),
    ) {
        let mut telling = Telling::new(strategy, &paces);
        while telling.tick < END {
            let tick = telling.tick;
            for (_, event) in events.iter().filter(|(at, _)| *at == tick) {
                telling.happen(*event);
            }
            telling.pass()?;
        }
        for node in 0..telling.size {
            telling.world.set_online(node, true);
            telling.world.set_targeted(node, true);
        }
        telling.go_to_the_end()?;
        let plan = telling.plan();
        prop_assert_eq!(plan.phase, Phase::Complete { offline: 0, kept: 0 }, "{:?}", plan.verdicts);
        prop_assert!(plan.verdicts.iter().all(|verdict| *verdict == Verdict::Done));
        prop_assert_eq!(&plan.actions, &[]);
        prop_assert_eq!(plan.next_wake, None);
        let worst = telling.world.replaced.values().max().copied().unwrap_or(0);
        prop_assert!(worst <= telling.templates, "{worst} restarts for {} templates", telling.templates);
    }

    #[test]
    fn offline_nodes_do_not_block_the_rollout(
        strategy in rolling(), paces in paces(), away in vec(any::<bool>(), 12),
    ) {
        let mut telling = Telling::new(strategy, &paces);
        let away: Vec<usize> = (0..telling.size).filter(|node| away[*node]).collect();
        for node in &away {
            telling.happen(Event::Offline(*node));
        }
        telling.pass()?;
        telling.happen(Event::Template(1));
        telling.go_to_the_end()?;
        prop_assert_eq!(telling.plan().phase, Phase::Complete { offline: away.len(), kept: 0 });
        let replaced: Vec<usize> = telling.world.replaced.keys().copied().collect();
        let online: Vec<usize> = (0..telling.size).filter(|node| !away.contains(node)).collect();
        prop_assert_eq!(replaced, online);
        for node in &away {
            telling.happen(Event::Online(*node));
        }
        telling.go_to_the_end()?;
        prop_assert_eq!(telling.plan().phase, Phase::Complete { offline: 0, kept: 0 });
    }

    #[test]
    fn a_rollback_restarts_only_updated_pods(
        strategy in rolling(), paces in paces(), forth in 1..60_i64,
    ) {
        let mut telling = Telling::new(Strategy { pause: None, ..strategy }, &paces);
        telling.happen(Event::Template(1));
        while telling.tick < forth {
            telling.pass()?;
        }
        let moved: BTreeSet<usize> = telling.world.replaced.keys().copied().collect();
        telling.happen(Event::Template(0));
        telling.go_to_the_end()?;
        prop_assert_eq!(telling.plan().phase, Phase::Complete { offline: 0, kept: 0 });
        let replaced: BTreeSet<usize> = telling.world.replaced.keys().copied().collect();
        prop_assert_eq!(replaced, moved);
    }

    #[test]
    fn a_revision_whose_pods_crash_once_they_are_ready_gets_no_further_than_its_first_batch(
        strategy in rolling(), paces in paces(), lives in 1..10_i64,
    ) {
        let strategy = Strategy { pause: None, min_ready: Duration::ZERO, ..strategy };
        let mut telling = Telling::new(strategy, &paces);
        telling.happen(Event::Template(1));
        for _ in 0..600 {
            for node in 0..telling.size {
                if telling.world.ready_for(node, 1).is_some_and(|seconds| seconds >= lives) {
                    telling.happen(Event::Crash(node));
                }
            }
            telling.pass()?;
        }
        let allowed = telling.plan().counts.allowed.max(1);
        prop_assert!(telling.world.replaced.len() <= allowed, "{:?}, {allowed}", telling.world.replaced);
        // The template is corrected, so the rollout continues.
        telling.happen(Event::Template(2));
        telling.go_to_the_end()?;
        prop_assert_eq!(telling.plan().phase, Phase::Complete { offline: 0, kept: 0 });
    }

    #[test]
    fn a_revision_that_kills_its_nodes_is_stopped_at_the_threshold_and_what_was_in_flight(
        strategy in rolling(), paces in paces(), dies_after in 0..8_i64,
    ) {
        let min_ready = Duration::from_secs(dies_after.unsigned_abs() + 2);
        let mut telling = Telling::new(Strategy { min_ready, pause: None, failure_threshold: None, ..strategy }, &paces);
        telling.happen(Event::Template(1));
        for _ in 0..1200 {
            for node in 0..telling.size {
                if telling.world.running_for(node, 1).is_some_and(|seconds| seconds >= dies_after) {
                    telling.happen(Event::Offline(node));
                }
            }
            telling.pass()?;
        }
        let lost = (0..telling.size).filter(|node| !telling.world.is_online(*node)).count();
        let counts = telling.plan().counts;
        prop_assert!(lost <= counts.threshold + counts.allowed.max(1), "{lost}, {counts:?}");
        prop_assert!(lost > counts.threshold || lost == telling.size, "{lost}, {counts:?}");
        let expected = if lost < telling.size { Phase::Stalled(Stall::FailedByRevision)
} else { telling.plan().phase
};
        prop_assert_eq!(telling.plan().phase, expected);
    }
}
