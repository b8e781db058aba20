//! Classification of nodes: each decision assigns one class to each node.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::class::Class;
use super::failing::proved_at;
use super::removal;
use super::surge::{self, SurgePair};
use super::terms::Terms;
use super::timeouts::failure_window;
use crate::core::fleet::{Node, Pod, Readiness, Targeting};
use crate::core::id::PodRevision;
use crate::core::instant::later;
use crate::core::settings::{Mode, Strategy};
use crate::core::verdict::Progress;

/// Class of a node whose object cannot be read. The controller changes nothing on the node and reports it as offline.
const UNREADABLE: Class = Class::Offline {
    updated: false,
    terminating: false,
    since: None,
};

pub(super) fn classify(strategy: &Strategy, node: &Node, terms: Terms) -> Class {
    let ready_since = match node.readiness {
        Readiness::Gone => return Class::NoNode,
        Readiness::Unreadable => return UNREADABLE,
        _ if node.is_repelled() && node.outdated().is_some() => return Class::UntoleratedTaint,
        _ if node.targeting != Targeting::Run => return barred(strategy, node, terms),
        Readiness::NotReady { since } => return offline(node, since),
        Readiness::Ready { since } => since,
    };
    if let Some(pair) = SurgePair::new(node, terms) {
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
                Class::Surging(Box::new(SurgePair::followed(pod, terms)))
            }
            class => class,
        },
    }
}

/// Returns the class of a node with a surge pod. If the node was offline and returned recently, both of its pods stay until it has
/// settled.
fn with_surge(
    strategy: &Strategy,
    node: &Node,
    pair: SurgePair,
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
        _ => Class::Surging(Box::new(SurgePair {
            has_way_back: surge::has_way_back(strategy, node),
            ..pair
        })),
    }
}

/// Returns the class of a *barred* node: the DaemonSet should run no pod there, or can't create one because of a taint.
///
/// A replacement that began on the node keeps its slot until the new pod is available, or until the time that [`lets_go_at`]
/// returns.
fn barred(strategy: &Strategy, node: &Node, terms: Terms) -> Class {
    let window = failure_window(strategy);
    let since = match node.readiness {
        Readiness::NotReady { since } => {
            let is_soon =
                |at: Timestamp| since.is_none_or(|since| at <= since && since <= later(at, window));
            return if node.is_barred() || node.marked_at().any(is_soon) {
                offline(node, since)
            } else {
                Class::NotTargeted
            };
        }
        Readiness::Ready { since } => since,
        Readiness::Unreadable => return UNREADABLE,
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
        (None, _) if node.is_barred() && lets_go_at(node, window) > Some(terms.now) => {
            Class::InProgress(Progress::Missing {
                since: node.podless_since,
            })
        }
        _ => Class::NotTargeted,
    }
}

/// Returns the time at which a barred node frees its slot: never (`Timestamp::MAX`) for a node with a taint. `None` if it is
/// unknown since when the node has no pod.
///
/// Taints are expected to be temporary: some systems taint a node only while their own agent doesn't run on it. A node that no
/// longer matches the template's node selector frees its slot after `window`.
pub(super) fn lets_go_at(node: &Node, window: Duration) -> Option<Timestamp> {
    match node.targeting {
        Targeting::Run | Targeting::Keep => Some(Timestamp::MAX),
        Targeting::No => Some(later(node.podless_since?, window)),
    }
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
            let rolls = strategy.mode == Mode::AdvancedRollingUpdate;
            let proved_at = rolls.then(|| proved_at(pod, node_ready_since, now));
            let counts_at = terms.counts_at(pod).unwrap_or(available_at);
            let available_at = proved_at
                .flatten()
                .max(Some(counts_at))
                .unwrap_or(counts_at);
            if available_at <= now {
                Class::Done
            } else {
                Class::InProgress(Progress::NotYetAvailable { available_at })
            }
        }
        (PodRevision::Current, None) => Class::InProgress(Progress::Starting),
        (PodRevision::Unknown, _) => Class::Unknown { available },
        (PodRevision::Outdated, _) => {
            let settling = settling(strategy, pod, node_ready_since).filter(|until| *until > now);
            match pod.exit.preparing {
                Some(preparing) if strategy.mode == Mode::AdvancedRollingUpdate => {
                    Class::PreDeleteHook {
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

/// Returns the time until which a node has to stay Ready before its pod is replaced; `None` if it need not settle.
///
/// A node has to settle only after it was offline. If the node was Ready before its pod started and has been Ready since, it was
/// not offline. Under OTA the controller replaces no pods, so nodes need not settle.
pub(super) fn settling(
    strategy: &Strategy,
    pod: &Pod,
    node_ready_since: Timestamp,
) -> Option<Timestamp> {
    let lived_through = pod.started.unwrap_or(pod.created) < node_ready_since;
    let replaces = strategy.mode == Mode::AdvancedRollingUpdate;
    (replaces && lived_through).then(|| later(node_ready_since, strategy.ready_settle))
}
