//! Loop that pulls images by Jobs: receives desired pulls and watch events, and sends requests. One task owns all state.
//!
//! Jobs and their pods are watched while there is a desired pull or a Job. A new leader also watches them once, to find Jobs of
//! the previous leader. Otherwise nothing is requested from the API server.

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

use super::calls::{self, Calls};
use super::job_store::JobStore;
use super::planner::Planner;
use super::request::{PullStep, PullStepResult};
use super::{AllDesiredPulls, PullerParts};
use crate::backoff::Backoff;
use crate::k8s::client::WATCH_TIMEOUT_SECONDS;
use crate::k8s::{Listed, Readable};

/// Time for which changes are collected and then handled together.
const PAUSE: Duration = Duration::from_millis(20);

/// Time for which watches stay open after the last Job, because another pull may be desired soon.
const LINGER: Duration = Duration::from_secs(30);

/// Maximum time between two comparisons with the wall clock.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// Message of a watch.
enum JobEvent {
    Job(Box<Event<Job>>),
    Pod(Box<Event<Pod>>),
    /// The watch of this resource failed.
    Failed(&'static str, Box<watcher::Error>),
}

type Watches = futures::stream::BoxStream<'static, JobEvent>;

/// Runs until no pull can be desired any more.
pub(super) async fn run(parts: PullerParts, mut desired: watch::Receiver<AllDesiredPulls>) {
    let mut leadership = parts.leadership.clone();
    let mut jobs = Jobs::new(parts);
    loop {
        let wake = jobs.wake;
        tokio::select! {
            biased;
            changed = desired.changed() => {
                if changed.is_err() {
                    break;
                }
                jobs.planner.set_desired(&desired.borrow_and_update());
                jobs.soon();
            }
            changed = leadership.changed() => {
                if changed.is_err() {
                    break;
                }
                jobs.lead(leadership.borrow_and_update().may_write());
            }
            Some(done) = jobs.done.join_next() => jobs.take(done.ok()),
            told = jobs.watches.next() => jobs.hear(told),
            () = sleep_until(wake) => jobs.turn(),
        }
    }
    while jobs.done.join_next().await.is_some() {}
}

struct Jobs {
    calls: Calls,
    planner: Planner,
    job_store: JobStore,
    watches: Watches,
    watching: bool,
    failing: bool,
    leading: bool,
    /// Time since which there is nothing to watch.
    idle_since: Option<Instant>,
    wake: Instant,
    done: JoinSet<(PullStep, PullStepResult)>,
}

impl Jobs {
    fn new(parts: PullerParts) -> Self {
        let leading = parts.leadership.borrow().may_write();
        let calls = Calls {
            client: parts.client,
            writer: parts.writer,
            events: parts.events,
            metrics: parts.metrics,
            clock: parts.clock,
            written: parts.written,
        };
        let mut jobs = Self {
            calls,
            planner: Planner::default(),
            job_store: JobStore::default(),
            watches: nothing(),
            watching: false,
            failing: false,
            leading: false,
            idle_since: None,
            wake: Instant::now() + LONGEST_SLEEP,
            done: JoinSet::new(),
        };
        if leading {
            jobs.lead_now();
        }
        jobs
    }

    fn soon(&mut self) {
        self.wake = self.wake.min(Instant::now() + PAUSE);
    }

    fn lead(&mut self, leads: bool) {
        match (self.leading, leads) {
            (false, true) => self.lead_now(),
            (true, false) => {
                self.leading = false;
                self.rest();
                self.planner.forget();
            }
            _ => {}
        }
    }

    /// Starts the watches, to find Jobs of the previous leader.
    fn lead_now(&mut self) {
        self.leading = true;
        self.watch();
        self.soon();
    }

    fn watch(&mut self) {
        if !self.watching {
            self.watching = true;
            self.idle_since = None;
            let client = self.calls.client.clone();
            self.watches = both(client);
        }
    }

    /// Stops all watches.
    fn rest(&mut self) {
        self.watching = false;
        self.watches = nothing();
        self.job_store.forget();
        self.planner.deny(None);
        self.failing = false;
    }

    fn hear(&mut self, told: Option<JobEvent>) {
        match told {
            Some(JobEvent::Job(event)) => {
                if tells(&event) {
                    self.recovered();
                }
                self.job_store.take_job(*event);
            }
            Some(JobEvent::Pod(event)) => self.job_store.take_pod(*event),
            Some(JobEvent::Failed(resource, error)) => self.failed(resource, *error),
            None => self.rest(), // unreachable: watches never end
        }
        self.soon();
    }

    fn recovered(&mut self) {
        if std::mem::take(&mut self.failing) {
            self.planner.deny(None);
        }
    }

    fn failed(&mut self, resource: &'static str, error: watcher::Error) {
        self.calls.metrics.watch_restarted(resource);
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

    fn take(&mut self, done: Option<(PullStep, PullStepResult)>) {
        let Some((step, answer)) = done else { return };
        if let Some(job) = calls::made(&answer) {
            self.job_store.put(job);
        }
        if let (PullStep::Clear(job), PullStepResult::Told(_)) = (&step, &answer) {
            self.job_store.note_removed(job);
        }
        self.planner.take(&step, answer, self.calls.clock.now());
        self.soon();
    }

    fn turn(&mut self) {
        self.wake = Instant::now() + LONGEST_SLEEP;
        if !self.leading {
            return;
        }
        if !self.planner.is_idle() {
            self.watch();
        }
        let now = self.calls.clock.now();
        if self.watching {
            let (steps, wake) = self.planner.next(&self.job_store, now);
            for step in steps {
                debug!(?step, "Pre-pull");
                let calls = self.calls.clone();
                let metrics = calls.metrics.clone();
                self.done.spawn(async move {
                    let taken = AssertUnwindSafe(calls.take(&step)).catch_unwind().await;
                    let answer = taken.unwrap_or_else(|_| {
                        error!(?step, "A task of a pre-pull failed, and is tried again");
                        metrics.task_failed();
                        PullStepResult::Failed
                    });
                    (step, answer)
                });
            }
            if let Some(wake) = wake {
                self.wake_at(wake, now);
            }
        }
        self.calls
            .metrics
            .image_pulls_under_way(self.planner.under_way(&self.job_store));
        self.rest_when_idle();
    }

    fn wake_at(&mut self, at: Timestamp, now: Timestamp) {
        let left = Duration::try_from(at.duration_since(now)).unwrap_or_default();
        let left = left.max(Duration::from_millis(1));
        self.wake = self.wake.min(Instant::now() + left);
    }

    fn rest_when_idle(&mut self) {
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
            self.rest();
        } else {
            self.wake = self.wake.min(until);
        }
    }
}

fn nothing() -> Watches {
    futures::stream::pending().boxed()
}

/// Jobs or pods per page of a list.
///
/// A whole page is in memory at once, several times while it is decoded. A tenant can set the label on Jobs of more than a
/// megabyte, so pages must be small.
const JOBS_PER_PAGE: u32 = 2;

fn both(client: Client) -> Watches {
    let config = watcher::Config::default()
        .timeout(WATCH_TIMEOUT_SECONDS)
        .page_size(JOBS_PER_PAGE)
        .labels(calls::selector());
    let jobs = told(
        watcher(Api::<Listed<Job>>::all(client.clone()), config.clone()),
        "jobs",
        JobEvent::Job,
    );
    let pods = told(
        watcher(Api::<Listed<Pod>>::all(client), config),
        "pods",
        JobEvent::Pod,
    );
    futures::stream::select(jobs, pods).boxed()
}

fn told<K: Readable>(
    events: impl Stream<Item = watcher::Result<Event<Listed<K>>>> + Send + 'static,
    resource: &'static str,
    tell: impl Fn(Box<Event<K>>) -> JobEvent + Send + 'static,
) -> impl Stream<Item = JobEvent> + Send {
    patient(events).filter_map(move |event| {
        std::future::ready(match event {
            Ok(event) => readable(event).map(|event| tell(Box::new(event))),
            Err(error) => Some(JobEvent::Failed(resource, Box::new(error))),
        })
    })
}

/// Returns the event if its object is readable.
fn readable<K: Readable>(event: Event<Listed<K>>) -> Option<Event<K>> {
    Some(match event {
        Event::Apply(listed) => Event::Apply(listed.item.ok()?),
        Event::Delete(listed) => Event::Delete(listed.item.ok()?),
        Event::Init => Event::Init,
        Event::InitApply(listed) => Event::InitApply(listed.item.ok()?),
        Event::InitDone => Event::InitDone,
    })
}

/// Returns true if the event proves that the API server responded. `Init` is reported before the request is sent.
fn tells<K>(event: &Event<K>) -> bool {
    !matches!(event, Event::Init)
}

/// Inserts a pause after each failure. The pause grows until the API server reports something.
fn patient<K: Send>(
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
            Ok(event) if tells(event) => {
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

    /// Each attempt to list begins with an `Init` event, which doesn't prove that the API server responded.
    #[tokio::test(start_paused = true)]
    async fn pauses_grow_while_lists_begin_and_fail_and_start_anew_once_something_is_told() {
        let attempt = || [Ok(Event::Init), refused()];
        let attempts = (0..7).flat_map(|_| attempt());
        let told = attempts.chain([Ok(Event::InitDone), refused(), refused()]);
        let mut events = patient(futures::stream::iter(told)).boxed();
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
