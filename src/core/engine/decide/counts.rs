//! Counts of a plan.

use super::PlanDraft;
use crate::core::engine::class::Class;
use crate::core::plan::Counts;
use crate::core::settings::Mode;
use crate::core::verdict::{Cause, Offline, Progress, Revert, Verdict};

impl PlanDraft<'_> {
    pub(super) fn counts(&self) -> Counts {
        let mut counts = Counts {
            targeted: self.evaluation.budget.targeted,
            base: self.evaluation.budget.base,
            allowed: match self.evaluation.strategy.mode {
                Mode::AdvancedRollingUpdate => self.evaluation.budget.allowed,
                Mode::Ota | Mode::OnDelete => 0,
            },
            failures: self.evaluation.guard.failures,
            threshold: self.evaluation.guard.threshold,
            ..Counts::default()
        };
        (counts.unavailable, counts.withheld) = (
            self.evaluation.budget.used(),
            self.evaluation.budget.staying(),
        );
        counts.relapsing = self.evaluation.relapsing();
        (counts.surging, counts.surge_allowed) =
            (self.evaluation.budget.surging, self.evaluation.budget.surge);
        self.count_crowd(&mut counts);
        for (position, (class, verdict)) in self
            .evaluation
            .classes
            .iter()
            .zip(&self.verdicts)
            .enumerate()
        {
            counts.by_word[verdict.index()] += 1;
            counts.updated += usize::from(match class {
                Class::Done => true,
                Class::InProgress(Progress::Surplus) => self.evaluation.serves(position),
                _ => false,
            });
            match *class {
                Class::Offline { updated, .. } => {
                    counts.offline += 1;
                    counts.offline_updated += usize::from(updated);
                    counts.offline_outdated += usize::from(!updated);
                }
                Class::Failed { cause, .. } => {
                    counts.failed += 1;
                    counts.offline += usize::from(cause == Cause::NodeLost);
                    counts.lost += usize::from(!cause.holds_slot());
                }
                Class::InProgress(progress) => {
                    let is_back = matches!(progress, Progress::Reverting { .. });
                    counts.in_progress += 1;
                    counts.outdated += usize::from(is_back);
                    counts.reverted += usize::from(is_back);
                }
                Class::Excluded(_) => counts.kept += 1,
                Class::UntoleratedTaint => counts.repelled += 1,
                Class::Outdated {
                    settling: Some(_), ..
                } => counts.offline_outdated += 1,
                Class::PreDeleteHook { .. } => counts.outdated += 1,
                Class::Surging(ref pair) => {
                    counts.outdated += usize::from(pair.outdated);
                    counts.updated += usize::from(!pair.outdated);
                }
                Class::Outdated { available, .. } => {
                    let replacing = begins(verdict);
                    let surging = *verdict == Verdict::InProgress(Progress::SurgeStarting);
                    counts.surging += usize::from(surging);
                    counts.reverted += usize::from(*verdict == Verdict::Revert(Revert::Done));
                    counts.outdated += 1;
                    counts.unavailable += usize::from(available && replacing);
                    counts.in_progress += usize::from(replacing);
                    counts.broken_before += usize::from(!available && !replacing);
                }
                _ => {}
            }
        }
        counts
    }

    /// Adds the nodes that are only counted (see [`crowd`](crate::core::engine::crowd)).
    fn count_crowd(&self, counts: &mut Counts) {
        let crowd = &self.evaluation.fleet.crowd;
        let by_verdict = [
            (Verdict::Done, crowd.done),
            (Verdict::Budget { broken: false }, crowd.waiting),
            (
                Verdict::Offline(Offline::NotReady { since: None }),
                crowd.offline,
            ),
            (Verdict::InProgress(Progress::Starting), crowd.moving),
        ];
        for (verdict, nodes) in by_verdict {
            counts.by_word[verdict.index()] += nodes;
        }
        counts.updated += crowd.done;
        counts.outdated += crowd.waiting;
        counts.in_progress += crowd.moving;
        counts.offline += crowd.offline;
        counts.offline_updated += crowd.offline_updated;
        counts.offline_outdated += crowd.offline - crowd.offline_updated;
    }
}

/// Returns true if this is the verdict of an outdated node whose replacement begins now.
pub(super) fn begins(verdict: &Verdict) -> bool {
    matches!(
        verdict,
        Verdict::InProgress(Progress::Replacing) | Verdict::HookPending { .. }
    )
}
