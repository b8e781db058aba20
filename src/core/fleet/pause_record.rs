//! What has to be remembered of a pause: it stands in the condition `Paused`, so that it survives every restart.

use std::fmt;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::core::instant::later;

/// Somebody is reminded this often.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// What stands before the last reminder in a message.
const REMINDED: &str = ", reminded after ";

/// What is remembered of a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PauseRecord {
    /// Since when it holds, in whole seconds.
    pub since: Timestamp,
    /// How many days it had held at the last reminder; 0 before the first one.
    pub reminded: u64,
}

impl PauseRecord {
    /// One that begins now.
    pub(in crate::core) fn begins(now: Timestamp) -> Self {
        Self {
            since: Timestamp::from_second(now.as_second()).unwrap_or(now),
            reminded: 0,
        }
    }

    /// Reads it from a condition that holds `since`.
    pub fn read(since: Timestamp, message: &str) -> Self {
        let days = message.split_once(REMINDED);
        let days = days.and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
        Self {
            since,
            reminded: days.unwrap_or_default(),
        }
    }

    /// How many whole days it holds at `now`.
    pub fn days(&self, now: Timestamp) -> u64 {
        let held = now.as_second().saturating_sub(self.since.as_second());
        u64::try_from(held).unwrap_or_default() / DAY.as_secs()
    }

    /// When somebody is to be reminded next.
    pub(in crate::core) fn due(&self) -> Timestamp {
        let days = self.reminded.saturating_add(1);
        later(
            self.since,
            Duration::from_secs(DAY.as_secs().saturating_mul(days)),
        )
    }
}

impl fmt::Display for PauseRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "since {}", self.since)?;
        match self.reminded {
            0 => Ok(()),
            1 => write!(f, "{REMINDED}1 day"),
            days => write!(f, "{REMINDED}{days} days"),
        }
    }
}
