//! Tests of `ctl eject` on the embedded cluster, with and without a controller.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::core::SetKind;
use crate::ctl::Code;
use crate::ctl::tests::CtlWorld;
use crate::k8s::client::Role;
use crate::sim::cluster::faults::Fault;
use crate::sim::kubelet::Outage;
use crate::sim::world::start_controller;

/// Time in which controllers and kubelets react to a change.
const A_MOMENT: Duration = Duration::from_secs(60);

/// Returns the condition types of every pod by UID.
async fn pods(world: &CtlWorld) -> BTreeMap<String, Vec<String>> {
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), "default");
    let pods = pods.list(&Default::default()).await.unwrap();
    let conditions = |pod: &Pod| {
        let conditions = pod
            .status
            .iter()
            .flat_map(|s| s.conditions.iter().flatten());
        conditions.map(|c| c.type_.clone()).collect()
    };
    pods.iter()
        .map(|pod| (pod.uid().unwrap(), conditions(pod)))
        .collect()
}

async fn set(world: &CtlWorld) -> Value {
    serde_json::to_value(world.sets().get("web").await.unwrap()).unwrap()
}

fn uids(pods: &BTreeMap<String, Vec<String>>) -> Vec<&String> {
    pods.keys().collect()
}

#[tokio::test(start_paused = true)]
async fn eject_of_a_complete_rollout_is_one_write_and_restarts_no_pod() {
    let world = CtlWorld::with_nodes(3).await;
    let clock = world.context.clock.clone();
    let client = world.cluster.client(&Role::Controller.user_agent());
    let (_end, _controller) = start_controller(client, clock, SetKind::Native);
    world.set_image("web:2").await;
    let undone = json!({ "apps.openyurt.io/rolled-back-from": "abc" });
    world
        .patch(json!({ "metadata": { "annotations": undone } }))
        .await;
    tokio::time::sleep(A_MOMENT).await;
    let before = pods(&world).await;
    let dry = world.text("eject web --dry-run").await;
    assert!(dry.contains("would be handed back"), "{dry}");
    assert_eq!(world.writes(), 0);
    let output = world.text("eject web").await;
    for words in [
        "default/web was handed back to Kubernetes.",
        "No pod is restarted: all nodes run the current revision.",
        "RollingUpdate with maxUnavailable 10%.",
        "Removed: apps.openyurt.io/rolled-back-from, apps.openyurt.io/update-strategy.",
        "The controller removed the conditions",
    ] {
        assert!(output.contains(words), "{words}: {output}");
    }
    assert_eq!(world.writes(), 1);
    tokio::time::sleep(A_MOMENT).await;
    assert_eq!(uids(&pods(&world).await), uids(&before));
    let after = set(&world).await;
    for key in ["update-strategy", "rolled-back-from"] {
        let key = format!("apps.openyurt.io/{key}");
        assert_eq!(after["metadata"]["annotations"][key], Value::Null);
    }
    assert_eq!(after["spec"]["updateStrategy"]["type"], "RollingUpdate");
    assert_eq!(
        after["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"],
        "10%"
    );
    assert_eq!(
        after["status"]["conditions"].as_array().map_or(0, Vec::len),
        0,
        "{after}"
    );
    // After the return to Kubernetes, the native controller replaces the pods.
    world.set_image("web:3").await;
    tokio::time::sleep(A_MOMENT).await;
    let pods = pods(&world).await;
    assert!(pods.keys().all(|uid| !before.contains_key(uid)));
    assert_eq!(world.error("eject web").await.code, Code::NotFound);
}

#[tokio::test(start_paused = true)]
async fn an_old_manifest_applied_during_eject_is_reported() {
    let world = CtlWorld::with_nodes(2).await;
    let clock = world.context.clock.clone();
    let client = world.cluster.client(&Role::Controller.user_agent());
    let (_end, _controller) = start_controller(client, clock, SetKind::Native);
    tokio::time::sleep(A_MOMENT).await;
    // Delay the read after the hand-over by a second, so that the old manifest is applied before it.
    let is_handed_over = AtomicBool::new(false);
    let _slow = world.cluster.faults().add(move |request| {
        let is_it = request.user_agent == "ctl" && request.resource == "daemonsets";
        match request.verb.as_str() {
            "patch" if is_it => is_handed_over.store(true, Relaxed),
            "get" if is_it && is_handed_over.load(Relaxed) => {
                return Fault::Delay(Duration::from_secs(1));
            }
            _ => {}
        }
        Fault::Pass
    });
    let applying = async {
        while set(&world).await["spec"]["updateStrategy"]["type"] == "OnDelete" {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let annotations = json!({ "apps.openyurt.io/update-strategy": "auto" });
        let strategy = json!({ "type": "OnDelete", "rollingUpdate": null });
        let old = json!({
            "metadata": { "annotations": annotations },
            "spec": { "updateStrategy": strategy },
        });
        world.patch(old).await;
    };
    let (ended, ()) = tokio::join!(world.run("eject web"), applying);
    let error = ended.1.unwrap_err();
    assert_eq!(error.code, Code::Failed, "{error}");
    for words in [
        "apps.openyurt.io/update-strategy",
        "yurt-ds ctl eject default/web",
    ] {
        assert!(error.text.contains(words), "{words}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn eject_keeps_max_surge_in_the_native_strategy() {
    let world = CtlWorld::with_nodes(2).await;
    let case = async |unavailable: Option<&str>, surge: &str, native: Value, words: &str| {
        let annotations = json!({
            "apps.openyurt.io/update-strategy": "AdvancedRollingUpdate",
            "apps.openyurt.io/max-surge": surge,
            "apps.openyurt.io/max-unavailable": unavailable,
        });
        let strategy = json!({ "type": "OnDelete", "rollingUpdate": null });
        world
            .patch(json!({
                "metadata": { "annotations": annotations },
                "spec": { "updateStrategy": strategy },
            }))
            .await;
        tokio::time::sleep(A_MOMENT).await;
        let output = world.text("eject web").await;
        assert!(output.contains(words), "{words}: {output}");
        let after = set(&world).await;
        assert_eq!(
            after["spec"]["updateStrategy"]["rollingUpdate"], native,
            "{after}"
        );
    };
    let native = json!({ "maxSurge": "25%", "maxUnavailable": 0 });
    let words = "RollingUpdate with maxSurge 25% and maxUnavailable 0.";
    case(None, "25%", native.clone(), words).await;
    // With `max-surge` and `max-unavailable` above zero, only the surge is kept, because Kubernetes accepts only one of them.
    case(Some("1"), "25%", native, words).await;
}

#[tokio::test(start_paused = true)]
async fn eject_is_refused_while_nodes_are_outdated() {
    let world = CtlWorld::with_nodes(3).await;
    let offline = world.kubelets.set_offline("n3", Outage::MARKED).await;
    offline.unwrap();
    world.set_image("web:2").await;
    let error = world.error("eject web").await;
    assert_eq!(error.code, Code::Refused);
    for words in [
        "3 of 3 nodes run an old revision (1 offline)",
        "replace their pods immediately, 10% of the nodes at a time",
        "yurt-ds ctl status default/web --wait --strict",
        "--now",
    ] {
        assert!(error.text.contains(words), "{words}: {error}");
    }
    assert_eq!(world.writes(), 0);
    world.replace("n1").await;
    world.replace("n2").await;
    let error = world.error("eject web").await;
    assert!(
        error
            .text
            .contains("1 of 3 nodes runs an old revision (1 offline)"),
        "{error}"
    );
    world.kubelets.set_online("n3").await.unwrap();
    world.replace("n3").await;
    let output = world.text("eject web").await;
    assert!(output.contains("No pod is restarted"), "{output}");
}

/// Covers the time between the deletion of the last old pod and its end, in which eject is still refused. Found on a real cluster.
#[tokio::test(start_paused = true)]
async fn eject_is_refused_while_old_pods_are_terminating() {
    let world = CtlWorld::with_nodes(2).await;
    world.set_image("web:2").await;
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), "default");
    for pod in pods.list(&Default::default()).await.unwrap() {
        pods.delete(&pod.name_any(), &Default::default())
            .await
            .unwrap();
    }
    let error = world.error("eject web").await;
    assert_eq!(error.code, Code::Refused);
    let words = "the old pods of 2 nodes are still terminating";
    assert!(error.text.contains(words), "{error}");
    let output = world.text("eject web --now").await;
    assert!(output.contains("No other pod is restarted"), "{output}");
}

#[tokio::test(start_paused = true)]
async fn eject_now_pauses_the_controller_before_the_native_rollout_starts() {
    let world = CtlWorld::with_nodes(4).await;
    let clock = world.context.clock.clone();
    let client = world.cluster.client(&Role::Controller.user_agent());
    let (_end, _controller) = start_controller(client, clock, SetKind::Native);
    tokio::time::sleep(A_MOMENT).await;
    let annotations =
        json!({ "apps.openyurt.io/min-interval": "1h", "apps.openyurt.io/max-unavailable": "2" });
    world
        .patch(json!({ "metadata": { "annotations": annotations } }))
        .await;
    world.set_image("web:2").await;
    let output = world.text("eject web --now").await;
    for words in [
        "default/web is paused while it is handed back.",
        "3 nodes run an old revision. The native RollingUpdate starts to replace their pods immediately, 2 nodes at \
         a time",
        "without a native equivalent: min-interval.",
    ] {
        assert!(output.contains(words), "{words}: {output}");
    }
    assert_eq!(world.writes(), 2);
    let after = set(&world).await;
    assert_eq!(
        after["metadata"]["annotations"]["apps.openyurt.io/paused"],
        Value::Null
    );
    assert_eq!(
        after["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"],
        2
    );
}

#[tokio::test(start_paused = true)]
async fn eject_without_a_controller_removes_its_conditions() {
    let world = CtlWorld::with_nodes(2).await;
    let clock = world.context.clock.clone();
    let client = world.cluster.client(&Role::Controller.user_agent());
    let (end, controller) = start_controller(client, clock, SetKind::Native);
    let annotations = json!({ "apps.openyurt.io/update-strategy": "OTA" });
    world
        .patch(json!({ "metadata": { "annotations": annotations } }))
        .await;
    end.request();
    controller.await.unwrap();
    let before = pods(&world).await;
    assert!(
        before
            .values()
            .all(|conditions| conditions.contains(&"PodNeedUpgrade".to_owned()))
    );
    let output = world.text("eject web").await;
    assert!(output.contains("No controller responded"), "{output}");
    assert!(output.contains("(OTA) from 2 pods"), "{output}");
    let after = pods(&world).await;
    assert_eq!(uids(&before), uids(&after));
    assert!(
        after
            .values()
            .all(|conditions| !conditions.contains(&"PodNeedUpgrade".to_owned()))
    );
    let set = set(&world).await;
    assert_eq!(
        set["status"]["conditions"].as_array().map_or(0, Vec::len),
        0,
        "{set}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_conflict_during_eject_is_reported_and_a_retry_succeeds() {
    let world = CtlWorld::with_nodes(2).await;
    let conflict = world
        .cluster
        .faults()
        .add(|request| match request.verb.as_str() {
            "patch" => Fault::Status(409, None),
            _ => Fault::Pass,
        });
    let error = world.error("eject web").await;
    assert_eq!(error.code, Code::Failed);
    assert!(error.text.contains("was not handed back"), "{error}");
    drop(conflict);
    world.text("eject web").await;
    assert_eq!(
        set(&world).await["spec"]["updateStrategy"]["type"],
        "RollingUpdate"
    );
}

#[tokio::test(start_paused = true)]
async fn eject_with_invalid_settings_is_refused() {
    let world = CtlWorld::with_nodes(1).await;
    let annotations = json!({ "apps.openyurt.io/max-unavailable": "lots" });
    world
        .patch(json!({ "metadata": { "annotations": annotations } }))
        .await;
    let error = world.error("eject web").await;
    assert_eq!(error.code, Code::Invalid);
    assert!(
        error
            .text
            .contains("apps.openyurt.io/max-unavailable is \"lots\""),
        "{error}"
    );
    // With RollingUpdate, Kubernetes already replaces outdated pods, so eject is not refused.
    world
        .patch(json!({ "spec": { "updateStrategy": { "type": "RollingUpdate" } } }))
        .await;
    let output = world.text("eject web").await;
    assert!(
        output.contains("updateStrategy remains RollingUpdate"),
        "{output}"
    );
}
