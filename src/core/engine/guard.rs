//! Guard: separates failures of the revision from failures of the network (kubernetes/kubernetes#117658).
//!
//! A node *counts against* the current revision (in code: it is *charged*) if one of these happens soon after the rollout *touched*
//! the node, that is, deleted, marked, updated or created a pod there:
//!
//! - The node turned NotReady.
//! - A taint or a label kept its new pod away.
//! - The new pod crashes or cannot be started.
//!
//! No update begins while the guard evaluates the loss of a node. After the evaluation, the lost node blocks no other node, like
//! any offline node. A failed Ready node keeps its slot of the budget.
//!
//! The guard compares the rates of losses. If untouched nodes turned NotReady at the same time, at a rate at least as high as that
//! of touched nodes, the network is the cause. Then no node counts against the revision, and no update begins during the rest of
//! the failure window. Losses under another revision, or before the change, never count against this revision.
//!
//! If more nodes count against the revision than `failure-threshold` allows, the revision is *stopped*.
//!
//! ```text
//! classes ──attribute──► classes (Failed) + FailureAttribution ──scope, budget──► conclude ──► Guard: gate, record, wake
//! ```
//!
//! # Sources
//! - The creation time of a pod (from the API server's clock), and the template for which it was created.
//! - The observed times at which a pod was deleted, or at which the Ready condition of a pod or node changed. For a change that was
//!   not observed, the time in the object is used.
//! - The restarts and termination reasons of the pod's containers.
//! - The [`FailureRecord`] in the status of the DaemonSet.
//!
//! The result doesn't depend on the clock of any node. A restart of the controller loses no recorded fact.

pub(super) mod attribution;
mod losses;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::budget::Budget;
use super::class::Class;
use super::revert;
use super::timeouts::failure_window;
use crate::core::fleet::record::{BROKEN_NAMED, FAILED_NAMED, FailureRecord};
use crate::core::fleet::{Fleet, Node};
use crate::core::id::NodeName;
use crate::core::instant::later;
use crate::core::settings::{Mode, OnFailure, Strategy};
use crate::core::verdict::{Guarded, Stopped};
use attribution::FailureAttribution;

/// Returns the number of nodes that may fail with a revision before the guard stops it. `base` nodes take part in the rollout.
pub(super) fn failure_threshold(strategy: &Strategy, targeted: usize, base: usize) -> usize {
    match strategy.failure_threshold {
        Some(share) => share.resolve(targeted),
        None => {
            let shares = [strategy.max_unavailable, strategy.max_surge];
            let [unavailable, surge] = shares.map(|share| share.resolve(base));
            unavailable.max(surge).max(1)
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Guard {
    /// Reason why no update may begin; `None` if updates may begin.
    pub(super) gate: Option<Guarded>,
    /// Record to store in the status of the DaemonSet, if any.
    pub(super) record: Option<FailureRecord>,
    /// Number of nodes that count against the revision, including nodes whose Node was deleted.
    pub(super) failures: usize,
    /// Number of failures up to which the revision is not stopped.
    pub(super) threshold: usize,
    /// Earliest time at which the result changes without an event.
    pub(super) changes: Option<Timestamp>,
}

impl FailureAttribution {
    /// Decides if updates may begin, and returns the record to store.
    ///
    /// In `classes`, nodes that a setting excludes already have the class [`Class::Excluded`].
    pub(super) fn conclude(
        mut self,
        strategy: &Strategy,
        fleet: &Fleet,
        classes: &[Class],
        budget: &Budget,
        now: Timestamp,
    ) -> Guard {
        let threshold = failure_threshold(strategy, budget.targeted, budget.base);
        let Some(mut record) = self.record.take() else {
            return Guard {
                record: self.rest,
                threshold,
                ..Guard::default()
            };
        };
        let failures = record.failures() + self.not_starting;
        if strategy.mode != Mode::AdvancedRollingUpdate {
            return Guard {
                failures,
                threshold,
                changes: self.changes,
                ..Guard::default()
            };
        }
        let window = failure_window(strategy);
        let broken = self.note_broken(window, (fleet, &record.failed), classes, now);
        let room = BROKEN_NAMED.saturating_sub(record.broken_before.len());
        record.broken_before.extend(broken.into_iter().take(room));
        let stopped = match record.stopped {
            None => stop(strategy, fleet, classes, &record, failures, threshold),
            known => known,
        };
        if record.stopped.is_none() && stopped.is_some() {
            name_failed(&mut record, fleet, classes);
        }
        record.stopped = stopped;
        record.exceeded = stopped.is_none() && failures > threshold;
        let reverts = strategy.on_failure == OnFailure::RevertInPlace;
        if reverts && stopped == Some(Stopped::FailedByRevision) && record.before.is_none() {
            record.before = revert::before(fleet, &record);
        }
        let gate = match (record.stopped, self.open_until) {
            (Some(stopped), _) => Some(Guarded::Stopped(stopped)),
            (None, Some(until)) => Some(Guarded::Inconclusive { until }),
            (None, None) => None,
        };
        Guard {
            gate,
            failures,
            threshold,
            record: Some(record).filter(|record| !record.is_empty()),
            changes: self.changes,
        }
    }

    /// Returns the nodes whose old pod has not been Ready for a whole failure window. If such a node fails after its update, the
    /// new revision need not be the cause.
    ///
    /// Nodes in `failed` are not included, because they already count against the revision.
    fn note_broken(
        &mut self,
        window: Duration,
        (fleet, failed): (&Fleet, &BTreeSet<NodeName>),
        classes: &[Class],
        now: Timestamp,
    ) -> BTreeSet<NodeName> {
        let mut broken = BTreeSet::new();
        for (node, class) in fleet.nodes.iter().zip(classes) {
            let is_down = Class::Outdated {
                available: false,
                settling: None,
            };
            if *class != is_down {
                continue; // reading the pods of every node would take longer than the rest of the decision
            }
            if failed.contains(&node.name) {
                continue; // the node already counts against the revision
            }
            let pod = node.pods.iter().find(|pod| !pod.terminating);
            let Some(pod) = pod.filter(|pod| pod.ready_since.is_none()) else {
                continue;
            };
            let at = later(pod.unready(), window);
            if at <= now {
                broken.insert(node.name.clone());
            } else {
                self.changes = self.changes.into_iter().chain([at]).min();
            }
        }
        broken
    }
}

/// Returns the reason to stop a revision that is not stopped yet; `None` if its rollout may continue. More `failures` than
/// `threshold` are one reason.
///
/// A revision is stopped only if that has an effect: a pod still waits for its update or for the return of its node, or pods can be
/// rolled back.
fn stop(
    strategy: &Strategy,
    fleet: &Fleet,
    classes: &[Class],
    record: &FailureRecord,
    failures: usize,
    threshold: usize,
) -> Option<Stopped> {
    let waits = |class: &Class| match class {
        Class::Outdated { settling: None, .. } | Class::PreDeleteHook { .. } => true,
        Class::Surging(pair) => pair.has_way_back,
        _ => false,
    };
    let nodes = fleet.nodes.iter().zip(classes);
    let mut waiting = nodes.filter(|(_, class)| waits(class));
    // If no node waits, no untouched node is left to compare losses with, so the network may be their cause. Failing pods are a
    // proof that needs no comparison.
    let is_broken = |class: &&Class| {
        matches!(class, Class::Failed { cause, .. } if cause.holds_slot())
            || matches!(class, Class::Surging(pair) if pair.failed.is_some())
    };
    let is_proven = || classes.iter().filter(is_broken).count() > threshold;
    let is_away = |class: &Class| {
        matches!(
            class,
            Class::Offline { updated: false, .. }
                | Class::Outdated {
                    settling: Some(_),
                    ..
                }
        )
    };
    let reverts = strategy.on_failure == OnFailure::RevertInPlace;
    let saves_later = || reverts || classes.iter().any(is_away);
    let loops = |node: &Node| record.replaced_twice.contains(&node.name);
    if failures > threshold && (waiting.next().is_some() || is_proven() && saves_later()) {
        Some(Stopped::FailedByRevision)
    } else if !record.replaced_twice.is_empty() && waiting.any(|(node, _)| loops(node)) {
        Some(Stopped::ReplacedTwice)
    } else {
        None
    }
}

/// Adds the names of all failed nodes to the record. An operator then sees why the revision was stopped, even after the nodes
/// recover.
fn name_failed(record: &mut FailureRecord, fleet: &Fleet, classes: &[Class]) {
    let failed = fleet.nodes.iter().zip(classes);
    let failed = failed.filter(|(_, class)| class.is_failed());
    let room = FAILED_NAMED.saturating_sub(record.failed.len());
    let names = failed.map(|(node, _)| &node.name);
    let names = names.filter(|name| !record.failed.contains(*name));
    let names: Vec<NodeName> = names.take(room).cloned().collect();
    record.failed.extend(names);
}
