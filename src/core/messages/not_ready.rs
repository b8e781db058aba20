//! Why a pod does not become Ready although nothing in its status fails: what was said of it last, in the sentence of the condition,
//! from which `ctl` reads it back.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::core::fleet::Fleet;
use crate::core::id::PodName;
use crate::core::words::{line, of_event};

/// The component by which kubelets sign their Events.
const KUBELET: &str = "kubelet";

const BEFORE: &str = "pod ";
const BETWEEN: &str = " does not become available";
const SAYS: &str = " (says ";

/// What an Event about a pod says, and who does; without a `reason`, what its condition Ready says.
pub fn said(reason: &str, message: &str, by: &str) -> String {
    let by = match by {
        KUBELET | "" => "its kubelet",
        other => other,
    };
    let told = [reason, of_event(message)].map(line);
    let told: Vec<String> = told.into_iter().filter(|part| !part.is_empty()).collect();
    format!("{}{SAYS}{by})", told.join(": "))
}

/// That a pod does not become available, and why as far as somebody said that.
pub(super) fn sentence(fleet: &Fleet, pod: &str) -> String {
    let why = fleet.not_ready.get(&PodName::from(pod));
    let why = why.map_or_else(String::new, |why| format!(": {why}"));
    format!("{BEFORE}{pod}{BETWEEN}{why}")
}

/// What such sentences in `message` say of pods.
pub fn read(message: &str) -> BTreeMap<PodName, Arc<str>> {
    let mut found = BTreeMap::new();
    let mut rest = message;
    let start = format!("{BETWEEN}: ");
    while let Some((before, after)) = rest.split_once(&start) {
        rest = after;
        let pod = before.rsplit_once(BEFORE).map_or("", |(_, pod)| pod);
        let end = after
            .split_once(SAYS)
            .and_then(|(why, by)| Some(why.len() + SAYS.len() + by.find(')')? + 1));
        if let Some(end) = end.filter(|_| !pod.is_empty() && !pod.contains(' ')) {
            found.insert(pod.into(), after[..end].into());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::testing::fleet;

    #[test]
    fn what_was_said_is_read_back_from_the_sentence() {
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
        let told = fleet(Vec::new());
        let told = Fleet {
            not_ready: [("a-1", &probe), ("b-2", &ready)]
                .map(|(pod, why)| (pod.into(), why.as_str().into()))
                .into(),
            ..told
        };
        let message = format!(
            "revision 5d4f8: stopped: held up for too long: a: {}; b: {}; c: {}; see ctl why",
            sentence(&told, "a-1"),
            sentence(&told, "b-2"),
            sentence(&told, "c-3")
        );
        assert!(message.contains("pod c-3 does not become available; see"));
        assert_eq!(read(&message), told.not_ready);
        assert_eq!(read("revision 5d4f8: complete"), BTreeMap::new());
        assert_eq!(
            read(" does not become available: x (says "),
            BTreeMap::new()
        );
    }
}
