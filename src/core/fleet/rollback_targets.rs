//! Older revisions to which pods can be rolled back.

use std::collections::BTreeMap;

use super::in_place::{InPlaceTransition, Recreate};
use crate::core::id::Revision;

/// Older revisions to which pods of the current revision can be rolled back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RollbackTargets {
    /// True if the DaemonSet's status contains the stop of the current revision. Pods may be rolled back only after that.
    /// Otherwise, a restarted controller would not know of the stop and would leave the rollback unfinished.
    pub stands: bool,
    /// Older revisions with their transitions; empty unless rollbacks are enabled.
    pub revisions: BTreeMap<Revision, RollbackTarget>,
}

/// Older revision to which pods can be rolled back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RollbackTarget {
    /// Number of the ControllerRevision. Newer revisions have greater numbers.
    pub number: i64,
    /// Change that leads from the current revision to this one, or the reason why pods have to be recreated.
    pub transition: Result<InPlaceTransition, Recreate>,
}
