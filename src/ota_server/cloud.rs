//! Whether the cloud answers: told by whoever calls it, asked before anything that needs it.
//!
//! There is no probe of its own. The watch and the calls of owners tell all there is to know, and a cloud that is lost is
//! noticed again by the first of them that is answered.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::k8s::client::{CallError, Failure};

/// How long an API server that asks for fewer requests and does not say for how long is left alone.
const THROTTLED: Duration = Duration::from_secs(1);
/// The longest that is believed of such a wish.
const THROTTLED_AT_MOST: Duration = Duration::from_secs(30);

/// The least time between two requests by which the agent finds out whether the API server is there: lists and watches, and
/// the look of an owner's call for a cloud that is lost. Owners may ask by programs, on every node of a fleet at once.
pub(super) const SPACING: Duration = Duration::from_secs(5);

/// The connection to the API server as it was seen last. Cheap to clone; all clones are one.
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
    /// When it was last looked for.
    sought: Option<Instant>,
}

impl Cloud {
    /// Anything answered, be it with a refusal.
    pub(super) fn found(&self) {
        if std::mem::take(&mut self.state().lost) {
            self.0.returned.notify_waiters();
        }
    }

    /// Waits until a cloud that is lost is found again.
    pub(super) async fn returned(&self) {
        self.0.returned.notified().await;
    }

    /// Whether a lost cloud may be looked for now, which is noted then: not again and again for everybody who asks.
    pub(super) fn may_be_sought(&self) -> bool {
        let (now, mut state) = (Instant::now(), self.state());
        let may = state.sought.is_none_or(|last| now >= last + SPACING);
        if may {
            state.sought = Some(now);
        }
        may
    }

    /// A call or the watch got no answer.
    pub(super) fn lost(&self) {
        self.state().lost = true;
    }

    /// Whether the last that was heard is that nothing is heard.
    pub(super) fn is_lost(&self) -> bool {
        self.state().lost
    }

    /// Whether the API server asked to be left alone, and that time is not over.
    pub(super) fn is_throttled(&self) -> bool {
        let until = self.state().throttled;
        until.is_some_and(|until| Instant::now() < until)
    }

    /// Notes how a call ended.
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

/// Whether no API server answered: nothing came, or only a gateway's word that there is none.
pub(super) fn is_silent(error: &CallError) -> bool {
    match error {
        CallError::Kube(kube::Error::Api(status)) => matches!(status.code, 502..=504),
        CallError::Kube(kube::Error::SerdeError(_) | kube::Error::FromUtf8(_)) => false,
        error => error.failure() == Failure::Unreachable,
    }
}

/// How long to wait before the next call.
fn pause(error: &CallError) -> Duration {
    asked_pause(error).map_or(THROTTLED, |asked| asked.min(THROTTLED_AT_MOST))
}

/// How long the API server asks to be left alone; `None` when it says nothing of that.
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
    fn a_refusal_is_an_answer_and_a_gateway_is_none() {
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
    async fn a_server_that_asks_for_fewer_requests_is_left_alone_for_that_long() {
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
