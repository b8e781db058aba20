//! Class of a node: the state that a decision assigns to it in its first step. All later steps of the decision use the class.

use k8s_openapi::jiff::Timestamp;

use super::surge::SurgePair;
use crate::core::lifecycle::PreDeleteHook;
use crate::core::verdict::{Cause, Offline, Progress, Verdict};

/// Reason why an outdated node is not updated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Excluded {
    /// The node's labels don't match `selector`.
    NotSelected,
    /// `partition` keeps the node on its revision.
    Partition,
    /// The node's annotation `hold` excludes it until this time; `None` if the hold has no end.
    Held(Option<Timestamp>),
}

/// Class of a node. Rare classes with large contents are boxed. The list of all classes then stays small, so that each step can
/// read it fast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// The DaemonSet runs no pod on the node.
    NotTargeted,
    /// The node runs an outdated pod and has a `NoSchedule` taint that the template doesn't tolerate.
    ///
    /// The pod stays, because no other pod could replace it.
    UntoleratedTaint,
    /// A pod is bound to the node, but its Node object doesn't exist, so the state of the node is unknown.
    NoNode,
    /// The node is NotReady.
    Offline {
        /// True if the node has a pod of the current revision that is neither terminating nor a surge pod.
        updated: bool,
        /// True if the node has a terminating pod.
        terminating: bool,
        /// Time at which the node became NotReady.
        since: Option<Timestamp>,
    },
    /// The node was lost, or its pod crashes or can't start. The failure counts against the current revision (see `guard`).
    Failed {
        /// Time at which the node failed.
        since: Timestamp,
        /// Cause of the failure. It decides if the node takes a slot.
        cause: Cause,
    },
    /// The node is being updated, or waits for the native controller to create its pod. The node takes a slot.
    InProgress(Progress),
    /// The node has two pods: a surge pod next to the old one (`max-surge`), or a new pod whose predecessor is still terminating.
    Surging(Box<SurgePair>),
    /// The node runs an available pod of the current revision.
    Done,
    /// The node runs an outdated pod.
    Outdated {
        /// True if the outdated pod is available.
        available: bool,
        /// Time until which the node has to stay Ready before it is updated; `None` if it has settled.
        settling: Option<Timestamp>,
    },
    /// The node runs an outdated pod that waits for its preDelete hook before the deletion. The node takes a slot.
    PreDeleteHook {
        /// Mark that the controller set on the pod, with the time at which the wait began.
        preparing: Box<PreDeleteHook>,
        /// True if the outdated pod is available.
        available: bool,
        /// True if the hook has been pending for so long that an operator has to check it.
        overdue: bool,
        /// Time until which the node has to stay Ready before the pod is deleted.
        settling: Option<Timestamp>,
    },
    /// The node runs an outdated pod and keeps it for this reason.
    Excluded(Excluded),
    /// The node runs a pod of an unknown revision.
    Unknown {
        /// True if the pod is available.
        available: bool,
    },
}

impl Class {
    /// Returns true if the node should run a pod, or if an update that began on the node is not over.
    pub(super) fn is_targeted(&self) -> bool {
        !matches!(
            self,
            Self::NotTargeted | Self::UntoleratedTaint | Self::NoNode
        )
    }

    /// Returns true if the node is being updated, or is Ready with a pod that fails because of the current revision.
    ///
    /// A node that was lost is not in flight, so it never blocks other nodes.
    pub(super) fn is_in_flight(&self) -> bool {
        match self {
            Self::InProgress(_) | Self::Surging(_) | Self::PreDeleteHook { .. } => true,
            Self::Failed { cause, .. } => cause.holds_slot(),
            _ => false,
        }
    }

    /// Returns true if the node is in flight, but its old pod is still available, because its preDelete hook is pending.
    pub(super) fn still_serves(&self) -> bool {
        matches!(
            self,
            Self::PreDeleteHook {
                available: true,
                ..
            }
        )
    }

    /// Returns true if the guard counts this node as failed with the current revision.
    pub(super) fn is_failed(&self) -> bool {
        match self {
            Self::Failed { .. } => true,
            Self::Surging(pair) => pair.failed.is_some(),
            _ => false,
        }
    }

    /// Returns the verdict that follows from the class alone.
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
