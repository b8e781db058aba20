//! Number of nodes that may lose their pod now.
//!
//! A node takes a *slot* if it is targeted and online, but has no available pod. Its pod can be missing, terminating, starting, not
//! yet available, or broken.
//!
//! Offline nodes never take a slot; that is the purpose of OpenYurt's AdvancedRollingUpdate. This includes a node that was lost
//! after its update. `failure-threshold` limits such losses, and no update begins while the guard evaluates them.
//!
//! A node that returned recently with an old pod takes no slot. Otherwise flapping nodes could take all slots.

use super::class::Class;
use super::pod_summary::PodSummary;
use super::rate_limit::ramp_up;
use super::scope::RolloutScope;
use super::terms::Terms;
use super::waves::WaveProgress;
use crate::core::fleet::Crowd;
use crate::core::settings::Strategy;

/// Limits for the number of unavailable nodes and of nodes with two pods, and the nodes that count toward these limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Budget {
    pub(super) targeted: usize,
    /// Targeted nodes that take part: the base of `max-unavailable`.
    pub(super) base: usize,
    /// `max-unavailable`, resolved for `base` and limited by `ramp-up`.
    pub(super) allowed: usize,
    /// Nodes that take part and are done.
    pub(super) done: usize,
    /// Nodes that are being replaced, wait for a pod, or are Ready with a pod that fails because of the revision.
    pub(super) in_flight: usize,
    /// Nodes in `in_flight` whose old pod is still available, because the controller waits for its preDelete hook.
    pub(super) serving: usize,
    /// `max-surge`, resolved for `base` and limited by `ramp-up`.
    pub(super) surge: usize,
    /// Nodes with two pods, one of which may be terminating. Also nodes whose surge pod is not yet owned by the DaemonSet.
    pub(super) surging: usize,
    /// Ready nodes with a pod that fails because of the revision. Each takes a slot of `max-unavailable` and one of `max-surge`.
    pub(super) failed: usize,
    /// Nodes that keep their old pod, although the controller took the pod out of service for its preDelete hook. They count until
    /// the pod is available again.
    pub(super) withheld: usize,
    /// Nodes that keep their old pod, if the pod was created recently and is not yet available.
    pub(super) starting: usize,
    /// Online, settled nodes whose pod is not available and is outdated or of an unknown revision.
    pub(super) broken: usize,
}

impl Budget {
    /// Counts the classes of a fleet and its crowd.
    ///
    /// Four rules decide if a node counts:
    ///
    /// - A node that keeps the old revision because of a setting is not part of the base, and a broken pod there takes no slot.
    /// - A node in flight always takes a slot, even if `selector` no longer matches it.
    /// - A broken pod on a node that a setting excludes does take a slot if the controller took the pod out of service for its
    ///   preDelete hook, or if the pod was created recently.
    /// - A pod that another client deleted takes no slot if its node is not selected or its wave is not open.
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
                // A node that returned recently keeps its pods for now, but counts here if it has two.
                Class::InProgress(_)
                | Class::Excluded(_)
                | Class::Outdated { .. }
                | Class::PreDeleteHook { .. } => summary.is_doubled(position),
                Class::UntoleratedTaint | Class::NotTargeted => summary.is_paired(position),
                _ => false,
            });
            match class {
                // The node's wave is not open, so the node doesn't take part yet.
                Class::Outdated { .. }
                    if wave_progress.is_idle(position, strategy, summary, terms) => {}
                Class::Excluded(_) if is_withheld(position) => budget.withheld += 1,
                Class::Excluded(_) => budget.starting += usize::from(is_starting(position)),
                // The node doesn't take part now, and its pod was deleted by a user or a drain, not by the rollout. So the node
                // takes no slot.
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

    pub(super) fn used(&self) -> usize {
        self.in_flight + self.withheld + self.starting + self.broken
    }

    /// Returns the number of slots used by nodes that keep their old pod.
    pub(super) fn staying(&self) -> usize {
        self.withheld + self.starting
    }

    /// Returns the number of available pods with completed hooks that may be deleted now.
    ///
    /// Each such pod already has a slot. The limit still applies: `max-unavailable` may have been lowered since, or many of the
    /// nodes may have returned at the same time.
    pub(super) fn for_waiting(&self) -> usize {
        self.allowed.saturating_sub(self.used() - self.serving)
    }

    /// Returns the number of nodes with a broken old pod that may be replaced now.
    ///
    /// At least one is allowed, so that a bad old revision can be repaired. With surge it may be zero, because a second pod repairs
    /// the node.
    ///
    /// The number is limited, because many pods may be broken only for a moment after a short outage (k/k#123232).
    /// `replace-broken-first: unlimited` removes the limit.
    ///
    /// An available pod that waits for its preDelete hook doesn't reduce the number. Otherwise two pods could block each other: the
    /// broken pod would wait for the slot of the available pod, and the available pod for the slot of the broken pod.
    pub(super) fn for_broken(&self, strategy: &Strategy) -> usize {
        if strategy.broken_unlimited {
            return usize::MAX;
        }
        let least = usize::from(self.surge == 0);
        self.allowed
            .max(least)
            .saturating_sub(self.in_flight - self.serving + self.withheld)
    }

    /// Returns the number of nodes on which a second pod may be created now.
    pub(super) fn for_surge(&self) -> usize {
        self.surge.saturating_sub(self.surging + self.failed)
    }

    /// Returns the number of nodes with an available old pod that may be replaced now.
    pub(super) fn for_available(&self) -> usize {
        self.allowed.saturating_sub(self.used())
    }
}
