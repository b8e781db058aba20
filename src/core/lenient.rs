//! Lenient deserialization: an invalid field is treated as absent, and the other fields of the object stay valid.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::core::id::NodeName;
use crate::core::verdict::Stopped;

/// Parses one value, or returns the default if it is invalid.
pub(in crate::core) fn value<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    let value = Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

/// Parses a list and drops its invalid elements.
pub(in crate::core) fn list<'de, D, T, C>(deserializer: D) -> Result<C, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
    C: FromIterator<T> + IntoIterator<Item = T>,
{
    let value = Value::deserialize(deserializer)?;
    Ok(elements(value).collect())
}

/// Parses names of nodes with timestamps.
pub(in crate::core) fn dated<'de, D>(
    deserializer: D,
) -> Result<BTreeMap<NodeName, Timestamp>, D::Error>
where
    D: Deserializer<'de>,
{
    let members = members(Value::deserialize(deserializer)?).into_iter();
    let read = |(name, value)| {
        let at = serde_json::from_value(value).ok()?;
        Some((NodeName::from(name), at))
    };
    Ok(members.filter_map(read).collect())
}

/// Parses lists of node names, grouped by a word such as the name of a wave.
pub(in crate::core) fn grouped<'de, D>(
    deserializer: D,
) -> Result<BTreeMap<Arc<str>, BTreeSet<NodeName>>, D::Error>
where
    D: Deserializer<'de>,
{
    let members = members(Value::deserialize(deserializer)?).into_iter();
    Ok(members
        .map(|(word, value)| (word.into(), elements(value).collect()))
        .collect())
}

/// Parses the reason why a revision was stopped. A later release may have written a reason that is unknown here. The revision then
/// still counts as stopped.
pub(in crate::core) fn stop<'de, D>(deserializer: D) -> Result<Option<Stopped>, D::Error>
where
    D: Deserializer<'de>,
{
    Ok(match Value::deserialize(deserializer)? {
        Value::Null | Value::Bool(false) => None,
        Value::String(word) => Some(Stopped::from_word(&word).unwrap_or(Stopped::FailedByRevision)),
        _ => Some(Stopped::FailedByRevision),
    })
}

fn elements<T: DeserializeOwned>(value: Value) -> impl Iterator<Item = T> {
    let all = match value {
        Value::Array(all) => all,
        _ => Vec::new(),
    };
    (all.into_iter()).filter_map(|element| serde_json::from_value(element).ok())
}

fn members(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}
