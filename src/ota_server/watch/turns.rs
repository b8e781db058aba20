//! Schedule of all lists and watches. It determines when the agent may send the next request to the API server.
//!
//! Ten thousand agents can lose their API server in the same second, and retry when it returns. Two rules limit their requests:
//!
//! - An agent waits at least five seconds between two requests. Only its second request, the watch after the first list, follows
//!   immediately.
//! - After an outage, the first requests are spread over a minute. The first retry of each node comes at a different time within
//!   that minute, and further retries follow a minute apart. So whenever the API server returns, retries arrive evenly over the
//!   next minute.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::super::cloud::{Cloud, SPACING};

/// Time over which a fleet's requests are spread after an outage. It is also the maximum time between two attempts.
pub(super) const SPREAD: Duration = Duration::from_secs(60);
/// Time over which the first requests are spread if the agent has saved pods on disk.
///
/// A power cut starts all agents at the same time. Most of them have saved pods, which they serve, so they can wait some seconds.
/// An agent without saved pods lists immediately, because the node owner would see no pods. Such agents don't start together: a new
/// DaemonSet starts its pods gradually.
const START: Duration = Duration::from_secs(10);
/// Maximum pause that the agent makes if the API server asks for one.
const ASKED_AT_MOST: Duration = Duration::from_secs(300);

/// Schedule of the requests of one agent.
#[derive(Debug)]
pub(super) struct Turns {
    node: String,
    cloud: Cloud,
    /// Number of requests sent so far.
    number: u64,
    /// Time at which the last request was sent.
    last: Option<Instant>,
    /// Planned time of the next request. If the API server answers a node owner's call, the request is sent earlier.
    due: Instant,
    /// Earliest time at which the API server allows the next request.
    asked: Instant,
    /// Number of failures since a watch last worked.
    failures: u32,
    /// True if the last request was a watch that worked, even if it failed later.
    lasted: bool,
    /// True until the second request was sent, or the first one has failed.
    first: bool,
}

impl Turns {
    /// Creates the schedule of a node. `known` is true if the node's pods were loaded from disk.
    pub(super) fn new(node: &str, cloud: Cloud, known: bool) -> Self {
        let now = Instant::now();
        let wait = if known {
            part(START, node, 0)
        } else {
            Duration::ZERO
        };
        Self {
            node: node.to_owned(),
            cloud,
            number: 0,
            last: None,
            due: now + wait,
            asked: now,
            failures: 0,
            lasted: false,
            first: true,
        }
    }

    /// Waits until a request may be sent, and counts it as sent.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            () = sleep_until(self.due) => {}
            // A node owner's call was answered, so the API server has returned. Calls are few and come at different times, so the
            // requests that follow them need not be spread.
            () = self.cloud.returned() => {}
        }
        sleep_until(self.earliest()).await;
        let now = Instant::now();
        (self.last, self.due, self.lasted) = (Some(now), now, false);
        self.number += 1;
    }

    fn earliest(&mut self) -> Instant {
        match self.last {
            None => self.asked,
            Some(_) if std::mem::take(&mut self.first) => self.asked,
            Some(last) => self.asked.max(last + SPACING),
        }
    }

    /// Records that the watch has worked for a while. Returns true if there were failures before.
    pub(super) fn note_lasting(&mut self) -> bool {
        self.lasted = true;
        std::mem::take(&mut self.failures) > 0
    }

    /// Records that the last request failed, and the pause that the API server asked for.
    ///
    /// A watch that worked before it ended is no failure: it is resumed without a backoff.
    pub(super) fn note_failure(&mut self, asked: Duration) {
        let now = Instant::now();
        self.first = false;
        self.asked = now + asked.min(ASKED_AT_MOST);
        if self.lasted {
            return;
        }
        let last = self.last.unwrap_or(now);
        let pause = pause(&self.node, self.number, self.failures);
        self.due = (last + pause).max(now + SPACING);
        self.failures = self.failures.saturating_add(1);
    }

    /// Returns true if no request has failed since a watch last worked.
    pub(super) fn is_well(&self) -> bool {
        self.failures == 0
    }
}

/// Returns the time until the next attempt, after `failures` earlier failures.
fn pause(node: &str, number: u64, failures: u32) -> Duration {
    match failures {
        0 => SPACING + part(SPREAD - SPACING, node, number),
        _ => SPREAD,
    }
}

/// Returns a part of `whole` that depends only on `node` and `number`. The result is the same in every run.
fn part(whole: Duration, node: &str, number: u64) -> Duration {
    let mut hasher = DefaultHasher::new();
    (node, number).hash(&mut hasher);
    whole.mul_f64((hasher.finish() >> 11) as f64 / (1_u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: usize = 10_000;

    fn nodes() -> impl Iterator<Item = String> {
        (0..NODES).map(|number| format!("edge-{number}"))
    }

    /// Returns the highest share of requests in one second, and the number of seconds from the first request to the last one.
    fn spread(moments: &[Duration]) -> (f64, u64) {
        let mut seconds: Vec<u64> = moments.iter().map(Duration::as_secs).collect();
        seconds.sort_unstable();
        let most = seconds.chunk_by(|a, b| a == b).map(<[u64]>::len).max();
        let share = most.unwrap_or(0) as f64 / moments.len() as f64;
        (share, seconds[seconds.len() - 1] - seconds[0])
    }

    /// Returns the time from the API server's return to the first attempt of a node.
    fn first_try(node: &str, outage: Duration, tries_before: u64) -> Duration {
        let (mut at, mut failures) = (Duration::ZERO, 0);
        while at < outage {
            at += pause(node, tries_before + u64::from(failures), failures);
            failures += 1;
        }
        at - outage
    }

    #[test]
    fn retries_after_an_outage_are_spread_over_a_minute() {
        for (seconds, tries_before) in [(1, 2), (7, 3), (30, 2), (61, 40), (300, 2), (86_400, 1000)]
        {
            let outage = Duration::from_secs(seconds);
            let tries: Vec<_> = nodes()
                .map(|node| first_try(&node, outage, tries_before))
                .collect();
            let (share, length) = spread(&tries);
            assert!(share < 0.03, "{share} in a second, after {seconds} s");
            assert!((54..=60).contains(&length), "{length} s, after {seconds} s");
        }
    }

    #[test]
    fn after_a_power_cut_agents_with_saved_pods_start_over_ten_seconds() {
        let starts: Vec<_> = nodes().map(|node| part(START, &node, 0)).collect();
        let (share, length) = spread(&starts);
        assert!(share < 0.12 && length == 9, "{share} {length}");
    }

    #[test]
    fn retry_pauses_depend_on_node_and_outage_and_are_reproducible() {
        assert_eq!(pause("a", 1, 0), pause("a", 1, 0));
        assert_ne!(pause("a", 1, 0), pause("b", 1, 0));
        assert_ne!(pause("a", 1, 0), pause("a", 2, 0));
        assert_eq!(pause("a", 1, 1), SPREAD);
        assert_eq!(pause("a", u64::MAX, u32::MAX), SPREAD);
    }

    async fn next(turns: &mut Turns) -> Duration {
        let before = Instant::now();
        turns.next().await;
        before.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_lasting_watch_is_resumed_at_once_but_at_most_every_five_seconds() {
        let mut turns = Turns::new("a", Cloud::default(), false);
        assert_eq!(next(&mut turns).await, Duration::ZERO);
        assert_eq!(next(&mut turns).await, Duration::ZERO, "the first watch");
        turns.note_lasting();
        assert!(next(&mut turns).await.abs_diff(SPACING) < Duration::from_millis(2));
        tokio::time::advance(Duration::from_secs(120)).await;
        assert!(!turns.note_lasting());
        turns.note_failure(Duration::ZERO);
        assert_eq!(next(&mut turns).await, Duration::ZERO);
        turns.note_failure(Duration::ZERO);
        assert!(next(&mut turns).await >= SPACING);
        assert!(turns.note_lasting());
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_first_list_is_not_retried_at_once() {
        let mut turns = Turns::new("a", Cloud::default(), false);
        turns.next().await;
        turns.note_failure(Duration::ZERO);
        assert!(next(&mut turns).await >= SPACING);
        assert!(next(&mut turns).await >= SPACING);
    }

    #[tokio::test(start_paused = true)]
    async fn a_retry_time_is_honored_up_to_five_minutes() {
        for (asked, given) in [(200, 200), (100_000, 300)] {
            let mut turns = Turns::new("a", Cloud::default(), false);
            turns.next().await;
            turns.note_failure(Duration::from_secs(asked));
            let waited = next(&mut turns).await;
            assert_eq!(waited.as_secs(), given);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_retry_follows_soon_after_the_cloud_returns() {
        let cloud = Cloud::default();
        let mut turns = Turns::new("a", cloud.clone(), false);
        turns.next().await;
        turns.note_failure(Duration::ZERO);
        turns.next().await;
        turns.note_failure(Duration::ZERO); // The next attempt is a minute later.
        cloud.lost();
        let found = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            cloud.found();
        };
        let (waited, ()) = tokio::join!(next(&mut turns), found);
        assert!(
            waited.abs_diff(SPACING) < Duration::from_millis(2),
            "{waited:?}"
        );
    }
}
