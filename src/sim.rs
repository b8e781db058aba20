//! The simulator: an embedded cluster, fake kubelets, and the native controllers beside them.

pub mod cluster;
pub mod dice;
pub mod kubelet;
pub mod pulse;
