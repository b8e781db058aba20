//! How long whatever arrives is let gather before the thread of the process wakes up for it.
//!
//! A rollout is thousands of small messages, six watch events for each pod alone. To be woken for one costs more than all that is done with it: everything from
//! the socket to the engine begins with cold caches. Nothing here is in such a hurry; the shortest thing that is waited for is a pod.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// While a list arrives: its next page is asked for when this one was read.
const BRIEF: Duration = Duration::from_millis(5);

/// Otherwise. At 5 ms a replaced pod costs half as much again; at 50 ms a sixth less, but rollouts of pods that start within a second take four
/// percent longer.
const LONG: Duration = Duration::from_millis(30);

/// Tells the thread how long to sleep, from what the watches wait for.
#[derive(Clone, Debug, Default)]
pub struct WakeupBatching {
    /// Whether every list has arrived.
    settled: Arc<AtomicBool>,
}

impl WakeupBatching {
    /// Sleeps, with the thread; for `tokio::runtime::Builder::on_thread_park`.
    pub fn sleep(&self) {
        std::thread::sleep(self.time());
    }

    fn time(&self) -> Duration {
        if self.settled.load(Ordering::Relaxed) {
            LONG
        } else {
            BRIEF
        }
    }

    /// Whether every list that was asked for has arrived.
    pub(super) fn settle(&self, settled: bool) {
        self.settled.store(settled, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_on_its_way_is_not_kept_waiting() {
        let gathering = WakeupBatching::default();
        let thread = gathering.clone();
        assert_eq!(thread.time(), BRIEF);
        gathering.settle(true);
        assert_eq!(thread.time(), LONG);
        gathering.settle(false);
        assert_eq!(thread.time(), BRIEF);
    }
}
