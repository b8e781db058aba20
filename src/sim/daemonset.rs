//! The native DaemonSet controller, as an ordinary client: one pod per eligible node, revisions, rolling update, status.
//!
//! ```text
//! watches (DaemonSets, ControllerRevisions, Pods, Nodes) ─► caches ─► look at a DaemonSet: what is the next step?
//!                                                            ▲          │ revisions · adoption · pods · history · status
//!                                                            └─ answers ◄ writes
//! ```
//!
//! Its own writes go straight back into its caches, so it never acts twice on what it did itself; that is what the
//! original has its expectations for.

mod engine;
mod history;
mod manage;
mod options;
mod pods;
mod set;
mod status;
mod template;
mod write;

use kube::Client;

use self::engine::DaemonSetsController;
pub use self::options::DaemonSetsOptions;
use crate::clock::Clock;
use crate::task::Task;

/// Starts the controller; it stops when the returned task is dropped.
pub fn start(client: Client, clock: Clock, options: DaemonSetsOptions) -> Task {
    Task::spawn(DaemonSetsController::new(client, clock, options).run())
}
