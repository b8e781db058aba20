//! In-place updates: the running pod gets new images (`rolling-update-type: InPlaceIfPossible`, as in Kruise).
//!
//! One write changes the images and labels of the pod to those of the current revision. The pod keeps its UID, its IP and its node.
//!
//! ```text
//! templates of two revisions ──shape──► Shape, Shape ──transition──► InPlaceChange or Recreate ──► per pod: InPlacePatch
//! annotation of the controller + container statuses ──state──► progress of the pod's last update
//! ```
//!
//! If the templates differ in anything else, the pod is recreated, because Kubernetes allows no other changes of a pod's spec. A
//! restart without a new image is not possible either: it would need an agent on the node.

mod shape;
mod state;
#[cfg(test)]
mod tests;
mod transition;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use crate::core::id::Revision;

pub use shape::Shape;
pub use state::{InPlaceState, PreviousContainer, is_half_written};
pub use transition::{InPlaceChange, InPlaceTransition, InPlaceTransitions, Recreate};

/// Facts about a pod that are needed for in-place updates.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct InPlace {
    /// Revision in the pod's label. `None` if the label is missing, or while Kruise has written only a part of an update.
    pub revision: Option<Revision>,
    /// Containers of the pod, including init containers that have run.
    pub containers: Arc<[RunningContainer]>,
    /// True if the pod has ended (`Failed` or `Succeeded`), so the kubelet never restarts its containers.
    pub is_over: bool,
    /// Last in-place update that the controller requested.
    pub update: Option<InPlaceUpdate>,
    /// Containers that don't run their new images yet, with their state before the update.
    pub unfinished: BTreeMap<String, PreviousContainer>,
    /// Stopped revision from which the update rolled the pod back; `None` for updates to the current revision.
    pub reverted_from: Option<Revision>,
    /// Status of Kruise's readiness gate `InPlaceUpdateReady`; `None` if the pod doesn't have this gate.
    pub gate: Option<bool>,
}

/// Progress of the last in-place update of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InPlaceUpdate {
    /// Time at which the controller requested the update, by its own clock.
    pub at: Timestamp,
    /// True if the update is complete: the kubelet reports the new image of each changed container.
    pub is_carried_out: bool,
}

/// A container of a pod, as specified and as reported.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunningContainer {
    /// Name of the container.
    pub name: Arc<str>,
    /// Image in the pod's spec.
    pub image: Arc<str>,
    /// Image that the kubelet reports; empty until the container runs for the first time.
    pub reported: Arc<str>,
    /// Digest of the reported image (`imageID`); empty until the container runs for the first time.
    pub image_id: Arc<str>,
    /// Number of restarts that the kubelet reports.
    pub restarts: u32,
    /// True for an init container. In-place updates never change init containers.
    pub is_init: bool,
}

/// Returns the change that updates `pod` in place.
///
/// # Errors
/// Returns the reason why the pod has to be recreated instead.
pub(in crate::core) fn applicable<'a>(
    transition: &'a InPlaceTransition,
    pod: &InPlace,
) -> Result<&'a Arc<InPlaceChange>, Recreate> {
    if pod.is_over {
        Err(Recreate::Over)
    } else if !pod.runs(&transition.images) {
        Err(Recreate::OtherImages)
    } else {
        Ok(&transition.change)
    }
}

/// Returns the patch that updates a pod to `revision`.
pub(in crate::core) fn renewal_to(
    revision: &Revision,
    pod: &InPlace,
    change: &Arc<InPlaceChange>,
) -> InPlacePatch {
    InPlacePatch {
        revision: revision.clone(),
        change: in_order_of(pod, change),
        before: state::before(change, pod),
        reverts: None,
        gate: pod.gate,
    }
}

/// Returns `change` with its containers in the order of the pod, because a webhook may have changed that order.
fn in_order_of(pod: &InPlace, change: &Arc<InPlaceChange>) -> Arc<InPlaceChange> {
    let place = |(name, _): &(Arc<str>, Arc<str>)| {
        let mut containers = pod.containers.iter();
        containers.position(|known| !known.is_init && known.name == *name)
    };
    let mut change = change.clone();
    if !change.images.iter().map(place).is_sorted() {
        Arc::make_mut(&mut change).images.sort_by_key(place);
    }
    change
}

/// Patch for an in-place update of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InPlacePatch {
    /// Revision of the pod after the update.
    pub revision: Revision,
    /// Fields of the pod to change.
    pub change: Arc<InPlaceChange>,
    /// State of the containers before the update. The patch also stores it in the pod, to compare it later.
    pub before: BTreeMap<String, PreviousContainer>,
    /// Stopped revision from which the pod is rolled back; `None` if the pod is updated to the current revision.
    pub reverts: Option<Revision>,
    /// New status of the readiness gate `InPlaceUpdateReady`; `None` if the pod doesn't have this gate.
    pub gate: Option<bool>,
}

impl InPlace {
    /// Returns true if the pod's spec has these images. Containers that are not in the list may have any image; a webhook may have
    /// injected them.
    fn runs(&self, images: &[(Arc<str>, Arc<str>)]) -> bool {
        images.iter().all(|(name, image)| {
            let mut containers = self.containers.iter();
            let found = containers.find(|known| !known.is_init && known.name == *name);
            found.is_some_and(|container| container.image == *image)
        })
    }

    /// Returns true from the request of an in-place update until the kubelet reports the new images.
    pub fn is_under_way(&self) -> bool {
        self.update.is_some_and(|update| !update.is_carried_out)
    }
}
