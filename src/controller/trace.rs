//! Traces of rollouts in the OTLP/HTTP format with JSON: one trace per rollout, with one span per replaced pod.
//!
//! ```text
//! rollout       ├──────────────────── span events: stalled, paused, resumed ──────────────┤ complete or superseded
//! replace pod      ├ deleted ─────────── available ┤
//! ```
//!
//! A span is sent when it ends. IDs are derived from the DaemonSet's UID, the revision, and the stored time at which the rollout
//! began. So a new leader continues the trace. Spans that are open during a change of the leader lose their beginning.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::jiff::Timestamp;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::metrics::Metrics;
use super::outbox::{self, Delivery, Endpoint, Limits, Message, Outbox, Receiver};
use super::report::RolloutFacts;
use super::step::Step;
use crate::clock::Clock;
use crate::core::fleet::position_of;
use crate::core::foreign::shown;
use crate::core::instant::earlier;
use crate::core::names::ROLLOUT_COMPLETE;
use crate::core::{Fleet, NodeName, Plan, Pod, PodRef, Revision, Verdict};
use crate::index::{SetKey, SetRecord};

/// Maximum number of spans in a request, their maximum size in bytes, and the time for which spans are collected.
const BATCH: usize = 512;
const BATCH_SIZE: usize = 900 << 10;
const INTERVAL: Duration = Duration::from_secs(5);
/// Maximum size of a batch, and number of batches that may wait. Together they limit the memory to a few MiB.
const LIMITS: Limits = Limits {
    queue: 8,
    size: 1 << 20,
};
/// Precision of creation times.
const SECOND: Duration = Duration::from_secs(1);
/// Maximum number of events of a span. A rollout that is paused and resumed more often loses the later ones.
const EVENTS: usize = 32;

/// Collector of traces.
pub struct Traces(pub(super) Endpoint);

impl Traces {
    /// Returns the collector at this base URL; `None` without a URL.
    ///
    /// # Errors
    /// If the URL is unusable.
    pub fn from_endpoint(url: Option<&str>) -> Result<Option<Self>> {
        const FLAG: &str = "--otlp-endpoint";
        // An empty variable is the usual way to switch something off.
        let Some(url) = url.filter(|url| !url.is_empty()) else {
            return Ok(None);
        };
        ensure!(
            !url.contains('?'),
            "{FLAG} has a query: use http://HOST:PORT, to which /v1/traces is appended"
        );
        let url = format!("{}/v1/traces", url.trim_end_matches('/'));
        Endpoint::parse(FLAG, &url).map(|endpoint| Some(Self(endpoint)))
    }

    /// Starts the tasks that collect and send spans.
    pub(super) fn start(self, clock: &Clock, metrics: &Arc<Metrics>) -> (Tracer, TraceDelivery) {
        let receiver = Receiver {
            content: "trace",
            media_type: "application/json",
            limits: LIMITS,
            endpoint: self.0,
            signer: None,
            clock: clock.clone(),
        };
        let (outbox, delivery) = outbox::start(receiver, metrics.traces());
        // Unbounded, because the other end never waits: it holds at most one batch.
        let (spans, received) = unbounded_channel();
        let tracer = Tracer {
            spans,
            sets: BTreeMap::new(),
        };
        let batching = tokio::spawn(send_batches(received, outbox));
        (tracer, TraceDelivery { batching, delivery })
    }
}

/// Tasks that send spans.
pub(super) struct TraceDelivery {
    batching: JoinHandle<()>,
    delivery: Delivery,
}

impl TraceDelivery {
    /// Sends the last spans. The [`Tracer`] must be dropped before.
    pub(super) async fn finish(self) {
        let _ended = self.batching.await;
        self.delivery.finish().await;
    }
}

async fn send_batches(mut spans: UnboundedReceiver<Value>, outbox: Outbox) {
    while let Some(first) = spans.recv().await {
        let id = first["traceId"].as_str().unwrap_or_default().to_owned();
        let mut size = first.to_string().len();
        let (mut batch, end) = (vec![first], Instant::now() + INTERVAL);
        // A span is far smaller than the space between this limit and that of a message.
        while batch.len() < BATCH
            && size < BATCH_SIZE
            && let Ok(Some(span)) = timeout_at(end, spans.recv()).await
        {
            size += span.to_string().len();
            batch.push(span);
        }
        let resource = [
            attribute("service.name", "yurt-ds"),
            attribute("service.version", env!("CARGO_PKG_VERSION")),
        ];
        let content = json!({ "resourceSpans": [{
            "resource": { "attributes": resource },
            "scopeSpans": [{ "scope": { "name": "yurt-ds" }, "spans": batch }],
        }] });
        let body = content.to_string().into();
        outbox.send(Message { id, body });
    }
}

/// Recorder of spans.
pub(super) struct Tracer {
    spans: UnboundedSender<Value>,
    sets: BTreeMap<SetKey, OpenSpans>,
}

/// Spans of a DaemonSet that have not ended.
#[derive(Default)]
struct OpenSpans {
    rollout: Option<OpenRollout>,
    /// Pods that the controller is replacing, by node.
    pods: BTreeMap<NodeName, (PodRef, Timestamp)>,
}

struct OpenRollout {
    revision: Revision,
    trace: Trace,
    start: Timestamp,
    events: Vec<Value>,
    has_stalled: bool,
}

impl Tracer {
    /// Records that the controller begins to replace a pod. Repeated steps of the same replacement change nothing. A rollback of
    /// the new pod begins another replacement.
    pub(super) fn begin_pod(
        &mut self,
        key: &SetKey,
        node: &NodeName,
        pod: &PodRef,
        now: Timestamp,
    ) {
        let open = self.sets.entry(key.clone()).or_default();
        let begun = || (pod.clone(), now);
        let known = open.pods.entry(node.clone()).or_insert_with(begun);
        if known.0.uid != pod.uid {
            *known = begun();
        }
    }

    /// Forgets the replacement of a pod, because the API server did not accept it.
    pub(super) fn forget_pod(&mut self, key: &SetKey, pod: &PodRef) {
        if let Some(open) = self.sets.get_mut(key) {
            open.pods.retain(|_, (begun, _)| begun.uid != pod.uid);
        }
    }

    /// Forgets the open spans of a DaemonSet that is gone.
    pub(super) fn forget(&mut self, key: &SetKey) {
        self.sets.remove(key);
    }

    /// Forgets all open spans, because another replica leads.
    pub(super) fn forget_all(&mut self) {
        self.sets.clear();
    }

    /// Ends the spans of pods whose replacements are available. Forgets those of nodes that get no pod any more.
    pub(super) fn end_pods(&mut self, set: &SetRecord, fleet: &Fleet, plan: &Plan, now: Timestamp) {
        let Some(open) = self.sets.get_mut(&set.key()) else {
            return;
        };
        let Some(revision) = fleet.revision.current() else {
            return;
        };
        let verdict = |node: &NodeName| match position_of(&fleet.nodes, node) {
            Ok(position) => Some(&plan.verdicts[position]),
            Err(_) => set.is_counted_as_done(node).then_some(&Verdict::Done),
        };
        let mut ended = Vec::new();
        open.pods.retain(|node, begun| match verdict(node) {
            Some(Verdict::Done) => {
                ended.push((node.clone(), begun.clone()));
                false
            }
            Some(verdict) => *verdict != Verdict::NotTargeted,
            None => set.pods_on(node).next().is_some(),
        });
        if ended.is_empty() {
            return;
        }
        let rollout = open.rollout.as_ref();
        let rollout = rollout.filter(|rollout| rollout.revision == *revision);
        let stored = || Trace::stored(set, revision);
        let trace = rollout.map_or_else(stored, |rollout| rollout.trace.clone());
        for (node, (old, start)) in ended {
            // After an update in place, the pod is the same. A pod that is older than the replacement was there before, such as
            // the one that stays when a surplus pod is deleted.
            let is_new = |pod: &&Pod| pod.uid != old.uid && pod.created >= earlier(start, SECOND);
            let updated = |pod: &Pod| {
                pod.in_place
                    .update
                    .is_some_and(|update| update.at >= earlier(start, SECOND))
            };
            let is_same = |pod: &Pod| pod.uid == old.uid && updated(pod);
            let new = match set.pods_on(&node).rfind(is_new) {
                Some(pod) => &pod.name,
                None if set.pods_on(&node).any(is_same) => &old.name,
                None => continue,
            };
            // The first pod is replaced moments before the rollout is reported.
            let start = rollout.map_or(start, |rollout| start.max(rollout.start));
            let mut span = trace.span("replace pod", &old.uid.to_string(), start, now);
            let attributes = [
                ("k8s.node.name", node.as_str()),
                ("k8s.pod.name", new.as_str()),
                ("yurt_ds.replaced_pod", old.name.as_str()),
                ("yurt_ds.revision", revision.as_str()),
            ];
            span["attributes"] =
                Value::from_iter(attributes.map(|(key, value)| attribute(key, value)));
            span["status"] = json!({ "code": 1 });
            if trace.began.is_some() {
                span["parentSpanId"] = json!(trace.root());
            }
            let _sent = self.spans.send(span);
        }
    }

    /// Records a step of a rollout: begins or ends its span, or adds an event. `set` is the DaemonSet before the status is written.
    pub(super) fn record(&mut self, set: &SetRecord, facts: &RolloutFacts, now: Timestamp) {
        let step = facts.step;
        let Some(revision) = &facts.revision else {
            return;
        };
        let open = self.sets.entry(set.key()).or_default();
        let earlier = open
            .rollout
            .take_if(|rollout| rollout.revision != *revision);
        if let Some(earlier) = earlier {
            let _sent = self.spans.send(earlier.span(set, now, "superseded"));
        }
        let rollout = open.rollout.get_or_insert_with(|| {
            // After a change of the leader, the stored time of the start is used.
            let trace = match step {
                Step::Started => Trace::new(set, revision, Some(now)),
                _ => Trace::stored(set, revision),
            };
            OpenRollout {
                revision: revision.clone(),
                start: trace.began.unwrap_or(now),
                trace,
                events: Vec::new(),
                has_stalled: false,
            }
        });
        match step {
            Step::Started => {}
            Step::Resumed | Step::Paused | Step::Stalled => {
                rollout.has_stalled |= step == Step::Stalled;
                if rollout.events.len() < EVENTS {
                    let message = [attribute("message", &shown(&facts.message))];
                    let (at, name) = (nanoseconds(now), step.word());
                    let event = json!({ "timeUnixNano": at, "name": name, "attributes": message });
                    rollout.events.push(event);
                }
            }
            Step::Complete => {
                let span = rollout.span(set, now, "complete");
                // Pods of nodes that went offline end outside of the rollout, or never.
                self.sets.remove(&set.key());
                let _sent = self.spans.send(span);
            }
        }
    }
}

impl OpenRollout {
    fn span(&self, set: &SetRecord, end: Timestamp, outcome: &str) -> Value {
        let mut span = self.trace.span("rollout", "", self.start, end);
        let key = set.key();
        let attributes = [
            ("k8s.namespace.name", &*key.namespace),
            ("k8s.daemonset.name", &*key.name),
            ("k8s.daemonset.uid", &*set.uid),
            ("yurt_ds.group", key.kind.group()),
            ("yurt_ds.revision", self.revision.as_str()),
            ("yurt_ds.outcome", outcome),
        ];
        span["attributes"] = Value::from_iter(attributes.map(|(key, value)| attribute(key, value)));
        span["events"] = json!(self.events);
        let code = if self.has_stalled { 2 } else { 1 };
        span["status"] = json!({ "code": code });
        span
    }
}

/// Identity of a trace.
#[derive(Clone)]
struct Trace {
    id: String,
    /// Start of the rollout; `None` if no rollout is in progress.
    began: Option<Timestamp>,
}

impl Trace {
    fn new(set: &SetRecord, revision: &Revision, began: Option<Timestamp>) -> Self {
        let second = began.map_or(0, Timestamp::as_second);
        let id = hash::<16>(&format!("{}/{revision}/{second}", set.uid));
        Self { id, began }
    }

    /// Returns the trace of a rollout that the controller has not seen to begin. It began when `RolloutComplete` became false.
    fn stored(set: &SetRecord, revision: &Revision) -> Self {
        let mut conditions = set.conditions.iter();
        let complete = conditions.find(|condition| condition.kind == ROLLOUT_COMPLETE);
        let incomplete = complete.filter(|condition| !condition.is_true());
        let began = incomplete.and_then(|condition| condition.last_transition.as_ref());
        Self::new(set, revision, began.map(|time| time.0))
    }

    /// Returns the ID of the rollout's span.
    fn root(&self) -> String {
        self.span_id("")
    }

    fn span_id(&self, subject: &str) -> String {
        hash::<8>(&format!("{}/{subject}", self.id))
    }

    fn span(&self, name: &str, subject: &str, start: Timestamp, end: Timestamp) -> Value {
        json!({
            "traceId": self.id,
            "spanId": self.span_id(subject),
            "name": name,
            "kind": 1,
            "startTimeUnixNano": nanoseconds(start.min(end)),
            "endTimeUnixNano": nanoseconds(end),
        })
    }
}

/// Returns the first bytes of the hash of a text in hexadecimal.
pub(super) fn hash<const BYTES: usize>(text: &str) -> String {
    let hash = digest(&SHA256, text.as_bytes());
    let bytes = hash.as_ref().iter().take(BYTES);
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a Unix time in nanoseconds; zero for a time before 1970, which OTLP can't represent. OTLP's JSON has 64-bit numbers as
/// text.
fn nanoseconds(at: Timestamp) -> String {
    at.as_nanosecond().max(0).to_string()
}

fn attribute(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

#[cfg(test)]
mod tests;
