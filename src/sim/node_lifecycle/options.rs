//! Options of the native node lifecycle controller.

use std::time::Duration;

use crate::sim::pulse::SilentNodes;

/// Options of the node lifecycle controller.
#[derive(Clone, Debug)]
pub struct NodeLifecycleOptions {
    /// Time for which a node may be silent (`--node-monitor-grace-period` in Kubernetes).
    pub grace: Duration,
    /// Source of heartbeats. `None` stands for the Leases in `kube-node-lease`.
    pub pulse: Option<SilentNodes>,
    /// Interval between checks of the Leases (`--node-monitor-period` in Kubernetes).
    pub period: Duration,
    /// Time after which the pods of a node that no longer exists are deleted.
    pub quarantine: Duration,
}

impl Default for NodeLifecycleOptions {
    fn default() -> Self {
        Self {
            grace: Duration::from_secs(40),
            pulse: None,
            period: Duration::from_secs(5),
            quarantine: Duration::from_secs(40),
        }
    }
}
