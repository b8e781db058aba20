//! What follows from a node alone, or from its place in the fleet: the class that all later passes go by.

use k8s_openapi::jiff::Timestamp;

use super::surge::SurgePair;
use crate::core::lifecycle::PreDeleteHook;
use crate::core::verdict::{Cause, Offline, Progress, Verdict};

/// Why an outdated node is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Excluded {
    /// Its labels do not match `selector`.
    NotSelected,
    /// It is one of those that `partition` keeps.
    Partition,
    /// Its own annotation `hold` asks for that, until then.
    Held(Option<Timestamp>),
}

/// The class of a node. There is one per node, and many passes go through them all: what is large and rare is boxed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// No pod belongs here.
    NotTargeted,
    /// Runs an outdated pod, and has a taint of effect `NoSchedule` that the template does not tolerate: that pod stays, and
    /// if it went, no other would come.
    UntoleratedTaint,
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
    Surging(Box<SurgePair>),
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
    PreDeleteHook {
        /// What the mark says.
        preparing: Box<PreDeleteHook>,
        /// Whether that pod is available.
        available: bool,
        /// Whether that is for so long that somebody should look.
        overdue: bool,
        /// Until when the node has to stay Ready before the pod goes.
        settling: Option<Timestamp>,
    },
    /// Runs an outdated pod, and is to keep it.
    Excluded(Excluded),
    /// Runs a pod of an unknown revision.
    Unknown {
        /// Whether that pod is available.
        available: bool,
    },
}

impl Class {
    /// Whether the node counts into the base of percentages.
    pub(super) fn is_targeted(&self) -> bool {
        !matches!(
            self,
            Self::NotTargeted | Self::UntoleratedTaint | Self::NoNode
        )
    }

    /// Whether the node is on its way to the current revision, or failed on it while it is Ready. One that was lost holds up
    /// nobody, whoever took it away.
    pub(super) fn is_in_flight(&self) -> bool {
        match self {
            Self::InProgress(_) | Self::Surging(_) | Self::PreDeleteHook { .. } => true,
            Self::Failed { cause, .. } => cause.holds_slot(),
            _ => false,
        }
    }

    /// Whether the node is in flight and still has an available pod, because it waits for its hook.
    pub(super) fn still_serves(&self) -> bool {
        matches!(
            self,
            Self::PreDeleteHook {
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
