//! Tests of evictions: which pods are evicted, when a refused eviction is retried, and the verdicts of the nodes.

use std::sync::Arc;

use super::*;
use crate::core::fleet::evictions::{KEPT, Refusal};
use crate::core::fleet::{Fleet, Node};
use crate::core::id::PodRevision;
use crate::core::lifecycle::{PreDelete, PreDeleteHook};
use crate::core::testing::{at, current, fleet, node, old};
use crate::core::verdict::Obstruction;
use crate::core::{IntOrPercent, Mode, Phase, Plan, Stall, decide};

fn evicting(nodes: u32) -> Strategy {
    Strategy {
        max_unavailable: IntOrPercent::Number(nodes),
        disruption: Disruption::Evict,
        ..Strategy::with_mode(Mode::AdvancedRollingUpdate)
    }
}

fn refusal(obstruction: Obstruction) -> Refusal {
    Refusal {
        budget: Some("web".into()),
        obstruction,
    }
}

/// Returns a fleet in which a disruption budget refused the eviction of the first node's pod at each second in `instants`.
fn refused(nodes: Vec<Node>, instants: &[i64]) -> Fleet {
    refused_by(nodes, instants, Obstruction::Exhausted)
}

fn refused_by(nodes: Vec<Node>, instants: &[i64], obstruction: Obstruction) -> Fleet {
    let mut fleet = fleet(nodes);
    for instant in instants {
        let pod = fleet.nodes[0].pods[0].clone();
        fleet
            .evictions
            .refuse(&pod, refusal(obstruction), at(*instant));
    }
    fleet
}

/// Returns the names of the pods that the plan evicts.
fn asked(plan: &Plan) -> Vec<&str> {
    fn name(action: &Action) -> &str {
        match action {
            Action::Evict(pod) => pod.name.as_str(),
            other => panic!("{other:?}"),
        }
    }
    plan.actions.iter().map(name).collect()
}

fn words(plan: &Plan) -> Vec<&str> {
    plan.verdicts.iter().map(Verdict::word).collect()
}

fn three() -> Vec<Node> {
    ["a", "b", "c"].map(|name| node(name, old(1))).into()
}

#[test]
fn pods_are_evicted_up_to_the_budget_while_no_eviction_is_rejected() {
    let plan = decide(&evicting(2), &fleet(three()), at(1_000));
    assert_eq!(asked(&plan), ["a", "b"]);
    assert_eq!(words(&plan), ["InProgress", "InProgress", "Budget"]);
    let deleting = Strategy {
        disruption: Disruption::Delete,
        ..evicting(1)
    };
    let plan = decide(&deleting, &refused(three(), &[999]), at(1_000));
    let delete = Action::Delete(fleet(three()).nodes[0].pods[0].reference());
    assert_eq!(plan.actions, [delete]);
}

#[test]
fn rejected_evictions_are_retried_with_backoff_from_ten_seconds() {
    let case = |instants: &[i64], again: i64| {
        let fleet = refused(three(), instants);
        let strategy = evicting(2);
        let last = *instants.last().unwrap();
        let early = decide(&strategy, &fleet, at(again - 1));
        assert_eq!(asked(&early), Vec::<&str>::new());
        assert_eq!(words(&early), ["BlockedByPDB"; 3]);
        assert_eq!(
            decide(&strategy, &fleet, at(last)).next_wake,
            Some(at(again))
        );
        assert_eq!((early.counts.unavailable, early.blocked), (0, true));
        // Two slots are free, but only one refused eviction is retried. The verdict stays until the eviction succeeds.
        let then = decide(&strategy, &fleet, at(again));
        assert_eq!(
            (asked(&then), words(&then)),
            (vec!["a"], vec!["BlockedByPDB"; 3])
        );
        assert_eq!((then.counts.unavailable, then.blocked), (0, true));
        assert_eq!(then.phase, Phase::Progressing);
    };
    case(&[1_000], 1_010);
    // Several evictions that are rejected in the same second count as one attempt, so the backoff grows only once.
    case(&[1_000, 1_000, 1_000], 1_010);
    case(&[1_000, 1_010], 1_030);
    case(&[1_000, 1_010, 1_030], 1_070);
    case(&[1_000, 1_010, 1_030, 1_070, 1_150], 1_270);
    case(&[1_000, 1_010, 1_030, 1_070, 1_150, 1_270], 1_390);
}

#[test]
fn pods_with_other_labels_and_broken_pods_are_evicted_instead() {
    let mut nodes = three();
    nodes[0].pods[0] = nodes[0].pods[0].clone().labelled("role", "leader");
    nodes.push(node("d", old(1).labelled("role", "leader").broken()));
    let plan = decide(&evicting(3), &refused(nodes, &[1_000]), at(1_001));
    assert_eq!(asked(&plan), ["d", "b", "c"]);
    assert_eq!(words(&plan)[0], "BlockedByPDB");
    assert!(!plan.blocked);
}

#[test]
fn a_pod_that_becomes_ready_triggers_an_eviction_a_second_later() {
    let mut nodes = three();
    nodes[1].pods = [current(2).made(992)].into(); // Ready at 1002, because pods are Ready ten seconds after their creation
    let fleet = refused(nodes, &[1_000]);
    let early = decide(&evicting(1), &fleet, at(1_002));
    assert_eq!((asked(&early), early.next_wake), (vec![], Some(at(1_003))));
    // The eviction is retried in the next second, so the rollout does not count as blocked.
    assert!(!early.blocked);
    assert_eq!(asked(&decide(&evicting(1), &fleet, at(1_003))), ["a"]);
}

#[test]
fn after_a_rejected_eviction_pods_are_evicted_one_at_a_time() {
    let mut fleet = refused(three(), &[1_000]);
    let pod = fleet.nodes[0].pods[0].clone();
    fleet.evictions.accept(&pod);
    fleet.nodes[0].pods[0].terminating = true;
    let plan = decide(&evicting(3), &fleet, at(1_001));
    assert_eq!(asked(&plan), ["b"]);
    assert_eq!(words(&plan), ["InProgress", "InProgress", "Budget"]);
    let plan = decide(&evicting(1), &fleet, at(1_001));
    assert_eq!(asked(&plan), Vec::<&str>::new());
}

#[test]
fn the_hook_precedes_the_eviction_and_a_released_pod_keeps_its_slot() {
    let hook = PreDelete {
        labels: [("drain".to_owned(), "true".to_owned())].into(),
        ..PreDelete::default()
    };
    let strategy = Strategy {
        pre_delete: Some(Arc::new(hook)),
        ..evicting(1)
    };
    let hooked = || fleet(vec![node("a", old(1).labelled("drain", "true"))]);
    let plan = decide(&strategy, &hooked(), at(1_000));
    assert!(matches!(plan.actions[..], [Action::Mark { .. }]));
    let mut past = three();
    let since = Some(at(900));
    past[0].pods[0].exit.preparing = Some(PreDeleteHook { since });
    let plan = decide(&strategy, &fleet(past.clone()), at(1_000));
    assert_eq!(asked(&plan), ["a"]);
    let mut fleet = refused(past, &[999]);
    fleet.nodes[1].pods[0] = fleet.nodes[1].pods[0].clone().labelled("other", "true");
    let plan = decide(&strategy, &fleet, at(1_000));
    assert_eq!(plan.actions, []);
    assert_eq!(words(&plan), ["BlockedByPDB", "Budget", "BlockedByPDB"]);
    assert_eq!(
        (plan.counts.unavailable, plan.next_wake),
        (1, Some(at(1_009)))
    );
}

#[test]
fn with_surge_the_old_pod_is_evicted_while_the_new_pod_serves() {
    let strategy = Strategy {
        max_surge: IntOrPercent::Number(1),
        max_unavailable: IntOrPercent::Number(0),
        ..evicting(0)
    };
    let made = Pod {
        name: "new".into(),
        uid: "new".into(),
        surge: true,
        ..current(2).made(980)
    };
    let mut nodes = three();
    nodes[0].pods.push(made);
    let retire = Action::DeleteAfterSurge {
        pod: nodes[0].pods[0].reference(),
        successor: nodes[0].pods[1].reference(),
        evict: true,
    };
    let plan = decide(&strategy, &fleet(nodes.clone()), at(1_000));
    assert_eq!(plan.actions, std::slice::from_ref(&retire));
    let refused = refused(nodes, &[1_000]);
    let plan = decide(&strategy, &refused, at(1_001));
    assert_eq!(plan.actions, []);
    // Nodes b and c wait for a slot, not for the disruption budget.
    assert_eq!(words(&plan), ["BlockedByPDB", "Budget", "Budget"]);
    assert_eq!((plan.counts.surging, plan.blocked), (1, true));
    assert_eq!(plan.next_wake, Some(at(1_010)));
    let plan = decide(&strategy, &refused, at(1_010));
    assert_eq!(plan.actions, [retire]);
}

#[test]
fn a_superfluous_pod_is_deleted_not_evicted() {
    let made = Pod {
        name: "new".into(),
        uid: "new".into(),
        surge: true,
        revision: PodRevision::Outdated,
        ..old(1).made(980)
    };
    let mut nodes = vec![node("a", current(2))];
    nodes[0].pods.push(made.clone());
    let plan = decide(&evicting(1), &fleet(nodes), at(1_000));
    assert_eq!(plan.actions, [Action::Delete(made.reference())]);
}

#[test]
fn a_rollout_blocked_only_by_disruption_budgets_stalls_after_ten_minutes() {
    let fleet = refused(three(), &[1_000]);
    let plan = |second| decide(&evicting(1), &fleet, at(second));
    assert_eq!(plan(1_599).phase, Phase::Progressing);
    assert_eq!(plan(1_600).phase, Phase::Stalled(Stall::BlockedByPdb));
    // The rollout is not stalled while another node progresses.
    let mut nodes = three();
    nodes.push(node("d", current(2).made(1_598)));
    nodes[3].pods[0].ready_since = None;
    let moving = refused(nodes, &[1_000]);
    assert_eq!(
        decide(&evicting(1), &moving, at(1_600)).phase,
        Phase::Progressing
    );
}

#[test]
fn a_disruption_budget_still_unprocessed_on_retry_counts_as_not_computed() {
    let last = |obstruction, instants: &[i64]| {
        let fleet = refused_by(three(), instants, obstruction);
        let pod = &fleet.nodes[0].pods[0];
        fleet.evictions.refusal_of(pod).unwrap().obstruction
    };
    use Obstruction::{Exhausted, NotComputed, NotProcessed, Several};
    assert_eq!(last(NotProcessed, &[1_000]), NotProcessed);
    assert_eq!(last(NotProcessed, &[1_000, 1_001]), NotProcessed);
    assert_eq!(last(NotProcessed, &[1_000, 1_010]), NotComputed);
    assert_eq!(last(NotProcessed, &[1_000, 1_010, 1_011]), NotComputed);
    assert_eq!(last(Exhausted, &[1_000, 1_010]), Exhausted);
    assert_eq!(last(Several, &[1_000, 1_010]), Several);
}

#[test]
fn eviction_results_of_deleted_pods_are_forgotten() {
    let mut evictions = Evictions::default();
    for number in 0..100 {
        let pod = old(1).labelled("number", &number.to_string());
        evictions.tidy([&pod].into_iter());
        evictions.refuse(&pod, refusal(Obstruction::Exhausted), at(1_000));
    }
    assert!(evictions.0.len() <= KEPT + 1, "{}", evictions.0.len());
}

#[test]
fn images_are_pre_pulled_while_a_disruption_budget_blocks() {
    let strategy = Strategy {
        image_predownload_parallelism: Some(IntOrPercent::Number(1)),
        ..evicting(1)
    };
    let plan = decide(&strategy, &refused(three(), &[1_000]), at(1_001));
    assert!(
        matches!(plan.actions[..], [Action::AskForImages { .. }]),
        "{:?}",
        plan.actions
    );
}
