//! Batching of wake-ups: the thread of the process sleeps for a short time, in which messages accumulate.
//!
//! A rollout consists of thousands of small messages, with six watch events for each pod. Waking up costs more than handling one
//! message, because all code from the socket to the engine runs with cold CPU caches. No message is urgent, because replacing a pod
//! takes much longer than the sleep.
//!
//! The whole thread sleeps, not only the event loop. Each connection to the API server also wakes the thread for each message, and
//! a timer in the event loop doesn't prevent that. With such a timer, each replaced pod took 1.7 times the CPU time (200 nodes,
//! replaced by deletion, 10 % at a time).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Pause while a list arrives. It is short because each page is requested only after the previous page was read.
const BRIEF: Duration = Duration::from_millis(5);

/// Pause while no list arrives.
///
/// With 5 ms, each replaced pod costs 50% more CPU time. With 50 ms it costs a sixth less, but a rollout takes four percent
/// longer if its pods start within a second.
const LONG: Duration = Duration::from_millis(30);

/// Sleeps of the process's thread, in which messages accumulate. Their duration depends on whether lists are arriving.
#[derive(Clone, Debug, Default)]
pub struct WakeupBatching {
    /// True if all requested lists have arrived.
    settled: Arc<AtomicBool>,
}

impl WakeupBatching {
    /// Puts the thread to sleep. Intended for `tokio::runtime::Builder::on_thread_park`.
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

    /// Sets whether all requested lists have arrived.
    pub(super) fn settle(&self, settled: bool) {
        self.settled.store(settled, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batching_is_brief_while_lists_are_incomplete() {
        let gathering = WakeupBatching::default();
        let thread = gathering.clone();
        assert_eq!(thread.time(), BRIEF);
        gathering.settle(true);
        assert_eq!(thread.time(), LONG);
        gathering.settle(false);
        assert_eq!(thread.time(), BRIEF);
    }
}
