//! Limits on concurrent image pulls, per namespace and per DaemonSet. A running pull takes a slot.
//!
//! A pull can hang for an hour, and running pulls are never aborted. So a namespace may use only three quarters of the slots that
//! other namespaces leave. Then other namespaces can still start pulls. The same limit holds within a namespace: a DaemonSet may
//! use three quarters of the slots that the other DaemonSets leave.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::core::action::PULLS_AT_ONCE;
use crate::index::SetKey;

/// Number of running pulls, by DaemonSet and by namespace.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots {
    sets: BTreeMap<SetKey, usize>,
    namespaces: BTreeMap<Arc<str>, usize>,
    all: usize,
}

impl Slots {
    /// Counts a running pull of this DaemonSet.
    pub(super) fn take(&mut self, key: &SetKey) {
        *self.sets.entry(key.clone()).or_default() += 1;
        let namespace = self.namespaces.entry(key.namespace.clone());
        *namespace.or_default() += 1;
        self.all += 1;
    }

    /// Reserves slots for waiting pulls. `waiting` contains the DaemonSet of each pull, in the order of the requests.
    ///
    /// Returns the positions of the pulls that start. The next slot goes to the namespace with the fewest running pulls, and
    /// within the namespace to the DaemonSet with the fewest. A namespace without a running pull may start one even if all slots
    /// are taken. So at most [`PULLS_AT_ONCE`] pulls run, plus one for each namespace after the first.
    pub(super) fn fill(&mut self, waiting: &[&SetKey]) -> Vec<usize> {
        let mut queues: BTreeMap<&SetKey, VecDeque<usize>> = BTreeMap::new();
        for (position, key) in waiting.iter().enumerate() {
            queues.entry(key).or_default().push_back(position);
        }
        let mut begun = Vec::new();
        loop {
            // Drop the queues of DaemonSets that may not start another pull. This loop only takes slots, so they can't start later
            // either.
            queues.retain(|key, queue| !queue.is_empty() && self.has_room(key));
            let next = queues
                .iter_mut()
                .min_by_key(|(key, queue)| (self.of_namespace(key), self.of_set(key), queue[0]));
            let Some((key, queue)) = next else {
                return begun;
            };
            begun.extend(queue.pop_front());
            self.take(key);
        }
    }

    fn has_room(&self, key: &SetKey) -> bool {
        let (set, namespace) = (self.of_set(key), self.of_namespace(key));
        let of_namespace = share(PULLS_AT_ONCE, self.all - namespace);
        namespace < of_namespace && set < share(of_namespace, namespace - set)
    }

    fn of_set(&self, key: &SetKey) -> usize {
        self.sets.get(key).copied().unwrap_or_default()
    }

    fn of_namespace(&self, key: &SetKey) -> usize {
        let count = self.namespaces.get(&key.namespace);
        count.copied().unwrap_or_default()
    }
}

/// Returns the maximum number of slots for one namespace or DaemonSet: three quarters of the slots that the others leave, but at
/// least one.
fn share(slots: usize, taken_by_others: usize) -> usize {
    (slots.saturating_sub(taken_by_others) * 3 / 4).max(1)
}

#[cfg(test)]
mod tests;
