//! A pause that holds, as a plan tells it.

use k8s_openapi::jiff::Timestamp;

use crate::core::fleet::PauseRecord;
use crate::core::id::NodeName;

/// A pause that holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PauseStand {
    /// What is to be remembered of it from now on.
    pub record: PauseRecord,
    /// When it ends by itself; `None`: somebody has to end it.
    pub until: Option<Timestamp>,
    /// Whether somebody is to be reminded now.
    pub reminds: bool,
    /// Targeted nodes that got the current revision since then, by name: the native controller makes every new pod of it.
    pub newcomers: Vec<NodeName>,
    /// Whether pods are taken back from the revision that the guard stopped when it ends.
    pub reverts: bool,
}
