//! How far a stopped revision is taken back.

use crate::core::fleet::in_place::Recreate;
use crate::core::id::{NodeName, Revision};

/// What there is to say of a reversal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReversalStage {
    /// Pods are taken back, or have their turn.
    UnderWay,
    /// Nodes keep the stopped revision.
    Stuck,
    /// All nodes that have it are away.
    Away,
    /// No node that answers has it any more.
    Done,
}

impl ReversalStage {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::UnderWay => "UnderWay",
            Self::Stuck => "Stuck",
            Self::Away => "Away",
            Self::Done => "Done",
        }
    }
}

/// How far a stopped revision is taken back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reversal {
    /// The revision that pods are taken back to; `None`: no older one is known.
    pub to: Option<Revision>,
    /// Nodes whose pod has its turn, or is not available yet.
    pub under_way: Vec<NodeName>,
    /// Nodes whose pod was taken back.
    pub done: Vec<NodeName>,
    /// Nodes that keep the stopped revision, because it cannot be taken back in place there.
    pub stuck: Vec<NodeName>,
    /// Why, the first of the reasons.
    pub why: Option<Recreate>,
    /// Nodes that are away and whose pod is taken back when they return.
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
