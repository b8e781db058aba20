//! Nodes of a fleet that are counted and not looked at: what decisions have to know of them all together.

use k8s_openapi::jiff::Timestamp;

use crate::core::id::NodeName;

/// The nodes that are in no list ([`Fleet::nodes`]), in numbers; all zero where everybody is. Who may be among them is said in
/// [`engine::crowd`].
///
/// [`Fleet::nodes`]: super::Fleet::nodes
/// [`engine::crowd`]: crate::core::engine::crowd
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Crowd {
    /// Ready, with an available pod of the current revision.
    pub done: usize,
    /// Ready, with an available outdated pod, and behind those in the list whose turn is next.
    pub waiting: usize,
    /// The first of those that wait, in the order of names.
    pub next: Option<NodeName>,
    /// NotReady.
    pub offline: usize,
    /// Those of them that hold a pod of the current revision.
    pub offline_updated: usize,
    /// Being updated, each within its deadline.
    pub moving: usize,
    /// Those of them on which nobody replaced anything: they joined, or somebody deleted their pod.
    pub joining: usize,
    /// All of them, done and offline ones included, that hold a pod of another revision than the current one.
    pub outdated: usize,
    /// When the oldest pod of those that are done got its revision, or earlier.
    pub oldest_done: Option<Timestamp>,
    /// The least and the greatest number among the revisions of those that wait, or a wider span.
    pub numbers: Option<(i64, i64)>,
    /// When the newest pod of those that wait got its revision, or later.
    pub newest_waiting: Option<Timestamp>,
    /// When the first of those that are being updated has to be looked at, if nothing happens to it before.
    pub wake: Option<Timestamp>,
}

impl Crowd {
    /// How many there are; on each of them a pod belongs.
    pub fn len(&self) -> usize {
        self.done + self.waiting + self.offline + self.moving
    }

    /// Whether everybody is in the list.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
