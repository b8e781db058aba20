//! Preconditions: conditions under which the pod of a waiting node may be replaced now.
//!
//! Preconditions are checked in a fixed order. The first one that is not met determines the node's verdict. Only nodes that are
//! online, settled and outdated are checked. A replacement that has begun continues in any case. Nodes that meet all preconditions
//! compete for the budget.
//!
//! # How to add a precondition
//! A precondition is a separate small module that is built once per decision and queried by position. It needs a line in
//! [`Preconditions::new`], [`Preconditions::shut_at`] and [`Preconditions::changes_at`], and nowhere else.

use k8s_openapi::jiff::Timestamp;

use super::eviction::EvictionRequests;
use super::predownload::Images;
use super::replacement::{UpdateMethod, way};
use super::window_state::WindowStates;
use crate::core::fleet::write_failures::{RetryGate, WriteGroup};
use crate::core::fleet::{Fleet, Node, Pod};
use crate::core::settings::Strategy;
use crate::core::verdict::{Guarded, Verdict};
use crate::core::window::WindowState;

use super::waves::WaveProgress;

/// Current state of all preconditions.
pub(super) struct Preconditions<'a> {
    guarded: Option<Guarded>,
    /// Progress of the waves, which determines if the wave of a node is open.
    pub(super) wave_progress: WaveProgress<'a>,
    openings: WindowStates<'a>,
    /// Pods that the plan may evict.
    pub(super) asking: EvictionRequests<'a>,
    /// Nodes whose writes the API server rejected.
    pub(super) retry_gate: RetryGate<'a>,
    fleet: &'a Fleet,
    /// True if surge pods may be created.
    surges: bool,
    /// True if an old pod may be deleted before its successor exists.
    deletes: bool,
    /// For each position in the fleet, the old pod if its update would delete it, as opposed to an update in place. Empty if no
    /// eviction was refused, or if surge pods are enabled.
    kept: Vec<Option<&'a Pod>>,
    now: Timestamp,
    /// States of the pre-pulled images on the nodes; `None` if images are not pre-pulled.
    pub(super) images: Option<Images<'a>>,
}

impl<'a> Preconditions<'a> {
    /// Builds the preconditions at `now`. `guarded` is the reason why the guard allows no update, if any.
    pub(super) fn new(
        strategy: &Strategy,
        fleet: &'a Fleet,
        (openings, images): (WindowStates<'a>, Option<Images<'a>>),
        wave_progress: WaveProgress<'a>,
        guarded: Option<Guarded>,
        now: Timestamp,
    ) -> Self {
        let asking = EvictionRequests::new(strategy, fleet, now);
        let has_a_say = asking.is_any_refused() && strategy.max_surge.is_zero();
        let kept = fleet.nodes.iter().filter(|_| has_a_say);
        Self {
            guarded,
            wave_progress,
            openings,
            images,
            kept: kept.map(|node| evicted(strategy, fleet, node)).collect(),
            asking,
            retry_gate: RetryGate::new(&fleet.write_failures, &fleet.nodes, now),
            fleet,
            surges: !strategy.max_surge.is_zero(),
            deletes: strategy.max_surge.is_zero() || !strategy.max_unavailable.is_zero(),
            now,
        }
    }

    /// Returns the verdict of the first precondition that the node at `position` doesn't meet; `None` if it meets all.
    pub(super) fn shut_at(&self, position: usize) -> Option<Verdict> {
        if let Some(guarded) = self.guarded {
            return Some(Verdict::Guarded(guarded));
        }
        let shut = self.wave_progress.shut_at(position);
        shut.or_else(|| self.out_of_window_at(position))
            .or_else(|| self.pull_pending_at(position))
            .or_else(|| self.budget_refused_at(position))
            .or_else(|| self.write_refused_at(position))
    }

    fn out_of_window_at(&self, position: usize) -> Option<Verdict> {
        let opening = self.opening_at(position);
        (!opening.is_open).then_some(Verdict::OutOfWindow {
            opens: opening.changes,
        })
    }

    /// Returns the state of the maintenance window of the node at `position`.
    pub(super) fn opening_at(&self, position: usize) -> WindowState {
        self.openings.at(position)
    }

    fn pull_pending_at(&self, position: usize) -> Option<Verdict> {
        let awaited = self.images.as_ref()?.awaited_at(position);
        awaited.map(Verdict::PullPending)
    }

    /// Returns the verdict of the node at `position` if a disruption budget refused the eviction of its pod.
    ///
    /// The node keeps this verdict even when the eviction may be retried.
    pub(super) fn blocked_at(&self, position: usize) -> Option<Verdict> {
        let pod = self.kept.get(position).copied().flatten()?;
        self.asking.blocked(pod)
    }

    /// Returns true if the old pod at `position` may be deleted or changed now. After a rejected write, this is false until the
    /// retry.
    pub(super) fn may_step(&self, position: usize) -> bool {
        self.retry_gate
            .may(&self.fleet.nodes[position].name, WriteGroup::Step)
    }

    /// Returns true if conditions of the pod at `position` may be written now. After a rejected write, this is false until the
    /// retry.
    pub(super) fn may_tell(&self, position: usize) -> bool {
        self.retry_gate
            .may(&self.fleet.nodes[position].name, WriteGroup::Tell)
    }

    /// Returns true if a surge pod may be created at `position` now. After a rejected creation, this is false until the retry.
    pub(super) fn may_surge(&self, position: usize) -> bool {
        let name = &self.fleet.nodes[position].name;
        self.surges && self.retry_gate.may(name, WriteGroup::Create)
    }

    fn write_refused_at(&self, position: usize) -> Option<Verdict> {
        if self.deletes && self.may_step(position) || self.may_surge(position) {
            return None;
        }
        let name = &self.fleet.nodes[position].name;
        let failure = [WriteGroup::Step, WriteGroup::Create].into_iter();
        let failure = failure
            .filter_map(|part| self.retry_gate.at(name, part))
            .next()?;
        Some(Verdict::Refused {
            since: failure.since,
        })
    }

    fn budget_refused_at(&self, position: usize) -> Option<Verdict> {
        let pod = self.kept.get(position).copied().flatten()?;
        let is_early = self.asking.due(pod).is_some_and(|due| due > self.now);
        self.asking.blocked(pod).filter(|_| is_early)
    }

    /// Returns the earliest time at which the node's window opens or closes, or the state of its wave changes, without an event.
    pub(super) fn changes_at(&self, position: usize) -> Option<Timestamp> {
        let opening = self.openings.at(position).changes;
        opening
            .into_iter()
            .chain(self.wave_progress.changes_at(position))
            .min()
    }
}

/// Returns the node's outdated pod if its update would delete it; `None` if the pod is updated in place, or if no pod is outdated.
fn evicted<'a>(strategy: &Strategy, fleet: &'a Fleet, node: &'a Node) -> Option<&'a Pod> {
    let pod = node.outdated()?;
    matches!(way(strategy, fleet, pod), UpdateMethod::Recreate(_)).then_some(pod)
}
