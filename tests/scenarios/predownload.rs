//! Pre-pulls before updates: nodes pull new images in advance (`image-predownload-parallelism` and `predownload`).

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use yurt_ds::sim::kubelet::Behaviour;

use super::rest::pulled_in;
use crate::support::checks::*;
use crate::support::objects::*;
use crate::support::player::Stage;
use crate::support::story::{Pace, Scenario, Story, Writes};
use crate::support::suite::scenarios;

/// Returns a story in which `at_once` nodes may pull at the same time. With `predownload: required`, updates wait for the pull.
fn pulling(nodes: usize, at_once: &str, predownload: &str) -> Story {
    let daemon = Daemon::new()
        .annotate("image-predownload-parallelism", at_once)
        .annotate("predownload", predownload);
    Story::on(nodes).with(daemon).writing(Writes::Conditions)
}

/// Returns the behavior of a container whose image is in no registry.
fn missing() -> Behaviour {
    Behaviour {
        image_error: true,
        ..Behaviour::default()
    }
}

/// Puts a node into the pool `canary`.
fn canary(story: Story, node: usize) -> Story {
    story.patch_node(
        node,
        json!({ "metadata": { "labels": { "pool": "canary" } } }),
    )
}

/// Adds the image to the list of images in the status of these nodes.
fn lists(story: Story, nodes: &'static [usize], image: &'static str) -> Story {
    story.does("list an image", move |stage: Stage| async move {
        let images = json!([{ "names": [format!("docker.io/library/{image}")], "sizeBytes": 1 }]);
        let status = Patch::Merge(json!({ "status": { "images": images } }));
        let api = Api::<Node>::all(stage.world.client.clone());
        for node in nodes {
            let node = stage.node(*node);
            api.patch_status(&node, &PatchParams::default(), &status)
                .await?;
        }
        Ok(())
    })
}

scenarios! {
    vary because "images are pulled by Jobs, and how those fail and report changed (podReplacementPolicy, suspended and terminating pods)";
    fn s99_given_a_parallelism_then_at_most_that_many_nodes_pull_at_once_and_before_their_replacement(pace) {
        let slow = pulled_in(pace.pick(120, 6));
        let required = pulling(4, "50%", "required")
            .behave(NEW, slow.clone())
            .image(NEW)
            .until(image_ready([1], "False", "WaitPullImage"))
            .expect(untouched(1..=4).and(deletions(0)))
            // Two nodes pull at the same time. Sequential pulls, or a second pull after the update, would exceed this time limit.
            .until_within(converged(), pace.pick(290, 120))
            .until(jobs(0, 4))
            .expect(pulled_at_once(2).and(deletions(4)).and(no_ota_conditions()));
        // Each pod needs three writes: pull request, pull result, deletion. In virtual time, no kubelet writes in between, so the
        // controller repeats no write.
        let required = match pace {
            Pace::Virtual => required.pod_writes(3 * 4),
            Pace::Real => required,
        };
        // With `best-effort`, updates don't wait for the pull. The first pod is deleted while the next nodes still pull.
        let best_effort = pulling(3, "1", "best-effort")
            .behave(NEW, slow)
            .image(NEW)
            .until(deletions(1))
            .expect(jobs(0, 0))
            .until(converged().and(deletions(3)))
            .until(no_ota_conditions())
            .expect(pulled_at_once(1));
        vec![required, best_effort]
    }

    fn w15_given_a_missing_image_then_required_holds_back_only_that_node_and_best_effort_none(pace) {
        let required = pulling(3, "1", "required")
            .behave_on(2, NEW, missing())
            .image(NEW)
            .until(replaced([1, 3]).and(image_ready([2], "False", "PullImageFail")))
            .until(condition("Stalled", "True", "the new images cannot be pulled on"))
            .throughout(untouched([2]), pace.pick(1800, 5))
            .behave_on(2, NEW, Behaviour::default())
            .until_within(converged(), pace.pick(1000, 200))
            .expect(deletions(3).and(pulled_at_once(1)));
        let best_effort = pulling(2, "2", "best-effort")
            .behave(NEW, missing())
            .image(NEW)
            .until(deletions(1))
            .until_within(image_ready([2], "False", "PullImageFail"), 120)
            .behave(NEW, Behaviour::default())
            .until_within(converged(), 900)
            .expect(deletions(2));
        vec![required, best_effort]
    }

    fn pull_given_only_a_setting_of_the_template_changes_then_no_job_is_made(_pace) {
        pulling(3, "3", "required")
            .patch(restart_patch("1"))
            .until(converged())
            .expect(deletions(3).and(jobs(0, 0)))
    }

    fn w15_given_nodes_that_have_the_image_then_they_do_not_pull(pace) {
        let waiting = pulling(3, "1", "required")
            .behave_on(1, NEW, pulled_in(pace.pick(600, 60)))
            .image(NEW)
            .until(jobs(1, 1));
        let forth = lists(waiting, &[2, 3], NEW)
            .until(replaced([2, 3]))
            .expect(untouched([1]).and(jobs(1, 1)))
            .until(converged())
            .expect(deletions(3));
        // The status of the nodes still lists the old image, so the rollback pulls nothing.
        let back = lists(pulling(2, "2", "required"), &[1, 2], OLD)
            .image(NEW)
            .until(converged())
            .until(jobs(0, 2))
            .remember()
            .image(OLD)
            .until(converged())
            .expect(deletions(2).and(jobs(0, 0)));
        vec![forth, back]
    }

    fn w15_given_offline_nodes_then_nothing_begins_there_and_others_do_not_wait(pace) {
        let away = pulling(3, "1", "required")
            .behave(NEW, pulled_in(pace.pick(60, 4)))
            .offline([1])
            .image(NEW)
            .until(replaced([2, 3]))
            .throughout(untouched([1]).and(jobs(0, 2)), pace.pick(1800, 5))
            .online([1])
            .until(converged())
            .expect(deletions(3).and(pulled_at_once(1)).and(jobs(0, 3)));
        let lost = pulling(3, "1", "required")
            .behave(NEW, pulled_in(pace.pick(60, 4)))
            .behave_on(1, NEW, pulled_in(3600))
            .image(NEW)
            .until(image_ready([1], "False", "WaitPullImage").and(jobs(1, 1)))
            .offline([1])
            .until(replaced([2, 3]))
            .expect(untouched([1]))
            .behave_on(1, NEW, Behaviour::default())
            .online([1])
            .until(converged())
            .expect(deletions(3));
        vec![away, lost]
    }

    fn w15_given_a_restart_of_the_controller_in_the_middle_then_nothing_is_pulled_twice(pace) {
        let story = pulling(3, "1", "required")
            .behave(NEW, pulled_in(pace.pick(60, 8)))
            .image(NEW)
            .until(jobs(1, 2))
            .controller(false)
            .wait(pace.pick(120, 12))
            .expect(jobs(1, 2))
            .controller(true)
            .until(converged())
            .until(jobs(0, 3))
            .expect(deletions(3).and(pulled_at_once(1)));
        Scenario::from(story).alone()
    }

    fn w15_given_a_rollback_or_another_revision_in_the_middle_then_old_wishes_end(pace) {
        let slow = pulled_in(pace.pick(600, 120));
        let rollback = pulling(3, "2", "required")
            .behave(NEW, slow.clone())
            .image(NEW)
            .until(jobs(2, 2))
            .image(OLD)
            .until(no_ota_conditions().and(jobs(0, 2)))
            .until(converged())
            .throughout(untouched(1..=3).and(jobs(0, 2)), pace.pick(1800, 5))
            .expect(deletions(0));
        let another = pulling(3, "2", "required")
            .behave(NEW, slow)
            .image(NEW)
            .until(jobs(2, 2))
            .image(NEWER)
            .until_within(converged(), pace.pick(120, 100))
            .until(jobs(0, 5))
            .expect(deletions(3).and(pulled_at_once(2)));
        vec![rollback, another]
    }

    fn pull_given_a_partition_a_selector_and_a_pause_then_only_who_will_be_replaced_pulls(pace) {
        let partition = pulling(4, "100%", "required")
            .annotate("partition", "2")
            .image(NEW)
            .until(replaced(1..=2))
            .throughout(untouched(3..=4).and(jobs(0, 2)), pace.pick(1800, 5))
            .annotate("partition", "0")
            .until(converged())
            .expect(deletions(4).and(jobs(0, 4)));
        let selector = canary(pulling(3, "100%", "required"), 2)
            .annotate("selector", "pool=canary")
            .image(NEW)
            .until(replaced([2]))
            .throughout(untouched([1, 3]).and(jobs(0, 1)), pace.pick(1800, 5));
        let pull = pace.pick(60, 6);
        let paused = pulling(3, "1", "required")
            .behave(NEW, pulled_in(pull))
            .image(NEW)
            .until(jobs(1, 1))
            .annotate("paused", "true")
            .wait(pace.pick(5, 2))
            .remember()
            // A running pull continues during the pause. No further pull starts, and the controller writes to no pod.
            .throughout(untouched(1..=3).and(image_ready([1], "False", "WaitPullImage")), pull + pace.pick(600, 6))
            .pod_writes(0)
            .expect(jobs(1, 0))
            .unannotate("paused")
            .until(converged())
            .expect(deletions(3).and(jobs(0, 2)));
        vec![partition, selector, paused]
    }

    fn pull_given_a_minimum_of_ready_pods_then_that_many_go_first_without_images(pace) {
        let slow = pulled_in(pace.pick(120, 6));
        let awaits = "mage pre-pulls begin when 1 pod of the new revision is Ready";
        let daemon = Daemon::new()
            .max_unavailable("2")
            .annotate("image-predownload-parallelism", "2")
            .annotate("predownload", "required")
            .annotate("image-predownload-min-updated-ready-pods", "1");
        Story::on(3)
            .with(daemon)
            .writing(Writes::Conditions)
            .allowed(2)
            .behave(NEW, slow)
            .image(NEW)
            .until(condition("Progressing", "True", awaits).and(deletions(1)).and(jobs(0, 0)))
            .until_within(replaced([1]).and(image_ready([2, 3], "False", "WaitPullImage")), pace.pick(200, 60))
            .expect(deletions(1))
            .until_within(converged(), pace.pick(400, 120))
            .expect(pulled_at_once(2).and(deletions(3)))
    }

    fn pull_given_a_timeout_then_a_slow_registry_fails_within_it_and_is_asked_again(pace) {
        pulling(1, "1", "required")
            .annotate("image-predownload-timeout-seconds", &pace.pick(60, 5).to_string())
            .behave(NEW, pulled_in(pace.pick(600, 60)))
            .image(NEW)
            .until_within(
                image_ready([1], "False", "PullImageFail")
                    .and(untouched([1]))
                    .and(condition("Stalled", "True", "it was not done within")),
                pace.pick(90, 30),
            )
    }

    fn pull_given_settings_that_cannot_be_used_then_nothing_is_touched(pace) {
        let refused = |at_once: &str, predownload: &str, says: &'static str| {
            pulling(2, at_once, predownload)
                .image(NEW)
                .until(condition("InvalidSettings", "True", says))
                .throughout(untouched(1..=2).and(jobs(0, 0)), pace.pick(600, 5))
                .pod_writes(0)
        };
        let all = vec![
            refused("two", "required", "apps.openyurt.io/image-predownload-parallelism is \"two\""),
            refused("0", "required", "so no node would ever pull"),
            refused("1", "always", "use required or best-effort"),
        ];
        match pace {
            Pace::Virtual => all,
            Pace::Real => all.into_iter().take(1).collect(),
        }
    }
}
