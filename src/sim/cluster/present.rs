//! Representations of objects that clients can request: complete objects, a table, or only the metadata.

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::{Map, Value, json};

use super::resources::{Resource, Storage};
use super::status::ApiFailure;
use super::store::{Event, StoreChange, Stored, watch_line};
use super::table;
use crate::clock::Clock;

/// Representation that the `Accept` header requests.
#[derive(Clone, Debug)]
pub(crate) enum Form {
    /// Objects with all fields.
    Object,
    /// `meta.k8s.io/v1` Table for `kubectl get`. The clock is needed for ages.
    Table(Clock, Included),
    /// `meta.k8s.io/v1` PartialObjectMetadata, which has no spec and no status.
    Metadata,
}

impl Form {
    /// Parses `Accept` and returns the first supported representation.
    ///
    /// `included` is the request's parameter `includeObject`. Clients that prefer protobuf get JSON.
    pub(crate) fn new(accept: &str, included: &str, clock: &Clock) -> Result<Self, ApiFailure> {
        if accept.trim().is_empty() {
            return Ok(Self::Object);
        }
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().unwrap_or("");
            let known = [
                "application/json",
                "application/vnd.kubernetes.protobuf",
                "application/*",
                "*/*",
            ];
            if !known.contains(&media) {
                continue;
            }
            match parts.find_map(|part| part.strip_prefix("as=")) {
                None => return Ok(Self::Object),
                Some("Table") => {
                    return Ok(Self::Table(clock.clone(), Included::read(included)?));
                }
                Some("PartialObjectMetadata" | "PartialObjectMetadataList") => {
                    return Ok(Self::Metadata);
                }
                Some(_) => {}
            }
        }
        Err(ApiFailure::not_acceptable(
            "only the following media types are accepted: application/json",
        ))
    }

    /// Returns the representation of one object as bytes.
    pub(crate) fn one(&self, resource: &Resource, stored: &Stored) -> Bytes {
        match self {
            Self::Object if resource.as_stored => stored.json().clone(),
            _ => self.shape(resource, &stored.value).to_string().into(),
        }
    }

    /// Returns the representation of one object as a JSON value, for the response to a write.
    pub(crate) fn shape(&self, resource: &Resource, object: &Value) -> Value {
        match self {
            Self::Object => outgoing(resource, object.clone()),
            Self::Table(clock, included) => {
                let with = |object: &Value| included.select(resource, object);
                table::render(resource, &[object], None, clock.now(), with)
            }
            Self::Metadata => metadata_only(object),
        }
    }

    /// Returns the representation of a list. `metadata` is the metadata of the list.
    pub(crate) fn list(&self, resource: &Resource, items: &[&Stored], metadata: &Value) -> Bytes {
        if let Self::Table(clock, included) = self {
            let objects: Vec<&Value> = items.iter().map(|stored| &stored.value).collect();
            let with = |object: &Value| included.select(resource, object);
            return table::render(resource, &objects, Some(metadata), clock.now(), with)
                .to_string()
                .into();
        }
        let (kind, version) = match self {
            Self::Metadata => (
                "PartialObjectMetadataList".to_owned(),
                "meta.k8s.io/v1".to_owned(),
            ),
            _ => (format!("{}List", resource.kind), resource.api_version()),
        };
        let mut body = BytesMut::new();
        let head = format!(
            "{{\"kind\":\"{kind}\",\"apiVersion\":\"{version}\",\"metadata\":{metadata},\"items\":["
        );
        body.put_slice(head.as_bytes());
        for (at, stored) in items.iter().enumerate() {
            if at > 0 {
                body.put_u8(b',');
            }
            body.put(self.one(resource, stored));
        }
        body.put_slice(b"]}");
        body.freeze()
    }

    /// Returns the line of a watch for an object that exists when the watch starts.
    pub(crate) fn line(&self, resource: &Resource, change: StoreChange, stored: &Stored) -> Bytes {
        watch_line(change.word(), &self.one(resource, stored))
    }

    /// Returns the line of a watch for an event. All watchers that get complete objects share one copy of the bytes.
    pub(crate) fn event_line(
        &self,
        resource: &Resource,
        change: StoreChange,
        event: &Event,
    ) -> Bytes {
        if matches!(self, Self::Object) && resource.as_stored {
            return event.line(change);
        }
        self.line(resource, change, event.shown(change))
    }

    /// Returns a bookmark event's object in this representation.
    pub(crate) fn bookmark(&self, resource: &Resource, object: Value) -> Value {
        match self {
            Self::Object => object,
            Self::Table(clock, _) => {
                let nothing = |_: &Value| Value::Null;
                table::render(
                    resource,
                    &[],
                    Some(&object["metadata"]),
                    clock.now(),
                    nothing,
                )
            }
            Self::Metadata => metadata_only(&object),
        }
    }
}

/// Object data that each row of a table contains (`includeObject`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Included {
    /// No object data.
    Nothing,
    /// Metadata of the object, which is the default.
    Metadata,
    /// Complete object. `kubectl get --sort-by` needs its fields and shows nothing without them.
    Object,
}

impl Included {
    fn read(text: &str) -> Result<Self, ApiFailure> {
        match text {
            "None" => Ok(Self::Nothing),
            "" | "Metadata" => Ok(Self::Metadata),
            "Object" => Ok(Self::Object),
            other => Err(ApiFailure::bad_request(format!(
                "unrecognized includeObject value: {other:?}"
            ))),
        }
    }

    fn select(self, resource: &Resource, object: &Value) -> Value {
        match self {
            Self::Nothing => Value::Null,
            Self::Metadata => metadata_only(object),
            Self::Object => outgoing(resource, object.clone()),
        }
    }
}

fn metadata_only(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object["metadata"],
    })
}

/// Pairs of field names of an Event: in `events.k8s.io`, and in the core group.
const EVENT_FIELDS: &[(&str, &str)] = &[
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

/// Converts a stored object to the requested group and version.
pub(crate) fn outgoing(resource: &Resource, mut object: Value) -> Value {
    if resource.as_stored {
        return object;
    }
    if resource.storage != Storage::Events {
        object["apiVersion"] = resource.api_version().into();
        return object;
    }
    let names = |key: &str| {
        EVENT_FIELDS
            .iter()
            .find(|(_, core)| *core == key)
            .map(|(events, _)| *events)
    };
    renamed(object, "events.k8s.io/v1", names)
}

/// Converts an object from the group and version of the request to its stored form.
pub(crate) fn incoming(resource: &Resource, object: Value) -> Value {
    let foreign = object["apiVersion"] == "events.k8s.io/v1" && object["kind"] == "Event";
    if resource.as_stored || !foreign {
        return object;
    }
    let names = |key: &str| {
        EVENT_FIELDS
            .iter()
            .find(|(events, _)| *events == key)
            .map(|(_, core)| *core)
    };
    renamed(object, "v1", names)
}

fn renamed(object: Value, version: &str, name: impl Fn(&str) -> Option<&'static str>) -> Value {
    let Value::Object(fields) = object else {
        return object;
    };
    let mut fields: Map<String, Value> = fields
        .into_iter()
        .map(|(key, value)| (name(&key).map_or(key, str::to_owned), value))
        .collect();
    fields.insert("apiVersion".to_owned(), version.into());
    Value::Object(fields)
}
