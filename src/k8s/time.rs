//! Times of API objects, limited to a range in which arithmetic can't overflow.
//!
//! The API server accepts times up to the end of the year 9999 from a kubelet. [`Timestamp`] ends some hours earlier, and a
//! duration added to such a time would overflow.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Deserializer};

use super::text::Text;

/// Latest time that is used: 9000-01-01T00:00:00Z. It replaces all later times.
const LATEST: Timestamp = Timestamp::constant(221_845_392_000, 0);

/// Beginning of all times in the year in which [`Timestamp`] ends.
const LAST_YEAR: &str = "9999-";

/// Parses an RFC 3339 time.
///
/// # Errors
/// Returns an error if the text is not a time.
pub(crate) fn read(text: &str) -> Result<Time, k8s_openapi::jiff::Error> {
    match text.parse::<Timestamp>() {
        Ok(time) => Ok(Time(time.min(LATEST))),
        Err(_) if text.starts_with(LAST_YEAR) => Ok(Time(LATEST)),
        Err(error) => Err(error),
    }
}

/// Deserializes a time; `None` if it is `null` or missing.
pub(crate) fn optional<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Time>, D::Error> {
    let text = Option::<Text<'de>>::deserialize(deserializer)?;
    let time = text.map(|Text(text)| read(&text));
    time.transpose().map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn out_of_range_times_are_clamped() {
        for (text, expected) in [
            ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
            ("9000-01-01T00:00:01Z", "9000-01-01T00:00:00Z"),
            ("9999-12-31T23:59:59Z", "9000-01-01T00:00:00Z"),
            ("9999-12-31T23:59:59.999999Z", "9000-01-01T00:00:00Z"),
        ] {
            assert_eq!(read(text).unwrap().0.to_string(), expected, "{text}");
        }
        for text in ["", "tomorrow", "10000-01-01T00:00:00Z"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
