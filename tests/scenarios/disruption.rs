//! `disruption: evict`: rollouts that respect PodDisruptionBudgets.

use anyhow::Context as _;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use yurt_ds::k8s::client::Role;
use yurt_ds::sim::cluster::faults::{Fault, RequestInfo};

use crate::support::checks::*;
use crate::support::objects::*;
use crate::support::player::{Stage, from};
use crate::support::story::{Scenario, Step, Story, Writes};
use crate::support::suite::scenarios;

/// Text of the condition while a PodDisruptionBudget blocks the rollout.
const BLOCKED: &str = "PodDisruptionBudget web allows no eviction now";

/// Returns a DaemonSet with `disruption: evict`.
fn evicting() -> Daemon {
    Daemon::new().annotate("disruption", "evict")
}

/// Returns a story with `disruption: evict` on this many nodes, one of which may be unavailable.
fn fleet(nodes: usize) -> Story {
    Story::on(nodes).with(evicting()).writing(Writes::Evictions)
}

/// Returns the selector of the DaemonSet's pods.
fn pods() -> Value {
    json!({ "matchLabels": { "app": "nginx" } })
}

async fn make(stage: Stage, name: &str, spec: Value) -> anyhow::Result<()> {
    let budget: PodDisruptionBudget = from(json!({ "metadata": { "name": name }, "spec": spec }))?;
    let budgets: Api<PodDisruptionBudget> = stage.api();
    let made = budgets.create(&PostParams::default(), &budget).await;
    made.map(drop).context("make the budget")
}

/// Changes the spec of the PodDisruptionBudget `web`.
async fn change(stage: Stage, spec: Value) -> anyhow::Result<()> {
    let budgets: Api<PodDisruptionBudget> = stage.api();
    let patch = Patch::Merge(json!({ "spec": spec }));
    let changed = budgets.patch("web", &PatchParams::default(), &patch).await;
    changed.map(drop).context("change the budget")
}

/// Story steps that create, change and delete the PodDisruptionBudget `web`.
trait Budget {
    /// Creates the PodDisruptionBudget with this spec. The default selector matches all pods of the DaemonSet.
    fn budget(self, spec: Value) -> Self;
    /// Changes the spec of the PodDisruptionBudget.
    fn loosened(self, spec: Value) -> Self;
    /// Deletes the PodDisruptionBudget.
    fn without_budget(self) -> Self;
    /// Creates the PodDisruptionBudget with this `minAvailable`.
    fn at_least(self, pods: usize) -> Self;
    /// Changes `minAvailable` of the PodDisruptionBudget.
    fn lowered_to(self, pods: usize) -> Self;
}

impl Budget for Story {
    fn budget(self, mut spec: Value) -> Self {
        if spec["selector"].is_null() {
            spec["selector"] = pods();
        }
        self.does("make a budget", move |stage| {
            make(stage, "web", spec.clone())
        })
        .wait(2)
    }

    fn loosened(self, spec: Value) -> Self {
        self.does("change the budget", move |stage| {
            change(stage, spec.clone())
        })
    }

    fn without_budget(self) -> Self {
        self.does("delete the budget", |stage| async move {
            let budgets: Api<PodDisruptionBudget> = stage.api();
            budgets.delete("web", &DeleteParams::default()).await?;
            Ok(())
        })
    }

    fn at_least(self, pods: usize) -> Self {
        self.budget(json!({ "minAvailable": pods }))
    }

    fn lowered_to(self, pods: usize) -> Self {
        self.loosened(json!({ "minAvailable": pods }))
    }
}

/// Checks that the condition reports that the PodDisruptionBudget blocks the rollout.
fn blocked() -> Check {
    condition("RolloutComplete", "False", BLOCKED)
}

scenarios! {
    vary because "evictions and the status of PodDisruptionBudgets are the API server's and the disruption controller's work, which changed (unhealthyPodEvictionPolicy, DisruptionTarget)";
    fn ev01_given_evict_then_pods_are_evicted_and_none_is_deleted(_pace) {
        let alone = fleet(3).image(NEW).until(converged()).expect(deletions(3)).pod_writes(3);
        let with_room = fleet(3).at_least(2).image(NEW).until(converged()).expect(deletions(3).and(peak(1)));
        // `max-unavailable` allows three nodes at the same time, but the disruption budget allows only one pod.
        let narrower = Story { daemon: evicting().max_unavailable("3"), ..fleet(4) }
            .at_least(3)
            .image(NEW)
            .until(converged())
            .expect(deletions(4).and(peak(1)));
        let delete = Story::on(2)
            .with(Daemon::new().annotate("disruption", "delete"))
            .at_least(2)
            .image(NEW)
            .until(converged())
            .expect(deletions(2));
        vec![alone, with_room, narrower, delete]
    }

    fn ev02_given_a_budget_that_blocks_then_nothing_goes_until_it_is_lowered_and_one_event_says_so(pace) {
        fleet(3)
            .at_least(3)
            .image(NEW)
            .until(blocked())
            .until(condition("Progressing", "True", BLOCKED).and(one_event("Warning", BLOCKED)))
            .throughout(untouched(1..=3).and(blocked()), pace.pick(300, 45))
            .expect(one_event("Warning", BLOCKED))
            .lowered_to(2)
            .until(converged())
            .expect(deletions(3).and(peak(1)))
            .until(condition("RolloutComplete", "True", ": complete"))
    }

    fn ev03_given_one_pod_that_may_not_go_then_the_others_do_and_it_follows(pace) {
        let leader = json!({ "metadata": { "labels": { "role": "leader" } } });
        fleet(4)
            .step(Step::PatchPod(1, leader))
            .budget(json!({ "minAvailable": 1, "selector": { "matchLabels": { "role": "leader" } } }))
            .image(NEW)
            .until(replaced(2..=4))
            .until(blocked())
            .throughout(untouched([1]), pace.pick(120, 15))
            .without_budget()
            .until(converged())
            .expect(deletions(4).and(peak(1)))
    }

    /// The PodDisruptionBudget counts the pod of an offline node as missing. So no other pod can be evicted until the node returns.
    fn ev04_given_an_offline_node_then_the_budget_opens_with_its_return(pace) {
        fleet(3)
            .at_least(2)
            .offline([3])
            .image(NEW)
            .until(blocked())
            .throughout(untouched(1..=3), pace.pick(120, 15))
            .online([3])
            .until(converged())
            .expect(deletions(3).and(peak(1)))
    }

    fn ev05_given_a_restart_while_a_budget_blocks_then_it_asks_once_more_and_nothing_is_told_twice(pace) {
        let story = fleet(3)
            .at_least(3)
            .image(NEW)
            .until(blocked().and(one_event("Warning", BLOCKED)))
            .controller(false)
            .wait(3)
            .controller(true)
            .throughout(untouched(1..=3).and(blocked()), pace.pick(120, 25))
            .expect(one_event("Warning", BLOCKED))
            .lowered_to(2)
            .until(replaced([1]))
            .controller(false)
            .wait(3)
            .controller(true)
            .until(converged())
            .expect(deletions(3));
        Scenario::from(story).alone()
    }

    fn ev06_given_a_rollback_in_the_middle_then_who_did_not_go_stays(pace) {
        let untouched_fleet = fleet(3)
            .at_least(3)
            .image(NEW)
            .until(blocked())
            .image(OLD)
            .until(condition("RolloutComplete", "True", ": complete"))
            .throughout(untouched(1..=3).and(deletions(0)), pace.pick(60, 5));
        // The controller requests two evictions, and the budget accepts one. The new pod on that node is never Ready. The budget
        // doesn't protect such a pod (`IfHealthyBudget`), so the rollback may evict it.
        let daemon = evicting().max_unavailable("2").annotate("failure-threshold", "100%");
        let one_gone = Story { daemon, ..fleet(3) }
            .allowed(2)
            .behave(NEW, never_ready())
            .at_least(2)
            .image(NEW)
            .until(deletions(1))
            .throughout(untouched([3]).and(deletions(1)), pace.pick(120, 15))
            .image(OLD)
            .until(converged())
            .expect(untouched([3]).and(deletions(2)));
        vec![untouched_fleet, one_gone]
    }

    fn ev07_given_partition_and_selector_then_only_those_are_evicted(pace) {
        let kept = Story { daemon: evicting().annotate("partition", "1"), ..fleet(3) }
            .at_least(2)
            .image(NEW)
            .until(replaced(1..=2).and(condition("RolloutComplete", "True", "1 node stays on the old version")))
            .throughout(untouched([3]), pace.pick(60, 5));
        let pool = json!({ "metadata": { "labels": { "pool": "canary" } } });
        let selected = Story { daemon: evicting().annotate("selector", "pool=canary"), ..fleet(3) }
            .at_least(3)
            .patch_node(2, pool)
            .image(NEW)
            .until(blocked())
            .lowered_to(2)
            .until(replaced([2]))
            .throughout(untouched([1, 3]), pace.pick(60, 5));
        vec![kept, selected]
    }

    fn ev08_given_paused_while_a_budget_blocks_then_nobody_is_asked(pace) {
        // At the end, `disruption: delete` ignores the PodDisruptionBudget, so the rollout completes.
        fleet(3)
            .writing(Writes::Attempts)
            .at_least(3)
            .image(NEW)
            .until(blocked())
            .annotate("paused", "true")
            .until(condition("Paused", "True", ""))
            .remember()
            .throughout(untouched(1..=3), pace.pick(600, 30))
            .pod_writes(0)
            .unannotate("paused")
            .until(blocked())
            .annotate("disruption", "delete")
            .step(Step::Remember)
            .until(converged())
            .expect(deletions(3))
    }

    fn ev09_given_surge_then_the_old_pod_is_evicted_once_the_new_one_counts(pace) {
        let surging = |nodes| {
            let daemon = evicting().without("max-unavailable").annotate("max-surge", "1");
            Story { daemon, ..fleet(nodes) }.allowed(0).writing(Writes::Surges).always_served()
        };
        // The budget requires three healthy pods. The surge pod is the fourth, so one old pod can be evicted.
        let through = surging(3).at_least(3).image(NEW).until(converged()).expect(spares(0).and(deletions(3)));
        let stuck = || surging(2).at_least(3).image(NEW).until(beside_each_other([1])).until(blocked());
        let lowered = stuck()
            .throughout(untouched(1..=2).and(spares(1)), pace.pick(120, 15))
            .lowered_to(2)
            .until(converged())
            .expect(spares(0).and(deletions(2)));
        let back = stuck()
            .image(OLD)
            .until(spares(0).and(condition("RolloutComplete", "True", ": complete")))
            .expect(untouched(1..=2).and(deletions(0)));
        vec![through, lowered, back]
    }

    fn ev10_given_a_hook_then_it_is_asked_first_and_the_budget_afterwards(pace) {
        const HOOK: &str = r#"{"preDelete": {"labelsHandler": {"example.io/drain": "true"}}}"#;
        let label = |value: Option<&str>| json!({ "metadata": { "labels": { "example.io/drain": value } } });
        let daemon = evicting().annotate("lifecycle", HOOK).pod_label("example.io/drain", "true");
        Story { daemon, ..fleet(2) }
            .writing(Writes::Marks)
            .at_least(2)
            .image(NEW)
            .until(preparing([1]))
            .expect(not_blocked())
            .step(Step::PatchPod(1, label(None)))
            .until(blocked())
            .throughout(untouched(1..=2).and(preparing([1])), pace.pick(120, 15))
            .lowered_to(1)
            .until(replaced([1]).and(preparing([2])))
            .unannotate("lifecycle")
            .until(converged())
            .expect(deletions(2))
    }

    fn ev11_given_budgets_that_cannot_work_then_it_says_what_to_correct(pace) {
        let uncounted = |spec: Value| fleet(2)
            .budget(spec)
            .image(NEW)
            .until(condition("RolloutComplete", "False", "PodDisruptionBudget web blocks all evictions"))
            .until(event("Warning", "minAvailable to a number"))
            .throughout(untouched(1..=2), pace.pick(60, 5))
            .loosened(json!({ "minAvailable": 1, "maxUnavailable": null }))
            .until(converged())
            .expect(deletions(2));
        let several = fleet(2)
            .at_least(1)
            .does("make another budget", |stage| make(stage, "other", json!({ "minAvailable": 1, "selector": pods() })))
            .image(NEW)
            .until(condition("RolloutComplete", "False", "more than one PodDisruptionBudget selects the pods"))
            .throughout(untouched(1..=2), pace.pick(60, 5))
            .without_budget()
            .until(converged())
            .expect(deletions(2));
        vec![
            uncounted(json!({ "maxUnavailable": 1 })),
            uncounted(json!({ "minAvailable": "50%" })),
            several,
        ]
    }

    fn ev12_given_a_broken_old_pod_then_the_policy_of_the_budget_decides_whether_it_goes(pace) {
        fleet(3)
            .behave_on(2, OLD, never_ready())
            .delete_pod(2)
            .until(broken_on([2]))
            .at_least(3)
            .image(NEW)
            .until(blocked())
            .throughout(untouched([1, 3]).and(deletions(0)), pace.pick(120, 15))
            .loosened(json!({ "unhealthyPodEvictionPolicy": "AlwaysAllow" }))
            .until(replaced([2]))
            .until(blocked())
            .expect(untouched([1, 3]).and(deletions(1)))
            .lowered_to(2)
            .until(converged())
    }

    fn ev13_given_an_api_server_that_asks_for_patience_then_no_budget_is_blamed(_pace) {
        let busy = |request: &RequestInfo| match request.subresource.as_str() {
            "eviction" => Fault::Status(429, Some(1)),
            _ => Fault::Pass,
        };
        let story = fleet(2)
            .does("refuse evictions", move |stage| async move { stage.world.backend.fault(Box::new(busy)) })
            .image(NEW)
            .throughout(untouched(1..=2).and(not_blocked()), 120)
            .does("mend", |stage| async move {
                stage.world.backend.mend();
                Ok(())
            })
            .until(converged())
            .expect(deletions(2));
        Scenario::from(story).only_embedded("there is nothing between a real API server and the controller that could refuse")
    }

    fn ev14_given_a_missing_permission_then_an_event_names_it(pace) {
        let story = fleet(2)
            .does("revoke", |stage| async move {
                stage.world.backend.permission(Role::Controller, "create", "pods/eviction", false).await
            })
            .image(NEW)
            .until(event("Warning", "create pods/eviction"))
            .throughout(untouched(1..=2).and(not_blocked()), pace.pick(600, 5))
            .expect(one_event("Warning", "create pods/eviction"))
            .does("grant", |stage| async move {
                stage.world.backend.permission(Role::Controller, "create", "pods/eviction", true).await
            })
            .until(converged())
            .expect(deletions(2));
        Scenario::from(story).alone()
    }

    fn ev15_given_waves_then_the_next_one_waits_for_who_is_blocked(pace) {
        let pool = json!({ "metadata": { "labels": { "pool": "canary" } } });
        let daemon = evicting().annotate("waves", "[{name: canary, selector: pool=canary}]");
        Story { daemon, ..fleet(3) }
            .patch_node(2, pool)
            .at_least(3)
            .image(NEW)
            .until(blocked())
            .throughout(untouched(1..=3), pace.pick(120, 15))
            .lowered_to(2)
            .until(converged())
            .expect(in_order([2, 1, 3]))
    }
}

/// Checks that the condition doesn't mention a PodDisruptionBudget.
fn not_blocked() -> Check {
    Check::new("not blocked", |picture| {
        let condition = picture.condition("RolloutComplete");
        let message = condition.and_then(|condition| condition.message.as_deref());
        if message.is_some_and(|message| message.contains("PodDisruptionBudget")) {
            Err("it is".into())
        } else {
            Ok(())
        }
    })
}

/// Checks that each of these nodes has a live pod that is not available.
fn broken_on(nodes: impl IntoIterator<Item = usize>) -> Check {
    let nodes: Vec<usize> = nodes.into_iter().collect();
    Check::new(format!("broken on {nodes:?}"), move |picture| {
        for node in nodes.iter().map(|number| picture.node(*number)) {
            let mut living = picture.living(&node);
            if !living.any(|pod| !picture.is_available_now(pod)) {
                return Err(format!("{node} is not"));
            }
        }
        Ok(())
    })
}
