//! How long the present pods took to start, and how long they may take to end.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::slim::Pod;

/// A pod that became Ready later than this after its container started was not slow: its node was away meanwhile.
const READY_WITHIN: Duration = Duration::from_secs(600);
/// What a pod is assumed to take where there is none to measure.
const ASSUMED: Duration = Duration::from_secs(10);
/// A pod that is not Ready this much after it should have been does not become so by itself.
const LATE: Duration = Duration::from_secs(60);
/// `terminationGracePeriodSeconds` where a template says nothing (Kubernetes).
const GRACE: u64 = 30;

/// How long pods take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Pace {
    /// From its creation until a pod is Ready, in the middle; seconds.
    pub(super) start_seconds: u64,
    /// Nine of ten are quicker than that; seconds.
    pub(super) slow_start_seconds: u64,
    /// How many pods were measured; none: the start is assumed.
    pub(super) measured_pods: usize,
    /// From its deletion until it is gone; seconds.
    pub(super) end_seconds: u64,
}

impl Pace {
    /// The pace of the present pods; `ends` is how long they take to end, where somebody knows.
    pub(super) fn of(pods: &[Pod], template: &Value, ends: Option<Duration>) -> Self {
        let mut starts: Vec<Duration> = pods.iter().filter_map(start_of).collect();
        starts.sort();
        let rank = |percent: usize| starts.get((starts.len() * percent).div_ceil(100).max(1) - 1);
        let grace = template["spec"]["terminationGracePeriodSeconds"].as_u64();
        let start = rank(50)
            .copied()
            .unwrap_or(ASSUMED)
            .max(Duration::from_secs(1));
        Self {
            start_seconds: start.as_secs(),
            slow_start_seconds: rank(90).copied().unwrap_or(start).max(start).as_secs(),
            measured_pods: starts.len(),
            end_seconds: ends.map_or(grace.unwrap_or(GRACE), |ends| ends.as_secs()),
        }
    }

    /// From creation to Ready.
    pub(super) fn start(&self) -> Duration {
        Duration::from_secs(self.start_seconds)
    }

    /// From deletion to the end.
    pub(super) fn end(&self) -> Duration {
        Duration::from_secs(self.end_seconds)
    }

    /// UIDs of the pods that do not become Ready by themselves.
    pub(super) fn broken(&self, pods: &[Pod], now: Timestamp) -> BTreeSet<String> {
        let patience = LATE + Duration::from_secs(2 * self.slow_start_seconds);
        let is_broken = |pod: &&Pod| {
            let age = pod.metadata.creation_timestamp.as_ref();
            let age = age.map(|created| now.duration_since(created.0).unsigned_abs());
            !pod.is_ready() && (age.is_none_or(|age| age > patience) || is_in_trouble(pod))
        };
        let broken = pods.iter().filter(is_broken);
        broken.filter_map(|pod| pod.metadata.uid.clone()).collect()
    }
}

/// Whether a container failed, or waits for something else than its beginning.
fn is_in_trouble(pod: &Pod) -> bool {
    pod.status.container_statuses.iter().any(|container| {
        let waits = container.state["waiting"]["reason"].as_str();
        let begins = [None, Some("ContainerCreating"), Some("PodInitializing")].contains(&waits);
        container.restart_count > 0 || !begins
    })
}

/// From creation to Ready, of a pod that was not interrupted on the way.
fn start_of(pod: &Pod) -> Option<Duration> {
    let ready = pod
        .condition("Ready")
        .filter(|ready| ready.status == "True")?;
    let ready = ready.last_transition_time.as_ref()?.0;
    let created = pod.metadata.creation_timestamp.as_ref()?.0;
    let statuses = &pod.status.container_statuses;
    if ready < created || statuses.iter().any(|one| one.restart_count > 0) {
        return None;
    }
    let ran = statuses.iter().filter_map(|one| {
        let at = one.state["running"]["startedAt"].as_str()?;
        at.parse::<Timestamp>().ok()
    });
    let ran = ran.max().unwrap_or(created);
    let prompt = ready.duration_since(ran).unsigned_abs() <= READY_WITHIN;
    prompt.then(|| ready.duration_since(created).unsigned_abs())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(seconds: i64, restarts: i64, started: i64) -> Pod {
        let at = |seconds: i64| Timestamp::from_second(seconds).unwrap().to_string();
        serde_json::from_value(json!({
            "metadata": { "uid": format!("u{seconds}"), "creationTimestamp": at(0) },
            "status": {
                "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": at(seconds) }],
                "containerStatuses": [{ "restartCount": restarts, "state": { "running": { "startedAt": at(started) } } }],
            },
        }))
        .unwrap()
    }

    #[test]
    fn starts_are_measured_where_nothing_interrupted_them() {
        let mut pods: Vec<Pod> = (1..=10).map(|seconds| pod(seconds, 0, 0)).collect();
        pods.push(pod(500, 3, 499)); // restarted
        pods.push(pod(86_400, 0, 2)); // its node returned after a day
        let pace = Pace::of(&pods, &json!({}), None);
        assert_eq!(
            pace,
            Pace {
                start_seconds: 5,
                slow_start_seconds: 9,
                measured_pods: 10,
                end_seconds: 30
            }
        );
    }

    #[test]
    fn without_pods_a_start_is_assumed() {
        let template = json!({ "spec": { "terminationGracePeriodSeconds": 5 } });
        let pace = Pace::of(&[], &template, None);
        assert_eq!(
            (pace.start_seconds, pace.measured_pods, pace.end_seconds),
            (10, 0, 5)
        );
        let ends = Some(Duration::from_secs(1));
        assert_eq!(Pace::of(&[], &template, ends).end_seconds, 1);
    }

    #[test]
    fn what_should_have_started_long_ago_is_broken() {
        let mut late = pod(3, 0, 0);
        late.status.conditions.clear();
        let pods = [pod(3, 0, 0), late];
        let pace = Pace::of(&pods, &json!({}), None);
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(pace.broken(&pods, at(10)).len(), 0);
        assert_eq!(pace.broken(&pods, at(1000)).len(), 1);
    }
}
