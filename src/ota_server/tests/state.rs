//! Tests of the state on disk across restarts of an agent.

use super::*;

#[tokio::test(start_paused = true)]
async fn an_agent_that_starts_offline_serves_its_saved_pods_with_their_age() {
    let directory = tempfile::tempdir().unwrap();
    let world = World::new();
    world.create("a", NODE).await;
    let config = AgentConfig {
        state_dir: Some(directory.path().join("state")),
        ..world.config()
    };
    let agent = Agent::start(config.clone()).unwrap();
    pass(SECOND).await;
    let (head, _) = get(&agent, "/pods", &[]).await;
    let etag = header(&head, "etag").to_owned();
    drop(agent); // As if killed: the state is not written again.
    world.cluster.stop();
    pass(100 * SECOND).await;
    let agent = Agent::start(config.clone()).unwrap();
    let (head, _) = get(&agent, "/pods", &[]).await;
    assert_eq!(header(&head, "etag"), etag);
    assert_eq!(header(&head, "x-cache-age"), "101");
    assert_eq!(get(&agent, "/ready", &[]).await.0.status(), 200);
    assert!(!agent.is_live());
    world.cluster.start();
    world.create("b", NODE).await;
    pass(20 * SECOND).await;
    assert_eq!(names(&agent).await, ["a", "b"]);
    world.create("c", NODE).await;
    pass(SECOND).await;
    world.create("d", NODE).await;
    pass(SECOND / 10).await;
    agent.close().await;
    world.cluster.stop();
    let agent = Agent::start(config.clone()).unwrap();
    assert_eq!(names(&agent).await, ["a", "b", "c", "d"]);
    let other = AgentConfig {
        node: "edge-2".to_owned(),
        ..config
    };
    let other = Agent::start(other).unwrap();
    assert_eq!(get(&other, "/pods", &[]).await.0.status(), 500);
}

#[tokio::test(start_paused = true)]
async fn an_unwritable_state_directory_does_not_affect_the_agent() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let world = World::new();
    world.create("a", NODE).await;
    let config = AgentConfig {
        state_dir: Some(file.join("state")),
        ..world.config()
    };
    let agent = Agent::start(config).unwrap();
    pass(30 * SECOND).await;
    assert_eq!(names(&agent).await, ["a"]);
    agent.close().await;
    assert_eq!(names(&agent).await, ["a"]);
}
