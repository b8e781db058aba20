//! Starts all native controllers, with the user agents that they have in Kubernetes.

use std::time::Duration;

use kube::Client;

use super::pulse::SilentNodes;
use super::{daemonset, gc, job, node_lifecycle, scheduler};
use crate::clock::Clock;
use crate::task::Task;

/// Starts the controllers of kube-controller-manager and kube-scheduler. They stop when the tasks are dropped.
///
/// `client` creates a client with the given user agent. `pulse` contains the silent nodes and is shared with the fake kubelets. A
/// node that is silent for longer than `grace` counts as unreachable.
pub fn start(
    client: impl Fn(&str) -> Client,
    clock: &Clock,
    pulse: SilentNodes,
    grace: Duration,
) -> Vec<Task> {
    let controllers = client("kube-controller-manager");
    let lifecycle = node_lifecycle::NodeLifecycleOptions {
        pulse: Some(pulse),
        grace,
        ..node_lifecycle::NodeLifecycleOptions::default()
    };
    vec![
        daemonset::start(
            controllers.clone(),
            clock.clone(),
            daemonset::DaemonSetsOptions::default(),
        ),
        node_lifecycle::start(controllers.clone(), clock.clone(), lifecycle),
        job::start(controllers.clone(), clock.clone()),
        gc::start(controllers),
        scheduler::start(client("kube-scheduler")),
    ]
}
