//! Older revisions that pods can be rolled back to.

use std::collections::BTreeMap;

use super::in_place::{InPlaceTransition, Recreate};
use crate::core::id::Revision;

/// Older revisions that pods can be rolled back to from the current one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RollbackTargets {
    /// True if the guard's memory is written in the DaemonSet's status, where it survives a restart.
    pub stands: bool,
    /// Older revisions; empty unless rollbacks are enabled.
    pub revisions: BTreeMap<Revision, RollbackTarget>,
}

/// An older revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RollbackTarget {
    /// Number of its ControllerRevision; greater is newer.
    pub number: i64,
    /// Transition from the current revision to this one, or the reason why pods have to be recreated.
    pub transition: Result<InPlaceTransition, Recreate>,
}
