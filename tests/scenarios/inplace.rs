//! `rolling-update-type: InPlaceIfPossible`: updates keep the pods, and only containers with a changed image restart.

use serde_json::{Value, json};
use yurt_ds::sim::kubelet::Behaviour;

use super::rest::pulled_in;
use crate::support::checks::*;
use crate::support::objects::*;
use crate::support::story::{Scenario, Story, Writes, secs};
use crate::support::suite::scenarios;

/// Returns a DaemonSet with in-place updates and without pre-pulls, so that an update needs one write per pod.
fn daemon() -> Daemon {
    Daemon::new()
        .annotate("rolling-update-type", "InPlaceIfPossible")
        .annotate("image-predownload-parallelism", "0")
}

/// Returns a patch of an environment variable, which can't be changed in place.
fn env(value: &str) -> Value {
    json!({ "spec": { "template": { "spec": { "containers": [
        { "name": "nginx", "env": [{ "name": "GREETING", "value": value }] },
    ] } } } })
}

/// Returns a patch that sets or removes a label of the template.
fn label(value: Option<&str>) -> Value {
    json!({ "spec": { "template": { "metadata": { "labels": { "tier": value } } } } })
}

/// Returns the behavior of a container that takes this long to become ready.
fn ready_after(seconds: u64) -> Behaviour {
    Behaviour {
        ready_after: secs(seconds),
        ..Behaviour::default()
    }
}

/// Checks that every pod has this value of the label `tier` and that no container has restarted.
fn labelled(value: Option<&'static str>) -> Check {
    Check::new(
        format!("every pod is labelled {value:?}, and not restarted"),
        move |picture| {
            for pod in picture.pods() {
                let labels = pod.metadata.labels.as_ref();
                let found = labels.and_then(|labels| labels.get("tier"));
                let statuses = pod.status.iter();
                let statuses =
                    statuses.flat_map(|status| status.container_statuses.iter().flatten());
                let restarts: i32 = statuses.map(|status| status.restart_count).sum();
                if found.map(String::as_str) != value || restarts > 0 {
                    return Err(format!(
                        "{:?}: {found:?}, {restarts} restarts",
                        pod.metadata.name
                    ));
                }
            }
            Ok(())
        },
    )
}

/// Checks that all pods are updated and that the condition reports a complete rollout.
fn complete() -> Check {
    converged().and(condition("RolloutComplete", "True", ": complete"))
}

scenarios! {
    vary because "which fields of a running pod may change is validated by the API server, which learned more of them (resize, sidecars)";
    /// Covers two of Kruise's end-to-end tests.
    fn s98_given_in_place_if_possible_then_an_image_keeps_the_pod_and_any_other_change_makes_a_new_one(pace) {
        Story::on(4)
            .with(daemon())
            .image(NEW)
            .until(complete())
            .expect(renewed(1..=4).and(renewals(4)).and(no_deletions()).and(peak(1)))
            .pod_writes(4)
            .image(OLD)
            .until(complete())
            .expect(renewed(1..=4))
            .pod_writes(8)
            .quiet(600, 5)
            .remember()
            .patch(env("hello"))
            .until(converged().and(replaced(1..=4)))
            .expect(deletions(4).and(renewals(0)))
            .pod_writes(4)
            .throughout(one_event("Normal", "pods are recreated, not updated in place: the template changed in more than images"), pace.pick(60, 1))
            .remember()
            .patch(restart_patch("2026-01-01T00:00:00Z"))
            .until(converged().and(replaced(1..=4)))
    }

    /// Each node pulls the image before its update, so the rollout waits at every node. There must still be only one Event about
    /// the start of the rollout.
    fn place_given_nodes_that_pull_one_by_one_then_the_rollout_begins_once(pace) {
        Story::on(4)
            .with(Daemon::new().annotate("rolling-update-type", "InPlaceIfPossible").annotate("predownload", "required"))
            .writing(Writes::Conditions)
            .behave(NEW, pulled_in(pace.pick(20, 2)))
            .image(NEW)
            .until(complete())
            .expect(events_because("RolloutStarted", 1))
    }

    fn place_given_a_change_of_metadata_then_no_container_is_started_again(pace) {
        Story::on(3)
            .with(daemon().min_ready(pace.pick(300, 20)))
            .patch(label(Some("edge")))
            .until_within(complete(), 20)
            .expect(renewed(1..=3).and(labelled(Some("edge"))))
            .patch(label(None))
            .until_within(complete(), 20)
            .expect(renewed(1..=3).and(labelled(None)))
            .pod_writes(6)
    }

    /// Covers the table in Kruise's unit tests for in-place updates.
    fn a133_given_images_and_metadata_changed_at_once_then_in_place_and_anything_more_makes_a_new_pod(pace) {
        let with_label = |mut patch: Value, value: Option<&str>| {
            patch["spec"]["template"]["metadata"] = json!({ "labels": { "tier": value } });
            patch
        };
        let template = |containers: Value| json!({ "spec": { "template": { "spec": { "containers": containers } } } });
        let at_once = Story::on(3)
            .with(daemon())
            .patch(with_label(image_patch(NEW), Some("edge")))
            .until(complete())
            .expect(renewed(1..=3).and(renewals(3)))
            .patch(with_label(image_patch(OLD), None))
            .until(complete())
            .expect(renewed(1..=3).and(renewals(6)))
            .pod_writes(6);
        // A change of both images needs one write per pod, whether or not the containers are in alphabetical order.
        let two_images = ["side", "agent"].map(|second| {
            Story::on(2)
                .with(daemon().container(second, OLD))
                .patch(two_images_patch(second, NEW))
                .until(complete())
                .expect(renewed(1..=2).and(no_deletions()))
                .pod_writes(2)
        });
        // The container reads a label into an environment variable when it starts. An in-place update of the label would not change
        // the variable, so the pods are replaced.
        let reads = json!([{ "name": "TIER", "valueFrom": { "fieldRef": { "fieldPath": "metadata.labels['tier']" } } }]);
        let read_by_env = Story::on(2)
            .with(daemon())
            .patch(with_label(template(json!([{ "name": "nginx", "env": reads }])), Some("a")))
            .until(complete())
            .remember()
            .patch(with_label(image_patch(NEW), Some("b")))
            .until(converged().and(replaced(1..=2)))
            .expect(renewals(0));
        // The template gets a second container. Existing pods can't get one, so they are replaced.
        let one_more = Story::on(2)
            .with(daemon())
            .patch(two_images_patch("side", NEW))
            .until(converged().and(replaced(1..=2)))
            .throughout(renewals(0), pace.pick(60, 1));
        let others = [at_once, read_by_env, one_more];
        others.into_iter().chain(two_images).collect::<Vec<_>>()
    }

    fn place_given_a_budget_then_nodes_count_from_the_patch_until_they_are_available(pace) {
        Story::on(6)
            .with(daemon().max_unavailable("2").min_ready(pace.pick(20, 4)))
            .allowed(2)
            .behave(NEW, ready_after(pace.pick(10, 2)))
            .image(NEW)
            .until(complete())
            .expect(renewed(1..=6).and(renewals(6)).and(peak(2)))
            .pod_writes(6)
    }

    fn place_given_an_offline_node_then_it_is_updated_in_place_after_its_return(pace) {
        Story::on(3)
            .with(daemon())
            .offline([2])
            .image(NEW)
            .until(renewed([1, 3]).and(condition("RolloutComplete", "True", "complete. 1 node is offline")))
            .throughout(renewals(2), pace.pick(600, 5))
            .online([2])
            .until(complete())
            .expect(renewed(1..=3).and(renewals(3)))
            .pod_writes(3)
    }

    fn place_given_a_controller_that_dies_in_the_middle_then_nobody_is_updated_twice_nor_too_many_at_once(pace) {
        let slow = pace.pick(30, 6);
        let story = Story::on(4)
            .with(daemon())
            .behave(NEW, ready_after(slow))
            .image(NEW)
            .until(renewals(1))
            .controller(false)
            .wait(pace.pick(5, 2))
            .controller(true)
            .until(renewals(2))
            .controller(false)
            .wait(2 * slow)
            .controller(true)
            .until(complete())
            .expect(renewed(1..=4).and(renewals(4)).and(peak(1)))
            .pod_writes(4);
        Scenario::from(story).alone()
    }

    fn stay_given_a_rollback_in_the_middle_then_it_goes_in_place_too(_pace) {
        Story::on(4)
            .with(daemon())
            // The pod changes on its own while containers restart. A write of the controller may then conflict.
            .writing(Writes::Attempts)
            .behave(NEW, ready_after(8))
            .image(NEW)
            .until(renewed([1]).and(renewals(2)))
            .image(OLD)
            .until(complete())
            .expect(renewed(1..=4).and(renewals(4)).and(no_deletions()))
    }

    fn stay_given_a_bad_image_then_the_next_revision_mends_the_same_pod(pace) {
        let missing = missing_image();
        let crashing = Behaviour { crash_after: Some(secs(1)), ..ready_after(5) };
        let mended = |bad: Behaviour| {
            Story::on(3)
                .with(daemon())
                .writing(Writes::Attempts)
                .behave(NEW, bad)
                .image(NEW)
                .until(renewals(1).and(condition("Stalled", "True", "the new ")))
                .throughout(renewals(1), pace.pick(600, 5))
                .image(NEWER)
                .until(complete())
                .expect(renewed(1..=3).and(renewals(4)).and(no_deletions()))
        };
        vec![mended(missing), mended(crashing)]
    }

    fn stay_given_partition_selector_and_pause_then_they_hold_as_for_deletions(pace) {
        let pool = |name: &str| json!({ "metadata": { "labels": { "pool": name } } });
        Story::on(4)
            .patch_node(1, pool("canary"))
            .patch_node(3, pool("canary"))
            .with(daemon().annotate("selector", "pool=canary"))
            .image(NEW)
            .until(renewed([1, 3]).and(condition("RolloutComplete", "True", "2 nodes are not selected")))
            .throughout(renewals(2), pace.pick(600, 5))
            .annotate("partition", "1")
            .unannotate("selector")
            .until(renewed(1..=3).and(condition("RolloutComplete", "True", "1 node stays on the old version")))
            .annotate("paused", "true")
            .annotate("partition", "0")
            .until(condition("Paused", "True", ": paused"))
            .throughout(renewals(3), pace.pick(600, 5))
            .unannotate("paused")
            .until(complete())
            .expect(renewed(1..=4).and(renewals(4)))
            .pod_writes(4)
    }

    fn stay_given_images_that_take_long_to_pull_then_they_are_there_before_the_container_stops(pace) {
        let slow = pace.pick(120, 10);
        Story::on(3)
            .with(Daemon::new().annotate("rolling-update-type", "InPlaceIfPossible"))
            .writing(Writes::Conditions)
            .behave(NEW, pulled_in(slow))
            .image(NEW)
            .until(image_ready([1], "False", "WaitPullImage"))
            .throughout(renewals(0), slow / 3)
            .until(renewals(1))
            .until_within(renewed([1]), pace.pick(10, 8))
            .until(complete())
            .expect(renewed(1..=3).and(renewals(3)).and(no_deletions()))
            // A change of a label needs no image, so it doesn't wait for a pull.
            .patch(label(Some("edge")))
            .until(complete())
            .expect(renewed(1..=3).and(jobs(0, 3)))
    }

    fn stay_given_another_spelling_then_nothing_is_touched(pace) {
        Story::on(2)
            .with(Daemon::new().annotate("rolling-update-type", "inplace"))
            .image(NEW)
            .until(condition("InvalidSettings", "True", "apps.openyurt.io/rolling-update-type is \"inplace\", which is not a valid value; use Standard or InPlaceIfPossible"))
            .throughout(untouched(1..=2), pace.pick(600, 5))
            .pod_writes(0)
    }
}
