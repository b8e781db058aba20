//! In which state one node is: exactly one class per pass.

use k8s_openapi::jiff::Timestamp;

use super::failing::{PROVED_AFTER, proved_at};
use super::fleet::{Node, Pod, PodRevision, Readiness, Targeting};
use super::instant::later;
use super::lifecycle::Preparing;
use super::scope::Kept;
use super::settings::{Mode, Strategy};
use super::surge::{self, Pair, Terms};
use super::verdict::{Cause, Offline, Progress, Verdict};
use super::{guard, removal};

/// The class of a node. There is one per node, and many passes go through them all: what is large and rare is boxed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// No pod belongs here.
    NotTargeted,
    /// Runs an outdated pod, and has a taint of effect `NoSchedule` that the template does not tolerate: that pod stays, and
    /// if it went, no other would come.
    Repelled,
    /// There is no Node object, so nothing is known.
    NoNode,
    /// NotReady.
    Offline {
        /// Holds a pod of the current revision that is not terminating, and was not made beside another one.
        updated: bool,
        /// Holds a pod that is terminating.
        terminating: bool,
        /// Since when the node is NotReady.
        since: Option<Timestamp>,
    },
    /// Lost, or without a pod that starts, and that is charged to the current revision (see `guard`).
    Failed {
        /// Since when.
        since: Timestamp,
        /// In which way.
        cause: Cause,
    },
    /// On its way, or waiting for the native controller: occupies budget.
    InProgress(Progress),
    /// Has a pod that we made beside another one.
    Surging(Box<Pair>),
    /// Runs an available pod of the current revision.
    Done,
    /// Runs an outdated pod.
    Outdated {
        /// Whether that pod is available.
        available: bool,
        /// Until when the node has to stay Ready before it is touched.
        settling: Option<Timestamp>,
    },
    /// Runs an outdated pod that is marked to be deleted: occupies budget.
    Preparing {
        /// What the mark says.
        preparing: Box<Preparing>,
        /// Whether that pod is available.
        available: bool,
        /// Whether that is for so long that somebody should look.
        overdue: bool,
        /// Until when the node has to stay Ready before the pod goes.
        settling: Option<Timestamp>,
    },
    /// Runs an outdated pod, and is to keep it.
    Kept(Kept),
    /// Runs a pod of an unknown revision.
    Unknown {
        /// Whether that pod is available.
        available: bool,
    },
}

impl Class {
    /// Whether the node counts into the base of percentages.
    pub(super) fn is_targeted(&self) -> bool {
        !matches!(self, Self::NotTargeted | Self::Repelled | Self::NoNode)
    }

    /// Whether the node is on its way to the current revision, or failed on it while it is Ready. One that was lost holds up
    /// nobody, whoever took it away.
    pub(super) fn is_in_flight(&self) -> bool {
        match self {
            Self::InProgress(_) | Self::Surging(_) | Self::Preparing { .. } => true,
            Self::Failed { cause, .. } => cause.holds_slot(),
            _ => false,
        }
    }

    /// Whether the node is in flight and still has an available pod, because it waits for its hook.
    pub(super) fn still_serves(&self) -> bool {
        matches!(
            self,
            Self::Preparing {
                available: true,
                ..
            }
        )
    }

    /// Whether the node is charged to the current revision.
    pub(super) fn is_failed(&self) -> bool {
        match self {
            Self::Failed { .. } => true,
            Self::Surging(pair) => pair.failed.is_some(),
            _ => false,
        }
    }

    /// The verdict of a node of which nothing else is known.
    pub(super) fn verdict(&self) -> Verdict {
        match *self {
            Self::NotTargeted => Verdict::NotTargeted,
            Self::Repelled => Verdict::UntoleratedTaint,
            Self::NoNode => Verdict::Offline(Offline::NoNode),
            Self::Offline {
                updated: true,
                since,
                ..
            } => Verdict::Offline(Offline::Updated { since }),
            Self::Offline {
                terminating: true,
                since,
                ..
            } => Verdict::Offline(Offline::Terminating { since }),
            Self::Offline { since, .. } => Verdict::Offline(Offline::NotReady { since }),
            Self::Failed { since, cause } => Verdict::FailedByRevision { since, cause },
            Self::InProgress(progress) => Verdict::InProgress(progress),
            Self::Surging(ref pair) => pair.failed_or(Verdict::InProgress(pair.progress)),
            Self::Done => Verdict::Done,
            Self::Outdated {
                settling: Some(until),
                ..
            } => Verdict::Offline(Offline::Settling { until }),
            Self::Outdated { available, .. } => Verdict::Budget { broken: !available },
            Self::Preparing {
                ref preparing,
                overdue,
                ..
            } => Verdict::HookPending {
                since: preparing.since,
                overdue,
            },
            Self::Kept(Kept::NotSelected) => Verdict::NotSelected,
            Self::Kept(Kept::Partition) => Verdict::Partition,
            Self::Kept(Kept::Held(until)) => Verdict::Held { until },
            Self::Unknown { .. } => Verdict::NativeControllerBehind,
        }
    }
}

/// The class of `node`.
pub(super) fn classify(strategy: &Strategy, node: &Node, terms: Terms) -> Class {
    let ready_since = match node.readiness {
        Readiness::Gone => return Class::NoNode,
        _ if node.is_repelled() && node.outdated().is_some() => return Class::Repelled,
        _ if node.targeting != Targeting::Run => return barred(strategy, node, terms),
        Readiness::NotReady { since } => return offline(node, since),
        Readiness::Ready { since } => since,
    };
    if let Some(pair) = Pair::of(node, terms) {
        return with_surge(strategy, node, pair, ready_since, terms);
    }
    let mut alive = node.pods.iter().filter(|pod| !pod.terminating);
    match (alive.next(), alive.next()) {
        (None, _) if node.pods.is_empty() => Class::InProgress(Progress::Missing {
            since: node.podless_since,
        }),
        (None, _) => Class::InProgress(Progress::Terminating),
        (Some(_), Some(_)) => Class::InProgress(Progress::Surplus),
        (Some(pod), None) => match single(strategy, pod, ready_since, terms) {
            Class::Done | Class::Outdated { settling: None, .. } if surge::is_followed(node) => {
                Class::Surging(Box::new(Pair::followed(pod, terms)))
            }
            class => class,
        },
    }
}

/// A node that returned a moment ago is left alone with both of its pods, too.
fn with_surge(
    strategy: &Strategy,
    node: &Node,
    pair: Pair,
    node_ready_since: Timestamp,
    terms: Terms,
) -> Class {
    let old = surge::alive(node).filter(|pod| pod.revision == PodRevision::Outdated);
    match old.map(|old| single(strategy, old, node_ready_since, terms)) {
        Some(
            settling @ Class::Outdated {
                settling: Some(_), ..
            },
        ) => settling,
        _ => Class::Surging(Box::new(Pair {
            has_way_back: surge::has_way_back(strategy, node),
            ..pair
        })),
    }
}

/// A node where no pod belongs (any more). What we began there is not over by that: until its pod is available, or the loss is
/// judged, it takes a slot as any other.
fn barred(strategy: &Strategy, node: &Node, terms: Terms) -> Class {
    let window = guard::failure_window(strategy);
    let since = match node.readiness {
        Readiness::NotReady { since } => {
            let is_soon =
                |at: Timestamp| since.is_none_or(|since| at <= since && since <= later(at, window));
            return match node.is_barred() || node.marked_at().any(is_soon) {
                true => offline(node, since),
                false => Class::NotTargeted,
            };
        }
        Readiness::Ready { since } => since,
        Readiness::Gone => return Class::NoNode,
    };
    let mut alive = node.pods.iter().filter(|pod| !pod.terminating);
    match (alive.next(), alive.next()) {
        (Some(pod), None) if pod.revision == PodRevision::Current && !pod.surge => {
            let was_revised = pod.of_template && later(pod.revised(), window) > terms.now;
            match single(strategy, pod, since, terms) {
                class @ Class::InProgress(_) if was_revised => class,
                _ => Class::NotTargeted,
            }
        }
        (None, _) if node.is_barred() && !node.pods.is_empty() => {
            Class::InProgress(Progress::Terminating)
        }
        (None, _) if node.is_barred() && judged_at(node).is_some_and(|at| at > terms.now) => {
            Class::InProgress(Progress::Missing {
                since: node.podless_since,
            })
        }
        _ => Class::NotTargeted,
    }
}

/// When it is judged that no pod comes to a node that is barred.
pub(super) fn judged_at(node: &Node) -> Option<Timestamp> {
    Some(later(node.podless_since?, guard::JUDGED_AFTER))
}

fn offline(node: &Node, since: Option<Timestamp>) -> Class {
    Class::Offline {
        updated: node
            .pods
            .iter()
            .any(|pod| !pod.terminating && !pod.surge && pod.revision == PodRevision::Current),
        terminating: node.pods.iter().any(|pod| pod.terminating),
        since,
    }
}

fn single(strategy: &Strategy, pod: &Pod, node_ready_since: Timestamp, terms: Terms) -> Class {
    let under_way = pod.in_place.update.filter(|update| !update.is_carried_out);
    let (available_at, available) = (terms.available_at(pod), terms.is_available(pod));
    let now = terms.now;
    if let (PodRevision::Current, Some(update)) = (pod.revision, under_way) {
        return Class::InProgress(Progress::UpdatingInPlace { since: update.at });
    }
    match (pod.revision, available_at) {
        (PodRevision::Current, Some(available_at)) => {
            let is_recent = || {
                pod.ready_since
                    .is_some_and(|at| later(at, PROVED_AFTER) > now)
            };
            let rolls = strategy.mode == Mode::AdvancedRollingUpdate;
            let proved_at = (rolls && is_recent()).then(|| proved_at(pod, node_ready_since));
            match proved_at.flatten() {
                Some(proved_at) => Class::InProgress(Progress::Young {
                    available_at: available_at.max(proved_at),
                }),
                None if available => Class::Done,
                None => Class::InProgress(Progress::Young { available_at }),
            }
        }
        (PodRevision::Current, None) => Class::InProgress(Progress::Starting),
        (PodRevision::Unknown, _) => Class::Unknown { available },
        (PodRevision::Outdated, _) => {
            let settling = settling(strategy, pod, node_ready_since).filter(|until| *until > now);
            match pod.exit.preparing {
                Some(preparing) if strategy.mode == Mode::AdvancedRollingUpdate => {
                    Class::Preparing {
                        preparing: Box::new(preparing),
                        available,
                        overdue: removal::overdue_at(pod).is_some_and(|at| at <= now),
                        settling,
                    }
                }
                _ => Class::Outdated {
                    available,
                    settling,
                },
            }
        }
    }
}

/// Until when a node has to stay Ready, if its pod lived through an absence of the node.
///
/// A node that was Ready before the pod started did not go away meanwhile: nothing to settle.
///
/// Under OTA nothing is replaced that an absence could interrupt.
pub(super) fn settling(
    strategy: &Strategy,
    pod: &Pod,
    node_ready_since: Timestamp,
) -> Option<Timestamp> {
    let lived_through = pod.started.unwrap_or(pod.created) < node_ready_since;
    let replaces = strategy.mode == Mode::AdvancedRollingUpdate;
    (replaces && lived_through).then(|| later(node_ready_since, strategy.ready_settle))
}
