//! yurt-ds rolls out DaemonSets on fleets whose nodes come and go.

pub mod api;
pub mod clock;
pub mod core;
pub mod index;
pub mod sim;
