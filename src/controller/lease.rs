//! Leader election: of several replicas, only the holder of one Lease writes.
//!
//! ```text
//!   GET ──► free, released, own, or unchanged for its whole duration? ──► PUT (or POST) ──► Leader { until }
//!    ▲                                                                         │ again every `renew_every`
//!    └──────────── held by another: check again later ◄── 409, or `until` has passed ◄──┘
//! ```
//!
//! # Guarantees
//! - A leader measures `until` from the moment before it sends the renewal. Other replicas measure the expiry from the moment
//!   at which they see the renewal. So a leader that stops at `until` stops at least `duration - renew_deadline` before another
//!   one starts, even if the clocks of the two machines differ.
//! - The monotonic clock stops while a virtual machine is paused. So leadership also ends when the wall clock passes the time of
//!   `until`, and resumes with the next renewal. Turning the wall clock back doesn't extend leadership, because the monotonic
//!   deadline also applies.
//! - A replica stands for election when its caches are complete. Afterwards it keeps leading even while a cache is incomplete.
//! - The clocks of other replicas don't matter: a Lease has expired if this replica *saw* it unchanged for its duration.
//! - A leader reports other installations, which have their Leases in other namespaces ([`others`]).
//! - The annotation [`LEASE_KINDS`](names::LEASE_KINDS) contains the kinds of DaemonSets that the holder serves. If a replica is
//!   configured for a kind that is missing there, it reports that no controller serves the kind.
//! - Every request has a deadline. Leadership ends at `until` even while a request hangs.
//!
//! # Caveats
//! A write in flight at `until` may still arrive. `client::WRITE_DEADLINE` ends it within the margin of 5 s, and UID
//! preconditions make a late delete harmless.

mod others;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::{info, warn};

use super::events::{Events, Severity, Subject};
use super::kinds::Kinds;
use super::log_throttle::LogThrottle;
use super::metrics::Metrics;
use crate::clock::Clock;
use crate::core::names;
use crate::k8s::client::{CallError, Failure, within};
use crate::serve::ReadinessHandle;
use crate::shutdown::{self, Shutdown};
use others::OtherInstallations;

/// Maximum duration of one request.
const CALL_DEADLINE: Duration = Duration::from_secs(3);
/// Pause before a leader retries a failed renewal.
const RETRY: Duration = Duration::from_secs(1);
/// Time between the end of leadership and the expiry of the Lease, in which writes in flight may still arrive.
const MARGIN: Duration = Duration::from_secs(5);
/// Reason in the log when leadership ends because a deadline passed, by either clock.
const LATE: &str = "the Lease was not renewed in time";
/// Name of the Lease requests in `log_throttle`.
const LEASES: &str = "leases";
/// Name of the list of other installations' Leases in `log_throttle`.
const OTHER_LEASES: &str = "leases of other installations";
/// Maximum Lease duration that is accepted from another holder. A longer duration is ignored, and the configured one is used.
const LONGEST: Duration = Duration::from_secs(3600);

/// Time after which a kind of DaemonSets is reported as not served.
///
/// It is longer than a rolling update of the controller, during which replicas with different `--controllers` run side by side.
const UNSERVED_AFTER: Duration = Duration::from_secs(120);
/// Reason of the Event about a kind of DaemonSets that no controller serves.
const NOT_SERVED: &str = "NotServed";
/// Reason of the Event about another installation.
const SECOND_INSTALLATION: &str = "SecondInstallation";

/// Permission of this replica to write.
#[derive(Clone, Debug)]
pub enum Leadership {
    /// The replica must not write.
    Standby,
    /// The replica may write until an instant. Each renewal postpones the instant.
    Leader {
        /// Instant at which writing stops unless the Lease is renewed.
        until: Instant,
        /// Deadline `until` on the wall clock.
        wall: WallDeadline,
    },
    /// The replica may always write, because there is no election.
    Alone,
}

impl Leadership {
    /// Returns true if a write may begin now. Must be called immediately before each write.
    pub fn may_write(&self) -> bool {
        match self {
            Self::Standby => false,
            Self::Leader { until, wall } => Instant::now() < *until && wall.is_ahead(),
            Self::Alone => true,
        }
    }
}

/// Deadline on the wall clock, which keeps running while the machine is paused.
#[derive(Clone, Debug)]
pub struct WallDeadline {
    clock: Clock,
    at: Timestamp,
}

impl WallDeadline {
    /// Returns the deadline that is `after` from now on `clock`.
    pub fn after(clock: &Clock, after: Duration) -> Self {
        let after = SignedDuration::try_from(after).unwrap_or(SignedDuration::MAX);
        let at = clock.now().saturating_add(after).unwrap_or(Timestamp::MAX);
        Self {
            clock: clock.clone(),
            at,
        }
    }

    fn is_ahead(&self) -> bool {
        self.clock.now() < self.at
    }
}

/// Settings of the leader election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of this replica, unique among all replicas that ever ran.
    pub identity: String,
    /// Time without renewal after which another replica takes over the Lease.
    pub duration: Duration,
    /// Time after its last renewal at which a leader stops writing.
    pub renew_deadline: Duration,
    /// Interval between renewals by the leader, and between checks by other replicas.
    pub renew_every: Duration,
}

impl Settings {
    /// Returns the settings if their three durations are consistent.
    ///
    /// # Errors
    /// If the durations are inconsistent. The error names the flag and its valid values.
    pub fn checked(self) -> Result<Self> {
        if self.renew_deadline + MARGIN > self.duration || self.duration > LONGEST {
            bail!(
                "--lease-duration {:?} must be at least {MARGIN:?} more than --lease-renew-deadline ({:?}) and at most {LONGEST:?}",
                self.duration,
                self.renew_deadline
            );
        }
        if self.renew_every + RETRY > self.renew_deadline || self.renew_every.is_zero() {
            bail!(
                "--lease-renew-every {:?} must be more than zero and at least {RETRY:?} less than --lease-renew-deadline ({:?})",
                self.renew_every,
                self.renew_deadline
            );
        }
        if self.identity.is_empty() {
            bail!("--identity is empty: give this replica a name, or omit the flag");
        }
        Ok(self)
    }
}

/// Dependencies of the election.
#[derive(Debug)]
pub struct ElectionParts {
    /// Lease, identity and durations.
    pub settings: Settings,
    /// Kinds of DaemonSets that this process serves.
    pub kinds: Kinds,
    /// Source of time.
    pub clock: Clock,
    /// Metrics of the process.
    pub metrics: Arc<Metrics>,
    /// Rate-limited log of failed requests.
    pub log_throttle: LogThrottle,
    /// Queue of Events.
    pub events: Events,
    /// Readiness of the process.
    pub readiness: ReadinessHandle,
}

/// Leader election that runs in the background.
#[derive(Debug)]
pub struct Election {
    leadership: watch::Receiver<Leadership>,
    end: shutdown::Trigger,
    task: JoinHandle<()>,
}

impl Election {
    /// Starts the election. The replica becomes a candidate when all checks of `readiness` are done.
    pub fn start(client: Client, parts: ElectionParts) -> Self {
        let (sender, leadership) = watch::channel(Leadership::Standby);
        let (end, ended) = shutdown::channel();
        let namespace = &parts.settings.namespace;
        let candidate = Candidate {
            api: Api::namespaced(client.clone(), namespace),
            others: OtherInstallations::new(client, namespace, parts.kinds),
            parts,
            leadership: sender,
            seen: None,
            unserved: Unserved::default(),
        };
        Self {
            leadership,
            end,
            task: tokio::spawn(candidate.run(ended)),
        }
    }

    /// Starts without an election: this process leads until it exits.
    pub fn alone(metrics: &Metrics) -> Self {
        let (sender, leadership) = watch::channel(Leadership::Alone);
        let (end, mut ended) = shutdown::channel();
        metrics.leader(true);
        let task = tokio::spawn(async move {
            ended.requested().await;
            drop(sender);
        });
        Self {
            leadership,
            end,
            task,
        }
    }

    /// Returns the current leadership and its changes. Borrow the value immediately before each write.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.clone()
    }

    /// Releases the Lease, so that another replica doesn't wait for its expiry. Must be called after the last write.
    pub async fn release(self) {
        self.end.request();
        let _ended = self.task.await;
    }
}

/// State of a replica that takes part in the election.
struct Candidate {
    api: Api<Lease>,
    others: OtherInstallations,
    parts: ElectionParts,
    leadership: watch::Sender<Leadership>,
    /// Lease of another holder, as last seen by this replica.
    seen: Option<ObservedLease>,
    unserved: Unserved,
}

/// Kinds of DaemonSets that this process is configured for and that the holder of the Lease doesn't serve.
#[derive(Default)]
struct Unserved {
    /// Entry of `/ready` for the missing Lease, such as `a Lease for native DaemonSets`; `None`: no kind is reported.
    awaited: Option<String>,
    /// Time since which a kind is not served.
    since: Option<Instant>,
}

/// Fields of a Lease that the holder changes with each renewal.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LeaseRecord {
    holder: String,
    renewed: Option<MicroTime>,
    acquired: Option<MicroTime>,
    transitions: Option<i32>,
}

impl LeaseRecord {
    fn from_spec(spec: LeaseSpec) -> Self {
        Self {
            holder: spec.holder_identity.unwrap_or_default(),
            renewed: spec.renew_time,
            acquired: spec.acquire_time,
            transitions: spec.lease_transitions,
        }
    }
}

/// Lease of another holder, as seen by this replica.
struct ObservedLease {
    sign: LeaseRecord,
    /// Time at which this replica first saw the Lease with these fields.
    since: Instant,
    /// Time at which this replica may take the Lease.
    expires: Instant,
}

/// Result of one attempt to hold the Lease.
enum Attempt {
    /// This replica holds the Lease. Contains the Lease as the API server stored it.
    Held(Box<Lease>),
    /// Another replica holds the Lease. It expires at that instant unless it is renewed.
    Others { expires: Instant },
    /// Another replica changed or deleted the Lease at the same time.
    Lost,
}

impl Candidate {
    async fn run(mut self, mut end: Shutdown) {
        let readiness = self.parts.readiness.clone();
        tokio::select! {
            () = readiness.ready() => {}
            () = end.requested() => return,
        }
        let mut held: Option<Box<Lease>> = None;
        let mut next = Instant::now();
        loop {
            tokio::select! {
                () = self.wait(next) => {}
                () = end.requested() => break,
            }
            let began = Instant::now();
            let (deadline, every) = (
                self.parts.settings.renew_deadline,
                self.parts.settings.renew_every,
            );
            let wall = WallDeadline::after(&self.parts.clock, deadline);
            // Finish the attempt even if shutdown is requested. The attempt is short and may acquire the Lease, which must then be
            // released.
            next = match self.attempt(held.take()).await {
                Ok(Attempt::Held(lease)) => {
                    held = Some(lease);
                    self.note_unserved(None);
                    let until = began + deadline;
                    let renewed = Leadership::Leader { until, wall };
                    if renewed.may_write() {
                        self.lead(renewed);
                        self.check_others().await; // last, because a slow check must not delay the renewal
                        began + every
                    } else {
                        self.stand_by(LATE);
                        Instant::now()
                    }
                }
                Ok(Attempt::Others { expires }) => {
                    self.parts.log_throttle.answered(LEASES);
                    self.stand_by("the Lease is held by another replica");
                    expires.min(began + every)
                }
                Ok(Attempt::Lost) => began + RETRY,
                Err(error) => {
                    self.report(&error);
                    let pause = if self.leads() { RETRY } else { every };
                    Instant::now() + pause
                }
            };
        }
        self.release().await;
    }

    /// Waits until the next attempt. If the deadline of leadership is earlier, ends leadership at that time.
    async fn wait(&self, next: Instant) {
        if let Some(until) = self.until()
            && until <= next
        {
            sleep_until(until).await;
            self.stand_by(LATE);
        }
        sleep_until(next).await;
        // Check leadership again: timers don't notice that the machine was paused.
        if !self.leadership.borrow().may_write() {
            self.stand_by(LATE);
        }
    }

    fn until(&self) -> Option<Instant> {
        match *self.leadership.borrow() {
            Leadership::Leader { until, .. } => Some(until),
            Leadership::Standby | Leadership::Alone => None,
        }
    }

    fn leads(&self) -> bool {
        self.until().is_some()
    }

    /// Makes one attempt to hold the Lease. If it takes longer than leadership lasts, ends leadership.
    async fn attempt(&mut self, held: Option<Box<Lease>>) -> Result<Attempt, CallError> {
        let Some(until) = self.until() else {
            return self.acquire(held).await;
        };
        if let Ok(result) = timeout_at(until, self.acquire(held)).await {
            return result;
        }
        self.stand_by(LATE);
        Err(CallError::TimedOut(self.parts.settings.renew_deadline))
    }

    /// Renews the Lease that this replica holds, or takes a free one.
    async fn acquire(&mut self, held: Option<Box<Lease>>) -> Result<Attempt, CallError> {
        let present = match held {
            Some(lease) => Some(*lease),
            None => within(CALL_DEADLINE, self.api.get_opt(names::LEASE)).await?,
        };
        let expires = match &present {
            Some(lease) => self.expires(lease),
            None => self.expires_unseen(),
        };
        if let Some(expires) = expires
            && Instant::now() < expires
        {
            return Ok(Attempt::Others { expires });
        }
        let wanted = self.claim(present);
        let params = PostParams::default();
        let is_present = wanted.metadata.resource_version.is_some();
        let written = if is_present {
            let call = self.api.replace(names::LEASE, &params, &wanted);
            within(CALL_DEADLINE, call).await
        } else {
            within(CALL_DEADLINE, self.api.create(&params, &wanted)).await
        };
        match written {
            Ok(lease) => Ok(Attempt::Held(Box::new(lease))),
            Err(error) if error.failure() == Failure::Conflict => Ok(Attempt::Lost),
            // If the Lease is created, its namespace is missing.
            Err(error) if error.failure() == Failure::Gone && is_present => Ok(Attempt::Lost),
            Err(error) => Err(error),
        }
    }

    /// Returns the time at which the Lease of another holder expires, by this replica's clock. `None`: the Lease is free, or this
    /// replica holds it.
    fn expires(&mut self, lease: &Lease) -> Option<Instant> {
        let spec = lease.spec.clone().unwrap_or_default();
        let lasts = lasts(&spec).unwrap_or(self.parts.settings.duration);
        let sign = LeaseRecord::from_spec(spec);
        if sign.holder.is_empty() || sign.holder == self.parts.settings.identity {
            self.seen = None;
            return None;
        }
        let kinds = Kinds::of_lease(lease);
        let is_known = |seen: &ObservedLease| seen.sign.holder == sign.holder;
        if !self.seen.as_ref().is_some_and(is_known) {
            let namespace = &self.parts.settings.namespace;
            info!(holder = %sign.holder, %namespace, "Another replica holds the Lease; standing by");
        }
        self.note_unserved(kinds);
        let since = match &self.seen {
            Some(seen) if seen.sign == sign => seen.since,
            _ => Instant::now(),
        };
        let expires = since + lasts;
        self.seen = Some(ObservedLease {
            sign,
            since,
            expires,
        });
        Some(expires)
    }

    /// Returns the time at which a deleted Lease would have expired. Until then, its last holder may not have noticed the deletion,
    /// and may still write.
    fn expires_unseen(&self) -> Option<Instant> {
        self.seen.as_ref().map(|seen| seen.expires)
    }

    /// Returns the Lease to write: the current one, with this replica as holder.
    fn claim(&self, present: Option<Lease>) -> Lease {
        let now = MicroTime(self.parts.clock.now());
        let mut lease = present.unwrap_or_default();
        lease.metadata.name = Some(names::LEASE.to_owned());
        lease.metadata.namespace = Some(self.parts.settings.namespace.clone());
        lease.metadata.managed_fields = None;
        let annotations = lease.metadata.annotations.get_or_insert_default();
        annotations.insert(names::LEASE_KINDS.to_owned(), self.parts.kinds.to_string());
        let spec = lease.spec.get_or_insert_default();
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        if holder != self.parts.settings.identity {
            let transitions = spec
                .lease_transitions
                .map_or(0, |before| before.saturating_add(1));
            spec.lease_transitions = Some(transitions.max(0));
            spec.acquire_time = Some(now.clone());
            spec.holder_identity = Some(self.parts.settings.identity.clone());
        }
        let seconds = self.parts.settings.duration.as_secs();
        spec.lease_duration_seconds = i32::try_from(seconds).ok();
        spec.renew_time = Some(now);
        lease
    }

    fn lead(&mut self, renewed: Leadership) {
        if !self.leads() {
            info!(identity = %self.parts.settings.identity, "Leading");
        }
        self.parts.log_throttle.answered(LEASES);
        self.leadership.send_replace(renewed);
        self.parts.metrics.leader(true);
        let now = self.parts.clock.now();
        self.parts.metrics.lease_renewed(now.as_second());
    }

    /// Looks for other installations, and reports changes.
    async fn check_others(&mut self) {
        if !self.others.is_due() {
            return;
        }
        let is_news = match self.others.check().await {
            Ok(is_news) => is_news,
            Err(error) if error.failure() == Failure::Forbidden => return, // reported as a missing permission
            Err(error) => {
                let text = format!("cannot list the Leases of other installations: {error}");
                let failure = error.failure();
                return self.parts.log_throttle.failed(OTHER_LEASES, failure, &text);
            }
        };
        self.parts.log_throttle.answered(OTHER_LEASES);
        if !is_news {
            return;
        }
        self.parts.metrics.other_installations(self.others.count());
        match self.others.message() {
            Some(message) => self.warn_on_lease(SECOND_INSTALLATION, &message),
            None => info!("No other installation serves the same DaemonSets now"),
        }
    }

    /// Records which kinds of DaemonSets the holder of the Lease serves (`None`: all, or unknown).
    ///
    /// Reports the kinds of this process that the holder has not served for [`UNSERVED_AFTER`].
    fn note_unserved(&mut self, holder: Option<Kinds>) {
        let missing = holder.map(|holder| self.parts.kinds.without(holder));
        let Some(missing) = missing.filter(|missing| *missing != Kinds::NONE) else {
            self.unserved.since = None;
            if let Some(awaited) = self.unserved.awaited.take() {
                self.parts.readiness.done(&awaited);
                self.parts.metrics.unserved(None);
            }
            return;
        };
        let since = *self.unserved.since.get_or_insert_with(Instant::now);
        if since.elapsed() < UNSERVED_AFTER || self.unserved.awaited.is_some() {
            return;
        }
        let namespace = &self.parts.settings.namespace;
        let message = format!(
            "No controller serves {missing} DaemonSets: the holder of the Lease {namespace}/{} runs with different \
             --controllers. Give all replicas the same --controllers, or give this replica its own --lease-namespace.",
            names::LEASE
        );
        self.warn_on_lease(NOT_SERVED, &message);
        let awaited = format!("a Lease for {missing} DaemonSets");
        self.parts.readiness.wait_for(&awaited);
        self.parts.metrics.unserved(Some(missing));
        self.unserved.awaited = Some(awaited);
    }

    /// Reports a problem with the Lease in the log and in a Warning Event about the Lease.
    fn warn_on_lease(&self, reason: &'static str, message: &str) {
        warn!(message, "{reason}");
        let about = Subject::lease(&self.parts.settings.namespace);
        self.parts
            .events
            .publish(&about, Severity::Warning, reason, message);
    }

    fn stand_by(&self, why: &'static str) {
        if self.leads() {
            warn!(why, "Stopped leading");
            self.leadership.send_replace(Leadership::Standby);
            self.parts.metrics.leader(false);
        }
    }

    fn report(&self, error: &CallError) {
        let (namespace, name) = (&self.parts.settings.namespace, names::LEASE);
        let text = format!("cannot read or renew the Lease {namespace}/{name}: {error}");
        self.parts
            .log_throttle
            .failed(LEASES, error.failure(), &text);
    }

    /// Clears the holder of the Lease if this replica holds it. Another replica can then take the Lease at once.
    async fn release(self) {
        if !self.leads() {
            return;
        }
        self.leadership.send_replace(Leadership::Standby);
        self.parts.metrics.leader(false);
        if let Err(error) = within(CALL_DEADLINE, self.empty()).await {
            self.report(&error);
        } else {
            info!("Released the Lease");
        }
    }

    async fn empty(&self) -> kube::Result<()> {
        let Some(mut lease) = self.api.get_opt(names::LEASE).await? else {
            return Ok(());
        };
        let now = MicroTime(self.parts.clock.now());
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_deref() != Some(&self.parts.settings.identity) {
            return Ok(());
        }
        *spec = LeaseSpec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(1),
            lease_transitions: spec.lease_transitions,
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            ..LeaseSpec::default()
        };
        lease.metadata.managed_fields = None;
        let params = PostParams::default();
        self.api
            .replace(names::LEASE, &params, &lease)
            .await
            .map(drop)
    }
}

/// Returns the duration of a Lease; `None`: it is missing or invalid.
fn lasts(spec: &LeaseSpec) -> Option<Duration> {
    let seconds = u64::try_from(spec.lease_duration_seconds?).ok()?;
    let lasts = Duration::from_secs(seconds);
    (!lasts.is_zero() && lasts <= LONGEST).then_some(lasts)
}

#[cfg(test)]
mod tests;
