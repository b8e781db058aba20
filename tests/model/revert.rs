//! Tests of in-place reverts from a revision that the guard stopped because too many nodes failed (`on-failure: RevertInPlace`).

use yurt_ds::core::IntOrPercent;

use super::guard::guarded;
use super::plain::templates;
use super::rules::Rules;
use super::search::explore;
use super::state::{Faults, State};
use super::steps::Step;

#[test]
fn the_model_takes_back() {
    let rules = guarded(3, 2, templates(1)).reverting();
    let begun = State::settled(&rules).after(Step::Change(1), &rules);
    let end = begun.end(&rules).expect("an end");
    assert!(end.has_converged(&rules));
    let mut pods = end.nodes.iter().flat_map(|node| &node.pods);
    assert!(pods.clone().all(|pod| pod.template == 0));
    assert!(pods.any(|pod| pod.rolled_back == Some(1)));
}

#[test]
fn an_image_that_crashes_is_taken_back_whoever_deletes_pods_or_kills_us() {
    let faults = Faults {
        restarts: 1,
        kills: 1,
        ..templates(1)
    };
    explore("revert, kills", guarded(3, 2, faults).reverting());
}

#[test]
fn what_is_taken_back_stays_so_without_its_node() {
    let faults = Faults {
        restarts: 1,
        removals: 1,
        freezes: 1,
        ..templates(1)
    };
    explore("revert, nodes deleted", guarded(3, 2, faults).reverting());
}

#[test]
fn a_rollback_and_a_resume_end_what_is_taken_back() {
    let faults = Faults {
        restarts: 1,
        resumes: 1,
        ..templates(2)
    };
    explore(
        "revert, resume and rollback",
        guarded(3, 2, faults).reverting(),
    );
}

/// Returns rules under which pods of the new revision may take their node offline. The guard allows `threshold` failed nodes, and
/// then the controller reverts pods, even if they are available.
fn killing(nodes: usize, threshold: u32, faults: Faults) -> Rules {
    let rules = Rules {
        broken: None,
        killer: Some(1),
        ..guarded(nodes, 1, faults)
    };
    rules
        .reverting()
        .with(|strategy| strategy.failure_threshold = Some(IntOrPercent::Number(threshold)))
}

#[test]
fn pods_that_serve_are_taken_back_one_after_the_other() {
    let faults = Faults {
        restarts: 1,
        losses: 1,
        ..templates(1)
    };
    explore("revert, nodes that die", killing(3, 1, faults));
}

#[test]
fn pods_that_serve_wait_for_the_slot_of_a_node_that_died() {
    let rules = killing(3, 0, templates(1));
    explore("revert, nodes that die and nothing else", rules);
}

#[test]
fn a_fleet_that_was_rolled_out_is_taken_back_one_after_the_other() {
    let rules = Rules {
        rolled_out: true,
        ..killing(3, 0, Faults::default())
    };
    explore("revert, nodes that die after the rollout", rules);
}

#[test]
fn pods_that_serve_go_forward_again_after_a_resume() {
    let faults = Faults {
        resumes: 1,
        kills: 1,
        ..templates(1)
    };
    let rules = killing(2, 1, faults);
    explore("revert, nodes that die, resume", rules);
}

#[test]
fn a_resume_ends_the_wait_for_a_slot() {
    let faults = Faults {
        resumes: 1,
        kills: 1,
        ..templates(1)
    };
    let rules = killing(2, 0, faults);
    explore("revert, one node that dies, resume", rules);
}

#[test]
fn what_came_in_place_goes_back_in_place() {
    let faults = Faults {
        restarts: 1,
        resumes: 1,
        crashes: 1,
        ..templates(2)
    };
    let rules = guarded(2, 1, faults).reverting();
    explore("revert, in place", rules.in_place());
}
