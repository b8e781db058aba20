//! Advanced DaemonSets (`apps.kruise.io`): the behavior that Kruise's own tests check, and the work that the native controller does
//! for native DaemonSets.
//!
//! For Advanced DaemonSets, yurt-ds creates, replaces and deletes pods, keeps revisions, and writes the status. Rollouts go from
//! the highest node name to the lowest. Kruise sometimes exceeds the budget (the number of nodes that may be down), and yurt-ds
//! never does. The name or comment of a scenario about this difference says "strict". "Case N" is the number of a test of Kruise
//! in the specification, which is not in this repository.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use yurt_ds::k8s::client::Role;
use yurt_ds::sim::kubelet::{Behaviour, FakeNodeSpec, Outage};

use super::guard::evicting;
use super::paused::joins;
use crate::support::checks::*;
use crate::support::machine::{BUSY, is_deep};
use crate::support::objects::*;
use crate::support::picture::{condition_of, controller_of, hash, uid};
use crate::support::player::{Stage, from};
use crate::support::story::{SEEN, Scenario, Step, Story, secs};
use crate::support::suite::scenarios;
use crate::support::world::Moment;

/// Label that represents a preDelete hook on a pod.
const DRAIN: &str = "example.io/drain";
/// Readiness gate that Kruise adds for in-place updates.
const GATE: &str = "InPlaceUpdateReady";

/// Returns a story with an Advanced DaemonSet on this many nodes, with this `maxUnavailable`.
fn fleet(nodes: usize, max_unavailable: usize) -> Story {
    let daemon = Daemon::advanced().rolling("maxUnavailable", max_unavailable);
    Story::on(nodes).with(daemon).allowed(max_unavailable)
}

/// Returns a story with `maxSurge`, so that new pods are created next to old ones.
fn surging(nodes: usize, surge: impl Into<Value>) -> Story {
    let daemon = Daemon::advanced().rolling("maxSurge", surge);
    let story = Story::on(nodes)
        .with(daemon.rolling("maxUnavailable", 0))
        .allowed(0);
    story.always_served()
}

fn in_place(max_unavailable: usize) -> Daemon {
    Daemon::advanced()
        .rolling("rollingUpdateType", "InPlaceIfPossible")
        .rolling("maxUnavailable", max_unavailable)
}

fn pool(name: &str) -> Value {
    json!({ "metadata": { "labels": { "pool": name } } })
}

/// Returns a patch of an environment variable, which can't be changed in place.
fn env(value: &str) -> Value {
    json!({ "spec": { "template": { "spec": { "containers": [
        { "name": "nginx", "image": NEW, "env": [{ "name": "GREETING", "value": value }] },
    ] } } } })
}

/// Returns a patch of the node selector, so that only nodes with this color get a pod.
fn colored(color: &str) -> Value {
    json!({ "spec": { "template": { "spec": { "nodeSelector": { "color": color } } } } })
}

fn taint(effect: Option<&str>) -> Value {
    let taints = effect.map(|effect| json!([{ "key": "dedicated", "effect": effect }]));
    json!({ "spec": { "taints": taints } })
}

/// Returns the behavior of a container that takes this long to become ready.
fn ready_after(seconds: u64) -> Behaviour {
    Behaviour {
        ready_after: secs(seconds),
        ..Behaviour::default()
    }
}

/// Replaces the pod on each node with a pod that never becomes Ready.
fn break_pods(story: Story, nodes: usize) -> Story {
    let story = (1..=nodes).fold(story.behave(OLD, never_ready()), |story, node| {
        story.delete_pod(node)
    });
    story.until(Check::new("their pods are broken", move |picture| {
        for name in (1..=nodes).map(|node| picture.node(node)) {
            let living: Vec<_> = picture.living(&name).collect();
            if living.is_empty() || living.iter().any(|pod| picture.is_available_now(pod)) {
                return Err(name);
            }
        }
        Ok(())
    }))
}

/// Returns a story in the middle of a rollout: only the node `updated` has the new image, because a selector limits the rollout to
/// it.
fn mixed(nodes: usize, updated: usize) -> Story {
    let selector =
        json!({ "matchExpressions": [{ "key": "pool", "operator": "In", "values": ["first"] }] });
    Story::on(nodes)
        .patch_node(updated, pool("first"))
        .with(Daemon::advanced().rolling("selector", selector))
        .image(NEW)
        .until(replaced([updated]).and(condition("RolloutComplete", "True", "not selected")))
}

/// Returns a patch of partition and selector in a single write, so that the controller never sees only one of the changes.
fn chosen_by(partition: usize, key: Option<(&str, &str)>) -> Value {
    let selector = key.map(|(operator, value)| {
        json!({ "matchExpressions": [{ "key": "pool", "operator": operator, "values": [value] }] })
    });
    rolling_patch(json!({ "partition": partition, "selector": selector }))
}

/// Checks these fields in the status of the DaemonSet.
fn numbers<const N: usize>(expected: [(&'static str, u64); N]) -> Check {
    Check::new(format!("{expected:?} in the status"), move |picture| {
        for (name, value) in expected {
            let found = picture.status[name].as_u64().unwrap_or(0);
            if found != value {
                return Err(format!("{name} is {found}"));
            }
        }
        Ok(())
    })
}

/// Checks the whole status of a complete rollout on this many nodes: the numbers, the observed generation, and the revision. Every
/// pod must have that revision.
fn counted(nodes: u64) -> Check {
    let all = numbers([
        ("desiredNumberScheduled", nodes),
        ("currentNumberScheduled", nodes),
        ("numberReady", nodes),
        ("numberAvailable", nodes),
        ("updatedNumberScheduled", nodes),
        ("numberUnavailable", 0),
        ("numberMisscheduled", 0),
    ]);
    all.and(Check::new(
        "generation and revision in the status",
        |picture| {
            let daemon = picture.daemon.as_ref().ok_or("no DaemonSet")?;
            let observed = picture.status["observedGeneration"].as_i64();
            if observed != daemon.metadata.generation {
                return Err(format!("generation {observed:?}"));
            }
            let current = picture.current().ok_or("no revision")?;
            for name in ["updateRevision", "daemonSetHash"] {
                if picture.status[name] != **current {
                    return Err(format!("{name} is not {current}: {}", picture.status[name]));
                }
            }
            let stray = picture
                .pods()
                .filter(|pod| pod.metadata.deletion_timestamp.is_none())
                .find(|pod| hash(&pod.metadata) != Some(current));
            stray.map_or(Ok(()), |pod| {
                Err(format!("{:?} is of another", pod.metadata.name))
            })
        },
    ))
}

fn is_complete() -> Check {
    condition("RolloutComplete", "True", ": complete")
}

/// Overwrites the status with wrong values, as another client might. Returns false if the status already had these wrong values.
async fn overwrite_status(stage: &Stage) -> anyhow::Result<bool> {
    let daemons = stage.daemons();
    let before = daemons.get(DAEMON).await?;
    let mut patch = json!({ "status": { "conditions": [
        { "type": "RolloutComplete", "status": "False", "reason": "Wrong", "message": "wrong" },
    ] } });
    let patch = match before
        .types
        .as_ref()
        .is_some_and(|types| types.api_version == "apps/v1")
    {
        true => Patch::Strategic(patch),
        false => {
            patch["status"]["observedGeneration"] = json!(99);
            patch["status"]["numberReady"] = json!(77);
            Patch::Merge(patch)
        }
    };
    let parameters = PatchParams {
        field_manager: Some("meddler".to_owned()),
        ..PatchParams::default()
    };
    let after = daemons.patch_status(DAEMON, &parameters, &patch).await?;
    Ok(before.metadata.resource_version != after.metadata.resource_version)
}

/// Overwrites the status again after each correction by the controller, until `time` has passed. Checks the number of corrections.
async fn fight_for_status(stage: &Stage, time: Duration) -> anyhow::Result<()> {
    let mut corrections = 0;
    let end = tokio::time::Instant::now() + time;
    while tokio::time::Instant::now() < end {
        corrections += u32::from(overwrite_status(stage).await?);
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    // The controller doubles its pause after each correction, so the number of corrections grows only with the logarithm of the
    // time.
    let most = time.as_secs().ilog2() + 4;
    anyhow::ensure!(
        (3..=most).contains(&corrections),
        "{corrections} corrections in {time:?}"
    );
    Ok(())
}

/// Checks that the current DaemonSet owns every pod, by UID.
fn owned() -> Check {
    Check::new("every pod is the DaemonSet's", |picture| {
        let daemon = picture.daemon.as_ref().ok_or("no DaemonSet")?;
        let owner = |pod: &&Pod| {
            controller_of(&pod.metadata).map(|owner| &owner.uid) == daemon.metadata.uid.as_ref()
        };
        let stray = picture.pods().find(|pod| !owner(pod));
        stray.map_or(Ok(()), |pod| Err(format!("{:?} is not", pod.metadata.name)))
    })
}

/// Checks the numbers of the DaemonSet's ControllerRevisions.
fn revisions<const N: usize>(expected: [i64; N]) -> Check {
    Check::new(format!("revisions {expected:?}"), move |picture| {
        let mut found: Vec<i64> = picture.revisions().map(|one| one.revision).collect();
        found.sort_unstable();
        if found == expected {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        }
    })
}

/// Checks that the ControllerRevision of every pod still exists.
fn live_revisions_kept() -> Check {
    Check::new("the revision of every pod is there", |picture| {
        let kept: BTreeSet<_> = picture.revisions().map(|one| hash(&one.metadata)).collect();
        let lost = picture
            .pods()
            .find(|pod| !kept.contains(&hash(&pod.metadata)));
        lost.map_or(Ok(()), |pod| {
            Err(format!("that of {:?} is not", pod.metadata.name))
        })
    })
}

/// Checks that every pod has the readiness gate of in-place updates and that its condition is true.
fn gates_open() -> Check {
    Check::new("the readiness gate of every pod is open", |picture| {
        for pod in picture.pods() {
            let gates = pod.spec.iter();
            let mut gates = gates.flat_map(|spec| spec.readiness_gates.iter().flatten());
            let has = gates.any(|gate| gate.condition_type == GATE);
            let open = condition_of(pod, GATE).is_some_and(|found| found.status == "True");
            if !has || !open {
                let name = &pod.metadata.name;
                return Err(format!("{name:?}: has it {has}, open {open}"));
            }
        }
        Ok(())
    })
}

/// Checks that exactly these nodes have a pod.
fn occupied<const N: usize>(nodes: [usize; N]) -> Check {
    Check::new(
        format!("pods on {nodes:?} and nowhere else"),
        move |picture| {
            let wanted: BTreeSet<String> = nodes.iter().map(|node| picture.node(*node)).collect();
            let pods = picture.pods();
            let found: BTreeSet<String> = pods
                .filter_map(|pod| pod.spec.as_ref()?.node_name.clone())
                .collect();
            if found == wanted {
                Ok(())
            } else {
                Err(format!("{found:?}"))
            }
        },
    )
}

/// Checks that the old pod on each of these nodes is available and has exactly one new pod next to it.
fn two_on<const N: usize>(nodes: [usize; N]) -> Check {
    Check::new(format!("two pods on {nodes:?}"), move |picture| {
        for node in nodes.map(|number| picture.node(number)) {
            let living: Vec<_> = picture.living(&node).collect();
            let old = |pod: &&&Pod| picture.remembered(&node) == Some(&uid(&pod.metadata));
            let new = |pod: &&&Pod| hash(&pod.metadata) == picture.current();
            let serves = living.iter().find(old);
            if !serves.is_some_and(|pod| picture.is_available_now(pod))
                || living.iter().filter(new).count() != 1
            {
                return Err(format!("{node} has {} pods", living.len()));
            }
        }
        Ok(())
    })
}

/// Makes the pod on a node fail permanently, as if the kubelet had evicted it.
fn fails(story: Story, node: usize) -> Story {
    story.does("a pod fails", move |stage: Stage| async move {
        fail(&stage, node).await
    })
}

async fn fail(stage: &Stage, node: usize) -> anyhow::Result<()> {
    let name = stage.pod_on(node).await?.name_any();
    let patch = Patch::Merge(json!({ "status": { "phase": "Failed", "reason": "Evicted" } }));
    let pods = stage.api::<Pod>();
    pods.patch_status(&name, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

/// Makes every pod of a node fail as soon as it is available. Checks that the backoff before the next pod doubles each time.
async fn fails_again_and_again(stage: Stage, node: usize, times: u32) -> anyhow::Result<()> {
    let mut gone = Vec::new();
    for _ in 0..times {
        stage
            .until(&all_available(2))
            .await
            .map_err(anyhow::Error::msg)?;
        let failed = uid(&stage.pod_on(node).await?.metadata);
        fail(&stage, node).await?;
        let (name, other) = (stage.node(node), failed.clone());
        let next = Check::new("another pod", move |picture| {
            let mut living = picture.living(&name);
            if living.any(|pod| uid(&pod.metadata) != other) {
                Ok(())
            } else {
                Err("none".to_owned())
            }
        });
        stage.until(&next).await.map_err(anyhow::Error::msg)?;
        gone.push(stage.world.clock.now().as_second());
    }
    for (number, pair) in (0..).zip(gone.windows(2)) {
        let (pause, least) = (pair[1] - pair[0], 1_i64 << number);
        anyhow::ensure!(
            pause + 1 >= least,
            "the next pod went after {pause} s instead of {least}: {gone:?}"
        );
    }
    Ok(())
}

/// Sets the owner references of the pod on a node.
fn owned_by(story: Story, node: usize, owners: Value) -> Story {
    let patch = json!({ "metadata": { "ownerReferences": owners } });
    story.step(Step::PatchPod(node, patch))
}

fn deleted(story: Story, params: DeleteParams) -> Story {
    story.does("delete the DaemonSet", move |stage: Stage| {
        let params = params.clone();
        async move { stage.delete_daemon(&params).await }
    })
}

fn killed_at(story: Story, number: usize, moment: Moment) -> Story {
    story
        .does("lie in wait for a write", move |stage: Stage| async move {
            stage.world.backend.kill_at(number, moment)
        })
        .image(NEW)
        .until(converged().and(counted(3)))
        .expect(revisions([1, 2]).and(owned()))
}

/// Returns a DaemonSet as Kruise leaves it in the middle of a rollout.
fn left_by_kruise() -> Daemon {
    let hook = json!({ "preDelete": { "labelsHandler": { DRAIN: "true" } } });
    in_place(1)
        .field("lifecycle", hook)
        .pod_label(DRAIN, "true")
        .image(NEW)
}

/// Returns a template in the form in which Kruise stores it in a revision. Only revision 1 has an environment variable.
fn kruise_template(number: usize, scenario: &str) -> Value {
    let image = if number == 3 { NEW } else { OLD };
    let mut container = json!({ "image": image, "name": "nginx", "resources": {} });
    if number == 1 {
        container["env"] = json!([{ "name": "GREETING", "value": "hello" }]);
    }
    json!({
        "$patch": "replace",
        "metadata": { "creationTimestamp": null, "labels": { "app": "nginx", DRAIN: "true" } },
        "spec": {
            "containers": [container],
            "nodeSelector": { "scenario": scenario },
            "terminationGracePeriodSeconds": 30,
        },
    })
}

/// Returns a pod as Kruise creates it for this revision.
fn kruise_pod(name: &str, node: &str, revision: usize, scenario: &str) -> Value {
    let term =
        json!({ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": [node] }] });
    let required = json!({ "nodeSelectorTerms": [term] });
    let mut spec = kruise_template(revision, scenario)["spec"].take();
    spec["affinity"] =
        json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": required } });
    spec["readinessGates"] = json!([{ "conditionType": GATE }]);
    json!({
        "metadata": {
            "name": name,
            "labels": { "app": "nginx", DRAIN: "true", "controller-revision-hash": HASHES[revision - 1] },
        },
        "spec": spec,
    })
}

/// Hashes of the three revisions, as Kruise computes them. yurt-ds would compute different hashes.
const HASHES: [&str; 3] = ["b7c9f5d8", "5d8f9c7b6f", "7c9b8d6f54"];

/// Replaces the story's pods and revisions with the objects that Kruise would have created.
///
/// Node 1 has an outdated pod that can be updated in place. Node 2 has an outdated pod that can't be updated in place, and that
/// waits for its hook. Node 3 has a new pod. Node 4 has a pod that was updated in place.
async fn is_left_by_kruise(stage: Stage) -> anyhow::Result<()> {
    let all = ListParams::default();
    stage.delete_daemon(&DeleteParams::orphan()).await?;
    let (pods, revisions) = (stage.api::<Pod>(), stage.api::<ControllerRevision>());
    for pod in pods.list(&all).await? {
        stage.excuse(&uid(&pod.metadata)).await;
        let at_once = DeleteParams::default().grace_period(0);
        pods.delete(&pod.name_any(), &at_once).await?;
    }
    for revision in revisions.list(&all).await? {
        let params = DeleteParams::default();
        revisions.delete(&revision.name_any(), &params).await?;
    }
    stage.create_daemon(&left_by_kruise()).await?;
    let owner = stage.daemons().get(DAEMON).await?.uid();
    let owners = json!([{
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "DaemonSet", "name": DAEMON, "uid": owner,
        "controller": true, "blockOwnerDeletion": true,
    }]);
    let params = PostParams::default();
    for (number, hash) in (1..).zip(HASHES) {
        let revision = json!({
            "metadata": {
                "name": format!("{DAEMON}-{hash}"),
                "labels": { "app": "nginx", DRAIN: "true", "controller-revision-hash": hash },
                "ownerReferences": owners,
            },
            "revision": number,
            "data": { "spec": { "template": kruise_template(number, &stage.name) } },
        });
        revisions.create(&params, &from(revision)?).await?;
    }
    let now = stage.world.clock.now().to_string();
    for (number, revision) in (1..).zip([2, 1, 3, 3]) {
        let name = format!("{DAEMON}-k{number}");
        let mut pod = kruise_pod(&name, &stage.node(number), revision, &stage.name);
        pod["metadata"]["ownerReferences"] = owners.clone();
        if number == 2 {
            pod["metadata"]["labels"]["lifecycle.apps.kruise.io/state"] = "PreparingDelete".into();
            pod["metadata"]["annotations"] =
                json!({ "lifecycle.apps.kruise.io/timestamp": "2026-01-05T07:59:00Z" });
        }
        if number == 4 {
            let state = json!({
                "revision": HASHES[2],
                "updateTimestamp": "2026-01-05T07:58:00Z",
                "lastContainerStatuses": { "nginx": { "imageID": "sha256:before" } },
                "updateImages": true,
            });
            pod["metadata"]["annotations"] =
                json!({ "apps.kruise.io/inplace-update-state": state.to_string() });
        }
        pods.create(&params, &from(pod)?).await?;
        let open = json!([{ "type": GATE, "status": "True", "lastTransitionTime": now }]);
        let patch = Patch::Strategic(json!({ "status": { "conditions": open } }));
        let patching = PatchParams::default();
        pods.patch_status(&name, &patching, &patch).await?;
    }
    Ok(())
}

/// Removes half of the nodes, one at a time. A new node joins for each removed node.
///
/// Nodes are removed in an irregular order. Every fifth removed node is one that has joined recently.
async fn come_and_go(stage: Stage, nodes: usize) -> anyhow::Result<()> {
    let pause = stage.world.pace.pick(200, 500);
    for turn in 1..=nodes / 2 {
        let leaves = match turn % 5 {
            0 => nodes + turn - 2,
            _ => turn * 37 % nodes + 1,
        };
        let (leaves, joins) = (stage.node(leaves), stage.node(nodes + turn));
        stage.excuse(&leaves).await;
        stage.world.kubelets.remove_node(&leaves).await?;
        let node = FakeNodeSpec::named(joins).label("scenario", &stage.name);
        stage.world.kubelets.add_nodes(vec![node]).await?;
        tokio::time::sleep(std::time::Duration::from_millis(pause)).await;
    }
    Ok(())
}

/// Deletes the pods of deleted nodes, as the pod garbage collector of Kubernetes would do after a minute.
async fn collect_pods(stage: Stage) -> anyhow::Result<()> {
    let all = ListParams::default();
    let nodes = Api::<Node>::all(stage.world.client.clone());
    let nodes: BTreeSet<String> = nodes.list(&all).await?.iter().map(Node::name_any).collect();
    let pods = stage.api::<Pod>();
    for pod in pods.list(&all).await? {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
        if node.is_some_and(|node| !nodes.contains(node)) {
            let at_once = DeleteParams::default().grace_period(0);
            pods.delete(&pod.name_any(), &at_once).await?;
        }
    }
    Ok(())
}

/// Waits until no pod and no revision of the story is left.
async fn all_gone(stage: Stage) -> anyhow::Result<()> {
    let (pods, revisions) = (stage.api::<Pod>(), stage.api::<ControllerRevision>());
    let all = ListParams::default();
    for _ in 0..200 * BUSY {
        let left = pods.list(&all).await?.items.len() + revisions.list(&all).await?.items.len();
        if left == 0 {
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    anyhow::bail!("pods or revisions are left")
}

scenarios! {
    /// Kruise's case 1. The default strategy updates one node at a time.
    fn advanced01_given_the_default_strategy_then_every_node_has_a_pod_and_a_deleted_one_comes_back(pace) {
        Story::on(3)
            .with(Daemon::advanced())
            .expect(owned().and(revisions([1])))
            .until(counted(3))
            .delete_pod(2)
            .until(replaced([2]).and(counted(3)))
            .throughout(untouched([1, 3]), pace.pick(600, 4))
            .image(NEW)
            .until(converged().and(counted(3)))
            .expect(deletions(3).and(in_order([3, 2, 1])).and(peak(1)).and(revisions([1, 2])))
            .expect(condition("RolloutComplete", "True", ": complete"))
            // The next step allows no requests, so wait until the last Events have been written.
            .wait(pace.pick(1, 8))
            .quiet(600, 5)
    }

    fn advanced02_given_a_template_that_selects_a_color_then_exactly_the_nodes_of_that_color_have_a_pod(_pace) {
        let painted = |color: &str| json!({ "metadata": { "labels": { "color": color } } });
        (1..=3).fold(fleet(3, 3), Story::excuse)
            .patch(colored("blue"))
            .until(occupied([]).and(numbers([("desiredNumberScheduled", 0), ("numberMisscheduled", 0)])))
            .patch_node(2, painted("blue"))
            .until(occupied([2]).and(counted(1)))
            .patch_node(2, painted("green"))
            .until(occupied([]).and(numbers([("desiredNumberScheduled", 0)])))
            .patch(colored("green"))
            .until(occupied([2]).and(counted(1)))
    }

    /// A pod that has ended is deleted and replaced, whether it failed or succeeded.
    fn advanced03_given_a_pod_that_is_over_then_its_object_goes_and_the_node_has_an_available_one_again(pace) {
        let failed = fails(fleet(3, 1), 2)
            .until(replaced([2]).and(counted(3)))
            .until(event("Warning", "Found failed daemon pod"))
            .throughout(untouched([1, 3]), pace.pick(60, 3));
        let succeeded = fleet(3, 1)
            .does("a pod ends", |stage: Stage| async move {
                let name = stage.pod_on(3).await?.name_any();
                let patch = Patch::Merge(json!({ "status": { "phase": "Succeeded" } }));
                let pods = stage.api::<Pod>();
                pods.patch_status(&name, &PatchParams::default(), &patch).await?;
                Ok(())
            })
            .until(replaced([3]).and(counted(3)));
        let beside = fails(surging(3, 1), 1).until(replaced([1]).and(counted(3)));
        let beside = Story { always_served: false, ..beside };
        vec![failed, succeeded, beside]
    }

    fn advanced03_given_a_node_that_evicts_each_new_pod_then_the_rollout_is_stalled_until_it_keeps_one(pace) {
        vec![evicting(fleet(3, 1), pace), evicting(surging(3, 1), pace)]
    }

    fn advanced04_given_in_place_and_another_image_then_every_pod_keeps_its_name_and_gets_it(pace) {
        Story::on(5)
            .with(in_place(5))
            .allowed(5)
            .expect(gates_open())
            .image(NEW)
            .until(converged().and(gates_open()).and(counted(5)))
            .expect(renewed(1..=5).and(deletions(0)).and(renewals(5)))
            .throughout(untouched(1..=5), pace.pick(60, 3))
    }

    fn advanced05_given_in_place_then_an_image_keeps_pods_and_a_variable_after_it_does_not(_pace) {
        Story::on(4)
            .with(in_place(20))
            .allowed(4)
            .image(NEW)
            .until(converged().and(renewed(1..=4)))
            .remember()
            .patch(env("hello"))
            .until(converged().and(replaced(1..=4)).and(gates_open()).and(counted(4)))
    }

    /// In-place updates go from the highest node name to the lowest, one node at a time.
    fn advanced05_given_in_place_and_max_unavailable_1_then_one_after_the_other(pace) {
        Story::on(4)
            .with(in_place(1))
            .behave(NEW, ready_after(pace.pick(10, 2)))
            .image(NEW)
            .until(converged().and(gates_open()))
            .expect(renewed(1..=4).and(renewals(4)).and(Check::new("from the highest name down", |picture| {
                let found: Vec<_> = picture.renewals.iter().map(|one| one.node.clone()).collect();
                if found.is_sorted_by(|a, b| a > b) { Ok(())
} else { Err(format!("{found:?}"))
}
            })))
    }

    fn advanced06_given_a_hook_by_label_then_one_pod_waits_and_goes_when_it_is_released(pace) {
        let hook = json!({ "preDelete": { "labelsHandler": { DRAIN: "true" } } });
        let daemon = in_place(1).field("lifecycle", hook).pod_label(DRAIN, "true");
        let release = json!({ "metadata": { "labels": { DRAIN: null } } });
        Story::on(3)
            .with(daemon)
            .patch(env("hello"))
            .until(preparing([3]))
            .throughout(untouched(1..=3).and(preparing([3])), pace.pick(300, 5))
            .step(Step::PatchPod(3, release))
            // The controller updates the numbers in the status within two seconds.
            .until(replaced([3]).and(preparing([2])).and(numbers([("updatedNumberScheduled", 1)])))
            .expect(untouched(1..=2))
            // Without `lifecycle`, the waiting pods have no hook to wait for, so they are deleted.
            .patch(json!({ "spec": { "lifecycle": null } }))
            .until(converged().and(preparing([])))
            .expect(deletions(3))
    }

    fn advanced07_given_max_surge_100_percent_then_every_node_has_two_pods_for_a_while(pace) {
        let min_ready = pace.pick(10, 5);
        let story = surging(3, "100%");
        Story { daemon: story.daemon.clone().min_ready(min_ready), ..story }
            .image(NEW)
            .until(two_on([1, 2, 3]))
            .expect(deletions(0))
            .until(converged().and(counted(3)))
            .expect(deletions(3).and(spares(0)).and(peak(0)))
    }

    /// Kruise's cases 8 and 31. In yurt-ds, offline nodes and nodes where no pod belongs never use the budget.
    fn advanced08_given_dead_nodes_that_the_new_template_excludes_then_the_others_roll_out(_pace) {
        let mut patch = image_patch(NEW);
        let elsewhere = json!([{ "matchExpressions": [{ "key": "pool", "operator": "NotIn", "values": ["out"] }] }]);
        let required = json!({ "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": elsewhere } });
        patch["spec"]["template"]["spec"]["affinity"] = json!({ "nodeAffinity": required });
        let excluded = |allowed: usize| fleet(5, allowed)
            .patch_node(1, pool("out"))
            .patch_node(5, pool("out"))
            .offline([1, 5])
            .excuse(1)
            .excuse(5)
            .patch(patch.clone())
            .until(replaced(2..=4).and(terminating(1)).and(terminating(5)))
            .expect(deletions(3))
            .online([1, 5])
            .until(occupied([2, 3, 4]).and(counted(3)));
        vec![excluded(2), excluded(1)]
    }

    /// Kruise's cases 8 and 32. In yurt-ds, an offline node uses no slot of the budget. Its pod is replaced when the node is back.
    fn advanced08_given_nodes_that_are_away_then_the_others_roll_out_and_they_follow(pace) {
        fleet(5, 2)
            .offline([1, 2, 3])
            .image(NEW)
            .until(replaced([4, 5]).and(condition("RolloutComplete", "True", "3 nodes are offline")))
            .throughout(untouched(1..=3), pace.pick(600, 5))
            .online([1, 2, 3])
            .until(converged().and(counted(5)))
            .expect(deletions(5))
    }

    fn advanced09_given_5_nodes_and_max_unavailable_2_then_two_two_and_one(_pace) {
        fleet(5, 2)
            .image(NEW)
            .until(converged().and(counted(5)))
            .expect(deletions(5).and(peak(2)).and(group_by_group([vec![5, 4], vec![3, 2], vec![1]])))
    }

    fn advanced10_given_5_nodes_and_max_surge_2_then_two_at_a_time_and_nobody_is_without_a_pod(_pace) {
        surging(5, 2)
            .image(NEW)
            .until(converged().and(counted(5)))
            .expect(deletions(5).and(most_spares(2)).and(peak(0)).and(group_by_group([vec![5, 4], vec![3, 2], vec![1]])))
    }

    fn advanced11_given_max_unavailable_3_and_new_pods_that_never_become_ready_then_three_and_no_more(pace) {
        fleet(5, 3)
            .behave(NEW, never_ready())
            .image(NEW)
            .until(deletions(3))
            .throughout(deletions(3).and(untouched([1, 2])), pace.pick(3600, 8))
    }

    /// Strict budget of three nodes: Kruise would replace all five pods at once, because none of them is Ready.
    fn advanced12_given_old_pods_that_were_never_ready_then_at_most_three_are_replaced_at_once(pace) {
        break_pods(fleet(5, 3), 5)
            .remember()
            .behave(NEW, ready_after(pace.pick(60, 6)))
            .image(NEW)
            .until(deletions(3))
            .throughout(deletions(3), pace.pick(30, 2))
            .until(converged().and(counted(5)))
            .expect(deletions(5))
    }

    /// Kruise's case 13 with a strict budget: Kruise would create five new pods at once.
    ///
    /// Case 14: the image changes again within minReadySeconds, while the pod of another node is not Ready.
    fn advanced13_given_max_surge_3_and_old_pods_that_are_not_ready_then_three_new_ones_at_once(pace) {
        let story = Story { always_served: false, ..surging(5, 3) };
        let broken = break_pods(story, 5)
            .image(NEW)
            .until(converged())
            .expect(spares(0).and(most_spares(3)));
        let silent = Outage { mark_node: false, mark_pods: true };
        let story = Story { always_served: false, ..surging(5, 3) };
        let again = Story { daemon: story.daemon.clone().min_ready(pace.pick(15, 5)), ..story }
            .image(NEW)
            .until(two_on([3, 4, 5]))
            .step(Step::Offline(vec![1], silent))
            .image(NEWER)
            .wait(pace.pick(2, 1))
            .online([1])
            .until(converged().and(counted(5)))
            .expect(spares(0).and(most_spares(3)));
        vec![broken, again]
    }

    fn advanced15_given_a_strategy_that_is_switched_over_an_unchanged_template_then_nobody_is_touched(pace) {
        let kind = |kind: &str| json!({ "spec": { "updateStrategy": { "type": kind } } });
        fleet(3, 1)
            .patch(kind("OnDelete"))
            .wait(2)
            .patch(kind("RollingUpdate"))
            .until(condition("RolloutComplete", "True", ": complete").and(counted(3)))
            .throughout(untouched(1..=3), pace.pick(600, 4))
            .pod_writes(0)
    }

    fn advanced26_given_nodes_of_two_revisions_then_partition_and_selector_choose_among_the_others(pace) {
        let held = |says: &'static str| condition("RolloutComplete", "True", says);
        let nobody_kept = mixed(3, 2)
            .patch(chosen_by(0, None))
            .until(converged())
            .expect(deletions(3).and(in_order([2, 3, 1])));
        let one_kept = mixed(3, 1)
            .patch(chosen_by(1, None))
            .until(replaced([1, 3]).and(held("1 node stays on the old version")))
            .throughout(untouched([2]).and(deletions(2)), pace.pick(600, 4));
        let selected = mixed(4, 2)
            .patch_node(3, pool("next"))
            .patch(chosen_by(1, Some(("In", "next"))))
            .until(replaced([2, 3]).and(held("not selected")))
            .throughout(untouched([1, 4]).and(deletions(2)), pace.pick(600, 4));
        let two_kept = mixed(4, 2)
            .patch(chosen_by(2, Some(("NotIn", "first"))))
            .until(replaced([2, 4]).and(held("2 nodes stay on the old version")))
            .throughout(untouched([1, 3]).and(deletions(2)), pace.pick(600, 4));
        let one_terminating = mixed(3, 2)
            .step(Step::TerminateIn(3, secs(20)))
            .delete_pod(3)
            .until(terminating(3))
            .wait(SEEN)
            .patch(chosen_by(0, Some(("NotIn", "first"))))
            .throughout(untouched([1]), pace.pick(5, 3))
            .until(converged())
            .expect(deletions(2).and(in_order([2, 1])));
        vec![nobody_kept, one_kept, selected, two_kept, one_terminating]
    }

    fn advanced27_given_a_partition_that_is_lowered_then_so_many_more_follow(pace) {
        let story = fleet(5, 1);
        Story { daemon: story.daemon.clone().rolling("partition", 3), ..story }
            .image(NEW)
            .until(replaced([4, 5]).and(condition("RolloutComplete", "True", "3 nodes stay on the old version")))
            .throughout(untouched(1..=3).and(deletions(2)), pace.pick(600, 4))
            // 39% of five nodes is rounded down to one node.
            .patch(rolling_patch(json!({ "partition": "39%" })))
            .until(replaced(2..=5).and(condition("RolloutComplete", "True", "1 node stays on the old version")))
            .throughout(untouched([1]), pace.pick(600, 4))
            // A higher partition doesn't roll back nodes that already run the new version.
            .patch(rolling_patch(json!({ "partition": "100%" })))
            .throughout(deletions(4), pace.pick(600, 4))
            .patch(rolling_patch(json!({ "partition": 0 })))
            .until(converged().and(counted(5)))
            .expect(deletions(5).and(in_order([5, 4, 3, 2, 1])))
    }

    fn advanced28_given_a_selector_then_nobody_else_takes_part(pace) {
        let selector = json!({ "matchLabels": { "pool": "canary" } });
        let story = fleet(4, 2);
        Story { daemon: story.daemon.clone().rolling("selector", selector), ..story }
            .patch_node(1, pool("canary"))
            .patch_node(3, pool("canary"))
            .image(NEW)
            .until(replaced([1, 3]).and(condition("RolloutComplete", "True", "not selected")))
            .throughout(untouched([2, 4]), pace.pick(600, 4))
            // Node 4 joins the selected pool during the rollout and must be updated, too.
            .patch_node(4, pool("canary"))
            .until(replaced([4]))
            .throughout(untouched([2]), pace.pick(600, 4))
            .patch(rolling_patch(json!({ "selector": null })))
            .until(converged().and(counted(4)))
    }

    fn advanced54_given_a_partition_and_a_kept_pod_deleted_by_hand_then_it_comes_back_new_and_nobody_else_moves(pace) {
        let story = fleet(5, 1);
        Story { daemon: story.daemon.clone().rolling("partition", 3), ..story }
            .image(NEW)
            .until(replaced([4, 5]).and(condition("RolloutComplete", "True", "3 nodes stay on the old version")))
            .delete_pod(2)
            .until(replaced([2]).and(all_available(5)))
            .throughout(untouched([1, 3]).and(deletions(2)), pace.pick(600, 4))
            .patch(rolling_patch(json!({ "partition": 0 })))
            .until(converged())
            .expect(deletions(4))
    }

    /// Kruise's cases 33 to 53. With `partitionedScaling`, `partition` limits both updates and the creation of pods.
    fn advanced33_given_partitioned_scaling_then_new_pods_are_made_as_far_as_the_partition_lets(pace) {
        let story = fleet(4, 1);
        let daemon = story.daemon.clone().rolling("partition", 2);
        let daemon = daemon.field("scaleStrategy", json!({ "partitionedScaling": true }));
        Story { daemon: daemon.rolling("partition", 0), ..story }
            .patch(rolling_patch(json!({ "partition": "50%" })))
            .image(NEW)
            .until(replaced([3, 4]).and(condition("RolloutComplete", "True", "2 nodes stay on the old version")))
            .delete_pod(1)
            .until(occupied([2, 3, 4]))
            .throughout(occupied([2, 3, 4]).and(untouched([2])), pace.pick(600, 5))
            .delete_pod(3)
            .wait(pace.pick(60, 10))
            .throughout(occupied([2, 3, 4]).and(untouched([2])), pace.pick(600, 5))
            .patch(rolling_patch(json!({ "partition": 1 })))
            .until(replaced([1]))
            .patch(rolling_patch(json!({ "partition": 0 })))
            .until(converged().and(counted(4)))
    }

    fn advanced33_given_the_partition_is_raised_while_pods_are_replaced_then_these_nodes_get_theirs_and_no_other(pace) {
        let all = fleet(6, 3);
        let daemon = all.daemon.clone().field("scaleStrategy", json!({ "partitionedScaling": true }));
        Story { daemon, ..all }
            .image(NEW)
            .until(Check::new("pods are on their way out", |picture| {
                if picture.pods().any(|pod| pod.metadata.deletion_timestamp.is_some()) { Ok(())
} else { Err("none".to_owned())
}
            }))
            .patch(rolling_patch(json!({ "partition": "100%" })))
            .until(occupied([1, 2, 3, 4, 5, 6]).and(condition("RolloutComplete", "True", "on the old version: partition")))
            .throughout(occupied([1, 2, 3, 4, 5, 6]).and(condition("Stalled", "False", "")), pace.pick(1200, 5))
            .expect(untouched(1..=3))
    }

    /// Kruise's cases 65 to 73. Orphans are adopted, and pods of other owners are left alone.
    fn advanced65_given_a_pod_without_owner_that_the_selector_matches_then_it_is_adopted_and_not_doubled(pace) {
        owned_by(fleet(3, 1), 2, Value::Null)
            .wait(pace.pick(3, 3))
            .until(owned().and(counted(3)))
            .throughout(untouched(1..=3).and(pods(3)), pace.pick(60, 4))
            .expect(deletions(0).and(most_doubled(0)))
            .image(NEW)
            .until(converged().and(counted(3)))
            .expect(deletions(3))
    }

    fn advanced66_given_a_pod_of_another_owner_or_without_the_labels_then_it_is_let_be(pace) {
        let other = json!({ "metadata": { "labels": { "app": "other" } } });
        let released = fleet(3, 1)
            .step(Step::PatchPod(2, other))
            .until(replaced([2]).and(pods(4)))
            .until(Check::new("the pod is let go", |picture| {
                let free = picture.pods().filter(|pod| controller_of(&pod.metadata).is_none());
                match free.count() {
                    1 => Ok(()),
                    free => Err(format!("{free}")),
                }
            }))
            .throughout(pods(4).and(untouched([1, 3])), pace.pick(60, 4))
            .image(NEW)
            .until(converged())
            .expect(pods(4).and(deletions(3)));
        let owner = json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "11111111-2222-3333-4444-555555555555", "controller": true }]);
        // The pod of node 2 gets an owner that doesn't exist. So the garbage collector deletes the pod, and the controller creates
        // another one.
        let taken = owned_by(fleet(3, 1).excuse(2), 2, owner).until(replaced([2]).and(untouched([1, 3])));
        vec![released, taken]
    }

    /// Kruise's case 79. The owner reference may name another API version of the same kind.
    fn advanced79_given_pods_whose_owner_is_named_by_an_older_version_then_they_are_its_own(pace) {
        let story = fleet(3, 1).does("rename owners", |stage: Stage| async move {
            let owner = stage.daemons().get(DAEMON).await?.uid();
            for node in 1..=3 {
                let pod = stage.pod_on(node).await?.name_any();
                let owners = json!([{
                    "apiVersion": "apps.kruise.io/v1alpha1", "kind": "DaemonSet", "name": DAEMON, "uid": owner,
                    "controller": true, "blockOwnerDeletion": true,
                }]);
                let patch = Patch::Merge(json!({ "metadata": { "ownerReferences": owners } }));
                stage.api::<Pod>().patch(&pod, &PatchParams::default(), &patch).await?;
            }
            Ok(())
        });
        story
            .throughout(untouched(1..=3).and(pods(3)), pace.pick(60, 4))
            .image(NEW)
            .until(converged().and(counted(3)))
            .expect(deletions(3))
    }

    fn advanced84_given_on_delete_then_pods_are_new_only_where_somebody_deletes_them(pace) {
        let on_delete = json!({ "type": "OnDelete" });
        Story::on(3)
            .with(Daemon::advanced().field("updateStrategy", on_delete))
            .image(NEW)
            .until(observed().and(numbers([("updatedNumberScheduled", 0), ("desiredNumberScheduled", 3)])))
            .throughout(untouched(1..=3), pace.pick(600, 5))
            .delete_pod(2)
            .until(replaced([2]).and(numbers([("updatedNumberScheduled", 1)])))
            .throughout(untouched([1, 3]), pace.pick(600, 5))
            .patch(json!({ "spec": { "updateStrategy": { "type": "RollingUpdate" } } }))
            .until(converged().and(counted(3)))
            .expect(deletions(2))
    }

    fn advanced99_given_a_pause_then_nothing_is_rolled_and_lost_pods_come_back_new(pace) {
        fleet(4, 1)
            .image(NEW)
            .until(replaced([4]))
            .patch(rolling_patch(json!({ "paused": true })))
            .until(condition("Paused", "True", ""))
            .until(all_available(4))
            .wait(2)
            .remember()
            .throughout(untouched(1..=4).and(deletions(0)), pace.pick(600, 5))
            .delete_pod(1)
            .until(replaced([1]))
            .throughout(untouched([2]), pace.pick(60, 4))
            .patch(rolling_patch(json!({ "paused": false })))
            .until(converged().and(counted(4)))
    }

    /// A pause or an invalid setting stops only the rolling update. Other work continues, such as opening the readiness gates of
    /// new pods.
    fn advanced113_given_a_pause_or_an_invalid_setting_then_gates_of_new_pods_open(pace) {
        let hook = json!({ "preDelete": { "labelsHandler": { DRAIN: "true" }, "markPodNotReady": true } });
        let hooked = || Daemon::advanced().field("lifecycle", hook.clone());
        let gate = || Daemon::advanced().gate("KruisePodReady");
        let settings = [
            hooked().rolling("paused", true),
            hooked().annotate("min-interval", "soon"),
            gate(),
            gate().rolling("paused", true),
            gate().annotate("waves", "first the canary"),
        ];
        let stories = settings.map(|daemon| {
            let story = Story::on(2).with(daemon).until(all_available(2));
            joins(story, 3)
                .until(all_available(3))
                .delete_pod(1)
                .until(replaced([1]).and(all_available(3)))
                .throughout(all_available(3), pace.pick(60, 2))
        });
        Vec::from(stories)
    }

    fn advanced114_given_an_invalid_setting_then_partition_and_hook_still_count(pace) {
        let story = fleet(4, 1);
        let daemon = story.daemon.clone().field("scaleStrategy", json!({ "partitionedScaling": true }));
        let made = Story { daemon, ..story }
            .patch(rolling_patch(json!({ "partition": 2 })))
            .image(NEW)
            .until(replaced([3, 4]).and(condition("RolloutComplete", "True", "2 nodes stay on the old version")))
            .annotate("waves", "first the canary")
            .until(condition("InvalidSettings", "True", "waves"))
            .delete_pod(1)
            .until(occupied([2, 3, 4]))
            .throughout(occupied([2, 3, 4]).and(untouched([2])), pace.pick(60, 3))
            .delete_pod(3)
            .until(replaced([3]));
        let hook = json!({ "preDelete": { "labelsHandler": { DRAIN: "true" } } });
        let hooked = Daemon::advanced()
            .field("lifecycle", hook)
            .pod_label(DRAIN, "true")
            .annotate("min-interval", "soon");
        let leaves = Story::on(2)
            .with(hooked)
            .until(all_available(2))
            .excuse(2)
            .patch_node(1, json!({ "metadata": { "labels": { "color": "green" } } }))
            .patch(colored("green"))
            .until(preparing([2]))
            .throughout(untouched([2]), pace.pick(60, 3))
            .step(Step::PatchPod(2, json!({ "metadata": { "labels": { DRAIN: null } } })))
            .until(occupied([1]));
        vec![made, leaves]
    }

    /// A rollback gives the old ControllerRevision a higher number and creates no new one.
    fn advanced100_given_a_rollback_then_the_revision_of_then_is_used_again(pace) {
        let after = fleet(3, 1)
            .image(NEW)
            .until(converged().and(revisions([1, 2])))
            .image(OLD)
            .until(converged().and(counted(3)).and(revisions([2, 3])))
            .image(NEW)
            .until(converged().and(counted(3)).and(revisions([3, 4])));
        let between = fleet(4, 1)
            .behave(NEW, never_ready())
            .image(NEW)
            .until(deletions(1))
            .throughout(untouched(1..=3), pace.pick(60, 4))
            .image(OLD)
            .until(converged().and(counted(4)).and(revisions([2, 3])))
            .expect(untouched(1..=3));
        vec![after, between]
    }

    fn advanced101_given_a_history_limit_then_the_oldest_go_and_never_one_that_a_pod_has(pace) {
        let story = fleet(2, 1);
        let limited = Story { daemon: story.daemon.clone().history_limit(1), ..story }
            .image(NEW)
            .until(converged().and(revisions([1, 2])))
            .image(NEWER)
            .until(converged().and(revisions([2, 3])))
            .image("nginx:1.19.7")
            .until(converged().and(revisions([3, 4])))
            .expect(live_revisions_kept());
        let story = fleet(2, 1);
        let live = Story { daemon: story.daemon.clone().history_limit(0).rolling("partition", 1), ..story }
            .image(NEW)
            .until(replaced([2]).and(condition("RolloutComplete", "True", "1 node stays on the old version")))
            .remember()
            .image(NEWER)
            .until(replaced([2]).and(revisions([1, 3])))
            .throughout(untouched([1]).and(revisions([1, 3])).and(live_revisions_kept()), pace.pick(60, 4))
            .patch(rolling_patch(json!({ "partition": 0 })))
            .until(converged().and(revisions([3])));
        vec![limited, live]
    }

    /// As in Kubernetes, the controller waits 1 s after the first failure of a pod, and twice as long after each further failure.
    fn advanced102_given_a_pod_that_fails_again_and_again_then_the_pause_before_the_next_one_doubles(pace) {
        let times = pace.pick(7, 4);
        fleet(2, 1)
            .does("it fails again and again", move |stage: Stage| fails_again_and_again(stage, 2, times))
            .expect(untouched([1]))
            // After the backoff, the node has another pod. The new image below resets the backoff.
            .until(all_available(2))
            .image(NEW)
            .until(converged().and(counted(2)))
    }

    fn advanced103_given_nodes_that_join_and_leave_then_they_get_their_pods_and_are_counted_no_more(pace) {
        let story = joins(fleet(3, 1).until(counted(3)), 4)
            .until(all_available(4).and(counted(4)))
            .expect(untouched(1..=3).and(owned()))
            .step(Step::RemoveNode(4))
            .until(counted(3))
            .throughout(untouched(1..=3), pace.pick(60, 4));
        let joins_a_rollout = joins(fleet(2, 1).behave(NEW, ready_after(pace.pick(20, 3))).image(NEW).until(deletions(1)), 3)
            .until(converged().and(counted(3)))
            .step(Step::RemoveNode(3))
            .until(counted(2));
        vec![story, joins_a_rollout]
    }

    fn advanced104_given_a_node_that_is_tainted_then_its_pod_stays_or_goes_as_the_effect_says(pace) {
        let repelled = numbers([("desiredNumberScheduled", 2), ("currentNumberScheduled", 2), ("numberMisscheduled", 1)]);
        let keeps = fleet(3, 1)
            .patch_node(2, taint(Some("NoSchedule")))
            .until(repelled.clone())
            .throughout(untouched(1..=3), pace.pick(60, 4))
            .delete_pod(2)
            .until(occupied([1, 3]).and(numbers([("numberMisscheduled", 0)])))
            .throughout(occupied([1, 3]), pace.pick(60, 4))
            .patch_node(2, taint(None))
            .until(occupied([1, 2, 3]).and(counted(3)));
        let goes = fleet(3, 1)
            .excuse(2)
            .patch_node(2, taint(Some("NoExecute")))
            .until(occupied([1, 3]).and(counted(2)))
            .throughout(untouched([1, 3]), pace.pick(60, 4))
            .patch_node(2, taint(None))
            .until(occupied([1, 2, 3]).and(counted(3)));
        // The old pod on the tainted node must stay, because a new pod couldn't start there.
        let rolls = fleet(3, 1)
            .patch_node(2, taint(Some("NoSchedule")))
            .until(repelled)
            .image(NEW)
            .until(replaced([1, 3]))
            .throughout(untouched([2]).and(deletions(2)), pace.pick(600, 4))
            .patch_node(2, taint(None))
            .until(converged().and(counted(3)));
        vec![keeps, goes, rolls]
    }

    fn advanced105_given_a_quota_without_room_then_the_condition_names_it_and_it_goes_on_by_itself(pace) {
        let told = || condition("Stalled", "True", "exceeded quota");
        let lost = fleet(3, 1)
            .step(Step::RefusePods(true))
            .delete_pod(2)
            .until(pods(2))
            .until(event("Warning", "exceeded quota"))
            .throughout(untouched([1, 3]), pace.pick(60, 4))
            .expect(at_most_events("Warning", "exceeded quota", 1))
            .step(Step::RefusePods(false))
            .until_within(all_available(3).and(counted(3)), 120);
        let rolling = fleet(3, 1)
            .step(Step::RefusePods(true))
            .image(NEW)
            .until(deletions(1))
            .until_within(told(), 900)
            .throughout(untouched([1, 2]).and(deletions(1)), pace.pick(600, 4))
            .step(Step::RefusePods(false))
            .until_within(converged().and(counted(3)), 1000);
        vec![lost, rolling]
    }

    fn advanced106_given_a_daemonset_that_is_deleted_then_its_pods_go_and_none_comes_back(pace) {
        let goes = |params: DeleteParams| deleted(fleet(3, 3), params)
            .does("all goes", all_gone)
            .throughout(pods(0), pace.pick(60, 4));
        let rolling = deleted(fleet(3, 1).image(NEW).until(deletions(1)), DeleteParams::foreground()).does("all goes", all_gone);
        vec![goes(DeleteParams::foreground()), goes(DeleteParams::background()), rolling]
    }

    fn advanced107_given_pods_that_were_orphaned_then_the_same_daemonset_adopts_them_and_nobody_restarts(pace) {
        let again = |image: &'static str| deleted(fleet(3, 1), DeleteParams::orphan())
            .throughout(pods(3), pace.pick(60, 3))
            .does("it is created again", move |stage: Stage| async move {
                stage.create_daemon(&Daemon::advanced().image(image)).await
            });
        let same = again(OLD)
            .until(owned().and(counted(3)))
            .throughout(untouched(1..=3).and(revisions([1])).and(pods(3)), pace.pick(60, 4))
            .expect(deletions(0).and(most_doubled(0)));
        let changed = again(NEW)
            .until(converged().and(owned()).and(counted(3)))
            .expect(deletions(3).and(in_order([3, 2, 1])).and(revisions([1, 2])).and(most_doubled(0)));
        vec![same, changed]
    }

    fn advanced108_given_a_fleet_that_kruise_left_in_the_middle_then_the_rollout_ends_and_nobody_up_to_date_restarts(pace) {
        let release = json!({ "metadata": { "labels": { DRAIN: null } } });
        let story = Story::on(4)
            .with(Daemon::advanced())
            .controller(false)
            .does("Kruise's fleet", is_left_by_kruise)
            .until(all_available(4))
            .wait(3)
            .remember()
            .controller(true)
            .throughout(untouched(1..=4).and(preparing([2])), pace.pick(60, 6))
            .expect(revisions([1, 2, 3]))
            .step(Step::PatchPod(2, release))
            .until(replaced([2]))
            .until(converged().and(counted(4)))
            .expect(untouched([1, 3, 4]).and(renewed([1])).and(deletions(1)).and(renewals(1)))
            .expect(revisions([1, 2, 3]).and(gates_open()).and(owned()))
            .wait(pace.pick(1, 8))
            .quiet(600, 5);
        Scenario::from(story).alone()
    }

    fn advanced109_given_a_controller_that_is_killed_at_any_write_then_the_next_one_ends_it(pace) {
        let moments = [Moment::Before, Moment::After];
        let last = pace.pick(18, 4);
        let each = || (1..=last).flat_map(|number| moments.map(|moment| (number, moment)));
        let recreated = each().map(|(number, moment)| killed_at(fleet(3, 1), number, moment).expect(most_spares(0)));
        let beside = each().map(|(number, moment)| killed_at(surging(3, 1), number, moment).expect(most_spares(1)));
        let kept = each().map(|(number, moment)| {
            killed_at(Story::on(3).with(in_place(1)), number, moment).expect(renewed(1..=3).and(deletions(0)).and(gates_open()))
        });
        Scenario::from(recreated.chain(beside).chain(kept).collect::<Vec<_>>()).alone()
    }

    /// The controller must create the deleted pod exactly once. It may be killed before or after it gets the response.
    fn advanced110_given_a_controller_that_is_killed_while_it_makes_a_pod_then_it_is_made_once(pace) {
        let moments = [Moment::Before, Moment::After];
        let each = (1..=pace.pick(6, 2)).flat_map(|number| moments.map(|moment| (number, moment)));
        let stories = each.map(|(number, moment)| {
            fleet(2, 1)
                .excuse(2)
                .does("lie in wait for a write", move |stage: Stage| async move {
                    stage.world.backend.kill_at(number, moment)
                })
                .delete_pod(2)
                .until(replaced([2]).and(counted(2)))
                .throughout(pods(2).and(untouched([1])), pace.pick(60, 4))
                .expect(most_spares(0).and(revisions([1])))
        });
        Scenario::from(stories.collect::<Vec<_>>()).alone()
    }

    fn advanced112_given_a_status_that_may_not_be_written_then_one_event_says_that_the_conditions_are_old(_pace) {
        let story = fleet(3, 1)
            .does("revoke", |stage| async move { stage.world.backend.permission(Role::Controller, "patch", "daemonsets/status", false).await })
            .image(NEW)
            .until(event("Warning", "patch daemonsets/status.apps.kruise.io (HTTP 403)").and(event("Warning", "The conditions stay outdated until a write succeeds")))
            .does("grant", |stage| async move { stage.world.backend.permission(Role::Controller, "patch", "daemonsets/status", true).await })
            .until(converged())
            .expect(one_event("Warning", "patch daemonsets/status.apps.kruise.io (HTTP 403)"));
        Scenario::from(story).alone()
    }

    fn advanced115_given_a_status_that_another_writer_overwrites_then_it_is_corrected_ever_more_rarely_and_one_event_names_the_writer(pace) {
        let seconds = pace.pick(1_000, 40);
        // The story counts Events about completed rollouts. So wait for the Event about the first revision, which may be late on a
        // busy machine.
        let first = || events_because("RolloutComplete", 1);
        let advanced = fleet(3, 1).until(first()).image(NEW).until(converged().and(counted(3)));
        let advanced = advanced
            .does("overwrite the status", |stage| async move { overwrite_status(&stage).await.map(drop) })
            .until(counted(3).and(is_complete()))
            .throughout(events_because("StatusOverwritten", 0), 1);
        let native = Story::on(3).until(first()).image(NEW).until(converged().and(is_complete()));
        let native = native
            .does("overwrite the status", |stage| async move { overwrite_status(&stage).await.map(drop) })
            .until(is_complete())
            .throughout(events_because("StatusOverwritten", 0), 1);
        let fought = |story: Story| {
            let told = event("Warning", "\"meddler\" keeps overwriting the status");
            story
                .does("fight for the status", move |stage: Stage| async move { fight_for_status(&stage, secs(seconds)).await })
                .until_within(told.and(events_because("StatusOverwritten", 1)).and(is_complete()), 600)
                .expect(events_because("RolloutComplete", 2))
                .quiet(600, 5)
        };
        vec![fought(advanced).until(counted(3)), fought(native)]
    }

    /// Half of the nodes leave during the rollout, and as many join. Nodes leave with an old pod, with a new pod, or during an
    /// update.
    fn advanced111_given_nodes_that_come_and_go_all_the_time_then_the_rollout_ends_with_one_new_pod_on_each(pace) {
        let nodes = pace.pick(if is_deep() { 1_000 } else { 100 }, 60);
        let daemon = Daemon::advanced().rolling("maxUnavailable", "10%");
        Story::on(nodes)
            .with(daemon)
            .allowed(nodes / 10)
            .behave(NEW, ready_after(pace.pick(5, 1)))
            .image(NEW)
            .until(deletions_begun())
            .does("nodes come and go", move |stage: Stage| come_and_go(stage, nodes))
            .until(converged())
            .does("pods of nodes that are gone go", collect_pods)
            .until(converged().and(pods(nodes)).and(counted(nodes as u64)))
            .expect(most_doubled(0).and(condition("RolloutComplete", "True", ": complete")))
            .throughout(pods(nodes), pace.pick(600, 5))
            .quiet(600, 5)
    }
}
