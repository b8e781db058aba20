//! Why a pod does not become Ready although nothing in its status fails (a probe, a missing ConfigMap, the network, a readiness
//! gate): what was said of it last, in the sentence of the condition, from which `ctl` reads it back.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use super::deadline;
use crate::core::fleet::{Fleet, Node, Pod};
use crate::core::id::{PodName, PodUid};
use crate::core::instant::earlier;
use crate::core::plan::{Plan, Stall};
use crate::core::verdict::{Progress, Verdict};
use crate::core::words::line;

/// So long before a pod is past its deadline somebody asks what is said of it: the first sentence about it has the answer.
pub const AHEAD: std::time::Duration = std::time::Duration::from_secs(20);

/// Nodes of which is said what holds them; of the rest the names.
pub(super) const EXPLAINED: usize = 3;

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
    let told = [reason, message].map(line);
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

/// Pods of which is to be asked what is said of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Those that are past their deadline, or nearly: the first few.
    pub pods: Vec<(PodName, PodUid)>,
    /// When the next one will be.
    pub next: Option<Timestamp>,
}

impl Plan {
    /// Of which pods is to be asked at `now` why they do not become available: nobody, as long as pods take the time that they
    /// take anywhere.
    pub fn not_ready(&self, fleet: &Fleet, now: Timestamp) -> Asked {
        let mut asked = Asked::default();
        for (node, verdict) in fleet.nodes.iter().zip(&self.verdicts) {
            let Verdict::InProgress(progress) = *verdict else {
                continue;
            };
            let Some((pod, by)) = awaited(fleet, node, progress) else {
                continue;
            };
            match earlier(by, AHEAD) {
                at if at > now => asked.next = asked.next.into_iter().chain([at]).min(),
                _ if asked.pods.len() < EXPLAINED => {
                    asked.pods.push((pod.name.clone(), pod.uid.clone()));
                }
                _ => {}
            }
        }
        asked
    }
}

/// The pod of a node that has to become available, if nothing tells that it fails, and by when.
fn awaited<'a>(fleet: &Fleet, node: &'a Node, progress: Progress) -> Option<(&'a Pod, Timestamp)> {
    if deadline::fails(node, progress) {
        return None;
    }
    let pod = deadline::awaited(node, progress)?;
    let grace = deadline::missing_grace(fleet);
    match deadline::deadline(node, progress, grace)? {
        (by, Stall::NoProgress) => Some((pod, by)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::testing::{at, current, fleet, node, old};
    use crate::core::{Mode, Strategy, decide};

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

    #[test]
    fn nobody_asks_before_a_pod_is_nearly_past_its_deadline() {
        let asked = |pod: Pod, now| {
            let fleet = fleet(vec![node("a", pod), node("b", old(1))]);
            let strategy = Strategy::of(Mode::AdvancedRollingUpdate);
            decide(&strategy, &fleet, at(now)).not_ready(&fleet, at(now))
        };
        let late = || current(2).made(1000).broken();
        let before = asked(late(), 1579);
        assert_eq!((before.pods, before.next), (Vec::new(), Some(at(1580))));
        let due = asked(late(), 1580);
        assert_eq!((due.pods, due.next), (vec![("a".into(), "a".into())], None));
        let fails = Pod {
            problem: Some(crate::core::PodProblem {
                reason: "ErrImagePull".into(),
                said: Arc::default(),
                restarts: 0,
            }),
            ..late()
        };
        assert_eq!(asked(fails, 1580), Asked::default());
        assert_eq!(asked(current(2).made(1000), 1580), Asked::default());
        // The first pod of a rollout that begins has all of its time.
        assert_eq!(asked(old(1), 1580), Asked::default());
    }
}
