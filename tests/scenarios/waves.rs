//! Order of updates. First come nodes with a superseded revision, then the waves (pools of nodes, one after another), then one
//! failure domain after another.

use anyhow::Context as _;
use serde_json::json;

use crate::support::checks::*;
use crate::support::objects::*;
use crate::support::player::Stage;
use crate::support::story::{Scenario, Step, Story, Writes, secs};
use crate::support::suite::scenarios;
use crate::support::typed::ctl;
use yurt_ds::sim::kubelet::Behaviour;

/// Returns a story in which nodes 1 and 2 of four have the new image, and `partition` stops the rollout there.
fn half_way() -> Story {
    Story::on(4)
        .with(Daemon::new().annotate("partition", "2"))
        .image(NEW)
        .until(replaced(1..=2).and(condition(
            "RolloutComplete",
            "True",
            "2 nodes stay on the old version",
        )))
        .remember()
}

/// Returns a patch that removes `partition` and sets another image.
fn without_partition(image: &str) -> serde_json::Value {
    let mut patch = image_patch(image);
    patch["metadata"] = json!({ "annotations": { format!("{FAMILY}/partition"): null } });
    patch
}

/// Returns a story with nodes in these zones; an empty name stands for no zone. Only the zones limit the number of nodes that are
/// updated at the same time.
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

/// Returns waves in which nodes of pool `canary` are first. All other nodes follow after this soak time in seconds.
fn canary_first(soak: u64) -> String {
    format!("[{{name: canary, selector: pool=canary, maxUnavailable: 100%, soak: {soak}s}}]")
}

/// Returns a story with nodes in these pools and with these waves. Only the waves limit the number of nodes that are updated at the
/// same time.
fn pooled(pools: &[&str], waves: &str) -> Story {
    let daemon = Daemon::new()
        .max_unavailable("100%")
        .annotate("waves", waves);
    let story = Story::on(pools.len()).allowed(pools.len()).with(daemon);
    (1..).zip(pools).fold(story, |story, (node, pool)| {
        story.patch_node(node, json!({ "metadata": { "labels": { "pool": pool } } }))
    })
}

scenarios! {
    /// Covers the use case of zone-aware-controllers#6: nodes whose revision was superseded before its rollout was complete are
    /// updated first.
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

    /// Covers the use case of kubernetes/kubernetes#114010: zones are updated one after another.
    fn w08_given_a_topology_key_then_one_zone_after_the_other_in_alphabetical_order(pace) {
        let plain = zoned(&["b", "a", "b", "a"])
            .image(NEW)
            .until(converged())
            .expect(deletions(4).and(group_by_group([vec![2, 4], vec![1, 3]])));
        // Node 4 is offline. It doesn't block the other nodes, and it is updated after its return.
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
            .behave(NEW, never_ready())
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
            .until(replaced(1..=3).and(condition("RolloutComplete", "True", "1 node stays on the old version")))
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

    /// Covers the use case of openyurtio/openyurt#2008: pools are updated one after another. A pool must stay healthy for the soak
    /// time before the next one is updated.
    fn w07_given_waves_then_a_pool_follows_when_the_one_before_is_done_and_has_soaked(pace) {
        let soak = pace.pick(120, 8);
        let plain = pooled(&["field", "canary", "field", "canary"], &canary_first(soak))
            .image(NEW)
            .until(replaced([2, 4]))
            .throughout(untouched([1, 3]), pace.pick(60, 2))
            .until_within(converged(), 400)
            .expect(deletions(4).and(group_by_group([vec![2, 4], vec![1, 3]])));
        // Canary 4 is offline. Its wave completes without it, and it is updated after its return.
        let away = pooled(&["field", "canary", "field", "canary"], &canary_first(0))
            .offline([4])
            .image(NEW)
            .until(replaced([1, 2, 3]).and(condition("RolloutComplete", "True", "1 node is offline")))
            .expect(group_by_group([vec![2], vec![1, 3]]))
            .online([4])
            .until(converged());
        let unreadable = pooled(&["canary", "field"], "[{name: canary, selector: pool=canary, soak: soon}]")
            .image(NEW)
            .until(condition("InvalidSettings", "True", "waves[0].soak is \"soon\""))
            .throughout(untouched(1..=2), pace.pick(600, 5))
            .pod_writes(0);
        vec![plain, away, unreadable]
    }

    fn w07_given_a_late_returner_then_it_is_served_while_a_later_wave_goes_on(pace) {
        // The field wave updates its slow nodes one at a time. Canary 2 returns while that wave is in progress.
        let slow = Behaviour { ready_after: secs(pace.pick(60, 6)), ..Behaviour::default() };
        pooled(&["canary", "canary", "field", "field", "field"], &canary_first(0))
            .behave_on(3, NEW, slow.clone())
            .behave_on(4, NEW, slow.clone())
            .behave_on(5, NEW, slow)
            .annotate("max-unavailable", "1")
            .offline([2])
            .image(NEW)
            .until(replaced([1, 3]))
            .online([2])
            .until_within(converged(), 600)
            .expect(deletions(5).and(group_by_group([vec![1], vec![3], vec![2, 4, 5]])))
    }

    fn w07_given_a_wave_that_needs_an_approval_then_it_opens_for_the_approved_revision_alone(pace) {
        let waves = "[{name: canary, selector: pool=canary}, {name: field, selector: {}, approve: manual}]";
        let approve = |stage: Stage| async move {
            let hash = stage.see(|picture| picture.current().cloned()).await.context("no revision")?;
            stage.patch_daemon(&annotation_patch("approved-waves", Some(&format!("field@{hash}")))).await
        };
        pooled(&["canary", "field"], waves)
            .image(NEW)
            .until(replaced([1]).and(condition("Progressing", "True", "waiting for the approval of wave field")))
            .throughout(untouched([2]), pace.pick(3600, 5))
            .annotate("approved-waves", "field@0123456789")
            .throughout(untouched([2]), pace.pick(600, 5))
            .does("approve the wave", approve)
            .until(converged())
            .expect(deletions(2))
            .remember()
            .image(NEWER)
            .until(replaced([1]).and(condition("Progressing", "True", "waiting for the approval of wave field")))
            .throughout(untouched([2]), pace.pick(600, 5))
            .does("approve the wave again", approve)
            .until(converged())
    }

    fn w07_given_a_rollback_while_a_wave_waits_then_only_the_first_wave_goes_back(pace) {
        pooled(&["field", "canary", "field"], &canary_first(3600))
            .image(NEW)
            .until(replaced([2]))
            .throughout(untouched([1, 3]), pace.pick(600, 5))
            .remember()
            .image(OLD)
            .until(replaced([2]).and(converged()))
            .expect(untouched([1, 3]).and(deletions(1)))
    }

    fn w07_given_waves_with_partition_selector_and_pause_then_all_of_them_hold(pace) {
        pooled(&["field", "canary", "field", "canary", "other"], &canary_first(0))
            .annotate("selector", "pool in (field,canary)")
            .annotate("partition", "2")
            .annotate("paused", "true")
            .image(NEW)
            .until(condition("Paused", "True", "paused"))
            .throughout(untouched(1..=5), pace.pick(600, 5))
            .unannotate("paused")
            // `partition` keeps the last two nodes by name, regardless of the waves.
            .until(replaced(1..=3).and(condition("RolloutComplete", "True", "complete. ")))
            .expect(untouched(4..=5).and(group_by_group([vec![2], vec![1, 3]])))
    }

    fn w07_given_a_controller_that_restarts_during_a_soak_then_the_soak_goes_on(pace) {
        let soak = pace.pick(120, 15);
        let story = pooled(&["field", "canary"], &canary_first(soak))
            .image(NEW)
            .until(replaced([2]))
            .controller(false)
            .wait(3)
            .controller(true)
            .throughout(untouched([1]), pace.pick(60, 3))
            .until_within(converged(), 400)
            .expect(deletions(2).and(apart(secs(soak))));
        Scenario::from(story).alone()
    }

    /// A maintenance window delays the updates of its node. Until then, the node's wave is incomplete, and the next wave stays
    /// closed.
    fn w07_given_waves_and_maintenance_windows_then_both_have_to_be_open(pace) {
        let shut = "Mon 00:00-00:01 UTC";
        let open = "Mon-Sun 00:00-24:00 UTC";
        let on_node = |window: Option<&str>| json!({ "metadata": { "annotations": { format!("{FAMILY}/maintenance-window"): window } } });
        pooled(&["field", "canary", "field", "canary"], &canary_first(0))
            .annotate("maintenance-window", open)
            .patch_node(2, on_node(Some(shut)))
            .patch_node(3, on_node(Some(shut)))
            .image(NEW)
            .until(replaced([4]))
            .throughout(untouched(1..=3), pace.pick(3600, 5))
            .patch_node(2, on_node(None))
            .until(replaced([1, 2]).and(condition("RolloutComplete", "False", "maintenance window closed; opens ")))
            .throughout(untouched([3]), pace.pick(600, 5))
            .patch_node(3, on_node(None))
            .until(converged())
            .expect(deletions(4).and(group_by_group([vec![4], vec![2], vec![1], vec![3]])))
    }

    /// As in Kruise, a pod that waits for its hook counts as outdated, so its wave is incomplete.
    fn w07_given_waves_and_hooks_then_the_next_pool_is_asked_when_the_one_before_is_done(pace) {
        let hook = r#"{"preDelete": {"labelsHandler": {"example.io/drain": "true"}}}"#;
        let free = |node| Step::PatchPod(node, json!({ "metadata": { "labels": { "example.io/drain": null } } }));
        let story = pooled(&["field", "canary", "field", "canary"], &canary_first(0));
        let daemon = story.daemon.clone().annotate("lifecycle", hook).pod_label("example.io/drain", "true");
        Story { daemon, ..story }
            .writing(Writes::Marks)
            .image(NEW)
            .until(preparing([2, 4]))
            .step(free(4))
            .until(replaced([4]))
            .throughout(untouched(1..=3).and(preparing([2])), pace.pick(600, 5))
            .step(free(2))
            .until(replaced([2]).and(preparing([1, 3])))
            // After a rollback, pods 1 and 3 lose their marks and stay. The canaries run the revision that is rolled back, so they
            // are marked.
            .image(OLD)
            .until(preparing([2, 4]))
            .throughout(untouched([1, 3]), pace.pick(60, 3))
            .step(free(2))
            .step(free(4))
            .until(converged())
            .expect(untouched([1, 3]).and(deletions(4)))
    }

    /// A failed node of the first wave keeps all later waves closed, even though the guard's threshold allows one failure.
    fn w07_given_waves_and_a_charged_node_then_no_later_wave_opens_until_another_revision_comes(pace) {
        let crashing = Behaviour { crash_after: Some(secs(1)), never_ready: true, ..Behaviour::default() };
        let panics = Behaviour { kills_node_after: Some(secs(1)), ..Behaviour::default() };
        let charged = |bad: Behaviour, min_ready: u64| {
            let story = pooled(&["field", "canary", "canary", "field"], &canary_first(0));
            let daemon = story.daemon.clone().annotate("failure-threshold", "2").min_ready(min_ready);
            Story { daemon, ..story }
                .behave_on(2, NEW, bad)
                .image(NEW)
                .until(replaced([3]).and(condition("Guard", "False", "failed: ")))
                .throughout(untouched([1, 4]).and(deletions(2)), pace.pick(1800, 6))
        };
        let crashed = charged(crashing, 0)
            .image(NEWER)
            .until(converged().and(not_condition("Guard")))
            .expect(replaced(1..=4));
        let stalled = || condition("Stalled", "True", "rollout stopped before wave rest: the new version failed on 1 node (limit 2): ");
        let lost = charged(panics.clone(), pace.pick(30, 8))
            .until(stalled())
            .image(NEWER)
            .until(replaced([1, 3, 4]))
            .behave_on(2, NEW, Behaviour::default())
            .online([2])
            .until(converged());
        // The failed Node is deleted, as operators do with broken machines. The later waves must stay closed.
        let gone = charged(panics.clone(), pace.pick(30, 8))
            .until(stalled())
            .step(Step::RemoveNode(2))
            .throughout(untouched([1, 4]).and(deletions(2)).and(stalled()), pace.pick(300, 8))
            .image(NEWER)
            .until(replaced([1, 3, 4]).and(not_condition("Guard")));
        // The failed node moves to another pool. The later waves must stay closed.
        let relabelled = charged(panics, pace.pick(30, 8))
            .until(stalled())
            .patch_node(2, json!({ "metadata": { "labels": { "pool": "field" } } }))
            .throughout(untouched([1, 4]).and(deletions(2)).and(stalled()), pace.pick(300, 8))
            .does("resume", |stage| async move {
                let (said, ended) = ctl(&stage, &format!("resume {DAEMON}")).await?;
                anyhow::ensure!(ended.is_ok() && said.contains("continues. The guard no longer stops it"), "{said}");
                Ok(())
            })
            .until(replaced([1, 3, 4]));
        vec![crashed, lost, gone, relabelled]
    }
}
