//! Revisions and hashes: the controller must recognize pods that are up to date, even in ambiguous cases.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::support::checks::*;
use crate::support::objects::*;
use crate::support::player::{Stage, from};
use crate::support::story::{Scenario, Step, Story, secs};
use crate::support::suite::scenarios;

/// Label of a pod or a revision with the hash of the revision.
const HASH: &str = "controller-revision-hash";

/// Returns the newest revision of the story's DaemonSet.
async fn newest(stage: &Stage) -> anyhow::Result<ControllerRevision> {
    let newest = stage
        .see(|picture| {
            picture
                .revisions()
                .max_by_key(|revision| revision.revision)
                .cloned()
        })
        .await;
    newest.context("no revision")
}

/// Gives the current revision and its pods another hash, as if another version of Kubernetes had computed it.
async fn relabel(stage: Stage) -> anyhow::Result<()> {
    let label = Patch::Merge(json!({ "metadata": { "labels": { HASH: "5f00dcafe5" } } }));
    let revision = newest(&stage).await?;
    stage
        .api::<ControllerRevision>()
        .patch(&revision.name_any(), &PatchParams::default(), &label)
        .await?;
    for node in 1..=3 {
        let pod = stage.pod_on(node).await?;
        stage
            .api::<Pod>()
            .patch(&pod.name_any(), &PatchParams::default(), &label)
            .await?;
    }
    Ok(())
}

/// Creates a copy of the current revision with another hash, as two native controllers that run at the same time can do.
pub(crate) async fn duplicate(stage: Stage) -> anyhow::Result<()> {
    let mut copy = newest(&stage).await?;
    copy.metadata.name = Some(format!("{DAEMON}-5f00dcafe5"));
    copy.metadata
        .labels
        .get_or_insert_default()
        .insert(HASH.into(), "5f00dcafe5".into());
    copy.metadata.uid = None;
    copy.metadata.resource_version = None;
    copy.revision += 1;
    stage
        .api::<ControllerRevision>()
        .create(&PostParams::default(), &copy)
        .await?;
    Ok(())
}

/// Creates a revision of another owner whose number is higher than those of the DaemonSet.
async fn foreign_revision(stage: Stage) -> anyhow::Result<()> {
    let owner: ConfigMap = from(json!({ "metadata": { "name": "somebody-else" } }))?;
    let owner = stage
        .api::<ConfigMap>()
        .create(&PostParams::default(), &owner)
        .await?;
    let revision: ControllerRevision = from(json!({
        "metadata": {
            "name": format!("{DAEMON}-f0f0f0f0"),
            "labels": { "app": "nginx", HASH: "f0f0f0f0" },
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "ConfigMap", "name": "somebody-else", "uid": owner.metadata.uid, "controller": true,
            }],
        },
        "data": { "spec": { "template": { "$patch": "replace", "spec": { "containers": [] } } } },
        "revision": 1000,
    }))?;
    stage
        .api::<ControllerRevision>()
        .create(&PostParams::default(), &revision)
        .await?;
    Ok(())
}

/// Deletes the DaemonSet without its pods, and creates it again with another image.
async fn adopt(stage: Stage) -> anyhow::Result<()> {
    stage.delete_daemon(&DeleteParams::orphan()).await?;
    // Wait until the native controller has seen that the pods are orphans. Otherwise it would create a second set of pods and
    // delete it later.
    let pods = stage.api::<Pod>().list(&ListParams::default()).await?;
    let is_orphan = |pod: &Pod| pod.owner_references().is_empty();
    ensure!(pods.iter().all(is_orphan), "a pod still has an owner");
    tokio::time::sleep(Duration::from_secs(5)).await;
    // The new DaemonSet would also adopt the orphaned revisions, and with them the hash of the pods would be known. This test needs
    // an unknown hash, so the revisions are deleted.
    stage
        .api::<ControllerRevision>()
        .delete_collection(&DeleteParams::default(), &Default::default())
        .await?;
    stage.create_daemon(&Daemon::new().image(NEW)).await
}

/// Returns a patch with a pod field of Kubernetes 1.35 that the controller's client library doesn't know.
fn unknown_field() -> Value {
    json!({ "spec": { "template": { "spec": { "hostnameOverride": "daemon.example.com" } } } })
}

scenarios! {
    vary because "revisions are made, hashed and merged by the native controller of that version";
    fn s42_given_a_cluster_whose_native_controller_computes_other_hashes_then_steady_state_has_zero_writes(_pace) {
        Story::on(3)
            .annotate("paused", "true")
            .wait(2)
            .does("relabel the revision and its pods", relabel)
            .wait(2)
            .unannotate("paused")
            .until(condition("Paused", "False", "").and(condition("RolloutComplete", "True", "5f00dcafe5")))
            .wait(3)
            .remember()
            .quiet(3600, 10)
            .pod_writes(0)
            .image(NEW)
            .until(converged())
            .expect(deletions(3))
    }

    fn s43_given_a_new_template_and_a_native_controller_stopped_then_zero_deletions_when_it_starts_each_pod_is_replaced_once(pace) {
        let story = Story::on(3)
            .native(false)
            .image(NEW)
            .throughout(no_deletions(), pace.pick(3600, 8))
            .native(true)
            .until(converged())
            .throughout(deletions(3), 5);
        Scenario::from(story).alone()
    }

    fn s43_given_a_native_controller_that_handles_nothing_for_long_then_the_rollout_stalls_and_says_where_to_look(_pace) {
        let stalled = || condition("Stalled", "True", "has not observed the latest change. Check if kube-controller-manager runs");
        let story = Story::on(3)
            .native(false)
            .image(NEW)
            .throughout(not_condition("Stalled"), 290)
            .until_within(stalled().and(one_event("Warning", "if kube-controller-manager runs")), 30)
            .controller(false)
            .controller(true)
            .throughout(stalled().and(no_deletions()), 3600)
            .expect(one_event("Warning", "if kube-controller-manager runs"))
            .native(true)
            .until(converged().and(condition("Stalled", "False", "")));
        Scenario::from(story).only_embedded("it takes five minutes")
    }

    fn s46_given_an_adopted_orphan_pod_with_an_old_hash_and_by_chance_the_current_generation_then_it_is_outdated(_pace) {
        Story::on(3)
            .does("adopt the pods of a deleted DaemonSet", adopt)
            .until(converged())
            .expect(replaced(1..=3).and(deletions(3)).and(peak(1)))
    }

    fn s47_given_pods_without_hash_label_but_matching_generation_then_up_to_date_not_matching_then_outdated(pace) {
        let unlabelled = || json!({ "metadata": { "labels": { HASH: null } } });
        (1..=3)
            .fold(Story::on(3), |story, node| story.step(Step::PatchPod(node, unlabelled())))
            .throughout(untouched(1..=3), pace.pick(600, 8))
            .pod_writes(0)
            .image(NEW)
            .until(converged())
            .expect(deletions(3))
    }

    fn s48_given_duplicate_revisions_merged_by_the_native_controller_then_nobody_is_restarted(pace) {
        Story::on(3)
            .does("a duplicate of the revision", duplicate)
            .until(converged())
            .throughout(untouched(1..=3), pace.pick(600, 10))
            .pod_writes(0)
    }

    fn s49_given_a_foreign_controllerrevision_with_matching_labels_and_a_greater_number_then_it_is_ignored(_pace) {
        Story::on(3)
            .does("a revision of somebody else", foreign_revision)
            .wait(3)
            .expect(untouched(1..=3))
            .image(NEW)
            .until(converged())
            .expect(deletions(3))
    }

    fn s50_given_a_template_field_unknown_to_our_client_library_as_the_only_change_then_it_counts_as_a_change(_pace) {
        let story = Story::on(3)
            .patch(unknown_field())
            .until(another_revision().and(converged()))
            .expect(deletions(3));
        Scenario::from(story)
            .only_real("its API server knows exactly the fields that the client library knows")
            .since(35)
    }

    fn s51_given_a_daemonset_deleted_and_re_created_under_the_same_name_then_no_decision_for_the_old_uid_is_applied(_pace) {
        Story::on(3)
            .step(Step::TerminateIn(1, secs(10)))
            .image(NEW)
            .until(terminating(1))
            .does("delete and re-create the DaemonSet", |stage| async move {
                stage.delete_daemon(&DeleteParams::background()).await?;
                stage.create_daemon(&Daemon::new().image(NEWER)).await
            })
            .until(converged())
            .throughout(at_most_deletions(1), 5)
    }
}
