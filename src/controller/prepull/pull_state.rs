//! What is remembered of one desired pull: its place in the queue, what failed, how it ended, and since when it looks bad.

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::PullOutcome;
use super::judge::PullProblem;
use super::request::{PullRequest, PullStepResult};
use crate::index::UNSEEN;

/// Attempts that have to fail before a registry counts as dead. An attempt that hangs is a slow download as far as
/// anybody can tell, and the status goes on showing the failure before it.
const ATTEMPTS: u32 = 3;

/// Pauses after something that failed: doubling from the first to the second.
pub(super) const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// What is remembered of a desired pull while it lasts.
#[derive(Debug, Default)]
pub(super) struct PullState {
    /// Its place in the queue.
    pub(super) number: u64,
    /// A step is under way.
    pub(super) busy: bool,
    /// Failures in a row, and until when nothing is tried because of them.
    pub(super) failures: u32,
    pub(super) not_before: Option<Timestamp>,
    /// How it ended, known without a Job or beside it.
    pub(super) ended: Option<PullOutcome>,
    /// The result was written, and may not show yet: version of the pod after that, and when. Not with the other pending writes
    /// (`index`), because whoever pulls knows of pods only what is asked of them, and to which version the write led.
    pub(super) written: Option<(Option<u64>, Timestamp)>,
    pub(super) problem: Option<LastingProblem>,
}

/// Since when a pull looks bad, and how often.
#[derive(Debug)]
pub(super) struct LastingProblem {
    pub(super) problem: PullProblem,
    pub(super) since: Timestamp,
    pub(super) attempts: u32,
    pub(super) looks: usize,
}

impl PullState {
    /// Takes in what came of a step.
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

    /// Whether this very request has been answered, and the view does not show it yet; until when that may be so.
    pub(super) fn answered(&self, request: &PullRequest, now: Timestamp) -> Option<Timestamp> {
        let (version, at) = self.written?;
        let seen: Option<u64> = request.pull.pod.resource_version.to_string().parse().ok();
        match version.zip(seen) {
            Some((written, seen)) => (seen <= written).then_some(Timestamp::MAX),
            None => Some(after(at, UNSEEN)).filter(|until| *until > now),
        }
    }

    /// Remembers how it looks; says whether that has lasted too long, or when that will be.
    pub(super) fn note_problem(&mut self, problem: PullProblem, now: Timestamp) -> Lasting {
        let first = |problem| LastingProblem {
            problem,
            since: now,
            // Backing off at first sight means that an attempt failed unseen.
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

/// Whether a problem has lasted too long.
pub(super) enum Lasting {
    Until(Timestamp),
    UntilItChanges,
    TooLong,
}

/// So much later.
pub(super) fn after(at: Timestamp, pause: Duration) -> Timestamp {
    let pause = SignedDuration::try_from(pause).unwrap_or(SignedDuration::MAX);
    at.checked_add(pause).unwrap_or(Timestamp::MAX)
}
