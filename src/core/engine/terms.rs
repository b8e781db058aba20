//! Rules for the availability of a pod in a rollout.
//!
//! # Proof on a few nodes first
//! A container without a readiness probe is Ready until it crashes. If `minReadySeconds` is 0, the rollout would count it as
//! available at once and replace pods on other nodes. Therefore pods of a new revision count as available only after they have been
//! Ready for [`PROOF`]. After the first pod has been Ready for that long, the revision is *proven*. From then on, only
//! `minReadySeconds` applies to its pods.
//!
//! A revision needs no proof if it was current before, or if no pod is outdated.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::core::fleet::{Fleet, Node, Pod, Targeting};
use crate::core::id::PodRevision;
use crate::core::instant::later;
use crate::core::settings::{Mode, Strategy};

/// Time that a pod has to be continuously Ready to prove its revision. If `minReadySeconds` is longer, that applies instead.
pub(crate) const PROOF: Duration = Duration::from_secs(10);

/// Availability rules for pods.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// Time that a pod has to be Ready to be available.
    pub(super) min_ready: Duration,
    /// True if the native controller observes changes in their order ([`Fleet::in_order`]).
    pub(super) in_order: bool,
    /// True if the current revision needs no proof.
    pub(super) is_proven: bool,
    pub(super) now: Timestamp,
}

impl Terms {
    /// Returns the rules of a fleet for checks to which it doesn't matter whether its revision is proven (see the module).
    pub(super) fn new(strategy: &Strategy, fleet: &Fleet, now: Timestamp) -> Self {
        Self {
            min_ready: strategy.min_ready,
            in_order: fleet.in_order,
            is_proven: false,
            now,
        }
    }

    /// Returns the rules for the rollout of a fleet, including the proof of its revision.
    pub(super) fn of_rollout(strategy: &Strategy, fleet: &Fleet, now: Timestamp) -> Self {
        let terms = Self::new(strategy, fleet, now);
        Self {
            is_proven: is_proven(strategy, fleet, terms),
            ..terms
        }
    }

    /// Returns the time at which this pod is available if it stays Ready; `None` if it is not Ready, or its image is being changed.
    pub(super) fn available_at(self, pod: &Pod) -> Option<Timestamp> {
        let ready = pod.ready_since.filter(|_| !pod.in_place.is_under_way());
        ready.map(|since| later(since, self.min_ready))
    }

    /// Returns the time at which this pod counts as available in a rollout if it stays Ready.
    pub(super) fn counts_at(self, pod: &Pod) -> Option<Timestamp> {
        let available_at = self.available_at(pod)?;
        if self.is_proven || pod.revision != PodRevision::Current {
            Some(available_at)
        } else {
            Some(available_at.max(later(pod.ready_since?, PROOF)))
        }
    }

    pub(super) fn is_available(self, pod: &Pod) -> bool {
        self.available_at(pod).is_some_and(|at| at <= self.now)
    }
}

/// Returns true if the current revision needs no proof. `terms` are the rules for a revision that is not proven.
fn is_proven(strategy: &Strategy, fleet: &Fleet, terms: Terms) -> bool {
    let crowd = &fleet.crowd;
    strategy.mode != Mode::AdvancedRollingUpdate
        || fleet.is_proven
        || crowd.done > 0
        || fleet.nodes.iter().any(|node| proves(node, terms))
        || crowd.outdated == 0 && !fleet.nodes.iter().any(Node::holds_outdated)
}

/// Returns true if a pod of this node proves the current revision.
fn proves(node: &Node, terms: Terms) -> bool {
    let is_proof = |at| at <= terms.now;
    node.is_ready()
        && node.targeting == Targeting::Run
        && (node.pods.iter()).any(|pod| {
            pod.revision == PodRevision::Current
                && !pod.terminating
                && terms.counts_at(pod).is_some_and(is_proof)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::testing::{at, current, fleet, node, old};
    use crate::core::verdict::{Progress, Verdict};
    use crate::core::{Phase, Plan, decide};

    fn strategy(max_unavailable: u32) -> Strategy {
        Strategy {
            max_unavailable: crate::core::IntOrPercent::Number(max_unavailable),
            ..Strategy::with_mode(Mode::AdvancedRollingUpdate)
        }
    }

    /// Returns a fleet of five nodes. The first two run an unproven revision, and have been Ready since `ready_since`.
    fn two_of_five(ready_since: [i64; 2]) -> Fleet {
        let new = |since: i64| Pod {
            ready_since: Some(at(since)),
            ..current(2).made(9_990)
        };
        let nodes = vec![
            node("a", new(ready_since[0])),
            node("b", new(ready_since[1])),
            node("c", old(1)),
            node("d", old(1)),
            node("e", old(1)),
        ];
        Fleet {
            is_proven: false,
            ..fleet(nodes)
        }
    }

    fn replaced(plan: &Plan) -> Vec<&str> {
        let pods = plan.actions.iter();
        pods.map(|action| action.pod().name.as_str()).collect()
    }

    #[test]
    fn no_further_node_starts_until_the_revision_is_proven() {
        let fleet = two_of_five([9_998, 9_996]);
        let plan = decide(&strategy(2), &fleet, at(10_000));
        assert_eq!(replaced(&plan), [""; 0]);
        assert_eq!(
            (plan.phase, plan.next_wake),
            (Phase::Progressing, Some(at(10_006)))
        );
        let young = |until| {
            Verdict::InProgress(Progress::NotYetAvailable {
                available_at: at(until),
            })
        };
        assert_eq!(plan.verdicts[..2], [young(10_008), young(10_006)]);
        let plan = decide(&strategy(2), &fleet, at(10_006));
        assert_eq!(replaced(&plan), ["c", "d"]);
        assert_eq!(plan.verdicts[..2], [Verdict::Done; 2]);
    }

    #[test]
    fn a_free_slot_is_used_before_the_revision_is_proven() {
        let fleet = two_of_five([9_998, 9_996]);
        assert_eq!(replaced(&decide(&strategy(3), &fleet, at(10_000))), ["c"]);
    }

    #[test]
    fn proven_revisions_and_fully_updated_fleets_need_no_proof() {
        let young = two_of_five([9_998, 9_996]);
        let ran_before = Fleet {
            is_proven: true,
            ..young.clone()
        };
        assert_eq!(
            replaced(&decide(&strategy(2), &ran_before, at(10_000))),
            ["c", "d"]
        );
        let everybody = Fleet {
            nodes: young.nodes[..2].to_vec(),
            ..young
        };
        let plan = decide(&strategy(2), &everybody, at(10_000));
        assert_eq!(plan.verdicts, [Verdict::Done; 2]);
    }

    #[test]
    fn with_surge_the_old_pod_stays_until_the_new_one_is_proven() {
        let strategy = Strategy {
            max_surge: crate::core::IntOrPercent::Number(1),
            ..strategy(0)
        };
        let made = Pod {
            surge: true,
            ready_since: Some(at(9_995)),
            ..current(2).made(9_990)
        };
        let pair = Node {
            pods: vec![old(1), made].into(),
            ..node("a", old(1))
        };
        let fleet = Fleet {
            is_proven: false,
            ..fleet(vec![pair, node("b", old(1))])
        };
        let plan = decide(&strategy, &fleet, at(10_000));
        assert_eq!((plan.actions.len(), plan.next_wake), (0, Some(at(10_005))));
        assert!(!decide(&strategy, &fleet, at(10_005)).actions.is_empty());
    }
}
