//! Pause of a rollout: its start, its reminders, and the nodes that get the new revision during the pause.
//!
//! The start and the last reminder are part of the `RolloutState` of the DaemonSet, so they survive a restart.

use k8s_openapi::jiff::Timestamp;

use crate::core::fleet::{Fleet, Node, PauseRecord, Pod};
use crate::core::id::PodRevision;
use crate::core::plan::PauseStand;
use crate::core::settings::{Pause, Strategy};

/// Returns true if a pause is in effect at `now`, so that no pod may be replaced.
pub fn is_paused(strategy: &Strategy, now: Timestamp) -> bool {
    match strategy.pause {
        None => false,
        Some(Pause::Indefinite) => true,
        Some(Pause::Until(until)) => now < until,
    }
}

impl PauseStand {
    /// Returns the pause that is in effect at `now`, if any.
    pub(super) fn new(strategy: &Strategy, fleet: &Fleet, now: Timestamp) -> Option<Self> {
        if !is_paused(strategy, now) {
            return None;
        }
        let last = fleet.pause.unwrap_or_else(|| PauseRecord::begins(now));
        let days = last.days(now);
        let record = PauseRecord {
            reminded: last.reminded.max(days),
            ..last
        };
        let got = |node: &&Node| node.pods.iter().any(|pod| came_since(pod, record.since));
        // Pods of a DaemonSet's first revision don't count, because they are created on all nodes even during a pause.
        let newcomers = fleet.nodes.iter().filter(|_| fleet.replaces).filter(got);
        Some(Self {
            record,
            until: match strategy.pause {
                Some(Pause::Until(until)) => Some(until),
                _ => None,
            },
            reminds: days > last.reminded,
            newcomers: newcomers.map(|node| node.name.clone()).collect(),
            reverts: false,
        })
    }

    /// Returns the time at which the pause ends or the next reminder is due, whichever is earlier.
    pub(super) fn changes(&self) -> Timestamp {
        let due = self.record.due();
        self.until.map_or(due, |until| until.min(due))
    }
}

/// Returns true if the native controller created this pod of the current revision at `since` or later. Both times are in whole
/// seconds.
fn came_since(pod: &Pod, since: Timestamp) -> bool {
    let current = pod.revision == PodRevision::Current;
    current && !pod.terminating && !pod.surge && pod.revised() >= since
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::testing::{at, current, fleet, node, old};
    use crate::core::{Mode, Plan, decide};

    const HOURS_24: i64 = 86_400;

    fn paused() -> Strategy {
        Strategy {
            pause: Some(Pause::Indefinite),
            ..Strategy::with_mode(Mode::AdvancedRollingUpdate)
        }
    }

    fn record(since: i64, reminded: u64) -> Option<PauseRecord> {
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
    fn a_pause_reminder_is_sent_once_a_day_despite_restarts() {
        #[track_caller]
        fn case(record: Option<PauseRecord>, now: i64, reminds: bool, then: Option<PauseRecord>) {
            let plan = plan(record, now);
            let stand = plan.pause.expect("a pause");
            assert_eq!((stand.reminds, Some(stand.record)), (reminds, then));
            assert!(plan.next_wake.is_some_and(|wake| wake > at(now)));
            assert!(plan.actions.is_empty());
        }
        case(None, 100, false, record(100, 0));
        case(record(100, 0), 99 + HOURS_24, false, record(100, 0));
        case(record(100, 0), 100 + HOURS_24, true, record(100, 1));
        case(record(100, 1), 101 + HOURS_24, false, record(100, 1));
        // If no controller ran for several days, the next one writes one reminder, not one per day.
        case(record(100, 1), 200 + 4 * HOURS_24, true, record(100, 4));
        // If the clock runs backwards, no reminder is repeated.
        case(record(100, 4), 200, false, record(100, 4));
        case(record(100, 0), 50, false, record(100, 0));
    }

    #[test]
    fn a_pause_ends_automatically_and_the_plan_wakes_at_its_end() {
        let mut strategy = paused();
        strategy.pause = Some(Pause::Until(at(500)));
        let fleet = fleet(vec![node("a", old(1))]);
        let during = decide(&strategy, &fleet, at(499));
        assert_eq!(during.pause.and_then(|stand| stand.until), Some(at(500)));
        assert_eq!(during.next_wake, Some(at(500)));
        assert_eq!(decide(&strategy, &fleet, at(500)).pause, None);
    }

    #[test]
    fn nodes_that_got_the_new_revision_during_a_pause_are_named() {
        let stand = plan(record(100, 0), 600).pause.expect("a pause");
        assert_eq!(stand.newcomers, ["b".into()]);
    }
}
