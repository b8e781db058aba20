//! Advice of `ctl why`. Each story runs the command that the advice contains. The rollout must then continue.
//!
//! There is one story for each cause for which `ctl why` names a command. Two causes are tested elsewhere: `undo` after the guard
//! stopped a rollout (w02), and approvals (waves).

use anyhow::{Context as _, bail, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use yurt_ds::sim::kubelet::Behaviour;

use super::guard::{crashing, guarded, is_stopped};
use super::surge::HUNG;
use crate::support::checks::*;
use crate::support::objects::*;
use crate::support::picture::uid;
use crate::support::player::{Stage, from};
use crate::support::story::{Scenario, Step, Story, Writes, secs};
use crate::support::suite::scenarios;
use crate::support::typed::{completes, ctl};

/// Texts that can follow a command in a message.
const ENDS: [&str; 6] = ["; ", ". ", ", ", " (", ")", "\n"];

/// Returns the commands that a message contains, in order.
fn commands(text: &str) -> Vec<&str> {
    let begins = ["yurt-ds ctl ", "kubectl "];
    let starts = begins.iter().flat_map(|begin| text.match_indices(begin));
    let mut starts: Vec<usize> = starts.map(|(start, _)| start).collect();
    starts.sort_unstable();
    let cut = |start: usize| {
        let rest = &text[start..];
        let end = ENDS.iter().filter_map(|end| rest.find(end)).min();
        rest[..end.unwrap_or(rest.len())].trim_end_matches('.')
    };
    starts.into_iter().map(cut).collect()
}

/// Returns the advice of `ctl why` about this node of the story.
async fn advice(stage: &Stage, node: usize) -> anyhow::Result<String> {
    let line = format!("why {DAEMON} {} -o json", stage.node(node));
    let (text, _) = ctl(stage, &line).await?;
    let why: Value = serde_json::from_str(&text).context(text)?;
    Ok(why["next"].as_str().unwrap_or_default().to_owned())
}

/// Runs the first command in the advice of `ctl why` that contains all these words.
async fn obey(stage: Stage, node: usize, words: &'static str) -> anyhow::Result<()> {
    let advice = advice(&stage, node).await?;
    let has = |command: &&str| {
        let mut wanted = words.split(' ');
        wanted.all(|word| command.split(' ').any(|own| own == word))
    };
    let command = commands(&advice).into_iter().find(has);
    let command = command.with_context(|| format!("no command with {words:?}: {advice}"))?;
    if let Some(line) = command.strip_prefix("yurt-ds ctl ") {
        let is_undo = line.starts_with("undo ");
        let json = if is_undo { " -o json" } else { "" };
        let text = completes(&stage, &format!("{line}{json}")).await?;
        if is_undo {
            let answer: Value = serde_json::from_str(&text)?;
            let to = answer["to"]["hash"].as_str().context(text)?;
            ensure!(advice.contains(to), "{command} goes to {to}: {advice}");
        }
        return Ok(());
    }
    let words: Vec<&str> = command.split(' ').collect();
    match words.as_slice() {
        ["kubectl", "taint", "node", name, taint] => {
            let nodes: Api<Node> = Api::all(stage.world.client.clone());
            let found = nodes.get(name).await?;
            let mut taints = found.spec.and_then(|spec| spec.taints).unwrap_or_default();
            taints.retain(|held| {
                let value = held.value.as_deref().map(|value| format!("={value}"));
                let value = value.unwrap_or_default();
                format!("{}{value}:{}-", held.key, held.effect) != *taint
            });
            stage
                .patch_node(node, &json!({ "spec": { "taints": taints } }))
                .await
        }
        ["kubectl", "-n", _, "delete", "pod", pod, options @ ..] => {
            let parameters = match options {
                [] => DeleteParams::default(),
                ["--grace-period=0", "--force"] => DeleteParams::default().grace_period(0),
                _ => bail!("unknown options: {command}"),
            };
            stage.excuse(&stage.node(node)).await;
            let pods: Api<Pod> = stage.api();
            Ok(pods.delete(pod, &parameters).await.map(drop)?)
        }
        _ => bail!("the story does not know how to type {command:?}"),
    }
}

/// Step of a story that follows the advice of `ctl why`.
trait Obeys {
    /// Runs the command in the advice for this node that contains these words.
    fn obeys(self, node: usize, words: &'static str) -> Self;
}

impl Obeys for Story {
    fn obeys(self, node: usize, words: &'static str) -> Self {
        self.does(words, move |stage| obey(stage, node, words))
    }
}

fn stalled() -> Check {
    condition("Stalled", "True", "")
}

/// Checks that the rollout is complete and not stalled.
fn over() -> Check {
    converged()
        .and(condition("RolloutComplete", "True", ""))
        .and(not_stalled())
}

fn not_stalled() -> Check {
    condition("Stalled", "False", "")
}

/// Returns requests for more than half of a fake node's 32 CPUs. So a node has room for only one such pod.
fn most_of_a_node() -> Value {
    json!({ "requests": { "cpu": "20" } })
}

/// Creates a pod of another workload that uses most of node 1.
async fn take_the_room(stage: Stage) -> anyhow::Result<()> {
    let pod = json!({
        "metadata": { "name": "neighbour", "labels": { "app": "neighbour" } },
        "spec": {
            "nodeName": stage.node(1),
            "containers": [{ "name": "web", "image": OLD, "resources": most_of_a_node() }],
        },
    });
    let pods: Api<Pod> = stage.api();
    let made = pods.create(&PostParams::default(), &from(pod)?).await;
    let made = made.context("make the neighbour")?;
    stage.excuse(&uid(&made.metadata)).await;
    Ok(())
}

/// Checks that the template has the image that the story began with.
async fn runs_the_first_image(stage: Stage) -> anyhow::Result<()> {
    let daemon = stage.daemons().get(DAEMON).await?;
    let image = &daemon.data["spec"]["template"]["spec"]["containers"][0]["image"];
    ensure!(image == OLD, "{image}");
    Ok(())
}

async fn free_the_room(stage: Stage) -> anyhow::Result<()> {
    let pods: Api<Pod> = stage.api();
    let deleted = pods.delete("neighbour", &DeleteParams::default()).await;
    deleted.map(drop).context("delete the neighbour")
}

scenarios! {
    fn ad01_given_an_image_that_no_registry_has_then_undo_ends_it(_pace) {
        let native = Story::on(3).behave(NEW, missing_image()).image(NEW).until(stalled()).obeys(1, "undo").until(over());
        let surge = Story::on(3)
            .with(Daemon::new().annotate("max-surge", "1").max_unavailable("0"))
            .writing(Writes::Surges)
            .allowed(0)
            .behave(NEW, missing_image())
            .image(NEW)
            .until(stalled())
            .obeys(1, "undo")
            .until(over());
        let advanced = Story::on(3)
            .with(Daemon::advanced())
            .behave(NEW, missing_image())
            .image(NEW)
            .until(stalled())
            .obeys(3, "undo")
            .until(over());
        vec![native, surge, advanced]
    }

    fn ad02_given_pods_that_crash_then_resume_goes_on_when_the_cause_is_mended(pace) {
        Story::on(4)
            .with(guarded(2, 1))
            .allowed(2)
            .behave(NEW, crashing())
            .image(NEW)
            .until(is_stopped())
            .behave(NEW, Behaviour::default())
            .obeys(4, "resume")
            .until_within(over(), pace.pick(900, 400))
    }

    fn ad03_given_a_pause_over_a_stall_then_undo_and_resume_end_it(_pace) {
        Story::on(3)
            .behave(NEW, missing_image())
            .image(NEW)
            .until(stalled())
            .annotate("paused", "true")
            .until(condition("Progressing", "False", "paused"))
            .obeys(1, "undo")
            .wait(2)
            .obeys(1, "resume")
            .until(over())
    }

    fn ad04_given_a_taint_that_keeps_pods_away_then_taking_it_away_ends_it(_pace) {
        let site = json!({ "spec": { "taints": [{ "key": "site", "value": "closed", "effect": "NoSchedule" }] } });
        Story::on(2)
            .patch_node(1, site)
            .image(NEW)
            .until(replaced([2]).and(condition("RolloutComplete", "True", "taint")))
            .obeys(1, "taint")
            .until(replaced(1..=2))
            .until(over())
    }

    fn ad05_given_a_pod_whose_kubelet_hangs_then_deleting_it_by_force_ends_it(_pace) {
        Story::on(3)
            .writing(Writes::Attempts)
            .step(Step::TerminateIn(1, secs(25)))
            .image(NEW)
            .until(terminating(1))
            .step(Step::Offline(vec![1], HUNG))
            .until(stalled())
            .obeys(1, "delete --force")
            .online([1])
            .until(over())
    }

    fn ad06_given_pods_that_never_become_ready_then_undo_ends_it(_pace) {
        let story = Story::on(3)
            .behave(NEW, never_ready())
            .image(NEW).until_within(stalled(), 1200).obeys(1, "undo").until(over());
        Scenario::from(story).only_embedded("it takes ten minutes")
    }

    fn ad07_given_pods_that_wait_for_people_then_the_commands_move_them(_pace) {
        let owner = Story::on(2)
            .with(Daemon::new().strategy("OTA"))
            .writing(Writes::Conditions)
            .only_wished()
            .image(NEW)
            .until(need_upgrade(1..=2, true))
            .obeys(1, "delete pod")
            .until(runs_current(1));
        let deletion = Story::on(2)
            .with(Daemon::advanced().field("updateStrategy", json!({ "type": "OnDelete" })))
            .image(NEW)
            .until(condition("Progressing", "False", "deletion of the outdated pods"))
            .obeys(1, "delete pod")
            .until(runs_current(1));
        let paused = Story::on(2)
            .with(Daemon::new().annotate("paused", "true"))
            .image(NEW)
            .until(condition("Progressing", "False", "paused"))
            .obeys(1, "resume")
            .until(over());
        let wave = Story::on(2)
            .with(Daemon::new().annotate("waves", "[{name: all, selector: scenario, approve: manual}]"))
            .image(NEW)
            .until(condition("RolloutComplete", "False", "approval of wave"))
            .obeys(1, "approve")
            .until(over());
        vec![owner, deletion, paused, wave]
    }

    fn ad08_given_images_that_cannot_be_pulled_ahead_then_undo_ends_it(_pace) {
        let story = Story::on(3)
            .with(Daemon::new().annotate("image-predownload-parallelism", "3").annotate("predownload", "required"))
            .writing(Writes::Conditions)
            .behave(NEW, missing_image())
            .image(NEW)
            .until_within(stalled(), 1200)
            .expect(untouched(1..=3))
            .obeys(1, "undo")
            .until(over());
        Scenario::from(story).only_embedded("images are pulled by Jobs for minutes")
    }

    fn ad09_given_a_workload_that_took_the_room_then_deleting_it_ends_it(_pace) {
        let asks = json!({ "name": "nginx", "image": NEW, "resources": most_of_a_node() });
        let story = Story::on(3)
            .does("take the room", take_the_room)
            // Wait until the scheduler knows that node 1 has no room for another pod.
            .wait(5)
            .patch(json!({ "spec": { "template": { "spec": { "containers": [asks] } } } }))
            .until_within(stalled(), 1200)
            .does("free the room", free_the_room)
            .until(over());
        Scenario::from(story).only_real("nothing is short on the embedded cluster, whose nodes have room for all")
    }

    fn ad10_given_a_rollback_that_stalls_too_then_undo_goes_further_back(_pace) {
        Story::on(3)
            .image(NEWER)
            .until(over())
            .behave(NEW, missing_image())
            .image(NEW)
            .until(stalled())
            .behave(NEWER, missing_image())
            .obeys(1, "undo")
            .until(not_stalled())
            .until(stalled())
            .obeys(1, "undo")
            .until(over())
            .does("expect the first image", runs_the_first_image)
    }

    fn ad11_given_pods_that_all_nodes_evict_then_the_guard_says_so_and_undo_ends_it(pace) {
        let words = || is_stopped().and(condition("Stalled", "True", "Evicted: The node was low"));
        Story::on(6)
            .with(guarded(3, 1))
            .allowed(3)
            .behave(NEW, evicted())
            .image(NEW)
            .until(words())
            .throughout(words(), pace.pick(600, 20))
            .controller(false)
            .controller(true)
            .throughout(words(), pace.pick(600, 20))
            .obeys(1, "undo")
            .until(over())
    }
}
