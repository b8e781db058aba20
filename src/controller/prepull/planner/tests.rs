//! Tests of limits, order and timeouts of image pulls, without a cluster.

use serde_json::json;

use super::*;
use crate::core::action::PULLS_AT_ONCE;
use crate::core::names::{PRE_PULL_DAEMONSET, PRE_PULL_POD, PRE_PULL_REVISION};
use crate::core::{PodRef, Pull, PullInitiator};
use kube::runtime::watcher::Event;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn pull(pod: &str) -> Pull {
    Pull {
        pod: PodRef {
            name: pod.into(),
            uid: format!("uid-{pod}").into(),
            resource_version: "10".into(),
        },
        node: format!("node-{pod}").into(),
        revision: "abc".into(),
        initiator: PullInitiator::Owner,
        may_start: true,
        may_report: true,
    }
}

fn desired(of: &[(&str, Vec<Pull>)]) -> DesiredPulls {
    let one = |(set, pulls): &(&str, Vec<Pull>)| {
        let key = SetKey::new("shop", set);
        let request = |pull: &Pull| PullRequest {
            key: key.clone(),
            set_uid: (*set).into(),
            generation: 1,
            timeout: Duration::from_secs(3600),
            pull: pull.clone(),
        };
        (key.clone(), pulls.iter().map(request).collect())
    };
    of.iter().map(one).collect()
}

/// Returns a store whose first lists of Jobs and pods are complete and empty.
fn job_store() -> JobStore {
    let mut job_store = JobStore::default();
    job_store.on_job(Event::Init);
    job_store.on_job(Event::InitDone);
    job_store.on_pod(Event::Init);
    job_store.on_pod(Event::InitDone);
    job_store
}

fn job(set: &str, pull: &Pull) -> Job {
    let uid = pull.pod.uid.to_string();
    let job = json!({
        "metadata": {
            "namespace": "shop", "name": format!("job-{uid}"), "uid": format!("job-{uid}"),
            "labels": { PRE_PULL_POD: uid },
            "annotations": { PRE_PULL_REVISION: "abc", PRE_PULL_DAEMONSET: set },
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid }],
        },
    });
    serde_json::from_value(job).unwrap()
}

fn pod(pull: &Pull, reason: &str) -> k8s_openapi::api::core::v1::Pod {
    let uid = pull.pod.uid.to_string();
    let waiting =
        json!({ "waiting": { "reason": reason, "message": "dial tcp: connection refused" } });
    let pod = json!({
        "metadata": {
            "uid": format!("pod-{uid}"),
            "ownerReferences": [{ "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": format!("job-{uid}") }],
        },
        "spec": { "containers": [{ "name": "prepull-0" }] },
        "status": { "phase": "Pending", "containerStatuses": [{
            "name": "prepull-0", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": waiting,
        }] },
    });
    serde_json::from_value(pod).unwrap()
}

/// Returns the names of the pods for which a pull begins.
fn begun(steps: &[PullStep]) -> Vec<String> {
    let begun = steps.iter().filter_map(|step| match step {
        PullStep::Create(request) => Some(request.pull.pod.name.to_string()),
        _ => None,
    });
    begun.collect()
}

fn many(prefix: &str, count: usize) -> Vec<Pull> {
    (0..count)
        .map(|n| pull(&format!("{prefix}{n:03}")))
        .collect()
}

#[test]
fn a_finished_pull_frees_its_slot_for_the_same_daemonset() {
    let (mut planner, mut job_store) = (Planner::default(), job_store());
    let wanted = |first: usize| desired(&[("a", many("a", 30)[first..].to_vec())]);
    planner.set_desired(&wanted(0));
    let (steps, _) = planner.next(&job_store, at(0));
    let at_once = begun(&steps).len();
    assert!((1..30).contains(&at_once), "{at_once}");
    let none = Vec::<String>::new();
    assert_eq!(begun(&planner.next(&job_store, at(0)).0), none);
    let first = &steps[0];
    let PullStep::Create(request) = first else {
        panic!("{first:?}")
    };
    let job = job("a", &request.pull);
    job_store.put(job.clone());
    planner.on_result(
        first,
        &PullStepResult::Created(Box::new(job.clone())),
        at(1),
    );
    assert_eq!(begun(&planner.next(&job_store, at(1)).0), none);
    planner.set_desired(&wanted(1));
    let (steps, _) = planner.next(&job_store, at(2));
    assert_eq!(begun(&steps), [format!("a{at_once:03}")]);
    assert!(
        steps.contains(&PullStep::Delete(JobRef::from_job(&job))),
        "{steps:?}"
    );
}

#[test]
fn daemonsets_take_turns_and_pulls_start_in_the_order_of_request() {
    let (mut planner, job_store) = (Planner::default(), JobStore::default());
    planner.set_desired(&desired(&[("b", vec![pull("z"), pull("y")])]));
    planner.set_desired(&desired(&[
        ("a", vec![pull("x")]),
        ("b", vec![pull("z"), pull("y")]),
    ]));
    // Before the existing Jobs are listed, no pull starts.
    assert_eq!(planner.next(&job_store, at(0)).0, []);
    assert_eq!(
        begun(&planner.next(&self::job_store(), at(0)).0),
        ["z", "x", "y"]
    );
}

#[test]
fn a_pull_on_an_offline_node_keeps_its_job_and_frees_its_slot() {
    let (mut planner, mut job_store) = (Planner::default(), job_store());
    let gone: Vec<Pull> = many("a", PULLS_AT_ONCE)
        .into_iter()
        .map(|pull| Pull {
            may_start: false,
            ..pull
        })
        .collect();
    for pull in &gone {
        job_store.put(job("a", pull));
    }
    let pulls = [gone, vec![pull("other")]].concat();
    planner.set_desired(&desired(&[("a", pulls)]));
    let (steps, wake) = planner.next(&job_store, at(0));
    assert_eq!(
        (begun(&steps), steps.len(), wake),
        (vec!["other".to_owned()], 1, None)
    );
    assert_eq!(planner.next(&job_store, at(4000)).0, []);
}

#[test]
fn a_pull_fails_when_an_attempt_fails_after_a_minute() {
    let (mut planner, mut job_store) = (Planner::default(), job_store());
    let pull = pull("a");
    planner.set_desired(&desired(&[("a", vec![pull.clone()])]));
    job_store.put(job("a", &pull));
    let mut look = |reason: &str, second: i64| {
        job_store.on_pod(Event::Apply(pod(&pull, reason)));
        planner.next(&job_store, at(second))
    };
    assert_eq!(look("ErrImagePull", 0), (vec![], Some(at(60))));
    assert_eq!(look("ImagePullBackOff", 15).0, []);
    assert_eq!(look("ErrImagePull", 26).0, []);
    assert_eq!(look("ImagePullBackOff", 40).0, []);
    // The kubelet has reported no other failure. The attempt in progress may be a slow download, so the pull is not failed yet.
    assert_eq!(look("ImagePullBackOff", 500), (vec![], None));
    let (steps, _) = look("ErrImagePull", 501);
    let [PullStep::Report(_, PullOutcome::Failed(why))] = &steps[..] else {
        panic!("{steps:?}");
    };
    assert!(why.contains("connection refused"), "{why}");
}

#[test]
fn failed_attempts_from_before_an_offline_period_do_not_count() {
    let (mut planner, mut job_store) = (Planner::default(), job_store());
    let online = pull("a");
    let offline = Pull {
        may_start: false,
        ..online.clone()
    };
    job_store.put(job("a", &online));
    let mut look = |pull: &Pull, reason: &str, second: i64| {
        planner.set_desired(&desired(&[("a", vec![pull.clone()])]));
        job_store.on_pod(Event::Apply(pod(pull, reason)));
        planner.next(&job_store, at(second))
    };
    assert_eq!(look(&online, "ErrImagePull", 0), (vec![], Some(at(60))));
    assert_eq!(look(&offline, "ErrImagePull", 30), (vec![], None));
    assert_eq!(look(&offline, "ImagePullBackOff", 31), (vec![], None));
    let back = look(&online, "ErrImagePull", 1000);
    assert_eq!(back, (vec![], Some(at(1060))));
}

#[test]
fn a_result_is_written_once_and_then_the_job_is_deleted() {
    let (mut planner, mut job_store) = (Planner::default(), job_store());
    let pull = pull("a");
    planner.set_desired(&desired(&[("a", vec![pull.clone()])]));
    job_store.put(job("a", &pull));
    job_store.on_pod(Event::Apply(pod(&pull, "InvalidImageName")));
    let (steps, _) = planner.next(&job_store, at(0));
    let [report @ PullStep::Report(request, _)] = &steps[..] else {
        panic!("{steps:?}")
    };
    planner.on_result(report, &PullStepResult::Done, at(1));
    job_store.note_reported(&request.pull_key());
    // The result is written, but the cache still shows the pod without the result. So the Job is deleted, and no new Job is
    // created.
    let (steps, _) = planner.next(&job_store, at(1));
    let [delete @ PullStep::Delete(deleted)] = &steps[..] else {
        panic!("{steps:?}")
    };
    planner.on_result(delete, &PullStepResult::Done, at(1));
    job_store.note_deleted(deleted);
    job_store.put(job("a", &pull)); // a late event about the deleted Job
    assert_eq!(planner.next(&job_store, at(1)), (vec![], Some(at(2))));
    // According to the cache, the pod requests the pull, so the step begins. The step reads the pod from the API server before it
    // creates a Job.
    assert_eq!(begun(&planner.next(&job_store, at(2)).0), ["a"]);
}

#[test]
fn a_job_whose_deletion_fails_is_deleted_later() {
    let (mut planner, mut job_store) = (Planner::default(), job_store());
    job_store.put(job("a", &pull("a")));
    planner.set_desired(&desired(&[("a", vec![])]));
    let (steps, _) = planner.next(&job_store, at(0));
    assert!(matches!(steps[..], [PullStep::Delete(_)]), "{steps:?}");
    assert_eq!(planner.next(&job_store, at(0)), (vec![], None));
    planner.on_result(&steps[0], &PullStepResult::Retry, at(1));
    assert_eq!(planner.next(&job_store, at(1)), (vec![], Some(at(6))));
    assert_eq!(planner.next(&job_store, at(6)).0, steps);
}

#[test]
fn a_pull_whose_job_has_no_pod_fails_after_two_minutes() {
    let (mut planner, mut job_store) = (Planner::default(), job_store());
    let pull = pull("a");
    planner.set_desired(&desired(&[("a", vec![pull.clone()])]));
    job_store.put(job("a", &pull));
    assert_eq!(planner.next(&job_store, at(0)), (vec![], Some(at(5))));
    for second in [5, 25, 45, 65, 85, 105] {
        let (steps, _) = planner.next(&job_store, at(second));
        assert!(
            matches!(steps[..], [PullStep::ExplainMissingPod(..)]),
            "{steps:?}"
        );
        planner.on_result(&steps[0], &PullStepResult::Unexplained, at(second));
        let next = Some(at(second + 20));
        assert_eq!(planner.next(&job_store, at(second)), (vec![], next));
    }
    let (steps, _) = planner.next(&job_store, at(125));
    let [PullStep::Report(_, PullOutcome::Failed(why))] = &steps[..] else {
        panic!("{steps:?}")
    };
    assert!(why.contains("no pod was made"), "{why}");
}

#[test]
fn a_failed_step_is_retried_with_backoff() {
    let (mut planner, job_store) = (Planner::default(), job_store());
    planner.set_desired(&desired(&[("a", vec![pull("a")])]));
    let mut now = at(0);
    for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
        let (steps, _) = planner.next(&job_store, now);
        assert_eq!(begun(&steps), ["a"]);
        planner.on_result(&steps[0], &PullStepResult::Retry, now);
        let until = later(now, Duration::from_secs(pause));
        assert_eq!(planner.next(&job_store, now), (vec![], Some(until)));
        now = until;
    }
}

#[test]
fn without_permission_to_list_jobs_every_pull_fails_with_that_reason() {
    let (mut planner, job_store) = (Planner::default(), JobStore::default());
    planner.deny(Some("the controller may not list jobs".to_owned()));
    planner.set_desired(&desired(&[("a", vec![pull("a")])]));
    let (steps, _) = planner.next(&job_store, at(0));
    let [PullStep::Report(_, PullOutcome::Failed(why))] = &steps[..] else {
        panic!("{steps:?}")
    };
    assert_eq!(why, "the controller may not list jobs");
}

#[test]
fn foreign_and_undecided_jobs_are_not_changed() {
    let (mut planner, mut job_store) = (Planner::default(), job_store());
    let known = pull("a");
    let mut foreign = job("a", &known);
    foreign.metadata.owner_references = None;
    job_store.put(foreign);
    let mut unknown = job("not-decided-yet", &pull("b"));
    unknown.metadata.uid = Some("other".to_owned());
    job_store.put(unknown);
    planner.set_desired(&desired(&[("a", vec![])]));
    assert_eq!(planner.next(&job_store, at(0)).0, []);
}
