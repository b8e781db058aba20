//! PodDisruptionBudgets: determines which pods Kubernetes would not evict now.
//!
//! The controller tries to evict pods and sees the result. `ctl` must not evict pods, so it reads the budgets instead. If the
//! caller may not read budgets, they are ignored.

use std::collections::BTreeMap;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Api;
use kube::api::ListParams;

use super::access::Access;
use super::error::CliError;
use super::list::list;
use crate::core::engine::timeouts::BUDGET_PATIENCE;
use crate::core::selector::Selector;
use crate::core::{Evictions, Fleet, Obstruction, Pod, Refusal};
use crate::index::SetRecord;

/// Kubernetes' type of the budget condition that reports if a disruption is allowed.
const ALLOWED: &str = "DisruptionAllowed";
/// Kubernetes' reason of the condition [`ALLOWED`] for a budget that it cannot compute.
const SYNC_FAILED: &str = "SyncFailed";
/// Kubernetes' eviction policy that always allows the eviction of pods that are not Ready.
const ALWAYS_ALLOW: &str = "AlwaysAllow";

/// Without a report of the controller, `ctl` assumes that evictions have been blocked for `BUDGET_PATIENCE` minus this time: after
/// `BUDGET_PATIENCE`, the controller would have reported them.
const MARGIN: SignedDuration = SignedDuration::from_secs(1);

/// Lists the budgets of a namespace, and returns the resource version of the list.
pub(super) async fn list_of(
    access: &Access,
    namespace: &str,
) -> Result<(Vec<PodDisruptionBudget>, String), CliError> {
    let api = Api::namespaced(access.client.clone(), namespace);
    let doing = format!("list the PodDisruptionBudgets of namespace {namespace}");
    list(access, &doing, &api, ListParams::default()).await
}

/// Known budgets, by namespace and name.
#[derive(Clone, Debug, Default)]
pub(super) struct Budgets(BTreeMap<(String, String), KnownBudget>);

/// A budget with its selector; the selector is `None` if it selects no pods.
#[derive(Clone, Debug)]
struct KnownBudget {
    budget: PodDisruptionBudget,
    selector: Option<Selector>,
}

impl Budgets {
    pub(super) fn apply(&mut self, budget: PodDisruptionBudget) {
        let selector = selector(&budget);
        self.0
            .insert(key(&budget), KnownBudget { budget, selector });
    }

    pub(super) fn delete(&mut self, budget: &PodDisruptionBudget) {
        self.0.remove(&key(budget));
    }

    /// Marks the pods of a DaemonSet that the budgets would protect from eviction at `now`.
    ///
    /// `lasts` returns the time since which evictions are assumed to be rejected. Its first argument is the time since which the
    /// budget has allowed no disruption.
    pub(super) fn mark_blocked(
        &self,
        namespace: &str,
        set: &mut SetRecord,
        lasts: impl Fn(Timestamp, Obstruction) -> Timestamp,
        now: Timestamp,
    ) {
        let mut evictions = Evictions::default();
        let hook = set.reading.usable();
        let hook = hook.and_then(|strategy| strategy.pre_delete.clone());
        // Skip pods that wait for their pre-delete hook: the controller does not try to evict them yet.
        let is_hooked = |pod: &Pod| hook.as_ref().is_some_and(|hook| hook.hooks(&pod.exit));
        for (_, pod) in set.pods().filter(|(_, pod)| !is_hooked(pod)) {
            if let Some((refusal, since)) = self.refusal(namespace, pod) {
                let since = lasts(since.unwrap_or(now), refusal.obstruction);
                evictions.refuse_since(pod, refusal, since, now);
            }
        }
        set.set_evictions(evictions);
    }

    /// Returns the reason why a pod of a planned fleet could not be evicted; `None` if it could.
    ///
    /// Kubernetes counts all Ready pods that the budget selects. Only the pods of this DaemonSet are known here.
    pub(super) fn planned_refusal(
        &self,
        namespace: &str,
        fleet: &Fleet,
        pod: &Pod,
    ) -> Option<Refusal> {
        let selecting: Vec<&KnownBudget> = self.selecting(namespace, pod).collect();
        let known = match selecting.as_slice() {
            [] => return None,
            [known] => known,
            _ => {
                return Some(Refusal {
                    budget: None,
                    obstruction: Obstruction::Several,
                });
            }
        };
        let spec = known.budget.spec.as_ref();
        let least = match spec.and_then(|spec| spec.min_available.as_ref()) {
            Some(IntOrString::Int(least)) => Some(usize::try_from(*least).unwrap_or_default()),
            _ => None,
        };
        let counts = |pod: &&Pod| {
            let selector = known.selector.as_ref();
            let is_selected =
                selector.is_some_and(|all| all.matches(|key| pod.exit.labels.get(key)));
            is_selected && pod.ready_since.is_some() && !pod.terminating
        };
        let obstruction = match least {
            _ if pod.ready_since.is_none() => return None,
            None => Obstruction::NotComputed,
            Some(least) => {
                let pods = fleet.nodes.iter().flat_map(|node| node.pods.iter());
                if pods.filter(counts).count() > least {
                    return None;
                } else {
                    Obstruction::Exhausted
                }
            }
        };
        Some(Refusal {
            budget: known.budget.metadata.name.as_deref().map(Into::into),
            obstruction,
        })
    }

    fn selecting(&self, namespace: &str, pod: &Pod) -> impl Iterator<Item = &KnownBudget> {
        self.0.values().filter(move |known| {
            let selector = known.selector.as_ref();
            known.budget.metadata.namespace.as_deref() == Some(namespace)
                && selector.is_some_and(|selector| selector.matches(|key| pod.exit.labels.get(key)))
        })
    }

    /// Returns the reason why a pod could not be evicted now, and the time since which the budget has allowed no disruption, if
    /// known.
    fn refusal(&self, namespace: &str, pod: &Pod) -> Option<(Refusal, Option<Timestamp>)> {
        let found = self.selecting(namespace, pod).map(|known| &known.budget);
        let found: Vec<&PodDisruptionBudget> = found.collect();
        match found.as_slice() {
            [] => None,
            [budget] => {
                let obstruction = obstruction(budget, pod.ready_since.is_some())?;
                let refusal = Refusal {
                    budget: budget.metadata.name.as_deref().map(Into::into),
                    obstruction,
                };
                let forbids = condition(budget).filter(|condition| condition.status == "False");
                let since = forbids.map(|condition| condition.last_transition_time.0);
                Some((refusal, since))
            }
            _ => {
                let refusal = Refusal {
                    budget: None,
                    obstruction: Obstruction::Several,
                };
                Some((refusal, None))
            }
        }
    }
}

/// Returns the time since which evictions are assumed to be rejected. `since` is the time since which the budget has allowed no
/// disruption.
///
/// Both times differ: the budget may have allowed no disruption for days before the controller tried the first eviction. `ctl`
/// doesn't know when the controller tried it. `reported` is the time when the controller reported blocked evictions, which it does
/// after `BUDGET_PATIENCE`. Without this report, the assumed duration stays below `BUDGET_PATIENCE`, and does not begin before the
/// rollout (`began`).
pub(super) fn counts_since(
    reported: Option<Timestamp>,
    began: Option<Timestamp>,
    since: Timestamp,
    now: Timestamp,
    obstruction: Obstruction,
) -> Timestamp {
    // A misconfigured budget never allows evictions, so the controller reports it immediately, not after `BUDGET_PATIENCE`.
    if obstruction.is_mistake() {
        return reported.unwrap_or_else(|| since.max(began.unwrap_or(Timestamp::MIN)));
    }
    let patience = SignedDuration::try_from(BUDGET_PATIENCE).unwrap_or_default();
    let ago = |at: Timestamp, span: SignedDuration| at.saturating_sub(span).unwrap_or(at);
    match reported {
        Some(reported) => ago(reported, patience),
        None => since
            .max(ago(now, patience - MARGIN))
            .max(began.unwrap_or(Timestamp::MIN)),
    }
}

fn key(budget: &PodDisruptionBudget) -> (String, String) {
    let meta = &budget.metadata;
    (
        meta.namespace.clone().unwrap_or_default(),
        meta.name.clone().unwrap_or_default(),
    )
}

/// Returns the selector of a budget. `None` without a selector or with an empty one: the eviction API ignores such a budget.
fn selector(budget: &PodDisruptionBudget) -> Option<Selector> {
    let selector = budget.spec.as_ref()?.selector.as_ref()?;
    let labels = selector.match_labels.iter().flatten().count();
    let expressions = selector.match_expressions.iter().flatten().count();
    let read = serde_json::to_value(selector).ok()?;
    Selector::from_json(&read)
        .ok()
        .filter(|_| labels + expressions > 0)
}

/// Returns the reason why the budget would block the eviction of a pod; `None` if it would not. `ready` is true for a Ready pod.
fn obstruction(budget: &PodDisruptionBudget, ready: bool) -> Option<Obstruction> {
    let status = budget.status.as_ref();
    let policy = budget.spec.as_ref();
    let policy = policy.and_then(|spec| spec.unhealthy_pod_eviction_policy.as_deref());
    let is_well = status.is_some_and(|status| {
        status.desired_healthy > 0 && status.current_healthy >= status.desired_healthy
    });
    if !ready && (policy == Some(ALWAYS_ALLOW) || is_well) {
        return None;
    }
    if condition(budget).is_some_and(|condition| condition.reason == SYNC_FAILED) {
        return Some(Obstruction::NotComputed);
    }
    let observed = status.and_then(|status| status.observed_generation);
    if observed < budget.metadata.generation {
        return Some(Obstruction::NotProcessed);
    }
    let allowed = status.map_or(0, |status| status.disruptions_allowed);
    (allowed <= 0).then_some(Obstruction::Exhausted)
}

fn condition(budget: &PodDisruptionBudget) -> Option<&Condition> {
    let conditions = budget.status.as_ref()?.conditions.iter().flatten();
    conditions
        .into_iter()
        .find(|condition| condition.type_ == ALLOWED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Exit;
    use crate::core::testing::old;
    use serde_json::{Value, json};

    fn pod(ready: bool) -> Pod {
        Pod {
            name: "a".into(),
            uid: "a".into(),
            ready_since: ready.then_some(Timestamp::UNIX_EPOCH),
            exit: Exit {
                labels: [("app", "a")].into_iter().collect(),
                ..Exit::default()
            }
            .into(),
            ..old(1)
        }
    }

    fn budget(name: &str, spec: Value, status: Value) -> PodDisruptionBudget {
        let mut spec = spec;
        if spec.get("selector").is_none() {
            spec["selector"] = json!({ "matchLabels": { "app": "a" } });
        }
        let meta = json!({ "name": name, "namespace": "shop", "generation": 1 });
        let whole = json!({ "metadata": meta, "spec": spec, "status": status });
        serde_json::from_value(whole).expect("a budget")
    }

    /// Checks each case for a Ready pod and for a pod that is not Ready.
    #[test]
    fn a_disruption_budget_is_evaluated_like_in_the_api_server() {
        let counts = |current: i32, desired: i32, allowed: i32| {
            json!({
                "currentHealthy": current, "desiredHealthy": desired, "disruptionsAllowed": allowed,
                "expectedPods": 3, "observedGeneration": 1,
            })
        };
        let case = |spec: Value, status: Value, expected: [Option<Obstruction>; 2]| {
            let mut budgets = Budgets::default();
            budgets.apply(budget("b", spec, status));
            let reported = [true, false].map(|ready| {
                let refusal = budgets.refusal("shop", &pod(ready));
                refusal.map(|(refusal, _)| refusal.obstruction)
            });
            assert_eq!(reported, expected, "{budgets:?}");
            assert_eq!(budgets.refusal("other", &pod(true)), None);
        };
        let exhausted = Some(Obstruction::Exhausted);
        case(json!({}), counts(3, 2, 1), [None, None]);
        case(json!({}), counts(3, 3, 0), [exhausted, None]);
        case(json!({}), counts(2, 3, 0), [exhausted, exhausted]);
        let always = json!({ "unhealthyPodEvictionPolicy": "AlwaysAllow" });
        case(always, counts(2, 3, 0), [exhausted, None]);
        let fresh = json!({
            "currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0,
        });
        let waits = Some(Obstruction::NotProcessed);
        case(json!({}), fresh.clone(), [waits, waits]);
        let mut failed = fresh;
        failed["conditions"] = json!([{
            "type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed",
            "message": "daemonsets.apps does not implement the scale subresource",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]);
        let mistake = Some(Obstruction::NotComputed);
        case(json!({}), failed, [mistake, mistake]);
        case(json!({ "selector": {} }), counts(3, 3, 0), [None, None]);
    }

    #[test]
    fn a_blocked_eviction_exceeds_its_limit_only_after_the_controller_reports_it() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let now = at(100_000);
        // The budget has allowed no disruption for a day, but the controller reported nothing: the assumed duration is one second
        // below the limit.
        let exhausted = Obstruction::Exhausted;
        assert_eq!(
            counts_since(None, None, at(13_600), now, exhausted),
            at(100_000 - 599)
        );
        assert_eq!(
            counts_since(None, None, at(99_990), now, exhausted),
            at(99_990)
        );
        let began = Some(at(99_995));
        assert_eq!(
            counts_since(None, began, at(99_990), now, exhausted),
            at(99_995)
        );
        let reported = counts_since(
            Some(at(99_999)),
            Some(at(99_995)),
            at(99_990),
            now,
            exhausted,
        );
        assert_eq!(reported, at(99_399));
    }

    #[test]
    fn a_pod_with_two_disruption_budgets_cannot_be_evicted() {
        let mut budgets = Budgets::default();
        let status = json!({
            "currentHealthy": 3, "desiredHealthy": 1, "disruptionsAllowed": 2, "expectedPods": 3,
            "observedGeneration": 1,
        });
        let both = ["b", "c"].map(|name| budget(name, json!({}), status.clone()));
        for budget in &both {
            budgets.apply(budget.clone());
        }
        let refusal = budgets.refusal("shop", &pod(true));
        let obstruction = refusal.map(|(refusal, _)| refusal.obstruction);
        assert_eq!(obstruction, Some(Obstruction::Several));
        budgets.delete(&both[0]);
        assert_eq!(budgets.refusal("shop", &pod(true)), None);
    }
}
