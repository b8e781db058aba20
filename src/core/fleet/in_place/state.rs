//! State of a pod's last in-place update. The write that updates the pod also stores the state in an annotation of the pod.
//!
//! An update is complete when the kubelet reports the new containers, however long that takes. A container counts as updated in any
//! of these cases:
//!
//! - Its image has another digest (`imageID`) than before.
//! - It was restarted. This covers a new image with the same digest under another name (openkruise/kruise#1493).
//! - It runs the image in the spec. This covers a spec that returned to the old image before the kubelet saw the new one.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::transition::InPlaceChange;
use super::{InPlace, InPlaceUpdate, RunningContainer};
use crate::core::names::{IN_PLACE_STATE, KRUISE_IN_PLACE_STATE};

/// State of an in-place update. Fields that Kruise also has are named as in Kruise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InPlaceState {
    /// Revision to which the pod was updated.
    pub revision: String,
    /// Time at which the controller requested the update.
    pub update_timestamp: Time,
    /// Stopped revision from which the pod was rolled back; absent for updates to the current revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverted_from: Option<String>,
    /// State before the update by container name. It contains containers that get a new image, and containers that had been
    /// restarted.
    #[serde(default, deserialize_with = "or_default")]
    pub last_container_statuses: BTreeMap<String, PreviousContainer>,
}

/// Reads `null` as the default value, because Kruise writes `null` for empty fields.
fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// State of a container before the update.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreviousContainer {
    /// Digest of the previous image. Empty if the container never ran; `None` if the update does not change its image.
    #[serde(rename = "imageID", default, skip_serializing_if = "Option::is_none")]
    pub image_id: Option<String>,
    /// Number of restarts before the update; 0 if Kruise wrote the state, because Kruise doesn't store it.
    #[serde(default)]
    pub restart_count: u32,
    /// Image of an earlier update that was not finished. The container may still run it briefly before it runs the new image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded: Option<String>,
}

/// Returns the container states to store before `change` is made.
pub(in crate::core) fn before(
    change: &InPlaceChange,
    pod: &InPlace,
) -> BTreeMap<String, PreviousContainer> {
    let worth = pod.containers.iter().filter_map(|container| {
        let mut images = change.images.iter();
        let changes = !container.is_init && images.any(|(name, _)| *name == container.name);
        // An earlier update of this container may be unfinished. If this update doesn't change the container, keep the state that
        // the earlier one stored.
        let unfinished = pod.unfinished.get(&*container.name).filter(|_| !changes);
        if let Some(unfinished) = unfinished.filter(|_| !container.is_init) {
            return Some((container.name.to_string(), unfinished.clone()));
        }
        let before = PreviousContainer {
            image_id: changes.then(|| container.image_id.to_string()),
            restart_count: container.restarts,
            superseded: (changes && pod.is_under_way()).then(|| container.image.to_string()),
        };
        let is_worth = changes || container.restarts > 0;
        is_worth.then(|| (container.name.to_string(), before))
    });
    worth.collect()
}

impl InPlaceState {
    /// Parses the state from a pod's annotations; `None` if there is none or it is invalid.
    pub fn from_annotations(annotations: &BTreeMap<String, String>) -> Option<Self> {
        let known = [IN_PLACE_STATE, KRUISE_IN_PLACE_STATE];
        let states = known.into_iter().filter_map(|key| {
            let state: Self = serde_json::from_str(annotations.get(key)?).ok()?;
            Some(state)
        });
        // A pod that was updated under both kinds of DaemonSet has two state annotations. Use the newer one.
        states.max_by_key(|state| state.update_timestamp.0)
    }

    /// Returns the progress of the update. `seen` tells if the kubelet has seen the new spec; `None` if that is unknown.
    pub fn progress(&self, containers: &[RunningContainer], seen: Option<bool>) -> InPlaceUpdate {
        InPlaceUpdate {
            at: self.update_timestamp.0,
            is_carried_out: self.awaited(containers, seen).next().is_none(),
        }
    }

    /// Returns the containers that don't run their new image yet, with their state before the update.
    pub fn unfinished(
        &self,
        containers: &[RunningContainer],
        seen: Option<bool>,
    ) -> BTreeMap<String, PreviousContainer> {
        let awaited = self.awaited(containers, seen);
        awaited
            .map(|(name, before)| (name.clone(), before.clone()))
            .collect()
    }

    fn awaited(
        &self,
        containers: &[RunningContainer],
        seen: Option<bool>,
    ) -> impl Iterator<Item = (&String, &PreviousContainer)> {
        let is_awaited = move |(name, before): &(&String, &PreviousContainer)| {
            before.image_id.as_ref().is_some_and(|image_id| {
                let mut containers = containers.iter();
                let container = containers.find(|known| *known.name == ***name);
                !container.is_some_and(|now| is_done(before, image_id, now, seen))
            })
        };
        self.last_container_statuses.iter().filter(is_awaited)
    }

    /// Returns the number of restarts of the container under the current revision, out of all its `restarts`.
    ///
    /// Restarts before the update don't count. The restart that starts the new image doesn't count either.
    pub fn own_restarts(&self, name: &str, restarts: u32) -> u32 {
        let Some(before) = self.last_container_statuses.get(name) else {
            return restarts;
        };
        let ran = before.image_id.as_ref().is_some_and(|id| !id.is_empty());
        restarts.saturating_sub(before.restart_count + u32::from(ran))
    }

    /// Returns true if the update changed the image of the container `name`.
    pub fn changes(&self, name: &str) -> bool {
        let before = self.last_container_statuses.get(name);
        before.is_some_and(|before| before.image_id.is_some())
    }

    /// Returns true if the container `name` has the same digest and number of restarts as before the update. The kubelet's report
    /// may then still describe the old image.
    pub fn is_unchanged(&self, name: &str, image_id: &str, restarts: u32) -> bool {
        let before = self.last_container_statuses.get(name);
        before.is_some_and(|before| {
            before.image_id.as_deref() == Some(image_id) && before.restart_count == restarts
        })
    }
}

/// Parts of an in-place update that Kruise has not written yet. Kruise updates containers with launch priorities in several steps.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NextBatch {
    #[serde(deserialize_with = "or_default")]
    next_container_images: BTreeMap<String, Value>,
    #[serde(deserialize_with = "or_default")]
    next_container_ref_metadata: BTreeMap<String, Value>,
    #[serde(deserialize_with = "or_default")]
    next_container_resources: BTreeMap<String, Value>,
}

/// Returns true if Kruise has written only a part of an in-place update. Then the pod's label already names the new revision, but
/// its spec is not complete.
pub fn is_half_written(annotations: &BTreeMap<String, String>) -> bool {
    let text = annotations.get(KRUISE_IN_PLACE_STATE);
    let next: Option<NextBatch> = text.and_then(|text| serde_json::from_str(text).ok());
    next.is_some_and(|next| {
        !next.next_container_images.is_empty()
            || !next.next_container_ref_metadata.is_empty()
            || !next.next_container_resources.is_empty()
    })
}

impl InPlaceState {
    /// Returns true if the kubelet's `message` is about the image of an earlier update that a later one replaced.
    ///
    /// Such a message names the earlier image of the container `name`, and not its current `image`.
    pub fn is_about_superseded(&self, name: &str, image: &str, message: &str) -> bool {
        let before = self.last_container_statuses.get(name);
        let superseded = before.and_then(|before| before.superseded.as_deref());
        superseded.is_some_and(|superseded| {
            let names_present = message.contains(image) && !superseded.contains(image);
            superseded != image && message.contains(superseded) && !names_present
        })
    }
}

fn is_done(
    before: &PreviousContainer,
    image_id: &str,
    now: &RunningContainer,
    seen: Option<bool>,
) -> bool {
    let is_superseded = before.superseded.as_ref().is_some_and(|image| {
        is_same_image(&now.reported, image) && !is_same_image(&now.reported, &now.image)
    });
    let was_started =
        now.restarts != before.restart_count || is_same_image(&now.reported, &now.image);
    let is_other = *now.image_id != *image_id || (was_started && seen != Some(false));
    !now.image_id.is_empty() && !is_superseded && is_other
}

/// Returns true if `reported` and `wanted` are the same image. The names can differ, because runtimes report full names.
fn is_same_image(reported: &str, wanted: &str) -> bool {
    let full = |name: &str| {
        let last = name.rsplit('/').next().unwrap_or_default();
        let tagged = last.contains(':') || last.contains('@');
        let (first, rest) = name.split_once('/').unwrap_or(("", name));
        let has_host = first.contains(['.', ':']) || first == "localhost";
        let path = match (first, has_host) {
            ("", _) => format!("docker.io/library/{rest}"),
            (_, true) => name.to_owned(),
            (_, false) => format!("docker.io/{name}"),
        };
        if tagged { path } else { path + ":latest" }
    };
    reported == wanted || full(reported) == full(wanted)
}
