//! Tests of migrations that are interrupted by a failing API server or by another user.

use std::sync::atomic::{AtomicUsize, Ordering};

use kube::api::DeleteParams;
use tokio::sync::Notify;

use super::super::adoption::Adoption;
use super::super::{Purpose, messages};
use super::*;
use crate::core::names::{IN_PLACE_STATE, KRUISE_GROUP};
use crate::ctl::error::CliError;

/// Failing requests of `ctl`: verb, resource, and the number of the first request that fails.
#[derive(Clone, Copy)]
struct From(&'static str, &'static str, usize);

impl Migrating {
    /// Creates two nodes, a running controller, and an Advanced DaemonSet that has completed a rollout.
    async fn advanced_after_a_rollout() -> (Self, (shutdown::Trigger, JoinHandle<()>)) {
        let cluster = Self::with_nodes(2).await;
        let controller = cluster.start_controller();
        cluster.world.text("migrate web --to advanced").await;
        cluster.set_advanced_image("web:2").await;
        (cluster, controller)
    }

    fn fail(&self, From(verb, resource, first): From, fault: Fault) -> FaultGuard {
        let seen = AtomicUsize::new(0);
        self.world.cluster.faults().add(move |request| {
            let is_it = request.user_agent == "ctl"
                && (request.verb.as_str(), request.resource.as_str()) == (verb, resource);
            if is_it && seen.fetch_add(1, Ordering::Relaxed) + 1 >= first {
                fault.clone()
            } else {
                Fault::Pass
            }
        })
    }

    /// Returns the error of a command, which may print messages before it fails.
    async fn fails(&self, line: &str) -> CliError {
        self.world.run(line).await.1.unwrap_err()
    }

    fn all_revisions(&self) -> Api<ControllerRevision> {
        Api::namespaced(self.world.client.clone(), "default")
    }

    async fn journal(&self) -> Option<ControllerRevision> {
        let journal = self.all_revisions().get_opt("web-migration").await;
        journal.unwrap()
    }

    async fn journal_data(&self) -> Value {
        self.journal().await.unwrap().data.unwrap().0
    }

    /// Asserts that the native DaemonSet continues its rollout and no pod was restarted.
    async fn goes_on_with(&self, pods: &BTreeMap<String, (String, String)>) {
        tokio::time::sleep(A_MOMENT).await;
        assert_eq!(self.pods().await, *pods);
        let set = self.native().await;
        let annotations = &set["metadata"]["annotations"];
        assert_eq!(annotations["apps.openyurt.io/paused"], Value::Null);
        assert_eq!(set["status"]["updatedNumberScheduled"], 2);
        assert!(self.journal().await.is_none());
    }
}

fn contains(text: &str, all: &[&str]) {
    for words in all {
        assert!(text.contains(words), "{words}: {text}");
    }
}

/// The real deletion of the old DaemonSet, after one dry run.
const DELETION: From = From("delete", "daemonsets", 2);
/// The dry run with the template of an older revision, after the dry run with the current template.
const SECOND_DRY_RUN: From = From("create", "daemonsets", 2);
/// The real creation of the new DaemonSet, after two dry runs.
const CREATION: From = From("create", "daemonsets", 3);

#[tokio::test(start_paused = true)]
async fn a_deletion_with_a_lost_response_is_reported_as_unknown() {
    for fault in [Fault::ResetAfter, Fault::Status(504, None)] {
        let (cluster, _controller) = Migrating::advanced_after_a_rollout().await;
        let (world, pods) = (&cluster.world, cluster.pods().await);
        let guard = cluster.fail(DELETION, fault.clone());
        let error = cluster.fails("migrate web --to native").await;
        assert_eq!(error.code, Code::Unreachable, "{error}");
        let words = [
            "It is not known if the old DaemonSet was deleted",
            "web-migration. To continue: yurt-ds ctl migrate default/web --to native",
        ];
        contains(&error.text, &words);
        drop(guard);
        assert!(cluster.journal().await.is_some());
        if fault == Fault::ResetAfter {
            let error = cluster.fails("migrate web --to advanced").await;
            contains(&error.text, &["Finish it first"]);
        } else {
            let output = world.text("migrate web --to advanced").await;
            contains(&output, &["already"]);
        }
        world.text("migrate web --to native").await;
        cluster.goes_on_with(&pods).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_rejected_deletion_is_reported_even_if_the_journal_cannot_be_deleted() {
    let (cluster, _controller) = Migrating::advanced_after_a_rollout().await;
    let _guard = cluster.fail(DELETION, Fault::Status(422, None));
    // Also reject the deletion of the journal. The error still has to report why the DaemonSet was not deleted.
    let _kept = cluster.fail(
        From("delete", "controllerrevisions", 3),
        Fault::Status(500, None),
    );
    let error = cluster.fails("migrate web --to native").await;
    assert_eq!(error.code, Code::Refused, "{error}");
    contains(
        &error.text,
        &["nothing was changed: Cannot delete DaemonSet default/web"],
    );
}

#[tokio::test(start_paused = true)]
async fn a_revision_created_by_kubernetes_ends_the_migration_and_keeps_the_pause() {
    let (cluster, _controller) = Migrating::advanced_after_a_rollout().await;
    let (world, pods) = (&cluster.world, cluster.pods().await);
    let guard = cluster.fail(CREATION, Fault::Status(422, None));
    let error = cluster.fails("migrate web --to native").await;
    assert_eq!(error.code, Code::Failed, "{error}");
    drop(guard);
    // Change the revisions in the journal so that they are not in Kubernetes' form.
    let mut journal = cluster.journal().await.unwrap();
    let data = journal.data.as_mut().unwrap();
    for item in data.0["items"].as_array_mut().unwrap() {
        if item["kind"] == "ControllerRevision" {
            let template = &mut item["data"]["spec"]["template"];
            template["spec"]["containers"][0]["imagePullPolicy"] = Value::Null;
        }
    }
    journal.metadata.resource_version = None;
    let all = cluster.all_revisions();
    all.delete("web-migration", &Default::default())
        .await
        .unwrap();
    all.create(&Default::default(), &journal).await.unwrap();
    let error = cluster.fails("migrate web --to native").await;
    assert_eq!(error.code, Code::Failed, "{error}");
    let words = [
        "Kubernetes created a new revision",
        "It stays paused (apps.openyurt.io/paused)",
        "yurt-ds ctl resume default/web",
    ];
    contains(&error.text, &words);
    let output = world.text("migrate web --to native").await;
    contains(&output, &["already"]);
    tokio::time::sleep(A_MOMENT).await;
    assert_eq!(cluster.pods().await, pods);
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_eject_is_finished_by_eject() {
    let (cluster, _controller) = Migrating::advanced_after_a_rollout().await;
    let (world, pods) = (&cluster.world, cluster.pods().await);
    let guard = cluster.fail(CREATION, Fault::Status(403, None));
    let error = cluster.fails("eject web").await;
    assert_eq!(error.code, Code::Unreachable, "{error}");
    contains(&error.text, &["To finish: yurt-ds ctl eject default/web\n"]);
    drop(guard);
    let error = cluster.fails("eject web --dry-run").await;
    assert_eq!(error.code, Code::Refused, "{error}");
    let error = cluster.fails("migrate web --to advanced").await;
    contains(
        &error.text,
        &["Finish it first: yurt-ds ctl eject default/web"],
    );
    let output = world.text("eject web").await;
    contains(
        &output,
        &[
            "migration of default/web",
            "default/web was handed back to Kubernetes.",
        ],
    );
    cluster.goes_on_with(&pods).await;
    let set = cluster.native().await;
    assert_eq!(set["spec"]["updateStrategy"]["type"], "RollingUpdate");
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_eject_finished_by_migrate_stays_paused_with_a_note() {
    let (cluster, _controller) = Migrating::advanced_after_a_rollout().await;
    let world = &cluster.world;
    let guard = cluster.fail(CREATION, Fault::Status(403, None));
    cluster.fails("eject web").await;
    drop(guard);
    let output = world.text("migrate web --to native").await;
    let words = [
        "left it paused (apps.openyurt.io/paused). To hand it back to Kubernetes: yurt-ds ctl eject default/web",
        "yurt-ds ctl resume default/web",
    ];
    contains(&output, &words);
    let set = cluster.native().await;
    let annotations = &set["metadata"]["annotations"];
    assert_eq!(annotations["apps.openyurt.io/paused"], "true");
    let output = world.text("eject web").await;
    contains(&output, &["default/web was handed back to Kubernetes."]);
}

#[tokio::test(start_paused = true)]
async fn eject_reports_the_created_daemonset_if_the_hand_over_fails() {
    let (cluster, _controller) = Migrating::advanced_after_a_rollout().await;
    let world = &cluster.world;
    let guard = cluster.fail(From("patch", "daemonsets", 1), Fault::Status(403, None));
    let error = cluster.fails("eject web").await;
    assert_eq!(error.code, Code::Unreachable, "{error}");
    let words = [
        "Not allowed to hand back DaemonSet",
        "is now a native DaemonSet (apps/v1), and stays paused until it is handed back: yurt-ds ctl eject \
         default/web",
        "yurt-ds ctl resume default/web",
    ];
    contains(&error.text, &words);
    drop(guard);
    let output = world.text("eject web").await;
    contains(&output, &["default/web was handed back to Kubernetes."]);
}

#[tokio::test(start_paused = true)]
async fn an_unavailable_dry_run_is_not_treated_as_a_rejected_revision() {
    for status in [403, 429, 500] {
        let (cluster, _controller) = Migrating::advanced_after_a_rollout().await;
        let _guard = cluster.fail(SECOND_DRY_RUN, Fault::Status(status, None));
        let error = cluster.fails("migrate web --to native").await;
        assert_eq!(error.code, Code::Unreachable, "{error}");
        let set = cluster.advanced().get("web").await.unwrap();
        assert_eq!(set.metadata.deletion_timestamp, None);
        assert!(cluster.journal().await.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_rejected_creation_or_deletion_is_a_refusal() {
    let cluster = Migrating::with_nodes(1).await;
    for verb in ["create", "delete"] {
        let _guard = cluster.fail(From(verb, "daemonsets", 1), Fault::Status(422, None));
        let error = cluster.fails("migrate web --to advanced").await;
        assert_eq!(error.code, Code::Refused, "{error}");
        contains(
            &error.text,
            &["was not migrated, and nothing was changed: Cannot"],
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_created_but_unverified_daemonset_is_finished_by_the_same_command() {
    for (failing, paused) in [
        (
            From("patch", "daemonsets", 1),
            ", paused until the migration is finished.",
        ),
        // The first three deletions are: a dry run, the journal of an earlier attempt, and the rewritten revision. The fourth one
        // is the journal of the finished migration.
        (
            From("delete", "controllerrevisions", 4),
            "is now a native DaemonSet (apps/v1).",
        ),
    ] {
        let (cluster, _controller) = Migrating::advanced_after_a_rollout().await;
        let (world, pods) = (&cluster.world, cluster.pods().await);
        let guard = cluster.fail(failing, Fault::Status(403, None));
        let error = cluster.fails("migrate web --to native").await;
        assert_eq!(error.code, Code::Unreachable, "{error}");
        let command = "To finish: yurt-ds ctl migrate default/web --to native";
        contains(&error.text, &[&format!("{paused} {command}")]);
        drop(guard);
        world.text("migrate web --to native").await;
        cluster.goes_on_with(&pods).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_journal_can_be_applied_by_hand_and_stays_paused() {
    let (cluster, _controller) = Migrating::advanced_after_a_rollout().await;
    let (world, pods) = (&cluster.world, cluster.pods().await);
    let guard = cluster.fail(CREATION, Fault::Status(403, None));
    let error = cluster.fails("migrate web --to native").await;
    drop(guard);
    let data = cluster.journal_data().await;
    let items: Vec<Value> = data["items"].as_array().unwrap().clone();
    let (object, revisions) = items.split_last().unwrap();
    assert!(!revisions.is_empty());
    let all = cluster.all_revisions();
    let mut names = Vec::new();
    for revision in revisions {
        let name = revision["metadata"]["name"].as_str().unwrap();
        all.delete(name, &Default::default()).await.unwrap();
        let revision = serde_json::from_value(revision.clone()).unwrap();
        all.create(&Default::default(), &revision).await.unwrap();
        names.push(name);
    }
    let delete = format!(
        "kubectl -n default delete controllerrevision {} --ignore-not-found; kubectl -n default get",
        names.join(" ")
    );
    contains(
        &error.text,
        &[&delete, "The DaemonSet that this creates is paused."],
    );
    let object = serde_json::from_value(object.clone()).unwrap();
    let sets = world.sets();
    sets.create(&Default::default(), &object).await.unwrap();
    tokio::time::sleep(A_MOMENT).await;
    assert_eq!(cluster.pods().await, pods);
    let set = cluster.native().await;
    let annotations = &set["metadata"]["annotations"];
    assert_eq!(annotations["apps.openyurt.io/paused"], "true");
    world.text("migrate web --to native").await;
    cluster.goes_on_with(&pods).await;
}

/// Runs `act` while `ctl` stores the journal, the last step before the deletion. Returns the error of the migration.
async fn meanwhile(cluster: &Migrating, act: impl Future<Output = ()>) -> CliError {
    let keeps = Arc::new(Notify::new());
    let told = keeps.clone();
    let _guard = cluster.world.cluster.faults().add(move |request| {
        let (verb, resource) = (request.verb.as_str(), request.resource.as_str());
        if request.user_agent != "ctl" || (verb, resource) != ("create", "controllerrevisions") {
            return Fault::Pass;
        }
        told.notify_one();
        Fault::Delay(Duration::from_millis(100))
    });
    let acting = async {
        keeps.notified().await;
        act.await;
    };
    let (error, ()) = tokio::join!(cluster.fails("migrate web --to advanced"), acting);
    let set = cluster.native().await;
    assert_eq!(set["metadata"]["deletionTimestamp"], Value::Null);
    assert!(cluster.journal().await.is_none());
    error
}

#[tokio::test(start_paused = true)]
async fn migration_is_refused_if_an_in_place_update_starts_during_it() {
    let cluster = Migrating::with_nodes(1).await;
    let pods: Api<Pod> = Api::namespaced(cluster.world.client.clone(), "default");
    let pod = pods
        .list(&Default::default())
        .await
        .unwrap()
        .items
        .remove(0);
    let error = meanwhile(&cluster, async {
        let container = &pod
            .status
            .as_ref()
            .unwrap()
            .container_statuses
            .as_ref()
            .unwrap()[0];
        let state = json!({
            "revision": pod.labels()[REVISION_HASH_LABEL],
            "updateTimestamp": "2026-01-01T00:00:00Z",
            "lastContainerStatuses": { "c": { "imageID": container.image_id, "restartCount": 0 } },
        });
        let patch = json!({
            "metadata": { "annotations": { IN_PLACE_STATE: state.to_string() } },
            "spec": { "containers": [{ "name": "c", "image": "web:9" }] },
        });
        let patch = Patch::Strategic(patch);
        let (name, params) = (pod.name_any(), PatchParams::default());
        pods.patch(&name, &params, &patch).await.unwrap();
    })
    .await;
    assert_eq!(error.code, Code::Refused, "{error}");
    contains(&error.text, &["pods are being updated in place"]);
}

#[tokio::test(start_paused = true)]
async fn migration_is_refused_if_a_finalizer_is_added_during_it() {
    let cluster = Migrating::with_nodes(1).await;
    let error = meanwhile(&cluster, async {
        let patch = json!({ "metadata": { "finalizers": ["example.io/keep"] } });
        let (sets, params) = (cluster.world.sets(), PatchParams::default());
        let patch = Patch::Merge(patch);
        sets.patch("web", &params, &patch).await.unwrap();
    })
    .await;
    assert_eq!(error.code, Code::Refused, "{error}");
    contains(&error.text, &["it changed in the meantime. Try again."]);
}

#[tokio::test(start_paused = true)]
async fn a_daemonset_deleted_right_after_its_creation_is_reported_as_deleted() {
    let cluster = Migrating::with_nodes(1).await;
    let made = Arc::new(Notify::new());
    let (told, seen) = (made.clone(), AtomicUsize::new(0));
    let _guard = cluster.world.cluster.faults().add(move |request| {
        if request.user_agent != "ctl" || request.group != KRUISE_GROUP {
            return Fault::Pass;
        }
        match request.verb.as_str() {
            "create" => drop(seen.fetch_add(1, Ordering::Relaxed)),
            "get" if seen.load(Ordering::Relaxed) > 1 => {
                told.notify_one();
                return Fault::Delay(Duration::from_secs(1));
            }
            _ => {}
        }
        Fault::Pass
    });
    let advanced = cluster.advanced();
    let deleting = async {
        made.notified().await;
        let params = DeleteParams::background();
        advanced.delete("web", &params).await.unwrap();
    };
    let (error, ()) = tokio::join!(cluster.fails("migrate web --to advanced"), deleting);
    assert_eq!(error.code, Code::Failed, "{error}");
    contains(
        &error.text,
        &["was then deleted or recreated by another program"],
    );
}

#[test]
fn an_unprocessed_daemonset_is_reported_with_the_waited_time() {
    let key = crate::index::SetKey::new("default", "web");
    let told = messages::not_adopted(&key, Purpose::GoOn, &Adoption::Unseen, true);
    let words = [
        "has not processed it for 1m.",
        "To continue: yurt-ds ctl migrate default/web --to native",
    ];
    contains(&told, &words);
}
