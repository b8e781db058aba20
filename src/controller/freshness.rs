//! Age of the data of watches. The controller doesn't act on data that is too old (stale).
//!
//! A silent watch may be healthy, or its connection may be stalled although writes still succeed. The API server ends each watch
//! after [`WATCH_TIMEOUT`]. So a healthy watch receives something at least that often: an event, a bookmark or its regular end.
//! Each of the three proves that the watch has reported all earlier changes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use crate::clock::Clock;

/// Timeout that each watch requests from the API server, in seconds.
///
/// Bookmarks alone don't prove that a watch is healthy. The API server sends one about every minute, but none for a resource that
/// has not changed since the API server started.
pub(super) const WATCH_TIMEOUT: u32 = 60;

/// Age at which the data of a watch is too old for writes to pods.
///
/// It is [`WATCH_TIMEOUT`] plus 15 seconds for the next watch to receive something.
pub(super) const STALE_AFTER: Duration = Duration::from_secs(WATCH_TIMEOUT as u64 + 15);

/// Time at which a watch last received something. Clones share the same time.
#[derive(Clone, Debug)]
pub(super) struct Heard(Arc<Mutex<Moment>>, Clock);

/// Time by both clocks. Neither clock is reliable alone: the monotonic clock stops while a virtual machine is paused, and the wall
/// clock may be changed.
#[derive(Clone, Copy, Debug)]
struct Moment {
    instant: Instant,
    wall: Timestamp,
}

impl Heard {
    /// Creates the state of a new watch. The age starts at zero, which leaves time for the first list.
    fn new(clock: &Clock) -> Self {
        let moment = Moment {
            instant: Instant::now(),
            wall: clock.now(),
        };
        Self(Arc::new(Mutex::new(moment)), clock.clone())
    }

    /// Records that the watch received something now.
    pub(super) fn note(&self) {
        *self.moment() = Moment {
            instant: Instant::now(),
            wall: self.1.now(),
        };
    }

    /// Time since the watch last received something, by the clock that shows the longer time.
    pub(super) fn age(&self) -> Duration {
        let Moment { instant, wall } = *self.moment();
        let by_wall = Duration::try_from(self.1.now().duration_since(wall));
        instant.elapsed().max(by_wall.unwrap_or_default())
    }

    /// Returns the age of the data if the data is stale (too old to act on).
    pub(super) fn stale(&self) -> Option<Duration> {
        Some(self.age()).filter(|age| *age >= STALE_AFTER)
    }

    fn moment(&self) -> std::sync::MutexGuard<'_, Moment> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ages of all watches, for metrics. Clones share the same ages.
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
    /// Tracks a new watch of `resource` as long as the returned [`Heard`] exists.
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

    /// Returns the age of the oldest data among the watches of `resource`; `None`: there is no watch.
    pub(super) fn age(&self, resource: &str) -> Option<Duration> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let same = all.iter().filter(|known| known.resource == resource);
        same.filter_map(WatchAge::age).max()
    }

    /// Returns, for each resource, the age of the oldest data among its watches.
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
    async fn the_age_of_a_resource_is_that_of_its_oldest_open_watch() {
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
    async fn a_wall_clock_step_forward_makes_a_watch_stale_and_a_step_back_does_not() {
        let heard = Heard::new(&Clock::System);
        let hour = Duration::from_secs(3600);
        heard.moment().wall = Timestamp::now() - hour;
        assert!(heard.stale().is_some());
        heard.moment().wall = Timestamp::now() + hour;
        assert_eq!(heard.age(), Duration::ZERO);
    }
}
