//! A ControllerRevision: which number, whose, and what matters of the template in it.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::meta::dated;
use super::resource::resource;
use crate::core::fleet::in_place::Shape;
use crate::core::images::{TemplateImage, of_template};
use crate::core::revision::TemplateFingerprint;

/// The part of an `apps/v1` ControllerRevision that is decided upon.
#[derive(Clone, Debug, Deserialize)]
pub struct ControllerRevision {
    /// Slim metadata, with the time of the last write.
    #[serde(deserialize_with = "dated", default)]
    pub metadata: ObjectMeta,
    /// Greater is newer.
    #[serde(default)]
    pub revision: i64,
    /// The template in it; `None` when there is none to be found.
    #[serde(rename = "data", deserialize_with = "template", default)]
    pub template: Option<Template>,
}

/// A template, as far as it is compared with others.
#[derive(Clone, Debug)]
pub struct Template {
    /// The whole.
    pub fingerprint: TemplateFingerprint,
    /// What updates in place ask for.
    pub shape: Arc<Shape>,
    /// The images of its containers.
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
