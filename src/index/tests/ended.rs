//! Tests of pods that end for good (evicted or completed), one after the other, because the native controller replaces each.

use super::*;

impl PodWords {
    /// Returns the pod with another UID, as the pod number `number` of a series on its node.
    fn next(mut self, number: usize) -> Self {
        self.0["metadata"]["uid"] = json!(format!("uid-{number}"));
        self
    }

    fn ended(mut self, phase: &str, status: Value) -> Self {
        self.0["status"] = status;
        self.0["status"]["phase"] = json!(phase);
        self
    }
}

fn problem(index: &mut Index) -> Option<(String, u32)> {
    let fleet = fleet(index);
    let pod = fleet.nodes[0].pods.last().expect("a pod");
    let problem = pod.problem.as_ref();
    problem.map(|problem| (problem.reason.to_string(), problem.ended))
}

pub(super) fn said(index: &mut Index) -> String {
    let fleet = fleet(index);
    let problem = fleet.nodes[0].pods[0].problem.as_ref();
    problem.map_or_else(String::new, |problem| problem.words())
}

fn replace(index: &mut Index, pod: &PodWords, now: i64) {
    let set = index.set_mut(&key()).unwrap();
    for before in ["n1", "1", "2", "3", "4"] {
        set.delete_pod(&format!("uid-{before}"));
    }
    feed(index, pod, now);
}

#[test]
fn the_successor_of_ended_pods_inherits_their_problem_until_it_is_ready() {
    let mut index = index();
    let evicted = |number| {
        let status = json!({"reason": "Evicted", "message": "low on memory"});
        pod("n1", "aaa").next(number).ended("Failed", status)
    };
    let next = |number| pod("n1", "aaa").next(number);
    let told = |times| Some(("Evicted".to_owned(), times));
    replace(&mut index, &evicted(1), 200);
    assert_eq!(problem(&mut index), told(1));
    assert_eq!(said(&mut index), "Evicted: low on memory");
    feed(&mut index, &evicted(1).version("2"), 201);
    assert_eq!(problem(&mut index), told(1));
    replace(&mut index, &next(2), 210);
    assert_eq!(problem(&mut index), told(1));
    feed(&mut index, &evicted(2), 220);
    replace(&mut index, &next(3), 230);
    assert_eq!(problem(&mut index), told(2));
    feed(&mut index, &next(3).ready(240), 240);
    assert_eq!(problem(&mut index), None);
    // Two events start a new series: a pod of another revision, and a pod that ends more than an hour after the last one.
    replace(&mut index, &pod("n1", "bbb").next(4), 250);
    assert_eq!(problem(&mut index), None);
    replace(&mut index, &evicted(5), 5_000);
    assert_eq!(problem(&mut index), told(1));
}

#[test]
fn a_pod_that_ends_successfully_is_also_a_problem() {
    let mut index = index();
    let container = json!({"name": "main", "image": "v1", "imageID": "v1", "restartCount": 0, "ready": false,
        "state": {"terminated": {"reason": "Completed", "exitCode": 0}}});
    let done = |number| {
        let status = json!({"containerStatuses": [container]});
        pod("n1", "aaa").next(number).ended("Succeeded", status)
    };
    replace(&mut index, &done(1), 200);
    replace(&mut index, &done(2), 210);
    assert_eq!(problem(&mut index), Some(("Completed".to_owned(), 2)));
}

/// After a restart of the controller, the ended pods are gone. Only the next pod and the DaemonSet's condition show the series.
#[test]
fn the_condition_restores_problems_of_pods_ended_before_a_restart() {
    #[track_caller]
    fn case(message: &str, expected: &str) {
        let mut index = Index::default();
        for name in ["n1", "n2"] {
            index.apply_node(&node(name, "True", 0), at(100));
        }
        let mut set = set("v1", 1, 1);
        set.status.conditions = vec![k8s::Condition {
            kind: "Stalled".to_owned(),
            status: "True".to_owned(),
            reason: "PodsDoNotStart".to_owned(),
            message: message.to_owned(),
            last_transition: None,
            last_probe: None,
        }];
        index.apply_set(&set);
        index.apply_revision(&revision("aaa", 1, "v1"));
        feed(&mut index, &pod("n1", "aaa"), 200);
        assert_eq!(said(&mut index), expected, "{message}");
        feed(&mut index, &pod("n1", "aaa").ready(210).version("2"), 210);
        assert_eq!(said(&mut index), "");
    }
    let about = |nodes: &str| {
        format!(
            "revision aaa: stopped: the new pods do not start on {nodes} (Evicted: low on memory); go back to"
        )
    };
    case(&about("n1"), "Evicted: low on memory");
    case(&about("n0, n1, n2 and 3 more"), "Evicted: low on memory");
    case(&about("n11"), "");
    case(&about("n1").replace("aaa", "bbb"), "");
    case(
        "revision aaa: stopped: the new pods do not start on n1; go back",
        "",
    );
}

/// The node has the problem, not only its pods. Between two ended pods there may be none, and a running pod doesn't show that
/// earlier ones ended.
#[test]
fn a_node_whose_pods_keep_ending_has_a_problem_until_one_stays_ready() {
    let trouble = |index: &mut Index| {
        let fleet = fleet(index);
        let trouble = fleet.nodes[0].trouble.as_ref();
        trouble.map(|problem| (problem.words(), problem.ended))
    };
    let evicted = |number| {
        let status = json!({"reason": "Evicted", "message": "low on memory"});
        pod("n1", "aaa").next(number).ended("Failed", status)
    };
    let told = |times| Some(("Evicted: low on memory".to_owned(), times));
    let mut index = index();
    replace(&mut index, &evicted(1), 200);
    assert_eq!(trouble(&mut index), None);
    replace(&mut index, &evicted(2), 210);
    assert_eq!(trouble(&mut index), told(2));
    let set = index.set_mut(&key()).unwrap();
    set.delete_pod("uid-2");
    assert_eq!(trouble(&mut index), told(2));
    let next = pod("n1", "aaa").next(3).ready(230);
    feed(&mut index, &next, 230);
    assert_eq!(trouble(&mut index), told(2));
    feed(&mut index, &next.version("2"), 300);
    assert_eq!(trouble(&mut index), None);
    // The pod was Ready for a while, so a new series begins with its eviction.
    replace(&mut index, &evicted(4), 400);
    assert_eq!(trouble(&mut index), None);
}

/// When the controller sees the node for the first time after a restart, it may have an ended pod, or no pod.
#[test]
fn the_condition_restores_the_problem_of_a_node_with_or_without_a_pod() {
    for pod in [
        None,
        Some(pod("n1", "aaa").ended(
            "Failed",
            json!({"reason": "Evicted", "message": "low on memory"}),
        )),
    ] {
        let mut index = Index::default();
        index.apply_node(&node("n1", "True", 0), at(100));
        let mut set = set("v1", 1, 1);
        set.status.conditions = vec![k8s::Condition {
            kind: "Stalled".to_owned(),
            status: "True".to_owned(),
            reason: "PodsDoNotStart".to_owned(),
            message: "revision aaa: stopped: the new pods do not start on n1 (Evicted: low on memory); go back to".to_owned(),
            last_transition: None,
            last_probe: None,
        }];
        index.apply_set(&set);
        index.apply_revision(&revision("aaa", 1, "v1"));
        index.set_mut(&key()).unwrap().synced = true;
        if let Some(pod) = pod {
            feed(&mut index, &pod, 200);
        }
        assert!(fleet(&mut index).nodes[0].trouble.is_some());
    }
}
