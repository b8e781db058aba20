//! Tests with Jobs and pods recorded on Kubernetes 1.36 with containerd 1.6 (`seen/`), and the expected states of the pulls.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::*;

fn case(seen: &str) -> PullStatus {
    let seen: Value = serde_json::from_str(seen).unwrap();
    let job = serde_json::from_value(seen["job"].clone()).unwrap();
    let pod: Option<Pod> = serde_json::from_value(seen["pod"].clone()).unwrap();
    status(&job, pod.as_ref())
}

#[track_caller]
fn assert_failed(status: PullStatus, words: &str) {
    match status {
        PullStatus::Failed(why) => assert!(why.contains(words), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn assert_problem(status: PullStatus, expected: Problem, words: &str) {
    match status {
        PullStatus::Problem(problem, why) if problem == expected => {
            assert!(why.contains(words), "{why}")
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn any_state_after_the_pull_counts_as_pulled() {
    for seen in [
        include_str!("seen/completed.json"),
        include_str!("seen/no_such_program.json"),
        include_str!("seen/refuses_root.json"),
    ] {
        assert_eq!(case(seen), PullStatus::Pulled, "{seen}");
    }
}

#[test]
fn a_download_in_progress_is_pulling() {
    let seen = include_str!("seen/downloading.json");
    assert_eq!(case(seen), PullStatus::Pulling);
}

#[test]
fn permanent_image_errors_fail_at_once() {
    assert_failed(
        case(include_str!("seen/missing.json")),
        "plain:1x: not found",
    );
    let backing_off = include_str!("seen/backing_off_missing.json");
    assert_failed(
        case(backing_off),
        "ImagePullBackOff: Back-off pulling image",
    );
    assert_failed(
        case(include_str!("seen/invalid_name.json")),
        "must be lowercase",
    );
    assert_failed(
        case(include_str!("seen/never_pull.json")),
        "ErrImageNeverPull",
    );
    assert_failed(case(include_str!("seen/no_room.json")), "OutOfcpu: ");
}

#[test]
fn a_refused_connection_fails_only_the_attempt() {
    let seen = include_str!("seen/refused.json");
    assert_problem(case(seen), Problem::AttemptFailed, "connection refused");
}

#[test]
fn a_job_without_a_pod_has_the_problem_no_pod() {
    let seen = include_str!("seen/no_pod.json");
    assert_problem(case(seen), Problem::NoPod, "no pod was made");
}

/// Returns a pod with two containers in these states.
fn pod(phase: &str, states: [Value; 2]) -> Pod {
    let names = ["prepull-0", "prepull-1", "side-car"];
    let containers = names.map(|name| json!({ "name": name, "image": "i" }));
    let statuses = names[..2].iter().zip(states).map(|(name, state)| {
        json!({
            "name": name, "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state,
        })
    });
    let pod = json!({
        "spec": { "containers": containers },
        "status": { "phase": phase, "containerStatuses": statuses.collect::<Vec<_>>() },
    });
    serde_json::from_value(pod).unwrap()
}

fn waiting(reason: &str, message: &str) -> Value {
    json!({ "waiting": { "reason": reason, "message": message } })
}

#[test]
fn a_pull_needs_all_images_and_fails_with_any_of_them() {
    let running = || json!({ "running": {} });
    let ended = |reason: &str| json!({ "terminated": { "exitCode": 137, "reason": reason } });
    let status_of = |phase, states| status(&Job::default(), Some(&pod(phase, states)));
    assert_eq!(
        status_of("Running", [running(), running()]),
        PullStatus::Pulled
    );
    assert_eq!(
        status_of("Pending", [running(), json!({})]),
        PullStatus::Pulling
    );
    assert_eq!(
        status_of(
            "Running",
            [ended("Error"), waiting("ContainerCreating", "")]
        ),
        PullStatus::Pulling
    );
    let denied = waiting(
        "ErrImagePull",
        "pull access denied, repository does not exist",
    );
    assert_failed(status_of("Running", [running(), denied]), "access denied");
    let backs_off = waiting("ImagePullBackOff", "Back-off pulling image");
    assert_eq!(
        status_of("Pending", [running(), backs_off]),
        PullStatus::BackingOff
    );
    // The pod was evicted before the second image was pulled. `ContainerStatusUnknown` means that the kubelet never ran the second
    // container.
    let lost = ended(NEVER_SEEN);
    assert_failed(
        status_of("Failed", [ended("Error"), lost]),
        "its pod failed",
    );
}

#[test]
fn the_job_condition_decides_where_its_pod_shows_no_result() {
    let ended = |kind: &str, reason: &str| -> Job {
        let conditions = [json!({ "type": kind, "status": "True", "reason": reason })];
        let job = json!({
            "spec": { "activeDeadlineSeconds": 90, "template": {} },
            "status": { "conditions": conditions },
        });
        serde_json::from_value(job).unwrap()
    };
    assert_eq!(status(&ended("Complete", ""), None), PullStatus::Pulled);
    let late = status(&ended("Failed", "DeadlineExceeded"), None);
    assert_failed(late, "not done within 1m 30s");
    // The Job's deadline has passed, so its pod was deleted. The watch may report the deletion before the end of the Job.
    let mut killed = pod("Failed", [json!({}), json!({})]);
    killed.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    let unclear = status(&Job::default(), Some(&killed));
    assert_eq!(unclear, PullStatus::Pulling);
    let late = status(&ended("Failed", "DeadlineExceeded"), Some(&killed));
    assert_failed(late, "not done within 1m 30s");
    let gone = status(&ended("Failed", "BackoffLimitExceeded"), None);
    assert_problem(gone, Problem::PodLost, "its pod is gone");
    let pod = pod(
        "Failed",
        [
            json!({ "terminated": { "exitCode": 128 } }),
            json!({ "running": {} }),
        ],
    );
    let failed = ended("Failed", "BackoffLimitExceeded");
    assert_eq!(status(&failed, Some(&pod)), PullStatus::Pulled);
}

#[test]
fn a_pod_without_a_sandbox_has_the_problem_not_starting() {
    let mut stuck = pod(
        "Pending",
        [
            waiting("ContainerCreating", ""),
            waiting("ContainerCreating", ""),
        ],
    );
    let condition = json!([{ "type": "PodReadyToStartContainers", "status": "False" }]);
    stuck.status.as_mut().unwrap().conditions = serde_json::from_value(condition).unwrap();
    assert_problem(
        status(&Job::default(), Some(&stuck)),
        Problem::NotStarting,
        "network plug-in",
    );
}
