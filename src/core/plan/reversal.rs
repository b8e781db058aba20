//! Progress of the rollback in place from a revision that the guard stopped, as part of a plan.

use crate::core::fleet::in_place::Recreate;
use crate::core::id::{NodeName, Revision};

/// Stage of the rollback of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReversalStage {
    /// Pods are being rolled back, or will be next.
    UnderWay,
    /// Some nodes keep the stopped revision, because their pods cannot be rolled back in place.
    Stuck,
    /// Only offline nodes still have the stopped revision.
    Away,
    /// No online node has the stopped revision. Offline nodes may still have it.
    Done,
}

impl ReversalStage {
    /// Returns the name of this stage.
    pub fn word(self) -> &'static str {
        match self {
            Self::UnderWay => "UnderWay",
            Self::Stuck => "Stuck",
            Self::Away => "Away",
            Self::Done => "Done",
        }
    }
}

/// Progress of the rollback from a stopped revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reversal {
    /// Revision to which pods are rolled back; `None` if no older one is known.
    pub to: Option<Revision>,
    /// Nodes whose pod will be rolled back next, or was rolled back and is not available yet.
    pub under_way: Vec<NodeName>,
    /// Nodes whose pod was rolled back and is available.
    pub done: Vec<NodeName>,
    /// Nodes that keep the stopped revision, because their pods cannot be rolled back in place.
    pub stuck: Vec<NodeName>,
    /// Reason why the first of the `stuck` nodes cannot be rolled back.
    pub why: Option<Recreate>,
    /// Offline nodes whose pod will be rolled back when they return.
    pub away: Vec<NodeName>,
}

impl Reversal {
    /// Returns the stage of the rollback; `None` if the rollback affects no node.
    pub fn stage(&self) -> Option<ReversalStage> {
        if !self.under_way.is_empty() {
            Some(ReversalStage::UnderWay)
        } else if !self.stuck.is_empty() {
            Some(ReversalStage::Stuck)
        } else if self.done.is_empty() {
            (!self.away.is_empty()).then_some(ReversalStage::Away)
        } else {
            Some(ReversalStage::Done)
        }
    }
}
