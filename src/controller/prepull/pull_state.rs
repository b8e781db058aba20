//! State of one desired pull: place in the queue, failures, result, and duration of a problem.

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::PullOutcome;
use super::judge::PullProblem;
use super::request::{PullRequest, PullStepResult};
use crate::index::UNSEEN;

/// Failed attempts after which a registry counts as unavailable.
///
/// An attempt that hangs looks like a slow download, and the status continues to show the failure before it.
const ATTEMPTS: u32 = 3;

/// Pauses after a failure, doubling from the first value to the second.
pub(super) const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// State of a desired pull while it lasts.
#[derive(Debug, Default)]
pub(super) struct PullState {
    /// Place in the queue.
    pub(super) number: u64,
    /// True while a step is in progress.
    pub(super) busy: bool,
    /// Consecutive failures. Nothing is tried before `not_before` because of them.
    pub(super) failures: u32,
    pub(super) not_before: Option<Timestamp>,
    /// Result that is known from other sources than the Job.
    pub(super) ended: Option<PullOutcome>,
    /// Version of the pod after the result was written, and the time of the write. The cache may not show it yet.
    ///
    /// It is not among the other pending writes (`index`), because the puller only knows the desired pulls and the version after
    /// its write.
    pub(super) written: Option<(Option<u64>, Timestamp)>,
    pub(super) problem: Option<LastingProblem>,
}

/// Problem of a pull, with its duration and number of attempts.
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

    /// Returns until when a request counts as answered although the cache doesn't show it yet; `None`: it is not answered.
    pub(super) fn answered(&self, request: &PullRequest, now: Timestamp) -> Option<Timestamp> {
        let (version, at) = self.written?;
        let seen: Option<u64> = request.pull.pod.resource_version.to_string().parse().ok();
        match version.zip(seen) {
            Some((written, seen)) => (seen <= written).then_some(Timestamp::MAX),
            None => Some(after(at, UNSEEN)).filter(|until| *until > now),
        }
    }

    /// Records a problem. Returns whether it has lasted too long, or when that will be.
    pub(super) fn note_problem(&mut self, problem: PullProblem, now: Timestamp) -> Lasting {
        let first = |problem| LastingProblem {
            problem,
            since: now,
            // A backoff at first sight means that an attempt failed before.
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

/// Duration of a problem compared with its limit.
pub(super) enum Lasting {
    Until(Timestamp),
    UntilItChanges,
    TooLong,
}

/// Returns the time after a pause.
pub(super) fn after(at: Timestamp, pause: Duration) -> Timestamp {
    let pause = SignedDuration::try_from(pause).unwrap_or(SignedDuration::MAX);
    at.checked_add(pause).unwrap_or(Timestamp::MAX)
}
