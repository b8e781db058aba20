//! AdvancedRollingUpdate: the nodes that are updated, and the time at which each is updated.

use serde_json::json;
use yurt_ds::sim::kubelet::{Behaviour, Outage};

use crate::support::checks::*;
use crate::support::objects::*;
use crate::support::story::{SEEN, Scenario, Step, Story, secs};
use crate::support::suite::scenarios;

/// Returns a story in which only node 1 is updated, because nodes 2 and 3 are offline.
fn two_of_three_offline() -> Story {
    Story::on(3)
        .offline([2, 3])
        .image(NEW)
        .until(replaced([1]).and(condition(
            "RolloutComplete",
            "True",
            "complete. 2 nodes are offline",
        )))
}

/// Brings nodes 2 and 3 back. The rollout must then complete without any other action.
fn both_return(story: Story) -> Story {
    story
        .online([2, 3])
        .until(converged().and(condition("RolloutComplete", "True", "complete")))
        .expect(deletions(3).and(peak(1)))
}

scenarios! {
    fn s15_given_workers_2_and_3_notready_when_the_image_changes_then_only_the_pod_of_worker_1_is_replaced(pace) {
        two_of_three_offline().throughout(untouched([2, 3]).and(deletions(1)), pace.pick(3600, 10))
    }

    fn s16_when_both_become_ready_then_both_pods_are_replaced_without_any_other_change_at_most_1_at_a_time(_pace) {
        both_return(two_of_three_offline().throughout(untouched([2, 3]), 3))
    }

    fn s17_as_15_and_16_on_nodes_whose_pods_were_never_marked_not_ready_still_converges_after_return(pace) {
        let story = Story::on(3)
            .offline_autonomous([2, 3])
            .image(NEW)
            .until(replaced([1]))
            .throughout(untouched([2, 3]).and(deletions(1)), pace.pick(600, 5));
        both_return(story)
    }

    fn s18_given_10_ready_nodes_and_30_percent_then_at_most_3_nodes_at_once_given_3_nodes_1(_pace) {
        let rolls = |nodes: usize, allowed: usize| {
            Story::on(nodes)
                .with(Daemon::new().max_unavailable("30%"))
                .allowed(allowed)
                .image(NEW)
                .until(converged())
                .expect(peak(allowed).and(deletions(nodes)))
        };
        vec![rolls(10, 3), rolls(3, 1)]
    }

    fn s19_given_minreadyseconds_then_the_slot_is_free_that_long_after_ready_and_the_next_deletion_follows_by_timer(pace) {
        let min_ready = pace.pick(30, 5);
        Story::on(3)
            .with(Daemon::new().min_ready(min_ready))
            .image(NEW)
            .until(converged())
            .expect(deletions(3).and(peak(1)).and(gaps(min_ready + 1, min_ready + pace.pick(5, 60))))
    }

    fn s20_given_one_old_pod_crash_looping_then_it_is_the_first_to_be_replaced(_pace) {
        let crashing = Behaviour { crash_after: Some(secs(1)), ..never_ready() };
        Story::on(3)
            .behave_on(3, OLD, crashing)
            .delete_pod(3)
            .until(restarting(3))
            .remember()
            .image(NEW)
            .until(converged())
            .expect(in_order([3, 1, 2]))
    }

    fn s21_given_all_old_pods_not_ready_for_a_moment_then_at_most_max_unavailable_are_deleted_per_step(_pace) {
        let silent = Outage { mark_node: false, mark_pods: true };
        Story::on(5)
            .with(Daemon::new().max_unavailable("2"))
            .allowed(2)
            .step(Step::Offline((1..=5).collect(), silent))
            .image(NEW)
            .until(deletions(2))
            .throughout(deletions(2), 8)
            .online(1..=5)
            .until(converged())
    }

    fn s22_given_two_image_changes_within_minreadyseconds_then_the_budget_holds_across_both(pace) {
        Story::on(4)
            .with(Daemon::new().min_ready(pace.pick(30, 15)))
            .image(NEW)
            .until(runs_current(1))
            .image(NEWER)
            .until(converged())
            .expect(deletions(5).and(peak(1)))
    }

    fn s23_given_a_cordoned_ready_node_then_its_pod_is_replaced_like_the_others(_pace) {
        Story::on(3)
            .step(Step::PatchNode(2, json!({ "spec": { "unschedulable": true } })))
            .image(NEW)
            .until(converged())
            .expect(replaced(1..=3).and(deletions(3)))
    }

    fn s24_given_a_pod_whose_node_object_does_not_exist_then_the_others_proceed_and_the_pod_is_not_touched(_pace) {
        Story::on(3)
            .step(Step::RemoveNode(2))
            .image(NEW)
            .until(converged())
            .expect(replaced([1, 3]).and(untouched([2])).and(deletions(2)))
    }

    fn s25_given_a_delete_sent_and_the_node_going_offline_before_the_pod_is_gone_then_the_others_proceed_and_it_converges_later(_pace) {
        Story::on(3)
            .step(Step::TerminateIn(1, secs(15)))
            .image(NEW)
            .until(terminating(1))
            .offline([1])
            .until(replaced([2, 3]).and(condition("RolloutComplete", "True", "complete. 1 node is offline")))
            .online([1])
            .until(converged().and(condition("RolloutComplete", "True", ": complete")))
            .expect(deletions(3))
    }

    fn s26_given_a_quota_that_refuses_new_pods_then_at_most_max_unavailable_pods_are_missing_and_an_event_says_what_is_awaited(_pace) {
        Story::on(5)
            .with(Daemon::new().max_unavailable("2"))
            .allowed(2)
            .step(Step::RefusePods(true))
            .image(NEW)
            .until(event("Warning", "quota").and(condition("Stalled", "True", "")))
            .throughout(deletions(2), 10)
            .step(Step::RefusePods(false))
            // The native controller backs off after each rejected pod. A change of the DaemonSet makes it retry immediately.
            .patch(json!({ "metadata": { "labels": { "quota": "lifted" } } }))
            .until(converged())
            .expect(deletions(5).and(condition("Stalled", "False", "")))
    }

    fn s27_given_a_new_image_that_never_becomes_ready_then_the_rollout_stops_after_max_unavailable_nodes(pace) {
        Story::on(5)
            .with(Daemon::new().max_unavailable("2"))
            .allowed(2)
            .behave(NEW, never_ready())
            .image(NEW)
            .until(deletions(2))
            .throughout(deletions(2), pace.pick(3600, 15))
            .image(OLD)
            .until(converged())
            .expect(deletions(4).and(untouched(3..=5)))
    }

    /// The first two failed nodes are within the threshold, so the rollout continues. When the rollout stops, two more updates are
    /// in progress.
    fn s28_given_a_revision_that_makes_its_node_notready_then_the_nodes_lost_never_exceed_the_threshold_and_what_was_in_flight(pace) {
        let panics = Behaviour { kills_node_after: Some(secs(1)), ..Behaviour::default() };
        Story::on(6)
            .with(Daemon::new().max_unavailable("2").min_ready(30))
            .allowed(2)
            .behave(NEW, panics)
            .image(NEW)
            .until(condition("Stalled", "True", "-0001").and(condition("Stalled", "True", "-0002")))
            .throughout(deletions(4).and(untouched(5..=6)), pace.pick(3600, 15))
            .expect(event("Warning", "failed"))
    }

    fn s29_given_nodes_offline_before_the_update_then_they_never_count_toward_28(pace) {
        Story::on(6)
            .offline([4, 5, 6])
            .image(NEW)
            .until(replaced(1..=3))
            .throughout(not_condition("Stalled").and(untouched(4..=6)), pace.pick(3600, 10))
            .expect(condition("RolloutComplete", "True", "complete. 3 nodes are offline"))
    }

    fn s30_given_1_node_offline_and_max_unavailable_1_then_the_ready_nodes_all_converge(_pace) {
        Story::on(4).offline([2]).image(NEW).until(replaced([1, 3, 4])).expect(untouched([2]))
    }

    fn s32_given_a_mid_rollout_rollback_then_nodes_still_on_the_old_image_are_not_restarted_only_those_on_the_new(_pace) {
        Story::on(3)
            .with(Daemon::new().min_ready(30))
            .image(NEW)
            .until(runs_current(1))
            .image(OLD)
            .until(converged())
            .expect(untouched([2, 3]).and(deletions(2)))
    }

    fn s33_given_kubectl_rollout_restart_then_every_pod_is_replaced_once(_pace) {
        Story::on(3)
            .patch(restart_patch("2026-11-20T12:00:00Z"))
            .until(replaced(1..=3))
            .throughout(deletions(3), 5)
    }

    fn s34_given_a_change_of_labels_annotations_minreadyseconds_or_revisionhistorylimit_then_nobody_is_restarted(pace) {
        let metadata = json!({ "metadata": { "labels": { "team": "edge" }, "annotations": { "example.com/note": "1" } } });
        Story::on(3)
            .patch(metadata)
            .patch(json!({ "spec": { "minReadySeconds": 3 } }))
            .patch(json!({ "spec": { "revisionHistoryLimit": 3 } }))
            .annotate("max-unavailable", "2")
            .until(observed())
            .throughout(untouched(1..=3), pace.pick(600, 10))
            .pod_writes(0)
    }

    fn s35_given_1000_nodes_and_100_percent_then_it_continues_by_itself_to_the_end(pace) {
        let nodes = pace.pick(1000, 300);
        Story::on(nodes)
            .with(Daemon::new().max_unavailable("100%"))
            .allowed(nodes)
            .image(NEW)
            .until(converged())
            .expect(deletions(nodes))
    }

    fn s36_given_a_flapping_node_then_at_most_one_replacement_happens_on_it_others_are_unaffected(pace) {
        Story::on(3)
            .with(Daemon::new().annotate("ready-settle", "5s"))
            .step(Step::Flap(2, secs(2), secs(8)))
            .wait(12)
            .image(NEW)
            .until(replaced([1, 3]))
            .throughout(at_most_deletions_on(2, 1), pace.pick(600, 25))
            .online([2])
            .until(converged())
            .expect(at_most_deletions_on(2, 1))
    }

    fn s37_given_another_daemonset_with_equal_labels_in_the_namespace_then_it_is_never_touched(_pace) {
        Story::on(3)
            .does("another DaemonSet with equal labels", |stage| async move {
                stage.create_daemon(&Daemon::plain().renamed("other")).await
            })
            .until(pods(6))
            .image(NEW)
            .until(converged())
            .throughout(deletions(3).and(pods(6)), 5)
    }

    fn s38_given_a_pod_deleted_by_a_user_meanwhile_then_its_node_occupies_budget_until_the_replacement_is_available(_pace) {
        Story::on(3)
            .step(Step::TerminateIn(2, secs(20)))
            .delete_pod(2)
            .until(terminating(2))
            .wait(SEEN)
            .image(NEW)
            .throughout(no_deletions(), 6)
            .until(converged())
            .expect(deletions(2).and(in_order([1, 3])))
    }

    fn s39_given_equal_inputs_twice_then_the_order_of_replaced_nodes_is_equal(_pace) {
        let rolls = || Story::on(6).image(NEW).until(converged()).expect(in_order(1..=6));
        vec![rolls(), rolls()]
    }

    fn s40_given_a_node_deleted_from_the_cluster_mid_replacement_then_its_slot_is_freed(_pace) {
        Story::on(3)
            .step(Step::TerminateIn(1, secs(25)))
            .image(NEW)
            .until(terminating(1))
            .throughout(deletions(1), 3)
            .step(Step::RemoveNode(1))
            .until(replaced([2, 3]))
    }

    fn s41_given_a_node_that_becomes_ineligible_then_it_leaves_the_base_and_does_not_block_completion(_pace) {
        let tainted = json!({ "spec": { "taints": [{ "key": "dedicated", "value": "x", "effect": "NoExecute" }] } });
        Story::on(5)
            .offline([5])
            .image(NEW)
            .until(replaced([1]))
            .excuse(4)
            .excuse(5)
            .step(Step::PatchNode(4, tainted))
            .step(Step::PatchNode(5, json!({ "metadata": { "labels": { "scenario": null } } })))
            .until(replaced([1, 2, 3]).and(condition("RolloutComplete", "True", ": complete")))
    }

    fn s31_given_two_pods_on_one_node_then_we_do_not_delete_either_the_native_rule_resolves_it(_pace) {
        let story = Story::on(3)
            .with(Daemon::new().max_unavailable("2").annotate("paused", "true"))
            .allowed(2)
            .image(NEW)
            .until(observed())
            .native(false)
            .does("a second pod on node 1", |stage| async move { stage.add_pod(1).await })
            .until(pods(4))
            .unannotate("paused")
            .wait(5)
            .expect(at_most_deletions_on(1, 0))
            .native(true)
            .until(converged());
        Scenario::from(story).alone()
    }
}
