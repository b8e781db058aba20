//! Tests of requests for image pulls. The agent writes the condition that requests a pull once per revision.

use super::*;

fn requested(key: &PodKey) -> String {
    format!("Image pre-pull requested for pod {key}")
}

#[tokio::test(start_paused = true)]
async fn imagepull_is_one_write_that_changes_nothing_else() {
    let world = World::outdated().await;
    let _still = world.without_controller();
    let key = world.key_on("n1").await;
    let before = world.pod_on("n1").await;
    told(
        &world.actions.image_pull(&key).await,
        200,
        Reason::Requested,
        &requested(&key),
    );
    assert_eq!(
        world.asked(),
        [
            "get daemonsets",
            "get pods",
            "list controllerrevisions",
            "patch pods/status"
        ]
    );
    let after = world.pod_on("n1").await;
    let need = world.condition(&key, "PodNeedUpgrade").await.unwrap();
    let mut expected = before["status"]["conditions"].as_array().unwrap().clone();
    let image = world.condition(&key, "PodImageReady").await.unwrap();
    assert_eq!(
        (&image["status"], &image["reason"]),
        (&json!("False"), &json!("WaitPullImage"))
    );
    assert_eq!(image["message"], need["message"]);
    assert!(image["lastTransitionTime"].is_string());
    // A strategic merge patch inserts new conditions at the front.
    expected.insert(0, image);
    assert_eq!(after["status"]["conditions"], json!(expected));
}

#[tokio::test(start_paused = true)]
async fn requested_and_pulled_images_are_not_requested_again() {
    let world = World::outdated().await;
    let _still = world.without_controller();
    let key = world.key_on("n1").await;
    let calls = (0..10).map(|_| world.actions.image_pull(&key));
    for answer in futures::future::join_all(calls).await {
        assert_eq!(
            (answer.status.as_u16(), answer.text),
            (200, requested(&key))
        );
    }
    assert_eq!(world.writes(), ["patch pods/status"]);
    world.refresh().await;
    let again = world.actions.image_pull(&key).await;
    told(&again, 200, Reason::AlreadyRequested, &requested(&key));
    let image = world.condition(&key, "PodImageReady").await.unwrap();
    let pulled = json!({
        "type": "PodImageReady", "status": "True", "reason": "PullImageSuccess", "message": image["message"],
    });
    world.set_condition(&key, pulled).await;
    let again = world.actions.image_pull(&key).await;
    told(&again, 200, Reason::AlreadyPulled, &requested(&key));
    assert_eq!(world.writes(), ["patch pods/status"]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_or_stale_pull_is_requested_again_at_once() {
    let cases = [
        ("False", "PullImageFail", "pull image job j failed", false),
        ("False", "WaitPullImage", "controllerrevision: older", false),
        (
            "True",
            "PullImageSuccess",
            "controllerrevision: older",
            true,
        ),
    ];
    for (status, reason, message, flips) in cases {
        let world = World::outdated().await;
        let _still = world.without_controller();
        let key = world.key_on("n1").await;
        let then = "2020-01-01T00:00:00Z";
        world
            .set_condition(
                &key,
                json!({
                    "type": "PodImageReady", "status": status, "reason": reason, "message": message,
                    "lastTransitionTime": then,
                }),
            )
            .await;
        world.refresh().await;
        let answer = world.actions.image_pull(&key).await;
        told(&answer, 200, Reason::Requested, &requested(&key));
        let image = world.condition(&key, "PodImageReady").await.unwrap();
        assert_eq!(image["reason"], "WaitPullImage");
        assert_eq!(image["lastTransitionTime"] != then, flips, "{message}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_hash_in_the_condition_the_current_revision_is_pulled() {
    let world = World::outdated().await;
    let _still = world.without_controller();
    let key = world.key_on("n1").await;
    let hash = world.condition(&key, "PodNeedUpgrade").await.unwrap()["message"].clone();
    world
        .set_condition(
            &key,
            json!({ "type": "PodNeedUpgrade", "status": "True", "message": "" }),
        )
        .await;
    world.refresh().await;
    assert_eq!(world.actions.image_pull(&key).await.status, 200);
    let image = world.condition(&key, "PodImageReady").await.unwrap();
    assert_eq!(image["message"], hash);
}

#[tokio::test(start_paused = true)]
async fn imagepull_refusals_have_their_own_wording() {
    let world = World::start().await;
    let key = world.key_on("n1").await;
    let text = format!(
        "Failed to check pod status {key}, error: Pod: {key} update status is False, can not be updated"
    );
    let answer = world.actions.image_pull(&key).await;
    told(&answer, 403, Reason::NotUpgradable, &text);
    assert!(world.asked().is_empty());
    let world = World::outdated().await;
    let key = world.key_on("n1").await;
    let _denied = world.sim.cluster.deny(|request| request.verb == "patch");
    let answer = world.actions.image_pull(&key).await;
    told(
        &answer,
        500,
        Reason::Forbidden,
        "Patch pod status for imagepull failed",
    );
}

#[tokio::test(start_paused = true)]
async fn the_successor_of_a_pod_is_not_requested_to_pull() {
    let world = World::outdated().await;
    let key = world.key_on("n1").await;
    let _conflict = world.agent_meets("patch", Fault::Status(409, None));
    let answer = world.actions.image_pull(&key).await;
    let text = format!("Get pod failed, pods {:?} not found", key.name);
    told(&answer, 500, Reason::NotFound, &text);
}
