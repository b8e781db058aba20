//! Tests of rollbacks on the embedded cluster, with and without a controller.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use serde_json::{Value, json};

use crate::core::rollout_state::Reported;
use crate::core::{RolloutState, SetKind};
use crate::ctl::Code;
use crate::ctl::tests::{CtlWorld, remember};
use crate::k8s::client::Role;
use crate::sim::cluster::faults::Fault;
use crate::sim::kubelet::Behaviour;
use crate::sim::world::start_controller;

/// Time in which controllers and kubelets react to a change.
const A_MOMENT: Duration = Duration::from_secs(60);

async fn set(world: &CtlWorld) -> Value {
    serde_json::to_value(world.sets().get("web").await.unwrap()).unwrap()
}

async fn image(world: &CtlWorld) -> Value {
    set(world).await["spec"]["template"]["spec"]["containers"][0]["image"].clone()
}

/// Creates a DaemonSet that has had the templates web:1, web:2 and web:3, in this order.
async fn three_revisions() -> CtlWorld {
    let world = CtlWorld::with_nodes(2).await;
    world.set_image("web:2").await;
    world.set_image("web:3").await;
    world
}

/// Replaces all pods, so that they have the current template.
async fn both_replaced(world: &CtlWorld) {
    world.replace("n1").await;
    world.replace("n2").await;
}

#[tokio::test(start_paused = true)]
async fn undo_goes_back_step_by_step_and_never_forward() {
    let world = three_revisions().await;
    let before = set(&world).await;
    let dry = world.text("undo web --dry-run").await;
    assert!(
        dry.starts_with("default/web would be rolled back from revision 3 ("),
        "{dry}"
    );
    assert!(dry.contains(") to revision 2 ("), "{dry}");
    assert!(dry.contains("\n  c: web:3 -> web:2\n"), "{dry}");
    assert_eq!(world.writes(), 0);
    let output = world.text("undo web").await;
    assert!(
        output.starts_with("default/web is rolled back from revision 3 ("),
        "{output}"
    );
    assert!(
        output.contains("Follow it: yurt-ds ctl status default/web --watch"),
        "{output}"
    );
    assert_eq!(world.writes(), 1);
    assert_eq!(image(&world).await, "web:2");
    both_replaced(&world).await;
    // The restored web:2 has number 4, after web:3. The second undo restores web:1, not web:3 with the next lower number.
    let answer = world.json("undo web").await;
    assert_eq!(answer["changed"], true);
    assert_eq!(answer["from"]["number"], 4);
    assert_eq!(answer["to"]["number"], 1);
    let images = json!([{ "container": "c", "from": "web:2", "to": "web:1" }]);
    assert_eq!(answer["images"], images);
    assert_eq!(image(&world).await, "web:1");
    both_replaced(&world).await;
    let error = world.error("undo web").await;
    assert_eq!(error.code, Code::Refused);
    for words in [
        "older than the current one",
        "--to-revision",
        "web:3",
        "(current)",
    ] {
        assert!(error.text.contains(words), "{words}: {error}");
    }
    // `--to-revision` restores any revision, even one that `undo` would not choose.
    let named = error.text.lines().find(|line| line.ends_with("web:3"));
    let number = named
        .and_then(|line| line.split_whitespace().next())
        .unwrap();
    world
        .text(&format!("undo web --to-revision {number}"))
        .await;
    assert_eq!(image(&world).await, "web:3");
    let after = set(&world).await;
    assert_eq!(
        after["metadata"]["annotations"]["apps.openyurt.io/update-strategy"],
        "auto"
    );
    assert_eq!(after["spec"]["template"], before["spec"]["template"]);
}

/// Checks that `undo` restores the same revision as `kubectl rollout undo`. Kubernetes gives a revision a new number when its
/// template is applied again.
#[tokio::test(start_paused = true)]
async fn undo_restores_the_replaced_revision() {
    let world = CtlWorld::with_nodes(2).await;
    for image in ["web:bad", "web:1", "web:2", "web:3", "web:bad"] {
        world.set_image(image).await;
    }
    let dry = world.json("undo web --dry-run").await;
    let images = json!([{ "container": "c", "from": "web:bad", "to": "web:3" }]);
    assert_eq!(dry["images"], images, "{dry}");
    assert!(dry["from"]["lastRolledOut"].is_string(), "{dry}");
    world.text("undo web").await;
    assert_eq!(image(&world).await, "web:3");
    // The next undo restores an older revision, not the one that the first undo rolled back.
    both_replaced(&world).await;
    world.text("undo web").await;
    assert_eq!(image(&world).await, "web:2");
}

#[tokio::test(start_paused = true)]
async fn undo_after_a_jump_back_does_not_restore_newer_revisions() {
    let world = three_revisions().await;
    world.text("undo web --to-revision 1").await;
    both_replaced(&world).await;
    assert_eq!(world.error("undo web").await.code, Code::Refused);
}

/// Two operators run `undo` at the same time. Only one of them succeeds.
#[tokio::test(start_paused = true)]
async fn a_second_undo_is_refused_while_the_first_is_in_progress() {
    let world = three_revisions().await;
    let (one, other) = tokio::join!(world.run("undo web"), world.run("undo web"));
    let mut failed = [one.1, other.1].into_iter().filter_map(Result::err);
    let error = failed.next().unwrap();
    assert_eq!((error.code, failed.next()), (Code::Refused, None));
    assert!(
        error
            .text
            .contains("already rolled back by yurt-ds-ctl at "),
        "{error}"
    );
    assert_eq!(image(&world).await, "web:2");
    tokio::time::sleep(A_MOMENT).await;
    let error = world.error("undo web").await;
    assert_eq!(error.code, Code::Refused);
    assert!(
        error.text.contains("that rollout is in progress"),
        "{error}"
    );
}

/// Checks that a pause or resume is not mistaken for a rollback. After an undo, the field manager of `ctl` owns a part of the
/// template. A later pause renews the time of this field manager, although it does not change the template.
#[tokio::test(start_paused = true)]
async fn a_pause_is_not_mistaken_for_a_rollback() {
    let world = CtlWorld::with_nodes(2).await;
    let template = |image: &str, env: &str| {
        let container =
            json!({ "name": "c", "image": image, "env": [{ "name": "A", "value": env }] });
        json!({ "spec": { "template": { "spec": { "containers": [container] } } } })
    };
    for (image, env) in [("web:2", "1"), ("web:3", "2")] {
        world.patch(template(image, env)).await;
    }
    world.text("undo web").await;
    for image in ["web:4", "web:5"] {
        world.set_image(image).await;
    }
    both_replaced(&world).await;
    for verb in ["pause", "resume"] {
        world.text(&format!("{verb} web")).await;
        let dry = world.json("undo web --dry-run").await;
        assert_eq!(dry["images"][0]["to"], "web:4", "{dry}");
    }
}

/// Checks that a stall of the previous revision does not allow a second undo while the first one is in progress.
#[tokio::test(start_paused = true)]
async fn a_stall_of_another_revision_does_not_allow_a_second_undo() {
    let world = three_revisions().await;
    let left = world.json("undo web --dry-run").await["from"]["hash"].clone();
    let tell = async |hash: &Value| {
        let state = RolloutState {
            reported: Reported {
                revision: Some(hash.as_str().unwrap().into()),
                reason: "PodsDoNotStart".into(),
                stalled_since: Some(world.context.clock.now()),
                ..Reported::default()
            },
            ..RolloutState::default()
        };
        remember(&world, &state).await;
    };
    tell(&left).await;
    world.text("undo web").await;
    tokio::time::sleep(A_MOMENT).await;
    let error = world.error("undo web").await;
    assert!(
        error.text.contains("that rollout is in progress"),
        "{error}"
    );
    // The rollout of the restored revision stalls too, so a second undo is allowed.
    let current = world.json("undo web --dry-run --to-revision 1").await["from"]["hash"].clone();
    tell(&current).await;
    world.text("undo web").await;
    assert_eq!(image(&world).await, "web:1");
}

#[tokio::test(start_paused = true)]
async fn undo_removes_approvals_of_other_revisions() {
    let world = three_revisions().await;
    let sets = set(&world).await;
    let hash = world.json("undo web --dry-run").await["to"]["hash"].clone();
    let hash = hash.as_str().unwrap();
    assert_eq!(
        sets.pointer("/metadata/annotations/apps.openyurt.io~1approved-waves"),
        None
    );
    let annotate = |value: String| json!({ "metadata": { "annotations": { "apps.openyurt.io/approved-waves": value } } });
    world
        .patch(annotate(format!("field@bad, field@{hash}")))
        .await;
    let answer = world.json("undo web").await;
    assert_eq!(answer["approvalsEnded"], json!(["field@bad"]), "{answer}");
    let left =
        set(&world).await["metadata"]["annotations"]["apps.openyurt.io/approved-waves"].clone();
    assert_eq!(left, format!("field@{hash}"));
}

#[tokio::test(start_paused = true)]
async fn settings_that_delay_a_rollback_are_named_with_the_command_to_remove_them() {
    let world = CtlWorld::with_nodes(2).await;
    world.set_image("web:2").await;
    both_replaced(&world).await;
    let held = async |setting: &str, value: &str| {
        let key = format!("apps.openyurt.io/{setting}");
        let annotate =
            |value: Value| json!({ "metadata": { "annotations": { key.clone(): value } } });
        world.patch(annotate(json!(value))).await;
        let answer = world.json("undo web --dry-run").await;
        world.patch(annotate(Value::Null)).await;
        let held = answer["heldBack"].as_array().unwrap().clone();
        let told = |held: Value| {
            (
                held["verdict"].clone(),
                held["nodes"].clone(),
                held["remove"].clone(),
            )
        };
        held.into_iter().map(told).collect::<Vec<_>>()
    };
    let remove = |setting: &str| {
        json!(format!(
            "kubectl -n default annotate daemonset web apps.openyurt.io/{setting}-"
        ))
    };
    // The clock is on a Thursday, so the window on Monday is closed.
    let window = held("maintenance-window", "Mon 03:00-04:00 UTC").await;
    let both = json!(["n1", "n2"]);
    assert_eq!(
        window,
        [(
            json!("OutOfWindow"),
            both.clone(),
            json!("yurt-ds ctl start-now default/web")
        )]
    );
    let selector = held("selector", "kubernetes.io/hostname=n1").await;
    assert_eq!(
        selector,
        [(json!("NotSelected"), json!(["n2"]), remove("selector"))]
    );
    assert_eq!(
        held("paused", "true").await,
        [(json!("Paused"), both, Value::Null)]
    );
    // A partition keeps no node here: all nodes have to leave the revision that is rolled back.
    assert_eq!(held("partition", "1").await, []);
    let waves = r#"[{"name":"first","selector":"kubernetes.io/hostname=n1"},{"name":"field","selector":"kubernetes.io/hostname=n2","approve":"manual"}]"#;
    let shut = (json!("WaveNotOpen"), json!(["n2"]), remove("waves"));
    assert_eq!(held("waves", waves).await, [shut]);
    let annotations = json!({ "apps.openyurt.io/waves": waves });
    world
        .patch(json!({ "metadata": { "annotations": annotations } }))
        .await;
    let output = world.text("undo web").await;
    let command = remove("waves");
    for words in [command.as_str().unwrap(), "wave field"] {
        assert!(output.contains(words), "{words}: {output}");
    }
}

#[tokio::test(start_paused = true)]
async fn undo_removes_start_now_of_the_rolled_back_revision() {
    let world = CtlWorld::with_nodes(2).await;
    // The clock is on a Thursday, so the window on Monday is closed.
    let window = json!({ "apps.openyurt.io/maintenance-window": "Mon 03:00-04:00 UTC" });
    world
        .patch(json!({ "metadata": { "annotations": window } }))
        .await;
    world.set_image("web:2").await;
    let dry = world.json("undo web --dry-run").await;
    assert_eq!(dry["startNowEnded"], Value::Null);
    world.text("start-now web").await;
    both_replaced(&world).await;
    let annotation = "/metadata/annotations/apps.openyurt.io~1start-now";
    let hash = set(&world).await.pointer(annotation).cloned().unwrap();
    let dry = world.text("undo web --dry-run").await;
    for words in [
        "would be removed: windows and min-interval apply again.",
        "Held back: node n1 (and 1 more) is outdated, and its maintenance window is closed",
        "To roll back these nodes now, run this after the undo: yurt-ds ctl start-now default/web\n",
    ] {
        assert!(dry.contains(words), "{words}: {dry}");
    }
    assert_eq!(
        world.json("undo web --dry-run").await["startNowEnded"],
        hash
    );
    let output = world.text("undo web").await;
    for words in [
        "apps.openyurt.io/start-now for revision",
        "is removed: windows and min-interval apply again.",
        "To roll back these nodes now: yurt-ds ctl start-now default/web\n",
    ] {
        assert!(output.contains(words), "{words}: {output}");
    }
    assert_eq!(set(&world).await.pointer(annotation), None);
}

#[tokio::test(start_paused = true)]
async fn undo_without_an_earlier_revision_is_refused() {
    let world = CtlWorld::with_nodes(1).await;
    let error = world.error("undo web").await;
    assert_eq!(error.code, Code::Refused);
    assert!(
        error
            .text
            .contains("the only revision that is kept is the current one"),
        "{error}"
    );
    // An error is not rendered as JSON: standard output stays empty in every format.
    let in_json = world.error("undo web -o json").await;
    assert_eq!(in_json, error);
    let error = world.error("undo web --to-revision 7").await;
    assert_eq!(error.code, Code::NotFound);
    assert!(
        error
            .text
            .contains("has no revision 7. Kept revisions:\n  1 ("),
        "{error}"
    );
    let output = world.text("undo web --to-revision 1").await;
    assert!(
        output.contains("has the template of revision 1 ("),
        "{output}"
    );
    assert!(output.contains("; nothing was changed."), "{output}");
    assert_eq!(world.error("undo gone").await.code, Code::NotFound);
    assert_eq!(world.writes(), 0);
}

#[tokio::test(start_paused = true)]
async fn undo_with_an_unobserved_template_needs_an_explicit_revision() {
    let world = CtlWorld::with_nodes(1).await;
    let deaf = world.cluster.faults().add(|request| {
        if request.user_agent == "kube-controller-manager" && request.verb == "create" {
            Fault::Hang
        } else {
            Fault::Pass
        }
    });
    world.set_image("web:2").await;
    let error = world.error("undo web").await;
    assert_eq!(error.code, Code::Refused);
    assert!(
        error.text.contains("has not processed its latest change"),
        "{error}"
    );
    world.text("undo web --to-revision 1").await;
    assert_eq!(image(&world).await, "web:1");
    drop(deaf);
}

/// Checks that status updates don't make the write of `undo` fail. A large rollout has several of them per second.
#[tokio::test(start_paused = true)]
async fn concurrent_status_writes_do_not_fail_undo() {
    let world = CtlWorld::with_nodes(2).await;
    world.set_image("web:2").await;
    let left = AtomicUsize::new(6);
    let _conflict = world.cluster.faults().add(move |request| {
        let is_ours = request.user_agent == "ctl" && request.verb == "patch";
        let take = || left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        if is_ours && take().is_ok() {
            Fault::Status(409, None)
        } else {
            Fault::Pass
        }
    });
    world.text("undo web").await;
    assert_eq!(image(&world).await, "web:1");
}

/// Creates four nodes and a controller that stops a revision after the first failed node. Rolls out web:2, which crashes.
async fn web_2_stopped() -> (CtlWorld, Box<dyn std::any::Any>) {
    let crashing = Behaviour {
        crash_after: Some(Duration::from_secs(1)),
        ..Behaviour::default()
    };
    let world = CtlWorld::with_nodes(4).await;
    let clock = world.context.clock.clone();
    let client = world.cluster.client(&Role::Controller.user_agent());
    let running = start_controller(client, clock, SetKind::Native);
    let annotations = json!({ "apps.openyurt.io/failure-threshold": "0", "apps.openyurt.io/max-unavailable": "1" });
    world
        .patch(json!({ "metadata": { "annotations": annotations } }))
        .await;
    world.kubelets.behaviour("web:2", crashing).await.unwrap();
    world.set_image("web:2").await;
    tokio::time::sleep(10 * A_MOMENT).await;
    assert_eq!(world.code("status web").await, Code::Stalled);
    (world, Box::new(running))
}

#[tokio::test(start_paused = true)]
async fn undo_skips_a_stopped_revision_unless_it_is_named() {
    let (world, _running) = web_2_stopped().await;
    world.set_image("web:3").await;
    tokio::time::sleep(10 * A_MOMENT).await;
    assert_eq!(world.code("status web").await, Code::Complete);
    let dry = world.json("undo web --dry-run").await;
    let images = json!([{ "container": "c", "from": "web:3", "to": "web:1" }]);
    assert_eq!(dry["images"], images, "{dry}");
    assert_eq!(dry["passedOver"][0]["number"], 2, "{dry}");
    let named = world.text("undo web --dry-run --to-revision 2").await;
    assert!(named.contains("c: web:3 -> web:2"), "{named}");
    assert!(
        named.contains("Note: the guard stopped revision 2 when it"),
        "{named}"
    );
    let document = world.json("undo web --dry-run --to-revision 2").await;
    let note = "the guard stopped revision 2 when it was rolled out before.";
    assert_eq!(document["notes"], json!([note]), "{document}");
    assert_eq!(dry["notes"], json!([]), "{dry}");
    let text = world.text("undo web").await;
    assert!(text.contains("Revision 2 ("), "{text}");
    assert!(
        text.contains("is skipped, because the guard stopped it. To roll back to it anyway: "),
        "{text}"
    );
    assert_eq!(image(&world).await, "web:1");
}

#[tokio::test(start_paused = true)]
async fn undo_removes_resume_and_the_guard_applies_again() {
    let (world, _running) = web_2_stopped().await;
    world.text("resume web").await;
    tokio::time::sleep(A_MOMENT).await;
    let annotation = "/metadata/annotations/apps.openyurt.io~1resume";
    let hash = set(&world).await.pointer(annotation).cloned().unwrap();
    let report = world.text("status web").await;
    assert!(
        report.contains("Note: apps.openyurt.io/resume names this revision"),
        "{report}"
    );
    let dry = world.json("undo web --dry-run").await;
    assert_eq!(dry["resumeEnded"], hash, "{dry}");
    let text = world.text("undo web").await;
    assert!(
        text.contains("is removed: the guard applies again."),
        "{text}"
    );
    assert_eq!(set(&world).await.pointer(annotation), None);
    tokio::time::sleep(30 * A_MOMENT).await;
    assert_eq!(world.code("status web").await, Code::Complete);
    world.set_image("web:2").await;
    tokio::time::sleep(20 * A_MOMENT).await;
    assert_eq!(
        world.json("status web").await["guarded"],
        "FailedByRevision"
    );
}

#[tokio::test(start_paused = true)]
async fn a_stopped_revision_is_undone_as_its_condition_advises_and_not_restored() {
    let (world, _running) = web_2_stopped().await;
    let undo = "yurt-ds ctl undo default/web";
    let resume = "yurt-ds ctl resume default/web";
    let set = set(&world).await;
    let conditions = set["status"]["conditions"].as_array().unwrap();
    let stalled = conditions
        .iter()
        .find(|one| one["type"] == "Stalled")
        .unwrap();
    let told = stalled["message"].as_str().unwrap().to_owned();
    let status = world.text("status web").await;
    let why = world.text("why web n4").await;
    for text in [&told, &status, &why] {
        let places = [undo, resume].map(|words| text.find(words));
        assert!(places.iter().all(Option::is_some), "{text}");
        assert!(places.is_sorted(), "{text}");
    }
    world.text("undo web").await;
    tokio::time::sleep(10 * A_MOMENT).await;
    assert_eq!(world.code("status web").await, Code::Complete);
    // The restored image web:1 crashes now too. `status` must not suggest another undo, which would restore web:2.
    let crashing = Behaviour {
        crash_after: Some(Duration::from_secs(1)),
        ..Behaviour::default()
    };
    world.kubelets.behaviour("web:1", crashing).await.unwrap();
    world.replace("n1").await;
    tokio::time::sleep(10 * A_MOMENT).await;
    let why = world.json("why web n1").await;
    let next = why["next"].as_str().unwrap();
    assert!(!next.contains("undo"), "{next}");
}

/// Checks that the line with the next step ends with its command, because users copy the line to its end.
#[tokio::test(start_paused = true)]
async fn why_ends_with_its_command_while_the_rollout_is_paused() {
    let (world, _running) = web_2_stopped().await;
    world.text("pause web").await;
    let status = world.json("status web").await;
    let nodes = status["nodes"].as_array().unwrap();
    let failed = nodes
        .iter()
        .find(|node| node["verdict"] == "FailedByRevision");
    let (node, pod) = failed
        .map(|node| {
            (
                node["node"].as_str().unwrap(),
                node["pods"][0]["name"].as_str().unwrap(),
            )
        })
        .unwrap();
    let why = world.json(&format!("why web {node}")).await;
    let next = why["next"].as_str().unwrap();
    let resume = next.find("yurt-ds ctl resume default/web. ");
    assert!(resume < next.find("yurt-ds ctl undo"), "{next}");
    assert!(next.ends_with(&format!("logs {pod} --previous")), "{next}");
}
