//! `max-surge`: a new pod is created next to the old one, so that each node always has an available pod.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use yurt_ds::sim::cluster::{Fault, RequestInfo};
use yurt_ds::sim::kubelet::{Behaviour, Outage};

use super::guard::evicting;
use crate::support::checks::*;
use crate::support::objects::*;
use crate::support::player::Stage;
use crate::support::story::{NO_FAULT_POINTS, Scenario, Step, Story, Writes, secs};
use crate::support::suite::scenarios;
use crate::support::world::Moment;

/// Returns a DaemonSet with this `max-surge` and without `max-unavailable`.
fn surging(surge: &str) -> Daemon {
    let daemon = Daemon::new().without("max-unavailable");
    daemon.annotate("max-surge", surge)
}

/// Returns a story on this many nodes with this `max-surge`. Every node must have an available pod all the time.
fn fleet(nodes: usize, surge: &str) -> Story {
    Story::on(nodes)
        .with(surging(surge))
        .allowed(0)
        .writing(Writes::Surges)
        .always_served()
}

/// Returns the behavior of pods that take this many seconds to become Ready.
fn slow(seconds: u64) -> Behaviour {
    Behaviour {
        ready_after: Duration::from_secs(seconds),
        ..Behaviour::default()
    }
}

/// Checks that the rollout completes, that no surge pod is left, and that no node lacked a pod because of the controller.
fn ends_well(story: Story) -> Story {
    story
        .until(converged().and(condition("RolloutComplete", "True", ": complete")))
        .expect(spares(0).and(peak(0)))
        .expect(never_says("Guard", "replaced twice"))
}

/// Returns a rule that rejects the first deletion of each pod with a conflict, as if the pod had changed.
fn refuses_once() -> impl Fn(&RequestInfo) -> Fault + Send + Sync {
    let refused = Mutex::new(BTreeSet::new());
    move |request| {
        let is_deletion = (request.verb.as_str(), request.resource.as_str()) == ("delete", "pods");
        let mut refused = refused.lock().expect("nobody panics while refusing");
        if is_deletion && refused.insert(request.name.clone()) {
            Fault::Status(409, None)
        } else {
            Fault::Pass
        }
    }
}

fn killed_at(number: usize, moment: Moment) -> Story {
    let story = fleet(3, "1")
        .does("lie in wait for a write", move |stage| async move {
            stage.world.backend.kill_at(number, moment)
        })
        .image(NEW);
    ends_well(story)
}

/// Waits until no pod of the DaemonSet is left.
async fn all_gone(stage: Stage) -> anyhow::Result<()> {
    let pods: Api<Pod> = stage.api();
    for _ in 0..600 {
        if pods.list(&ListParams::default()).await?.items.is_empty() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    anyhow::bail!("there are pods left")
}

/// Removes the hook's label from the old pod of node 1, so that the pod may be deleted.
async fn take_hook_off(stage: Stage) -> anyhow::Result<()> {
    let node = stage.node(1);
    let old = stage
        .see(|picture| picture.remembered(&node).cloned())
        .await;
    let pods: Api<Pod> = stage.api();
    let listed = pods.list(&ListParams::default()).await?.items;
    let found = listed.into_iter().find(|pod| pod.metadata.uid == old);
    let name = found.and_then(|pod| pod.metadata.name);
    let patch = json!({ "metadata": { "labels": { "example.io/drain": null } } });
    let patch = Patch::Merge(patch);
    pods.patch(
        &name.context("the old pod")?,
        &PatchParams::default(),
        &patch,
    )
    .await?;
    Ok(())
}

/// Outage of a kubelet that changes neither the Node nor its pods.
pub(crate) const HUNG: Outage = Outage {
    mark_node: false,
    mark_pods: false,
};

/// Returns a story on two nodes. Node 1 has an old and a new pod. The old pod waits for its hook and is therefore not Ready.
fn asked_and_not_ready(throughout: u64) -> Story {
    const HOOK: &str = r#"{"preDelete": {"labelsHandler": {"example.io/drain": "true"}, "markPodNotReady": true}}"#;
    let daemon = surging("1").annotate("lifecycle", HOOK);
    let daemon = daemon
        .pod_label("example.io/drain", "true")
        .gate("KruisePodReady");
    Story {
        daemon,
        ..fleet(2, "1")
    }
    .image(NEW)
    .until(preparing([1]))
    .throughout(
        untouched(1..=2).and(spares(1)).and(preparing([1])),
        throughout,
    )
}

/// Removes the label `app` from the new pod on node 1, as an operator would do to remove the pod from the DaemonSet and inspect it.
async fn take_out(stage: Stage) -> anyhow::Result<()> {
    let pods: Api<Pod> = stage.api();
    let listed = pods.list(&ListParams::default()).await?.items;
    let of_revision = |pod: &Pod| {
        let mut owners = pod.metadata.owner_references.iter().flatten();
        owners.any(|owner| owner.kind == "ControllerRevision")
    };
    let taken = listed.into_iter().find(of_revision).context("a new pod")?;
    let patch = Patch::Merge(json!({ "metadata": { "labels": { "app": "taken-out" } } }));
    let name = taken.metadata.name.context("a name")?;
    pods.patch(&name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Deletes the pod that [`take_out`] has removed from the DaemonSet.
async fn put_away(stage: Stage) -> anyhow::Result<()> {
    let pods: Api<Pod> = stage.api();
    let taken = ListParams::default().labels("app=taken-out");
    for pod in pods.list(&taken).await?.items {
        // The pod must have no owner. Otherwise the garbage collector would delete it together with its ControllerRevision.
        let owners = pod.metadata.owner_references.unwrap_or_default();
        anyhow::ensure!(owners.is_empty(), "it still has owners: {owners:?}");
        stage.excuse(&pod.metadata.uid.unwrap_or_default()).await;
        let name = pod.metadata.name.context("a name")?;
        pods.delete(&name, &DeleteParams::default()).await?;
    }
    Ok(())
}

/// Name of the first of two DaemonSets. The second one has the same selector and takes over the pods and revisions.
const ELDER: &str = "elder";

async fn begin_with_another(stage: Stage) -> anyhow::Result<()> {
    stage.delete_daemon(&DeleteParams::background()).await?;
    let mut elder = surging("1").manifest(&stage.name);
    elder["metadata"]["name"] = ELDER.into();
    let elder: DaemonSet = serde_json::from_value(elder)?;
    let daemons: Api<DaemonSet> = stage.api();
    daemons.create(&PostParams::default(), &elder).await?;
    Ok(())
}

async fn inherit(stage: Stage) -> anyhow::Result<()> {
    let orphan = DeleteParams {
        propagation_policy: Some(kube::api::PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    let daemons: Api<DaemonSet> = stage.api();
    daemons.delete(ELDER, &orphan).await?;
    for _ in 0..600 {
        if daemons.get_opt(ELDER).await?.is_none() {
            return stage.create_daemon(&surging("1")).await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    anyhow::bail!("the DaemonSet {ELDER} is still there")
}

/// Deletes the remembered old pod of node 1, as another client might.
fn old_pod_deleted(story: Story) -> Story {
    story.does("delete the old pod", |stage| async move {
        let node = stage.node(1);
        let old = stage
            .see(|picture| picture.remembered(&node).cloned())
            .await;
        let old = old.expect("an old pod");
        stage.excuse(&old).await;
        let pods: Api<Pod> = stage.api();
        let list = pods.list(&ListParams::default()).await?;
        let name = (list.items.into_iter())
            .find(|pod| pod.metadata.uid.as_ref() == Some(&old))
            .and_then(|pod| pod.metadata.name);
        let name = name.expect("it is there");
        pods.delete(&name, &DeleteParams::default()).await?;
        Ok(())
    })
}

scenarios! {
    vary because "before 1.33 the native controller learns of changes of several pods out of their order";
    also on minor version 28;

    /// Covers Kruise's end-to-end test with maxSurge 100%. Each pod needs three writes: creation of the new pod, deletion of the
    /// old one, ownership transfer.
    fn s97_given_max_surge_then_the_old_pod_goes_only_after_the_new_one_is_available(pace) {
        let plain = ends_well(fleet(4, "1").image(NEW))
            .expect(deletions(4).and(most_spares(1)))
            .pod_writes(12)
            .quiet(3600, 10);
        let all = Story { daemon: surging("100%").min_ready(4), ..fleet(4, "100%") }
            .image(NEW)
            .until(beside_each_other(1..=4));
        let all = ends_well(all).expect(deletions(4).and(most_spares(4)));
        let named = Story {
            daemon: Daemon::new().without("max-unavailable").strategy("SurgingRollingUpdate"),
            ..fleet(3, "1")
        };
        let named = ends_well(named.image(NEW)).expect(deletions(3).and(most_spares(1)));
        let rounded_up = ends_well(fleet(4, "30%").image(NEW)).expect(most_spares(2));
        // Roll out twice. The second rollout replaces pods that were surge pods of the first rollout.
        let twice = ends_well(fleet(2, "1").image(NEW)).remember().image(NEWER);
        let twice = ends_well(twice).expect(deletions(2));
        let _ = pace;
        vec![plain, all, named, rounded_up, twice]
    }

    fn su01_given_a_new_pod_that_never_becomes_ready_then_the_old_one_serves_and_a_rollback_takes_the_new_one(pace) {
        let stuck = || fleet(3, "2")
            .behave(NEW, never_ready())
            .image(NEW)
            .until(beside_each_other(1..=2))
            .throughout(untouched(1..=3).and(most_spares(2)), pace.pick(300, 5));
        let rollback = stuck()
            .image(OLD)
            .until(spares(0).and(condition("RolloutComplete", "True", ": complete")))
            .expect(untouched(1..=3).and(deletions(0)));
        let forward = ends_well(stuck().image(NEWER)).expect(deletions(3));
        vec![rollback, forward]
    }

    fn su02_given_paused_in_the_middle_then_both_pods_stay_and_it_goes_on_afterwards(pace) {
        let story = fleet(3, "1")
            .behave(NEW, slow(pace.pick(60, 8)))
            .image(NEW)
            .until(beside_each_other([1]))
            .annotate("paused", "true")
            .until(condition("Paused", "True", ""))
            .throughout(untouched(1..=3).and(spares(1)), pace.pick(600, 12))
            .unannotate("paused");
        ends_well(story).expect(deletions(3))
    }

    fn su03_given_it_is_taken_back_or_the_mode_changes_then_the_new_pods_go_and_the_old_ones_stay(pace) {
        let stuck = || fleet(3, "2")
            .behave(NEW, never_ready())
            .image(NEW)
            .until(beside_each_other(1..=2));
        let both = |surge: &str, unavailable: &str| {
            let name = |name: &str| format!("{FAMILY}/{name}");
            json!({ "metadata": { "annotations": { name("max-surge"): surge, name("max-unavailable"): unavailable } } })
        };
        let stays = |story: Story| story.until(spares(0)).throughout(untouched(1..=3), pace.pick(600, 5));
        let gone = stays(stuck().unannotate("update-strategy"));
        let ota = stays(stuck().annotate("update-strategy", "OTA"));
        // With `max-surge` 0, no further surge pod is created. Existing surge pods stay next to their old pods.
        let zero = Story { always_served: false, ..stuck() }
            .allowed(1)
            .patch(both("0", "1"))
            .until(deletions(1))
            .throughout(untouched(1..=2).and(spares(2)), pace.pick(60, 4));
        // With invalid settings, the controller writes to no pod, so the surge pods stay.
        let invalid = stuck().remember().annotate("max-surge", "many")
            .until(condition("InvalidSettings", "True", "apps.openyurt.io/max-surge is \"many\""))
            .throughout(untouched(1..=3).and(spares(2)), pace.pick(600, 5))
            .pod_writes(0)
            .patch(both("0", "0%"))
            .until(condition("InvalidSettings", "True", "no pod could ever be replaced"));
        vec![gone, ota, zero, invalid]
    }

    fn su04_given_the_old_pod_deleted_by_somebody_then_the_new_one_takes_its_place(pace) {
        let story = Story { always_served: false, ..fleet(2, "1") }
            .behave(NEW, slow(pace.pick(60, 8)))
            .image(NEW)
            .until(beside_each_other([1]));
        let story = old_pod_deleted(story);
        story.until(converged()).expect(spares(0).and(at_most_deletions(2)))
    }

    fn su05_given_a_node_offline_in_the_middle_then_the_others_go_on_and_it_is_finished_on_return(pace) {
        let case = |surge: &str, window: &str| {
            let daemon = surging(surge).annotate("failure-window", window);
            let story = Story { always_served: false, daemon, ..fleet(4, surge) }
                .behave_on(1, NEW, slow(pace.pick(60, 8)))
                .image(NEW)
                .until(beside_each_other([1]))
                .wait(3)
                .offline([1])
                .until(replaced(2..=4))
                .online([1]);
            ends_well(story.until(deletions(4).and(spares(0))))
        };
        // The kubelet hangs, but the controller never sees the node NotReady. When the kubelet is back, the node has just become
        // Ready. The node has two pods, and must still use the only slot of `max-surge`.
        let anew = Story { always_served: false, ..fleet(3, "1") }
            .behave_on(1, NEW, slow(pace.pick(60, 8)))
            .image(NEW)
            .until(beside_each_other([1]))
            .wait(3)
            .step(Step::Offline(vec![1], HUNG))
            .online([1])
            .until(converged())
            .expect(spares(0).and(deletions(3)).and(most_spares(1)));
        // With a `failure-window` of 1 s, the outage doesn't count as a failure of the revision and uses no slot. With a window of
        // 5 m, it counts and uses one of two slots.
        vec![case("1", "1s"), case("2", "5m"), anew]
    }

    fn su06_given_partition_and_selector_then_only_those_nodes_surge(pace) {
        let pool = json!({ "metadata": { "labels": { "pool": "canary" } } });
        let selected = Story { daemon: surging("100%").annotate("selector", "pool=canary"), ..fleet(4, "1") }
            .patch_node(2, pool.clone())
            .patch_node(3, pool)
            .image(NEW)
            .until(replaced(2..=3))
            .throughout(untouched([1, 4]).and(most_spares(2)), pace.pick(600, 5))
            .unannotate("selector");
        let kept = Story { daemon: surging("2").annotate("partition", "2"), ..fleet(4, "2") }
            .image(NEW)
            .until(replaced(1..=2).and(condition("RolloutComplete", "True", "2 nodes stay on the old version")))
            .throughout(untouched(3..=4), pace.pick(600, 5))
            .annotate("partition", "0");
        // Node 1 has two pods when the selector stops matching it. Its update must still complete.
        let leaves = Story { daemon: surging("1").annotate("selector", "pool!=out"), ..fleet(3, "1") }
            .behave(NEW, slow(pace.pick(30, 6)))
            .image(NEW)
            .until(beside_each_other([1]))
            .patch_node(1, json!({ "metadata": { "labels": { "pool": "out" } } }))
            .until(replaced(1..=3));
        vec![ends_well(selected), ends_well(kept), leaves]
    }

    fn su07_given_broken_old_pods_then_they_are_replaced_beside_too_within_the_surge(_pace) {
        let story = fleet(4, "2")
            .behave_on(3, OLD, never_ready())
            .delete_pod(3)
            .until(Check::new("broken", |picture| {
                let node = picture.node(3);
                let mut living = picture.living(&node);
                if living.any(|pod| !picture.is_available_now(pod)) { Ok(())
} else { Err("not yet".into())
}
            }));
        let story = Story { always_served: false, ..story }.image(NEW);
        story.until(converged()).expect(spares(0).and(most_spares(2)))
    }

    fn su08_given_a_template_that_cannot_be_there_twice_then_pods_are_deleted_first_and_one_event_says_why(pace) {
        let ports = json!([{ "containerPort": 80, "hostPort": 8080 }]);
        Story::on(3)
            .with(surging("2").ports(ports))
            .image(NEW)
            .until(converged())
            .expect(deletions(3).and(peak(1)).and(most_spares(0)))
            .throughout(one_event("Warning", "only one pod per node can use hostPort 8080"), pace.pick(600, 5))
    }

    fn su09_given_both_budgets_then_both_are_used(_pace) {
        let daemon = surging("1").max_unavailable("1").min_ready(3);
        Story::on(6)
            .with(daemon)
            .writing(Writes::Surges)
            .image(NEW)
            .until(converged())
            .expect(spares(0).and(peak(1)).and(most_spares(1)))
    }

    /// Without history, the ControllerRevision that owns surge pods is deleted early. The garbage collector must not delete the
    /// surge pods with it.
    fn su10_given_a_history_of_no_revisions_and_fast_changes_then_nobody_is_without_a_pod(pace) {
        let story = Story { daemon: surging("2").history_limit(0), ..fleet(4, "2") }
            .behave(NEW, slow(pace.pick(20, 4)))
            .image(NEW)
            .until(beside_each_other(1..=2))
            .image(NEWER)
            .until(beside_each_other(1..=2))
            .image(NEW)
            .until(beside_each_other([1]))
            .image(NEWER);
        ends_well(story)
    }

    fn su11_given_the_daemonset_deleted_in_the_middle_then_every_pod_is_collected(_pace) {
        let stuck = || Story { always_served: false, ..fleet(3, "2") }
            .behave(NEW, never_ready())
            .image(NEW)
            .until(beside_each_other(1..=2));
        let delete = |params: fn() -> DeleteParams| move |stage: Stage| async move {
            let daemons: Api<DaemonSet> = stage.api();
            let uid = daemons.get(DAEMON).await?.metadata.uid.unwrap_or_default();
            stage.excuse(&uid).await;
            daemons.delete(DAEMON, &params()).await?;
            all_gone(stage).await
        };
        vec![
            stuck().does("delete it in the background", delete(DeleteParams::background)),
            stuck().does("delete it in the foreground", delete(DeleteParams::foreground)),
        ]
    }

    fn su12_given_the_daemonset_made_anew_over_its_orphans_then_it_goes_on(pace) {
        let story = Story { always_served: false, ..fleet(3, "1") }
            .behave(NEW, slow(pace.pick(60, 10)))
            .image(NEW)
            .until(beside_each_other([1]))
            .does("delete it alone", |stage| async move {
                stage.delete_daemon(&DeleteParams { propagation_policy: Some(kube::api::PropagationPolicy::Orphan), ..DeleteParams::default() }).await
            })
            .does("make it anew", |stage| async move {
                stage.create_daemon(&surging("1").image(NEW)).await
            });
        story.until(converged().and(spares(0)))
    }

    fn su13_given_the_native_controller_down_between_the_steps_then_its_pod_is_the_one_that_goes(pace) {
        let down = |story: Story| ends_well(story.native(false).wait(pace.pick(60, 6)).native(true));
        let begun = || fleet(2, "1").image(NEW).until(beside_each_other([1]));
        let stories = vec![down(begun()), down(begun().until(both_ready([1])))];
        Scenario::from(stories).alone()
    }

    fn su14_given_a_quota_that_refuses_the_new_pods_then_the_old_ones_serve_and_it_goes_on_when_lifted(pace) {
        let story = fleet(3, "1")
            .step(Step::RefusePods(true))
            .image(NEW)
            .throughout(untouched(1..=3), pace.pick(300, 8))
            .step(Step::RefusePods(false));
        ends_well(story)
    }

    /// Invariant 7: the rollout completes even if the controller is killed at any moment. There is a story for each of the
    /// controller's writes.
    fn su15_given_the_controller_killed_at_any_write_then_it_converges_and_nobody_is_without_a_pod(pace) {
        let moments = [Moment::Before, Moment::After];
        let writes = pace.pick(16, 8);
        let stories = (1..=writes).flat_map(|number| moments.map(|moment| killed_at(number, moment)));
        Scenario::from(stories.collect::<Vec<_>>()).alone()
    }

    fn su16_given_two_replicas_and_the_leader_lost_then_the_other_goes_on(_pace) {
        let story = fleet(4, "2")
            .does("two replicas", |stage| async move { stage.world.backend.two_replicas() })
            .image(NEW)
            .until(Check::new("pods beside others", |picture| match picture.most_spares {
                0 => Err("none".into()),
                _ => Ok(()),
            }))
            .does("kill the leader", |stage| async move { stage.kill_leader().await });
        Scenario::from(ends_well(story)).alone()
    }

    fn su17_given_a_hook_then_the_old_pod_is_asked_when_the_new_one_is_available_and_goes_afterwards(pace) {
        const HOOK: &str = r#"{"preDelete": {"labelsHandler": {"example.io/drain": "true"}}}"#;
        let waiting = || {
            let daemon = surging("1").annotate("lifecycle", HOOK).pod_label("example.io/drain", "true");
            Story { daemon, ..fleet(2, "1") }
                .image(NEW)
                .until(preparing([1]))
                .throughout(untouched(1..=2).and(spares(1)).and(preparing([1])), pace.pick(300, 6))
        };
        let released = ends_well(
            waiting()
                .does("take the hook off the old pod", take_hook_off)
                .until(replaced([1]).and(preparing([2])))
                .unannotate("lifecycle"),
        );
        // After a rollback, the surge pod is deleted and the old pod loses its mark.
        let back = waiting()
            .image(OLD)
            .until(spares(0).and(preparing([])).and(condition("RolloutComplete", "True", ": complete")))
            .expect(untouched(1..=2).and(deletions(0)));
        vec![released.expect(deletions(2)), back]
    }

    fn su18_given_a_new_pod_that_crashes_then_the_revision_is_stopped_and_the_old_pods_serve(pace) {
        let crashing = Behaviour { crash_after: Some(secs(1)), ..never_ready() };
        let daemon = surging("2").annotate("failure-threshold", "0");
        Story { daemon, ..fleet(4, "2") }
            .behave(NEW, crashing)
            .image(NEW)
            .until(condition("Stalled", "True", "rollout stopped: the new version failed").and(condition("Guard", "True", "failed: ")))
            .throughout(untouched(1..=4).and(spares(2)), pace.pick(300, 5))
            .image(OLD)
            .until(spares(0).and(not_condition("Stalled")).and(condition("RolloutComplete", "True", ": complete")))
            .expect(untouched(1..=4).and(deletions(0)))
    }

    fn su19_given_waves_then_only_the_open_one_surges_and_the_next_opens_when_it_is_handed_over(pace) {
        let waves = "[{name: canary, selector: pool=canary, maxUnavailable: 100%}]";
        let daemon = surging("100%").annotate("waves", waves);
        let story = Story { daemon, ..fleet(4, "100%") }
            .patch_node(3, json!({ "metadata": { "labels": { "pool": "canary" } } }))
            .behave(NEW, slow(pace.pick(60, 8)))
            .image(NEW)
            .until(beside_each_other([3]))
            .throughout(spares(1).and(untouched(1..=4)), pace.pick(30, 3))
            .until(beside_each_other([1, 2, 4]))
            .until(replaced([3]));
        ends_well(story).expect(deletions(4))
    }

    fn su20_given_a_removal_refused_while_it_is_taken_back_then_it_is_asked_for_again(_pace) {
        let story = fleet(3, "2")
            .behave(NEW, never_ready())
            .image(NEW)
            .until(beside_each_other(1..=2))
            .does("refuse one removal of each pod", |stage| async move {
                stage.world.backend.fault(Box::new(refuses_once()))
            })
            .unannotate("update-strategy")
            .until(spares(0))
            .expect(untouched(1..=3));
        Scenario::from(story).only_embedded(NO_FAULT_POINTS)
    }

    /// The hook has made the old pod not Ready, so only the new pod is available. The new pod must be kept until the old pod is
    /// available again.
    fn su21_given_it_is_abandoned_while_only_the_new_pod_serves_then_that_one_goes_after_the_old_one_serves_again(pace) {
        let abandoned = |abandon: fn(Story) -> Story| {
            let story = abandon(asked_and_not_ready(pace.pick(60, 4)))
                .until(spares(0).and(preparing([])).and(all_available(2)));
            story.throughout(untouched(1..=2).and(deletions(0)), pace.pick(120, 4))
        };
        vec![
            abandoned(|story| story.unannotate("update-strategy")),
            abandoned(|story| story.annotate("update-strategy", "OTA")),
            // In this story, the rollout is paused before it is abandoned. So the controller writes nothing in between.
            abandoned(|story| {
                let story = story.annotate("paused", "true").until(condition("Paused", "True", ""));
                story.unannotate("update-strategy")
            }),
        ]
    }

    /// The file `lifecycle` covers the same case without a surge pod: a rollback while the old pod waits for its hook.
    fn su22_given_a_node_that_is_kept_while_its_hook_is_awaited_then_it_keeps_its_old_pod(pace) {
        let kept = asked_and_not_ready(pace.pick(60, 4))
            .annotate("partition", "2")
            .until(spares(0).and(preparing([])).and(all_available(2)))
            .until(condition("RolloutComplete", "True", "2 nodes stay on the old version"))
            .unannotate("lifecycle")
            .throughout(untouched(1..=2).and(deletions(0)), pace.pick(120, 4));
        let held = asked_and_not_ready(pace.pick(60, 4))
            .patch_node(1, json!({ "metadata": { "annotations": { format!("{FAMILY}/hold"): "calibration" } } }))
            .until(preparing([2]).and(untouched(1..=2)))
            .throughout(untouched(1..=2), pace.pick(120, 4));
        vec![kept, held]
    }

    fn su23_given_old_pods_that_end_slowly_then_a_node_holds_its_place_until_one_of_its_pods_is_gone(pace) {
        let slow = |nodes: usize| {
            let time = secs(pace.pick(20, 6));
            (1..=nodes).fold(fleet(nodes, "1"), |story, node| story.step(Step::TerminateIn(node, time)))
        };
        let plain = ends_well(slow(4).image(NEW)).expect(most_doubled(1).and(deletions(4)));
        let hurried = slow(2)
            .image(NEW)
            .until(terminating(1))
            .image(NEWER)
            .until(terminating(1))
            .image(NEW)
            .throughout(most_doubled(1), pace.pick(30, 3))
            .image(NEWER);
        let last = slow(1)
            .image(NEW)
            .until(terminating(1))
            .throughout(condition("RolloutComplete", "False", ""), pace.pick(10, 2));
        vec![plain, ends_well(hurried).expect(most_doubled(1)), ends_well(last)]
    }

    /// The kubelet hangs while its node stays Ready, so the old pod never ends.
    fn su24_given_an_old_pod_that_never_ends_then_the_rollout_stalls_and_names_it(pace) {
        let hung = |story: Story| {
            let story = story
                .until(terminating(1))
                .step(Step::Offline(vec![1], HUNG))
                .until(condition("Stalled", "True", "has been terminating since").and(event("Warning", "its kubelet has not ended it")))
                .expect(untouched(2..=3).and(condition("Stalled", "True", "with a grace period of 30s")));
            story.online([1])
        };
        let beside = fleet(3, "1").step(Step::TerminateIn(1, secs(25))).image(NEW);
        let alone = Story::on(3).step(Step::TerminateIn(1, secs(25))).image(NEW);
        let others = Story::on(4)
            .with(Daemon::new().max_unavailable("2"))
            .allowed(2)
            .behave(NEW, slow(pace.pick(80, 50)))
            .step(Step::TerminateIn(1, secs(25)))
            .image(NEW)
            .until(terminating(1))
            .step(Step::Offline(vec![1], HUNG))
            .until(condition("Progressing", "True", "has been terminating since").and(event("Warning", "its kubelet has not ended it")))
            .until(condition("Stalled", "True", "has been terminating since"))
            .online([1])
            .until(converged());
        vec![ends_well(hung(beside)), hung(alone).until(converged()), others]
    }

    fn su28_given_a_node_that_evicts_each_new_pod_then_the_rollout_is_stalled_until_it_keeps_one(pace) {
        vec![evicting(fleet(3, "1"), pace), evicting(Story::on(3).with(Daemon::new()), pace)]
    }

    fn su29_given_paused_or_an_invalid_setting_when_the_old_pod_is_deleted_then_the_new_one_takes_its_place(pace) {
        let case = |annotation: &str, value: &str, condition_type: &'static str| {
            let story = Story { always_served: false, ..fleet(3, "1") }
                .behave(NEW, slow(pace.pick(60, 8)))
                .image(NEW)
                .until(beside_each_other([1]))
                .annotate(annotation, value)
                .until(condition(condition_type, "True", ""));
            old_pod_deleted(story)
                .until(spares(0).and(runs_current(1)))
                .throughout(untouched(2..=3).and(deletions(0)), pace.pick(300, 5))
                .unannotate(annotation)
                .until(converged())
        };
        vec![
            case("paused", "true", "Paused"),
            case("ramp-up", "many", "InvalidSettings"),
            case("waves", "[", "InvalidSettings"),
        ]
    }

    fn su25_given_a_priority_class_then_one_event_says_that_others_may_be_driven_off(pace) {
        let daemon = surging("1").priority("system-node-critical");
        Story { daemon, ..fleet(2, "1") }
            .image(NEW)
            .until(converged())
            .throughout(one_event("Warning", "priorityClassName is \"system-node-critical\""), pace.pick(60, 3))
    }

    fn su26_given_the_new_pod_is_taken_out_of_the_daemonset_then_another_one_is_made_under_another_name(_pace) {
        let story = fleet(3, "1")
            .behave(NEW, slow(4))
            .image(NEW)
            .until(beside_each_other([1]))
            .does("take the new pod out", take_out)
            .until(deletions(3))
            .does("put it away", put_away);
        story
            .until(converged().and(condition("RolloutComplete", "True", ": complete")))
            .expect(spares(0).and(peak(0)))
    }

    /// The adopted ControllerRevision keeps the name that the first DaemonSet gave it. A rollback to that revision must still work.
    fn su27_given_a_revision_adopted_from_another_daemonset_then_the_way_back_to_it_surges(pace) {
        Story::on(2)
            .with(surging("1"))
            .allowed(2)
            .writing(Writes::Surges)
            .does("begin with another DaemonSet", begin_with_another)
            .wait(pace.pick(60, 15))
            .until(pods(2))
            .does("leave its pods to this one", inherit)
            .until(converged())
            .image(NEW)
            .until(converged().and(condition("RolloutComplete", "True", ": complete")))
            .image(OLD)
            .until(converged().and(condition("RolloutComplete", "True", ": complete")))
            .expect(spares(0))
    }
}
