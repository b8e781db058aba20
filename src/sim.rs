//! The simulator: an embedded cluster, fake kubelets, and the native controllers beside them.

pub mod dice;
pub mod kubelet;
pub mod pulse;
