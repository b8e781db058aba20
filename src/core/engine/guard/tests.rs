//! Tests of the guard: which failures count against the revision, and when the rollout stops.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::core::engine::timeouts::{EVALUATED_AFTER, failure_window};
use crate::core::fleet::in_place::InPlaceUpdate;
use crate::core::testing::{at, current, fleet, node, old};
use crate::core::{
    Action, Cause, Exit, FailureRecord, Fleet, Guarded, InPlace, IntOrPercent, Mode, Node,
    NodeName, Offline, Phase, Plan, Pod, PodProblem, PreDeleteHook, Readiness, RevisionState,
    Stall, Stopped, Strategy, Verdict, decide,
};

/// Returns a strategy for ten nodes: three are updated at a time, and two may fail.
fn strategy() -> Strategy {
    Strategy {
        max_unavailable: IntOrPercent::Number(3),
        failure_threshold: Some(IntOrPercent::Number(2)),
        ..Strategy::with_mode(Mode::AdvancedRollingUpdate)
    }
}

/// Returns a node that turned NotReady `after` seconds after its new pod was created at second 1000.
fn lost(name: &str, after: i64) -> Node {
    let since = Some(at(1000 + after));
    Node {
        readiness: Readiness::NotReady { since },
        ..node(name, current(2).made(1000).broken())
    }
}

fn crashing(pod: Pod, reason: &str, restarts: u32) -> Pod {
    Pod {
        problem: Some(
            PodProblem {
                detail: Default::default(),
                reason: reason.into(),
                restarts,
                ended: 0,
            }
            .into(),
        ),
        ..pod.broken()
    }
}

/// Returns a fleet of ten nodes: the given nodes, and nodes that run an old pod.
fn beside_old(nodes: Vec<Node>) -> Fleet {
    let names = (nodes.len()..10).map(|number| format!("z{number}"));
    let old = names.map(|name| node(&name, old(1)));
    fleet(nodes.into_iter().chain(old).collect())
}

fn at_1400(strategy: &Strategy, fleet: &Fleet) -> Plan {
    decide(strategy, fleet, at(1400))
}

fn deletions(plan: &Plan) -> usize {
    let deletes = |action: &&Action| matches!(action, Action::Delete(_));
    plan.actions.iter().filter(deletes).count()
}

fn named(record: Option<&FailureRecord>) -> Vec<&str> {
    record.map_or_else(Vec::new, |record| {
        record.failed.iter().map(NodeName::as_str).collect()
    })
}

#[test]
fn a_node_lost_within_the_failure_window_fails_and_one_lost_later_does_not() {
    #[track_caller]
    fn case(after: i64, window: Option<u64>, charged: bool) {
        let strategy = Strategy {
            failure_window: window.map(Duration::from_secs),
            ..strategy()
        };
        let plan = decide(&strategy, &beside_old(vec![lost("a", after)]), at(9000));
        let verdict = Verdict::FailedByRevision {
            since: at(1000 + after),
            cause: Cause::NodeLost,
        };
        assert_eq!(
            plan.verdicts[0] == verdict,
            charged,
            "{:?}",
            plan.verdicts[0]
        );
        assert_eq!(plan.counts.failures, usize::from(charged));
        assert_eq!(plan.counts.unavailable, 3);
    }
    case(300, None, true);
    case(301, None, false);
    case(301, Some(400), true);
    case(100, Some(60), false);
    case(-1, None, false);
}

#[test]
fn failures_above_the_threshold_stop_the_rollout_despite_free_slots() {
    let two = at_1400(&strategy(), &beside_old(vec![lost("a", 9), lost("b", 9)]));
    assert_eq!((two.guarded, deletions(&two)), (None, 3));
    let many = Strategy {
        max_unavailable: IntOrPercent::Number(8),
        ..strategy()
    };
    let nodes = ["a", "b", "c"].map(|name| lost(name, 9)).to_vec();
    let three = at_1400(&many, &beside_old(nodes));
    let stopped = Guarded::Stopped(Stopped::FailedByRevision);
    assert_eq!((three.guarded, deletions(&three)), (Some(stopped), 0));
    assert_eq!(three.phase, Phase::Stalled(Stall::FailedByRevision));
    assert_eq!(three.verdicts[9], Verdict::Guarded(stopped));
    assert_eq!(named(three.record.as_ref()), ["a", "b", "c"]);
}

#[test]
fn crashes_and_image_errors_are_failures() {
    #[track_caller]
    fn case(reason: &str, restarts: u32, expected: Option<Cause>) {
        let pod = crashing(current(2).made(1000), reason, restarts);
        let plan = at_1400(&strategy(), &beside_old(vec![node("a", pod)]));
        let cause = match plan.verdicts[0] {
            Verdict::FailedByRevision { cause, .. } => Some(cause),
            _ => None,
        };
        assert_eq!(cause, expected, "{reason}, {restarts} restarts");
        assert_eq!(plan.counts.failures, usize::from(expected.is_some()));
        // Only a crash stays in the record. A pod that can't start counts only as long as it can't start.
        let remembered = usize::from(expected == Some(Cause::Crashing));
        assert_eq!(named(plan.record.as_ref()).len(), remembered);
    }
    case("Error", 1, None);
    case("Error", 2, Some(Cause::Crashing));
    case("CrashLoopBackOff", 1, Some(Cause::Crashing));
    case("ErrImagePull", 0, Some(Cause::NotStarting));
    case("CreateContainerConfigError", 0, Some(Cause::NotStarting));
}

/// The surge pod crashes, and the old pod is still available. So the node takes a slot of `max-surge`, and none of
/// `max-unavailable`.
#[test]
fn a_crashing_surge_pod_is_a_failure_and_both_pods_stay() {
    let beside = |threshold| {
        let strategy = Strategy {
            max_unavailable: IntOrPercent::Number(0),
            max_surge: IntOrPercent::Number(2),
            failure_threshold: threshold,
            ..strategy()
        };
        let pair = |name: &str| {
            let new = Pod {
                uid: format!("{name}-new").into(),
                surge: true,
                ..crashing(current(2).made(1300), "Error", 3)
            };
            let mut pair = node(name, old(1));
            pair.pods.push(new);
            pair
        };
        at_1400(&strategy, &beside_old(vec![pair("a")]))
    };
    let plan = beside(None);
    let failed = Verdict::FailedByRevision {
        since: at(1300),
        cause: Cause::Crashing,
    };
    assert_eq!((plan.verdicts[0], plan.counts.threshold), (failed, 2));
    assert_eq!((plan.counts.failures, plan.counts.unavailable), (1, 0));
    assert_eq!((plan.guarded, deletions(&plan)), (None, 0));
    let surges = |action: &&Action| matches!(action, Action::Surge { .. });
    assert_eq!(plan.actions.iter().filter(surges).count(), 1);
    let stopped = beside(Some(IntOrPercent::Number(0)));
    assert_eq!(
        (stopped.guarded, stopped.actions.len()),
        (Some(Guarded::Stopped(Stopped::FailedByRevision)), 0)
    );
    assert_eq!(named(stopped.record.as_ref()), ["a"]);
}

#[test]
fn a_crash_after_a_long_run_is_no_failure_of_the_revision() {
    let pod = Pod {
        unready_since: Some(at(1301)),
        ..crashing(current(2).made(1000), "Error", 5)
    };
    let plan = at_1400(&strategy(), &beside_old(vec![node("a", pod)]));
    assert_eq!(plan.counts.failures, 0);
}

#[test]
fn a_loss_delays_further_updates_until_it_is_evaluated() {
    let fleet = beside_old(vec![lost("a", 9)]);
    let until = at(1009) + EVALUATED_AFTER;
    let early = decide(&strategy(), &fleet, at(1010));
    assert_eq!(early.guarded, Some(Guarded::Inconclusive { until }));
    assert_eq!(deletions(&early), 0);
    let evaluated = early.record.map(|record| record.lost);
    let expected = [("a".into(), at(1009))].into();
    assert_eq!((evaluated, early.next_wake), (Some(expected), Some(until)));
    let late = decide(&strategy(), &fleet, until);
    // After its evaluation the lost node takes no slot, so three other updates begin.
    assert_eq!((late.guarded, deletions(&late)), (None, 3));
}

#[test]
fn a_node_deleted_during_its_evaluation_still_counts_as_failed() {
    let fleet = beside_old(vec![lost("a", 9)]);
    let early = decide(&strategy(), &fleet, at(1010));
    let until = at(1009) + EVALUATED_AFTER;
    let deleted = Fleet {
        record: early.record,
        ..beside_old(Vec::new())
    };
    let waits = decide(&strategy(), &deleted, at(1011));
    assert_eq!(waits.guarded, Some(Guarded::Inconclusive { until }));
    assert_eq!((deletions(&waits), waits.next_wake), (0, Some(until)));
    assert_eq!(waits.record, deleted.record);
    let late = decide(&strategy(), &deleted, until);
    assert_eq!(named(late.record.as_ref()), ["a"]);
    assert_eq!((late.guarded, late.counts.failures), (None, 1));
    let record = late.record.expect("it failed");
    let since = [("a".into(), at(1009))];
    assert_eq!(record.lost, since.into(), "it is a loss still");
    // If nodes without an update turned NotReady at about the same time, the network is the cause, even after the Node of a is
    // deleted.
    let away = |node: Node| Node {
        readiness: Readiness::NotReady {
            since: Some(at(1012)),
        },
        ..node
    };
    let nodes = deleted.nodes.iter().cloned().map(away);
    let outage = Fleet {
        nodes: nodes.collect(),
        ..deleted.clone()
    };
    let plan = decide(&strategy(), &outage, until);
    assert_eq!(plan.counts.failures, 0);
    // Node a returns healthy before its loss is evaluated, so the loss is removed from the record.
    let back = Fleet {
        record: deleted.record.clone(),
        ..beside_old(vec![node("a", current(2).made(1000))])
    };
    let plan = decide(&strategy(), &back, until);
    assert_eq!((plan.counts.failures, plan.record), (0, None));
}

#[test]
fn completion_waits_for_the_evaluation_of_the_last_node_and_names_deleted_nodes() {
    let strategy = Strategy {
        partition: IntOrPercent::Number(99),
        ..strategy()
    };
    let fleet = beside_old(vec![lost("a", 9)]);
    let early = decide(&strategy, &fleet, at(1010));
    assert_eq!(
        (early.counts.outdated, early.phase),
        (0, Phase::Progressing)
    );
    let deleted = Fleet {
        record: early.record,
        ..beside_old(Vec::new())
    };
    let late = decide(&strategy, &deleted, at(1009) + EVALUATED_AFTER);
    let said = crate::core::testing::status(&deleted, &late);
    assert_eq!(said.reason, "CompleteExceptFailed");
    let names = ". Nodes that failed with this revision and were deleted: a";
    assert!(said.sentence().ends_with(names), "{}", said.sentence());
}

#[test]
fn when_untouched_nodes_are_lost_too_the_network_is_the_cause() {
    let away = |name: &str, second| Node {
        readiness: Readiness::NotReady {
            since: Some(at(second)),
        },
        ..node(name, old(1))
    };
    let nodes = |second| {
        let updated = ["a", "b", "c"].map(|name| lost(name, 9));
        let olds = ["d", "e", "f"].map(|name| away(name, second));
        beside_old(updated.into_iter().chain(olds).collect())
    };
    // Three of three updated nodes were lost, but only three of seven others. The rate of the updated nodes is higher, so the
    // network is not the cause.
    let charged = at_1400(&strategy(), &nodes(1020));
    assert_eq!(
        charged.guarded,
        Some(Guarded::Stopped(Stopped::FailedByRevision))
    );
    // Twelve more updated nodes stay healthy. Three of fifteen is a lower rate than three of seven, so the network is the cause.
    let well = (0..12).map(|number| node(&format!("c{number:02}"), current(2).made(500)));
    let mut outage = nodes(1020);
    outage.nodes.extend(well);
    outage.nodes.sort_by(|a, b| a.name.cmp(&b.name));
    let until = at(1309);
    for now in [1010, 1100, 1308] {
        let plan = decide(&strategy(), &outage, at(now));
        let held = Guarded::Inconclusive { until };
        assert_eq!(
            (plan.guarded, plan.counts.failures),
            (Some(held), 0),
            "{now}"
        );
        assert_eq!(deletions(&plan), 0);
        // The losses are recorded, because the Nodes may be deleted before the evaluation ends.
        let evaluated = plan
            .record
            .map(|record| record.lost.into_values().collect());
        assert_eq!(evaluated, Some(vec![at(1009); 3]));
    }
    let over = decide(&strategy(), &outage, until);
    assert_eq!((over.guarded, over.counts.failures), (None, 0));
    assert_eq!(deletions(&over), 3);
    // The lost old nodes prove that the network failed. They stay in the record after they return or their Nodes are deleted.
    let record = over.record.expect("the control group is remembered");
    let beside: Vec<&str> = record.control_group.keys().map(NodeName::as_str).collect();
    assert_eq!((beside, record.lost.len()), (vec!["d", "e", "f"], 0));
    let mut some_back = outage.clone();
    some_back.record = Some(record);
    some_back.nodes.retain(|node| node.name.as_str() != "e");
    let is_back = |node: &&mut Node| ["d", "f"].contains(&node.name.as_str());
    for node in some_back.nodes.iter_mut().filter(is_back) {
        node.readiness = Readiness::Ready { since: at(1100) };
    }
    for now in [1100, 1308, 2000] {
        let plan = decide(&strategy(), &some_back, at(now));
        assert_eq!(plan.counts.failures, 0, "{now}");
    }
    // When the last lost updated node is deleted, the lost old nodes are no longer needed and are removed from the record.
    some_back.nodes.retain(|node| node.is_ready());
    let plan = decide(&strategy(), &some_back, at(2000));
    assert_eq!(plan.record, None);
    // Losses at 500 are too early to be evidence of a network failure at 1009.
    let mut apart = nodes(500);
    apart.nodes.extend(
        outage
            .nodes
            .iter()
            .filter(|node| node.name.as_str().starts_with('c') && node.name.as_str() != "c")
            .cloned(),
    );
    apart.nodes.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(at_1400(&strategy(), &apart).counts.failures, 3);
}

/// Checks if the guard finds the network to be the cause. All three updated nodes are lost at 1009, and one old node at each second
/// in `others`.
#[track_caller]
fn lost_with(others: &[i64], is_network: bool) {
    let updated = ["a", "b", "c"].map(|name| lost(name, 9));
    let away = others.iter().enumerate().map(|(number, second)| Node {
        readiness: Readiness::NotReady {
            since: Some(at(*second)),
        },
        ..node(&format!("d{number}"), old(1))
    });
    let mut lost = beside_old(updated.into_iter().chain(away).collect());
    let evaluated = decide(&strategy(), &lost, at(1100));
    let held = Guarded::Inconclusive { until: at(1309) };
    let stopped = Guarded::Stopped(Stopped::FailedByRevision);
    let (guarded, failures) = if is_network { (held, 0) } else { (stopped, 3) };
    assert_eq!(
        (evaluated.guarded, evaluated.counts.failures),
        (Some(guarded), failures),
        "{others:?}"
    );
    assert_eq!(deletions(&evaluated), 0);
    lost.record = evaluated.record;
    for node in &mut lost.nodes {
        node.readiness = Readiness::Ready { since: at(1150) };
        for pod in &mut node.pods {
            (pod.ready_since, pod.unready_since) = (Some(at(1150)), None);
        }
    }
    let back = decide(&strategy(), &lost, at(1200));
    assert_eq!(
        (back.guarded.is_none(), deletions(&back)),
        (is_network, if is_network { 3 } else { 0 }),
        "{others:?}"
    );
}

#[test]
fn touched_and_untouched_nodes_lost_within_ten_seconds_do_not_fail() {
    lost_with(&[1009; 4], true);
    lost_with(&[1009; 3], true);
    lost_with(&[1009; 2], false);
    // Kubernetes detects the losses of an outage one after the other. Losses up to 10 s before or after 1009 count as simultaneous.
    lost_with(&[999, 1005, 1019], true);
    lost_with(&[998, 1020], false);
    lost_with(&[], false);
}

#[test]
fn constant_losses_of_untouched_nodes_do_not_excuse_a_loss() {
    let away = |number: i64| Node {
        readiness: Readiness::NotReady {
            since: Some(at(800 + 20 * number)),
        },
        ..node(&format!("d{number:02}"), old(1))
    };
    let well = |number| node(&format!("e{number:02}"), old(1));
    let coming_and_going = (0..20).map(away).chain((0..40).map(well));
    let nodes = [lost("a", 9)].into_iter().chain(coming_and_going).collect();
    let plan = at_1400(&strategy(), &fleet(nodes));
    assert_eq!(named(plan.record.as_ref()), ["a"]);
}

/// Regression test from a property test. The rollout deleted more pods after the loss. That changed the rate of lost old nodes from
/// one of four to one of two, so the guard decided differently.
#[test]
fn later_rollout_actions_do_not_change_an_evaluation() {
    // One of two updated nodes is lost at 1009, and one of four old nodes at 1020.
    let since = Some(at(1020));
    let away = Node {
        readiness: Readiness::NotReady { since },
        ..node("c", old(1))
    };
    let evaluated = |others: [Node; 3]| {
        let well = node("b", current(2).made(500));
        let mut nodes = vec![lost("a", 9), well, away.clone()];
        nodes.extend(others);
        let plan = at_1400(&strategy(), &fleet(nodes));
        (plan.guarded, plan.verdicts[0])
    };
    let charged = Verdict::FailedByRevision {
        since: at(1009),
        cause: Cause::NodeLost,
    };
    let made = |second| ["d", "e", "f"].map(|name| node(name, current(2).made(second)));
    let before = ["d", "e", "f"].map(|name| node(name, old(1)));
    let deleted = before.clone().map(|mut node| {
        node.pods[0].terminating = true;
        node
    });
    let podless = before.clone().map(|mut node| {
        node.pods.clear();
        node
    });
    for others in [before, deleted, podless, made(1010)] {
        assert_eq!(evaluated(others), (None, charged));
    }
    // Nodes that were updated before the loss count as updated in the comparison. One of five is a lower rate than one of one, so
    // the network is the cause.
    let updated = Verdict::Offline(Offline::Updated {
        since: Some(at(1009)),
    });
    assert_eq!(evaluated(made(1009)).1, updated);
}

/// Returns a fleet of these nodes. Its record contains another node, which was lost at 1009 and then deleted.
fn beside_gone(nodes: Vec<Node>) -> Fleet {
    let record = FailureRecord {
        lost: [("gone".into(), at(1009))].into(),
        ..FailureRecord::new("new".into())
    };
    Fleet {
        record: Some(record),
        ..fleet(nodes)
    }
}

/// Regression test from a property test: two of four updated nodes were lost, and the Node of one was deleted.
///
/// When the deleted node counted as failed, its loss was left out of the comparison. So the rate became one of three instead of two
/// of four.
#[test]
fn a_deleted_failed_node_still_counts_as_a_loss_in_the_comparison() {
    let since = Some(at(1020));
    let away = Node {
        readiness: Readiness::NotReady { since },
        ..node("d", old(1))
    };
    let mut nodes = vec![lost("a", 9)];
    nodes.extend(["b", "c"].map(|name| node(name, current(2).made(500))));
    nodes.push(away);
    nodes.extend(["e", "f"].map(|name| node(name, old(1))));
    let mut fleet = beside_gone(nodes);
    let plan = at_1400(&strategy(), &fleet);
    assert_eq!((plan.guarded, plan.counts.failures), (None, 2));
    assert_eq!(named(plan.record.as_ref()), ["a", "gone"]);
    fleet.record = plan.record.clone();
    assert_eq!(at_1400(&strategy(), &fleet), plan);
}

#[test]
fn a_node_that_is_no_longer_targeted_during_evaluation_still_fails() {
    let early = decide(&strategy(), &beside_old(vec![lost("a", 9)]), at(1010));
    let left = Node {
        targeting: crate::core::Targeting::No,
        ..lost("a", 9)
    };
    let fleet = Fleet {
        record: early.record,
        ..beside_old(vec![left])
    };
    let until = at(1009) + EVALUATED_AFTER;
    let waits = decide(&strategy(), &fleet, at(1011));
    assert_eq!(waits.guarded, Some(Guarded::Inconclusive { until }));
    let late = decide(&strategy(), &fleet, until);
    assert_eq!(named(late.record.as_ref()), ["a"]);
}

#[test]
fn a_node_known_to_be_touched_leaves_the_control_group() {
    let mut nodes = vec![lost("a", 9), lost("b", 9)];
    nodes.extend(["c", "d", "e"].map(|name| node(name, old(1))));
    let mut record = FailureRecord::new("new".into());
    record.control_group = [("a", 1009), ("b", 1009)]
        .map(|(name, since)| (name.into(), at(since)))
        .into();
    let plan = at_1400(
        &strategy(),
        &Fleet {
            record: Some(record),
            ..fleet(nodes)
        },
    );
    assert_eq!(named(plan.record.as_ref()), ["a", "b"]);
}

#[test]
fn deleting_a_failed_node_leaves_the_failure_record_unchanged() {
    let others = |mut nodes: Vec<Node>| {
        nodes.extend(["b", "c", "d"].map(|name| node(name, old(1))));
        fleet(nodes)
    };
    let charged = at_1400(&strategy(), &others(vec![lost("a", 9)]));
    assert_eq!(named(charged.record.as_ref()), ["a"]);
    let deleted = Fleet {
        record: charged.record.clone(),
        ..others(Vec::new())
    };
    let plan = at_1400(&strategy(), &deleted);
    assert_eq!(plan.record, charged.record);
}

/// Regression test from a property test. A failed node that was deleted delayed the completion of the rollout for half a minute,
/// and the plan had no wake-up for that time.
#[test]
fn a_deleted_failed_node_is_not_evaluated_again() {
    let mut fleet = beside_gone(vec![node("a", current(2).made(0))]);
    let record = fleet.record.as_mut().expect("there is one");
    record.failed.insert("gone".into());
    let plan = decide(&strategy(), &fleet, at(1010));
    assert!(matches!(plan.phase, Phase::Complete { .. }), "{plan:?}");
}

#[test]
fn a_node_lost_to_the_network_leaves_the_comparison_after_its_failure_window() {
    let since = Some(at(1300));
    let away = Node {
        readiness: Readiness::NotReady { since },
        ..node("b", old(1))
    };
    let made = current(2).made(1375).broken();
    let nodes = vec![
        Node {
            readiness: Readiness::NotReady {
                since: Some(at(1380)),
            },
            ..node("a", made)
        },
        away,
        node("c", old(1)),
    ];
    let mut fleet = beside_gone(nodes);
    let plan = at_1400(&strategy(), &fleet);
    // Without the deleted node, the one updated node and one of the two old nodes are lost. The rate of the updated nodes is
    // higher, so the network is not the cause.
    let until = at(1380) + EVALUATED_AFTER;
    assert_eq!(plan.guarded, Some(Guarded::Inconclusive { until }));
    assert_eq!(plan.counts.failures, 0);
    fleet.record = plan.record.clone();
    assert_eq!(at_1400(&strategy(), &fleet), plan);
}

#[test]
fn nodes_broken_before_the_failure_window_do_not_count_as_failed() {
    let down = |since: i64| Pod {
        unready_since: Some(at(since)),
        ..crashing(old(1), "Error", 9)
    };
    let nodes = vec![node("a", down(1100)), node("b", down(1101))];
    let strategy = strategy();
    let before = at_1400(&strategy, &beside_old(nodes));
    let record = before.record.expect("something to remember");
    let names: Vec<&str> = record.broken_before.iter().map(NodeName::as_str).collect();
    assert_eq!(names, ["a"]);
    assert_eq!(before.next_wake, Some(at(1401)));
    let nodes = ["a", "b"].map(|name| node(name, crashing(current(2).made(1400), "Error", 3)));
    let after = Fleet {
        record: Some(record),
        ..beside_old(nodes.to_vec())
    };
    let plan = decide(&strategy, &after, at(1450));
    assert_eq!(named(plan.record.as_ref()), ["b"]);
    assert_eq!((plan.counts.failures, plan.counts.failed), (1, 1));
}

/// Returns a fleet with these failed nodes in its record.
fn told(nodes: Vec<Node>, failed: &[&str], stopped: Option<Stopped>) -> Fleet {
    Fleet {
        record: Some(FailureRecord {
            failed: failed.iter().map(|name| NodeName::from(*name)).collect(),
            stopped,
            ..FailureRecord::new("new".into())
        }),
        ..beside_old(nodes)
    }
}

#[test]
fn a_failure_survives_node_deletion_pod_deletion_and_a_short_recovery() {
    // A failed node that was deleted still counts as a failure, but takes no slot.
    let plan = at_1400(&strategy(), &told(vec![], &["gone-1", "gone-2"], None));
    assert_eq!((plan.counts.failures, deletions(&plan)), (2, 3));
    let plan = at_1400(
        &strategy(),
        &told(vec![], &["gone-1", "gone-2", "gone-3"], None),
    );
    assert_eq!((plan.counts.failures, deletions(&plan)), (3, 0));
    // A failed node stays in the record until it has been healthy for the whole failure window.
    let recovered = |made: i64| node("a", current(2).made(made));
    let plan = at_1400(&strategy(), &told(vec![recovered(1200)], &["a"], None));
    assert_eq!((plan.verdicts[0], plan.counts.failures), (Verdict::Done, 1));
    assert_eq!(plan.next_wake, Some(at(1510)));
    let plan = at_1400(&strategy(), &told(vec![recovered(1090)], &["a"], None));
    assert_eq!((plan.record, plan.counts.failures), (None, 0));
}

#[test]
fn a_stopped_revision_stays_stopped_until_a_new_revision_or_a_resume() {
    let fleet = told(vec![], &["a"], Some(Stopped::FailedByRevision));
    let is_stopped = |strategy: &Strategy, fleet: &Fleet| {
        let plan = at_1400(strategy, fleet);
        let stopped = matches!(plan.guarded, Some(Guarded::Stopped(_)));
        assert_eq!(stopped, deletions(&plan) == 0);
        stopped
    };
    assert!(is_stopped(&strategy(), &fleet));
    let lenient = Strategy {
        failure_threshold: Some(IntOrPercent::Percent(100)),
        ..strategy()
    };
    assert!(is_stopped(&lenient, &fleet));
    let resume = |hash: &str| Strategy {
        resume: Some(hash.into()),
        ..strategy()
    };
    assert!(is_stopped(&resume("old"), &fleet));
    assert!(!is_stopped(&resume("new"), &fleet));
    let mut next = fleet;
    next.revision = crate::core::RevisionState::Current("newer".into());
    assert!(!is_stopped(&strategy(), &next));
}

#[test]
fn a_node_replaced_twice_and_outdated_again_stops_the_rollout() {
    let twice = |name: &str| Fleet {
        record: Some(FailureRecord {
            replaced_twice: [NodeName::from(name)].into(),
            ..FailureRecord::new("new".into())
        }),
        ..beside_old(vec![node("a", current(2).made(500))])
    };
    // Node a already runs the current revision. So the rollout continues, although the pod of node a was replaced twice.
    assert_eq!(deletions(&at_1400(&strategy(), &twice("a"))), 3);
    let plan = at_1400(&strategy(), &twice("z5"));
    assert_eq!(plan.guarded, Some(Guarded::Stopped(Stopped::ReplacedTwice)));
    assert_eq!(plan.phase, Phase::Stalled(Stall::ReplacedTwice));
    assert_eq!(deletions(&plan), 0);
}

#[test]
fn the_list_of_failed_nodes_is_bounded_and_their_number_is_kept() {
    let nodes: Vec<Node> = (0..300)
        .map(|number| lost(&format!("n{number:03}"), 9))
        .collect();
    let mut large = fleet(nodes);
    large.nodes.push(node("z", old(1)));
    let strategy = Strategy {
        failure_threshold: Some(IntOrPercent::Number(290)),
        ..strategy()
    };
    let plan = at_1400(&strategy, &large);
    let record = plan.record.expect("a record");
    assert_eq!((record.failed.len(), record.more), (200, 100));
    assert_eq!(
        plan.guarded,
        Some(Guarded::Stopped(Stopped::FailedByRevision))
    );
    large.record = Some(record.clone());
    assert_eq!(at_1400(&strategy, &large).record.as_ref(), Some(&record));
    // The number of further failed nodes (`more`) still includes nodes that were deleted.
    let name = NodeName::from("n200");
    large.nodes.retain(|node| node.name < name);
    assert_eq!(at_1400(&strategy, &large).counts.failures, 300);
}

#[test]
fn a_revision_that_failed_on_all_nodes_counts_as_stopped_before() {
    let strategy = Strategy {
        failure_threshold: Some(IntOrPercent::Number(1)),
        ..strategy()
    };
    let mut all = fleet(vec![lost("a", 9), lost("b", 9)]);
    let plan = at_1400(&strategy, &all);
    assert_eq!(plan.guarded, None);
    all.record = plan.record;
    all.revision = RevisionState::Current("next".into());
    let record = at_1400(&strategy, &all).record.expect("a record");
    assert_eq!(record.stopped_before, ["new".into()]);
}

#[test]
fn all_broken_pods_are_deleted_at_once_if_the_setting_allows_it() {
    let broken = || (0..8).map(|number| node(&format!("a{number}"), old(1).broken()));
    let mut fleet = fleet(broken().collect());
    fleet.nodes.push(node("z", old(1)));
    let one = Strategy {
        max_unavailable: IntOrPercent::Number(1),
        ..strategy()
    };
    assert_eq!(deletions(&at_1400(&one, &fleet)), 1);
    let all = Strategy {
        broken_unlimited: true,
        ..one
    };
    let plan = at_1400(&all, &fleet);
    assert_eq!(deletions(&plan), 8);
    assert_eq!(plan.verdicts[8], Verdict::Budget { broken: false });
}

#[test]
fn the_counts_explain_why_pods_are_unavailable() {
    let starting = |name: &str| node(name, current(2).made(1390).broken());
    let away = node("e", old(1)).away();
    let nodes = vec![
        starting("a"),
        lost("b", 9),
        node("c", old(1).broken()),
        node("d", old(1).broken()),
        away,
    ];
    let strategy = Strategy {
        max_unavailable: IntOrPercent::Number(2),
        ..strategy()
    };
    let plan = at_1400(&strategy, &beside_old(nodes));
    assert_eq!(deletions(&plan), 1);
    let expected = [
        ("offline", 1),
        ("in_progress", 2),
        ("failed", 1),
        ("broken_before", 1),
    ];
    assert_eq!(plan.counts.lacking(), expected);
    // A node with two pods counts as updated if the available one has the current revision, whichever pod is older.
    let mut surplus = node("a", current(2).made(1000));
    for second in [900, 1100] {
        let other = Pod {
            name: "other".into(),
            uid: "other".into(),
            ..current(2).made(second).broken()
        };
        let mut pods = [surplus.pods[0].clone(), other];
        pods.sort_by_key(|pod| pod.created);
        surplus.pods = pods.into();
        let plan = at_1400(&strategy, &beside_old(vec![surplus.clone()]));
        assert_eq!(plan.counts.updated, 1);
        surplus.pods.retain(|pod| pod.name.as_str() == "a");
    }
}

#[test]
fn extreme_timestamps_are_accepted() {
    let mut fleet = beside_old(vec![lost("a", 9)]);
    fleet.nodes[0].pods[0].created = Timestamp::MAX;
    assert_eq!(
        decide(&strategy(), &fleet, Timestamp::MAX).counts.failures,
        0
    );
}

/// Regression test from a property test. A pod that was never Ready was updated in place, and still crashes.
#[test]
fn a_pod_that_crashes_after_an_in_place_update_fails_since_the_update() {
    let updated = |pod: Pod| Pod {
        in_place: InPlace {
            update: Some(InPlaceUpdate {
                at: at(1200),
                is_carried_out: true,
            }),
            ..InPlace::default()
        }
        .into(),
        ..pod
    };
    let pod = updated(crashing(current(2).made(1000), "Error", 2));
    let plan = at_1400(&strategy(), &beside_old(vec![node("a", pod)]));
    let (since, cause) = (at(1200), Cause::Crashing);
    assert_eq!(plan.verdicts[0], Verdict::FailedByRevision { since, cause });

    // The node stays in the record until 300 s after the update. The time before doesn't count, because the pod was Ready with the
    // old revision then.
    let recovered = Fleet {
        record: plan.record,
        ..beside_old(vec![node("a", updated(current(2).made(0)))])
    };
    let names = |now: i64| {
        let record = decide(&strategy(), &recovered, at(now)).record;
        named(record.as_ref()).join(" ")
    };
    assert_eq!(names(1499), "a");
    assert_eq!(names(1500), "");
}

/// Regression test from a property test. The last outdated pod waited for its hook. The guard didn't stop the revision, so the pod
/// was deleted.
#[test]
fn the_guard_stops_a_revision_for_a_pod_that_waits_for_its_hook() {
    let failed = (0..3).map(|number| {
        let pod = crashing(current(2).made(1000), "Error", 2);
        node(&format!("a{number}"), pod)
    });
    let waits = |exit: Exit| {
        node(
            "z",
            Pod {
                exit: exit.into(),
                ..old(1)
            },
        )
    };
    let marked = waits(Exit {
        preparing: Some(PreDeleteHook { since: None }),
        ..Exit::default()
    });
    let plan = at_1400(&strategy(), &fleet(failed.chain([marked]).collect()));
    let stopped = Guarded::Stopped(Stopped::FailedByRevision);
    assert_eq!(plan.guarded, Some(stopped));
    assert_eq!(deletions(&plan), 0);
}

/// A lost node frees its slot, so further nodes can be updated and lost. These losses are limited by `failure-threshold` and by the
/// number of nodes that are updated at a time.
#[test]
fn a_lost_node_frees_its_slot_after_its_evaluation() {
    let strategy = Strategy {
        max_unavailable: IntOrPercent::Number(1),
        ..strategy()
    };
    let exit = Exit {
        preparing: Some(PreDeleteHook { since: None }),
        ..Exit::default()
    }
    .into();
    let marked = node("z", Pod { exit, ..old(1) });
    let plan = at_1400(&strategy, &fleet(vec![lost("a", 100), marked]));
    assert_eq!((plan.counts.failures, deletions(&plan)), (1, 1));
    assert_eq!(plan.phase, Phase::Progressing);
    // A Ready node with a crashing pod keeps its slot, so no other update begins.
    let crashes = node("a", crashing(current(2).made(1000), "Error", 3));
    let plan = at_1400(&strategy, &beside_old(vec![crashes]));
    assert_eq!((plan.counts.failures, deletions(&plan)), (1, 0));
}

/// Returns a flapping node: it was lost at 1009, returned, and was lost again at `since`.
fn flapping(name: &str, since: i64) -> Node {
    Node {
        losses: Some([at(1009), at(since)].into()),
        ..lost(name, since - 1000)
    }
}

#[test]
fn a_flapping_node_delays_other_updates_for_30_seconds_in_total() {
    let nodes = |since| beside_old(vec![flapping("a", since)]);
    // The losses at 1009 and 1030 are evaluated together, 30 s after the first one.
    let until = at(1039);
    let early = decide(&strategy(), &nodes(1030), at(1031));
    assert_eq!(early.guarded, Some(Guarded::Inconclusive { until }));
    assert_eq!((deletions(&early), early.next_wake), (0, Some(until)));
    // Further losses of node a don't delay other nodes, even before node a counts against the revision.
    let goes_on = decide(&strategy(), &nodes(1038), until);
    assert_eq!((goes_on.guarded, deletions(&goes_on)), (None, 3));
    assert_eq!(goes_on.next_wake, Some(at(1058)));
    let charged = decide(&strategy(), &nodes(1038), at(1058));
    assert_eq!(named(charged.record.as_ref()), ["a"]);
    let told = Fleet {
        record: charged.record,
        ..nodes(1070)
    };
    let again = decide(&strategy(), &told, at(1071));
    assert_eq!(
        (again.guarded, named(again.record.as_ref())),
        (None, vec!["a"])
    );
}

/// A common case on edge nodes: a node was NotReady before its update, and is updated as soon as it returns.
#[test]
fn an_outage_before_the_update_is_not_flapping() {
    let back = Node {
        losses: Some([at(900), at(1009)].into()),
        ..lost("a", 9)
    };
    let plan = decide(&strategy(), &beside_old(vec![back]), at(1031));
    let until = at(1039);
    assert_eq!(plan.guarded, Some(Guarded::Inconclusive { until }));
}

#[test]
fn a_revision_that_reboots_its_nodes_repeatedly_is_stopped() {
    let nodes = ["a", "b", "c"].map(|name| flapping(name, 1040)).to_vec();
    let plan = decide(&strategy(), &beside_old(nodes), at(1060));
    let stopped = Guarded::Stopped(Stopped::FailedByRevision);
    assert_eq!((plan.guarded, deletions(&plan)), (Some(stopped), 0));
}

#[test]
fn nodes_that_flap_together_with_untouched_nodes_do_not_fail() {
    let untouched = ["b", "c"].map(|name| Node {
        readiness: Readiness::NotReady {
            since: Some(at(1048)),
        },
        losses: Some([at(1009), at(1048)].into()),
        ..node(name, old(1))
    });
    let nodes = [flapping("a", 1040)].into_iter().chain(untouched);
    let plan = decide(&strategy(), &beside_old(nodes.collect()), at(1060));
    // Further losses of node a don't delay other nodes, and no loss of this node counts against the revision yet.
    assert_eq!((plan.guarded, plan.counts.failures), (None, 0));
}

/// Returns a node whose old pod was deleted at `removed`. It turned NotReady at `since`, before it got a new pod.
fn lost_by_removal(name: &str, removed: i64, since: i64) -> Node {
    let leaving = Pod {
        terminating: true,
        ..old(1).broken()
    };
    Node {
        readiness: Readiness::NotReady {
            since: Some(at(since)),
        },
        disrupted_at: Some(at(removed)),
        ..node(name, leaving)
    }
}

#[test]
fn a_node_lost_after_the_deletion_of_its_old_pod_fails() {
    let one = Strategy {
        max_unavailable: IntOrPercent::Number(1),
        failure_threshold: Some(IntOrPercent::Number(1)),
        ..strategy()
    };
    let first = beside_old(vec![lost_by_removal("a", 1000, 1003)]);
    let until = at(1033);
    let evaluated = decide(&one, &first, at(1010));
    assert_eq!(evaluated.guarded, Some(Guarded::Inconclusive { until }));
    assert_eq!(
        (deletions(&evaluated), evaluated.next_wake),
        (0, Some(until))
    );
    let goes_on = decide(&one, &first, until);
    assert_eq!((goes_on.guarded, deletions(&goes_on)), (None, 1));
    assert_eq!(named(goes_on.record.as_ref()), ["a"]);
    let second = ["a", "b"].map(|name| lost_by_removal(name, 1000, 1003));
    let stopped = decide(&one, &beside_old(second.to_vec()), until);
    assert_eq!(stopped.phase, Phase::Stalled(Stall::FailedByRevision));
    assert_eq!(deletions(&stopped), 0);
    // Two losses don't count: one before the pod was deleted, and one after the pod was deleted for an earlier template.
    let before = beside_old(vec![lost_by_removal("a", 1004, 1003)]);
    let mut earlier = lost_by_removal("a", 1000, 1003);
    earlier.disrupted_at = None;
    for fleet in [before, beside_old(vec![earlier])] {
        let plan = decide(&one, &fleet, until);
        assert_eq!((plan.counts.failures, deletions(&plan)), (0, 1));
    }
}

#[test]
fn nodes_lost_by_the_deletion_of_their_pods_are_no_control_group() {
    let nodes = ["a", "b", "c", "d"].map(|name| lost_by_removal(name, 1000, 1003));
    let plan = at_1400(&strategy(), &beside_old(nodes.to_vec()));
    assert_eq!(named(plan.record.as_ref()), ["a", "b", "c", "d"]);
}

#[test]
fn a_loss_by_pod_deletion_survives_new_pods_node_deletion_and_a_restart() {
    // The successor of the deleted pod was created after the loss, so the pods no longer show the deletion.
    let made = |disrupted_at| Node {
        readiness: Readiness::NotReady {
            since: Some(at(1003)),
        },
        disrupted_at,
        ..node("a", current(2).made(1010).broken())
    };
    let seen = decide(
        &strategy(),
        &beside_old(vec![made(Some(at(1000)))]),
        at(1020),
    );
    let record = seen.record.expect("nothing else tells of the removal");
    assert_eq!(record.updated_before_loss, [NodeName::from("a")].into());
    // After a restart of the controller, only the record shows the deletion.
    let restarted = |node: Option<Node>, record: &FailureRecord| Fleet {
        record: Some(record.clone()),
        ..beside_old(node.into_iter().collect())
    };
    let gone = at_1400(&strategy(), &restarted(None, &record));
    assert_eq!(named(gone.record.as_ref()), ["a"], "it was being evaluated");
    // Without an entry in the record's list `lost`, the deleted node doesn't count, because the network may have been the cause.
    let record = FailureRecord {
        lost: Default::default(),
        ..record
    };
    let gone = at_1400(&strategy(), &restarted(None, &record));
    assert_eq!(gone.counts.failures, 0);
    let record = gone.record.expect("it may come back");
    // A Node with the name of the deleted one is created. Its status doesn't show since when it is NotReady, so it doesn't count
    // yet.
    let silent = Node {
        readiness: Readiness::NotReady { since: None },
        ..made(None)
    };
    let unheard = at_1400(&strategy(), &restarted(Some(silent), &record));
    assert_eq!(unheard.counts.failures, 0);
    let record = unheard.record.expect("it will say so");
    let anew = Node {
        readiness: Readiness::NotReady {
            since: Some(at(1060)),
        },
        ..made(None)
    };
    let plan = at_1400(&strategy(), &restarted(Some(anew), &record));
    assert_eq!(named(plan.record.as_ref()), ["a"]);
    // After node a returns healthy, the record is empty.
    let well = node("a", current(2).made(500));
    assert_eq!(
        at_1400(&strategy(), &restarted(Some(well), &record)).record,
        None
    );
}

/// Regression test from a property test. The next pod was deleted after the loss. The guard took this deletion for the deletion
/// before the loss. So it forgot that the rollout had changed the node before the loss.
#[test]
fn a_loss_by_pod_deletion_is_kept_when_the_next_pod_is_deleted() {
    let mut fleet = beside_old(vec![lost_by_removal("a", 1015, 1009)]);
    fleet.record = Some(FailureRecord {
        updated_before_loss: ["a".into()].into(),
        ..FailureRecord::new("new".into())
    });
    let plan = decide(&strategy(), &fleet, at(1020));
    let until = at(1009) + EVALUATED_AFTER;
    assert_eq!(plan.guarded, Some(Guarded::Inconclusive { until }));
    fleet.record = plan.record.clone();
    assert_eq!(decide(&strategy(), &fleet, at(1020)), plan);
    assert_eq!(named(at_1400(&strategy(), &fleet).record.as_ref()), ["a"]);
}

#[test]
fn losses_and_crashes_before_a_rollback_do_not_count_against_it() {
    let before = |pod: Pod| Pod {
        of_template: false,
        ..pod
    };
    let mut away = lost("a", 9);
    away.pods = [before(away.pods[0].clone())].into();
    let crashes = node("b", before(crashing(current(2).made(1000), "Error", 3)));
    let plan = at_1400(&strategy(), &beside_old(vec![away, crashes]));
    assert_eq!((plan.counts.failures, plan.record), (0, None));
}

#[test]
fn a_rollout_whose_last_node_was_lost_completes_except_for_it_or_stalls() {
    let strategy = |threshold| Strategy {
        failure_threshold: Some(IntOrPercent::Number(threshold)),
        ..strategy()
    };
    let fleet = fleet(vec![lost("a", 9), node("b", current(2).made(1000))]);
    let within = at_1400(&strategy(1), &fleet);
    assert!(matches!(within.phase, Phase::Complete { .. }));
    assert_eq!(
        within.exceptions(&fleet, &strategy(1)),
        ["1 node is offline and failed with this version"]
    );
    let beyond = at_1400(&strategy(0), &fleet);
    assert_eq!(beyond.phase, Phase::Stalled(Stall::FailedByRevision));
}

/// Returns `node`, changed to NotReady since `second`.
fn away_since(second: i64, node: Node) -> Node {
    let since = Some(at(second));
    Node {
        readiness: Readiness::NotReady { since },
        ..node
    }
}

#[test]
fn a_crashed_node_stays_failed_when_all_nodes_are_lost() {
    let mut fleet = beside_old(vec![node("a", crashing(current(2).made(1000), "Error", 3))]);
    let charged = decide(&strategy(), &fleet, at(1050));
    assert_eq!(named(charged.record.as_ref()), ["a"]);
    fleet.record = charged.record;
    // Only node a is lost. Its loss is evaluated before another node gets its slot.
    let mut alone = fleet.clone();
    alone.nodes[0] = away_since(1060, alone.nodes[0].clone());
    let one = Strategy {
        max_unavailable: IntOrPercent::Number(1),
        ..strategy()
    };
    let until = at(1060) + EVALUATED_AFTER;
    let plan = decide(&one, &alone, at(1070));
    assert_eq!(plan.guarded, Some(Guarded::Inconclusive { until }));
    assert_eq!((deletions(&plan), plan.next_wake), (0, Some(until)));
    assert_eq!(deletions(&decide(&one, &alone, until)), 1);
    // All nodes are lost. The rollout is complete only after the losses are evaluated. Offline nodes don't prevent its completion
    // then.
    for node in &mut fleet.nodes {
        *node = away_since(1060, node.clone());
    }
    for second in [1070, 1100, 1359] {
        let plan = decide(&strategy(), &fleet, at(second));
        assert_eq!(named(plan.record.as_ref()), ["a"], "{second}");
        assert_eq!(plan.phase, Phase::Progressing, "{second}");
    }
    let over = decide(&strategy(), &fleet, at(1360));
    assert!(matches!(over.phase, Phase::Complete { .. }), "{over:?}");
    assert_eq!(named(over.record.as_ref()), ["a"]);
    // All nodes except a have returned. Node a still counts against the revision.
    for node in &mut fleet.nodes[1..] {
        node.readiness = Readiness::Ready { since: at(1370) };
    }
    let plan = decide(&strategy(), &fleet, at(1410));
    assert_eq!(
        (named(plan.record.as_ref()), plan.counts.failures),
        (vec!["a"], 1)
    );
}

#[test]
fn a_rollout_with_free_slots_that_waits_for_an_evaluation_is_not_stalled() {
    let crashes = node("a", crashing(current(2).made(1000), "Error", 3));
    let mut fleet = beside_old(vec![crashes, lost("b", 250)]);
    fleet.nodes[2] = away_since(1250, fleet.nodes[2].clone());
    let plan = decide(&strategy(), &fleet, at(1260));
    assert!(matches!(plan.guarded, Some(Guarded::Inconclusive { .. })));
    assert_eq!(plan.phase, Phase::Progressing);
}

#[test]
fn a_loss_before_a_revision_was_adopted_does_not_count_against_it() {
    let mut fleet = beside_old(vec![lost_by_removal("a", 1004, 1009)]);
    assert_eq!(named(at_1400(&strategy(), &fleet).record.as_ref()), ["a"]);
    fleet.adopted = Some(at(1010));
    assert_eq!(at_1400(&strategy(), &fleet).record, None);
    fleet.adopted = Some(at(1009));
    assert_eq!(named(at_1400(&strategy(), &fleet).record.as_ref()), ["a"]);
}

#[test]
fn crashes_count_against_a_revision_that_returns_within_its_failure_window() {
    let before = Pod {
        of_template: false,
        ..crashing(current(2).made(1000), "Error", 3)
    };
    let mut fleet = beside_old(vec![node("a", before)]);
    for (adopted, failures) in [(1250, 1), (1301, 0)] {
        (fleet.made, fleet.adopted) = (Some(at(1000)), Some(at(adopted)));
        let plan = at_1400(&strategy(), &fleet);
        assert_eq!(plan.counts.failures, failures, "{adopted}");
    }
    // The guard rolled the pod back to an old revision, and a user made this revision current again. The pod was not created for
    // this rollout, so its crashes don't count.
    fleet.adopted = Some(at(1250));
    fleet.nodes[0].pods[0].in_place.reverted_from = Some("bad".into());
    assert_eq!(at_1400(&strategy(), &fleet).counts.failures, 0);
}

#[test]
fn crashes_stop_a_revision_for_offline_nodes_and_losses_alone_do_not() {
    let none = Strategy {
        failure_threshold: Some(IntOrPercent::Number(0)),
        ..strategy()
    };
    let reverting = Strategy {
        on_failure: crate::core::OnFailure::RevertInPlace,
        ..none.clone()
    };
    let stopped = |strategy: &Strategy, nodes: Vec<Node>| {
        let plan = at_1400(strategy, &fleet(nodes));
        assert_eq!(plan.phase, Phase::Stalled(Stall::FailedByRevision));
        plan.record.unwrap().stopped.is_some()
    };
    let crashes = || node("a", crashing(current(2).made(1000), "Error", 3));
    let done = || node("b", current(2).made(1000));
    let away = || node("c", old(1)).away();
    assert!(stopped(&none, vec![crashes(), done(), away()]));
    assert!(!stopped(&none, vec![crashes(), done()]));
    assert!(stopped(&reverting, vec![crashes(), done()]));
    // Losses alone don't stop the revision. No node without an update is online for a comparison, so the network may be the cause.
    assert!(!stopped(&none, vec![lost("a", 9), done(), away()]));
    assert!(!stopped(&reverting, vec![lost("a", 9), done()]));
}

#[test]
fn a_failed_node_stays_failed_while_its_pod_crashes_rarely() {
    let crashes = |ready_until| Pod {
        unready_since: Some(at(ready_until)),
        ..crashing(current(2).made(1000), "Error", 9)
    };
    let mut fleet = beside_old(vec![node("a", crashes(1310))]);
    assert_eq!(at_1400(&strategy(), &fleet).counts.failures, 0);
    fleet.record = Some(FailureRecord {
        failed: ["a".into()].into(),
        ..FailureRecord::new("new".into())
    });
    let plan = at_1400(&strategy(), &fleet);
    assert!(matches!(plan.verdicts[0], Verdict::FailedByRevision { .. }));
}

#[test]
fn a_stop_lasts_while_outdated_nodes_are_offline() {
    let mut fleet = fleet(vec![
        node("a", current(2).made(10)),
        node("b", old(1)).away(),
    ]);
    fleet.record = Some(FailureRecord {
        stopped: Some(Stopped::FailedByRevision),
        failed: ["a".into()].into(),
        ..FailureRecord::new("new".into())
    });
    let plan = at_1400(&strategy(), &fleet);
    assert_eq!(plan.phase, Phase::Stalled(Stall::FailedByRevision));
    // The rollout no longer counts as stalled when every node has the current revision.
    fleet.nodes.truncate(1);
    let over = at_1400(&strategy(), &fleet);
    assert!(matches!(over.phase, Phase::Complete { .. }));
}

/// Returns a node whose pod the controller deleted at 1000, and on which a taint prevents the next pod.
fn barred(name: &str, pods: Vec<Pod>) -> Node {
    Node {
        targeting: crate::core::Targeting::Keep,
        disrupted_at: Some(at(1000)),
        emptied: true,
        had_pod: false,
        losses: None,
        podless_since: pods.is_empty().then(|| at(1003)),
        pods: pods.into(),
        ..node(name, old(1))
    }
}

#[test]
fn a_node_tainted_during_its_replacement_keeps_its_slot_and_does_not_fail() {
    let one = Strategy {
        max_unavailable: IntOrPercent::Number(1),
        failure_threshold: Some(IntOrPercent::Number(0)),
        ..strategy()
    };
    let leaving = Pod {
        terminating: true,
        ..old(1).broken()
    };
    let starting = current(2).made(1003).broken();
    for pods in [vec![leaving], vec![], vec![starting]] {
        let plan = decide(&one, &beside_old(vec![barred("a", pods)]), at(1010));
        assert!(matches!(plan.verdicts[0], Verdict::InProgress(_)));
        assert_eq!((plan.counts.unavailable, deletions(&plan)), (1, 0));
        assert_eq!((plan.phase, plan.guarded), (Phase::Progressing, None));
    }
    let fleet = beside_old(vec![barred("a", vec![])]);
    for now in [1100, 100_000] {
        let plan = decide(&one, &fleet, at(now));
        assert_eq!(plan.phase, Phase::Stalled(Stall::PodsKeptAway));
        assert_eq!((plan.counts.failures, deletions(&plan)), (0, 0));
        let record = plan.record.expect("nothing else tells of the removal");
        assert_eq!(record.updated_before_loss, [NodeName::from("a")].into());
        assert!(record.failed.is_empty());
    }
    // If there are two slots, another node gets the second one.
    let two = Strategy {
        max_unavailable: IntOrPercent::Number(2),
        ..one.clone()
    };
    assert_eq!(deletions(&decide(&two, &fleet, at(1100))), 1);
    // If another client deleted the pod, the node takes no slot.
    let others = Node {
        emptied: false,
        ..barred("a", vec![])
    };
    let plan = decide(&one, &beside_old(vec![others]), at(1010));
    assert_eq!(plan.verdicts[0], Verdict::NotTargeted);
    assert_eq!(deletions(&plan), 1);
}

#[test]
fn a_node_relabeled_during_its_replacement_frees_its_slot_after_the_window() {
    let one = Strategy {
        max_unavailable: IntOrPercent::Number(1),
        ..strategy()
    };
    let relabelled = Node {
        targeting: crate::core::Targeting::No,
        ..barred("a", vec![])
    };
    let fleet = beside_old(vec![relabelled]);
    let frees = at(1003) + failure_window(&one);
    let waits = decide(&one, &fleet, at(1100));
    assert_eq!((deletions(&waits), waits.next_wake), (0, Some(frees)));
    let goes_on = decide(&one, &fleet, frees);
    assert_eq!((deletions(&goes_on), goes_on.counts.failures), (1, 0));
}

#[test]
fn a_deletion_without_a_new_pod_counts_for_min_interval() {
    let slow = Strategy {
        min_interval: Duration::from_secs(600),
        failure_threshold: Some(IntOrPercent::Number(5)),
        ..strategy()
    };
    for lost in [barred("a", vec![]), lost_by_removal("a", 1000, 1003)] {
        let fleet = beside_old(vec![lost]);
        let early = decide(&slow, &fleet, at(1400));
        assert_eq!((deletions(&early), early.opens), (0, Some(at(1600))));
        assert_eq!(deletions(&decide(&slow, &fleet, at(1600))), 1);
    }
}
