//! Age of the data of watches. The controller doesn't act on data that is too old.
//!
//! A silent watch may be healthy, or its connection may be stalled while writes still succeed. The API server ends each watch
//! after [`WATCH_TIMEOUT`]. So a healthy one is heard at least that often, by an event, a bookmark or its regular end. Everything
//! up to that moment has then been reported.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use crate::clock::Clock;

/// Timeout that each watch asks the API server for, in seconds.
///
/// Bookmarks alone are not enough: the API server sends one about every minute, but none for a resource that didn't change since
/// that server started.
pub(super) const WATCH_TIMEOUT: u32 = 60;

/// Age from which the data of a watch is too old for writes to pods.
///
/// It is [`WATCH_TIMEOUT`] plus 15 seconds in which the next watch must be heard.
pub(super) const STALE_AFTER: Duration = Duration::from_secs(WATCH_TIMEOUT as u64 + 15);

/// Time at which a watch was last heard. Cheap to clone; all clones share it.
#[derive(Clone, Debug)]
pub(super) struct Heard(Arc<Mutex<Moment>>, Clock);

/// Moment on both clocks. The monotonic clock stands still while a virtual machine is paused, and the wall clock may be set.
#[derive(Clone, Copy, Debug)]
struct Moment {
    instant: Instant,
    wall: Timestamp,
}

impl Heard {
    /// Creates the state of a new watch. It counts as heard now, which leaves time for its first list.
    fn new(clock: &Clock) -> Self {
        let moment = Moment {
            instant: Instant::now(),
            wall: clock.now(),
        };
        Self(Arc::new(Mutex::new(moment)), clock.clone())
    }

    /// Notes that the watch was heard now.
    pub(super) fn note(&self) {
        *self.moment() = Moment {
            instant: Instant::now(),
            wall: self.1.now(),
        };
    }

    /// Time since the watch was last heard, by the clock that shows more.
    pub(super) fn age(&self) -> Duration {
        let Moment { instant, wall } = *self.moment();
        let by_wall = Duration::try_from(self.1.now().duration_since(wall));
        instant.elapsed().max(by_wall.unwrap_or_default())
    }

    /// Returns the age of the data if that is too old to act on.
    pub(super) fn stale(&self) -> Option<Duration> {
        Some(self.age()).filter(|age| *age >= STALE_AFTER)
    }

    fn moment(&self) -> std::sync::MutexGuard<'_, Moment> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ages of all watches, for metrics. Cheap to clone; all clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct WatchAges(Arc<Mutex<Vec<WatchAge>>>);

#[derive(Debug)]
struct WatchAge {
    resource: &'static str,
    moment: Weak<Mutex<Moment>>,
    clock: Clock,
}

impl WatchAge {
    fn age(&self) -> Option<Duration> {
        let moment = self.moment.upgrade()?;
        Some(Heard(moment, self.clock.clone()).age())
    }
}

impl WatchAges {
    /// Tracks a new watch of `resource` for as long as its [`Heard`] exists.
    pub(super) fn follow(&self, resource: &'static str, clock: &Clock) -> Heard {
        let heard = Heard::new(clock);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|known| known.moment.strong_count() > 0);
        all.push(WatchAge {
            resource,
            moment: Arc::downgrade(&heard.0),
            clock: clock.clone(),
        });
        heard
    }

    /// Returns the greatest age among the watches of `resource`; `None`: there is no watch.
    pub(super) fn age(&self, resource: &str) -> Option<Duration> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let same = all.iter().filter(|known| known.resource == resource);
        same.filter_map(WatchAge::age).max()
    }

    /// Returns the greatest age among the watches of each resource.
    pub(super) fn by_resource(&self) -> BTreeMap<&'static str, Duration> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut oldest = BTreeMap::new();
        for known in &*all {
            let Some(age) = known.age() else {
                continue;
            };
            let oldest = oldest.entry(known.resource).or_insert(age);
            *oldest = age.max(*oldest);
        }
        oldest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_oldest_watch_of_a_resource_counts_until_it_is_dropped() {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        let ages = WatchAges::default();
        let first = ages.follow("pods", &clock);
        tokio::time::sleep(STALE_AFTER).await;
        let second = ages.follow("pods", &clock);
        assert!(first.stale().is_some() && second.stale().is_none());
        assert_eq!(ages.by_resource()["pods"], STALE_AFTER);
        first.note();
        assert_eq!(first.stale(), None);
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(first);
        assert_eq!(ages.by_resource()["pods"], Duration::from_secs(1));
        drop(second);
        assert_eq!(ages.by_resource().len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wall_clock_that_ran_on_ages_a_watch_and_one_that_was_set_back_does_not() {
        let heard = Heard::new(&Clock::System);
        let hour = Duration::from_secs(3600);
        heard.moment().wall = Timestamp::now() - hour;
        assert!(heard.stale().is_some());
        heard.moment().wall = Timestamp::now() + hour;
        assert_eq!(heard.age(), Duration::ZERO);
    }
}
