//! Loop that pulls images by Jobs. It receives desired pulls and watch events, and sends requests. One task owns all state.
//!
//! Jobs and their pods are watched while there is a desired pull or a Job. A new leader also watches them once, to find Jobs of the
//! previous leader. Otherwise nothing is requested from the API server.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::{FutureExt as _, Stream, StreamExt};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, error, warn};

use super::job_store::JobStore;
use super::planner::{Planner, PullStep, PullStepResult};
use super::{DesiredPulls, PullRequest, PullerParts};
use crate::backoff::Backoff;
use crate::core::names::PRE_PULL_POD;
use crate::k8s::client::WATCH_TIMEOUT_SECONDS;
use crate::k8s::{Listed, Readable};

/// Time for which changes are collected before all of them are handled together.
const PAUSE: Duration = Duration::from_millis(20);

/// Time for which watches stay open after the last Job, because another pull may be desired soon.
const LINGER: Duration = Duration::from_secs(30);

/// Maximum time between two comparisons with the wall clock.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// Message of a watch.
enum JobEvent {
    Job(Box<Event<Job>>),
    Pod(Box<Event<Pod>>),
    Failed(&'static str, Box<watcher::Error>),
}

type Watches = futures::stream::BoxStream<'static, JobEvent>;

/// Runs until the sender of desired pulls is dropped at shutdown.
pub(super) async fn run(parts: PullerParts, mut desired: watch::Receiver<DesiredPulls>) {
    let mut leadership = parts.leadership.clone();
    let mut task = PullerTask::new(parts);
    task.lead(
        leadership.borrow_and_update().may_write(),
        &desired.borrow(),
    );
    loop {
        let wake = task.wake;
        tokio::select! {
            biased;
            changed = desired.changed() => {
                if changed.is_err() {
                    break;
                }
                task.planner.set_desired(&desired.borrow_and_update());
                task.soon();
            }
            changed = leadership.changed() => {
                if changed.is_err() {
                    break;
                }
                task.lead(leadership.borrow_and_update().may_write(), &desired.borrow());
            }
            Some(done) = task.done.join_next() => task.on_result(done.ok()),
            event = task.watches.next() => task.on_event(event),
            () = sleep_until(wake) => task.run_steps(),
        }
    }
    while task.done.join_next().await.is_some() {}
}

/// State of the loop.
struct PullerTask {
    parts: PullerParts,
    planner: Planner,
    job_store: JobStore,
    watches: Watches,
    watching: bool,
    failing: bool,
    leading: bool,
    /// Time since which there is nothing to watch, because there is no desired pull and no Job.
    idle_since: Option<Instant>,
    wake: Instant,
    done: JoinSet<(PullStep, PullStepResult)>,
}

impl PullerTask {
    fn new(parts: PullerParts) -> Self {
        Self {
            parts,
            planner: Planner::default(),
            job_store: JobStore::default(),
            watches: futures::stream::pending().boxed(),
            watching: false,
            failing: false,
            leading: false,
            idle_since: None,
            wake: Instant::now() + LONGEST_SLEEP,
            done: JoinSet::new(),
        }
    }

    fn soon(&mut self) {
        self.wake = self.wake.min(Instant::now() + PAUSE);
    }

    /// Handles a change of leadership. A new leader starts watches to find Jobs of the previous leader. A former leader stops the
    /// watches and forgets the progress of the pulls.
    fn lead(&mut self, leads: bool, desired: &DesiredPulls) {
        if leads == self.leading {
            return;
        }
        self.leading = leads;
        if leads {
            self.watch();
            self.soon();
        } else {
            self.stop_watching();
            self.planner = Planner::default();
            self.planner.set_desired(desired);
        }
    }

    fn watch(&mut self) {
        if !self.watching {
            self.watching = true;
            self.idle_since = None;
            self.watches = watch_jobs_and_pods(self.parts.client.clone());
        }
    }

    fn stop_watching(&mut self) {
        self.watching = false;
        self.watches = futures::stream::pending().boxed();
        self.job_store = JobStore::default();
        self.planner.deny(None);
        self.failing = false;
    }

    fn on_event(&mut self, event: Option<JobEvent>) {
        match event {
            Some(JobEvent::Job(event)) => {
                if is_answer(&event) && std::mem::take(&mut self.failing) {
                    self.planner.deny(None);
                }
                self.job_store.on_job(*event);
            }
            Some(JobEvent::Pod(event)) => self.job_store.on_pod(*event),
            Some(JobEvent::Failed(resource, error)) => self.failed(resource, *error),
            None => self.stop_watching(), // unreachable: watches never end
        }
        self.soon();
    }

    fn failed(&mut self, resource: &'static str, error: watcher::Error) {
        self.parts.metrics.watch_restarted(resource);
        let denied = is_denied(&error);
        let error = format!("{:#}", anyhow::Error::from(error));
        if !std::mem::replace(&mut self.failing, true) {
            warn!(resource, %error, "A watch failed and is tried again");
        }
        if denied {
            self.planner.deny(Some(format!(
                "the controller may not list and watch {resource}: apply manifests/base/rbac"
            )));
        }
    }

    fn on_result(&mut self, done: Option<(PullStep, PullStepResult)>) {
        let Some((step, result)) = done else { return };
        match (&step, &result) {
            (_, PullStepResult::Created(job)) => self.job_store.put((**job).clone()),
            (PullStep::Delete(job), PullStepResult::Done) => self.job_store.note_deleted(job),
            (step, PullStepResult::Done) => {
                let key = step.request().map(PullRequest::pull_key);
                key.iter().for_each(|key| self.job_store.note_reported(key));
            }
            _ => {}
        }
        self.planner
            .on_result(&step, &result, self.parts.clock.now());
        self.soon();
    }

    fn run_steps(&mut self) {
        self.wake = Instant::now() + LONGEST_SLEEP;
        if !self.leading {
            return;
        }
        if !self.planner.is_idle() {
            self.watch();
        }
        let now = self.parts.clock.now();
        if self.watching {
            let (steps, wake) = self.planner.next(&self.job_store, now);
            for step in steps {
                debug!(?step, "Pre-pull");
                let parts = self.parts.clone();
                self.done.spawn(async move {
                    let result = AssertUnwindSafe(parts.carry_out(&step))
                        .catch_unwind()
                        .await;
                    let result = result.unwrap_or_else(|_| {
                        error!(?step, "A task of a pre-pull failed, and is tried again");
                        parts.metrics.task_failed();
                        PullStepResult::Retry
                    });
                    (step, result)
                });
            }
            if let Some(wake) = wake {
                self.wake_at(wake, now);
            }
        }
        self.parts
            .metrics
            .image_pulls_under_way(self.planner.running(&self.job_store));
        self.stop_watching_when_idle();
    }

    fn wake_at(&mut self, at: Timestamp, now: Timestamp) {
        let left = Duration::try_from(at.duration_since(now)).unwrap_or_default();
        let left = left.max(Duration::from_millis(1));
        self.wake = self.wake.min(Instant::now() + left);
    }

    fn stop_watching_when_idle(&mut self) {
        let idle = self.watching
            && self.planner.is_idle()
            && self.done.is_empty()
            && (self.failing || (self.job_store.is_complete() && self.job_store.is_empty()));
        if !idle {
            self.idle_since = None;
            return;
        }
        let until = *self.idle_since.get_or_insert_with(Instant::now) + LINGER;
        if until <= Instant::now() {
            debug!("No pre-pull is wanted, nothing is watched");
            self.stop_watching();
        } else {
            self.wake = self.wake.min(until);
        }
    }
}

/// Jobs or pods per page of a list.
///
/// A whole page is in memory at once, several times while it is decoded. A tenant can create Jobs with the label of pre-pulls and
/// more than a megabyte each, so pages must be small.
const JOBS_PER_PAGE: u32 = 2;

fn watch_jobs_and_pods(client: Client) -> Watches {
    let config = watcher::Config::default()
        .timeout(WATCH_TIMEOUT_SECONDS)
        .page_size(JOBS_PER_PAGE)
        .labels(PRE_PULL_POD);
    let jobs = job_events(
        watcher(Api::<Listed<Job>>::all(client.clone()), config.clone()),
        "jobs",
        JobEvent::Job,
    );
    let pods = job_events(
        watcher(Api::<Listed<Pod>>::all(client), config),
        "pods",
        JobEvent::Pod,
    );
    futures::stream::select(jobs, pods).boxed()
}

fn job_events<K: Readable>(
    events: impl Stream<Item = watcher::Result<Event<Listed<K>>>> + Send + 'static,
    resource: &'static str,
    event_of: impl Fn(Box<Event<K>>) -> JobEvent + Send + 'static,
) -> impl Stream<Item = JobEvent> + Send {
    with_backoff(events).filter_map(move |event| {
        std::future::ready(match event {
            Ok(event) => readable(event).map(|event| event_of(Box::new(event))),
            Err(error) => Some(JobEvent::Failed(resource, Box::new(error))),
        })
    })
}

fn readable<K: Readable>(event: Event<Listed<K>>) -> Option<Event<K>> {
    Some(match event {
        Event::Apply(listed) => Event::Apply(listed.item.ok()?),
        Event::Delete(listed) => Event::Delete(listed.item.ok()?),
        Event::Init => Event::Init,
        Event::InitApply(listed) => Event::InitApply(listed.item.ok()?),
        Event::InitDone => Event::InitDone,
    })
}

/// Returns true if the event proves that the API server responded. A list reports `Init` before its request is sent.
fn is_answer<K>(event: &Event<K>) -> bool {
    !matches!(event, Event::Init)
}

/// Inserts a pause after each failure. The pause grows until the API server reports something.
fn with_backoff<K: Send>(
    events: impl Stream<Item = watcher::Result<Event<K>>> + Send,
) -> impl Stream<Item = watcher::Result<Event<K>>> + Send {
    let state = (Box::pin(events), Backoff::default(), None);
    futures::stream::unfold(state, |(mut events, mut backoff, pause)| async move {
        if let Some(pause) = pause {
            tokio::time::sleep(pause).await;
        }
        let event = events.next().await?;
        let pause = match &event {
            Err(_) => backoff.next(),
            Ok(event) if is_answer(event) => {
                backoff = Backoff::default();
                None
            }
            Ok(_) => None,
        };
        Some((event, (events, backoff, pause)))
    })
}

/// Returns true if the API server denied a watch, or the list at its start.
fn is_denied(error: &watcher::Error) -> bool {
    let denied =
        |error: &kube::Error| matches!(error, kube::Error::Api(status) if status.code == 403);
    match error {
        watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) => {
            denied(error)
        }
        watcher::Error::WatchError(status) => status.code == 403,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> watcher::Result<Event<Pod>> {
        let status = kube::core::Status::failure("away", "ServiceUnavailable").with_code(503);
        Err(watcher::Error::WatchError(Box::new(status)))
    }

    /// Each attempt to list begins with an `Init` event. `Init` doesn't prove that the API server responded, so it doesn't reset
    /// the pause.
    #[tokio::test(start_paused = true)]
    async fn watch_backoff_grows_until_a_list_completes() {
        let attempt = || [Ok(Event::Init), refused()];
        let attempts = (0..7).flat_map(|_| attempt());
        let told = attempts.chain([Ok(Event::InitDone), refused(), refused()]);
        let mut events = with_backoff(futures::stream::iter(told)).boxed();
        let mut pauses = Vec::new();
        let mut last = Instant::now();
        while let Some(event) = events.next().await {
            if last.elapsed() > Duration::ZERO {
                pauses.push(last.elapsed().as_millis());
            }
            last = Instant::now();
            drop(event);
        }
        assert_eq!(pauses, [500, 1000, 2000, 4000, 8000, 10_000, 10_000, 500]);
    }
}
