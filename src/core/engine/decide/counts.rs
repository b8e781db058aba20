//! The numbers of a plan.

use super::PlanDraft;
use crate::core::engine::class::Class;
use crate::core::plan::Counts;
use crate::core::settings::Mode;
use crate::core::verdict::{Cause, Progress, Revert, Verdict};

impl PlanDraft<'_> {
    pub(super) fn counts(&self) -> Counts {
        let mut counts = Counts {
            targeted: self.judged.budget.targeted,
            base: self.judged.budget.base,
            allowed: match self.judged.strategy.mode {
                Mode::AdvancedRollingUpdate => self.judged.budget.allowed,
                Mode::Ota => 0,
            },
            failures: self.judged.guard.failures,
            threshold: self.judged.guard.threshold,
            ..Counts::default()
        };
        (counts.unavailable, counts.withheld) =
            (self.judged.budget.used(), self.judged.budget.staying());
        counts.relapsing = self.judged.relapsing();
        (counts.surging, counts.surge_allowed) =
            (self.judged.budget.surging, self.judged.budget.surge);
        for (position, (class, verdict)) in
            self.judged.classes.iter().zip(&self.verdicts).enumerate()
        {
            counts.by_word[verdict.index()] += 1;
            counts.updated += usize::from(match class {
                Class::Done => true,
                Class::InProgress(Progress::Surplus) => self.judged.serves(position),
                _ => false,
            });
            match *class {
                Class::Offline { updated, .. } => {
                    counts.offline += 1;
                    counts.offline_outdated += usize::from(!updated);
                }
                Class::Failed { cause, .. } => {
                    counts.failed += 1;
                    counts.offline += usize::from(cause == Cause::NodeLost);
                    counts.barred += usize::from(cause == Cause::Barred);
                    counts.lost += usize::from(!cause.holds_slot());
                }
                Class::InProgress(progress) => {
                    let is_back = matches!(progress, Progress::Reverting { .. });
                    counts.in_progress += 1;
                    counts.outdated += usize::from(is_back);
                    counts.reverted += usize::from(is_back);
                }
                Class::Kept(_) => counts.kept += 1,
                Class::Repelled => counts.repelled += 1,
                Class::Outdated {
                    settling: Some(_), ..
                } => counts.offline_outdated += 1,
                Class::Preparing { .. } => counts.outdated += 1,
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
}

/// Whether this is the verdict of an outdated node whose turn is now.
pub(super) fn begins(verdict: &Verdict) -> bool {
    matches!(
        verdict,
        Verdict::InProgress(Progress::Replacing) | Verdict::HookPending { .. }
    )
}
