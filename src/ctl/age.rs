//! Spans of time as people read them.

use k8s_openapi::jiff::Timestamp;

/// `12s`, `5m`, `3h20m`, `4d`: from one instant to a later one, coarse.
pub(super) fn between(from: Timestamp, to: Timestamp) -> String {
    let span = to.as_second().saturating_sub(from.as_second());
    seconds(u64::try_from(span).unwrap_or_default())
}

/// The same, of a span in seconds.
pub(super) fn seconds(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0..2) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m"),
        (0, ..10, _) if minutes % 60 > 0 => format!("{hours}h{}m", minutes % 60),
        (..2, _, _) => format!("{hours}h"),
        _ => format!("{days}d"),
    }
}

/// RFC 3339, whole seconds, UTC.
pub(super) fn instant(at: Timestamp) -> String {
    crate::core::instant::words(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_coarse() {
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
    fn what_lies_ahead_is_now() {
        let later = Timestamp::from_second(5).unwrap();
        assert_eq!(between(later, Timestamp::UNIX_EPOCH), "0s");
    }
}
