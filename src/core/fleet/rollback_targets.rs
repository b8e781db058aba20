//! How pods get back to older revisions.

use std::collections::BTreeMap;

use super::in_place::{InPlaceTransition, Recreate};
use crate::core::id::Revision;

/// How pods get back from the current revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RollbackTargets {
    /// Whether what the guard remembers stands on the DaemonSet itself, where a restart finds it.
    pub stands: bool,
    /// The older revisions; empty where nobody asked for that.
    pub revisions: BTreeMap<Revision, RollbackTarget>,
}

/// An older revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RollbackTarget {
    /// The number of its ControllerRevision: greater is newer.
    pub number: i64,
    /// How a pod of the current revision becomes one of it, or why that is not possible in place.
    pub transition: Result<InPlaceTransition, Recreate>,
}
