//! Node: labels, taints, readiness and images.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer};

use super::condition::Condition;
use super::meta::{nullable, slim};
use super::resource::resource;
use crate::core::images::ImageKey;

/// The fields of a `v1` Node that decisions need.
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
    /// All taints.
    #[serde(deserialize_with = "nullable")]
    pub taints: Vec<NodeTaint>,
}

/// A taint.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeTaint {
    /// Key.
    #[serde(deserialize_with = "nullable")]
    pub key: String,
    /// Value, often empty.
    #[serde(deserialize_with = "nullable")]
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    #[serde(deserialize_with = "nullable")]
    pub effect: String,
}

/// Conditions and images of the node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// All conditions.
    #[serde(deserialize_with = "nullable")]
    pub conditions: Vec<Condition>,
    /// All names of the images that the node lists.
    #[serde(deserialize_with = "image_keys")]
    pub images: Vec<ImageKey>,
}

/// Deserializes the names of images as keys. A node lists about a hundred names, so the names themselves are not kept.
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
