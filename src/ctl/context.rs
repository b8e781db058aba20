//! What every verb of `ctl` needs.

use super::access::Access;
use crate::clock::Clock;

/// What every verb needs.
pub struct Context {
    /// The cluster.
    pub access: Access,
    /// The namespace of `-n`.
    pub namespace: Option<String>,
    /// The time.
    pub clock: Clock,
}
