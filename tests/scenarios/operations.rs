//! Restarts, lost Leases, broken connections and revoked permissions. The rollout must complete without exceeding the budget.

use std::sync::Mutex;
use std::time::Duration;

use anyhow::Context as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use yurt_ds::k8s::client::Role;
use yurt_ds::sim::cluster::{Fault, RequestInfo};
use yurt_ds::sim::dice::mix;

use crate::scenarios::guard::{is_stopped, three_of_six_crash};
use crate::scenarios::identity::duplicate;
use crate::support::checks::*;
use crate::support::objects::*;
use crate::support::player::Stage;
use crate::support::story::{NO_FAULT_POINTS, Scenario, Story, Writes};
use crate::support::suite::scenarios;
use crate::support::world::{Moment, is_read};

/// Returns a story on six nodes, two of which are updated at the same time. The story waits until the rollout has begun.
fn under_way() -> Story {
    Story::on(6)
        .with(Daemon::new().max_unavailable("2"))
        .allowed(2)
        .writing(Writes::Attempts)
        .image(NEW)
        .until(deletions_begun())
}

/// Checks that the rollout completes and that each of the six pods was deleted exactly once.
fn ends_well(story: Story) -> Story {
    story
        .until(converged().and(condition("RolloutComplete", "True", ": complete")))
        .expect(deletions(6))
}

/// Returns a story in which the controller is killed at its `number`th write, before or after the API server performs the write.
fn killed_at(number: usize, moment: Moment) -> Story {
    let story = Story::on(6)
        .with(Daemon::new().max_unavailable("2"))
        .allowed(2)
        .writing(Writes::Attempts)
        .does("lie in wait for a write", move |stage| async move {
            stage.world.backend.kill_at(number, moment)
        })
        .image(NEW);
    ends_well(story)
}

/// Waits until this replica is the only one that exports metrics about DaemonSets.
async fn exports_alone(stage: Stage, identity: &'static str) -> anyhow::Result<()> {
    let mut found: Vec<String> = Vec::new();
    for _ in 0..120 {
        let mut pages = stage.world.backend.pages()?;
        pages.retain(|_, page| page.contains("daemonset=\""));
        found = pages.into_keys().collect();
        if found == [identity] {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    anyhow::bail!("{found:?} export DaemonSets, expected {identity} alone")
}

/// Makes all requests of the first replica for the Lease fail.
async fn cut_from_the_lease(stage: Stage) -> anyhow::Result<()> {
    let lease = |request: &RequestInfo| {
        let cut = request.resource == "leases" && request.user_agent.ends_with("suite-1");
        if cut {
            Fault::Status(500, None)
        } else {
            Fault::Pass
        }
    };
    stage.world.backend.fault(Box::new(lease))
}

/// Makes random requests fail in every possible way until the test removes the faults. The seed determines which requests fail.
async fn storm(stage: Stage, seed: u64) -> anyhow::Result<()> {
    let count = Mutex::new(0);
    stage
        .world
        .backend
        .fault(Box::new(move |request: &RequestInfo| {
            let mut count = count.lock().expect("nobody panics while counting");
            *count += 1;
            let write = !is_read(&request.verb);
            match mix(seed * 1_000_000 + *count) % 20 {
                0..3 => Fault::Status(429, Some(1)),
                3..5 => Fault::Status(500, None),
                5 if write => Fault::Hang,
                6 if write => Fault::ResetAfter,
                7 => Fault::ResetBefore,
                8 => Fault::Delay(Duration::from_millis(700)),
                _ => Fault::Pass,
            }
        }))?;
    stage.world.backend.disconnect_watches()
}

/// Breaks the watches and drops the API server's history of events, so that the watches can't resume without a new list.
async fn expire(stage: Stage) -> anyhow::Result<()> {
    let away = |request: &RequestInfo| match request.verb.as_str() {
        "watch" | "list" => Fault::Status(500, None),
        _ => Fault::Pass,
    };
    stage.world.backend.fault(Box::new(away))?;
    stage.world.backend.disconnect_watches()?;
    tokio::time::sleep(Duration::from_secs(10)).await;
    stage.world.backend.forget_history()?;
    stage.world.backend.mend();
    Ok(())
}

/// Freezes the API server for 20 s.
async fn silence(stage: Stage) -> anyhow::Result<()> {
    stage.world.backend.api_server(false)?;
    tokio::time::sleep(Duration::from_secs(20)).await;
    stage.world.backend.api_server(true)
}

pub(crate) async fn mend(stage: Stage) -> anyhow::Result<()> {
    stage.world.backend.mend();
    Ok(())
}

/// Condition of the previous release, which stored the state of the rollout in messages: type, status, reason, and the message after
/// `revision R: `.
type OldCondition = (&'static str, &'static str, &'static str, &'static str);

/// Rollout that the guard has stopped, as the previous release reported it. `NODE` stands for the prefix of the node names.
const STOPPED_BY_GUARD: [OldCondition; 4] = [
    ("RolloutComplete", "False", "FailedByRevision", STOPPED),
    ("Progressing", "False", "FailedByRevision", STOPPED),
    ("Stalled", "True", "FailedByRevision", STOPPED),
    (
        "Guard",
        "True",
        "FailedByRevision",
        "failed: NODE-0001, NODE-0002, NODE-0003",
    ),
];
const STOPPED: &str = "stopped by the guard: 3 nodes failed after they got this revision (1 may): NODE-0001, NODE-0002, NODE-0003; \
                       or roll out another template";

/// Rollout that makes progress, as the previous release reported it.
const MOVING: [OldCondition; 3] = [
    (
        "RolloutComplete",
        "False",
        "Progressing",
        "being rolled out",
    ),
    ("Progressing", "True", "Progressing", "being rolled out"),
    ("Stalled", "False", "Progressing", ""),
];

/// Paused rollout, as the previous release reported it.
const HALTED: [OldCondition; 4] = [
    (
        "RolloutComplete",
        "False",
        "Paused",
        "paused until somebody resumes it",
    ),
    (
        "Progressing",
        "True",
        "Paused",
        "paused until somebody resumes it",
    ),
    ("Stalled", "False", "Paused", ""),
    (
        "Paused",
        "True",
        "Paused",
        "paused until somebody resumes it; since 2026-01-04T07:00:02Z, reminded after 1 day",
    ),
];

/// Replaces all conditions of the DaemonSet with conditions as the previous release would have written them.
async fn report_as_before(stage: Stage, conditions: &'static [OldCondition]) -> anyhow::Result<()> {
    let revision = stage.see(|picture| picture.current().cloned()).await;
    let revision = revision.context("a revision")?;
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|(kind, status, reason, message)| {
            let message = message.replace("NODE", &stage.name);
            json!({
                "type": kind,
                "status": status,
                "reason": reason,
                "message": format!("revision {revision}: {message}"),
                "lastTransitionTime": "2026-01-05T08:00:02Z",
            })
        })
        .collect();
    let patch = Patch::Merge(json!({ "status": { "conditions": conditions } }));
    let daemons = stage.daemons();
    daemons
        .patch_status(DAEMON, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

/// Upgrades the controller: the old one ends, and the new one finds the conditions that the previous release has left.
fn upgraded(story: Story, conditions: &'static [OldCondition]) -> Story {
    story
        .controller(false)
        .does("conditions of the previous release", move |stage| {
            report_as_before(stage, conditions)
        })
        .controller(true)
        .until(condition("RolloutState", "True", "\"version\":1"))
}

scenarios! {
    vary because "the native controller, the Lease and the watches are stopped, delayed and broken";
    fn s89_given_the_updater_killed_at_any_write_and_restarted_then_converges_budget_never_exceeded(pace) {
        let moments = [Moment::Before, Moment::After];
        let writes = pace.pick(14, 6);
        let stories = (1..=writes).flat_map(|number| moments.map(|moment| killed_at(number, moment)));
        Scenario::from(stories.collect::<Vec<_>>()).alone()
    }

    fn s90_given_two_replicas_and_the_leader_lost_then_the_other_goes_on_budget_never_exceeded(_pace) {
        let story = Story::on(6)
            .with(Daemon::new().max_unavailable("2"))
            .allowed(2)
            .writing(Writes::Attempts)
            .does("two replicas", |stage| async move { stage.world.backend.two_replicas() })
            .image(NEW)
            .until(deletions_begun())
            .does("kill the leader", |stage| async move { stage.kill_leader().await });
        Scenario::from(ends_well(story)).alone()
    }

    fn s90_given_a_second_installation_then_each_pod_is_replaced_once(pace) {
        let story = Story::on(3)
            .allowed(2)
            .writing(Writes::Attempts)
            .does("a second installation", |stage| async move { stage.world.backend.second_installation() })
            .wait(pace.pick(40, 40))
            .image(NEW)
            .until(converged().and(condition("RolloutComplete", "True", ": complete")))
            .expect(deletions(3));
        Scenario::from(story).only_embedded("the manifests grant the controller a Lease in one namespace")
    }

    fn s90_given_a_controller_and_a_lease_for_each_kind_then_both_kinds_are_rolled_out(_pace) {
        let rolled_out = |story: Story| {
            story
                .does("one kind each", |stage| async move { stage.world.backend.one_kind_each() })
                .image(NEW)
                .until(converged().and(condition("RolloutComplete", "True", ": complete")))
                .expect(deletions(3).and(events_because("RolloutStarted", 1)))
        };
        let advanced = Daemon::advanced().rolling("maxUnavailable", 1);
        let stories = vec![rolled_out(Story::on(3)), rolled_out(Story::on(3).with(advanced))];
        Scenario::from(stories).only_embedded("the manifests grant the controller a Lease in one namespace")
    }

    fn metrics_given_two_replicas_then_the_leader_alone_exports_daemonsets_and_whoever_loses_the_lease_drops_them(_pace) {
        let story = under_way()
            .does("the first replica leads", |stage| exports_alone(stage, "suite-1"))
            .does("two replicas", |stage| async move { stage.world.backend.two_replicas() })
            .does("the first replica leads", |stage| exports_alone(stage, "suite-1"))
            .does("it loses the Lease", cut_from_the_lease)
            .does("the other one leads", |stage| exports_alone(stage, "suite-2"))
            .does("all is well", mend);
        Scenario::from(ends_well(story)).only_embedded(NO_FAULT_POINTS)
    }

    fn events_given_a_leader_that_is_lost_while_a_wave_soaks_then_each_change_of_state_is_told_once(pace) {
        let soak = pace.pick(120, 45);
        let waves = format!("[{{name: canary, selector: pool=canary, soak: {soak}s}}]");
        let story = Story::on(3)
            .with(Daemon::new().annotate("waves", &waves))
            .patch_node(1, json!({ "metadata": { "labels": { "pool": "canary" } } }))
            .writing(Writes::Attempts)
            .does("two replicas", |stage| async move { stage.world.backend.two_replicas() })
            .image(NEW)
            .until(condition("Progressing", "True", "soak time of wave canary"))
            .does("kill the leader", |stage| async move { stage.kill_leader().await })
            .until_within(converged().and(condition("RolloutComplete", "True", ": complete")), soak + 120)
            .expect(events_because("WaveNotOpen", 1).and(events_because("RolloutStarted", 1)));
        Scenario::from(story).alone()
    }

    fn upgrade_given_conditions_of_the_previous_release_then_the_rollout_goes_on_as_it_stood(pace) {
        let quiet = pace.pick(600, 20);
        let moving = upgraded(under_way(), &MOVING);
        let stopped = upgraded(three_of_six_crash(), &STOPPED_BY_GUARD)
            .until(is_stopped())
            .throughout(untouched(4..=6).and(events_because("RolloutStalled", 1)), quiet)
            .image(NEWER)
            .until(converged().and(condition("RolloutComplete", "True", ": complete")));
        let paused = Story::on(3).with(Daemon::new().annotate("paused", "true")).image(NEW);
        let paused = upgraded(paused.until(condition("Paused", "True", "")), &HALTED)
            .throughout(untouched(1..=3), quiet)
            .unannotate("paused")
            .until(converged());
        let moving = ends_well(moving).expect(events_because("RolloutStarted", 1));
        Scenario::from(vec![moving, stopped, paused]).alone()
    }

    fn s91_given_watches_that_expire_429_500_and_timeouts_then_no_lost_progress_no_excess_deletions(_pace) {
        let mut stories: Vec<Story> = (1..=8)
            .map(|seed| {
                let story = under_way()
                    .does("a storm", move |stage| storm(stage, seed))
                    .until(converged())
                    .does("the storm ends", mend);
                ends_well(story)
            })
            .collect();
        stories.push(ends_well(under_way().does("the watches expire", expire)));
        stories.push(ends_well(under_way().does("the watches expire", expire).offline([6]).online([6])));
        Scenario::from(stories).only_embedded(NO_FAULT_POINTS)
    }

    fn s91_given_an_api_server_that_answers_nobody_for_a_while_then_no_lost_progress_no_excess_deletions(_pace) {
        Scenario::from(ends_well(under_way().does("silence", silence))).alone()
    }

    fn s92_given_a_daemonset_deleted_mid_rollout_then_we_stop_no_error_loop(_pace) {
        under_way()
            .does("delete the DaemonSet", |stage| async move { stage.delete_daemon(&DeleteParams::background()).await })
            .until(pods(0))
            .wait(3)
            .remember()
            .quiet(600, 10)
            .pod_writes(0)
    }

    fn s93_given_a_missing_permission_then_an_event_names_the_verb_and_the_resource(pace) {
        let story = Story::on(3)
            .writing(Writes::Attempts)
            .does("revoke", |stage| async move { stage.world.backend.permission(Role::Controller, "delete", "pods", false).await })
            .image(NEW)
            .until(event("Warning", "delete pods (HTTP 403)"))
            .until(condition("Stalled", "True", "refuses to delete pods on").and(event("Warning", "cannot delete resource")))
            .throughout(untouched(1..=3), pace.pick(600, 5))
            .expect(one_event("Warning", "delete pods (HTTP 403)"))
            .does("grant", |stage| async move { stage.world.backend.permission(Role::Controller, "delete", "pods", true).await })
            .until(converged())
            .expect(deletions(3));
        Scenario::from(story).alone()
    }

    fn s44_given_the_daemonset_event_delivered_long_before_the_controllerrevision_event_then_as_43(pace) {
        let story = Story::on(3)
            .does("no news of revisions", |stage| blind(stage, "controllerrevisions"))
            .wait(2)
            .image(NEW)
            .throughout(no_deletions(), pace.pick(120, 10))
            .does("news again", mend)
            .until(converged())
            .throughout(deletions(3), 5);
        Scenario::from(story).only_embedded(NO_FAULT_POINTS)
    }

    fn s45_given_the_controllerrevision_event_first_then_no_pod_of_the_new_revision_is_deleted(_pace) {
        let story = Story::on(3)
            .does("no news of DaemonSets", |stage| blind(stage, "daemonsets"))
            .wait(2)
            .image(NEW)
            .until(observed())
            .delete_pod(2)
            .until(runs_current(2))
            .remember()
            .throughout(untouched([2]), 120)
            .does("news again", mend)
            .until(converged())
            .expect(untouched([2]).and(at_most_deletions(2)));
        Scenario::from(story).only_embedded(NO_FAULT_POINTS)
    }

    fn s48b_given_merged_duplicates_and_late_news_of_the_relabelled_pods_then_nothing_is_even_tried(_pace) {
        let story = Story::on(3)
            .writing(Writes::Attempts)
            .does("no news of pods", |stage| blind(stage, "pods"))
            .wait(2)
            .does("a duplicate of the revision", duplicate)
            .throughout(untouched(1..=3), 120)
            .pod_writes(0)
            .does("news again", mend)
            .until(converged())
            .throughout(untouched(1..=3), 600)
            .pod_writes(0);
        Scenario::from(story).only_embedded(NO_FAULT_POINTS)
    }

    fn s52_given_a_pod_replaced_between_decision_and_delete_then_the_precondition_fails_and_nothing_is_lost(_pace) {
        let slow = |request: &RequestInfo| match (request.verb.as_str(), request.resource.as_str()) {
            ("delete", "pods") => Fault::Delay(Duration::from_secs(2)),
            _ => Fault::Pass,
        };
        let begun = move || {
            Story::on(3)
                .writing(Writes::Attempts)
                .does("slow deletions", move |stage| async move { stage.world.backend.fault(Box::new(slow)) })
                .image(NEW)
                .until(observed())
                .wait(1)
        };
        let note = json!({ "metadata": { "annotations": { "example.com/note": "1" } } });
        Scenario::from(vec![
            begun().delete_pod(1).until(converged()).expect(deletions(2)),
            begun().step(crate::support::story::Step::PatchPod(1, note)).until(converged()).expect(deletions(3)),
        ])
        .only_embedded(NO_FAULT_POINTS)
    }
}

/// Makes the controller's watches and lists of this resource fail.
pub(crate) async fn blind(stage: Stage, resource: &'static str) -> anyhow::Result<()> {
    let deaf = move |request: &RequestInfo| match request.verb.as_str() {
        "watch" | "list" if request.resource == resource => Fault::Status(500, None),
        _ => Fault::Pass,
    };
    stage.world.backend.fault(Box::new(deaf))?;
    stage.world.backend.disconnect_watches()
}
