//! Every interleaving, for small fleets: a model checker (stateright) explores all that kubelets, the native controller, the
//! owner and bad luck can do to a few nodes, with the real `core::decide` in the middle, and looks for a state in which an
//! invariant does not hold (design invariants 1 to 4, 6 to 8).
//!
//! ```text
//! state: nodes, pods, DaemonSet, watches that stand still ── every step that is possible ──► states ── …
//!            always: no violation        whenever nothing moves any more: the fleet has converged
//! ```
//!
//! A test has a limit of states, so that all of them take a minute or two. `YURT_DS_MODEL_STATES=N` sets another one, `0`
//! none; `cargo test --test main model:: -- --nocapture` prints what was explored.

mod state;
mod steps;
mod view;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use stateright::{Checker, Model, Property};
use yurt_ds::core::selector::Selector;
use yurt_ds::core::strategy::{Predownload, RollingUpdateType, Topology};
use yurt_ds::core::{Mode, Phase, Share, Stall, Strategy, Verdict};

use self::state::{Ago, Faults, Node, Pod, State, Template, Violation};
use self::steps::Step;
use self::view::TICK;

/// States that a test looks at, unless the environment asks for another number.
const STATES: usize = 100_000;
/// Of so many states one is followed to its end.
const SAMPLE: u64 = 256;
/// Steps after which a fleet in which nothing fails any more has to be at rest.
const PATIENCE: usize = 200;

/// A fleet with its settings.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    nodes: usize,
    strategy: Strategy,
    faults: Faults,
    /// How many of the first nodes are in zone `a`.
    selected: usize,
    /// Containers of this template crash.
    broken: Option<Template>,
    /// Nodes die of this template.
    killer: Option<Template>,
    /// Pods stay Ready while their node is lost.
    autonomous: bool,
    /// By which budget it is judged, if not by its own: a smaller one has to be found exceeded.
    judged_by: Option<usize>,
}

impl Rules {
    fn of(nodes: usize, allowed: u32, faults: Faults) -> Self {
        Self {
            nodes,
            strategy: Strategy {
                max_unavailable: Share::Number(allowed),
                min_ready: Duration::ZERO,
                ready_settle: Duration::ZERO,
                ..Strategy::of(Mode::AdvancedRollingUpdate)
            },
            faults,
            selected: nodes,
            broken: None,
            killer: None,
            autonomous: false,
            judged_by: None,
        }
    }

    fn with(mut self, set: impl FnOnce(&mut Strategy)) -> Self {
        set(&mut self.strategy);
        self
    }

    /// Only so many of the first nodes are selected.
    fn selecting(mut self, nodes: usize) -> Self {
        self.selected = nodes;
        let zone = Selector::from_query("zone=a").expect("a selector");
        self.with(|strategy| strategy.selector = Some(zone))
    }

    /// The first nodes are in zone `a`, which `selector` selects, the others in `b`.
    fn zone_of(&self, position: usize) -> &'static str {
        if position < self.selected { "a" } else { "b" }
    }

    fn is_selected(&self, position: usize) -> bool {
        let selector = self.strategy.selector.as_ref();
        selector.is_none() || self.zone_of(position) == "a"
    }

    fn kept(&self, nodes: usize) -> usize {
        self.strategy.partition.resolve_down(nodes)
    }

    fn allowed(&self) -> usize {
        match self.strategy.max_unavailable {
            _ if self.judged_by.is_some() => self.judged_by.unwrap_or_default(),
            Share::Number(nodes) => nodes as usize,
            Share::Percent(_) => unreachable!("the model has absolute budgets"),
        }
    }

    /// Whether a pod has been Ready for `minReadySeconds`.
    fn is_available(&self, pod: &Pod) -> bool {
        let ripe = |since: Ago| {
            let age = u32::from(since.unsigned_abs());
            TICK * age >= self.strategy.min_ready
        };
        !pod.terminating && !pod.changing && pod.ready_since.is_some_and(ripe)
    }

    /// Whether a pod has started, and will never be Ready.
    fn is_done_for(&self, pod: &Pod) -> bool {
        self.broken == Some(pod.template) && pod.started.is_some() && !pod.changing
    }

    /// Whether a node may die of what it runs.
    fn dies(&self, node: &Node) -> bool {
        let kills = |pod: &Pod| self.killer == Some(pod.template) && pod.started.is_some();
        node.pods.iter().any(kills)
    }
}

impl Model for Rules {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::settled(self)]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        // A counterexample is found already.
        if state.violation.is_none() {
            steps.extend(state.progress(self));
            steps.extend(state.faults(self));
        }
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let next = state.after(step, self);
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no violation", |_, state: &State| state.violation.is_none()),
            Property::always(
                "at rest only when converged",
                |rules: &Self, state: &State| {
                    !state.is_at_rest(rules) || state.has_converged(rules)
                },
            ),
            Property::always("it comes to rest", |rules: &Self, state: &State| {
                !state.is_sample() || state.end(rules).is_some()
            }),
        ]
    }
}

impl State {
    /// Whether nothing moves any more by itself.
    fn is_at_rest(&self, rules: &Rules) -> bool {
        let mut steps = self.progress(rules).into_iter();
        steps.all(|step| self.after(step, rules) == *self)
    }

    /// Whether the end of this state is looked at too: that takes as long as a hundred states.
    fn is_sample(&self) -> bool {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish().is_multiple_of(SAMPLE)
    }

    /// Where it all ends when everybody has a turn and nothing fails; `None`: it goes on for ever.
    fn end(&self, rules: &Rules) -> Option<Self> {
        let mut state = self.clone();
        for turn in 0..PATIENCE {
            let steps = state.progress(rules).into_iter();
            let next = steps.map(|step| state.after(step, rules));
            let next: Vec<Self> = next.filter(|next| *next != state).collect();
            if next.is_empty() {
                return Some(state);
            }
            state = next[turn % next.len()].clone();
        }
        None
    }

    /// Whether every node is where it should be, as far as anybody can do something about it.
    fn has_converged(&self, rules: &Rules) -> bool {
        let plan = self.plan(rules);
        let excused = |verdict: &Verdict| match verdict {
            Verdict::Done | Verdict::Offline(_) | Verdict::FailedByRevision { .. } => true,
            Verdict::Partition => rules.kept(self.nodes.len()) > 0,
            Verdict::NotSelected => rules.strategy.selector.is_some(),
            Verdict::Paused { .. } => self.set.paused,
            Verdict::AwaitingOwner => rules.strategy.mode == Mode::Ota,
            // A rollout that fails stops, with its budget spent and no more.
            Verdict::InProgress(_) | Verdict::Budget { .. } | Verdict::Guarded(_) => {
                match plan.phase {
                    Phase::Stalled(Stall::FailedByRevision) => true,
                    Phase::Stalled(_) => rules.broken.is_some(),
                    _ => false,
                }
            }
            _ => false,
        };
        self.view == state::View::default()
            && plan.actions.is_empty()
            && plan.verdicts.iter().all(excused)
    }
}

/// The shortest way to a state in which something does not hold, and what that is.
type Counterexample = (&'static str, Vec<(State, Option<Step>)>);

/// Explores `rules`, prints how far that went.
#[expect(clippy::disallowed_methods, reason = "says how long it took")]
fn search(name: &str, rules: Rules) -> Option<Counterexample> {
    let limit = std::env::var("YURT_DS_MODEL_STATES").ok();
    let limit = limit.map_or(STATES, |text| text.parse().expect("a number of states"));
    let checker = rules.checker().threads(2);
    let checker = match limit {
        0 => checker,
        limit => checker.target_state_count(limit),
    };
    let begin = std::time::Instant::now();
    let checker = checker.spawn_bfs().join();
    let extent = match limit {
        0 => "all",
        limit if checker.state_count() < limit => "all",
        _ => "the first",
    };
    println!(
        "{name}: {extent} {} states ({} with repeats), {} steps deep, {:.1} s",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        begin.elapsed().as_secs_f64()
    );
    let properties = checker.model().properties().into_iter();
    let mut found = properties.filter_map(|property| {
        let path = checker.discovery(property.name)?;
        Some((property.name, path.into_vec()))
    });
    found.next()
}

/// Explores `rules`, in which everything has to hold.
fn explore(name: &str, rules: Rules) {
    if let Some((property, way)) = search(name, rules) {
        let steps = way
            .iter()
            .map(|(state, step)| format!("{state:?}\n    {step:?}"));
        let steps: Vec<String> = steps.collect();
        panic!("{name}, {property}:\n{}", steps.join("\n"));
    }
}

/// Nothing goes wrong, and the template changes so often.
fn templates(templates: u8) -> Faults {
    Faults {
        templates,
        ..Faults::default()
    }
}

#[test]
fn the_model_rolls_out() {
    let rules = Rules::of(5, 2, templates(1));
    let begun = State::settled(&rules).after(Step::Change(1), &rules);
    let end = begun.end(&rules).expect("an end");
    assert!(end.has_converged(&rules));
    for node in &end.nodes {
        let templates: Vec<Template> = node.pods.iter().map(|pod| pod.template).collect();
        assert_eq!(templates, [1]);
    }
}

#[test]
fn a_rollout_survives_losses_crashes_and_a_rollback() {
    let faults = Faults {
        losses: 1,
        crashes: 1,
        ..templates(2)
    };
    explore("losses, crashes, rollback", Rules::of(3, 1, faults));
}

#[test]
fn a_controller_that_dies_at_any_write_converges_and_spends_nothing_twice() {
    let faults = Faults {
        restarts: 2,
        losses: 1,
        ..templates(2)
    };
    explore("restarts", Rules::of(3, 2, faults));
}

#[test]
fn watches_that_stand_still_spend_nothing_twice() {
    let faults = Faults {
        freezes: 2,
        losses: 1,
        ..templates(2)
    };
    explore("frozen watches", Rules::of(3, 1, faults));
}

#[test]
fn pods_that_others_delete_take_slots() {
    let faults = Faults {
        kills: 2,
        crashes: 1,
        freezes: 1,
        ..templates(1)
    };
    explore("kills", Rules::of(3, 1, faults));
}

#[test]
fn young_pods_and_settling_nodes_are_waited_for() {
    let faults = Faults {
        losses: 2,
        ..templates(2)
    };
    let rules = Rules::of(3, 1, faults).with(|strategy| {
        (strategy.min_ready, strategy.ready_settle) = (TICK, TICK);
    });
    explore("minReadySeconds and ready-settle", rules);
}

#[test]
fn no_fewer_are_kept_than_partition_says() {
    let faults = Faults {
        losses: 1,
        restarts: 1,
        ..templates(2)
    };
    let rules = Rules::of(3, 2, faults);
    explore(
        "partition",
        rules.with(|strategy| strategy.partition = Share::Number(1)),
    );
}

#[test]
fn nodes_that_are_not_selected_are_not_touched() {
    let faults = Faults {
        losses: 1,
        restarts: 1,
        freezes: 1,
        ..templates(2)
    };
    explore("selector", Rules::of(3, 1, faults).selecting(2));
}

#[test]
fn a_pause_lets_nothing_begin_and_forgets_nothing() {
    let faults = Faults {
        pauses: 2,
        losses: 1,
        freezes: 1,
        ..templates(1)
    };
    explore("pause", Rules::of(3, 1, faults));
}

#[test]
fn under_ota_every_pod_is_told_the_truth_and_none_is_replaced() {
    let faults = Faults {
        losses: 1,
        restarts: 1,
        kills: 1,
        ..templates(2)
    };
    let rules = Rules::of(2, 1, faults);
    explore("OTA", rules.with(|strategy| strategy.mode = Mode::Ota));
}

#[test]
fn an_image_that_crashes_stops_at_the_budget() {
    let faults = Faults {
        restarts: 1,
        ..templates(2)
    };
    let rules = Rules {
        broken: Some(1),
        ..Rules::of(4, 2, faults)
    };
    explore("an image that crashes", rules);
}

#[test]
fn a_revision_that_kills_its_nodes_stops_at_the_budget() {
    let faults = Faults {
        losses: 1,
        ..templates(2)
    };
    let rules = Rules {
        killer: Some(1),
        ..Rules::of(3, 1, faults)
    };
    explore(
        "a revision that kills",
        rules.with(|strategy| strategy.min_ready = TICK),
    );
}

#[test]
fn pods_that_stay_ready_while_their_node_is_away_are_no_less_offline() {
    let faults = Faults {
        losses: 2,
        ..templates(2)
    };
    let rules = Rules {
        autonomous: true,
        ..Rules::of(3, 1, faults)
    };
    explore("autonomous nodes", rules);
}

#[test]
fn a_pace_changes_nothing_but_the_time() {
    let faults = Faults {
        losses: 1,
        restarts: 1,
        ..templates(2)
    };
    let rules = Rules::of(3, 2, faults).with(|strategy| {
        strategy.min_interval = TICK;
        strategy.ramp_up = Some(Share::Number(1));
    });
    explore("min-interval and ramp-up", rules);
}

#[test]
fn five_nodes_hold_as_few() {
    let faults = Faults {
        losses: 1,
        restarts: 1,
        ..templates(1)
    };
    explore("five nodes", Rules::of(5, 2, faults));
}

#[test]
fn one_node_too_many_is_noticed() {
    let rules = Rules {
        judged_by: Some(1),
        ..Rules::of(3, 2, templates(1))
    };
    let (property, way) = search("too strict a judge", rules).expect("a counterexample");
    let last = way.last().and_then(|(state, _)| state.violation);
    assert_eq!(
        (property, last),
        ("no violation", Some(Violation::BudgetExceeded))
    );
}

#[test]
fn pods_that_are_updated_in_place_take_slots_until_they_run_the_new_image() {
    let faults = Faults {
        losses: 1,
        restarts: 1,
        ..templates(2)
    };
    let rules = Rules::of(3, 1, faults);
    explore(
        "in place",
        rules.with(|strategy| strategy.rolling_update_type = RollingUpdateType::InPlaceIfPossible),
    );
}

#[test]
fn in_place_is_no_less_safe_with_watches_that_stand_still() {
    let faults = Faults {
        freezes: 2,
        kills: 1,
        ..templates(2)
    };
    let rules = Rules::of(2, 1, faults);
    explore(
        "in place, frozen watches",
        rules.with(|strategy| strategy.rolling_update_type = RollingUpdateType::InPlaceIfPossible),
    );
}

#[test]
fn images_that_are_pulled_ahead_hold_up_nobody_for_ever() {
    let faults = Faults {
        losses: 1,
        restarts: 1,
        freezes: 1,
        ..templates(2)
    };
    let rules = Rules::of(2, 1, faults).with(|strategy| {
        strategy.image_predownload_parallelism = Some(Share::Number(1));
        strategy.predownload = Some(Predownload::Required);
    });
    explore("images pulled ahead", rules);
}

#[test]
fn one_failure_domain_after_the_other_gets_to_the_end() {
    let faults = Faults {
        losses: 1,
        crashes: 1,
        ..templates(2)
    };
    let rules = Rules {
        selected: 1,
        ..Rules::of(3, 2, faults)
    };
    let zones = Topology {
        key: "zone".into(),
        at_once: 1,
    };
    let rules = rules.with(|strategy| strategy.topology = Some(zones));
    explore("failure domains", rules);
}
