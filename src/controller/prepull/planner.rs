//! Next steps for all desired pulls. They are a pure function of desired pulls, Jobs and time.
//!
//! ```text
//! desired pull without Job ─► Begin ─► Job ─► judge ─┬─► in progress, or a problem for a while
//!                                                    └─► result ─► Tell ─► Clear      Job without desired pull ─► Clear
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::jiff::Timestamp;

use super::job_store::{JobRef, JobStore, PullKey};
use super::judge::{PullJudgement, PullProblem, judge};
use super::pull_state::{Lasting, PullState, RETRY, after};
use super::request::{PullRequest, PullStep, PullStepResult};
use super::slots::Slots;
use super::{AllDesiredPulls, PullOutcome};
use crate::index::SetKey;

/// Ages of a Job without a pod at which its Events are read to find out why.
const EVENTS_AFTER: [Duration; 3] = [
    Duration::from_secs(5),
    Duration::from_secs(15),
    Duration::from_secs(60),
];

/// Desired pulls, with their states.
#[derive(Debug, Default)]
pub(super) struct Planner {
    requests: BTreeMap<PullKey, PullRequest>,
    states: BTreeMap<PullKey, PullState>,
    known: BTreeSet<SetKey>,
    count: u64,
    clearing: BTreeSet<String>,
    /// Time before which no Job is deleted, because a deletion failed.
    clear_after: Option<Timestamp>,
    /// UIDs of Jobs whose result was written. Removed when the Job is deleted.
    reported: BTreeSet<String>,
    /// Reason why Jobs cannot be watched; `None`: they can be.
    denied: Option<String>,
}

impl Planner {
    /// Sets the desired pulls.
    pub(super) fn set_desired(&mut self, all: &AllDesiredPulls) {
        self.known = all.keys().cloned().collect();
        self.requests.clear();
        for (key, desired) in all {
            for pull in &desired.pulls {
                let request = PullRequest::new(key, desired, pull);
                let pull_key = request.pull_key();
                self.requests.insert(pull_key.clone(), request);
                let count = &mut self.count;
                self.states.entry(pull_key).or_insert_with(|| {
                    *count += 1;
                    PullState {
                        number: *count,
                        ..PullState::default()
                    }
                });
            }
        }
        let requests = &self.requests;
        self.states
            .retain(|pull_key, state| state.busy || requests.contains_key(pull_key));
    }

    /// Returns true if there is no desired pull and no deletion of a Job in progress.
    pub(super) fn is_idle(&self) -> bool {
        self.requests.is_empty() && self.clearing.is_empty()
    }

    /// Sets the reason why Jobs cannot be watched; `None`: they can be watched.
    pub(super) fn deny(&mut self, why: Option<String>) {
        self.denied = why;
    }

    /// Forgets everything in progress, because this replica no longer leads.
    pub(super) fn forget(&mut self) {
        let requests = std::mem::take(&mut self.requests);
        *self = Self {
            requests,
            known: std::mem::take(&mut self.known),
            ..Self::default()
        };
        for pull_key in self.requests.keys() {
            self.count += 1;
            let number = self.count;
            let state = PullState {
                number,
                ..PullState::default()
            };
            self.states.insert(pull_key.clone(), state);
        }
    }

    /// Returns the next steps, and the time of the next call.
    pub(super) fn next(
        &mut self,
        job_store: &JobStore,
        now: Timestamp,
    ) -> (Vec<PullStep>, Option<Timestamp>) {
        let mut turn = PlanningPass::new(self, job_store, now);
        turn.go_on();
        turn.begin();
        turn.clear();
        let (steps, wake) = (turn.steps, turn.wake);
        for step in &steps {
            match step {
                PullStep::Begin(request)
                | PullStep::Look(request, _)
                | PullStep::Tell(request, ..) => {
                    self.states.entry(request.pull_key()).or_default().busy = true;
                }
                PullStep::Clear(job) => drop(self.clearing.insert(job.uid.clone())),
            }
        }
        (steps, wake)
    }

    /// Applies the result of a step. If a Job was created, it must be in the store already.
    pub(super) fn take(&mut self, step: &PullStep, answer: PullStepResult, now: Timestamp) {
        match step {
            PullStep::Clear(job) => {
                self.clearing.remove(&job.uid);
                if answer == PullStepResult::Failed {
                    self.clear_after = Some(after(now, RETRY.0 * 5));
                } else {
                    self.reported.remove(&job.uid);
                }
            }
            PullStep::Begin(request) | PullStep::Look(request, _) | PullStep::Tell(request, ..) => {
                if let (PullStep::Tell(_, _, Some(job)), PullStepResult::Told(_)) = (step, &answer)
                {
                    self.reported.insert(job.uid.clone());
                }
                let pull_key = request.pull_key();
                if let Some(state) = self.states.get_mut(&pull_key) {
                    state.take(answer, now);
                }
                if !self.requests.contains_key(&pull_key) {
                    self.states.remove(&pull_key);
                }
            }
        }
    }

    /// Returns the number of running pulls.
    pub(super) fn under_way(&self, job_store: &JobStore) -> usize {
        let jobs = job_store.jobs().filter(|(pull_key, job)| {
            let told = job
                .metadata
                .uid
                .as_ref()
                .is_some_and(|uid| self.reported.contains(uid));
            !told && self.requests.contains_key(pull_key)
        });
        jobs.count()
    }
}

/// One pass over all desired pulls and all Jobs.
struct PlanningPass<'a> {
    planner: &'a mut Planner,
    now: Timestamp,
    jobs: BTreeMap<PullKey, Vec<&'a Job>>,
    job_store: &'a JobStore,
    steps: Vec<PullStep>,
    wake: Option<Timestamp>,
    slots: Slots,
    /// Desired pulls that may get a Job, by their position in the queue.
    queue: BTreeMap<u64, PullRequest>,
}

impl<'a> PlanningPass<'a> {
    fn new(planner: &'a mut Planner, job_store: &'a JobStore, now: Timestamp) -> Self {
        let mut jobs: BTreeMap<PullKey, Vec<&Job>> = BTreeMap::new();
        for (pull_key, job) in job_store.jobs() {
            jobs.entry(pull_key).or_default().push(job);
        }
        Self {
            planner,
            now,
            jobs,
            job_store,
            steps: Vec::new(),
            wake: None,
            slots: Slots::default(),
            queue: BTreeMap::new(),
        }
    }

    fn wake(&mut self, at: Timestamp) {
        self.wake = self.wake.into_iter().chain([at]).min();
    }

    /// Continues every desired pull, whether or not it has a Job.
    fn go_on(&mut self) {
        let requests: Vec<PullRequest> = self.planner.requests.values().cloned().collect();
        for request in requests {
            self.look_at(request);
        }
    }

    fn look_at(&mut self, request: PullRequest) {
        let pull_key = request.pull_key();
        let now = self.now;
        let told = &self.planner.reported;
        let is_told = |job: &Job| {
            job.metadata
                .uid
                .as_ref()
                .is_some_and(|uid| told.contains(uid))
        };
        let jobs = self.jobs.get(&pull_key).into_iter().flatten();
        let job = jobs.copied().find(|job| !is_told(job));
        let state = self.planner.states.entry(pull_key).or_default();
        let answered = state.answered(&request, now);
        if let Some(until) = answered {
            if until < Timestamp::MAX {
                self.wake(until);
            }
            return;
        }
        if (job.is_some() || state.busy) && request.pull.may_start {
            self.slots.take(&request.key);
        }
        if state.busy || !request.pull.may_report {
            return;
        }
        if let Some(until) = state.not_before.filter(|until| *until > now) {
            return self.wake(until);
        }
        if let Some(outcome) = state.ended.clone() {
            return self
                .steps
                .push(PullStep::Tell(request, outcome, job.map(JobRef::from_job)));
        }
        match job {
            Some(job) => self.judge(request, job),
            None if !request.pull.may_start => {}
            None => drop(self.queue.insert(state.number, request)),
        }
    }

    fn judge(&mut self, request: PullRequest, job: &Job) {
        let now = self.now;
        let may_start = request.pull.may_start;
        let state = self.planner.states.entry(request.pull_key()).or_default();
        let tell = |outcome| PullStep::Tell(request.clone(), outcome, Some(JobRef::from_job(job)));
        match judge(job, self.job_store.pod_of(job)) {
            PullJudgement::Pulled => self.steps.push(tell(PullOutcome::Pulled)),
            PullJudgement::Failed(why) => self.steps.push(tell(PullOutcome::Failed(why))),
            PullJudgement::Pulling => state.problem = None,
            // The node is offline (`!may_start`), so the last reported problem may be outdated. Start counting its duration again.
            PullJudgement::Problem(problem, _) if !may_start && problem != PullProblem::Ended => {
                state.problem = None
            }
            PullJudgement::Problem(problem, why) => match state.note_problem(problem, now) {
                Lasting::TooLong => self.steps.push(tell(PullOutcome::Failed(why))),
                Lasting::UntilItChanges => {}
                Lasting::Until(until) => {
                    let look = state
                        .problem
                        .as_mut()
                        .filter(|_| problem == PullProblem::NoPod);
                    let due = look.and_then(|known| {
                        let due = after(known.since, *EVENTS_AFTER.get(known.looks)?);
                        known.looks += usize::from(due <= now);
                        Some(due)
                    });
                    match due {
                        Some(due) if due <= now => {
                            self.steps
                                .push(PullStep::Look(request, JobRef::from_job(job)));
                        }
                        due => self.wake(due.map_or(until, |due| due.min(until))),
                    }
                }
            },
        }
    }

    /// Starts as many queued pulls as there are free slots.
    fn begin(&mut self) {
        let denied = self.planner.denied.clone();
        if denied.is_none() && !self.job_store.is_complete() {
            return;
        }
        let queue: Vec<PullRequest> = std::mem::take(&mut self.queue).into_values().collect();
        if let Some(why) = denied {
            let tell = |request| {
                let outcome = PullOutcome::Failed(why.clone());
                PullStep::Tell(request, outcome, None)
            };
            self.steps.extend(queue.into_iter().map(tell));
            return;
        }
        let keys: Vec<&SetKey> = queue.iter().map(|request| &request.key).collect();
        let begun = self.slots.fill(&keys).into_iter();
        let begin = |position: usize| PullStep::Begin(queue[position].clone());
        self.steps.extend(begun.map(begin));
    }

    /// Deletes Jobs whose result was written, and Jobs that are no longer desired.
    fn clear(&mut self) {
        if let Some(until) = self.planner.clear_after.filter(|until| *until > self.now) {
            return self.wake(until);
        }
        self.planner.clear_after = None;
        let planner = &self.planner;
        let jobs = self
            .jobs
            .iter()
            .flat_map(|(pull_key, jobs)| jobs.iter().map(move |job| (pull_key, job)));
        let spent = jobs.filter(|(pull_key, job)| {
            let uid = job.metadata.uid.as_deref().unwrap_or_default();
            let told = planner.reported.contains(uid);
            let is_desired = planner.requests.contains_key(*pull_key);
            let ours = planner
                .states
                .get(*pull_key)
                .is_some_and(|state| state.busy);
            let leaving =
                job.metadata.deletion_timestamp.is_some() || planner.clearing.contains(uid);
            let known = planner.known.iter().any(|key| is_of(job, key));
            !leaving && (told || (!is_desired && !ours && known))
        });
        self.steps
            .extend(spent.map(|(_, job)| PullStep::Clear(JobRef::from_job(job))));
    }
}

/// Returns true if the Job was created for this DaemonSet.
fn is_of(job: &Job, key: &SetKey) -> bool {
    let annotations = job.metadata.annotations.as_ref();
    let name = annotations.and_then(|all| all.get(crate::core::names::PRE_PULL_DAEMONSET));
    job.metadata.namespace.as_deref() == Some(&*key.namespace)
        && name.map(String::as_str) == Some(&*key.name)
}

#[cfg(test)]
mod tests;
