//! Pauses between attempts that fail.

use std::time::Duration;

/// Pauses between attempts, which double; by default half a second at first, and at most ten.
#[derive(Debug)]
pub(super) struct Backoff {
    pause: Duration,
    longest: Duration,
}

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

impl Default for Backoff {
    fn default() -> Self {
        Self::between(FIRST_PAUSE, LONGEST_PAUSE)
    }
}

impl Backoff {
    pub(super) fn between(first: Duration, longest: Duration) -> Self {
        Self {
            pause: first,
            longest,
        }
    }

    pub(super) fn pause(&mut self) -> Duration {
        let next = (self.pause * 2).min(self.longest);
        std::mem::replace(&mut self.pause, next)
    }
}

impl Iterator for Backoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(self.pause())
    }
}
