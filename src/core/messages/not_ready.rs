//! Sentences about pods that don't become Ready although their status reports no failure, with the latest Event about them.

use crate::core::fleet::Fleet;
use crate::core::id::PodName;
use crate::core::words::{line, of_event};

/// Component name that kubelets set in their Events.
const KUBELET: &str = "kubelet";

/// Returns the text of an Event about a pod, with its source. Without a `reason`, the text comes from the pod's Ready condition.
pub fn said(reason: &str, message: &str, by: &str) -> String {
    let by = match by {
        KUBELET | "" => "its kubelet",
        other => other,
    };
    let told = [reason, of_event(message)].map(line);
    let told: Vec<String> = told.into_iter().filter(|part| !part.is_empty()).collect();
    format!("{} (says {by})", told.join(": "))
}

/// Describes a pod that doesn't become available, with the reason, if known.
pub(super) fn sentence(fleet: &Fleet, pod: &str) -> String {
    let why = fleet.not_ready.get(&PodName::from(pod));
    let why = why.map_or_else(String::new, |why| format!(": {why}"));
    format!("pod {pod} does not become available{why}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::testing::fleet;

    #[test]
    fn the_sentence_says_what_was_said_last() {
        let probe = said(
            "Unhealthy",
            "Readiness probe failed: HTTP probe failed with statuscode: 500 \n",
            "kubelet",
        );
        assert_eq!(
            probe,
            "Unhealthy: Readiness probe failed: HTTP probe failed with statuscode: 500 (says its kubelet)"
        );
        let combined = "(combined from similar events): Readiness probe failed: HTTP probe failed with statuscode: 500";
        assert_eq!(said("Unhealthy", combined, "kubelet"), probe);
        let ready = said("", "containers with unready status: [main]", "");
        let gone = said("Evil", "x", "other-controller");
        assert_eq!(gone, "Evil: x (says other-controller)");
        let mut fleet = fleet(Vec::new());
        fleet.not_ready = [("a-1".into(), probe.as_str().into())].into();
        assert_eq!(
            sentence(&fleet, "a-1"),
            format!("pod a-1 does not become available: {probe}")
        );
        assert_eq!(sentence(&fleet, "c-3"), "pod c-3 does not become available");
        assert_eq!(
            ready,
            "containers with unready status: [main] (says its kubelet)"
        );
    }
}
