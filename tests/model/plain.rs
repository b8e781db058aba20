//! Tests of plain rollouts with deletions, lost nodes, crashing pods, and controller restarts.

use yurt_ds::core::Mode;

use super::rules::Rules;
use super::search::{explore, search};
use super::state::{Faults, State, Template, Violation};
use super::steps::Step;
use super::view::TICK;

/// Returns faults that change only the template of the DaemonSet, at most this many times.
pub(crate) fn templates(templates: u8) -> Faults {
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
