//! How long a rollout counts as one that disruption budgets hold up.

use crate::core::messages::BLOCKED;
use crate::core::{Action, Plan, Progress, RevisionState, RolloutState, Verdict};

/// Whether a rollout that was blocked before still is, as far as known: it does nothing but ask for pods to be evicted, be
/// it once more or after a restart.
pub(super) fn stays_blocked(known: &RolloutState, state: &RevisionState, plan: &Plan) -> bool {
    let asks =
        |action: &Action| matches!(action, Action::Evict(_) | Action::DeleteAfterSurge { .. });
    let is_blocked = |verdict: &Verdict| matches!(verdict, Verdict::BlockedByPdb { .. });
    let moves = |verdict: &Verdict| match verdict {
        Verdict::InProgress(progress) => *progress != Progress::Replacing,
        Verdict::HookPending { .. } => true,
        _ => false,
    };
    *known.reported.reason == *BLOCKED
        && known.is_about(state)
        && (plan.actions.iter().any(asks) || plan.verdicts.iter().any(is_blocked))
        && !plan.verdicts.iter().any(moves)
}
