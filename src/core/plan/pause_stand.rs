//! The active pause, as part of a plan.

use k8s_openapi::jiff::Timestamp;

use crate::core::fleet::PauseRecord;
use crate::core::id::NodeName;

/// An active pause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PauseStand {
    /// State to remember from now on.
    pub record: PauseRecord,
    /// End of the pause; `None` if an operator has to end it.
    pub until: Option<Timestamp>,
    /// True if a reminder is due now.
    pub reminds: bool,
    /// Targeted nodes that got the current revision during the pause, by name: the native controller creates every new pod from
    /// it.
    pub newcomers: Vec<NodeName>,
    /// True if pods are rolled back from the revision that the guard stopped when the pause ends.
    pub reverts: bool,
}
