//! Who goes before whom: the revision that was overtaken, waves of nodes, one failure domain after the other.

use serde_json::json;

use crate::support::checks::*;
use crate::support::objects::*;
use crate::support::story::Story;
use crate::support::suite::scenarios;

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
        crate::support::story::Scenario::from(story).alone()
    }
}
