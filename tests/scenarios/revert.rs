//! `on-failure: RevertInPlace`: after the guard stopped a revision because too many nodes failed, its pods are reverted in place.
//! They stay reverted (kubernetes/kubernetes#23211).

use serde_json::{Value, json};
use yurt_ds::sim::kubelet::Behaviour;

use super::guard::{crashing, guarded, is_free, is_stopped, resume};
use crate::support::checks::*;
use crate::support::objects::*;
use crate::support::story::{Pace, Scenario, Story, Writes, secs};
use crate::support::suite::scenarios;

/// Returns a DaemonSet with this `max-unavailable` and this `failure-threshold`. If more nodes fail than the threshold allows, the
/// controller reverts all pods of the revision.
fn reverting(max_unavailable: usize, threshold: usize) -> Daemon {
    guarded(max_unavailable, threshold).annotate("on-failure", "RevertInPlace")
}

/// Returns a story in which the new image crashes on three of six nodes. Crashing pods change on their own, so writes to them may
/// fail.
fn three_of_six_crash(daemon: Daemon) -> Story {
    six_before_a_crash(daemon).image(NEW)
}

/// Returns the beginning of [`three_of_six_crash`], before the image changes.
fn six_before_a_crash(daemon: Daemon) -> Story {
    Story::on(6)
        .with(daemon)
        .allowed(3)
        .writing(Writes::Attempts)
        .behave(NEW, crashing())
}

/// Returns a story on five nodes. The new image works on three nodes, then crashes on the fourth, which stops the rollout. The
/// controller then reverts the pods one at a time.
fn one_by_one(pace: Pace) -> Story {
    let slow = Behaviour {
        ready_after: secs(pace.pick(30, 6)),
        ..Behaviour::default()
    };
    Story::on(5)
        .with(reverting(1, 0))
        .writing(Writes::Attempts)
        .behave(OLD, slow)
        .behave_on(4, NEW, crashing())
        .image(NEW)
        .until(is_stopped())
        .expect(deletions(4))
}

/// Returns a patch of the image and of `env`. A change of `env` is impossible in place.
fn image_and_env(image: &str, env: Value) -> Value {
    let mut patch = image_patch(image);
    patch["spec"]["template"]["spec"]["containers"][0]["env"] = env;
    patch
}

scenarios! {
    fn w03_given_an_image_that_crashes_then_the_pods_that_got_it_are_taken_back_and_stay_so(pace) {
        three_of_six_crash(reverting(3, 1))
            .until(is_stopped().and(rolled_back(1..=3, OLD)))
            .until(event("Normal", "RevertInPlace rolls pods back in place to"))
            .until(event("Normal", "RevertInPlace rolled all pods on online nodes back"))
            .expect(deletions(3).and(renewals(3)).and(untouched(4..=6)))
            .expect(condition("Guard", "True", "previous revision: "))
            .throughout(is_stopped().and(rolled_back(1..=6, OLD)).and(renewals(3)), pace.pick(3600, 10))
            .quiet(600, 5)
            // The template now has the image to which the pods were reverted, so no pod must restart.
            .image(OLD)
            .until(converged().and(is_free()))
            .expect(deletions(3).and(renewals(3)))
    }

    fn w03_given_pods_that_were_updated_in_place_then_the_same_pods_are_taken_back(pace) {
        let daemon = reverting(3, 1)
            .annotate("rolling-update-type", "InPlaceIfPossible")
            .annotate("image-predownload-parallelism", "0");
        let missing = missing_image();
        let story = |bad: Behaviour| three_of_six_crash(daemon.clone())
            .behave(NEW, bad)
            .until(is_stopped().and(rolled_back(1..=6, OLD)))
            .throughout(untouched(1..=6).and(renewals(6)), pace.pick(3600, 10))
            .behave(NEW, Behaviour::default())
            .does("resume", resume)
            .until(renewed(1..=6).and(is_free()))
            .expect(renewals(12).and(no_deletions()));
        vec![story(crashing()), story(missing)]
    }

    fn w03_given_a_node_that_returns_with_a_stopped_revision_then_it_is_taken_back_too(pace) {
        three_of_six_crash(guarded(3, 1))
            .behave_on(3, NEW, Behaviour::default())
            // Pod 3 is healthy, but not yet long enough to prove that the revision works. So no fourth node is updated.
            .until(is_stopped().and(runs_current(3)).and(deletions(3)))
            .offline([3])
            .annotate("on-failure", "RevertInPlace")
            .until(rolled_back([1, 2], OLD))
            .throughout(renewals(2), pace.pick(600, 5))
            .online([3])
            .until(rolled_back(1..=6, OLD))
            .expect(deletions(3).and(renewals(3)).and(is_stopped()))
    }

    fn w03_given_a_revision_that_takes_its_nodes_down_then_their_return_ends_that(pace) {
        let panics = Behaviour { kills_node_after: Some(secs(3)), never_ready: true, ..Behaviour::default() };
        Story::on(4)
            .with(reverting(2, 1))
            .allowed(2)
            .writing(Writes::Attempts)
            .behave(NEW, panics)
            .image(NEW)
            .until(is_stopped())
            .throughout(renewals(0).and(untouched(3..=4)), pace.pick(60, 3))
            .online([1, 2])
            .until(rolled_back(1..=4, OLD))
            .throughout(rolled_back(1..=4, OLD).and(renewals(2)), pace.pick(600, 8))
    }

    fn w03_given_nodes_that_are_lost_after_they_were_taken_back_then_a_rollback_is_not_charged_with_them(pace) {
        let daemon = reverting(3, 1)
            .annotate("rolling-update-type", "InPlaceIfPossible")
            .annotate("image-predownload-parallelism", "0");
        three_of_six_crash(daemon)
            .until(is_stopped().and(rolled_back(1..=6, OLD)))
            .offline([1, 2])
            .wait(pace.pick(40, 35))
            .image(OLD)
            .until(condition("RolloutComplete", "True", "complete").and(is_free()))
            .throughout(is_free().and(renewals(6)).and(untouched(1..=6)), pace.pick(600, 6))
            .online([1, 2])
            .until(converged().and(is_free()))
    }

    fn w03_given_a_second_revision_that_crashes_then_the_pods_are_not_taken_back_to_the_first_one_that_did(pace) {
        // All four pods crash at the same time, so no Ready pod is left to show which revision was good.
        Story::on(4)
            .with(reverting(4, 1))
            .allowed(4)
            .writing(Writes::Attempts)
            .behave(NEW, crashing())
            .behave(NEWER, crashing())
            .image(NEW)
            .until(is_stopped().and(rolled_back(1..=4, OLD)))
            .image(NEWER)
            .until(condition("Guard", "True", "stopped before: ").and(rolled_back(1..=4, OLD)))
            .throughout(is_stopped().and(renewals(8)).and(rolled_back(1..=4, OLD)), pace.pick(3600, 10))
            .image(OLD)
            .until(converged().and(is_free()).and(condition("Guard", "False", "stopped before: ")))
            .quiet(600, 5)
    }

    fn w03_given_a_stop_and_a_fleet_that_goes_away_whole_then_the_stop_stands_and_keeps_its_names(pace) {
        let stands = || is_stopped()
            .and(condition("Guard", "True", "-0001"))
            .and(condition("Guard", "True", "-0002"))
            .and(events_because("RolloutComplete", 1));
        // The story counts Events about completed rollouts. So wait for the Event about the old revision, which may be late on a
        // busy machine.
        let crash = |daemon| six_before_a_crash(daemon)
            .until(events_because("RolloutComplete", 1))
            .image(NEW);
        let back = crash(reverting(3, 1)).until(stands().and(rolled_back(1..=3, OLD)));
        let kept = crash(guarded(3, 1)).until(stands());
        let away_and_back = |story: Story| story
            .offline(1..=6)
            .throughout(stands(), pace.pick(600, 35))
            .online(1..=6)
            .throughout(stands().and(deletions(3)).and(untouched(4..=6)), pace.pick(600, 8));
        vec![away_and_back(back), away_and_back(kept)]
    }

    fn w03_given_a_controller_that_dies_in_the_middle_then_nobody_is_taken_back_twice_nor_too_many_at_once(pace) {
        let slow = pace.pick(30, 6);
        let story = one_by_one(pace)
            .until(renewals(2))
            .controller(false)
            .wait(pace.pick(5, 2))
            .controller(true)
            .until(renewals(3))
            .controller(false)
            .wait(2 * slow)
            .controller(true)
            .until(rolled_back(1..=5, OLD))
            .throughout(renewals(4).and(deletions(4)).and(untouched([5])), pace.pick(600, 8))
            .expect(peak(1));
        Scenario::from(story).alone()
    }

    fn w03_given_a_rollback_or_a_mended_template_in_the_middle_then_that_is_rolled_out(pace) {
        // The rollback replaces the pods that still run the new revision.
        let rollback = one_by_one(pace)
            .until(renewals(2))
            .image(OLD)
            .until(converged().and(is_free()))
            .expect(deletions(6).and(untouched([5])));
        let mended = one_by_one(pace)
            .until(renewals(2))
            .image(NEWER)
            .until(converged().and(is_free()))
            .expect(deletions(9));
        vec![rollback, mended]
    }

    fn back_given_pause_partition_selector_and_hold_then_they_hold_here_too(pace) {
        let pool = |name: &str| json!({ "metadata": { "labels": { "pool": name } } });
        three_of_six_crash(guarded(3, 1).annotate("partition", "2"))
            .until(is_stopped())
            .annotate("paused", "true")
            .annotate("on-failure", "RevertInPlace")
            .patch_node(2, pool("canary"))
            .annotate("selector", "pool=canary")
            .until(condition("Paused", "True", ""))
            .throughout(renewals(0), pace.pick(600, 5))
            .unannotate("paused")
            .until(rolled_back([2], OLD))
            .throughout(renewals(1), pace.pick(600, 5))
            .unannotate("selector")
            .until(rolled_back(1..=6, OLD))
            .expect(renewals(3).and(deletions(3)).and(untouched(4..=6)))
    }

    fn back_given_pods_that_somebody_deletes_then_each_new_one_is_taken_back_once(pace) {
        three_of_six_crash(reverting(3, 1))
            .until(is_stopped().and(rolled_back(1..=6, OLD)))
            .excuse(1)
            .excuse(5)
            .delete_pod(1)
            .until(terminating(1))
            .until(renewals(4).and(rolled_back(1..=6, OLD)))
            .delete_pod(1)
            .delete_pod(5)
            .until(terminating(1).and(terminating(5)))
            .until(renewals(6).and(rolled_back(1..=6, OLD)))
            .throughout(is_stopped().and(renewals(6)).and(deletions(3)), pace.pick(3600, 8))
            .expect(condition("Guard", "True", "failed: "))
    }

    fn back_given_two_containers_in_any_order_then_both_are_taken_back(_pace) {
        let stories = ["side", "agent"].map(|second| {
            Story::on(4)
                .with(reverting(2, 1).container(second, OLD))
                .allowed(2)
                .writing(Writes::Attempts)
                .behave(NEW, crashing())
                .patch(two_images_patch(second, NEW))
                .until(is_stopped().and(rolled_back(1..=4, OLD)))
                .expect(deletions(2).and(renewals(2)).and(untouched(3..=4)))
        });
        Vec::from(stories)
    }

    fn back_given_a_change_that_no_running_pod_can_take_then_nothing_is_touched_and_it_is_said_why(pace) {
        Story::on(4)
            .with(reverting(2, 1))
            .allowed(2)
            .behave(NEW, crashing())
            .patch(image_and_env(NEW, json!([{ "name": "LEVEL", "value": "2" }])))
            .until(condition("Stalled", "True", "RevertInPlace is not possible"))
            .until(one_event("Warning", "the template changed in more than images, labels and annotations"))
            .throughout(renewals(0).and(deletions(2)).and(untouched(3..=4)), pace.pick(600, 8))
            .patch(image_and_env(OLD, Value::Null))
            .until(converged().and(is_free()))
            .expect(renewals(0).and(deletions(4)).and(untouched(3..=4)))
    }

    fn back_given_new_pods_beside_old_ones_then_those_that_took_over_are_taken_back_if_any_may_be_down(pace) {
        Story::on(4)
            .with(reverting(0, 0).annotate("max-surge", "1"))
            .writing(Writes::Surges)
            .behave_on(3, NEW, crashing())
            .image(NEW)
            .until(is_stopped().and(beside_each_other([3])))
            .throughout(renewals(0), pace.pick(60, 5))
            .annotate("max-unavailable", "1")
            .until(rolled_back([1, 2, 4], OLD))
            // Node 3 has a crashing surge pod next to its old pod. The old pod is available, so neither pod is touched.
            .throughout(renewals(2).and(untouched(3..=4)).and(spares(1)), pace.pick(600, 8))
            .image(OLD)
            .until(converged().and(is_free()).and(spares(0)))
            .expect(renewals(2).and(untouched(3..=4)))
    }
}
