//! yurt-ds rolls out DaemonSets on fleets whose nodes come and go.

pub mod clock;
pub mod core;
