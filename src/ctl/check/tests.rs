//! Tests of `ctl check` on an installation in the embedded cluster.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::finding::CheckId;
use super::report::FIELDS;
use super::testing::{controller, create, create_controller, install, renew};
use crate::ctl::Code;
use crate::ctl::tests::{CtlWorld, assert_fits};
use crate::k8s::permission::testing::rules_of;
use crate::sim::cluster::faults::{Fault, RequestInfo};
use crate::sim::cluster::resources::Storage;
use crate::sim::kubelet::Outage;

/// User name of the controller's service account.
const CONTROLLER: &str = "system:serviceaccount:yurt-ds:yurt-ds-controller";

/// A report as JSON, and its exit code.
struct Report {
    document: Value,
    code: Code,
}

impl Report {
    async fn new(world: &CtlWorld, line: &str) -> Self {
        let (text, ended) = world.run(&format!("{line} -o json")).await;
        Self {
            document: serde_json::from_str(&text).unwrap(),
            code: ended.unwrap(),
        }
    }

    #[track_caller]
    fn check(&self, id: &str) -> &Value {
        let mut checks = self.document["checks"].as_array().unwrap().iter();
        checks
            .find(|check| check["id"] == id)
            .unwrap_or_else(|| panic!("{id}: {}", self.document))
    }

    /// Asserts that a check ended with this status, and that its message and its fix contain these words.
    #[track_caller]
    fn assert(&self, id: &str, status: &str, message: &str, fix: &str) {
        let check = self.check(id);
        let text = |field: &str| check[field].as_str().unwrap_or_default().to_owned();
        assert_eq!(text("status"), status, "{check:#}");
        assert!(text("message").contains(message), "{check:#}");
        assert!(text("fix").contains(fix), "{check:#}");
    }
}

async fn installed(nodes: usize) -> CtlWorld {
    let world = CtlWorld::with_nodes(nodes).await;
    install(&world).await;
    world
}

#[tokio::test(start_paused = true)]
async fn a_healthy_installation_is_reported_in_one_line_per_category() {
    let world = installed(3).await;
    let (text, ended) = world.run("check").await;
    let expected = "\
api          ok
controller   ok
permissions  ok
daemonsets   ok
advanced     ok
agents       ok
policies     ok

All checks passed.
";
    assert_eq!(text, expected);
    assert_eq!(ended, Ok(Code::Complete));
    assert_eq!(world.text("check -o short").await, "");
    let wide = world.text("check -o wide").await;
    assert_fits(&wide);
    let page = include_str!("../../../docs/reference/install.md");
    assert!(page.contains(expected));
    let reviews = |request: &RequestInfo| request.resource == "subjectaccessreviews";
    let _denied = world.cluster.deny(move |request| reviews(request));
    let (text, ended) = world.run("check").await;
    assert!(
        text.ends_with("\nNo check failed: 6 not checked.\n"),
        "{text}"
    );
    assert!(
        text.contains("  permissions-base and 5 more: not checked\n"),
        "{text}"
    );
    assert_eq!(ended, Ok(Code::Complete));
}

#[tokio::test(start_paused = true)]
async fn check_documents_have_every_check_and_the_documented_fields() {
    let world = installed(1).await;
    let after = Report::new(&world, "check").await;
    let before = Report::new(&world, "check --pre").await;
    let keys =
        |object: &Value| -> Vec<String> { object.as_object().unwrap().keys().cloned().collect() };
    let expected = ["checks", "kubernetes", "status", "version"];
    let mut found = keys(&after.document);
    found.sort();
    assert_eq!(found, expected);
    let mut found = keys(after.check("api-version"));
    found.sort();
    assert_eq!(
        found,
        ["category", "docs", "fix", "id", "message", "status"]
    );
    for field in found.iter().map(String::as_str).chain(expected) {
        assert!(FIELDS.contains(field), "{field}");
    }
    let mut ids = BTreeSet::new();
    for report in [&after, &before] {
        let checks = report.document["checks"].as_array().unwrap();
        let of_report: Vec<&str> = checks
            .iter()
            .map(|check| check["id"].as_str().unwrap())
            .collect();
        let distinct: BTreeSet<&str> = of_report.iter().copied().collect();
        assert_eq!(of_report.len(), distinct.len(), "{of_report:?}");
        ids.extend(distinct);
        for check in checks {
            assert!(
                FIELDS.contains(check["category"].as_str().unwrap()),
                "{check}"
            );
        }
    }
    let all: BTreeSet<&str> = CheckId::ALL.iter().map(|id| id.name()).collect();
    assert_eq!(ids, all);
    assert_eq!(after.document["version"], env!("CARGO_PKG_VERSION"));
    assert!(
        after.document["kubernetes"]
            .as_str()
            .unwrap()
            .starts_with("v1.35.")
    );
}

#[tokio::test(start_paused = true)]
async fn an_unresponsive_api_server_ends_the_checks() {
    let world = installed(1).await;
    let silent = world.cluster.faults().add(|_| Fault::Hang);
    let report = Report::new(&world, "check").await;
    assert_eq!(report.code, Code::Unreachable);
    report.assert(
        "api-reachable",
        "failed",
        "https://sim (kubeconfig sim) does not respond",
        "Check that",
    );
    assert_eq!(report.document["checks"].as_array().unwrap().len(), 1);
    assert_eq!(report.document["kubernetes"], Value::Null);
    drop(silent);
    let expired = world.cluster.faults().add(|_| Fault::Status(401, None));
    let report = Report::new(&world, "check").await;
    assert_eq!(report.code, Code::Unreachable);
    report.assert(
        "api-reachable",
        "failed",
        "does not accept the credentials",
        "Renew",
    );
    drop(expired);
    let slow = |request: &RequestInfo| match request.resource.as_str() {
        "" => Fault::Delay(Duration::from_secs(2)),
        _ => Fault::Pass,
    };
    let _slow = world.cluster.faults().add(slow);
    renew(&world, "yurt-ds", "native,advanced", 1).await;
    let report = Report::new(&world, "check").await;
    report.assert("api-latency", "warning", "needs 2s", "load");
    assert_eq!(report.code, Code::Complete);
}

#[tokio::test(start_paused = true)]
async fn a_stopped_or_duplicate_controller_is_reported() {
    let world = installed(1).await;
    renew(&world, "yurt-ds", "native", 200).await;
    let report = Report::new(&world, "check").await;
    assert_eq!(report.code, Code::Failed);
    report.assert(
        "controller-lease",
        "failed",
        "not renewed its Lease for 3m",
        "kubectl -n yurt-ds get pods",
    );
    report.assert("daemonsets-served", "skipped", "none runs", "");

    renew(&world, "yurt-ds", "native", -7200).await;
    Report::new(&world, "check").await.assert(
        "controller-lease",
        "failed",
        "It is not known if a controller is running: the time of its Lease in namespace yurt-ds lies 2h in the future",
        "kubectl -n yurt-ds get pods",
    );

    renew(&world, "yurt-ds", "native", 1).await;
    renew(&world, "default", "native,advanced", 1).await;
    let report = Report::new(&world, "check").await;
    report.assert(
        "controller-lease",
        "ok",
        "in namespace yurt-ds serves native DaemonSets",
        "",
    );
    report.assert(
        "controller-single",
        "warning",
        "No pod of a controller is found in namespace default",
        "kubectl -n default delete lease",
    );
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), "default");
    let labels = json!({ "app.kubernetes.io/component": "controller" });
    let meta = json!({ "name": "controller", "labels": labels });
    let pod = json!({ "metadata": meta, "spec": controller("yurt-ds:0.1.0") });
    create(&pods, pod).await;
    let report = Report::new(&world, "check").await;
    report.assert(
        "controller-single",
        "failed",
        "yurt-ds, default",
        "kubectl -n default get",
    );

    let leases: Api<k8s_openapi::api::coordination::v1::Lease> = Api::all(world.client.clone());
    for lease in leases.list(&Default::default()).await.unwrap() {
        let of: Api<k8s_openapi::api::coordination::v1::Lease> =
            Api::namespaced(world.client.clone(), &lease.metadata.namespace.unwrap());
        let name = lease.metadata.name.unwrap();
        of.delete(&name, &Default::default()).await.unwrap();
    }
    let report = Report::new(&world, "check").await;
    report.assert(
        "controller-lease",
        "failed",
        "There is no Lease",
        "kubectl -n yurt-ds get pods",
    );
    let leases =
        |request: &RequestInfo| request.resource == "leases" && request.user_agent == "ctl";
    let _denied = world.cluster.deny(leases);
    let report = Report::new(&world, "check").await;
    report.assert(
        "controller-lease",
        "skipped",
        "may not list the Lease yurt-ds-controller",
        "",
    );
}

#[tokio::test(start_paused = true)]
async fn controller_pods_are_found_by_label_and_command() {
    let world = installed(1).await;
    let mut other = controller("ingress:1.0.0");
    other["containers"][0]["command"] = json!(["/ingress", "controller"]);
    create_controller(&world, "ingress", &other).await;
    let mut pending = controller("registry.example/yurt-ds:0.0.9");
    pending["nodeName"] = Value::Null;
    pending["nodeSelector"] = json!({ "role": "none" });
    create_controller(&world, "controller-3", &pending).await;
    let report = Report::new(&world, "check").await;
    report.assert(
        "controller-ready",
        "warning",
        "2 of 3 pods are Ready",
        "describe pod controller-3",
    );
    report.assert(
        "controller-version",
        "warning",
        "0.0.9 on 1 pod, 0.1.0 on 2 pods",
        "Use ctl",
    );

    let pods: Api<Pod> = Api::namespaced(world.client.clone(), "yurt-ds");
    for name in ["controller-1", "controller-2"] {
        pods.delete(name, &Default::default()).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    let report = Report::new(&world, "check").await;
    report.assert(
        "controller-ready",
        "failed",
        "0 of 1 pods are Ready",
        "controller-3",
    );
    pods.delete("controller-3", &Default::default())
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let report = Report::new(&world, "check").await;
    assert_eq!(report.code, Code::Failed);
    report.assert(
        "controller-ready",
        "failed",
        "There is no pod",
        "kubectl -n yurt-ds get deployments",
    );
    report.assert(
        "permissions-base",
        "skipped",
        "service account is not known",
        "",
    );
    let pods = |request: &RequestInfo| request.resource == "pods" && request.user_agent == "ctl";
    let _denied = world.cluster.deny(pods);
    let report = Report::new(&world, "check").await;
    report.assert(
        "controller-ready",
        "skipped",
        "may not list the pods of namespace yurt-ds",
        "",
    );
    report.assert("agents-updated", "skipped", "may not list", "");
}

/// Checks that a right for a feature is needed only where a DaemonSet uses the feature.
#[tokio::test(start_paused = true)]
async fn a_missing_permission_of_the_controller_fails_only_if_it_is_needed() {
    let world = installed(1).await;
    let patches = |request: &RequestInfo| {
        request.user_agent == CONTROLLER
            && request.resource == "pods"
            && request.verb == "patch"
            && request.subresource.is_empty()
    };
    let denied = world.cluster.deny(patches);
    let report = Report::new(&world, "check").await;
    assert_eq!(report.code, Code::Complete, "{:#}", report.document);
    report.assert(
        "permissions-base",
        "ok",
        "yurt-ds/yurt-ds-controller has all rights",
        "",
    );
    report.assert("permissions-in-place", "ok", "Not enabled", "");
    report.assert("permissions-advanced", "ok", "Not needed", "");
    let in_place = json!({ "apps.openyurt.io/rolling-update-type": "InPlaceIfPossible" });
    world
        .patch(json!({ "metadata": { "annotations": in_place } }))
        .await;
    let report = Report::new(&world, "check").await;
    assert_eq!(report.code, Code::Failed);
    report.assert(
        "permissions-in-place",
        "failed",
        "lacks: patch pods, needed for in-place updates of default/web",
        "kubectl apply -k manifests/components/in-place",
    );
    report.assert("permissions-lifecycle", "ok", "Not enabled", "");
    world.cluster.install_advanced();
    let report = Report::new(&world, "check").await;
    report.assert(
        "permissions-advanced",
        "failed",
        "patch pods",
        "manifests/components/advanced",
    );
    drop(denied);
    let evictions = |request: &RequestInfo| {
        request.user_agent == CONTROLLER && request.subresource == "eviction"
    };
    let _denied = world.cluster.deny(evictions);
    let report = Report::new(&world, "check").await;
    report.assert(
        "permissions-base",
        "failed",
        "lacks: create pods/eviction",
        "kubectl apply -k manifests/base/rbac",
    );
}

#[tokio::test(start_paused = true)]
async fn problems_of_single_daemonsets_are_warnings() {
    let world = installed(1).await;
    for name in ["a", "b", "c", "d"] {
        let wrong = json!({ "apps.openyurt.io/update-strategy": "auto", "apps.openyurt.io/max-unavailable": "abc" });
        world.create(name, wrong).await;
    }
    world
        .create("slip", json!({ "apps.openyurt.io/update-stategy": "auto" }))
        .await;
    renew(&world, "yurt-ds", "advanced", 1).await;
    let report = Report::new(&world, "check").await;
    report.assert(
        "settings-valid",
        "warning",
        "4 DaemonSets have invalid settings: default/a, default/b, default/c and 1 more.",
        "yurt-ds ctl settings ds/default/a",
    );
    report.assert(
        "settings-effective",
        "warning",
        "default/slip is not managed: apps.openyurt.io/update-stategy",
        "ds/default/slip",
    );
    report.assert(
        "daemonsets-served",
        "failed",
        "No controller serves DaemonSets of apps/v1",
        "--controllers native",
    );
    assert_fits(&world.run("check").await.0);
    let other = Report::new(&world, "check -n yurt-ds-edge").await;
    other.assert("settings-valid", "ok", "1 DaemonSet is managed", "");
    let error = world.error("check -n nowhere").await;
    assert_eq!(error.code, Code::NotFound);
    assert!(
        error.text.starts_with("There is no namespace nowhere"),
        "{error}"
    );
    let sets =
        |request: &RequestInfo| request.resource == "daemonsets" && request.user_agent == "ctl";
    let _denied = world.cluster.deny(sets);
    let report = Report::new(&world, "check").await;
    for id in [
        "settings-valid",
        "settings-effective",
        "daemonsets-served",
        "agents-updated",
    ] {
        report.assert(
            id,
            "skipped",
            "may not list the DaemonSets of all namespaces",
            "",
        );
    }
}

#[tokio::test(start_paused = true)]
async fn online_nodes_need_an_updated_agent_and_ota_needs_one_on_every_node() {
    let world = installed(3).await;
    world
        .kubelets
        .set_offline("n3", Outage::MARKED)
        .await
        .unwrap();
    renew(&world, "yurt-ds", "native,advanced", 1).await;
    let report = Report::new(&world, "check").await;
    report.assert(
        "agents-updated",
        "ok",
        "yurt-ds-edge/yurt-ds-ota-server: ",
        "",
    );
    let agents: Api<DaemonSet> = Api::namespaced(world.client.clone(), "yurt-ds-edge");
    let containers = json!([{ "name": "ota-server", "image": "yurt-ds:0.2.0" }]);
    let patch = json!({ "spec": { "template": { "spec": { "containers": containers } } } });
    let (params, patch) = (PatchParams::default(), Patch::Strategic(patch));
    agents
        .patch("yurt-ds-ota-server", &params, &patch)
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let report = Report::new(&world, "check").await;
    assert_eq!(report.code, Code::Failed);
    report.assert(
        "agents-updated",
        "failed",
        "yurt-ds-edge/yurt-ds-ota-server",
        "yurt-ds ctl status",
    );
    report.assert("agents-version", "ok", "0.1.0 on 3 nodes", "");
    report.assert("agents-for-ota", "ok", "No DaemonSet uses OTA", "");

    let selector = json!({ "spec": { "template": { "spec": { "nodeSelector": { "kubernetes.io/hostname": "n1" } } } } });
    agents
        .patch("yurt-ds-ota-server", &params, &Patch::Strategic(selector))
        .await
        .unwrap();
    world
        .patch(
            json!({ "metadata": { "annotations": { "apps.openyurt.io/update-strategy": "OTA" } } }),
        )
        .await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let report = Report::new(&world, "check").await;
    report.assert(
        "agents-for-ota",
        "failed",
        "1 node with a DaemonSet that uses OTA has no agent",
        "describe daemonset",
    );
    agents
        .delete("yurt-ds-ota-server", &Default::default())
        .await
        .unwrap();
    let report = Report::new(&world, "check").await;
    report.assert("agents-updated", "ok", "Not installed", "");
    report.assert(
        "agents-for-ota",
        "failed",
        "3 nodes",
        "kubectl apply -k manifests/base",
    );
    report.assert("policy-agent", "ok", "Not needed", "");
}

#[tokio::test(start_paused = true)]
async fn policies_and_the_crd_are_compared_with_the_manifests() {
    let world = installed(1).await;
    let loose = json!({
        "metadata": { "name": "yurt-ds-controller-pods", "uid": "u" },
        "spec": { "matchConditions": [{ "expression": 7 }] },
    });
    let storage = Storage::ValidatingAdmissionPolicies;
    world.cluster.restore(storage, [loose]);
    let audits = json!({
        "metadata": { "name": "yurt-ds-ota-server", "uid": "u" },
        "spec": { "policyName": "yurt-ds-ota-server", "validationActions": ["Audit"] },
    });
    let storage = Storage::ValidatingAdmissionPolicyBindings;
    world.cluster.restore(storage, [audits]);
    let definition = json!({
        "metadata": { "name": "daemonsets.apps.kruise.io", "uid": "u" },
        "spec": { "conversion": { "strategy": "Webhook" } },
    });
    let storage = Storage::CustomResourceDefinitions;
    world.cluster.restore(storage, [definition]);
    let report = Report::new(&world, "check").await;
    assert_eq!(report.code, Code::Complete);
    assert_eq!(report.document["status"], "warning");
    report.assert(
        "policy-controller",
        "warning",
        "yurt-ds-controller-pods names another service account",
        "controller-bound",
    );
    report.assert(
        "policy-agent",
        "warning",
        "has no binding that denies",
        "agent-bound-to-node",
    );
    report.assert(
        "crd-current",
        "warning",
        "is that of OpenKruise",
        "kubectl apply -k manifests/components/advanced",
    );
    let policies = |request: &RequestInfo| request.group == "admissionregistration.k8s.io";
    let _denied = world.cluster.deny(policies);
    let report = Report::new(&world, "check").await;
    report.assert(
        "policy-controller",
        "skipped",
        "may not list validatingadmissionpolicies",
        "",
    );
}

#[tokio::test(start_paused = true)]
async fn check_pre_tests_permissions_and_names() {
    let world = CtlWorld::with_nodes(1).await;
    let (text, ended) = world.run("check --pre").await;
    assert_eq!(ended, Ok(Code::Complete));
    assert_eq!(
        text,
        "api          ok\nadvanced     ok\ninstall      ok\n\nAll checks passed.\n"
    );
    let creates = |request: &RequestInfo| {
        request.verb == "create"
            && ["clusterroles", "customresourcedefinitions"].contains(&&*request.resource)
    };
    let _denied = world.cluster.deny(creates);
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    create(
        &namespaces,
        json!({ "metadata": { "name": "yurt-ds-edge" } }),
    )
    .await;
    let sets: Api<DaemonSet> = Api::namespaced(world.client.clone(), "yurt-ds-edge");
    let mut set = world.sets().get("web").await.unwrap();
    set.metadata = serde_json::from_value(json!({ "name": "yurt-ds-ota-server" })).unwrap();
    sets.create(&Default::default(), &set).await.unwrap();
    let report = Report::new(&world, "check --pre").await;
    assert_eq!(report.code, Code::Failed);
    report.assert(
        "install-rights",
        "failed",
        "create clusterroles.rbac.authorization.k8s.io",
        "administrator",
    );
    report.assert(
        "install-rights-advanced",
        "warning",
        "customresourcedefinitions",
        "administrator",
    );
    report.assert(
        "names-free",
        "failed",
        "daemonsets yurt-ds-ota-server -n yurt-ds-edge",
        "kubectl get daemonsets",
    );
    let labels = json!({ "metadata": { "labels": { "app.kubernetes.io/name": "yurt-ds" } } });
    let (params, patch) = (PatchParams::default(), Patch::Merge(labels));
    sets.patch("yurt-ds-ota-server", &params, &patch)
        .await
        .unwrap();
    let report = Report::new(&world, "check --pre").await;
    report.assert("names-free", "ok", "yurt-ds is installed already", "");
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    create(&namespaces, json!({ "metadata": { "name": "yurt-ds" } })).await;
    let accounts: Api<ServiceAccount> = Api::namespaced(world.client.clone(), "yurt-ds");
    create(
        &accounts,
        json!({ "metadata": { "name": "yurt-ds-controller" } }),
    )
    .await;
    let report = Report::new(&world, "check --pre").await;
    report.assert(
        "names-free",
        "failed",
        "serviceaccounts yurt-ds-controller -n yurt-ds",
        "kubectl get serviceaccounts",
    );
}

#[tokio::test(start_paused = true)]
async fn a_misspelt_key_on_a_managed_daemonset_is_a_warning() {
    let world = installed(1).await;
    for (key, setting) in [
        (
            "apps.openyurt.io/max-unavailabe",
            "apps.openyurt.io/max-unavailable",
        ),
        ("yurt-ds.io/min-intervall", "apps.openyurt.io/min-interval"),
    ] {
        let annotations = json!({ "apps.openyurt.io/update-strategy": "auto", key: "1" });
        world.create("web-2", annotations).await;
        renew(&world, "yurt-ds", "native,advanced", 1).await;
        let report = Report::new(&world, "check").await;
        report.assert(
            "settings-effective",
            "warning",
            &format!("On default/web-2, {key} has no effect (similar setting: {setting})"),
            "yurt-ds ctl settings ds/default/web-2",
        );
        assert_eq!(report.code, Code::Complete);
        let sets: Api<DaemonSet> = Api::namespaced(world.client.clone(), "default");
        sets.delete("web-2", &Default::default()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn check_wait_ends_when_no_check_fails_or_at_the_timeout() {
    let world = installed(1).await;
    renew(&world, "yurt-ds", "native,advanced", 200).await;
    let begun = tokio::time::Instant::now();
    assert_eq!(world.code("check --wait --timeout 30s").await, Code::Failed);
    let passed = begun.elapsed();
    assert!(
        passed >= Duration::from_secs(25) && passed <= Duration::from_secs(31),
        "{passed:?}"
    );
    let renewing = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        renew(&world, "yurt-ds", "native,advanced", 1).await;
    };
    let ((text, ended), ()) = tokio::join!(world.run("check --wait --timeout 4m"), renewing);
    assert_eq!(ended, Ok(Code::Complete));
    assert!(text.ends_with("All checks passed.\n"), "{text}");
    let _silent = world.cluster.faults().add(|_| Fault::Hang);
    let error = world.error("check --wait --timeout 5s").await;
    assert_eq!(error.code, Code::Unreachable);
}

/// Checks that the ClusterRole `yurt-ds-viewer` is enough for all checks except the reviews of the controller's permissions.
#[tokio::test(start_paused = true)]
async fn a_viewer_can_run_all_checks_except_controller_permissions() {
    let world = installed(2).await;
    let file = include_str!("../../../manifests/base/rbac/people.yaml");
    let rules = rules_of(file, "yurt-ds-viewer");
    let _bound = world.cluster.deny(move |request| {
        let grants = |rule: &crate::k8s::permission::testing::Rule| {
            rule.api_groups.contains(&request.group)
                && rule.resources.contains(&request.resource)
                && rule.verbs.contains(&request.verb)
        };
        request.user_agent == "ctl" && !request.resource.is_empty() && !rules.iter().any(grants)
    });
    let report = Report::new(&world, "check").await;
    assert_eq!(report.code, Code::Complete);
    for check in report.document["checks"].as_array().unwrap() {
        let is_right = check["category"] == "permissions";
        let expected = if is_right { "skipped" } else { "ok" };
        assert_eq!(check["status"], expected, "{check:#}");
    }
    report.assert(
        "permissions-base",
        "skipped",
        "may not create subjectaccessreviews",
        "",
    );
}

#[tokio::test(start_paused = true)]
async fn a_hostile_object_affects_only_its_own_check() {
    let world = installed(1).await;
    let mut pod = controller("yurt-ds:0.1.0");
    pod["containers"][0]["image"] = json!(format!("\u{1b}[2Jyurt-ds:{}", "9".repeat(300)));
    create_controller(&world, "hostile", &pod).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    renew(&world, "yurt-ds", "native,advanced", 1).await;
    let unreadable = json!({
        "metadata": { "name": "broken", "namespace": "yurt-ds", "uid": "broken",
            "labels": { "app.kubernetes.io/component": "controller" } },
        "status": { "conditions": 7 },
    });
    world.cluster.restore(Storage::Pods, [unreadable]);
    let set = json!({
        "metadata": { "name": "deep", "namespace": "default", "uid": "set",
            "annotations": { "apps.openyurt.io/update-strategy": "auto" } },
        "spec": { "updateStrategy": { "type": "OnDelete" }, "template": 7, "selector": { "matchLabels": { "app": "deep" } } },
    });
    world.cluster.restore(Storage::DaemonSets, [set]);
    let report = Report::new(&world, "check").await;
    report.assert(
        "controller-ready",
        "warning",
        "cannot be read: yurt-ds/broken",
        "kubectl get pod",
    );
    for id in [
        "api-reachable",
        "controller-lease",
        "permissions-base",
        "agents-updated",
        "policy-agent",
    ] {
        report.assert(id, "ok", "", "");
    }
    let text = world.run("check -o wide").await.0;
    assert!(!text.contains('\u{1b}'), "{text:?}");
}
