//! Rollouts from Kruise's own end-to-end and unit tests for its Advanced DaemonSet, run with annotations on a native DaemonSet.
//!
//! In-place updates, hooks and surge have separate files. yurt-ds differs from Kruise on purpose for offline nodes and for pods
//! that were broken before the rollout. The name or comment of a scenario about such a difference says "strict". "Case N" is the
//! number of a test of Kruise in the specification, which is not in this repository.

use serde_json::{Value, json};
use yurt_ds::sim::kubelet::{Behaviour, Outage};

use crate::support::checks::*;
use crate::support::objects::*;
use crate::support::story::{SEEN, Step, Story, Writes, secs};
use crate::support::suite::scenarios;

/// Returns a story on five nodes with this `max-unavailable`.
fn five(max_unavailable: usize) -> Story {
    Story::on(5)
        .with(Daemon::new().max_unavailable(&max_unavailable.to_string()))
        .allowed(max_unavailable)
}

/// Returns a story on this many nodes with this `max-surge`, so that new pods are created next to old ones.
fn surging(nodes: usize, surge: &str) -> Story {
    let daemon = Daemon::new().without("max-unavailable");
    Story::on(nodes)
        .with(daemon.annotate("max-surge", surge))
        .allowed(0)
        .writing(Writes::Surges)
}

/// Replaces the pod on each of these nodes with a pod that never becomes Ready.
fn break_pods(story: Story, nodes: std::ops::RangeInclusive<usize>) -> Story {
    let story = nodes
        .clone()
        .fold(story.behave(OLD, never_ready()), |story, node| {
            story.delete_pod(node)
        });
    story.until(Check::new("their pods are broken", move |picture| {
        for node in nodes.clone() {
            let name = picture.node(node);
            let living: Vec<_> = picture.living(&name).collect();
            if living.is_empty() || living.iter().any(|pod| picture.is_available_now(pod)) {
                return Err(name.clone());
            }
        }
        Ok(())
    }))
}

fn pool(name: &str) -> Value {
    json!({ "metadata": { "labels": { "pool": name } } })
}

/// Returns a patch that sets the new image and excludes nodes of pool `out` by node affinity.
fn image_without_pool_out() -> Value {
    let mut patch = image_patch(NEW);
    let elsewhere = json!([{ "matchExpressions": [{ "key": "pool", "operator": "NotIn", "values": ["out"] }] }]);
    let required = json!({ "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": elsewhere } });
    patch["spec"]["template"]["spec"]["affinity"] = json!({ "nodeAffinity": required });
    patch
}

/// Returns a story in the middle of a rollout: only the node `updated` has the new image, because a selector limits the rollout to
/// it.
fn mixed(nodes: usize, updated: usize) -> Story {
    Story::on(nodes)
        .patch_node(updated, pool("first"))
        .with(Daemon::new().annotate("selector", "pool=first"))
        .image(NEW)
        .until(replaced([updated]).and(condition("RolloutComplete", "True", "not selected")))
}

/// Returns a patch of partition and selector in a single write, so that the controller never sees only one of the changes.
fn chosen_by(partition: &str, selector: Option<&str>) -> Value {
    let key = |name: &str| format!("{FAMILY}/{name}");
    json!({ "metadata": { "annotations": { key("partition"): partition, key("selector"): selector } } })
}

scenarios! {
    fn a01_given_the_default_strategy_then_every_node_has_a_pod_and_a_deleted_one_comes_back_without_us(pace) {
        Story::on(3)
            .with(Daemon::new().without("max-unavailable"))
            .expect(all_available(3))
            .excuse(2)
            .delete_pod(2)
            .until(replaced([2]).and(all_available(3)))
            .throughout(untouched([1, 3]), pace.pick(600, 4))
            .pod_writes(0)
    }

    /// Kruise's cases 31 and 32. In yurt-ds, an offline node uses no slot, and its pod is replaced only after the node is back.
    fn a08_given_dead_nodes_that_the_new_template_excludes_then_all_others_roll_out_and_their_pods_go_on_return(pace) {
        let excluded = |story: Story| story
            .patch_node(4, pool("out"))
            .patch_node(5, pool("out"))
            .offline([4, 5])
            .excuse(4)
            .excuse(5)
            .patch(image_without_pool_out())
            .until(replaced(1..=3).and(condition("RolloutComplete", "True", ": complete")))
            .online([4, 5])
            .until(pods(3).and(replaced(1..=3)))
            .expect(deletions(3));
        let away = five(2)
            .offline([1, 2, 3])
            .image(NEW)
            .until(replaced([4, 5]).and(condition("RolloutComplete", "True", "3 nodes are offline")))
            .throughout(untouched(1..=3), pace.pick(600, 5))
            .online([1, 2, 3])
            .until(converged())
            .expect(deletions(5));
        vec![excluded(five(2)), excluded(five(1)), away]
    }

    fn a09_given_5_nodes_and_max_unavailable_2_then_two_two_and_one(_pace) {
        five(2)
            .image(NEW)
            .until(converged())
            .expect(deletions(5).and(peak(2)).and(group_by_group([vec![1, 2], vec![3, 4], vec![5]])))
    }

    fn a10_given_5_nodes_and_max_surge_2_then_two_at_a_time_and_nobody_is_without_a_pod(_pace) {
        Story { always_served: true, ..surging(5, "2") }
            .image(NEW)
            .until(converged())
            .expect(deletions(5).and(most_spares(2)).and(spares(0)).and(peak(0)))
    }

    fn a11_given_max_unavailable_3_and_new_pods_that_never_become_ready_then_three_and_no_more(pace) {
        five(3)
            .behave(NEW, never_ready())
            .image(NEW)
            .until(deletions(3))
            .throughout(deletions(3).and(untouched(4..=5)), pace.pick(3600, 8))
    }

    /// Strict budget of three nodes: Kruise would replace all five pods at once, because none of them is Ready.
    fn a12_given_old_pods_that_were_never_ready_then_at_most_three_are_replaced_at_once(pace) {
        break_pods(five(3), 1..=5)
            .remember()
            .behave(NEW, Behaviour { ready_after: secs(pace.pick(60, 6)), ..Behaviour::default() })
            .image(NEW)
            .until(deletions(3))
            .throughout(deletions(3), pace.pick(30, 2))
            .until(converged())
            .expect(deletions(5))
    }

    /// Kruise's case 13 with a strict budget: Kruise would create five new pods at once.
    ///
    /// Case 14: the image changes again within minReadySeconds, while the pod of another node is not Ready.
    fn a13_given_max_surge_3_and_old_pods_that_are_not_ready_then_three_new_ones_at_once_also_for_the_next_image(pace) {
        let broken = break_pods(surging(5, "3"), 1..=5)
            .image(NEW)
            .until(converged())
            .expect(spares(0).and(most_spares(3)));
        let silent = Outage { mark_node: false, mark_pods: true };
        let daemon = Daemon::new().without("max-unavailable").annotate("max-surge", "3");
        let again = Story { daemon: daemon.min_ready(pace.pick(15, 5)), ..surging(5, "3") }
            .image(NEW)
            .until(beside_each_other(1..=3))
            .step(Step::Offline(vec![5], silent))
            .image(NEWER)
            .until(beside_each_other([1]))
            .online([5])
            .until(converged())
            .expect(spares(0).and(most_spares(3)));
        vec![broken, again]
    }

    fn a15_given_a_strategy_that_is_switched_over_an_unchanged_template_then_nobody_is_touched(pace) {
        let kind = |kind: &str| json!({ "spec": { "updateStrategy": { "type": kind } } });
        let adopted = Story::on(3)
            .with(Daemon::plain())
            .annotate("update-strategy", "AdvancedRollingUpdate")
            .until(condition("RolloutComplete", "True", ": complete"))
            .throughout(untouched(1..=3), pace.pick(600, 4))
            .pod_writes(0);
        let to_and_fro = Story::on(3)
            .image(NEW)
            .until(converged())
            .remember()
            .patch(kind("RollingUpdate"))
            .until(condition("InvalidSettings", "True", "updateStrategy.type"))
            .patch(json!({ "spec": { "updateStrategy": { "type": "OnDelete", "rollingUpdate": null } } }))
            .until(not_condition("InvalidSettings").and(condition("RolloutComplete", "True", ": complete")))
            .throughout(untouched(1..=3), pace.pick(600, 4))
            .pod_writes(0);
        vec![adopted, to_and_fro]
    }

    /// Kruise's cases 16 to 23. The limits follow from the number of nodes and the strategy.
    fn a16_given_nodes_and_a_strategy_then_so_many_may_go_and_so_many_come_beside(pace) {
        let down = |nodes: usize, share: &str, most: usize| Story::on(nodes)
            .with(Daemon::new().max_unavailable(share))
            .allowed(most)
            .image(NEW)
            .until(converged())
            .expect(deletions(nodes).and(peak(most)));
        let beside = |nodes: usize, share: &str, most: usize| surging(nodes, share)
            .image(NEW)
            .until(converged())
            .expect(deletions(nodes).and(most_spares(most)).and(peak(0)));
        // A node without a pod is unavailable. It uses the only slot of the budget until its pod can be created.
        let empty = |share: &str| Story::on(2)
            .with(Daemon::new().max_unavailable(share))
            .step(Step::RefusePods(true))
            .excuse(2)
            .delete_pod(2)
            .until(pods(1))
            .image(NEW)
            .until(observed())
            .throughout(no_deletions().and(untouched([1])), pace.pick(300, 4))
            .step(Step::RefusePods(false))
            // The native controller backs off after each rejected pod. A change of the DaemonSet makes it retry immediately.
            .patch(json!({ "metadata": { "labels": { "quota": "lifted" } } }))
            .until(converged())
            .expect(deletions(1));
        let terminating_one = Story::on(3)
            .with(Daemon::new().max_unavailable("50%"))
            .allowed(2)
            .step(Step::TerminateIn(3, secs(20)))
            .excuse(3)
            .delete_pod(3)
            .until(terminating(3))
            .wait(SEEN)
            .image(NEW)
            .until(deletions(1))
            .until(converged())
            .expect(replaced(1..=3).and(deletions(2)).and(in_order([1, 2])));
        vec![
            down(2, "1", 1),
            empty("0"),
            empty("1"),
            down(2, "50%", 1),
            beside(2, "50%", 1),
            beside(2, "100%", 2),
            terminating_one,
        ]
    }

    /// Kruise's cases 26 to 30. The number of kept nodes is the same as in Kruise, but yurt-ds always keeps the last nodes by name.
    fn a26_given_nodes_of_two_revisions_then_partition_and_selector_choose_among_the_others(pace) {
        let nobody_kept = mixed(3, 2)
            .patch(chosen_by("0", None))
            .until(converged())
            .expect(deletions(3).and(in_order([2, 1, 3])));
        let one_kept = mixed(3, 1)
            .patch(chosen_by("1", None))
            .until(replaced(1..=2).and(condition("RolloutComplete", "True", "1 node stays on the old version")))
            .throughout(untouched([3]).and(deletions(2)), pace.pick(600, 4));
        let selected = mixed(4, 2)
            .patch_node(3, pool("next"))
            .patch(chosen_by("1", Some("pool=next")))
            .until(replaced([2, 3]).and(condition("RolloutComplete", "True", "not selected")))
            .throughout(untouched([1, 4]).and(deletions(2)), pace.pick(600, 4));
        let two_kept = mixed(4, 2)
            .patch(chosen_by("2", Some("pool!=first")))
            .until(replaced(1..=2).and(condition("RolloutComplete", "True", "2 nodes stay on the old version")))
            .throughout(untouched([3, 4]).and(deletions(2)), pace.pick(600, 4));
        let one_terminating = mixed(3, 2)
            .step(Step::TerminateIn(3, secs(20)))
            .excuse(3)
            .delete_pod(3)
            .until(terminating(3))
            .wait(SEEN)
            .patch(chosen_by("0", Some("pool!=first")))
            .throughout(untouched([1]), pace.pick(5, 3))
            .until(converged())
            .expect(deletions(2).and(in_order([2, 1])));
        vec![nobody_kept, one_kept, selected, two_kept, one_terminating]
    }

    fn a54_given_a_partition_and_a_kept_pod_deleted_by_hand_then_it_comes_back_new_and_nobody_else_moves(pace) {
        five(1)
            .annotate("partition", "3")
            .image(NEW)
            .until(replaced(1..=2).and(condition("RolloutComplete", "True", "3 nodes stay on the old version")))
            .excuse(4)
            .delete_pod(4)
            .until(replaced([4]).and(all_available(5)))
            .throughout(untouched([3, 5]).and(deletions(2)), pace.pick(600, 5))
            .annotate("partition", "0")
            .until(converged())
            .expect(deletions(4))
    }
}
