//! Tests of refused migrations. The new DaemonSet would not adopt the pods in their present state, or an object that the migration
//! would create already exists and belongs to another owner.

use k8s_openapi::api::apps::v1::DaemonSet;
use kube::api::{DeleteParams, PostParams};

use super::*;

/// Asserts that a command is refused and changes nothing.
async fn refused(world: &CtlWorld, line: &str, words: &str) {
    let writes = world.writes();
    let error = world.error(line).await;
    assert_eq!(error.code, Code::Refused, "{error}");
    assert!(error.text.contains(words), "{words}: {error}");
    assert!(error.text.contains("nothing was changed"), "{error}");
    assert_eq!(world.writes(), writes, "{line}");
}

#[tokio::test(start_paused = true)]
async fn migration_is_refused_while_a_pod_is_terminating() {
    let cluster = Migrating::with_nodes(2).await;
    let world = &cluster.world;
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), "default");
    let names: Vec<String> = pods
        .list(&Default::default())
        .await
        .unwrap()
        .iter()
        .map(|pod| pod.name_any())
        .collect();
    let held = Patch::Merge(json!({ "metadata": { "finalizers": ["example.io/keep"] } }));
    let patched = pods.patch(&names[0], &PatchParams::default(), &held).await;
    patched.unwrap();
    pods.delete(&names[0], &DeleteParams::default())
        .await
        .unwrap();
    let words = "is still terminating. Such a pod is not adopted";
    refused(world, "migrate web --to advanced --dry-run", words).await;
    refused(world, "migrate web --to advanced", words).await;
}

#[tokio::test(start_paused = true)]
async fn another_daemonset_that_selects_the_pods_is_named() {
    let cluster = Migrating::with_nodes(1).await;
    let mut other: DaemonSet = cluster.world.sets().get("web").await.unwrap();
    other.metadata = serde_json::from_value(json!({ "name": "other" })).unwrap();
    let template = &mut other.spec.as_mut().unwrap().template;
    let elsewhere = json!({ "nowhere": "yes" });
    template.spec.as_mut().unwrap().node_selector = serde_json::from_value(elsewhere).unwrap();
    let sets = cluster.world.sets();
    sets.create(&PostParams::default(), &other).await.unwrap();
    let words = "ds/default/other selects its pods too";
    refused(&cluster.world, "migrate web --to advanced", words).await;
}

#[tokio::test(start_paused = true)]
async fn a_name_with_the_target_kind_suggests_the_source() {
    let cluster = Migrating::with_nodes(1).await;
    let error = cluster
        .world
        .error("migrate ads/web --to advanced --dry-run")
        .await;
    assert_eq!(error.code, Code::NotFound, "{error}");
    assert!(
        error.text.contains("Did you mean ds/default/web?"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_foreign_revision_with_the_name_of_the_journal_is_kept() {
    let cluster = Migrating::with_nodes(1).await;
    let all: Api<ControllerRevision> = Api::namespaced(cluster.world.client.clone(), "default");
    let foreign =
        json!({ "metadata": { "name": "web-migration" }, "revision": 1, "data": { "foo": 1 } });
    let foreign = serde_json::from_value(foreign).unwrap();
    all.create(&PostParams::default(), &foreign).await.unwrap();
    let words = "has the name of the journal of migrate, but other content";
    refused(&cluster.world, "migrate web --to advanced", words).await;
}

#[tokio::test(start_paused = true)]
async fn a_foreign_daemonset_created_during_the_migration_and_the_journal_are_kept() {
    let cluster = Migrating::with_nodes(1).await;
    let world = &cluster.world;
    let mut other = world.sets().get("web").await.unwrap();
    let creations = AtomicUsize::new(0);
    let refusal = cluster.world.cluster.faults().add(move |request| {
        let is_it = request.user_agent == "ctl"
            && (request.verb.as_str(), request.resource.as_str()) == ("create", "daemonsets");
        // Let the first creation pass, because it is a dry run.
        if is_it && creations.fetch_add(1, Ordering::Relaxed) > 0 {
            Fault::Status(500, None)
        } else {
            Fault::Pass
        }
    });
    assert!(world.run("migrate web --to advanced").await.1.is_err());
    drop(refusal);
    other.metadata = serde_json::from_value(json!({ "name": "web" })).unwrap();
    let spec = &mut other.spec.as_mut().unwrap().template.spec;
    spec.as_mut().unwrap().containers[0].image = Some("web:77".to_owned());
    let mut other = serde_json::to_value(other).unwrap();
    other["apiVersion"] = json!("apps.kruise.io/v1beta1");
    let other = serde_json::from_value(other).unwrap();
    let made = cluster
        .advanced()
        .create(&PostParams::default(), &other)
        .await;
    made.unwrap();
    let error = world.error("migrate web --to advanced").await;
    assert_eq!(error.code, Code::Refused, "{error}");
    let words = "another DaemonSet of that name was created in the meantime";
    assert!(error.text.contains(words), "{error}");
    let all: Api<ControllerRevision> = Api::namespaced(world.client.clone(), "default");
    assert!(all.get_opt("web-migration").await.unwrap().is_some());
}
