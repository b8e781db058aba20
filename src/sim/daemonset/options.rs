//! Options of the native DaemonSet controller.

use std::time::Duration;

/// Options of the DaemonSet controller.
#[derive(Clone, Debug)]
pub struct DaemonSetsOptions {
    /// Time for which changes are collected before a DaemonSet is synced.
    pub gather: Duration,
    /// Interval at which changed pods are processed one by one and out of order. A busy controller did so before Kubernetes 1.33.
    ///
    /// With `None`, changes are processed immediately and in order.
    pub backlog: Option<Duration>,
}

impl Default for DaemonSetsOptions {
    fn default() -> Self {
        Self {
            gather: Duration::from_millis(2),
            backlog: None,
        }
    }
}
