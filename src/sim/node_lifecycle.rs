//! The native node lifecycle, taint eviction and pod garbage collection, as an ordinary client.
//!
//! A node that is silent for longer than the grace period becomes `Ready=Unknown`, its pods not ready (unless it is
//! autonomous). Nodes that are not Ready, or cordoned, get the taints that say so, and lose them again. Pods that do not
//! tolerate a `NoExecute` taint go; so do, after a while, pods of nodes that no longer exist.

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
