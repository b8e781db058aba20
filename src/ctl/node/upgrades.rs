//! Changes that an upgrade would make. Only yurt-ds servers report them, on a route that OpenYurt's servers don't have.

use bytes::Bytes;
use http::{Response, StatusCode};
use serde::Deserialize;

use crate::k8s::{Pod, nullable};

/// Response body of `GET /yurt-ds/v1/upgrades`.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Upgrades {
    #[serde(deserialize_with = "nullable")]
    items: Vec<PodUpgrade>,
}

/// Available upgrade of one pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodUpgrade {
    #[serde(deserialize_with = "nullable")]
    namespace: String,
    #[serde(deserialize_with = "nullable")]
    pod: String,
    /// Hash of the new revision.
    pub(super) revision: Option<String>,
    #[serde(deserialize_with = "nullable")]
    pub(super) containers: Vec<ContainerUpgrade>,
}

/// Change of one container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ContainerUpgrade {
    #[serde(deserialize_with = "nullable")]
    pub(super) name: String,
    /// True if it is an init container.
    #[serde(deserialize_with = "nullable")]
    pub(super) init: bool,
    /// Image after the upgrade; `None` if the container is removed.
    pub(super) new_image: Option<String>,
}

impl Upgrades {
    /// Reads a response; `None` if it is invalid.
    pub(super) fn read(response: &Response<Bytes>) -> Option<Self> {
        (response.status() == StatusCode::OK)
            .then(|| serde_json::from_slice(response.body()).ok())
            .flatten()
    }

    /// Returns the upgrade that is available for the pod.
    pub(super) fn for_pod(&self, pod: &Pod) -> Option<&PodUpgrade> {
        let mut items = self.items.iter();
        items.find(|item| item.namespace == pod.namespace() && item.pod == pod.name())
    }
}
