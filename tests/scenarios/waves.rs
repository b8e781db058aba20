//! Who goes before whom: the revision that was overtaken, waves of nodes, one failure domain after the other.

use serde_json::json;

use crate::support::checks::*;
use crate::support::objects::*;
use crate::support::story::{Scenario, Story};
use crate::support::suite::scenarios;
use yurt_ds::sim::kubelet::Behaviour;

/// Nodes 1 and 2 of four have the new image, and the rollout goes no further.
fn half_way() -> Story {
    Story::on(4)
        .with(Daemon::new().annotate("partition", "2"))
        .image(NEW)
        .until(replaced(1..=2).and(condition("RolloutComplete", "True", "held by partition: 2")))
        .remember()
}

/// Everybody takes part, and the image is another one.
fn without_partition(image: &str) -> serde_json::Value {
    let mut patch = image_patch(image);
    patch["metadata"] = json!({ "annotations": { format!("{FAMILY}/partition"): null } });
    patch
}

/// A fleet whose nodes lie in these zones (none where the text is empty) and may all be down at once, but for the zones.
fn zoned(zones: &[&str]) -> Story {
    let story = Story::on(zones.len()).allowed(zones.len()).with(
        Daemon::new()
            .max_unavailable("100%")
            .annotate("topology-key", "zone"),
    );
    let zones = (1..).zip(zones).filter(|(_, zone)| !zone.is_empty());
    zones.fold(story, |story, (node, zone)| {
        story.patch_node(node, json!({ "metadata": { "labels": { "zone": zone } } }))
    })
}

scenarios! {
    /// spec/beyond.md §2, wish 9.
    fn w09_given_a_revision_that_is_overtaken_then_its_nodes_go_first_and_the_last_updated_before_all(_pace) {
        let overtaken = half_way()
            .patch(without_partition(NEWER))
            .until(converged())
            .expect(in_order([2, 1, 3, 4]));
        let away = half_way()
            .offline([2])
            .patch(without_partition(NEWER))
            .until(replaced([1, 3, 4]))
            .expect(in_order([1, 3, 4]))
            .online([2])
            .until(converged());
        vec![overtaken, away]
    }

    fn w09_given_a_rollback_in_the_middle_then_the_last_updated_goes_back_first_and_nobody_else_moves(_pace) {
        half_way()
            .patch(without_partition(OLD))
            .until(replaced(1..=2).and(converged()))
            .expect(in_order([2, 1]).and(untouched(3..=4)))
    }

    fn w09_given_a_controller_that_restarts_in_the_middle_then_the_order_stays(_pace) {
        let story = half_way()
            .controller(false)
            .patch(without_partition(NEWER))
            .until(observed())
            .controller(true)
            .until(converged())
            .expect(in_order([2, 1, 3, 4]));
        Scenario::from(story).alone()
    }

    /// spec/beyond.md §2, wish 8.
    fn w08_given_a_topology_key_then_one_zone_after_the_other_in_alphabetical_order(pace) {
        let plain = zoned(&["b", "a", "b", "a"])
            .image(NEW)
            .until(converged())
            .expect(deletions(4).and(group_by_group([vec![2, 4], vec![1, 3]])));
        // Who is away holds nobody up, and has its turn on its return.
        let away = zoned(&["b", "a", "b", "a"])
            .offline([4])
            .image(NEW)
            .until(replaced([1, 2, 3]))
            .expect(group_by_group([vec![2], vec![1, 3]]))
            .online([4])
            .until(converged());
        let two = zoned(&["c", "b", "", "a"])
            .annotate("max-domains", "2")
            .image(NEW)
            .until(converged())
            .expect(deletions(4).and(peak(2)));
        let unreadable = zoned(&["a", "b"])
            .annotate("topology-key", "the zone")
            .image(NEW)
            .until(condition("InvalidSettings", "True", "topology-key is \"the zone\""))
            .throughout(untouched(1..=2), pace.pick(600, 5))
            .pod_writes(0);
        vec![plain, away, two, unreadable]
    }

    fn w08_given_a_node_that_does_not_come_up_then_its_zone_is_held_until_a_rollback(pace) {
        zoned(&["a", "a", "b", "b"])
            .behave(NEW, Behaviour { never_ready: true, ..Behaviour::default() })
            .image(NEW)
            .until(deletions(2))
            .throughout(untouched(3..=4), pace.pick(60, 8))
            .image(OLD)
            .until(converged())
            .expect(untouched(3..=4))
    }

    fn w08_given_zones_with_partition_selector_and_pause_then_all_of_them_hold(pace) {
        zoned(&["a", "b", "b", "a"])
            .annotate("selector", "zone in (a,b)")
            .annotate("partition", "1")
            .annotate("paused", "true")
            .image(NEW)
            .until(condition("Paused", "True", "paused"))
            .throughout(untouched(1..=4), pace.pick(600, 5))
            .unannotate("paused")
            .until(replaced(1..=3).and(condition("RolloutComplete", "True", "held by partition: 1")))
            .expect(untouched([4]).and(group_by_group([vec![1], vec![2, 3]])))
    }

    fn w08_given_a_controller_that_restarts_in_the_middle_then_the_turns_go_on(_pace) {
        let story = zoned(&["b", "a", "b", "a"])
            .image(NEW)
            .until(deletions_begun())
            .controller(false)
            .wait(2)
            .controller(true)
            .until(converged())
            .expect(deletions(4).and(group_by_group([vec![2, 4], vec![1, 3]])));
        Scenario::from(story).alone()
    }
}
