use serde_json::{Value, json};

use super::*;
use crate::core::testing::{fleet, node, old};
use crate::core::{IntOrPercent, Node, manage};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// Returns the record of an Advanced DaemonSet with this status.
fn record(status: Value) -> AdvancedRecord {
    let set = json!({
        "apiVersion": "apps.kruise.io/v1beta1",
        "kind": "DaemonSet",
        "metadata": { "name": "agent", "namespace": "default", "uid": "d", "generation": 2 },
        "spec": { "burstReplicas": 5, "template": {} },
        "status": status,
    });
    let set: k8s::AdvancedDaemonSet = serde_json::from_value(set).unwrap();
    *AdvancedRecord::read(&set.into()).expect("an Advanced one")
}

/// Returns the status of a completed rollout.
fn done() -> Value {
    json!({
        "observedGeneration": 2, "desiredNumberScheduled": 3, "currentNumberScheduled": 3, "numberMisscheduled": 0,
        "numberReady": 3, "numberAvailable": 3, "numberUnavailable": 0, "updatedNumberScheduled": 3,
        "updateRevision": "bbb", "daemonSetHash": "bbb",
    })
}

/// Returns the numbers that the status in [`done`] contains.
fn numbers() -> StatusNumbers {
    StatusNumbers {
        counts: DaemonSetCounts {
            desired: 3,
            current: 3,
            misscheduled: 0,
            ready: 3,
            available: 3,
            unavailable: 0,
            updated: 3,
        },
        revision: Some("bbb".into()),
        observed: 2,
        collisions: 0,
    }
}

fn with_ready(ready: usize) -> StatusNumbers {
    let counts = DaemonSetCounts {
        ready,
        ..numbers().counts
    };
    StatusNumbers {
        counts,
        ..numbers()
    }
}

#[test]
fn unchanged_status_counts_are_not_written() {
    #[track_caller]
    fn case(change: Value, due: NumbersDue) {
        let mut status = done();
        for (name, value) in change.as_object().unwrap() {
            match value {
                Value::Null => drop(status.as_object_mut().unwrap().remove(name)),
                value => status[name] = value.clone(),
            }
        }
        assert_eq!(record(status).numbers_due(&numbers(), false, at(0)), due);
    }
    case(json!({}), NumbersDue::No);
    // Kruise omits `numberUnavailable` if it is zero, so a missing field equals zero.
    case(json!({ "numberUnavailable": null }), NumbersDue::No);
    // Conditions are not part of the numbers, so changed conditions alone cause no write of numbers.
    case(
        json!({ "conditions": [{ "type": "Stalled", "status": "True" }] }),
        NumbersDue::No,
    );
    let others = [
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberMisscheduled",
        "numberReady",
        "numberAvailable",
        "numberUnavailable",
        "updatedNumberScheduled",
        "observedGeneration",
        "collisionCount",
    ];
    for name in others {
        case(json!({ name: 7 }), NumbersDue::Now);
    }
    case(json!({ "updateRevision": "aaa" }), NumbersDue::Now);
    case(
        json!({ "updateRevision": "aaa", "daemonSetHash": "aaa" }),
        NumbersDue::Now,
    );
    case(json!({ "daemonSetHash": null }), NumbersDue::Now);
    // A status that was never written, or is incomplete, is written at once.
    case(json!({ "desiredNumberScheduled": null }), NumbersDue::Now);
    case(json!({ "observedGeneration": null }), NumbersDue::Now);
    let never = record(Value::Null);
    assert_eq!(never.numbers_due(&numbers(), false, at(0)), NumbersDue::Now);
}

#[test]
fn counts_are_written_once_a_second_and_other_status_fields_at_once() {
    let mut record = record(done());
    record.begin_numbers(with_ready(2), at(100));
    assert_eq!(
        record.numbers_due(&with_ready(2), true, at(100)),
        NumbersDue::No
    );
    // The numbers that were just sent are not sent again, even if the watch doesn't show them for a long time.
    assert_eq!(
        record.numbers_due(&with_ready(2), true, at(500)),
        NumbersDue::No
    );
    assert_eq!(
        record.numbers_due(&with_ready(1), true, at(100)),
        NumbersDue::At(at(100) + BETWEEN_COUNTS)
    );
    assert_eq!(
        record.numbers_due(&with_ready(1), true, at(102)),
        NumbersDue::Now
    );
    // The status still shows the numbers from before the last write. They differ from the sent numbers, so they must be sent.
    assert_eq!(
        record.numbers_due(&numbers(), true, at(102)),
        NumbersDue::Now
    );
    let changes = [
        StatusNumbers {
            revision: Some("ccc".into()),
            ..with_ready(2)
        },
        StatusNumbers {
            observed: 3,
            ..with_ready(2)
        },
    ];
    for change in changes {
        assert_eq!(record.numbers_due(&change, true, at(100)), NumbersDue::Now);
    }
    // After a failed write, numbers are compared with the status again instead of with the sent numbers.
    record.lose_numbers();
    assert_eq!(
        record.numbers_due(&numbers(), false, at(100)),
        NumbersDue::No
    );
    assert_eq!(
        record.numbers_due(&with_ready(2), false, at(100)),
        NumbersDue::Now
    );
}

#[test]
fn counts_that_another_writer_changes_are_written_again() {
    let mut record = record(done());
    record.begin_numbers(numbers(), at(100));
    let mut others = done();
    others["observedGeneration"] = json!(99);
    others["numberReady"] = json!(7);
    let is_news = record.update(self::record(others));
    assert!(is_news);
    assert_eq!(
        record.numbers_due(&numbers(), true, at(102)),
        NumbersDue::No
    );
    assert_eq!(
        record.numbers_due(&numbers(), false, at(102)),
        NumbersDue::Now
    );
    // The watch shows the controller's own write of the numbers.
    let is_news = record.update(self::record(done()));
    assert!(!is_news);
    assert_eq!(
        record.numbers_due(&numbers(), false, at(102)),
        NumbersDue::No
    );
}

/// Returns a pod without a controller. `change` is merged into the metadata of the pod.
fn pod(name: &str, node: &str, change: Value) -> k8s::Pod {
    let mut meta =
        json!({ "name": name, "namespace": "default", "uid": name, "resourceVersion": "1" });
    for (field, value) in change.as_object().unwrap() {
        meta[field] = value.clone();
    }
    serde_json::from_value(json!({ "metadata": meta, "spec": { "nodeName": node } })).unwrap()
}

fn names(orphans: Vec<Orphan>) -> Vec<String> {
    let name = |orphan: Orphan| orphan.pod.name.to_string();
    orphans.into_iter().map(name).collect()
}

/// Returns the nodes for which a pod is created now, if none of `nodes` has a pod.
fn created(record: &AdvancedRecord, nodes: &[&str]) -> Vec<String> {
    let empty = |name: &&str| Node {
        pods: [].into(),
        ..node(name, old(1))
    };
    let fleet = fleet(nodes.iter().map(empty).collect());
    let managed = manage(&fleet, record.terms(&ParsedSettings::NotOurs, at(100)));
    managed.create.iter().map(NodeName::to_string).collect()
}

#[test]
fn no_pod_is_created_where_an_orphan_is_about_to_be_adopted() {
    let mut record = record(done());
    let free = |record: &AdvancedRecord| created(record, &["n1", "n2"]);
    let orphan = pod("p", "n1", json!({}));
    assert!(record.note_orphan(&orphan), "it is news");
    assert!(!record.note_orphan(&orphan), "it is none any more");
    assert_eq!(free(&record), ["n2"]);
    // Each orphan is returned once. The orphan blocks its node until it is adopted or gone.
    assert_eq!(names(record.take_orphans()), ["p"]);
    assert!(record.orphans.is_empty());
    assert_eq!(free(&record), ["n2"]);
    assert!(record.forget_orphan(&"p".into()));
    assert_eq!(free(&record), ["n1", "n2"]);
    assert!(!record.forget_orphan(&"p".into()));
    // A pod of another controller doesn't block its node, nor does a terminating pod.
    let controlled = json!({ "ownerReferences": [{
        "apiVersion": "v1", "kind": "X", "name": "x", "uid": "x", "controller": true,
    }] });
    let dying = json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" });
    for change in [controlled, dying] {
        record.note_orphan(&orphan);
        assert!(
            record.note_orphan(&pod("p", "n1", change)),
            "its place is free"
        );
        assert_eq!(free(&record), ["n1", "n2"]);
        assert_eq!(names(record.take_orphans()), [""; 0]);
    }
}

#[test]
fn an_orphan_that_could_not_be_adopted_is_returned_once() {
    let mut record = record(done());
    record.note_orphan(&pod("p", "n1", json!({})));
    let told = record.take_orphans().remove(0);
    record.return_orphan(told.clone());
    assert_eq!(names(record.take_orphans()), ["p"]);
    // If the watch has shown a newer version of the orphan, the older version is not returned to the queue.
    record.note_orphan(&pod("p", "n1", json!({ "resourceVersion": "2" })));
    record.return_orphan(told.clone());
    assert_eq!(
        record.take_orphans()[0].pod.resource_version.to_string(),
        "2"
    );
    record.forget_orphan(&"p".into());
    record.return_orphan(told);
    assert!(record.orphans.is_empty());
}

#[test]
fn nodes_with_rejected_creations_come_last() {
    let mut record = record(done());
    let turn = |record: &AdvancedRecord| created(record, &["n1", "n2", "n3"]);
    assert_eq!(turn(&record), ["n1", "n2", "n3"]);
    record.note_creation(&"n1".into(), true);
    assert_eq!(turn(&record), ["n2", "n3", "n1"]);
    record.note_creation(&"n2".into(), true);
    record.note_creation(&"n2".into(), true);
    assert_eq!(turn(&record), ["n3", "n1", "n2"]);
    record.note_creation(&"n1".into(), false);
    assert_eq!(turn(&record), ["n1", "n3", "n2"]);
    // With a burst of one creation at a time, a node with a rejected pod doesn't block the other nodes.
    record.scaling.burst = IntOrPercent::Number(1);
    assert_eq!(turn(&record), ["n1"]);
    record.note_creation(&"n1".into(), true);
    assert_eq!(turn(&record), ["n3"]);
    record.forget_failures();
    record.scaling = Scaling::default();
    assert_eq!(turn(&record), ["n1", "n2", "n3"]);
}

#[test]
fn a_requested_pod_is_expected_until_a_late_enough_list_lacks_it() {
    let mut record = record(done());
    let asked: [NodeName; 2] = ["n1".into(), "n2".into()];
    record.begin_creation(asked[..1].iter(), at(100));
    record.begin_creation(asked[1..].iter(), at(110));
    // While the requests are unanswered, no list of pods can show whether they succeeded, so no list is due.
    assert_eq!(record.creation_due(), None);
    record.retain_creations(Some(at(130)));
    record.answer_creation(&asked[0], at(100));
    record.answer_creation(&asked[1], at(110));
    assert_eq!(record.creation_due(), Some(at(115)));
    let reading = ParsedSettings::NotOurs;
    let creating = |record: &AdvancedRecord| {
        let terms = record.terms(&reading, at(120));
        terms
            .creating
            .keys()
            .map(NodeName::to_string)
            .collect::<Vec<_>>()
    };
    record.retain_creations(None);
    record.retain_creations(Some(at(114)));
    assert_eq!(creating(&record), ["n1", "n2"]);
    record.retain_creations(Some(at(115)));
    assert_eq!(creating(&record), ["n2"]);
    record.end_creation(&"n2".into());
    assert_eq!((creating(&record).len(), record.creation_due()), (0, None));
}

#[test]
fn the_expectation_of_a_delayed_creation_starts_at_its_answer() {
    let mut record = record(done());
    let asked: [NodeName; 2] = ["n1".into(), "n2".into()];
    record.begin_creation(asked.iter(), at(100));
    // The pod of n1 shows before the answer to its request. The request for n2 times out.
    record.end_creation(&asked[0]);
    asked
        .iter()
        .for_each(|node| record.answer_creation(node, at(120)));
    assert_eq!(record.creation_due(), Some(at(135)));
    let reading = ParsedSettings::NotOurs;
    let creating = |record: &AdvancedRecord| record.terms(&reading, at(130)).creating.len();
    record.retain_creations(Some(at(130)));
    assert_eq!(creating(&record), 1);
    record.retain_creations(Some(at(135)));
    assert_eq!(creating(&record), 0);
}

#[test]
fn creations_with_lost_responses_are_expected_as_long_as_answered_ones() {
    let mut record = record(done());
    record.begin_creation([NodeName::from("n1")].iter(), at(100));
    record.lose_answers(at(120));
    assert_eq!(record.creation_due(), Some(at(135)));
    record.retain_creations(Some(at(135)));
    assert_eq!(record.creation_due(), None);
}

#[test]
fn nodes_that_had_a_pod_are_remembered_while_they_exist() {
    let mut record = record(done());
    let nodes = ["a", "b"].map(NodeName::from);
    nodes.iter().for_each(|node| record.note_held(node));
    record.keep_held(|node| *node != nodes[0]);
    assert_eq!(nodes.map(|node| record.had_pod(&node)), [false, true]);
}
