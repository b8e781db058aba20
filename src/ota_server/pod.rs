//! Pod of this node: the JSON that the API server sent, and the fields that decisions need.

use std::fmt;
use std::hash::{DefaultHasher, Hasher as _};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::core::foreign;
use crate::core::names::{POD_IMAGE_READY, POD_NEED_UPGRADE};
use crate::k8s::{Condition, Pod};

/// Namespace and name of a pod, written `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PodKey {
    pub(super) namespace: String,
    pub(super) name: String,
}

impl PodKey {
    pub(super) fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Returns the bytes by which the API server sorts the items of a list: `namespace/name`.
    pub(super) fn in_list(&self) -> impl Iterator<Item = u8> {
        let namespace = self.namespace.bytes().chain([b'/']);
        namespace.chain(self.name.bytes())
    }
}

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A pod with its original JSON, which is served, and the fields that decisions need. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct NodePod(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    key: PodKey,
    facts: PodDetails,
    raw: Box<RawValue>,
    /// Hash of the pod's JSON as a list item.
    digest: u64,
    /// Length in bytes of the list item as it is sent.
    length: usize,
}

/// First fields of a pod in a watch event. A list item does not have them.
const TYPE: &str = r#"{"kind":"Pod","apiVersion":"v1","#;

/// Names of the fields that [`PodDetails`] needs. Other fields are not parsed: a pod can have a megabyte of container statuses,
/// which would take 30 times as much memory.
const NEEDED: [&str; 8] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "deletionTimestamp",
    "ownerReferences",
    "nodeName",
    "conditions",
];

/// Fields of a pod that decisions need.
#[derive(Clone, Debug, Default)]
pub(super) struct PodDetails {
    pub(super) uid: String,
    pub(super) resource_version: String,
    /// Name of the node to which the pod is bound.
    pub(super) node: String,
    /// True if the pod is being deleted.
    pub(super) deleting: bool,
    /// Owner with `controller: true`, or the first owner if there is none.
    pub(super) owner: Option<OwnerReference>,
    /// True if the condition `Ready` is `True`.
    pub(super) ready: bool,
    /// Condition `PodNeedUpgrade`: reports whether a newer revision is available.
    pub(super) need_upgrade: Option<Condition>,
    /// Condition `PodImageReady`: reports the state of a requested image pull.
    pub(super) image_ready: Option<Condition>,
}

impl PodDetails {
    /// Returns the key and the needed fields of a pod.
    fn read(pod: Pod) -> serde_json::Result<(PodKey, Self)> {
        let missing = <serde_json::Error as serde::de::Error>::missing_field;
        let details = Self {
            uid: pod.uid().to_owned(),
            deleting: pod.is_deleting(),
            owner: pod.owner().cloned(),
            ready: pod.is_ready(),
            need_upgrade: pod.condition(POD_NEED_UPGRADE).cloned(),
            image_ready: pod.condition(POD_IMAGE_READY).cloned(),
            resource_version: pod.metadata.resource_version.unwrap_or_default(),
            node: pod.spec.node_name.unwrap_or_default(),
        };
        let key = PodKey {
            namespace: pod.metadata.namespace.ok_or_else(|| missing("namespace"))?,
            name: pod.metadata.name.ok_or_else(|| missing("name"))?,
        };
        Ok((key, details))
    }
}

impl NodePod {
    pub(super) fn key(&self) -> &PodKey {
        &self.0.key
    }

    pub(super) fn facts(&self) -> &PodDetails {
        &self.0.facts
    }

    /// Returns the pod's JSON, byte for byte as the API server sent it.
    pub(super) fn raw(&self) -> &str {
        self.0.raw.get()
    }

    /// Returns the pod as an item of a list, without its opening brace.
    ///
    /// `kind` and `apiVersion` are removed, because Kubernetes sends them in watch events but not in lists. So equal pods have
    /// equal bytes.
    pub(super) fn item(&self) -> &str {
        item(self.raw())
    }

    /// Returns the length in bytes of the list item as it is sent. Control characters and invisible characters are sent as JSON
    /// escapes, which are longer.
    pub(super) fn length(&self) -> usize {
        self.0.length
    }

    /// Returns a hash of the list item.
    pub(super) fn digest(&self) -> u64 {
        self.0.digest
    }

    /// Returns true if both pods have the same bytes as list items.
    pub(super) fn is_equal(&self, other: &Self) -> bool {
        self.digest() == other.digest() && self.item() == other.item()
    }

    /// Returns true if both values share the same memory.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.address() == other.address()
    }

    /// Returns the address of the pod's data in memory, which identifies the data.
    pub(super) fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Returns the owner with `controller: true`; `None` if there is none.
    pub(super) fn controller(&self) -> Option<&OwnerReference> {
        let owner = self.0.facts.owner.as_ref();
        owner.filter(|owner| owner.controller == Some(true))
    }

    /// Parses a pod.
    ///
    /// # Errors
    /// Fails if the JSON is not a Pod with a name and a namespace.
    pub(super) fn read(raw: Box<RawValue>) -> Result<Self, serde_json::Error> {
        Self::read_or_return(raw).map_err(|(error, _)| error)
    }

    /// Parses a pod like [`NodePod::read`]. On failure, also returns the JSON.
    pub(super) fn read_or_return(
        raw: Box<RawValue>,
    ) -> Result<Self, (serde_json::Error, Box<RawValue>)> {
        let pod = Pod::read_fields(&raw, |_, field, _| NEEDED.contains(&field));
        let (key, facts) = match pod.and_then(PodDetails::read) {
            Ok(read) => read,
            Err(error) => return Err((error, raw)),
        };
        let digest = digest(item(raw.get()));
        let length = foreign::json_length(item(raw.get()));
        Ok(Self(Arc::new(Inner {
            key,
            facts,
            raw,
            digest,
            length,
        })))
    }
}

fn item(raw: &str) -> &str {
    let rest = raw.strip_prefix(TYPE).or_else(|| raw.strip_prefix('{'));
    rest.unwrap_or(raw)
}

fn digest(item: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(item.as_bytes());
    hasher.finish()
}

impl<'de> Deserialize<'de> for NodePod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::read(raw).map_err(serde::de::Error::custom)
    }
}
