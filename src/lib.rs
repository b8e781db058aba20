//! yurt-ds rolls out DaemonSets on fleets whose nodes come and go.
//!
//! A change of a DaemonSet flows through the modules in one direction:
//!
//! ```text
//!   Kubernetes API
//!        │ watch                                                     ▲ delete, patch, Events
//!        ▼                                                           │
//!   k8s ───► index ───────► core::Fleet ──► core::decide ──► Plan ──► controller
//!   (slim    (caches,       (one entry      (pure: no I/O,   (actions, one verdict   (one leader,
//!    objects) expectations   per node)       no clock)        per node, next wake)    preconditions)
//!             of own writes)
//!                                 └────────── the same code, read-only ─────────────► ctl
//! ```
//!
//! - [`core`] makes all decisions. It has no network, clock or client. Every table, Event, metric and test uses its verdicts
//!   ([`core::Verdict`]).
//! - [`k8s`] parses only those fields of API objects that decisions need. Its client connects to the API server.
//! - [`index`] caches the objects, timestamps them with the local clock, and joins them into a fleet.
//! - [`controller`] is `yurt-ds controller`. It watches, reconciles, writes and reports. One replica at a time writes.
//! - [`ctl`] is `yurt-ds ctl`. It fills an index from lists and calls the same `decide`.
//! - [`ota_server`] is `yurt-ds ota-server`, the agent on every node. It serves the requests of the node owner.
//! - [`sim`] is an embedded cluster that simulates Kubernetes: API server, native controllers, and kubelets with faults. Tests
//!   run on it, and `ctl plan` simulates a copy of the fleet on it.
//! - [`demo`] is `yurt-ds sim`. It plays example rollouts on the embedded cluster.
//! - [`manifests`] generates the CustomResourceDefinition of the Advanced DaemonSet from Rust types.
//! - [`version`] is `yurt-ds version`: the build, and the versions that the program works with.
//! - [`cli`] has the types of the command line, [`log`] the format of log lines, and [`serve`] the endpoints for probes and
//!   metrics.
//! - [`clock`] provides the time, [`stdout`] the standard output, [`shutdown`] the request to stop the process, [`task`] tasks
//!   that are aborted when dropped, and [`backoff`] the pauses between attempts.
//!
//! The modules form layers. A module imports only from lower layers; a test in `src/layers.rs` checks this:
//!
//! ```text
//!                       demo
//!                       ctl
//!                       sim
//!       controller            ota_server
//!               index     cli     version
//!          k8s     serve     log     manifests
//!    core     backoff     clock     shutdown     stdout     task
//! ```

mod backoff;
pub mod cli;
pub mod clock;
pub mod controller;
pub mod core;
pub mod ctl;
pub mod demo;
pub mod index;
pub mod k8s;
pub mod log;
pub mod manifests;
pub mod ota_server;
pub mod serve;
pub mod shutdown;
pub mod sim;
pub mod stdout;
pub mod task;
pub mod version;

#[cfg(test)]
mod documents;
#[cfg(test)]
#[path = "../tests/support/fnv.rs"]
mod fnv;
#[cfg(test)]
mod layers;
#[cfg(test)]
#[path = "../tests/support/machine.rs"]
mod machine;
