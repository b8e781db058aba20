//! Choice of how an outdated pod gets the current revision: updated in place, or deleted and created again.

use std::sync::Arc;

use crate::core::fleet::in_place::{InPlaceChange, InPlacePatch, Recreate, applicable, renewal_to};
use crate::core::fleet::{Fleet, Pod};
use crate::core::id::RevisionState;
use crate::core::settings::{RollingUpdateType, Strategy};

/// Method to bring an outdated pod to the current revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateMethod {
    /// Update the running pod with this change.
    InPlace(Arc<InPlaceChange>),
    /// Delete the pod, so that a new one is created. `Recreate` is the reason why an update in place is impossible; `None` if the
    /// settings don't request updates in place.
    Recreate(Option<Recreate>),
}

/// Returns the method by which `pod` gets the current revision.
pub fn way(strategy: &Strategy, fleet: &Fleet, pod: &Pod) -> UpdateMethod {
    if strategy.rolling_update_type == RollingUpdateType::Standard {
        return UpdateMethod::Recreate(None);
    }
    // The program behind the preDelete hook expects that the pod is deleted. After an update in place, the program would not
    // restore the label or finalizer that it removed.
    if pod.exit.preparing.is_some() {
        return UpdateMethod::Recreate(Some(Recreate::Leaving));
    }
    let found = pod
        .in_place
        .revision
        .as_ref()
        .and_then(|old| fleet.transitions.get(old));
    if fleet.write_failures.is_unfit(&pod.uid) {
        return UpdateMethod::Recreate(Some(Recreate::Refused));
    }
    match found {
        None => UpdateMethod::Recreate(Some(Recreate::UnknownRevision)),
        Some(Err(why)) => UpdateMethod::Recreate(Some(*why)),
        Some(Ok(transition)) => match applicable(transition, &pod.in_place) {
            Ok(change) => UpdateMethod::InPlace(change.clone()),
            Err(why) => UpdateMethod::Recreate(Some(why)),
        },
    }
}

/// Returns the patch that updates `pod` in place to the current revision; `None` if the current revision is unknown.
pub(super) fn patch(fleet: &Fleet, pod: &Pod, change: &Arc<InPlaceChange>) -> Option<InPlacePatch> {
    let RevisionState::Current(revision) = &fleet.revision else {
        return None;
    };
    Some(renewal_to(revision, &pod.in_place, change))
}
