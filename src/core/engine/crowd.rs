//! Crowd: nodes that are counted instead of listed. The cost of a decision then depends on the changes, not on the fleet's size.
//!
//! In a rollout of ten thousand nodes, most nodes are done, far back in the queue, being updated within their deadline, or offline.
//! Each of these nodes, called *bystanders*, has the same effect in every decision, so a count can represent it. A caller that
//! keeps a fleet between decisions may leave these nodes out of [`Fleet::nodes`](crate::core::Fleet::nodes) and count them in
//! [`Fleet::crowd`](crate::core::Fleet::crowd):
//!
//! ```text
//! a node changes, or its time comes ──Bystander::new──► bystander: counted in the crowd ──┐
//!                                         └──► otherwise: stays in the list ──────────────┴─► decide_in_view ─► Plan, InView
//!                                                                                                                    │
//!                         all nodes, or more waiting nodes, are put into the list  ◄──not enough─────────────────────┘
//! ```
//!
//! # Why this is correct
//! - A [`Bystander`] is a node for which every per-node rule gives the same result until an event, or until [`Bystander::until`].
//!   Nodes with a hold, a maintenance window, a pod that is marked for deletion, a failing container, a second pod, or an entry in
//!   the guard's record stay in the list.
//! - Rules over the whole fleet need only the counts of the crowd.
//! - Some rules need the nodes themselves: settings that treat nodes differently, the guard's control group, and rejected writes.
//!   [`decide_in_view`](super::decide::decide_in_view) then reports that all nodes are needed, and its plan must not be applied.
//!
//! A property test compares these plans with the plans for the complete list.

use k8s_openapi::jiff::Timestamp;

use super::class::Class;
use super::classify::classify;
use super::deadline::stuck;
use super::evaluation::FleetEvaluation;
use super::pause::is_paused;
use super::predownload::Predownloading;
use super::terms::Terms;
use super::timeouts::{MISSING_GRACE, failure_window};
use super::{not_ready, ota, phase, removal};
use crate::core::fleet::record::FailureRecord;
use crate::core::fleet::{Crowd, Node, Pod, Targeting};
use crate::core::id::{NodeName, PodRevision, RevisionState};
use crate::core::instant::later;
use crate::core::plan::{Phase, Plan};
use crate::core::settings::{Mode, Strategy};
use crate::core::verdict::{Progress, Verdict};

/// Tells if the listed nodes were enough for a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InView {
    /// The plan equals the plan for the complete fleet. The next decision may be made with the same choice of listed nodes.
    Enough,
    /// The budget allows to update more nodes than the waiting nodes in the list. List more of them.
    MoreWaiting,
    /// The crowd was counted while the revision was unproven, and this decision found it proven. Count the crowd again.
    Proven,
    /// All nodes have to be in the list.
    Everybody,
}

/// Node that may be counted instead of listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bystander {
    /// Kind of bystander, which determines the counts that include it.
    pub standing: Standing,
    /// Number of the revision of the node's pod.
    pub number: i64,
    /// Time at which the pod got that revision.
    pub revised: Timestamp,
    /// Time at which the node has to be evaluated again without an event; `None` if only an event changes it.
    pub until: Option<Timestamp>,
}

/// Kind of bystander.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The node runs an available pod of the current revision.
    Done,
    /// The node runs an available outdated pod. It is counted only while the list contains enough nodes that are updated earlier.
    Waiting,
    /// The node is NotReady.
    Offline {
        /// True if the node has a pod of the current revision that is not terminating.
        updated: bool,
        /// True if the node has a pod of another revision.
        outdated: bool,
    },
    /// The node is being updated and is within its deadline.
    Moving {
        /// True if the controller replaced no pod on the node: the node joined the fleet, or another client deleted its pod.
        joins: bool,
        /// True if the node has an outdated pod.
        outdated: bool,
    },
}

impl Bystander {
    /// Returns the bystander that represents `node` at `now`; `None` if the node has to be in the list.
    ///
    /// `in_order` and `is_proven` are the fields of the [`Fleet`](crate::core::Fleet).
    ///
    /// The result is valid only while [`may_be_counted`] is true, and only for nodes that are not in [`named`].
    pub fn new(
        strategy: &Strategy,
        node: &Node,
        [in_order, is_proven]: [bool; 2],
        now: Timestamp,
    ) -> Option<Self> {
        let pod = node.pods.only().filter(|pod| !is_remarkable(pod))?;
        let is_plain =
            node.targeting == Targeting::Run && node.hold.is_none() && node.window.is_none();
        let terms = Terms {
            min_ready: strategy.min_ready,
            in_order,
            is_proven,
            now,
        };
        let class = is_plain.then(|| classify(strategy, node, terms))?;
        let (standing, until) = standing(strategy, node, &class, now)?;
        Some(Self {
            standing,
            number: pod.number,
            revised: pod.revised(),
            until,
        })
    }
}

/// Returns the kind of bystander for a node of this class, and the time until which the node may be counted.
fn standing(
    strategy: &Strategy,
    node: &Node,
    class: &Class,
    now: Timestamp,
) -> Option<(Standing, Option<Timestamp>)> {
    let is_undisturbed = !node.emptied && node.disrupted_at.is_none();
    let outdated = node.holds_outdated();
    match *class {
        Class::Done if is_undisturbed => Some((Standing::Done, None)),
        Class::Outdated {
            available: true,
            settling: None,
        } if is_undisturbed => Some((Standing::Waiting, None)),
        Class::Offline { updated, since, .. } if is_undisturbed => {
            let window = failure_window(strategy);
            let is_soon = |at: Timestamp| {
                since.is_some_and(|since| at <= since && since <= later(at, window))
            };
            let is_suspect = node.marked_at().any(is_soon);
            (!is_suspect).then_some((Standing::Offline { updated, outdated }, None))
        }
        Class::InProgress(
            progress @ (Progress::Terminating
            | Progress::Starting
            | Progress::NotYetAvailable { .. }
            | Progress::UpdatingInPlace { .. }),
        ) => {
            let joins = phase::joins(node);
            let until = in_time_until(node, progress, now)?;
            Some((Standing::Moving { joins, outdated }, until))
        }
        _ => None,
    }
}

/// Returns true if a rule has to look at this pod itself. Then its node has to be listed.
fn is_remarkable(pod: &Pod) -> bool {
    pod.revision == PodRevision::Unknown
        || pod.surge
        || pod.in_doubt
        || pod.problem.is_some()
        || pod.in_place.is_over
        || pod.in_place.gate == Some(false)
        || pod.in_place.reverted_from.is_some()
        || removal::is_marked(pod)
        || ota::is_announced(pod)
}

/// Returns the time until which a node in progress is within its deadline. `Some(None)` means that only an event ends its state.
///
/// Returns `None` if the deadline has passed, or if the Events of the pod must be read to learn why it is late.
fn in_time_until(node: &Node, progress: Progress, now: Timestamp) -> Option<Option<Timestamp>> {
    let overdue = stuck(node, &Verdict::InProgress(progress), MISSING_GRACE, now).err()?;
    let asked = not_ready::asked_at(node, progress, MISSING_GRACE);
    if asked.is_some_and(|at| at <= now) {
        return None;
    }
    let available = match progress {
        Progress::NotYetAvailable { available_at } => Some(available_at),
        _ => None,
    };
    Some([overdue, asked, available].into_iter().flatten().min())
}

/// Returns true if nodes may be counted under these settings: no setting divides the nodes into groups or has a rule per node.
pub fn may_be_counted(strategy: &Strategy, now: Timestamp) -> bool {
    strategy.mode == Mode::AdvancedRollingUpdate
        && !is_paused(strategy, now)
        && strategy.max_surge.is_zero()
        && strategy.partition.is_zero()
        && strategy.selector.is_none()
        && strategy.min_interval.is_zero()
        && strategy.window.is_none()
        && strategy.topology.is_none()
        && strategy.waves.is_none()
        && Predownloading::from_strategy(strategy).is_none()
}

/// Returns the nodes that the guard's record contains by name. They have to be listed.
pub fn named(record: Option<&FailureRecord>) -> impl Iterator<Item = &NodeName> {
    record.into_iter().flat_map(|record| {
        let names = [
            &record.failed,
            &record.broken_before,
            &record.replaced_twice,
            &record.updated_before_loss,
        ];
        let dated = [&record.lost, &record.control_group];
        let dated = dated.into_iter().flat_map(|names| names.keys());
        names.into_iter().flatten().chain(dated)
    })
}

impl InView {
    /// Returns the result for a plan of a [calm](is_calm) fleet. `wants_more` is true if the budget allows to replace more nodes
    /// than are listed.
    pub(super) fn new(plan: &Plan, wants_more: bool) -> Self {
        match plan.phase {
            _ if wants_more => Self::MoreWaiting,
            Phase::Complete { .. } | Phase::Progressing => Self::Enough,
            _ => Self::Everybody, // the message about this phase may name any node
        }
    }
}

/// Returns true if the fleet is calm: no rule that needs the complete list of nodes applies now.
pub(super) fn is_calm(evaluation: &FleetEvaluation<'_>) -> bool {
    let (fleet, guard) = (evaluation.fleet, &evaluation.guard);
    may_be_counted(evaluation.strategy, evaluation.now)
        && matches!(fleet.revision, RevisionState::Current(_))
        && fleet.write_failures.is_empty()
        && fleet.evictions.is_empty()
        && guard.gate.is_none()
        && guard.failures <= guard.threshold
        && guard
            .record
            .as_ref()
            .is_none_or(|record| record.replaced_twice.is_empty())
        && !evaluation.compared_losses
        && !evaluation.meets_unknown()
        && evaluation.order().is_by_name()
}

impl Crowd {
    /// Adds a bystander. The caller sets [`next`](Self::next) and [`wake`](Self::wake).
    pub fn add(&mut self, bystander: &Bystander) {
        self.count(bystander.standing, |number| *number += 1);
        let Bystander {
            number, revised, ..
        } = *bystander;
        match bystander.standing {
            Standing::Done => {
                self.oldest_done = self.oldest_done.into_iter().chain([revised]).min();
            }
            Standing::Waiting => {
                self.newest_waiting = self.newest_waiting.max(Some(revised));
                let (least, greatest) = self.numbers.unwrap_or((number, number));
                self.numbers = Some((least.min(number), greatest.max(number)));
            }
            Standing::Offline { .. } | Standing::Moving { .. } => {}
        }
    }

    /// Removes a bystander. The ranges of revision numbers and times stay as wide as before. If they are too wide, the only effect
    /// is that a decision needs the complete list.
    pub fn remove(&mut self, standing: Standing) {
        self.count(standing, |number| *number -= 1);
    }

    fn count(&mut self, standing: Standing, change: impl Fn(&mut usize)) {
        let count = |number: &mut usize, does: bool| {
            if does {
                change(number);
            }
        };
        match standing {
            Standing::Done => count(&mut self.done, true),
            Standing::Waiting => {
                count(&mut self.waiting, true);
                count(&mut self.outdated, true);
            }
            Standing::Offline { updated, outdated } => {
                count(&mut self.offline, true);
                count(&mut self.offline_updated, updated);
                count(&mut self.outdated, outdated);
            }
            Standing::Moving { joins, outdated } => {
                count(&mut self.moving, true);
                count(&mut self.joining, joins);
                count(&mut self.outdated, outdated);
            }
        }
    }
}
