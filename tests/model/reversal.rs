//! Pods that are taken back from a revision that the guard stopped.

use yurt_ds::core::fleet::in_place::InPlaceTransition;
use yurt_ds::core::{Action, Cause, Plan, RollbackTarget, RollbackTargets, Verdict};

use super::rules::Rules;
use super::state::{Pod, Set, Sheet, State, Stop, Template};
use super::view::{hash, number, shape, template_of};

/// From which revision an action takes its pod back, if it does.
pub(crate) fn reverts(action: &Action) -> Option<Template> {
    match action {
        Action::UpdateInPlace { patch, .. } => patch.reverts.as_ref().map(template_of),
        _ => None,
    }
}

/// Whether nodes that were lost on the revision's account keep every slot.
///
/// A pod that is available waits for a slot also when it is to be taken back, and a lost node keeps its own (docs/guard.md)
/// until it is back or its Node is deleted, neither of which happens by itself. So the others rest with the stopped
/// revision meanwhile, and serve.
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
    /// Whether pods are taken back to the same revision as before, if one was chosen.
    pub(crate) fn keeps_way_back_of(&self, earlier: &Self) -> bool {
        earlier.before.is_none() || earlier.before == self.before
    }
}

impl State {
    /// How pods get back, as the index would tell.
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

    /// Whether a pod may be taken back from a revision: the stop of that one stands, and it was not taken back before.
    pub(crate) fn may_take_back(&self, action: &Action, from: Template) -> bool {
        let uid = number(action.pod());
        let pods = self.nodes.iter().flat_map(|node| &node.pods);
        let mut it = pods.filter(|pod| pod.uid == uid);
        self.sheet.stopped == Some(Stop::Failed)
            && self.sheet.template == from
            && self.seen_set().wanted == from
            && self.seen_set().resumed != Some(from)
            && it.all(|pod| pod.taken_back != Some(from))
    }

    /// Whether nobody who is online and can be taken back has the revision that was stopped; when all slots are spent,
    /// whoever is available keeps it.
    pub(crate) fn is_taken_back(&self, is_spent: bool, rules: &Rules) -> bool {
        let bad = self.set.wanted;
        let can_be = |before: Template| {
            InPlaceTransition::between(&shape(bad), &shape(before), None).is_ok()
        };
        let reverts = rules.reverts()
            && self.is_stopped()
            && self.sheet.stopped == Some(Stop::Failed)
            && self.sheet.before.is_some_and(can_be);
        let is_bad = |pod: &Pod| {
            let keeps_it = is_spent && rules.is_available(pod) || pod.taken_back == Some(bad);
            !pod.terminating && !pod.spare && pod.template == bad && !keeps_it
        };
        let mut online = self.nodes.iter().filter(|node| node.ready);
        !reverts || self.set.paused || !online.any(|node| node.pods.iter().any(is_bad))
    }
}
