//! Pauses between attempts that fail: each is twice as long as the one before, up to a longest.
//!
//! Not kube's: its `ExponentialBackoff` is made within kube only, and `DefaultBackoff` has its own pauses.

use std::time::Duration;

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The pause after that many failures in a row; after the first one it is `first`.
pub(crate) fn pause(first: Duration, failures: u32, longest: Duration) -> Duration {
    let doublings = failures.saturating_sub(1).min(20);
    first.saturating_mul(1 << doublings).min(longest)
}

/// The pauses, one after the other; by default half a second at first, and at most ten.
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
    /// From the first pause to the longest.
    pub(crate) fn between(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            failures: 0,
        }
    }

    /// How long to wait now, after one more failure.
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
