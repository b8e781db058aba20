//! Selection of the pods whose Events are read to explain why the pods don't become Ready.
//!
//! The status of these pods shows no failure. Only their Events tell the cause: a probe, a missing ConfigMap, the network or a
//! readiness gate.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::deadline;
use crate::core::fleet::{Fleet, Node, Pod};
use crate::core::id::{PodName, PodUid};
use crate::core::instant::earlier;
use crate::core::plan::{Plan, Stall};
use crate::core::verdict::{Progress, Verdict};

/// Time before a pod's deadline at which its Events are read, so that the first message about the pod contains the reason.
pub const AHEAD: std::time::Duration = std::time::Duration::from_secs(20);

/// Number of nodes that a message reports with a reason. Further nodes are reported by name only.
pub(in crate::core) const EXPLAINED: usize = 3;

/// Pods whose Events have to be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnexplainedPods {
    /// First few pods that are past their deadline or close to it.
    pub pods: Vec<(PodName, PodUid)>,
    /// Time at which the Events of the next pod have to be read.
    pub next: Option<Timestamp>,
}

impl Plan {
    /// Returns the pods whose Events have to be read at `now`; none if all pods are well before their deadline.
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

/// Returns the time at which the Events of a node's pod have to be read; `None` if the node waits for no pod that Events could
/// explain.
///
/// `grace` is the time that a pod may be missing.
pub(super) fn asked_at(node: &Node, progress: Progress, grace: Duration) -> Option<Timestamp> {
    let (_, by) = awaited(node, progress, grace)?;
    Some(earlier(by, AHEAD))
}

/// Returns the pod that has to become available, and its deadline; `None` if a failure already explains the delay.
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
    fn pods_are_looked_up_only_near_their_deadline() {
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
                    detail: Arc::default(),
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
        // The replacement of this pod begins now, so it has no deadline yet.
        assert_eq!(asked(old(1), 1580), UnexplainedPods::default());
    }
}
