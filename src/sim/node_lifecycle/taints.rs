//! Taints that a node should have, and the time for which a pod may stay on a node.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use crate::sim::pod_view::NO_EXECUTE;
use crate::sim::scheduler::tolerates;

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Returns the status of the node's Ready condition.
pub(super) fn readiness(node: &DynamicObject) -> Option<&str> {
    let conditions = node.data["status"]["conditions"].as_array()?;
    let ready = conditions.iter().find(|c| c["type"] == "Ready")?;
    ready["status"].as_str()
}

/// Returns the taints that the node should have; `None` if it has exactly these taints.
pub(super) fn wanted(node: &DynamicObject, now: Timestamp) -> Option<Vec<Value>> {
    let has: Vec<Value> = current(node).cloned().collect();
    let ours = |taint: &Value| {
        let key = taint["key"].as_str().unwrap_or_default();
        [NOT_READY, UNREACHABLE, UNSCHEDULABLE].contains(&key)
    };
    let mut want: Vec<Value> = has.iter().filter(|taint| !ours(taint)).cloned().collect();
    let mut add = |key: &str, effect: &str| {
        let same = |taint: &&Value| taint["key"] == key && taint["effect"] == effect;
        let kept = has.iter().find(same).cloned();
        let added = || json!({ "key": key, "effect": effect, "timeAdded": seconds(now) });
        want.push(kept.unwrap_or_else(added));
    };
    let unready = match readiness(node) {
        Some("True") => None,
        Some("Unknown") => Some(UNREACHABLE),
        _ => Some(NOT_READY),
    };
    if let Some(key) = unready {
        add(key, "NoSchedule");
        // A node without a Ready condition has never been Ready. Such a node gets no new pods, but its pods are not evicted.
        if readiness(node).is_some() {
            add(key, NO_EXECUTE);
        }
    }
    if node.data["spec"]["unschedulable"] == true {
        add(UNSCHEDULABLE, "NoSchedule");
    }
    let same = want.len() == has.len() && want.iter().all(|taint| has.contains(taint));
    (!same).then_some(want)
}

fn seconds(now: Timestamp) -> Value {
    json!(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now))
}

fn current(node: &DynamicObject) -> impl Iterator<Item = &Value> {
    node.data["spec"]["taints"].as_array().into_iter().flatten()
}

/// Returns the time for which a pod with these tolerations may stay on the node; `None` if it may stay indefinitely.
pub(super) fn may_stay(
    tolerations: &[Value],
    node: &DynamicObject,
    now: Timestamp,
) -> Option<Duration> {
    let taints = current(node).filter(|taint| taint["effect"] == NO_EXECUTE);
    let left = taints.filter_map(|taint| {
        let mut fitting = tolerations
            .iter()
            .filter(|t| tolerates(t, taint))
            .peekable();
        if fitting.peek().is_none() {
            return Some(Duration::ZERO);
        }
        let seconds = fitting
            .filter_map(|t| t["tolerationSeconds"].as_i64())
            .min()?;
        let seconds = Duration::from_secs(seconds.try_into().unwrap_or(0));
        let added = taint["timeAdded"]
            .as_str()
            .and_then(|time| time.parse::<Timestamp>().ok());
        let passed = added.map_or(Duration::ZERO, |added| {
            Duration::try_from(now.duration_since(added)).unwrap_or(Duration::ZERO)
        });
        Some(seconds.saturating_sub(passed))
    });
    left.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(data: Value) -> DynamicObject {
        DynamicObject {
            types: None,
            metadata: kube::api::ObjectMeta::default(),
            data,
        }
    }

    fn keys(node: &DynamicObject) -> Option<Vec<String>> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let wanted = wanted(node, Timestamp::UNIX_EPOCH)?;
        let name = |taint: &Value| format!("{}:{}", text(&taint["key"]), text(&taint["effect"]));
        Some(wanted.iter().map(name).collect())
    }

    #[test]
    fn taints_follow_the_ready_condition_and_foreign_taints_stay() {
        let ready = |status: &str, taints: Value| {
            node(json!({
                "spec": { "taints": taints },
                "status": { "conditions": [{ "type": "Ready", "status": status }] },
            }))
        };
        let own = || json!([{ "key": "own", "effect": "NoSchedule" }]);
        let unreachable = |effect: &str| format!("{UNREACHABLE}:{effect}");
        assert_eq!(keys(&ready("True", own())), None);
        let away = keys(&ready("Unknown", own()));
        let expected = [
            "own:NoSchedule".to_owned(),
            unreachable("NoSchedule"),
            unreachable("NoExecute"),
        ];
        assert_eq!(away, Some(expected.to_vec()));
        let back = ready(
            "True",
            json!([{ "key": UNREACHABLE, "effect": "NoExecute" }]),
        );
        assert_eq!(keys(&back), Some(Vec::new()));
        let new = keys(&node(json!({ "spec": { "unschedulable": true } })));
        let expected = [
            format!("{NOT_READY}:NoSchedule"),
            format!("{UNSCHEDULABLE}:NoSchedule"),
        ];
        assert_eq!(new, Some(expected.to_vec()));
    }

    #[test]
    fn a_toleration_may_expire() {
        let taint = json!([{ "key": UNREACHABLE, "effect": "NoExecute", "timeAdded": "1970-01-01T00:00:00Z" }]);
        let node = node(json!({ "spec": { "taints": taint } }));
        let now = Timestamp::from_second(100).unwrap();
        let stay = |toleration: Value| may_stay(&[toleration], &node, now);
        let exists = |seconds: Value| json!({ "key": UNREACHABLE, "operator": "Exists", "tolerationSeconds": seconds });
        assert_eq!(stay(exists(json!(null))), None);
        assert_eq!(stay(exists(json!(300))), Some(Duration::from_secs(200)));
        assert_eq!(stay(exists(json!(50))), Some(Duration::ZERO));
        assert_eq!(
            stay(json!({ "key": "other", "operator": "Exists" })),
            Some(Duration::ZERO)
        );
    }
}
