//! Writes that the API server rejects. Conditions name the affected nodes, other nodes continue, and the controller retries
//! rejected writes.

use std::sync::OnceLock;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use yurt_ds::sim::cluster::{Fault, RequestInfo};
use yurt_ds::sim::kubelet::Behaviour;

use crate::support::checks::*;
use crate::support::objects::*;
use crate::support::player::Stage;
use crate::support::story::{NO_FAULT_POINTS, Scenario, Step, Story, Writes};
use crate::support::suite::scenarios;
use crate::support::world::DENIED;

/// First minor version of Kubernetes with stable ValidatingAdmissionPolicies.
const POLICIES: u32 = 30;

/// Text that only the Event about the first rejected write contains.
const TOLD: &str = "Other nodes continue";

/// Returns a story on this many nodes in which the API server may reject writes. One node may be unavailable.
fn fleet(nodes: usize) -> Story {
    Story::on(nodes).writing(Writes::Attempts)
}

/// Returns a story on three nodes with `max-surge: 1` in which the API server may reject writes.
fn surging() -> Story {
    Story::on(3)
        .with(
            Daemon::new()
                .without("max-unavailable")
                .annotate("max-surge", "1"),
        )
        .allowed(0)
        .writing(Writes::Surges)
        .always_served()
}

/// Checks that the condition `Refused` quotes the message of the admission policy.
fn remembered() -> Check {
    condition("Refused", "True", DENIED)
}

/// Checks that the rollout is complete and that no condition reports a rejected write or a stall.
fn complete() -> Check {
    condition("RolloutComplete", "True", ": complete")
        .and(condition("Stalled", "False", ""))
        .and(not_condition("Refused"))
}

/// Changes the status of the pod on a node every 20 ms until the pod is gone. A write with the pod's version as a precondition then
/// always conflicts.
async fn changes_all_the_time(stage: Stage, node: usize) -> anyhow::Result<()> {
    let (pods, pod) = (stage.api::<Pod>(), stage.pod_on(node).await?.name_any());
    tokio::spawn(async move {
        for beat in 0_u64.. {
            let message = beat.to_string();
            let condition =
                json!({ "type": "example.io/Beat", "status": "True", "message": message });
            let patch = Patch::Strategic(json!({ "status": { "conditions": [condition] } }));
            let params = PatchParams::default();
            if pods.patch_status(&pod, &params, &patch).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    Ok(())
}

/// Makes deletions of one pod fail as if the API server were overloaded. The pod is the first one that the controller deletes.
async fn turn_first_away(stage: Stage) -> anyhow::Result<()> {
    let first = OnceLock::new();
    stage
        .world
        .backend
        .fault(Box::new(move |request: &RequestInfo| {
            let is_first = || first.get_or_init(|| request.name.clone()) == &request.name;
            if request.verb == "delete" && is_first() {
                Fault::Status(503, None)
            } else {
                Fault::Pass
            }
        }))
}

/// Creates an Event in which the kubelet of node 1 reports why the pod is not Ready.
async fn say_unhealthy(stage: Stage) -> anyhow::Result<()> {
    let pod = stage.pod_on(1).await?;
    let now = Time(stage.world.clock.now());
    let event = json!({
        "metadata": { "name": format!("{}.{}", pod.name_any(), now.0.as_second()) },
        "involvedObject": {
            "apiVersion": "v1", "kind": "Pod", "namespace": stage.name,
            "name": pod.name_any(), "uid": pod.metadata.uid,
        },
        "type": "Warning", "reason": "Unhealthy",
        "message": "Readiness probe failed: HTTP probe failed with statuscode: 500",
        "source": { "component": "kubelet" }, "reportingComponent": "kubelet",
        "firstTimestamp": now, "lastTimestamp": now, "count": 1,
    });
    let events: Api<Event> = stage.api();
    let event = serde_json::from_value(event)?;
    events.create(&PostParams::default(), &event).await?;
    Ok(())
}

/// Removes all faults from the controller's requests.
async fn mend(stage: Stage) -> anyhow::Result<()> {
    stage.world.backend.mend();
    Ok(())
}

scenarios! {
    fn rw01_given_a_policy_that_keeps_one_pod_then_the_others_go_and_it_is_named_and_follows_within_a_minute(pace) {
        let story = fleet(4)
            .deny("delete", 1)
            .image(NEW)
            .until(replaced(2..=4))
            .until(remembered().and(condition("RolloutComplete", "False", "refuses to delete pods on")))
            .until(condition("Stalled", "True", DENIED).and(one_event("Warning", TOLD)))
            .throughout(untouched([1]).and(condition("Stalled", "True", DENIED)), pace.pick(300, 40))
            .expect(one_event("Warning", TOLD).and(events_because("RolloutStalled", 1)))
            .allow("delete")
            .until_within(converged(), 60)
            .until(complete())
            .expect(deletions(4).and(peak(1)));
        Scenario::from(story).since(POLICIES)
    }

    fn rw10_given_a_refused_pod_that_is_tried_again_while_others_have_their_turn_then_it_is_stalled_once_at_the_end(_pace) {
        let story = fleet(5)
            .with(Daemon::new().min_ready(10))
            .deny("delete", 1)
            .image(NEW)
            .until_within(replaced(2..=5).and(condition("Stalled", "True", DENIED)), 180)
            .until(events_because("RolloutStalled", 1))
            .allow("delete")
            .until_within(converged(), 60)
            .until(complete())
            .expect(events_because("RolloutStalled", 1).and(deletions(5)).and(peak(1)));
        Scenario::from(story).since(POLICIES)
    }

    fn rw11_given_deletions_that_are_never_answered_then_it_is_stalled_by_them_and_goes_on_when_they_are(_pace) {
        let story = fleet(3)
            .does("answer no deletion", |stage| async move {
                stage.world.backend.fault(Box::new(|request| match request.verb.as_str() {
                    "delete" => Fault::Hang,
                    _ => Fault::Pass,
                }))
            })
            .image(NEW)
            .until_within(condition("RolloutComplete", "False", "no response within 4s"), 300)
            .until_within(condition("Stalled", "True", "no response within 4s"), 900)
            .throughout(untouched(1..=3), 60)
            .expect(one_event("Warning", TOLD).and(events_because("RolloutStalled", 1)))
            .does("answer them", mend)
            .until_within(converged(), 90)
            .until(complete())
            .expect(peak(1));
        Scenario::from(story).only_embedded(NO_FAULT_POINTS)
    }

    fn rw17_given_a_pod_whose_status_is_written_all_the_time_then_it_is_replaced_all_the_same(_pace) {
        fleet(2)
            .does("its status changes all the time", |stage| changes_all_the_time(stage, 1))
            .image(NEW)
            .until(converged())
            .expect(deletions(2))
    }

    fn rw12_given_a_pod_whose_deletion_is_turned_away_as_if_by_a_busy_server_then_the_others_go_and_it_is_named(_pace) {
        let story = fleet(4)
            .does("turn one away", turn_first_away)
            .image(NEW)
            .until_within(replaced(2..=4), 600)
            .until_within(condition("Stalled", "True", "refuses to delete pods on"), 600)
            .throughout(condition("Stalled", "True", "refuses to delete pods on"), 120)
            .expect(one_event("Warning", TOLD).and(events_because("RolloutStalled", 1)))
            .does("answer it", mend)
            .until_within(converged(), 90)
            .until(complete())
            .expect(peak(1));
        Scenario::from(story).only_embedded(NO_FAULT_POINTS)
    }

    fn rw02_given_a_policy_that_keeps_all_pods_then_all_are_named_and_they_follow_within_a_minute(pace) {
        let story = fleet(4)
            .deny("delete", 0)
            .image(NEW)
            .until(remembered().and(condition("Stalled", "True", DENIED)))
            .throughout(untouched(1..=4), pace.pick(300, 20))
            .expect(one_event("Warning", TOLD))
            .allow("delete")
            .until_within(converged(), 90)
            .until(complete())
            .expect(deletions(4).and(peak(1)));
        Scenario::from(story).since(POLICIES)
    }

    fn rw03_given_a_policy_against_one_update_in_place_then_the_others_get_theirs(pace) {
        let daemon = Daemon::new()
            .annotate("rolling-update-type", "InPlaceIfPossible")
            .annotate("image-predownload-parallelism", "0");
        let story = fleet(3)
            .with(daemon)
            .deny("patch", 1)
            .image(NEW)
            .until(renewed([2, 3]))
            .until(condition("Stalled", "True", "refuses to update pods in place on"))
            .throughout(untouched([1]), pace.pick(120, 10))
            .allow("patch")
            .until_within(renewed(1..=3), 60)
            .until(complete())
            .expect(no_deletions());
        Scenario::from(story).since(POLICIES)
    }

    fn rw15_given_a_policy_against_one_request_to_pull_then_the_others_pull_and_follow_and_it_is_named(pace) {
        let daemon = Daemon::new()
            .annotate("image-predownload-parallelism", "1")
            .annotate("predownload", "required");
        let story = Story::on(3)
            .with(daemon)
            .writing(Writes::Conditions)
            .deny("status", 1)
            .image(NEW)
            .until_within(replaced([2, 3]), 200)
            .until(condition("Stalled", "True", "refuses to patch the conditions of pods on"))
            .throughout(untouched([1]), pace.pick(120, 10))
            .allow("status")
            .until_within(converged(), 200)
            .until(complete())
            .expect(deletions(3));
        Scenario::from(story).since(POLICIES)
    }

    fn rw16_given_a_policy_against_the_result_of_one_pull_then_the_others_pull_and_follow_and_it_is_named(pace) {
        let daemon = Daemon::new()
            .annotate("image-predownload-parallelism", "1")
            .annotate("predownload", "required");
        let slow = Behaviour {
            pull: Duration::from_secs(pace.pick(60, 20)),
            ..Behaviour::default()
        };
        let story = Story::on(3)
            .with(daemon)
            .writing(Writes::Conditions)
            .behave_on(1, NEW, slow)
            .image(NEW)
            .until(image_ready([1], "False", "WaitPullImage"))
            .deny("status", 1)
            .until_within(replaced([2, 3]), 300)
            .until(condition("Stalled", "True", "refuses to patch the conditions of pods on"))
            .allow("status")
            .until_within(converged(), 200)
            .until(complete())
            .expect(deletions(3));
        Scenario::from(story).since(POLICIES)
    }

    fn rw04_given_a_restart_while_a_write_is_refused_then_nothing_is_told_twice(pace) {
        let told = || one_event("Warning", TOLD).and(events_because("RolloutStalled", 1));
        let story = fleet(3)
            .deny("delete", 2)
            .image(NEW)
            .until(replaced([1, 3]).and(condition("Stalled", "True", DENIED)))
            .until(told())
            .controller(false)
            .wait(3)
            .controller(true)
            .throughout(untouched([2]).and(condition("Stalled", "True", DENIED)), pace.pick(120, 40))
            .expect(told())
            .allow("delete")
            .until(converged())
            .until(complete());
        Scenario::from(story).since(POLICIES).alone()
    }

    fn rw08_given_the_same_stall_again_after_an_undo_then_both_and_the_undos_are_told(_pace) {
        let stalled = || condition("Stalled", "True", DENIED);
        let story = fleet(2)
            .deny("delete", 0)
            .image(NEW)
            .until(stalled().and(events_because("RolloutStalled", 1)))
            .image(OLD)
            .until(complete().and(events_at_least("Normal", ": complete", 1)))
            .image(NEW)
            .until(stalled().and(events_because("RolloutStalled", 2)))
            .expect(events("Warning", TOLD, 2))
            .image(OLD)
            .until(complete().and(events_at_least("Normal", ": complete", 2)))
            .allow("delete");
        Scenario::from(story).since(POLICIES)
    }

    fn rw05_given_a_rollback_while_a_write_is_refused_then_it_is_forgotten(pace) {
        let story = fleet(3)
            .deny("delete", 1)
            .image(NEW)
            .until(replaced([2, 3]).and(remembered()))
            .image(OLD)
            .until(complete())
            .throughout(untouched([1]), pace.pick(120, 10))
            .allow("delete");
        Scenario::from(story).since(POLICIES)
    }

    fn rw06_given_the_old_pod_beside_a_new_one_may_not_go_then_the_pair_keeps_its_place_and_is_named(pace) {
        let story = surging()
            .deny("delete", 1)
            .image(NEW)
            .until(both_ready([1]))
            .until(condition("Stalled", "True", "refuses to delete pods on"))
            .throughout(untouched(1..=3).and(spares(1)), pace.pick(120, 10))
            .allow("delete")
            .until_within(converged(), 120)
            .until(complete())
            .expect(spares(0).and(peak(0)));
        Scenario::from(story).since(POLICIES)
    }

    fn rw07_given_pods_that_may_not_be_made_beside_others_then_it_is_named_and_goes_on_when_that_ends(pace) {
        let story = |refused: Step, again: Step| surging()
            .step(refused)
            .image(NEW)
            .until(condition("Stalled", "True", "refuses to create pods on").and(one_event("Warning", TOLD)))
            .throughout(untouched(1..=3), pace.pick(120, 10))
            .step(again)
            .until_within(converged(), 120)
            .until(complete())
            .expect(spares(0).and(peak(0)));
        let policy = |begins| Step::Policy("create", 0, begins);
        let stories = vec![
            story(policy(true), policy(false)),
            story(Step::RefusePods(true), Step::RefusePods(false)),
        ];
        Scenario::from(stories).since(POLICIES)
    }

    fn rw09_given_a_daemonset_handed_back_while_its_second_pod_may_not_go_then_that_is_named_until_it_may(pace) {
        let story = surging()
            .deny("delete", 0)
            .image(NEW)
            .until(both_ready([1]))
            .until(condition("Stalled", "True", "refuses to delete pods on"))
            .unannotate("update-strategy")
            .until(remembered().and(condition("Progressing", "False", "cannot be deleted: the API server refuses to delete")))
            .throughout(untouched(1..=3).and(remembered()), pace.pick(120, 10))
            .allow("delete")
            .until_within(spares(0).and(not_condition("Refused")).and(not_condition("Stalled")), 120)
            .expect(untouched(1..=3).and(peak(0)));
        Scenario::from(story).since(POLICIES)
    }

    fn rw13_given_a_quota_that_lets_no_pod_be_made_then_the_rollout_stalls_with_the_words_of_the_quota(pace) {
        let words = || condition("Stalled", "True", "cannot create pods on").and(condition("Stalled", "True", "exceeded quota"));
        fleet(3)
            .step(Step::RefusePods(true))
            .image(NEW)
            .until(words().and(event("Warning", "the native DaemonSet controller cannot create pods on")))
            .throughout(untouched(2..=3).and(words()), pace.pick(3600, 20))
            .controller(false)
            .controller(true)
            .until(words())
            .throughout(untouched(2..=3).and(words()), pace.pick(600, 5))
            .step(Step::RefusePods(false))
            // The native controller backs off after each rejected pod. A change of the DaemonSet makes it retry immediately.
            .patch(serde_json::json!({ "metadata": { "labels": { "quota": "lifted" } } }))
            .until(converged().and(condition("RolloutComplete", "True", ": complete")).and(condition("Stalled", "False", "")))
    }

    fn rw14_given_a_pod_that_is_not_ready_although_nothing_fails_then_it_stalls_with_the_words_of_its_kubelet(_pace) {
        let late = || condition("Stalled", "True", "does not become available");
        let words = || late().and(condition("Stalled", "True", ": its kubelet reports Unhealthy: Readiness probe failed: HTTP probe failed with statuscode: 500"));
        let story = Story::on(3)
            .behave(NEW, never_ready())
            .image(NEW)
            .until(deletions(1).and(other_pod([1])))
            .wait(560)
            .does("say why", say_unhealthy)
            .until_within(words().and(one_event("Warning", "statuscode: 500")), 120)
            .controller(false)
            .controller(true)
            .throughout(words(), 300)
            // Until the API server removes the kubelet's Event, the condition quotes it as the reason. After that, the condition
            // quotes the pod's status.
            .until_within(late().and(condition("Stalled", "True", "its condition Ready reports")), 4000)
            .expect(untouched(2..=3).and(deletions(1)))
            .behave(NEW, Behaviour::default())
            .delete_pod(1)
            .until(converged());
        Scenario::from(story).only_embedded("it takes ten minutes")
    }
}
