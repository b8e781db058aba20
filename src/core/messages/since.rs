//! Times at which nodes got their present verdict.

use crate::core::fleet::{Leaving, Node};
use crate::core::verdict::{Offline, Progress, Revert, Verdict};
use k8s_openapi::jiff::Timestamp;

/// Returns the time at which the node got its present verdict, as far as known.
pub(super) fn verdict_since(
    node: &Node,
    verdict: &Verdict,
    first_look: Timestamp,
) -> Option<Timestamp> {
    let newest = node.pods.iter().max_by_key(|pod| pod.created);
    match *verdict {
        Verdict::Done => newest?.ready_since,
        Verdict::InProgress(Progress::Missing { since }) => {
            since.filter(|since| *since != first_look)
        }
        Verdict::InProgress(
            Progress::UpdatingInPlace { since } | Progress::Reverting { since },
        ) => Some(since),
        Verdict::Revert(Revert::Done) => Some(newest?.revised()),
        Verdict::InProgress(
            Progress::Terminating | Progress::OldTerminating | Progress::SurgeLeaving,
        ) => {
            let leaving = node.pods.iter().filter_map(|pod| pod.leaving.as_deref());
            leaving.map(Leaving::asked_at).max()
        }
        Verdict::InProgress(Progress::Starting | Progress::SurgeStarting) => {
            Some(newest?.unready())
        }
        Verdict::InProgress(Progress::Surplus) => Some(newest?.revised()),
        Verdict::InProgress(
            Progress::NotYetAvailable { .. }
            | Progress::SurgeYoung { .. }
            | Progress::SurgeTakingOver,
        ) => newest?.ready_since,
        Verdict::Offline(
            Offline::NotReady { since }
            | Offline::Terminating { since }
            | Offline::Updated { since },
        ) => since,
        Verdict::FailedByRevision { since, .. } => Some(since),
        Verdict::HookPending { since, .. } => since,
        Verdict::BlockedByPdb { since, .. } | Verdict::Refused { since } => Some(since),
        _ => None,
    }
}
