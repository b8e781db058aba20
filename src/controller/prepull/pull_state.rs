//! State of one desired pull: position in the queue, failures, result, and current problem.

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::PullOutcome;
use super::judge::PullProblem;
use super::request::{PullRequest, PullStepResult};
use crate::index::UNSEEN;

/// Number of failed attempts after which a registry counts as unavailable.
///
/// One attempt is not enough: an attempt that hangs looks like a slow download, while the status still shows the previous
/// failure.
const ATTEMPTS: u32 = 3;

/// Shortest and longest pause after a failure. The pause doubles with each failure.
pub(super) const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// State of a pull as long as it is desired.
#[derive(Debug, Default)]
pub(super) struct PullState {
    /// Position in the queue.
    pub(super) number: u64,
    /// True while a step is in progress.
    pub(super) busy: bool,
    /// Number of consecutive failures. Because of them, nothing is tried before `not_before`.
    pub(super) failures: u32,
    pub(super) not_before: Option<Timestamp>,
    /// Result that doesn't come from the Job, such as a rejection of the Job. It is not written yet.
    pub(super) ended: Option<PullOutcome>,
    /// Version of the pod after the result was written, and the time of the write. The cache may not show the write yet.
    ///
    /// The index doesn't track this write, because the puller knows only the desired pulls and the version after its own write.
    pub(super) written: Option<(Option<u64>, Timestamp)>,
    pub(super) problem: Option<LastingProblem>,
}

/// Problem of a pull, with its start and the number of attempts.
#[derive(Debug)]
pub(super) struct LastingProblem {
    pub(super) problem: PullProblem,
    pub(super) since: Timestamp,
    pub(super) attempts: u32,
    pub(super) looks: usize,
}

impl PullState {
    /// Applies the result of a step.
    pub(super) fn take(&mut self, answer: PullStepResult, now: Timestamp) {
        self.busy = false;
        match answer {
            PullStepResult::Failed => {
                let pause = RETRY
                    .0
                    .saturating_mul(1 << self.failures.min(10))
                    .min(RETRY.1);
                self.failures += 1;
                self.not_before = Some(after(now, pause));
                return;
            }
            PullStepResult::Begun(_) => {}
            PullStepResult::Ended(outcome) => self.ended = Some(outcome),
            PullStepResult::Looked(Some(why)) => self.ended = Some(PullOutcome::Failed(why)),
            PullStepResult::Looked(None) => {}
            PullStepResult::Told(version) => {
                self.written = Some((version, now));
                self.ended = None;
                self.problem = None;
            }
        }
        self.failures = 0;
        self.not_before = None;
    }

    /// Returns until when a request counts as answered, although the cache may not show the result yet; `None`: not answered.
    pub(super) fn answered(&self, request: &PullRequest, now: Timestamp) -> Option<Timestamp> {
        let (version, at) = self.written?;
        let seen: Option<u64> = request.pull.pod.resource_version.to_string().parse().ok();
        match version.zip(seen) {
            Some((written, seen)) => (seen <= written).then_some(Timestamp::MAX),
            None => Some(after(at, UNSEEN)).filter(|until| *until > now),
        }
    }

    /// Records the present problem. Returns whether it has lasted too long, or when it will have.
    pub(super) fn note_problem(&mut self, problem: PullProblem, now: Timestamp) -> Lasting {
        let first = |problem| LastingProblem {
            problem,
            since: now,
            // Even if the first observed state is a back-off, it means that one attempt has failed.
            attempts: 1,
            looks: 0,
        };
        let known = self.problem.get_or_insert_with(|| first(problem));
        if !known.problem.is_like(problem) {
            *known = first(problem);
        }
        if let (
            PullProblem::Failing { backs_off: true },
            PullProblem::Failing { backs_off: false },
        ) = (known.problem, problem)
        {
            known.attempts += 1;
        }
        known.problem = problem;
        let until = after(known.since, problem.patience());
        match problem {
            _ if until > now => Lasting::Until(until),
            PullProblem::Failing { .. } if known.attempts < ATTEMPTS => Lasting::UntilItChanges,
            _ => Lasting::TooLong,
        }
    }
}

/// Duration of a problem, compared with its limit.
pub(super) enum Lasting {
    Until(Timestamp),
    UntilItChanges,
    TooLong,
}

/// Returns `at` plus `pause`.
pub(super) fn after(at: Timestamp, pause: Duration) -> Timestamp {
    let pause = SignedDuration::try_from(pause).unwrap_or(SignedDuration::MAX);
    at.checked_add(pause).unwrap_or(Timestamp::MAX)
}
