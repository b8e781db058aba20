//! Objects read one by one: an object that cannot be read is named, and harms only itself.
//!
//! The API server takes more than this process can hold or calculate with: data nested hundreds of levels deep, megabytes
//! of tiny values. Everything that arrives goes through [`read`], so that one such object never fails a list or a watch.

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

/// Largest object that is read, in bytes of JSON. etcd holds 1.5 MiB for each, and JSON is a little longer than what it holds.
pub(crate) const LARGEST: usize = 4 << 20;

/// Most values in one object. Each takes up to 100 bytes while it is read; the largest templates have a few thousand.
const MOST_VALUES: usize = 1 << 14;

/// Deepest nesting that is read: the limit of `serde_json`.
const DEEPEST: usize = 127;

/// Longest error of a reader that is kept, in characters.
const LONGEST_ERROR: usize = 200;

/// An object, or what is known of one that cannot be read.
pub type Item<K> = Result<K, Box<Unreadable>>;

/// Returns the metadata of an object, as far as it could be read.
pub fn meta_of<K: Resource>(item: &Item<K>) -> &ObjectMeta {
    match item {
        Ok(object) => object.meta(),
        Err(unreadable) => &unreadable.metadata,
    }
}

/// Why an object cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnreadableReason {
    /// It is nested too deep.
    TooDeep,
    /// It is too large, or holds too many values.
    TooLarge,
    /// A field has another type than its kind defines.
    Malformed,
}

impl UnreadableReason {
    /// Its word, the label of a metric.
    pub fn word(self) -> &'static str {
        match self {
            Self::TooDeep => "TooDeep",
            Self::TooLarge => "TooLarge",
            Self::Malformed => "Malformed",
        }
    }
}

/// An object that cannot be read.
#[derive(Clone, Debug, PartialEq)]
pub struct Unreadable {
    /// What could be read of its `metadata`: name, namespace, UID, version, owners.
    pub metadata: ObjectMeta,
    /// Name of the node of a pod, as far as it could be read.
    pub node: Option<String>,
    /// Why.
    pub reason: UnreadableReason,
    /// The same in detail: one line.
    pub error: Arc<str>,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.error)
    }
}

/// A kind of object that is read one by one.
pub trait Readable: Resource<DynamicType = ()> + Sized + Send + 'static {
    /// Reads an object from JSON.
    ///
    /// # Errors
    /// When a field has another type, or nesting is too deep.
    fn parse(json: &[u8]) -> serde_json::Result<Self>;

    /// Says what of the object is more than this process keeps of one, if anything is.
    fn excess(&self) -> Option<String> {
        None
    }

    /// Makes an object from the parts of one that cannot be read whole; `None`: nothing can be done with them.
    fn salvage(_parts: &Parts<'_>, _why: &Unreadable) -> Option<Self> {
        None
    }
}

/// Reads an object; `json` is its beginning if it is larger than [`LARGEST`].
pub fn read<K: Readable>(json: &[u8]) -> Item<K> {
    if json.len() > LARGEST {
        return read_beginning(json);
    }
    if json.len() / 2 > MOST_VALUES && shape(json).values > MOST_VALUES {
        let error = format!("it holds more than {MOST_VALUES} values");
        return unreadable(json, UnreadableReason::TooLarge, &error);
    }
    match K::parse(json) {
        Ok(object) => match object.excess() {
            Some(error) => unreadable(json, UnreadableReason::TooLarge, &error),
            None => Ok(object),
        },
        Err(_) if shape(json).depth > DEEPEST => {
            let error = format!("it is nested more than {DEEPEST} levels deep");
            unreadable(json, UnreadableReason::TooDeep, &error)
        }
        Err(error) => unreadable(json, UnreadableReason::Malformed, &error.to_string()),
    }
}

/// Names an object that is larger than [`LARGEST`], of which this is the beginning.
pub(crate) fn read_beginning<K: Readable>(json: &[u8]) -> Item<K> {
    let error = format!("it is larger than {} MiB", LARGEST >> 20);
    unreadable(json, UnreadableReason::TooLarge, &error)
}

/// Makes of an object what can be made without reading it whole.
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

/// How much there is to read in a JSON text.
struct JsonShape {
    /// Upper bound of the number of values.
    values: usize,
    /// Deepest nesting.
    depth: usize,
}

/// Measures a JSON text without reading it.
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

/// The parts of an object as JSON, of which any may be unreadable or missing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parts<'a> {
    pub(super) metadata: Option<&'a RawValue>,
    pub(super) spec: Option<&'a RawValue>,
    pub(super) status: Option<&'a RawValue>,
}

impl<'a> Parts<'a> {
    /// Finds the parts of an object of which only the beginning may be there.
    pub(super) fn find(json: &'a [u8]) -> Self {
        let mut parts = Self::default();
        let mut reader = serde_json::Deserializer::from_slice(json);
        let _found_until_it_ends = PartsSeed(&mut parts).deserialize(&mut reader);
        parts
    }

    /// Name, namespace, UID, version and owners, each if it can be read.
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

/// Reads a part, if that is possible.
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

/// Implements [`Readable`] for kinds of which an unreadable object is of no use.
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

/// Largest pre-pull Job or pod that is read, in bytes. Those of the controller have 1 or 2 KiB per container.
const LARGEST_OF_PULL: usize = 512 << 10;

macro_rules! readable_of_pull {
    ($($kind:ty),*) => {
        $(impl Readable for $kind {
            fn parse(json: &[u8]) -> serde_json::Result<Self> {
                if json.len() > LARGEST_OF_PULL {
                    let error = "it is larger than any that a pre-pull makes";
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

/// An object as `kube` can ask for it, readable or not.
#[derive(Clone, Debug)]
pub struct Listed<K> {
    /// The object.
    pub item: Item<K>,
    /// Its name, namespace and version, readable or not.
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
