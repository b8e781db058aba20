//! Tests of requests that don't name an outdated pod of this node. The agent rejects such requests from its cache, and the number
//! of look-ups is limited.

use super::*;

#[tokio::test(start_paused = true)]
async fn names_of_missing_pods_cost_no_request() {
    let world = World::outdated().await;
    let start = Instant::now();
    for number in 0..300 {
        let key = PodKey::new("default", &format!("junk-{number}"));
        let text = format!("Get pod failed, pods \"junk-{number}\" not found");
        told(
            &world.actions.upgrade(&key, false).await,
            500,
            Reason::NotFound,
            &text,
        );
        told(
            &world.actions.image_pull(&key).await,
            500,
            Reason::NotFound,
            &text,
        );
    }
    let elsewhere = PodKey::new("kube-system", "web-bwzss");
    let answer = world.actions.upgrade(&elsewhere, false).await;
    assert_eq!(answer.reason, "NotFound");
    assert!(world.asked().is_empty());
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_another_node_is_refused_with_its_node() {
    let world = World::outdated().await;
    let key = world.key_on("n2").await;
    let answer = world.actions.upgrade(&key, false).await;
    let text = format!(
        "Pre check update pod failed, Failed to check pod {key} status, error: Pod: {key} is running on n2, can not \
         be updated"
    );
    told(&answer, 403, Reason::OtherNode, &text);
    for _ in 0..10 {
        let again = world.actions.upgrade(&key, false).await;
        told(&again, 403, Reason::OtherNode, &text);
    }
    assert_eq!(world.asked(), ["get pods"]);
}

#[tokio::test(start_paused = true)]
async fn names_that_imitate_a_daemonset_cost_three_reads() {
    let world = World::outdated().await;
    for first in "bcdfghjklmnpqrstvwxz2456789".chars() {
        let key = PodKey::new("default", &format!("web-{first}bbbb"));
        let answer = world.actions.upgrade(&key, false).await;
        let text = format!("Get pod failed, pods {:?} not found", key.name);
        told(&answer, 500, Reason::NotFound, &text);
    }
    assert_eq!(world.asked(), ["get pods"; 3]);
    // The invented names have used up the limit of look-ups. A valid call needs no look-up.
    let key = world.key_on("n1").await;
    assert_eq!(world.actions.upgrade(&key, false).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn pods_without_a_supported_owner_are_rejected_at_once() {
    let world = World::outdated().await;
    let bare = world.create_pod("bare", json!({})).await;
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r1", "controller": true,
    });
    // Stop the garbage collector. It would delete the pod, because the owner of the pod doesn't exist.
    let _still = world.without("kube-controller-manager");
    let replica = json!({ "metadata": { "ownerReferences": [owner] } });
    let replica = world.create_pod("replica", replica).await;
    world.refresh().await;
    let start = Instant::now();
    let answer = world.actions.upgrade(&bare, false).await;
    told(&answer, 403, Reason::NotUpgradable, &row_5(&bare));
    for key in [&bare, &replica] {
        let forged = json!({ "type": "PodNeedUpgrade", "status": "True" });
        world.set_condition(key, forged).await;
    }
    world.refresh().await;
    told(
        &world.actions.upgrade(&bare, false).await,
        400,
        Reason::NoOwner,
        "Pod has no owner references",
    );
    told(
        &world.actions.upgrade(&replica, false).await,
        400,
        Reason::UnsupportedKind,
        "Not support ota upgrade pod type ReplicaSet",
    );
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert!(world.asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_up_to_date_pod_is_refused_from_the_cache() {
    let world = World::start().await;
    let key = world.key_on("n1").await;
    let start = Instant::now();
    told(
        &world.actions.upgrade(&key, false).await,
        403,
        Reason::NotUpgradable,
        &row_5(&key),
    );
    assert!(start.elapsed() <= Duration::from_millis(101));
    assert!(world.asked().is_empty());
}
