//! How the native node lifecycle works.

use std::time::Duration;

use crate::sim::pulse::NodePulse;

/// How the controller works.
#[derive(Clone, Debug)]
pub struct NodeLifecycleOptions {
    /// How long a node may be silent (the original's `--node-monitor-grace-period`).
    pub grace: Duration,
    /// Where heartbeats come from; `None`: from the Leases in `kube-node-lease`.
    pub pulse: Option<NodePulse>,
    /// How often Leases are judged (the original's `--node-monitor-period`).
    pub period: Duration,
    /// How long the pods of a node that vanished are left alone.
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
