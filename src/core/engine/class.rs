//! Class of a node: the result of its own state and its place in the fleet, on which all later passes rely.

use k8s_openapi::jiff::Timestamp;

use super::surge::SurgePair;
use crate::core::lifecycle::PreDeleteHook;
use crate::core::verdict::{Cause, Offline, Progress, Verdict};

/// Reason why an outdated node is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Excluded {
    /// Its labels don't match `selector`.
    NotSelected,
    /// `partition` keeps it.
    Partition,
    /// Its own annotation `hold` excludes it, until then.
    Held(Option<Timestamp>),
}

/// Class of a node. Every pass iterates over all of them, so large and rare contents are boxed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// No pod belongs here.
    NotTargeted,
    /// Runs an outdated pod and has a `NoSchedule` taint that the template doesn't tolerate.
    ///
    /// The pod stays, because no other pod could replace it.
    UntoleratedTaint,
    /// Has no Node object, so its state is unknown.
    NoNode,
    /// NotReady.
    Offline {
        /// True if it has a pod of the current revision that is neither terminating nor a surge pod.
        updated: bool,
        /// True if it has a terminating pod.
        terminating: bool,
        /// Time since when the node is NotReady.
        since: Option<Timestamp>,
    },
    /// Lost, or without a pod that starts; counts against the current revision (see `guard`).
    Failed {
        /// Time of the failure.
        since: Timestamp,
        /// Cause of the failure.
        cause: Cause,
    },
    /// Being updated, or waiting for the native controller; takes a slot.
    InProgress(Progress),
    /// Has a surge pod.
    Surging(Box<SurgePair>),
    /// Runs an available pod of the current revision.
    Done,
    /// Runs an outdated pod.
    Outdated {
        /// True if that pod is available.
        available: bool,
        /// Time until which the node has to stay Ready before it is updated.
        settling: Option<Timestamp>,
    },
    /// Runs an outdated pod that is marked for deletion; takes a slot.
    PreDeleteHook {
        /// Content of the mark.
        preparing: Box<PreDeleteHook>,
        /// True if that pod is available.
        available: bool,
        /// True if it has waited for so long that an operator should look.
        overdue: bool,
        /// Time until which the node has to stay Ready before the pod is deleted.
        settling: Option<Timestamp>,
    },
    /// Runs an outdated pod and keeps it.
    Excluded(Excluded),
    /// Runs a pod of an unknown revision.
    Unknown {
        /// True if that pod is available.
        available: bool,
    },
}

impl Class {
    /// Returns true if the node is part of the base of percentages.
    pub(super) fn is_targeted(&self) -> bool {
        !matches!(
            self,
            Self::NotTargeted | Self::UntoleratedTaint | Self::NoNode
        )
    }

    /// Returns true if the node is being updated, or is Ready and failed with the current revision.
    ///
    /// A lost node blocks no other node, whatever the cause of the loss.
    pub(super) fn is_in_flight(&self) -> bool {
        match self {
            Self::InProgress(_) | Self::Surging(_) | Self::PreDeleteHook { .. } => true,
            Self::Failed { cause, .. } => cause.holds_slot(),
            _ => false,
        }
    }

    /// Returns true if the node is in flight and its pod is still available because it waits for its hook.
    pub(super) fn still_serves(&self) -> bool {
        matches!(
            self,
            Self::PreDeleteHook {
                available: true,
                ..
            }
        )
    }

    /// Returns true if the node counts against the current revision.
    pub(super) fn is_failed(&self) -> bool {
        match self {
            Self::Failed { .. } => true,
            Self::Surging(pair) => pair.failed.is_some(),
            _ => false,
        }
    }

    /// Returns the verdict of a node about which nothing else is known.
    pub(super) fn verdict(&self) -> Verdict {
        match *self {
            Self::NotTargeted => Verdict::NotTargeted,
            Self::UntoleratedTaint => Verdict::UntoleratedTaint,
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
            Self::PreDeleteHook {
                ref preparing,
                overdue,
                ..
            } => Verdict::HookPending {
                since: preparing.since,
                overdue,
            },
            Self::Excluded(Excluded::NotSelected) => Verdict::NotSelected,
            Self::Excluded(Excluded::Partition) => Verdict::Partition,
            Self::Excluded(Excluded::Held(until)) => Verdict::Held { until },
            Self::Unknown { .. } => Verdict::NativeControllerBehind,
        }
    }
}
