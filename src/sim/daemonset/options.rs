//! Options of the native DaemonSet controller.

use std::time::Duration;

/// Options of the controller.
#[derive(Clone, Debug)]
pub struct DaemonSetsOptions {
    /// Time for which changes are collected before a sync.
    pub gather: Duration,
    /// Interval at which changed pods are processed one by one and out of order, like in Kubernetes before 1.33 under load.
    ///
    /// `None` to process them immediately and in order.
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
