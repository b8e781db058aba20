//! A pod of this node: the JSON as the API server sent it, and the fields that decisions need.

use std::fmt;
use std::hash::{DefaultHasher, Hasher as _};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::core::foreign;
use crate::core::names::{POD_IMAGE_READY, POD_NEED_UPGRADE};
use crate::core::revision_in;
use crate::k8s::nullable;

/// Namespace and name of a pod, written `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PodKey {
    /// Namespace of the pod.
    pub(super) namespace: String,
    /// Name of the pod.
    pub(super) name: String,
}

impl PodKey {
    /// Creates a key from a namespace and a name.
    pub(super) fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Returns the bytes by which the API server orders the items of a list.
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

/// A pod. Cheap to clone. Unlike the reduced pod in `k8s`, it keeps the original JSON, which is served, and owners of all kinds.
#[derive(Clone, Debug)]
pub(super) struct NodePod(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    key: PodKey,
    facts: PodDetails,
    raw: Box<RawValue>,
    /// Hash of the pod's JSON as a list item.
    digest: u64,
    /// Length of the list item as it is sent, in bytes.
    length: usize,
}

/// Beginning of a pod in a watch event. List items don't have these fields.
const TYPE: &str = r#"{"kind":"Pod","apiVersion":"v1","#;

/// The fields of a pod that decisions need.
#[derive(Clone, Debug, Default)]
pub(super) struct PodDetails {
    /// UID of the pod.
    pub(super) uid: String,
    /// resourceVersion of the pod.
    pub(super) resource_version: String,
    /// Name of the node to which the pod is bound.
    pub(super) node: String,
    /// True if the pod is being deleted.
    pub(super) deleting: bool,
    /// Owner references of all kinds.
    pub(super) owners: Vec<OwnerReference>,
    /// True if the condition `Ready` is `True`.
    pub(super) ready: bool,
    /// Condition `PodNeedUpgrade`: the controller offers a new version.
    pub(super) need_upgrade: Option<NodePodCondition>,
    /// Condition `PodImageReady`: state of a requested image pull.
    pub(super) image_ready: Option<NodePodCondition>,
}

/// A condition of OTA mode: `PodNeedUpgrade` or `PodImageReady`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct NodePodCondition {
    #[serde(rename = "type", deserialize_with = "nullable")]
    kind: String,
    /// Status of the condition: `True`, `False` or `Unknown`.
    #[serde(deserialize_with = "nullable")]
    pub(super) status: String,
    /// Reason of the condition, one word.
    #[serde(deserialize_with = "nullable")]
    pub(super) reason: String,
    /// Message of the condition, a sentence.
    #[serde(deserialize_with = "nullable")]
    pub(super) message: String,
}

impl NodePodCondition {
    /// Returns true if the condition's status is `True`.
    pub(super) fn is_true(&self) -> bool {
        self.status == "True"
    }

    /// Returns the hash of the revision in the message; `None` if it contains none.
    pub(super) fn hash(&self) -> Option<&str> {
        revision_in(&self.message).filter(|hash| !hash.is_empty())
    }
}

impl NodePod {
    /// Returns namespace and name of the pod.
    pub(super) fn key(&self) -> &PodKey {
        &self.0.key
    }

    /// Returns the fields that decisions need.
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

    /// Returns the length of the list item as it is sent, in bytes. Control and invisible characters are sent as JSON escapes,
    /// which are longer.
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

    /// Returns the address of the pod's data in memory, which identifies it.
    pub(super) fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Returns the owner reference with `controller: true`.
    pub(super) fn controller(&self) -> Option<&OwnerReference> {
        let mut owners = self.0.facts.owners.iter();
        owners.find(|owner| owner.controller == Some(true))
    }

    /// Parses a pod.
    ///
    /// # Errors
    /// If the JSON is not a Pod with a name and a namespace.
    pub(super) fn read(raw: Box<RawValue>) -> Result<Self, serde_json::Error> {
        Self::read_or_return(raw).map_err(|(error, _)| error)
    }

    /// Parses a pod like [`NodePod::read`]. On failure, also returns the JSON.
    pub(super) fn read_or_return(
        raw: Box<RawValue>,
    ) -> Result<Self, (serde_json::Error, Box<RawValue>)> {
        let wire: Wire = match serde_json::from_str(raw.get()) {
            Ok(wire) => wire,
            Err(error) => return Err((error, raw)),
        };
        let (meta, status) = (wire.metadata, wire.status);
        let condition = |kind: &str| status.conditions.iter().find(|found| found.kind == kind);
        let facts = PodDetails {
            uid: meta.uid,
            resource_version: meta.resource_version,
            node: wire.spec.node_name,
            deleting: meta.deletion_timestamp.is_some(),
            owners: meta.owner_references,
            ready: condition("Ready").is_some_and(NodePodCondition::is_true),
            need_upgrade: condition(POD_NEED_UPGRADE).cloned(),
            image_ready: condition(POD_IMAGE_READY).cloned(),
        };
        let key = PodKey {
            namespace: meta.namespace,
            name: meta.name,
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

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta,
    #[serde(default, deserialize_with = "nullable")]
    spec: WireSpec,
    #[serde(default, deserialize_with = "nullable")]
    status: WireStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireMeta {
    name: String,
    namespace: String,
    #[serde(default, deserialize_with = "nullable")]
    uid: String,
    #[serde(default, deserialize_with = "nullable")]
    resource_version: String,
    #[serde(default)]
    deletion_timestamp: Option<serde::de::IgnoredAny>,
    #[serde(default, deserialize_with = "nullable")]
    owner_references: Vec<OwnerReference>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireSpec {
    #[serde(deserialize_with = "nullable")]
    node_name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireStatus {
    #[serde(deserialize_with = "nullable")]
    conditions: Vec<NodePodCondition>,
}
