//! The controller: caches, an index, `decide`, and one writer among the replicas.

pub mod lease;
pub mod metrics;
