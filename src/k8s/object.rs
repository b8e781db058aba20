//! Objects that are parsed one by one, so that an unreadable object doesn't affect others.
//!
//! The API server accepts objects that this process cannot parse or keep in memory. Examples are data that is nested hundreds of
//! levels deep, and megabytes of tiny values. For such an object, [`read`] returns an error. The rest of the list or watch is
//! parsed as usual.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{AdvancedDaemonSet, ControllerRevision, DaemonSet, Node, Pod, bounds};
use crate::core::foreign::one_line;

/// Maximum size of an object, in bytes of JSON.
///
/// etcd stores up to 1.5 MiB per object. In JSON, an object is slightly longer than in etcd.
pub(crate) const LARGEST: usize = 4 << 20;

/// Maximum number of values in one object. During parsing, each takes up to 100 bytes. The largest templates have a few thousand.
const MOST_VALUES: usize = 1 << 14;

/// Maximum nesting depth: the limit of `serde_json`.
const DEEPEST: usize = 127;

/// Maximum length of a parser's error message, in characters.
const LONGEST_ERROR: usize = 200;

/// An object, or the readable parts of an object that cannot be parsed.
pub type Item<K> = Result<K, Box<Unreadable>>;

/// Returns the metadata of an object. For an unreadable object, only the readable fields are set.
pub fn meta_of<K: Resource>(item: &Item<K>) -> &ObjectMeta {
    match item {
        Ok(object) => object.meta(),
        Err(unreadable) => &unreadable.metadata,
    }
}

/// Reason why an object is unreadable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnreadableReason {
    /// The object is nested too deep.
    TooDeep,
    /// The object is too large or has too many values.
    TooLarge,
    /// A field has the wrong type.
    Malformed,
}

impl UnreadableReason {
    /// Returns the label value for metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::TooDeep => "TooDeep",
            Self::TooLarge => "TooLarge",
            Self::Malformed => "Malformed",
        }
    }
}

/// Readable parts of an object that cannot be parsed, and the reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Unreadable {
    /// Readable fields of `metadata`: name, namespace, UID, version and owners.
    pub metadata: ObjectMeta,
    /// Name of the node if the object is a pod and the field is readable.
    pub node: Option<String>,
    /// Reason why the object is unreadable.
    pub reason: UnreadableReason,
    /// Error message, on one line.
    pub error: Arc<str>,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.error)
    }
}

/// Kind of object that is parsed one by one.
pub trait Readable: Resource<DynamicType = ()> + Sized + Send + 'static {
    /// Parses an object from JSON.
    ///
    /// # Errors
    /// Returns an error if a field has the wrong type, or if the nesting is too deep.
    fn parse(json: &[u8]) -> serde_json::Result<Self>;

    /// Returns the error if the object was parsed, but is too large to be kept.
    fn excess(&self) -> Option<String> {
        None
    }

    /// Creates an object from the readable parts of an unreadable one; `None` if they are of no use for this kind.
    fn salvage(_parts: &Parts<'_>, _why: &Unreadable) -> Option<Self> {
        None
    }
}

/// Parses an object. For an object larger than [`LARGEST`], `json` may be only the beginning.
pub fn read<K: Readable>(json: &[u8]) -> Item<K> {
    if json.len() > LARGEST {
        return read_beginning(json);
    }
    if json.len() / 2 > MOST_VALUES && shape(json).values > MOST_VALUES {
        let error = format!("it has more than {MOST_VALUES} values");
        return unreadable(json, UnreadableReason::TooLarge, &error);
    }
    match K::parse(json) {
        Ok(object) => match object.excess() {
            Some(error) => unreadable(json, UnreadableReason::TooLarge, &error),
            None => Ok(object),
        },
        Err(_) if shape(json).depth > DEEPEST => {
            let error = format!("it has more than {DEEPEST} levels of nesting");
            unreadable(json, UnreadableReason::TooDeep, &error)
        }
        Err(error) => unreadable(json, UnreadableReason::Malformed, &error.to_string()),
    }
}

/// Returns the error for an object larger than [`LARGEST`], with the parts that its beginning contains.
pub(crate) fn read_beginning<K: Readable>(json: &[u8]) -> Item<K> {
    let error = format!("it is larger than {} MiB", LARGEST >> 20);
    unreadable(json, UnreadableReason::TooLarge, &error)
}

/// Creates an item from the readable parts of an unreadable object.
fn unreadable<K: Readable>(json: &[u8], reason: UnreadableReason, error: &str) -> Item<K> {
    let parts = Parts::find(json);
    let unreadable = Unreadable {
        metadata: parts.identity(),
        node: parts.node(),
        reason,
        error: one_line(error, LONGEST_ERROR).into(),
    };
    K::salvage(&parts, &unreadable).ok_or(Box::new(unreadable))
}

struct JsonShape {
    /// Upper limit of the number of values.
    values: usize,
    depth: usize,
}

/// Measures a JSON text in one pass, before it is parsed.
fn shape(json: &[u8]) -> JsonShape {
    let (mut values, mut depth, mut deepest) = (1, 0_usize, 0);
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => loop {
                match bytes.next() {
                    Some(b'\\') => drop(bytes.next()),
                    Some(b'"') | None => break,
                    Some(_) => {}
                }
            },
            b'{' | b'[' => {
                values += 1;
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' => values += 1,
            _ => {}
        }
    }
    JsonShape {
        values,
        depth: deepest,
    }
}

/// Top-level parts of an object, as JSON text. Each may be missing or unreadable.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parts<'a> {
    pub(super) metadata: Option<&'a RawValue>,
    pub(super) spec: Option<&'a RawValue>,
    pub(super) status: Option<&'a RawValue>,
}

/// Returns the readable fields of an object's `metadata`: name, namespace, UID, version and owners.
pub(crate) fn identity(json: &[u8]) -> ObjectMeta {
    Parts::find(json).identity()
}

impl<'a> Parts<'a> {
    /// Finds the parts of an object. `json` may be only the beginning of the object.
    pub(super) fn find(json: &'a [u8]) -> Self {
        let mut parts = Self::default();
        let mut reader = serde_json::Deserializer::from_slice(json);
        let _found_until_it_ends = PartsSeed(&mut parts).deserialize(&mut reader);
        parts
    }

    /// Returns name, namespace, UID, version and owners, as far as they are readable.
    fn identity(&self) -> ObjectMeta {
        let Some(stub) = part::<MetaParts<'_>>(self.metadata) else {
            return ObjectMeta::default();
        };
        let owners = part::<Vec<&RawValue>>(stub.owner_references).unwrap_or_default();
        let owners = owners.into_iter().filter_map(|owner| part(Some(owner)));
        ObjectMeta {
            name: part(stub.name),
            namespace: part(stub.namespace),
            uid: part(stub.uid),
            resource_version: part(stub.resource_version),
            owner_references: Some(owners.collect::<Vec<OwnerReference>>()),
            ..ObjectMeta::default()
        }
    }

    fn node(&self) -> Option<String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Bound<'a> {
            #[serde(borrow)]
            node_name: Option<&'a RawValue>,
        }
        let bound: Bound<'_> = part(self.spec)?;
        part(bound.node_name).filter(|name: &String| !name.is_empty())
    }
}

/// Parses one field of an object; `None` if the field is absent or unreadable.
pub(super) fn part<'a, T: Deserialize<'a>>(json: Option<&'a RawValue>) -> Option<T> {
    serde_json::from_str(json?.get()).ok()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetaParts<'a> {
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    namespace: Option<&'a RawValue>,
    #[serde(borrow)]
    uid: Option<&'a RawValue>,
    #[serde(borrow)]
    resource_version: Option<&'a RawValue>,
    #[serde(borrow)]
    owner_references: Option<&'a RawValue>,
}

struct PartsSeed<'p, 'a>(&'p mut Parts<'a>);

impl<'de> DeserializeSeed<'de> for PartsSeed<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for PartsSeed<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            match &*key {
                "metadata" => self.0.metadata = map.next_value()?,
                "spec" => self.0.spec = map.next_value()?,
                "status" => self.0.status = map.next_value()?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// Implements [`Readable`] without partial parsing. An unreadable object of these kinds becomes an [`Unreadable`].
macro_rules! readable {
    ($($kind:ty),*) => {
        $(impl $crate::k8s::Readable for $kind {
            fn parse(json: &[u8]) -> serde_json::Result<Self> {
                serde_json::from_slice(json)
            }
        })*
    };
}

readable!(
    Node,
    Pod,
    k8s_openapi::api::coordination::v1::Lease,
    k8s_openapi::api::core::v1::Event
);

/// Maximum size of a pre-pull Job or pod, in bytes. The controller's own Jobs and pods have 1 or 2 KiB per container.
const LARGEST_OF_PULL: usize = 512 << 10;

macro_rules! readable_of_pull {
    ($($kind:ty),*) => {
        $(impl Readable for $kind {
            fn parse(json: &[u8]) -> serde_json::Result<Self> {
                if json.len() > LARGEST_OF_PULL {
                    let error = "it is larger than the objects that a pre-pull creates";
                    return Err(serde::de::Error::custom(error));
                }
                serde_json::from_slice(json)
            }
        })*
    };
}

readable_of_pull!(
    k8s_openapi::api::batch::v1::Job,
    k8s_openapi::api::core::v1::Pod
);

impl Readable for ControllerRevision {
    fn parse(json: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(json)
    }

    fn excess(&self) -> Option<String> {
        bounds::of_revision(&self.template.as_ref()?.shape)
    }
}

impl Readable for DaemonSet {
    fn parse(json: &[u8]) -> serde_json::Result<Self> {
        Self::parse_as_far_as_needed(json)
    }

    fn excess(&self) -> Option<String> {
        bounds::of_daemonset(
            &self.spec.selector,
            &self.spec.scheduling,
            &self.status.conditions,
        )
    }

    fn salvage(parts: &Parts<'_>, why: &Unreadable) -> Option<Self> {
        Self::salvaged(parts, why)
    }
}

impl Readable for AdvancedDaemonSet {
    fn parse(json: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(json)
    }

    fn excess(&self) -> Option<String> {
        bounds::of_daemonset(
            &self.spec.selector,
            &self.spec.scheduling,
            &self.status.conditions,
        )
    }

    fn salvage(parts: &Parts<'_>, why: &Unreadable) -> Option<Self> {
        Self::salvaged(parts, why)
    }
}

/// Wrapper of an [`Item`] for `kube`, which can only list and watch types that implement `kube::Resource`.
#[derive(Clone, Debug)]
pub struct Listed<K> {
    /// The object, or its readable parts.
    pub item: Item<K>,
    /// Name, namespace and version.
    metadata: Box<ObjectMeta>,
}

impl<K: Readable> Listed<K> {
    fn new(item: Item<K>) -> Self {
        let metadata = Box::new(meta_of(&item).clone());
        Self { item, metadata }
    }
}

impl<'de, K: Readable> Deserialize<'de> for Listed<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Self::new(read(raw.get().as_bytes())))
    }
}

impl<K: Readable> Resource for Listed<K> {
    type DynamicType = ();
    type Scope = K::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        K::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        K::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        K::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        K::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests;
