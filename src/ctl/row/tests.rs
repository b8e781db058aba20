//! Tests of the messages for nodes and rollouts.

use super::*;
use crate::core::fleet::in_place::{InPlaceTransition, Recreate, Shape};
use crate::core::messages::node::remedy;
use crate::core::messages::rollback_words;
use crate::core::selector::Selector;
use crate::core::settings::{DEFAULT_MAX_UNAVAILABLE, DEFAULT_READY_SETTLE, Wave};
use crate::core::testing::{self, old};
use crate::core::{
    Disruption, FailureRecord, Fleet, IntOrPercent, Labels, Mode, Node, Obstruction, OnFailure,
    Pause, PauseRecord, Plan, Pod, PodProblem, PodRevision, PreDelete, PreDeleteHook, Readiness,
    Refusal, Reversal, Revert, RevisionState, RollbackTarget, RollbackTargets, Stopped, Strategy,
    Targeting, Topology, Verdict, Waves, WriteVerb, decide,
};
use k8s_openapi::jiff::Timestamp;
use std::sync::Arc;
use std::time::Duration;

const NOW: i64 = 10_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// Returns a node that has been Ready for a long time, with one available pod of the old revision.
fn node(name: &str) -> Node {
    Node {
        name: name.into(),
        labels: Labels::default(),
        hold: None,
        window: None,
        targeting: Targeting::Run,
        native: Targeting::Run,
        readiness: Readiness::Ready { since: at(1) },
        pods: [pod(&format!("p-{name}"))].into(),
        disrupted_at: None,
        emptied: false,
        kept_away_by: None,
        had_pod: false,
        losses: None,
        cut_off: false,
        podless_since: None,
        trouble: None,
        has_images: false,
    }
}

fn pod(name: &str) -> Pod {
    Pod {
        name: name.into(),
        uid: name.into(),
        created: at(100),
        ready_since: Some(at(110)),
        started: Some(at(101)),
        ..old(0)
    }
}

/// Returns a node whose pod has the new revision, is not Ready, and was created `ago` seconds ago.
fn updated(name: &str, ago: i64) -> Node {
    let mut node = node(name);
    node.pods[0].revision = PodRevision::Current;
    node.pods[0].created = at(NOW - ago);
    node.pods[0].ready_since = None;
    node
}

/// Returns a node whose pod has the new revision, is available, and was created `ago` seconds ago.
fn serving(name: &str, ago: i64) -> Node {
    let mut node = updated(name, ago);
    node.pods[0].ready_since = Some(at(NOW - 30));
    node
}

/// Returns the node `n1` with a surge pod of the new revision in addition to the old pod.
fn doubled() -> Node {
    let made = Pod {
        surge: true,
        name: "p-n1-next".into(),
        uid: "p-n1-next".into(),
        ..updated("n1", 5).pods[0].clone()
    };
    let mut node = node("n1");
    node.pods.push(made);
    node
}

fn snapshot(nodes: Vec<Node>, pause: Option<Pause>) -> RolloutSnapshot {
    let strategy = Strategy {
        mode: Mode::AdvancedRollingUpdate,
        max_unavailable: DEFAULT_MAX_UNAVAILABLE,
        pause,
        min_ready: Duration::from_secs(20),
        ready_settle: DEFAULT_READY_SETTLE,
        ..Strategy::with_mode(Mode::AdvancedRollingUpdate)
    };
    let fleet = Fleet {
        revision: RevisionState::Current("new".into()),
        ..testing::fleet(nodes)
    };
    let plan: Plan = decide(&strategy, &fleet, at(NOW));
    RolloutSnapshot {
        key: "default/web".parse().unwrap(),
        strategy,
        invalid: None,
        notes: Vec::new(),
        fleet,
        plan,
        conditions: Vec::new(),
        state: Default::default(),
        liveness: Default::default(),
        is_of_kruise: false,
        unread: None,
        partition_origin: None,
        first_read: at(NOW),
        now: at(NOW),
    }
}

/// Checks verdict, reason and messages for the node `n1`. The node `n2` runs the old revision.
#[track_caller]
fn case(n1: Node, verdict: &str, reason: Option<&str>, because: &str, next: &str) {
    let snapshot = snapshot(vec![n1, node("n2")], None);
    let found = explain(&snapshot.rollout(), 0);
    assert_eq!(snapshot.plan.verdicts[0].word(), verdict, "{found:?}");
    assert_eq!(found.reason.as_deref(), reason, "{found:?}");
    assert!(found.because.contains(because), "{found:?}");
    let remedy = remedy(&snapshot.rollout(), 0);
    assert!(remedy.contains(next), "{remedy}");
}

#[test]
fn every_verdict_has_a_reason_and_a_next_step() {
    let away = |mut node: Node| {
        node.readiness = Readiness::NotReady {
            since: Some(at(9_000)),
        };
        node
    };
    case(
        node("n1"),
        "InProgress",
        Some("Replacing"),
        "p-n1 is replaced",
        "kubectl get leases -A",
    );

    let mut young = updated("n1", 30);
    young.pods[0].ready_since = Some(at(NOW - 5));
    case(
        young,
        "InProgress",
        Some("NotYetAvailable"),
        "available in 15s (minReadySeconds: 20)",
        "No action needed",
    );

    let mut ending = node("n1");
    ending.pods[0].terminating = true;
    case(
        ending,
        "InProgress",
        Some("Terminating"),
        "p-n1 is terminating",
        "finalizers",
    );

    let mut two = node("n1");
    two.pods.push(pod("other"));
    case(
        two,
        "InProgress",
        Some("Surplus"),
        "has 2 pods",
        "kube-controller-manager runs",
    );

    let mut none = node("n1");
    none.pods.clear();
    none.podless_since = Some(at(NOW - 60));
    case(
        none,
        "InProgress",
        Some("Missing"),
        "has no pod",
        "check quotas and admission webhooks",
    );

    let problem = |reason: &str, restarts, ended| {
        let problem = PodProblem {
            detail: Default::default(),
            reason: reason.into(),
            restarts,
            ended,
        };
        Some(problem.into())
    };
    let mut pulling = updated("n1", 60);
    pulling.pods[0].problem = problem("ImagePullBackOff", 0, 0);
    case(
        pulling,
        "FailedByRevision",
        Some("ImagePullBackOff"),
        "does not start: ImagePullBackOff",
        "yurt-ds ctl undo default/web",
    );

    // The DaemonSet's condition names the node with the same problem. The message is still about the crashing pod.
    let mut crashing = updated("n1", 60);
    crashing.pods[0].problem = problem("CrashLoopBackOff", 5, 0);
    crashing.trouble = problem("CrashLoopBackOff", 0, 0);
    case(
        crashing,
        "FailedByRevision",
        Some("CrashLoopBackOff"),
        "which crashes: CrashLoopBackOff, 5 restarts",
        "logs p-n1 --previous",
    );

    let mut evicted = updated("n1", 60);
    evicted.pods[0].problem = problem("Evicted", 0, 3);
    evicted.trouble = problem("Evicted", 0, 3);
    case(
        evicted,
        "FailedByRevision",
        Some("Evicted"),
        "has new pods that end one after another: Evicted, 3 pods so far",
        "epair n1",
    );

    case(
        updated("n1", 5),
        "InProgress",
        Some("Starting"),
        "not Ready yet",
        "unless this lasts",
    );
    case(
        away(node("n1")),
        "Offline",
        Some("NotReady"),
        "NotReady and outdated",
        "30s after it is Ready",
    );

    let mut stuck = away(node("n1"));
    stuck.pods[0].terminating = true;
    case(
        stuck,
        "Offline",
        Some("Terminating"),
        "cannot finish terminating",
        "after it is Ready",
    );

    let mut back = node("n1");
    back.readiness = Readiness::Ready {
        since: at(NOW - 10),
    };
    case(
        back,
        "Offline",
        Some("Settling"),
        "online in 20s",
        "after 30s of Ready",
    );

    let mut lost = node("n1");
    lost.readiness = Readiness::Gone;
    case(
        lost,
        "Offline",
        Some("NoNode"),
        "Node object does not exist",
        "delete pod p-n1",
    );

    let mut killed = updated("n1", 1_100);
    killed.readiness = Readiness::NotReady {
        since: Some(at(NOW - 1_000)),
    };
    case(
        killed,
        "FailedByRevision",
        Some("NotReady"),
        "soon after its update",
        "blocks no other node",
    );
}

#[test]
fn a_waiting_node_shows_its_queue_position_and_the_used_slots() {
    let mut broken = node("n3");
    broken.pods[0].ready_since = None;
    let snapshot = snapshot(
        vec![updated("n1", 700), node("n2"), broken, node("n4")],
        None,
    );
    let place = |position| remedy(&snapshot.rollout(), position);
    assert!(place(2).contains("Number 1 of 3"), "{}", place(2));
    assert!(place(1).contains("Number 2 of 3"), "{}", place(1));
    assert!(place(3).contains("Number 3 of 3"), "{}", place(3));
    assert!(
        place(3).contains("n1 (Starting for 11m), n3 (not available)"),
        "{}",
        place(3)
    );
}

#[test]
fn a_node_updated_during_a_pause_shows_the_reason() {
    let nodes = vec![node("n1"), serving("n2", 60), serving("n3", 7_000)];
    let mut snapshot = snapshot(nodes, Some(Pause::Indefinite));
    snapshot.fleet.pause = Some(PauseRecord {
        since: at(NOW - 3_600),
        reminded: 0,
    });
    snapshot.plan = decide(&snapshot.strategy, &snapshot.fleet, snapshot.now);
    assert_eq!(explain(&snapshot.rollout(), 0).since, Some(at(NOW - 3_600)));
    let said = |position| explain(&snapshot.rollout(), position).because;
    assert!(said(1).contains("created during the pause"));
    assert_eq!(said(2), "runs the current revision");
    let row = SetRow::new(&snapshot, false);
    let pause = row.pause.expect("a pause");
    assert_eq!(pause.updated_meanwhile.unwrap(), ["n2"]);
    assert_eq!(pause.since.as_deref(), Some("1970-01-01T01:46:40Z"));
    assert!(
        row.notes
            .iter()
            .any(|note| note.contains("created during the pause have the new revision: n2"))
    );
}

#[test]
fn a_second_pod_kept_by_a_pause_or_an_error_is_explained() {
    let mut doubled = node("n1");
    let new = Pod {
        surge: true,
        revision: PodRevision::Current,
        ready_since: Some(at(NOW - 60)),
        ..pod("q-n1")
    };
    doubled.pods.push(new);
    let mut snapshot = snapshot(vec![doubled, node("n2")], Some(Pause::Indefinite));
    snapshot.strategy.max_surge = IntOrPercent::Number(1);
    snapshot.plan = decide(&snapshot.strategy, &snapshot.fleet, snapshot.now);
    let said = |snapshot: &RolloutSnapshot| {
        let rollout = snapshot.rollout();
        [explain(&rollout, 0).because, remedy(&rollout, 0)]
    };
    let [because, next] = said(&snapshot);
    assert!(
        because.ends_with("the old pod stays: the rollout is paused"),
        "{because}"
    );
    assert_eq!(next, "Resume now: yurt-ds ctl resume default/web");
    // Without the pause, the old pod is deleted next.
    snapshot.strategy.pause = None;
    snapshot.plan = decide(&snapshot.strategy, &snapshot.fleet, snapshot.now);
    let [because, _] = said(&snapshot);
    assert!(
        because.ends_with("the old pod is deleted next"),
        "{because}"
    );
}

#[test]
fn a_pod_past_its_hook_shows_the_cause_of_its_delay() {
    let mut leaving = node("n1");
    leaving.pods[0].exit.preparing = Some(PreDeleteHook {
        since: Some(at(NOW - 60)),
    });
    let mut snapshot = snapshot(vec![leaving, node("n2")], None);
    snapshot.strategy.pre_delete = Some(Arc::new(PreDelete::default()));
    let stopped = FailureRecord {
        stopped: Some(Stopped::FailedByRevision),
        ..FailureRecord::new("new".into())
    };
    let mut said = |record, pause| {
        (snapshot.fleet.record, snapshot.strategy.pause) = (record, pause);
        snapshot.plan = decide(&snapshot.strategy, &snapshot.fleet, snapshot.now);
        (
            explain(&snapshot.rollout(), 0).because,
            remedy(&snapshot.rollout(), 0),
        )
    };
    let (because, next) = said(Some(stopped.clone()), None);
    assert!(
        because.ends_with("its hook is done; the guard allows no updates"),
        "{because}"
    );
    assert!(next.contains("yurt-ds ctl resume default/web"), "{next}");
    let (because, next) = said(Some(stopped), Some(Pause::Indefinite));
    assert!(because.ends_with("the rollout is paused"), "{because}");
    assert!(next.contains("stays stopped after the pause"), "{next}");
    let (because, _) = said(None, None);
    assert!(!because.contains("guard"), "{because}");
}

#[test]
fn a_pause_without_outdated_nodes_is_shown_in_a_note() {
    let said = |pause| SetRow::new(&snapshot(vec![serving("n1", 60)], pause), false).notes;
    let told = |notes: &[String]| {
        notes
            .iter()
            .any(|note| note.contains("the rollout is paused"))
    };
    assert!(told(&said(Some(Pause::Indefinite))));
    assert!(!told(&said(None)));
}

#[test]
fn a_pause_is_explained_with_its_end() {
    let snapshot = snapshot(vec![node("n1")], Some(Pause::Until(at(NOW + 300))));
    assert!(
        explain(&snapshot.rollout(), 0)
            .because
            .contains("paused until 1970-01-01T02:51:40Z")
    );
    assert!(remedy(&snapshot.rollout(), 0).contains("ends in 5m"));
}

#[test]
fn a_pause_of_a_stopped_revision_names_both_and_their_order() {
    let mut snapshot = snapshot(vec![node("n1"), updated("n2", 60)], Some(Pause::Indefinite));
    snapshot.fleet.record = Some(FailureRecord {
        stopped: Some(Stopped::FailedByRevision),
        failed: ["n2".into()].into(),
        ..FailureRecord::new("new".into())
    });
    snapshot.plan = decide(&snapshot.strategy, &snapshot.fleet, at(NOW));
    let said = snapshot.sentence().sentence();
    let expected = "paused until an operator resumes it. The guard stopped this revision: the new version failed on 1 node";
    assert!(said.starts_with(expected), "{said}");
    assert!(said.contains("after the rollout is resumed"), "{said}");
    // Without `n1`, no node waits for the end of the pause. The rollout is stalled, and `resume` would end only the pause.
    snapshot.fleet.nodes.remove(0);
    snapshot.plan = decide(&snapshot.strategy, &snapshot.fleet, at(NOW));
    let said = snapshot.sentence().sentence();
    assert!(!said.contains("nevertheless"), "{said}");
}

#[test]
fn every_rollback_state_has_a_reason_and_a_next_step() {
    let back = |ready: bool| {
        let mut node = node("n1");
        node.pods[0].in_place.reverted_from = Some("new".into());
        node.pods[0].ready_since = node.pods[0].ready_since.filter(|_| ready);
        node
    };
    let mut bad = updated("n1", 60);
    bad.pods[0].ready_since = Some(at(NOW - 40));
    let case = |n1: Node, verdict: &str, reason: &str, because: &str, next: &str| {
        let mut snapshot = snapshot(vec![n1], None);
        snapshot.strategy.on_failure = OnFailure::RevertInPlace;
        snapshot.strategy.max_unavailable = IntOrPercent::Number(0);
        let record = FailureRecord {
            stopped: Some(Stopped::FailedByRevision),
            before: Some("5d4f8".into()),
            ..FailureRecord::new("new".into())
        };
        snapshot.fleet.record = Some(record);
        let shape = Arc::new(Shape::from_template(&serde_json::json!({})));
        let past = RollbackTarget {
            number: 1,
            transition: InPlaceTransition::between(&shape, &shape, None),
        };
        snapshot.fleet.rollback_targets = RollbackTargets {
            stands: true,
            revisions: [("5d4f8".into(), past)].into(),
        };
        snapshot.plan = decide(&snapshot.strategy, &snapshot.fleet, at(NOW));
        let found = explain(&snapshot.rollout(), 0);
        let word = snapshot.plan.verdicts[0].word();
        assert_eq!((word, found.reason.as_deref()), (verdict, Some(reason)));
        assert!(found.because.contains(because), "{found:?}");
        let remedy = remedy(&snapshot.rollout(), 0);
        assert!(remedy.contains(next), "{remedy}");
        let row = SetRow::new(&snapshot, false).reversal.unwrap();
        assert_eq!(row.to.as_deref(), Some("5d4f8"));
        let words = rollback_words(&snapshot.rollout()).expect("a rollback");
        let told = format!("{} of {}", row.done, row.done + row.under_way);
        assert!(words.ends_with(&told), "{words}");
        words
    };
    let words = case(
        back(true),
        "Revert",
        "Done",
        "runs pod p-n1, which was rolled back in place to revision 5d4f8",
        "yurt-ds ctl resume default/web",
    );
    assert_eq!(words, "rolled back in place to revision 5d4f8: 1 of 1");
    case(
        back(false),
        "InProgress",
        "Reverting",
        "is not available yet",
        "restarts the changed containers",
    );
    let words = case(
        bad,
        "Revert",
        "Pending",
        "is not rolled back, because apps.openyurt.io/max-unavailable is 0",
        "yurt-ds ctl undo default/web",
    );
    assert_eq!(words, "rolled back in place to revision 5d4f8: 0 of 1");
}

#[test]
fn rollback_progress_is_part_of_documents() {
    let mut snapshot = snapshot(vec![node("n1")], None);
    let row =
        |snapshot: &RolloutSnapshot| serde_json::to_value(SetRow::new(snapshot, false).reversal);
    assert_eq!(row(&snapshot).unwrap(), serde_json::Value::Null);
    snapshot.plan.reversal = Some(Reversal {
        to: Some("5d4f8".into()),
        under_way: vec!["n2".into()],
        done: vec!["n1".into(), "n4".into()],
        stuck: vec!["n3".into()],
        away: Vec::new(),
        why: Some(Recreate::OtherImages),
    });
    let why = snapshot.plan.reversal.as_ref().unwrap().why_words();
    let row = row(&snapshot).unwrap();
    assert_eq!(
        row,
        serde_json::json!({ "to": "5d4f8", "done": 2, "underWay": 1, "stuck": 1, "why": why })
    );
    let (_, listed) = FIELDS.split_once("of a reversal").unwrap();
    let (listed, _) = listed.split_once("\n  of ").unwrap();
    for field in row.as_object().unwrap().keys() {
        assert!(listed.contains(field), "{field}");
    }
}

#[test]
fn a_pending_rollback_does_not_wait_for_lost_nodes() {
    let mut snapshot = snapshot(vec![updated("n1", 60)], None);
    snapshot.plan.verdicts[0] = Verdict::Revert(Revert::Pending);
    let next = |snapshot: &RolloutSnapshot| remedy(&snapshot.rollout(), 0);
    assert!(next(&snapshot).contains("its maintenance window is open"));
    (snapshot.plan.counts.lost, snapshot.plan.counts.unavailable) = (1, 2);
    let next = next(&snapshot);
    assert!(!next.contains("hold"), "{next}");
}

#[test]
fn a_node_that_waits_for_its_hook_holds_its_domain() {
    let mut snapshot = snapshot(vec![node("n1")], None);
    let (key, at_once) = ("zone".into(), 1);
    snapshot.strategy.topology = Some(Topology { key, at_once });
    let in_flight = |snapshot: &RolloutSnapshot| SetRow::new(snapshot, false).domains[0].in_flight;
    snapshot.plan.verdicts[0] = Verdict::Budget { broken: false };
    assert_eq!(in_flight(&snapshot), 0);
    let (since, overdue) = (None, false);
    snapshot.plan.verdicts[0] = Verdict::HookPending { since, overdue };
    assert_eq!(in_flight(&snapshot), 1);
}

#[test]
fn with_surge_messages_count_the_slots_of_max_surge() {
    let mut snapshot = snapshot(vec![doubled(), node("n2"), node("n3")], None);
    let mut said = |down: u32| {
        snapshot.strategy.max_surge = IntOrPercent::Number(1);
        snapshot.strategy.max_unavailable = IntOrPercent::Number(down);
        snapshot.plan = decide(&snapshot.strategy, &snapshot.fleet, at(NOW));
        let row = SetRow::new(&snapshot, false);
        (
            explain(&snapshot.rollout(), 2).because,
            remedy(&snapshot.rollout(), 2),
            row,
        )
    };
    let (because, next, row) = said(0);
    assert!(
        because.ends_with("slot: 1 of 1 of max-surge used"),
        "{because}"
    );
    let limit = "ax-surge 1 allows 1 of 3 nodes a surge pod. Slots are held by n1 (SurgeStarting";
    assert!(next.contains(limit), "{next}");
    assert!(
        next.ends_with("change the annotation apps.openyurt.io/max-surge."),
        "{next}"
    );
    assert!(
        row.message.ends_with("1 of 1 slots of max-surge used"),
        "{row:?}"
    );
    assert_eq!(
        (row.max_surge.as_deref(), row.surging, row.surge_allowed),
        (Some("1"), Some(1), Some(1))
    );
    let (because, next, row) = said(1);
    assert!(
        because.ends_with(": 0 of 1 used, 1 of 1 of max-surge used, 1 to be replaced now"),
        "{because}"
    );
    assert!(
        next.contains("ax-unavailable 1 allows 1 of 3 nodes, max-surge 1 allows 1"),
        "{next}"
    );
    let both = "0 of 1 slots used, 1 of 1 slots of max-surge used, 1 to be replaced now";
    assert!(row.message.ends_with(both), "{row:?}");
}

#[test]
fn a_node_with_a_rejected_surge_pod_takes_no_surge_slot() {
    let mut snapshot = snapshot(vec![doubled(), node("n2")], None);
    snapshot.strategy.max_surge = IntOrPercent::Number(2);
    let second = (&"n2".into(), None);
    let write_failures = &mut snapshot.fleet.write_failures;
    write_failures.keep_to(&"new".into());
    write_failures.refuse(second, WriteVerb::Create, "no", at(NOW - 60));
    snapshot.plan = decide(&snapshot.strategy, &snapshot.fleet, at(NOW));
    assert_eq!(snapshot.plan.verdicts[1].word(), "Refused");
    assert!(!snapshot.plan.actions.is_empty(), "it is asked for again");
    assert_eq!(SetRow::new(&snapshot, false).surging, Some(1));
}

#[test]
fn a_node_in_a_full_wave_shows_the_budget_of_the_wave() {
    let canary = |node: Node| Node {
        labels: [("pool", "canary")].into_iter().collect(),
        ..node
    };
    let mut starting = canary(updated("n1", 5));
    starting.pods[0].ready_since = None;
    let nodes = vec![starting, canary(node("n2")), node("n3"), node("n4")];
    let mut snapshot = snapshot(nodes, None);
    let mut said = |own: Option<IntOrPercent>, all: u32| {
        let wave = Wave {
            name: "canary".into(),
            selector: Selector::from_query("pool=canary").unwrap(),
            max_unavailable: own,
            soak: Duration::ZERO,
            approve: false,
            allow_empty: true,
        };
        let (list, approved) = (vec![wave], Vec::new());
        snapshot.strategy.waves = Some(Arc::new(Waves { list, approved }));
        snapshot.strategy.max_unavailable = IntOrPercent::Number(all);
        snapshot.plan = decide(&snapshot.strategy, &snapshot.fleet, at(NOW));
        (
            explain(&snapshot.rollout(), 1).because,
            remedy(&snapshot.rollout(), 1),
        )
    };
    let (because, next) = said(Some(IntOrPercent::Number(1)), 2);
    assert!(
        because.ends_with(": 1 of 1 used in wave canary"),
        "{because}"
    );
    let limit = "ave canary allows 1 of its 2 nodes. Slots are held by n1 (";
    assert!(next.contains(limit), "{next}");
    assert!(
        next.ends_with("the wave in the annotation apps.openyurt.io/waves."),
        "{next}"
    );
    // Now max-unavailable allows only one of all nodes. So the budget of the DaemonSet is used up, and so is the budget of the
    // wave.
    let (because, next) = said(Some(IntOrPercent::Number(1)), 1);
    assert!(because.ends_with(": 1 of 1 used"), "{because}");
    assert!(
        next.contains("ax-unavailable 1 allows 1 of 4 nodes"),
        "{next}"
    );
}

/// Checks the messages for a pod whose eviction was rejected three seconds ago: they name the PodDisruptionBudget and the remedy.
#[test]
fn a_pod_kept_by_a_disruption_budget_shows_the_budget_and_the_remedy() {
    let case = |budget: Option<&str>, obstruction, reason: &str, because: &str, next: &str| {
        let mut snapshot = snapshot(vec![node("n1"), node("n2")], None);
        let refusal = Refusal {
            budget: budget.map(Into::into),
            obstruction,
        };
        let pod = snapshot.fleet.nodes[0].pods[0].clone();
        snapshot.fleet.evictions.refuse(&pod, refusal, at(NOW - 3));
        snapshot.strategy.disruption = Disruption::Evict;
        snapshot.plan = decide(&snapshot.strategy, &snapshot.fleet, at(NOW));
        let found = explain(&snapshot.rollout(), 0);
        assert_eq!(snapshot.plan.verdicts[0].word(), "BlockedByPDB");
        assert_eq!(found.reason.as_deref(), Some(reason));
        assert_eq!(found.since, Some(at(NOW - 3)));
        assert!(found.because.contains(because), "{}", found.because);
        let remedy = remedy(&snapshot.rollout(), 0);
        assert!(remedy.contains(next), "{remedy}");
    };
    case(
        Some("web"),
        Obstruction::Exhausted,
        "Exhausted",
        "the eviction of its pod p-n1 is rejected: PodDisruptionBudget web allows no eviction now",
        "kubectl -n default edit poddisruptionbudget web",
    );
    case(
        Some("web"),
        Obstruction::NotComputed,
        "NotComputed",
        "PodDisruptionBudget web blocks all evictions",
        "Set minAvailable to a number",
    );
    case(
        None,
        Obstruction::Several,
        "Several",
        "more than one PodDisruptionBudget selects the pods",
        "kubectl -n default get poddisruptionbudgets",
    );
}

/// Returns a condition of type `kind` about `revision` that changed at second `since`.
fn told(kind: &str, status: &str, revision: &str, since: i64) -> crate::k8s::Condition {
    crate::k8s::Condition {
        kind: kind.to_owned(),
        status: status.to_owned(),
        reason: String::new(),
        message: format!("revision {revision}: …"),
        last_transition: Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(
            since,
        ))),
        last_probe: None,
    }
}

#[test]
fn times_are_never_older_than_their_revision_or_pod() {
    let mut snapshot = snapshot(vec![node("n1"), node("n2")], None);
    snapshot.conditions = ["RolloutComplete", "Progressing", "Stalled"]
        .map(|kind| told(kind, "False", "new", 200))
        .to_vec();
    snapshot.conditions[1].status = "True".to_owned();
    let since = |snapshot: &RolloutSnapshot| SetRow::new(snapshot, false).since;
    assert_eq!(since(&snapshot), Some(instant::words(at(200))));
    snapshot.fleet.adopted = Some(at(NOW - 2));
    assert_eq!(since(&snapshot), Some(instant::words(at(NOW - 2))));
    assert_eq!(snapshot.incomplete_since(), Some(at(NOW - 2)));
    // The phase of OTA has no condition. It begins when the last condition became `False`, but not before the revision was created.
    snapshot.strategy.mode = Mode::Ota;
    snapshot.plan = decide(&snapshot.strategy, &snapshot.fleet, at(NOW));
    snapshot.conditions[1].status = "False".to_owned();
    assert_eq!(since(&snapshot), Some(instant::words(at(NOW - 2))));
    snapshot.fleet.adopted = Some(at(150));
    snapshot.fleet.nodes[0].pods[0].created = at(NOW - 1);
    let node_since = [0, 1].map(|position| explain(&snapshot.rollout(), position).since);
    assert_eq!(node_since, [Some(at(NOW - 1)), Some(at(200))]);
}

#[test]
fn a_failed_pull_is_shown_on_the_node_under_ota() {
    let mut snapshot = snapshot(vec![node("n1")], None);
    snapshot.strategy.mode = Mode::Ota;
    let image = |waits: bool, failure: Option<&str>| crate::core::OtaCondition {
        status: false,
        revision: None,
        waits,
        repelled: false,
        failure: failure.map(|why| {
            Arc::new(crate::core::PullFailure {
                asked: at(NOW - 60),
                failed: at(NOW - 30),
                why: why.into(),
            })
        }),
    };
    let mut said = |image| {
        snapshot.fleet.nodes[0].pods[0].image_ready = Some(Box::new(image));
        snapshot.plan = decide(&snapshot.strategy, &snapshot.fleet, at(NOW));
        assert_eq!(snapshot.plan.verdicts[0].word(), "AwaitingOwner");
        let found = explain(&snapshot.rollout(), 0);
        let is_shown = urgency(&snapshot.rollout(), 0).is_some();
        (
            found.reason,
            found.because,
            remedy(&snapshot.rollout(), 0),
            is_shown,
        )
    };
    let (reason, because, next, is_shown) = said(image(false, Some("no such image")));
    assert_eq!(reason.as_deref(), Some("PullImageFail"));
    assert!(
        because.ends_with("could not be pulled: no such image"),
        "{because}"
    );
    assert!(next.contains("ctl imagepull default/p-n1 --wait"), "{next}");
    assert!(next.contains("--force"), "{next}");
    assert!(is_shown);
    let (reason, _, next, is_shown) = said(image(true, None));
    assert!(reason.is_none() && !is_shown);
    assert!(
        next.contains("rejected until the requested image pull is done"),
        "{next}"
    );
}

/// Checks the messages that differ for an Advanced DaemonSet: yurt-ds creates its pods, and its settings are in fields.
#[test]
fn messages_about_advanced_daemonsets_use_their_fields_and_controller() {
    use crate::core::settings::partition::PARTITION;
    let mut bare = updated("n1", 5);
    bare.pods.clear();
    bare.podless_since = Some(at(NOW - 5));
    let mut advanced = snapshot(vec![bare, node("n2")], None);
    advanced.fleet.kind = SetKind::Advanced;
    advanced.key.kind = SetKind::Advanced;
    let because = |snapshot: &RolloutSnapshot| explain(&snapshot.rollout(), 0).because;
    assert_eq!(
        because(&advanced),
        "has no pod; the yurt-ds controller creates one"
    );
    // While Kruise's manager creates the pods, no other note about controllers is shown.
    let mut of_kruise = advanced.clone();
    of_kruise.is_of_kruise = true;
    assert_eq!(liveness_notes(&of_kruise), [KRUISE_RUNS]);
    let row = SetRow::new(&advanced, false);
    assert_eq!(row.title(), "default/web (Advanced DaemonSet)");
    assert_eq!(
        serde_json::to_value(&row).unwrap()["kind"],
        "apps.kruise.io/v1beta1"
    );
    let outdated = |key: &'static str| {
        let mut held = snapshot(vec![node("n1"), node("n2")], None);
        held.fleet.kind = SetKind::Advanced;
        held.strategy.order = crate::core::NodeOrder::Descending;
        held.strategy.partition = IntOrPercent::Number(2);
        held.strategy.fields = held.strategy.fields.with(key);
        held.plan = decide(&held.strategy, &held.fleet, at(NOW));
        remedy(&held.rollout(), 0)
    };
    let next = outdated(PARTITION);
    assert_eq!(
        next,
        "Updated when spec.updateStrategy.rollingUpdate.partition is lowered; the first nodes by name wait."
    );
    let annotated = outdated("");
    assert!(
        annotated.contains("when the annotation apps.openyurt.io/partition is lowered"),
        "{annotated}"
    );
    let native = snapshot(vec![node("n1")], None);
    let row = SetRow::new(&native, false);
    assert_eq!(row.title(), "default/web");
    let text = crate::ctl::print::list(std::slice::from_ref(&row), false, false, at(NOW), 9);
    assert!(!text.contains("KIND"), "{text}");
    let both = [row, SetRow::new(&advanced, false)];
    let text = crate::ctl::print::list(&both, false, false, at(NOW), 9);
    let mut lines = text.lines().map(|line| {
        let words = line.split_whitespace().take(2);
        words.collect::<Vec<_>>().join(" ")
    });
    assert_eq!(lines.next().as_deref(), Some("DAEMONSET KIND"));
    assert_eq!(lines.next().as_deref(), Some("default/web Native"));
    assert_eq!(lines.next().as_deref(), Some("default/web Advanced"));
}
