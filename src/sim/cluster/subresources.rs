//! What is under a pod: binding it to a node, and evicting it.

use serde_json::{Value, json};

use super::object::Object;
use super::request::Target;
use super::resources::Storage;
use super::selector::Selector;
use super::status::{Failure, success};
use super::store::{Filter, Store};
use super::verbs::{self, DeleteOptions, Outcome, Writing, seconds};

/// POST `pods/NAME/binding`: gives an unbound pod its node.
pub(crate) fn bind(
    store: &mut Store,
    target: &Target,
    body: &Value,
    writing: &Writing,
) -> Result<Outcome, Failure> {
    let node = body.text("/target/name");
    if node.is_empty() {
        return Err(Failure::invalid(
            "",
            "Binding",
            &target.name,
            &[super::status::Cause::required("target.name", "")],
        ));
    }
    let current = verbs::get(store, target)?;
    let mut pod = current.value.clone();
    let conflict = |why: String| Failure::conflict("", "pods/binding", &target.name, why);
    if pod.is_terminating() {
        return Err(conflict(format!(
            "pod {} is being deleted, cannot be assigned to a host",
            target.name
        )));
    }
    let have = pod.text("/spec/nodeName");
    if !have.is_empty() {
        return Err(conflict(format!(
            "pod {} is already assigned to node {have:?}",
            target.name
        )));
    }
    pod["spec"]["nodeName"] = node.into();
    scheduled(&mut pod, writing);
    if !writing.dry_run {
        store.put(Storage::Pods, pod);
    }
    Ok(Outcome::new(201, success(json!({}))))
}

fn scheduled(pod: &mut Value, writing: &Writing) {
    let condition = json!({
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": null,
        "lastTransitionTime": seconds(writing.now),
    });
    let status = pod.entry_object("status");
    let conditions = status
        .entry("conditions".to_owned())
        .or_insert_with(|| json!([]));
    if let Value::Array(list) = conditions {
        list.retain(|have| have["type"] != "PodScheduled");
        list.push(condition);
    }
}

/// POST `pods/NAME/eviction`: a graceful deletion that disruption budgets may forbid.
pub(crate) fn evict(
    store: &mut Store,
    target: &Target,
    options: &DeleteOptions,
    writing: &Writing,
) -> Result<Outcome, Failure> {
    let current = verbs::get(store, target)?;
    let pod = &current.value;
    let ended = matches!(
        pod.text("/status/phase"),
        "Failed" | "Succeeded" | "Pending"
    );
    if !ended && !pod.is_terminating() {
        spend_budget(store, target, pod)?;
    }
    let pods = Target {
        subresource: String::new(),
        ..target.clone()
    };
    verbs::delete(store, &pods, options, writing)?;
    Ok(Outcome::new(201, success(json!({}))))
}

fn spend_budget(store: &Store, target: &Target, pod: &Value) -> Result<(), Failure> {
    let filter = Filter {
        namespace: target.namespace.clone(),
        ..Filter::default()
    };
    let budgets: Vec<Value> = store
        .select(Storage::PodDisruptionBudgets, &filter, None)
        .map(|(_, stored)| stored.value.clone())
        .filter(|budget| {
            Selector::of_label_selector(&budget["spec"]["selector"])
                .is_ok_and(|selector| selector.selects(pod))
        })
        .collect();
    let (budget, allowed) = match budgets.as_slice() {
        [] => return Ok(()),
        [budget] => (budget, disruptions_allowed(store, budget)),
        _ => {
            return Err(Failure::internal(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            ));
        }
    };
    if allowed > 0 {
        return Ok(());
    }
    let mut failure = Failure::too_many_requests(
        "Cannot evict pod as it would violate the pod's disruption budget.",
        None,
    );
    failure.details = Some(json!({
        "causes": [{
            "reason": "DisruptionBudget",
            "message": format!(
                "The disruption budget {} lets {} of its pods go now",
                budget.name(),
                allowed.max(0)
            ),
        }],
    }));
    Err(failure)
}

/// What a disruption budget counts, from the pods themselves (there is no disruption controller here).
struct Healthy {
    expected: i64,
    healthy: i64,
    desired: i64,
}

fn count_healthy(store: &Store, budget: &Value) -> Healthy {
    let mut count = Healthy {
        expected: 0,
        healthy: 0,
        desired: 0,
    };
    let Ok(labels) = Selector::of_label_selector(&budget["spec"]["selector"]) else {
        return count;
    };
    let filter = Filter {
        namespace: budget.namespace().to_owned(),
        labels,
        ..Filter::default()
    };
    for (_, stored) in store.select(Storage::Pods, &filter, None) {
        let pod = &stored.value;
        if !matches!(pod.text("/status/phase"), "Failed" | "Succeeded") {
            count.expected += 1;
            count.healthy += i64::from(!pod.is_terminating() && is_ready(pod));
        }
    }
    let spec = &budget["spec"];
    count.desired = match (&spec["minAvailable"], &spec["maxUnavailable"]) {
        (Value::Null, Value::Null) => 0,
        (Value::Null, unavailable) => count.expected - scaled(unavailable, count.expected),
        (available, _) => scaled(available, count.expected),
    };
    count
}

/// How many of a budget's pods may go now; negative when too many are missing already.
fn disruptions_allowed(store: &Store, budget: &Value) -> i64 {
    let count = count_healthy(store, budget);
    count.healthy - count.desired
}

/// Brings the status of the budgets of a namespace up to date; writes only what changed.
pub(crate) fn count_budgets(store: &mut Store, namespace: &str) {
    let filter = Filter {
        namespace: namespace.to_owned(),
        ..Filter::default()
    };
    let budgets: Vec<Value> = store
        .select(Storage::PodDisruptionBudgets, &filter, None)
        .map(|(_, stored)| stored.value.clone())
        .collect();
    for mut budget in budgets {
        let count = count_healthy(store, &budget);
        let mut status = budget["status"].clone();
        status["currentHealthy"] = count.healthy.into();
        status["desiredHealthy"] = count.desired.into();
        status["expectedPods"] = count.expected.into();
        status["disruptionsAllowed"] = (count.healthy - count.desired).max(0).into();
        status["observedGeneration"] = budget["metadata"]["generation"].clone();
        if status != budget["status"] {
            budget["status"] = status;
            store.put(Storage::PodDisruptionBudgets, budget);
        }
    }
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// A number or a percentage of `whole`, rounded up.
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
