//! Keys of DaemonSets: kind, namespace and name.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

pub use crate::core::SetKind;
use crate::k8s::DaemonSet;

/// Kind, namespace and name of a DaemonSet. Messages show it as `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SetKey {
    /// Kind of the DaemonSet. A native and an Advanced DaemonSet may have the same name.
    pub kind: SetKind,
    /// Namespace of the DaemonSet.
    pub namespace: Arc<str>,
    /// Name of the DaemonSet.
    pub name: Arc<str>,
}

impl SetKey {
    /// Returns the key of a native DaemonSet.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self::of_kind(SetKind::Native, namespace, name)
    }

    /// Returns the key of a DaemonSet of this kind.
    pub fn of_kind(kind: SetKind, namespace: &str, name: &str) -> Self {
        Self {
            kind,
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// Returns the key of a native DaemonSet; `None` if the metadata lacks a namespace or a name.
    pub fn from_meta(meta: &ObjectMeta) -> Option<Self> {
        Some(Self::new(meta.namespace.as_deref()?, meta.name.as_deref()?))
    }

    /// Returns the key of a DaemonSet of either kind; `None` if the object lacks a namespace or a name.
    pub fn of_set(set: &DaemonSet) -> Option<Self> {
        let kind = if set.is_advanced() {
            SetKind::Advanced
        } else {
            SetKind::Native
        };
        Some(Self {
            kind,
            ..Self::from_meta(&set.metadata)?
        })
    }

    /// Returns the key of the DaemonSet of the kind `kind` with the same namespace and name.
    pub fn as_kind(&self, kind: SetKind) -> Self {
        Self {
            kind,
            ..self.clone()
        }
    }

    /// Returns true if the key is that of an Advanced DaemonSet.
    pub fn is_advanced(&self) -> bool {
        self.kind == SetKind::Advanced
    }
}

impl fmt::Display for SetKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl FromStr for SetKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((namespace, name))
                if !namespace.is_empty() && !name.is_empty() && !name.contains('/') =>
            {
                Ok(Self::new(namespace, name))
            }
            _ => Err(format!(
                "{text:?} is not of the form NAMESPACE/DAEMONSET, such as default/nginx-daemonset"
            )),
        }
    }
}
