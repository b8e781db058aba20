//! Options of the fake kubelets.

use std::time::Duration;

use super::behaviour::Behaviour;
use super::node::Outage;
use crate::sim::pulse::NodePulse;

/// Defaults for all kubelets.
#[derive(Clone, Debug)]
pub struct KubeletOptions {
    /// Behavior of containers without a matching rule.
    pub behaviour: Behaviour,
    /// Time that containers take to end after a deletion (at most the pod's grace period).
    pub terminate: Duration,
    /// Effects when flapping or crashed nodes go offline, in addition to their silence.
    pub offline: Outage,
    /// Method of writing pod status.
    pub status_write: StatusWrite,
    /// True to write the last status of a pod before its object is deleted, as kubelets do.
    pub final_status: bool,
    /// Interval between renewals of a node's Lease; `None` for clusters that don't use Leases.
    pub lease: Option<Duration>,
    /// Heartbeats for the simulator's own node lifecycle controller, which cost no requests.
    pub pulse: Option<NodePulse>,
    /// Largest number of requests in flight.
    pub parallel_writes: usize,
    /// Largest random delay that is added to each step.
    pub jitter: Duration,
    /// Seed of the random delays.
    pub seed: u64,
}

impl Default for KubeletOptions {
    fn default() -> Self {
        Self {
            behaviour: Behaviour::default(),
            terminate: Duration::from_secs(1),
            offline: Outage::default(),
            status_write: StatusWrite::Patch,
            final_status: true,
            lease: None,
            pulse: None,
            parallel_writes: 64,
            jitter: Duration::ZERO,
            seed: 0,
        }
    }
}

/// Method of writing a pod's status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatusWrite {
    /// Strategic merge patch of the kubelet's own conditions, as kubelets have done for years.
    #[default]
    Patch,
    /// Complete status, based on a status that was read `age` earlier. Others may have written in the meantime.
    Put {
        /// Time between reading and writing.
        age: Duration,
        /// True to write without a resourceVersion.
        ///
        /// Writes of others in the meantime are then overwritten instead of causing a conflict.
        blind: bool,
    },
}
