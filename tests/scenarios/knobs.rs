//! Settings that exclude or delay nodes on purpose: `partition`, `selector`, holds, maintenance windows, `min-interval`.

use k8s_openapi::jiff::tz::TimeZone;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::guard::{crashing, guarded, is_free};
use crate::support::checks::*;
use crate::support::objects::*;
use crate::support::player::Stage;
use crate::support::story::{Story, secs};
use crate::support::suite::scenarios;

/// Returns a story in which `partition` keeps `keeps` nodes on the old revision, and all other nodes are updated.
fn kept(nodes: usize, partition: &str, keeps: usize) -> Story {
    Story::on(nodes)
        .with(Daemon::new().annotate("partition", partition))
        .image(NEW)
        .until(replaced(1..=nodes - keeps).and(condition(
            "RolloutComplete",
            "True",
            "on the old version: partition ",
        )))
        .expect(untouched(nodes - keeps + 1..=nodes))
}

/// Returns a patch that puts a node on hold for the DaemonSet of the story in the namespace `space`.
fn hold(space: &str, rest: serde_json::Value) -> serde_json::Value {
    let mut entry = json!({ "daemonset": format!("{space}/{DAEMON}") });
    entry
        .as_object_mut()
        .expect("an object")
        .extend(rest.as_object().cloned().unwrap_or_default());
    json!({ "metadata": { "annotations": { format!("{FAMILY}/hold"): json!([entry]).to_string() } } })
}

/// Returns a daily maintenance window that opens at this hour and lasts one hour.
fn window_from(begin: Timestamp) -> String {
    let begin = begin.to_zoned(TimeZone::UTC);
    let end = begin.hour() + 1;
    format!("Mon-Sun {:02}:00-{end:02}:00 UTC", begin.hour())
}

/// Returns a patch that puts a node into this pool.
fn pool(name: &str) -> serde_json::Value {
    json!({ "metadata": { "labels": { "pool": name } } })
}

scenarios! {
    fn s95_given_a_partition_then_exactly_so_many_nodes_keep_the_old_revision_and_lowering_it_continues(pace) {
        let lowered = kept(6, "4", 4)
            .throughout(untouched(3..=6), pace.pick(3600, 5))
            .annotate("partition", "50%")
            .until(replaced(1..=3))
            .expect(untouched(4..=6).and(deletions(3)))
            .annotate("partition", "0")
            .until(converged().and(condition("RolloutComplete", "True", ": complete")))
            .expect(deletions(6));
        // A higher partition doesn't roll back nodes that already run the new version. 50% of five nodes is rounded down to two.
        let raised = kept(5, "50%", 2)
            .annotate("partition", "100%")
            .throughout(deletions(3).and(untouched(4..=5)), pace.pick(600, 5));
        let all = Story::on(3)
            .with(Daemon::new().annotate("partition", "7"))
            .image(NEW)
            .until(condition("RolloutComplete", "True", "3 nodes stay on the old version"))
            .throughout(untouched(1..=3), pace.pick(3600, 5))
            .pod_writes(0);
        // `partition` always keeps the last nodes by name, whichever nodes are online.
        let offline = Story::on(4)
            .with(Daemon::new().annotate("partition", "2"))
            .offline([1])
            .image(NEW)
            .until(replaced([2]))
            .throughout(untouched([1, 3, 4]), pace.pick(600, 5))
            .online([1])
            .until(replaced(1..=2))
            .throughout(untouched(3..=4), pace.pick(600, 5));
        vec![lowered, raised, all, offline]
    }

    fn s95_given_a_canary_and_an_undo_then_partition_does_not_keep_it_on_the_revision_that_was_gone_back_from(_pace) {
        let daemon = || guarded(1, 0).annotate("partition", "3");
        let crashed = Story::on(4)
            .with(daemon())
            .behave(NEW, crashing())
            .image(NEW)
            .until(condition("Stalled", "True", "the new version failed on 1 node"))
            .expect(deletions(1))
            .image(OLD)
            .until(converged().and(is_free()))
            .expect(untouched(2..=4));
        let disliked = Story::on(4)
            .with(daemon())
            .image(NEW)
            .until(replaced([1]).and(condition("RolloutComplete", "True", "3 nodes stay on the old version")))
            .image(OLD)
            .until(converged().and(condition("RolloutComplete", "True", ": complete")))
            .expect(untouched(2..=4).and(deletions(2)));
        vec![crashed, disliked]
    }

    fn s96_given_a_selector_then_only_matching_nodes_change_and_changing_it_continues_the_rollout(pace) {
        Story::on(4)
            .patch_node(1, pool("canary"))
            .patch_node(3, pool("canary"))
            .with(Daemon::new().annotate("selector", "pool=canary"))
            .image(NEW)
            .until(replaced([1, 3]).and(condition("RolloutComplete", "True", "2 nodes are not selected")))
            .throughout(untouched([2, 4]), pace.pick(3600, 5))
            .patch_node(2, pool("canary"))
            .until(replaced(1..=3))
            .annotate("selector", r#"{"matchExpressions": [{"key": "pool", "operator": "DoesNotExist"}]}"#)
            .until(converged().and(condition("RolloutComplete", "True", ": complete")))
            .expect(deletions(4))
    }

    fn s96_given_a_node_that_is_not_selected_and_whose_pod_is_broken_then_it_keeps_that_pod(pace) {
        let broken = never_ready();
        // Node 3 lacks an available pod. It is not selected, so it doesn't count against the budget.
        Story::on(3)
            .allowed(2)
            .with(Daemon::new().annotate("selector", "pool=canary"))
            .patch_node(1, pool("canary"))
            .behave_on(3, OLD, broken)
            .delete_pod(3)
            .until(other_pod([3]))
            .remember()
            .image(NEW)
            .until(replaced([1]).and(condition("RolloutComplete", "True", "2 nodes are not selected")))
            .throughout(untouched(2..=3).and(deletions(1)), pace.pick(3600, 5))
            .unannotate("selector")
            .until(converged())
            .expect(deletions(3))
    }

    fn s101_given_progressive_creation_then_it_is_refused_with_a_clear_message_and_nothing_is_touched(pace) {
        let key = "daemonset.kruise.io/progressive-create-pod";
        let annotation = |value: Option<&str>| json!({ "metadata": { "annotations": { key: value } } });
        Story::on(3)
            .patch(annotation(Some("true")))
            .until(condition("InvalidSettings", "True", "progressive-create-pod is \"true\", which is not supported for native DaemonSets")
                .and(one_event("Warning", "progressive-create-pod")))
            .annotate("partition", "2")
            .image(NEW)
            .throughout(untouched(1..=3).and(one_event("Warning", "progressive-create-pod")), pace.pick(600, 5))
            .pod_writes(0)
            .patch(annotation(None))
            .until(replaced([1]).and(condition("RolloutComplete", "True", "2 nodes stay on the old version")))
    }

    /// Covers the use case of strimzi/proposals#229: a node owner puts a node on hold.
    fn w11_given_a_node_on_hold_then_it_keeps_its_version_until_the_hold_ends_and_nobody_waits_for_it(pace) {
        let end = |stage: Stage| async move {
            let none = json!({ "metadata": { "annotations": { format!("{FAMILY}/hold"): null } } });
            stage.patch_node(2, &none).await
        };
        let by_hand = Story::on(3)
            .does("hold node 2", |stage: Stage| async move {
                stage.patch_node(2, &hold(&stage.name, json!({ "reason": "calibration" }))).await
            })
            .image(NEW)
            .until(replaced([1, 3]).and(condition("RolloutComplete", "True", "1 node is on hold")))
            .throughout(untouched([2]), pace.pick(3600, 5))
            .does("end the hold", end)
            .until(converged().and(condition("RolloutComplete", "True", ": complete")));
        let held = pace.pick(12, 40);
        let by_itself = Story::on(2)
            .does("hold node 1 for a while", move |stage: Stage| async move {
                let until = stage.world.clock.now() + SignedDuration::from_secs(held);
                stage.patch_node(1, &hold(&stage.name, json!({ "until": until.to_string() }))).await
            })
            .image(NEW)
            .until(replaced([2]))
            .expect(untouched([1]))
            .until(converged());
        let unreadable = Story::on(2)
            .patch_node(1, json!({ "metadata": { "annotations": { format!("{FAMILY}/hold"): "please" } } }))
            .image(NEW)
            .until(replaced([2]).and(condition("RolloutComplete", "True", "1 node is on hold: unreadable annotation on ")))
            .until(one_event("Warning", "keeps the outdated pods of all DaemonSets: the annotation apps.openyurt.io/hold is invalid"))
            .throughout(untouched([1]), pace.pick(600, 5));
        vec![by_hand, by_itself, unreadable]
    }

    /// Covers the use case of rancher/system-upgrade-controller#63: updates only within a maintenance window.
    fn w10_given_a_maintenance_window_then_replacements_begin_only_while_it_is_open(pace) {
        let opens_later = Story::on(3)
            .does("close the window", |stage: Stage| async move {
                let begin = stage.world.clock.now() + SignedDuration::from_hours(3);
                let window = window_from(begin);
                stage.patch_daemon(&annotation_patch("maintenance-window", Some(&window))).await
            })
            .image(NEW)
            .until(condition("RolloutComplete", "False", "maintenance window closed; opens "))
            .throughout(untouched(1..=3), pace.pick(600, 8))
            .pod_writes(0)
            // The `maintenance-window` of a Node overrides the one of the DaemonSet, which is closed.
            .patch_node(2, json!({ "metadata": { "annotations": { format!("{FAMILY}/maintenance-window"): "Mon-Sun 00:00-24:00 UTC" } } }))
            .until(replaced([2]))
            .expect(untouched([1, 3]))
            .annotate("maintenance-window", "Mon-Sun 00:00-24:00 UTC")
            .until(converged());
        let unreadable = Story::on(2)
            .with(Daemon::new().annotate("maintenance-window", "at night"))
            .image(NEW)
            .until(condition("InvalidSettings", "True", "lacks days, times or time zone"))
            .throughout(untouched(1..=2), pace.pick(600, 5))
            .pod_writes(0);
        vec![opens_later, unreadable]
    }

    /// Covers the use case of kubernetes/kubernetes#111073: a minimum time between two updates.
    fn w05_given_a_min_interval_then_one_node_at_a_time_and_no_sooner_than_that(_pace) {
        Story::on(4)
            .with(Daemon::new().max_unavailable("100%").annotate("min-interval", "8s"))
            .image(NEW)
            .until(converged())
            .expect(deletions(4).and(peak(1)).and(apart(secs(8))))
    }

    fn ramp_given_a_ramp_up_then_it_begins_with_so_many_nodes_and_doubles(_pace) {
        Story::on(8)
            .with(Daemon::new().max_unavailable("4").annotate("ramp-up", "1"))
            .allowed(4)
            .image(NEW)
            .until(replaced([1]))
            .expect(peak(1))
            .until(converged())
            .expect(deletions(8))
    }

    fn s96_given_a_selector_that_cannot_be_read_then_nothing_is_touched(pace) {
        Story::on(2)
            .with(Daemon::new().annotate("selector", "pool in canary"))
            .image(NEW)
            .until(condition("InvalidSettings", "True", "apps.openyurt.io/selector is \"pool in canary\""))
            .throughout(untouched(1..=2), pace.pick(600, 5))
            .pod_writes(0)
    }
}
