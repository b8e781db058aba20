//! Tests of surge pods, which start while the old pod still runs (`max-surge`). A node that has an available pod must never become
//! unavailable because of the controller.

use super::plain::templates;
use super::rules::Rules;
use super::search::{explore, search};
use super::state::{Faults, Violation};
use super::view::TICK;

#[test]
fn a_new_pod_beside_the_old_one_leaves_nobody_alone() {
    let faults = Faults {
        losses: 1,
        crashes: 1,
        restarts: 1,
        ..templates(2)
    };
    explore("surge", Rules::of(2, 0, faults).surging(1));
}

#[test]
fn watches_that_stand_still_take_no_pod_before_its_successor_serves() {
    let faults = Faults {
        freezes: 2,
        restarts: 1,
        ..templates(2)
    };
    explore("surge, frozen watches", Rules::of(2, 0, faults).surging(1));
}

#[test]
fn pods_that_others_delete_leave_no_orphan() {
    let faults = Faults {
        kills: 2,
        restarts: 1,
        freezes: 1,
        ..templates(1)
    };
    explore("surge, kills", Rules::of(2, 0, faults).surging(2));
}

#[test]
fn three_nodes_surge_one_at_a_time() {
    let faults = Faults {
        restarts: 1,
        losses: 1,
        ..templates(2)
    };
    explore("surge, three nodes", Rules::of(3, 0, faults).surging(1));
}

#[test]
fn young_pods_beside_old_ones_are_waited_for() {
    let faults = Faults {
        crashes: 1,
        freezes: 1,
        ..templates(2)
    };
    let rules = Rules::of(2, 0, faults).surging(1);
    let rules = rules.with(|strategy| strategy.min_ready = TICK);
    explore("surge, minReadySeconds", rules);
}

#[test]
fn a_bad_image_stays_beside_the_pods_that_serve() {
    let faults = Faults {
        restarts: 1,
        ..templates(2)
    };
    let rules = Rules {
        broken: Some(1),
        ..Rules::of(3, 0, faults).surging(2)
    };
    explore("surge, an image that crashes", rules);
}

#[test]
fn both_budgets_are_kept() {
    let faults = Faults {
        restarts: 1,
        crashes: 1,
        ..templates(2)
    };
    explore(
        "surge and max-unavailable",
        Rules::of(3, 1, faults).surging(1),
    );
}

#[test]
fn a_pause_leaves_both_pods() {
    let faults = Faults {
        pauses: 2,
        restarts: 1,
        ..templates(2)
    };
    explore("surge, pause", Rules::of(2, 0, faults).surging(1));
}

#[test]
fn a_hook_is_asked_before_the_old_pod_goes() {
    let faults = Faults {
        restarts: 1,
        freezes: 1,
        unhooks: 1,
        ..templates(2)
    };
    explore("surge, hooks", Rules::of(2, 0, faults).surging(1).hooking());
}

#[test]
fn a_native_controller_that_learns_late_removes_no_pod_that_serves() {
    let faults = Faults {
        crashes: 1,
        restarts: 1,
        ..templates(2)
    };
    let rules = Rules::of(2, 0, faults).surging(1).out_of_order();
    explore("surge, out of order", rules);
}

#[test]
fn pods_that_others_delete_end_well_where_the_native_controller_learns_late() {
    let faults = Faults {
        kills: 2,
        freezes: 1,
        ..templates(1)
    };
    let rules = Rules::of(2, 0, faults).surging(2).out_of_order();
    explore("surge, out of order, kills", rules);
}

#[test]
fn watches_that_stand_still_beside_a_native_controller_that_learns_late() {
    let faults = Faults {
        freezes: 2,
        losses: 1,
        ..templates(2)
    };
    let rules = Rules::of(2, 0, faults).surging(1).out_of_order();
    explore("surge, out of order, frozen watches", rules);
}

/// Shows that the tests above can fail. Here, the controller wrongly assumes that the native controller sees changes in order. The
/// search must find a state that violates an invariant.
#[test]
fn handing_over_at_once_to_a_native_controller_that_learns_late_is_found_out() {
    let rules = Rules {
        trusted: true,
        ..Rules::of(1, 0, templates(1)).surging(1).out_of_order()
    };
    let (property, way) = search("trust in the wrong one", rules).expect("a counterexample");
    assert_eq!(property, "no violation");
    let (state, _) = way.last().expect("a way");
    assert_eq!(state.violation, Some(Violation::BudgetExceeded));
}
