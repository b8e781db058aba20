//! yurt-ds rolls out DaemonSets on fleets whose nodes come and go.

pub mod api;
pub mod cli;
pub mod client;
pub mod clock;
pub mod controller;
pub mod core;
pub mod ctl;
pub mod index;
pub mod log;
pub mod serve;
pub mod shutdown;
pub mod sim;
