//! Native node lifecycle, taint eviction and pod garbage collection, as an ordinary client.
//!
//! A node that is silent for longer than the grace period becomes `Ready=Unknown`, and its pods become not ready (unless it is
//! autonomous). Nodes that are not Ready or cordoned get the corresponding taints and lose them afterwards. Pods that don't
//! tolerate a `NoExecute` taint are deleted. Pods of nodes that no longer exist are deleted after a delay.

mod engine;
mod options;
mod taints;

use kube::Client;

use self::engine::NodeLifecycleController;
pub use self::options::NodeLifecycleOptions;
use crate::clock::Clock;
use crate::task::Task;

/// Starts the controller; it stops when the returned task is dropped.
pub fn start(client: Client, clock: Clock, options: NodeLifecycleOptions) -> Task {
    Task::spawn(NodeLifecycleController::new(client, clock, options).run())
}
