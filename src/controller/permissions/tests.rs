//! The list against the manifests, and against a server that says no.

use std::collections::BTreeSet;
use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use serde::Deserialize;

use super::*;
use crate::clock::Clock;

#[derive(Deserialize)]
struct Role {
    #[serde(default)]
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    api_groups: Vec<String>,
    resources: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
    verbs: Vec<String>,
}

/// Every (scope, group, resource, verb) that a role in that file grants.
pub(crate) fn granted(file: &str, scope: Scope) -> BTreeSet<(Scope, String, String, String)> {
    let role: Role = serde_saphyr::from_str(file).expect("a role");
    let mut granted = BTreeSet::new();
    for rule in role.rules {
        let scope = match (scope, rule.resource_names.as_slice()) {
            (scope, []) => scope,
            (Scope::LeaseNamespace, [name]) if name == names::LEASE => Scope::Lease,
            (_, names) => panic!("unexpected resourceNames {names:?}"),
        };
        for group in &rule.api_groups {
            for resource in &rule.resources {
                for verb in &rule.verbs {
                    let new =
                        granted.insert((scope, group.clone(), resource.clone(), verb.clone()));
                    assert!(new, "{verb} {resource} is granted twice");
                }
            }
        }
    }
    granted
}

#[test]
fn the_manifests_grant_exactly_what_is_needed() {
    let mut given = granted(
        include_str!("../../../manifests/base/rbac/clusterrole.yaml"),
        Scope::Cluster,
    );
    given.extend(granted(
        include_str!("../../../manifests/base/rbac/role.yaml"),
        Scope::LeaseNamespace,
    ));
    let wanted = needed(true).into_iter().map(|p| {
        let text = |text: &str| text.to_owned();
        (p.scope, text(p.group), text(p.resource), text(p.verb))
    });
    assert_eq!(given, wanted.collect());
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_becomes_one_event_and_a_metric_that_name_it() {
    let service = tower::service_fn(|request: Request<Body>| async move {
        let body = request
            .into_body()
            .collect()
            .await
            .expect("a body")
            .to_bytes();
        let mut review: SelfSubjectAccessReview = serde_json::from_slice(&body).expect("a review");
        let asked = review.spec.resource_attributes.clone().unwrap_or_default();
        let denied = asked.verb.as_deref() == Some("delete") || asked.subresource.is_some();
        let status = review.status.get_or_insert_default();
        status.allowed = !denied;
        let body = Full::new(Bytes::from(serde_json::to_vec(&review).expect("JSON")));
        Ok::<_, Infallible>(Response::new(body))
    });
    let client = Client::new(service, "default");
    let metrics = Metrics::new();
    let missing = missing(&client, "yurt-ds", true, &metrics).await;
    let names: Vec<String> = missing
        .iter()
        .map(|p| format!("{} {}", p.verb, p.resource))
        .collect();
    assert_eq!(
        names,
        [
            "patch daemonsets/status",
            "delete pods",
            "create pods/eviction",
            "patch pods/status",
            "delete jobs"
        ]
    );
    let line = r#"yurt_ds_permission_missing{verb="patch",resource="daemonsets/status.apps"} 1"#;
    assert!(metrics.encode().contains(line));

    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    let (events, _sending) = super::super::events::start(client, "me", clock, metrics);
    report(&missing, "yurt-ds", &events);
    let said = format!("{events:?}");
    assert!(
        said.contains(
            "patch daemonsets/status.apps, delete pods, create pods/eviction, patch pods/status, delete jobs.batch."
        ),
        "{said}"
    );
}
