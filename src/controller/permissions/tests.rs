//! The list against the manifests, and against a server that says no.

use std::convert::Infallible;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use serde_json::{Value, json};

use super::*;
use crate::clock::Clock;
use crate::core::settings::image_predownload_parallelism::IMAGE_PREDOWNLOAD_PARALLELISM;
use crate::core::settings::max_surge::MAX_SURGE;
use crate::core::settings::rolling_update_type::ROLLING_UPDATE_TYPE;
use crate::core::settings::update_strategy::UPDATE_STRATEGY;
use crate::k8s::permission::testing::granted;
use crate::sim::cluster::{Cluster, ClusterOptions};

const BOTH: Kinds = Kinds {
    native: true,
    advanced: true,
};

#[test]
fn the_manifests_grant_exactly_what_is_needed() {
    let mut given = granted(
        include_str!("../../../manifests/base/rbac/clusterrole.yaml"),
        PermissionScope::Cluster,
    );
    given.extend(granted(
        include_str!("../../../manifests/base/rbac/role.yaml"),
        PermissionScope::LeaseNamespace,
    ));
    let wanted = needed(true).into_iter().map(|p| {
        let text = |text: &str| text.to_owned();
        (p.scope, text(p.group), text(p.resource), text(p.verb))
    });
    assert_eq!(given, wanted.collect());
}

#[test]
fn each_component_grants_exactly_what_its_setting_needs() {
    let max_surge = include_str!("../../../manifests/components/max-surge/clusterrole.yaml");
    let pre_pull = include_str!("../../../manifests/components/pre-pull/clusterrole.yaml");
    for (extra, file) in [(SURGE, max_surge), (PRE_PULL, pre_pull)] {
        let Permission {
            scope,
            group,
            resource,
            verb,
        } = extra.permission;
        let [group, resource, verb] = [group, resource, verb].map(str::to_owned);
        assert_eq!(
            granted(file, PermissionScope::Cluster),
            [(scope, group, resource, verb)].into()
        );
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(extra.component);
        assert!(
            folder.join("kustomization.yaml").exists(),
            "{}",
            extra.component
        );
        assert_eq!(
            granted_by(extra.permission.verb, extra.permission.resource),
            extra.component
        );
    }
    assert_eq!(granted_by("delete", "pods"), "manifests/base/rbac");
}

#[test]
fn the_component_of_advanced_daemonsets_grants_exactly_what_they_need() {
    let file = include_str!("../../../manifests/components/advanced/clusterrole.yaml");
    let wanted = ADVANCED.into_iter().map(|p| {
        let text = |text: &str| text.to_owned();
        (p.scope, text(p.group), text(p.resource), text(p.verb))
    });
    assert_eq!(granted(file, PermissionScope::Cluster), wanted.collect());
    for (verb, resource, expected) in [
        ("list", "daemonsets.apps.kruise.io", ADVANCED_RBAC),
        ("patch", "daemonsets/status.apps.kruise.io", ADVANCED_RBAC),
        ("create", "controllerrevisions", ADVANCED_RBAC),
        ("list", "controllerrevisions", BASE),
        ("list", "daemonsets", BASE),
    ] {
        assert_eq!(granted_by(verb, resource), expected, "{verb} {resource}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_setting_needs_is_missing_only_while_a_daemonset_has_the_setting() {
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    let cluster = Cluster::new(ClusterOptions::new(clock.clone(), 1));
    let client = cluster.client("yurt-ds");
    let _denied = cluster.deny(|request| {
        let makes = request.verb == "create" && request.subresource.is_empty();
        makes && ["pods", "jobs"].contains(&request.resource.as_str())
    });
    let lacking = async || missing(&client, "yurt-ds", (true, BOTH), &Metrics::new()).await;
    let sets: Api<k8s_openapi::api::apps::v1::DaemonSet> = Api::default_namespaced(client.clone());
    let add = async |name: &str, mode: &str, annotations: Value| {
        let set = json!({
            "metadata": { "name": name, "annotations": annotations },
            "spec": {
                "updateStrategy": { "type": "OnDelete" },
                "selector": { "matchLabels": { "app": name } },
                "template": {
                    "metadata": { "labels": { "app": name } },
                    "spec": { "containers": [{ "name": "main", "image": "main:1" }] },
                },
            },
        });
        let mut set: k8s_openapi::api::apps::v1::DaemonSet = serde_json::from_value(set).unwrap();
        let own = set.metadata.annotations.get_or_insert_default();
        own.insert(UPDATE_STRATEGY.into(), mode.into());
        sets.create(&PostParams::default(), &set).await.unwrap();
    };
    add("plain", "AdvancedRollingUpdate", json!({})).await;
    add("asked", "OTA", json!({})).await;
    assert_eq!(lacking().await, Missing::default());
    add("surge", "AdvancedRollingUpdate", json!({ MAX_SURGE: "1" })).await;
    add("again", "SurgingRollingUpdate", json!({})).await;
    let place = json!({ ROLLING_UPDATE_TYPE: "InPlaceIfPossible" });
    add("place", "AdvancedRollingUpdate", place).await;
    let pulls = json!({ IMAGE_PREDOWNLOAD_PARALLELISM: "0" });
    add("never", "AdvancedRollingUpdate", pulls).await;
    let found = lacking().await;
    let users: Vec<(&str, usize)> = found
        .for_settings
        .iter()
        .map(|(extra, users)| (extra.setting, users.len()))
        .collect();
    assert!(found.always.is_empty());
    assert_eq!(users, [("max-surge", 2), ("pulling images ahead", 1)]);

    let (events, _sending) = super::super::events::start(client, "me", clock, Metrics::new());
    report(&found, "yurt-ds", &events);
    let said = format!("{events:?}");
    for sentence in [
        "lacks: create pods, which max-surge needs (default/again and 1 more). Apply manifests/components/max-surge",
        "lacks: create jobs.batch, which pulling images ahead needs (default/place). Apply manifests/components/pre-pull",
    ] {
        assert!(said.contains(sentence), "{said}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_becomes_one_event_and_a_metric_that_name_it() {
    let service = tower::service_fn(|request: Request<Body>| async move {
        let is_discovery = request.method() == http::Method::GET;
        let body = request
            .into_body()
            .collect()
            .await
            .expect("a body")
            .to_bytes();
        if is_discovery {
            let resource = json!({ "name": "daemonsets", "singularName": "", "namespaced": true, "kind": "DaemonSet", "verbs": [] });
            let list = json!({ "groupVersion": "apps.kruise.io/v1beta1", "resources": [resource] });
            let body = Full::new(Bytes::from(list.to_string()));
            return Ok::<_, Infallible>(Response::new(body));
        }
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
    let missing = missing(&client, "yurt-ds", (true, BOTH), &metrics).await;
    let names: Vec<String> = missing
        .always
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
    let added: Vec<String> = missing.advanced.iter().map(Permission::describe).collect();
    assert_eq!(
        added,
        [
            "patch daemonsets/status.apps.kruise.io",
            "update daemonsets/finalizers.apps.kruise.io",
            "delete controllerrevisions.apps"
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
    let sentence = "delete controllerrevisions.apps, which Advanced DaemonSets need. Apply manifests/components/advanced";
    assert!(said.contains(sentence), "{said}");
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_is_asked_for_until_it_is_granted() {
    let denied = Arc::new(AtomicBool::new(true));
    let asked = Arc::new(AtomicUsize::new(0));
    let (answer, count) = (denied.clone(), asked.clone());
    let service = tower::service_fn(move |_: Request<Body>| {
        count.fetch_add(1, Ordering::Relaxed);
        let allowed = !answer.load(Ordering::Relaxed);
        let review = json!({ "metadata": {}, "spec": {}, "status": { "allowed": allowed } });
        let body = Full::new(Bytes::from(review.to_string()));
        async move { Ok::<_, Infallible>(Response::new(body)) }
    });
    let client = Client::new(service, "default");
    let metrics = Arc::new(Metrics::new());
    let (lacking, told) = DeniedPermissions::new();
    let lost = Arc::new(Mutex::new(Vec::new()));
    let following = {
        let (client, metrics) = (client.clone(), metrics.clone());
        let missing = Missing::default();
        let lost = lost.clone();
        let note = move |permission: Permission| lost.lock().unwrap().push(permission.describe());
        tokio::spawn(
            async move { follow(&client, "yurt-ds", &missing, told, &metrics, note).await },
        )
    };
    let shows = |missing: u8| {
        let line =
            format!(r#"yurt_ds_permission_missing{{verb="delete",resource="pods"}} {missing}"#);
        metrics.encode().contains(&line)
    };
    sleep(Duration::from_secs(600)).await;
    assert_eq!(asked.load(Ordering::Relaxed), 0, "nothing is missing");
    lacking.tell("delete", "pods");
    lacking.tell("delete", "something of others");
    sleep(Duration::from_secs(100)).await;
    assert!(shows(1));
    assert_eq!(asked.load(Ordering::Relaxed), 4);
    assert_eq!(*lost.lock().unwrap(), ["delete pods"]);
    denied.store(false, Ordering::Relaxed);
    sleep(Duration::from_secs(600)).await;
    assert!(shows(0));
    assert_eq!(asked.load(Ordering::Relaxed), 5);
    // An API server that has just started refuses what it grants a moment later.
    lacking.tell("watch", "pods");
    sleep(Duration::from_secs(600)).await;
    assert_eq!(asked.load(Ordering::Relaxed), 6);
    assert_eq!(lost.lock().unwrap().len(), 1);
    drop(lacking);
    following.await.expect("it ends with those who tell it");
}
