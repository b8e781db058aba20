//! Tests of evictions under a disruption budget that allows fewer pods than `max-unavailable`.

use super::plain::templates;
use super::rules::Rules;
use super::search::explore;
use super::state::{Faults, State, Template};
use super::steps::Step;

#[test]
fn the_model_evicts_as_far_as_the_budget_allows() {
    for (asked, reached) in [(2, 1), (3, 0)] {
        let rules = Rules::of(3, 2, templates(1)).evicting(asked);
        let begun = State::settled(&rules).after(Step::Change(1), &rules);
        let end = begun.end(&rules).expect("an end");
        assert!(end.has_converged(&rules));
        let pods = end.nodes.iter().flat_map(|node| &node.pods);
        let templates: Vec<Template> = pods.map(|pod| pod.template).collect();
        assert_eq!(templates, [reached; 3]);
    }
}

#[test]
fn a_budget_that_refuses_is_kept_and_waited_for() {
    let faults = Faults {
        crashes: 1,
        restarts: 1,
        ..templates(2)
    };
    explore("evict", Rules::of(3, 2, faults).evicting(2));
}

#[test]
fn a_node_that_is_lost_is_missing_in_the_budget() {
    let faults = Faults {
        losses: 1,
        kills: 1,
        ..templates(2)
    };
    explore(
        "evict, losses and kills",
        Rules::of(3, 3, faults).evicting(2),
    );
}

#[test]
fn watches_that_stand_still_do_not_get_round_the_budget() {
    let faults = Faults {
        freezes: 2,
        crashes: 1,
        ..templates(2)
    };
    explore("evict, frozen watches", Rules::of(3, 2, faults).evicting(2));
}

#[test]
fn a_budget_that_allows_nothing_lets_nobody_go() {
    let faults = Faults {
        crashes: 1,
        restarts: 1,
        kills: 1,
        ..templates(2)
    };
    explore(
        "evict, nothing allowed",
        Rules::of(2, 1, faults).evicting(2),
    );
}

#[test]
fn an_image_that_crashes_stops_at_the_disruption_budget() {
    let faults = Faults {
        restarts: 1,
        ..templates(2)
    };
    let rules = Rules {
        broken: Some(1),
        ..Rules::of(3, 2, faults)
    };
    explore("evict, an image that crashes", rules.evicting(2));
}

#[test]
fn a_pod_beside_the_old_one_lets_that_go() {
    let faults = Faults {
        crashes: 1,
        restarts: 1,
        ..templates(2)
    };
    let rules = Rules::of(2, 0, faults).surging(1);
    explore("evict, surge", rules.evicting(2));
}

#[test]
fn a_pair_waits_for_the_budget_as_long_as_a_node_is_lost() {
    let faults = Faults {
        losses: 1,
        kills: 1,
        freezes: 1,
        ..templates(2)
    };
    let rules = Rules::of(2, 1, faults).surging(1);
    explore("evict, surge and losses", rules.evicting(2));
}
