//! Tests of Advanced DaemonSets: the controller also creates the pods, even on nodes that join and leave.

use yurt_ds::core::{IntOrPercent, Scaling};

use super::plain::templates;
use super::rules::Rules;
use super::search::{explore, search};
use super::state::{Faults, State, Template, Violation};
use super::steps::Step;
use super::view::TICK;

#[test]
fn the_model_makes_its_pods_and_rolls_them_out() {
    let rules = Rules::of(4, 2, templates(1)).advanced().empty();
    let made = State::first(&rules).end(&rules).expect("an end");
    let end = made.after(Step::Change(1), &rules).end(&rules);
    for (state, template) in [(made, 0), (end.expect("an end"), 1)] {
        assert!(state.has_converged(&rules));
        for node in &state.nodes {
            let templates: Vec<Template> = node.pods.iter().map(|pod| pod.template).collect();
            assert_eq!(templates, [template]);
        }
    }
}

#[test]
fn nodes_that_join_and_leave_in_a_rollout_get_one_pod_each() {
    let faults = Faults {
        removals: 1,
        losses: 1,
        restarts: 1,
        ..templates(2)
    };
    let rules = Rules::of(3, 1, faults).advanced().joining(1);
    explore("advanced, joins and removals", rules);
}

#[test]
fn a_node_that_fits_no_longer_loses_its_pod_and_gets_one_when_it_fits_again() {
    let faults = Faults {
        misfits: 2,
        taints: 1,
        losses: 1,
        ..templates(1)
    };
    explore("advanced, misfits", Rules::of(2, 1, faults).advanced());
}

#[test]
fn watches_that_stand_still_make_no_second_pod() {
    let faults = Faults {
        freezes: 2,
        kills: 1,
        misfits: 1,
        ..templates(1)
    };
    let rules = Rules::of(2, 1, faults).advanced().empty();
    explore("advanced, frozen watches", rules);
}

#[test]
fn pods_that_are_refused_or_not_answered_for_are_made_later() {
    let faults = Faults {
        write_failures: 1,
        silences: 1,
        freezes: 1,
        restarts: 1,
        ..templates(1)
    };
    let rules = Rules::of(3, 1, faults).advanced().empty();
    explore("advanced, refusals", rules);
}

#[test]
fn pods_that_are_over_are_followed_by_others() {
    let faults = Faults {
        failures: 2,
        kills: 1,
        freezes: 1,
        ..templates(1)
    };
    explore("advanced, failed pods", Rules::of(2, 1, faults).advanced());
}

#[test]
fn a_pod_that_nobody_controls_is_adopted_and_only_one_stays() {
    let faults = Faults {
        orphans: 2,
        freezes: 1,
        restarts: 1,
        ..templates(1)
    };
    let rules = Rules::of(2, 1, faults).advanced().joining(1);
    explore("advanced, orphans", rules);
}

#[test]
fn young_pods_take_slots_whoever_made_them() {
    let faults = Faults {
        crashes: 1,
        kills: 1,
        restarts: 1,
        ..templates(2)
    };
    let rules = Rules::of(3, 1, faults).advanced();
    let rules = rules.with(|strategy| strategy.min_ready = TICK);
    explore("advanced, minReadySeconds", rules);
}

#[test]
fn a_hook_is_asked_before_a_pod_goes_for_whatever_reason() {
    let faults = Faults {
        misfits: 2,
        unhooks: 1,
        freezes: 1,
        ..templates(1)
    };
    let rules = Rules::of(2, 1, faults).advanced().hooking();
    explore("advanced, hooks", rules);
}

#[test]
fn pods_are_made_while_a_rollout_is_paused() {
    let faults = Faults {
        pauses: 2,
        kills: 1,
        misfits: 1,
        ..templates(1)
    };
    let rules = Rules::of(2, 1, faults).advanced().joining(1);
    explore("advanced, pause", rules);
}

#[test]
fn a_burst_of_one_gets_to_the_end() {
    let faults = Faults {
        misfits: 2,
        write_failures: 1,
        restarts: 1,
        ..templates(1)
    };
    let one = Scaling {
        burst: IntOrPercent::Number(1),
        ..Scaling::default()
    };
    let rules = Rules::of(3, 2, faults).advanced().empty().scaling(one);
    explore("advanced, burstReplicas", rules);
}

#[test]
fn progressive_creation_leaves_as_many_nodes_without_a_new_pod_as_partition_says() {
    let faults = Faults {
        kills: 1,
        silences: 1,
        restarts: 1,
        ..templates(1)
    };
    let partitioned = Scaling {
        partitioned: true,
        ..Scaling::default()
    };
    let fleets = [1, 2].map(|allowed| Rules::of(3, allowed, faults));
    let fleets = fleets.into_iter().chain([Rules::of(3, 1, faults).empty()]);
    for (number, rules) in fleets.enumerate() {
        let rules = rules.advanced().scaling(partitioned);
        let rules = rules.with(|strategy| strategy.partition = IntOrPercent::Number(1));
        explore(&format!("advanced, progressive creation {number}"), rules);
    }
}

#[test]
fn in_place_the_same_pods_stay() {
    let faults = Faults {
        misfits: 1,
        failures: 1,
        restarts: 1,
        ..templates(2)
    };
    let rules = Rules::of(2, 1, faults).advanced().in_place();
    explore("advanced, in place", rules);
}

#[test]
fn with_surge_nobody_is_left_alone_and_nobody_gets_a_third_pod() {
    let faults = Faults {
        losses: 1,
        restarts: 1,
        misfits: 1,
        ..templates(2)
    };
    explore(
        "advanced, surge",
        Rules::of(2, 0, faults).advanced().surging(1),
    );
}

#[test]
fn with_surge_pods_that_others_delete_or_that_fail_end_well() {
    let faults = Faults {
        kills: 1,
        failures: 1,
        freezes: 1,
        ..templates(2)
    };
    let rules = Rules::of(2, 0, faults).advanced().surging(1);
    explore("advanced, surge, failed pods", rules);
}

#[test]
fn with_both_budgets_no_second_pod_is_made_before_it_is_known_that_the_first_one_goes() {
    let faults = Faults {
        crashes: 1,
        freezes: 1,
        ..templates(1)
    };
    let rules = Rules::of(1, 1, faults).advanced().surging(1);
    explore("advanced, surge and max-unavailable", rules);
}

#[test]
fn one_node_too_many_is_noticed_where_we_make_the_pods() {
    let rules = Rules {
        judged_by: Some(1),
        ..Rules::of(3, 2, templates(1)).advanced()
    };
    let (property, way) = search("advanced, too strict a judge", rules).expect("a counterexample");
    let last = way.last().and_then(|(state, _)| state.violation);
    assert_eq!(
        (property, last),
        ("no violation", Some(Violation::BudgetExceeded))
    );
}
