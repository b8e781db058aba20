//! Tests of the permission lists. They must match the manifests, and suffice on a server that denies all other requests.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use kube::api::ListParams;
use kube::client::Body;
use serde_json::{Value, json};

use super::*;
use crate::clock::Clock;
use crate::core::names::{
    IN_PLACE_UPDATE_READY, KRUISE_POD_READY, POD_IMAGE_READY, POD_NEED_UPGRADE,
};
use crate::core::settings::image_predownload_parallelism::IMAGE_PREDOWNLOAD_PARALLELISM;
use crate::core::settings::lifecycle::LIFECYCLE;
use crate::core::settings::max_surge::MAX_SURGE;
use crate::core::settings::on_failure::ON_FAILURE;
use crate::core::settings::rolling_update_type::ROLLING_UPDATE_TYPE;
use crate::core::settings::update_strategy::UPDATE_STRATEGY;
use crate::index::OWN_CONDITIONS;
use crate::k8s::permission::testing::granted;
use crate::sim::cluster::{Cluster, ClusterOptions};

const BOTH: Kinds = Kinds {
    native: true,
    advanced: true,
};
const NEEDS: PermissionNeeds = PermissionNeeds {
    elects: true,
    kinds: BOTH,
};

#[test]
fn the_manifests_grant_exactly_the_needed_permissions() {
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
fn each_component_grants_exactly_the_permissions_of_its_setting() {
    for component in COMPONENTS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(component.folder);
        let file = folder.join("clusterrole.yaml");
        let file =
            std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file:?}: {error}"));
        let wanted = component.permissions.iter().map(|p| {
            let text = |text: &str| text.to_owned();
            (p.scope, text(p.group), text(p.resource), text(p.verb))
        });
        assert_eq!(
            granted(&file, PermissionScope::Cluster),
            wanted.collect(),
            "{}",
            component.folder
        );
        assert!(folder.join("kustomization.yaml").exists());
        for permission in component.permissions {
            let is_base = is_among(&NEEDED, permission.verb, permission.resource);
            assert!(!is_base, "{} grants what the base does", component.folder);
        }
    }
}

/// With only the base rights, a stolen token must not be enough to create or change running containers.
#[test]
fn the_base_role_only_deletes_and_evicts_pods_and_writes_status() {
    let writes = NEEDED.iter().filter(|one| {
        one.scope == PermissionScope::Cluster && !["get", "list", "watch"].contains(&one.verb)
    });
    let writes: Vec<String> = writes.map(Permission::describe).collect();
    assert_eq!(
        writes,
        [
            "patch daemonsets/status.apps",
            "delete pods",
            "create pods/eviction",
            "patch pods/status",
            "create events.events.k8s.io"
        ]
    );
}

#[test]
fn a_rejected_write_names_the_component_that_grants_it() {
    #[track_caller]
    fn case(right: (&str, &str), kind: SetKind, write: Option<WriteVerb>, expected: &str) {
        let (verb, resource) = right;
        assert_eq!(granted_by(verb, resource, kind, write), expected);
    }
    let (native, advanced) = (SetKind::Native, SetKind::Advanced);
    let (patch, status) = (("patch", "pods"), ("patch", "pods/status"));
    for (write, expected) in [
        (WriteVerb::UpdateInPlace, IN_PLACE_RBAC),
        (WriteVerb::Revert, IN_PLACE_RBAC),
        (WriteVerb::Mark, LIFECYCLE_RBAC),
        (WriteVerb::Unmark, LIFECYCLE_RBAC),
        (WriteVerb::TransferOwnership, MAX_SURGE_RBAC),
    ] {
        case(patch, native, Some(write), expected);
        case(patch, advanced, Some(write), ADVANCED_RBAC);
        // Marks of preDelete hooks and in-place updates begin with a write to a condition in the pod's status. The base rights
        // allow this write.
        case(status, native, Some(write), BASE_RBAC);
    }
    let create = Some(WriteVerb::Create);
    case(("create", "pods"), native, create, MAX_SURGE_RBAC);
    case(("create", "pods"), advanced, None, ADVANCED_RBAC);
    case(patch, advanced, None, ADVANCED_RBAC);
    case(
        ("delete", "pods"),
        native,
        Some(WriteVerb::Delete),
        BASE_RBAC,
    );
    case(("create", "pods/eviction"), native, None, BASE_RBAC);
    case(("create", "jobs"), advanced, None, PRE_PULL_RBAC);
    case(("delete", "jobs"), native, None, PRE_PULL_RBAC);
}

/// The admission policies name exactly the conditions that the controller writes.
#[test]
fn the_policies_permit_exactly_the_conditions_that_the_controller_writes() {
    let names = |file: &str, variable: &str| -> BTreeSet<String> {
        let (_, rest) = file
            .split_once(&format!("- name: {variable}\n"))
            .expect(variable);
        let list = rest.lines().next().expect("a list");
        list.split('"')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect()
    };
    let written = |types: &[&str]| -> BTreeSet<String> {
        types.iter().map(|kind| (*kind).to_owned()).collect()
    };
    let status = include_str!("../../../manifests/components/controller-bound/status.yaml");
    assert_eq!(names(status, "own"), written(&OWN_CONDITIONS));
    let pods = include_str!("../../../manifests/components/controller-bound/pods.yaml");
    let of_pods = [
        POD_NEED_UPGRADE,
        POD_IMAGE_READY,
        KRUISE_POD_READY,
        IN_PLACE_UPDATE_READY,
    ];
    assert_eq!(names(pods, "ownConditions"), written(&of_pods));
}

#[test]
fn the_advanced_component_grants_exactly_the_needed_permissions() {
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
        ("list", "controllerrevisions", BASE_RBAC),
        ("list", "daemonsets", BASE_RBAC),
    ] {
        let found = granted_by(verb, resource, SetKind::Native, None);
        assert_eq!(found, expected, "{verb} {resource}");
    }
}

#[tokio::test(start_paused = true)]
async fn permissions_of_a_setting_are_missing_only_while_a_daemonset_uses_it() {
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    let cluster = Cluster::new(ClusterOptions::new(clock.clone(), 1));
    let client = cluster.client("yurt-ds");
    let _denied = cluster.deny(|request| {
        let changes =
            ["create", "patch"].contains(&request.verb.as_str()) && request.subresource.is_empty();
        changes && ["pods", "jobs"].contains(&request.resource.as_str())
    });
    let lacking = async || missing(&client, "yurt-ds", NEEDS, &Metrics::new()).await;
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
    let back = json!({ ON_FAILURE: "RevertInPlace" });
    add("back", "AdvancedRollingUpdate", back).await;
    let gate = json!({ LIFECYCLE: r#"{"preDelete": {"markPodNotReady": true}}"# });
    add("gate", "AdvancedRollingUpdate", gate).await;
    let hook = json!({ LIFECYCLE: r#"{"preDelete": {"finalizersHandler": ["x/y"]}}"# });
    add("hook", "AdvancedRollingUpdate", hook).await;
    let found = lacking().await;
    let users: Vec<(&str, usize)> = found
        .components
        .iter()
        .map(|one| (one.component.feature, one.users.len()))
        .collect();
    assert!(found.always.is_empty());
    assert_eq!(
        users,
        [
            ("in-place updates", 2),
            ("lifecycle", 1),
            ("max-surge", 2),
            ("image pre-pulls", 1)
        ]
    );

    let (events, _sending) = super::super::events::start(client, "me", clock, Metrics::new());
    report(&found, "yurt-ds", &events);
    let said = format!("{events:?}");
    for sentence in [
        "lacks: patch pods. Needed for in-place updates of default/back and 1 more. Grant it: kubectl apply -k \
         manifests/components/in-place.",
        "lacks: patch pods. Needed for lifecycle of default/hook. Grant it: kubectl apply -k manifests/components/lifecycle.",
        "lacks: create pods, patch pods. Needed for max-surge of default/again and 1 more. Grant it: kubectl apply -k \
         manifests/components/max-surge.",
        "lacks: create jobs.batch. Needed for image pre-pulls of default/place. Grant it: kubectl apply -k \
         manifests/components/pre-pull.",
    ] {
        assert!(said.contains(sentence), "{said}");
    }
}

#[tokio::test(start_paused = true)]
async fn missing_permissions_are_published_in_one_event_and_a_metric() {
    let service = tower::service_fn(|request: Request<Body>| async move {
        let is_discovery = request.method() == http::Method::GET;
        if request.uri().path() == "/apis/apps/v1/daemonsets" {
            let body = Full::new(Bytes::from(r#"{ "metadata": {}, "items": [] }"#));
            return Ok(Response::new(body));
        }
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
            return Ok(Response::new(body));
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
    let missing = missing(&client, "yurt-ds", NEEDS, &metrics).await;
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
            "patch pods/status"
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
            "patch daemonsets/status.apps, delete pods, create pods/eviction, patch pods/status."
        ),
        "{said}"
    );
    let sentence = "delete controllerrevisions.apps, which Advanced DaemonSets need. Grant it: kubectl apply -k manifests/components/advanced";
    assert!(said.contains(sentence), "{said}");
}

#[tokio::test(start_paused = true)]
async fn missing_permissions_are_checked_until_they_are_granted() {
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
    lacking.report("delete", "pods");
    lacking.report("delete", "something of others");
    sleep(Duration::from_secs(100)).await;
    assert!(shows(1));
    assert_eq!(asked.load(Ordering::Relaxed), 4);
    assert_eq!(*lost.lock().unwrap(), ["delete pods"]);
    denied.store(false, Ordering::Relaxed);
    sleep(Duration::from_secs(600)).await;
    assert!(shows(0));
    assert_eq!(asked.load(Ordering::Relaxed), 5);
    // An API server that has just started denies requests for a moment. A permission that is granted at the first check is not
    // reported.
    lacking.report("watch", "pods");
    sleep(Duration::from_secs(600)).await;
    assert_eq!(asked.load(Ordering::Relaxed), 6);
    assert_eq!(lost.lock().unwrap().len(), 1);
    drop(lacking);
    following.await.expect("it ends with those who tell it");
}

/// A replica that cannot list objects must never lead. Although it doesn't lead, it reports the reason.
#[tokio::test(start_paused = true)]
async fn a_replica_that_cannot_list_reports_it_and_never_leads() {
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    let cluster = Cluster::new(ClusterOptions::new(clock.clone(), 1));
    let denied = cluster.deny(|request| request.resource == "nodes");
    let (_end, ending) = crate::shutdown::channel();
    let config = crate::controller::ControllerConfig {
        client: cluster.client("yurt-ds"),
        clock,
        settings: crate::controller::lease::Settings {
            namespace: "default".to_owned(),
            identity: "one".to_owned(),
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            renew_every: Duration::from_secs(5),
        },
        elects: true,
        metrics: Metrics::new(),
        readiness: crate::serve::ReadinessHandle::default(),
        gathering: crate::controller::WakeupBatching::default(),
        kinds: BOTH,
        notifications: None,
        traces: None,
    };
    tokio::spawn(crate::controller::run(config, ending));
    sleep(Duration::from_secs(600)).await;
    let client = cluster.client("test");
    let leases: Api<k8s_openapi::api::coordination::v1::Lease> =
        Api::namespaced(client.clone(), "default");
    let lease = async || leases.get_opt(crate::core::names::LEASE).await.unwrap();
    assert!(lease().await.is_none());
    let events: Api<k8s_openapi::api::events::v1::Event> = Api::namespaced(client, "default");
    let events = events.list(&ListParams::default()).await.unwrap().items;
    let mut reasons = events.iter().map(|event| event.reason.as_deref());
    assert!(reasons.any(|reason| reason == Some(PERMISSION_MISSING)));
    drop(denied);
    sleep(Duration::from_secs(60)).await;
    let holder = lease().await.and_then(|lease| lease.spec?.holder_identity);
    assert_eq!(holder.as_deref(), Some("one"));
}
