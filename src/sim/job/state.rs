//! Decides the next step of a Job from its spec, status and pods.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::DynamicObject;
use serde_json::{Value, json};

use crate::backoff;
use crate::k8s::Pod;

/// First back-off after a failed pod. The back-off doubles up to `BACK_OFF_MAX`, as in the native controller.
const BACK_OFF: Duration = Duration::from_secs(10);
const BACK_OFF_MAX: Duration = Duration::from_secs(600);

#[derive(Debug, PartialEq)]
pub(super) enum JobStep {
    Nothing,
    /// Check the Job again after this time.
    Wait(Duration),
    /// Create this number of pods.
    Create {
        pod: Value,
        count: usize,
    },
    /// Delete the pods with these names.
    Delete(Vec<String>),
    /// Write the status. If the Job ended, also write an Event.
    Status {
        status: Value,
        event: Option<(&'static str, &'static str, &'static str)>,
    },
    /// Delete the Job, because its time to live has passed.
    Remove,
}

pub(super) fn next(job: &DynamicObject, pods: &[&Pod], now: Timestamp) -> JobStep {
    let (spec, status) = (&job.data["spec"], &job.data["status"]);
    if job.metadata.deletion_timestamp.is_some() {
        return JobStep::Nothing;
    }
    let active: Vec<&Pod> = pods.iter().copied().filter(|pod| is_active(pod)).collect();
    if let Some(ended) = ended(status) {
        return if active.is_empty() {
            after_end(spec, ended, now)
        } else {
            JobStep::Delete(names(&active))
        };
    }
    let phase = |phase: &str| pods.iter().filter(|pod| pod.status.phase == phase).count();
    let counts = Counts {
        active: active.len(),
        ready: active.iter().filter(|pod| pod.is_ready()).count(),
        succeeded: phase("Succeeded"),
        failed: phase("Failed"),
    };
    let started = time(&status["startTime"]);
    let end = verdict(spec, &counts, &active, started, now);
    if let Some(status) = status_if_new(status, &counts, end, now) {
        let event = end.map(|end| end.event());
        return JobStep::Status { status, event };
    }
    go_on(job, &counts, pods, started, now)
}

struct Counts {
    active: usize,
    ready: usize,
    succeeded: usize,
    failed: usize,
}

/// Way in which a Job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Complete,
    BackoffLimitExceeded,
    DeadlineExceeded,
}

impl End {
    fn event(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Complete => ("Normal", "Completed", "Job completed"),
            Self::BackoffLimitExceeded => ("Warning", "BackoffLimitExceeded", self.message()),
            Self::DeadlineExceeded => ("Warning", "DeadlineExceeded", self.message()),
        }
    }

    fn message(self) -> &'static str {
        match self {
            Self::Complete => "Reached expected number of succeeded pods",
            Self::BackoffLimitExceeded => "Job has reached the specified backoff limit",
            Self::DeadlineExceeded => "Job was active longer than specified deadline",
        }
    }

    fn conditions(self, now: Timestamp) -> Value {
        let kinds = match self {
            Self::Complete => ["SuccessCriteriaMet", "Complete"],
            _ => ["FailureTarget", "Failed"],
        };
        let reason = match self {
            Self::Complete => "CompletionsReached",
            other => other.event().1,
        };
        let condition = |kind: &str| {
            json!({
                "type": kind, "status": "True", "reason": reason, "message": self.message(),
                "lastProbeTime": Time(now), "lastTransitionTime": Time(now),
            })
        };
        Value::Array(kinds.map(condition).to_vec())
    }
}

fn verdict(
    spec: &Value,
    counts: &Counts,
    active: &[&Pod],
    started: Option<Timestamp>,
    now: Timestamp,
) -> Option<End> {
    let limit = number(&spec["backoffLimit"], 6);
    let restarts: i64 = active
        .iter()
        .flat_map(|pod| &pod.status.container_statuses)
        .map(|container| container.restart_count)
        .sum();
    let restarted = spec["template"]["spec"]["restartPolicy"] == "OnFailure"
        && restarts > 0
        && usize::try_from(restarts).unwrap_or(usize::MAX) >= limit;
    if counts.failed > limit || restarted {
        return Some(End::BackoffLimitExceeded);
    }
    let deadline = seconds(&spec["activeDeadlineSeconds"]);
    if let (Some(started), Some(deadline)) = (started, deadline)
        && passed(started, now) >= deadline
    {
        return Some(End::DeadlineExceeded);
    }
    let wanted = number(&spec["completions"], 1);
    (counts.succeeded >= wanted).then_some(End::Complete)
}

/// Returns the new status; `None` if it equals the current one.
fn status_if_new(old: &Value, counts: &Counts, end: Option<End>, now: Timestamp) -> Option<Value> {
    let some = |count: usize| (count > 0).then_some(count);
    let active = if end.is_some() { 0 } else { counts.active };
    let mut status = json!({
        "active": some(active),
        "ready": if end.is_some() { 0 } else { counts.ready },
        "succeeded": some(counts.succeeded),
        "failed": some(counts.failed),
    });
    if old["startTime"].is_null() {
        status["startTime"] = json!(Time(now));
    }
    if let Some(end) = end {
        status["conditions"] = end.conditions(now);
        if end == End::Complete {
            status["completionTime"] = json!(Time(now));
        }
    }
    let fields = status.as_object()?.iter();
    let mut fields = fields.filter(|(key, _)| *key != "ready" || end.is_some());
    let differs = fields.any(|(key, value)| old[key] != *value);
    let ready = old["ready"].as_u64() != u64::try_from(counts.ready).ok();
    (differs || ready).then_some(status)
}

/// Returns the next step of a Job that has not ended and whose status is up to date.
fn go_on(
    job: &DynamicObject,
    counts: &Counts,
    pods: &[&Pod],
    started: Option<Timestamp>,
    now: Timestamp,
) -> JobStep {
    let spec = &job.data["spec"];
    if spec["suspend"] == true {
        return JobStep::Nothing;
    }
    let deadline = seconds(&spec["activeDeadlineSeconds"]);
    let until_deadline = started
        .zip(deadline)
        .map(|(started, deadline)| deadline.saturating_sub(passed(started, now)));
    let wanted = number(&spec["completions"], 1).saturating_sub(counts.succeeded);
    let missing = number(&spec["parallelism"], 1)
        .min(wanted)
        .saturating_sub(counts.active);
    let back_off =
        last_failure(pods).map(|at| back_off(counts.failed).saturating_sub(passed(at, now)));
    match back_off {
        Some(left) if missing > 0 && !left.is_zero() => {
            JobStep::Wait(until_deadline.map_or(left, |deadline| deadline.min(left)))
        }
        _ if missing > 0 => JobStep::Create {
            pod: pod(job),
            count: missing,
        },
        _ => until_deadline.map_or(JobStep::Nothing, |left| {
            JobStep::Wait(left.max(Duration::from_millis(1)))
        }),
    }
}

fn after_end(spec: &Value, ended: Timestamp, now: Timestamp) -> JobStep {
    match seconds(&spec["ttlSecondsAfterFinished"]) {
        None => JobStep::Nothing,
        Some(time) if passed(ended, now) >= time => JobStep::Remove,
        Some(time) => JobStep::Wait(time.saturating_sub(passed(ended, now))),
    }
}

/// Returns a new pod for a Job, created from its template.
fn pod(job: &DynamicObject) -> Value {
    let name = job.metadata.name.clone().unwrap_or_default();
    let uid = job.metadata.uid.clone().unwrap_or_default();
    let template = &job.data["spec"]["template"];
    let mut labels = template["metadata"]["labels"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    for (key, value) in [("controller-uid", &uid), ("job-name", &name)] {
        labels
            .entry(format!("batch.kubernetes.io/{key}"))
            .or_insert_with(|| json!(value));
        labels.entry(key).or_insert_with(|| json!(value));
    }
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": format!("{name}-"),
            "namespace": job.metadata.namespace,
            "labels": labels,
            "annotations": template["metadata"]["annotations"],
            "ownerReferences": [{
                "apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid,
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": template["spec"],
    })
}

/// Returns the time at which the Job ended; `None` if it has not.
fn ended(status: &Value) -> Option<Timestamp> {
    let conditions = status["conditions"].as_array()?;
    let end =
        |c: &&Value| (c["type"] == "Complete" || c["type"] == "Failed") && c["status"] == "True";
    let condition = conditions.iter().find(end)?;
    Some(time(&condition["lastTransitionTime"]).unwrap_or(Timestamp::UNIX_EPOCH))
}

fn is_active(pod: &Pod) -> bool {
    !pod.is_over() && !pod.is_deleting()
}

/// Returns the time of the latest pod failure, taken from the failed pods' Ready conditions.
fn last_failure(pods: &[&Pod]) -> Option<Timestamp> {
    let failed = pods.iter().filter(|pod| pod.status.phase == "Failed");
    let times = failed.flat_map(|pod| &pod.status.conditions);
    times
        .filter(|c| c.kind == "Ready")
        .filter_map(|c| c.last_transition.as_ref().map(|time| time.0))
        .max()
}

fn back_off(failures: usize) -> Duration {
    let failures = u32::try_from(failures).unwrap_or(u32::MAX);
    backoff::pause(BACK_OFF, failures, BACK_OFF_MAX)
}

fn names(pods: &[&Pod]) -> Vec<String> {
    pods.iter()
        .filter_map(|pod| pod.metadata.name.clone())
        .collect()
}

fn number(value: &Value, default: usize) -> usize {
    value
        .as_u64()
        .map_or(default, |n| n.try_into().unwrap_or(usize::MAX))
}

fn seconds(value: &Value) -> Option<Duration> {
    value.as_u64().map(Duration::from_secs)
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

fn passed(since: Timestamp, now: Timestamp) -> Duration {
    let passed: SignedDuration = now.duration_since(since);
    Duration::try_from(passed).unwrap_or(Duration::ZERO)
}
