//! Access to the JSON fields that all Kubernetes objects have.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Access to the common fields of a Kubernetes object.
pub(crate) trait Object {
    /// Returns the string at a JSON pointer; empty if it is missing.
    fn text(&self, pointer: &str) -> &str;
    fn name(&self) -> &str;
    /// Returns `metadata.namespace`; empty for cluster-scoped objects.
    fn namespace(&self) -> &str;
    fn uid(&self) -> &str;
    /// Returns true if the deletion of the object was requested.
    fn is_terminating(&self) -> bool;
    fn finalizers(&self) -> Vec<&str>;
    /// Returns the map of strings at a JSON pointer, such as the labels.
    fn strings(&self, pointer: &str) -> BTreeMap<String, String>;
    /// Returns `metadata`. Creates it if it is missing.
    fn metadata_mut(&mut self) -> &mut Map<String, Value>;
    /// Returns the JSON object at `key`. Creates it if the value is missing or not an object.
    fn entry_object(&mut self, key: &str) -> &mut Map<String, Value>;
    fn set_or_remove(&mut self, key: &str, value: Option<Value>);
}

impl Object for Value {
    fn text(&self, pointer: &str) -> &str {
        self.pointer(pointer).and_then(Value::as_str).unwrap_or("")
    }

    fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    fn namespace(&self) -> &str {
        self.text("/metadata/namespace")
    }

    fn uid(&self) -> &str {
        self.text("/metadata/uid")
    }

    fn is_terminating(&self) -> bool {
        self.pointer("/metadata/deletionTimestamp").is_some()
    }

    fn finalizers(&self) -> Vec<&str> {
        self.pointer("/metadata/finalizers")
            .and_then(Value::as_array)
            .map(|list| list.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default()
    }

    fn strings(&self, pointer: &str) -> BTreeMap<String, String> {
        let Some(map) = self.pointer(pointer).and_then(Value::as_object) else {
            return BTreeMap::new();
        };
        map.iter()
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect()
    }

    fn metadata_mut(&mut self) -> &mut Map<String, Value> {
        self.entry_object("metadata")
    }

    fn entry_object(&mut self, key: &str) -> &mut Map<String, Value> {
        if !self.is_object() {
            *self = Value::Object(Map::new());
        }
        let child = &mut self[key];
        if !child.is_object() {
            *child = Value::Object(Map::new());
        }
        match child {
            Value::Object(map) => map,
            _ => unreachable!("made an object just above"),
        }
    }

    fn set_or_remove(&mut self, key: &str, value: Option<Value>) {
        if let Value::Object(map) = self {
            match value {
                Some(value) => drop(map.insert(key.to_owned(), value)),
                None => drop(map.remove(key)),
            }
        }
    }
}

/// Sets a field of a map if it is missing or null.
pub(crate) fn default(map: &mut Map<String, Value>, key: &str, value: impl Into<Value>) {
    if map.get(key).is_none_or(Value::is_null) {
        map.insert(key.to_owned(), value.into());
    }
}
