//! ControllerRevision: number, owner, and the parts of its template that are compared.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::meta::dated;
use super::resource::resource;
use crate::core::fleet::in_place::Shape;
use crate::core::images::{TemplateImage, of_template};
use crate::core::revision::TemplateFingerprint;

/// The fields of an `apps/v1` ControllerRevision that decisions need.
#[derive(Clone, Debug, Deserialize)]
pub struct ControllerRevision {
    /// Metadata, reduced to the needed fields, with the time of the last write.
    #[serde(deserialize_with = "dated", default)]
    pub metadata: ObjectMeta,
    /// Number of the revision. A higher number is newer.
    #[serde(default)]
    pub revision: i64,
    /// Template of the revision; `None` if its data contains no template.
    #[serde(rename = "data", deserialize_with = "template", default)]
    pub template: Option<Template>,
}

/// Parts of a pod template that are compared with other templates.
#[derive(Clone, Debug)]
pub struct Template {
    /// Fingerprint of the whole template.
    pub fingerprint: TemplateFingerprint,
    /// Parts of the template that decide if pods can be updated in place.
    pub shape: Arc<Shape>,
    /// Images of the template's containers.
    pub images: Vec<TemplateImage>,
}

resource!(
    ControllerRevision,
    k8s_openapi::NamespaceResourceScope,
    "ControllerRevision",
    "apps",
    "v1",
    "controllerrevisions"
);

fn template<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Template>, D::Error> {
    let mut data = Value::deserialize(deserializer)?;
    let template = data.pointer_mut("/spec/template").map(Value::take);
    Ok(template.map(|template| Template {
        shape: Arc::new(Shape::from_template(&template)),
        images: of_template(&template),
        fingerprint: TemplateFingerprint::of_whole(template),
    }))
}
