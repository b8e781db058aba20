//! Detection of rollouts that are still blocked by disruption budgets.

use crate::core::messages::BLOCKED;
use crate::core::{Action, Plan, Progress, RevisionState, RolloutState, Verdict};

/// Returns true if a rollout that was reported as blocked is probably still blocked by disruption budgets.
///
/// The rollout counts as blocked while it does nothing except requesting evictions. These requests repeat blocked ones, or are the
/// first ones after a restart of the controller.
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
