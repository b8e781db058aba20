//! Tests of rejected writes: their backoff, the nodes that are updated instead, and the messages.

use super::*;
use crate::core::plan::{Phase, Plan, Stall};
use crate::core::rollout_state::ReportedFailures;
use crate::core::settings::{IntOrPercent, Mode, Strategy};
use crate::core::testing::{self, at, current, fleet, node, old};
use crate::core::verdict::Verdict;
use crate::core::{Fleet, NodeWindow, Pod, RolloutState, Windows, decide};

const NO: &str = "policy keep denied request: stay";

fn rolling(nodes: u32) -> Strategy {
    Strategy {
        max_unavailable: IntOrPercent::Number(nodes),
        ..Strategy::with_mode(Mode::AdvancedRollingUpdate)
    }
}

fn three() -> Vec<Node> {
    ["a", "b", "c"].map(|name| node(name, old(1))).into()
}

/// Returns a fleet in which the API server rejected the deletion of the pods `names` once, at `instant`.
fn refused(nodes: Vec<Node>, names: &[&str], instant: i64) -> Fleet {
    let mut fleet = fleet(nodes);
    fleet.write_failures.keep_to(&"new".into());
    for name in names {
        refuse(&mut fleet, name, instant);
    }
    fleet
}

fn refuse(fleet: &mut Fleet, name: &str, instant: i64) {
    let (node, pod) = (name.into(), name.into());
    let write_failures = &mut fleet.write_failures;
    write_failures.refuse((&node, Some(&pod)), WriteVerb::Delete, NO, at(instant));
}

/// Returns the names of the pods that the plan deletes.
fn deleted(plan: &Plan) -> Vec<&str> {
    let actions = plan.actions.iter();
    actions.map(|action| action.pod().name.as_str()).collect()
}

fn status(fleet: &Fleet, plan: &Plan) -> String {
    testing::status(fleet, plan).sentence()
}

fn words(plan: &Plan) -> Vec<&str> {
    plan.verdicts.iter().map(Verdict::word).collect()
}

#[test]
fn the_slot_of_a_node_with_a_rejected_write_goes_to_the_next_node() {
    let fleet = refused(three(), &["a"], 100);
    let plan = decide(&rolling(1), &fleet, at(100));
    assert_eq!(deleted(&plan), ["b"]);
    assert_eq!(words(&plan), ["Refused", "InProgress", "Budget"]);
    assert_eq!(plan.phase, Phase::Progressing);
    assert_eq!(plan.counts.unavailable, 1);
    assert_eq!(plan.next_wake, Some(at(101)));
}

#[test]
fn rejected_writes_are_retried_with_backoff_up_to_half_a_minute() {
    let mut fleet = refused(vec![node("a", old(1))], &[], 0);
    let mut now = 100;
    let mut pauses = Vec::new();
    for _ in 0..8 {
        refuse(&mut fleet, "a", now);
        let plan = decide(&rolling(1), &fleet, at(now));
        assert_eq!(deleted(&plan), [""; 0]);
        let later = (1..).find(|pause| {
            let plan = decide(&rolling(1), &fleet, at(now + pause));
            !plan.actions.is_empty()
        });
        let later = later.unwrap();
        pauses.push(later);
        now += later;
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30, 30]);
}

#[test]
fn a_rollout_with_only_rejected_writes_is_stalled_also_during_retries() {
    let done = || node("b", current(2));
    let mut fleet = refused(vec![node("a", old(1)), done()], &["a"], 100);
    let plan = decide(&rolling(1), &fleet, at(100));
    assert_eq!(plan.phase, Phase::Progressing);
    let plan = decide(&rolling(1), &fleet, at(115));
    assert_eq!(plan.phase, Phase::Stalled(Stall::WritesRefused));
    assert_eq!(deleted(&plan), ["a"], "and it is tried again");
    assert_eq!(words(&plan), ["Refused", "Done"]);
    assert_eq!(
        plan.refused.sentence(),
        format!("the API server refuses to delete pods on a. Cause: {NO}. Retried automatically")
    );
    refuse(&mut fleet, "a", 115);
    let plan = decide(&rolling(1), &fleet, at(115));
    assert_eq!(deleted(&plan), [""; 0]);
    assert_eq!(plan.phase, Phase::Stalled(Stall::WritesRefused));
    assert_eq!(plan.next_wake, Some(at(117)));
}

#[test]
fn a_rollout_is_not_stalled_while_other_nodes_wait_for_the_slot_of_a_retry() {
    let mut fleet = refused(three(), &["a"], 100);
    fleet.nodes[1] = node("b", current(2));
    let plan = decide(&rolling(1), &fleet, at(120));
    assert_eq!(deleted(&plan), ["a"]);
    assert_eq!(words(&plan), ["Refused", "Done", "Budget"]);
    assert_eq!(plan.phase, Phase::Progressing);
    refuse(&mut fleet, "a", 120);
    let plan = decide(&rolling(1), &fleet, at(120));
    assert_eq!(deleted(&plan), ["c"]);
    assert_eq!(plan.phase, Phase::Progressing);
}

#[test]
fn one_success_retries_all_writes_rejected_for_the_same_reason() {
    let mut fleet = refused(three(), &["a", "b", "c"], 100);
    for instant in [101, 103, 107, 115] {
        for name in ["a", "b", "c"] {
            refuse(&mut fleet, name, instant);
        }
    }
    assert_eq!(deleted(&decide(&rolling(3), &fleet, at(120))), [""; 0]);
    fleet.write_failures.accept(&"b".into(), WriteVerb::Delete);
    assert_eq!(
        deleted(&decide(&rolling(3), &fleet, at(120))),
        ["a", "b", "c"]
    );
}

#[test]
fn at_most_ten_writes_are_rejected_per_second_and_the_oldest_is_retried_first() {
    let names: Vec<String> = (10..50).map(|number| format!("n{number}")).collect();
    let nodes: Vec<Node> = names.iter().map(|name| node(name, old(1))).collect();
    let tried: Vec<&str> = names.iter().map(String::as_str).collect();
    let fleet = refused(nodes, &tried[..10], 100);
    let plan = decide(&rolling(1), &fleet, at(100));
    assert_eq!(deleted(&plan), [""; 0]);
    assert_eq!(plan.phase, Phase::Progressing);
    assert_eq!(plan.next_wake, Some(at(101)));
    assert_eq!(deleted(&decide(&rolling(11), &fleet, at(102))).len(), 11);
    let mut all = refused(fleet.nodes.clone(), &tried, 100);
    for name in &tried[..5] {
        refuse(&mut all, name, 90);
    }
    let again = decide(&rolling(40), &all, at(200));
    assert_eq!(deleted(&again), tried[..10]);
}

#[test]
fn a_rollout_that_waits_for_min_interval_is_not_stalled_by_rejections() {
    let fleet = refused(three(), &["a"], 100);
    let strategy = Strategy {
        min_interval: Duration::from_secs(600),
        ..rolling(1)
    };
    let mut fleet = fleet;
    fleet.nodes[1] = node(
        "b",
        crate::core::Pod {
            created: at(90),
            ..current(2)
        },
    );
    let plan = decide(&strategy, &fleet, at(130));
    assert_eq!(plan.phase, Phase::Progressing, "{plan:?}");
}

#[test]
fn five_conflicts_in_a_row_count_as_a_rejection() {
    let mut write_failures = WriteFailures::default();
    let (node, pod) = (NodeName::from("a"), PodUid::from("a"));
    for _ in 0..4 {
        write_failures.count_failure((&node, Some(&pod)), WriteVerb::Delete, NO, at(1));
    }
    assert!(write_failures.has_no_failures());
    write_failures.accept(&node, WriteVerb::Delete);
    for _ in 0..5 {
        write_failures.count_failure((&node, Some(&pod)), WriteVerb::Delete, NO, at(1));
    }
    assert!(!write_failures.has_no_failures());
}

#[test]
fn a_constantly_changing_pod_is_written_with_its_uid_only() {
    let mut write_failures = WriteFailures::default();
    let (node, pod) = (NodeName::from("a"), PodUid::from("a"));
    let conflict = |write_failures: &mut WriteFailures| {
        write_failures.conflict((&node, Some(&pod)), WriteVerb::Delete, NO, at(1));
    };
    for _ in 0..2 {
        conflict(&mut write_failures);
    }
    assert!(!write_failures.is_contended(&pod));
    conflict(&mut write_failures);
    assert!(write_failures.is_contended(&pod) && write_failures.has_no_failures());
    write_failures.tidy(&[]);
    assert!(write_failures.is_empty());
}

#[test]
fn rejections_are_forgotten_with_their_pod_node_and_revision() {
    let all = refused(three(), &["a", "b"], 100);
    let mut write_failures = all.write_failures.clone();
    write_failures.tidy(&all.nodes);
    assert_eq!(write_failures, all.write_failures);
    let mut renewed = all.nodes.clone();
    renewed[0] = node("a", current(2));
    renewed[0].pods[0].uid = "another".into();
    write_failures.tidy(&renewed);
    assert_eq!(
        write_failures.sentence(),
        format!("the API server refuses to delete pods on b. Cause: {NO}. Retried automatically")
    );
    write_failures.tidy(&renewed[2..]);
    assert_eq!(write_failures.sentence(), "");
    let mut write_failures = all.write_failures;
    write_failures.keep_to(&"newer".into());
    assert!(write_failures.has_no_failures());
}

#[test]
fn rejection_messages_that_differ_only_in_numbers_are_equal() {
    let mut write_failures = WriteFailures::default();
    for (name, used) in [("a", 3), ("b", 4)] {
        let said = format!("exceeded quota: none, used: pods={used}, limited: pods=3");
        let node = NodeName::from(name);
        write_failures.refuse((&node, None), WriteVerb::Create, &said, at(1));
    }
    assert_eq!(
        write_failures.sentence(),
        "the API server refuses to create pods on a, b. Cause: exceeded quota: none, used: pods=3, limited: pods=3. Retried automatically"
    );
}

#[test]
fn saved_rejections_are_read_back_unchanged() {
    let mut write_failures = refused(three(), &["a", "c"], 100).write_failures;
    let said = "admission webhook \"w\" denied the request: on monday: no";
    write_failures.refuse((&"b".into(), None), WriteVerb::Create, said, at(101));
    let read = reread(&write_failures);
    assert_eq!(read.sentence(), write_failures.sentence());
    let since: Vec<Timestamp> = read.failures().map(|(_, failure)| failure.since).collect();
    assert_eq!(since, [at(100); 3]);
    let mut fleet = fleet(three());
    fleet.write_failures = read;
    // After a restart of the controller, rejected writes are retried immediately.
    assert_eq!(
        deleted(&decide(&rolling(3), &fleet, at(200))),
        ["a", "b", "c"]
    );
}

#[test]
fn a_pod_whose_in_place_update_is_rejected_is_recreated() {
    let mut fleet = refused(three(), &[], 0);
    fleet.write_failures.note_unfit(Some("a".into()));
    assert!(fleet.write_failures.is_unfit(&"a".into()));
    let way = |fleet: &Fleet| {
        let strategy = Strategy {
            rolling_update_type: crate::core::RollingUpdateType::InPlaceIfPossible,
            ..rolling(1)
        };
        crate::core::engine::replacement::way(&strategy, fleet, &fleet.nodes[0].pods[0])
    };
    assert_eq!(
        way(&fleet),
        crate::core::engine::replacement::UpdateMethod::Recreate(Some(
            crate::core::fleet::in_place::Recreate::Refused
        ))
    );
}

/// Replaces the rejections with the ones that another replica or `ctl` reads from the status. These don't contain UIDs of pods.
fn read(fleet: &mut Fleet, write: WriteVerb) {
    let mut write_failures = WriteFailures::default();
    write_failures.keep_to(&"new".into());
    write_failures.refuse((&"a".into(), None), write, NO, at(100));
    fleet.write_failures = reread(&write_failures);
    fleet.write_failures.tidy(&fleet.nodes);
}

/// Returns the rejections as a restarted controller reads them from the status.
fn reread(write_failures: &WriteFailures) -> WriteFailures {
    let state = RolloutState {
        refused: ReportedFailures::new(write_failures, None),
        ..RolloutState::default()
    };
    let read = RolloutState::read(&state.to_json()).expect("JSON");
    read.refusals().expect("refusals")
}

#[test]
fn saved_rejections_on_current_pods_are_kept_until_the_pod_is_gone() {
    for write in [WriteVerb::UpdateInPlace, WriteVerb::Unmark, WriteVerb::Tell] {
        let mut fleet = fleet(vec![node("a", current(2))]);
        read(&mut fleet, write);
        assert!(!fleet.write_failures.has_no_failures(), "{write:?}");
        fleet.nodes[0].pods.clear();
        fleet.write_failures.tidy(&fleet.nodes);
        assert!(fleet.write_failures.has_no_failures(), "{write:?}");
    }
}

#[test]
fn a_mark_that_cannot_be_removed_is_reported_and_the_node_is_done() {
    let mut fleet = fleet(vec![node("a", current(2))]);
    fleet.nodes[0].pods[0].exit.preparing = Some(crate::core::PreDeleteHook { since: None });
    read(&mut fleet, WriteVerb::Unmark);
    let plan = decide(&rolling(1), &fleet, at(200));
    assert_eq!(words(&plan), ["Done"]);
    assert!(matches!(plan.phase, Phase::Complete { .. }));
    assert_eq!(
        plan.refused.sentence(),
        format!(
            "the API server refuses to remove marks from pods on a. Cause: {NO}. Retried automatically"
        )
    );
}

#[test]
fn a_pod_whose_readiness_gate_cannot_be_opened_has_the_verdict_refused() {
    let mut fleet = fleet(vec![node("a", current(2))]);
    let pod = &mut fleet.nodes[0].pods[0];
    pod.ready_since = None;
    let shut = r#"[{"userAgent":"Lifecycle","key":"preDeleteHook"}]"#;
    pod.exit.gate = Some(crate::core::Gate::read(Some((false, shut))).into());
    read(&mut fleet, WriteVerb::Tell);
    let plan = decide(&rolling(1), &fleet, at(200));
    assert_eq!(words(&plan), ["Refused"]);
    assert_eq!(plan.phase, Phase::Stalled(Stall::WritesRefused));
}

#[test]
fn of_alternating_rejections_on_two_pods_of_a_node_the_first_counts() {
    let pods = [old(1), old(2)].map(|pod| Pod {
        uid: pod.number.to_string().as_str().into(),
        ..pod
    });
    let mut fleet = fleet(vec![Node {
        pods: pods.into(),
        ..node("a", old(1))
    }]);
    fleet.write_failures.keep_to(&"new".into());
    for instant in [100, 110, 120] {
        for pod in ["1", "2"] {
            let place = (&"a".into(), Some(&pod.into()));
            fleet
                .write_failures
                .refuse(place, WriteVerb::Delete, NO, at(instant));
        }
    }
    let failure = fleet.write_failures.on(&"a".into()).next().unwrap();
    assert_eq!((failure.since, failure.times), (at(100), 3));
}

/// Gives the node a maintenance window that is closed during the test.
fn shut(node: Node, text: &str) -> Node {
    let windows = Windows::read(text).map(std::sync::Arc::new);
    let window = match windows {
        Ok(windows) => NodeWindow::Windows(windows),
        Err(why) => NodeWindow::Unreadable(why.to_string().into()),
    };
    Node {
        window: Some(window),
        ..node
    }
}

#[test]
fn a_node_outside_its_window_does_not_hide_rejections_on_other_nodes() {
    let mut nodes = three();
    nodes[2] = shut(nodes[2].clone(), "Mon-Sun 00:10-00:20 UTC");
    let fleet = refused(nodes, &["a", "b"], 100);
    let plan = decide(&rolling(2), &fleet, at(160));
    assert_eq!(words(&plan), ["Refused", "Refused", "OutOfWindow"]);
    assert_eq!(plan.phase, Phase::Stalled(Stall::WritesRefused));
    let text = status(&fleet, &plan);
    assert!(
        text.contains("Other nodes wait for their maintenance window, which opens Thu 1970-01-01"),
        "{text}"
    );
}

#[test]
fn an_invalid_maintenance_window_is_named_and_stalls_an_otherwise_done_rollout() {
    let mut nodes = three();
    nodes[2] = shut(nodes[2].clone(), "at night");
    let mut fleet = fleet(nodes);
    let plan = decide(&rolling(1), &fleet, at(100));
    assert_eq!(plan.phase, Phase::Progressing);
    assert!(status(&fleet, &plan).contains(". The maintenance window of c never opens: "));
    for node in &mut fleet.nodes[..2] {
        node.pods = [current(2)].into();
    }
    let plan = decide(&rolling(1), &fleet, at(100));
    assert_eq!(plan.phase, Phase::Stalled(Stall::WindowNeverOpens));
    assert!(status(&fleet, &plan).starts_with("the maintenance window of c never opens: "));
}

#[test]
fn a_rejection_is_forgotten_when_its_node_was_offline_since() {
    let mut fleet = refused(three(), &["a"], 100);
    fleet.nodes[0].readiness = Readiness::NotReady {
        since: Some(at(110)),
    };
    fleet.write_failures.tidy(&fleet.nodes);
    assert!(!fleet.write_failures.is_empty());
    fleet.nodes[0].readiness = Readiness::Ready { since: at(150) };
    fleet.write_failures.tidy(&fleet.nodes);
    assert!(fleet.write_failures.is_empty());
}

#[test]
fn when_one_of_several_equal_rejections_ends_the_others_wait_for_a_slot() {
    let mut fleet = refused(three(), &["a", "b", "c"], 100);
    fleet.write_failures.accept(&"a".into(), WriteVerb::Delete);
    fleet.nodes[0].pods = [current(2).made(120)].into();
    let slow = Strategy {
        min_interval: std::time::Duration::from_secs(600),
        ..rolling(1)
    };
    let plan = decide(&slow, &fleet, at(200));
    assert_eq!(words(&plan), ["Done", "Budget", "Budget"]);
    assert_eq!(plan.phase, Phase::Progressing);
    assert!(status(&fleet, &plan).contains("min-interval"));
}
