//! What is the revision's fault, and what is the network's (kubernetes/kubernetes#117658).
//!
//! A node is *charged* to the current revision when, soon after the rollout touched its pod (the removal of the old one
//! counts), it turned NotReady, a taint or a label kept its new pod away, or that pod crashes or cannot be started. While a
//! loss is judged nothing new begins. Once judged, a node that was lost holds up nobody, as any other; one that is Ready keeps its slot of the budget. When as
//! large a share of the nodes that were not touched turned NotReady at the same time, it is the network: nobody is charged,
//! and nothing new begins for a while. When more nodes are charged than `failure-threshold` allows, the revision is *stopped*.
//! What was lost under another revision, or before the change, is never charged to this one.
//!
//! ```text
//! classes ──charge──► classes (Failed) + FailureAttribution ──scope, budget──► FailureAttribution ──conclude──► Guard: gate, record, wake
//! ```
//!
//! # What it rests on
//! The creation of a pod (the API server's clock), for which template it was made, when its deletion, its node's Ready
//! condition and its own were seen to change (or else dated by the object), restarts and reasons of its containers, and
//! the [`FailureRecord`] that stands on the DaemonSet.
//! No node's clock decides, and a restart of the controller forgets nothing that was told.

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

/// How many nodes may be charged to a revision before it is stopped.
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

/// What follows from the charges.
#[derive(Debug, Default)]
pub(super) struct Guard {
    /// Why nothing new may begin.
    pub(super) gate: Option<Guarded>,
    /// What has to be remembered, if anything.
    pub(super) record: Option<FailureRecord>,
    /// Nodes that failed on the revision's account, those that are gone included.
    pub(super) failures: usize,
    /// How many of these there may be.
    pub(super) threshold: usize,
    /// When time alone changes something, at the earliest.
    pub(super) changes: Option<Timestamp>,
}

impl FailureAttribution {
    /// What follows: whether something new may begin, and what has to be remembered.
    ///
    /// `classes` are those after the scope was narrowed.
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
        // A revision is stopped when there is something to save from it, or somebody to take back.
        let waits = |class: &Class| match class {
            Class::Outdated { settling: None, .. } | Class::PreDeleteHook { .. } => true,
            Class::Surging(pair) => pair.has_way_back,
            _ => false,
        };
        let mut waiting = fleet
            .nodes
            .iter()
            .zip(classes)
            .filter(|(_, class)| waits(class));
        let reverts = strategy.on_failure == OnFailure::RevertInPlace;
        // Where nobody is left to compare with, losses alone may be the network's doing; pods that fail are not.
        let is_broken = |class: &&Class| {
            matches!(class, Class::Failed { cause, .. } if cause.holds_slot())
                || matches!(class, Class::Surging(pair) if pair.failed.is_some())
        };
        let is_proven = classes.iter().filter(is_broken).count() > threshold;
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
        let saves_later = || reverts || classes.iter().any(is_away);
        let loops = |node: &Node| record.replaced_twice.contains(&node.name);
        let stopped = if record.stopped.is_some() {
            record.stopped
        } else if failures > threshold && (waiting.next().is_some() || is_proven && saves_later()) {
            Some(Stopped::FailedByRevision)
        } else if !record.replaced_twice.is_empty() && waiting.any(|(node, _)| loops(node)) {
            Some(Stopped::ReplacedTwice)
        } else {
            None
        };
        if record.stopped.is_none() && stopped.is_some() {
            // What it was stopped for is told with it, also when it is over.
            let failed = fleet.nodes.iter().zip(classes);
            let failed = failed.filter(|(_, class)| class.is_failed());
            let room = FAILED_NAMED.saturating_sub(record.failed.len());
            let names = failed.map(|(node, _)| &node.name);
            let names = names
                .filter(|name| !record.failed.contains(*name))
                .take(room);
            let names: Vec<NodeName> = names.cloned().collect();
            record.failed.extend(names);
        }
        record.stopped = stopped;
        record.exceeded = stopped.is_none() && failures > threshold;
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

    /// Nodes whose old pod has been broken for so long that its successor is not to blame, without those that `failed` with the
    /// revision before that.
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
                continue; // looking at a pod of every node takes longer than all the rest
            }
            if failed.contains(&node.name) {
                continue; // it is to blame already
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
