//! Of which pods is to be asked why they do not become Ready although nothing in their status fails (a probe, a missing ConfigMap,
//! the network, a readiness gate).

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::deadline;
use crate::core::fleet::{Fleet, Node, Pod};
use crate::core::id::{PodName, PodUid};
use crate::core::instant::earlier;
use crate::core::plan::{Plan, Stall};
use crate::core::verdict::{Progress, Verdict};

/// So long before a pod is past its deadline somebody asks what is said of it: the first sentence about it has the answer.
pub const AHEAD: std::time::Duration = std::time::Duration::from_secs(20);

/// Nodes of which is said what holds them; of the rest the names.
pub(in crate::core) const EXPLAINED: usize = 3;

/// Pods of which is to be asked what is said of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnexplainedPods {
    /// Those that are past their deadline, or nearly: the first few.
    pub pods: Vec<(PodName, PodUid)>,
    /// When the next one will be.
    pub next: Option<Timestamp>,
}

impl Plan {
    /// Of which pods is to be asked at `now` why they do not become available: nobody, as long as pods take the time that they
    /// take anywhere.
    pub fn not_ready(&self, fleet: &Fleet, now: Timestamp) -> UnexplainedPods {
        let mut asked = UnexplainedPods::default();
        for (node, verdict) in fleet.nodes.iter().zip(&self.verdicts) {
            let Verdict::InProgress(progress) = *verdict else {
                continue;
            };
            let grace = deadline::missing_grace(fleet);
            let Some((pod, by)) = awaited(node, progress, grace) else {
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

/// When somebody is to be asked why the pod of a node in progress does not become available; `None`: never, as it is now. `grace`
/// is for a missing pod.
pub(super) fn asked_at(node: &Node, progress: Progress, grace: Duration) -> Option<Timestamp> {
    let (_, by) = awaited(node, progress, grace)?;
    Some(earlier(by, AHEAD))
}

/// The pod of a node that has to become available, if nothing tells that it fails, and by when.
fn awaited(node: &Node, progress: Progress, grace: Duration) -> Option<(&Pod, Timestamp)> {
    if deadline::fails(node, progress) {
        return None;
    }
    let pod = deadline::awaited(node, progress)?;
    match deadline::deadline(node, progress, grace)? {
        (by, Stall::NoProgress) => Some((pod, by)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::core::testing::{at, current, fleet, node, old};
    use crate::core::{Mode, Strategy, decide};

    #[test]
    fn nobody_asks_before_a_pod_is_nearly_past_its_deadline() {
        let asked = |pod: Pod, now| {
            let fleet = fleet(vec![node("a", pod), node("b", old(1))]);
            let strategy = Strategy::with_mode(Mode::AdvancedRollingUpdate);
            decide(&strategy, &fleet, at(now)).not_ready(&fleet, at(now))
        };
        let late = || current(2).made(1000).broken();
        let before = asked(late(), 1579);
        assert_eq!((before.pods, before.next), (Vec::new(), Some(at(1580))));
        let due = asked(late(), 1580);
        assert_eq!((due.pods, due.next), (vec![("a".into(), "a".into())], None));
        let fails = Pod {
            problem: Some(
                crate::core::PodProblem {
                    reason: "ErrImagePull".into(),
                    said: Arc::default(),
                    restarts: 0,
                    ended: 0,
                }
                .into(),
            ),
            ..late()
        };
        assert_eq!(asked(fails, 1580), UnexplainedPods::default());
        assert_eq!(
            asked(current(2).made(1000), 1580),
            UnexplainedPods::default()
        );
        // The first pod of a rollout that begins has all of its time.
        assert_eq!(asked(old(1), 1580), UnexplainedPods::default());
    }
}
