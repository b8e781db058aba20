//! Instants: arithmetic that saturates, and how they stand in sentences.

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// `instant + duration`, saturating.
pub(crate) fn later(instant: Timestamp, duration: Duration) -> Timestamp {
    let duration = SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
    instant.checked_add(duration).unwrap_or(Timestamp::MAX)
}

/// `instant - duration`, saturating.
pub(crate) fn earlier(instant: Timestamp, duration: Duration) -> Timestamp {
    let duration = SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
    instant.checked_sub(duration).unwrap_or(Timestamp::MIN)
}

/// RFC 3339, whole seconds, UTC: nobody reads nanoseconds, and two replicas that date the same thing by their own clocks
/// differ in them.
pub fn words(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second())
        .unwrap_or(at)
        .to_string()
}

/// The same sentence without instants, to tell whether it says something else than when.
pub fn timeless(sentence: &str) -> String {
    let is_instant = |word: &str| {
        let word = word.trim_end_matches([':', ';', ',', ')']);
        word.parse::<Timestamp>().is_ok()
    };
    let words = sentence.split(' ').filter(|word| !is_instant(word));
    Vec::from_iter(words).join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_told_in_whole_seconds_and_can_be_left_out_of_a_sentence() {
        let at: Timestamp = "2026-01-03T02:00:00.123456789Z".parse().unwrap();
        assert_eq!(words(at), "2026-01-03T02:00:00Z");
        let sentence = format!("waiting until {}: wave a has 2 nodes", words(at));
        assert_eq!(timeless(&sentence), "waiting until wave a has 2 nodes");
    }
}
