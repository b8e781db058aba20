//! Where time comes from: the machine, or the simulator's virtual time.
//!
//! `core` never asks; whoever calls it passes `now`. Everything else gets a [`Clock`] from outside. A virtual clock
//! follows tokio's clock, so `tokio::time::pause` moves timers and timestamps together.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// The value of a flag that is a duration, such as `30s` or `1h30m`.
///
/// # Errors
/// Says what a duration looks like.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|_| "use a duration such as 15s, 2m or 1h30m".to_owned())
}

/// A source of instants; cheap to clone.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The machine's wall clock.
    System,
    /// `epoch` plus what has passed on tokio's clock since `start`, plus `stepped`.
    Virtual {
        /// The instant at which the virtual clock started.
        epoch: Timestamp,
        /// Tokio's instant at that moment.
        start: Instant,
        /// Sum of all [steps](Clock::step), in milliseconds.
        stepped: Arc<AtomicI64>,
    },
}

impl Clock {
    /// A clock that shows `epoch` now and moves with tokio's (possibly paused) time.
    pub fn starting_at(epoch: Timestamp) -> Self {
        Self::Virtual {
            epoch,
            start: Instant::now(),
            stepped: Arc::default(),
        }
    }

    /// Steps a virtual clock and its clones, as a time server or the end of a suspension steps a wall clock. Timers do not
    /// notice. The clock of the machine is left alone.
    pub fn step(&self, by: SignedDuration) {
        if let Self::Virtual { stepped, .. } = self {
            let milliseconds = i64::try_from(by.as_millis()).unwrap_or_default();
            stepped.fetch_add(milliseconds, Ordering::Relaxed);
        }
    }

    /// The present instant.
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

    /// The present instant as the wire has it (whole seconds).
    pub fn time(&self) -> k8s_openapi::apimachinery::pkg::apis::meta::v1::Time {
        k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(self.now())
    }
}
