//! Updating a pod in place: the running pod gets the images and labels of the current revision in one write, and keeps
//! its UID, its IP and its node (`rolling-update-type: InPlaceIfPossible`, as Kruise's).
//!
//! ```text
//! templates of two revisions ──shape──► Shape, Shape ──transition──► InPlaceChange, or why not ──way──► per pod: UpdateMethod
//! annotation of ours + container statuses ──state──► how far the last update of that pod has come
//! ```
//!
//! Everything else is made anew: a pod's spec cannot be changed otherwise (Kubernetes), and nothing is installed beside
//! the kubelet that could restart a container for another reason.

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

/// What an update in place has to know of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct InPlace {
    /// The revision that the pod names in its label; `None` also where Kruise has updated it half way.
    pub revision: Option<Revision>,
    /// Its containers, those of its init containers that ran included.
    pub containers: Arc<[RunningContainer]>,
    /// Whether it is over (`Failed`, `Succeeded`): no kubelet starts a container in it again.
    pub is_over: bool,
    /// The last update in place that we asked for.
    pub update: Option<InPlaceUpdate>,
    /// The containers that this update has not brought to their new images yet, with what they were like before it.
    pub unfinished: BTreeMap<String, PreviousContainer>,
    /// The stopped revision that this update took it back from; `None`: it did not.
    pub reverted_from: Option<Revision>,
    /// Whether the readiness gate `InPlaceUpdateReady` of Kruise is open; `None`: the pod has none.
    pub gate: Option<bool>,
}

/// An update in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InPlaceUpdate {
    /// When we asked for it (the controller's clock).
    pub at: Timestamp,
    /// Whether every container that it changes runs its new image, as far as the kubelet has told.
    pub is_carried_out: bool,
}

/// A container of a pod, as asked for and as it runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunningContainer {
    /// Its name.
    pub name: Arc<str>,
    /// The image that the pod's spec names.
    pub image: Arc<str>,
    /// The image that the kubelet says it runs; empty before it ran.
    pub reported: Arc<str>,
    /// The content of that image; empty before it ran.
    pub image_id: Arc<str>,
    /// How often it was started again.
    pub restarts: u32,
    /// Whether it is an init container: those are never changed.
    pub is_init: bool,
}

/// What `transition` changes in `pod`.
///
/// # Errors
/// Why that is not possible in this pod.
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

/// What to write into a pod so that it becomes one of `revision`.
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

/// An update in place, to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InPlacePatch {
    /// The revision that the pod has afterwards.
    pub revision: Revision,
    /// What differs.
    pub change: Arc<InPlaceChange>,
    /// What the containers were like before, for the pod's own memory.
    pub before: BTreeMap<String, PreviousContainer>,
    /// The stopped revision that the pod is taken back from; `None`: it gets the current one.
    pub reverts: Option<Revision>,
    /// Whether the pod's readiness gate for updates in place is open; `None`: it has none.
    pub gate: Option<bool>,
}

impl InPlace {
    /// Whether its containers are to run these images. Containers that are not listed (injected ones) may run anything.
    fn runs(&self, images: &[(Arc<str>, Arc<str>)]) -> bool {
        images.iter().all(|(name, image)| {
            let mut containers = self.containers.iter();
            let found = containers.find(|known| !known.is_init && known.name == *name);
            found.is_some_and(|container| container.image == *image)
        })
    }

    /// Whether an update in place is under way.
    pub fn is_under_way(&self) -> bool {
        self.update.is_some_and(|update| !update.is_carried_out)
    }
}
