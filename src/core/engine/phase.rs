//! Phase of a rollout, such as progressing or stalled, from the verdicts of its nodes.

use k8s_openapi::jiff::Timestamp;

use super::deadline::{missing_grace, stuck};
use super::surge;
use crate::core::fleet::{Fleet, Node, Pod};
use crate::core::id::PodRevision;
use crate::core::plan::{Counts, Phase, Stall};
use crate::core::verdict::{Stopped, Verdict, WaveShut};

/// Returns the stall if no remaining node can be updated before an operator acts; `None` otherwise.
///
/// The cause is images that could not be pulled, or maintenance windows that never open. Nodes of later waves wait for the affected
/// nodes, so no node can be updated.
fn no_node_can_begin(verdicts: &[Verdict], counts: &Counts) -> Option<Stall> {
    let (mut pulls, mut windows, mut following) = (0, 0, 0);
    for verdict in verdicts {
        match verdict {
            Verdict::PullPending(stage) if stage.has_failed() => pulls += 1,
            Verdict::OutOfWindow { opens: None } => windows += 1,
            Verdict::WaveNotOpen {
                why: WaveShut::Unfinished { .. },
                ..
            } => following += 1,
            _ => {}
        }
    }
    match pulls + windows + following == counts.outdated {
        true if pulls > 0 => Some(Stall::ImagesNotPulled),
        true if windows > 0 => Some(Stall::WindowNeverOpens),
        _ => None,
    }
}

/// Facts that decide the phase of a rollout.
pub(super) struct RolloutFacts<'a> {
    pub(super) fleet: &'a Fleet,
    /// Verdict of each node, by position in the fleet.
    pub(super) verdicts: &'a [Verdict],
    pub(super) counts: &'a Counts,
    /// Reason why the guard stopped the revision; set only while outdated nodes are left or pods are rolled back.
    pub(super) stopped: Option<Stopped>,
    /// Time until which waiting for disruption budgets is no stall. `None` if the rollout also waits for anything else.
    pub(super) blocked: Option<Timestamp>,
    /// True if this plan replaces pods.
    pub(super) moving: bool,
    /// True if a node was lost after its update and the guard has not evaluated the loss yet.
    pub(super) is_evaluating: bool,
}

/// Returns the phase, and the time at which it changes without an event.
pub(super) fn of_rollout(facts: &RolloutFacts<'_>, now: Timestamp) -> (Phase, Option<Timestamp>) {
    let RolloutFacts {
        fleet,
        verdicts,
        counts,
        stopped,
        blocked,
        moving,
        is_evaluating,
    } = *facts;
    // A stop would have no effect, because no outdated node is left to protect. An operator still has to know about the failures.
    let fail = counts.failed + counts.relapsing > 0;
    if counts.outdated == 0 && fail && counts.failures > counts.threshold {
        return (Phase::Stalled(Stall::FailedByRevision), None);
    }
    if let Some(stopped) = stopped {
        let stall = match stopped {
            Stopped::FailedByRevision => Stall::FailedByRevision,
            Stopped::ReplacedTwice => Stall::ReplacedTwice,
        };
        return (Phase::Stalled(stall), None);
    }
    let is_served = counts.unavailable == counts.withheld;
    if counts.outdated == 0 && is_served && counts.surging == 0 && is_evaluating {
        return (Phase::Progressing, None);
    }
    if counts.outdated == 0 && is_served && counts.surging == 0 {
        return (
            Phase::Complete {
                offline: counts.offline_outdated,
                kept: counts.kept + counts.repelled,
            },
            None,
        );
    }
    let goes_on = is_evaluating && counts.outdated > 0 && counts.unavailable < counts.allowed;
    if moving || goes_on {
        return (Phase::Progressing, None);
    }
    if let Some(deadline) = blocked {
        return if deadline <= now {
            (Phase::Stalled(Stall::BlockedByPdb), None)
        } else {
            (Phase::Progressing, Some(deadline))
        };
    }
    let waiting =
        |verdict: &Verdict| verdict.is_in_flight() || matches!(verdict, Verdict::Refused { .. });
    let has_two = |(node, verdict): &(&Node, &Verdict)| {
        counts.surging > 0 && verdict.is_kept() && surge::is_followed(node)
    };
    if fleet.crowd.moving == 0
        && !verdicts.iter().any(waiting)
        && let Some(stall) = no_node_can_begin(verdicts, counts)
    {
        return (Phase::Stalled(stall), None);
    }
    let nodes = fleet.nodes.iter().zip(verdicts);
    let holding = nodes.filter(|verdict| waiting(verdict.1) || has_two(verdict));
    of_holders(fleet, holding, counts, now)
}

/// Returns the phase of a rollout, and the time at which it changes without an event. The nodes in `holding` take slots, and the
/// other remaining nodes wait for them.
fn of_holders<'a>(
    fleet: &Fleet,
    holding: impl Iterator<Item = (&'a Node, &'a Verdict)>,
    counts: &Counts,
    now: Timestamp,
) -> (Phase, Option<Timestamp>) {
    let crowd = &fleet.crowd;
    let grace = missing_grace(fleet);
    let (mut worst, mut deadline) = (None, None);
    // Nodes that are only counted (`crowd`) are within their deadline. If the controller replaces a pod on one of them, the rollout
    // is not stalled.
    let mut all_stuck = crowd.moving == crowd.joining;
    let mut taken = StuckSlots {
        joining: crowd.joining > 0,
        ..StuckSlots::default()
    };
    for (node, verdict) in holding {
        match stuck(node, verdict, grace, now) {
            Ok(stall) => {
                worst = worst.into_iter().chain([stall]).min();
                taken.add(node, verdict);
            }
            Err(at) => {
                all_stuck &= joins(node);
                taken.joining |= joins(node);
                deadline = deadline.into_iter().chain(at).min();
            }
        }
    }
    match worst {
        Some(stall) if all_stuck && taken.leaves_nothing(counts) => {
            (Phase::Stalled(stall), deadline)
        }
        _ => (Phase::Progressing, deadline),
    }
}

/// Slots of nodes without progress: of `max-surge` for nodes with a surge pod, of `max-unavailable` for the others.
#[derive(Default)]
struct StuckSlots {
    down: usize,
    beside: usize,
    /// True if nodes that joined the fleet are getting their first pod.
    joining: bool,
}

impl StuckSlots {
    fn add(&mut self, node: &Node, verdict: &Verdict) {
        if node.pods.iter().any(|pod| pod.surge) {
            self.beside += 1
        } else {
            self.down += usize::from(verdict.is_in_flight())
        }
    }

    /// Returns true if the stuck nodes leave no slot for outdated nodes, even after the joining nodes have freed their slots.
    fn leaves_nothing(&self, counts: &Counts) -> bool {
        let is_full = self.down >= counts.allowed && self.beside >= counts.surge_allowed;
        !self.joining || counts.outdated > 0 && is_full
    }
}

/// Returns true if the controller has not replaced the pod of this node. The node lacks an available pod because it joined the
/// fleet, or because another client deleted the pod.
pub(super) fn joins(node: &Node) -> bool {
    let is_first = |pod: &Pod| {
        pod.revision == PodRevision::Current
            && pod.in_place.update.is_none()
            && !pod.surge
            && !pod.terminating
    };
    node.disrupted_at.is_none() && !node.emptied && node.pods.iter().all(is_first)
}
