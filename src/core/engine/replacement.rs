//! How an outdated pod is brought to the current revision: updated in place, or made anew.

use std::sync::Arc;

use crate::core::fleet::in_place::{InPlaceChange, InPlacePatch, Recreate, applicable, renewal_to};
use crate::core::fleet::{Fleet, Pod};
use crate::core::id::RevisionState;
use crate::core::settings::{RollingUpdateType, Strategy};

/// How an outdated pod is brought to the current revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateMethod {
    /// By changing this in the running pod.
    InPlace(Arc<InPlaceChange>),
    /// By deleting it, so that the native controller makes a new one; why, where something else was asked for.
    Recreate(Option<Recreate>),
}

/// How `pod` of `fleet` is brought to the current revision.
pub fn way(strategy: &Strategy, fleet: &Fleet, pod: &Pod) -> UpdateMethod {
    if strategy.rolling_update_type == RollingUpdateType::Standard {
        return UpdateMethod::Recreate(None);
    }
    // Whoever lets it go counts on a new one: what they took off this one nobody would put back.
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

/// What to write into `pod` so that it becomes one of the current revision.
pub(super) fn patch(fleet: &Fleet, pod: &Pod, change: &Arc<InPlaceChange>) -> Option<InPlacePatch> {
    let RevisionState::Current(revision) = &fleet.revision else {
        return None;
    };
    Some(renewal_to(revision, &pod.in_place, change))
}
