//! How fake kubelets behave and write.

use std::time::Duration;

use super::behaviour::Behaviour;
use super::node::Outage;
use crate::sim::pulse::NodePulse;

/// How all the kubelets behave unless told otherwise.
#[derive(Clone, Debug)]
pub struct KubeletOptions {
    /// What containers do for which no rule was made.
    pub behaviour: Behaviour,
    /// How long containers take to end after a deletion (never longer than the pod's grace period).
    pub terminate: Duration,
    /// What flapping nodes and nodes that die do besides falling silent.
    pub offline: Outage,
    /// How pod status is written.
    pub status_write: StatusWrite,
    /// Whether the last status of a pod is written before the object is deleted, as kubelets do.
    pub final_status: bool,
    /// How often a node renews its Lease; `None`: never, for clusters that do not look.
    pub lease: Option<Duration>,
    /// Heartbeats for our own node lifecycle controller that cost no requests.
    pub pulse: Option<NodePulse>,
    /// How many requests may be under way at once.
    pub parallel_writes: usize,
    /// Every step takes up to this much longer.
    pub jitter: Duration,
    /// Decides the jitter.
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

/// How a kubelet writes the status of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatusWrite {
    /// A strategic merge patch of its own conditions, as kubelets have done for years.
    #[default]
    Patch,
    /// The whole status, built on what was read `age` earlier: others may have written meanwhile.
    Put {
        /// From reading to writing.
        age: Duration,
        /// Without a resource version: what others wrote meanwhile is overwritten instead of refused.
        blind: bool,
    },
}
