//! `paused`: yurt-ds replaces no pod and reminds the operator of the pause. A condition names the nodes that get the new revision
//! anyway, for example because they have just joined.

use anyhow::Context as _;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use yurt_ds::sim::kubelet::FakeNodeSpec;

use crate::support::checks::*;
use crate::support::objects::*;
use crate::support::player::Stage;
use crate::support::story::{Scenario, Step, Story};
use crate::support::suite::scenarios;
use crate::support::typed::{completes, is_refused};

/// Returns a story in which a rollout on this many nodes is paused. The story waits until the conditions report the pause.
fn paused(nodes: usize) -> Story {
    Story::on(nodes)
        .annotate("paused", "true")
        .until(condition(
            "Paused",
            "True",
            "paused until an operator resumes it, since ",
        ))
        .image(NEW)
        .until(condition(
            "RolloutComplete",
            "False",
            "paused until an operator resumes it",
        ))
}

/// Checks that the condition `Paused` names exactly these nodes as having received the new revision during the pause.
fn came(nodes: &'static [usize]) -> Check {
    Check::new(
        format!("{nodes:?} got it during the pause"),
        move |picture| {
            let condition = picture.condition("Paused").ok_or("absent")?;
            let message = condition.message.clone().unwrap_or_default();
            let names: Vec<String> = nodes.iter().map(|node| picture.node(*node)).collect();
            let wanted = format!(". Updated during the pause: {}", names.join(", "));
            if message.ends_with(&wanted) {
                Ok(())
            } else {
                Err(message)
            }
        },
    )
}

/// Adds the node with this number to the cluster.
pub(super) fn joins(story: Story, number: usize) -> Story {
    story.does("a node joins", move |stage: Stage| async move {
        let node = FakeNodeSpec::named(stage.node(number)).label("scenario", &stage.name);
        stage.world.kubelets.add_nodes(vec![node]).await
    })
}

/// Stops the controller, moves the start of the pause back by this many hours, and starts the controller again.
fn ages_by(story: Story, hours: i64) -> Story {
    let story = story
        .controller(false)
        .does("the pause ages", move |stage: Stage| async move {
            let daemons = stage.api::<DaemonSet>();
            let status = daemons.get(DAEMON).await?.status.context("a status")?;
            let condition = status
                .conditions
                .iter()
                .flatten()
                .find(|c| c.type_ == "RolloutState");
            let message = condition.and_then(|c| c.message.as_ref());
            let mut state: Value = serde_json::from_str(message.context("a state")?)?;
            let since = &mut state["pause"]["since"];
            let began: Timestamp = since.as_str().context("since when")?.parse()?;
            *since = json!((began - SignedDuration::from_hours(hours)).to_string());
            let aged = json!({ "type": "RolloutState", "message": state.to_string() });
            let aged = json!({ "status": { "conditions": [aged] } });
            let patch = Patch::Strategic(aged);
            let patched = daemons
                .patch_status(DAEMON, &PatchParams::default(), &patch)
                .await;
            patched.map(drop).context("patch the condition")
        });
    story.controller(true)
}

fn not_paused() -> Check {
    condition("Paused", "False", "")
}

/// Runs this `ctl` verb on the DaemonSet. The command must succeed.
async fn typed(stage: Stage, verb: &'static str) -> anyhow::Result<()> {
    completes(&stage, &format!("{verb} {DAEMON}"))
        .await
        .map(drop)
}

/// Runs this `ctl` verb on the DaemonSet. The command must fail with `Refused`.
async fn refused(stage: Stage, verb: &'static str) -> anyhow::Result<()> {
    is_refused(&stage, &format!("{verb} {DAEMON}")).await
}

scenarios! {
    fn s94_given_a_pause_then_we_write_to_no_pod_and_new_nodes_get_the_new_template(pace) {
        let story = joins(paused(4).remember().excuse(2).delete_pod(2), 5);
        story
            .until(came(&[2, 5]).and(runs_current(2)).and(runs_current(5)))
            .throughout(untouched([1, 3, 4]).and(came(&[2, 5])), pace.pick(3600, 5))
            .pod_writes(0)
            .quiet(3600, 5)
            .unannotate("paused")
            .until(converged().and(condition("Paused", "False", "")))
            .expect(replaced([1, 3, 4]).and(at_most_deletions(3)))
            .step(Step::RemoveNode(5))
    }

    fn s94_given_a_time_then_the_pause_ends_by_itself(pace) {
        let seconds = pace.pick(7200, 12);
        Story::on(3)
            .does("pause for a while", move |stage: Stage| async move {
                let until = stage.world.clock.now() + SignedDuration::from_secs(seconds);
                stage.patch_daemon(&annotation_patch("paused", Some(&until.to_string()))).await
            })
            .image(NEW)
            .until(condition("Paused", "True", "paused until 20"))
            .throughout(untouched(1..=3), pace.pick(7000, 4))
            .until(converged().and(condition("Paused", "False", "")))
            .expect(deletions(3))
    }

    /// Covers the use case of kubernetes/kubernetes#86619, the pause of a DaemonSet rollout.
    fn w06_given_a_pause_of_days_then_somebody_is_reminded_once_a_day_and_a_restart_repeats_nothing(pace) {
        let told = |days| move |limit: i64| {
            let words: &'static str = days;
            event("Warning", words).and(at_most_events("Warning", "still paused until an operator resumes it", limit))
        };
        let first = told("(1 day)");
        let second = told("(2 days)");
        let story = ages_by(paused(2).delete_pod(1).until(came(&[1])), 25)
            .until(first(1).and(condition("Paused", "True", ". Updated during").and(condition("RolloutState", "True", "\"reminded\":1"))))
            // A restarted controller reads the number of the last reminder from the condition and doesn't repeat it.
            .controller(false)
            .wait(1)
            .controller(true)
            .throughout(first(1), pace.pick(3600, 5));
        let story = ages_by(story, 24)
            .until(second(2).and(condition("Paused", "True", ". Updated during").and(condition("RolloutState", "True", "\"reminded\":2"))))
            .throughout(second(2).and(untouched([2])), pace.pick(3600, 5))
            .unannotate("paused")
            .until(converged().and(condition("Paused", "False", "")));
        Scenario::from(story).alone()
    }

    /// Covers the use case of kubernetes/kubernetes#86619, the pause of a DaemonSet rollout.
    fn w06_given_days_that_pass_then_each_has_its_reminder_and_nothing_else_is_written(_pace) {
        let day = 24 * 60 * 60;
        let reminded = |times: i64| at_most_events("Warning", "still paused", times);
        let story = paused(2)
            .wait(day - 600)
            .expect(reminded(0))
            .wait(1200)
            .expect(event("Warning", ". 2 nodes outdated. Resume: yurt-ds ctl resume").and(reminded(1)))
            .quiet(u64::from(23_u32) * 3600, 0)
            .wait(3600)
            .expect(event("Warning", "(2 days)").and(reminded(2)))
            .annotate("max-unavailable", "2")
            .wait(day)
            .expect(event("Warning", "(3 days)").and(reminded(3)))
            .pod_writes(0);
        Scenario::from(story).only_embedded("days pass")
    }

    /// Covers the use case of kubernetes/kubernetes#86619, the pause of a DaemonSet rollout, for a DaemonSet without outdated
    /// nodes.
    fn w06_given_nobody_outdated_then_the_pause_is_told_and_remembered_all_the_same(pace) {
        Story::on(2)
            .annotate("paused", "true")
            .until(condition("Paused", "True", ", since ").and(condition("RolloutComplete", "True", ": complete")))
            .quiet(3600, 5)
            // A pause stays in force while another setting is invalid.
            .annotate("max-unavailable", "many")
            .until(condition("InvalidSettings", "True", "").and(condition("Paused", "True", ", since ")))
            .annotate("max-unavailable", "1")
            .until(not_condition("InvalidSettings"))
            .expect(condition("Paused", "True", ", since "))
            .image(NEW)
            .until(condition("RolloutComplete", "False", "paused until an operator resumes it"))
            .throughout(untouched(1..=2), pace.pick(600, 4))
            .pod_writes(0)
            .unannotate("paused")
            .until(converged())
    }

    fn s94_given_an_advanced_daemonset_then_ctl_pauses_and_resumes_it(pace) {
        let paused = || condition("Paused", "True", "paused until");
        let waits = move |story: Story, pause: &'static str| {
            story
                .does(pause, move |stage| typed(stage, pause))
                .until(paused())
                .image(NEW)
                .throughout(untouched(1..=2), pace.pick(60, 5))
                .does("resume", |stage| typed(stage, "resume"))
                .until(converged().and(not_paused()))
        };
        let advanced = || Story::on(2).with(Daemon::advanced());
        let unpaused = || Story::on(2).with(Daemon::advanced().rolling("paused", false));
        let twice = waits(advanced(), "pause")
            .does("pause", |stage| typed(stage, "pause"))
            .until(paused())
            .does("pause for a while", |stage| refused(stage, "pause --for 1h"))
            .does("resume", |stage| typed(stage, "resume"))
            .until(not_paused());
        vec![twice, waits(unpaused(), "pause --for 1h"), waits(unpaused(), "pause")]
    }
}
