//! Progress of the rollback of a stopped revision, as part of a plan.

use crate::core::fleet::in_place::Recreate;
use crate::core::id::{NodeName, Revision};

/// Stage of a rollback in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReversalStage {
    /// Pods are being rolled back, or are next.
    UnderWay,
    /// Some nodes keep the stopped revision.
    Stuck,
    /// All nodes that have the stopped revision are offline.
    Away,
    /// No online node has the stopped revision any more.
    Done,
}

impl ReversalStage {
    /// Returns its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::UnderWay => "UnderWay",
            Self::Stuck => "Stuck",
            Self::Away => "Away",
            Self::Done => "Done",
        }
    }
}

/// Progress of the rollback of a stopped revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reversal {
    /// The revision that pods are rolled back to; `None` if no older one is known.
    pub to: Option<Revision>,
    /// Nodes whose pod is next, or is not available yet.
    pub under_way: Vec<NodeName>,
    /// Nodes whose pod was rolled back.
    pub done: Vec<NodeName>,
    /// Nodes that keep the stopped revision, because it cannot be rolled back in place there.
    pub stuck: Vec<NodeName>,
    /// Reason why these nodes are stuck; the first, if there are several.
    pub why: Option<Recreate>,
    /// Offline nodes whose pod is rolled back when they return.
    pub away: Vec<NodeName>,
}

impl Reversal {
    /// Returns the stage, if there is anything to say.
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
