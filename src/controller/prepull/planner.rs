//! Next steps for all desired pulls. The steps are a pure function of desired pulls, Jobs and time.
//!
//! ```text
//! desired pull without Job ─► Create ─► Job ─► status ─┬─► in progress, or a problem for a while
//!                                                      └─► result ─► Report ─► Delete
//! Job without desired pull ─► Delete
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::jiff::Timestamp;

use super::job_store::{JobRef, JobStore, PullKey};
use super::slots::Slots;
use super::status::{Problem, PullStatus, status};
use super::{DesiredPulls, PullOutcome, PullRequest};
use crate::backoff;
use crate::core::instant::later;
use crate::core::names::PRE_PULL_DAEMONSET;
use crate::index::SetKey;

/// Shortest and longest pause after a failed step. The pause doubles with each failure.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Pause after a failed deletion of a Job.
const DELETE_RETRY: Duration = Duration::from_secs(5);

/// Time after which the Events of a Job without a pod are read, and the pause before they are read again.
const READ_EVENTS: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(20));

/// Step of a pull. It takes one or a few API requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PullStep {
    Create(PullRequest),
    /// Reads the reason why a Job has no pod, and writes the reason as the result of the pull.
    ExplainMissingPod(PullRequest, JobRef),
    Report(PullRequest, PullOutcome),
    Delete(JobRef),
}

impl PullStep {
    /// Returns the request that the step carries out; `None`: the step deletes a Job.
    pub(super) fn request(&self) -> Option<&PullRequest> {
        match self {
            Self::Create(request)
            | Self::ExplainMissingPod(request, _)
            | Self::Report(request, _) => Some(request),
            Self::Delete(_) => None,
        }
    }
}

/// Result of a step.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PullStepResult {
    Created(Box<Job>),
    /// The Events contain no reason for the missing pod.
    Unexplained,
    /// The pod's condition has the result or no longer requests this pull, or the Job is deleted.
    Done,
    /// The step failed and will be repeated.
    Retry,
}

/// Desired pull and its progress.
#[derive(Debug)]
struct PullState {
    request: PullRequest,
    /// True if the pull is desired. An entry that is no longer desired stays only until its step in progress ends.
    desired: bool,
    /// Position in the queue.
    number: u64,
    busy: bool,
    /// Number of consecutive failed steps.
    failures: u32,
    /// Time before which no step starts.
    not_before: Option<Timestamp>,
    /// Current problem, with the time at which it started. The statuses of Job and pod don't suffice: they also count the time in
    /// which the node was offline, which must not count here.
    problem: Option<(Problem, Timestamp)>,
}

impl PullState {
    fn new(request: PullRequest, number: u64) -> Self {
        Self {
            request,
            desired: true,
            number,
            busy: false,
            failures: 0,
            not_before: None,
            problem: None,
        }
    }

    fn on_result(&mut self, result: &PullStepResult, now: Timestamp) {
        self.busy = false;
        if *result == PullStepResult::Retry {
            self.failures = self.failures.saturating_add(1);
            self.not_before = Some(later(now, backoff::pause(RETRY.0, self.failures, RETRY.1)));
            return;
        }
        self.failures = 0;
        self.not_before = match result {
            PullStepResult::Unexplained => Some(later(now, READ_EVENTS.1)),
            // Usually the cache shows the result before this pause ends. If it doesn't, the step `Create` reads the pod from the
            // API server and finds the result.
            PullStepResult::Done => Some(later(now, RETRY.0)),
            PullStepResult::Created(_) | PullStepResult::Retry => None,
        };
        if *result == PullStepResult::Done {
            self.problem = None;
        }
    }

    /// Returns the time since which the pull has had this problem.
    fn since(&mut self, problem: Problem, now: Timestamp) -> Timestamp {
        match self.problem {
            Some((known, since)) if known == problem => since,
            _ => self.problem.insert((problem, now)).1,
        }
    }
}

/// Desired pulls, with their progress.
#[derive(Debug, Default)]
pub(super) struct Planner {
    pulls: BTreeMap<PullKey, PullState>,
    /// DaemonSets whose desired pulls are known. After a restart of the controller, Jobs of unknown DaemonSets are kept.
    known: BTreeSet<SetKey>,
    count: u64,
    /// UIDs of Jobs whose deletion is in progress.
    deleting: BTreeSet<String>,
    /// Time before which no Job is deleted, because a deletion failed.
    delete_after: Option<Timestamp>,
    /// Reason why Jobs cannot be watched; `None`: they can be.
    denied: Option<String>,
}

impl Planner {
    pub(super) fn set_desired(&mut self, all: &DesiredPulls) {
        self.known = all.keys().cloned().collect();
        for pull in self.pulls.values_mut() {
            pull.desired = false;
        }
        for request in all.values().flatten() {
            self.count += 1;
            let (request, number) = (request.clone(), self.count);
            self.pulls
                .entry(request.pull_key())
                .and_modify(|pull| {
                    pull.request = request.clone();
                    pull.desired = true;
                })
                .or_insert_with(|| PullState::new(request, number));
        }
        self.pulls.retain(|_, pull| pull.desired || pull.busy);
    }

    /// Returns true if there is no desired pull and no step of one in progress.
    pub(super) fn is_idle(&self) -> bool {
        self.pulls.is_empty()
    }

    /// Sets the reason why Jobs cannot be watched; `None`: they can be watched.
    pub(super) fn deny(&mut self, why: Option<String>) {
        self.denied = why;
    }

    /// Returns the next steps, and the time of the next call.
    pub(super) fn next(
        &mut self,
        job_store: &JobStore,
        now: Timestamp,
    ) -> (Vec<PullStep>, Option<Timestamp>) {
        let mut pass = PlanningPass {
            now,
            job_store,
            jobs: job_store.unreported().collect(),
            steps: Vec::new(),
            wake: None,
            slots: Slots::default(),
            queue: BTreeMap::new(),
        };
        for pull in self.pulls.values_mut().filter(|pull| pull.desired) {
            pass.advance(pull);
        }
        pass.create(self.denied.as_deref());
        pass.delete(self);
        for step in &pass.steps {
            match step {
                PullStep::Delete(job) => drop(self.deleting.insert(job.uid.clone())),
                step => {
                    let key = step.request().map(PullRequest::pull_key);
                    if let Some(pull) = key.and_then(|key| self.pulls.get_mut(&key)) {
                        pull.busy = true;
                    }
                }
            }
        }
        (pass.steps, pass.wake)
    }

    /// Applies the result of a step. The store must already contain the Job that the step created.
    pub(super) fn on_result(&mut self, step: &PullStep, result: &PullStepResult, now: Timestamp) {
        if let PullStep::Delete(job) = step {
            self.deleting.remove(&job.uid);
            if *result == PullStepResult::Retry {
                self.delete_after = Some(later(now, DELETE_RETRY));
            }
        }
        let Some(key) = step.request().map(PullRequest::pull_key) else {
            return;
        };
        if let Some(pull) = self.pulls.get_mut(&key) {
            pull.on_result(result, now);
            if !pull.desired {
                self.pulls.remove(&key);
            }
        }
    }

    /// Returns the number of desired pulls that have a Job without a written result.
    pub(super) fn running(&self, job_store: &JobStore) -> usize {
        let is_desired = |key: &PullKey| self.pulls.get(key).is_some_and(|pull| pull.desired);
        let jobs = job_store.unreported();
        jobs.filter(|(key, _)| is_desired(key)).count()
    }
}

/// One pass over all desired pulls and all Jobs.
struct PlanningPass<'a> {
    now: Timestamp,
    job_store: &'a JobStore,
    /// Jobs whose result was not written yet.
    jobs: BTreeMap<PullKey, &'a Job>,
    steps: Vec<PullStep>,
    wake: Option<Timestamp>,
    slots: Slots,
    /// Desired pulls that may get a Job, by their position in the queue.
    queue: BTreeMap<u64, PullRequest>,
}

impl PlanningPass<'_> {
    fn wake(&mut self, at: Timestamp) {
        self.wake = self.wake.into_iter().chain([at]).min();
    }

    /// Continues a desired pull, whether or not it has a Job.
    fn advance(&mut self, pull: &mut PullState) {
        let job = self.jobs.get(&pull.request.pull_key()).copied();
        let may_start = pull.request.pull.may_start;
        if may_start && (job.is_some() || pull.busy) {
            self.slots.take(&pull.request.key);
        }
        if pull.busy || !pull.request.pull.may_report {
            return;
        }
        if let Some(until) = pull.not_before.filter(|until| *until > self.now) {
            return self.wake(until);
        }
        match job {
            Some(job) => self.follow(pull, job),
            None if may_start => drop(self.queue.insert(pull.number, pull.request.clone())),
            None => {}
        }
    }

    /// Continues a pull that has a Job.
    fn follow(&mut self, pull: &mut PullState, job: &Job) {
        let report = |pull: &PullState, outcome| PullStep::Report(pull.request.clone(), outcome);
        match status(job, self.job_store.pod_of(job)) {
            PullStatus::Pulled => self.steps.push(report(pull, PullOutcome::Pulled)),
            PullStatus::Failed(why) => self.steps.push(report(pull, PullOutcome::Failed(why))),
            PullStatus::Pulling => pull.problem = None,
            // The node is offline, so the last reported problem may be outdated. The problem's duration is counted from the node's
            // return.
            PullStatus::BackingOff
            | PullStatus::Problem(
                Problem::AttemptFailed | Problem::NotStarting | Problem::NoPod,
                _,
            ) if !pull.request.pull.may_start => pull.problem = None,
            PullStatus::BackingOff => drop(pull.since(Problem::AttemptFailed, self.now)),
            PullStatus::Problem(problem, why) => {
                let since = pull.since(problem, self.now);
                let until = later(since, problem.patience());
                let explain = later(since, READ_EVENTS.0);
                if until <= self.now {
                    self.steps.push(report(pull, PullOutcome::Failed(why)));
                } else if problem != Problem::NoPod {
                    self.wake(until);
                } else if explain <= self.now {
                    let job = JobRef::from_job(job);
                    self.steps
                        .push(PullStep::ExplainMissingPod(pull.request.clone(), job));
                } else {
                    self.wake(explain);
                }
            }
        }
    }

    /// Creates Jobs for as many queued pulls as there are free slots.
    fn create(&mut self, denied: Option<&str>) {
        let queue: Vec<PullRequest> = std::mem::take(&mut self.queue).into_values().collect();
        if let Some(why) = denied {
            let report = |request| PullStep::Report(request, PullOutcome::Failed(why.to_owned()));
            self.steps.extend(queue.into_iter().map(report));
        } else if self.job_store.is_complete() {
            let keys: Vec<&SetKey> = queue.iter().map(|request| &request.key).collect();
            let started = self.slots.fill(&keys).into_iter();
            let create = |position: usize| PullStep::Create(queue[position].clone());
            self.steps.extend(started.map(create));
        }
    }

    /// Deletes Jobs whose result was written, and Jobs that are no longer desired.
    fn delete(&mut self, planner: &Planner) {
        if let Some(until) = planner.delete_after.filter(|until| *until > self.now) {
            return self.wake(until);
        }
        let spent = self.job_store.jobs().filter(|(key, job)| {
            let uid = job.metadata.uid.as_deref().unwrap_or_default();
            let is_leaving =
                job.metadata.deletion_timestamp.is_some() || planner.deleting.contains(uid);
            let is_abandoned = || {
                !planner.pulls.contains_key(key) && planner.known.iter().any(|set| is_of(job, set))
            };
            !is_leaving && (self.job_store.is_reported(job) || is_abandoned())
        });
        let spent: BTreeSet<(PullKey, JobRef)> = spent
            .map(|(key, job)| (key, JobRef::from_job(job)))
            .collect();
        let steps = spent.into_iter().map(|(_, job)| PullStep::Delete(job));
        self.steps.extend(steps);
    }
}

/// Returns true if the Job was created for this DaemonSet.
fn is_of(job: &Job, key: &SetKey) -> bool {
    let annotations = job.metadata.annotations.as_ref();
    let name = annotations.and_then(|all| all.get(PRE_PULL_DAEMONSET));
    job.metadata.namespace.as_deref() == Some(&*key.namespace)
        && name.map(String::as_str) == Some(&*key.name)
}

#[cfg(test)]
mod tests;
