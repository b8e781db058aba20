//! Exploration of states, and the definition of a converged state.

use std::collections::{BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use stateright::{Checker, Model, Property};
use yurt_ds::core::{Mode, Phase, Revert, Stall, Verdict, WaveShut, WriteVerb};

use super::reversal::are_slots_lost;
use super::rules::Rules;
use super::state::{Node, Pod, State, View};
use super::steps::Step;
use crate::support::{golden, machine};

/// Limit of explored states per test: by default, and for each unit of `YURT_DS_DEEP`.
const STATES: [usize; 2] = [5_000, 100_000];
/// Number of states whose decisions are compared with `tests/golden/model.txt`.
const GOLDEN: usize = 300;
/// Sampling interval: for one in this many states, the test checks that the fleet becomes idle.
const SAMPLE: u64 = 256;
/// Number of steps without faults within which the fleet must become idle.
const PATIENCE: usize = 200;

impl Model for Rules {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::first(self)]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        // A state that violates an invariant is already a counterexample, so the search doesn't explore beyond it.
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
    /// Returns true if the fleet is idle: every possible step, except a fault, leaves the state as it is.
    fn is_at_rest(&self, rules: &Rules) -> bool {
        let mut steps = self.progress(rules).into_iter();
        steps.all(|step| self.after(step, rules) == *self)
    }

    /// Returns true if this state belongs to the sample for which the test checks that the fleet becomes idle. That check is as
    /// expensive as a hundred states.
    fn is_sample(&self) -> bool {
        self.fingerprint().is_multiple_of(SAMPLE)
    }

    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    /// Performs possible steps, without faults, until the fleet is idle. Returns the final state, or `None` if the fleet is not
    /// idle after [`PATIENCE`] steps.
    pub(crate) fn end(&self, rules: &Rules) -> Option<Self> {
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

    /// Returns true if every node has reached its goal, or has a verdict that says why it can't reach the goal in this state.
    pub(crate) fn has_converged(&self, rules: &Rules) -> bool {
        let plan = self.plan(rules);
        let is_spent = are_slots_lost(&plan, rules);
        let excused = |(n, verdict): (usize, &Verdict)| match verdict {
            Verdict::Done | Verdict::Offline(_) | Verdict::FailedByRevision { .. } => true,
            Verdict::Refused { .. } => {
                plan.next_wake.is_some() && self.policy.is_some_and(|policy| policy.node == n)
            }
            Verdict::UntoleratedTaint | Verdict::NotTargeted => {
                self.nodes[n].tainted || self.nodes[n].unfit
            }
            Verdict::Partition => rules.kept(self.nodes.len()) > 0,
            Verdict::NotSelected => rules.strategy.selector.is_some(),
            Verdict::Paused { .. } => self.set.paused,
            Verdict::InProgress(_) | Verdict::HookPending { .. } if self.set.paused => true,
            // The first wave lost a node after its update. Later waves stay closed until another revision is rolled out.
            Verdict::WaveNotOpen { why, .. } => matches!(why, WaveShut::Charged { .. }),
            Verdict::BlockedByPdb { .. } => plan.next_wake.is_some() && self.is_exhausted(rules),
            Verdict::Revert(Revert::Done) => self.is_stopped(),
            Verdict::Revert(Revert::Pending) => self.is_stopped() && is_spent,
            Verdict::AwaitingOwner => rules.strategy.mode == Mode::Ota,
            // A node may wait forever only if the rollout is stalled. The failed nodes then take all slots of the budget, so no
            // other node gets one.
            Verdict::InProgress(_)
            | Verdict::HookPending { .. }
            | Verdict::Budget { .. }
            | Verdict::Guarded(_) => match plan.phase {
                Phase::Stalled(Stall::FailedByRevision) => true,
                Phase::Stalled(_) => rules.broken.is_some() || rules.lasting,
                _ => false,
            },
            _ => false,
        };
        let is_tidy = |(n, node): (usize, &Node)| {
            let is_marked = |pod: &Pod| pod.marked && !self.is_refused(n, WriteVerb::Unmark);
            !node.pods.iter().any(|pod| pod.spare || is_marked(pod))
        };
        let nodes = self.nodes.iter().enumerate();
        let mut online = nodes.filter(|(_, node)| node.ready);
        let waits = matches!(plan.phase, Phase::Stalled(_)) || self.set.paused;
        // The model doesn't measure for how long a budget has rejected evictions. So a rollout that waits for the budget never
        // counts as stalled here, and may stay in the phase Progressing.
        let is_blocked = |verdict: &Verdict| matches!(verdict, Verdict::BlockedByPdb { .. });
        let waits_for_budget = plan.verdicts.iter().any(is_blocked);
        let there = (0..self.nodes.len()).filter(|n| !self.nodes[*n].gone);
        let mut verdicts = there.zip(&plan.verdicts);
        self.view == View::default()
            && (plan.phase != Phase::Progressing || waits_for_budget)
            && self.has_nothing_to_do(&plan, rules)
            && verdicts.all(excused)
            && (waits || online.all(is_tidy))
            && (!rules.is_advanced || self.is_manned(waits, rules))
            && self.is_rolled_back(is_spent, rules)
    }
}

/// Name of a violated property, and a shortest sequence of states and steps that leads to the violation.
pub(crate) type Counterexample = (&'static str, Vec<(State, Option<Step>)>);

/// Explores the states of `rules` and prints their number. Returns a counterexample if a property is violated.
#[expect(clippy::disallowed_methods, reason = "says how long it took")]
pub(crate) fn search(name: &str, rules: Rules) -> Option<Counterexample> {
    let [few, all] = STATES;
    let limit = machine::limit(few, all);
    let checker = rules.checker().threads(2).target_state_count(limit);
    let begin = std::time::Instant::now();
    let checker = checker.spawn_bfs().join();
    let extent = if checker.state_count() < limit {
        "all"
    } else {
        "the first"
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

/// Explores the states of `rules`. Fails if a property is violated, or if decisions differ from `tests/golden/model.txt`.
pub(crate) fn explore(name: &str, rules: Rules) {
    let test = std::thread::current();
    let test = test
        .name()
        .unwrap_or_default()
        .trim_start_matches("model::");
    let golden = golden::check_model(&format!("{test} {name}"), &decisions(&rules));
    if let Some((property, way)) = search(name, rules.clone()) {
        let steps = way
            .iter()
            .map(|(state, step)| format!("{state:?}\n    {step:?}"));
        let steps: Vec<String> = steps.collect();
        let last = way.last().map(|(state, _)| state.plan(&rules));
        panic!("{name}, {property}:\n{}\n{last:#?}", steps.join("\n"));
    }
    if let Err(differs) = golden {
        panic!("{differs}");
    }
}

/// Returns the decisions in the first [`GOLDEN`] states, in breadth-first order: phases, verdicts and actions, without messages.
fn decisions(rules: &Rules) -> Vec<String> {
    let first = State::first(rules);
    let mut seen = BTreeSet::from([first.fingerprint()]);
    let mut next = VecDeque::from([first]);
    let mut decided = Vec::new();
    while let Some(state) = next.pop_front().filter(|_| decided.len() < GOLDEN) {
        let plan = state.plan(rules);
        let verdicts: Vec<&str> = plan.verdicts.iter().map(Verdict::word).collect();
        decided.push(format!(
            "{} {verdicts:?} {:?}",
            plan.phase.word(),
            plan.actions
        ));
        let mut steps = Vec::new();
        rules.actions(&state, &mut steps);
        for step in steps {
            let after = state.after(step, rules);
            if seen.insert(after.fingerprint()) {
                next.push_back(after);
            }
        }
    }
    decided
}
