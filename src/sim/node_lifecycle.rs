//! The native node lifecycle, taint eviction and pod garbage collection, as an ordinary client.
//!
//! A node that is silent for longer than the grace period becomes `Ready=Unknown`, its pods not ready (unless it is
//! autonomous). Nodes that are not Ready, or cordoned, get the taints that say so, and lose them again. Pods that do not
//! tolerate a `NoExecute` taint go; so do, after a while, pods of nodes that no longer exist.

mod engine;
mod taints;

use std::time::Duration;

use kube::Client;

use self::engine::NodeLifecycleController;
use crate::clock::Clock;
use crate::sim::pulse::NodePulse;
use crate::task::Task;

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

/// Starts the controller; it stops when the returned task is dropped.
pub fn start(client: Client, clock: Clock, options: NodeLifecycleOptions) -> Task {
    Task::spawn(NodeLifecycleController::new(client, clock, options).run())
}
