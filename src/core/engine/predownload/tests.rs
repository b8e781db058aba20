//! Tests of image pre-pulls: which nodes pull first, when a failed pull is retried, and how the settings change the order and the
//! retries.

use std::sync::Arc;

use super::*;
use crate::core::fleet::OtaCondition;
use crate::core::testing::{self, at};
use crate::core::{Phase, Plan, PullsAwait, Readiness, Stall, decide};

fn required(nodes: u32) -> Strategy {
    Strategy {
        image_predownload_parallelism: Some(IntOrPercent::Number(nodes)),
        predownload: Some(Predownload::Required),
        max_unavailable: IntOrPercent::Percent(100),
        ..Strategy::with_mode(Mode::AdvancedRollingUpdate)
    }
}

fn best_effort(nodes: u32) -> Strategy {
    Strategy {
        predownload: None,
        max_unavailable: IntOrPercent::Number(1),
        ..required(nodes)
    }
}

/// Returns a fleet of nodes a, b, … Each has an old pod with one of the given conditions `PodImageReady`.
fn fleet(images: &[Option<OtaCondition>]) -> Fleet {
    let names = ["a", "b", "c", "d"].into_iter();
    let nodes = names.zip(images).map(|(name, image)| {
        let image_ready = image.clone().map(Box::new);
        let pod = Pod {
            image_ready,
            ..testing::old(1)
        };
        testing::node(name, pod)
    });
    testing::fleet(nodes.collect())
}

fn image(status: bool, waits: bool, revision: &str) -> Option<OtaCondition> {
    Some(OtaCondition {
        status,
        revision: Some(revision.into()),
        waits,
        repelled: false,
        failure: None,
    })
}

fn pulled() -> Option<OtaCondition> {
    image(true, false, "new")
}

fn asks() -> Option<OtaCondition> {
    image(false, true, "new")
}

fn failed(asked: i64, failed: i64) -> Option<OtaCondition> {
    let failure = PullFailure {
        asked: at(asked),
        failed: at(failed),
        why: "manifest unknown".into(),
    };
    image(false, false, "new").map(|image| OtaCondition {
        failure: Some(Arc::new(failure)),
        ..image
    })
}

fn decided(strategy: &Strategy, images: &[Option<OtaCondition>], now: i64) -> Plan {
    decide(strategy, &fleet(images), at(now))
}

/// Returns three lists of pod names: pods with a new request to pull, deleted pods, and pods that lose their condition
/// `PodImageReady`.
fn written(plan: &Plan) -> [Vec<&str>; 3] {
    let named = |wanted: fn(&Action) -> bool| {
        let actions = plan.actions.iter().filter(|action| wanted(action));
        actions.map(|action| action.pod().name.as_str()).collect()
    };
    [
        named(|action| matches!(action, Action::AskForImages { .. })),
        named(|action| matches!(action, Action::Delete(_))),
        named(|action| matches!(action, Action::RemoveConditions { .. })),
    ]
}

const NOBODY: Vec<&str> = Vec::new();

#[test]
fn images_are_pre_pulled_only_if_a_setting_enables_it() {
    let of = |strategy: &Strategy| Predownloading::from_strategy(strategy);
    assert_eq!(of(&Strategy::with_mode(Mode::AdvancedRollingUpdate)), None);
    assert_eq!(of(&required(0)), None);
    let ota = Strategy {
        mode: Mode::Ota,
        ..required(2)
    };
    assert_eq!(of(&ota), None);
    let settings = |required| {
        Some(Predownloading {
            parallelism: IntOrPercent::Number(2),
            required,
            only_in_place: false,
            min_updated_ready: IntOrPercent::Number(0),
        })
    };
    assert_eq!(of(&required(2)), settings(true));
    assert_eq!(of(&best_effort(2)), settings(false));
}

#[test]
fn in_place_images_are_pre_pulled_unless_the_setting_disables_it() {
    let in_place = |parallelism, predownload| Strategy {
        rolling_update_type: RollingUpdateType::InPlaceIfPossible,
        image_predownload_parallelism: parallelism,
        predownload,
        ..best_effort(2)
    };
    let of = |parallelism, predownload| {
        let settings = Predownloading::from_strategy(&in_place(parallelism, predownload))?;
        Some((
            settings.parallelism,
            settings.required,
            settings.only_in_place,
        ))
    };
    let budget = IntOrPercent::Number(1);
    assert_eq!(of(None, None), Some((budget, true, true)));
    let waits_for_none = of(None, Some(Predownload::BestEffort));
    assert_eq!(waits_for_none, Some((budget, false, true)));
    let two = IntOrPercent::Number(2);
    assert_eq!(of(Some(two), None), Some((two, true, false)));
    assert_eq!(of(Some(IntOrPercent::Number(0)), None), None);
}

#[test]
fn required_pre_pulls_fill_the_parallelism_and_pulled_nodes_are_replaced() {
    let plan = decided(&required(2), &[pulled(), None, None, None], 100);
    assert_eq!(written(&plan), [vec!["b", "c"], vec!["a"], NOBODY]);
    let queued = Verdict::PullPending(PullStage::Queued { failed: false });
    assert_eq!(plan.verdicts[1..], [queued, queued, queued]);
    let plan = decided(&required(2), &[asks(), asks(), None], 100);
    assert_eq!(written(&plan), [NOBODY, NOBODY, NOBODY]);
    assert!(
        plan.pulls
            .iter()
            .all(|pull| pull.may_start && pull.may_report)
    );
    assert_eq!(
        plan.verdicts[0],
        Verdict::PullPending(PullStage::UnderWay { again: false })
    );
}

#[test]
fn best_effort_replaces_without_waiting_and_pre_pulls_on_the_next_nodes() {
    let plan = decided(&best_effort(2), &[None, None, None, None], 100);
    assert_eq!(written(&plan), [vec!["b", "c"], vec!["a"], NOBODY]);
    assert_eq!(plan.verdicts[1], Verdict::Budget { broken: false });
}

#[test]
fn a_rejected_pull_request_takes_no_slot_from_the_next_node() {
    use crate::core::WriteVerb;
    for settings in [required(1), best_effort(1)] {
        let mut fleet = fleet(&[None, None, None, None]);
        // If images are not required (best effort), node a is replaced immediately. So the request for node b is the one that the
        // API server rejects.
        let refused = usize::from(settings.predownload.is_none());
        let node = &fleet.nodes[refused];
        let (name, uid) = (node.name.clone(), node.pods[0].uid.clone());
        let current = Revision::from("new");
        fleet.write_failures.keep_to(&current);
        fleet
            .write_failures
            .refuse((&name, Some(&uid)), WriteVerb::Tell, "no", at(100));
        let next = fleet.nodes[refused + 1].name.to_string();
        let plan = decide(&settings, &fleet, at(100));
        assert_eq!(written(&plan)[0], [next], "{:?}", plan.verdicts);
        assert_eq!(plan.refused.on(&name).count(), 1);
        // After an hour the request is retried. The node is then the one that may pull.
        let later = decide(&settings, &fleet, at(100 + 3600));
        assert_eq!(written(&later)[0], [name.to_string()]);
    }
}

#[test]
fn a_rejected_pull_result_takes_no_slot_from_the_next_node() {
    use crate::core::WriteVerb;
    let mut fleet = fleet(&[asks(), None]);
    let (name, uid) = (
        fleet.nodes[0].name.clone(),
        fleet.nodes[0].pods[0].uid.clone(),
    );
    fleet.write_failures.keep_to(&Revision::from("new"));
    fleet
        .write_failures
        .refuse((&name, Some(&uid)), WriteVerb::Tell, "no", at(100));
    let plan = decide(&required(1), &fleet, at(100));
    assert_eq!(written(&plan), [vec!["b"], NOBODY, NOBODY]);
    assert_eq!(plan.verdicts[0], Verdict::Refused { since: at(100) });
    // The pull on node a continues, although the API server rejects the write of its result.
    let begins: Vec<bool> = plan.pulls.iter().map(|pull| pull.may_start).collect();
    assert_eq!(begins, [true]);
}

#[test]
fn a_pull_result_of_another_revision_is_ignored() {
    let old = [image(true, false, "old"), image(false, true, "old")];
    let plan = decided(&required(1), &old, 100);
    // Both conditions `PodImageReady` name another revision. Node a is next and gets a new request. The request on node b is
    // withdrawn.
    assert_eq!(written(&plan), [vec!["a"], NOBODY, vec!["b"]]);
    let anew = |action: &Action| matches!(action, Action::AskForImages { anew: true, .. });
    assert!(plan.actions.iter().any(anew));
}

#[test]
fn a_failed_pull_is_retried_with_backoff_after_all_other_nodes() {
    #[track_caller]
    fn case(asked: i64, last: i64, expected: i64) {
        let plan = decided(&required(1), &[failed(asked, last)], last + 1);
        let retry = at(expected);
        assert_eq!(
            plan.verdicts,
            [Verdict::PullPending(PullStage::Failed { retry })]
        );
        assert_eq!(plan.next_wake, Some(retry));
        assert_eq!(plan.phase, Phase::Stalled(Stall::ImagesNotPulled));
        let plan = decided(&required(1), &[failed(asked, last), None], expected);
        assert_eq!(written(&plan)[0], ["b"]);
        let plan = decided(&required(1), &[failed(asked, last), pulled()], expected);
        assert_eq!(written(&plan), [vec!["a"], vec!["b"], NOBODY]);
    }
    case(1000, 1002, 1032);
    case(1000, 1040, 1080);
    case(1000, 1100, 1200);
    case(1000, 9000, 9900);
    // The times of request and failure come from different clocks, so the failure seems to be older than the request.
    case(1000, 900, 930);
}

#[test]
fn a_rollout_with_nodes_left_to_pull_is_not_stalled() {
    let phase = |images: &[_]| decided(&required(1), images, 1010).phase;
    assert_eq!(phase(&[failed(1000, 1002), None]), Phase::Progressing);
    let again = failed(1000, 1002).map(|image| OtaCondition {
        waits: true,
        ..image
    });
    assert_eq!(phase(&[again]), Phase::Stalled(Stall::ImagesNotPulled));
}

#[test]
fn requests_to_offline_and_excluded_nodes_are_withdrawn() {
    let mut offline = fleet(&[asks(), None]);
    offline.nodes[0].readiness = Readiness::NotReady { since: None };
    let plan = decide(&required(1), &offline, at(100));
    assert_eq!(written(&plan), [vec!["b"], NOBODY, vec!["a"]]);
    let kept = Strategy {
        partition: IntOrPercent::Number(1),
        ..required(1)
    };
    let plan = decided(&kept, &[None, asks()], 100);
    assert_eq!(written(&plan), [vec!["a"], NOBODY, vec!["b"]]);
    // The result of a finished pull stays on the pod, even if the node keeps its old pod.
    let plan = decided(&kept, &[None, pulled()], 100);
    assert_eq!(written(&plan), [vec!["a"], NOBODY, NOBODY]);
}

#[test]
fn a_lower_parallelism_keeps_running_pulls_and_starts_no_other() {
    let plan = decided(&required(1), &[asks(), asks(), None], 100);
    assert_eq!(written(&plan), [NOBODY, NOBODY, NOBODY]);
    let begins: Vec<bool> = plan.pulls.iter().map(|pull| pull.may_start).collect();
    assert_eq!(begins, [true, false]);
}

#[test]
fn without_the_annotation_pending_requests_and_results_are_removed() {
    let off = Strategy {
        image_predownload_parallelism: None,
        ..best_effort(1)
    };
    let plan = decided(&off, &[None, asks(), pulled()], 100);
    assert_eq!(written(&plan), [NOBODY, vec!["a"], vec!["b", "c"]]);
}

/// Returns a strategy and a fleet with the pods `first` and `old` outdated pods. Pulls begin when `ready` new pods are Ready.
fn awaiting(first: Vec<Pod>, old: usize, ready: u32, strategy: Strategy) -> (Strategy, Fleet) {
    let olds = std::iter::repeat_with(|| testing::old(1)).take(old);
    let names = ["a", "b", "c", "d", "e", "f"].into_iter();
    let nodes = names.zip(first.into_iter().chain(olds));
    let nodes = nodes.map(|(name, pod)| testing::node(name, pod)).collect();
    let strategy = Strategy {
        image_predownload_min_updated_ready_pods: IntOrPercent::Number(ready),
        ..strategy
    };
    (strategy, testing::fleet(nodes))
}

#[test]
fn no_pull_is_requested_before_enough_new_pods_are_ready() {
    let plan = |first: Vec<Pod>, ready| {
        let (strategy, fleet) = awaiting(first, 3, ready, best_effort(2));
        decide(&strategy, &fleet, at(100))
    };
    let ready = || testing::current(2);
    let early = plan(vec![ready()], 2);
    assert_eq!(written(&early), [NOBODY, vec!["b"], NOBODY]);
    let awaits = |ready, needed| Some(PullsAwait { ready, needed });
    assert_eq!(early.pulls_await, awaits(1, 2));
    // The second updated pod is not Ready yet.
    let starting = plan(vec![ready(), ready().broken()], 2);
    assert_eq!(written(&starting), [NOBODY, NOBODY, NOBODY]);
    assert_eq!(starting.pulls_await, awaits(1, 2));
    let enough = plan(vec![ready(), ready()], 2);
    assert_eq!(written(&enough), [vec!["d", "e"], vec!["c"], NOBODY]);
    assert_eq!(enough.pulls_await, None);
    // 26% of four targeted nodes is 1.04, rounded up to two nodes.
    let (strategy, fleet) = awaiting(vec![ready()], 3, 0, best_effort(2));
    let strategy = Strategy {
        image_predownload_min_updated_ready_pods: IntOrPercent::Percent(26),
        ..strategy
    };
    assert_eq!(decide(&strategy, &fleet, at(100)).pulls_await, awaits(1, 2));
}

#[test]
fn with_required_images_the_first_pods_update_without_them() {
    let plan = |first: Vec<Pod>, ready| {
        let (strategy, fleet) = awaiting(first, 3, ready, required(2));
        decide(&strategy, &fleet, at(100))
    };
    let awaiting = Verdict::PullPending(PullStage::AwaitingReady);
    let first = plan(vec![], 1);
    assert_eq!(written(&first), [NOBODY, vec!["a"], NOBODY]);
    assert_eq!(first.verdicts[1..], [awaiting, awaiting]);
    let starting = plan(vec![testing::current(2).broken()], 1);
    assert_eq!(written(&starting), [NOBODY, NOBODY, NOBODY]);
    assert_eq!(starting.verdicts[1..], [awaiting, awaiting, awaiting]);
    assert_eq!(starting.phase, Phase::Progressing);
    let enough = plan(vec![testing::current(2)], 1);
    assert_eq!(written(&enough), [vec!["b", "c"], NOBODY, NOBODY]);
    // Nine Ready pods are required, but there are only three nodes. The pulls can never begin, so the pods are replaced although
    // the images were not pulled.
    let all = plan(vec![], 9);
    assert_eq!(written(&all), [NOBODY, vec!["a", "b", "c"], NOBODY]);
}

#[test]
fn lost_nodes_and_nodes_with_images_take_no_slot_of_the_first_pods() {
    let lost = |pod: Pod| {
        let (strategy, mut fleet) = awaiting(vec![pod], 3, 1, required(2));
        fleet.nodes[0].readiness = Readiness::NotReady { since: None };
        decide(&strategy, &fleet, at(100))
    };
    for pod in [testing::current(2), testing::current(2).broken()] {
        assert_eq!(written(&lost(pod)), [NOBODY, vec!["b"], NOBODY]);
    }
    let (strategy, mut fleet) = awaiting(vec![], 3, 1, required(2));
    fleet.nodes[0].has_images = true;
    let plan = decide(&strategy, &fleet, at(100));
    assert_eq!(written(&plan), [NOBODY, vec!["a", "b"], NOBODY]);
    // An earlier plan requested the images on node a. The request stays, and node a waits for its images.
    let mut asked = testing::old(1);
    asked.image_ready = asks().map(Box::new);
    let (strategy, fleet) = awaiting(vec![asked], 2, 1, required(2));
    let plan = decide(&strategy, &fleet, at(100));
    assert_eq!(written(&plan), [NOBODY, vec!["b"], NOBODY]);
    assert!(plan.pulls.iter().all(|pull| pull.may_start));
}
