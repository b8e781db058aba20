//! A Node: labels, taints, and whether it is Ready.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

use super::meta::{nullable, slim};

/// The part of a `v1` Node that is decided upon.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Node {
    /// Slim metadata.
    #[serde(deserialize_with = "slim", default)]
    pub metadata: ObjectMeta,
    /// Slim spec.
    #[serde(deserialize_with = "nullable", default)]
    pub spec: NodeSpec,
    /// Slim status.
    #[serde(deserialize_with = "nullable", default)]
    pub status: NodeStatus,
}

super::resource!(
    Node,
    k8s_openapi::ClusterResourceScope,
    "Node",
    "",
    "v1",
    "nodes"
);

/// Taints of the node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    /// All taints.
    #[serde(deserialize_with = "nullable")]
    pub taints: Vec<NodeTaint>,
}

/// A taint.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeTaint {
    /// Its key.
    #[serde(deserialize_with = "nullable")]
    pub key: String,
    /// Its value, often empty.
    #[serde(deserialize_with = "nullable")]
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    #[serde(deserialize_with = "nullable")]
    pub effect: String,
}

/// Conditions of the node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// All conditions.
    #[serde(deserialize_with = "nullable")]
    pub conditions: Vec<super::Condition>,
}
