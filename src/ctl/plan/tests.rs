//! Tests that compare plans with actual rollouts on the embedded cluster.

mod advanced;

use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::watcher::Event;
use serde_json::{Value, json};

use crate::core::SetKind;
use crate::ctl::Code;
use crate::ctl::tests::{CtlWorld, assert_fits, flat};
use crate::k8s::client::Role;
use crate::sim::cluster::faults::Fault;
use crate::sim::kubelet::{Behaviour, Outage, Rule};
use crate::sim::watched::events;
use crate::sim::world::start_controller;
use crate::task::Task;

const A_MOMENT: Duration = Duration::from_secs(60);

/// Makes the change and returns the nodes whose pods the controller deletes, in order.
async fn really(world: &CtlWorld, kind: SetKind, change: impl Future<Output = ()>) -> Vec<String> {
    let pods: Api<crate::k8s::Pod> = Api::namespaced(world.client.clone(), "default");
    let (found, mut nodes) = tokio::sync::mpsc::unbounded_channel();
    let _watching = Task::spawn(async move {
        let mut pods = events(pods, "");
        while let Some(event) = pods.next().await {
            if let Event::Apply(pod) = event
                && pod.metadata.deletion_timestamp.is_some()
            {
                found
                    .send(pod.spec.target_node().unwrap().to_owned())
                    .unwrap();
            }
        }
    });
    let clock = world.context.clock.clone();
    let client = world.cluster.client(&Role::Controller.user_agent());
    let (_end, _controller) = start_controller(client, clock, kind);
    tokio::time::sleep(A_MOMENT).await;
    change.await;
    tokio::time::sleep(20 * A_MOMENT).await;
    let mut order: Vec<String> = Vec::new();
    while let Ok(node) = nodes.try_recv() {
        if !order.contains(&node) {
            order.push(node);
        }
    }
    order
}

fn nodes(plan: &Value) -> Vec<String> {
    let steps = plan["steps"].as_array().unwrap().iter();
    steps
        .map(|step| step["node"].as_str().unwrap().to_owned())
        .collect()
}

async fn annotate(world: &CtlWorld, annotations: Value) {
    world
        .patch(json!({ "metadata": { "annotations": annotations } }))
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_plan_matches_the_actual_rollout() {
    let world = CtlWorld::with_nodes(9).await;
    let broken = Rule {
        image: "web:1".into(),
        node: "n6".into(),
        behaviour: Behaviour {
            crash_after: Some(Duration::from_secs(5)),
            ..Behaviour::default()
        },
    };
    world.kubelets.rule(broken).await.unwrap();
    world.replace("n6").await;
    world
        .kubelets
        .set_offline("n3", Outage::MARKED)
        .await
        .unwrap();
    tokio::time::sleep(10 * A_MOMENT).await;
    annotate(
        &world,
        json!({ "apps.openyurt.io/max-unavailable": "3", "apps.openyurt.io/partition": "1" }),
    )
    .await;
    let before = world.cluster.requests();
    let plan = world.json("plan web --image web:2 --unset partition").await;
    let of_ctl = |counts: Vec<crate::sim::cluster::Count>| -> Vec<String> {
        let counts = counts.into_iter().filter(|count| count.user_agent == "ctl");
        counts.map(|count| count.verb).collect()
    };
    assert!(of_ctl(before).is_empty());
    assert!(
        of_ctl(world.cluster.requests())
            .iter()
            .all(|verb| ["get", "list"].contains(&verb.as_str()))
    );
    assert_eq!(plan["phase"], "Complete");
    assert_eq!(
        (&plan["targeted"], &plan["replaced"]),
        (&json!(9), &json!(8))
    );
    assert_eq!(plan["left"][0]["node"], "n3");
    assert_eq!(plan["left"][0]["verdict"], "Offline");
    assert_eq!(plan["to"], Value::Null);
    assert_eq!(
        plan,
        world.json("plan web --image web:2 --unset partition").await
    );
    let planned = nodes(&plan);
    assert_eq!(planned[0], "n6", "the broken one first");
    annotate(&world, json!({ "apps.openyurt.io/partition": null })).await;
    let happened = really(&world, SetKind::Native, world.set_image("web:2")).await;
    assert_eq!(planned, happened);
}

#[tokio::test(start_paused = true)]
async fn a_rollout_in_progress_is_planned_to_its_end() {
    let world = CtlWorld::with_nodes(5).await;
    world.set_image("web:2").await;
    world.replace("n4").await;
    let plan = world.json("plan web").await;
    assert_eq!(nodes(&plan), ["n1", "n2", "n3", "n5"]);
    assert_eq!(plan["batches"], 4);
    assert_eq!(plan["from"], plan["to"]);
    let back = world.json("plan web --image c=web:1").await;
    assert_eq!(nodes(&back), ["n4"], "only what ran the newer revision");
    assert!(back["to"].is_string());
}

#[tokio::test(start_paused = true)]
async fn a_plan_without_pending_changes_replaces_nothing() {
    let world = CtlWorld::with_nodes(3).await;
    let (text, ended) = world.run("plan web").await;
    assert_eq!(ended, Ok(Code::Complete));
    assert!(
        text.starts_with("default/web: nothing would be replaced."),
        "{text}"
    );
    let (text, ended) = world.run("plan web --image web:1").await;
    assert_eq!(ended, Ok(Code::Complete));
    assert!(
        text.contains("with image web:1: nothing would be replaced."),
        "{text}"
    );
    let text = world
        .text("plan web --restart --set max-unavailable=100% --ends-in 5s")
        .await;
    for words in [
        "default/web with max-unavailable=100%, a restart: 3 of 3 nodes would get the new revision within 6s, in 1 batch.",
        "A pod takes up to 5s to end and 1s to start (measured on 3 pods).",
        "BATCH AT NODE HOW READY 1 +0s n1 delete +6s",
        "At the end: Complete: all 3 nodes updated",
    ] {
        assert!(flat(&text).contains(words), "{words}: {text}");
    }
    assert_fits(&text);
}

#[tokio::test(start_paused = true)]
async fn blockers_are_reported_with_their_end() {
    let world = CtlWorld::with_nodes(2).await;
    // The clock starts at 2026-01-01, a Thursday, so the window on Saturday is closed.
    let window = "plan web --image web:2 --set maintenance-window=Sat\u{a0}02:00-04:00\u{a0}UTC"
        .replace('\u{a0}', "-");
    assert_eq!(world.error(&window).await.code, Code::Invalid);
    annotate(
        &world,
        json!({ "apps.openyurt.io/maintenance-window": "Sat 02:00-04:00 UTC" }),
    )
    .await;
    let plan = world.json("plan web --image web:2").await;
    assert_eq!(plan["waits"][0]["until"], "2026-01-03T02:00:00Z");
    assert_eq!(plan["steps"][0]["begins"], "2026-01-03T02:00:00Z");
    assert_eq!(plan["phase"], "Complete");
    let (text, ended) = world.run("plan web --image web:2 --horizon 1d").await;
    assert_eq!(ended, Ok(Code::Progressing));
    assert!(text.contains("nothing would be replaced"), "{text}");
    assert!(
        flat(&text).contains("aintenance window closed; opens Sat 2026-01-03 02:00 UTC"),
        "{text}"
    );
    assert!(flat(&text).contains("(see --horizon)"), "{text}");
    // A pod takes 3 hours to end, so the window of 2 hours closes before the second node is updated.
    let (text, ended) = world
        .run("plan web --image web:2 --horizon 3d --ends-in 3h")
        .await;
    assert_eq!(ended, Ok(Code::Progressing));
    assert!(
        flat(&text).contains("1 of 2 nodes would get the new revision, in 1 batch."),
        "{text}"
    );
    let (text, ended) = world.run("plan web --image web:2 --set paused=true").await;
    assert_eq!(ended, Ok(Code::Paused));
    assert!(
        text.contains("At the end: Paused: paused until an operator resumes it. 2 nodes left"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_in_place_update_is_planned() {
    let world = CtlWorld::with_nodes(3).await;
    let line = "plan web --set rolling-update-type=InPlaceIfPossible --ends-in 1s";
    let plan = world.json(&format!("{line} --image web:2")).await;
    assert_eq!(plan["phase"], "Complete", "{plan}");
    let manners = |plan: &Value| -> Vec<Value> {
        let steps = plan["steps"].as_array().unwrap().iter();
        steps.map(|step| step["manner"].clone()).collect()
    };
    assert_eq!(manners(&plan), ["inPlace"; 3], "{plan}");
    // A changed environment variable requires a new pod: an in-place update cannot apply it.
    let env = json!([{ "name": "c", "env": [{ "name": "A", "value": "b" }] }]);
    let template = json!({ "spec": { "containers": env } });
    annotate(&world, json!({ "apps.openyurt.io/paused": "true" })).await;
    world
        .patch(json!({ "spec": { "template": template } }))
        .await;
    let plan = world.json(&format!("{line} --unset paused")).await;
    assert_eq!(manners(&plan), ["delete"; 3], "{plan}");
}

/// Found by a reader of the documentation: the plan of a rollback kept nodes on the old revision because of `partition`. It also
/// waited for a proof that the restored revision works, although that revision had been rolled out before.
#[tokio::test(start_paused = true)]
async fn a_rollback_is_planned() {
    let world = CtlWorld::with_nodes(4).await;
    annotate(
        &world,
        json!({ "apps.openyurt.io/partition": "2", "apps.openyurt.io/max-unavailable": "1" }),
    )
    .await;
    world.set_image("web:2").await;
    world.replace("n1").await;
    world.replace("n2").await;
    let back = world.json("plan web --image web:1 --ends-in 1s").await;
    assert_eq!(back["replaced"], 2, "{back}");
    assert_eq!(back["phase"], "Complete", "{back}");
    assert!(back["seconds"].as_u64().unwrap() < 10, "{back}");
}

/// Uses image names with registry and digest, as a real kubelet reports them. The simulated kubelet omits registry and digest.
#[tokio::test(start_paused = true)]
async fn an_in_place_plan_for_real_kubelets_takes_time_and_keeps_the_budget() {
    let world = CtlWorld::with_nodes(4).await;
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), "default");
    for pod in pods.list(&Default::default()).await.unwrap() {
        let name = pod.metadata.name.unwrap();
        let mut status = json!(pod.status.unwrap().container_statuses.unwrap()[0]);
        status["image"] = json!("docker.io/library/web:1");
        status["imageID"] = json!("docker.io/library/web@sha256:0123");
        let patch = json!({ "status": { "containerStatuses": [status] } });
        let (params, patch) = (PatchParams::default(), Patch::Strategic(patch));
        pods.patch_status(&name, &params, &patch).await.unwrap();
    }
    let settings = "--set rolling-update-type=InPlaceIfPossible --set predownload=best-effort";
    let line = format!("plan web --image web:2 {settings} --set max-unavailable=1 --ends-in 1s");
    let plan = world.json(&line).await;
    assert_eq!(plan["phase"], "Complete", "{plan}");
    let steps = plan["steps"].as_array().unwrap();
    let at =
        |key: &str, step: &Value| -> Timestamp { step[key].as_str().unwrap().parse().unwrap() };
    assert_eq!(steps.len(), 4, "{plan}");
    for (step, next) in steps.iter().zip(&steps[1..]) {
        assert!(at("ready", step) > at("begins", step), "{plan}");
        assert!(at("begins", next) >= at("ready", step), "{plan}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_surge_is_planned() {
    let world = CtlWorld::with_nodes(3).await;
    let line = "plan web --image web:2 --set max-surge=1 --ends-in 1s";
    let plan = world.json(line).await;
    assert_eq!(plan["phase"], "Complete", "{plan}");
    let steps = plan["steps"].as_array().unwrap();
    let manners: Vec<&Value> = steps.iter().map(|step| &step["manner"]).collect();
    assert_eq!(manners, ["surge"; 3], "{plan}");
}

#[tokio::test(start_paused = true)]
async fn broken_nodes_stop_the_plan() {
    let world = CtlWorld::with_nodes(10).await;
    let plan = world
        .json("plan web --image web:2 --set max-unavailable=2 --set failure-threshold=1 --break 2 --ends-in 1s")
        .await;
    assert_eq!(plan["broke"], json!(["n1", "n10"]));
    assert_eq!(plan["phase"], "Stalled", "{plan}");
    assert!(plan["replaced"].as_u64().unwrap() < 10, "{plan}");
    let last = plan["steps"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&last["ready"], &plan["ends"]),
        (&Value::Null, &last["begins"])
    );
}

#[tokio::test(start_paused = true)]
async fn a_failed_plan_names_the_reason() {
    let world = CtlWorld::with_nodes(2).await;
    let error = world.error("plan web --set max-unavailable=abc").await;
    assert_eq!(error.code, Code::Invalid);
    assert!(
        error
            .text
            .contains("apps.openyurt.io/max-unavailable is \"abc\""),
        "{error}"
    );
    // Error messages must not repeat a long value.
    for value in [
        "x".repeat(8_000),
        format!(r#"{{"{}":1}}"#, "x".repeat(8_000)),
    ] {
        for key in crate::core::settings::keys() {
            let (text, ended) = world.run(&format!("plan web --set {key}={value}")).await;
            let output = ended.map_or_else(|error| error.text, |_| text);
            assert!(output.len() < 700, "{key}: {output}");
        }
    }
    assert_eq!(
        world.error("plan web --image x=web:2").await.code,
        Code::Usage
    );
    assert_eq!(world.error("plan wbe").await.code, Code::NotFound);
    assert_eq!(
        world.error("plan web --unset update-strategy").await.code,
        Code::NotFound
    );
    let denied = world
        .cluster
        .faults()
        .add(|request| match request.resource.as_str() {
            "nodes" => Fault::Status(403, None),
            _ => Fault::Pass,
        });
    let (text, ended) = world.run("plan web --image web:2").await;
    assert_eq!(ended, Ok(Code::Unreachable));
    assert!(text.contains("you may not list nodes"), "{text}");
    drop(denied);
}

#[tokio::test(start_paused = true)]
async fn a_plan_respects_disruption_budgets_when_evicting() {
    let world = CtlWorld::with_nodes(3).await;
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(world.client.clone(), "default");
    let budget = |healthy: i32| {
        json!({
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": { "name": "web" },
            "spec": { "minAvailable": healthy, "selector": { "matchLabels": { "app": "web" } } },
        })
    };
    let made = serde_json::from_value(budget(3)).unwrap();
    budgets.create(&PostParams::default(), &made).await.unwrap();
    annotate(&world, json!({ "apps.openyurt.io/max-unavailable": "2" })).await;
    let evicting = "plan web --image web:2 --set disruption=evict";
    let blocked = world.json(evicting).await;
    assert_eq!(blocked["replaced"], 0, "{blocked}");
    assert_eq!(blocked["left"][0]["verdict"], "BlockedByPDB");
    let deleted = world.json("plan web --image web:2").await;
    assert_eq!(
        (&deleted["replaced"], &deleted["phase"]),
        (&json!(3), &json!("Complete"))
    );
    let patch = json!({ "spec": { "minAvailable": 2 } });
    let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
    budgets.patch("web", &params, &patch).await.unwrap();
    let allowed = world.json(evicting).await;
    assert_eq!(
        (&allowed["replaced"], &allowed["phase"]),
        (&json!(3), &json!("Complete"))
    );
    assert_eq!(
        (&allowed["batches"], &deleted["batches"]),
        (&json!(3), &json!(2))
    );
}

/// A wait with a known end does not end the simulation, even if it is longer than the limit for a standstill.
#[tokio::test(start_paused = true)]
async fn a_plan_continues_after_a_long_wait() {
    #[track_caller]
    fn is_complete(plan: &Value, what: &str) {
        assert_eq!(plan["phase"], "Complete", "{what}: {plan}");
        assert_eq!(plan["replaced"], 3, "{what}: {plan}");
    }
    let world = CtlWorld::with_nodes(3).await;
    let soak = r#"waves=[{"name":"first","selector":"kubernetes.io/hostname=n1","soak":"15m"}]"#;
    for setting in ["min-interval=15m", "paused=2026-01-01T01:00:00Z", soak] {
        let line = format!("plan web --image web:2 --set {setting}");
        is_complete(&world.json(&line).await, setting);
    }
    let until = json!([{ "until": "2026-01-01T05:00:00Z", "reason": "calibration", "daemonset": "default/web" }]);
    let hold =
        json!({ "metadata": { "annotations": { "apps.openyurt.io/hold": until.to_string() } } });
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(world.client.clone());
    let patched = nodes
        .patch("n2", &PatchParams::default(), &Patch::Merge(hold))
        .await;
    patched.unwrap();
    let plan = world.json("plan web --image web:2").await;
    is_complete(&plan, "hold");
    assert_eq!(plan["waits"].as_array().unwrap().len(), 1, "{plan}");
    let wait = &plan["waits"][0];
    let held = "on hold until 2026-01-01T05:00:00Z: n2. Reason: calibration";
    assert_eq!(wait["reason"], "Held", "{plan}");
    assert_eq!(wait["message"], held, "{plan}");
    assert_eq!(wait["until"], "2026-01-01T05:00:00Z", "{plan}");
    // The plan reports the end of a hold even if it is after `--horizon`.
    let text = flat(&world.text("plan web --image web:2 --horizon 1h").await);
    for words in [
        "until 2026-01-01T05:00:00Z: on hold",
        "Complete: 2 of 3 nodes updated. 1 node is on hold",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    // The window of n3 never opens. The plan still simulates until the hold of n2 ends.
    let never =
        json!({ "metadata": { "annotations": { "apps.openyurt.io/maintenance-window": "Mon" } } });
    let patched = nodes
        .patch("n3", &PatchParams::default(), &Patch::Merge(never))
        .await;
    patched.unwrap();
    let plan = world.json("plan web --image web:2").await;
    assert_eq!(plan["replaced"], 2, "{plan}");
    assert_eq!(plan["waits"][0]["message"], held, "{plan}");
    assert_eq!(plan["phase"], "Stalled", "{plan}");
}
