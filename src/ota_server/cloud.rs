//! State of the connection to the API server. Each caller of the API server reports its results here, and checks the state before
//! it sends a request.
//!
//! The agent doesn't check the connection regularly. After an outage, the watch or a node owner's call gets the first response, and
//! that response shows that the API server answers again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::k8s::client::{CallError, Failure};

/// Pause after the API server asked for fewer requests without naming a pause.
const THROTTLED: Duration = Duration::from_secs(1);
/// Maximum pause after the API server asked for fewer requests.
const THROTTLED_AT_MOST: Duration = Duration::from_secs(30);

/// Minimum time between two requests that show whether the API server answers: lists, watches, and node owners' calls during an
/// outage.
///
/// Programs may send such calls on all nodes of a fleet at the same time.
pub(super) const SPACING: Duration = Duration::from_secs(5);

/// Last known state of the connection to the API server (the cloud, in the words of OpenYurt). Cheap to clone: all clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Cloud(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<CloudState>,
    returned: Notify,
}

#[derive(Debug, Default)]
struct CloudState {
    lost: bool,
    throttled: Option<Instant>,
    /// Time of the last request that checked whether the API server answers again.
    sought: Option<Instant>,
}

impl Cloud {
    /// Records that the API server answered, even if with an error status.
    pub(super) fn found(&self) {
        if std::mem::take(&mut self.state().lost) {
            self.0.returned.notify_waiters();
        }
    }

    /// Waits until the API server answers again after an outage.
    pub(super) async fn returned(&self) {
        self.0.returned.notified().await;
    }

    /// Returns true if a request may check the connection during an outage, and counts that check. The limit applies to all callers
    /// together.
    pub(super) fn may_be_sought(&self) -> bool {
        let (now, mut state) = (Instant::now(), self.state());
        let may = state.sought.is_none_or(|last| now >= last + SPACING);
        if may {
            state.sought = Some(now);
        }
        may
    }

    /// Records that a call or the watch got no response.
    pub(super) fn lost(&self) {
        self.state().lost = true;
    }

    /// Returns true after a request got no response, until the API server answers again.
    pub(super) fn is_lost(&self) -> bool {
        self.state().lost
    }

    /// Returns true during a pause that the API server asked for.
    pub(super) fn is_throttled(&self) -> bool {
        let until = self.state().throttled;
        until.is_some_and(|until| Instant::now() < until)
    }

    /// Updates the state with the result of a call.
    pub(super) fn note<T>(&self, result: &Result<T, CallError>) {
        let Err(error) = result else {
            return self.found();
        };
        if is_silent(error) {
            return self.lost();
        }
        self.found();
        if error.failure() == Failure::Throttled {
            self.state().throttled = Some(Instant::now() + pause(error));
        }
    }

    fn state(&self) -> MutexGuard<'_, CloudState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns true if the API server did not answer: there was no response, or a gateway reported that it cannot reach the API server.
pub(super) fn is_silent(error: &CallError) -> bool {
    match error {
        CallError::Kube(kube::Error::Api(status)) => matches!(status.code, 502..=504),
        CallError::Kube(kube::Error::SerdeError(_) | kube::Error::FromUtf8(_)) => false,
        error => error.failure() == Failure::Unreachable,
    }
}

/// Returns the pause after a response in which the API server asked for fewer requests.
fn pause(error: &CallError) -> Duration {
    asked_pause(error).map_or(THROTTLED, |asked| asked.min(THROTTLED_AT_MOST))
}

/// Returns the pause that the API server asks for; `None` if it names none.
pub(super) fn asked_pause(error: &CallError) -> Option<Duration> {
    let CallError::Kube(kube::Error::Api(status)) = error else {
        return None;
    };
    let seconds = status.details.as_ref()?.retry_after_seconds;
    (seconds > 0).then(|| Duration::from_secs(seconds.into()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(code: u16, retry_after: u32) -> Result<(), CallError> {
        let status = json!({
            "status": "Failure",
            "code": code,
            "details": { "retryAfterSeconds": retry_after },
        });
        let status = serde_json::from_value(status).unwrap();
        Err(CallError::Kube(kube::Error::Api(status)))
    }

    #[test]
    fn a_rejection_keeps_the_cloud_connected_and_a_gateway_error_does_not() {
        let cloud = Cloud::default();
        assert!(!cloud.is_lost());
        for (code, lost) in [(503, true), (500, false), (504, true), (404, false)] {
            cloud.note(&answer(code, 0));
            assert_eq!(cloud.is_lost(), lost, "{code}");
        }
        cloud.note::<()>(&Err(CallError::TimedOut(THROTTLED)));
        assert!(cloud.is_lost());
        cloud.note(&Ok(()));
        assert!(!cloud.is_lost());
    }

    #[tokio::test(start_paused = true)]
    async fn a_throttling_server_gets_no_requests_for_the_requested_time() {
        for (asked, kept) in [(7, 7), (0, 1), (3600, 30)] {
            let cloud = Cloud::default();
            cloud.note(&answer(429, asked));
            assert!(!cloud.is_lost());
            tokio::time::advance(Duration::from_millis(kept * 1000 - 1)).await;
            assert!(cloud.is_throttled(), "{asked}");
            tokio::time::advance(Duration::from_millis(1)).await;
            assert!(!cloud.is_throttled(), "{asked}");
        }
    }
}
