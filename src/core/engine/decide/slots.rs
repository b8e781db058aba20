//! How many more nodes may be replaced now, and how.

use crate::core::engine::budget::Budget;
use crate::core::settings::Strategy;

/// How the pod of a node is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotKind {
    /// It is deleted, and the native controller makes the next one.
    Delete,
    /// The next one is made beside it.
    Surge,
}

/// How many more nodes may be replaced now, and how.
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

    /// What a wave limits by its own `max-unavailable`; `max-surge` is one for all.
    pub(super) fn of_wave([broken, available]: [usize; 2]) -> Self {
        Self {
            broken,
            available,
            surge: usize::MAX,
        }
    }

    /// Whether a node with an available old pod could be replaced.
    pub(super) fn has_for_available(&self) -> bool {
        self.available > 0
    }

    pub(super) fn is_empty(&self) -> bool {
        [self.broken, self.available, self.surge] == [0; 3]
    }

    /// The slot of a node whose old pod is available or not, where its wave has one too: a broken one has nothing to lose
    /// and is deleted, as far as `max-unavailable` goes; an available one gets its successor first, as far as `max-surge`
    /// goes.
    ///
    /// Whose pod may not be deleted now can still get a successor first, and the other way round: `may` tells.
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
