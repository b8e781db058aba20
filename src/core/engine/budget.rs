//! How many more nodes may lose their pod now.
//!
//! Every targeted node that is online and lacks an available pod occupies a slot: missing, terminating, starting, young,
//! broken. Offline nodes never do (that is what OpenYurt's AdvancedRollingUpdate is for), also when the revision took them away: how many may
//! be lost is `failure-threshold`'s to say, and while it is judged nothing begins. Nor do those that returned a moment ago with
//! an old pod: flapping nodes would leave nothing for the others.

use super::class::Class;
use super::pod_summary::PodSummary;
use super::rate_limit::ramp_up;
use super::scope::RolloutScope;
use super::terms::Terms;
use super::waves::WaveProgress;
use crate::core::fleet::Crowd;
use crate::core::settings::Strategy;

/// Numbers that the choice of nodes depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Budget {
    /// Targeted nodes.
    pub(super) targeted: usize,
    /// Those of them that take part: the base of `max-unavailable`.
    pub(super) base: usize,
    /// `max-unavailable` for these, as far as `ramp-up` has come.
    pub(super) allowed: usize,
    /// Those of them that take part and are done.
    pub(super) done: usize,
    /// Nodes being replaced, waiting for a pod, or Ready with a pod that fails by the revision.
    pub(super) in_flight: usize,
    /// Those in flight that still have an available pod, because it waits for its hook.
    pub(super) serving: usize,
    /// `max-surge` for these, as far as `ramp-up` has come.
    pub(super) surge: usize,
    /// Nodes with two pods, whichever of them goes, and those with a pod of ours that is not handed over.
    pub(super) surging: usize,
    /// Nodes that are Ready with a pod that fails by the revision: they keep a slot of either kind.
    pub(super) failed: usize,
    /// Nodes that keep their old pod, which we took out of service for its hook and which does not serve again yet.
    pub(super) withheld: usize,
    /// Nodes that keep their old pod, which was made a moment ago and is not available yet.
    pub(super) starting: usize,
    /// Online, settled nodes whose present pod is outdated (or unknown) and not available.
    pub(super) broken: usize,
}

impl Budget {
    /// Counts the classes of a fleet and its crowd.
    ///
    /// Whoever keeps the old revision is no part of the base, and a broken pod there takes no slot; what is in flight
    /// takes one everywhere, also on a node that was selected a moment ago, and so does a pod that we took out of service for
    /// its hook and let stay, or that was made a moment ago. What others took from a node that is not selected, or whose wave is not open,
    /// takes none.
    pub(super) fn count(
        classes: &[Class],
        crowd: &Crowd,
        scope: &RolloutScope,
        strategy: &Strategy,
        wave_progress: &WaveProgress<'_>,
        summary: &PodSummary<'_>,
        terms: Terms,
    ) -> Self {
        let is_withheld = |position: usize| {
            let until = summary.withheld_until(position, terms);
            until.is_some_and(|until| until > terms.now)
        };
        let is_starting = |position: usize| {
            let until = summary.starting_until(position, terms);
            until.is_some_and(|until| until > terms.now)
        };
        let takes_part_now = |position: usize| {
            scope.is_selected(position) && wave_progress.shut_at(position).is_none()
        };
        let mut budget = Self {
            targeted: crowd.len(),
            base: crowd.len(),
            done: crowd.done,
            in_flight: crowd.moving,
            ..Self::default()
        };
        for (position, class) in classes.iter().enumerate() {
            let takes_part = scope.contains(position) && !matches!(class, Class::Excluded(_));
            budget.targeted += usize::from(class.is_targeted());
            budget.base += usize::from(class.is_targeted() && takes_part);
            budget.done += usize::from(takes_part && *class == Class::Done);
            budget.serving += usize::from(class.still_serves());
            let fails = matches!(class, Class::Failed { .. }) && class.is_in_flight();
            budget.failed += usize::from(fails);
            budget.surging += usize::from(match class {
                Class::Surging(_) => true,
                // Also while a node that returned is left alone with both of its pods.
                Class::InProgress(_)
                | Class::Excluded(_)
                | Class::Outdated { .. }
                | Class::PreDeleteHook { .. } => summary.is_doubled(position),
                Class::UntoleratedTaint | Class::NotTargeted => summary.is_paired(position),
                _ => false,
            });
            match class {
                // Whose wave is not open takes no part yet.
                Class::Outdated { .. }
                    if wave_progress.is_idle(position, strategy, summary, terms) => {}
                Class::Excluded(_) if is_withheld(position) => budget.withheld += 1,
                Class::Excluded(_) => budget.starting += usize::from(is_starting(position)),
                // A user or a drain took its pod, and not the rollout.
                Class::InProgress(progress)
                    if !takes_part_now(position) && !summary.is_ours(position, *progress) => {}
                Class::InProgress(_) | Class::PreDeleteHook { .. } | Class::Failed { .. } => {
                    budget.in_flight += usize::from(class.is_in_flight());
                }
                Class::Surging(pair) => {
                    budget.broken += usize::from(!pair.served && pair.broken);
                    budget.in_flight += usize::from(!pair.served && !pair.broken);
                }
                Class::Outdated {
                    available: false,
                    settling: None,
                }
                | Class::Unknown { available: false } => budget.broken += 1,
                _ => {}
            }
        }
        let ramp = |limit| ramp_up(strategy, budget.base, limit, budget.done);
        let allowed = ramp(strategy.max_unavailable.resolve(budget.base));
        let surge = ramp(strategy.max_surge.resolve(budget.base));
        (budget.allowed, budget.surge) = (allowed, surge);
        budget
    }

    /// Slots that are occupied.
    pub(super) fn used(&self) -> usize {
        self.in_flight + self.withheld + self.starting + self.broken
    }

    /// Those of them that keep their old pod.
    pub(super) fn staying(&self) -> usize {
        self.withheld + self.starting
    }

    /// How many of the pods that waited for their hooks and are available may go now. Each has a slot, but slots may have
    /// become fewer since, or their nodes returned at once.
    pub(super) fn for_waiting(&self) -> usize {
        self.allowed.saturating_sub(self.used() - self.serving)
    }

    /// How many nodes with a broken old pod may be replaced now: at least one at a time, so that a bad old revision can
    /// be repaired, and never the whole fleet in one moment of weakness (k/k#123232). With surge that is the way to
    /// repair one.
    ///
    /// Who waits for its hook and serves takes no slot from them: it may have to wait for the one of a broken pod itself.
    ///
    /// `replace-broken-first: unlimited` asks for all of them at once.
    pub(super) fn for_broken(&self, strategy: &Strategy) -> usize {
        if strategy.broken_unlimited {
            return usize::MAX;
        }
        let least = usize::from(self.surge == 0);
        self.allowed
            .max(least)
            .saturating_sub(self.in_flight - self.serving + self.withheld)
    }

    /// On how many nodes a second pod may be made now.
    pub(super) fn for_surge(&self) -> usize {
        self.surge.saturating_sub(self.surging + self.failed)
    }

    /// How many nodes with an available old pod may be replaced now.
    pub(super) fn for_available(&self) -> usize {
        self.allowed.saturating_sub(self.used())
    }
}
