//! Tests of the index, with objects in the form in which the API server sends them.

mod crowd;
mod ended;
mod expectations;
mod hostile;
mod place;
mod pod_problem;

use serde_json::{Value, json};

use super::*;
use crate::core::revision::TemplateFingerprint;
use crate::core::rollout_state::{FailingPods, Reported, ReportedFailures, ReportedPause};
use crate::core::{
    Action, FailureRecord, PauseRecord, PodRef, PodRevision, PodUid, Readiness, RevisionState,
    RevisionUnknown, RolloutState, WriteFailures, WriteVerb, decide,
};

const CREATED: &str = "2026-01-01T00:00:00Z";

fn at(second: i64) -> Timestamp {
    CREATED.parse::<Timestamp>().unwrap() + k8s_openapi::jiff::SignedDuration::from_secs(second)
}

fn parsed<T: serde::de::DeserializeOwned>(object: Value) -> T {
    // A watch delivers text, so parse text here and not a `Value`.
    serde_json::from_str(&object.to_string()).unwrap()
}

fn node(name: &str, ready: &str, since: i64) -> k8s::Node {
    parsed(
        json!({"metadata": {"name": name, "labels": {"pool": "a"}}, "status": {"conditions": [
        {"type": "Ready", "status": ready, "lastTransitionTime": at(since).to_string()}]}}),
    )
}

fn set(image: &str, generation: i64, observed: i64) -> k8s::DaemonSet {
    parsed(
        json!({"metadata": {"name": "agent", "namespace": "edge", "uid": "ds", "generation": generation,
        "resourceVersion": generation.to_string(),
        "annotations": {"apps.openyurt.io/update-strategy": "auto", "foreign.example/blob": "x"}},
        "spec": {"selector": {"matchLabels": {"app": "agent"}}, "updateStrategy": {"type": "OnDelete"},
            "template": template(image)}, "status": {"observedGeneration": observed}}),
    )
}

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "agent"}}, "spec": {"containers": [{"name": "main", "image": image}]}})
}

fn revision(hash: &str, number: i64, image: &str) -> k8s::ControllerRevision {
    parsed(
        json!({"metadata": {"name": format!("agent-{hash}"), "namespace": "edge",
        "labels": {"controller-revision-hash": hash},
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "ds", "controller": true}]},
        "revision": number, "data": {"spec": {"template": template(image)}}}),
    )
}

struct PodWords(Value);

fn pod(on: &str, hash: &str) -> PodWords {
    PodWords(
        json!({"metadata": {"name": format!("agent-{on}"), "uid": format!("uid-{on}"), "resourceVersion": "1",
        "creationTimestamp": CREATED, "labels": {"controller-revision-hash": hash},
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "ds", "controller": true}]},
        "spec": {"nodeName": on}, "status": {"conditions": []}}),
    )
}

impl PodWords {
    fn ready(mut self, since: i64) -> Self {
        self.0["status"]["conditions"] = json!([{"type": "Ready", "status": "True", "lastTransitionTime": at(since).to_string()}]);
        self
    }

    fn version(mut self, version: &str) -> Self {
        self.0["metadata"]["resourceVersion"] = json!(version);
        self
    }

    fn terminating(mut self) -> Self {
        self.0["metadata"]["deletionTimestamp"] = json!(CREATED);
        self
    }

    fn object(&self) -> k8s::Pod {
        parsed(self.0.clone())
    }
}

fn key() -> SetKey {
    SetKey::new("edge", "agent")
}

/// Returns an index with two Ready nodes, each with a Ready pod of the current revision.
fn index() -> Index {
    let mut index = Index::default();
    index.apply_node(&node("n1", "True", 0), at(100));
    index.apply_node(&node("n2", "True", 0), at(100));
    assert_eq!(
        index.apply_set(&set("v1", 1, 1)),
        SetChange::Watch("app=agent".to_owned())
    );
    index.apply_revision(&revision("aaa", 1, "v1"));
    feed(&mut index, &pod("n1", "aaa").ready(10), 100);
    feed(&mut index, &pod("n2", "aaa").ready(10), 100);
    index.set_mut(&key()).unwrap().synced = true;
    index
}

fn feed(index: &mut Index, pod: &PodWords, now: i64) -> RequeueDelay {
    index.apply_pod(&key(), &pod.object(), at(now)).unwrap()
}

/// Returns the action that deletes the pod on node `on`.
fn deletion(on: &str) -> Action {
    Action::Delete(PodRef {
        name: format!("agent-{on}").as_str().into(),
        uid: format!("uid-{on}").as_str().into(),
        resource_version: "1".into(),
    })
}

/// Records a write that is sent at second 500 and answered at once.
fn send(index: &mut Index, action: &Action, answer: WriteAnswer) {
    let set = index.set_mut(&key()).unwrap();
    set.begin_write(action, at(500));
    set.end_write(action, answer, at(500));
}

/// Returns the time at which the pods are listed again, because the watch should have shown a write by then.
fn due(index: &Index) -> Option<Timestamp> {
    index.set(&key()).unwrap().pending_due()
}

/// Returns the fleet. Fails if the cached fleet differs from one that is built again.
fn fleet(index: &mut Index) -> Arc<Fleet> {
    let kept = index.fleet(&key(), at(1000)).unwrap();
    index.set_mut(&key()).unwrap().cache.forget();
    let made_anew = index.fleet(&key(), at(1000)).unwrap();
    assert_eq!(kept, made_anew);
    kept
}

#[test]
fn nodes_and_pods_are_joined_by_name_even_if_one_is_missing() {
    let mut index = index();
    feed(&mut index, &pod("n0", "aaa"), 100);
    feed(&mut index, &pod("n9", "aaa"), 100);
    index.apply_node(&node("n5", "True", 0), at(100));
    let fleet = fleet(&mut index);
    let told: Vec<(&str, usize, bool)> = fleet
        .nodes
        .iter()
        .map(|node| {
            (
                node.name.as_str(),
                node.pods.len(),
                node.readiness == Readiness::Gone,
            )
        })
        .collect();
    let expected = [
        ("n0", 1, true),
        ("n1", 1, false),
        ("n2", 1, false),
        ("n5", 0, false),
        ("n9", 1, true),
    ];
    assert_eq!(told, expected);
    assert_eq!(fleet.nodes[3].podless_since, Some(at(1000)));
}

#[test]
fn the_condition_dates_missing_pods_from_before_the_start() {
    #[track_caller]
    fn case(reason: &str, expected: i64) {
        let mut index = Index::default();
        index.apply_node(&node("n1", "True", 0), at(100));
        let mut set = set("v1", 1, 1);
        let since = serde_json::from_value(json!(at(500).to_string())).unwrap();
        set.status.conditions = vec![k8s::Condition {
            kind: "Stalled".to_owned(),
            status: "True".to_owned(),
            reason: reason.to_owned(),
            message: String::new(),
            last_transition: Some(since),
            last_probe: None,
        }];
        index.apply_set(&set);
        index.apply_revision(&revision("aaa", 1, "v1"));
        let fleet = fleet(&mut index);
        assert_eq!(fleet.nodes[0].podless_since, Some(at(expected)), "{reason}");
    }
    case("PodsNotCreated", 485);
    case("PodsKeptAway", 485);
    case("NoProgress", 1000);
}

/// Applies a few thousand random changes in an order that depends only on the fixed seed.
#[test]
fn an_incrementally_updated_fleet_equals_a_rebuilt_one() {
    let mut index = index();
    let mut rolled = 7;
    let mut below = |limit: u64| {
        rolled = crate::sim::dice::mix(rolled);
        rolled % limit
    };
    let nodes: Vec<String> = (0..6).map(|number| format!("n{number}")).collect();
    let hashes = ["aaa", "bbb", "ccc"];
    for round in 0..3000 {
        let on = nodes[usize::try_from(below(6)).unwrap()].as_str();
        let hash = hashes[usize::try_from(below(3)).unwrap()];
        let version = round.to_string();
        match below(10) {
            0 => drop(index.apply_node(&node(on, "True", round), at(round))),
            1 => drop(index.apply_node(&node(on, "Unknown", round), at(round))),
            2 => drop(index.delete_node(on)),
            3 | 4 => drop(feed(
                &mut index,
                &pod(on, hash).ready(10).version(&version),
                round,
            )),
            5 => drop(feed(
                &mut index,
                &pod(on, hash).terminating().version(&version),
                round,
            )),
            6 => drop(
                index
                    .set_mut(&key())
                    .unwrap()
                    .delete_pod(&format!("uid-{on}")),
            ),
            7 => {
                let set = index.set_mut(&key()).unwrap();
                set.begin_write(&deletion(on), at(round));
            }
            8 => {
                let set = index.set_mut(&key()).unwrap();
                set.end_write(&deletion(on), WriteAnswer::Refused, at(round));
            }
            _ => drop(index.apply_revision(&revision("bbb", 1 + round % 2, "v2"))),
        }
        fleet(&mut index);
        if below(3) == 0 {
            let set = index.set_mut(&key()).unwrap();
            set.note_absent("ccc".into());
        }
    }
}

#[test]
fn an_observed_change_is_dated_by_the_controllers_clock() {
    let mut index = index();
    feed(&mut index, &pod("n1", "aaa").version("2"), 200);
    feed(&mut index, &pod("n1", "aaa").ready(-9999).version("3"), 300); // the clock of n1 is hours slow
    index.apply_node(&node("n2", "Unknown", 99_999), at(300)); // the clock of n2 is a day fast
    let fleet = fleet(&mut index);
    assert_eq!(fleet.nodes[0].pods[0].ready_since, Some(at(300)));
    assert_eq!(
        fleet.nodes[1].readiness,
        Readiness::NotReady {
            since: Some(at(300))
        }
    );
}

#[test]
fn an_earlier_change_is_dated_between_creation_and_now() {
    let mut index = index();
    feed(&mut index, &pod("n3", "aaa").ready(-9999), 400);
    feed(&mut index, &pod("n4", "aaa").ready(99_999), 400);
    let fleet = fleet(&mut index);
    let since = |name: &str| {
        fleet
            .nodes
            .iter()
            .find(|node| node.name.as_str() == name)
            .unwrap()
            .pods[0]
            .ready_since
    };
    assert_eq!(since("n3"), Some(at(0)));
    assert_eq!(since("n4"), Some(at(400)));
}

#[test]
fn a_pod_deletion_counts_only_for_a_revision_adopted_before_it() {
    for (adopted, counts) in [(60, true), (71, false)] {
        let mut index = Index::default();
        index.apply_node(&node("n1", "False", 75), at(100));
        let _ = index.apply_set(&set("v2", 2, 2));
        index.apply_revision(&revision("aaa", 1, "v1"));
        let mut newest = revision("bbb", 2, "v2");
        newest.metadata.managed_fields =
            Some(vec![parsed(json!({ "time": at(adopted).to_string() }))]);
        index.apply_revision(&newest);
        let mut leaving = pod("n1", "aaa").ready(10).terminating();
        leaving.0["metadata"]["deletionTimestamp"] = json!(at(100).to_string());
        leaving.0["metadata"]["deletionGracePeriodSeconds"] = json!(30);
        feed(&mut index, &leaving, 200);
        index.set_mut(&key()).unwrap().synced = true;
        let told = fleet(&mut index);
        assert_eq!(told.adopted, Some(at(adopted)));
        assert_eq!(told.nodes[0].disrupted_at.is_some(), counts);
    }
}

/// Regression test from a real API server. The deletion of a pod made its node NotReady, and the watch showed that before the
/// deletion was answered.
///
/// The loss of the node did not count against the revision, so the next node was updated at once.
#[test]
fn a_deletion_counts_from_the_time_at_which_it_is_sent() {
    let told = |index: &mut Index| fleet(index).nodes[0].disrupted_at;
    let sent = || {
        let mut index = index();
        feed(&mut index, &pod("n1", "aaa").ready(10), 200);
        index.apply_set(&set("v2", 2, 2));
        index.apply_revision(&revision("bbb", 2, "v2"));
        let set = index.set_mut(&key()).unwrap();
        set.begin_write(&deletion("n1"), at(500));
        index.apply_node(&node("n1", "False", 501), at(501));
        assert_eq!(told(&mut index), Some(at(500)));
        index
    };
    let answered = |answer| {
        let mut index = sent();
        let set = index.set_mut(&key()).unwrap();
        set.end_write(&deletion("n1"), answer, at(502));
        index
    };
    let mut accepted = answered(WriteAnswer::Accepted);
    assert_eq!(told(&mut accepted), Some(at(500)));
    for mut seen in [sent(), accepted] {
        let leaving = pod("n1", "aaa").ready(10).version("2").terminating();
        feed(&mut seen, &leaving, 503);
        assert_eq!(told(&mut seen), Some(at(500)));
    }
    assert_eq!(told(&mut answered(WriteAnswer::Refused)), None);
    let mut lost = sent();
    lost.set_mut(&key()).unwrap().lose_answers(at(502));
    assert_eq!(told(&mut lost), None);
}

#[test]
fn a_node_with_a_fast_clock_does_not_count_as_just_returned() {
    let since = |stamped| {
        let mut index = index();
        index.apply_node(&node("n9", "True", stamped), at(400));
        let fleet = fleet(&mut index);
        fleet.nodes.last().expect("it is there").readiness
    };
    let ready = |since| Readiness::Ready { since };
    assert_eq!(since(460), ready(at(400)));
    assert_eq!(since(461), ready(Timestamp::UNIX_EPOCH));
    assert_eq!(since(300), ready(at(300)));
}

/// If a node is cut off, OpenYurt's pool coordinator sends its heartbeats and taints the node. The Ready condition stays `True`.
#[test]
fn a_ready_node_that_is_cut_off_counts_as_offline() {
    let mut index = index();
    let mut cut_off = node("n1", "True", 5);
    let taint = json!({ "key": "node.openyurt.io/unschedulable", "effect": "NoSchedule" });
    cut_off.spec.taints = vec![parsed(taint)];
    let mut readiness = |node: &k8s::Node, now| {
        index.apply_node(node, at(now));
        fleet(&mut index).nodes[0].readiness
    };
    let since = Some(at(200));
    assert_eq!(readiness(&cut_off, 200), Readiness::NotReady { since });
    assert_eq!(readiness(&cut_off, 250), Readiness::NotReady { since });
    let back = readiness(&node("n1", "True", 5), 300);
    assert_eq!(back, Readiness::Ready { since: at(300) });
}

#[test]
fn the_last_losses_of_a_flapping_node_are_remembered() {
    let mut index = index();
    let mut seen = |ready, now| {
        index.apply_node(&node("n1", ready, now), at(now));
        let losses = fleet(&mut index).nodes[0].losses.clone();
        let losses = losses.iter().flat_map(|losses| losses.iter());
        losses
            .map(|seen| seen.duration_since(at(0)).as_secs())
            .collect::<Vec<_>>()
    };
    assert!(seen("True", 10).is_empty());
    assert_eq!(seen("False", 20), [20]);
    // A change from `False` to `Unknown` is recorded as another loss of the node.
    assert_eq!(seen("Unknown", 31), [20, 31]);
    assert_eq!(seen("True", 35), [20, 31]);
    assert_eq!(seen("False", 40), [20, 31], "a moment after the last one");
    assert_eq!(seen("Unknown", 50), [20, 31, 50]);
    assert_eq!(seen("False", 60), [20, 31, 50, 60]);
    assert_eq!(seen("Unknown", 70), [31, 50, 60, 70]);
    assert_eq!(seen("True", 80), [31, 50, 60, 70]);
    assert_eq!(seen("False", 360), [60, 70, 360]);
}

#[test]
fn a_node_event_requeues_only_daemonsets_with_a_pod_there() {
    let mut index = index();
    let mut other = set("v1", 1, 1);
    other.metadata.name = Some("other".to_owned());
    other.spec.scheduling = crate::core::eligibility::Scheduling::from_template(
        &json!({"spec": {"nodeSelector": {"pool": "b"}}}),
    );
    index.apply_set(&other);
    assert_eq!(
        index.apply_node(&node("n1", "False", 5), at(200)),
        vec![key()]
    );
    assert_eq!(
        index.apply_node(&node("n1", "False", 5), at(201)),
        vec![],
        "a heartbeat"
    );
    assert_eq!(index.delete_node("n1"), vec![key()]);
}

#[test]
fn an_accepted_deletion_is_assumed_until_the_watch_shows_it() {
    let mut index = index();
    send(&mut index, &deletion("n1"), WriteAnswer::Accepted);
    feed(&mut index, &pod("n1", "aaa").ready(10).version("2"), 501); // an event from before the deletion, which arrives late
    assert!(fleet(&mut index).nodes[0].pods[0].terminating);
    assert_eq!(due(&index), Some(at(530)));
    feed(
        &mut index,
        &pod("n1", "aaa").terminating().version("3"),
        502,
    );
    assert_eq!(due(&index), None);
    send(&mut index, &deletion("n1"), WriteAnswer::Accepted); // the answer arrives after the event that shows the deletion
    assert_eq!(due(&index), None);
}

#[test]
fn a_conflict_blocks_the_pod_until_the_watch_shows_a_newer_version() {
    let mut index = index();
    send(&mut index, &deletion("n1"), WriteAnswer::Conflict);
    let held = fleet(&mut index).nodes[0].pods[0].clone();
    assert!(held.terminating && held.in_doubt);
    assert_eq!(
        feed(&mut index, &pod("n1", "aaa").ready(10).version("2"), 501),
        RequeueDelay::Short
    );
    assert!(!fleet(&mut index).nodes[0].pods[0].terminating);
    send(&mut index, &deletion("n1"), WriteAnswer::Conflict);
    assert!(
        !fleet(&mut index).nodes[0].pods[0].terminating,
        "the newer version was there first"
    );
}

#[test]
fn a_complete_list_settles_the_writes_sent_before_it() {
    fn case(answer: WriteAnswer, began: i64, terminating: bool) {
        let mut index = index();
        send(&mut index, &deletion("n1"), answer);
        let set = index.set_mut(&key()).unwrap();
        let seen = ["uid-n1", "uid-n2"].map(PodUid::from).into();
        set.retain_pods(&seen, Some(at(began)));
        assert_eq!(
            fleet(&mut index).nodes[0].pods[0].terminating,
            terminating,
            "{began}"
        );
    }
    case(WriteAnswer::Accepted, 499, true);
    case(WriteAnswer::Accepted, 501, false);
    case(WriteAnswer::Unanswered, 510, true);
    case(WriteAnswer::Unanswered, 515, false);
}

#[test]
fn a_pod_missing_from_a_list_is_forgotten() {
    let mut index = index();
    index
        .set_mut(&key())
        .unwrap()
        .retain_pods(&["uid-n2".into()].into(), Some(at(200)));
    assert!(fleet(&mut index).nodes[0].pods.is_empty());
}

#[test]
fn the_requeue_delay_depends_on_whether_a_change_frees_a_slot() {
    fn case(pod: &PodWords, expected: RequeueDelay) {
        assert_eq!(feed(&mut index(), pod, 200), expected);
    }
    case(
        &pod("n1", "aaa").ready(10).version("7"),
        RequeueDelay::Never,
    );
    case(&pod("n1", "aaa").version("7"), RequeueDelay::Long);
    case(
        &pod("n1", "aaa").terminating().version("7"),
        RequeueDelay::Long,
    );
    case(&pod("n3", "aaa"), RequeueDelay::Long);
    case(&pod("n3", "aaa").ready(10), RequeueDelay::Short);
}

/// On clusters before Kubernetes 1.33, the controller transfers a surge pod only after the native controller has created a pod next
/// to it. Until then, two pods run on the node, so the next decision must come soon.
#[test]
fn a_native_pod_next_to_a_surge_pod_is_reconciled_soon() {
    let mut index = index();
    let mut ours = pod("n3", "aaa");
    ours.0["metadata"]["uid"] = json!("uid-made");
    ours.0["metadata"]["ownerReferences"] = json!([
        {"apiVersion": "apps/v1", "kind": "ControllerRevision", "name": "agent-aaa", "uid": "r", "controller": true},
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "ds"},
    ]);
    assert_eq!(feed(&mut index, &ours, 200), RequeueDelay::Long);
    assert_eq!(
        feed(&mut index, &pod("n3", "aaa"), 200),
        RequeueDelay::Short
    );
}

#[test]
fn a_pod_of_another_controller_is_not_managed_even_with_matching_labels() {
    let mut index = index();
    let mut foreign = pod("n1", "aaa");
    foreign.0["metadata"]["ownerReferences"][0]["uid"] = json!("somebody");
    foreign.0["metadata"]["uid"] = json!("foreign");
    assert_eq!(feed(&mut index, &foreign, 200), RequeueDelay::Never);
    foreign.0["metadata"]["uid"] = json!("uid-n1"); // the DaemonSet's own pod was released and then adopted by another controller
    assert_eq!(feed(&mut index, &foreign, 200), RequeueDelay::Long);
    assert!(fleet(&mut index).nodes[0].pods.is_empty());
}

#[test]
fn an_unbound_pod_belongs_to_the_node_in_its_affinity() {
    let mut index = index();
    let mut waiting = pod("n3", "aaa");
    waiting.0["spec"] = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}]}}}});
    feed(&mut index, &waiting, 200);
    assert_eq!(fleet(&mut index).nodes[1].pods.len(), 2);
}

#[test]
fn an_observed_start_is_dated_by_the_controllers_clock() {
    let mut index = index();
    let mut taken_up = pod("n1", "aaa").version("2");
    taken_up.0["status"]["startTime"] = json!(at(99_999).to_string()); // the clock of the pod's node is a day fast
    feed(&mut index, &taken_up, 200);
    feed(&mut index, &taken_up.version("3"), 300);
    assert_eq!(fleet(&mut index).nodes[0].pods[0].started, Some(at(200)));
}

#[test]
fn an_unknown_revision_blocks_decisions_until_it_is_looked_up() {
    let mut index = index();
    feed(&mut index, &pod("n1", "bbb").ready(10).version("2"), 200);
    assert_eq!(
        fleet(&mut index).revision,
        RevisionState::Unknown(RevisionUnknown::UnknownRevision)
    );
    assert_eq!(index.unknown_hashes(&key()), vec![Revision::from("bbb")]);
    index.set_mut(&key()).unwrap().note_absent("bbb".into());
    let judged = fleet(&mut index);
    assert_eq!(judged.revision, RevisionState::Current("aaa".into()));
    assert_eq!(judged.nodes[0].pods[0].revision, PodRevision::Outdated);
    index.apply_revision(&revision("bbb", 2, "v2")); // the revision exists now, and is newer than the cached DaemonSet
    assert_eq!(
        fleet(&mut index).revision,
        RevisionState::Unknown(RevisionUnknown::Mismatch)
    );
}

#[test]
fn a_template_counts_as_current_until_it_differs_from_the_newest_revision() {
    let mut index = index();
    let phase = |index: &mut Index| {
        let state = fleet(index).revision.clone();
        (state, index.set(&key()).unwrap().is_template_current())
    };
    assert_eq!(
        phase(&mut index),
        (RevisionState::Current("aaa".into()), true)
    );
    index.apply_set(&set("v1", 2, 1)); // changes the generation but not the template, as a new minReadySeconds does
    assert_eq!(
        phase(&mut index),
        (RevisionState::Unknown(RevisionUnknown::NotObserved), true)
    );
    index.apply_set(&set("v2", 3, 2));
    assert_eq!(
        phase(&mut index),
        (RevisionState::Unknown(RevisionUnknown::NotObserved), false)
    );
    index.apply_revision(&revision("bbb", 2, "v2"));
    index.apply_set(&set("v2", 4, 4));
    assert_eq!(
        phase(&mut index),
        (RevisionState::Current("bbb".into()), true)
    );
}

#[test]
fn an_older_version_of_a_daemonset_changes_nothing() {
    let mut index = index();
    index.apply_set(&set("v2", 9, 9));
    assert_eq!(index.apply_set(&set("v1", 8, 8)), SetChange::Ignored);
    assert_eq!(index.set(&key()).unwrap().generation, 9);
}

#[test]
fn a_recreated_daemonset_starts_without_state() {
    let mut index = index();
    let mut anew = set("v1", 1, 1);
    anew.metadata.uid = Some("other".to_owned());
    assert_eq!(
        index.apply_set(&anew),
        SetChange::Watch("app=agent".to_owned())
    );
    let fleet = fleet(&mut index);
    assert_eq!(
        fleet.revision,
        RevisionState::Unknown(RevisionUnknown::NoRevision)
    );
    assert!(fleet.nodes.iter().all(|node| node.pods.is_empty()));
}

#[test]
fn a_daemonset_without_annotation_is_watched_only_while_it_has_yurt_ds_conditions() {
    let mut index = Index::default();
    let mut plain = set("v1", 1, 1);
    plain.metadata.annotations = None;
    assert_eq!(index.apply_set(&plain), SetChange::Ignored);
    plain.status.conditions = vec![k8s::Condition {
        kind: "RolloutComplete".to_owned(),
        ..Default::default()
    }];
    assert!(matches!(index.apply_set(&plain), SetChange::Watch(_)));
    plain.status.conditions.clear();
    assert_eq!(index.apply_set(&plain), SetChange::Unwatch);
}

#[test]
fn a_daemonset_kept_by_finalizers_during_deletion_is_reported() {
    #[track_caller]
    fn case(finalizers: &[&str], named: Option<&str>) {
        let mut index = index();
        let mut going = set("v1", 2, 2);
        going.metadata.deletion_timestamp = parsed(json!(at(50).to_string()));
        going.metadata.finalizers = parsed(json!(finalizers));
        assert_eq!(index.apply_set(&going), SetChange::Unwatch);
        let told: Vec<_> = index.unmanaged().map(|(_, stray)| stray.clone()).collect();
        assert_eq!(told.len(), usize::from(named.is_some()), "{told:?}");
        if let (Some(named), [stray]) = (named, &*told) {
            assert_eq!(stray.reason, "BeingDeleted");
            assert!(stray.text.contains(named), "{}", stray.text);
        }
    }
    case(&[], None);
    case(&["foregroundDeletion"], None);
    case(&["orphan", "example.com/keep"], Some(": example.com/keep"));
}

/// A pod that the pod garbage collector or an eviction ends keeps its conditions. So its Ready condition may still be `True`.
#[test]
fn an_ended_pod_is_not_ready_regardless_of_its_condition() {
    let mut index = index();
    let mut over = pod("n1", "aaa").ready(10).version("7");
    over.0["status"]["phase"] = json!("Failed");
    feed(&mut index, &over, 200);
    let fleet = fleet(&mut index);
    assert_eq!(fleet.nodes[0].pods[0].ready_since, None);
    assert_eq!(fleet.nodes[1].pods[0].ready_since, Some(at(10)));
}

#[test]
fn saved_state_restores_facts_that_a_new_process_cannot_see() {
    let mut index = index();
    let before = fleet(&mut index);
    assert_eq!((&before.not_created, &before.pause), (&None, &None));
    let since = at(50);
    let pause = PauseRecord { since, reminded: 2 };
    let failing = FailingPods {
        reason: "Evicted".into(),
        message: "low on memory".into(),
        nodes: vec!["n1".into()],
    };
    let mut refused = WriteFailures::default();
    refused.keep_to(&"aaa".into());
    refused.refuse((&"n2".into(), None), WriteVerb::Delete, "no", at(60));
    let state = RolloutState {
        reported: Reported {
            revision: Some("aaa".into()),
            ..Reported::default()
        },
        guard: Some(FailureRecord {
            failed: [NodeName::from("n1")].into(),
            ..FailureRecord::new("aaa".into())
        }),
        pause: Some(ReportedPause::from_record(pause)),
        refused: ReportedFailures::new(&refused, None),
        not_created: Some("quota".into()),
        not_ready: [("agent-n1".into(), "probe fails".into())].into(),
        failing: vec![failing],
        ..RolloutState::default()
    };
    let mut changed = set("v1", 2, 2);
    changed.status.conditions = vec![k8s::Condition {
        kind: "RolloutState".to_owned(),
        status: "True".to_owned(),
        message: state.to_json(),
        ..Default::default()
    }];
    index.apply_set(&changed);
    let known = fleet(&mut index);
    assert_eq!(known.record, state.guard);
    assert_eq!(known.pause, Some(pause));
    assert_eq!(known.not_created.as_deref(), Some("quota"));
    assert_eq!(known.not_ready, state.not_ready);
    let set = index.set(&key()).unwrap();
    assert_eq!(*set.state, state);
    // The value in this process's last report counts, not the one in the status.
    let set = index.set_mut(&key()).unwrap();
    set.set_last_pause(None);
    set.set_not_created(None);
    let known = fleet(&mut index);
    assert_eq!((&known.not_created, known.pause), (&None, None));
    for broken in ["", "{", "revision aaa: complete"] {
        changed.status.conditions[0].message = broken.to_owned();
        let mut index = Index::default();
        index.apply_set(&changed);
        let set = index.set(&key()).unwrap();
        assert_eq!(*set.state, RolloutState::default(), "{broken}");
        assert!(set.state_error.is_some(), "{broken}");
    }
}

#[test]
fn objects_with_missing_or_null_fields_are_read() {
    fn case(object: Value) {
        let text = object.to_string();
        let pod: k8s::Pod = parsed(object.clone());
        let node: k8s::Node = parsed(object.clone());
        let revision: k8s::ControllerRevision = parsed(json!({"metadata": object["metadata"]}));
        let mut index = index();
        index.apply_node(&node, at(1));
        index.apply_revision(&revision);
        index.apply_pod(&key(), &pod, at(1));
        assert!(index.fleet(&key(), at(2)).is_some(), "{text}");
    }
    case(json!({}));
    case(json!({"metadata": {}}));
    case(json!({"metadata": {"name": "x"}, "spec": null, "status": null}));
    case(
        json!({"metadata": {"name": "x", "labels": null, "annotations": null, "ownerReferences": null}}),
    );
    case(
        json!({"metadata": {"name": "", "uid": ""}, "spec": {"nodeName": "", "taints": null}, "status": {"conditions": null}}),
    );
    case(
        json!({"metadata": {"name": "x"}, "status": {"conditions": [{}], "containerStatuses":
        [{"ready": null, "restartCount": -1, "state": null}, {"state": {"waiting": {"reason": null}}}]}}),
    );
    case(
        json!({"metadata": {"name": "x"}, "spec": {"affinity": {"nodeAffinity":
        {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [{}]}]}}}}}),
    );
}

#[test]
fn a_node_has_the_images_that_it_lists_or_that_its_ready_pod_runs() {
    let ahead = |image: &str, generation| {
        let mut set = set(image, generation, generation);
        let annotations = set.metadata.annotations.get_or_insert_default();
        let key =
            crate::core::settings::image_predownload_parallelism::IMAGE_PREDOWNLOAD_PARALLELISM;
        annotations.insert(key.to_owned(), "1".to_owned());
        set
    };
    let lists = |name: &str, images: &[&str]| -> k8s::Node {
        let conditions = json!([{ "type": "Ready", "status": "True" }]);
        let images = json!([{ "names": images, "sizeBytes": 1 }]);
        parsed(
            json!({ "metadata": { "name": name }, "status": { "conditions": conditions, "images": images } }),
        )
    };
    let has = |index: &mut Index| -> Vec<bool> {
        let fleet = fleet(index);
        fleet.nodes.iter().map(|node| node.has_images).collect()
    };
    let mut index = index();
    index.apply_node(&node("n3", "True", 0), at(100));
    index.apply_set(&ahead("app:2", 2));
    index.apply_revision(&revision("bbb", 2, "app:2"));
    assert_eq!(has(&mut index), [false, false, false]);
    // Of the images on a node, the index records only images that a revision of the DaemonSet uses.
    let listed = ["docker.io/library/app:2", "docker.io/library/other:1"];
    index.apply_node(&lists("n2", &listed), at(101));
    assert_eq!(has(&mut index), [false, true, false]);
    feed(&mut index, &pod("n3", "bbb").ready(102), 102);
    assert_eq!(has(&mut index), [false, true, true]);
    // The next revision has the same image, but differs in another field. The pod on n1 has a third revision.
    index.apply_set(&ahead("app:2", 3));
    let mut same = revision("ccc", 3, "app:2");
    let other = TemplateFingerprint::from_template(&json!({ "other": 1 }));
    same.template.as_mut().unwrap().fingerprint = other;
    index.apply_revision(&same);
    index.set_mut(&key()).unwrap().template = other;
    assert_eq!(has(&mut index), [false, true, true]);
    // Without pre-pulls, no images on nodes are recorded.
    index.apply_set(&set("app:2", 4, 4));
    index.set_mut(&key()).unwrap().template = other;
    assert_eq!(has(&mut index), [false, false, false]);
}

#[test]
fn an_image_request_counts_from_the_time_at_which_it_is_sent() {
    let mut index = index();
    let asked = |index: &mut Index| {
        let fleet = fleet(index);
        let image = fleet.nodes[0].pods[0].image_ready.clone();
        image.map(|image| (image.waits, image.revision.unwrap()))
    };
    let shows = |reason: &str| {
        let mut pod = pod("n1", "aaa").ready(10);
        let condition = json!({ "type": "PodImageReady", "status": "False", "reason": reason,
            "message": match reason {
                "PullImageFail" => "pull image job x failed: y (controllerrevision: bbb)",
                _ => "controllerrevision: bbb",
            },
            "lastProbeTime": CREATED });
        pod.0["status"]["conditions"]
            .as_array_mut()
            .unwrap()
            .push(condition);
        pod
    };
    let request = || Action::AskForImages {
        pod: deletion("n1").pod().clone(),
        revision: "bbb".into(),
        anew: true,
    };
    let waits = Some((true, Revision::from("bbb")));
    let set = |index: &mut Index, at_second| {
        let set = index.set_mut(&key()).unwrap();
        set.begin_write(&request(), at(at_second));
        set.end_write(&request(), WriteAnswer::Accepted, at(at_second));
        set.pending_due()
    };
    assert_eq!(set(&mut index, 200), Some(at(230)));
    assert_eq!(asked(&mut index), waits);
    feed(&mut index, &pod("n1", "aaa").ready(10).version("2"), 201);
    assert_eq!(asked(&mut index), waits);
    feed(&mut index, &shows("WaitPullImage").version("3"), 202);
    assert_eq!(due(&index), None);
    // The first pull fails. The second request stays pending as long as the pod shows only the result of the first.
    feed(&mut index, &shows("PullImageFail").version("4"), 203);
    assert_eq!(asked(&mut index), Some((false, "bbb".into())));
    set(&mut index, 300);
    feed(&mut index, &shows("PullImageFail").version("5"), 301);
    assert_eq!(asked(&mut index), waits);
    let set = index.set_mut(&key()).unwrap();
    set.end_write(&request(), WriteAnswer::Refused, at(301));
    assert_eq!(asked(&mut index), Some((false, "bbb".into())));
}
