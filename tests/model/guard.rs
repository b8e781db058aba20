//! Tests of the guard, which stops a revision when too many nodes fail with it, and of its record of failed nodes.

use yurt_ds::core::IntOrPercent;

use super::plain::templates;
use super::rules::Rules;
use super::search::explore;
use super::state::Faults;
use super::view::TICK;

/// Returns rules under which pods of template 1 crash. The guard allows one failed node, and stores its record of failed nodes on
/// the DaemonSet.
pub(crate) fn guarded(nodes: usize, allowed: u32, faults: Faults) -> Rules {
    let rules = Rules {
        broken: Some(1),
        remembers: true,
        ..Rules::of(nodes, allowed, faults)
    };
    rules.with(|strategy| strategy.failure_threshold = Some(IntOrPercent::Number(1)))
}

#[test]
fn a_stop_lasts_whoever_deletes_pods_or_kills_us() {
    let faults = Faults {
        restarts: 1,
        kills: 2,
        ..templates(1)
    };
    explore("guard, kills", guarded(3, 2, faults));
}

#[test]
fn a_stop_lasts_without_its_node() {
    let faults = Faults {
        restarts: 1,
        removals: 1,
        freezes: 1,
        ..templates(1)
    };
    explore("guard, nodes deleted", guarded(3, 2, faults));
}

#[test]
fn a_rollback_and_a_resume_end_a_stop() {
    let faults = Faults {
        restarts: 1,
        resumes: 1,
        ..templates(2)
    };
    explore("guard, resume and rollback", guarded(3, 2, faults));
}

#[test]
fn nodes_that_are_lost_after_their_new_pod_are_remembered() {
    let faults = Faults {
        restarts: 1,
        losses: 1,
        ..templates(1)
    };
    let rules = Rules {
        broken: None,
        killer: Some(1),
        ..guarded(3, 2, faults)
    };
    explore("guard, nodes that die", rules);
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
