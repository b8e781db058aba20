//! Limits on the speed of replacements, independent of the budget.
//!
//! - `min-interval`: one replacement at a time in each wave. The next one begins when the newest pod of the current revision is
//!   older than the interval. The removal of an old pod also starts an interval, even if no new pod follows
//!   (`minTimeBetweenUpgrades` in kubernetes/kubernetes#111073).
//! - `ramp-up`: a given number of nodes at first, then as many nodes as are already updated. So without failures the number doubles
//!   each time all of these nodes are updated, up to `max-unavailable` (like ExtendedDaemonSet's slow start).
//!
//! Both limits are computed from the pods. After a restart, the controller only forgets the removal of a pod that no new pod has
//! followed.

use k8s_openapi::jiff::Timestamp;

use super::class::Class;
use super::pod_summary::PodSummary;
use super::waves::WaveProgress;
use crate::core::instant::later;
use crate::core::settings::Strategy;
use crate::core::verdict::{Progress, Verdict};

/// Limit of one wave at present. Without waves, all nodes form one wave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RateLimit {
    /// Number of replacements that may begin now.
    pub(super) replacements: usize,
    /// Time before which no replacement may begin.
    pub(super) opens: Option<Timestamp>,
}

impl RateLimit {
    /// Computes the limit of each wave by `min-interval` at `now`.
    ///
    /// `verdicts` already includes the pods that this plan deletes, marks or rolls back.
    pub(super) fn new(
        strategy: &Strategy,
        classes: &[Class],
        verdicts: &[Verdict],
        summary: &PodSummary<'_>,
        wave_progress: &WaveProgress<'_>,
        now: Timestamp,
    ) -> Vec<Self> {
        let free = Self {
            replacements: usize::MAX,
            opens: None,
        };
        if strategy.min_interval.is_zero() {
            return vec![free; wave_progress.count()];
        }
        let mut newest = vec![None; wave_progress.count()];
        let mut awaits = vec![false; wave_progress.count()];
        for (position, (class, verdict)) in classes.iter().zip(verdicts).enumerate() {
            let wave = wave_progress.of_node(position);
            let began = [summary.got_current(position), summary.removed_at(position)];
            newest[wave] = began.into_iter().fold(newest[wave], Ord::max);
            awaits[wave] |= match class {
                // A taint or a label prevents the new pod for an unknown time. Other nodes don't wait for this pod.
                Class::InProgress(_) if summary.is_barred(position) => false,
                Class::InProgress(_) => is_awaited(verdict, false),
                Class::PreDeleteHook { .. } => is_awaited(verdict, true),
                _ => false,
            };
        }
        let pace = |(newest, awaits): (Option<Timestamp>, bool)| {
            let opens = newest.map(|created| later(created, strategy.min_interval));
            let opens = opens.filter(|opens| *opens > now);
            Self {
                replacements: usize::from(opens.is_none() && !awaits),
                opens,
            }
        };
        newest.into_iter().zip(awaits).map(pace).collect()
    }
}

/// Returns true if the other nodes of a wave wait for this node, because its new pod will soon start an interval.
///
/// `is_leaving` is true if the node's pod waits for its hook. If such a pod also waits for a slot, it is not deleted soon. Then
/// another node may take the slot first.
pub(in crate::core) fn is_awaited(verdict: &Verdict, is_leaving: bool) -> bool {
    match verdict {
        Verdict::Budget { .. } => false,
        _ if is_leaving => true,
        Verdict::InProgress(progress) => matches!(
            progress,
            Progress::Terminating | Progress::Replacing | Progress::Missing { .. }
        ),
        Verdict::HookPending { .. } => true,
        _ => false,
    }
}

/// Returns the number of nodes that may lack an available pod at once under `ramp-up`, at most `allowed`. `done` is the number of
/// nodes that are already updated.
pub(super) fn ramp_up(strategy: &Strategy, base: usize, allowed: usize, done: usize) -> usize {
    match strategy.ramp_up {
        None => allowed,
        Some(first) => allowed.min(first.resolve(base).max(done)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::core::testing::{at, fleet, node, old};
    use crate::core::{IntOrPercent, Mode, PreDeleteHook, decide};

    /// Regression test from a property test: two pods blocked each other. A pod that was marked for deletion waited for the slot of
    /// a broken pod, and the broken pod waited for the end of `min-interval`.
    #[test]
    fn a_marked_pod_that_waits_for_a_slot_does_not_block_a_broken_pod() {
        let strategy = Strategy {
            min_interval: Duration::from_secs(1),
            ..Strategy::with_mode(Mode::AdvancedRollingUpdate)
        };
        let mut marked = node("a", old(1));
        marked.pods[0].exit.preparing = Some(PreDeleteHook { since: None });
        let fleet = fleet(vec![marked, node("b", old(1).broken())]);
        let plan = decide(&strategy, &fleet, at(10_000));
        let gone: Vec<_> = plan
            .actions
            .iter()
            .map(|action| action.pod().name.as_str())
            .collect();
        assert_eq!(gone, ["b"], "{plan:?}");
    }

    #[test]
    fn a_ramp_up_doubles_with_updated_nodes_and_ends_at_the_budget() {
        let strategy = Strategy {
            ramp_up: Some(IntOrPercent::Number(2)),
            ..Strategy::with_mode(Mode::AdvancedRollingUpdate)
        };
        let at = |done| ramp_up(&strategy, 100, 10, done);
        assert_eq!([0, 1, 2, 4, 8, 50].map(at), [2, 2, 2, 4, 8, 10]);
        let without = Strategy {
            ramp_up: None,
            ..strategy
        };
        assert_eq!(ramp_up(&without, 100, 10, 0), 10);
    }
}
