//! What an owner may do to a pod: replace it, and have its images pulled before.

use kube::Client;

use super::memory::Memory;
use crate::clock::Clock;

/// What actions need.
#[derive(Clone)]
pub(super) struct Actions {
    /// The API server.
    pub(super) client: Client,
    /// The pods of this node.
    pub(super) memory: Memory,
    /// This node.
    pub(super) node: String,
    /// The time.
    pub(super) clock: Clock,
}
