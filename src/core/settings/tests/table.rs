//! Tests of rules that every setting in `SETTINGS` has to follow.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::core::names::ANNOTATION_PREFIX;
use crate::core::settings::update_strategy::UPDATE_STRATEGY;
use crate::core::settings::waves::WAVES;
use crate::core::settings::*;

/// Parses the settings of a DaemonSet with this mode and this annotation. It also has waves, because some settings need them.
fn with(mode: Mode, key: &str, value: &str) -> ParsedSettings {
    let waves = "[{name: a, selector: {}}]".to_owned();
    let all = [
        (UPDATE_STRATEGY, mode.to_string()),
        (WAVES, waves),
        (key, value.to_owned()),
    ];
    let all = all.map(|(key, value)| (key.to_owned(), value));
    read(&SettingsSource {
        annotations: &BTreeMap::from(all),
        update_strategy: Some("OnDelete"),
        rolling_update_max_unavailable: None,
        min_ready_seconds: 0,
        in_template: &[],
        exclusive: None,
        preempting: None,
        fields: None,
    })
}

#[track_caller]
fn strategy(reading: ParsedSettings) -> Strategy {
    match reading {
        ParsedSettings::Strategy { strategy, .. } => *strategy,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_key_has_the_prefix_and_belongs_to_one_setting() {
    let all: Vec<&str> = keys().collect();
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    for key in &all {
        assert!(key.starts_with(ANNOTATION_PREFIX), "{key}");
        let begins = |other: &&&str| other != &key && other.starts_with(key);
        assert_eq!(all.iter().find(begins), None, "{key}");
    }
}

#[test]
fn setting_texts_fit_into_a_table_cell() {
    for setting in SETTINGS {
        let syntax = setting.syntax.to_string();
        for text in [setting.summary, &syntax, setting.default] {
            assert!(!text.is_empty() && !text.contains(['|', '\n']), "{text}");
            assert_eq!(text.matches('`').count() % 2, 0, "{text}");
            assert!(!text.ends_with('.') && !text.contains("  "), "{text}");
        }
    }
}

#[test]
fn an_invalid_setting_stops_a_rollout_only_under_strategies_that_use_it() {
    for setting in SETTINGS {
        for mode in Mode::ALL {
            let reading = with(mode, setting.key, "\u{0} no value of any setting");
            match (reading, setting.is_used_by(mode)) {
                (ParsedSettings::Invalid(invalid, _), true) => assert_eq!(invalid.key, setting.key),
                (ParsedSettings::Strategy { notes, .. }, false) => {
                    let told = notes.iter().find(|note| note.text.contains(setting.key));
                    let told = &told.expect(setting.key).text;
                    assert!(told.ends_with("(no effect under OTA)"), "{told}");
                }
                (other, _) => panic!("{} under {mode}: {other:?}", setting.key),
            }
        }
    }
}

#[test]
fn a_documented_default_equals_the_unset_value() {
    let mode = Mode::AdvancedRollingUpdate;
    let unset = strategy(with(mode, UPDATE_STRATEGY, "auto"));
    let mut compared = 0;
    for setting in SETTINGS {
        let literal = setting.default.strip_prefix('`');
        let literal = literal.and_then(|text| text.strip_suffix('`'));
        let Some(literal) = literal.filter(|text| !text.contains('`')) else {
            continue;
        };
        assert_eq!(strategy(with(mode, setting.key, literal)), unset);
        compared += 1;
    }
    assert!(compared > 5, "{compared}");
}

#[test]
fn documented_duration_limits_and_share_forms_are_accepted() {
    let is_valid = |key: &str, value: &str| {
        let reading = with(Mode::AdvancedRollingUpdate, key, value);
        matches!(reading, ParsedSettings::Strategy { .. })
    };
    for setting in SETTINGS {
        match setting.syntax {
            Syntax::Duration(limit) => {
                let longer = limit + Duration::from_secs(1);
                let text = |time: Duration| humantime::format_duration(time).to_string();
                assert!(is_valid(setting.key, &text(limit)), "{}", setting.key);
                assert!(!is_valid(setting.key, &text(longer)), "{}", setting.key);
            }
            Syntax::IntOrPercent => {
                for value in ["3", "10%"] {
                    assert!(is_valid(setting.key, value), "{}", setting.key);
                }
            }
            Syntax::Text(_) => assert!(!is_valid(setting.key, "10%"), "{}", setting.key),
        }
    }
}
