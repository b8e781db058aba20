//! Source of time: the machine's clock, or the virtual time of the simulator.
//!
//! `core` has no clock; its callers pass the time as `now`. All other code gets the time from a [`Clock`]. A virtual clock
//! follows tokio's clock, so `tokio::time::pause` affects both timers and timestamps.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Parses the value of a duration flag, such as `30s` or `1h30m`.
///
/// # Errors
/// If the text is not a duration. The error shows examples. `M` is an error, too: it stands for months, and minutes are usually
/// meant.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    if text.contains('M') {
        let minutes = text.replace('M', "m");
        return Err(format!(
            "M stands for months; did you mean {minutes}? For months, use days, such as 30d"
        ));
    }
    humantime::parse_duration(text)
        .map_err(|_| "use a duration such as 15s, 2m or 1h30m".to_owned())
}

/// A source of timestamps. Cheap to clone.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The machine's wall clock.
    System,
    /// Virtual time: `epoch`, plus the time that tokio's clock has advanced since `start`, plus `stepped`.
    Virtual {
        /// Time at which the virtual clock started.
        epoch: Timestamp,
        /// Time on tokio's clock when the virtual clock started.
        start: Instant,
        /// Sum of all [steps](Clock::step), in milliseconds.
        stepped: Arc<AtomicI64>,
    },
}

impl Clock {
    /// Creates a virtual clock that starts at `epoch` and follows tokio's clock, which may be paused.
    pub fn starting_at(epoch: Timestamp) -> Self {
        Self::Virtual {
            epoch,
            start: Instant::now(),
            stepped: Arc::default(),
        }
    }

    /// Moves a virtual clock and all its clones by `by`, as when NTP corrects a wall clock or a machine resumes.
    ///
    /// Timers are not affected. A [`Clock::System`] is not changed.
    pub fn step(&self, by: SignedDuration) {
        if let Self::Virtual { stepped, .. } = self {
            let milliseconds = i64::try_from(by.as_millis()).unwrap_or_default();
            stepped.fetch_add(milliseconds, Ordering::Relaxed);
        }
    }

    /// Returns the current time.
    pub fn now(&self) -> Timestamp {
        match self {
            Self::System => Timestamp::now(),
            Self::Virtual {
                epoch,
                start,
                stepped,
            } => {
                let passed =
                    SignedDuration::try_from(start.elapsed()).unwrap_or(SignedDuration::MAX);
                let stepped = SignedDuration::from_millis(stepped.load(Ordering::Relaxed));
                let passed = passed.saturating_add(stepped);
                epoch.saturating_add(passed).unwrap_or(Timestamp::MAX)
            }
        }
    }

    /// Returns the current time as a Kubernetes [`Time`](k8s_openapi::apimachinery::pkg::apis::meta::v1::Time), which serializes
    /// only whole seconds.
    pub fn time(&self) -> k8s_openapi::apimachinery::pkg::apis::meta::v1::Time {
        k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(self.now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_in_capitals_are_rejected_with_a_suggestion() {
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5_400)));
        assert_eq!(duration("30d"), Ok(Duration::from_secs(30 * 86_400)));
        let error = duration("1h10M").unwrap_err();
        assert!(error.contains("did you mean 1h10m?"), "{error}");
        assert!(duration("soon").unwrap_err().contains("such as 15s"));
    }
}
