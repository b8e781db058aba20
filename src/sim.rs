//! Simulator: an embedded cluster with fake kubelets and native controllers.

pub mod cluster;
pub mod daemonset;
pub mod dice;
pub mod gc;
pub mod job;
pub mod kubelet;
pub mod native;
pub mod node_lifecycle;
pub mod pulse;
pub mod scheduler;
pub mod world;

mod events;
mod fnv;
pub(crate) mod picture;
mod pod_view;
mod queue;
pub(crate) mod watched;

#[cfg(test)]
mod native_tests;
