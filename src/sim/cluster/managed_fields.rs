//! Managers of an object's fields (`metadata.managedFields`).

use serde_json::{Value, json};

use super::fields::{self, Paths};
use super::object::Object;
use super::request::Target;
use super::write::{WriteContext, seconds};

/// Manager of fields: the client, its operation (apply or update), and the subresource and API version that the client wrote.
#[derive(Clone, Debug)]
pub(super) struct FieldOwner {
    pub(super) manager: String,
    pub(super) operation: &'static str,
    pub(super) subresource: String,
    pub(super) version: String,
}

/// Compares managers.
///
/// A client that applies is one manager for all API versions of a resource. A client that updates is a separate manager for each
/// API version.
impl PartialEq for FieldOwner {
    fn eq(&self, other: &Self) -> bool {
        self.manager == other.manager
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == "Apply" || self.version == other.version)
    }
}

pub(super) type FieldOwners = Vec<(FieldOwner, Paths)>;

impl FieldOwner {
    fn from_entry(entry: &Value) -> Self {
        Self {
            manager: entry.text("/manager").to_owned(),
            operation: match entry.text("/operation") {
                "Apply" => "Apply",
                _ => "Update",
            },
            subresource: entry.text("/subresource").to_owned(),
            version: entry.text("/apiVersion").to_owned(),
        }
    }

    pub(super) fn entry(&self, paths: &Paths, writing: &WriteContext) -> Value {
        let mut entry = json!({
            "manager": self.manager,
            "operation": self.operation,
            "apiVersion": self.version,
            "time": seconds(writing.now),
            "fieldsType": "FieldsV1",
            "fieldsV1": fields::to_json(paths),
        });
        if !self.subresource.is_empty() {
            entry["subresource"] = self.subresource.as_str().into();
        }
        entry
    }
}

/// Returns the managers of an object. If the object has no managedFields, all fields belong to `before-first-apply`.
pub(super) fn owners(object: &Value) -> FieldOwners {
    let counted = object["metadata"]["managedFields"].as_array();
    match counted {
        Some(entries) => entries
            .iter()
            .map(|entry| {
                (
                    FieldOwner::from_entry(entry),
                    fields::from_json(&entry["fieldsV1"]),
                )
            })
            .collect(),
        None => {
            let before = FieldOwner {
                manager: "before-first-apply".to_owned(),
                operation: "Update",
                subresource: String::new(),
                version: object.text("/apiVersion").to_owned(),
            };
            vec![(before, fields::paths(object))]
        }
    }
}

/// Encodes managers as `metadata.managedFields`.
///
/// An entry whose fields are unchanged keeps its time. The entry of the manager in `changed` always gets the current time.
pub(super) fn entries(
    owners: &FieldOwners,
    old: &Value,
    writing: &WriteContext,
    changed: Option<&FieldOwner>,
) -> Value {
    let olds = old["metadata"]["managedFields"].as_array();
    owners
        .iter()
        .filter(|(_, paths)| !paths.is_empty())
        .map(|(owner, paths)| {
            let fresh = owner.entry(paths, writing);
            let kept = olds
                .into_iter()
                .flatten()
                .filter(|_| changed != Some(owner))
                .find(|entry| {
                    FieldOwner::from_entry(entry) == *owner
                        && entry["apiVersion"] == fresh["apiVersion"]
                        && entry["fieldsV1"] == fresh["fieldsV1"]
                });
            kept.cloned().unwrap_or(fresh)
        })
        .collect()
}

/// Updates the managers after a write that is not an apply. The changed fields then belong to the writer.
pub(crate) fn track(target: &Target, old: &Value, object: &Value, writing: &WriteContext) -> Value {
    let (before, after) = (fields::paths(old), fields::paths(object));
    let changed: Paths = after
        .iter()
        .filter(|path| fields::value(old, path) != fields::value(object, path))
        .cloned()
        .collect();
    let me = FieldOwner {
        manager: writing.manager.clone(),
        operation: "Update",
        subresource: target.subresource.clone(),
        version: target.resource.api_version(),
    };
    let mut owners = owners(old);
    for (_, paths) in &mut owners {
        paths.retain(|path| {
            let gone = before.contains(path) && !after.contains(path);
            !gone && !changed.contains(path)
        });
    }
    // A write of new values updates the entry's time, even if the writer already owned the fields.
    let changes = (!changed.is_empty()).then(|| me.clone());
    match owners.iter_mut().find(|(owner, _)| *owner == me) {
        Some((_, paths)) => paths.extend(changed),
        None => owners.push((me, changed)),
    }
    entries(&owners, old, writing, changes.as_ref())
}
