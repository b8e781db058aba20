//! When the API server may be asked again: the one place that decides, for every list and every watch.
//!
//! Ten thousand agents lose their API server in the same second. What each of them does next is what the API server meets
//! when it is back, so two things hold whatever answers come:
//!
//! - between two requests of an agent are at least five seconds. Only the second of all, the watch behind the first list, follows
//!   at once.
//! - after an outage the first requests are spread over a minute. The first retry comes at a moment of that minute that is
//!   another one for every node, the further ones a minute apart: whenever the API server returns, the moments in which
//!   they would have come are spread evenly over the next minute.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::super::cloud::{Cloud, SPACING};

/// What the requests of a fleet are spread over when the API server is back, and the longest from one try to the next.
pub(super) const SPREAD: Duration = Duration::from_secs(60);
/// What the first requests are spread over where pods are known from the disk.
///
/// A power cut starts all agents at once; most of them kept their state, serve it, and can wait some seconds. One that
/// knows nothing asks at once: its owner would see no pods until then, and a new DaemonSet starts its pods one by one.
const START: Duration = Duration::from_secs(10);
/// The longest that is believed of an API server that asks to be left alone.
const ASKED_AT_MOST: Duration = Duration::from_secs(300);

/// Whose turn it is: ours, or not yet.
#[derive(Debug)]
pub(super) struct Turns {
    node: String,
    cloud: Cloud,
    /// Requests so far.
    number: u64,
    /// When the last request was sent.
    last: Option<Instant>,
    /// When the next one is due, unless the cloud is seen to be back before.
    due: Instant,
    /// Before this none is sent in any case: the API server asked for that.
    asked: Instant,
    /// Failures since a watch lasted.
    failures: u32,
    /// Whether the last request did its work, however that ended.
    lasted: bool,
    /// Whether the watch behind the first list is still to come.
    first: bool,
}

impl Turns {
    /// Of that node; `known`: its pods are known from the disk.
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

    /// Waits until a request may be sent; it counts as sent then.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            () = sleep_until(self.due) => {}
            // Somebody on the node asked for something and was answered: nobody spreads such requests, and they are few.
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

    /// Notes that the watch lasted; says whether there were failures before.
    pub(super) fn note_lasting(&mut self) -> bool {
        self.lasted = true;
        std::mem::take(&mut self.failures) > 0
    }

    /// Notes that the last request failed, and that the API server asked for so much time. What lasted is no failure,
    /// whatever ended it, and is resumed at once.
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

    /// Whether the API server is not known to have failed since a watch lasted.
    pub(super) fn is_well(&self) -> bool {
        self.failures == 0
    }
}

/// From one try to the next, after so many failures before this one.
fn pause(node: &str, number: u64, failures: u32) -> Duration {
    match failures {
        0 => SPACING + part(SPREAD - SPACING, node, number),
        _ => SPREAD,
    }
}

/// A part of `whole`: another one for every node and number, and the same in every run.
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

    /// The largest share of all in one second, and the seconds from the first to the last.
    fn spread(moments: &[Duration]) -> (f64, u64) {
        let mut seconds: Vec<u64> = moments.iter().map(Duration::as_secs).collect();
        seconds.sort_unstable();
        let most = seconds.chunk_by(|a, b| a == b).map(<[u64]>::len).max();
        let share = most.unwrap_or(0) as f64 / moments.len() as f64;
        (share, seconds[seconds.len() - 1] - seconds[0])
    }

    /// How long after its return the API server is asked by a node that lost it so long before.
    fn first_try(node: &str, outage: Duration, tries_before: u64) -> Duration {
        let (mut at, mut failures) = (Duration::ZERO, 0);
        while at < outage {
            at += pause(node, tries_before + u64::from(failures), failures);
            failures += 1;
        }
        at - outage
    }

    #[test]
    fn the_first_tries_after_an_outage_are_spread_over_a_minute() {
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
    fn a_power_cut_starts_agents_that_know_their_pods_over_ten_seconds() {
        let starts: Vec<_> = nodes().map(|node| part(START, &node, 0)).collect();
        let (share, length) = spread(&starts);
        assert!(share < 0.12 && length == 9, "{share} {length}");
    }

    #[test]
    fn pauses_differ_from_node_to_node_and_from_outage_to_outage_and_not_from_run_to_run() {
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
    async fn what_lasted_is_resumed_at_once_but_never_within_five_seconds() {
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
    async fn a_first_list_that_fails_gives_no_second_request() {
        let mut turns = Turns::new("a", Cloud::default(), false);
        turns.next().await;
        turns.note_failure(Duration::ZERO);
        assert!(next(&mut turns).await >= SPACING);
        assert!(next(&mut turns).await >= SPACING);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_asks_for_time_is_given_it_and_not_for_ever() {
        for (asked, given) in [(200, 200), (100_000, 300)] {
            let mut turns = Turns::new("a", Cloud::default(), false);
            turns.next().await;
            turns.note_failure(Duration::from_secs(asked));
            let waited = next(&mut turns).await;
            assert_eq!(waited.as_secs(), given);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_hears_that_the_cloud_is_back_asks_soon() {
        let cloud = Cloud::default();
        let mut turns = Turns::new("a", cloud.clone(), false);
        turns.next().await;
        turns.note_failure(Duration::ZERO);
        turns.next().await;
        turns.note_failure(Duration::ZERO); // a minute from now
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
