//! In-place updates (`rolling-update-type: InPlaceIfPossible`, as in Kruise).
//!
//! One write gives the running pod the images and labels of the current revision. It keeps its UID, its IP and its node.
//!
//! ```text
//! templates of two revisions ──shape──► Shape, Shape ──transition──► InPlaceChange or Recreate ──► per pod: InPlacePatch
//! annotation of the controller + container statuses ──state──► progress of the pod's last update
//! ```
//!
//! For any other change the pod is recreated. Kubernetes allows no other changes of a pod's spec. yurt-ds installs no agent next
//! to the kubelet that could restart containers for other reasons.

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

/// Facts about a pod that in-place updates need.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct InPlace {
    /// Revision in the pod's label; `None` if the label is missing, or if Kruise has updated the pod only partly.
    pub revision: Option<Revision>,
    /// Containers of the pod, including init containers that ran.
    pub containers: Arc<[RunningContainer]>,
    /// True if the pod has ended (`Failed`, `Succeeded`): the kubelet never restarts its containers.
    pub is_over: bool,
    /// Last in-place update that the controller requested.
    pub update: Option<InPlaceUpdate>,
    /// Containers that the update has not brought to their new images yet, with their state before the update.
    pub unfinished: BTreeMap<String, PreviousContainer>,
    /// Stopped revision that the update rolled the pod back from; `None` for other updates.
    pub reverted_from: Option<Revision>,
    /// Status of Kruise's readiness gate `InPlaceUpdateReady`; `None` if the pod doesn't have it.
    pub gate: Option<bool>,
}

/// An in-place update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InPlaceUpdate {
    /// Time of the request, by the controller's clock.
    pub at: Timestamp,
    /// True if the kubelet reports the new image for every container that the update changes.
    pub is_carried_out: bool,
}

/// A container of a pod, as specified and as reported.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunningContainer {
    /// Name of the container.
    pub name: Arc<str>,
    /// Image in the pod's spec.
    pub image: Arc<str>,
    /// Image that the kubelet reports; empty before the container first ran.
    pub reported: Arc<str>,
    /// Digest of that image (`imageID`); empty before the container first ran.
    pub image_id: Arc<str>,
    /// Number of restarts.
    pub restarts: u32,
    /// True for an init container. Those are never changed.
    pub is_init: bool,
}

/// Returns the change that `transition` makes in `pod`.
///
/// # Errors
/// Returns the reason why the pod has to be recreated.
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

/// Returns the patch that makes a pod one of `revision`.
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

/// Returns `change` with its containers in the order of `pod`, which a webhook may have changed.
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

/// An in-place update to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InPlacePatch {
    /// Revision of the pod after the update.
    pub revision: Revision,
    /// Fields to change.
    pub change: Arc<InPlaceChange>,
    /// State of the containers before the update, which is stored in the pod.
    pub before: BTreeMap<String, PreviousContainer>,
    /// Stopped revision that the pod is rolled back from; `None` if the pod is updated to the current revision.
    pub reverts: Option<Revision>,
    /// Status of the pod's readiness gate for in-place updates; `None` if the pod doesn't have it.
    pub gate: Option<bool>,
}

impl InPlace {
    /// Returns true if the pod's spec has these images. Containers that are not listed (injected ones) may have any image.
    fn runs(&self, images: &[(Arc<str>, Arc<str>)]) -> bool {
        images.iter().all(|(name, image)| {
            let mut containers = self.containers.iter();
            let found = containers.find(|known| !known.is_init && known.name == *name);
            found.is_some_and(|container| container.image == *image)
        })
    }

    /// Returns true if an in-place update is in progress.
    pub fn is_under_way(&self) -> bool {
        self.update.is_some_and(|update| !update.is_carried_out)
    }
}
