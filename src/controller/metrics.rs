//! Metrics for `/metrics`.
//!
//! All metrics of a rollout come from one [`Plan`], so they always agree with `ctl status`. Other metrics are counted where the
//! events happen. Only the leader exports metrics of plans. Other replicas don't know which writes were rejected, and sums over
//! replicas would count nodes twice.
//!
//! Label values are fixed words or the names of managed DaemonSets. There is no series per node or per pod.

mod deliveries;
mod rollouts;
mod self_checks;
mod watches;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use super::freshness::WatchAges;
use super::kinds::{self, Kinds};
use crate::core::{Phase, Plan};
use crate::index::{SetKey, SetKind};
use crate::k8s::UnreadableReason;
use crate::k8s::client::Failure;

pub(super) use deliveries::{Deliveries, DeliveryOutcome};
use rollouts::{Rollout, Rollouts};
use self_checks::Noted;

/// Prefix of all metric names.
const PREFIX: &str = "yurt_ds";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteLabels {
    verb: &'static str,
    resource: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Resource {
    resource: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UnreadableLabels {
    resource: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Permission {
    verb: &'static str,
    resource: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

/// Reason why a decided write was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// This replica doesn't lead.
    NotLeader,
    /// Leadership ended between decision and write.
    LeaseLost,
    /// An earlier write to the same pod is pending.
    Pending,
    /// The process is shutting down.
    Ending,
}

impl SkipReason {
    /// All reasons.
    pub const ALL: [Self; 4] = [
        Self::NotLeader,
        Self::LeaseLost,
        Self::Pending,
        Self::Ending,
    ];

    /// Returns the label value of this reason.
    pub fn word(self) -> &'static str {
        match self {
            Self::NotLeader => "not_leader",
            Self::LeaseLost => "lease_lost",
            Self::Pending => "pending",
            Self::Ending => "ending",
        }
    }
}

/// Metrics of the controller. They can be shared by reference or in an [`Arc`].
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    rollouts: Arc<Rollouts>,
    writes: Family<WriteLabels, Counter>,
    withheld: Family<Reason, Counter>,
    watch_restarts: Family<Resource, Counter>,
    watch_streams_waiting: Gauge,
    permission_missing: Family<Permission, Gauge>,
    events_dropped: Family<Reason, Counter>,
    notifications: Family<Outcome, Counter>,
    trace_batches: Family<Outcome, Counter>,
    image_pulls: Gauge,
    image_pull_results: Family<Outcome, Counter>,
    decide: Histogram,
    reconciles: Counter,
    queue_depth: Gauge,
    queue_overflow: Counter,
    task_failures: Counter,
    leader: Gauge,
    lease_transitions: Counter,
    other_installations: Gauge,
    unserved: Family<KindLabel, Gauge>,
    lease_age: Gauge,
    watch_ages: WatchAges,
    unreadable: Family<UnreadableLabels, Gauge>,
    noted: Mutex<Noted>,
}

impl Metrics {
    /// Creates all metrics, with the value zero.
    pub fn new() -> Arc<Self> {
        let mut registry = Registry::with_prefix(PREFIX);
        let r = &mut registry;
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        r.register("build", "Version of the program", version);
        let metrics = Self {
            rollouts: {
                let rollouts = Arc::new(Rollouts::default());
                r.register_collector(Box::new(rollouts.clone()));
                rollouts
            },
            writes: counters(r, "api_writes", "Write requests, by outcome"),
            withheld: counters(
                r,
                "writes_withheld",
                "Writes that were decided but not sent",
            ),
            watch_restarts: counters(r, "watch_restarts", "Watches that ended with an error"),
            watch_streams_waiting: gauge(
                r,
                "watch_streams_waiting",
                "Watches without a response from the API server for more than 5 s",
            ),
            permission_missing: gauges(
                r,
                "permission_missing",
                "1: the service account lacks this permission",
            ),
            events_dropped: counters(r, "events_dropped", "Events that were not sent"),
            notifications: counters(r, "notifications", "Notifications, by outcome"),
            trace_batches: counters(r, "trace_batches", "Batches of spans, by outcome"),
            image_pulls: gauge(
                r,
                "image_pulls",
                "Image pre-pulls in progress: Jobs without a result",
            ),
            image_pull_results: counters(
                r,
                "image_pull_results",
                "Image pre-pulls with a result, by outcome",
            ),
            decide: histogram(r),
            reconciles: counter(r, "reconciles", "DaemonSets reconciled"),
            queue_depth: gauge(r, "queue_depth", "DaemonSets that wait to be reconciled"),
            queue_overflow: counter(
                r,
                "queue_overflow",
                "Times that a watch waited because the event queue was full",
            ),
            task_failures: counter(r, "task_failures", "Tasks that panicked"),
            leader: gauge(r, "leader", "1: this replica leads"),
            other_installations: gauge(
                r,
                "other_installations",
                "Other active installations that serve the same kinds of DaemonSets",
            ),
            unserved: gauges(
                r,
                "kind_unserved",
                "1: this controller is configured for this kind of DaemonSets, but no controller serves it",
            ),
            lease_transitions: counter(
                r,
                "lease_transitions",
                "Times that this replica gained or lost the leadership",
            ),
            lease_age: {
                let age = Gauge::default();
                r.register(
                    "lease_renewed_timestamp_seconds",
                    "Time of the last renewal of the Lease by this replica (Unix time)",
                    age.clone(),
                );
                age
            },
            watch_ages: {
                let ages = WatchAges::default();
                r.register_collector(Box::new(ages.clone()));
                ages
            },
            unreadable: gauges(
                r,
                "unreadable_objects",
                "Unreadable objects, which are skipped",
            ),
            noted: Mutex::default(),
            registry,
        };
        Arc::new(metrics)
    }

    /// Returns the metrics in the format of Prometheus (OpenMetrics text).
    pub fn encode(&self) -> String {
        let mut page = String::new();
        match encode(&mut page, &self.registry) {
            Ok(()) => page,
            Err(_) => unreachable_page(),
        }
    }

    /// Records the plan of a DaemonSet with usable settings. `phase` is the phase that its conditions show.
    pub fn record_plan(&self, key: SetKey, plan: &Plan, phase: Phase) {
        self.rollouts.set(key, Some(Rollout::new(plan, phase)));
    }

    /// Records a DaemonSet with invalid settings, for which there is no plan.
    pub fn record_invalid(&self, key: SetKey) {
        self.rollouts.set(key, None);
    }

    /// Removes the series of a DaemonSet that is gone or no longer managed.
    pub fn forget(&self, key: &SetKey) {
        self.rollouts.forget(key);
    }

    /// Removes the series of all DaemonSets when this replica no longer leads. Otherwise sums over all replicas would count each
    /// DaemonSet twice.
    pub fn forget_all(&self) {
        self.rollouts.forget_all();
    }

    /// Counts a write request with its outcome. A request without a response counts as failed.
    pub fn write(&self, verb: &'static str, resource: &'static str, outcome: Result<(), Failure>) {
        let outcome = outcome.err().map_or("ok", Failure::word);
        let labels = WriteLabels {
            verb,
            resource,
            outcome,
        };
        self.writes.get_or_create(&labels).inc();
    }

    /// Counts writes that were decided but not sent.
    pub fn withheld(&self, reason: SkipReason, count: usize) {
        let labels = Reason {
            reason: reason.word(),
        };
        let counter = self.withheld.get_or_create(&labels);
        counter.inc_by(u64::try_from(count).unwrap_or(u64::MAX));
    }

    /// Counts a watch that ended with an error, and that is started again.
    pub fn watch_restarted(&self, resource: &'static str) {
        self.watch_restarts
            .get_or_create(&Resource { resource })
            .inc();
    }

    /// Returns the ages of all watches, which the watches keep up to date.
    pub(super) fn watch_ages(&self) -> WatchAges {
        self.watch_ages.clone()
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the number of unreadable objects by resource and reason.
    pub(super) fn unreadable(&self, counts: &BTreeMap<(&'static str, UnreadableReason), usize>) {
        self.noted().unreadable = counts.clone();
        self.unreadable.clear();
        for ((resource, reason), count) in counts {
            let labels = UnreadableLabels {
                resource,
                reason: reason.word(),
            };
            self.unreadable.get_or_create(&labels).set(number(*count));
        }
    }

    /// Returns the gauge of watches that wait for response headers. The client updates it.
    pub fn watch_streams_waiting(&self) -> Gauge {
        self.watch_streams_waiting.clone()
    }

    /// Sets whether the service account lacks a permission.
    pub fn permission_missing(&self, verb: &'static str, resource: &str, missing: bool) {
        let resource = resource.to_owned();
        let mut noted = self.noted();
        if missing {
            noted.missing.insert((verb, resource.clone()));
        } else {
            noted.missing.remove(&(verb, resource.clone()));
        }
        let gauge = self
            .permission_missing
            .get_or_create(&Permission { verb, resource });
        gauge.set(i64::from(missing));
    }

    /// Sets the number of running pre-pulls.
    pub fn image_pulls_under_way(&self, count: usize) {
        self.image_pulls.set(number(count));
    }

    /// Counts a pre-pull whose result was written to the pod.
    pub fn image_pulled(&self, pulled: bool) {
        let outcome = if pulled { "pulled" } else { "failed" };
        self.image_pull_results
            .get_or_create(&Outcome { outcome })
            .inc();
    }

    /// Returns the counters of notifications. The task that delivers them updates the counters.
    pub(super) fn notifications(&self) -> Deliveries {
        Deliveries::new(&self.notifications)
    }

    /// Returns the counters of batches of spans. The task that delivers them updates the counters.
    pub(super) fn traces(&self) -> Deliveries {
        Deliveries::new(&self.trace_batches)
    }

    /// Counts an Event that was not sent. `reason` is one of a fixed set of words.
    pub fn event_dropped(&self, reason: &'static str) {
        self.events_dropped.get_or_create(&Reason { reason }).inc();
    }

    /// Counts a decision about one DaemonSet. `decide` is the duration of the decision.
    pub fn reconciled(&self, decide: Duration) {
        self.reconciles.inc();
        self.decide.observe(decide.as_secs_f64());
    }

    /// Sets the number of DaemonSets that wait for a decision.
    pub fn queue_depth(&self, depth: usize) {
        self.queue_depth.set(number(depth));
    }

    /// Counts a request task that panicked.
    pub fn task_failed(&self) {
        self.task_failures.inc();
    }

    /// Counts an input that had to wait because the input queue was full.
    pub fn queue_overflowed(&self) {
        self.queue_overflow.inc();
    }

    /// Sets whether this replica leads. Counts each change.
    pub fn leader(&self, leader: bool) {
        if self.leader.set(i64::from(leader)) != i64::from(leader) {
            self.lease_transitions.inc();
        }
    }

    /// Sets the number of other active installations that serve the same kinds of DaemonSets.
    pub fn other_installations(&self, count: usize) {
        self.other_installations.set(number(count));
    }

    /// Sets the configured kinds of DaemonSets that no controller serves; `None`: all are served.
    pub fn unserved(&self, kinds: Option<Kinds>) {
        self.noted().unserved = kinds;
        for kind in [SetKind::Native, SetKind::Advanced] {
            let is_unserved = kinds.is_some_and(|kinds| kinds.contains(kind));
            let label = KindLabel {
                kind: kinds::word(kind),
            };
            let gauge = self.unserved.get_or_create(&label);
            gauge.set(i64::from(is_unserved));
        }
    }

    /// Sets the Unix time of the last renewal of the Lease.
    pub fn lease_renewed(&self, unix_seconds: i64) {
        self.lease_age.set(unix_seconds);
    }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Returns a page that only reports an error. Used if a metric can't be encoded, because an incomplete page would mislead.
fn unreachable_page() -> String {
    "# a metric could not be written\n# EOF\n".to_owned()
}

fn gauges<L>(registry: &mut Registry, name: &str, help: &str) -> Family<L, Gauge>
where
    L: EncodeLabelSet + Clone + std::hash::Hash + Eq + std::fmt::Debug + Send + Sync + 'static,
{
    let family = Family::default();
    registry.register(name, help, family.clone());
    family
}

fn counters<L>(registry: &mut Registry, name: &str, help: &str) -> Family<L, Counter>
where
    L: EncodeLabelSet + Clone + std::hash::Hash + Eq + std::fmt::Debug + Send + Sync + 'static,
{
    let family = Family::default();
    registry.register(name, help, family.clone());
    family
}

fn gauge(registry: &mut Registry, name: &str, help: &str) -> Gauge {
    let gauge = Gauge::default();
    registry.register(name, help, gauge.clone());
    gauge
}

fn counter(registry: &mut Registry, name: &str, help: &str) -> Counter {
    let counter = Counter::default();
    registry.register(name, help, counter.clone());
    counter
}

/// Returns a histogram with buckets from 10 µs to 160 ms. A decision takes about 10 µs for a few nodes, and up to 20 ms for
/// 100,000 nodes.
fn histogram(registry: &mut Registry) -> Histogram {
    let histogram = Histogram::new(exponential_buckets(0.000_01, 4.0, 8));
    registry.register(
        "decide_duration_seconds",
        "Time to decide the next steps of one DaemonSet",
        histogram.clone(),
    );
    histogram
}

#[cfg(test)]
mod bound_tests;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::core::{Counts, PauseRecord, PauseStand, SetKind, Verdict};
    use k8s_openapi::jiff::Timestamp;

    fn agent() -> SetKey {
        SetKey::new("shop", "agent")
    }

    fn plan() -> Plan {
        let mut by_word = [0; Verdict::WORDS.len()];
        by_word[0] = 7;
        by_word[4] = 2;
        Plan {
            actions: Vec::new(),
            invalid: None,
            recreates: None,
            verdicts: Vec::new(),
            pulls: Vec::new(),
            pulls_await: None,
            counts: Counts {
                targeted: 9,
                allowed: 1,
                by_word,
                ..Counts::default()
            },
            phase: Phase::Complete {
                offline: 2,
                kept: 0,
            },
            opens: None,
            tells_opening: false,
            domains: Vec::new(),
            guarded: None,
            record: None,
            reversal: None,
            pause: None,
            waves: Vec::new(),
            overdue: Vec::new(),
            blocked: false,
            refused: Default::default(),
            next_wake: None,
        }
    }

    /// Returns the usual plan, but of a paused DaemonSet. Only a paused DaemonSet has the series about its pause.
    pub(super) fn paused_plan() -> Plan {
        let record = PauseRecord {
            since: Timestamp::from_second(1_800_000_000).unwrap(),
            reminded: 0,
        };
        let pause = Some(PauseStand {
            record,
            until: None,
            reminds: false,
            newcomers: Vec::new(),
            reverts: false,
        });
        Plan { pause, ..plan() }
    }

    /// Returns a page with at least one series of every metric.
    pub(crate) fn page_with_every_metric() -> String {
        let metrics = Metrics::new();
        metrics.record_plan(agent(), &paused_plan(), plan().phase);
        metrics.write("delete", "pods", Ok(()));
        metrics.withheld(SkipReason::NotLeader, 1);
        metrics.watch_restarted("nodes");
        metrics.permission_missing("delete", "pods", true);
        metrics.event_dropped("queue_full");
        metrics.notifications();
        metrics.traces();
        metrics.image_pulled(true);
        metrics.unserved(None);
        metrics.unreadable(&BTreeMap::from([(("pods", UnreadableReason::TooLarge), 1)]));
        let _watch = metrics.watch_ages().follow("pods", &Clock::System);
        metrics.encode()
    }

    #[test]
    fn a_plan_sets_one_series_per_verdict_until_its_daemonset_is_forgotten() {
        let metrics = Metrics::new();
        metrics.record_plan(agent(), &plan(), plan().phase);
        let page = metrics.encode();
        for line in [
            r#"yurt_ds_nodes{namespace="shop",daemonset="agent",group="apps",verdict="Done"} 7"#,
            r#"yurt_ds_nodes{namespace="shop",daemonset="agent",group="apps",verdict="Offline"} 2"#,
            r#"yurt_ds_nodes{namespace="shop",daemonset="agent",group="apps",verdict="Budget"} 0"#,
            r#"yurt_ds_rollout_complete{namespace="shop",daemonset="agent",group="apps"} 1"#,
            r#"yurt_ds_allowed_unavailable{namespace="shop",daemonset="agent",group="apps"} 1"#,
        ] {
            assert!(page.contains(line), "{line} is not in {page}");
        }
        assert!(!page.contains("paused_since_timestamp_seconds{"));
        metrics.record_plan(agent(), &paused_plan(), plan().phase);
        let line = r#"yurt_ds_paused_since_timestamp_seconds{namespace="shop",daemonset="agent",group="apps"} 1800000000"#;
        assert!(metrics.encode().contains(line));
        metrics.record_plan(agent(), &plan(), plan().phase);
        assert!(!metrics.encode().contains("paused_since_timestamp_seconds{"));
        metrics.record_invalid(agent());
        let page = metrics.encode();
        assert!(!page.contains("verdict="), "{page}");
        assert!(page.contains(
            r#"yurt_ds_settings_invalid{namespace="shop",daemonset="agent",group="apps"} 1"#
        ));
        metrics.forget(&agent());
        assert!(!metrics.encode().contains("agent"), "{}", metrics.encode());
        metrics.record_plan(agent(), &paused_plan(), plan().phase);
        metrics.forget_all();
        assert!(!metrics.encode().contains("agent"), "{}", metrics.encode());
    }

    #[test]
    fn native_and_advanced_daemonsets_of_one_name_have_separate_series() {
        let metrics = Metrics::new();
        let advanced = SetKey::of_kind(SetKind::Advanced, "shop", "agent");
        metrics.record_plan(agent(), &plan(), plan().phase);
        metrics.record_invalid(advanced.clone());
        let page = metrics.encode();
        for line in [
            r#"yurt_ds_settings_invalid{namespace="shop",daemonset="agent",group="apps"} 0"#,
            r#"yurt_ds_settings_invalid{namespace="shop",daemonset="agent",group="apps.kruise.io"} 1"#,
        ] {
            assert!(page.contains(line), "{line} is not in {page}");
        }
        metrics.forget(&advanced);
        assert!(!metrics.encode().contains("kruise"), "{}", metrics.encode());
    }

    #[test]
    fn metrics_have_their_documented_names() {
        let metrics = Metrics::new();
        metrics.write("delete", "pods", Ok(()));
        metrics.write("delete", "pods", Err(Failure::Throttled));
        metrics.withheld(SkipReason::NotLeader, 3);
        metrics.watch_restarted("nodes");
        metrics.permission_missing("delete", "pods", true);
        metrics.reconciled(Duration::from_micros(50));
        metrics.queue_depth(4);
        metrics.queue_overflowed();
        metrics.task_failed();
        metrics.leader(true);
        metrics.leader(true);
        metrics.image_pulls_under_way(2);
        metrics.image_pulled(false);
        metrics.other_installations(1);
        metrics.unserved(Some(SetKind::Advanced.into()));
        let page = metrics.encode();
        for line in [
            r#"yurt_ds_api_writes_total{verb="delete",resource="pods",outcome="ok"} 1"#,
            r#"yurt_ds_api_writes_total{verb="delete",resource="pods",outcome="throttled"} 1"#,
            r#"yurt_ds_writes_withheld_total{reason="not_leader"} 3"#,
            r#"yurt_ds_watch_restarts_total{resource="nodes"} 1"#,
            r#"yurt_ds_permission_missing{verb="delete",resource="pods"} 1"#,
            "yurt_ds_decide_duration_seconds_count 1",
            "yurt_ds_reconciles_total 1",
            "yurt_ds_queue_depth 4",
            "yurt_ds_queue_overflow_total 1",
            "yurt_ds_task_failures_total 1",
            "yurt_ds_leader 1",
            "yurt_ds_image_pulls 2",
            r#"yurt_ds_image_pull_results_total{outcome="failed"} 1"#,
            "yurt_ds_lease_transitions_total 1",
            "yurt_ds_build_info{version=",
            "yurt_ds_other_installations 1",
            r#"yurt_ds_kind_unserved{kind="advanced"} 1"#,
            r#"yurt_ds_kind_unserved{kind="native"} 0"#,
        ] {
            assert!(page.contains(line), "{line} is not in {page}");
        }
        assert!(page.ends_with("# EOF\n"));
    }

    #[test]
    fn a_name_with_quotes_and_line_breaks_cannot_forge_a_series() {
        let metrics = Metrics::new();
        metrics.record_plan(
            SetKey::new("a", "x\"} 1\nyurt_ds_leader 1\n#"),
            &plan(),
            plan().phase,
        );
        assert!(
            !metrics
                .encode()
                .lines()
                .any(|line| line == "yurt_ds_leader 1")
        );
    }
}
