//! Tests of the output of `ctl` in situations that need an operator. Cause and next step have to fit on one screen.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::{CtlWorld, assert_fits, flat, renewed};
use crate::core::SetKind;
use crate::ctl::Code;
use crate::shutdown;
use crate::sim::cluster::faults::Fault;
use crate::sim::kubelet::{Behaviour, Outage, Rule};
use crate::sim::world::start_controller;

const NODES: usize = 46;

/// A fleet with a running controller.
struct Situation {
    world: CtlWorld,
    _controller: (shutdown::Trigger, JoinHandle<()>),
}

impl Situation {
    async fn with(annotations: Value) -> Self {
        let world = CtlWorld::with_nodes(NODES).await;
        let client = world.cluster.client("yurt-ds");
        let clock = world.context.clock.clone();
        let controller = start_controller(client, clock, SetKind::Native);
        world
            .patch(json!({ "metadata": { "annotations": annotations } }))
            .await;
        Self {
            world,
            _controller: controller,
        }
    }

    async fn with_image(self, behaviour: Behaviour) -> Self {
        let rule = Rule {
            image: "web:2".into(),
            node: "*".into(),
            behaviour,
        };
        self.world.kubelets.rule(rule).await.unwrap();
        self.rolled_out().await
    }

    async fn rolled_out(self) -> Self {
        self.world.set_image("web:2").await;
        self.after(900).await
    }

    async fn after(self, seconds: u64) -> Self {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        self
    }

    /// Asserts that `ctl status` fits on one screen and contains all of `words`.
    async fn says(&self, code: Code, words: &[&str]) {
        let (text, ended) = self.world.run("status web").await;
        assert_eq!(ended, Ok(code), "{text}");
        assert_fits(&text);
        assert!(text.lines().count() <= 24, "{text}");
        let output = flat(&text);
        for words in words {
            assert!(output.contains(words), "{words}: {text}");
        }
        let is_stopped = matches!(code, Code::Stalled | Code::Silent);
        for moves in ["waiting for a free slot", "being updated"] {
            assert!(!is_stopped || !output.contains(moves), "{text}");
        }
        println!("{text}");
        self.explains().await;
    }

    /// Asserts that `ctl why` takes at most 12 lines of a screen for each node.
    async fn explains(&self) {
        for node in ["n1", "n10", "n46"] {
            let why = self.world.text(&format!("why web {node}")).await;
            let lines = why
                .lines()
                .map(|line| line.chars().count().div_ceil(80).max(1));
            assert!(lines.sum::<usize>() <= 12, "{why}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn status_explains_an_image_that_cannot_be_pulled() {
    let missing = Behaviour {
        image_error: true,
        ..Behaviour::default()
    };
    let budget = json!({ "apps.openyurt.io/max-unavailable": "30%" });
    let situation = Situation::with(budget).await.with_image(missing).await;
    let words = [
        "the new image cannot be pulled on 14 nodes",
        "not found",
        "Next: roll back: yurt-ds ctl undo default/web",
    ];
    situation.says(Code::Stalled, &words).await;
}

#[tokio::test(start_paused = true)]
async fn status_explains_a_crash_loop() {
    let crashing = Behaviour {
        crash_after: Some(Duration::from_secs(5)),
        ..Behaviour::default()
    };
    let budget = json!({ "apps.openyurt.io/max-unavailable": "30%", "apps.openyurt.io/failure-threshold": "3" });
    let situation = Situation::with(budget).await.with_image(crashing).await;
    let words = [
        "rollout stopped: the new version failed on ",
        "(limit 3)",
        "Next: roll back: yurt-ds ctl undo default/web",
        "o continue anyway: yurt-ds ctl resume default/web",
        "logs: kubectl -n default logs web-",
    ];
    situation.says(Code::Stalled, &words).await;
}

#[tokio::test(start_paused = true)]
async fn status_explains_offline_nodes() {
    let situation = Situation::with(json!({})).await;
    for node in ["n10", "n11", "n12"] {
        let offline = situation.world.kubelets.set_offline(node, Outage::MARKED);
        offline.await.unwrap();
    }
    let situation = situation.rolled_out().await;
    let words = [
        "43 of 46 nodes updated. 3 nodes are offline and will be updated when they reconnect. No action needed",
        "3 Offline(NotReady) n10, n11, n12",
    ];
    situation.says(Code::Complete, &words).await;
}

#[tokio::test(start_paused = true)]
async fn status_explains_a_disruption_budget_that_allows_no_eviction() {
    let situation = Situation::with(json!({ "apps.openyurt.io/disruption": "evict" })).await;
    let budgets: Api<PodDisruptionBudget> =
        Api::namespaced(situation.world.client.clone(), "default");
    let budget = json!({
        "metadata": { "name": "web-pdb" },
        "spec": { "maxUnavailable": 1, "selector": { "matchLabels": { "app": "web" } } },
    });
    let budget = serde_json::from_value(budget).unwrap();
    budgets
        .create(&PostParams::default(), &budget)
        .await
        .unwrap();
    situation.world.set_image("web:2").await;
    // A misconfigured budget is reported immediately, because only an operator can correct it.
    let situation = situation.after(30).await;
    let words = [
        "PodDisruptionBudget web-pdb blocks all evictions: maxUnavailable and percentages do not work for DaemonSets. \
         Waiting: 46 nodes",
        "Next: set minAvailable to a number",
        "kubectl -n default edit pdb web-pdb",
    ];
    situation.says(Code::Stalled, &words).await;
}

#[tokio::test(start_paused = true)]
async fn status_explains_a_partition() {
    let partition = json!({ "apps.openyurt.io/partition": "14" });
    let situation = Situation::with(partition).await.rolled_out().await;
    let words = [
        "32 of 46 nodes updated. 14 nodes stay on the old version: partition 14",
        "Next: to continue: kubectl -n default annotate ds web apps.openyurt.io/partition-",
    ];
    situation.says(Code::Complete, &words).await;
}

#[tokio::test(start_paused = true)]
async fn status_warns_of_a_partition_that_covers_all_nodes() {
    let world = CtlWorld::with_nodes(2).await;
    for (value, is_noted) in [
        ("1", false),
        ("2", true),
        ("200", true),
        ("99%", false),
        ("100%", true),
    ] {
        let annotations = json!({ "apps.openyurt.io/partition": value });
        world
            .patch(json!({ "metadata": { "annotations": annotations } }))
            .await;
        let text = flat(&world.text("status web").await);
        let note = format!(
            "Note: apps.openyurt.io/partition {value} covers all 2 nodes, so no node is updated"
        );
        assert_eq!(text.contains(&note), is_noted, "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn status_explains_a_denying_policy() {
    let situation = Situation::with(json!({})).await;
    let _denied = situation.world.cluster.faults().add(|request| {
        let deletes = request.verb == "delete" && request.resource == "pods";
        if deletes && request.user_agent == "yurt-ds" {
            Fault::Denied("change freeze until Monday, CHG-4711".into())
        } else {
            Fault::Pass
        }
    });
    let situation = situation.rolled_out().await;
    let words = [
        "change freeze until Monday, CHG-4711",
        "retried automatically",
        "ask the owner",
    ];
    situation.says(Code::Stalled, &words).await;
}

#[tokio::test(start_paused = true)]
async fn status_explains_a_maintenance_window() {
    let window = json!({ "apps.openyurt.io/maintenance-window": "Sat 02:00-04:00 Europe/Berlin" });
    let situation = Situation::with(window).await.rolled_out().await;
    let words = [
        "Maintenance window closed; opens Sat 2026-01-03 02:00 Europe/Berlin (in 2d)",
        "Next: to start now: yurt-ds ctl start-now default/web",
    ];
    situation.says(Code::Progressing, &words).await;
}

/// Found by a user: the headline named the maintenance window of one node although most nodes waited for another reason.
#[tokio::test(start_paused = true)]
async fn status_names_the_reason_of_most_nodes_before_a_few_maintenance_windows() {
    let closed = "Sat 02:00-04:00 UTC";
    let opens = "which opens Sat 2026-01-03 02:00 UTC";
    let of_node =
        json!({ "metadata": { "annotations": { "apps.openyurt.io/maintenance-window": closed } } });
    let pulls = json!({
        "apps.openyurt.io/predownload": "required",
        "apps.openyurt.io/image-predownload-parallelism": "1",
    });
    let domains = json!({ "apps.openyurt.io/topology-key": "kubernetes.io/hostname" });
    let slots = json!({ "apps.openyurt.io/max-unavailable": "1" });
    for (settings, words, window) in [
        (
            pulls,
            "Waiting for nodes to pull the new images",
            "Other nodes wait for their maintenance window, ",
        ),
        (
            domains,
            "nodes wait for other failure domains. 1 node waits for the maintenance window, ",
            opens,
        ),
        (
            slots,
            "nodes wait for a free slot. 1 node waits for the maintenance window, ",
            opens,
        ),
    ] {
        let situation = Situation::with(settings).await;
        let nodes: Api<Node> = Api::all(situation.world.client.clone());
        let patched = nodes
            .patch(
                "n9",
                &PatchParams::default(),
                &Patch::Merge(of_node.clone()),
            )
            .await;
        patched.unwrap();
        situation.world.set_image("web:2").await;
        let situation = situation.after(3).await;
        situation
            .says(Code::Progressing, &[words, window, opens])
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn status_explains_a_missing_controller() {
    let world = CtlWorld::with_nodes(NODES).await;
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    let namespace = serde_json::from_value(json!({ "metadata": { "name": "yurt-ds" } })).unwrap();
    let created = namespaces.create(&PostParams::default(), &namespace).await;
    created.unwrap();
    renewed(&world, 200).await;
    world.set_image("web:2").await;
    let (text, ended) = world.run("status web").await;
    assert_eq!(ended, Ok(Code::Silent));
    assert_fits(&text);
    assert!(text.lines().count() <= 24, "{text}");
    for words in [
        "NoController",
        "the yurt-ds controller has not renewed its Lease for ",
        "rollouts are stopped",
        "kubectl -n yurt-ds get pods",
    ] {
        assert!(flat(&text).contains(words), "{text}");
    }
    println!("{text}");
}

#[tokio::test(start_paused = true)]
async fn status_explains_a_wave_that_waits_for_approval() {
    let waves = r#"[{"name":"canary","selector":"kubernetes.io/hostname=n1"},{"name":"field","selector":"kubernetes.io/os=linux",
        "approve":"manual"}]"#;
    let waves = json!({ "apps.openyurt.io/waves": waves });
    let situation = Situation::with(waves).await.rolled_out().await;
    let words = [
        "Waiting for the approval of wave field",
        "Next: when all is well: yurt-ds ctl approve default/web field",
        "Waves WAVE NODES DONE IN FLIGHT STATE canary",
    ];
    situation.says(Code::Progressing, &words).await;
}

#[tokio::test(start_paused = true)]
async fn status_explains_a_pause() {
    let situation = Situation::with(json!({ "apps.openyurt.io/paused": "true" })).await;
    let situation = situation.rolled_out().await;
    let words = [
        "paused until an operator resumes it. 46 nodes left",
        "Next: to continue: yurt-ds ctl resume default/web",
    ];
    situation.says(Code::Paused, &words).await;
}
