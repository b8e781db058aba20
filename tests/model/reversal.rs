//! In-place reverts: after the guard stopped a revision because too many nodes failed, pods get an earlier revision in place.

use yurt_ds::core::fleet::in_place::InPlaceTransition;
use yurt_ds::core::{Action, Cause, Plan, RollbackTarget, RollbackTargets, Verdict};

use super::rules::Rules;
use super::state::{Pod, Set, Sheet, State, Stop, Template};
use super::view::{hash, number, shape, template_of};

/// Returns the revision from which an action reverts the pod; `None` if the action is not a revert.
pub(crate) fn reverts(action: &Action) -> Option<Template> {
    match action {
        Action::UpdateInPlace { patch, .. } => patch.reverts.as_ref().map(template_of),
        _ => None,
    }
}

/// Returns true if at least as many nodes were lost after their update as `max-unavailable` allows. The checks then accept that
/// available pods on other nodes keep the stopped revision.
///
/// The engine itself counts no slot of `max-unavailable` for a lost node (docs/guard.md).
pub(crate) fn are_slots_lost(plan: &Plan, rules: &Rules) -> bool {
    let is_lost = |verdict: &&Verdict| {
        matches!(
            verdict,
            Verdict::FailedByRevision {
                cause: Cause::NodeLost,
                ..
            }
        )
    };
    plan.verdicts.iter().filter(is_lost).count() >= rules.allowed()
}

impl Sheet {
    /// Returns true if the record still names the revision to which `earlier` reverts pods, or if `earlier` names none.
    pub(crate) fn keeps_way_back_of(&self, earlier: &Self) -> bool {
        earlier.before.is_none() || earlier.before == self.before
    }
}

impl State {
    /// Returns the revisions to which the controller could revert pods, as its index computes them.
    pub(crate) fn rollback_targets(&self, set: &Set, rules: &Rules) -> RollbackTargets {
        if !rules.reverts() || set.observed != set.wanted {
            return RollbackTargets::default();
        }
        let older = (0..3).filter(|template| *template != set.wanted && set.knows(*template));
        let past = |old: Template| RollbackTarget {
            number: set.numbers[usize::from(old)].into(),
            transition: InPlaceTransition::between(&shape(set.wanted), &shape(old), None),
        };
        RollbackTargets {
            stands: self.telling.is_none(),
            revisions: older.map(|old| (hash(old), past(old))).collect(),
        }
    }

    /// Returns true if the pod of `action` may be reverted from the revision `from`. The guard must have stopped that revision, and
    /// the pod must not have been reverted from it before.
    pub(crate) fn may_take_back(&self, action: &Action, from: Template) -> bool {
        let uid = number(action.pod());
        let pods = self.nodes.iter().flat_map(|node| &node.pods);
        let mut it = pods.filter(|pod| pod.uid == uid);
        self.sheet.stopped == Some(Stop::Failed)
            && self.sheet.template == from
            && self.seen_set().wanted == from
            && self.seen_set().resumed != Some(from)
            && it.all(|pod| pod.rolled_back != Some(from))
    }

    /// Returns true if no online node runs the stopped revision. Nodes where an in-place revert is impossible don't count.
    ///
    /// If `is_spent` is true ([`are_slots_lost`]), available pods may keep the stopped revision.
    pub(crate) fn is_rolled_back(&self, is_spent: bool, rules: &Rules) -> bool {
        let bad = self.set.wanted;
        let can_be = |before: Template| {
            InPlaceTransition::between(&shape(bad), &shape(before), None).is_ok()
        };
        let reverts = rules.reverts()
            && self.is_stopped()
            && self.sheet.stopped == Some(Stop::Failed)
            && self.sheet.before.is_some_and(can_be);
        let is_bad = |pod: &Pod| {
            let keeps_it = is_spent && rules.is_available(pod) || pod.rolled_back == Some(bad);
            !pod.terminating && !pod.spare && pod.template == bad && !keeps_it
        };
        let mut online = self.nodes.iter().filter(|node| node.ready);
        !reverts || self.set.paused || !online.any(|node| node.pods.iter().any(is_bad))
    }
}
