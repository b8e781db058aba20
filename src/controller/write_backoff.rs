//! Backoff of writes while the API server doesn't respond or throttles requests.
//!
//! A write that is rejected for one pod has a separate backoff (`core::refusals`), which delays no other pod.

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::apply::WriteError;
use super::lease::Leadership;
use crate::backoff;
use crate::k8s::client::Failure;

/// Shortest and longest pause after failed writes. The pause doubles with each failure.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Number of consecutive failures, and the end of the pause after the last one.
#[derive(Default)]
pub(super) struct WriteBackoff {
    failures: u32,
    until: Option<Timestamp>,
    /// Deadline of this replica's leadership at the last failure.
    led: Option<Instant>,
    /// True if this replica renewed its Lease between the last two failures. So the API server accepted other writes meanwhile.
    lasting: bool,
}

impl WriteBackoff {
    /// Returns the end of the pause if it is after `now`.
    pub(super) fn holds(&self, now: Timestamp) -> Option<Timestamp> {
        self.until.filter(|until| *until > now)
    }

    /// Records the result of a write. Several failed writes of one batch count as one failure.
    pub(super) fn note(&mut self, result: &Result<(), WriteError>, now: Timestamp) {
        let failure = match result {
            Ok(()) => return *self = Self::default(),
            Err(refusal) => refusal.failure(),
        };
        match failure {
            None | Some(Failure::Gone | Failure::Conflict | Failure::Blocked) => {}
            Some(_) => self.slow_down(now),
        }
    }

    /// Returns true if writes keep failing although the API server works. The API server works if this replica renewed its Lease
    /// since the previous failure.
    ///
    /// Must be called before each failure is recorded.
    pub(super) fn is_lasting(&mut self, leadership: &Leadership, now: Timestamp) -> bool {
        if self.holds(now).is_none() {
            let led = match leadership {
                Leadership::Leader { until, .. } => Some(*until),
                Leadership::Standby | Leadership::Alone => None,
            };
            self.lasting = self.failures > 0 && (led > self.led || led.is_none());
            self.led = led;
        }
        self.lasting
    }

    /// Records a failure, unless a failure of the same batch was recorded already.
    pub(super) fn slow_down(&mut self, now: Timestamp) {
        if self.holds(now).is_none() {
            self.failures = self.failures.saturating_add(1);
            let pause = backoff::pause(RETRY.0, self.failures, RETRY.1);
            let pause = SignedDuration::try_from(pause).unwrap_or_default();
            self.until = now.checked_add(pause).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::controller::lease::WallDeadline;

    #[test]
    fn write_failures_are_lasting_only_across_a_lease_renewal() {
        let mut backoff = WriteBackoff::default();
        let start = Instant::now();
        let mut fail = |second: i64, led: u64| {
            let until = start + Duration::from_secs(led);
            let now = Timestamp::from_second(second).expect("an instant");
            let wall = WallDeadline::after(&Clock::System, Duration::ZERO);
            let lasting = backoff.is_lasting(&Leadership::Leader { until, wall }, now);
            backoff.slow_down(now);
            lasting
        };
        assert!(!fail(100, 10), "the first one");
        assert!(!fail(100, 10), "of the same batch");
        assert!(!fail(102, 10), "the Lease fails, too");
        assert!(fail(105, 14), "the Lease was renewed");
        assert!(fail(105, 14), "of the same batch");
        assert!(!fail(110, 14), "not any more");
    }
}
