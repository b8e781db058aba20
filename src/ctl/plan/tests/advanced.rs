//! Tests of plans for Advanced DaemonSets, with a native DaemonSet of the same name on the same nodes.

use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{A_MOMENT, nodes, really};
use crate::core::SetKind;
use crate::ctl::Code;
use crate::ctl::daemonset_api::whole;
use crate::ctl::tests::CtlWorld;
use crate::index::SetKey;
use crate::k8s::client::Role;
use crate::sim::cluster::resources::Storage;
use crate::sim::kubelet::{Behaviour, Outage, Rule};
use crate::sim::world::start_controller;

/// Creates nodes n1, n2, … and the Advanced DaemonSet `default/web` with its pods.
async fn with_nodes(count: usize, change: Value) -> CtlWorld {
    let world = unhandled(count, change).await;
    handle(&world).await;
    world
}

/// Creates nodes n1, n2, … and the Advanced DaemonSet `default/web`, which no controller has processed yet.
async fn unhandled(count: usize, change: Value) -> CtlWorld {
    let world = CtlWorld::with_nodes(count).await;
    world.cluster.install_advanced();
    let mut set = json!({
        "apiVersion": "apps.kruise.io/v1beta1",
        "kind": "DaemonSet",
        "metadata": { "name": "web" },
        "spec": {
            "selector": { "matchLabels": { "app": "advanced" } },
            "template": {
                "metadata": { "labels": { "app": "advanced" } },
                "spec": { "containers": [{ "name": "c", "image": "web:1" }] },
            },
        },
    });
    json_patch::merge(&mut set, &change);
    let set: DynamicObject = serde_json::from_value(set).unwrap();
    let made = sets(&world).create(&PostParams::default(), &set).await;
    made.unwrap();
    world
}

fn sets(world: &CtlWorld) -> Api<DynamicObject> {
    whole(
        &world.client,
        &SetKey::of_kind(SetKind::Advanced, "default", "web"),
    )
}

/// Runs the controller until it is idle, then stops it.
async fn handle(world: &CtlWorld) {
    let clock = world.context.clock.clone();
    let client = world.cluster.client(&Role::Controller.user_agent());
    let (end, running) = start_controller(client, clock, SetKind::Advanced);
    tokio::time::sleep(5 * A_MOMENT).await;
    end.request();
    running.await.unwrap();
}

async fn patch(world: &CtlWorld, patch: Value) {
    let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
    sets(world).patch("web", &params, &patch).await.unwrap();
}

async fn set_image(world: &CtlWorld, image: &str) {
    let containers = json!([{ "name": "c", "image": image }]);
    let template = json!({ "spec": { "containers": containers } });
    patch(world, json!({ "spec": { "template": template } })).await;
}

fn rolling(update: Value) -> Value {
    json!({ "spec": { "updateStrategy": { "rollingUpdate": update } } })
}

fn manners(plan: &Value) -> Vec<&str> {
    let steps = plan["steps"].as_array().unwrap().iter();
    steps.map(|step| step["manner"].as_str().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_plan_matches_the_actual_rollout() {
    let world = with_nodes(9, rolling(json!({ "maxUnavailable": 3, "partition": 9 }))).await;
    let broken = Rule {
        image: "web:1".into(),
        node: "n6".into(),
        behaviour: Behaviour {
            never_ready: true,
            ..Behaviour::default()
        },
    };
    world.kubelets.rule(broken).await.unwrap();
    world.replace("n6").await;
    handle(&world).await;
    world
        .kubelets
        .set_offline("n3", Outage::MARKED)
        .await
        .unwrap();
    tokio::time::sleep(10 * A_MOMENT).await;
    let line = "plan ads/web --image web:2 --set partition=2";
    let plan = world.json(line).await;
    assert_eq!(world.writes(), 0);
    assert_eq!(plan, world.json(line).await);
    assert_eq!(plan["kind"], "apps.kruise.io/v1beta1");
    assert_eq!(plan["phase"], "Complete", "{plan}");
    assert!(plan["from"].is_string());
    assert_eq!(plan["to"], Value::Null);
    let planned = nodes(&plan);
    assert_eq!(planned, ["n6", "n9", "n8", "n7", "n5", "n4"]);
    let left = |at: usize| (&plan["left"][at]["node"], &plan["left"][at]["verdict"]);
    assert_eq!(left(1), (&json!("n2"), &json!("Partition")), "{plan}");
    assert_eq!(left(2), (&json!("n3"), &json!("Offline")), "{plan}");
    let change = async {
        patch(&world, rolling(json!({ "partition": 2 }))).await;
        set_image(&world, "web:2").await;
    };
    assert_eq!(planned, really(&world, SetKind::Advanced, change).await);
}

#[tokio::test(start_paused = true)]
async fn a_rollout_in_progress_is_planned_to_its_end_and_back() {
    let world = with_nodes(5, rolling(json!({ "partition": 4 }))).await;
    set_image(&world, "web:2").await;
    handle(&world).await;
    let plan = world.json("plan ads/web --unset partition").await;
    assert_eq!(nodes(&plan), ["n4", "n3", "n2", "n1"]);
    assert_eq!(plan["batches"], 4);
    assert_eq!(plan["from"], plan["to"]);
    let back = world
        .json("plan ads/web --image c=web:1 --unset partition")
        .await;
    assert_eq!(nodes(&back), ["n5"], "only what ran the newer revision");
    assert!(back["to"].is_string());
    let nothing = world.text("plan ads/web").await;
    assert!(nothing.contains("nothing would be replaced"), "{nothing}");
    assert!(nothing.contains("Partition 4: n1, n2, n3, n4"), "{nothing}");
}

/// Found on a real cluster: the plan of a rollback counted nodes as failures of the restored revision although they were lost while
/// another revision was current.
#[tokio::test(start_paused = true)]
async fn losses_under_another_revision_do_not_count_against_a_restored_one() {
    let world = with_nodes(3, json!({})).await;
    world
        .kubelets
        .set_offline("n1", Outage::MARKED)
        .await
        .unwrap();
    tokio::time::sleep(A_MOMENT).await;
    set_image(&world, "web:2").await;
    handle(&world).await;
    let line = "plan ads/web --image web:1";
    let back = world.json(line).await;
    assert_eq!(nodes(&back), ["n3", "n2"]);
    assert_eq!(back["left"][0]["verdict"], "Offline", "{back}");
    set_image(&world, "web:1").await;
    handle(&world).await;
    let nothing = world.json("plan ads/web").await;
    assert_eq!(nothing["left"], back["left"]);
}

#[tokio::test(start_paused = true)]
async fn a_plan_creates_a_pod_on_each_node_without_one() {
    let world = with_nodes(
        4,
        json!({ "spec": {
        "scaleStrategy": { "partitionedScaling": true },
        "updateStrategy": { "rollingUpdate": { "partition": 3 } },
    } }),
    )
    .await;
    let plan = world.json("plan ads/web --set partition=1").await;
    assert_eq!(manners(&plan), ["create"; 2], "{plan}");
    assert_eq!(nodes(&plan), ["n2", "n3"]);
    assert_eq!(
        (&plan["phase"], &plan["left"][0]["node"]),
        (&json!("Complete"), &json!("n4"))
    );
    let text = world.text("plan ads/web --set partition=1").await;
    assert!(
        text.contains("\nA pod takes 1s to start (measured on 1 pod"),
        "{text}"
    );
    let both = world
        .json("plan ads/web --set partition=0 --image web:2")
        .await;
    assert_eq!(
        manners(&both),
        ["create", "create", "create", "delete"],
        "{both}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_plan_does_not_need_a_running_controller() {
    let world = unhandled(3, json!({ "spec": { "burstReplicas": 2 } })).await;
    let plan = world.json("plan ads/web").await;
    assert_eq!((&plan["from"], &plan["to"]), (&Value::Null, &Value::Null));
    assert_eq!(manners(&plan), ["create"; 3], "{plan}");
    assert_eq!(plan["phase"], "Complete", "{plan}");
    assert_eq!(plan["pace"]["measuredPods"], 0);
    handle(&world).await;
    set_image(&world, "web:2").await;
    let plan = world.json("plan ads/web").await;
    assert_eq!((&plan["from"], &plan["to"]), (&Value::Null, &Value::Null));
    assert_eq!(nodes(&plan), ["n3", "n2", "n1"]);
}

#[tokio::test(start_paused = true)]
async fn fields_are_set_and_unset_like_annotations() {
    let world = with_nodes(4, rolling(json!({ "maxUnavailable": 1, "paused": true }))).await;
    let line = "plan ads/web --image web:2 --ends-in 1s";
    let (text, ended) = world.run(line).await;
    assert_eq!(ended, Ok(Code::Paused), "{text}");
    let plan = world
        .json(&format!(
            "{line} --set max-unavailable=50% --set paused=false"
        ))
        .await;
    assert_eq!(
        (&plan["batches"], &plan["notes"]),
        (&json!(2), &json!([])),
        "{plan}"
    );
    let one = world
        .json(&format!("{line} --unset max-unavailable --unset paused"))
        .await;
    assert_eq!(
        (&one["batches"], &one["replaced"]),
        (&json!(4), &json!(4)),
        "{one}"
    );
    let surge = world
        .json(&format!(
            "{line} --unset paused --unset max-unavailable --set max-surge=1"
        ))
        .await;
    assert_eq!(manners(&surge), ["surge"; 4], "{surge}");
    let selected = world
        .json(&format!(
            "{line} --unset paused --set selector=kubernetes.io/hostname=n2"
        ))
        .await;
    assert_eq!(nodes(&selected), ["n2"], "{selected}");
    let until = world
        .json(&format!("{line} --set paused=2026-01-02T00:00:00Z"))
        .await;
    assert_eq!(
        until["steps"][0]["begins"], "2026-01-02T00:00:00Z",
        "{until}"
    );
    let error = world
        .error(&format!("{line} --set max-unavailable=abc"))
        .await;
    assert_eq!(error.code, Code::Invalid);
    let place = "spec.updateStrategy.rollingUpdate.maxUnavailable is \"abc\"";
    assert!(error.text.contains(place), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_in_place_update_is_planned_with_its_readiness_gate() {
    let in_place = json!({ "rollingUpdateType": "InPlaceIfPossible" });
    let world = with_nodes(3, rolling(in_place)).await;
    let plan = world.json("plan ads/web --image web:2").await;
    assert_eq!(
        (manners(&plan), &plan["phase"]),
        (vec!["inPlace"; 3], &json!("Complete")),
        "{plan}"
    );
    assert_eq!(plan["pace"]["inPlaceSeconds"], Value::Null);
    set_image(&world, "web:2").await;
    handle(&world).await;
    let next = world.json("plan ads/web --image web:3").await;
    assert!(next["pace"]["inPlaceSeconds"].is_u64(), "{next}");
    assert_eq!(
        (manners(&next), &next["phase"]),
        (vec!["inPlace"; 3], &json!("Complete")),
        "{next}"
    );
    let anew = world
        .json("plan ads/web --image web:3 --set rolling-update-type=Standard")
        .await;
    assert_eq!(manners(&anew), ["delete"; 3], "{anew}");
}

#[tokio::test(start_paused = true)]
async fn waits_for_deletions_owners_and_approvals_are_reported() {
    let world = with_nodes(
        2,
        json!({ "spec": { "updateStrategy": { "type": "OnDelete" } } }),
    )
    .await;
    let line = "plan ads/web --image web:2";
    let (text, ended) = world.run(line).await;
    assert!(text.contains("At the end: AwaitingDeletions"), "{text}");
    let told = world.json(line).await;
    assert_eq!(told["left"][1]["verdict"], "AwaitingDeletion");
    assert_eq!(ended, Ok(world.code(line).await));
    let ota = world
        .json(&format!("{line} --set update-strategy=OTA"))
        .await;
    assert_eq!(
        (&ota["phase"], &ota["replaced"]),
        (&json!("AwaitingOwners"), &json!(0)),
        "{ota}"
    );
    let rolled = world
        .json(&format!(
            "{line} --set update-strategy=AdvancedRollingUpdate"
        ))
        .await;
    assert_eq!(
        (&rolled["phase"], &rolled["replaced"]),
        (&json!("Complete"), &json!(2))
    );
    let waves = r#"waves=[{"name":"first","selector":"kubernetes.io/hostname=n1"},{"name":"all","selector":{},"approve":"manual"}]"#;
    let waves = world
        .json(&format!("{line} --set update-strategy=auto --set {waves}"))
        .await;
    assert_eq!(nodes(&waves), ["n1"], "{waves}");
    assert_eq!(waves["left"][0]["verdict"], "WaveNotOpen", "{waves}");
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_hook_is_pending_in_the_plan() {
    let spec = json!({ "spec": {
        "lifecycle": { "preDelete": { "finalizersHandler": ["example.com/drain"] } },
        "template": { "metadata": { "finalizers": ["example.com/drain", "example.com/other"] } },
    } });
    let world = with_nodes(2, spec).await;
    let plan = world.json("plan ads/web --image web:2").await;
    assert_eq!(plan["left"][1]["verdict"], "HookPending", "{plan}");
    let plan = world
        .json("plan ads/web --image web:2 --unset lifecycle")
        .await;
    assert_eq!(
        (&plan["phase"], &plan["replaced"]),
        (&json!("Complete"), &json!(2)),
        "{plan}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_change_that_the_api_server_would_reject_is_refused_with_its_message() {
    let world = with_nodes(1, json!({})).await;
    let error = world.error("plan ads/web --set max-unavailable=0").await;
    assert_eq!(error.code, Code::Invalid, "{error}");
    assert!(
        error
            .text
            .starts_with("The API server would reject this change: "),
        "{error}"
    );
}

/// Uses templates that the embedded API server rejects, but that another version of the CRD may accept.
#[tokio::test(start_paused = true)]
async fn a_plan_with_an_invalid_template_is_refused() {
    let world = with_nodes(1, json!({})).await;
    let set = sets(&world).get("web").await.unwrap();
    for template in [
        json!("x"),
        json!(null),
        json!({ "metadata": { "labels": "x" }, "spec": "y" }),
    ] {
        let mut broken = json!(set);
        broken["spec"]["template"] = template;
        world.cluster.restore(Storage::AdvancedDaemonSets, [broken]);
        let error = world.error("plan ads/web --image web:2 --restart").await;
        assert_eq!(error.code, Code::Invalid, "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn two_daemonsets_of_one_name_are_planned_separately() {
    let world = with_nodes(2, json!({})).await;
    let error = world.error("plan web --image web:2").await;
    assert_eq!(error.code, Code::Usage, "{error}");
    assert!(
        error
            .text
            .contains("Write ds/default/web or ads/default/web"),
        "{error}"
    );
    let native = world.json("plan ds/web --image web:2").await;
    let advanced = world.json("plan ads/web --image web:2").await;
    assert_eq!(
        (&native["kind"], nodes(&native)),
        (&json!("apps/v1"), vec!["n1".to_owned(), "n2".to_owned()])
    );
    assert_eq!(nodes(&advanced), ["n2", "n1"]);
    let without = CtlWorld::with_nodes(1).await;
    let error = without.error("plan ads/web").await;
    assert_eq!(error.code, Code::NotFound, "{error}");
    assert!(
        error.text.contains("Did you mean ds/default/web?"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn status_of_all_names_the_kind_in_its_commands() {
    let world = with_nodes(1, json!({})).await;
    world.set_image("web:2").await;
    set_image(&world, "web:2").await;
    for name in ["ds/web", "ads/web"] {
        world.text(&format!("pause {name}")).await;
    }
    let rows = world.run("status -o json").await.0;
    let rows: Value = serde_json::from_str(&rows).unwrap();
    for (row, name) in [(0, "ds/default/web"), (1, "ads/default/web")] {
        let command = format!("yurt-ds ctl resume {name}");
        assert!(rows[row].to_string().contains(&command), "{rows:#}");
    }
}
