//! Tests with a caller whose rights are limited to one namespace by a RoleBinding to a ClusterRole in the manifests.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::CtlWorld;
use crate::core::SetKind;
use crate::ctl::Code;
use crate::k8s::client;
use crate::k8s::permission::testing::{Rule, rules_of};
use crate::shutdown;
use crate::sim::cluster::faults::{FaultGuard, RequestInfo};
use crate::sim::kubelet::Outage;
use crate::sim::world::start_controller;

const NODES: &str = "node readiness is not known, because you may not list nodes";

fn allows(rule: &Rule, request: &RequestInfo) -> bool {
    let resource = match request.subresource.as_str() {
        "" => request.resource.clone(),
        below => format!("{}/{below}", request.resource),
    };
    rule.api_groups.contains(&request.group)
        && rule.resources.contains(&resource)
        && rule.verbs.contains(&request.verb)
        && (rule.resource_names.is_empty() || rule.resource_names.contains(&request.name))
}

/// Limits `ctl` to the rights that a ClusterRole of the manifests grants in `namespace`, until the guard is dropped.
fn bind(world: &CtlWorld, role: &str, namespace: &'static str) -> FaultGuard {
    let file = include_str!("../../../manifests/base/rbac/people.yaml");
    let rules = rules_of(file, role);
    world.cluster.deny(move |request| {
        let is_allowed = request.resource.is_empty()
            || request.namespace == namespace && rules.iter().any(|rule| allows(rule, request));
        request.user_agent == "ctl" && !is_allowed
    })
}

/// Patches a condition of the DaemonSet `web`.
async fn condition(world: &CtlWorld, kind: &str, status: &str, reason: &str, message: &str) {
    let condition = json!({
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let patch = Patch::Strategic(json!({ "status": { "conditions": [condition] } }));
    let (sets, params) = (world.sets(), PatchParams::default());
    sets.patch_status("web", &params, &patch).await.unwrap();
}

async fn image(world: &CtlWorld) -> String {
    let set = world.sets().get("web").await.unwrap();
    let pod = set.spec.unwrap().template.spec.unwrap();
    pod.containers[0].image.clone().unwrap()
}

/// A rollout by a running controller, in waves. The last wave waits for an approval.
struct Rollout {
    world: CtlWorld,
    _controller: (shutdown::Trigger, JoinHandle<()>),
}

impl Rollout {
    async fn start() -> Self {
        let world = CtlWorld::with_nodes(3).await;
        let clock = world.context.clock.clone();
        let agent = client::Role::Controller.user_agent();
        let client = world.cluster.client(&agent);
        let controller = start_controller(client, clock, SetKind::Native);
        let waves = "[{name: first, selector: kubernetes.io/hostname=n1}, {name: field, selector: {}, approve: manual}]";
        world
            .patch(json!({ "metadata": { "annotations": { "apps.openyurt.io/waves": waves } } }))
            .await;
        Self {
            world,
            _controller: controller,
        }
    }

    /// Rolls out web:2, and waits until the first wave runs it.
    async fn first_wave(&self) -> Value {
        self.world.set_image("web:2").await;
        loop {
            let row = self.world.json("status web").await;
            if row["podCounts"]["current"] == 1 && row["podCounts"]["ready"] == 3 {
                return row;
            }
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_role_binding_in_one_namespace_is_enough_for_status() {
    let rollout = Rollout::start().await;
    let world = &rollout.world;
    let _bound = bind(world, "yurt-ds-operator", "default");
    let (text, ended) = world.run("status web").await;
    assert_eq!(ended, Ok(Code::Complete));
    assert_eq!(text.matches(NODES).count(), 1, "{text}");
    let lease = "it is not known if a controller is running";
    assert_eq!(text.matches(lease).count(), 1, "{text}");
    let counted =
        "  3 pods: 3 current, 0 outdated; 3 Ready\n  desired: 3 nodes, according to its status\n";
    assert!(text.contains(counted), "{text}");
    let row = world.json("status web").await;
    assert_eq!(row["phase"], "Complete");
    assert_eq!(row["unknown"], json!(["nodes", "leases"]));
    assert_eq!(row["targeted"], 3);
    let counts = json!({ "pods": 3, "current": 3, "outdated": 0, "ready": 3 });
    assert_eq!(row["podCounts"], counts);
    for unknown in ["updated", "offline", "unavailable", "allowed", "failed"] {
        assert_eq!(row[unknown], Value::Null, "{unknown}");
    }
    assert_eq!(row["nodes"][0]["verdict"], "Unknown");
    assert_eq!(row["nodes"][0]["pods"][0]["revision"], "current");
    let (list, ended) = world.run("status -n default").await;
    assert_eq!(ended, Ok(Code::Complete));
    assert_eq!(list.matches(NODES).count(), 1, "{list}");
    assert!(list.contains("3/3"), "{list}");
    let error = world.error("status").await;
    assert_eq!(error.code, Code::Unreachable);
    let hint = "You may not list DaemonSets in all namespaces. Try one namespace: yurt-ds ctl status -n NAMESPACE.";
    assert!(error.text.starts_with(hint), "{error}");
}

#[tokio::test(start_paused = true)]
async fn pods_show_the_progress_if_nodes_may_not_be_listed() {
    let rollout = Rollout::start().await;
    let world = &rollout.world;
    let _bound = bind(world, "yurt-ds-operator", "default");
    let row = rollout.first_wave().await;
    assert_eq!(row["podCounts"]["outdated"], 2, "{row}");
    assert_eq!(row["phase"], "Progressing", "{row}");
    let text = world.text("status web").await;
    assert!(
        text.contains("Pods that are outdated or not Ready"),
        "{text}"
    );
    let why = world.json("why web n2").await;
    assert_eq!(why["verdict"], "Unknown");
    assert_eq!(why["unknown"], json!(["nodes", "leases"]));
    assert_eq!(why["pods"][0]["revision"], "outdated");
    let why = world.text("why web n2").await;
    assert!(why.contains("(outdated, Ready)"), "{why}");
    assert_eq!(why.matches(NODES).count(), 1, "{why}");
    let why = world.text("why web n9").await;
    assert!(why.contains("it is not known if this node exists"), "{why}");
    let pod = row["nodes"][1]["pods"][0]["name"].as_str().unwrap();
    let error = world.error(&format!("why web {pod}")).await;
    assert!(
        error.text.contains("the name of a pod on node n2"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_role_binding_in_one_namespace_is_enough_for_changes() {
    let rollout = Rollout::start().await;
    let world = &rollout.world;
    let _bound = bind(world, "yurt-ds-operator", "default");
    rollout.first_wave().await;
    let output = world.text("approve web field").await;
    assert!(
        output.contains("Wave field of default/web is approved"),
        "{output}"
    );
    assert_eq!(world.code("status web --wait").await, Code::Complete);
    assert_eq!(world.json("status web").await["podCounts"]["current"], 3);

    let output = world.text("pause web").await;
    assert!(output.contains("None of its pods is outdated"), "{output}");
    let row = world.json("status web").await;
    assert_eq!(row["pause"]["until"], Value::Null);
    assert_eq!(row["pause"]["updatedMeanwhile"], Value::Null);
    let output = world.text("undo web").await;
    assert!(output.contains("It is paused"), "{output}");
    assert_eq!(image(world).await, "web:1");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.code("status web").await, Code::Paused);
    assert_eq!(world.code("status web --wait").await, Code::Paused);
    let output = world.text("resume web").await;
    assert!(output.contains("3 of its pods are outdated"), "{output}");
    assert_eq!(world.code("settings web").await, Code::Complete);
}

#[tokio::test(start_paused = true)]
async fn plan_and_eject_need_permission_to_list_nodes() {
    let world = CtlWorld::with_nodes(3).await;
    let _bound = bind(&world, "yurt-ds-operator", "default");
    let (text, ended) = world.run("plan web --image web:3").await;
    assert_eq!(ended, Ok(Code::Unreachable));
    let first = "default/web with image web:3: 3 of 3 pods are not of the new revision.\n";
    assert!(text.starts_with(first), "{text}");
    assert!(
        text.contains("are not known, because you may not list nodes"),
        "{text}"
    );
    let plan = world.run("plan web --image web:3 -o json").await.0;
    let plan: Value = serde_json::from_str(&plan).unwrap();
    assert_eq!(plan["unknown"], json!(["nodes"]));
    let error = world.error("plan web --set max-unavailable=abc").await;
    assert_eq!(error.code, Code::Invalid);
    // `eject` is refused if the caller may not list nodes, because it could miss outdated pods.
    let error = world.error("eject web").await;
    assert_eq!(error.code, Code::Unreachable);
    assert!(
        error.text.starts_with("Not allowed to list nodes"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_viewer_of_one_namespace_can_read_and_not_write() {
    let world = CtlWorld::with_nodes(1).await;
    let bound = bind(&world, "yurt-ds-viewer", "default");
    for line in ["status web", "why web n1", "settings web"] {
        world.text(line).await;
    }
    let error = world.error("pause web").await;
    assert_eq!(error.code, Code::Unreachable);
    assert!(error.text.starts_with("Not allowed to annotate"), "{error}");
    drop(bound);
    let _elsewhere = bind(&world, "yurt-ds-operator", "other");
    assert_eq!(world.error("status web").await.code, Code::Unreachable);
    assert_eq!(world.writes(), 1, "the one that was refused");
}

#[tokio::test(start_paused = true)]
async fn without_a_reported_condition_the_phase_is_unknown() {
    let world = CtlWorld::with_nodes(3).await;
    let bound = bind(&world, "yurt-ds-operator", "default");
    let row = world.json("status web").await;
    assert_eq!(row["phase"], "Unknown");
    assert_eq!(world.code("status web").await, Code::Progressing);
    let (text, ended) = world.run("status web --wait --timeout 30s").await;
    assert_eq!(ended, Ok(Code::Progressing));
    assert!(
        text.contains("no controller has reported on it yet"),
        "{text}"
    );

    let first = row["revision"].as_str().unwrap();
    let complete = format!("revision {first}: complete");
    condition(&world, "RolloutComplete", "True", "Complete", &complete).await;
    assert_eq!(world.code("status web --wait").await, Code::Complete);
    // The condition is about the previous revision, so web:2 is not reported as complete.
    world
        .kubelets
        .set_offline("n3", Outage::MARKED)
        .await
        .unwrap();
    world.set_image("web:2").await;
    let row = world.json("status web").await;
    assert_eq!(row["phase"], "Unknown");
    assert_eq!(row["podCounts"]["outdated"], 3);
    assert!(!row.to_string().contains("Offline"), "{row}");
    assert!(row["message"].as_str().unwrap().contains(first), "{row}");

    let second = row["revision"].as_str().unwrap();
    let except = format!("revision {second}: complete except offline: 1");
    condition(
        &world,
        "RolloutComplete",
        "True",
        "CompleteExceptOffline",
        &except,
    )
    .await;
    assert_eq!(world.code("status web").await, Code::Complete);
    assert_eq!(world.code("status web --strict").await, Code::Progressing);
    let stalled = format!("revision {second}: stalled: n1 failed");
    condition(
        &world,
        "RolloutComplete",
        "False",
        "FailedByRevision",
        &stalled,
    )
    .await;
    condition(&world, "Stalled", "True", "FailedByRevision", &stalled).await;
    let begun = tokio::time::Instant::now();
    assert_eq!(world.code("status web --wait").await, Code::Stalled);
    assert!(
        begun.elapsed() >= Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
    let row = world.json("status web").await;
    assert_eq!(row["message"], json!(stalled));
    let since: Timestamp = row["since"].as_str().unwrap().parse().unwrap();
    assert_eq!(since.to_string(), "2026-01-01T00:00:00Z");
    // For a caller that may list nodes, the answer has numbers of nodes instead of pods.
    drop(bound);
    let known = world.json("status web").await;
    assert_eq!(known["unknown"], json!([]));
    assert_eq!(known["podCounts"], Value::Null);
    assert_eq!(known["offline"], 1);
}
