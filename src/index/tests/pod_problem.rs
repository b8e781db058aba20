//! Tests of the reasons that are reported for pods that don't start.

use super::ended::said;
use super::*;

impl PodWords {
    fn waiting(mut self, reason: &str, message: &str) -> Self {
        let state = json!({"waiting": {"reason": reason, "message": message}});
        let status = json!({"name": "main", "image": "v1", "imageID": "", "restartCount": 0, "ready": false, "state": state});
        self.0["status"] = json!({"phase": "Pending", "containerStatuses": [status]});
        self
    }

    fn unscheduled(mut self, message: &str) -> Self {
        let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message});
        self.0["status"] = json!({"phase": "Pending", "conditions": [condition]});
        self
    }
}

/// Passes these versions of a pod to the index one after the other. Returns the problem that is reported after each of them.
fn told<const N: usize>(looks: [PodWords; N]) -> [String; N] {
    let mut index = index();
    let mut version = 0;
    looks.map(|look| {
        version += 1;
        feed(
            &mut index,
            &look.version(&version.to_string()),
            200 + version,
        );
        said(&mut index)
    })
}

#[test]
fn a_scheduling_problem_is_reported_without_the_preemption_part() {
    let words = "0/3 nodes are available: 1 Insufficient cpu. preemption: 0/3 nodes are available: 3 No victims found.";
    let expected = "Unschedulable: 0/3 nodes are available: 1 Insufficient cpu";
    assert_eq!(told([pod("n1", "aaa").unscheduled(words)]), [expected]);
}

#[test]
fn the_error_of_a_pull_is_kept_during_its_backoff() {
    let pull = |reason, message| pod("n1", "aaa").waiting(reason, message);
    let looks = [
        pull("ErrImagePull", "no such host\n  registry.local"),
        pull("ImagePullBackOff", "Back-off pulling image \"a\""),
        pull(
            "ImagePullBackOff",
            "Back-off pulling image \"a\": ErrImagePull: not found",
        ),
    ];
    let expected = [
        "ErrImagePull: no such host registry.local",
        "ImagePullBackOff: no such host registry.local",
        "ImagePullBackOff: not found",
    ];
    assert_eq!(told(looks), expected);
}

#[test]
fn varying_parts_are_removed_and_long_messages_are_cut() {
    let crash = pod("n1", "aaa").waiting("CrashLoopBackOff", "back-off 10s restarting");
    let long = pod("n1", "aaa").waiting("CreateContainerConfigError", &"é".repeat(300));
    let [crash, long] = told([crash, long]);
    assert_eq!(crash, "CrashLoopBackOff");
    assert_eq!(
        long,
        format!("CreateContainerConfigError: {}…", "é".repeat(240))
    );
}
