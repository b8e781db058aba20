//! Tests of pods that are updated in place: from JSON, as the API server sends it, to the fleet.

use super::*;
use crate::core::InPlacePatch;
use crate::core::fleet::in_place::Recreate;

/// Returns the index of [`index()`] with updates in place, after the template changed from `v1` to `v2`.
fn index_in_place() -> Index {
    let mut index = index();
    let mut set = set("v2", 2, 2);
    let annotations = set.metadata.annotations.as_mut().unwrap();
    let key = "apps.openyurt.io/rolling-update-type";
    annotations.insert(key.to_owned(), "InPlaceIfPossible".to_owned());
    index.apply_revision(&revision("bbb", 2, "v2"));
    index.apply_set(&set);
    index
}

/// Returns the pod on n1 after its update in place at second 200. Its container reports these restarts, image and state.
fn updated(restarts: i64, image: &str, state: Value) -> PodWords {
    let memory = json!({
        "revision": "bbb",
        "updateTimestamp": at(200).to_string(),
        "lastContainerStatuses": { "main": { "imageID": "id-v1", "restartCount": 4 } },
    });
    let mut pod = pod("n1", "bbb").ready(10).version("2");
    pod.0["metadata"]["annotations"] =
        json!({ "apps.openyurt.io/inplace-update-state": memory.to_string() });
    pod.0["metadata"]["generation"] = json!(2);
    pod.0["spec"]["containers"] = json!([{ "name": "main", "image": "v2" }]);
    pod.0["status"]["observedGeneration"] = json!(2);
    pod.0["status"]["containerStatuses"] = json!([{
        "name": "main", "image": image, "imageID": format!("id-{image}"), "restartCount": restarts,
        "ready": state.get("running").is_some(), "state": state,
        "lastState": { "terminated": { "exitCode": 137, "reason": "Error" } },
    }]);
    pod
}

#[test]
fn an_in_place_update_is_in_progress_until_the_kubelet_carries_it_out() {
    let mut index = index_in_place();
    let running = json!({ "running": {} });
    feed(&mut index, &updated(4, "v1", running.clone()), 201);
    let told = fleet(&mut index);
    let pod = &told.nodes[0].pods[0];
    assert_eq!(pod.revision, PodRevision::Current);
    assert!(pod.in_place.is_under_way());
    assert_eq!(pod.revised(), at(200));
    assert!(told.transitions[&"aaa".into()].is_ok());
    feed(&mut index, &updated(5, "v2", running).version("3"), 203);
    let told = fleet(&mut index);
    assert!(!told.nodes[0].pods[0].in_place.is_under_way());
    assert_eq!(told.nodes[0].pods[0].problem, None);
}

/// Kruise updates containers with a lower launch priority later. Until then, the pod has the new revision label and some old
/// images.
#[test]
fn a_pod_between_two_kruise_batches_is_outdated() {
    #[track_caller]
    fn case(next: Value, expected: PodRevision) {
        let mut index = index_in_place();
        let mut state = json!({
            "revision": "bbb",
            "updateTimestamp": at(200).to_string(),
            "lastContainerStatuses": { "main": { "imageID": "id-v1" } },
        });
        json_patch::merge(&mut state, &next);
        let mut pod = pod("n1", "bbb").ready(10).version("2");
        pod.0["metadata"]["annotations"] =
            json!({ "apps.kruise.io/inplace-update-state": state.to_string() });
        feed(&mut index, &pod, 201);
        assert_eq!(fleet(&mut index).nodes[0].pods[0].revision, expected);
    }
    case(json!({}), PodRevision::Current);
    case(json!({ "nextContainerImages": {} }), PodRevision::Current);
    let rest = json!({ "nextContainerImages": { "side": "side:2" } });
    case(rest, PodRevision::Outdated);
    let rest = json!({ "nextContainerRefMetadata": { "side": { "labels": { "a": "b" } } } });
    case(rest, PodRevision::Outdated);
}

#[test]
fn a_status_of_the_old_container_is_no_problem_of_the_new_one() {
    fn case(pod: &PodWords, expected: Option<(&str, u32)>) {
        let mut index = index_in_place();
        feed(&mut index, pod, 201);
        let fleet = fleet(&mut index);
        let problem = fleet.nodes[0].pods[0].problem.as_ref();
        assert_eq!(
            problem.map(|problem| (&*problem.reason, problem.restarts)),
            expected
        );
    }
    let ended = json!({ "terminated": { "exitCode": 1, "reason": "Error" } });
    let waiting = |reason: &str| json!({ "waiting": { "reason": reason } });
    // Three cases: the update stopped the old container, the new container crashed once, and the new container crashed twice.
    case(&updated(4, "v1", ended.clone()), None);
    case(&updated(5, "v2", ended.clone()), Some(("Error", 0)));
    case(&updated(7, "v2", ended), Some(("Error", 2)));
    // Two cases: the old container was in a crash loop before the update, and the new image can't be pulled.
    case(&updated(4, "v1", waiting("CrashLoopBackOff")), None);
    case(
        &updated(4, "v1", waiting("ErrImagePull")),
        Some(("ErrImagePull", 0)),
    );
    let mut unseen = updated(4, "v1", waiting("ErrImagePull"));
    unseen.0["status"]["observedGeneration"] = json!(1);
    case(&unseen, None);
}

/// The new image can't be pulled, so an operator rolls back. Until the kubelet sees that, it still reports the error of the new
/// image.
#[test]
fn an_error_of_a_superseded_image_is_no_problem_of_the_next_one() {
    let case = |message: &str, expected: Option<&str>| {
        let memory = json!({
            "revision": "bbb",
            "updateTimestamp": at(200).to_string(),
            "lastContainerStatuses":
                { "main": { "imageID": "id-v1", "restartCount": 4, "superseded": "agent:v2-bad" } },
        });
        let state = json!({ "waiting": { "reason": "ImagePullBackOff", "message": message } });
        let mut pod = updated(4, "v1", state);
        pod.0["metadata"]["annotations"] =
            json!({ "apps.openyurt.io/inplace-update-state": memory.to_string() });
        pod.0["spec"]["containers"] = json!([{ "name": "main", "image": "agent:v2" }]);
        let mut index = index_in_place();
        feed(&mut index, &pod, 201);
        let problem = fleet(&mut index).nodes[0].pods[0].problem.clone();
        let reason = problem.as_ref().map(|problem| &*problem.reason);
        assert_eq!(reason, expected, "{message}");
    };
    case(
        r#"Back-off pulling image "docker.io/library/agent:v2-bad""#,
        None,
    );
    let own = r#"Back-off pulling image "docker.io/library/agent:v2""#;
    case(own, Some("ImagePullBackOff"));
    case("the registry does not answer", Some("ImagePullBackOff"));
}

#[test]
fn an_accepted_in_place_update_is_assumed_until_the_watch_shows_it() {
    let mut index = index_in_place();
    send(&mut index, &patch("bbb", None), WriteAnswer::Accepted);
    let told = fleet(&mut index);
    let pod = &told.nodes[0].pods[0];
    assert!(!pod.terminating && pod.in_place.is_under_way());
    assert_eq!(
        (pod.revision, pod.revised()),
        (PodRevision::Current, at(500))
    );
    feed(&mut index, &pod_of_old_event(), 501);
    assert!(fleet(&mut index).nodes[0].pods[0].in_place.is_under_way());
    feed(
        &mut index,
        &updated(5, "v2", json!({ "running": {} })).version("4"),
        502,
    );
    assert_eq!(due(&index), None);
    assert!(!fleet(&mut index).nodes[0].pods[0].in_place.is_under_way());
}

/// Before Kubernetes 1.34, a pod has no `status.observedGeneration`. Then only the image in the container status shows if the
/// kubelet has seen the change.
#[test]
fn an_error_of_a_former_image_without_observed_generation_is_no_problem() {
    let case = |image: &str, expected: Option<&str>| {
        let state = json!({ "waiting": { "reason": "InvalidImageName", "message": "no" } });
        let mut pod = updated(0, image, state);
        pod.0["status"]["observedGeneration"] = json!(null);
        pod.0["status"]["containerStatuses"][0]["imageID"] = json!("");
        pod.0["status"]["containerStatuses"][0]["lastState"] = json!({});
        let mut index = index_in_place();
        feed(&mut index, &pod, 201);
        let problem = fleet(&mut index).nodes[0].pods[0].problem.clone();
        let reason = problem.as_ref().map(|problem| &*problem.reason);
        assert_eq!(reason, expected, "{image}");
    };
    case("v1", None);
    case("v2", Some("InvalidImageName"));
    case("", Some("InvalidImageName"));
}

#[test]
fn an_unanswered_rollback_is_assumed_with_the_old_revision() {
    let mut index = index_in_place();
    feed(&mut index, &pod("n1", "bbb").ready(11).version("3"), 499);
    send(
        &mut index,
        &patch("aaa", Some("bbb")),
        WriteAnswer::Unanswered,
    );
    let told = fleet(&mut index);
    let pod = &told.nodes[0].pods[0];
    assert_eq!(
        (pod.revision, &pod.in_place.reverted_from),
        (PodRevision::Outdated, &Some("bbb".into()))
    );
    assert!(pod.in_place.is_under_way());
}

/// Returns the action that updates the pod on n1 in place to the revision `to`. For a rollback, `from` is the revision that it
/// leaves.
fn patch(to: &str, from: Option<&str>) -> Action {
    Action::UpdateInPlace {
        pod: deletion("n1").pod().clone(),
        patch: InPlacePatch {
            revision: to.into(),
            change: Arc::default(),
            before: BTreeMap::new(),
            reverts: from.map(Revision::from),
            gate: None,
        },
    }
}

/// Returns the pod on n1 before the update, as an event shows it that arrives late.
fn pod_of_old_event() -> PodWords {
    pod("n1", "aaa").ready(11).version("3")
}

#[test]
fn a_revision_names_why_its_pods_cannot_be_updated_in_place() {
    let mut index = index_in_place();
    let mut other: k8s::ControllerRevision = revision("ccc", 1, "v1");
    let template = json!({ "spec": { "hostNetwork": true, "containers": [{ "name": "main", "image": "v1" }] } });
    let shape = crate::core::fleet::in_place::Shape::from_template(&template);
    other.template.as_mut().unwrap().shape = Arc::new(shape);
    other.template.as_mut().unwrap().fingerprint =
        crate::core::revision::TemplateFingerprint::from_template(&template);
    index.apply_revision(&other);
    let told = fleet(&mut index);
    assert_eq!(told.transitions[&"ccc".into()], Err(Recreate::OtherChange));
    index.apply_set(&set("v2", 3, 3)); // no annotation, so no updates in place
    assert!(fleet(&mut index).transitions.is_empty());
}

#[test]
fn an_in_place_update_counts_from_its_restart_although_the_pod_stayed_ready() {
    let running = |since| json!({ "running": { "startedAt": at(since).to_string() } });
    let ready_since = |index: &mut Index| fleet(index).nodes[0].pods[0].ready_since;
    let mut index = index_in_place();
    feed(&mut index, &updated(4, "v1", running(5)), 201);
    // The controller saw the restart itself, so the time by its own clock counts, even if the node's clock is wrong.
    let done = |version: &str| updated(5, "v2", running(99_999)).version(version);
    feed(&mut index, &done("3"), 230);
    assert_eq!(ready_since(&mut index), Some(at(230)));
    feed(&mut index, &done("4"), 240);
    assert_eq!(ready_since(&mut index), Some(at(230)));
    // If the controller first sees the pod after the restart, the node's time counts, but no time before the update or in the
    // future.
    let first_seen = |since: i64| {
        let mut index = index_in_place();
        index.set_mut(&key()).unwrap().delete_pod("uid-n1");
        feed(&mut index, &updated(5, "v2", running(since)), 300);
        ready_since(&mut index)
    };
    assert_eq!(first_seen(220), Some(at(220)));
    assert_eq!(first_seen(5), Some(at(200)));
    assert_eq!(first_seen(99_999), Some(at(300)));
}

#[test]
fn a_short_ready_period_does_not_reset_the_unready_time() {
    let unready = |since: i64| {
        let mut pod = pod("n1", "aaa").ready(since);
        pod.0["status"]["conditions"][0]["status"] = json!("False");
        pod
    };
    let unready_since = |index: &mut Index| fleet(index).nodes[0].pods[0].unready_since;
    let mut index = index_in_place();
    index.set_mut(&key()).unwrap().delete_pod("uid-n1");
    feed(&mut index, &pod("n1", "aaa"), 205);
    assert_eq!(unready_since(&mut index), None);
    feed(&mut index, &pod("n1", "aaa").ready(210).version("2"), 210);
    let made = fleet(&mut index).nodes[0].pods[0].created;
    feed(&mut index, &unready(220).version("3"), 220);
    assert_eq!(unready_since(&mut index), Some(made));
    feed(&mut index, &pod("n1", "aaa").ready(230).version("4"), 230);
    assert_eq!(unready_since(&mut index), Some(made));
    feed(&mut index, &unready(290).version("5"), 290);
    assert_eq!(unready_since(&mut index), Some(at(290)));
    // If the controller sees the pod for the first time, the time in its condition counts.
    index.set_mut(&key()).unwrap().delete_pod("uid-n1");
    feed(&mut index, &unready(290).version("6"), 400);
    assert_eq!(unready_since(&mut index), Some(at(290)));
}

/// Found on a real cluster: after `undo`, nodes that were lost before the undo were counted as failures of the good revision.
#[test]
fn a_rolled_back_pod_does_not_count_as_created_for_the_restored_template() {
    let mut index = index();
    // The template is changed back to v1. The native controller reuses the old revision and gives it a new number.
    let set = set("v1", 3, 3);
    index.apply_revision(&revision("bbb", 2, "v2"));
    index.apply_revision(&revision("aaa", 3, "v1"));
    index.apply_set(&set);
    let memory = |from: Option<&str>| {
        let state = json!({
            "revision": "aaa", "updateTimestamp": at(200).to_string(), "revertedFrom": from,
            "lastContainerStatuses": {},
        });
        json!({ "apps.openyurt.io/inplace-update-state": state.to_string() })
    };
    for (from, version) in [(Some("bbb"), "2"), (None, "3")] {
        let mut pod = pod("n1", "aaa").ready(250).version(version);
        pod.0["metadata"]["annotations"] = memory(from);
        feed(&mut index, &pod, 300);
        let told = fleet(&mut index);
        let pod = &told.nodes[0].pods[0];
        assert_eq!(pod.revision, PodRevision::Current);
        assert_eq!(pod.of_template, from.is_none());
    }
}
