//! Simulated controllers for node lifecycle, taint eviction and pod garbage collection, combined in one API client.
//!
//! A node whose kubelet is silent for longer than the grace period becomes `Ready=Unknown`. Its pods become not Ready, unless
//! annotations of OpenYurt make the node autonomous. Nodes that are not Ready or are cordoned get the corresponding taints. Pods
//! that don't tolerate a `NoExecute` taint are deleted. Pods of nodes that no longer exist are deleted after a delay.

mod engine;
mod options;
mod taints;

use kube::Client;

use self::engine::NodeLifecycleController;
pub use self::options::NodeLifecycleOptions;
use crate::clock::Clock;
use crate::task::Task;

/// Starts the controller. It stops when the returned task is dropped.
pub fn start(client: Client, clock: Clock, options: NodeLifecycleOptions) -> Task {
    Task::spawn(NodeLifecycleController::new(client, clock, options).run())
}
