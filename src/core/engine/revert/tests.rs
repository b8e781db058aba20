//! Tests of rollbacks in place: which pods are rolled back, when, and to which revision.

use std::time::Duration;

use super::is_due;
use crate::core::fleet::in_place::Recreate;
use crate::core::testing::{at, current, fleet, node, old, rollback_targets};
use crate::core::{
    Action, FailureRecord, Fleet, Guarded, Hold, IntOrPercent, Mode, Node, NodeName, OnFailure,
    Pause, Phase, Plan, Pod, PodProblem, Progress, Readiness, Revert, Stall, Stopped, Strategy,
    Verdict, decide,
};

fn strategy() -> Strategy {
    Strategy {
        max_unavailable: IntOrPercent::Number(2),
        on_failure: OnFailure::RevertInPlace,
        ..Strategy::with_mode(Mode::AdvancedRollingUpdate)
    }
}

/// Returns a pod that has been crashing since its creation at 900.
fn crashing() -> Pod {
    Pod {
        problem: Some(
            PodProblem {
                detail: Default::default(),
                reason: "Error".into(),
                restarts: 4,
                ended: 0,
            }
            .into(),
        ),
        ..current(2).named("new").made(900).broken()
    }
}

/// Returns an available pod of the revision that the guard stopped.
fn well() -> Pod {
    current(2).named("new").made(900)
}

fn before() -> Pod {
    old(1).named("old")
}

/// Returns a fleet whose current revision the guard stopped. The guard's record says that pods are rolled back to `old`.
fn stopped(nodes: Vec<Node>) -> Fleet {
    Fleet {
        rollback_targets: rollback_targets(&["old"]),
        record: Some(FailureRecord {
            stopped: Some(Stopped::FailedByRevision),
            before: Some("old".into()),
            failed: [NodeName::from("a")].into(),
            ..FailureRecord::new("new".into())
        }),
        ..fleet(nodes)
    }
}

/// Returns the plan at 1000. Fails if the next wake-up is in the past.
fn at_1000(fleet: &Fleet) -> Plan {
    let plan = decide(&strategy(), fleet, at(1000));
    assert!(plan.next_wake.is_none_or(|wake| wake > at(1000)));
    plan
}

/// Returns the names of the pods that are rolled back. Fails if there are other writes.
fn rolled_back(plan: &Plan) -> Vec<&str> {
    let name = |action: &Action| match action {
        Action::UpdateInPlace { pod, patch } => {
            assert_eq!(patch.reverts, Some("new".into()));
            assert_eq!(patch.revision, "old".into());
            pod.name.as_str().to_owned()
        }
        other => panic!("{other:?}"),
    };
    let names: Vec<String> = plan.actions.iter().map(name).collect();
    let verdicts = plan.verdicts.iter();
    let begins = Verdict::InProgress(Progress::Reverting { since: at(1000) });
    assert_eq!(
        verdicts.filter(|verdict| **verdict == begins).count(),
        names.len()
    );
    plan.actions
        .iter()
        .map(|action| action.pod().name.as_str())
        .collect()
}

#[test]
fn a_delayed_rollback_is_reported_as_pending() {
    // During a pause, no pod is rolled back. The verdict of node b reports that its rollback is pending.
    let nodes = vec![node("a", crashing()), node("b", well())];
    let paused = Strategy {
        pause: Some(Pause::Indefinite),
        ..strategy()
    };
    let plan = decide(&paused, &stopped(nodes.clone()), at(1000));
    assert_eq!(plan.phase, Phase::Paused { until: None });
    assert_eq!((plan.actions.len(), plan.reversal), (0, None));
    assert_eq!(plan.verdicts[1], Verdict::Revert(Revert::Pending));
    // A node that returned recently waits for `ready-settle`.
    let settles = Strategy {
        ready_settle: Duration::from_secs(30),
        ..strategy()
    };
    let mut back = nodes;
    back[1].readiness = Readiness::Ready { since: at(990) };
    let plan = decide(&settles, &stopped(back.clone()), at(1000));
    assert_eq!(plan.verdicts[1], Verdict::Revert(Revert::Pending));
    assert!(
        plan.actions
            .iter()
            .all(|action| action.pod().name.as_str() != "b")
    );
    // If `is_due` is true for an offline node, the message about the node announces that its pod will be rolled back.
    back[1].readiness = Readiness::NotReady {
        since: Some(at(990)),
    };
    let fleet = stopped(back);
    assert!(is_due(&settles, &fleet, &fleet.nodes[1]));
    assert!(!is_due(
        &Strategy {
            on_failure: OnFailure::Stop,
            ..settles
        },
        &fleet,
        &fleet.nodes[1]
    ));
}

#[test]
fn failed_pods_are_rolled_back_first_and_available_ones_within_free_slots() {
    let nodes = vec![
        node("a", crashing()),
        node("b", well()),
        node("c", well()),
        node("d", before()),
        node("e", current(2).named("new").made(999).broken()),
    ];
    let plan = at_1000(&stopped(nodes.clone()));
    assert_eq!(rolled_back(&plan), ["a", "e"]);
    assert_eq!(plan.verdicts[1], Verdict::Revert(Revert::Pending));
    assert_eq!(
        plan.verdicts[3],
        Verdict::Guarded(Guarded::Stopped(Stopped::FailedByRevision))
    );
    assert_eq!(plan.phase, Phase::Stalled(Stall::FailedByRevision));
    assert_eq!((plan.counts.unavailable, plan.counts.reverted), (2, 2));
    let mut one_is_back = nodes;
    one_is_back[0].pods[0] = before().rolled_back(950);
    one_is_back[0].pods[0].name = "a".into();
    let update = one_is_back[0].pods[0].in_place.update.as_mut().unwrap();
    update.is_carried_out = true;
    one_is_back.pop();
    let plan = at_1000(&stopped(one_is_back));
    assert_eq!(rolled_back(&plan), ["b", "c"]);
    assert_eq!(plan.verdicts[0], Verdict::Revert(Revert::Done));
    assert_eq!((plan.counts.unavailable, plan.counts.reverted), (2, 3));
}

#[test]
fn a_lost_node_takes_no_slot_of_the_rollback() {
    let a = node("a", well());
    let lost = Node {
        readiness: crate::core::Readiness::NotReady {
            since: Some(at(930)),
        },
        ..a.clone()
    };
    let strategy = Strategy {
        max_unavailable: IntOrPercent::Number(1),
        failure_threshold: Some(IntOrPercent::Number(0)),
        ..strategy()
    };
    let with = |a: &[Node]| {
        let nodes = a.iter().cloned().chain([node("b", well())]);
        decide(&strategy, &stopped(nodes.collect()), at(1000))
    };
    let plan = with(&[lost]);
    assert_eq!(rolled_back(&plan), ["b"]);
    assert_eq!((plan.counts.lost, plan.counts.unavailable), (1, 1));
    assert_eq!(plan.phase, Phase::Stalled(Stall::FailedByRevision));
    assert_eq!(rolled_back(&with(&[])), ["b"]);
    assert_eq!(rolled_back(&with(&[a])), ["a"]);
}

#[test]
fn a_rollback_patch_has_the_old_images_and_removes_the_generation_label() {
    let plan = at_1000(&stopped(vec![node("a", crashing()), node("b", before())]));
    let [Action::UpdateInPlace { patch, .. }] = plan.actions.as_slice() else {
        panic!("{:?}", plan.actions);
    };
    let images = &patch.change.images;
    assert_eq!(*images, [("main".into(), "old".into())]);
    // The patch has to remove this label. Otherwise the native controller would find the template's generation in the label and
    // count the pod as updated.
    assert_eq!(patch.change.labels["pod-template-generation"], None);
}

#[test]
fn a_rolled_back_pod_keeps_its_slot_until_available_and_is_not_rolled_back_twice() {
    let under_way = node("a", before().rolled_back(990));
    let plan = at_1000(&stopped(vec![under_way, node("b", before())]));
    assert_eq!(plan.actions, []);
    let reverting = Progress::Reverting { since: at(990) };
    assert_eq!(plan.verdicts[0], Verdict::InProgress(reverting));
    assert_eq!((plan.counts.unavailable, plan.counts.outdated), (1, 2));
    // A user changed the revision label of a rolled-back pod to the stopped revision. A pod is rolled back only once, so it keeps
    // this revision.
    let again = node("a", well().rolled_back(990));
    let plan = at_1000(&stopped(vec![again, node("b", before())]));
    assert_eq!(plan.actions, []);
    let reversal = plan.reversal.unwrap();
    assert_eq!((reversal.stuck, reversal.why), (vec!["a".into()], None));
}

#[test]
fn a_rollback_needs_a_saved_stop_and_the_setting() {
    let nodes = || vec![node("a", crashing()), node("b", before())];
    let unseen = {
        let mut fleet = stopped(nodes());
        fleet.rollback_targets.stands = false;
        fleet
    };
    assert_eq!(at_1000(&unseen).actions, []);
    let stop = Strategy {
        on_failure: OnFailure::Stop,
        ..strategy()
    };
    assert_eq!(decide(&stop, &stopped(nodes()), at(1000)).actions, []);
    let paused = Strategy {
        pause: Some(Pause::Indefinite),
        ..strategy()
    };
    assert_eq!(decide(&paused, &stopped(nodes()), at(1000)).actions, []);
    let resumed = Strategy {
        resume: Some("new".into()),
        max_unavailable: IntOrPercent::Number(1),
        ..strategy()
    };
    let plan = decide(&resumed, &stopped(nodes()), at(1000));
    assert_eq!((plan.actions, plan.reversal), (vec![], None));
    let twice = {
        let mut fleet = stopped(nodes());
        fleet.record.as_mut().unwrap().stopped = Some(Stopped::ReplacedTwice);
        fleet
    };
    assert_eq!(at_1000(&twice).actions, []);
}

#[test]
fn a_rolled_back_pod_delays_the_rollout_while_the_stop_is_not_visible() {
    let strategy = strategy();
    let nodes = vec![node("a", before().rolled_back(990)), node("b", before())];
    let unseen = Fleet {
        record: None,
        ..stopped(nodes)
    };
    let plan = decide(&strategy, &unseen, at(1000));
    let until = at(1020);
    assert_eq!(plan.guarded, Some(Guarded::Inconclusive { until }));
    assert_eq!((plan.actions, plan.next_wake), (vec![], Some(until)));
    // After that time, the record still shows no stop, because an operator resumed the revision and then removed the annotation
    // `resume`. The rollout continues.
    let plan = decide(&strategy, &unseen, until);
    assert_eq!((plan.guarded, plan.actions.len()), (None, 2));
}

#[test]
fn resume_rolls_forward_the_rolled_back_pods() {
    let back = before().rolled_back(500);
    let resumed = Strategy {
        resume: Some("new".into()),
        ..strategy()
    };
    let plan = decide(&resumed, &stopped(vec![node("a", back)]), at(1000));
    assert!(
        matches!(plan.actions.as_slice(), [Action::Delete(_)]),
        "{:?}",
        plan.actions
    );
}

#[test]
fn offline_held_settling_and_two_pod_nodes_are_not_rolled_back() {
    let held = Node {
        hold: Some(Hold {
            until: None,
            reason: "".into(),
            unreadable: false,
        }),
        ..node("b", crashing())
    };
    let beside = {
        let mut node = node("c", before());
        node.pods.push(Pod {
            uid: "made".into(),
            surge: true,
            ..crashing()
        });
        node
    };
    let back_since = |second| Node {
        readiness: crate::core::Readiness::Ready { since: at(second) },
        ..node("d", well())
    };
    let away = node("a", crashing()).away();
    let plan = at_1000(&stopped(vec![away, held, beside, back_since(990)]));
    assert_eq!(plan.actions, []);
    assert_eq!(plan.next_wake, Some(at(1020)));
    assert_eq!(
        rolled_back(&at_1000(&stopped(vec![back_since(960)]))),
        ["d"]
    );
    let down = Node {
        pods: node("d", crashing()).pods,
        ..back_since(990)
    };
    assert_eq!(rolled_back(&at_1000(&stopped(vec![down]))), ["d"]);
}

#[test]
fn a_pod_that_cannot_change_in_place_is_not_rolled_back_and_the_reason_is_reported() {
    let mut fleet = stopped(vec![node("a", crashing()), node("b", before())]);
    let past = fleet
        .rollback_targets
        .revisions
        .get_mut(&"old".into())
        .unwrap();
    past.transition = Err(Recreate::OtherChange);
    let told = |fleet: &Fleet| {
        let plan = at_1000(fleet);
        assert_eq!(plan.actions, []);
        assert_eq!(plan.phase, Phase::Stalled(Stall::FailedByRevision));
        let reversal = plan.reversal.unwrap();
        assert_eq!(reversal.stuck, ["a".into()]);
        reversal.why
    };
    assert_eq!(told(&fleet), Some(Recreate::OtherChange));
    fleet.rollback_targets.revisions.clear();
    assert_eq!(told(&fleet), Some(Recreate::UnknownRevision));
    let other = stopped(vec![
        node("a", crashing().named("mine")),
        node("b", before()),
    ]);
    assert_eq!(told(&other), Some(Recreate::OtherImages));
}

#[test]
fn the_rollback_target_is_the_revision_of_most_ready_pods_or_the_newest() {
    fn case(pods: &[(&str, bool)], expected: Option<&str>) {
        let pod = |(name, ready): &(&str, bool)| {
            let pod = old(1).named(name);
            if *ready { pod } else { pod.broken() }
        };
        let nodes = (0..).zip(pods);
        let nodes = nodes.map(|(number, told)| node(&format!("n{number}"), pod(told)));
        let fleet = Fleet {
            rollback_targets: rollback_targets(&["one", "two"]),
            ..fleet(nodes.collect())
        };
        let record = FailureRecord::new("new".into());
        let found = super::before(&fleet, &record);
        assert_eq!(found, expected.map(Into::into), "{pods:?}");
    }
    case(&[], Some("two"));
    case(&[("one", true), ("one", true), ("two", true)], Some("one"));
    case(&[("one", true), ("two", true)], Some("two"));
    case(
        &[("one", true), ("two", false), ("two", false)],
        Some("one"),
    );
    case(&[("gone", true)], Some("two"));
    let nobody = fleet(vec![]);
    assert_eq!(
        super::before(&nobody, &FailureRecord::new("new".into())),
        None
    );
}

#[test]
fn the_rollback_target_is_a_stopped_revision_only_if_no_other_is_kept() {
    let fleet = Fleet {
        rollback_targets: rollback_targets(&["one", "two"]),
        ..fleet(vec![node("a", old(1).named("two"))])
    };
    let before = |stopped: &[&str]| {
        let record = FailureRecord {
            stopped_before: stopped.iter().map(|name| (*name).into()).collect(),
            ..FailureRecord::new("new".into())
        };
        super::before(&fleet, &record)
    };
    assert_eq!(before(&[]), Some("two".into()));
    assert_eq!(before(&["two"]), Some("one".into()));
    assert_eq!(before(&["one", "two"]), Some("two".into()));
}

#[test]
fn a_stop_saves_the_rollback_target_even_if_no_node_waits() {
    let strategy = Strategy {
        failure_threshold: Some(IntOrPercent::Number(0)),
        ..strategy()
    };
    let fleet = Fleet {
        rollback_targets: rollback_targets(&["old"]),
        ..fleet(vec![node("a", crashing())])
    };
    let plan = decide(&strategy, &fleet, at(1000));
    let record = plan.record.unwrap();
    assert_eq!(record.stopped, Some(Stopped::FailedByRevision));
    assert_eq!(
        (record.before.clone(), plan.actions),
        (Some("old".into()), vec![])
    );
    let told = Fleet {
        record: Some(record),
        ..fleet
    };
    assert_eq!(rolled_back(&decide(&strategy, &told, at(1000))), ["a"]);
}

#[test]
fn a_stop_lasts_while_all_nodes_are_offline_and_keeps_the_failed_nodes() {
    let away = |name: &str, pod: Pod| Node {
        readiness: Readiness::NotReady {
            since: Some(at(990)),
        },
        ..node(name, pod)
    };
    let back = || before().rolled_back(950);
    let all = ["a", "b", "c"].map(|name| away(name, back()));
    let fleet = stopped(all.to_vec());
    for second in [1000, 1020, 1400] {
        let plan = decide(&strategy(), &fleet, at(second));
        assert_eq!(plan.phase, Phase::Stalled(Stall::FailedByRevision));
        assert_eq!(plan.record.unwrap().failed, ["a".into()].into());
    }
    // All nodes are lost, so the network is the cause. The record still names node a, because the failure of node a led to the
    // stop.
    let updated = away("a", well());
    let others = ["b", "c", "d"].map(|name| away(name, back()));
    let fleet = stopped([updated].into_iter().chain(others).collect());
    let plan = decide(&strategy(), &fleet, at(1400));
    assert_eq!(plan.record.unwrap().failed, ["a".into()].into());
    assert_eq!(plan.phase, Phase::Stalled(Stall::FailedByRevision));
}

/// Records that the API server rejected the rollback of the pod on node `a` at 1000. Node `a` is the first node.
fn refuse_at_a(fleet: &mut Fleet) {
    use crate::core::{Revision, WriteVerb};

    let pod = fleet.nodes[0].pods[0].uid.clone();
    fleet.write_failures.keep_to(&Revision::from("new"));
    let at_a = (&NodeName::from("a"), Some(&pod));
    fleet
        .write_failures
        .refuse(at_a, WriteVerb::Revert, "no", at(1000));
}

#[test]
fn a_node_with_a_rejected_write_occupies_no_failure_domain() {
    use crate::core::Labels;
    use crate::core::settings::Topology;
    let in_zone = |name: &str, zone: &str| Node {
        labels: [("zone".to_owned(), zone.to_owned())]
            .into_iter()
            .collect::<Labels>(),
        ..node(name, well())
    };
    let strategy = Strategy {
        topology: Some(Topology {
            key: "zone".into(),
            at_once: 1,
        }),
        ..strategy()
    };
    let mut fleet = stopped(vec![
        in_zone("a", "a"),
        in_zone("b", "b"),
        node("c", before()),
    ]);
    let reverted = |fleet: &Fleet| {
        let plan = decide(&strategy, fleet, at(1000));
        let actions = plan.actions.iter();
        actions
            .map(|action| action.pod().name.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(reverted(&fleet), ["a"]);
    refuse_at_a(&mut fleet);
    assert_eq!(reverted(&fleet), ["b"]);
}

#[test]
fn a_rejected_rollback_is_reported_and_retried_with_backoff() {
    let mut fleet = stopped(vec![node("a", crashing()), node("b", before())]);
    refuse_at_a(&mut fleet);
    let plan = at_1000(&fleet);
    assert_eq!((plan.actions, plan.next_wake), (vec![], Some(at(1001))));
    let reversal = plan.reversal.unwrap();
    assert_eq!(reversal.stuck, vec!["a".into()]);
    assert_eq!(reversal.why, Some(Recreate::Refused));
    let again = decide(&strategy(), &fleet, at(1001));
    assert_eq!(again.actions.len(), 1);
}
