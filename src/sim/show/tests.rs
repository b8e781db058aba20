//! The stories, played as fast as they go.

use super::*;

#[tokio::test(start_paused = true)]
async fn two_nodes_go_offline_and_follow_one_at_a_time_when_they_return() {
    let report = play(script::three_nodes(), 1).await.unwrap();
    println!("{}", report.text(true));
    assert!(report.held(), "{}", report.text(true));
}
