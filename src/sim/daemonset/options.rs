//! How the native DaemonSet controller works.

use std::time::Duration;

/// How the controller works.
#[derive(Clone, Debug)]
pub struct DaemonSetsOptions {
    /// Changes within this time are looked at together.
    pub gather: Duration,
    /// Pods that changed are looked at one every so often, and out of order: as Kubernetes before 1.33 does when it is behind.
    /// `None`: at once and in order.
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
