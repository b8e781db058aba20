//! Judged: what the nodes come to when the fleet is looked at as a whole, and what may begin.
//!
//! ```text
//! observed classes ──charges──► who failed ──scope──► who keeps its pod ──waves, budget──► guard, preconditions
//! ```
//!
//! Nothing is written here, and nobody is told anything: a [`FleetEvaluation`] is what the plan is drafted from.

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

/// A fleet as it is judged at one moment.
pub(super) struct FleetEvaluation<'a> {
    pub(super) strategy: &'a Strategy,
    pub(super) fleet: &'a Fleet,
    pub(super) now: Timestamp,
    /// What pods are judged by.
    pub(super) terms: Terms,
    /// By position in the fleet.
    pub(super) classes: Vec<Class>,
    pub(super) summary: PodSummary<'a>,
    pub(super) scope: RolloutScope,
    pub(super) budget: Budget,
    pub(super) guard: Guard,
    pub(super) preconditions: Preconditions<'a>,
    /// Whether the guard judged nodes beside all others.
    pub(super) heard_others: bool,
    order: OnceCell<Order>,
    /// The nodes that wait, in the order of their turns.
    waiting: OnceCell<Vec<Turn>>,
}

impl<'a> FleetEvaluation<'a> {
    /// Looks at `fleet` at `now`, and judges it.
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
        let charges = attribute(strategy, fleet, now, &mut classes, &summary);
        revert::mark(strategy, fleet, &mut classes);
        scope.narrow(strategy, fleet, &summary, &mut classes);
        let wave_progress =
            WaveProgress::new(fleet, members, &classes, &summary, &charges, &scope, now);
        let budget = Budget::count(
            &classes,
            &fleet.crowd,
            &scope,
            strategy,
            &wave_progress,
            &summary,
            terms,
        );
        let heard_others = charges.heard_others;
        let mut guard = charges.conclude(strategy, fleet, &classes, &budget, now);
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
            heard_others,
            order: OnceCell::new(),
            waiting: OnceCell::new(),
        }
    }
}

impl FleetEvaluation<'_> {
    /// Whether an online node runs a revision that is not known: this view may be older than that pod.
    pub(super) fn meets_unknown(&self) -> bool {
        let is_unknown = |class: &Class| matches!(class, Class::Unknown { .. });
        self.classes.iter().any(is_unknown)
    }

    /// The images that owners of nodes ask for.
    pub(super) fn owners_pulls(&self, revision: &Revision, paused: bool) -> Vec<Pull> {
        if self.summary.is_announced {
            ota::pulls(self.fleet, revision, paused)
        } else {
            Vec::new()
        }
    }

    /// The setting that matches no node although somebody is outdated.
    pub(super) fn unmatched(&self) -> Option<Invalid> {
        let wave = |position| self.preconditions.wave_progress.of_node(position);
        unmatched(self.strategy, self.fleet, &self.classes, wave)
    }

    /// Whether a node that keeps its pod, or to which none belongs, has one beside it that would go if nobody paused.
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

    /// Whether a targeted node is online, settled and outdated.
    pub(super) fn is_any_outdated(&self) -> bool {
        let is_outdated = |class: &Class| match class {
            Class::Outdated { settling: None, .. } | Class::PreDeleteHook { .. } => true,
            Class::Surging(pair) => pair.outdated,
            _ => false,
        };
        self.fleet.crowd.waiting > 0 || self.classes.iter().any(is_outdated)
    }

    /// Who is to be taken back from the revision which the guard stopped.
    pub(super) fn reverts(&self) -> revert::RevertTurns {
        revert::turns(
            self.strategy,
            self.fleet,
            &self.classes,
            &self.scope,
            self.now,
        )
    }

    /// Whether the pod of the node at `position` can be made to go now, as far as disruption budgets go.
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

    /// The nodes whose preconditions are open, the first in the queue first.
    pub(super) fn queue(&self) -> Vec<Turn> {
        let waiting = self.waiting();
        let is_open = |turn: &&Turn| self.preconditions.shut_at(turn.position).is_none();
        let mut queue = Vec::with_capacity(waiting.len());
        queue.extend(waiting.iter().filter(is_open));
        queue
    }

    /// The order in which outdated nodes are served.
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

    /// All nodes that wait, in the same order; worked out where somebody asks, and once.
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
            // Moving such a list while it grows takes longer than to fill it.
            let mut waiting = Vec::with_capacity(self.classes.len());
            waiting.extend(turns);
            waiting.sort_unstable();
            waiting
        })
    }

    /// Whether one of the pods of a node is of the current revision and available.
    pub(super) fn serves(&self, position: usize) -> bool {
        let ripe = |since| later(since, self.strategy.min_ready) <= self.now;
        self.fleet.nodes[position].pods.iter().any(|pod| {
            !pod.terminating
                && pod.revision == PodRevision::Current
                && pod.ready_since.is_some_and(ripe)
        })
    }

    /// Nodes whose pods crashed, run at the moment, and have not proved themselves: between two crashes a rollout is not well.
    /// A node that was away started its containers again for another reason.
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
