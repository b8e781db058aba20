//! Tests of waves: which nodes are updated, and which nodes wait for an earlier wave.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::core::selector::Selector;
use crate::core::settings::{Approval, Wave};
use crate::core::testing::{at, current, fleet, node, old};
use crate::core::{
    Action, Exit, FailureRecord, IntOrPercent, Mode, Phase, Pod, PreDeleteHook, Stall, Targeting,
    decide,
};

fn wave(name: &str) -> Wave {
    Wave {
        name: name.into(),
        selector: Selector::from_query(&format!("pool={name}")).unwrap(),
        max_unavailable: None,
        soak: Duration::from_secs(100),
        approve: false,
        allow_empty: true,
    }
}

fn strategy(list: Vec<Wave>) -> Strategy {
    Strategy {
        max_unavailable: IntOrPercent::Percent(100),
        waves: Some(Arc::new(Waves {
            list,
            approved: Vec::new(),
        })),
        ..Strategy::with_mode(Mode::AdvancedRollingUpdate)
    }
}

fn pooled(name: &str, pool: &str, pod: Pod) -> Node {
    node(name, pod).labelled("pool", pool)
}

fn since(second: i64, node: Node) -> Node {
    let since = at(second);
    Node {
        readiness: Readiness::Ready { since },
        ..node
    }
}

/// Returns the nodes whose pods are replaced at `second`.
fn replaced(strategy: &Strategy, nodes: &[Node], second: i64) -> Vec<String> {
    let plan = decide(strategy, &fleet(nodes.to_vec()), at(second));
    let name = |action: &Action| action.pod().name.to_string();
    plan.actions.iter().map(name).collect()
}

/// Returns the verdict at `second` of the node at `position`.
fn told(strategy: &Strategy, nodes: &[Node], second: i64, position: usize) -> Verdict {
    decide(strategy, &fleet(nodes.to_vec()), at(second)).verdicts[position]
}

#[test]
fn a_wave_waits_for_the_previous_wave_and_its_soak() {
    let strategy = strategy(vec![wave("canary")]);
    let nodes = [
        pooled("n1", "canary", old(1)),
        pooled("n2", "field", old(1)),
    ];
    assert_eq!(replaced(&strategy, &nodes, 1_000), ["n1"]);
    let shut = |why| Verdict::WaveNotOpen { wave: 1, why };
    assert_eq!(
        told(&strategy, &nodes, 1_000, 1),
        shut(WaveShut::Unfinished { wave: 0 })
    );
    // Node n1 is available at 1010, so the wave soaks until 1110.
    let nodes = [
        pooled("n1", "canary", current(2).made(1_000)),
        pooled("n2", "field", old(1)),
    ];
    let plan = decide(&strategy, &fleet(nodes.to_vec()), at(1_050));
    let until = at(1_110);
    assert_eq!(plan.verdicts[1], shut(WaveShut::Soaking { wave: 0, until }));
    assert_eq!(plan.next_wake, Some(until));
    assert_eq!(replaced(&strategy, &nodes, 1_109), Vec::<String>::new());
    assert_eq!(replaced(&strategy, &nodes, 1_110), ["n2"]);
}

#[test]
fn a_wave_without_outdated_nodes_is_complete_even_behind_an_open_wave() {
    let strategy = strategy(vec![wave("canary"), wave("field")]);
    let nodes = [
        pooled("n1", "canary", old(1)),
        pooled("n2", "field", current(2).made(0)),
        pooled("n3", "rest", old(1)),
    ];
    let plan = decide(&strategy, &fleet(nodes.to_vec()), at(1_000));
    let states: Vec<WaveState> = plan.waves.iter().map(|stand| stand.state).collect();
    let shut = WaveState::NotOpen(WaveShut::Unfinished { wave: 0 });
    assert_eq!(states, [WaveState::Open, WaveState::Complete, shut]);
}

#[test]
fn offline_nodes_do_not_prevent_a_wave_from_completing() {
    let strategy = strategy(vec![wave("canary")]);
    let nodes = [
        pooled("n1", "canary", old(1)).away(),
        pooled("n2", "canary", current(2).made(0)),
        pooled("n3", "field", old(1)),
    ];
    assert_eq!(replaced(&strategy, &nodes, 1_000), ["n3"]);
}

#[test]
fn settling_nodes_do_not_prevent_a_wave_from_completing() {
    let strategy = Strategy {
        ready_settle: Duration::from_secs(600),
        ..strategy(vec![wave("canary")])
    };
    let nodes = [
        since(900, pooled("n1", "canary", old(1))),
        pooled("n2", "canary", current(2).made(0)),
        pooled("n3", "field", old(1)),
    ];
    assert_eq!(replaced(&strategy, &nodes, 1_000), ["n3"]);
    assert_eq!(replaced(&strategy, &nodes, 1_500), ["n1", "n3"]);
}

#[test]
fn a_late_returning_node_is_updated_at_once_and_closes_no_later_wave() {
    let strategy = strategy(vec![wave("canary")]);
    // The canary wave was complete at 110. Node n1 returned later, at 500, so it doesn't close the next wave.
    let mut nodes = vec![
        since(500, pooled("n1", "canary", old(1))),
        pooled("n2", "canary", current(2).made(0)),
        pooled("n3", "field", old(1)),
        pooled("n4", "field", old(1)),
    ];
    assert_eq!(replaced(&strategy, &nodes, 1_000), ["n1", "n3", "n4"]);
    nodes[0] = since(500, pooled("n1", "canary", current(2).made(950)));
    assert_eq!(replaced(&strategy, &nodes, 1_000), ["n3", "n4"]);
    // Both canaries returned at 500. The canary wave was not complete before, so n1 keeps the next wave closed.
    let both = [
        since(500, pooled("n0", "canary", current(2).made(0))),
        since(500, pooled("n1", "canary", old(1))),
        pooled("n3", "field", old(1)),
    ];
    assert_eq!(replaced(&strategy, &both, 1_000), ["n1"]);
    // Node n1 returned at 60, during the soak. The soak restarts after n1 is done.
    nodes[0] = since(60, pooled("n1", "canary", old(1)));
    assert_eq!(replaced(&strategy, &nodes, 1_000), ["n1"]);
    nodes[0] = since(60, pooled("n1", "canary", current(2).made(950)));
    let why = WaveShut::Soaking {
        wave: 0,
        until: at(1_060),
    };
    assert_eq!(
        told(&strategy, &nodes, 1_000, 2),
        Verdict::WaveNotOpen { wave: 1, why }
    );
}

/// Returns a canary that got the new pod at 1000 and was lost at 1100.
fn lost_canary() -> Node {
    Node {
        readiness: Readiness::NotReady {
            since: Some(at(1_100)),
        },
        ..pooled("n1", "canary", current(2).made(1_000))
    }
}

#[test]
fn a_failed_node_closes_later_waves_even_if_they_were_open() {
    let strategy = strategy(vec![Wave {
        soak: Duration::ZERO,
        ..wave("canary")
    }]);
    let lost = lost_canary();
    let nodes = [
        lost,
        pooled("n2", "canary", current(2).made(900)),
        pooled("n3", "field", old(1)),
    ];
    assert_eq!(replaced(&strategy, &nodes, 1_150), Vec::<String>::new());
    let why = WaveShut::Charged { wave: Some(0) };
    assert_eq!(
        told(&strategy, &nodes, 1_150, 2),
        Verdict::WaveNotOpen { wave: 1, why }
    );
}

/// Regression test: a canary failed with a revision, and its Node was deleted. The next wave then opened for the revision.
#[test]
fn a_failed_node_closes_later_waves_even_after_its_deletion() {
    let strategy = strategy(vec![Wave {
        soak: Duration::ZERO,
        ..wave("canary")
    }]);
    let lost = lost_canary();
    let others = vec![
        pooled("n2", "canary", current(2).made(900)),
        pooled("n3", "field", old(1)),
    ];
    let why = WaveShut::Charged { wave: Some(0) };
    let shut = Verdict::WaveNotOpen { wave: 1, why };
    // The Node is deleted while its loss is evaluated (1110), or after the loss counts against the revision (1150). The pod is
    // deleted later.
    for second in [1_110, 1_150] {
        let nodes = [vec![lost.clone()], others.clone()].concat();
        let record = decide(&strategy, &fleet(nodes), at(second)).record;
        let known = record
            .as_ref()
            .and_then(|record| record.wave_of(&"n1".into()));
        assert_eq!(known.map(AsRef::as_ref), Some("canary"));
        let collected = Node {
            labels: Default::default(),
            readiness: Readiness::Gone,
            ..lost.clone()
        };
        for gone in [vec![collected], Vec::new()] {
            let fleet = Fleet {
                record: record.clone(),
                ..fleet([gone, others.clone()].concat())
            };
            let plan = decide(&strategy, &fleet, at(1_160));
            assert_eq!(plan.verdicts.last(), Some(&shut), "{plan:?}");
            assert_eq!(plan.phase, Phase::Stalled(Stall::FailedByRevision));
        }
    }
    // A failed node is relabelled. It counts in the wave in which it failed, even if that wave has been removed from the list.
    let mut record = FailureRecord::new("new".into());
    record.failed.insert("n1".into());
    record.waves = [("canary".into(), record.failed.clone())].into();
    for waves in [vec![wave("canary")], vec![wave("pilot")]] {
        let fleet = Fleet {
            record: Some(record.clone()),
            ..fleet([vec![lost.clone().labelled("pool", "field")], others.clone()].concat())
        };
        let plan = decide(&self::strategy(waves.clone()), &fleet, at(1_160));
        let wave = (*waves[0].name == *"canary").then_some(0);
        let why = WaveShut::Charged { wave };
        assert_eq!(plan.verdicts[2], Verdict::WaveNotOpen { wave: 1, why });
        assert_eq!(plan.record.unwrap().waves, record.waves);
    }
    // A failed node that is no longer targeted also keeps the later waves closed.
    let mut record = FailureRecord::new("new".into());
    record.failed.insert("n1".into());
    let left = Node {
        targeting: Targeting::No,
        ..since(0, pooled("n1", "canary", current(2).made(1_000)))
    };
    let fleet = Fleet {
        record: Some(record),
        ..fleet([vec![left], others].concat())
    };
    let plan = decide(&strategy, &fleet, at(1_160));
    assert_eq!(plan.verdicts.last(), Some(&shut), "{plan:?}");
}

#[test]
fn the_return_of_a_failed_node_restarts_the_soak() {
    let strategy = strategy(vec![wave("canary")]);
    // Both canaries were done at 110. Node n1 was lost later and returned at 500.
    let nodes = [
        since(500, pooled("n1", "canary", current(2).made(0))),
        pooled("n2", "canary", current(2).made(0)),
        pooled("n3", "field", old(1)),
    ];
    assert_eq!(replaced(&strategy, &nodes, 550), ["n3"]);
    let mut fleet = fleet(nodes.to_vec());
    let RevisionState::Current(revision) = fleet.revision.clone() else {
        panic!("the revision is known");
    };
    let mut record = FailureRecord::new(revision);
    record.failed.insert("n1".into());
    fleet.record = Some(record);
    let why = WaveShut::Soaking {
        wave: 0,
        until: at(600),
    };
    let plan = decide(&strategy, &fleet, at(550));
    assert_eq!(plan.verdicts[2], Verdict::WaveNotOpen { wave: 1, why });
    assert_eq!(decide(&strategy, &fleet, at(600)).actions.len(), 1);
}

#[test]
fn an_approval_applies_to_one_revision_and_precedes_the_wave() {
    let list = vec![
        wave("canary"),
        Wave {
            approve: true,
            soak: Duration::ZERO,
            ..wave("pilot")
        },
    ];
    let approved = |hash: &str| {
        let plain = strategy(list.clone());
        Strategy {
            waves: Some(Arc::new(Waves {
                list: list.clone(),
                approved: vec![Approval {
                    wave: "pilot".into(),
                    revision: hash.into(),
                }],
            })),
            ..plain
        }
    };
    let nodes = [
        pooled("n1", "canary", current(2).made(0)),
        pooled("n2", "pilot", old(1)),
        pooled("n3", "field", old(1)),
    ];
    let why = WaveShut::Approval { wave: 1 };
    for strategy in [strategy(list.clone()), approved("older")] {
        assert_eq!(replaced(&strategy, &nodes, 1_000), Vec::<String>::new());
        let shut = |wave| Verdict::WaveNotOpen { wave, why };
        assert_eq!(told(&strategy, &nodes, 1_000, 1), shut(1));
        assert_eq!(told(&strategy, &nodes, 1_000, 2), shut(2));
    }
    assert_eq!(replaced(&approved("new"), &nodes, 1_000), ["n2"]);
    // A wave without nodes to update still needs its approval before later waves open.
    let nodes = [nodes[0].clone(), nodes[1].clone().away(), nodes[2].clone()];
    assert_eq!(
        replaced(&strategy(list.clone()), &nodes, 1_000),
        Vec::<String>::new()
    );
    assert_eq!(replaced(&approved("new"), &nodes, 1_000), ["n3"]);
}

#[test]
fn a_wave_has_its_own_budget_within_the_total_budget() {
    let two = Wave {
        max_unavailable: Some(IntOrPercent::Percent(34)),
        ..wave("canary")
    };
    let nodes: Vec<Node> = ["n1", "n2", "n3", "n4"]
        .map(|name| pooled(name, "canary", old(1)))
        .into();
    // 34% of four nodes is 1.36, rounded up to two nodes.
    let own = strategy(vec![two.clone()]);
    assert_eq!(replaced(&own, &nodes, 1_000), ["n1", "n2"]);
    let all = Strategy {
        max_unavailable: IntOrPercent::Number(1),
        ..strategy(vec![two])
    };
    assert_eq!(replaced(&all, &nodes, 1_000), ["n1"]);
}

#[test]
fn a_broken_pod_in_a_closed_wave_takes_no_slot() {
    let one = Strategy {
        max_unavailable: IntOrPercent::Number(1),
        ..strategy(vec![wave("canary")])
    };
    let nodes = [
        pooled("n1", "canary", old(1)),
        pooled("n2", "field", old(1).broken()),
    ];
    assert_eq!(replaced(&one, &nodes, 1_000), ["n1"]);
}

#[test]
fn min_interval_applies_per_wave() {
    let strategy = Strategy {
        min_interval: Duration::from_secs(1_000),
        ..strategy(vec![wave("canary")])
    };
    let nodes = [
        since(1_500, pooled("n1", "canary", old(1))),
        pooled("n2", "canary", current(2).made(0)),
        pooled("n3", "field", current(2).made(1_400)),
        pooled("n4", "field", old(1)),
    ];
    assert_eq!(replaced(&strategy, &nodes, 2_000), ["n1"]);
    assert_eq!(replaced(&strategy, &nodes, 2_400), ["n1", "n4"]);
}

#[test]
fn ota_ignores_waves() {
    let strategy = Strategy {
        mode: Mode::Ota,
        ..strategy(vec![wave("canary")])
    };
    let nodes = vec![
        pooled("n1", "canary", old(1)),
        pooled("n2", "field", old(1).broken()),
    ];
    let plan = decide(&strategy, &fleet(nodes), at(1_000));
    assert_eq!(plan.waves, []);
    assert_eq!(plan.counts.unavailable, 1);
}

/// Regression test from the model checker (`tests/model`). The template changed while the new pod of a node was starting. The
/// change closed the node's wave again.
#[test]
fn a_starting_pod_takes_a_slot_even_if_its_wave_is_closed_again() {
    let one = Strategy {
        max_unavailable: IntOrPercent::Number(1),
        ..strategy(vec![wave("canary")])
    };
    let nodes = [
        pooled("n1", "canary", old(1)),
        pooled("n2", "field", old(2).made(900).broken()),
    ];
    assert_eq!(replaced(&one, &nodes, 1_000), [""; 0]);
    let plan = decide(&one, &fleet(nodes.to_vec()), at(1_000));
    assert_eq!(plan.next_wake, Some(at(1_200)));
    assert_eq!(replaced(&one, &nodes, 1_200), ["n1"]);
}

#[test]
fn a_wave_reports_nodes_in_flight_and_taken_slots() {
    let strategy = Strategy {
        max_unavailable: IntOrPercent::Number(3),
        max_surge: IntOrPercent::Number(1),
        ..strategy(vec![wave("canary")])
    };
    let mut surging = pooled("n1", "canary", old(1));
    surging.pods.push(Pod {
        uid: "made".into(),
        surge: true,
        ..current(2).made(990).broken()
    });
    let nodes = [
        surging,
        pooled("n2", "canary", current(2).made(990).broken()),
        pooled("n3", "canary", old(1)),
    ];
    let plan = decide(&strategy, &fleet(nodes.to_vec()), at(1_000));
    let names: Vec<&str> = plan
        .actions
        .iter()
        .map(|action| action.pod().name.as_str())
        .collect();
    assert_eq!(names, ["n3"]);
    // The old pod of n1 is available next to the surge pod, so n1 takes no slot. Node n2 takes a slot. Node n3 also takes a slot,
    // because its update begins now.
    let stand = &plan.waves[0];
    assert_eq!((stand.in_flight, stand.taken, stand.allowed), (2, 2, 3));
}

/// Regression test from a million random simulations: two pods blocked each other. A broken pod and a pod with a completed hook
/// each waited for the slot of the other.
#[test]
fn a_broken_pod_is_deleted_while_a_pod_with_a_completed_hook_waits() {
    let exit = Exit {
        preparing: Some(PreDeleteHook { since: None }),
        ..Exit::default()
    }
    .into();
    let marked = pooled("z", "a", Pod { exit, ..old(1) });
    let nodes = [pooled("a", "a", old(1).broken()), marked];
    let in_a_wave = Strategy {
        max_unavailable: IntOrPercent::Number(1),
        ..strategy(vec![wave("a")])
    };
    let without = Strategy {
        waves: None,
        ..in_a_wave.clone()
    };
    for strategy in [in_a_wave, without] {
        assert_eq!(replaced(&strategy, &nodes, 1000), ["a"]);
    }
}

/// Regression test from a million random simulations. A broken pod in a closed wave took the slot that a pod marked for deletion
/// waited for. The marked pod kept its failure domain busy, and the first wave waited for this domain.
#[test]
fn a_broken_pod_of_a_closed_wave_takes_no_slot_from_a_pod_past_its_hook() {
    let exit = Exit {
        preparing: Some(PreDeleteHook { since: None }),
        ..Exit::default()
    }
    .into();
    let one = Strategy {
        max_unavailable: IntOrPercent::Number(1),
        ..strategy(vec![wave("canary")])
    };
    let nodes = [
        pooled("n1", "canary", old(1)),
        pooled("n2", "field", Pod { exit, ..old(2) }),
        pooled("n3", "field", old(3).broken()),
    ];
    assert_eq!(replaced(&one, &nodes, 1_000), ["n2"]);
    let plan = decide(&one, &fleet(nodes.to_vec()), at(1_000));
    let taken: Vec<usize> = plan.waves.iter().map(|stand| stand.taken).collect();
    assert_eq!(taken, [0, 1]);
}
