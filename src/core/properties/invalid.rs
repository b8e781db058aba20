//! Properties of invalid settings: an invalid setting blocks the same actions as a pause, and no others.

use proptest::option;
use proptest::prelude::*;
use proptest::strategy::Strategy as _;

use super::{Random, config, fleets, is_upkeep, now, shares, strategies};
use crate::core::settings::DEFAULT_READY_SETTLE;
use crate::core::{
    Action, Disruption, Fleet, IntOrPercent, Invalid, Mode, OnFailure, Pause, RollingUpdateType,
    Strategy, decide, upkeep,
};

/// Function that resets one setting to its default, as the parser does for an invalid value.
type Spoil = fn(&mut Strategy);

/// Functions for all settings that affect the actions of the rolling update.
const SPOILS: &[Spoil] = &[
    |strategy| strategy.mode = Mode::AdvancedRollingUpdate,
    |strategy| {
        (strategy.max_unavailable, strategy.max_surge) =
            (IntOrPercent::Percent(10), IntOrPercent::Number(0))
    },
    |strategy| strategy.pause = None,
    |strategy| strategy.partition = IntOrPercent::Number(0),
    |strategy| strategy.selector = None,
    |strategy| strategy.min_interval = std::time::Duration::ZERO,
    |strategy| strategy.ramp_up = None,
    |strategy| strategy.window = None,
    |strategy| (strategy.image_predownload_parallelism, strategy.predownload) = (None, None),
    |strategy| strategy.waves = None,
    |strategy| strategy.topology = None,
    |strategy| strategy.rolling_update_type = RollingUpdateType::Standard,
    |strategy| strategy.broken_unlimited = false,
    |strategy| (strategy.failure_window, strategy.failure_threshold) = (None, None),
    |strategy| strategy.on_failure = OnFailure::Stop,
    |strategy| strategy.resume = None,
    |strategy| strategy.pre_delete = None,
    |strategy| strategy.disruption = Disruption::Delete,
    |strategy| strategy.ready_settle = DEFAULT_READY_SETTLE,
];

fn surging() -> impl Random<Strategy> {
    (strategies(), option::weighted(0.6, shares())).prop_map(|(strategy, surge)| Strategy {
        max_surge: surge.unwrap_or(IntOrPercent::Number(0)),
        ..strategy
    })
}

fn invalid() -> Invalid {
    Invalid {
        key: "apps.openyurt.io/max-unavailable".into(),
        value: "abc".into(),
        why: "use 3 or 10%".into(),
        is_object: false,
    }
}

fn actions(strategy: &Strategy, fleet: &Fleet) -> Vec<Action> {
    upkeep(strategy, &invalid(), fleet, now()).actions
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn an_invalid_setting_stops_what_a_pause_stops(strategy in surging(), fleet in fleets()) {
        let paused = Strategy {
            pause: Some(Pause::Indefinite),
            ..strategy.clone()
        };
        prop_assert_eq!(actions(&strategy, &fleet), decide(&paused, &fleet, now()).actions);
    }

    #[test]
    fn whichever_setting_is_invalid_the_same_gates_open_and_the_same_pods_take_over(
        strategy in surging(), fleet in fleets(),
    ) {
        let is_mark_that_goes = |action: &Action| matches!(action, Action::Mark { preparing: Some(false), .. });
        let others = |strategy: &Strategy| {
            let mut actions = actions(strategy, &fleet);
            actions.retain(|action| !is_mark_that_goes(action));
            actions
        };
        let whole = others(&strategy);
        for (setting, spoil) in SPOILS.iter().enumerate() {
            let mut spoilt = strategy.clone();
            spoil(&mut spoilt);
            let written = actions(&spoilt, &fleet);
            prop_assert!(written.iter().all(|action| is_upkeep(&fleet, action)), "{setting}: {written:?}");
            prop_assert_eq!(&others(&spoilt), &whole, "{}", setting);
        }
    }
}
