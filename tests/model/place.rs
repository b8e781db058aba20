//! Tests of in-place updates, and of pre-pulls (images that nodes pull before the update).

use yurt_ds::core::{IntOrPercent, Predownload};

use super::plain::templates;
use super::rules::Rules;
use super::search::explore;
use super::state::Faults;

#[test]
fn pods_that_are_updated_in_place_take_slots_until_they_run_the_new_image() {
    let faults = Faults {
        losses: 1,
        restarts: 1,
        ..templates(2)
    };
    let rules = Rules::of(3, 1, faults);
    explore("in place", rules.in_place());
}

#[test]
fn in_place_is_no_less_safe_with_watches_that_stand_still() {
    let faults = Faults {
        freezes: 2,
        kills: 1,
        ..templates(2)
    };
    let rules = Rules::of(2, 1, faults);
    explore("in place, frozen watches", rules.in_place());
}

#[test]
fn images_that_are_pulled_ahead_hold_up_nobody_for_ever() {
    let faults = Faults {
        losses: 1,
        restarts: 1,
        freezes: 1,
        ..templates(2)
    };
    let rules = Rules::of(2, 1, faults).with(|strategy| {
        strategy.image_predownload_parallelism = Some(IntOrPercent::Number(1));
        strategy.predownload = Some(Predownload::Required);
    });
    explore("images pulled ahead", rules);
}
