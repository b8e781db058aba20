//! Tests of decisions for a fleet in which most nodes are counted, and only a few are listed.

use super::*;
use crate::core::{InView, Plan, Refusal, Strategy, decide, decide_in_view};

/// Returns an index of Ready nodes `n000`, `n001`, …, each with an outdated pod. 10% of them may be updated at once.
fn outdated(nodes: usize) -> Index {
    let mut index = Index::default();
    for i in 0..nodes {
        index.apply_node(&node(&name(i), "True", 0), at(100));
    }
    index.apply_set(&set("v2", 2, 2));
    index.apply_revision(&revision("aaa", 1, "v1"));
    index.apply_revision(&revision("bbb", 2, "v2"));
    for i in 0..nodes {
        feed(&mut index, &pod(&name(i), "aaa").ready(10), 100);
    }
    index.set_mut(&key()).unwrap().synced = true;
    index
}

fn name(i: usize) -> String {
    format!("n{i:03}")
}

fn strategy(index: &Index) -> Strategy {
    match index.reading(&key()).as_deref() {
        Some(ParsedSettings::Strategy { strategy, .. }) => Strategy::clone(strategy),
        other => panic!("{other:?}"),
    }
}

/// Returns the fleet of one decision, the plan, and whether the listed nodes were enough for the decision.
fn one_look(index: &mut Index, now: i64) -> (Arc<Fleet>, Plan, InView) {
    let strategy = strategy(index);
    let fleet = index.view(&key(), &strategy, at(now)).unwrap();
    let (plan, view) = decide_in_view(&strategy, &fleet, at(now));
    (fleet, plan, view)
}

/// Returns the plan and the number of listed nodes. Fails if the complete list of nodes gives another plan.
fn decided(index: &mut Index, now: i64) -> (Plan, usize) {
    loop {
        let (fleet, plan, view) = one_look(index, now);
        if index.widen(&key(), view, at(now)) {
            continue;
        }
        let complete = index.fleet(&key(), at(now)).unwrap();
        assert!(complete.crowd.is_empty());
        let all = decide(&strategy(index), &complete, at(now));
        assert_eq!(plan.actions, all.actions);
        assert_eq!((plan.counts, plan.phase), (all.counts, all.phase));
        return (plan, fleet.nodes.len());
    }
}

fn carry_out(index: &mut Index, plan: &Plan, now: i64) {
    let set = index.set_mut(&key()).unwrap();
    for action in &plan.actions {
        set.begin_write(action, at(now));
        set.end_write(action, WriteAnswer::Accepted, at(now));
    }
}

/// Returns the pod of the new revision on a node.
fn new_pod(i: usize) -> PodWords {
    let mut pod = pod(&name(i), "bbb");
    pod.0["metadata"]["uid"] = json!(format!("new-{i}"));
    pod.0["metadata"]["creationTimestamp"] = json!(at(1010).to_string());
    pod
}

#[test]
fn a_decision_during_a_rollout_reads_only_a_few_nodes() {
    let mut index = outdated(400);
    let (plan, looked_at) = decided(&mut index, 1000);
    assert_eq!((plan.actions.len(), plan.counts.outdated), (40, 400));
    assert!(looked_at > 40, "{looked_at}");
    carry_out(&mut index, &plan, 1000);
    for (i, now) in (0..40).zip(1021..) {
        // The first pod of the new revision has to be Ready for 10 s, which proves the revision. After that, the other pods are
        // available as soon as they are Ready.
        let ready = match i {
            0 => 1011,
            _ => now,
        };
        let set = index.set_mut(&key()).unwrap();
        set.delete_pod(&format!("uid-{}", name(i)));
        feed(&mut index, &new_pod(i), ready);
        feed(&mut index, &new_pod(i).version("2").ready(ready), ready);
        let (plan, looked_at) = decided(&mut index, now);
        assert_eq!((plan.counts.updated, plan.actions.len()), (i + 1, 1));
        assert!(looked_at < 50, "{looked_at}");
        carry_out(&mut index, &plan, now);
    }
}

#[test]
fn a_node_is_read_when_it_changes_or_its_deadline_passes() {
    let mut index = outdated(100);
    let (plan, _) = decided(&mut index, 1000);
    carry_out(&mut index, &plan, 1000);
    let looked_at = |index: &mut Index, i: usize, now: i64| {
        let (fleet, _, view) = one_look(index, now);
        assert_eq!(view, InView::Enough);
        let position = crate::core::fleet::position_of(&fleet.nodes, &name(i).as_str().into());
        position.is_ok()
    };
    assert!(!looked_at(&mut index, 90, 1001));
    let mut held = node(&name(90), "True", 0);
    let hold = r#"[{"daemonset": "edge/agent", "reason": "calibration"}]"#;
    held.metadata.annotations = Some([("apps.openyurt.io/hold".into(), hold.into())].into());
    index.apply_node(&held, at(1002));
    assert!(looked_at(&mut index, 90, 1002));
    // A pod that starts too slowly must be listed when its deadline passes, and not earlier.
    index
        .set_mut(&key())
        .unwrap()
        .delete_pod(&format!("uid-{}", name(3)));
    feed(&mut index, &new_pod(3), 1012);
    assert!(!looked_at(&mut index, 3, 1013));
    let (_, plan, _) = one_look(&mut index, 1013);
    let wake = plan.next_wake.expect("the pods have a deadline");
    let late = wake.duration_since(at(0)).as_secs();
    assert!(looked_at(&mut index, 3, late));
}

#[test]
fn a_problem_makes_decisions_read_all_nodes_until_it_ends() {
    let mut index = outdated(100);
    let (plan, _) = decided(&mut index, 1000);
    let (begun, refused) = plan.actions.split_at(9);
    let set = index.set_mut(&key()).unwrap();
    for action in begun {
        set.begin_write(action, at(1000));
        set.end_write(action, WriteAnswer::Accepted, at(1000));
    }
    let uid = refused[0].pod().uid.clone();
    let refusal = Refusal {
        budget: None,
        obstruction: crate::core::Obstruction::Exhausted,
    };
    set.note_eviction(&uid, Some(refusal), at(1000));
    assert_eq!(decided(&mut index, 1001).1, 100);
    let set = index.set_mut(&key()).unwrap();
    set.set_evictions(Default::default());
    decided(&mut index, 1002);
    assert!(decided(&mut index, 1003).1 < 50);
}
