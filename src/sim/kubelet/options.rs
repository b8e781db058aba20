//! Options of the fake kubelets.

use std::time::Duration;

use super::behaviour::Behaviour;
use super::node::Outage;
use crate::sim::pulse::SilentNodes;

/// Options that apply to all fake kubelets.
#[derive(Clone, Debug)]
pub struct KubeletOptions {
    /// Behavior of containers without a matching rule.
    pub behaviour: Behaviour,
    /// Time that containers take to end after a deletion, limited by the pod's grace period.
    pub terminate: Duration,
    /// Effects of an outage when a flapping or crashed node goes offline, in addition to a silent kubelet.
    pub offline: Outage,
    /// Way in which the status of pods is written.
    pub status_write: StatusWrite,
    /// True to write the last status of a pod before its object is removed, as real kubelets do.
    pub final_status: bool,
    /// Interval between renewals of a node's Lease; `None` for clusters that don't use Leases.
    pub lease: Option<Duration>,
    /// Heartbeats without requests, for the simulator's node lifecycle controller; `None` if it uses Leases.
    pub pulse: Option<SilentNodes>,
    /// Maximum number of requests in flight.
    pub parallel_writes: usize,
    /// Maximum random delay that is added to each step.
    pub jitter: Duration,
    /// Seed from which random delays are derived.
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

/// Way in which the status of a pod is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatusWrite {
    /// Strategic merge patch with only the kubelet's own conditions. Real kubelets write like this.
    #[default]
    Patch,
    /// Complete status, based on a version of the pod that was read `age` earlier. Other components may have written in between.
    Put {
        /// Time between reading and writing the pod.
        age: Duration,
        /// True to write without a resourceVersion.
        ///
        /// The write then overwrites other components' changes, instead of failing with a conflict.
        blind: bool,
    },
}
