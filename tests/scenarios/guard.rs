//! The guard stops a revision when too many nodes fail with it. Nodes that fail for other reasons don't count
//! (kubernetes/kubernetes#117658).

use anyhow::Context as _;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;
use yurt_ds::sim::kubelet::Behaviour;

use crate::support::checks::*;
use crate::support::objects::*;
use crate::support::player::Stage;
use crate::support::story::{Pace, Scenario, Step, Story, secs};
use crate::support::suite::scenarios;
use crate::support::typed::{completes, is_refused};

/// Lets the kubelet of node 2 evict every pod of the new image for some time. During that time the condition Stalled must name the
/// node, and there must be only one Event.
pub(crate) fn evicting(story: Story, pace: Pace) -> Story {
    const SAYS: &str = "-0002. Cause: Evicted: The node was low on resource: ephemeral-storage";
    story
        .behave_on(2, NEW, evicted())
        .image(NEW)
        .until(condition("Stalled", "True", SAYS))
        .throughout(condition("Stalled", "True", SAYS), pace.pick(1800, 70))
        .expect(events_because("RolloutStarted", 1).and(events_because("RolloutStalled", 1)))
        .behave_on(2, NEW, Behaviour::default())
        .until(converged().and(events_because("RolloutStalled", 1)))
}

/// Returns the behavior of a container that ends one second after each start.
pub(crate) fn crashing() -> Behaviour {
    Behaviour {
        crash_after: Some(secs(1)),
        never_ready: true,
        ..Behaviour::default()
    }
}

/// Returns a DaemonSet with this `max-unavailable` and this `failure-threshold`.
pub(crate) fn guarded(max_unavailable: usize, threshold: usize) -> Daemon {
    Daemon::new()
        .max_unavailable(&max_unavailable.to_string())
        .annotate("failure-threshold", &threshold.to_string())
}

/// Returns a story in which the new image crashes on three of six nodes. The guard allows one failed node, so the rollout stops.
pub(crate) fn three_of_six_crash() -> Story {
    Story::on(6)
        .with(guarded(3, 1))
        .allowed(3)
        .behave(NEW, crashing())
        .image(NEW)
        .until(is_stopped())
        .expect(deletions(3).and(untouched(4..=6)))
}

pub(crate) fn is_stopped() -> Check {
    condition("Stalled", "True", "rollout stopped").and(condition("Guard", "True", "failed: "))
}

pub(crate) fn is_free() -> Check {
    not_condition("Stalled").and(not_condition("Guard"))
}

/// Sets the annotation `resume` to the current revision. The guard then ignores failures of this revision.
pub(crate) async fn resume(stage: Stage) -> anyhow::Result<()> {
    let revision = stage.see(|picture| picture.current().cloned()).await;
    let revision = revision.context("a revision")?;
    let patch = annotation_patch("resume", Some(&revision));
    stage.patch_daemon(&patch).await
}

/// Deletes all ControllerRevisions except the newest one, as an operator might do to clean up.
async fn forget_older_revisions(stage: Stage) -> anyhow::Result<()> {
    let revisions = stage.api::<ControllerRevision>();
    let all = revisions.list(&ListParams::default()).await?.items;
    let newest = all.iter().map(|revision| revision.revision).max();
    for older in all.iter().filter(|older| Some(older.revision) != newest) {
        let name = older.metadata.name.as_deref().context("a name")?;
        revisions.delete(name, &DeleteParams::default()).await?;
    }
    Ok(())
}

/// Rolls back with the command that the condition names.
async fn undo(stage: Stage) -> anyhow::Result<()> {
    undo_from(stage, NEW).await
}

async fn undo_from(stage: Stage, image: &str) -> anyhow::Result<()> {
    let text = completes(&stage, &format!("undo {DAEMON}")).await?;
    anyhow::ensure!(text.contains(&format!(": {image} -> {OLD}\n")), "{text}");
    Ok(())
}

/// Checks that `ctl undo` fails, because no revision is left to which it could roll back.
async fn undo_nothing(stage: Stage) -> anyhow::Result<()> {
    is_refused(&stage, &format!("undo {DAEMON}")).await
}

/// Gives the pod of node 1 the hash label of the oldest revision, as another client might.
async fn relabel(stage: Stage) -> anyhow::Result<()> {
    let old = stage.see(|picture| picture.oldest().cloned()).await;
    let pod: Pod = stage.pod_on(1).await?;
    let name = pod.metadata.name.context("a name")?;
    let labels = json!({ "controller-revision-hash": old.context("a revision")? });
    let patch = json!({ "metadata": { "labels": labels } });
    let pods = stage.api::<Pod>();
    let patch = kube::api::Patch::Merge(patch);
    pods.patch(&name, &Default::default(), &patch).await?;
    Ok(())
}

/// Returns a patch with a taint that no template in these stories tolerates.
fn closed() -> serde_json::Value {
    json!({ "spec": { "taints": [{ "key": "agent", "value": "missing", "effect": "NoSchedule" }] } })
}

fn opened() -> serde_json::Value {
    json!({ "spec": { "taints": null } })
}

scenarios! {
    fn w02_given_an_image_that_crashes_then_the_rollout_stops_by_itself_and_another_template_releases_it(pace) {
        three_of_six_crash()
            .until(one_event("Warning", "rollout stopped: the new version failed"))
            .throughout(deletions(3).and(untouched(4..=6)), pace.pick(3600, 8))
            .image(OLD)
            .until(converged().and(is_free()))
            .expect(deletions(6).and(untouched(4..=6)))
    }

    fn w02_given_a_stopped_rollout_then_ctl_undo_takes_back_who_has_it_and_never_brings_it_again(pace) {
        three_of_six_crash()
            .until(condition("Stalled", "True", ": yurt-ds ctl undo "))
            .until(event("Warning", ": yurt-ds ctl undo "))
            .does("ctl undo", undo)
            .until(converged().and(is_free()))
            .expect(deletions(6).and(untouched(4..=6)))
            .does("ctl undo once more", undo_nothing)
            .throughout(converged().and(deletions(6)), pace.pick(600, 5))
    }

    fn w02_given_pods_that_crash_when_all_nodes_have_the_revision_then_it_is_stalled_and_not_complete(pace) {
        let late = Behaviour { crash_after: Some(secs(15)), ..Behaviour::default() };
        Story::on(3)
            .with(guarded(3, 0))
            .allowed(3)
            .behave(NEW, late)
            .image(NEW)
            .until(condition("RolloutComplete", "True", ": complete"))
            .until(condition("Stalled", "True", "the new version failed on"))
            .throughout(
                condition("Stalled", "True", "the new version failed on")
                    .and(condition("RolloutComplete", "False", "the new version failed on"))
                    .and(at_most_events("Warning", "the new version failed on", 1)),
                pace.pick(280, 20),
            )
            .image(OLD)
            .until(converged().and(is_free()))
    }

    fn w02_given_a_stopped_rollout_and_all_other_revisions_deleted_then_the_stop_stands(pace) {
        three_of_six_crash()
            .does("delete the older revisions", forget_older_revisions)
            .throughout(is_stopped().and(deletions(3)).and(untouched(4..=6)), pace.pick(900, 15))
    }

    fn w02_given_a_revision_that_fails_on_all_nodes_then_no_advice_leads_back_to_it(pace) {
        Story::on(3)
            .with(guarded(3, 1))
            .allowed(3)
            .behave(NEW, crashing())
            .behave(NEWER, crashing())
            .image(NEW)
            .until(condition("Stalled", "True", "the new version failed on"))
            .image(NEWER)
            .until(condition("Guard", "False", "stopped before: ").and(condition("Stalled", "True", "the new version failed on")))
            .throughout(condition("Stalled", "True", ": yurt-ds ctl undo "), pace.pick(120, 5))
            .does("ctl undo", |stage| undo_from(stage, NEWER))
            .until(converged())
    }

    fn w05_given_pods_that_crash_a_moment_after_they_are_ready_then_only_the_first_batch_gets_them(pace) {
        let lives = |seconds: u64| Behaviour { crash_after: Some(secs(seconds)), ..Behaviour::default() };
        let batch = |allowed: usize, seconds: u64| {
            Story::on(10)
                // The threshold allows all ten nodes to fail. The rollout must still stop after the first batch: no pod stays
                // available long enough to prove that the image works.
                .with(guarded(allowed, 10))
                .allowed(allowed)
                .behave(NEW, lives(seconds))
                .image(NEW)
                .until(deletions(allowed))
                .throughout(deletions(allowed).and(untouched(allowed + 1..=10)), pace.pick(1800, 25))
                // The next image works, so its rollout continues to the other nodes.
                .image(NEWER)
                .until(converged())
        };
        vec![batch(3, 1), batch(5, 4)]
    }

    fn w06_given_a_rollback_then_nobody_waits_for_a_proof(pace) {
        Story::on(6)
            .with(Daemon::new().max_unavailable("2"))
            .allowed(2)
            .image(NEW)
            .until(converged())
            .image(OLD)
            // A new revision must prove on the first nodes that it works, which takes ten seconds. A rollback needs no such proof.
            // So the time limit is long enough for three batches, but not for the proof.
            .until_within(converged(), pace.pick(11, 60))
    }

    fn w02_given_pods_that_crash_and_are_ready_in_between_then_it_stalls_once_and_goes_no_further(pace) {
        let in_between = Behaviour { crash_after: Some(secs(1)), ..Behaviour::default() };
        // The threshold allows all six nodes to fail, so the guard doesn't stop this rollout.
        Story::on(6)
            .with(guarded(2, 6).min_ready(3))
            .allowed(2)
            .behave(NEW, in_between)
            .image(NEW)
            .until(condition("Stalled", "True", "the new pods do not start"))
            .throughout(
                deletions(2).and(at_most_events("Warning", "the new pods do not start", 3)),
                pace.pick(600, 60),
            )
            .image(OLD)
            .until(converged())
    }

    fn w02_given_an_image_that_cannot_be_pulled_then_the_same(pace) {
        let missing = missing_image();
        Story::on(5)
            .with(guarded(2, 1))
            .allowed(2)
            .behave(NEW, missing)
            .image(NEW)
            .until(is_stopped())
            .throughout(deletions(2).and(untouched(3..=5)), pace.pick(600, 5))
            .image(NEWER)
            .until(converged().and(is_free()))
    }

    fn w02_given_a_stopped_rollout_then_only_the_hash_of_its_revision_resumes_it(pace) {
        // When the first two nodes fail, the pod on the third node is still waiting for `minReadySeconds`, and takes the last slot.
        // So no fourth node is updated before the rollout stops.
        Story::on(6)
            .with(guarded(3, 1).min_ready(pace.pick(60, 15)))
            .allowed(3)
            .behave_on(1, NEW, crashing())
            .behave_on(2, NEW, crashing())
            .image(NEW)
            .until(is_stopped())
            .annotate("resume", "5d4f8c9b6d")
            .until(event("Normal", "has no effect: it names revision"))
            .annotate("failure-threshold", "100%")
            .throughout(is_stopped().and(deletions(3)).and(untouched(4..=6)), pace.pick(600, 6))
            .does("resume", resume)
            .until(replaced(3..=6).and(not_condition("Guard")))
            .expect(deletions(6))
    }

    fn w02_given_failures_that_nobody_sees_any_more_then_they_are_counted_also_by_another_controller(pace) {
        let story = Story::on(5)
            .with(guarded(1, 1))
            .behave(NEW, crashing())
            .image(NEW)
            .until(condition("Guard", "False", "failed: "))
            .expect(deletions(1))
            .step(Step::RemoveNode(1))
            .controller(false)
            .wait(2)
            .controller(true)
            // The deletion of Node 1 freed its slot, so node 2 is updated. Node 1 must still count as failed, even after a restart
            // of the controller.
            .until(is_stopped())
            .expect(deletions(2).and(untouched(3..=5)))
            .controller(false)
            .excuse(2)
            .delete_pod(2)
            .controller(true)
            .throughout(is_stopped().and(untouched(3..=5)), pace.pick(600, 8));
        Scenario::from(story).alone()
    }

    fn w02_given_a_stopped_rollout_then_pause_selector_and_partition_neither_release_nor_hide_it(pace) {
        let pool = |name: &str| json!({ "metadata": { "labels": { "pool": name } } });
        let mut story = Story::on(6);
        for node in 1..=4 {
            story = story.patch_node(node, pool("canary"));
        }
        story
            .with(guarded(2, 0).annotate("selector", "pool=canary").annotate("partition", "1"))
            .allowed(2)
            .behave(NEW, crashing())
            .image(NEW)
            .until(is_stopped())
            .expect(deletions(2))
            .annotate("paused", "true")
            .until(condition("Paused", "True", "").and(condition("Guard", "True", "failed: ")))
            .unannotate("paused")
            .unannotate("selector")
            .unannotate("partition")
            .until(is_stopped())
            .throughout(deletions(2).and(untouched(3..=6)), pace.pick(600, 5))
            .image(OLD)
            .until(converged().and(is_free()))
            .expect(untouched(3..=6))
    }

    fn w01_given_a_revision_that_takes_its_nodes_down_then_it_is_stopped_and_the_nodes_are_named(pace) {
        let panics = Behaviour { kills_node_after: Some(secs(1)), ..Behaviour::default() };
        Story::on(6)
            .with(guarded(2, 1).min_ready(45))
            .allowed(2)
            .offline([6])
            .behave(NEW, panics)
            .image(NEW)
            .until(is_stopped().and(condition("Guard", "True", "-0001")).and(condition("Guard", "True", "-0002")))
            .throughout(deletions(2).and(untouched(3..=6)), pace.pick(3600, 8))
            .online([6])
            // A node that comes back online must not get the stopped revision.
            .throughout(deletions(2).and(untouched(3..=6)), pace.pick(600, 8))
            .image(OLD)
            .throughout(untouched(3..=6).and(deletions(2)), 3)
    }

    fn w01_given_a_removal_that_takes_its_node_down_then_the_losses_are_bounded_and_the_nodes_are_named(pace) {
        let takes_down = || Behaviour { kills_node_when_stopped: true, ..Behaviour::default() };
        let story = |threshold: usize| {
            Story::on(6)
                .with(guarded(1, threshold))
                .behave(OLD, takes_down())
                .image(NEW)
        };
        // A lost node takes no slot, so a second node is updated although `max-unavailable` is one. The second loss exceeds the
        // threshold of one.
        let bounded = story(1)
            .until(is_stopped().and(condition("Guard", "True", "-0001")).and(condition("Guard", "True", "-0002")))
            .throughout(deletions(2).and(untouched(3..=6)), pace.pick(3600, 8));
        let restarted = story(0)
            .until(deletions(1))
            .controller(false)
            .wait(2)
            .controller(true)
            .until(is_stopped().and(condition("Guard", "True", "-0001")))
            .throughout(deletions(1).and(untouched(2..=6)), pace.pick(3600, 8))
            // The image NEWER takes no node offline. The loss of node 1 must not count as a failure of NEWER, even after a restart
            // of the controller.
            .behave(OLD, Behaviour::default())
            .image(NEWER)
            .until(replaced([2]))
            .controller(false)
            .wait(2)
            .controller(true)
            .until(replaced(2..=6).and(is_free()))
            .throughout(is_free(), pace.pick(600, 8));
        let mut scenario = Scenario::from(vec![bounded, restarted]);
        scenario.alone = true;
        scenario
    }

    /// Some software taints a node while its agent doesn't run there. That taint then prevents the new pod from starting.
    fn w01_given_nodes_that_are_tainted_while_they_are_replaced_then_they_keep_their_slots_and_it_goes_on_afterwards(pace) {
        let slow = |story: Story, node| story.step(Step::TerminateIn(node, secs(pace.pick(20, 6))));
        let kept_away = || condition("Stalled", "True", "-0001. Cause: the template does not tolerate its taint");
        let first = || {
            (1..=5)
                .fold(Story::on(5).with(guarded(1, 0)), slow)
                .image(NEW)
                .until(terminating(1))
                .excuse(1)
                .patch_node(1, closed())
                .until(kept_away())
                .throughout(deletions(1).and(untouched(2..=5)), pace.pick(3600, 8))
        };
        let ends = first()
            .patch_node(1, opened())
            .until(converged().and(is_free()));
        let restarted = first()
            .controller(false)
            .wait(2)
            .controller(true)
            .throughout(deletions(1).and(untouched(2..=5)).and(kept_away()), pace.pick(60, 8))
            .patch_node(1, opened())
            .until(converged().and(is_free()));
        let mut scenario = Scenario::from(vec![ends, restarted]);
        scenario.alone = true;
        scenario
    }

    fn w01_given_a_node_that_is_lost_after_its_update_then_it_holds_up_nobody(pace) {
        let panics = Behaviour { kills_node_after: Some(secs(1)), ..Behaviour::default() };
        Story::on(4)
            .with(guarded(1, 1).min_ready(pace.pick(45, 10)))
            .behave_on(1, NEW, panics)
            .image(NEW)
            .until(replaced(2..=4).and(condition("RolloutComplete", "True", "1 node is offline and failed with this version")))
            .expect(not_condition("Stalled"))
    }

    fn w01_given_an_outage_after_nodes_failed_then_they_stay_charged_and_the_next_ones_stop_it(pace) {
        Story::on(8)
            .with(guarded(2, 2).annotate("failure-window", "40s"))
            .allowed(2)
            .behave(NEW, crashing())
            .image(NEW)
            .until(condition("Guard", "False", "-0001").and(condition("Guard", "False", "-0002")))
            .offline(1..=8)
            .wait(pace.pick(32, 5))
            .online(3..=8)
            .until(is_stopped().and(condition("Guard", "True", "failed: ")).and(condition("Guard", "True", "-0001")))
            .throughout(deletions(4).and(untouched(5..=8)).and(is_stopped()), pace.pick(600, 8))
    }

    fn w01_given_a_rollback_then_it_is_charged_with_nothing_that_was_lost_before_it(pace) {
        Story::on(4)
            .with(guarded(1, 0))
            .behave(NEW, crashing())
            .image(NEW)
            .until(is_stopped())
            .offline([4])
            .image(OLD)
            .until(condition("RolloutComplete", "True", "complete").and(runs_current(1)))
            .throughout(is_free().and(untouched(2..=4)), pace.pick(600, 5))
    }

    fn w01_given_an_outage_that_takes_old_and_new_alike_then_nobody_is_charged_and_it_goes_on_by_itself(pace) {
        let half = || {
            Story::on(8)
                .with(guarded(2, 0).annotate("partition", "4").annotate("failure-window", "45s"))
                .allowed(2)
                .image(NEW)
                .until(replaced(1..=4).and(condition("RolloutComplete", "True", "on the old version: partition")))
                .offline([3, 4, 7, 8])
                .annotate("partition", "0")
                .until(condition("RolloutComplete", "False", "has not decided yet if the new version took these nodes offline"))
                .throughout(untouched(5..=8).and(not_condition("Guard")), pace.pick(20, 5))
        };
        let returns = half()
            .online([3, 4, 7, 8])
            .until(converged().and(is_free()));
        let lasts = half()
            .until(replaced([5, 6]))
            .expect(untouched([7, 8]).and(is_free()));
        // Nodes 7 and 8 (old pods) return before nodes 3 and 4 (new revision).
        let node_by_node = half()
            .online([7, 8])
            .until(replaced(5..=8))
            .expect(is_free())
            .online([3, 4])
            .until(converged().and(is_free()));
        vec![returns, lasts, node_by_node]
    }

    fn w01_given_nodes_with_and_without_the_revision_that_are_lost_together_then_nobody_is_charged_and_it_goes_on(pace) {
        let lost = [1, 2, 3, 6, 7, 8, 9];
        Story::on(9)
            .with(guarded(3, 2).annotate("partition", "6").annotate("failure-window", "60s"))
            .allowed(3)
            .image(NEW)
            .until(replaced(1..=3).and(condition("RolloutComplete", "True", "on the old version: partition")))
            .offline(lost)
            .annotate("partition", "0")
            .until(condition("RolloutComplete", "False", "has not decided yet if the new version took these nodes offline"))
            .throughout(untouched(4..=9).and(not_condition("Guard")), pace.pick(40, 5))
            .online(lost)
            .until(converged().and(is_free()))
    }

    fn w21_given_a_node_whose_old_pod_was_broken_for_long_then_its_failure_is_not_charged(pace) {
        let story = Story::on(4)
            .with(guarded(2, 0).annotate("failure-window", "5s"))
            .allowed(2)
            .behave_on(3, OLD, crashing())
            .behave_on(3, NEW, crashing())
            .delete_pod(3)
            .until(restarting(3))
            .wait(8)
            .remember()
            .image(NEW)
            .until(replaced([1, 2, 4]))
            .until(restarting(3))
            .controller(false)
            .wait(1)
            .controller(true)
            .throughout(not_condition("Guard").and(deletions(4)), pace.pick(600, 8));
        Scenario::from(story).alone()
    }

    fn w29_given_a_node_that_is_outdated_again_after_two_replacements_then_it_is_not_replaced_a_third_time(pace) {
        Story::on(2)
            .with(Daemon::new().annotate("partition", "1"))
            .image(NEW)
            .until(runs_current(1))
            .does("relabel the new pod", relabel)
            .until(deletions(2).and(runs_current(1)))
            .does("relabel it again", relabel)
            .until(condition("Stalled", "True", "replaced twice").and(condition("Guard", "True", "replaced twice: ")))
            .throughout(deletions(2), pace.pick(600, 5))
            .does("resume", resume)
            .until(deletions(3).and(not_condition("Stalled")))
    }

    fn w29_given_pods_that_users_delete_then_the_breaker_is_not_concerned(_pace) {
        Story::on(3)
            .with(Daemon::new().annotate("partition", "2"))
            .image(NEW)
            .until(replaced([1]))
            .excuse(1)
            .delete_pod(1)
            .until(terminating(1))
            .until(replaced([1]))
            .delete_pod(1)
            .until(terminating(1))
            .until(replaced([1]))
            .annotate("partition", "0")
            .until(converged().and(is_free()))
    }

    fn w04_given_broken_pods_that_may_all_go_at_once_then_they_do_and_the_others_one_by_one(_pace) {
        let mut story = Story::on(5)
            .with(Daemon::new().annotate("replace-broken-first", "unlimited"))
            .allowed(3);
        for node in 3..=5 {
            story = story.behave_on(node, OLD, crashing()).delete_pod(node);
        }
        for node in 3..=5 {
            story = story.until(restarting(node));
        }
        story
            .remember()
            .image(NEW)
            .until(converged())
            .expect(deletions(5).and(group_by_group([vec![3, 4, 5], vec![1], vec![2]])))
    }

    fn w04_given_three_changes_within_minreadyseconds_then_the_budget_holds_across_all_of_them(pace) {
        Story::on(5)
            .with(Daemon::new().max_unavailable("2").min_ready(pace.pick(30, 10)))
            .allowed(2)
            .image(NEW)
            .until(runs_current(2))
            .image(NEWER)
            .until(deletions(4))
            .image(NEW)
            .until(converged())
            .expect(peak(2))
    }

    fn w03_given_a_reaction_that_is_not_offered_then_nothing_is_touched_and_it_is_said_why(pace) {
        Story::on(2)
            .with(Daemon::new().annotate("on-failure", "RevertSpec"))
            .image(NEW)
            .until(condition("InvalidSettings", "True", "because it would change the template"))
            .throughout(untouched(1..=2), pace.pick(600, 5))
            .pod_writes(0)
    }
}
