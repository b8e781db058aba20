//! Properties of the reminders of a pause, even if the controller restarts.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::Strategy as _;

use super::{Random, after, config, fleets, is_upkeep, now, strategies};
use crate::core::rollout_state::ReportedPause;
use crate::core::{Fleet, Pause, PauseRecord, RolloutState, Strategy, decide};

const DAY: i64 = 24 * 60 * 60;

/// Generates records of a pause that began some time ago. For a fleet without a record, every decision would report the beginning
/// of a pause.
pub(super) fn records() -> impl Random<PauseRecord> {
    (0..3 * DAY, 0..3_u64).prop_map(|(ago, reminded)| PauseRecord {
        since: after(now(), -ago),
        reminded,
    })
}

proptest! {
    #![proptest_config(config())]

    /// Checks that at most one reminder is sent per day, whenever decisions are made.
    ///
    /// No reminder is repeated. The reminder of a day is omitted only if no decision is made on that day.
    #[test]
    fn a_pause_reminds_once_a_day_for_any_leader_and_schedule(
        strategy in strategies(), fleet in fleets(), looks in vec((0..3 * DAY, any::<bool>()), 1..12),
    ) {
        let strategy = Strategy { pause: Some(Pause::Indefinite), ..strategy };
        let (mut time, mut told, mut reminders) = (0, None::<PauseRecord>, Vec::new());
        for (later, sleeps) in looks {
            let until = time + later;
            while time <= until {
                let seen = Fleet { pause: told, ..fleet.clone() };
                let plan = decide(&strategy, &seen, after(now(), time));
                let stand = plan.pause.expect("it is paused");
                prop_assert!(plan.actions.iter().all(|action| is_upkeep(&seen, action)), "{:?}", plan.actions);
                if stand.reminds {
                    reminders.push(stand.record.days(after(now(), time)));
                }
                // Simulate a restart of the controller: write the record to the DaemonSet's status, and read it again.
                let pause = Some(ReportedPause::from_record(stand.record));
                let written = RolloutState { pause, ..RolloutState::default() }.to_json();
                told = RolloutState::read(&written).unwrap().pause.map(|pause| pause.record);
                prop_assert_eq!(told, Some(stand.record));
                let wake = plan.next_wake.expect("the next reminder");
                prop_assert!(wake > after(now(), time), "{wake}");
                let wake = wake.as_second() - now().as_second();
                // With `sleeps`, the controller is down, so the next decision is only at the end of the pause.
                time = if sleeps { until } else { wake };
                if sleeps || wake > until {
                    break;
                }
            }
            time = until;
        }
        let mut once = reminders.clone();
        once.dedup();
        prop_assert_eq!(&once, &reminders, "twice on one day");
        prop_assert!(reminders.is_sorted() && reminders.iter().all(|day| *day > 0), "{reminders:?}");
    }

    /// Checks that the reminders are on time if a decision is made whenever the plan asks for one.
    #[test]
    fn a_reminder_is_due_exactly_when_the_plan_asks_to_be_woken(
        fleet in fleets(), since in 0..2 * DAY, reminded in 0..3_u64,
    ) {
        let strategy = Strategy { pause: Some(Pause::Indefinite), ..Strategy::with_mode(crate::core::Mode::Ota) };
        let record = PauseRecord { since: after(now(), -since), reminded };
        let at = |time| decide(&strategy, &Fleet { pause: Some(record), ..fleet.clone() }, time).pause;
        let due = after(record.since, DAY * i64::try_from(reminded + 1).unwrap_or(1));
        prop_assert!(at(due).is_some_and(|stand| stand.reminds));
        prop_assert!(at(after(due, -1)).is_some_and(|stand| !stand.reminds));
        let told = at(due).expect("it is paused").record;
        let then = decide(&strategy, &Fleet { pause: Some(told), ..fleet.clone() }, due);
        prop_assert!(then.pause.is_some_and(|stand| !stand.reminds && stand.record == told));
    }
}
