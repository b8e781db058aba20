//! Annotations of a DaemonSet: valid values, and the reaction to invalid ones.

use crate::support::checks::*;
use crate::support::objects::*;
use crate::support::story::{Scenario, Story, Writes};
use crate::support::suite::scenarios;

/// Returns a story on three nodes in which the rollout must complete with this value of `update-strategy`.
fn rolls_with(strategy: &str) -> Story {
    Story::on(3)
        .with(Daemon::new().strategy(strategy))
        .image(NEW)
        .until(converged().and(condition("RolloutComplete", "True", "complete")))
        .expect(deletions(3))
}

fn each<T>(values: impl IntoIterator<Item = T>, story: impl Fn(T) -> Story) -> Scenario {
    values.into_iter().map(story).collect::<Vec<_>>().into()
}

/// Returns a story with this `max-unavailable`. The largest number of unavailable nodes during the rollout must be `allowed`.
fn spends((nodes, value, allowed): (usize, Option<&str>, usize)) -> Story {
    let daemon = Daemon::new().without("max-unavailable");
    Story::on(nodes)
        .with(value.map_or(daemon.clone(), |value| daemon.max_unavailable(value)))
        .allowed(allowed)
        .image(NEW)
        .until(converged())
        .expect(peak(allowed).and(deletions(nodes)))
}

/// Returns a story with invalid settings. They must prevent all writes to pods, and one Warning Event must contain the reason.
fn is_refused(daemon: Daemon, says: &'static str) -> Story {
    Story::on(3)
        .with(daemon)
        .image(NEW)
        .until(one_event("Warning", says).and(condition("InvalidSettings", "True", says)))
        .until(observed())
        .throughout(untouched(1..=3), 2)
        .quiet(600, 8)
        .pod_writes(0)
        .expect(one_event("Warning", says))
}

scenarios! {
    fn s01_given_update_strategy_auto_in_any_case_when_the_image_changes_then_advancedrollingupdate_runs(_pace) {
        each(["auto", "Auto", "AUTO"], rolls_with)
    }

    fn s02_given_advancedrollingupdate_in_any_case_then_the_same_as_1(_pace) {
        each(["advancedrollingupdate", "ADVANCEDROLLINGUPDATE"], rolls_with)
    }

    fn s03_given_ota_in_any_case_when_the_image_changes_then_no_pod_is_deleted_and_conditions_are_set(pace) {
        each(["ota", "OTA", "Ota"], |strategy| {
            Story::on(3)
                .with(Daemon::new().strategy(strategy))
                .writing(Writes::Conditions)
                .image(NEW)
                .until(need_upgrade(1..=3, true))
                .throughout(untouched(1..=3).and(no_deletions()), pace.pick(3600, 8))
        })
    }

    fn s04_given_only_upgrade_strategy_advancedrollingupdate_then_1_holds_and_a_normal_event_names_the_current_key(_pace) {
        Story::on(3)
            .with(Daemon::new().without("update-strategy").annotate("upgrade-strategy", "AdvancedRollingUpdate"))
            .image(NEW)
            .until(converged())
            .expect(deletions(3))
            .until(one_event("Normal", "apps.openyurt.io/update-strategy"))
    }

    fn s05_given_update_strategy_ota_and_upgrade_strategy_advancedrollingupdate_then_ota_applies_one_warning_event(pace) {
        Story::on(3)
            .with(Daemon::new().strategy("OTA").annotate("upgrade-strategy", "AdvancedRollingUpdate"))
            .writing(Writes::Conditions)
            .image(NEW)
            .until(need_upgrade(1..=3, true).and(one_event("Warning", "apps.openyurt.io/upgrade-strategy")))
            .throughout(untouched(1..=3), pace.pick(600, 8))
            .expect(one_event("Warning", "apps.openyurt.io"))
    }

    fn s06_given_update_strategy_bluegreen_then_zero_pod_writes_one_warning_no_error_loop_and_when_corrected_the_rollout_starts(_pace) {
        is_refused(Daemon::new().strategy("BlueGreen"), "BlueGreen")
            .annotate("update-strategy", "AdvancedRollingUpdate")
            .until(converged())
            .expect(deletions(3))
    }

    fn s07_given_update_strategy_with_a_leading_blank_then_as_6_and_the_event_mentions_white_space(_pace) {
        is_refused(Daemon::new().strategy(" OTA"), "white space")
    }

    fn s08_given_a_valid_annotation_and_type_rollingupdate_then_zero_writes_by_us_and_a_warning_event(_pace) {
        (1..=3)
            .fold(Story::on(3).with(Daemon::new().native_rolling_update()), |story, node| story.excuse(node))
            .image(NEW)
            .until(converged())
            .until(one_event("Warning", "OnDelete").and(condition("InvalidSettings", "True", "OnDelete")))
            .quiet(600, 8)
            .pod_writes(0)
    }

    fn s09_given_10_nodes_for_each_value_of_the_table_then_never_more_than_that_many_and_that_many_when_possible(_pace) {
        let table = [
            (10, Some("10%"), 1), (10, Some("20%"), 2), (10, Some("90%"), 9), (10, Some("95%"), 10), (10, Some("100%"), 10),
            (10, Some("0"), 1), (10, Some("0%"), 1), (10, None, 1), (3, Some("50%"), 2), (3, Some("30%"), 1), (3, None, 1),
        ];
        each(table, spends)
    }

    fn s10_given_max_unavailable_0_then_1_of_10(_pace) {
        each(["0", "0%", "00", "00%"], |value| spends((10, Some(value), 1)))
    }

    fn s11_given_max_unavailable_nonsense_then_zero_pod_writes_one_warning_event_no_hot_retry(_pace) {
        let table = [("abc", "abc"), ("0.5%", "0.5%"), ("-1", "negative"), ("", "empty"), (" 5", "white space")];
        each(table, |(value, says)| is_refused(Daemon::new().max_unavailable(value), says))
    }

    fn s12_given_max_unavailable_of_more_than_all_then_all_nodes_may_go_at_once_no_error(_pace) {
        each(["150%", "500"], |value| spends((10, Some(value), 10)))
    }

    fn s13_given_ota_and_an_invalid_max_unavailable_then_ota_works_at_most_a_warning(pace) {
        Story::on(3)
            .with(Daemon::new().strategy("OTA").max_unavailable("abc"))
            .writing(Writes::Conditions)
            .image(NEW)
            .until(need_upgrade(1..=3, true))
            .throughout(untouched(1..=3), pace.pick(600, 8))
            .expect(at_most_events("Warning", "apps.openyurt.io", 1))
    }

    fn s14_given_a_rollout_in_progress_when_the_annotation_is_removed_then_no_further_deletion(pace) {
        Story::on(5)
            // A deletion may be on its way when the annotation is removed. The admission policy for pods of unmanaged DaemonSets
            // may then reject it, so failed writes are allowed.
            .writing(Writes::Attempts)
            .image(NEW)
            .until(replaced([1]))
            .unannotate("update-strategy")
            .wait(pace.pick(2, 8))
            .remember()
            .throughout(no_deletions(), pace.pick(3600, 10))
    }
}
