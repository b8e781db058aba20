//! Who is counted and not looked at: a decision costs what changed, not what exists.
//!
//! In a rollout of ten thousand nodes nearly all of them are done, or wait behind a long queue, or are on their way and in time, or
//! offline. What follows from such a node is the same in every pass, and a number says it: how many there are. So whoever
//! keeps a fleet from one pass to the next may leave them out of [`Fleet::nodes`](crate::core::Fleet::nodes) and count them in
//! [`Fleet::crowd`](crate::core::Fleet::crowd):
//!
//! ```text
//! a node changes, or its time comes ──Bystander::new──► one of the crowd: it is counted ──┐
//!                                         └──► none of it: it stands in the list ────────┴─► decide_in_view ─► Plan, InView
//!                                                                                                      │
//!                         everybody, or more of those that wait, are put into the list  ◄──too few─────┘
//! ```
//!
//! # What makes that right
//! - A [`Bystander`] is a node of which every rule of the engine, looking at it alone, would say the same until something
//!   happens to it or its time comes. Whatever is special about a node (a hold, a window, a mark, a failing container, a second
//!   pod, a name on the guard's record) keeps it in the list.
//! - Rules that look at the fleet as a whole know of the crowd what they ask of it: its numbers.
//! - Where a rule would have to see the nodes themselves (settings that divide them, the guard's control group, refusals),
//!   [`decide_in_view`](super::decide::decide_in_view) says so, and its plan is not to be carried out.
//!
//! The decision over the complete list is the oracle: a property compares the two.

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

/// What a decision says of the list that it was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InView {
    /// The plan is the one that follows from the complete fleet, and the next one may be made from a list without bystanders, too.
    Enough,
    /// More of those that wait could begin: they have to be in the list.
    MoreWaiting,
    /// The decision found the current revision proven after bystanders were counted as not proven: count them again.
    Proven,
    /// Everybody has to be in the list.
    Everybody,
}

/// A node that may be counted instead of being looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bystander {
    /// What it counts as.
    pub standing: Standing,
    /// The number of its pod's revision.
    pub number: i64,
    /// When its pod got that revision.
    pub revised: Timestamp,
    /// When it has to be looked at if nothing happens before; `None`: only then.
    pub until: Option<Timestamp>,
}

/// What a bystander counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Runs an available pod of the current revision.
    Done,
    /// Runs an available outdated pod; to be counted only while enough others are before it.
    Waiting,
    /// NotReady.
    Offline {
        /// Whether it holds a pod of the current revision that is not terminating.
        updated: bool,
        /// Whether it holds one of another revision.
        outdated: bool,
    },
    /// Being updated, and in time.
    Moving {
        /// Whether nobody replaced anything there.
        joins: bool,
        /// Whether it holds an outdated pod.
        outdated: bool,
    },
}

impl Bystander {
    /// What `node` is at `now`; `None`: it has to be looked at. `in_order` and `is_proven` are those of the
    /// [`Fleet`](crate::core::Fleet).
    ///
    /// To be asked only while [`may_be_counted`] holds, and not of nodes that are [`named`].
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

/// What a node of that class counts as, and until when.
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

/// Whether something about this pod concerns rules that look at pods one by one.
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

/// Until when a node in progress is in time; `Some(None)`: until something happens to it. `None`: it is not, or somebody is to
/// be asked what holds it.
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

/// Whether nodes may be counted under these settings: none of them divides the nodes, or has a rule for each of them.
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

/// The nodes that the guard remembers by name.
pub fn named(record: Option<&FailureRecord>) -> impl Iterator<Item = &NodeName> {
    record.into_iter().flat_map(|record| {
        let names = [
            &record.failed,
            &record.broken_before,
            &record.replaced_twice,
            &record.updated_before_loss,
        ];
        let dated = [&record.judged, &record.control_group];
        let dated = dated.into_iter().flat_map(|names| names.keys());
        names.into_iter().flatten().chain(dated)
    })
}

impl InView {
    /// Whether a plan for a fleet that [is calm](is_calm) needed to see more than it was made from; `wants_more`: it would have
    /// replaced more.
    pub(super) fn new(plan: &Plan, wants_more: bool) -> Self {
        match plan.phase {
            _ if wants_more => Self::MoreWaiting,
            Phase::Complete { .. } | Phase::Progressing => Self::Enough,
            _ => Self::Everybody, // its sentence may name anybody
        }
    }
}

/// Whether no rule is at work that has to see every node.
pub(super) fn is_calm(judged: &FleetEvaluation<'_>) -> bool {
    let (fleet, guard) = (judged.fleet, &judged.guard);
    may_be_counted(judged.strategy, judged.now)
        && matches!(fleet.revision, RevisionState::Current(_))
        && fleet.write_failures.is_empty()
        && fleet.evictions.is_empty()
        && guard.gate.is_none()
        && guard.failures <= guard.threshold
        && guard
            .record
            .as_ref()
            .is_none_or(|record| record.replaced_twice.is_empty())
        && !judged.heard_others
        && !judged.meets_unknown()
        && judged.order().is_by_name()
}

impl Crowd {
    /// One more. Who is [`next`](Self::next), and when to [`wake`](Self::wake), is for whoever keeps them to say.
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

    /// One less. What is said of pods stays: a span that is too wide has everybody looked at, and nothing else
    /// follows.
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
