//! Time at which the API server last confirmed the pods of this node. The age of the data in `GET /pods` is measured from it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use k8s_openapi::jiff::Timestamp;

use crate::clock::Clock;

/// Time of the last confirmation. Cheap to clone: all clones share the time.
///
/// A list, the start of a watch, an event and a bookmark confirm that the cache is complete. Other responses don't. For example, an
/// API server that forbids the watch still responds, but the cached pods may be old.
#[derive(Clone, Debug)]
pub(super) struct LastSync {
    /// Milliseconds since 1970; `NEVER` before the first confirmation.
    at: Arc<AtomicI64>,
    clock: Clock,
}

const NEVER: i64 = i64::MIN;

impl LastSync {
    /// Creates the state before the first confirmation.
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            at: Arc::new(AtomicI64::new(NEVER)),
            clock,
        }
    }

    /// Records a confirmation at the present time.
    pub(super) fn now(&self) {
        self.set(self.clock.now());
    }

    /// Sets the time of the last confirmation, which an earlier process saved.
    pub(super) fn set(&self, at: Timestamp) {
        self.at.store(at.as_millisecond(), Ordering::Relaxed);
    }

    /// Returns the time of the last confirmation; `None` if there was none.
    pub(super) fn at(&self) -> Option<Timestamp> {
        let at = self.millisecond()?;
        Some(Timestamp::from_millisecond(at).unwrap_or(Timestamp::MAX))
    }

    /// Returns the time since the last confirmation in whole seconds; `None` if there was none. The age is 0 if the clock was set
    /// back.
    pub(super) fn age(&self) -> Option<i64> {
        let passed = self
            .clock
            .now()
            .as_millisecond()
            .saturating_sub(self.millisecond()?);
        Some((passed / 1000).max(0))
    }

    fn millisecond(&self) -> Option<i64> {
        let at = self.at.load(Ordering::Relaxed);
        (at != NEVER).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn the_age_grows_with_the_clock_and_is_never_negative() {
        let epoch: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
        let last_sync = LastSync::new(Clock::starting_at(epoch));
        assert_eq!((last_sync.at(), last_sync.age()), (None, None));
        last_sync.now();
        assert_eq!((last_sync.at(), last_sync.age()), (Some(epoch), Some(0)));
        tokio::time::advance(Duration::from_millis(61_900)).await;
        assert_eq!(last_sync.age(), Some(61));
        last_sync.set("2031-01-01T00:00:00Z".parse().unwrap());
        assert_eq!(last_sync.age(), Some(0));
        last_sync.set(Timestamp::MIN);
        assert!(last_sync.age() > Some(60_000_000_000));
        last_sync.set(Timestamp::MAX);
        assert_eq!(last_sync.age(), Some(0));
    }
}
