//! Evictions: the `eviction` subresource deletes a pod if its disruption budget allows it.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::budgets::{budgets, count, is_ready, number, selector, set_condition};
use super::object::Object;
use super::request::Target;
use super::resources::Storage;
use super::selector::selects;
use super::status::{ApiFailure, success};
use super::store::Store;
use super::verbs;
use super::write::{DeleteOptions, WriteContext, WriteOutcome, seconds};

/// Error message for an eviction that the budget does not allow.
const VIOLATES: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// Evicts a pod (POST `pods/NAME/eviction`). An eviction is a deletion that disruption budgets may forbid.
pub(crate) fn evict(
    store: &mut Store,
    target: &Target,
    options: &DeleteOptions,
    writing: &WriteContext,
) -> Result<WriteOutcome, ApiFailure> {
    let pods = Target {
        subresource: String::new(),
        ..target.clone()
    };
    let current = verbs::get(store, &pods)?;
    let pod = &current.value;
    let phase = pod.text("/status/phase");
    let goes = matches!(phase, "Failed" | "Succeeded" | "Pending") || pod.is_terminating();
    if !goes {
        // Update the budgets first, because their status also changes with time: an evicted pod that still exists after the timeout
        // no longer counts as disrupted.
        count(store, pod.namespace(), writing.now);
        spend(store, pod, writing)?;
    }
    // As in Kubernetes, preconditions are checked after the budget: a failed precondition still uses up a disruption.
    verbs::check_preconditions(&pods, pod, options)?;
    if !writing.dry_run {
        let mut target = pod.clone();
        mark(&mut target, writing.now);
        store.put(Storage::Pods, target);
    }
    let rest = DeleteOptions {
        uid: None,
        version: None,
        ..options.clone()
    };
    verbs::delete(store, &pods, &rest, writing)?;
    Ok(WriteOutcome::new(201, success(json!({}))))
}

/// Sets the pod's condition `DisruptionTarget`, which names the eviction as the reason.
fn mark(pod: &mut Value, now: Timestamp) {
    let condition = json!({
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
        "lastProbeTime": null,
        "lastTransitionTime": seconds(now),
    });
    set_condition(pod.entry_object("status"), condition);
}

/// Uses up one disruption of the pod's budget.
fn spend(store: &mut Store, pod: &Value, writing: &WriteContext) -> Result<(), ApiFailure> {
    let budgets: Vec<Value> = budgets(store, pod.namespace())
        .into_iter()
        .filter(|budget| {
            // As in Kubernetes, budgets with an empty selector are ignored for evictions.
            !selector(budget).is_empty() && selects(&selector(budget), pod)
        })
        .collect();
    let mut budget = match budgets.as_slice() {
        [] => return Ok(()),
        [budget] => budget.clone(),
        _ => {
            return Err(ApiFailure::internal(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            ));
        }
    };
    let status = &budget["status"];
    let (current, desired) = (
        number(&status["currentHealthy"]),
        number(&status["desiredHealthy"]),
    );
    let always = budget.text("/spec/unhealthyPodEvictionPolicy") == "AlwaysAllow";
    if !is_ready(pod) && (always || (desired > 0 && current >= desired)) {
        return Ok(());
    }
    if number(&status["observedGeneration"]) < number(&budget["metadata"]["generation"]) {
        let why = "is still being processed by the server.";
        return Err(refused(&budget, why, Some(10)));
    }
    let allowed = number(&status["disruptionsAllowed"]);
    if allowed == 0 {
        let why = if current <= desired {
            format!("needs {desired} healthy pods and has {current} currently")
        } else {
            "does not allow evicting pods currently".to_owned()
        };
        return Err(refused(&budget, &why, None));
    }
    if !writing.dry_run {
        let status = budget.entry_object("status");
        status.insert("disruptionsAllowed".to_owned(), (allowed - 1).into());
        let expected = status
            .entry("disruptedPods".to_owned())
            .or_insert_with(|| json!({}));
        expected[pod.name()] = seconds(writing.now).into();
        store.put(Storage::PodDisruptionBudgets, budget);
        count(store, pod.namespace(), writing.now);
    }
    Ok(())
}

fn refused(budget: &Value, why: &str, retry_after: Option<u32>) -> ApiFailure {
    let mut failure = ApiFailure::too_many_requests(VIOLATES, retry_after);
    let mut details = failure.details.take().unwrap_or_else(|| json!({}));
    details["causes"] = json!([{
        "reason": "DisruptionBudget",
        "message": format!("The disruption budget {} {why}", budget.name()),
    }]);
    failure.details = Some(details);
    failure
}
