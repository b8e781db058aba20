//! Tests of `GET /yurt-ds/v1/upgrades`, the list of available upgrades.

use super::*;

#[tokio::test(start_paused = true)]
async fn pending_upgrades_list_their_images_from_one_request() {
    let world = World::outdated().await;
    let key = world.key_on("n1").await;
    let hash = world.condition(&key, "PodNeedUpgrade").await.unwrap();
    let hash = text_of(&hash["message"]).strip_prefix("controllerrevision: ");
    let mut listed = world.actions.upgrades().await.unwrap();
    let container = &mut listed["items"][0]["containers"][0];
    let id = container.as_object_mut().unwrap().remove("imageID");
    assert!(text_of(&id.unwrap()).contains("nginx"));
    let expected = json!({
        "kind": "UpgradeList",
        "apiVersion": "yurt-ds/v1",
        "node": "n1",
        "items": [{
            "namespace": "default",
            "pod": key.name,
            "daemonSet": "web",
            "revision": hash,
            "containers": [{ "name": "c", "init": false, "image": "nginx:1", "newImage": "nginx:2" }],
            "imageReady": null,
            "deleting": false,
            "refused": null,
        }],
    });
    assert_eq!(listed, expected);
    for _ in 0..10 {
        world.actions.upgrades().await.unwrap();
    }
    assert_eq!(world.asked(), ["list controllerrevisions"]);
}

#[tokio::test(start_paused = true)]
async fn pending_upgrades_list_added_removed_and_init_containers() {
    let world = World::start().await;
    let containers =
        json!([{ "name": "d", "image": "web:1" }, { "name": "c", "$patch": "delete" }]);
    let spec =
        json!({ "containers": containers, "initContainers": [{ "name": "i", "image": "init:1" }] });
    world
        .patch_set("web", json!({ "spec": { "template": { "spec": spec } } }))
        .await;
    world.settle().await;
    let listed = world.actions.upgrades().await.unwrap();
    let containers = listed["items"][0]["containers"].as_array().unwrap();
    let told: Vec<Value> = containers
        .iter()
        .map(|found| {
            json!([
                found["name"],
                found["init"],
                found["image"],
                found["newImage"]
            ])
        })
        .collect();
    let expected = json!([
        ["c", false, "nginx:1", null],
        ["i", true, null, "init:1"],
        ["d", false, null, "web:1"],
    ]);
    assert_eq!(json!(told), expected);
}

#[tokio::test(start_paused = true)]
async fn without_the_cloud_new_images_are_unknown_and_only_the_first_caller_waits() {
    let world = World::outdated().await;
    let _frozen = world.without(AGENT);
    let start = Instant::now();
    for _ in 0..3 {
        let listed = world.actions.upgrades().await.unwrap();
        assert_eq!(listed["items"][0]["containers"][0]["newImage"], Value::Null);
        assert_eq!(start.elapsed(), api_reader::DEADLINE);
    }
}

#[tokio::test(start_paused = true)]
async fn an_unknown_hash_is_looked_up_rarely() {
    let world = World::outdated().await;
    let key = world.key_on("n1").await;
    let foreign = json!({ "type": "PodNeedUpgrade", "status": "True", "message": "controllerrevision: 7874644d7c" });
    let _still = world.without_controller();
    world.set_condition(&key, foreign).await;
    world.refresh().await;
    for _ in 0..10 {
        let listed = world.actions.upgrades().await.unwrap();
        assert_eq!(listed["items"][0]["revision"], "7874644d7c");
        assert_eq!(listed["items"][0]["containers"][0]["newImage"], Value::Null);
    }
    assert_eq!(world.asked(), ["list controllerrevisions"]);
}

#[tokio::test(start_paused = true)]
async fn pending_upgrades_show_pulls_and_deletions() {
    let world = World::outdated().await;
    let _still = world.without_controller();
    let key = world.key_on("n1").await;
    assert_eq!(world.actions.image_pull(&key).await.status, 200);
    world.refresh().await;
    let listed = world.actions.upgrades().await.unwrap();
    let image = &listed["items"][0]["imageReady"];
    assert_eq!(
        (&image["status"], &image["reason"]),
        (&json!("False"), &json!("WaitPullImage"))
    );
    let pods = world.api::<core_v1::Pod>();
    pods.delete(&key.name, &DeleteParams::default())
        .await
        .unwrap();
    world.refresh().await;
    let listed = world.actions.upgrades().await.unwrap();
    assert_eq!(listed["items"][0]["deleting"], true);
}

#[tokio::test(start_paused = true)]
async fn without_updates_the_list_is_empty_and_without_a_cache_it_fails() {
    let world = World::start().await;
    let listed = world.actions.upgrades().await.unwrap();
    assert_eq!(listed["items"], json!([]));
    let unknown = Actions::new(Setup {
        pod_cache: PodCache::default(),
        ..world.actions.setup.clone()
    });
    let answer = unknown.upgrades().await.unwrap_err();
    told(&answer, 500, Reason::NothingKnownYet, "Get pod list failed");
    assert!(world.asked().is_empty());
}
