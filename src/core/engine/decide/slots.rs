//! Slots that are left for this plan, by kind of replacement.

use crate::core::engine::budget::Budget;
use crate::core::settings::Strategy;

/// Kind of replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotKind {
    /// The pod is deleted, and the native controller creates the next one.
    Delete,
    /// The next pod is created before the old one is deleted.
    Surge,
}

/// Number of nodes that this plan may still replace, by state of the old pod and by kind of replacement.
pub(super) struct Slots {
    broken: usize,
    available: usize,
    surge: usize,
}

impl Slots {
    pub(super) fn new(budget: &Budget, strategy: &Strategy) -> Self {
        Self {
            broken: budget.for_broken(strategy),
            available: budget.for_available(),
            surge: budget.for_surge(),
        }
    }

    /// Returns the slots of one wave, which the wave's own `maxUnavailable` limits. `max-surge` applies to all waves together.
    pub(super) fn of_wave([broken, available]: [usize; 2]) -> Self {
        Self {
            broken,
            available,
            surge: usize::MAX,
        }
    }

    /// Returns true if a slot is left for a node whose old pod is available.
    pub(super) fn has_for_available(&self) -> bool {
        self.available > 0
    }

    pub(super) fn is_empty(&self) -> bool {
        [self.broken, self.available, self.surge] == [0; 3]
    }

    /// Takes a slot for a node. Both the rollout and the node's wave must have a free slot.
    ///
    /// For a broken old pod, a slot of `max-unavailable` is preferred: the pod is deleted before its successor is created. For an
    /// available old pod, a slot of `max-surge` is preferred: the successor is created first. If no slot of the preferred kind is
    /// free, or if `may` rejects this kind, a slot of the other kind is taken.
    pub(super) fn take(
        &mut self,
        in_wave: &mut Self,
        available: bool,
        may: impl Fn(SlotKind) -> bool,
    ) -> Option<SlotKind> {
        let pairs = if available {
            [
                (&mut self.surge, &mut in_wave.surge, SlotKind::Surge),
                (
                    &mut self.available,
                    &mut in_wave.available,
                    SlotKind::Delete,
                ),
            ]
        } else {
            [
                (&mut self.broken, &mut in_wave.broken, SlotKind::Delete),
                (&mut self.surge, &mut in_wave.surge, SlotKind::Surge),
            ]
        };
        let mut pairs = pairs.into_iter();
        let (slots, in_wave, manner) =
            pairs.find(|(all, wave, manner)| **all > 0 && **wave > 0 && may(*manner))?;
        (*slots, *in_wave) = (*slots - 1, *in_wave - 1);
        Some(manner)
    }
}
