//! Context that every `ctl` command needs.

use super::access::Access;
use crate::clock::Clock;

/// Context that every command needs.
pub struct Context {
    /// Access to the cluster.
    pub access: Access,
    /// Namespace of `-n`.
    pub namespace: Option<String>,
    /// Clock for the current time.
    pub clock: Clock,
}
