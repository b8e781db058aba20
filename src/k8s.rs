//! The Kubernetes API as the engine meets it: slim objects, read straight from the wire, and the [`client`].
//!
//! k8s-openapi's own types keep everything (a pod takes 7 KB even when pruned afterwards); these read what is decided
//! upon and skip the rest while parsing. They are made for watching and reading, never for writing back.

mod bounds;
pub mod client;
mod condition;
mod daemonset;
mod go_json;
pub(crate) mod json_list;
mod meta;
mod node;
pub mod object;
pub mod permission;
mod pod;
mod resource;
mod revision;
mod text;
pub(crate) mod time;

pub(crate) use meta::nullable;

pub use condition::Condition;
pub use daemonset::{
    AdvancedDaemonSet, AdvancedStatus, DaemonSet, DaemonSetSpec, DaemonSetStatus, UpdateStrategy,
};
pub use go_json::go_json;
pub use node::{Node, NodeSpec, NodeStatus, NodeTaint};
pub use object::{Item, Listed, Readable, Unreadable, UnreadableReason, meta_of};
pub use pod::{Container, ContainerState, ContainerStatus, Pod, PodSpec, PodStatus, StateDetail};
pub use revision::{ControllerRevision, Template};
