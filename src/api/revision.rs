//! A ControllerRevision: which number, whose, and a fingerprint of the template in it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer};

use super::meta::slim;
use crate::core::revision::TemplateFingerprint;

/// The part of an `apps/v1` ControllerRevision that is decided upon.
#[derive(Clone, Debug, Deserialize)]
pub struct ControllerRevision {
    /// Slim metadata.
    #[serde(deserialize_with = "slim", default)]
    pub metadata: ObjectMeta,
    /// Greater is newer.
    #[serde(default)]
    pub revision: i64,
    /// The template in it; `None` when there is none to be found.
    #[serde(rename = "data", deserialize_with = "template", default)]
    pub template: Option<TemplateFingerprint>,
}

super::resource!(
    ControllerRevision,
    k8s_openapi::NamespaceResourceScope,
    "ControllerRevision",
    "apps",
    "v1",
    "controllerrevisions"
);

fn template<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<TemplateFingerprint>, D::Error> {
    let data = serde_json::Value::deserialize(deserializer)?;
    Ok(data.pointer("/spec/template").map(TemplateFingerprint::of))
}
