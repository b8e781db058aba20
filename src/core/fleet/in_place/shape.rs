//! Shape of a pod template: the parts that can be changed in a running pod, and a fingerprint of the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::core::revision::defaults;
use crate::core::revision::fingerprint::TemplateFingerprint;

/// Parts of a pod template that decide if an in-place update is possible. Their size doesn't grow with the template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Fingerprint of everything in the template that the other fields don't contain.
    pub(super) rest: TemplateFingerprint,
    /// Name and image of every container, in order.
    pub(super) images: Vec<(Arc<str>, Arc<str>)>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) finalizers: BTreeSet<String>,
    /// `fieldPath`s of labels and annotations that environment variables refer to. Containers read these only when they start.
    pub(super) read: BTreeSet<String>,
}

impl Shape {
    /// Returns the shape of a DaemonSet's `spec.template` or a ControllerRevision's `data.spec.template`.
    pub fn from_template(template: &Value) -> Self {
        let mut rest = template.clone();
        // Do this before the images are removed, because a container's defaults depend on its image.
        defaults::leave_out(&mut rest);
        let images = take_images(&mut rest);
        let metadata = |key| template.pointer("/metadata").and_then(|meta| meta.get(key));
        if let Some(metadata) = rest.get_mut("metadata").and_then(Value::as_object_mut) {
            for key in ["labels", "annotations", "finalizers"] {
                metadata.remove(key);
            }
        }
        Self {
            rest: TemplateFingerprint::of_whole(rest),
            images,
            labels: texts(metadata("labels")),
            annotations: texts(metadata("annotations")),
            finalizers: metadata("finalizers")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(|text| text.as_str().map(str::to_owned))
                .collect(),
            read: read_by_containers(template),
        }
    }

    /// Returns the number of stored strings and their total length in bytes.
    pub fn size(&self) -> (usize, usize) {
        let images = self
            .images
            .iter()
            .map(|(name, image)| name.len() + image.len());
        let pairs = self.labels.iter().chain(&self.annotations);
        let pairs = pairs.map(|(key, value)| key.len() + value.len());
        let names = self.finalizers.iter().chain(&self.read).map(String::len);
        let sizes = images.chain(pairs).chain(names);
        sizes.fold((0, 0), |(entries, bytes), size| (entries + 1, bytes + size))
    }
}

/// Removes the images from the containers and returns them.
fn take_images(template: &mut Value) -> Vec<(Arc<str>, Arc<str>)> {
    let containers = template.pointer_mut("/spec/containers");
    let containers = containers.and_then(Value::as_array_mut);
    let take = |container: &mut Value| {
        let container = container.as_object_mut()?;
        let image = container.remove("image")?;
        Some((
            container.get("name")?.as_str()?.into(),
            image.as_str()?.into(),
        ))
    };
    containers.into_iter().flatten().filter_map(take).collect()
}

fn texts(map: Option<&Value>) -> BTreeMap<String, String> {
    let entries = map.and_then(Value::as_object).into_iter().flatten();
    entries
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

/// Returns each `fieldPath` below `metadata` that an environment variable refers to.
fn read_by_containers(template: &Value) -> BTreeSet<String> {
    let lists = ["/spec/containers", "/spec/initContainers"].map(|list| template.pointer(list));
    let containers = lists.into_iter().flatten().filter_map(Value::as_array);
    let variables = containers
        .flatten()
        .filter_map(|container| container.get("env").and_then(Value::as_array))
        .flatten();
    variables
        .filter_map(|variable| variable.pointer("/valueFrom/fieldRef/fieldPath")?.as_str())
        .filter(|path| path.starts_with("metadata."))
        .map(str::to_owned)
        .collect()
}
