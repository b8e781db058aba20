//! Tests of obstacles outside the controller: writes that a policy rejects, deleted pods that never end, taints, and deletions that
//! take a node offline.

use yurt_ds::core::{IntOrPercent, Phase, Stall, Verdict};

use super::denials::Policy;
use super::plain::templates;
use super::rules::Rules;
use super::search::explore;
use super::state::{Faults, State};
use super::steps::Step;
use super::view::TICK;

fn policies() -> Faults {
    Faults {
        policies: 1,
        ..templates(2)
    }
}

fn hangs() -> Faults {
    Faults {
        hangs: 1,
        ..templates(2)
    }
}

/// Returns rules under which a policy is never removed and a deleted pod that hangs never ends.
fn for_ever(rules: Rules) -> Rules {
    Rules {
        lasting: true,
        ..rules
    }
}

#[test]
fn the_model_leaves_out_who_is_refused_and_names_it() {
    let rules = for_ever(Rules::of(3, 1, policies()));
    let refused = rules.policies(1).next().expect("deletions");
    assert_eq!(refused, Policy { node: 1, ..refused });
    let begun = State::settled(&rules).after(Step::Refuse(refused), &rules);
    let end = begun
        .after(Step::Change(1), &rules)
        .end(&rules)
        .expect("an end");
    assert!(end.has_converged(&rules));
    let pods = end.nodes.iter().flat_map(|node| &node.pods);
    assert_eq!(pods.map(|pod| pod.template).collect::<Vec<_>>(), [1, 0, 1]);
    let plan = end.plan(&rules);
    assert_eq!(plan.phase, Phase::Stalled(Stall::WritesRefused));
    assert!(matches!(plan.verdicts[1], Verdict::Refused { .. }));
}

#[test]
fn the_model_names_a_pod_that_never_ends() {
    let rules = for_ever(Rules::of(3, 1, hangs()));
    let begun = State::settled(&rules).after(Step::Hang(0), &rules);
    let end = begun
        .after(Step::Change(1), &rules)
        .end(&rules)
        .expect("an end");
    assert!(end.has_converged(&rules));
    let plan = end.plan(&rules);
    assert_eq!(plan.phase, Phase::Stalled(Stall::NoProgress));
}

#[test]
fn a_policy_for_a_while_holds_up_nobody_for_longer() {
    let faults = Faults {
        restarts: 1,
        losses: 1,
        ..policies()
    };
    explore("refused for a while", Rules::of(3, 1, faults));
}

#[test]
fn a_policy_for_ever_is_named() {
    let faults = Faults {
        restarts: 1,
        kills: 1,
        ..policies()
    };
    explore("refused for ever", for_ever(Rules::of(3, 1, faults)));
}

#[test]
fn a_policy_behind_watches_that_stand_still_spends_nothing_twice() {
    let faults = Faults {
        freezes: 1,
        ..policies()
    };
    explore("refused, frozen watches", Rules::of(3, 2, faults));
}

#[test]
fn a_policy_against_a_step_of_a_pair_leaves_no_node_without_a_pod() {
    let rules = || Rules::of(2, 0, policies()).surging(1);
    explore("refused, surge", rules());
    explore("refused for ever, surge", for_ever(rules()));
}

#[test]
fn a_policy_against_updates_in_place_is_named() {
    let rules = || Rules::of(2, 1, policies()).in_place();
    explore("refused, in place", rules());
    explore("refused for ever, in place", for_ever(rules()));
}

#[test]
fn a_policy_against_the_mark_of_a_hook_is_named() {
    let rules = || Rules::of(2, 1, policies()).hooking();
    explore("refused, hooks", rules());
    explore("refused for ever, hooks", for_ever(rules()));
}

#[test]
fn a_pod_that_ends_late_or_never_keeps_its_slot_and_is_named() {
    let faults = Faults {
        losses: 1,
        restarts: 1,
        ..hangs()
    };
    explore("pods that hang", Rules::of(3, 1, faults));
    explore("pods that never end", for_ever(Rules::of(3, 1, faults)));
}

#[test]
fn an_old_pod_that_never_ends_beside_its_new_one_keeps_its_place() {
    let rules = || Rules::of(2, 0, hangs()).surging(1);
    explore("pods that hang, surge", rules());
    explore("pods that never end, surge", for_ever(rules()));
}

#[test]
fn a_taint_that_comes_or_goes_in_the_middle_takes_no_pod_away() {
    let faults = Faults {
        taints: 2,
        restarts: 1,
        ..templates(2)
    };
    explore("taints", Rules::of(3, 1, faults));
    explore("taints, surge", Rules::of(2, 0, faults).surging(1));
}

#[test]
fn a_removal_that_takes_its_node_down_stops_the_revision() {
    let faults = Faults {
        restarts: 1,
        ..templates(1)
    };
    let rules = Rules {
        deadly: Some(0),
        remembers: true,
        ..Rules::of(4, 1, faults)
    };
    let rules = rules.with(|strategy| {
        (strategy.failure_threshold, strategy.min_ready) = (Some(IntOrPercent::Number(1)), TICK);
    });
    explore("removals that take nodes down", rules);
}
