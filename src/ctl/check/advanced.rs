//! Checks for Advanced DaemonSets: their CustomResourceDefinition, and Kruise's manager.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use serde_json::Value;

use super::finding::{CheckId, Finding};
use super::reader::{Unread, read};
use crate::core::names::ADVANCED_RBAC;
use crate::ctl::access::Access;
use crate::ctl::liveness::is_kruise_running;
use crate::manifests;

/// Name of the CustomResourceDefinition.
pub(super) const CRD: &str = "daemonsets.apps.kruise.io";

/// Returns the findings about Kruise's manager and about the CustomResourceDefinition. `is_served` is true if the cluster serves
/// Advanced DaemonSets.
pub(super) async fn findings(access: &Access, now: Timestamp, is_served: bool) -> Vec<Finding> {
    let (kruise, crd) = tokio::join!(kruise(access, now, is_served), crd(access, is_served));
    vec![kruise, crd]
}

async fn kruise(access: &Access, now: Timestamp, is_served: bool) -> Finding {
    let id = CheckId::KruiseStopped;
    if !is_served {
        return Finding::ok(id, "The cluster has no Advanced DaemonSets.");
    }
    match is_kruise_running(access, now).await {
        Ok(false) => Finding::ok(id, "Kruise's manager does not run."),
        Ok(true) => Finding::warning(
            id,
            "Kruise's manager runs. While it runs, yurt-ds leaves Advanced DaemonSets alone.",
            "kubectl -n kruise-system scale deployment kruise-controller-manager --replicas 0",
        ),
        Err(error) => {
            let doing =
                "list the Lease of Kruise's manager (needed: ClusterRole yurt-ds-viewer-advanced)";
            Finding::skipped(id, Unread::from_cli(doing, &error).0)
        }
    }
}

async fn crd(access: &Access, is_served: bool) -> Finding {
    let id = CheckId::CrdCurrent;
    let kind = ApiResource::erase::<CustomResourceDefinition>(&());
    let api: Api<DynamicObject> = Api::all_with(access.client.clone(), &kind);
    let doing = format!(
        "get the CustomResourceDefinition {CRD} (needed: ClusterRole yurt-ds-viewer-advanced)"
    );
    match read(access, &doing, api.get(CRD)).await {
        Ok(Some(found)) => compare(&found.data),
        Err(unread) if is_served => Finding::skipped(id, unread.0),
        Ok(None) | Err(_) => Finding::ok(id, "Not installed. Only Advanced DaemonSets need it."),
    }
}

/// Compares the installed CustomResourceDefinition with the one in this version of yurt-ds.
fn compare(found: &Value) -> Finding {
    let id = CheckId::CrdCurrent;
    let apply = format!("kubectl apply -k {ADVANCED_RBAC}");
    let spec = &found["spec"];
    if spec["conversion"]["strategy"] == "Webhook" {
        return Finding::warning(
            id,
            format!(
                "The definition of {CRD} is that of OpenKruise. It needs the webhooks of Kruise's manager."
            ),
            apply,
        );
    }
    let own = manifests::crd_definition();
    match difference("spec.versions", &own["spec"]["versions"], &spec["versions"]) {
        None => Finding::ok(
            id,
            format!("The definition of {CRD} is that of this version."),
        ),
        Some(path) => Finding::warning(
            id,
            format!(
                "The definition of {CRD} is not that of this version of ctl. The first difference is {path}."
            ),
            apply,
        ),
    }
}

/// Returns the path of the first field in which the two values differ; `None` if they are equal.
///
/// A missing field equals `null`, an empty list and an empty object, because API servers omit and add these.
fn difference(path: &str, own: &Value, found: &Value) -> Option<String> {
    match (own, found) {
        (Value::Object(own), Value::Object(found)) => {
            let keys = own
                .keys()
                .chain(found.keys().filter(|key| !own.contains_key(*key)));
            keys.into_iter().find_map(|key| {
                let part = |map: &serde_json::Map<String, Value>| map.get(key).cloned();
                let (own, found) = (
                    part(own).unwrap_or_default(),
                    part(found).unwrap_or_default(),
                );
                difference(&format!("{path}.{key}"), &own, &found)
            })
        }
        (Value::Array(own), Value::Array(found)) if own.len() == found.len() => {
            let pairs = own.iter().zip(found).enumerate();
            pairs
                .into_iter()
                .find_map(|(at, (own, found))| difference(&format!("{path}[{at}]"), own, found))
        }
        (own, found) if own == found || is_empty(own) && is_empty(found) => None,
        (Value::Number(own), Value::Number(found)) if own.as_f64() == found.as_f64() => None,
        _ => Some(path.to_owned()),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ctl::check::finding::CheckStatus;

    #[test]
    fn an_installed_crd_is_compared_field_by_field() {
        let own = manifests::crd_definition();
        assert_eq!(compare(&own).status, CheckStatus::Ok);

        let mut stored = own.clone();
        stored["spec"]["versions"][0]["deprecated"] = Value::Null;
        assert_eq!(compare(&stored).status, CheckStatus::Ok);

        let mut old = own.clone();
        old["spec"]["versions"][1]["served"] = json!(false);
        let finding = compare(&old);
        assert_eq!(finding.status, CheckStatus::Warning);
        assert!(
            finding.message.contains("spec.versions[1].served"),
            "{}",
            finding.message
        );

        let mut of_kruise = own;
        of_kruise["spec"]["conversion"]["strategy"] = json!("Webhook");
        let finding = compare(&of_kruise);
        assert!(
            finding.message.contains("OpenKruise"),
            "{}",
            finding.message
        );

        let hostile = json!({ "spec": [1, { "versions": "all" }] });
        assert_eq!(compare(&hostile).status, CheckStatus::Warning);
    }
}
