//! Context of a `ctl` command.

use super::access::Access;
use crate::clock::Clock;

/// Access, namespace and clock that a `ctl` command uses.
pub struct Context {
    /// Access to the cluster.
    pub access: Access,
    /// Namespace that `-n` names; `None` without `-n`.
    pub namespace: Option<String>,
    /// Clock for the current time.
    pub clock: Clock,
}
