use std::time::Duration;

use super::*;
use crate::core::fleet::{Leaving, Node, Pod, Readiness};
use crate::core::instant::later;
use crate::core::messages::overdue::words;
use crate::core::testing::{at, current, fleet, node, old};
use crate::core::{IntOrPercent, Mode, Phase, Plan, PodRevision, Strategy, decide};

/// Returns a pod whose deletion was requested at `asked`, with a grace period of `grace` seconds.
fn leaving(pod: Pod, asked: i64, grace: u64) -> Pod {
    let grace = Duration::from_secs(grace);
    Pod {
        terminating: true,
        leaving: Some(Box::new(Leaving {
            ends: later(at(asked), grace),
            stamped: later(at(asked), grace),
            grace,
        })),
        ..pod
    }
}

fn held_by(pod: Pod, finalizer: &str) -> Pod {
    let exit = crate::core::Exit {
        finalizers: vec![finalizer.into()],
        ..(*pod.exit).clone()
    }
    .into();
    Pod { exit, ..pod }
}

fn plan(nodes: Vec<Node>, max_surge: u32, now: i64) -> Plan {
    let strategy = Strategy {
        max_surge: IntOrPercent::Number(max_surge),
        max_unavailable: IntOrPercent::Number(1),
        ..Strategy::with_mode(Mode::AdvancedRollingUpdate)
    };
    decide(&strategy, &fleet(nodes), at(now))
}

const STALLED: Phase = Phase::Stalled(Stall::NoProgress);

#[test]
fn a_terminating_pod_is_overdue_a_minute_after_its_grace_period_with_the_cause() {
    let nodes = || {
        vec![
            node("a", held_by(leaving(old(1), 1000, 30), "example.io/lb")),
            node("b", old(1)),
        ]
    };
    let before = plan(nodes(), 0, 1089);
    assert_eq!(
        (before.phase, &*before.overdue),
        (Phase::Progressing, &[][..])
    );
    assert_eq!(before.next_wake, Some(at(1090)));
    let after = plan(nodes(), 0, 1090);
    assert_eq!((after.phase, &*after.overdue), (STALLED, &[0][..]));
    assert_eq!(
        words(&fleet(nodes()), &nodes()[0], &after.verdicts[0]),
        format!(
            "pod a has been terminating since {}, with a grace period of 30s: it has finalizer example.io/lb",
            at(1030)
        )
    );
    let hung = node("a", leaving(old(1), 1000, 30));
    assert!(
        words(&fleet(nodes()), &hung, &after.verdicts[0]).contains("its kubelet has not ended it")
    );
}

/// If one node is blocked and another one makes progress, the rollout is not stalled. The blocked node is still reported.
#[test]
fn an_overdue_node_is_reported_while_other_nodes_progress() {
    let nodes = vec![
        node("a", leaving(old(1), 1000, 30)),
        node("b", old(1).broken()),
    ];
    let plan = plan(nodes, 0, 2000);
    assert_eq!(plan.phase, Phase::Stalled(Stall::NoProgress));
    let moving = vec![
        node("a", leaving(old(1), 1000, 30)),
        node("b", current(2).made(1995).broken()),
    ];
    let plan = self::plan(moving, 0, 2000);
    assert_eq!((plan.phase, &*plan.overdue), (Phase::Progressing, &[0][..]));
    assert_eq!(plan.next_wake, Some(at(1995 + 600)));
}

/// The deadline counts from the time at which the pod became not Ready, not from its creation.
#[test]
fn an_old_pod_that_becomes_unready_has_a_ten_minute_deadline() {
    let unready = Pod {
        unready_since: Some(at(5000)),
        ..current(2).made(1000).broken()
    };
    let nodes = || vec![node("a", unready.clone()), node("b", old(1))];
    let plan = |now| plan(nodes(), 0, now);
    assert_eq!(plan(5001).phase, Phase::Progressing);
    assert_eq!(plan(5001).next_wake, Some(at(5600)));
    assert_eq!(plan(5599).phase, Phase::Progressing);
    assert_eq!(plan(5600).phase, STALLED);
}

#[test]
fn a_returned_node_has_a_minute_to_end_an_overdue_pod() {
    let back = Node {
        readiness: Readiness::Ready { since: at(5000) },
        ..node("a", leaving(old(1), 1000, 30))
    };
    let plan = |now| plan(vec![back.clone()], 0, now);
    assert_eq!(plan(5059).phase, Phase::Progressing);
    assert_eq!(plan(5059).next_wake, Some(at(5060)));
    assert_eq!(plan(5060).phase, STALLED);
}

#[test]
fn every_later_step_of_a_surge_has_a_deadline() {
    let with = |pods: Vec<Pod>| Node {
        pods: pods.into(),
        ..node("a", old(1))
    };
    let made = || Pod {
        surge: true,
        ..current(2).made(900)
    };
    let named = |pod: Pod, name: &str| Pod {
        name: name.into(),
        uid: name.into(),
        ..pod
    };
    let podless = Node {
        podless_since: Some(at(1000)),
        ..with(vec![named(made(), "new")])
    };
    let late = Fleet {
        in_order: false,
        ..fleet(vec![podless.clone()])
    };
    let strategy = Strategy {
        max_surge: IntOrPercent::Number(1),
        ..Strategy::with_mode(Mode::AdvancedRollingUpdate)
    };
    // The old pod doesn't end. It is reported both before and after the DaemonSet becomes the owner of the surge pod.
    let gone = leaving(named(old(1), "old"), 1000, 30);
    for new in [named(made(), "new"), named(current(2).made(900), "new")] {
        let node = with(vec![gone.clone(), new]);
        let done = plan(vec![node.clone()], 1, 1090);
        let hands_over = done.actions.iter().any(|action| action.begins());
        assert!(hands_over || done.phase == STALLED, "{:?}", done.phase);
        assert_eq!(done.overdue, [0]);
        assert!(
            words(&fleet(Vec::new()), &node, &done.verdicts[0])
                .starts_with("pod old has been terminating")
        );
    }
    // The surge pod is outdated and its deletion was requested, but it doesn't end.
    let unwanted = Pod {
        revision: PodRevision::Outdated,
        ..leaving(named(made(), "new"), 1000, 30)
    };
    let node = with(vec![named(old(1), "old"), unwanted]);
    assert_eq!(plan(vec![node], 1, 1090).phase, STALLED);
    // The old pod is gone, and the surge pod waits for a pod of the native controller. The native controller creates none within 15
    // s.
    let waits = |now| decide(&strategy, &late, at(now));
    assert_eq!(waits(1014).phase, Phase::Progressing);
    assert_eq!(waits(1014).next_wake, Some(at(1015)));
    assert_eq!(waits(1015).phase, Phase::Stalled(Stall::PodsNotCreated));
    assert!(
        words(&fleet(Vec::new()), &podless, &waits(1015).verdicts[0])
            .contains("does not adopt surge pod")
    );
    // The DaemonSet owns two pods on the node. After ten minutes, the native controller has deleted neither of them.
    let two = with(vec![
        named(current(2).made(900), "x"),
        named(current(2).made(910), "y"),
    ]);
    assert_eq!(plan(vec![two.clone()], 1, 1509).next_wake, Some(at(1510)));
    assert_eq!(plan(vec![two], 1, 1510).phase, STALLED);
}

/// A node that joins the fleet gets a pod of the current revision. When this pod is available, no slot becomes free for outdated
/// nodes, so a stalled rollout stays stalled.
#[test]
fn nodes_that_join_do_not_end_a_stall() {
    let stuck = || node("a", current(2).made(1000).broken());
    let joined = || node("b", current(2).made(1990).broken());
    let waits = || node("c", old(1));
    let phase = |nodes| plan(nodes, 0, 2000).phase;
    assert_eq!(phase(vec![stuck(), waits()]), STALLED);
    assert_eq!(phase(vec![stuck(), joined(), waits()]), STALLED);
    let wakes = plan(vec![stuck(), joined(), waits()], 0, 2000).next_wake;
    assert_eq!(wakes, Some(at(1990 + 600)));
    let podless = Node {
        pods: [].into(),
        podless_since: Some(at(1999)),
        ..joined()
    };
    assert_eq!(phase(vec![stuck(), podless.clone(), waits()]), STALLED);
    // The rollout is not stalled in two cases: a node is being replaced, or no outdated node is left and the joined node starts.
    let replaced = Node {
        disrupted_at: Some(at(1999)),
        ..podless
    };
    assert_eq!(phase(vec![stuck(), replaced, waits()]), Phase::Progressing);
    assert_eq!(phase(vec![stuck(), joined()]), Phase::Progressing);
}

#[test]
fn an_ended_pod_kept_by_a_finalizer_is_not_overdue_next_to_another_pod() {
    let mut kept = held_by(leaving(old(1), 10, 30), "example.io/never");
    kept.in_place.is_over = true;
    let mut one = node("a", kept);
    assert_eq!(ending(&one).count(), 1);
    one.pods.push(old(2));
    assert_eq!(ending(&one).count(), 0);
    // The surge pod is available, so this plan deletes the old pod. A finalizer still keeps the object of the ended pod, but the
    // node is not overdue.
    one.pods.push(Pod {
        surge: true,
        ..current(3).made(900)
    });
    assert_eq!(plan(vec![one], 1, 1000).overdue, Vec::<usize>::new());
}
