//! Queue of tasks that are ordered by the time for which they are planned.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// Tasks with their planned times. Tasks with equal times keep the order in which they were added.
pub(crate) struct Queue<T> {
    entries: BTreeMap<(Instant, u64), T>,
    added: u64,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            added: 0,
        }
    }
}

impl<T> Queue<T> {
    pub(crate) fn add(&mut self, delay: Duration, entry: T) {
        self.added += 1;
        self.entries
            .insert((Instant::now() + delay, self.added), entry);
    }

    /// Waits until the time of the next task. Waits indefinitely if there is none.
    pub(crate) async fn wait(&self) {
        match self.entries.first_key_value() {
            Some((&(at, _), _)) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    /// Removes and returns a task whose time has come.
    pub(crate) fn take(&mut self) -> Option<T> {
        let entry = self.entries.first_entry()?;
        (entry.key().0 <= Instant::now()).then(|| entry.remove())
    }
}
