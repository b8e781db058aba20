//! What an upgrade would bring, from servers that tell: an addition of yurt-ds to OpenYurt's routes.

use bytes::Bytes;
use http::{Response, StatusCode};
use serde::Deserialize;

use super::pod::LocalPod;
use crate::k8s::nullable;

/// The answer to `GET /yurt-ds/v1/upgrades`.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Upgrades {
    #[serde(deserialize_with = "nullable")]
    items: Vec<PodUpgrade>,
}

/// What waits for one pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodUpgrade {
    #[serde(deserialize_with = "nullable")]
    namespace: String,
    #[serde(deserialize_with = "nullable")]
    pod: String,
    /// Hash of the revision that it brings.
    pub(super) revision: Option<String>,
    /// Its containers.
    #[serde(deserialize_with = "nullable")]
    pub(super) containers: Vec<ContainerUpgrade>,
}

/// What becomes of one container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ContainerUpgrade {
    /// Its name.
    #[serde(deserialize_with = "nullable")]
    pub(super) name: String,
    /// Whether it is an init container.
    #[serde(deserialize_with = "nullable")]
    pub(super) init: bool,
    /// The image it is to run; `None` when it goes.
    pub(super) new_image: Option<String>,
}

impl Upgrades {
    /// Reads an answer; `None` when it is none.
    pub(super) fn read(response: &Response<Bytes>) -> Option<Self> {
        (response.status() == StatusCode::OK)
            .then(|| serde_json::from_slice(response.body()).ok())
            .flatten()
    }

    /// What waits for that pod.
    pub(super) fn for_pod(&self, pod: &LocalPod) -> Option<&PodUpgrade> {
        let mut items = self.items.iter();
        items.find(|told| told.namespace == pod.namespace() && told.pod == pod.name())
    }
}
