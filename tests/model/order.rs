//! Tests of the selection and order of nodes: `partition`, `selector`, `min-interval` and `ramp-up`, failure domains, waves, hooks.
//! A wave is a pool of nodes that is updated after another pool.

use std::time::Duration;

use yurt_ds::core::{IntOrPercent, Topology};

use super::plain::templates;
use super::rules::Rules;
use super::search::explore;
use super::state::Faults;
use super::view::TICK;

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
        rules.with(|strategy| strategy.partition = IntOrPercent::Number(1)),
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
fn a_pace_changes_nothing_but_the_time() {
    let faults = Faults {
        losses: 1,
        restarts: 1,
        ..templates(2)
    };
    let rules = Rules::of(3, 2, faults).with(|strategy| {
        strategy.min_interval = TICK;
        strategy.ramp_up = Some(IntOrPercent::Number(1));
    });
    explore("min-interval and ramp-up", rules);
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

#[test]
fn no_wave_begins_before_the_first_one_is_complete() {
    let faults = Faults {
        losses: 1,
        restarts: 1,
        ..templates(2)
    };
    let rules = Rules::of(3, 1, faults);
    explore("waves", rules.in_waves(1, Duration::ZERO, false));
}

#[test]
fn a_wave_waits_for_its_soak_and_for_its_approval() {
    let faults = Faults {
        losses: 1,
        kills: 1,
        ..templates(2)
    };
    let rules = Rules::of(2, 1, faults);
    explore("waves, soak and approval", rules.in_waves(1, TICK, true));
}

#[test]
fn no_pod_goes_before_its_hook_lets_go() {
    let faults = Faults {
        losses: 1,
        restarts: 1,
        unhooks: 1,
        ..templates(2)
    };
    explore("hooks", Rules::of(3, 1, faults).hooking());
}

#[test]
fn hooks_are_asked_no_less_with_watches_that_stand_still() {
    let faults = Faults {
        freezes: 2,
        unhooks: 1,
        ..templates(2)
    };
    explore("hooks, frozen watches", Rules::of(2, 1, faults).hooking());
}
