//! How writes slow down while the API server is not well: it does not answer, or wants fewer requests. What it refuses for
//! one pod holds up nobody else (`core::refusals`).

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::apply::Refusal;
use crate::client::Failure;

/// Pauses after a write that failed: doubling from the first to the second.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Failures in a row, and until when nothing more is sent because of them.
#[derive(Default)]
pub(super) struct Restraint {
    failures: u32,
    until: Option<Timestamp>,
}

impl Restraint {
    /// Until when to wait, if so.
    pub(super) fn holds(&self, now: Timestamp) -> Option<Timestamp> {
        self.until.filter(|until| *until > now)
    }

    /// Many writes of one batch may fail at once: that is one failure.
    pub(super) fn note(&mut self, result: &Result<(), Refusal>, now: Timestamp) {
        let failure = match result {
            Ok(()) => return *self = Self::default(),
            Err(refusal) => refusal.failure(),
        };
        match failure {
            None | Some(Failure::Gone | Failure::Conflict | Failure::Blocked) => {}
            Some(_) => self.slow_down(now),
        }
    }

    /// One more failure, unless it belongs to a batch of which one failed already.
    pub(super) fn slow_down(&mut self, now: Timestamp) {
        if self.holds(now).is_none() {
            let pause = RETRY.0.saturating_mul(1 << self.failures.min(10));
            let pause = SignedDuration::try_from(pause.min(RETRY.1)).unwrap_or_default();
            self.failures += 1;
            self.until = now.checked_add(pause).ok();
        }
    }
}
