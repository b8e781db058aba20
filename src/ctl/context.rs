//! What every `ctl` command needs to run.

use super::access::Access;
use crate::clock::Clock;

/// Everything that a `ctl` command needs to run.
pub struct Context {
    /// Access to the cluster.
    pub access: Access,
    /// Namespace that `-n` names; `None` without `-n`.
    pub namespace: Option<String>,
    /// Clock for the current time.
    pub clock: Clock,
}
