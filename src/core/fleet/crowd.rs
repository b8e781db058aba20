//! Totals of the nodes that a fleet counts instead of listing them.

use k8s_openapi::jiff::Timestamp;

use crate::core::id::NodeName;

/// Totals of the nodes that are not in [`Fleet::nodes`]; all zero if every node is listed.
///
/// [`engine::crowd`] decides which nodes may be counted.
///
/// [`Fleet::nodes`]: super::Fleet::nodes
/// [`engine::crowd`]: crate::core::engine::crowd
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Crowd {
    /// Number of Ready nodes with an available pod of the current revision.
    pub done: usize,
    /// Number of Ready nodes with an available outdated pod. They are updated after the listed nodes.
    pub waiting: usize,
    /// First waiting node in alphabetical order.
    pub next: Option<NodeName>,
    /// Number of NotReady nodes.
    pub offline: usize,
    /// Number of NotReady nodes with a pod of the current revision.
    pub offline_updated: usize,
    /// Number of nodes that are being updated and have not passed their deadline.
    pub moving: usize,
    /// Number of nodes in [`Self::moving`] whose pod the controller did not replace. Such a node joined the fleet, or another
    /// client deleted its pod.
    pub joining: usize,
    /// Number of nodes with a pod of another revision than the current one. They can be waiting, moving or offline.
    pub outdated: usize,
    /// Time at which the oldest pod of the done nodes got its revision. The value may be earlier than the real time, but not later.
    pub oldest_done: Option<Timestamp>,
    /// Lowest and highest revision number of the waiting nodes' pods. The range may be wider than the real one, but not narrower.
    pub numbers: Option<(i64, i64)>,
    /// Time at which the newest pod of the waiting nodes got its revision. The value may be later than the real time, but not
    /// earlier.
    pub newest_waiting: Option<Timestamp>,
    /// Earliest time at which a moving node has to be listed again, because its deadline passes.
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
