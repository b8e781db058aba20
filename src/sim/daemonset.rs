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
mod pods;
mod set;
mod status;
mod template;
mod write;

use std::time::Duration;

use kube::Client;

use self::engine::DaemonSetsController;
use crate::clock::Clock;
use crate::task::Task;

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

/// Starts the controller; it stops when the returned task is dropped.
pub fn start(client: Client, clock: Clock, options: DaemonSetsOptions) -> Task {
    Task::spawn(DaemonSetsController::new(client, clock, options).run())
}
