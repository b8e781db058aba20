//! Pauses between failed attempts. Each pause is twice as long as the previous one, up to a maximum.
//!
//! kube's backoff types don't fit: `ExponentialBackoff` can only be constructed inside kube, and `DefaultBackoff` has fixed
//! values.

use std::time::Duration;

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Returns the pause after `failures` consecutive failures: `first` after the first failure, then doubled with each failure up to
/// `longest`.
pub(crate) fn pause(first: Duration, failures: u32, longest: Duration) -> Duration {
    let doublings = failures.saturating_sub(1).min(20);
    first.saturating_mul(1 << doublings).min(longest)
}

/// Number of consecutive failures, with the pause that follows each of them. By default, the pauses grow from 0.5 s to 10 s.
#[derive(Debug)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::between(FIRST_PAUSE, LONGEST_PAUSE)
    }
}

impl Backoff {
    /// Creates a backoff whose pauses start with `first` and never exceed `longest`.
    pub(crate) fn between(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            failures: 0,
        }
    }

    /// Counts a failure and returns the pause before the next attempt.
    pub(crate) fn pause(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        pause(self.first, self.failures, self.longest)
    }
}

impl Iterator for Backoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(self.pause())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let pauses = Backoff::between(Duration::from_secs(1), Duration::from_secs(5));
        let seconds = pauses.take(5).map(|pause| pause.as_secs());
        assert_eq!(Vec::from_iter(seconds), [1, 2, 4, 5, 5]);
        let longest = Duration::from_secs(600);
        assert_eq!(pause(Duration::from_secs(10), u32::MAX, longest), longest);
        assert_eq!(pause(longest, 0, longest), longest);
    }
}
