//! Tests of the replacement of a pod: when it is allowed, and that the pod is deleted only once.

use super::*;

#[tokio::test(start_paused = true)]
async fn an_upgrade_is_one_write_and_changes_no_other_pod() {
    let world = World::outdated().await;
    let (key, other) = (world.key_on("n1").await, world.pod_on("n2").await);
    let answer = world.actions.upgrade(&key, false).await;
    let text = format!("Start updating pod {key}");
    told(&answer, 200, Reason::Started, &text);
    assert_eq!(
        world.asked(),
        [
            "delete pods",
            "get daemonsets",
            "get pods",
            "list controllerrevisions"
        ]
    );
    world.settle().await;
    let new = world.pod_on("n1").await;
    assert_ne!(text_of(&new["metadata"]["name"]), key.name);
    assert_eq!(new["spec"]["containers"][0]["image"], "nginx:2");
    let after = world.pod_on("n2").await;
    assert_eq!(after["metadata"]["uid"], other["metadata"]["uid"]);
    told(
        &world.actions.upgrade(&key, false).await,
        500,
        Reason::NotFound,
        &format!("Get pod failed, pods {:?} not found", key.name),
    );
}

#[tokio::test(start_paused = true)]
async fn ten_concurrent_upgrades_delete_the_pod_once() {
    let world = World::outdated().await;
    let key = world.key_on("n1").await;
    let calls = (0..10).map(|_| world.actions.upgrade(&key, false));
    let answers = futures::future::join_all(calls).await;
    let started = |answer: &&Answer| answer.status == 200;
    assert_eq!(answers.iter().filter(started).count(), 1);
    for refused in answers.iter().filter(|answer| answer.status != 200) {
        told(refused, 403, Reason::Deleting, &row_3(&key));
    }
    assert_eq!(world.writes(), ["delete pods"]);
    assert_eq!(world.asked().len(), 4);
    // The cache still shows the deleted pod as running. The agent remembers the deletion, so it sends no second request.
    told(
        &world.actions.upgrade(&key, false).await,
        403,
        Reason::Deleting,
        &row_3(&key),
    );
    assert_eq!(world.asked().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_is_forgotten_when_the_watch_shows_it() {
    let world = World::outdated().await;
    let key = world.key_on("n1").await;
    assert_eq!(world.actions.upgrade(&key, false).await.status, 200);
    world.settle().await;
    world.set_image("web", "nginx:3").await;
    world.settle().await;
    let next = world.key_on("n1").await;
    assert_eq!(world.actions.upgrade(&next, false).await.status, 200);
    world.settle().await;
    let last = world.key_on("n1").await;
    assert_eq!(world.actions.upgrade(&last, false).await.status, 403);
}

#[tokio::test(start_paused = true)]
async fn a_pod_deleted_by_another_client_is_refused_as_deleting_or_not_found() {
    let world = World::outdated().await;
    let key = world.key_on("n1").await;
    let pods = world.api::<core_v1::Pod>();
    pods.delete(&key.name, &DeleteParams::default())
        .await
        .unwrap();
    let answer = world.actions.upgrade(&key, false).await;
    told(&answer, 403, Reason::Deleting, &row_3(&key));
    sleep(A_MOMENT).await;
    let answer = world.actions.upgrade(&key, false).await;
    let text = format!("Get pod failed, pods {:?} not found", key.name);
    told(&answer, 500, Reason::NotFound, &text);
    assert!(world.writes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_is_refused_if_the_strategy_has_changed() {
    let switches = [
        (json!("AdvancedRollingUpdate"), Reason::ModeChanged),
        (json!("Advanced"), Reason::ModeChanged),
        (Value::Null, Reason::ModeChanged),
    ];
    for (value, reason) in switches {
        let world = World::outdated().await;
        let _still = world.without_controller();
        let key = world.key_on("n1").await;
        let annotations = json!({ "apps.openyurt.io/update-strategy": value });
        world
            .patch_set("web", json!({ "metadata": { "annotations": annotations } }))
            .await;
        let answer = world.actions.upgrade(&key, false).await;
        told(&answer, 403, reason, &row_5(&key));
        assert!(world.writes().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_is_refused_if_the_daemonset_is_paused_deleted_or_native() {
    let world = World::outdated().await;
    let key = world.key_on("n1").await;
    let paused = |value: Value| json!({ "metadata": { "annotations": { "apps.openyurt.io/paused": value } } });
    world.patch_set("web", paused("true".into())).await;
    let answer = world.actions.upgrade(&key, false).await;
    told(&answer, 403, Reason::Paused, &row_5(&key));
    world.patch_set("web", paused(Value::Null)).await;
    let strategy = json!({ "spec": { "updateStrategy": { "type": "RollingUpdate" } } });
    {
        let _frozen = world.sim.cluster.faults().add(|request| {
            // Hang the requests of all other components, so that only the node owner's request sees the change.
            match request.user_agent.as_str() {
                AGENT | "test" => Fault::Pass,
                _ => Fault::Hang,
            }
        });
        world.patch_set("web", strategy).await;
        let answer = world.actions.upgrade(&key, false).await;
        told(&answer, 403, Reason::ModeChanged, &row_5(&key));
        let sets = world.api::<DaemonSet>();
        let orphan = DeleteParams::default();
        sets.delete("web", &orphan).await.unwrap();
        let answer = world.actions.upgrade(&key, false).await;
        told(&answer, 403, Reason::DaemonSetGone, &row_5(&key));
        world.create_set("web").await;
        let answer = world.actions.upgrade(&key, false).await;
        told(&answer, 403, Reason::DaemonSetGone, &row_5(&key));
    }
    assert!(world.writes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_unobserved_rollback_restarts_no_pod() {
    let world = World::outdated().await;
    let key = world.key_on("n1").await;
    // The native controller makes the old revision current again. Nothing updates the condition without the yurt-ds controller, so
    // the condition stays `True`.
    let _away = world.without_controller();
    world.set_image("web", "nginx:1").await;
    sleep(A_MOMENT).await;
    let condition = world.condition(&key, "PodNeedUpgrade").await.unwrap();
    assert_eq!(condition["status"], "True");
    let answer = world.actions.upgrade(&key, true).await;
    told(&answer, 403, Reason::NotOutdated, &row_5(&key));
    assert!(world.writes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_is_refused_while_the_native_controller_is_behind() {
    let world = World::outdated().await;
    let key = world.key_on("n1").await;
    let _away = world.without("kube-controller-manager");
    world.set_image("web", "nginx:3").await;
    let answer = world.actions.upgrade(&key, false).await;
    told(&answer, 403, Reason::NativeControllerBehind, &row_5(&key));
    assert!(world.writes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_revision_was_deleted_counts_as_outdated() {
    let world = World::outdated().await;
    let key = world.key_on("n1").await;
    let revisions = world.api::<ControllerRevision>();
    let mut list = revisions.list(&ListParams::default()).await.unwrap().items;
    list.sort_by_key(|revision| revision.revision);
    let old = list[0].metadata.name.as_deref().unwrap();
    revisions
        .delete(old, &DeleteParams::default())
        .await
        .unwrap();
    let answer = world.actions.upgrade(&key, false).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    // A revision counts as missing only after a second read. The first reads are concurrent, so they may contradict each other. The
    // second reads follow one another.
    assert_eq!(world.asked().len(), 7, "{:?}", world.asked());
}

#[tokio::test(start_paused = true)]
async fn kubelet_writes_do_not_fail_an_upgrade() {
    let world = World::outdated().await;
    let key = world.key_on("n1").await;
    world
        .set_condition(&key, json!({ "type": "Ready", "status": "False" }))
        .await;
    assert_eq!(world.actions.upgrade(&key, false).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn without_a_revision_in_the_condition_the_revisions_decide() {
    let world = World::outdated().await;
    let key = world.key_on("n1").await;
    world
        .set_condition(
            &key,
            json!({ "type": "PodNeedUpgrade", "status": "True", "message": "" }),
        )
        .await;
    world.refresh().await;
    assert_eq!(world.actions.upgrade(&key, false).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_pull_blocks_the_upgrade_until_it_is_done_forced_or_stale() {
    let world = World::outdated().await;
    let key = world.key_on("n1").await;
    let need = world.condition(&key, "PodNeedUpgrade").await.unwrap();
    let image = |status: &str, reason: &str, message: &Value| json!({ "type": "PodImageReady", "status": status, "reason": reason, "message": message });
    world
        .set_condition(&key, image("False", "WaitPullImage", &need["message"]))
        .await;
    world.refresh().await;
    let answer = world.actions.upgrade(&key, false).await;
    assert_eq!(
        (answer.status.as_u16(), answer.reason),
        (403, "ImageNotReady")
    );
    world
        .set_condition(
            &key,
            image("False", "PullImageFail", &"pull image job j failed".into()),
        )
        .await;
    world.refresh().await;
    let answer = world.actions.upgrade(&key, false).await;
    assert_eq!(
        (answer.status.as_u16(), answer.reason),
        (403, "ImagePullFailed")
    );
    assert!(world.asked().is_empty(), "refused from memory");
    assert_eq!(world.actions.upgrade(&key, true).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_waits_briefly_for_a_new_condition() {
    let world = World::outdated().await;
    let key = world.key_on("n1").await;
    let pod = world.pod_cache().pod(&key).unwrap();
    let mut before: Value = serde_json::from_str(pod.raw()).unwrap();
    before["status"]["conditions"] = json!([]);
    world
        .pod_cache()
        .apply(serde_json::from_value(before).unwrap());
    let tell = async {
        sleep(Duration::from_millis(60)).await;
        world.pod_cache().apply(pod.clone());
    };
    let start = Instant::now();
    let (answer, ()) = tokio::join!(world.actions.upgrade(&key, false), tell);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(start.elapsed() < Duration::from_millis(100));
}
