//! A pause that nobody forgets: since when it holds, when somebody is reminded of it, and who got the new revision anyway.
//!
//! What has to be remembered stands in the condition `Paused`, so that it survives every restart: the time since when in
//! its `lastTransitionTime`, the last reminder in its message.

use std::fmt;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::fleet::{Fleet, Node, NodeName, Pod, PodRevision};
use super::instant::later;
use super::settings::{Pause, Strategy};

/// Somebody is reminded this often.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// What stands before the last reminder in a message.
const REMINDED: &str = ", reminded after ";

/// Whether nothing may be replaced at `now`.
pub fn is_paused(strategy: &Strategy, now: Timestamp) -> bool {
    match strategy.pause {
        None => false,
        Some(Pause::Indefinite) => true,
        Some(Pause::Until(until)) => now < until,
    }
}

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
    fn begins(now: Timestamp) -> Self {
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
    fn due(&self) -> Timestamp {
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

/// A pause that holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PauseStand {
    /// What is to be remembered of it from now on.
    pub record: PauseRecord,
    /// When it ends by itself; `None`: somebody has to end it.
    pub until: Option<Timestamp>,
    /// Whether somebody is to be reminded now.
    pub reminds: bool,
    /// Targeted nodes that got the current revision since then, by name: the native controller makes every new pod of it.
    pub newcomers: Vec<NodeName>,
    /// Whether pods are taken back from the revision that the guard stopped when it ends.
    pub reverts: bool,
}

impl PauseStand {
    /// The pause that holds at `now`, if one does.
    pub(super) fn of(strategy: &Strategy, fleet: &Fleet, now: Timestamp) -> Option<Self> {
        if !is_paused(strategy, now) {
            return None;
        }
        let told = fleet.pause.unwrap_or_else(|| PauseRecord::begins(now));
        let days = told.days(now);
        let record = PauseRecord {
            reminded: told.reminded.max(days),
            ..told
        };
        let got = |node: &&Node| node.pods.iter().any(|pod| came_since(pod, record.since));
        // The first revision of all is everybody's.
        let newcomers = fleet.nodes.iter().filter(|_| fleet.replaces).filter(got);
        Some(Self {
            record,
            until: match strategy.pause {
                Some(Pause::Until(until)) => Some(until),
                _ => None,
            },
            reminds: days > told.reminded,
            newcomers: newcomers.map(|node| node.name.clone()).collect(),
            reverts: false,
        })
    }

    /// When it ends, or somebody is to be reminded.
    pub(super) fn changes(&self) -> Timestamp {
        let due = self.record.due();
        self.until.map_or(due, |until| until.min(due))
    }
}

/// Whether the native controller made it of the current revision, in the second of `since` or later.
fn came_since(pod: &Pod, since: Timestamp) -> bool {
    let current = pod.revision == PodRevision::Current;
    current && !pod.terminating && !pod.surge && pod.revised() >= since
}

#[cfg(test)]
mod tests {
    use super::super::testing::{at, current, fleet, node, old};
    use super::super::{Mode, Plan, decide};
    use super::*;

    const HOURS_24: i64 = 86_400;

    fn paused() -> Strategy {
        Strategy {
            pause: Some(Pause::Indefinite),
            ..Strategy::of(Mode::AdvancedRollingUpdate)
        }
    }

    fn told(since: i64, reminded: u64) -> Option<PauseRecord> {
        let since = at(since);
        Some(PauseRecord { since, reminded })
    }

    fn plan(record: Option<PauseRecord>, now: i64) -> Plan {
        let fleet = Fleet {
            pause: record,
            ..fleet(vec![
                node("a", old(1)),
                node("b", current(2).made(500)),
                node("c", current(2).made(99)),
            ])
        };
        decide(&paused(), &fleet, at(now))
    }

    #[test]
    fn somebody_is_reminded_once_a_day_whatever_restarts() {
        #[track_caller]
        fn case(record: Option<PauseRecord>, now: i64, reminds: bool, then: Option<PauseRecord>) {
            let plan = plan(record, now);
            let stand = plan.pause.expect("a pause");
            assert_eq!((stand.reminds, Some(stand.record)), (reminds, then));
            assert!(plan.next_wake.is_some_and(|wake| wake > at(now)));
            assert!(plan.actions.is_empty());
        }
        case(None, 100, false, told(100, 0));
        case(told(100, 0), 99 + HOURS_24, false, told(100, 0));
        case(told(100, 0), 100 + HOURS_24, true, told(100, 1));
        case(told(100, 1), 101 + HOURS_24, false, told(100, 1));
        // Nobody was there for days: one reminder, not three.
        case(told(100, 1), 200 + 4 * HOURS_24, true, told(100, 4));
        // A clock that runs backwards repeats nothing.
        case(told(100, 4), 200, false, told(100, 4));
        case(told(100, 0), 50, false, told(100, 0));
    }

    #[test]
    fn a_pause_ends_by_itself_and_says_when_it_is_looked_at_again() {
        let mut strategy = paused();
        strategy.pause = Some(Pause::Until(at(500)));
        let fleet = fleet(vec![node("a", old(1))]);
        let during = decide(&strategy, &fleet, at(499));
        assert_eq!(during.pause.and_then(|stand| stand.until), Some(at(500)));
        assert_eq!(during.next_wake, Some(at(500)));
        assert_eq!(decide(&strategy, &fleet, at(500)).pause, None);
    }

    #[test]
    fn nodes_that_got_the_new_revision_meanwhile_are_named() {
        let stand = plan(told(100, 0), 600).pause.expect("a pause");
        assert_eq!(stand.newcomers, ["b".into()]);
    }

    #[test]
    fn what_is_remembered_survives_being_written_down() {
        for reminded in [0, 1, 2, 31] {
            let record = PauseRecord {
                since: at(1_800_000_000),
                reminded,
            };
            let message =
                format!("revision x: paused; {record}; nodes that got it meanwhile: a, b");
            assert_eq!(PauseRecord::read(record.since, &message), record);
        }
        let older = PauseRecord::read(at(5), "revision x: paused until somebody resumes it");
        assert_eq!(Some(older), told(5, 0));
    }
}
