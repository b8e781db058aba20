use k8s_openapi::jiff::SignedDuration;

use super::*;
use crate::core::lifecycle::{Exit, PreDelete, Preparing};
use crate::core::testing::{fleet, old};
use crate::core::{Labels, Mode, NodeName, RevisionState, Share, Strategy, Verdict, decide};

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

/// Every column of the table, in its order.
fn spares() -> [Spare; 7] {
    [
        Spare::Starting,
        Spare::Young {
            available_at: ago(-5),
        },
        Spare::Available,
        Spare::Outdated { ready: false },
        Spare::Outdated { ready: true },
        Spare::Ended { again: ago(-30) },
        Spare::Leaving,
    ]
}

#[test]
fn every_cell_of_the_table_is_as_it_is_written_down() {
    use Step::{HandOver, Remove, Retire, Wait};
    let current = |available, younger| Own::Current { available, younger };
    let outdated = |available| Own::Outdated { available };
    let takes_over = [HandOver, HandOver, HandOver, Remove, HandOver, Remove, Wait];
    let waits = [Wait, Wait, Wait, Remove, Wait, Remove, Wait];
    let rows = [
        (Own::None, takes_over),
        (Own::Leaving, takes_over),
        (
            outdated(false),
            [Wait, Wait, Retire, Remove, Retire, Wait, Wait],
        ),
        (
            outdated(true),
            [Wait, Wait, Retire, Remove, Remove, Wait, Wait],
        ),
        (
            current(true, true),
            [Remove, Remove, HandOver, Remove, Remove, Remove, Wait],
        ),
        (
            current(true, false),
            [Remove, Remove, Remove, Remove, Remove, Remove, Wait],
        ),
        (
            current(false, true),
            [HandOver, HandOver, HandOver, Remove, Wait, Remove, Wait],
        ),
        (
            current(false, false),
            [Remove, Wait, Wait, Remove, Wait, Remove, Wait],
        ),
        (Own::Several, [Wait; 7]),
        (Own::InDoubt, [Wait; 7]),
    ];
    for (own, expected) in rows {
        for in_order in [true, false] {
            let found = spares().map(|spare| step(own, spare, in_order, now()));
            let depends = matches!(own, Own::None | Own::Leaving);
            let expected = if depends && !in_order {
                waits
            } else {
                expected
            };
            assert_eq!(found, expected, "{own:?}, in order: {in_order}");
        }
    }
}

#[test]
fn a_pod_that_failed_for_good_goes_after_a_minute_and_only_then_comes_the_next() {
    let outdated = Own::Outdated { available: true };
    let ended = |again| step(outdated, Spare::Ended { again }, true, now());
    assert_eq!(
        [ended(ago(-1)), ended(ago(0)), ended(ago(1))],
        [Step::Wait, Step::Remove, Step::Remove]
    );
}

/// Nothing that serves is deleted unless something else serves.
#[test]
fn no_step_takes_the_last_available_pod() {
    let owns = [
        Own::None,
        Own::Leaving,
        Own::Outdated { available: false },
        Own::Outdated { available: true },
        Own::Current {
            available: false,
            younger: true,
        },
        Own::Current {
            available: false,
            younger: false,
        },
        Own::Current {
            available: true,
            younger: true,
        },
        Own::Several,
        Own::InDoubt,
    ];
    for own in owns {
        for spare in spares() {
            let own_serves = matches!(
                own,
                Own::Outdated { available: true }
                    | Own::Current {
                        available: true,
                        ..
                    }
            );
            let spare_serves = matches!(spare, Spare::Available | Spare::Outdated { ready: true });
            match step(own, spare, false, now()) {
                Step::Remove => assert!(own_serves || !spare_serves, "{own:?} {spare:?}"),
                Step::Retire => assert!(spare_serves, "{own:?} {spare:?}"),
                Step::Wait | Step::HandOver => {}
            }
        }
    }
}

/// A pod that was made so many seconds ago, and is Ready for as long.
fn pod(name: &str, revision: PodRevision, seconds: i64) -> Pod {
    Pod {
        name: name.into(),
        uid: name.into(),
        created: ago(seconds),
        revision,
        ready_since: Some(ago(seconds)),
        started: Some(ago(seconds)),
        ..old(0)
    }
}

fn made(name: &str, revision: PodRevision, seconds: i64) -> Pod {
    Pod {
        surge: true,
        ..pod(name, revision, seconds)
    }
}

fn node(pods: impl IntoIterator<Item = Pod>) -> Node {
    Node {
        name: NodeName::from("n1"),
        labels: Labels::default(),
        hold: None,
        window: None,
        has_images: false,
        targeting: Targeting::Run,
        readiness: Readiness::Ready { since: ago(9000) },
        pods: pods.into_iter().collect(),
        disrupted_at: None,
        podless_since: None,
    }
}

fn actions(node: &Node) -> Vec<Action> {
    let pair = Pair::of(node, Duration::from_secs(10), true, now()).expect("a pair");
    let leaves = alive(node).map(|old| Action::Delete(reference(old)));
    pair.actions(node, leaves, true)
}

#[test]
fn the_old_pod_goes_when_the_new_one_is_ready_for_long_enough() {
    use PodRevision::{Current, Outdated};
    let old = || pod("old", Outdated, 500);
    let young = node([old(), made("new", Current, 9)]);
    assert_eq!(actions(&young), []);
    let pair = Pair::of(&young, Duration::from_secs(10), true, now()).expect("a pair");
    assert_eq!((pair.turn, pair.served), (Some(ago(-1)), true));
    let available = node([old(), made("new", Current, 10)]);
    let retire = Action::Retire {
        pod: reference(&old()),
        successor: reference(&made("new", Current, 10)),
        evict: false,
    };
    assert_eq!(actions(&available), [retire]);
}

#[test]
fn of_two_new_pods_the_better_one_stays() {
    use PodRevision::{Current, Outdated};
    let old = || pod("old", Outdated, 500);
    let starting = Pod {
        ready_since: None,
        ..made("a", Current, 30)
    };
    let two = node([old(), starting.clone(), made("b", Current, 5)]);
    assert_eq!(actions(&two), [Action::Delete(reference(&starting))]);
    let stale = made("c", Outdated, 90);
    let two = node([old(), stale.clone(), made("b", Current, 5)]);
    assert_eq!(actions(&two), [Action::Delete(reference(&stale))]);
}

#[test]
fn a_pod_of_ours_leaves_with_its_node_or_takes_the_place_of_the_old_one() {
    use PodRevision::{Current, Outdated};
    let old = || pod("old", Outdated, 500);
    let new = || made("new", Current, 5);
    let remove = || vec![Action::Delete(reference(&new()))];
    let hand_over = || vec![Action::HandOver(reference(&new()))];
    let on = |targeting, pods: Vec<Pod>| Node {
        targeting,
        ..node(pods)
    };
    assert_eq!(leave(&on(Targeting::No, vec![new()]), true), remove());
    assert_eq!(
        leave(&on(Targeting::No, vec![old(), new()]), true),
        remove()
    );
    assert_eq!(
        leave(&on(Targeting::Keep, vec![old(), new()]), true),
        remove()
    );
    assert_eq!(leave(&on(Targeting::Keep, vec![new()]), true), hand_over());
    let leaving = Pod {
        terminating: true,
        ..old()
    };
    assert_eq!(
        leave(&on(Targeting::Run, vec![leaving, new()]), true),
        hand_over()
    );
    let gone = |pod: Pod| Node {
        readiness: Readiness::Gone,
        ..node([pod])
    };
    assert_eq!(leave(&gone(new()), true), []);
    let unbound = Pod {
        started: None,
        ..new()
    };
    assert_eq!(leave(&gone(unbound), true), remove());
}

/// Where the native controller learns of changes out of order, a pod of ours that is all there is stays until there is a
/// third, and what is not rolled out by us any more is not done before.
#[test]
fn where_the_native_controller_learns_late_its_next_pod_is_awaited() {
    use PodRevision::{Current, Outdated};
    let new = || made("new", Current, 50);
    let leaving = Pod {
        terminating: true,
        ..pod("old", Outdated, 500)
    };
    let third = |ready| Pod {
        ready_since: Some(ago(5)).filter(|_| ready),
        ..pod("third", Current, 5)
    };
    let hand_over = || vec![Action::HandOver(reference(&new()))];
    let remove = || vec![Action::Delete(reference(&new()))];
    for (pods, expected, later) in [
        (vec![leaving, new()], vec![], true),
        (vec![new()], vec![], true),
        (vec![new(), third(false)], hand_over(), false),
        (vec![new(), third(true)], remove(), false),
    ] {
        let fleet = Fleet {
            in_order: false,
            ..fleet(vec![node(pods)])
        };
        assert_eq!(release(&fleet), expected);
        assert_eq!(is_released_later(&fleet), later);
    }
}

#[test]
fn the_old_pod_is_asked_before_it_goes() {
    use PodRevision::{Current, Outdated};
    let hook = r#"{"preDelete": {"labelsHandler": {"drain": "true"}}}"#;
    let strategy = Strategy {
        max_surge: Share::Number(1),
        pre_delete: PreDelete::read(hook).unwrap().map(Into::into),
        ..Strategy::of(Mode::AdvancedRollingUpdate)
    };
    let old = |hooked: bool, since: Option<i64>| Pod {
        exit: Exit {
            labels: [("drain", if hooked { "true" } else { "done" })]
                .into_iter()
                .collect(),
            preparing: since.map(|since| Preparing {
                since: Some(ago(since)),
            }),
            ..Exit::default()
        },
        ..pod("old", Outdated, 500)
    };
    let new = |seconds| made("new", Current, seconds);
    let plan = |old: Pod, new: Pod| {
        let fleet = Fleet {
            revision: RevisionState::Current("r".into()),
            ..fleet(vec![node([old, new])])
        };
        let mut plan = decide(&strategy, &fleet, now());
        (plan.actions, plan.verdicts.remove(0))
    };
    let mark = |old: &Pod, preparing| Action::Mark {
        pod: reference(old),
        preparing: Some(preparing),
        gate: None,
    };
    let hooked = old(true, None);
    let waits = |since: Option<i64>| Verdict::HookPending {
        since: since.map(ago),
        overdue: false,
    };
    let begun = plan(hooked.clone(), new(10));
    assert_eq!(begun, (vec![mark(&hooked, true)], waits(None)));
    assert_eq!(plan(old(true, Some(5)), new(10)), (vec![], waits(Some(5))));
    let free = old(false, Some(5));
    let retire = Action::Retire {
        pod: reference(&free),
        successor: reference(&new(10)),
        evict: false,
    };
    let goes = Verdict::InProgress(Progress::SurgeTakingOver);
    assert_eq!(plan(free, new(10)), (vec![retire], goes));
    // The new pod is not Ready any more: the old one serves, and is not on its way out.
    let unready = Pod {
        ready_since: None,
        ..new(10)
    };
    let marked = old(true, Some(5));
    let starts = Verdict::InProgress(Progress::SurgeStarting);
    assert_eq!(
        plan(marked.clone(), unready),
        (vec![mark(&marked, false)], starts)
    );
}
