//! Tests of the actions while the API server is unreachable, frozen, overloaded or failing.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_frozen_api_server_is_reported_within_two_seconds_and_no_write_follows() {
    let world = World::outdated().await;
    let key = world.key_on("n1").await;
    let frozen = world.agent_meets("", Fault::Delay(Duration::from_secs(30)));
    let start = Instant::now();
    let calls = (0..10).map(|number| {
        let (actions, key) = (&world.actions, &key);
        async move {
            match number % 2 {
                0 => actions.upgrade(key, false).await,
                _ => actions.image_pull(key).await,
            }
        }
    });
    for answer in futures::future::join_all(calls).await {
        told(&answer, 503, Reason::Disconnected, ROW_1);
    }
    assert_eq!(start.elapsed(), api_reader::DEADLINE);
    drop(frozen);
    sleep(A_MOMENT).await;
    assert!(world.writes().is_empty(), "{:?}", world.writes());
    assert_eq!(world.key_on("n1").await, key);
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_freezes_after_the_reads_fails_the_write() {
    let world = World::outdated().await;
    let key = world.key_on("n1").await;
    let _frozen = world.agent_meets("delete", Fault::Hang);
    let start = Instant::now();
    let answer = world.actions.upgrade(&key, false).await;
    told(&answer, 500, Reason::ApplyFailed, "Apply update failed");
    assert_eq!(start.elapsed(), api_reader::WRITE_DEADLINE);
    assert!(
        !world.actions.setup.cloud.is_lost(),
        "the pod was read after that"
    );
}

#[tokio::test(start_paused = true)]
async fn a_slow_webhook_does_not_fail_an_upgrade() {
    let world = World::outdated().await;
    let key = world.key_on("n1").await;
    let _slow = world.agent_meets("delete", Fault::Delay(Duration::from_secs(9)));
    let answer = world.actions.upgrade(&key, false).await;
    assert_eq!(
        (answer.status.as_u16(), answer.reason),
        (200, Reason::Started.word())
    );
}

#[tokio::test(start_paused = true)]
async fn while_the_cloud_is_lost_one_read_detects_its_return() {
    let world = World::outdated().await;
    let key = world.key_on("n1").await;
    world.sim.cluster.stop();
    world.pod_cache().set_live(false);
    told(
        &world.actions.upgrade(&key, false).await,
        503,
        Reason::Disconnected,
        ROW_1,
    );
    let before = world.asked().len();
    for _ in 0..100 {
        let junk = PodKey::new("default", "web-bbbbb");
        told(
            &world.actions.upgrade(&junk, false).await,
            503,
            Reason::Disconnected,
            ROW_1,
        );
    }
    assert_eq!(world.asked().len(), before);
    world.sim.cluster.start();
    // The watch has not resumed yet. The call succeeds, because its own read shows that the API server answers again.
    assert_eq!(world.actions.upgrade(&key, false).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn many_calls_while_the_cloud_is_frozen_share_one_read() {
    let world = World::outdated().await;
    world.actions.setup.cloud.lost();
    let key = world.key_on("n1").await;
    let reads = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = reads.clone();
    let _frozen = world.sim.cluster.faults().add(move |request| {
        if request.user_agent != AGENT {
            return Fault::Pass;
        }
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Fault::Hang
    });
    let start = Instant::now();
    let calls = (0..50).map(|_| world.actions.upgrade(&key, false));
    for answer in futures::future::join_all(calls).await {
        told(&answer, 503, Reason::Disconnected, ROW_1);
    }
    assert_eq!(start.elapsed(), api_reader::DEADLINE);
    assert_eq!(reads.load(std::sync::atomic::Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lost_cloud_is_checked_every_five_seconds_for_any_number_of_requests() {
    let world = World::outdated().await;
    world.actions.setup.cloud.lost();
    let key = world.key_on("n1").await;
    let reads = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = reads.clone();
    let away = world.sim.cluster.faults().add(move |request| {
        if request.user_agent != AGENT {
            return Fault::Pass;
        }
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Fault::ResetBefore
    });
    for _ in 0..100 {
        let answer = world.actions.upgrade(&key, false).await;
        told(&answer, 503, Reason::Disconnected, ROW_1);
        tokio::time::sleep(Duration::from_millis(199)).await;
    }
    assert_eq!(
        reads.load(std::sync::atomic::Ordering::Relaxed),
        4,
        "in 20 seconds"
    );
    drop(away);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(world.actions.upgrade(&key, false).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn server_errors_are_quoted_and_gateway_errors_count_as_disconnected() {
    let world = World::outdated().await;
    let key = world.key_on("n1").await;
    let unwell = world.agent_meets("", Fault::Status(500, None));
    let answer = world.actions.upgrade(&key, false).await;
    assert_eq!((answer.status.as_u16(), answer.reason), (500, "ReadFailed"));
    assert!(
        answer.text.starts_with("Get pod failed, "),
        "{}",
        answer.text
    );
    drop(unwell);
    let _gateway = world.agent_meets("", Fault::Status(503, None));
    told(
        &world.actions.upgrade(&key, false).await,
        503,
        Reason::Disconnected,
        ROW_1,
    );
    assert!(world.writes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_overloaded_api_server_gets_no_requests_until_its_retry_time() {
    let world = World::outdated().await;
    let key = world.key_on("n1").await;
    let overloaded = world.agent_meets("", Fault::Status(429, Some(7)));
    told(
        &world.actions.upgrade(&key, false).await,
        503,
        Reason::Throttled,
        ROW_1,
    );
    drop(overloaded);
    let asked = world.asked().len();
    for _ in 0..10 {
        told(
            &world.actions.upgrade(&key, false).await,
            503,
            Reason::Throttled,
            ROW_1,
        );
    }
    assert_eq!(world.asked().len(), asked);
    sleep(Duration::from_secs(7)).await;
    assert_eq!(world.actions.upgrade(&key, false).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_rejected_deletion_is_reported_and_can_be_repeated() {
    let world = World::outdated().await;
    let key = world.key_on("n1").await;
    let denied = world.sim.cluster.deny(|request| request.verb == "delete");
    let answer = world.actions.upgrade(&key, false).await;
    told(&answer, 500, Reason::Forbidden, "Apply update failed");
    drop(denied);
    let refused = world.agent_meets("delete", Fault::Status(422, None));
    let answer = world.actions.upgrade(&key, false).await;
    told(&answer, 500, Reason::ApplyFailed, "Apply update failed");
    drop(refused);
    let denied = world.agent_meets("delete", Fault::Denied("not today".into()));
    let answer = world.actions.upgrade(&key, false).await;
    assert_eq!((answer.status.as_u16(), answer.reason), (500, "Refused"));
    let said = &answer.text;
    assert!(
        said.starts_with("Apply update failed, rejected by the API server: ")
            && said.ends_with("not today"),
        "{said}"
    );
    drop(denied);
    assert_eq!(world.actions.upgrade(&key, false).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_lost_response_to_a_deletion_causes_no_second_one() {
    let world = World::outdated().await;
    let key = world.key_on("n1").await;
    let lost = world.agent_meets("delete", Fault::ResetAfter);
    let answer = world.actions.upgrade(&key, false).await;
    assert_eq!(
        (answer.status.as_u16(), answer.reason),
        (200, Reason::Started.word()),
        "the pod was read after that"
    );
    drop(lost);
    told(
        &world.actions.upgrade(&key, false).await,
        403,
        Reason::Deleting,
        &row_3(&key),
    );
    assert_eq!(world.writes(), ["delete pods"]);
}

#[tokio::test(start_paused = true)]
async fn without_a_watch_the_pod_is_read_from_the_api_server() {
    let world = World::outdated().await;
    let key = world.key_on("n1").await;
    world.pod_cache().replace([]);
    world.pod_cache().set_live(false);
    assert_eq!(world.actions.upgrade(&key, false).await.status, 200);
    for name in ["..", "a/b", "A", "a%2fb"] {
        let asked = world.asked().len();
        let answer = world
            .actions
            .upgrade(&PodKey::new("default", name), false)
            .await;
        assert_eq!(answer.reason, "NotFound");
        assert_eq!(world.asked().len(), asked, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn before_the_first_sync_a_frozen_api_server_costs_two_seconds_once() {
    let world = World::outdated().await;
    world.pod_cache().set_live(false);
    let _frozen = world.without(AGENT);
    let start = Instant::now();
    let names = (0..100).map(|number| PodKey::new("default", &format!("pod-{number}")));
    let names: Vec<PodKey> = names.collect();
    let calls = names.iter().map(|key| world.actions.upgrade(key, false));
    for answer in futures::future::join_all(calls).await {
        told(&answer, 503, Reason::Disconnected, ROW_1);
    }
    assert_eq!(start.elapsed(), api_reader::DEADLINE);
}

/// Delays the agent's requests with this verb by one second, which is less than every timeout.
fn slow(world: &World, verb: &'static str) -> FaultGuard {
    let faults = world.sim.cluster.faults();
    faults.add(move |request| {
        if request.user_agent == AGENT && request.verb == verb {
            Fault::Delay(Duration::from_secs(1))
        } else {
            Fault::Pass
        }
    })
}

#[tokio::test(start_paused = true)]
async fn kubelet_writes_between_read_and_write_are_kept() {
    let world = World::outdated().await;
    let _still = world.without_controller();
    let key = world.key_on("n1").await;
    let _slow = slow(&world, "patch");
    let kubelet = async {
        sleep(Duration::from_millis(500)).await;
        let condition = json!({ "type": "Disturbed", "status": "True", "reason": "ByKubelet" });
        world.set_condition(&key, condition).await;
    };
    let (answer, ()) = tokio::join!(world.actions.image_pull(&key), kubelet);
    assert_eq!(answer.status, 200);
    let disturbed = world.condition(&key, "Disturbed").await.unwrap();
    assert_eq!(disturbed["reason"], "ByKubelet");
    assert!(world.condition(&key, "PodImageReady").await.is_some());
}

#[tokio::test(start_paused = true)]
async fn another_pod_of_the_same_name_is_not_deleted() {
    let world = World::outdated().await;
    let key = world.key_on("n1").await;
    let _slow = slow(&world, "delete");
    let replaced = async {
        sleep(Duration::from_millis(500)).await;
        let pods = world.api::<core_v1::Pod>();
        let now = DeleteParams::default().grace_period(0);
        pods.delete(&key.name, &now).await.unwrap();
        world.create_pod(&key.name, json!({})).await;
    };
    let (answer, ()) = tokio::join!(world.actions.upgrade(&key, false), replaced);
    let text = format!("Get pod failed, pods {:?} not found", key.name);
    told(&answer, 500, Reason::NotFound, &text);
    let pods = world.api::<core_v1::Pod>();
    let other = pods.get(&key.name).await.unwrap();
    assert!(other.metadata.deletion_timestamp.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_disconnects_before_the_write_causes_none() {
    let world = World::outdated().await;
    let key = world.key_on("n1").await;
    let _slow = slow(&world, "list");
    let call = world.actions.upgrade(&key, false);
    let gone = tokio::time::timeout(Duration::from_millis(500), call).await;
    assert!(gone.is_err());
    sleep(A_MOMENT).await;
    assert!(world.writes().is_empty());
    // The abandoned call doesn't block later calls for the pod.
    assert_eq!(world.actions.upgrade(&key, false).await.status, 200);
}
