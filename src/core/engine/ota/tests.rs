//! Tests of pre-pulls under the strategy OTA in which the pod or the current revision changes.

use k8s_openapi::jiff::Timestamp;

use super::*;
use crate::core::{Labels, Node, Readiness, Targeting, testing};

const EPOCH: Timestamp = Timestamp::UNIX_EPOCH;

fn condition(status: bool, hash: Option<&str>, waits: bool) -> OtaCondition {
    OtaCondition {
        failure: None,
        repelled: false,
        status,
        revision: hash.map(Revision::from),
        waits,
    }
}

fn requested(hash: &str) -> Option<OtaCondition> {
    Some(condition(false, Some(hash), true))
}

fn pulled(hash: &str) -> Option<OtaCondition> {
    Some(condition(true, Some(hash), false))
}

/// Returns the condition of a failed pull. Its message names a Job and no revision.
fn failed() -> Option<OtaCondition> {
    Some(condition(false, None, false))
}

fn pod(revision: PodRevision, announced: &str, image: Option<OtaCondition>) -> Pod {
    Pod {
        name: "p".into(),
        uid: "u".into(),
        created: EPOCH,
        revision,
        ready_since: None,
        started: None,
        need_upgrade: Some(
            condition(revision == PodRevision::Outdated, Some(announced), false).into(),
        ),
        image_ready: image.map(Box::new),
        ..testing::old(0)
    }
}

fn fleet(pod: Pod, readiness: Readiness) -> Fleet {
    testing::fleet(vec![Node {
        labels: Labels::default(),
        hold: None,
        window: None,
        name: "n".into(),
        targeting: Targeting::Run,
        native: Targeting::Run,
        readiness,
        pods: [pod].into(),
        disrupted_at: None,
        emptied: false,
        kept_away_by: None,
        had_pod: false,
        losses: None,
        cut_off: false,
        podless_since: None,
        trouble: None,
        has_images: false,
    }])
}

#[test]
fn a_stale_request_is_renewed_and_a_stale_result_is_dropped() {
    #[track_caller]
    fn case(pod: Pod, expected: Option<StaleImage>) {
        assert_eq!(stale(&pod, &"new".into()), expected, "{pod:?}");
    }
    let outdated = |announced, image| pod(PodRevision::Outdated, announced, image);
    let current = |image| pod(PodRevision::Current, "new", image);
    case(outdated("new", None), None);
    case(outdated("new", requested("new")), None);
    case(outdated("new", pulled("new")), None);
    case(outdated("new", failed()), None);
    case(
        outdated("old", requested("old")),
        Some(StaleImage::AskAgain),
    );
    case(
        outdated("new", requested("old")),
        Some(StaleImage::AskAgain),
    );
    case(
        outdated("new", Some(condition(false, None, true))),
        Some(StaleImage::AskAgain),
    );
    case(outdated("old", pulled("old")), Some(StaleImage::Drop));
    case(outdated("old", failed()), Some(StaleImage::Drop));
    case(current(requested("old")), Some(StaleImage::Drop));
    case(current(requested("new")), Some(StaleImage::Drop));
    case(current(pulled("new")), None);
}

#[test]
fn a_new_revision_is_announced_and_its_images_requested_in_one_write() {
    let fleet = fleet(
        pod(PodRevision::Outdated, "old", requested("old")),
        Readiness::Ready { since: EPOCH },
    );
    let actions = announce(&fleet, &"new".into());
    assert_eq!(
        actions,
        [Action::SetNeedUpgrade {
            pod: fleet.nodes[0].pods[0].reference(),
            needed: true,
            revision: "new".into(),
            flips: false,
            repelled: false,
            stale_image: Some(StaleImage::AskAgain),
        }]
    );
    assert_eq!(pulls(&fleet, &"new".into(), false), []);
}

#[test]
fn the_announcement_follows_whether_a_new_pod_would_tolerate_the_taints() {
    let announced = |targeting, repelled| {
        let told = Some(
            OtaCondition {
                repelled,
                ..condition(true, Some("new"), false)
            }
            .into(),
        );
        let pod = Pod {
            need_upgrade: told,
            ..pod(PodRevision::Outdated, "new", None)
        };
        let mut fleet = fleet(pod, Readiness::Ready { since: EPOCH });
        fleet.nodes[0].targeting = targeting;
        let actions = announce(&fleet, &"new".into());
        actions.into_iter().next().map(|action| match action {
            Action::SetNeedUpgrade {
                needed: true,
                flips: false,
                repelled,
                ..
            } => repelled,
            other => panic!("{other:?}"),
        })
    };
    assert_eq!(announced(Targeting::Run, false), None);
    assert_eq!(announced(Targeting::Keep, false), Some(true));
    assert_eq!(announced(Targeting::Keep, true), None);
    assert_eq!(announced(Targeting::Run, true), Some(false));
}

#[test]
fn a_requested_pull_waits_while_its_node_is_offline_or_the_rollout_paused() {
    let asking = || pod(PodRevision::Outdated, "new", requested("new"));
    let begins = |readiness, paused| {
        let pulls = pulls(&fleet(asking(), readiness), &"new".into(), paused);
        assert_eq!(pulls.len(), 1);
        pulls[0].may_start
    };
    assert!(begins(Readiness::Ready { since: EPOCH }, false));
    assert!(!begins(Readiness::Ready { since: EPOCH }, true));
    assert!(!begins(Readiness::NotReady { since: None }, false));
    let gone = Pod {
        terminating: true,
        ..asking()
    };
    let online = Readiness::Ready { since: EPOCH };
    assert_eq!(pulls(&fleet(gone, online), &"new".into(), false), []);
}
