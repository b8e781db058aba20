//! OTA mode: pod conditions announce available updates to node owners.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::support::checks::*;
use crate::support::objects::*;
use crate::support::player::Stage;
use crate::support::story::{Story, Writes};
use crate::support::suite::scenarios;

/// Returns a story on three nodes in OTA mode. The story waits until the conditions of all pods say that they are up to date.
fn ota() -> Story {
    Story::on(3)
        .with(Daemon::new().strategy("OTA"))
        .writing(Writes::Conditions)
        .until(need_upgrade(1..=3, false))
}

/// Number of conditions that another client writes to each pod.
const BESIDE: usize = 12;

/// Writes conditions to every pod, one after another, as a busy kubelet might. The image changes during these writes.
async fn write_beside(stage: Stage) -> anyhow::Result<()> {
    for number in 1..=BESIDE {
        for node in 1..=3 {
            let pod = stage.pod_on(node).await?;
            let condition =
                json!({ "type": format!("example.com/beside-{number}"), "status": "True" });
            let patch = Patch::Strategic(json!({ "status": { "conditions": [condition] } }));
            let pods = stage.api::<Pod>();
            pods.patch_status(&pod.name_any(), &PatchParams::default(), &patch)
                .await?;
        }
        if number == 4 {
            stage.patch_daemon(&image_patch(NEW)).await?;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Checks that no pod has lost a condition that the other client wrote.
fn kept_beside() -> Check {
    Check::new("what was written beside is kept", |picture| {
        for pod in picture.pods() {
            for number in 1..=BESIDE {
                let kind = format!("example.com/beside-{number}");
                if crate::support::picture::condition_of(pod, &kind).is_none() {
                    return Err(format!("{kind} is lost on {}", pod.name_any()));
                }
            }
        }
        Ok(())
    })
}

scenarios! {
    vary because "conditions are patched into the status of pods, whose validation and whose own conditions changed (observedGeneration)";
    fn s53_given_ota_and_a_fresh_rollout_then_every_pod_has_podneedupgrade_false_and_after_the_image_change_true_with_the_hash(pace) {
        ota()
            .remember()
            .image(NEW)
            .until(need_upgrade(1..=3, true))
            .throughout(need_upgrade(1..=3, true).and(untouched(1..=3)), pace.pick(3600, 8))
            .pod_writes(3)
    }

    fn s54_given_a_rollback_before_anybody_upgraded_then_false_again_no_restarts(pace) {
        ota()
            .image(NEW)
            .until(need_upgrade(1..=3, true))
            .image(OLD)
            .until(need_upgrade(1..=3, false))
            .throughout(untouched(1..=3), pace.pick(600, 5))
    }

    fn s55_given_a_second_image_change_then_still_true_newest_hash_lasttransitiontime_unchanged(_pace) {
        ota()
            .image(NEW)
            .until(need_upgrade(1..=3, true))
            .remember()
            .wait(3)
            .image(NEWER)
            .until(another_revision().and(need_upgrade(1..=3, true)))
            .expect(transitions_unchanged(1..=3))
            .image(OLD)
            .until(need_upgrade(1..=3, false))
    }

    fn s56_given_a_notready_node_then_the_condition_of_its_pod_is_updated_in_the_api_too(_pace) {
        ota().offline([2]).image(NEW).until(need_upgrade(1..=3, true)).expect(untouched(1..=3))
    }

    fn s57_given_the_kubelet_writing_pod_status_at_the_same_time_then_neither_sides_conditions_are_lost(_pace) {
        ota()
            .does("write conditions beside", write_beside)
            .until(need_upgrade(1..=3, true).and(kept_beside()))
    }

    fn s58_given_a_pod_created_after_the_change_then_false_within_seconds(pace) {
        ota()
            .image(NEW)
            .until(need_upgrade(1..=3, true))
            .delete_pod(2)
            .until(runs_current(2))
            .until_within(need_upgrade([2], false).and(need_upgrade([1, 3], true)), pace.pick(5, 15))
    }

    fn s59_given_ota_to_advancedrollingupdate_then_conditions_are_removed_and_the_rollout_proceeds(_pace) {
        ota()
            .image(NEW)
            .until(need_upgrade(1..=3, true))
            .annotate("update-strategy", "AdvancedRollingUpdate")
            .until(converged().and(no_ota_conditions()))
            .expect(deletions(3).and(peak(1)))
    }

    fn s60_given_steady_state_for_an_hour_then_zero_status_writes(pace) {
        let settled = pace.pick(3, 8);
        let rolled = Story::on(3).image(NEW).until(converged()).until(condition("RolloutComplete", "True", ": complete"));
        vec![
            ota().wait(settled).quiet(3600, 20),
            ota().image(NEW).until(need_upgrade(1..=3, true)).wait(settled).quiet(3600, 20),
            rolled.wait(settled).quiet(3600, 20),
        ]
    }
}
