//! Nodes of a fleet that are counted instead of listed, with the totals that decisions need.

use k8s_openapi::jiff::Timestamp;

use crate::core::id::NodeName;

/// Totals of the nodes that are not in [`Fleet::nodes`]; all zero if every node is listed.
///
/// [`engine::crowd`] says which nodes may be counted.
///
/// [`Fleet::nodes`]: super::Fleet::nodes
/// [`engine::crowd`]: crate::core::engine::crowd
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Crowd {
    /// Ready nodes with an available pod of the current revision.
    pub done: usize,
    /// Ready nodes with an available outdated pod, in the queue behind the listed nodes.
    pub waiting: usize,
    /// First waiting node, by name.
    pub next: Option<NodeName>,
    /// NotReady nodes.
    pub offline: usize,
    /// NotReady nodes with a pod of the current revision.
    pub offline_updated: usize,
    /// Nodes that are being updated, each within its deadline.
    pub moving: usize,
    /// Nodes among [`Self::moving`] where the controller replaced nothing: they joined, or their pod was deleted by someone else.
    pub joining: usize,
    /// All counted nodes with a pod of another revision than the current one, including done and offline ones.
    pub outdated: usize,
    /// Time at which the oldest pod of the done nodes got its revision, or an earlier time.
    pub oldest_done: Option<Timestamp>,
    /// Lowest and highest revision number of the waiting nodes, or a wider range.
    pub numbers: Option<(i64, i64)>,
    /// Time at which the newest pod of the waiting nodes got its revision, or a later time.
    pub newest_waiting: Option<Timestamp>,
    /// Time at which the first of the moving nodes must be listed again if nothing happens to it before.
    pub wake: Option<Timestamp>,
}

impl Crowd {
    /// Returns the number of counted nodes. All of them are eligible for a pod.
    pub fn len(&self) -> usize {
        self.done + self.waiting + self.offline + self.moving
    }

    /// Returns true if every node is listed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
