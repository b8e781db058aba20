//! State of the active pause, as part of a plan.

use k8s_openapi::jiff::Timestamp;

use crate::core::fleet::PauseRecord;
use crate::core::id::NodeName;

/// State of the active pause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PauseStand {
    /// Record of the pause to store in the DaemonSet's status.
    pub record: PauseRecord,
    /// End of the pause; `None` if an operator has to end it.
    pub until: Option<Timestamp>,
    /// True if the daily reminder of the pause is due now.
    pub reminds: bool,
    /// Names of the targeted nodes that got the current revision during the pause, sorted. Their pods were created again, and every
    /// new pod has the current revision.
    pub newcomers: Vec<NodeName>,
    /// True if, at the end of the pause, pods will be rolled back from the revision that the guard stopped.
    pub reverts: bool,
}
