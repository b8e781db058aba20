//! Schemas of the kinds, taken from k8s-openapi's types. They are used to check fields and to convert objects to canonical JSON.
//!
//! Each incoming object is converted to its Rust type and back. The result has the type's field names, times and numbers. A field
//! that this conversion drops is reported as unknown.

use k8s_openapi::api::{
    apps::v1::{ControllerRevision, DaemonSet},
    authorization::v1::SelfSubjectAccessReview,
    batch::v1::Job,
    coordination::v1::Lease,
    core::v1::{
        ConfigMap, Event, Namespace, Node, Pod, ResourceQuota, Secret, Service, ServiceAccount,
    },
    policy::v1::PodDisruptionBudget,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::advanced;
use super::resources::{Resource, Storage};
use super::status::ApiFailure;

/// Object in canonical form, with the paths of the unknown fields that were removed.
pub(crate) struct Decoded {
    pub(crate) object: Value,
    /// Paths of unknown fields, such as `spec.colour`.
    pub(crate) unknown: Vec<String>,
}

/// Decodes `object` as the resource's kind, and returns it in canonical form.
pub(crate) fn decode(resource: &Resource, mut object: Value) -> Result<Decoded, ApiFailure> {
    if !resource.custom {
        numbers_to_quantities(&mut object);
    }
    let canonical = match resource.storage {
        Storage::Namespaces => through::<Namespace>(&object),
        Storage::Nodes => through::<Node>(&object),
        Storage::Pods => through::<Pod>(&object),
        Storage::ConfigMaps => through::<ConfigMap>(&object),
        Storage::Secrets => through::<Secret>(&object),
        Storage::ServiceAccounts => through::<ServiceAccount>(&object),
        Storage::Services => through::<Service>(&object),
        Storage::Events => through::<Event>(&object),
        Storage::ResourceQuotas => through::<ResourceQuota>(&object),
        Storage::DaemonSets => through::<DaemonSet>(&object),
        Storage::ControllerRevisions => through::<ControllerRevision>(&object),
        Storage::Jobs => through::<Job>(&object),
        Storage::Leases => through::<Lease>(&object),
        Storage::PodDisruptionBudgets => through::<PodDisruptionBudget>(&object),
        Storage::AdvancedDaemonSets => custom(&object, advanced::prune),
        // Read-only kinds are never decoded from a request.
        Storage::CustomResourceDefinitions
        | Storage::ValidatingAdmissionPolicies
        | Storage::ValidatingAdmissionPolicyBindings => Ok(object.clone()),
        Storage::Nothing => through::<SelfSubjectAccessReview>(&object),
    }
    .map_err(|error| {
        ApiFailure::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a {kind}: {error}",
            kind = resource.kind,
            version = resource.version,
        ))
    })?;
    let mut unknown = Vec::new();
    compare("", &object, &canonical, &mut unknown);
    Ok(Decoded {
        object: canonical,
        unknown,
    })
}

/// Returns the fields of `canonical` that `given` also has. This removes required fields that `given` lacks, and that the Rust type
/// therefore added with default values.
pub(crate) fn restrict(canonical: Value, given: &Value) -> Value {
    match (canonical, given) {
        (Value::Object(canonical), Value::Object(given)) => canonical
            .into_iter()
            .filter_map(|(key, value)| {
                let value = restrict(value, given.get(&key)?);
                Some((key, value))
            })
            .collect(),
        (Value::Array(canonical), Value::Array(given)) => canonical
            .into_iter()
            .zip(given)
            .map(|(value, given)| restrict(value, given))
            .collect(),
        (canonical, _) => canonical,
    }
}

fn through<K: DeserializeOwned + Serialize>(object: &Value) -> Result<Value, serde_json::Error> {
    let typed: K = K::deserialize(object)?;
    let mut canonical = serde_json::to_value(typed)?;
    without_empty(&mut canonical);
    Ok(canonical)
}

/// Decodes a custom resource. Only its metadata has a Rust type. Fields that its schema lacks are removed.
fn custom(object: &Value, prune: impl Fn(&mut Value)) -> Result<Value, serde_json::Error> {
    let mut canonical = object.clone();
    if let Some(metadata) = object.get("metadata") {
        canonical["metadata"] = through::<ObjectMeta>(metadata)?;
    }
    prune(&mut canonical);
    Ok(canonical)
}

/// Removes empty lists and maps, as Kubernetes does when it encodes an object. The Rust types would keep them.
fn without_empty(value: &mut Value) {
    if let Value::Object(fields) = value {
        for list in [
            "labels",
            "annotations",
            "finalizers",
            "ownerReferences",
            "managedFields",
        ] {
            let empty = match fields.get(list) {
                Some(Value::Array(list)) => list.is_empty(),
                Some(Value::Object(map)) => map.is_empty(),
                _ => false,
            };
            if empty {
                fields.remove(list);
            }
        }
        // Skip the data of a ControllerRevision, which must be kept unchanged.
        fields
            .iter_mut()
            .filter(|(key, _)| *key != "data")
            .for_each(|(_, child)| without_empty(child));
    }
}

/// Adds the paths of fields that `given` has and `kept` lacks to `unknown`.
fn compare(path: &str, given: &Value, kept: &Value, unknown: &mut Vec<String>) {
    match (given, kept) {
        (Value::Object(given), Value::Object(kept)) => {
            for (key, value) in given {
                let path = match path {
                    "" => key.clone(),
                    path => format!("{path}.{key}"),
                };
                match kept.get(key) {
                    Some(kept) => compare(&path, value, kept, unknown),
                    None if is_nothing(value) => {}
                    None => unknown.push(path),
                }
            }
        }
        (Value::Array(given), Value::Array(kept)) => {
            for (at, (given, kept)) in given.iter().zip(kept).enumerate() {
                compare(&format!("{path}[{at}]"), given, kept, unknown);
            }
        }
        _ => {}
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

/// Converts quantities that are written as numbers (`cpu: 1`) to text, because the Rust types accept only text.
fn numbers_to_quantities(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, child) in map.iter_mut() {
                match (key.as_str(), &mut *child) {
                    (
                        "limits" | "requests" | "hard" | "used" | "capacity" | "allocatable",
                        Value::Object(quantities),
                    ) => quantities.values_mut().for_each(number_to_text),
                    ("sizeLimit" | "divisor", quantity) => number_to_text(quantity),
                    ("data", _) => {}
                    _ => numbers_to_quantities(child),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(numbers_to_quantities),
        _ => {}
    }
}

fn number_to_text(value: &mut Value) {
    if value.is_number() {
        *value = Value::String(value.to_string());
    }
}
