use super::*;
use crate::core::lifecycle::{Exit, PreDeleteHook};
use crate::core::settings::IntOrPercent;
use crate::core::testing::{at, current, fleet, node, old};
use crate::core::{Phase, Progress, Verdict, decide};

/// Arguments of [`manage`] in addition to the fleet.
struct Given {
    strategy: Option<Strategy>,
    scaling: Scaling,
    creating: BTreeMap<NodeName, Timestamp>,
    refused: BTreeMap<NodeName, u32>,
    orphans: BTreeMap<PodUid, NodeName>,
    backoff: FailedPodsBackoff,
    now: i64,
}

impl Default for Given {
    fn default() -> Self {
        Self {
            strategy: Some(Strategy::with_mode(Mode::AdvancedRollingUpdate)),
            scaling: Scaling::default(),
            creating: BTreeMap::new(),
            refused: BTreeMap::new(),
            orphans: BTreeMap::new(),
            backoff: FailedPodsBackoff::default(),
            now: 100,
        }
    }
}

impl Given {
    /// Returns arguments with `partition`, which here also limits the creation of pods (`partitionedScaling`).
    fn partitioned(partition: IntOrPercent) -> Self {
        let strategy = Strategy {
            partition,
            partitioned: true,
            ..Strategy::with_mode(Mode::AdvancedRollingUpdate)
        };
        Self {
            strategy: Some(strategy),
            scaling: Scaling {
                partitioned: true,
                ..Scaling::default()
            },
            ..Self::default()
        }
    }

    fn surging() -> Self {
        let strategy = Strategy {
            max_surge: IntOrPercent::Number(1),
            ..Strategy::with_mode(Mode::AdvancedRollingUpdate)
        };
        Self {
            strategy: Some(strategy),
            ..Self::default()
        }
    }

    /// Returns arguments with a preDelete hook for pods that have the label `drain`.
    fn hooked() -> Self {
        let hook = PreDelete {
            labels: BTreeMap::from([("drain".to_owned(), "true".to_owned())]),
            ..PreDelete::default()
        };
        let strategy = Strategy {
            pre_delete: Some(hook.into()),
            ..Strategy::with_mode(Mode::AdvancedRollingUpdate)
        };
        Self {
            strategy: Some(strategy),
            ..Self::default()
        }
    }

    fn terms(&self) -> ManageTerms<'_> {
        ManageTerms {
            strategy: self.strategy.as_ref(),
            keeps_pairs: false,
            scaling: self.scaling,
            creating: &self.creating,
            refused: &self.refused,
            orphans: &self.orphans,
            backoff: &self.backoff,
            now: at(self.now),
        }
    }

    fn manage(&self, nodes: Vec<Node>) -> Manage {
        manage(&fleet(nodes), self.terms())
    }
}

fn empty(name: &str) -> Node {
    Node {
        pods: [].into(),
        ..node(name, old(1))
    }
}

/// Returns a node with pods of these names; the first is the oldest.
fn with(name: &str, pods: Vec<(&str, Pod)>) -> Node {
    let named = (0..).zip(pods).map(|(second, (name, pod))| Pod {
        name: name.into(),
        uid: name.into(),
        created: at(second),
        ..pod
    });
    Node {
        pods: named.collect::<Vec<_>>().into(),
        ..empty(name)
    }
}

fn on(targeting: Targeting, node: Node) -> Node {
    Node {
        targeting,
        native: targeting,
        ..node
    }
}

fn terminating(pod: Pod) -> Pod {
    Pod {
        terminating: true,
        ..pod
    }
}

fn over(mut pod: Pod) -> Pod {
    pod.in_place.is_over = true;
    pod
}

fn unbound(pod: Pod) -> Pod {
    Pod {
        started: None,
        ..pod
    }
}

fn created(manage: &Manage) -> Vec<&str> {
    manage.create.iter().map(NodeName::as_str).collect()
}

/// Returns the names of the deleted pods. Fails if there are other writes.
#[track_caller]
fn deleted(manage: &Manage) -> Vec<&str> {
    let name = |action: &'_ Action| match action {
        Action::Delete(pod) => pod.name.clone(),
        other => panic!("{other:?}"),
    };
    let names = manage.actions.iter().map(name);
    let names: Vec<_> = names.collect();
    let known = manage.actions.iter().map(Action::pod);
    assert_eq!(names.len(), known.clone().count());
    known.map(|pod| pod.name.as_str()).collect()
}

#[test]
fn every_row_of_the_table_creates_and_deletes_as_documented() {
    #[track_caller]
    fn case(given: &Given, node: Node, create: bool, gone: &[&str]) {
        let done = given.manage(vec![node]);
        assert_eq!(
            (!done.create.is_empty(), deleted(&done)),
            (create, gone.to_vec())
        );
        // A rollout ignores the pods in `leaving`, so this list has to contain every deleted pod.
        let leaving = done.actions.iter().map(|action| &action.pod().uid);
        assert!(leaving.into_iter().all(|uid| done.leaving.contains(uid)));
    }
    use Targeting::{Keep, No};
    let (plain, surging) = (Given::default(), Given::surging());
    for given in [&plain, &surging] {
        case(given, empty("a"), true, &[]);
        case(given, on(Keep, empty("a")), false, &[]);
        case(given, on(No, empty("a")), false, &[]);
        case(given, node("a", old(1)), false, &[]);
        case(given, node("a", current(2)), false, &[]);
        case(given, node("a", unbound(current(2))), false, &[]);
        case(given, on(Keep, node("a", old(1))), false, &[]);
        case(given, on(No, node("a", old(1))), false, &["a"]);
        case(given, on(No, node("a", terminating(old(1)))), false, &[]);
        case(given, on(Keep, node("a", terminating(old(1)))), false, &[]);
        // An offline node's pod may still run, so it is deleted only if the node should have no pod. An offline node without a pod
        // gets one.
        case(given, node("a", old(1)).away(), false, &[]);
        case(given, on(No, node("a", old(1)).away()), false, &["a"]);
        case(given, empty("a").away(), true, &[]);
        let two = |pods| on(No, with("a", pods));
        let both = two(vec![
            ("p", old(1)),
            ("q", current(2)),
            ("r", terminating(old(1))),
        ]);
        case(given, both, false, &["p", "q"]);
        // An ended pod is deleted. Its successor is created after the ended pod is gone.
        case(given, node("a", over(old(1))), false, &["a"]);
        case(given, on(Keep, node("a", over(old(1)))), false, &["a"]);
        // A terminating pod that has ended doesn't block its successor (kubernetes#118587).
        case(given, node("a", over(terminating(old(1)))), true, &[]);
    }
    // The API server hasn't answered the deletion of the pod, so the successor isn't created yet.
    let in_doubt = |pod| Pod {
        in_doubt: true,
        ..terminating(pod)
    };
    for given in [&plain, &surging] {
        case(given, node("a", in_doubt(old(1))), false, &[]);
        case(given, node("a", in_doubt(over(old(1)))), false, &[]);
    }
    // While the old pod terminates, its successor is created only with `max-surge`.
    case(&plain, node("a", terminating(old(1))), false, &[]);
    case(&surging, node("a", terminating(old(1))), true, &[]);
    case(
        &surging,
        on(Keep, node("a", terminating(old(1)))),
        false,
        &[],
    );
}

#[test]
fn on_a_deleted_node_only_unbound_pods_are_deleted() {
    let gone = |pod| Node {
        readiness: Readiness::Gone,
        ..node("a", pod)
    };
    let given = Given::default();
    assert_eq!(deleted(&given.manage(vec![gone(unbound(old(1)))])), ["a"]);
    assert_eq!(given.manage(vec![gone(old(1))]), Manage::default());
    assert_eq!(given.manage(vec![gone(over(old(1)))]), Manage::default());
    let nobody = Node {
        pods: [].into(),
        ..gone(old(1))
    };
    assert_eq!(given.manage(vec![nobody]), Manage::default());
}

#[test]
fn of_several_pods_the_oldest_running_one_stays_and_a_surge_keeps_two() {
    #[track_caller]
    fn case(given: &Given, pods: Vec<(&str, Pod)>, gone: &[&str]) {
        let done = given.manage(vec![with("a", pods)]);
        assert_eq!((deleted(&done), created(&done)), (gone.to_vec(), vec![]));
    }
    let (plain, surging) = (Given::default(), Given::surging());
    case(&plain, vec![("p", old(1)), ("q", current(2))], &["q"]);
    case(&plain, vec![("p", current(2)), ("q", old(1))], &["q"]);
    // The pod that a kubelet has accepted stays, even if it is the younger one.
    case(
        &plain,
        vec![("p", unbound(old(1))), ("q", current(2))],
        &["p"],
    );
    let three = || vec![("p", old(1)), ("q", current(2)), ("r", current(2))];
    case(&plain, three(), &["q", "r"]);
    case(&surging, vec![("p", old(1)), ("q", current(2))], &[]);
    case(&surging, three(), &["r"]);
    case(&surging, vec![("p", old(1)), ("q", old(1))], &["q"]);
    case(&surging, vec![("p", current(2)), ("q", current(2))], &["q"]);
    // The template changed again, so both pods are outdated. The Ready pod stays.
    case(
        &surging,
        vec![("p", old(1).broken()), ("q", old(1))],
        &["p"],
    );
    case(
        &surging,
        vec![("p", old(1)), ("q", old(1).broken())],
        &["q"],
    );
    case(
        &surging,
        vec![("p", old(1).broken()), ("q", old(1).broken())],
        &["q"],
    );
    // While the revisions are unknown, either pod may be the new one. With surge, both stay.
    let unknown = |pod| Pod {
        revision: PodRevision::Unknown,
        ..pod
    };
    let both = || vec![("p", unknown(old(1))), ("q", unknown(current(2)))];
    case(&surging, both(), &[]);
    case(&plain, both(), &["q"]);
    // An old pod and its surge pod both stay, even after `max-surge` was removed from the settings.
    let beside = Pod {
        surge: true,
        ..current(2)
    };
    case(&plain, vec![("p", old(1)), ("q", beside)], &[]);
    // Terminating and ended pods don't count as a second pod.
    let going = || vec![("p", terminating(old(1))), ("q", current(2))];
    case(&plain, going(), &[]);
    case(&plain, vec![("p", over(old(1))), ("q", current(2))], &["p"]);
    // If two pods have the same creation time, the one whose name comes first stays.
    let mut same = with("a", vec![("p", old(1)), ("o", old(1))]);
    same.pods.iter_mut().for_each(|pod| pod.created = at(0));
    assert_eq!(deleted(&plain.manage(vec![same])), ["p"]);
}

#[test]
fn missing_pods_are_created_regardless_of_the_rollout() {
    let nodes = || vec![empty("a"), node("b", old(1))];
    let paused = Strategy {
        pause: Some(crate::core::Pause::Indefinite),
        ..Strategy::with_mode(Mode::AdvancedRollingUpdate)
    };
    let strategies = [
        None, // no valid settings
        Some(Strategy::with_mode(Mode::OnDelete)),
        Some(Strategy::with_mode(Mode::Ota)),
        Some(paused),
    ];
    for strategy in strategies {
        let given = Given {
            strategy,
            ..Given::default()
        };
        assert_eq!(created(&given.manage(nodes())), ["a"]);
    }
}

#[test]
fn a_pod_that_is_being_created_is_not_created_twice() {
    let given = Given {
        creating: BTreeMap::from([("a".into(), at(99))]),
        ..Given::default()
    };
    assert_eq!(created(&given.manage(vec![empty("a"), empty("b")])), ["b"]);
}

#[test]
fn burst_replicas_limits_creations_and_deletions() {
    #[track_caller]
    fn case(burst: IntOrPercent, made: usize, gone: usize) {
        let given = Given {
            scaling: Scaling {
                burst,
                ..Scaling::default()
            },
            ..Given::default()
        };
        let names = ["a", "b", "c", "d", "e"];
        let done = given.manage(names.map(empty).into());
        assert_eq!(created(&done), names[..made]);
        let misplaced = names.map(|name| {
            let mut pods = with(name, vec![(name, old(1))]);
            pods.native = Targeting::No;
            pods
        });
        let mut nodes = Vec::from(misplaced);
        nodes.extend(["f", "g", "h", "i", "j"].map(|name| node(name, current(2))));
        let done = given.manage(nodes);
        assert_eq!(deleted(&done), names[..gone]);
        assert_eq!(done.leaving.len(), 5, "also those whose turn has not come");
        assert_eq!(done.wake.is_some(), gone < 5);
    }
    case(IntOrPercent::Number(2), 2, 2);
    case(IntOrPercent::Number(250), 5, 5);
    // A percentage refers to the targeted nodes. At least one pod is allowed (kruise#2512).
    case(IntOrPercent::Percent(50), 2, 2);
    case(IntOrPercent::Percent(1), 1, 1);
    case(IntOrPercent::Percent(100), 5, 5);
}

#[test]
fn pods_on_untargeted_nodes_are_deleted_all_at_once() {
    let names = ["a", "b", "c"];
    let misplaced = names.map(|name| on(Targeting::No, node(name, old(1))));
    assert_eq!(deleted(&Given::default().manage(misplaced.into())), names);
}

#[test]
fn ended_pods_are_reported_only_when_they_are_deleted() {
    let given = Given {
        scaling: Scaling {
            burst: IntOrPercent::Number(1),
            ..Scaling::default()
        },
        ..Given::default()
    };
    let done = given.manage(vec![node("a", over(old(1))), node("b", over(old(1)))]);
    assert_eq!(deleted(&done), ["a"]);
    assert_eq!(done.over, [("a".into(), "a".into())]);
}

#[test]
fn ended_pods_in_backoff_are_not_reported_and_the_first_backoff_wakes() {
    let mut backoff = FailedPodsBackoff::default();
    let (a, b): (NodeName, NodeName) = ("a".into(), "b".into());
    backoff.note(&a, at(99));
    backoff.note(&a, at(100));
    backoff.note(&b, at(100));
    let given = Given {
        backoff,
        ..Given::hooked()
    };
    let asked = Exit {
        preparing: Some(PreDeleteHook { since: None }),
        ..(*old(1).labelled("drain", "true").exit).clone()
    };
    let asked = Pod {
        exit: asked.into(),
        ..over(old(1))
    };
    // The pods of a and b wait for their backoff, and the pod of d waits for its hook, so only the pod of c is deleted.
    let done = given.manage(vec![
        node("a", over(old(1))),
        node("b", over(old(1))),
        node("c", over(old(1))),
        node("d", asked),
    ]);
    assert_eq!((deleted(&done), done.wake), (vec!["c"], Some(at(101))));
    assert_eq!(done.over, [("c".into(), "c".into())]);
    // Ended pods of node a were deleted repeatedly, so its backoff is long. This doesn't block other nodes.
    let mut backoff = FailedPodsBackoff::default();
    (0..3).for_each(|_| backoff.note(&a, at(100)));
    let given = Given {
        backoff,
        scaling: Scaling {
            burst: IntOrPercent::Number(1),
            ..Scaling::default()
        },
        ..Given::default()
    };
    let done = given.manage(vec![
        node("a", over(old(1))),
        node("b", over(old(1))),
        node("c", over(old(1))),
    ]);
    assert_eq!((deleted(&done), done.wake), (vec!["b"], Some(at(101))));
}

#[test]
fn percentages_of_burst_replicas_include_nodes_that_are_only_counted() {
    let given = Given {
        scaling: Scaling {
            burst: IntOrPercent::Percent(50),
            ..Scaling::default()
        },
        ..Given::default()
    };
    let fleet = Fleet {
        crowd: crate::core::Crowd {
            done: 4,
            ..Default::default()
        },
        ..fleet(["a", "b", "c", "d"].map(empty).into())
    };
    assert_eq!(manage(&fleet, given.terms()).create.len(), 4);
}

#[test]
fn combined_actions_delete_each_pod_once_and_transfer_no_ownership() {
    let reference = |name: &str| {
        node(name, old(1))
            .pods
            .iter()
            .next()
            .expect("a pod")
            .reference()
    };
    let retired = |name: &str, evict| Action::DeleteAfterSurge {
        pod: reference(name),
        successor: reference("new"),
        evict,
    };
    let misplaced = on(Targeting::No, node("a", old(1)));
    let done = Given::default().manage(vec![misplaced]);
    let rolled = vec![
        Action::Evict(reference("a")),
        retired("b", false),
        retired("c", true),
        Action::TransferOwnership(reference("d")),
        Action::Delete(reference("e")),
    ];
    let expected = [
        Action::Delete(reference("a")),
        Action::Delete(reference("b")),
        Action::Evict(reference("c")),
        Action::Delete(reference("e")),
    ];
    assert_eq!(done.with_rollout(rolled), expected);
}

#[test]
fn the_backoff_of_ended_pods_doubles_and_resets_after_half_an_hour() {
    let mut backoff = FailedPodsBackoff::default();
    let name = NodeName::from("a");
    let (mut now, mut pauses) = (0, Vec::new());
    for _ in 0..12 {
        assert_eq!(backoff.holds(&name, at(now)), None);
        backoff.note(&name, at(now));
        let until = backoff.holds(&name, at(now)).unwrap().as_second();
        pauses.push(until - now);
        assert!(backoff.holds(&name, at(until - 1)).is_some());
        now = until;
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900]);
    assert_eq!(backoff.holds(&"b".into(), at(now - 1)), None);
    // The backoff starts over half an hour after the end of the last pause, not earlier.
    let mut within = backoff.clone();
    within.note(&name, at(now + 1799));
    assert_eq!(
        within.holds(&name, at(now + 1799)),
        Some(at(now + 1799 + 900))
    );
    let mut after = backoff.clone();
    after.note(&name, at(now + 1800));
    assert_eq!(after.holds(&name, at(now + 1800)), Some(at(now + 1801)));
    backoff.reset();
    assert_eq!(backoff, FailedPodsBackoff::default());
}

#[test]
fn an_ended_pod_in_backoff_is_kept_and_no_second_pod_is_created() {
    let mut backoff = FailedPodsBackoff::default();
    backoff.note(&"a".into(), at(100));
    for given in [Given::default(), Given::surging()] {
        let given = Given {
            backoff: backoff.clone(),
            ..given
        };
        let done = given.manage(vec![node("a", over(current(2)))]);
        let expected = Manage {
            leaving: ["a".into()].into(),
            wake: Some(at(101)),
            ..Manage::default()
        };
        assert_eq!(done, expected);
        // The backoff is per node, so an ended pod of another node is deleted immediately.
        let done = given.manage(vec![node("b", over(current(2)))]);
        assert_eq!((deleted(&done), done.over.len()), (vec!["b"], 1));
        let later = Given { now: 101, ..given };
        let done = later.manage(vec![node("a", over(current(2)))]);
        assert_eq!((deleted(&done), done.wake), (vec!["a"], None));
    }
}

#[test]
fn a_pod_is_marked_for_its_hook_before_it_is_deleted() {
    let given = Given::hooked();
    let misplaced = |pod| on(Targeting::No, node("a", pod));
    let hooked = || old(1).labelled("drain", "true");
    let waiting = |pod: Pod| {
        let exit = Exit {
            preparing: Some(PreDeleteHook { since: None }),
            ..(*pod.exit).clone()
        };
        Pod {
            exit: exit.into(),
            ..pod
        }
    };
    let done = given.manage(vec![misplaced(hooked())]);
    let [
        Action::Mark {
            pod,
            preparing,
            gate,
        },
    ] = &done.actions[..]
    else {
        panic!("{:?}", done.actions);
    };
    assert_eq!(
        (pod.name.as_str(), *preparing, gate),
        ("a", Some(true), &None)
    );
    assert!(done.leaving.contains(&"a".into()));
    // The mark is written once. The pod is deleted when its label no longer has the value of the hook, or when the settings no
    // longer contain the hook.
    let done = given.manage(vec![misplaced(waiting(hooked()))]);
    assert_eq!((done.actions.len(), done.leaving.len()), (0, 1));
    let released = old(1).labelled("drain", "false");
    assert_eq!(
        deleted(&given.manage(vec![misplaced(waiting(released))])),
        ["a"]
    );
    let nobody = Given::default();
    assert_eq!(
        deleted(&nobody.manage(vec![misplaced(waiting(hooked()))])),
        ["a"]
    );
    // An ended pod also waits for its hook. It is in `over` only when it is deleted.
    let done = given.manage(vec![node("a", over(hooked()))]);
    assert!(matches!(done.actions[..], [Action::Mark { .. }]));
    assert_eq!(done.over, []);
    // `burstReplicas` limits creations and deletions, not marks.
    let given = Given {
        scaling: Scaling {
            burst: IntOrPercent::Number(1),
            ..Scaling::default()
        },
        ..given
    };
    let three = ["a", "b", "c"].map(|name| on(Targeting::No, node(name, hooked())));
    let done = given.manage(three.into());
    assert_eq!((done.actions.len(), done.wake), (3, None));
}

/// Cases from a test of Kruise. `made` lists the nodes that get a pod, in this order.
#[test]
fn partitioned_scaling_creates_as_many_pods_as_the_partition_allows() {
    #[track_caller]
    fn case(new: usize, desired: usize, partition: u32, on: bool, empties: &[u32], made: &[u32]) {
        let name = |number: &u32| format!("node-{number}");
        let mut nodes: Vec<Node> = empties.iter().map(|number| empty(&name(number))).collect();
        let holders = desired.saturating_sub(empties.len());
        nodes.extend((0..holders).map(|number| {
            let pod = if number < new { current(2) } else { old(1) };
            node(&format!("held-{number:02}"), pod)
        }));
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        let strategy = Strategy {
            partition: IntOrPercent::Number(partition),
            ..Strategy::with_mode(Mode::AdvancedRollingUpdate)
        };
        let given = Given {
            strategy: Some(strategy),
            scaling: Scaling {
                partitioned: on,
                ..Scaling::default()
            },
            ..Given::default()
        };
        let expected: Vec<String> = made.iter().map(name).collect();
        assert_eq!(created(&given.manage(nodes)), expected);
    }
    let to = |from: u32, to: u32| (from..=to).collect::<Vec<u32>>();
    case(10, 10, 0, false, &[], &[]);
    case(0, 10, 10, true, &to(0, 9), &[]);
    case(0, 10, 9, true, &to(0, 9), &[0]);
    case(1, 10, 5, true, &to(1, 9), &[1, 2, 3, 4]);
    case(5, 12, 5, true, &to(5, 11), &[10, 11]);
    case(4, 9, 5, true, &[5, 6, 7, 9, 10], &[]);
    case(4, 9, 0, true, &[5, 6, 7, 9, 10], &[10, 5, 6, 7, 9]);
    case(9, 12, 0, true, &[12, 13, 14], &[12, 13, 14]);
    case(0, 10, 10, false, &[], &[]);
    case(0, 10, 9, false, &[], &[]);
    case(0, 10, 9, false, &[1], &[1]);
    case(1, 10, 5, false, &[], &[]);
    case(1, 10, 5, false, &to(2, 5), &to(2, 5));
    case(5, 12, 5, false, &[11, 12], &[11, 12]);
    case(7, 12, 0, false, &[], &[]);
    case(7, 12, 0, false, &to(6, 10), &[10, 6, 7, 8, 9]);
    case(0, 20, 20, false, &[], &[]);
    case(0, 20, 15, true, &to(11, 20), &to(11, 15));
    case(5, 20, 10, true, &to(16, 20), &to(16, 20));
    case(10, 10, 100, false, &[], &[]);
    case(5, 10, 100, true, &to(5, 10), &[]);
    case(5, 10, 5, false, &[6], &[6]);
    case(6, 10, 5, false, &[], &[]);
}

/// In contrast to Kruise, a node whose pod the rollout deleted gets a pod before nodes with lower names.
#[test]
fn nodes_emptied_by_the_rollout_get_pods_first() {
    let given = Given::partitioned(IntOrPercent::Percent(50));
    let rolled = Node {
        emptied: true,
        ..empty("d")
    };
    let nodes = || {
        vec![
            empty("a"),
            node("b", old(1)),
            node("c", current(2)),
            rolled.clone(),
        ]
    };
    assert_eq!(created(&given.manage(nodes())), ["d"]);
    // The old pod of node d is terminating. Its next pod already counts toward the pods that `partition` allows, so node a gets
    // none.
    let leaves = Node {
        emptied: true,
        ..node("d", terminating(old(1)))
    };
    let first = vec![empty("a"), node("b", old(1)), node("c", current(2)), leaves];
    assert_eq!(created(&given.manage(first)), [""; 0]);
    // Nodes e and f should run no pod, so the partition ignores them. The pod of g is terminating, but the rollout didn't delete
    // it, so g comes after d.
    let others = || {
        let gone = Node {
            readiness: Readiness::Gone,
            ..node("e", current(2))
        };
        let misplaced = on(Targeting::Keep, node("f", current(2)));
        let going = node("g", terminating(current(2)));
        [nodes(), vec![gone, misplaced, going]].concat()
    };
    assert_eq!(created(&given.manage(others())), ["d"]);
    // A pod was requested for node d. It counts as existing, so no other pod is created.
    let given = Given {
        creating: BTreeMap::from([("d".into(), at(99))]),
        ..given
    };
    assert_eq!(created(&given.manage(nodes())), [""; 0]);
    // Under `OnDelete`, the partition doesn't apply, so node a gets a pod.
    let given = Given {
        strategy: given.strategy.map(|strategy| Strategy {
            mode: Mode::OnDelete,
            ..strategy
        }),
        ..given
    };
    assert_eq!(created(&given.manage(nodes())), ["a"]);
}

/// Regression test from a real cluster. A user had deleted a pod. Its node stayed empty, and another node got the pod.
#[test]
fn nodes_that_had_a_pod_get_one_before_nodes_that_never_had_one() {
    let given = Given::partitioned(IntOrPercent::Number(3));
    let had = |name: &str| Node {
        had_pod: true,
        podless_since: Some(at(50)),
        ..empty(name)
    };
    let others = || vec![node("b", current(2)), empty("d"), empty("e")];
    let beside = |last: Node| [others(), vec![last]].concat();
    assert_eq!(created(&given.manage(beside(had("z")))), [""; 0]);
    let given = Given::partitioned(IntOrPercent::Number(2));
    assert_eq!(created(&given.manage(beside(had("z")))), ["z"]);
    assert_eq!(created(&given.manage(beside(empty("z")))), ["d"]);
    // Node y lost its pod before z did and got no new one. The next pod is for z, not for y.
    let before = Node {
        podless_since: Some(at(40)),
        ..had("y")
    };
    let both = [others(), vec![before, had("z")]].concat();
    let one = Given::partitioned(IntOrPercent::Number(3));
    assert_eq!(created(&one.manage(both)), ["z"]);
    // While the pod of z is terminating, the next pod is reserved for z, so no other pod is created.
    let ends = node("z", terminating(current(2)));
    assert_eq!(created(&given.manage(beside(ends))), [""; 0]);
    // An ended pod counts as gone, so z gets its new pod immediately.
    let failed = node("z", terminating(over(current(2))));
    assert_eq!(created(&given.manage(beside(failed))), ["z"]);
}

/// Regression test from a real cluster: `partition` was raised just after the rollout had deleted pods.
///
/// The nodes of the deleted pods got no new pods, and the rollout reported the pods as missing.
#[test]
fn pods_deleted_by_the_rollout_are_recreated_even_if_the_partition_is_raised() {
    let rolled = |name: &str| Node {
        emptied: true,
        had_pod: true,
        podless_since: Some(at(0)),
        ..empty(name)
    };
    let deleted = Node {
        had_pod: true,
        podless_since: Some(at(0)),
        ..empty("d")
    };
    let nodes = || {
        vec![
            node("a", current(2)),
            rolled("b"),
            rolled("c"),
            deleted.clone(),
            node("e", old(1)),
        ]
    };
    for partition in [IntOrPercent::Number(5), IntOrPercent::Percent(100)] {
        let given = Given::partitioned(partition);
        let told = |nodes| decide(given.strategy.as_ref().unwrap(), &fleet(nodes), at(100_000));
        assert_eq!(created(&given.manage(nodes())), ["b", "c"]);
        // A node that `partition` leaves without a pod has the verdict `Partition` from the start. Its pod is never reported as
        // missing.
        let plan = told(nodes());
        assert_eq!(plan.verdicts[3..], [Verdict::Partition, Verdict::Partition]);
        let missing =
            |verdict: &Verdict| matches!(verdict, Verdict::InProgress(Progress::Missing { .. }));
        assert!(plan.verdicts[1..3].iter().all(missing));
        let mut nodes = nodes();
        (nodes[1], nodes[2]) = (node("b", current(3)), node("c", current(3)));
        let phase = told(nodes).phase;
        assert!(
            matches!(phase, Phase::Complete { kept: 2, .. }),
            "{phase:?}"
        );
    }
}

#[test]
fn status_counts_use_the_first_pod_of_each_node() {
    #[track_caller]
    fn case(native: Targeting, pods: Vec<Pod>, expected: DaemonSetCounts) {
        let node = with("a", pods.into_iter().map(|pod| ("p", pod)).collect());
        let pods: Vec<&Pod> = node.pods.iter().collect();
        let mut counts = DaemonSetCounts::default();
        counts.add(native, &pods, Duration::from_secs(20), at(30));
        assert_eq!(counts, expected);
    }
    let none = DaemonSetCounts::default();
    let desired = DaemonSetCounts {
        desired: 1,
        unavailable: 1,
        ..none
    };
    case(Targeting::No, vec![], none);
    case(Targeting::Keep, vec![], none);
    let misscheduled = DaemonSetCounts {
        misscheduled: 1,
        ..none
    };
    case(Targeting::No, vec![old(1)], misscheduled);
    case(Targeting::Keep, vec![old(1), current(2)], misscheduled);
    case(Targeting::Run, vec![], desired);
    let held = DaemonSetCounts {
        current: 1,
        ..desired
    };
    case(Targeting::Run, vec![old(1).broken()], held);
    let available = DaemonSetCounts {
        ready: 1,
        available: 1,
        unavailable: 0,
        ..held
    };
    // The pod has been Ready since second 10, so it is available at second 30.
    case(Targeting::Run, vec![old(1)], available);
    let young = Pod {
        ready_since: Some(at(11)),
        ..current(2)
    };
    let updated = DaemonSetCounts {
        ready: 1,
        updated: 1,
        ..held
    };
    case(Targeting::Run, vec![young.clone()], updated);
    // If a node has an old pod and a surge pod, the old pod determines the counts. The exception is an old pod that no kubelet has
    // accepted yet.
    case(Targeting::Run, vec![old(1), young.clone()], available);
    case(Targeting::Run, vec![unbound(old(1)), young], updated);
}

/// Regression test from a real cluster. A finalizer kept an ended pod, which was counted instead of the running pod next to it.
#[test]
fn an_ended_pod_is_not_counted_instead_of_the_running_one() {
    let mut ended = old(1);
    ended.terminating = true;
    ended.ready_since = None;
    ended.created = at(-100);
    let runs = Pod {
        created: at(0),
        ..current(2)
    };
    let mut counts = DaemonSetCounts::default();
    counts.add(Targeting::Run, &[&ended, &runs], Duration::ZERO, at(100));
    let expected = DaemonSetCounts {
        desired: 1,
        current: 1,
        ready: 1,
        available: 1,
        updated: 1,
        ..DaemonSetCounts::default()
    };
    assert_eq!(counts, expected);
}
