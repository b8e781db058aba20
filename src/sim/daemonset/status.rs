//! Numbers of pods in a DaemonSet's status.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::manage::ManagedView;
use super::pods::{available_at, is_updated};
use crate::core::Targeting;

/// Numbers for the status, and the time at which they change without an event.
pub(super) struct Counted {
    pub(super) counters: Map<String, Value>,
    /// Time at which the next Ready pod becomes available; `None` if there is none.
    pub(super) next: Option<Timestamp>,
}

/// Counts the pods for the status. If a node has several pods, only the oldest one is counted.
pub(super) fn count(view: &ManagedView<'_>) -> Counted {
    let [
        mut desired,
        mut current,
        mut misscheduled,
        mut ready,
        mut available,
        mut updated,
    ] = [0_i32; 6];
    let mut next = None;
    for node in view.nodes.keys() {
        let oldest = view.pods.get(node.as_str()).and_then(|pods| pods.first());
        match (view.targeting(node), oldest) {
            (Targeting::Run, None) => desired += 1,
            (Targeting::Run, Some(pod)) => {
                desired += 1;
                current += 1;
                updated += i32::from(is_updated(pod, view.set, view.hash));
                if let Some(at) = available_at(pod, view.set.min_ready) {
                    ready += 1;
                    available += i32::from(at <= view.now);
                    if at > view.now {
                        next = Some(next.map_or(at, |next: Timestamp| next.min(at)));
                    }
                }
            }
            (Targeting::Keep | Targeting::No, None) => {}
            (Targeting::Keep | Targeting::No, Some(_)) => misscheduled += 1,
        }
    }
    let counters = [
        ("desiredNumberScheduled", desired),
        ("currentNumberScheduled", current),
        ("numberMisscheduled", misscheduled),
        ("numberReady", ready),
        ("numberAvailable", available),
        ("numberUnavailable", desired - available),
        ("updatedNumberScheduled", updated),
    ];
    Counted {
        counters: counters
            .into_iter()
            .map(|(key, count)| (key.to_owned(), number_or_nothing(key, count)))
            .collect(),
        next,
    }
}

/// Returns the number as JSON. Zero becomes null in fields that Go's encoder omits if they are zero.
fn number_or_nothing(key: &str, count: i32) -> Value {
    match key {
        "numberAvailable" | "numberUnavailable" | "updatedNumberScheduled" if count == 0 => {
            Value::Null
        }
        _ => json!(count),
    }
}

/// Returns the patch that updates the status; `None` if the numbers are unchanged.
///
/// The patch doesn't change conditions, because other components write them.
pub(super) fn patch(view: &ManagedView<'_>, counted: &Counted, observed: bool) -> Option<Value> {
    let mut status = counted.counters.clone();
    if observed {
        status.insert("observedGeneration".to_owned(), json!(view.set.generation));
    }
    let current = &view.set.status;
    let number = |value: &Value| value.as_i64().unwrap_or(0);
    let differs = status
        .iter()
        .any(|(key, value)| number(&current[key]) != number(value));
    differs.then(|| json!({ "status": status }))
}
