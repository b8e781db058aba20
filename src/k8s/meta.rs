//! `metadata` without the parts that decisions don't need, which are most of an object's bytes: `managedFields`, unknown
//! annotations, and most owner references.
//!
//! If an owner controls the object, only its reference and those to DaemonSets are kept.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    FieldsV1, ManagedFieldsEntry, ObjectMeta, OwnerReference, Time,
};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::json;

use super::text::Text;
use super::time;
use crate::core::foreign::beginning;
use crate::core::names::{
    ANNOTATION_PREFIX, KRUISE_IN_PLACE_STATE, KRUISE_PREDOWNLOADS, LIFECYCLE_TIMESTAMP,
    PROGRESSIVE_CREATE_POD, TEMPLATE_GENERATION_ANNOTATION,
};
use crate::core::settings::is_misspelt;

/// Annotations of other projects that are kept. All others are dropped, except those of yurt-ds.
const KNOWN: [&str; 4] = [
    KRUISE_IN_PLACE_STATE,
    TEMPLATE_GENERATION_ANNOTATION,
    LIFECYCLE_TIMESTAMP,
    PROGRESSIVE_CREATE_POD,
];

#[derive(Deserialize, Default)]
#[serde(
    rename_all = "camelCase",
    default,
    bound = "W: Deserialize<'de> + Default"
)]
struct Slim<W: Default> {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    #[serde(deserialize_with = "time::optional")]
    creation_timestamp: Option<Time>,
    #[serde(deserialize_with = "time::optional")]
    deletion_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
    #[serde(deserialize_with = "known")]
    annotations: BTreeMap<String, String>,
    owner_references: Option<Vec<OwnerReference>>,
    finalizers: Option<Vec<String>>,
    #[serde(rename = "managedFields", deserialize_with = "nullable")]
    writes: W,
}

/// Time of the last write, from `managedFields`.
#[derive(Default)]
struct LastWrite(Option<Time>);

/// Time and manager of the last write of `spec.template`, from `managedFields`.
#[derive(Default)]
struct TemplateWrite(Option<(Option<Time>, Option<String>)>);

/// An entry of `managedFields`, of which only the time is needed.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Stamp {
    #[serde(deserialize_with = "time::optional")]
    time: Option<Time>,
}

/// An entry of `managedFields` with its manager and written fields.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Entry {
    manager: Option<String>,
    #[serde(deserialize_with = "time::optional")]
    time: Option<Time>,
    #[serde(deserialize_with = "nullable")]
    fields_v1: Fields,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Fields {
    #[serde(rename = "f:spec", deserialize_with = "nullable")]
    spec: SpecFields,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct SpecFields {
    #[serde(rename = "f:template")]
    template: Option<IgnoredAny>,
}

impl<'de> Deserialize<'de> for LastWrite {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let stamps = Vec::<Stamp>::deserialize(deserializer)?;
        let times = stamps.into_iter().filter_map(|stamp| stamp.time);
        Ok(Self(times.max()))
    }
}

impl<'de> Deserialize<'de> for TemplateWrite {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let entries = Vec::<Entry>::deserialize(deserializer)?.into_iter();
        let writes = entries.filter(|entry| entry.fields_v1.spec.template.is_some());
        let last = writes.max_by(|one, other| one.time.cmp(&other.time));
        Ok(Self(last.map(|entry| (entry.time, entry.manager))))
    }
}

/// Deserializes `metadata`. Unknown annotations and `managedFields` are dropped.
pub(crate) fn slim<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let slim = Option::<Slim<IgnoredAny>>::deserialize(deserializer)?;
    Ok(slim.unwrap_or_default().meta())
}

/// Deserializes `metadata` like [`slim`]. `managedFields` gets one entry with the time of the last write.
pub(crate) fn dated<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let mut slim = Option::<Slim<LastWrite>>::deserialize(deserializer)?.unwrap_or_default();
    let entry = |time| ManagedFieldsEntry {
        time: Some(time),
        ..ManagedFieldsEntry::default()
    };
    let written = slim.writes.0.take();
    Ok(ObjectMeta {
        managed_fields: written.map(|time| vec![entry(time)]),
        ..slim.meta()
    })
}

/// Deserializes `metadata` like [`slim`]. `managedFields` gets one entry with time and manager of the last write of
/// `spec.template`.
pub(super) fn authored<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let mut slim = Option::<Slim<TemplateWrite>>::deserialize(deserializer)?.unwrap_or_default();
    let entry = |(time, manager)| ManagedFieldsEntry {
        time,
        manager,
        fields_v1: Some(FieldsV1(json!({ "f:spec": { "f:template": {} } }))),
        ..ManagedFieldsEntry::default()
    };
    let author = slim.writes.0.take();
    Ok(ObjectMeta {
        managed_fields: author.map(|author| vec![entry(author)]),
        ..slim.meta()
    })
}

impl<W: Default> Slim<W> {
    fn meta(self) -> ObjectMeta {
        ObjectMeta {
            name: self.name,
            namespace: self.namespace,
            uid: self.uid,
            resource_version: self.resource_version,
            generation: self.generation,
            creation_timestamp: self.creation_timestamp,
            deletion_timestamp: self.deletion_timestamp,
            deletion_grace_period_seconds: self.deletion_grace_period_seconds,
            labels: self.labels,
            annotations: Some(self.annotations),
            finalizers: self.finalizers,
            owner_references: self.owner_references.map(needed_owners),
            ..ObjectMeta::default()
        }
    }
}

fn needed_owners(mut owners: Vec<OwnerReference>) -> Vec<OwnerReference> {
    let controls = |owner: &OwnerReference| owner.controller == Some(true);
    if owners.iter().any(controls) {
        owners.retain(|owner| controls(owner) || owner.kind == "DaemonSet");
    }
    owners
}

/// Maximum length of an annotation, in bytes. Valid settings and the annotations of OpenKruise and yurt-ds on pods are shorter.
const LONGEST_ANNOTATION: usize = 32 << 10;

/// Deserializes annotations, and keeps only known ones. A value that is too long is truncated, which makes it invalid.
fn known<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    let all = Option::<BTreeMap<Text<'de>, Text<'de>>>::deserialize(deserializer)?;
    let known = all.unwrap_or_default().into_iter();
    let known = known.filter(|(Text(key), _)| is_known(key));
    let kept = |value: &str| beginning(value, LONGEST_ANNOTATION).to_owned();
    let known = known.map(|(Text(key), Text(value))| (key.into_owned(), kept(&value)));
    Ok(known.collect())
}

/// Returns true if annotations with this key are kept. Misspelt settings are kept, so that they can be reported.
pub(crate) fn is_known(key: &str) -> bool {
    key.starts_with(ANNOTATION_PREFIX)
        || KNOWN.contains(&key)
        || KRUISE_PREDOWNLOADS.contains(&key)
        || is_misspelt(key)
}

/// Deserializes `null` as the default value of the type.
pub(crate) fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}
