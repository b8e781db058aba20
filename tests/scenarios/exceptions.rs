//! Nodes that a rollout skips unintentionally, and settings that select no node or have no effect.

use serde_json::json;

use crate::support::checks::*;
use crate::support::objects::*;
use crate::support::said::{says, started};
use crate::support::story::{Story, Writes};
use crate::support::suite::scenarios;

/// Returns a patch that adds a taint with this effect. No template in these stories tolerates it.
fn tainted(effect: &str) -> serde_json::Value {
    json!({ "spec": { "taints": [{ "key": "site", "value": "closed", "effect": effect }] } })
}

/// Returns a patch that removes all taints of a node.
fn untainted() -> serde_json::Value {
    json!({ "spec": { "taints": null } })
}

/// Response of an agent that doesn't replace a pod, because no new pod could start on the tainted node.
const NONE_WOULD_COME: &str = "Pre check update pod failed, Pod: {ns}/{pod} is not replaced: this node has a NoSchedule taint \
                               that its DaemonSet does not tolerate, so no new pod would be created. Remove the taint \
                               first, or upgrade with ?force=true and have no pod.";

/// Returns a patch that puts a node into this pool.
fn pool(name: &str) -> serde_json::Value {
    json!({ "metadata": { "labels": { "pool": name } } })
}

/// Returns a story with nodes in these pools and with these waves.
fn pooled(pools: &[&str], waves: &str) -> Story {
    let story = Story::on(pools.len()).with(Daemon::new().annotate("waves", waves));
    let pools = (1..).zip(pools);
    pools.fold(story, |story, (node, name)| {
        story.patch_node(node, pool(name))
    })
}

scenarios! {
    /// openyurtio/openyurt#1222: other nodes of the pool send heartbeats for a disconnected node, so the Node stays Ready.
    fn x06_given_a_node_that_is_cut_off_and_stays_ready_then_it_counts_as_offline(pace) {
        let cut_off = json!({ "spec": { "taints": [{ "key": "node.openyurt.io/unschedulable", "effect": "NoSchedule" }] } });
        Story::on(3)
            .patch_node(2, cut_off)
            .image(NEW)
            .until(replaced([1, 3]).and(condition("RolloutComplete", "True", "complete. 1 node is offline")))
            .throughout(untouched([2]), pace.pick(300, 3))
            .patch_node(2, untainted())
            .until(replaced(1..=3).and(condition("RolloutComplete", "True", ": complete")))
            .expect(deletions(3))
    }

    fn x04_given_an_untolerated_taint_then_the_old_pod_stays_and_complete_names_the_node(pace) {
        let named = Story::on(3)
            .patch_node(2, tainted("NoSchedule"))
            .image(NEW)
            .until(replaced([1, 3]).and(condition("RolloutComplete", "True", "complete. 1 node has an untolerated taint: ")))
            .throughout(untouched([2]).and(deletions(2)), pace.pick(3600, 5))
            // After the rollback, the tainted node runs the current revision, so the condition no longer names that node.
            .image(OLD)
            .until(converged().and(condition("RolloutComplete", "True", ": complete")))
            .until(never_says("RolloutComplete", "untolerated"))
            .image(NEW)
            .until(condition("RolloutComplete", "True", "1 node has an untolerated taint: "))
            .expect(untouched([2]))
            .patch_node(2, untainted())
            .until(converged().and(never_says("RolloutComplete", "untolerated")));
        // A node that gets a taint during the rollout is skipped and doesn't block it.
        let halfway = Story::on(3)
            .offline([3])
            .image(NEW)
            .until(replaced([1, 2]).and(condition("RolloutComplete", "True", "1 node is offline")))
            .patch_node(3, tainted("NoSchedule"))
            .until(condition("RolloutComplete", "True", "complete. 1 node has an untolerated taint: "));
        // Cordoned nodes are updated, because DaemonSet pods tolerate the taint of a cordoned node.
        let cordoned = Story::on(2)
            .patch_node(1, json!({ "spec": { "unschedulable": true } }))
            .image(NEW)
            .until(converged().and(condition("RolloutComplete", "True", ": complete")));
        vec![named, halfway, cordoned]
    }

    fn x05_given_ota_and_a_node_to_which_no_other_pod_would_come_then_its_agent_refuses_unless_forced(pace) {
        let waits = || {
            Story::on(2)
                .with(Daemon::new().strategy("OTA"))
                .writing(Writes::Conditions)
                .only_wished()
                .until(need_upgrade(1..=2, false))
                .agent(1)
                .patch_node(1, tainted("NoSchedule"))
                .image(NEW)
                .until(need_upgrade(1..=2, true))
                .until(announced_because(1, "UntoleratedTaint").and(announced_because(2, "")))
        };
        let freed = waits()
            .post_until(1, "upgrade", says(409, NONE_WOULD_COME).because("UntoleratedTaint"))
            .throughout(untouched(1..=2), pace.pick(600, 5))
            .patch_node(1, untainted())
            .until(need_upgrade([1], true).and(announced_because(1, "")))
            .post_until(1, "upgrade", started())
            .until(runs_current(1));
        let forced = waits()
            .post_until(1, "upgrade", says(409, NONE_WOULD_COME).because("UntoleratedTaint"))
            .excuse(1)
            .post(1, "upgrade?force=true", started())
            .until(pods(1));
        vec![freed, forced]
    }

    fn x07_given_a_selector_of_nobody_then_nothing_is_touched_before_a_node_has_such_a_label(pace) {
        Story::on(3)
            .with(Daemon::new().annotate("selector", "pool=canray"))
            .patch_node(1, pool("canary"))
            .image(NEW)
            .until(condition(
                "InvalidSettings",
                "True",
                "matches none of the 3 nodes that should run a pod; similar labels: pool=canary;",
            ))
            .until(event("Warning", "matches none of"))
            .throughout(untouched(1..=3).and(one_event("Warning", "matches none of")), pace.pick(3600, 5))
            .pod_writes(0)
            .patch_node(2, pool("canray"))
            .until(replaced([2]).and(condition("RolloutComplete", "True", "2 nodes are not selected")))
            .until(not_condition("InvalidSettings"))
            .expect(untouched([1, 3]))
    }

    fn x07_given_a_wave_of_nobody_then_no_wave_opens_unless_it_may_be_empty(pace) {
        let typed = pooled(&["canary", "field", "field"], "[{name: canary, selector: pool=canray}]")
            .image(NEW)
            .until(condition("InvalidSettings", "True", "so wave canary has no nodes"))
            .until(event("Warning", "matches none of"))
            .throughout(untouched(1..=3).and(one_event("Warning", "matches none of")), pace.pick(3600, 5))
            .pod_writes(0)
            .annotate("waves", "[{name: canary, selector: pool=canray, allowEmpty: true}]")
            .until(converged().and(condition("RolloutComplete", "True", ": complete")));
        // An empty wave is an error only for the next revision. The current rollout stays complete.
        let lost = pooled(&["canary", "field"], "[{name: canary, selector: pool=canary}]")
            .image(NEW)
            .until(converged().and(condition("RolloutComplete", "True", ": complete")))
            .patch_node(1, pool("field"))
            .throughout(condition("RolloutComplete", "True", ": complete"), pace.pick(600, 5))
            .remember()
            .image(NEWER)
            .until(condition("InvalidSettings", "True", "matches none of the 2 nodes"))
            .throughout(untouched(1..=2), pace.pick(600, 5))
            .patch_node(2, pool("canary"))
            .until(converged().and(group_by_group([vec![2], vec![1]])));
        vec![typed, lost]
    }

    fn x08_given_settings_that_do_nothing_on_an_ondelete_daemonset_then_one_event_says_so(pace) {
        let slip = Story::on(2)
            .with(Daemon::plain().annotate("update-stategy", "AdvancedRollingUpdate").annotate("max-unavailable", "1"))
            .until(event("Warning", "similar setting: apps.openyurt.io/update-strategy"))
            .image(NEW)
            .throughout(untouched(1..=2).and(one_event("Warning", "Its pods are not replaced")), pace.pick(3600, 5))
            .pod_writes(0)
            .annotate("update-strategy", "AdvancedRollingUpdate")
            .until(converged().and(condition("RolloutComplete", "True", ": complete")));
        // Other projects use annotations with the same prefix. The controller must not report them as unknown settings.
        let others = Story::on(1)
            .with(Daemon::plain().annotate("nodepool", "hangzhou").annotate("binding", "true"))
            .image(NEW)
            .throughout(untouched([1]).and(at_most_events("Warning", "", 0)), pace.pick(600, 5));
        vec![slip, others]
    }
}
