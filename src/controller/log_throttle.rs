//! Rate-limited log of failed API calls. The log remains short while the API server is unavailable.
//!
//! A cause is logged at once, then at most every half minute with the number of failures, and once more when it ends. An
//! unavailable API server is one cause for all callers. Any other failure is one cause per resource.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tracing::{info, warn};

use crate::k8s::client::Failure;

/// Minimum time between two log lines about the same cause.
const SILENCE: Duration = Duration::from_secs(30);

/// Rate-limited log, shared by all callers that repeat failed calls. Clones share the same state.
#[derive(Clone, Debug, Default)]
pub struct LogThrottle(Arc<Mutex<BTreeMap<Cause, CauseState>>>);

/// Cause of failures, which is logged once for all calls that it affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    /// The API server doesn't respond.
    NoAnswer,
    /// The API server responds, but calls for this resource fail.
    Resource(&'static str),
}

impl Cause {
    fn new(resource: &'static str, failure: Failure) -> Self {
        match failure {
            Failure::Unreachable => Self::NoAnswer,
            _ => Self::Resource(resource),
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct CauseState {
    /// Time since which calls have failed; `None`: they succeed.
    since: Option<Instant>,
    /// Time of the last log line.
    last_logged: Option<Instant>,
    /// True if the cause was logged since it began.
    is_logged: bool,
    /// Number of failures since the last log line.
    failures: u64,
}

impl LogThrottle {
    /// Logs a failed call that will be repeated, unless its cause was logged recently.
    pub fn failed(&self, resource: &'static str, failure: Failure, error: &str) {
        if let Some(failures) = self.note_failed(resource, failure) {
            warn!(resource, failures, %error, "An API call failed; retrying");
        }
    }

    /// Records that a call succeeded. If its failure was logged, also logs that the failure has ended.
    pub fn answered(&self, resource: &'static str) {
        for (cause, lasted) in self.note_answered(resource) {
            let seconds = lasted.as_secs();
            match cause {
                Cause::NoAnswer => info!(seconds, "The API server responds again"),
                Cause::Resource(resource) => info!(resource, seconds, "API calls succeed again"),
            }
        }
    }

    /// Returns the number of failures to log now; `None`: log nothing.
    fn note_failed(&self, resource: &'static str, failure: Failure) -> Option<u64> {
        let now = Instant::now();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let state = all.entry(Cause::new(resource, failure)).or_default();
        state.since.get_or_insert(now);
        state.failures += 1;
        if state.last_logged.is_some_and(|last| now < last + SILENCE) {
            return None;
        }
        state.last_logged = Some(now);
        state.is_logged = true;
        Some(std::mem::take(&mut state.failures))
    }

    /// Returns the logged causes that have ended, each with its duration.
    fn note_answered(&self, resource: &'static str) -> Vec<(Cause, Duration)> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut over = Vec::new();
        for cause in [Cause::NoAnswer, Cause::Resource(resource)] {
            let Some(state) = all.get_mut(&cause) else {
                continue;
            };
            let since = state.since.take();
            if std::mem::take(&mut state.is_logged) {
                over.extend(since.map(|since| (cause, since.elapsed())));
            }
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three watches retry every half second for two minutes, as once seen in the controller's log.
    #[tokio::test(start_paused = true)]
    async fn an_unreachable_api_server_is_logged_at_most_every_30_seconds() {
        let log_throttle = LogThrottle::default();
        let mut logged = Vec::new();
        let began = Instant::now();
        for _ in 0..240 {
            for resource in ["daemonsets", "controllerrevisions", "lease"] {
                let news = log_throttle.note_failed(resource, Failure::Unreachable);
                logged.extend(news.map(|failures| (began.elapsed().as_secs(), failures)));
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        assert_eq!(logged, [(0, 1), (30, 180), (60, 180), (90, 180)]);
        let over = log_throttle.note_answered("lease");
        assert_eq!(over, [(Cause::NoAnswer, Duration::from_secs(120))]);
        assert_eq!(log_throttle.note_answered("daemonsets"), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_flapping_connection_is_logged_as_rarely_as_a_lost_one() {
        let log_throttle = LogThrottle::default();
        let mut lines = 0;
        for _ in 0..120 {
            let news = log_throttle.note_failed("nodes", Failure::Unreachable);
            lines += usize::from(news.is_some());
            lines += log_throttle.note_answered("nodes").len();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(lines, 8);
    }

    #[tokio::test(start_paused = true)]
    async fn forbidden_requests_are_logged_per_resource_and_end_per_resource() {
        let log_throttle = LogThrottle::default();
        let tell = |resource| log_throttle.note_failed(resource, Failure::Forbidden);
        assert_eq!((tell("nodes"), tell("pods")), (Some(1), Some(1)));
        assert_eq!((tell("nodes"), tell("pods")), (None, None));
        let over = log_throttle.note_answered("pods");
        assert_eq!(over, [(Cause::Resource("pods"), Duration::ZERO)]);
        tokio::time::sleep(SILENCE).await;
        assert_eq!(tell("nodes"), Some(2));
    }
}
