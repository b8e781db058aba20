//! yurt-ds rolls out DaemonSets on fleets whose nodes come and go.
//!
//! This is the map of the house. A change of a DaemonSet walks through it in one direction:
//!
//! ```text
//!   Kubernetes API
//!        │ watch                                                     ▲ delete, patch, Events
//!        ▼                                                           │
//!   k8s ───► index ───────► core::Fleet ──► core::decide ──► Plan ──► controller
//!   (slim    (what is       (one entry      (pure: no I/O,   (actions, one verdict   (one leader,
//!    objects) known,         per node)       no clock)        per node, next wake)    preconditions)
//!             own writes
//!             laid over)          └──────────── the same, read-only ──────────────► ctl
//! ```
//!
//! - [`core`] decides and knows nothing of networks, clocks or clients. Its words ([`core::Verdict`]) are the words of
//!   every table, Event, metric and test.
//! - [`k8s`] reads from API objects what is decided upon and skips the rest while parsing; its client is the door to
//!   the API server.
//! - [`index`] remembers it, dates it by our own clock, and joins it into a fleet.
//! - [`controller`] is `yurt-ds controller`: watches, passes, writes, reports; one writer among the replicas.
//! - [`ctl`] is what people type: it fills an index from lists and asks the very same `decide`.
//! - [`ota_server`] is `yurt-ds ota-server`, on every node: what the owner of a device asks and confirms.
//! - [`sim`] is an embedded Kubernetes (API server, native controllers, kubelets with faults): the tests run on it,
//!   `ctl plan` plays a copy of the fleet on it, and [`demo`], which is `yurt-ds sim`, tells its stories on it.
//! - [`manifests`] writes what of the manifests is made of types: the definition of the Advanced DaemonSet.
//! - [`clock`], [`serve`], [`shutdown`], [`task`], [`log`] and [`cli`] are the other doors: to time, for probes and metrics,
//!   to the end, to the log and from the command line; [`backoff`] has the pauses between attempts.
//!
//! The rooms stand on floors, and imports run down only; a test (`src/floors.rs`) reads them:
//!
//! ```text
//!                       demo
//!                       ctl
//!                       sim
//!       controller            ota_server
//!               index     cli
//!          k8s     serve     log     manifests
//!    core     backoff     clock     shutdown     task
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
pub mod task;

#[cfg(test)]
mod documents;
#[cfg(test)]
mod floors;
#[cfg(test)]
#[path = "../tests/support/fnv.rs"]
mod fnv;
#[cfg(test)]
#[path = "../tests/support/machine.rs"]
mod machine;
