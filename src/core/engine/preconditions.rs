//! What keeps a node, which has nothing against its replacement, from being replaced right now.
//!
//! The preconditions of a node are asked in one order, and the first that is shut gives the verdict. A gate speaks only of nodes
//! that are online, settled and outdated, and it governs the beginning alone: what is under way is finished. A node whose
//! preconditions are all open competes for the budget.
//!
//! # Adding one
//! A gate is a small part of its own that is made once per pass and asked by position; it gets its line in [`Preconditions::new`],
//! [`Preconditions::shut_at`] and [`Preconditions::changes_at`], and nowhere else.

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

/// Every gate, as it is now.
pub(super) struct Preconditions<'a> {
    guarded: Option<Guarded>,
    /// Whose wave is open.
    pub(super) wave_progress: WaveProgress<'a>,
    openings: WindowStates<'a>,
    /// Whom the plan may ask to go.
    pub(super) asking: EvictionRequests<'a>,
    /// Whom the API server refused.
    pub(super) refusing: RetryGate<'a>,
    fleet: &'a Fleet,
    /// Whether pods may be made beside others, and whether others may go first.
    surges: bool,
    deletes: bool,
    /// The pods that a disruption budget may keep, by position; empty where it has no say.
    kept: Vec<Option<&'a Pod>>,
    now: Timestamp,
    /// `None`: nothing is pulled ahead.
    pub(super) images: Option<Images<'a>>,
}

impl<'a> Preconditions<'a> {
    /// As they are at `now`; `guarded` is what the guard says, `wave_progress` how far the waves have come, and the rest what the
    /// nodes say themselves.
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
            refusing: RetryGate::new(&fleet.write_failures, &fleet.nodes, now),
            fleet,
            surges: !strategy.max_surge.is_zero(),
            deletes: strategy.max_surge.is_zero() || !strategy.max_unavailable.is_zero(),
            now,
        }
    }

    /// What the first shut gate of the node at `position` says; `None`: its replacement may begin.
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

    /// How the maintenance window of the node at `position` is.
    pub(super) fn opening_at(&self, position: usize) -> WindowState {
        self.openings.at(position)
    }

    fn pull_pending_at(&self, position: usize) -> Option<Verdict> {
        let awaited = self.images.as_ref()?.awaited_at(position);
        awaited.map(Verdict::PullPending)
    }

    /// What is said of the node at `position` whose disruption budget did not let its pod go, whether it may be asked again
    /// or not.
    pub(super) fn blocked_at(&self, position: usize) -> Option<Verdict> {
        let pod = self.kept.get(position).copied().flatten()?;
        self.asking.blocked(pod)
    }

    /// Whether the old pod of the node at `position` may be asked to go, or to change, as far as refusals go.
    pub(super) fn may_step(&self, position: usize) -> bool {
        self.refusing
            .may(&self.fleet.nodes[position].name, WriteGroup::Step)
    }

    /// Whether something may be told on its pod, as far as refusals go.
    pub(super) fn may_tell(&self, position: usize) -> bool {
        self.refusing
            .may(&self.fleet.nodes[position].name, WriteGroup::Tell)
    }

    /// Whether a pod may be made beside it, as far as refusals go.
    pub(super) fn may_surge(&self, position: usize) -> bool {
        let name = &self.fleet.nodes[position].name;
        self.surges && self.refusing.may(name, WriteGroup::Create)
    }

    fn write_refused_at(&self, position: usize) -> Option<Verdict> {
        if self.deletes && self.may_step(position) || self.may_surge(position) {
            return None;
        }
        let name = &self.fleet.nodes[position].name;
        let denial = [WriteGroup::Step, WriteGroup::Create].into_iter();
        let denial = denial
            .filter_map(|part| self.refusing.at(name, part))
            .next()?;
        Some(Verdict::Refused {
            since: denial.since,
        })
    }

    fn budget_refused_at(&self, position: usize) -> Option<Verdict> {
        let pod = self.kept.get(position).copied().flatten()?;
        let is_early = self.asking.due(pod).is_some_and(|due| due > self.now);
        self.asking.blocked(pod).filter(|_| is_early)
    }

    /// When time alone changes that, at the earliest.
    pub(super) fn changes_at(&self, position: usize) -> Option<Timestamp> {
        let opening = self.openings.at(position).changes;
        opening
            .into_iter()
            .chain(self.wave_progress.changes_at(position))
            .min()
    }
}

/// The pod of this node that has to go, where it is not updated in place.
fn evicted<'a>(strategy: &Strategy, fleet: &'a Fleet, node: &'a Node) -> Option<&'a Pod> {
    let pod = node.outdated()?;
    matches!(way(strategy, fleet, pod), UpdateMethod::Recreate(_)).then_some(pod)
}
