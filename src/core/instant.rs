//! Timestamps and durations: arithmetic without overflow, and the format in messages.

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// Returns `instant + duration`, limited to the maximum timestamp.
pub(crate) fn later(instant: Timestamp, duration: Duration) -> Timestamp {
    let duration = SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
    instant.checked_add(duration).unwrap_or(Timestamp::MAX)
}

/// Returns `instant - duration`, limited to the minimum timestamp.
pub(crate) fn earlier(instant: Timestamp, duration: Duration) -> Timestamp {
    let duration = SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
    instant.checked_sub(duration).unwrap_or(Timestamp::MIN)
}

/// Returns the time in RFC 3339, UTC, in whole seconds. Fractions would make the messages of two replicas differ.
pub fn words(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second())
        .unwrap_or(at)
        .to_string()
}

/// Returns the time between two instants, rounded down: `12s`, `5m`, `3h20m`, `4d`.
pub fn between(from: Timestamp, to: Timestamp) -> String {
    let span = to.as_second().saturating_sub(from.as_second());
    seconds(u64::try_from(span).unwrap_or_default())
}

/// Returns a duration in seconds as text, rounded down like [`between`].
pub fn seconds(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0..2) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m"),
        (0, ..10, _) if minutes % 60 > 0 => format!("{hours}h{}m", minutes % 60),
        (..2, _, _) => format!("{hours}h"),
        _ => format!("{days}d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_shown_in_whole_seconds() {
        let at: Timestamp = "2026-01-03T02:00:00.123456789Z".parse().unwrap();
        assert_eq!(words(at), "2026-01-03T02:00:00Z");
    }

    #[test]
    fn durations_are_shown_coarsely() {
        #[track_caller]
        fn case(seconds: i64, expected: &str) {
            let from = Timestamp::UNIX_EPOCH;
            let to = Timestamp::from_second(seconds).unwrap();
            assert_eq!(between(from, to), expected);
        }
        case(0, "0s");
        case(119, "119s");
        case(120, "2m");
        case(3_599, "59m");
        case(3_600, "1h");
        case(12_000, "3h20m");
        case(86_400, "24h");
        case(172_800, "2d");
    }

    #[test]
    fn a_future_instant_is_shown_as_zero_seconds() {
        let later = Timestamp::from_second(5).unwrap();
        assert_eq!(between(later, Timestamp::UNIX_EPOCH), "0s");
    }
}
