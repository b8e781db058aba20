//! Evaluation of the whole fleet: final classes of the nodes, and limits for new replacements.
//!
//! ```text
//! observed classes ──attribution──► failed nodes ──scope──► excluded nodes ──waves, budget──► guard, preconditions
//! ```
//!
//! This module neither writes nor reports. The plan is drafted from its [`FleetEvaluation`].

use std::cell::OnceCell;

use k8s_openapi::jiff::Timestamp;

use super::budget::Budget;
use super::class::Class;
use super::guard::Guard;
use super::guard::attribution::attribute;
use super::observation::Observation;
use super::order::{Order, Turn};
use super::pod_summary::PodSummary;
use super::preconditions::Preconditions;
use super::replacement::{self, UpdateMethod};
use super::scope::RolloutScope;
use super::terms::Terms;
use super::unmatched::unmatched;
use super::waves::WaveProgress;
use super::{ota, revert};
use crate::core::action::Pull;
use crate::core::fleet::{Fleet, Pod, Readiness, position_of};
use crate::core::id::{PodRevision, Revision};
use crate::core::instant::later;
use crate::core::settings::{Invalid, Strategy};
use crate::core::verdict::Progress;

/// Evaluation of a fleet at one time.
pub(super) struct FleetEvaluation<'a> {
    pub(super) strategy: &'a Strategy,
    pub(super) fleet: &'a Fleet,
    pub(super) now: Timestamp,
    /// Rules for when a pod counts as available.
    pub(super) terms: Terms,
    pub(super) classes: Vec<Class>,
    pub(super) summary: PodSummary<'a>,
    pub(super) scope: RolloutScope,
    pub(super) budget: Budget,
    pub(super) guard: Guard,
    pub(super) preconditions: Preconditions<'a>,
    /// True if the guard compared lost nodes with the other nodes to find the cause of the losses.
    pub(super) compared_losses: bool,
    order: OnceCell<Order>,
    /// Waiting nodes, in the order of their update.
    waiting: OnceCell<Vec<Turn>>,
}

impl<'a> FleetEvaluation<'a> {
    pub(super) fn new(strategy: &'a Strategy, fleet: &'a Fleet, now: Timestamp) -> Self {
        let Observation {
            mut classes,
            summary,
            scope,
            members,
            openings,
            images,
            terms,
        } = Observation::new(strategy, fleet, now);
        let attribution = attribute(strategy, fleet, now, &mut classes, &summary);
        revert::mark(strategy, fleet, &mut classes);
        scope.narrow(strategy, fleet, &summary, &mut classes);
        let wave_progress = WaveProgress::new(
            fleet,
            members,
            &classes,
            &summary,
            &attribution,
            &scope,
            now,
        );
        let budget = Budget::count(
            &classes,
            &fleet.crowd,
            &scope,
            strategy,
            &wave_progress,
            &summary,
            terms,
        );
        let compared_losses = attribution.compared_losses;
        let mut guard = attribution.conclude(strategy, fleet, &classes, &budget, now);
        if let Some(record) = &mut guard.record {
            wave_progress.note_waves(record, fleet, &classes);
        }
        let own = (openings, images);
        Self {
            strategy,
            fleet,
            now,
            terms,
            preconditions: Preconditions::new(strategy, fleet, own, wave_progress, guard.gate, now),
            classes,
            summary,
            scope,
            budget,
            guard,
            compared_losses,
            order: OnceCell::new(),
            waiting: OnceCell::new(),
        }
    }
}

impl FleetEvaluation<'_> {
    /// Returns true if an online node runs a pod of an unknown revision. Then the cached list of revisions may be older than the
    /// pod.
    pub(super) fn meets_unknown(&self) -> bool {
        let is_unknown = |class: &Class| matches!(class, Class::Unknown { .. });
        self.classes.iter().any(is_unknown)
    }

    /// Returns the image pulls that node owners requested under OTA.
    pub(super) fn owners_pulls(&self, revision: &Revision, paused: bool) -> Vec<Pull> {
        if self.summary.is_announced {
            ota::pulls(self.fleet, revision, paused)
        } else {
            Vec::new()
        }
    }

    /// Returns the setting whose selector matches no node, if any node is outdated.
    pub(super) fn unmatched(&self) -> Option<Invalid> {
        let wave = |position| self.preconditions.wave_progress.of_node(position);
        unmatched(self.strategy, self.fleet, &self.classes, wave)
    }

    /// Returns true if a surge pod is on a node that is excluded or not targeted. The controller deletes this surge pod after the
    /// pause.
    pub(super) fn parts_later(&self) -> bool {
        let stays = |class: &Class| {
            matches!(
                class,
                Class::Excluded(_) | Class::UntoleratedTaint | Class::NotTargeted
            )
        };
        let mut classes = self.classes.iter().enumerate();
        classes.any(|(position, class)| stays(class) && self.summary.is_paired(position))
    }

    /// Returns true if a node is waiting for its update: targeted, online, settled and outdated.
    pub(super) fn is_any_outdated(&self) -> bool {
        let is_outdated = |class: &Class| match class {
            Class::Outdated { settling: None, .. } | Class::PreDeleteHook { .. } => true,
            Class::Surging(pair) => pair.outdated,
            _ => false,
        };
        self.fleet.crowd.waiting > 0 || self.classes.iter().any(is_outdated)
    }

    /// Returns the pods to roll back from the revision that the guard stopped.
    pub(super) fn reverts(&self) -> revert::RevertTurns {
        revert::turns(
            self.strategy,
            self.fleet,
            &self.classes,
            &self.scope,
            self.now,
        )
    }

    /// Returns true if the old pod of the node at `position` may be deleted or updated now. A rejected write or a disruption budget
    /// can prevent it.
    pub(super) fn may_delete(&self, position: usize) -> bool {
        let pod = self.fleet.nodes[position].outdated();
        self.preconditions.may_step(position)
            && pod.is_none_or(|pod| {
                let is_in_place = || match replacement::way(self.strategy, self.fleet, pod) {
                    UpdateMethod::InPlace(_) => true,
                    UpdateMethod::Recreate(_) => false,
                };
                self.preconditions.asking.may_ask(pod) || is_in_place()
            })
    }

    /// Returns the waiting nodes that meet all preconditions, in the order of their update.
    pub(super) fn queue(&self) -> Vec<Turn> {
        let waiting = self.waiting();
        let is_open = |turn: &&Turn| self.preconditions.shut_at(turn.position).is_none();
        let mut queue = Vec::with_capacity(waiting.len());
        queue.extend(waiting.iter().filter(is_open));
        queue
    }

    /// Returns the order in which outdated nodes are updated.
    pub(super) fn order(&self) -> &Order {
        let order = || {
            Order::new(
                self.strategy,
                self.fleet,
                &self.classes,
                &self.summary,
                &self.scope,
            )
        };
        self.order.get_or_init(order)
    }

    /// Returns all waiting nodes in the order of their update. The list is computed at the first call.
    pub(super) fn waiting(&self) -> &[Turn] {
        self.waiting.get_or_init(|| {
            let order = self.order();
            let classes = self.classes.iter().enumerate();
            let turns = classes.filter_map(|(position, class)| match *class {
                Class::Outdated {
                    available,
                    settling: None,
                } => {
                    let wave = self.preconditions.wave_progress.of_node(position);
                    Some(order.turn(&self.summary, position, wave, available))
                }
                _ => None,
            });
            // Allocate once, because growing the list takes longer than filling it.
            let mut waiting = Vec::with_capacity(self.classes.len());
            waiting.extend(turns);
            waiting.sort_unstable();
            waiting
        })
    }

    /// Returns true if the node at `position` has an available pod of the current revision.
    pub(super) fn serves(&self, position: usize) -> bool {
        let ripe = |since| later(since, self.strategy.min_ready) <= self.now;
        self.fleet.nodes[position].pods.iter().any(|pod| {
            !pod.terminating
                && pod.revision == PodRevision::Current
                && pod.ready_since.is_some_and(ripe)
        })
    }

    /// Returns the number of failed nodes whose pods run again after a crash, but not yet long enough to exclude another crash.
    ///
    /// A node that was offline doesn't count, because its return also restarts the containers.
    pub(super) fn relapsing(&self) -> usize {
        let failed = self.guard.record.iter().flat_map(|record| &record.failed);
        let crashed = |pod: &Pod, since: Timestamp| {
            let mut containers = pod.in_place.containers.iter();
            since <= pod.revised() && containers.any(|container| container.restarts > 0)
        };
        let relapsing = failed.filter(|name| {
            let Ok(position) = position_of(&self.fleet.nodes, name) else {
                return false;
            };
            let node = &self.fleet.nodes[position];
            let Readiness::Ready { since } = node.readiness else {
                return false;
            };
            let runs = matches!(
                self.classes[position],
                Class::Done
                    | Class::InProgress(Progress::NotYetAvailable { .. } | Progress::Starting)
            );
            runs && node.pods.iter().any(|pod| crashed(pod, since))
        });
        relapsing.count()
    }
}
