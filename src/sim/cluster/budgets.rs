//! Simulated disruption controller of Kubernetes, which maintains the status of PodDisruptionBudgets.
//!
//! The status is updated immediately after every write. As in Kubernetes, the desired number of pods of a DaemonSet is unknown,
//! because DaemonSets have no scale subresource. For such pods, `maxUnavailable` and percentages are errors, and no disruption is
//! allowed.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::object::Object;
use super::resources::Storage;
use super::store::{Filter, Store};
use super::write::seconds;
use crate::core::selector::Selector;

/// Time for which an evicted pod counts as disrupted if it is not deleted (`DeletionTimeout` in Kubernetes).
const EXPECTED: SignedDuration = SignedDuration::from_secs(120);

pub(super) fn budgets(store: &Store, namespace: &str) -> Vec<Value> {
    let filter = Filter {
        namespace: namespace.to_owned(),
        ..Filter::default()
    };
    store
        .select(Storage::PodDisruptionBudgets, &filter, None)
        .map(|(_, stored)| stored.value.clone())
        .collect()
}

pub(super) fn selector(budget: &Value) -> Selector {
    Selector::from_json(&budget["spec"]["selector"]).unwrap_or_default()
}

/// Updates the status of the budgets in a namespace. Writes only budgets whose status has changed.
pub(crate) fn count(store: &mut Store, namespace: &str, now: Timestamp) {
    for mut budget in budgets(store, namespace) {
        let status = match tally(store, &budget, now) {
            Ok(tally) => tally,
            Err(why) => failed(&budget, &why, now),
        };
        if status != budget["status"] {
            budget["status"] = status;
            store.put(Storage::PodDisruptionBudgets, budget);
        }
    }
}

/// Returns the status of a budget that cannot be computed: it allows no disruptions and keeps all other fields.
fn failed(budget: &Value, why: &str, now: Timestamp) -> Value {
    let mut status = budget["status"].clone();
    status["disruptionsAllowed"] = 0.into();
    allow(&mut status, "False", "SyncFailed", why, None, now);
    status
}

/// Computes the status of a budget from its pods.
///
/// # Errors
/// If the desired number of pods is unknown.
fn tally(store: &Store, budget: &Value, now: Timestamp) -> Result<Value, String> {
    let filter = Filter {
        namespace: budget.namespace().to_owned(),
        labels: selector(budget),
        ..Filter::default()
    };
    let pods: Vec<&Value> = store
        .select(Storage::Pods, &filter, None)
        .map(|(_, stored)| &stored.value)
        .collect();
    let (expected, desired) = wanted(&budget["spec"], &pods)?;
    let mut status = budget["status"].clone();
    let still_expected = |pod: &&&Value| {
        let evicted_at = status["disruptedPods"][pod.name()].as_str();
        let evicted_at = evicted_at.and_then(|at| at.parse::<Timestamp>().ok());
        !pod.is_terminating() && evicted_at.is_some_and(|at| now.duration_since(at) < EXPECTED)
    };
    let gone: Map<String, Value> = pods
        .iter()
        .filter(still_expected)
        .map(|pod| {
            (
                pod.name().to_owned(),
                status["disruptedPods"][pod.name()].clone(),
            )
        })
        .collect();
    let is_healthy =
        |pod: &&&Value| !pod.is_terminating() && !gone.contains_key(pod.name()) && is_ready(pod);
    let current = pods.iter().filter(is_healthy).count();
    let current = i64::try_from(current).unwrap_or(i64::MAX);
    let allowed = match expected {
        0 => 0,
        _ => (current - desired).max(0),
    };
    let generation = budget["metadata"]["generation"].clone();
    status["currentHealthy"] = current.into();
    status["desiredHealthy"] = desired.into();
    status["expectedPods"] = expected.into();
    status["disruptionsAllowed"] = allowed.into();
    status["observedGeneration"] = generation.clone();
    let gone = Some(gone).filter(|gone| !gone.is_empty());
    status.set_or_remove("disruptedPods", gone.map(Value::Object));
    let (condition_status, reason) = match allowed {
        0 => ("False", "InsufficientPods"),
        _ => ("True", "SufficientPods"),
    };
    allow(
        &mut status,
        condition_status,
        reason,
        "",
        Some(generation),
        now,
    );
    Ok(status)
}

/// Returns the expected number of pods, and the number of them that must be healthy.
fn wanted(spec: &Value, pods: &[&Value]) -> Result<(i64, i64), String> {
    match (&spec["minAvailable"], &spec["maxUnavailable"]) {
        (Value::Number(least), _) => {
            let found = i64::try_from(pods.len()).unwrap_or(i64::MAX);
            Ok((found, least.as_i64().unwrap_or(0)))
        }
        (Value::Null, Value::Null) => Ok((0, 0)),
        (Value::Null, most) => {
            let expected = scale(pods)?;
            Ok((expected, (expected - scaled(most, expected)).max(0)))
        }
        (least, _) => {
            let expected = scale(pods)?;
            Ok((expected, scaled(least, expected)))
        }
    }
}

/// Returns the desired number of pods, as the controllers of these pods declare it.
///
/// Pods without a controller count as zero. Pods with a controller cause an error, because no controller in this cluster has a
/// scale subresource.
fn scale(pods: &[&Value]) -> Result<i64, String> {
    let owners = |pod: &Value| pod["metadata"]["ownerReferences"].clone();
    let lists = pods.iter().map(|pod| owners(pod));
    let mut all = lists.flat_map(|list| list.as_array().cloned().unwrap_or_default());
    match all.find(|owner| owner["controller"] == true) {
        None => Ok(0),
        Some(owner) => {
            let kind = owner.text("/kind").to_lowercase();
            let group = owner.text("/apiVersion").split_once('/');
            let group = group.map_or(String::new(), |(group, _)| format!(".{group}"));
            Err(format!(
                "{kind}s{group} does not implement the scale subresource"
            ))
        }
    }
}

/// Sets the condition that reports if disruptions are allowed.
fn allow(
    status: &mut Value,
    condition_status: &str,
    reason: &str,
    message: &str,
    generation: Option<Value>,
    now: Timestamp,
) {
    let before = status["conditions"].as_array();
    let before = before.into_iter().flatten();
    let mut before = before
        .filter(|have| have["type"] == "DisruptionAllowed" && have["status"] == condition_status)
        .map(|have| have["lastTransitionTime"].clone());
    let since = before.next().unwrap_or_else(|| seconds(now).into());
    let mut condition = json!({
        "type": "DisruptionAllowed",
        "status": condition_status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": since,
    });
    if let Some(generation) = generation {
        condition["observedGeneration"] = generation;
    }
    if let Value::Object(status) = status {
        set_condition(status, condition);
    }
}

pub(super) fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

pub(super) fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

/// Returns a number unchanged, or a percentage of `whole` rounded up.
fn scaled(value: &Value, whole: i64) -> i64 {
    match value {
        Value::Number(number) => number.as_i64().unwrap_or(0),
        Value::String(text) => {
            let percent: i64 = text
                .strip_suffix('%')
                .and_then(|text| text.parse().ok())
                .unwrap_or(0);
            (percent * whole + 99) / 100
        }
        _ => 0,
    }
}

pub(super) fn set_condition(status: &mut Map<String, Value>, condition: Value) {
    let conditions = status
        .entry("conditions".to_owned())
        .or_insert_with(|| json!([]));
    if let Value::Array(list) = conditions {
        list.retain(|have| have["type"] != condition["type"]);
        list.push(condition);
    }
}
