//! How fast replacements may follow each other, whatever the budget would allow.
//!
//! - `min-interval`: in each wave one replacement at a time, and the next not before the newest pod of the current revision is that old,
//!   nor so soon after a removal that no such pod followed (`minTimeBetweenUpgrades` in kubernetes/kubernetes#111073).
//! - `ramp-up`: at first so many nodes at once, then as many as are done: that doubles every round while all goes well, up
//!   to `max-unavailable` (as ExtendedDaemonSet's slow start).
//!
//! Both follow from the pods: a restart of the controller forgets nothing but a removal that nothing else tells of.

use k8s_openapi::jiff::Timestamp;

use super::class::Class;
use super::pod_summary::PodSummary;
use super::waves::WaveProgress;
use crate::core::instant::later;
use crate::core::settings::Strategy;
use crate::core::verdict::{Progress, Verdict};

/// What the pace allows a wave now; without waves all nodes are in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RateLimit {
    /// Replacements that may begin now.
    pub(super) replacements: usize,
    /// Before this instant none may.
    pub(super) opens: Option<Timestamp>,
}

impl RateLimit {
    /// What `min-interval` allows each wave at `now`.
    ///
    /// `verdicts` are those after the pods on their way out were looked at.
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
                // No pod comes there for an unknown time.
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

/// Whether the others of its wave wait for a node because its new pod is about to begin a new interval. `is_leaving`: its pod
/// is marked to go.
///
/// A marked pod that waits for a slot is not about to go: the slot may be that of a node which waits for the interval.
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

/// How many nodes may lack an available pod at once, of the `allowed` ones, when `done` have one of the current revision.
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

    /// Found by a property: the one waited for the other's slot, and that one for its interval.
    #[test]
    fn a_marked_pod_that_waits_for_the_slot_of_a_broken_one_keeps_it_from_nothing() {
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
    fn a_ramp_doubles_with_what_is_done_and_ends_at_the_budget() {
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
