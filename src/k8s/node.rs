//! Node: labels, taints, conditions and images.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer};

use super::condition::Condition;
use super::meta::{nullable, slim};
use super::resource::resource;
use crate::core::images::ImageKey;

/// The fields of a `v1` Node that decisions need.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Node {
    /// Metadata, reduced to the needed fields.
    #[serde(deserialize_with = "slim", default)]
    pub metadata: ObjectMeta,
    /// Specification, reduced to the needed fields.
    #[serde(deserialize_with = "nullable", default)]
    pub spec: NodeSpec,
    /// Status, reduced to the needed fields.
    #[serde(deserialize_with = "nullable", default)]
    pub status: NodeStatus,
}

resource!(
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
    /// Taints of the node.
    #[serde(deserialize_with = "nullable")]
    pub taints: Vec<NodeTaint>,
}

/// A taint of a node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeTaint {
    /// Key of the taint.
    #[serde(deserialize_with = "nullable")]
    pub key: String,
    /// Value of the taint, often empty.
    #[serde(deserialize_with = "nullable")]
    pub value: String,
    /// Effect: `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    #[serde(deserialize_with = "nullable")]
    pub effect: String,
}

/// Conditions and images of the node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// Conditions of the node.
    #[serde(deserialize_with = "nullable")]
    pub conditions: Vec<Condition>,
    /// Keys of the names of all images that the node lists.
    #[serde(deserialize_with = "image_keys")]
    pub images: Vec<ImageKey>,
}

/// Deserializes the names of images as short keys. A node lists about a hundred names, which would take too much memory.
fn image_keys<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ImageKey>, D::Error> {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Image {
        #[serde(deserialize_with = "nullable")]
        names: Vec<String>,
    }
    let images: Vec<Image> = nullable(deserializer)?;
    let names = images.iter().flat_map(|image| &image.names);
    Ok(names.map(|name| ImageKey::from_reference(name)).collect())
}
