//! Kubernetes API types, parsed directly from JSON and reduced to the needed fields, and [`client`].
//!
//! The types of k8s-openapi keep every field. A pod takes 7 KB, even if it is pruned after parsing. The types here keep only the
//! fields that decisions need, and skip all others during parsing. So they are only for reads and watches: a write would remove the
//! skipped fields.

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

pub(crate) use meta::{nullable, slim};
pub(crate) use resource::resource;

pub use condition::Condition;
pub use daemonset::{
    AdvancedDaemonSet, AdvancedStatus, DaemonSet, DaemonSetSpec, DaemonSetStatus, UpdateStrategy,
};
pub use go_json::go_json;
pub use node::{Node, NodeSpec, NodeStatus, NodeTaint};
pub use object::{Item, Listed, Readable, Unreadable, UnreadableReason, meta_of};
pub use pod::{
    Container, ContainerState, ContainerStatus, Pod, PodSpec, PodStatus, ReadinessGate, StateDetail,
};
pub use revision::{ControllerRevision, Template};
