//! Record of a pause: a part of the [`RolloutState`](crate::core::RolloutState).

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::core::instant::later;
use crate::core::lenient::value;

/// Interval between reminders of a pause.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Record of a pause, which survives restarts of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PauseRecord {
    /// Start of the pause, in whole seconds.
    pub since: Timestamp,
    /// Length of the pause in days at the last reminder; 0 before the first one.
    #[serde(default, deserialize_with = "value")]
    pub reminded: u64,
}

impl PauseRecord {
    /// Returns the record of a pause that starts at `now`.
    pub(in crate::core) fn begins(now: Timestamp) -> Self {
        Self {
            since: Timestamp::from_second(now.as_second()).unwrap_or(now),
            reminded: 0,
        }
    }

    /// Returns the number of whole days that the pause has lasted at `now`.
    pub fn days(&self, now: Timestamp) -> u64 {
        let held = now.as_second().saturating_sub(self.since.as_second());
        u64::try_from(held).unwrap_or_default() / DAY.as_secs()
    }

    pub(in crate::core) fn due(&self) -> Timestamp {
        let days = self.reminded.saturating_add(1);
        later(
            self.since,
            Duration::from_secs(DAY.as_secs().saturating_mul(days)),
        )
    }
}
