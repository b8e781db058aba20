//! Simulated DaemonSet controller of Kubernetes, an ordinary API client. It handles pods (one per eligible node), revisions,
//! rolling updates and status.
//!
//! ```text
//! watches (DaemonSets, ControllerRevisions, Pods, Nodes) ─► caches ─► sync a DaemonSet: decide the next step
//!                                                            ▲          │ revisions · adoption · pods · history · status
//!                                                            └ responses ◄ writes
//! ```
//!
//! Responses to the controller's own writes update its caches directly, so it never repeats an action. The real controller uses
//! expectations instead.

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

/// Starts the controller. It stops when the returned task is dropped.
pub fn start(client: Client, clock: Clock, options: DaemonSetsOptions) -> Task {
    Task::spawn(DaemonSetsController::new(client, clock, options).run())
}
