//! All native controllers at once, each with the user agent of its original.

use std::time::Duration;

use kube::Client;

use super::pulse::NodePulse;
use super::{daemonset, gc, job, node_lifecycle, scheduler};
use crate::clock::Clock;
use crate::task::Task;

/// Starts everything that kube-controller-manager and kube-scheduler do here; it stops when the tasks are dropped.
/// `client` makes a client with a user agent, `pulse` tells which nodes are silent (share it with the fake kubelets),
/// `grace` is how long they may be.
pub fn start(
    client: impl Fn(&str) -> Client,
    clock: &Clock,
    pulse: NodePulse,
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
