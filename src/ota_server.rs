//! `yurt-ds ota-server`: the owner of a node asks what is new, pre-pulls, and confirms.
//!
//! ```text
//!                        ┌─ watch ──► memory ──► document (GET /pods, ETag)     state (disk)
//! API server ◄───────────┤              │
//!                        └─ actions ◄───┴──── route ◄── origin ◄── listen ◄──── owner (loopback)
//!                           (upgrade, imagepull)
//! ```
//!
//! Reads are answered from memory and work without the cloud. What is not a pod of this node is refused from memory.
//! Only a request that could succeed reaches the API server.

mod actions;
mod answer;
mod cloud;
mod memory;
mod pod;
