//! What a pod remembers of its last update in place, in an annotation of ours that is part of the same write.
//!
//! Completion is judged by what the kubelet says of the containers, never by the time that went by. A container is done
//! when its image has another content (`imageID`) than before; when the new image has the same content under another name
//! (openkruise/kruise#1493), when it was started again; and when its kubelet never saw the image in between (back to the old one before
//! it looked), when it runs what the spec names.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::transition::InPlaceChange;
use super::{InPlace, InPlaceUpdate, RunningContainer};
use crate::core::names::{IN_PLACE_STATE, KRUISE_IN_PLACE_STATE};

/// The memory of an update in place. The names of its fields are those of Kruise where both have one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InPlaceState {
    /// The revision that the pod was updated to.
    pub revision: String,
    /// When we asked for that.
    pub update_timestamp: Time,
    /// The stopped revision that the pod was taken back from; absent: it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverted_from: Option<String>,
    /// By container what it was like before: those whose images were changed, and those that had been restarted.
    #[serde(default, deserialize_with = "or_default")]
    pub last_container_statuses: BTreeMap<String, PreviousContainer>,
}

/// Reads `null` as nothing, as Kruise writes it.
fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// A container before the update.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreviousContainer {
    /// The content of the image that it ran, empty when it never ran; `None` when its image was not changed.
    #[serde(rename = "imageID", default, skip_serializing_if = "Option::is_none")]
    pub image_id: Option<String>,
    /// How often it had been started again; Kruise does not say.
    #[serde(default)]
    pub restart_count: u32,
    /// The image that an earlier update was about to bring, and that may still run for a moment before the present one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded: Option<String>,
}

/// What to remember of a pod before `change` is made.
pub(in crate::core) fn before(
    change: &InPlaceChange,
    pod: &InPlace,
) -> BTreeMap<String, PreviousContainer> {
    let worth = pod.containers.iter().filter_map(|container| {
        let mut images = change.images.iter();
        let changes = !container.is_init && images.any(|(name, _)| *name == container.name);
        // One that an earlier update has not finished with is not done because this one leaves it alone.
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
    /// What the annotations of a pod remember; what cannot be read is no such thing.
    pub fn from_annotations(annotations: &BTreeMap<String, String>) -> Option<Self> {
        let known = [IN_PLACE_STATE, KRUISE_IN_PLACE_STATE];
        let states = known.into_iter().filter_map(|key| {
            let state: Self = serde_json::from_str(annotations.get(key)?).ok()?;
            Some(state)
        });
        // Whichever was written last: a pod may have been both kinds of DaemonSets'.
        states.max_by_key(|state| state.update_timestamp.0)
    }

    /// How far the update has come. `seen`: the kubelet has looked at the pod since (`None`: it does not say).
    pub fn progress(&self, containers: &[RunningContainer], seen: Option<bool>) -> InPlaceUpdate {
        InPlaceUpdate {
            at: self.update_timestamp.0,
            is_carried_out: self.awaited(containers, seen).next().is_none(),
        }
    }

    /// The containers that do not run their new images yet, with what they were like before.
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

    /// How many of `restarts` of the container `name` belong to the present revision: none of those before it, and not
    /// the one by which the container got its new image.
    pub fn own_restarts(&self, name: &str, restarts: u32) -> u32 {
        let Some(before) = self.last_container_statuses.get(name) else {
            return restarts;
        };
        let ran = before.image_id.as_ref().is_some_and(|id| !id.is_empty());
        restarts.saturating_sub(before.restart_count + u32::from(ran))
    }

    /// Whether it gave the container `name` another image.
    pub fn changes(&self, name: &str) -> bool {
        let before = self.last_container_statuses.get(name);
        before.is_some_and(|before| before.image_id.is_some())
    }

    /// Whether the container `name` is as it was before its image was changed: what the kubelet says of it may be about
    /// the old image.
    pub fn is_unchanged(&self, name: &str, image_id: &str, restarts: u32) -> bool {
        let before = self.last_container_statuses.get(name);
        before.is_some_and(|before| {
            before.image_id.as_deref() == Some(image_id) && before.restart_count == restarts
        })
    }
}

/// What Kruise has not written yet of an update in place: where containers have launch priorities, it goes by them in several steps.
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

/// Whether the annotations of a pod tell of an update in place that Kruise did not write to its end: the pod names the new revision, and
/// is not what that says.
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
    /// Whether `message`, which a kubelet gives for the container `name` that is to run `image`, is about the image that an
    /// earlier update was to bring: it names that one, and not the present one.
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

/// Whether a runtime means `wanted` when it says `reported`: it writes names out in full.
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
