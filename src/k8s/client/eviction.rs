//! Evictions: the request, and the reason why a PodDisruptionBudget rejects it.

use std::sync::Arc;

use http::header::CONTENT_TYPE;
use kube::Resource;
use kube::core::{Status, request};
use serde_json::json;

use super::CallError;
use crate::core::{Obstruction, PodRef, Refusal};
use crate::k8s::pod::Pod;

/// Value of `reason` by which a response shows that it names a budget (`DisruptionBudgetCause` in `k8s.io/api/policy/v1`).
const CAUSE: &str = "DisruptionBudget";
/// Beginning of the message with that reason. The name of the budget follows.
const ABOUT: &str = "The disruption budget ";
/// Part of the message if Kubernetes has not processed the latest version of the budget yet.
const NOT_PROCESSED: &str = "still being processed";
/// Part of the message if Kubernetes cannot compute the budget.
const NOT_COMPUTED: &str = "failed sync";
/// Part of the message for a pod that several budgets select. The response then contains no cause.
const SEVERAL: &str = "more than one PodDisruptionBudget";

/// Creates a request to evict exactly the pod with this UID.
///
/// `kube` would write the preconditions into a field `delete_options`, which the API server ignores. So the body is built here.
///
/// The API server checks the budget first and the preconditions after that. If the pod was replaced just before, the request fails,
/// but takes one allowed disruption for two minutes. This is rare and harmless.
///
/// # Errors
/// Returns an error if the namespace or the name is not valid in a URL path.
pub(crate) fn eviction(
    namespace: &str,
    pod: &PodRef,
) -> Result<http::Request<Vec<u8>>, request::Error> {
    let path = Pod::url_path(&(), Some(namespace));
    let mut body = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": { "name": pod.name.as_str(), "namespace": namespace },
        "deleteOptions": { "preconditions": {
            "uid": pod.uid.to_string(),
        } },
    });
    if let Some(version) = pod.resource_version.precondition() {
        body["deleteOptions"]["preconditions"]["resourceVersion"] = version.into();
    }
    http::Request::post(format!("{path}/{}/eviction", pod.name))
        .header(CONTENT_TYPE, "application/json")
        .body(body.to_string().into_bytes())
        .map_err(request::Error::BuildRequest)
}

/// Returns the details of a rejection by a disruption budget; `None` for any other error.
pub(crate) fn refusal(error: &CallError) -> Option<Refusal> {
    match error {
        CallError::Kube(kube::Error::Api(status)) => refusal_in(status),
        _ => None,
    }
}

pub(super) fn refusal_in(status: &Status) -> Option<Refusal> {
    if status.code == 500 && status.message.contains(SEVERAL) {
        return Some(Refusal {
            budget: None,
            obstruction: Obstruction::Several,
        });
    }
    let details = status.details.as_ref()?;
    let named = |name: &str| Some(Arc::from(name)).filter(|_| !name.is_empty());
    // 403: a budget can track only a limited number of evictions in progress, and this number is reached.
    if status.code == 403 && details.group == "policy" {
        return Some(Refusal {
            budget: named(&details.name),
            obstruction: Obstruction::Exhausted,
        });
    }
    let mut causes = details.causes.iter();
    let cause = causes.find(|cause| cause.reason == CAUSE)?;
    let rest = cause.message.strip_prefix(ABOUT);
    let budget = rest.and_then(|rest| rest.split(' ').next());
    Some(Refusal {
        budget: budget.and_then(named),
        obstruction: match &cause.message {
            text if text.contains(NOT_COMPUTED) => Obstruction::NotComputed,
            text if text.contains(NOT_PROCESSED) => Obstruction::NotProcessed,
            _ => Obstruction::Exhausted,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value};

    /// The test cases are responses of Kubernetes 1.36, and one with "failed sync" of Kubernetes 1.37.
    #[test]
    fn a_rejected_eviction_names_the_budget_and_the_obstruction() {
        let case = |status: Value, expected: Option<(Option<&str>, Obstruction)>| {
            let status: Status = from_value(status).unwrap();
            let found = refusal_in(&status);
            let found = found
                .as_ref()
                .map(|found| (found.budget.as_deref(), found.obstruction));
            assert_eq!(found, expected, "{status:?}");
        };
        let refused = |message: &str| {
            json!({
                "status": "Failure", "code": 429, "reason": "TooManyRequests",
                "message": "Cannot evict pod as it would violate the pod's disruption budget.",
                "details": { "causes": [{ "reason": "DisruptionBudget", "message": message }] },
            })
        };
        case(
            refused("The disruption budget web needs 3 healthy pods and has 3 currently"),
            Some((Some("web"), Obstruction::Exhausted)),
        );
        case(
            refused("The disruption budget web is still being processed by the server."),
            Some((Some("web"), Obstruction::NotProcessed)),
        );
        case(
            refused(
                "The disruption budget web does not allow evicting pods currently because it failed sync: \
                 daemonsets.apps does not implement the scale subresource",
            ),
            Some((Some("web"), Obstruction::NotComputed)),
        );
        case(
            refused("something new"),
            Some((None, Obstruction::Exhausted)),
        );
        let several = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        case(
            json!({ "status": "Failure", "code": 500, "message": several }),
            Some((None, Obstruction::Several)),
        );
        case(
            json!({
                "status": "Failure", "code": 403, "reason": "Forbidden",
                "message": "poddisruptionbudget.policy \"web\" is forbidden: DisruptedPods map too big",
                "details": { "name": "web", "group": "policy", "kind": "poddisruptionbudget" },
            }),
            Some((Some("web"), Obstruction::Exhausted)),
        );
        // Errors without a budget: priority and fairness, a missing permission, an internal error.
        case(
            json!({
                "status": "Failure", "code": 429, "reason": "TooManyRequests", "message": "Too many requests",
                "details": { "retryAfterSeconds": 1 },
            }),
            None,
        );
        case(
            json!({
                "status": "Failure", "code": 403, "reason": "Forbidden",
                "message": "pods \"a\" is forbidden: User cannot create resource \"pods/eviction\"",
                "details": { "name": "a", "kind": "pods" },
            }),
            None,
        );
        case(
            json!({ "status": "Failure", "code": 500, "message": "etcd is away" }),
            None,
        );
    }

    #[test]
    fn an_eviction_has_the_uid_and_version_of_the_decision() {
        let pod = PodRef {
            name: "agent-x".into(),
            uid: "u1".into(),
            resource_version: "9".into(),
        };
        let request = eviction("shop", &pod).unwrap();
        assert_eq!(
            request.uri().path(),
            "/api/v1/namespaces/shop/pods/agent-x/eviction"
        );
        let body: Value = serde_json::from_slice(request.body()).unwrap();
        assert_eq!(body["kind"], "Eviction");
        assert_eq!(
            body["deleteOptions"]["preconditions"],
            json!({ "uid": "u1", "resourceVersion": "9" })
        );
    }
}
