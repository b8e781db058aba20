use k8s_openapi::jiff::SignedDuration;

use super::*;
use crate::core::lifecycle::{Exit, PreDelete, PreDeleteHook};
use crate::core::testing::{fleet, old};
use crate::core::verdict::Offline;
use crate::core::{IntOrPercent, Labels, Mode, NodeName, RevisionState, Strategy, Verdict, decide};

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

/// Returns all states of a surge pod, in the order of the columns in the table at [`step`].
fn spares() -> [SurgePod; 7] {
    [
        SurgePod::Starting,
        SurgePod::NotYetAvailable {
            available_at: ago(-5),
        },
        SurgePod::Available,
        SurgePod::Outdated { ready: false },
        SurgePod::Outdated { ready: true },
        SurgePod::Ended { again: ago(-30) },
        SurgePod::Leaving,
    ]
}

#[test]
fn every_cell_of_the_surge_table_has_the_documented_step() {
    use SurgeStep::{DeleteAfterSurge, Remove, TransferOwnership, Wait};
    let current = |available, younger| OwnPod::Current { available, younger };
    let outdated = |available| OwnPod::Outdated { available };
    let takes_over = [
        TransferOwnership,
        TransferOwnership,
        TransferOwnership,
        Remove,
        TransferOwnership,
        Remove,
        Wait,
    ];
    let waits = [Wait, Wait, Wait, Remove, Wait, Remove, Wait];
    let rows = [
        (OwnPod::None, takes_over),
        (OwnPod::Leaving, takes_over),
        (
            outdated(false),
            [
                Wait,
                Wait,
                DeleteAfterSurge,
                Remove,
                DeleteAfterSurge,
                Wait,
                Wait,
            ],
        ),
        (
            outdated(true),
            [Wait, Wait, DeleteAfterSurge, Remove, Remove, Wait, Wait],
        ),
        (
            current(true, true),
            [
                Remove,
                Remove,
                TransferOwnership,
                Remove,
                Remove,
                Remove,
                Wait,
            ],
        ),
        (
            current(true, false),
            [Remove, Remove, Remove, Remove, Remove, Remove, Wait],
        ),
        (
            current(false, true),
            [
                TransferOwnership,
                TransferOwnership,
                TransferOwnership,
                Remove,
                Wait,
                Remove,
                Wait,
            ],
        ),
        (
            current(false, false),
            [Remove, Wait, Wait, Remove, Wait, Remove, Wait],
        ),
        (OwnPod::Several, [Wait; 7]),
        (OwnPod::InDoubt, [Wait; 7]),
    ];
    for (own, expected) in rows {
        for in_order in [true, false] {
            let found = spares().map(|spare| step(own, spare, in_order, now()));
            let depends = matches!(own, OwnPod::None | OwnPod::Leaving);
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
fn a_failed_surge_pod_is_removed_after_a_minute_before_the_next_one() {
    let outdated = OwnPod::Outdated { available: true };
    let ended = |again| step(outdated, SurgePod::Ended { again }, true, now());
    assert_eq!(
        [ended(ago(-1)), ended(ago(0)), ended(ago(1))],
        [SurgeStep::Wait, SurgeStep::Remove, SurgeStep::Remove]
    );
}

/// An available pod is deleted only if the other pod of the node is available.
#[test]
fn no_surge_step_removes_the_last_available_pod() {
    let owns = [
        OwnPod::None,
        OwnPod::Leaving,
        OwnPod::Outdated { available: false },
        OwnPod::Outdated { available: true },
        OwnPod::Current {
            available: false,
            younger: true,
        },
        OwnPod::Current {
            available: false,
            younger: false,
        },
        OwnPod::Current {
            available: true,
            younger: true,
        },
        OwnPod::Several,
        OwnPod::InDoubt,
    ];
    for own in owns {
        for spare in spares() {
            let own_serves = matches!(
                own,
                OwnPod::Outdated { available: true }
                    | OwnPod::Current {
                        available: true,
                        ..
                    }
            );
            let spare_serves = matches!(
                spare,
                SurgePod::Available | SurgePod::Outdated { ready: true }
            );
            match step(own, spare, false, now()) {
                SurgeStep::Remove => assert!(own_serves || !spare_serves, "{own:?} {spare:?}"),
                SurgeStep::DeleteAfterSurge => assert!(spare_serves, "{own:?} {spare:?}"),
                SurgeStep::Wait | SurgeStep::TransferOwnership => {}
            }
        }
    }
}

/// Returns a pod that was created `seconds` seconds ago and has been Ready since then.
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
        trouble: None,
        has_images: false,
        targeting: Targeting::Run,
        native: Targeting::Run,
        readiness: Readiness::Ready { since: ago(9000) },
        pods: pods.into_iter().collect(),
        disrupted_at: None,
        emptied: false,
        kept_away_by: None,
        had_pod: false,
        losses: None,
        cut_off: false,
        podless_since: None,
    }
}

/// Returns terms with a `minReadySeconds` of ten.
fn terms(in_order: bool) -> Terms {
    Terms {
        is_proven: true,
        min_ready: Duration::from_secs(10),
        in_order,
        now: now(),
    }
}

fn actions(node: &Node) -> Vec<Action> {
    let pair = SurgePair::new(node, terms(true)).expect("a pair");
    let leaves = alive(node).map(|old| Action::Delete(old.reference()));
    pair.actions(node, leaves, true)
}

#[test]
fn the_old_pod_is_deleted_when_the_surge_pod_is_available() {
    use PodRevision::{Current, Outdated};
    let old = || pod("old", Outdated, 500);
    let young = node([old(), made("new", Current, 9)]);
    assert_eq!(actions(&young), []);
    let pair = SurgePair::new(&young, terms(true)).expect("a pair");
    assert_eq!((pair.turn, pair.served), (Some(ago(-1)), true));
    let available = node([old(), made("new", Current, 10)]);
    let retire = Action::DeleteAfterSurge {
        pod: old().reference(),
        successor: made("new", Current, 10).reference(),
        evict: false,
    };
    assert_eq!(actions(&available), [retire]);
}

#[test]
fn of_two_surge_pods_the_better_one_stays() {
    use PodRevision::{Current, Outdated};
    let old = || pod("old", Outdated, 500);
    let starting = Pod {
        ready_since: None,
        ..made("a", Current, 30)
    };
    let two = node([old(), starting.clone(), made("b", Current, 5)]);
    assert_eq!(actions(&two), [Action::Delete(starting.reference())]);
    let stale = made("c", Outdated, 90);
    let two = node([old(), stale.clone(), made("b", Current, 5)]);
    assert_eq!(actions(&two), [Action::Delete(stale.reference())]);
}

#[test]
fn a_left_over_surge_pod_is_deleted_or_handed_over() {
    use PodRevision::{Current, Outdated};
    let old = || pod("old", Outdated, 500);
    let new = || made("new", Current, 5);
    let remove = || vec![Action::Delete(new().reference())];
    let hand_over = || vec![Action::TransferOwnership(new().reference())];
    let on = |targeting, pods: Vec<Pod>| Node {
        targeting,
        ..node(pods)
    };
    assert_eq!(
        leave(&on(Targeting::No, vec![new()]), terms(true)),
        remove()
    );
    assert_eq!(
        leave(&on(Targeting::No, vec![old(), new()]), terms(true)),
        remove()
    );
    assert_eq!(
        leave(&on(Targeting::Keep, vec![old(), new()]), terms(true)),
        remove()
    );
    assert_eq!(
        leave(&on(Targeting::Keep, vec![new()]), terms(true)),
        hand_over()
    );
    let leaving = Pod {
        terminating: true,
        ..old()
    };
    assert_eq!(
        leave(&on(Targeting::Run, vec![leaving, new()]), terms(true)),
        hand_over()
    );
    let gone = |pod: Pod| Node {
        readiness: Readiness::Gone,
        ..node([pod])
    };
    assert_eq!(leave(&gone(new()), terms(true)), []);
    let unbound = Pod {
        started: None,
        ..new()
    };
    assert_eq!(leave(&gone(unbound), terms(true)), remove());
}

/// Before Kubernetes 1.33, the native controller sees changes out of order. So after the old pod is gone, the ownership of the
/// surge pod is transferred only when the native controller has created a pod of its own.
///
/// If yurt-ds no longer manages the DaemonSet, it waits for that pod, too.
#[test]
fn with_unordered_events_a_surge_pod_waits_for_the_native_controllers_pod() {
    use PodRevision::{Current, Outdated};
    let new = || made("new", Current, 50);
    let leaving = Pod {
        terminating: true,
        ..pod("old", Outdated, 500)
    };
    let third = |ready| Pod {
        ready_since: Some(ago(15)).filter(|_| ready),
        ..pod("third", Current, 15)
    };
    let hand_over = || vec![Action::TransferOwnership(new().reference())];
    let remove = || vec![Action::Delete(new().reference())];
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
        let release = release(&fleet, terms(false));
        assert_eq!((release.actions, release.waits), (expected, later));
    }
}

#[test]
fn with_surge_the_hook_of_the_old_pod_runs_before_its_deletion() {
    use PodRevision::{Current, Outdated};
    let hook = r#"{"preDelete": {"labelsHandler": {"drain": "true"}}}"#;
    let strategy = Strategy {
        max_surge: IntOrPercent::Number(1),
        pre_delete: PreDelete::read(hook).unwrap().map(Into::into),
        ..Strategy::with_mode(Mode::AdvancedRollingUpdate)
    };
    let old = |hooked: bool, since: Option<i64>| Pod {
        exit: Exit {
            labels: [("drain", if hooked { "true" } else { "done" })]
                .into_iter()
                .collect(),
            preparing: since.map(|since| PreDeleteHook {
                since: Some(ago(since)),
            }),
            ..Exit::default()
        }
        .into(),
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
        pod: old.reference(),
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
    let retire = Action::DeleteAfterSurge {
        pod: free.reference(),
        successor: new(10).reference(),
        evict: false,
    };
    let goes = Verdict::InProgress(Progress::SurgeTakingOver);
    assert_eq!(plan(free, new(10)), (vec![retire], goes));
    // The new pod is no longer Ready, so the old pod has to stay and loses its mark.
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

/// yurt-ds no longer manages the DaemonSet, and a node has a surge pod. If the surge pod is Ready, it stays until the other pod is
/// available.
#[test]
fn a_serving_surge_pod_stays_until_the_other_pod_serves() {
    use PodRevision::{Current, Outdated};
    let new = || made("new", Current, 50);
    let old = |ready: Option<i64>| Pod {
        ready_since: ready.map(ago),
        ..pod("old", Outdated, 500)
    };
    let remove = || vec![Action::Delete(new().reference())];
    let name = || vec![NodeName::from("n1")];
    let starting = Pod {
        ready_since: None,
        ..new()
    };
    let doubted = Pod {
        terminating: true,
        in_doubt: true,
        ..old(None)
    };
    let on = |readiness: Readiness, pods: [Pod; 2]| Node {
        readiness,
        ..node(pods)
    };
    let online = Readiness::Ready { since: ago(9000) };
    let away = Readiness::NotReady {
        since: Some(ago(5)),
    };
    // (pods, writes, true if the removal of the surge pod has to wait, time of the next change, nodes whose surge pod is the only
    // Ready pod)
    for (case, actions, waits, wake, kept) in [
        (on(online, [old(None), new()]), vec![], true, None, name()),
        (
            on(online, [old(Some(9)), new()]),
            vec![],
            true,
            Some(ago(-1)),
            name(),
        ),
        (
            on(online, [old(Some(10)), new()]),
            remove(),
            false,
            None,
            vec![],
        ),
        (
            on(online, [old(None), starting.clone()]),
            remove(),
            false,
            None,
            vec![],
        ),
        (on(online, [doubted, new()]), vec![], true, None, vec![]),
        (on(away, [old(Some(90)), new()]), vec![], true, None, vec![]),
    ] {
        for targeting in [Targeting::Run, Targeting::Keep] {
            let nodes = vec![Node {
                targeting,
                ..case.clone()
            }];
            let release = release(&fleet(nodes), terms(true));
            assert_eq!(release.actions, actions, "{case:?}");
            assert_eq!((release.waits, release.wake), (waits, wake), "{case:?}");
            assert_eq!(release.kept, kept, "{case:?}");
        }
    }
}

/// The strategy changes to OTA. First, the readiness gate of the old pod, which was closed for the hook, opens again. When the old
/// pod is available, the surge pod is deleted.
#[test]
fn under_ota_the_gate_opens_first_and_the_surge_pod_goes_when_the_old_pod_serves() {
    use crate::core::lifecycle::Gate;
    use PodRevision::{Current, Outdated};
    let strategy = Strategy::with_mode(Mode::Ota);
    let shut = Gate::read(Some((true, ""))).shut().expect("it was open");
    let old = Pod {
        ready_since: None,
        exit: Exit {
            preparing: Some(PreDeleteHook {
                since: Some(ago(5)),
            }),
            gate: Some(Gate::read(Some((false, &shut.message))).into()),
            ..Exit::default()
        }
        .into(),
        ..pod("old", Outdated, 500)
    };
    let told = |old: Pod| {
        let fleet = Fleet {
            revision: RevisionState::Current("r".into()),
            ..fleet(vec![node([old, made("new", Current, 50)])])
        };
        let plan = decide(&strategy, &fleet, now());
        let of_pods = |action: &Action| !matches!(action, Action::SetNeedUpgrade { .. });
        let actions: Vec<Action> = plan.actions.into_iter().filter(of_pods).collect();
        (actions, plan.verdicts)
    };
    let leaves = vec![Verdict::InProgress(Progress::SurgeLeaving)];
    let opens = Action::Mark {
        pod: old.reference(),
        preparing: Some(false),
        gate: Gate::read(Some((false, &shut.message))).open(),
    };
    assert_eq!(told(old), (vec![opens], leaves.clone()));
    let back = pod("old", Outdated, 500);
    let remove = Action::Delete(made("new", Current, 50).reference());
    assert_eq!(told(back), (vec![remove], leaves));
}

fn surging(max_surge: u32) -> Strategy {
    Strategy {
        max_surge: IntOrPercent::Number(max_surge),
        max_unavailable: IntOrPercent::Number(0),
        ..Strategy::with_mode(Mode::AdvancedRollingUpdate)
    }
}

fn ends(pod: Pod) -> Pod {
    Pod {
        terminating: true,
        ..pod
    }
}

#[test]
fn a_node_keeps_its_surge_slot_until_one_of_its_two_pods_is_gone() {
    use PodRevision::{Current, Outdated};
    let outdated = || Node {
        name: "n2".into(),
        ..node([pod("waits", Outdated, 500)])
    };
    let plan = |pods: Vec<Pod>| {
        let fleet = Fleet {
            revision: RevisionState::Current("r".into()),
            ..fleet(vec![node(pods), outdated()])
        };
        decide(&surging(1), &fleet, now())
    };
    let waits = Verdict::Budget { broken: false };
    let ending = Verdict::InProgress(Progress::OldTerminating);
    let old = || ends(pod("old", Outdated, 500));
    let replaced = plan(vec![old(), pod("new", Current, 50)]);
    assert_eq!(replaced.actions, []);
    assert_eq!(replaced.verdicts, [ending, waits]);
    assert_eq!(
        (replaced.counts.surging, replaced.counts.unavailable),
        (1, 0)
    );
    // The template changed again, so both pods are outdated. No third pod is created while both exist.
    let newer = plan(vec![old(), pod("new", Outdated, 50)]);
    assert_eq!(newer.actions, []);
    assert_eq!(newer.verdicts, [ending, waits]);
    // Both pods belong to the DaemonSet. The node takes a slot of `max-surge` until the native controller removes one of them.
    let several = plan(vec![pod("new", Current, 50), pod("third", Current, 5)]);
    assert_eq!(several.actions, []);
    assert_eq!(several.counts.surging, 1);
    // An ended pod that only a finalizer keeps doesn't count. The native controller ignores it, too.
    let mut ended = old();
    ended.in_place.is_over = true;
    let plan = plan(vec![ended, pod("new", Current, 50)]);
    let starts = Verdict::InProgress(Progress::SurgeStarting);
    assert_eq!(plan.verdicts, [Verdict::Done, starts]);
}

/// Regression test from a real cluster. A node with two pods went offline and returned, and took no slot of `max-surge`. So one
/// more node than allowed got two pods.
#[test]
fn a_returned_node_with_two_pods_keeps_its_surge_slot_while_it_settles() {
    use PodRevision::{Current, Outdated};
    let returned = Node {
        readiness: Readiness::Ready { since: ago(5) },
        ..node([pod("old", Outdated, 500), made("new", Current, 50)])
    };
    let waits = Node {
        name: "n2".into(),
        ..node([pod("waits", Outdated, 500)])
    };
    let fleet = Fleet {
        revision: RevisionState::Current("r".into()),
        ..fleet(vec![returned, waits])
    };
    let plan = decide(&surging(1), &fleet, now());
    assert_eq!(plan.actions, []);
    assert!(matches!(
        plan.verdicts[0],
        Verdict::Offline(Offline::Settling { .. })
    ));
    assert_eq!(plan.verdicts[1], Verdict::Budget { broken: false });
    assert_eq!(plan.counts.surging, 1);
}

/// Regression test from a real cluster. The template was rolled back more than ten minutes after the creation of the surge pod. The
/// plan that deleted this pod also reported the node as overdue, as if the available pod didn't end.
#[test]
fn an_old_second_pod_deleted_by_this_plan_is_not_overdue() {
    use PodRevision::{Current, Outdated};
    let spare = Pod {
        ready_since: None,
        ..made("spare", Outdated, 700)
    };
    let fleet = Fleet {
        revision: RevisionState::Current("r".into()),
        ..fleet(vec![node([pod("old", Current, 2000), spare])])
    };
    let plan = decide(&surging(1), &fleet, now());
    let leaving = Verdict::InProgress(Progress::SurgeLeaving);
    assert_eq!(plan.verdicts, [leaving]);
    assert!(matches!(plan.actions[..], [Action::Delete(_)]));
    assert_eq!(plan.overdue, Vec::<usize>::new());
}

/// The native controller has created a pod next to the surge pod. Then the node gets a taint.
#[test]
fn a_tainted_node_keeps_its_surge_slot_while_it_has_two_pods() {
    use PodRevision::{Current, Outdated};
    let waits = || Node {
        name: "n2".into(),
        ..node([pod("waits", Outdated, 500)])
    };
    let tainted = |pods: Vec<Pod>| Node {
        targeting: Targeting::Keep,
        ..node(pods)
    };
    let plan = |pods: Vec<Pod>| {
        let fleet = Fleet {
            revision: RevisionState::Current("r".into()),
            ..fleet(vec![tainted(pods), waits()])
        };
        decide(&surging(1), &fleet, now())
    };
    let third = Pod {
        ready_since: None,
        ..pod("third", Current, 5)
    };
    let two = plan(vec![made("new", Current, 50), third]);
    let new = made("new", Current, 50).reference();
    assert_eq!(two.actions, [Action::TransferOwnership(new.clone())]);
    let leaves = Verdict::InProgress(Progress::SurgeLeaving);
    assert_eq!(two.verdicts, [leaves, Verdict::Budget { broken: false }]);
    let alone = plan(vec![made("new", Current, 50)]);
    let starts = Verdict::InProgress(Progress::SurgeStarting);
    assert_eq!(alone.verdicts, [Verdict::NotTargeted, starts]);
    assert!(alone.actions.contains(&Action::TransferOwnership(new)));
}

/// A node got a taint while it had two pods. The rollout is not complete until one of them is gone. Every strategy reports the
/// node.
#[test]
fn two_pods_on_an_untargeted_node_are_reported_in_every_strategy() {
    use PodRevision::Current;
    let ends = Pod {
        terminating: true,
        ..pod("old", Current, 500)
    };
    let left = Node {
        targeting: Targeting::Keep,
        ..node([ends, made("new", Current, 50)])
    };
    let fleet = Fleet {
        revision: RevisionState::Current("r".into()),
        ..fleet(vec![left])
    };
    let paused = Strategy {
        pause: Some(crate::core::Pause::Indefinite),
        ..surging(1)
    };
    for strategy in [surging(1), paused, Strategy::with_mode(Mode::Ota)] {
        let plan = decide(&strategy, &fleet, now());
        let told = Verdict::InProgress(Progress::SurgeTakingOver);
        assert_eq!(plan.verdicts, [told], "{strategy:?}");
    }
}

#[test]
fn a_surge_rollout_completes_when_the_last_old_pod_is_gone() {
    use PodRevision::{Current, Outdated};
    let plan = |pods: Vec<Pod>| {
        let fleet = Fleet {
            revision: RevisionState::Current("r".into()),
            ..fleet(vec![node(pods)])
        };
        decide(&surging(1), &fleet, now()).phase
    };
    use crate::core::Phase;
    let old = ends(pod("old", Outdated, 500));
    let new = || pod("new", Current, 50);
    assert_eq!(plan(vec![old, new()]), Phase::Progressing);
    let complete = Phase::Complete {
        offline: 0,
        kept: 0,
    };
    assert_eq!(plan(vec![new()]), complete);
}

/// A setting excludes a node while the hook of its old pod is pending. The old pod stays and loses its mark for deletion, as on a
/// node without a surge pod.
#[test]
fn a_node_excluded_while_its_hook_is_pending_keeps_its_old_pod() {
    use PodRevision::{Current, Outdated};
    let hook = r#"{"preDelete": {"labelsHandler": {"drain": "true"}}}"#;
    let strategy = |partition: u32| Strategy {
        partition: IntOrPercent::Number(partition),
        pre_delete: PreDelete::read(hook).unwrap().map(Into::into),
        ..surging(1)
    };
    let old = |ready| Pod {
        exit: Exit {
            labels: [("drain", "done")].into_iter().collect(),
            preparing: Some(PreDeleteHook {
                since: Some(ago(5)),
            }),
            ..Exit::default()
        }
        .into(),
        ready_since: Some(ago(500)).filter(|_| ready),
        ..pod("old", Outdated, 500)
    };
    let plan = |partition: u32, old: Pod| {
        let fleet = Fleet {
            revision: RevisionState::Current("r".into()),
            ..fleet(vec![node([old, made("new", Current, 50)])])
        };
        let mut plan = decide(&strategy(partition), &fleet, now());
        (plan.actions, plan.verdicts.remove(0))
    };
    let unmark = |old: &Pod| Action::Mark {
        pod: old.reference(),
        preparing: Some(false),
        gate: None,
    };
    let remove = || Action::Delete(made("new", Current, 50).reference());
    let leaves = Verdict::InProgress(Progress::SurgeLeaving);
    let serving = old(true);
    assert_eq!(
        plan(1, serving.clone()),
        (vec![remove(), unmark(&serving)], leaves)
    );
    // The old pod is not available, so both pods stay, and the old pod loses its mark.
    let broken = old(false);
    assert_eq!(plan(1, broken.clone()), (vec![unmark(&broken)], leaves));
    // If the node is not excluded, the old pod is deleted, because its hook is done.
    let (actions, told) = plan(0, serving);
    assert!(
        matches!(actions[..], [Action::DeleteAfterSurge { .. }]),
        "{actions:?}"
    );
    assert_eq!(told, Verdict::InProgress(Progress::SurgeTakingOver));
}
