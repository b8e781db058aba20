//! The Kubernetes API as the engine meets it: slim objects, read straight from the wire, and the [`client`].
//!
//! k8s-openapi's own types keep everything (a pod takes 7 KB even when pruned afterwards); these read what is decided
//! upon and skip the rest while parsing. They are made for watching and reading, never for writing back.

pub mod client;
mod daemonset;
mod meta;
mod node;
pub mod permission;
mod pod;
mod revision;

pub(crate) use meta::nullable;

pub use daemonset::{Condition, DaemonSet, DaemonSetSpec, DaemonSetStatus, UpdateStrategy};
pub use node::{Node, NodeSpec, NodeStatus, NodeTaint};
pub use pod::{Container, ContainerState, ContainerStatus, Pod, PodSpec, PodStatus, StateDetail};
pub use revision::{ControllerRevision, Template};

/// Implements `kube::Resource` for a type with a `metadata: ObjectMeta` field.
macro_rules! resource {
    ($type:ty, $scope:ty, $kind:literal, $group:literal, $version:literal, $plural:literal) => {
        impl kube::Resource for $type {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                $kind.into()
            }
            fn group((): &()) -> std::borrow::Cow<'_, str> {
                $group.into()
            }
            fn version((): &()) -> std::borrow::Cow<'_, str> {
                $version.into()
            }
            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }
            fn meta_mut(
                &mut self,
            ) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}
pub(crate) use resource;
