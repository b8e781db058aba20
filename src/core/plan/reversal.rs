//! How far a stopped revision is taken back.

use crate::core::fleet::in_place::Recreate;
use crate::core::id::{NodeName, Revision};

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
