//! Tests of the settings, including each row of the tables in OpenYurt's upgrade model.

mod table;

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::core::settings::SettingsSource as Source;
use crate::core::settings::approved_waves::APPROVED_WAVES;
use crate::core::settings::disruption::DISRUPTION;
use crate::core::settings::failure_threshold::FAILURE_THRESHOLD;
use crate::core::settings::failure_window::FAILURE_WINDOW;
use crate::core::settings::image_predownload_min_updated_ready_pods::IMAGE_PREDOWNLOAD_MIN_UPDATED_READY_PODS;
use crate::core::settings::image_predownload_parallelism::IMAGE_PREDOWNLOAD_PARALLELISM;
use crate::core::settings::image_predownload_timeout_seconds::IMAGE_PREDOWNLOAD_TIMEOUT_SECONDS;
use crate::core::settings::lifecycle::LIFECYCLE;
use crate::core::settings::maintenance_window::MAINTENANCE_WINDOW;
use crate::core::settings::max_domains::MAX_DOMAINS;
use crate::core::settings::max_surge::MAX_SURGE;
use crate::core::settings::max_unavailable::MAX_UNAVAILABLE;
use crate::core::settings::min_interval::MIN_INTERVAL;
use crate::core::settings::on_failure::ON_FAILURE;
use crate::core::settings::partition::PARTITION;
use crate::core::settings::paused::PAUSED;
use crate::core::settings::predownload::PREDOWNLOAD;
use crate::core::settings::ramp_up::RAMP_UP;
use crate::core::settings::ready_settle::READY_SETTLE;
use crate::core::settings::replace_broken_first::REPLACE_BROKEN_FIRST;
use crate::core::settings::resume::RESUME;
use crate::core::settings::rolling_update_type::ROLLING_UPDATE_TYPE;
use crate::core::settings::selector::SELECTOR;
use crate::core::settings::start_now::START_NOW;
use crate::core::settings::topology_key::TOPOLOGY_KEY;
use crate::core::settings::update_strategy::{UPDATE_STRATEGY, UPGRADE_STRATEGY};
use crate::core::settings::waves::WAVES;

/// Parses the settings of a DaemonSet with `OnDelete` and the given annotations.
fn read_annotations(annotations: &[(&str, &str)]) -> ParsedSettings {
    read_with(annotations, Some("OnDelete"), None)
}

fn read_with(
    annotations: &[(&str, &str)],
    update_strategy: Option<&str>,
    left_over: Option<&Value>,
) -> ParsedSettings {
    let annotations: BTreeMap<String, String> = annotations
        .iter()
        .map(|(key, value)| ((*key).into(), (*value).into()))
        .collect();
    read(&Source {
        annotations: &annotations,
        update_strategy,
        rolling_update_max_unavailable: left_over,
        min_ready_seconds: 0,
        in_template: &[],
        exclusive: None,
        preempting: None,
        fields: None,
    })
}

fn rolling(extra: &[(&str, &str)]) -> ParsedSettings {
    read_annotations(&[&[(UPDATE_STRATEGY, "AdvancedRollingUpdate")], extra].concat())
}

#[track_caller]
fn settings(reading: ParsedSettings) -> (Strategy, Vec<Note>) {
    match reading {
        ParsedSettings::Strategy { strategy, notes } => (*strategy, notes),
        other => panic!("not a strategy: {other:?}"),
    }
}

#[track_caller]
fn without_notes(reading: ParsedSettings) -> Strategy {
    let (strategy, notes) = settings(reading);
    assert_eq!(notes, []);
    strategy
}

#[track_caller]
fn only_note(reading: ParsedSettings) -> Note {
    let (_, notes) = settings(reading);
    let [note] = notes.as_slice() else {
        panic!("not one note: {notes:?}")
    };
    note.clone()
}

#[track_caller]
fn refusal(reading: ParsedSettings) -> Invalid {
    match reading {
        ParsedSettings::Invalid(invalid, _) => invalid,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn a_daemonset_without_the_annotation_is_not_managed() {
    assert_eq!(read_annotations(&[]), ParsedSettings::NotOurs);
    assert_eq!(
        read_annotations(&[(MAX_UNAVAILABLE, "abc")]),
        ParsedSettings::NotOurs
    );
    assert_eq!(
        read_with(&[], Some("RollingUpdate"), None),
        ParsedSettings::NotOurs
    );
    // Annotation keys are case-sensitive in Kubernetes.
    let other_case = [("apps.openyurt.io/Update-Strategy", "OTA")];
    assert_eq!(read_annotations(&other_case), ParsedSettings::NotOurs);
}

#[test]
fn every_spelling_of_every_strategy_is_accepted() {
    let cases = [
        ("auto", Mode::AdvancedRollingUpdate),
        ("Auto", Mode::AdvancedRollingUpdate),
        ("AUTO", Mode::AdvancedRollingUpdate),
        ("AdvancedRollingUpdate", Mode::AdvancedRollingUpdate),
        ("advancedrollingupdate", Mode::AdvancedRollingUpdate),
        ("ADVANCEDROLLINGUPDATE", Mode::AdvancedRollingUpdate),
        ("ota", Mode::Ota),
        ("OTA", Mode::Ota),
        ("Ota", Mode::Ota),
    ];
    for (text, mode) in cases {
        let strategy = without_notes(read_annotations(&[(UPDATE_STRATEGY, text)]));
        assert_eq!(strategy.mode, mode, "{text}");
    }
}

#[test]
#[allow(
    clippy::needless_update,
    reason = "a setting that comes later is listed by who adds it, or not"
)]
fn a_strategy_alone_means_the_defaults() {
    let expected = Strategy {
        on_failure: OnFailure::Stop,
        mode: Mode::AdvancedRollingUpdate,
        max_unavailable: IntOrPercent::Percent(10),
        max_surge: IntOrPercent::Number(0),
        pause: None,
        min_ready: Duration::ZERO,
        partition: IntOrPercent::Number(0),
        selector: None,
        min_interval: Duration::ZERO,
        ramp_up: None,
        window: None,
        image_predownload_parallelism: None,
        predownload: None,
        waves: None,
        topology: None,
        rolling_update_type: RollingUpdateType::Standard,
        broken_unlimited: false,
        failure_window: None,
        failure_threshold: None,
        resume: None,
        pre_delete: None,
        disruption: Disruption::Delete,
        ready_settle: Duration::from_secs(30),
        ..Strategy::with_mode(Mode::AdvancedRollingUpdate)
    };
    assert_eq!(without_notes(rolling(&[])), expected);
}

#[test]
fn the_old_key_works_and_a_note_advises_the_current_one() {
    let reading = read_annotations(&[(UPGRADE_STRATEGY, "AdvancedRollingUpdate")]);
    assert_eq!(
        settings(reading.clone()).0.mode,
        Mode::AdvancedRollingUpdate
    );
    let note = only_note(reading);
    assert!(!note.warning);
    assert_eq!(
        note.text,
        "apps.openyurt.io/upgrade-strategy is deprecated; use apps.openyurt.io/update-strategy: AdvancedRollingUpdate"
    );
}

#[test]
fn two_equivalent_keys_are_accepted() {
    let both = [
        (UPDATE_STRATEGY, "auto"),
        (UPGRADE_STRATEGY, "AdvancedRollingUpdate"),
    ];
    assert_eq!(
        without_notes(read_annotations(&both)).mode,
        Mode::AdvancedRollingUpdate
    );
}

#[test]
fn the_current_key_wins_with_a_warning_when_the_old_one_differs() {
    for old in ["AdvancedRollingUpdate", "BlueGreen", "", " OTA"] {
        let both = [(UPDATE_STRATEGY, "OTA"), (UPGRADE_STRATEGY, old)];
        let reading = read_annotations(&both);
        assert_eq!(settings(reading.clone()).0.mode, Mode::Ota);
        let note = only_note(reading);
        assert!(note.warning);
        assert!(note.text.contains(UPDATE_STRATEGY) && note.text.contains(UPGRADE_STRATEGY));
    }
}

#[test]
fn an_invalid_current_key_does_not_fall_back_to_a_valid_old_one() {
    let both = [(UPDATE_STRATEGY, "BlueGreen"), (UPGRADE_STRATEGY, "OTA")];
    assert_eq!(refusal(read_annotations(&both)).key, UPDATE_STRATEGY);
}

#[test]
fn an_unknown_strategy_is_reported_with_the_valid_ones() {
    assert_eq!(
        refusal(read_annotations(&[(UPDATE_STRATEGY, "BlueGreen")])).to_string(),
        "apps.openyurt.io/update-strategy is \"BlueGreen\", which is not a valid value; \
         use AdvancedRollingUpdate (alias: auto), SurgingRollingUpdate or OTA"
    );
    let old = refusal(read_annotations(&[(UPGRADE_STRATEGY, "BlueGreen")]));
    assert_eq!(old.key, UPGRADE_STRATEGY);
}

#[test]
fn surrounding_white_space_is_reported_and_not_trimmed() {
    let cases = [
        (UPDATE_STRATEGY, " OTA"),
        (UPDATE_STRATEGY, "OTA\n"),
        (UPDATE_STRATEGY, "\u{a0}OTA"),
        (MAX_UNAVAILABLE, " 5"),
        (MAX_UNAVAILABLE, "5% "),
        (PAUSED, "true "),
        (READY_SETTLE, "\t30s"),
    ];
    for (key, value) in cases {
        let reading = match key {
            UPDATE_STRATEGY => read_annotations(&[(key, value)]),
            _ => rolling(&[(key, value)]),
        };
        let invalid = refusal(reading);
        assert_eq!(invalid.key, key);
        assert!(invalid.why.contains("surrounding white space"), "{invalid}");
    }
}

#[test]
fn max_unavailable_resolves_as_in_the_documented_table() {
    // Columns: number of nodes, value of `max-unavailable`, number of nodes that may be unavailable.
    let cases = [
        (10, Some("10%"), 1),
        (10, Some("20%"), 2),
        (10, Some("90%"), 9),
        (10, Some("95%"), 10),
        (10, Some("100%"), 10),
        (10, Some("0"), 1),
        (10, Some("0%"), 1),
        (10, Some("00"), 1),
        (10, Some("00%"), 1),
        (10, None, 1),
        (3, Some("50%"), 2),
        (3, Some("30%"), 1),
        (3, None, 1),
        (10, Some("30%"), 3),
        (10, Some("150%"), 10),
        (10, Some("500"), 10),
        (10, Some("05"), 5),
        (10, Some("4294967296"), 10),
        (10, Some("18446744073709551616%"), 10),
        (0, Some("5"), 0),
        (1, Some("1%"), 1),
        (usize::MAX, Some("100%"), usize::MAX),
    ];
    for (nodes, value, expected) in cases {
        let annotation: Vec<_> = value
            .map(|text| (MAX_UNAVAILABLE, text))
            .into_iter()
            .collect();
        let share = settings(rolling(&annotation)).0.max_unavailable;
        assert_eq!(share.resolve(nodes), expected, "{value:?} of {nodes}");
    }
}

#[test]
fn an_invalid_max_unavailable_is_reported_with_key_value_and_remedy() {
    let cases = [
        ("abc", "which is not a valid value"),
        ("0.5%", "which is not a whole number"),
        ("1.5", "which is not a whole number"),
        ("-1", "which is negative"),
        ("-5%", "which is negative"),
        ("", "which is empty"),
        ("%", "which is not a valid value"),
        ("+5", "which is not a valid value"),
        ("1e3", "which is not a valid value"),
        ("0x10", "which is not a valid value"),
        ("10 %", "which is not a valid value"),
        ("10%%", "which is not a valid value"),
        ("٣", "which is not a valid value"),
        ("５%", "which is not a valid value"),
        ("5\0", "which is not a valid value"),
        ("--5", "which is not a valid value"),
        ("1,000", "which is not a valid value"),
    ];
    for (value, why) in cases {
        let invalid = refusal(rolling(&[(MAX_UNAVAILABLE, value)]));
        assert_eq!(
            (invalid.key.as_str(), invalid.value.as_str()),
            (MAX_UNAVAILABLE, value)
        );
        let cure = "use a number of nodes such as 3 or a percentage such as 10%";
        assert_eq!(invalid.why, format!("{why}; {cure}"), "{value:?}");
    }
}

#[test]
fn ota_ignores_invalid_values_of_unused_settings_with_a_warning() {
    for (key, value) in [(MAX_UNAVAILABLE, "abc"), (READY_SETTLE, "soon")] {
        let reading = read_annotations(&[(UPDATE_STRATEGY, "OTA"), (key, value)]);
        assert_eq!(settings(reading.clone()).0.mode, Mode::Ota);
        let note = only_note(reading);
        assert!(note.warning && note.text.contains(key) && note.text.contains(value));
    }
    let left_over = json!("abc");
    let ota = [(UPDATE_STRATEGY, "OTA")];
    without_notes(read_with(&ota, Some("OnDelete"), Some(&left_over)));
}

#[test]
fn every_update_type_except_on_delete_is_rejected_with_a_remedy() {
    let auto = [(UPDATE_STRATEGY, "auto")];
    for update_strategy in [Some("RollingUpdate"), None] {
        assert_eq!(
            refusal(read_with(&auto, update_strategy, None)).to_string(),
            "spec.updateStrategy.type is \"RollingUpdate\", so Kubernetes replaces the pods itself; set it to OnDelete, or remove the annotation apps.openyurt.io/update-strategy"
        );
    }
    assert_eq!(
        refusal(read_with(&auto, Some("ondelete"), None)).value,
        "ondelete"
    );
}

#[test]
fn a_left_over_rolling_update_field_replaces_an_absent_annotation() {
    let auto = [(UPDATE_STRATEGY, "auto")];
    for (left_over, share) in [
        (json!(2), IntOrPercent::Number(2)),
        (json!("25%"), IntOrPercent::Percent(25)),
    ] {
        let reading = read_with(&auto, Some("OnDelete"), Some(&left_over));
        assert_eq!(settings(reading.clone()).0.max_unavailable, share);
        assert!(!only_note(reading).warning);
    }
    let nothing = without_notes(read_with(&auto, Some("OnDelete"), Some(&Value::Null)));
    assert_eq!(nothing.max_unavailable, DEFAULT_MAX_UNAVAILABLE);
    let zero = without_notes(read_with(&auto, Some("OnDelete"), Some(&json!(0))));
    assert_eq!(zero.max_unavailable, DEFAULT_MAX_UNAVAILABLE);
}

#[test]
fn the_annotation_overrides_the_left_over_field() {
    let both = [(UPDATE_STRATEGY, "auto"), (MAX_UNAVAILABLE, "3")];
    for left_over in [json!(2), json!("nonsense"), json!({"a": [1]})] {
        let strategy = without_notes(read_with(&both, Some("OnDelete"), Some(&left_over)));
        assert_eq!(strategy.max_unavailable, IntOrPercent::Number(3));
    }
}

#[test]
fn an_invalid_left_over_field_is_named() {
    let auto = [(UPDATE_STRATEGY, "auto")];
    for left_over in [json!("abc"), json!(-1), json!(1.5), json!({}), json!(true)] {
        let invalid = refusal(read_with(&auto, Some("OnDelete"), Some(&left_over)));
        assert_eq!(
            invalid.key,
            "spec.updateStrategy.rollingUpdate.maxUnavailable"
        );
    }
}

#[test]
fn a_pause_is_true_false_or_a_time() {
    let time = |text: &str| Some(Pause::Until(text.parse().unwrap()));
    let cases = [
        ("true", Some(Pause::Indefinite)),
        ("True", Some(Pause::Indefinite)),
        ("TRUE", Some(Pause::Indefinite)),
        ("false", None),
        ("False", None),
        ("2030-01-31T18:00:00Z", time("2030-01-31T18:00:00Z")),
        ("2030-01-31T18:00:00+01:00", time("2030-01-31T17:00:00Z")),
    ];
    for (text, pause) in cases {
        assert_eq!(
            without_notes(rolling(&[(PAUSED, text)])).pause,
            pause,
            "{text}"
        );
    }
    for text in [
        "",
        "yes",
        "1",
        "2030-01-31",
        "18:00",
        "2030-01-31T18:00:00",
        "2030-02-31T18:00:00Z",
    ] {
        assert_eq!(refusal(rolling(&[(PAUSED, text)])).key, PAUSED, "{text}");
    }
    // Under OTA, an invalid `paused` is also an error, because its author may have wanted a pause.
    let ota = [(UPDATE_STRATEGY, "OTA"), (PAUSED, "maybe")];
    assert_eq!(refusal(read_annotations(&ota)).key, PAUSED);
}

#[test]
fn ready_settle_is_a_duration_of_at_most_a_day() {
    for (text, seconds) in [
        ("0s", 0),
        ("45s", 45),
        ("1m 30s", 90),
        ("5m", 300),
        ("1d", 86_400),
    ] {
        let settle = without_notes(rolling(&[(READY_SETTLE, text)])).ready_settle;
        assert_eq!(settle, Duration::from_secs(seconds), "{text}");
    }
    for text in [
        "",
        "30",
        "-30s",
        "soon",
        "٣s",
        "3\0s",
        "25h",
        "99999999999999999999s",
        "1e3s",
    ] {
        assert_eq!(
            refusal(rolling(&[(READY_SETTLE, text)])).key,
            READY_SETTLE,
            "{text}"
        );
    }
}

#[test]
fn min_ready_seconds_is_clamped() {
    let annotations = BTreeMap::from([(UPDATE_STRATEGY.to_owned(), "auto".to_owned())]);
    for (seconds, expected) in [
        (0, 0),
        (30, 30),
        (-5, 0),
        (i64::MAX, i32::MAX as u64),
        (i64::MIN, 0),
    ] {
        let reading = read(&Source {
            annotations: &annotations,
            update_strategy: Some("OnDelete"),
            rolling_update_max_unavailable: None,
            min_ready_seconds: seconds,
            in_template: &[],
            exclusive: None,
            preempting: None,
            fields: None,
        });
        assert_eq!(
            without_notes(reading).min_ready,
            Duration::from_secs(expected)
        );
    }
}

#[test]
fn a_partition_is_a_number_or_percentage_and_zero_means_none() {
    for (text, expected) in [
        ("0", IntOrPercent::Number(0)),
        ("3", IntOrPercent::Number(3)),
        ("50%", IntOrPercent::Percent(50)),
    ] {
        let strategy = without_notes(rolling(&[(PARTITION, text)]));
        assert_eq!(strategy.partition, expected, "{text}");
    }
    assert_eq!(IntOrPercent::Percent(10).resolve_down(5), 0);
    assert_eq!(IntOrPercent::Percent(50).resolve_down(5), 2);
    assert_eq!(IntOrPercent::Percent(150).resolve_down(5), 5);
    assert_eq!(IntOrPercent::Number(9).resolve_down(5), 5);
    let invalid = refusal(rolling(&[(PARTITION, "-1")]));
    assert_eq!(
        invalid.to_string(),
        "apps.openyurt.io/partition is \"-1\", which is negative; use a number of nodes such as 3 or a percentage such as 10%"
    );
}

#[test]
fn a_selector_is_accepted_as_a_query_and_as_json() {
    for text in [
        "pool=canary",
        r#"{"matchLabels": {"pool": "canary"}}"#,
        r#"{"matchExpressions": [{"key": "pool", "operator": "In", "values": ["canary"]}]}"#,
    ] {
        let strategy = without_notes(rolling(&[(SELECTOR, text)]));
        let query = strategy.selector.map(|selector| selector.to_query());
        assert_eq!(query.as_deref(), Some("pool=canary"), "{text}");
    }
    let everything = without_notes(rolling(&[(SELECTOR, "{}")])).selector;
    assert!(everything.is_some_and(|selector| selector.matches(|_| None)));
    for text in [
        "",
        " pool=canary",
        "pool in canary",
        "{",
        "[]",
        r#"{"matchLabels": 3}"#,
        r#"{"matchlabels": {"pool": "canary"}}"#,
    ] {
        let invalid = refusal(rolling(&[(SELECTOR, text)]));
        assert_eq!(invalid.key, SELECTOR, "{text}");
        assert!(invalid.why.contains("label selector for nodes"), "{text}");
    }
}

#[test]
fn min_interval_is_a_duration_and_ramp_up_is_above_zero() {
    let strategy = without_notes(rolling(&[(MIN_INTERVAL, "90s"), (RAMP_UP, "5%")]));
    assert_eq!(strategy.min_interval, Duration::from_secs(90));
    assert_eq!(strategy.ramp_up, Some(IntOrPercent::Percent(5)));
    let invalid = refusal(rolling(&[(RAMP_UP, "0%")]));
    assert!(
        invalid.why.starts_with("which is zero; use a number"),
        "{invalid}"
    );
    let invalid = refusal(rolling(&[(MIN_INTERVAL, "8d")]));
    assert_eq!(invalid.why, "which is too long; use at most 7days");
}

#[test]
fn failure_domains_have_a_label_key_and_a_count_that_is_not_zero() {
    let zone = "topology.kubernetes.io/zone";
    let strategy = without_notes(rolling(&[(TOPOLOGY_KEY, zone), (MAX_DOMAINS, "2")]));
    let expected = Topology {
        key: zone.into(),
        at_once: 2,
    };
    assert_eq!(strategy.topology, Some(expected));
    let strategy = without_notes(rolling(&[(TOPOLOGY_KEY, "zone")]));
    assert_eq!(strategy.topology.map(|topology| topology.at_once), Some(1));
    for (key, value, why) in [
        (
            TOPOLOGY_KEY,
            "a zone",
            "which is not a valid value; use a node label key",
        ),
        (TOPOLOGY_KEY, "", "which is empty; use a node label key"),
        (MAX_DOMAINS, "0", "which is zero; use a whole number"),
        (
            MAX_DOMAINS,
            "50%",
            "which is not a valid value; use a whole number",
        ),
        (
            MAX_DOMAINS,
            "-1",
            "which is not a valid value; use a whole number",
        ),
    ] {
        let invalid = refusal(rolling(
            &[(TOPOLOGY_KEY, zone), (key, value)][usize::from(key == TOPOLOGY_KEY)..],
        ));
        assert_eq!((invalid.key.as_str(), invalid.value.as_str()), (key, value));
        assert!(invalid.why.starts_with(why), "{invalid}");
    }
    let note = only_note(rolling(&[(MAX_DOMAINS, "2")]));
    assert!(note.text.contains("has no effect without"), "{}", note.text);
}

#[test]
fn waves_are_yaml_or_json_with_selectors_in_either_form() {
    let yaml = "- name: canary\n  selector: pool=canary\n  maxUnavailable: 50%\n  soak: 30m\n- name: field\n  selector: {matchLabels: {pool: field}}\n  maxUnavailable: 2\n  approve: manual\n";
    let json = r#"[{"name": "canary", "selector": "pool=canary", "maxUnavailable": "50%", "soak": "30m"},
        {"name": "field", "selector": {"matchLabels": {"pool": "field"}}, "maxUnavailable": 2, "approve": "manual"}]"#;
    let read = |text| {
        without_notes(rolling(&[
            (WAVES, text),
            (APPROVED_WAVES, "field@abc, canary@x"),
        ]))
    };
    let waves = read(yaml).waves.unwrap();
    assert_eq!(read(json).waves.as_ref(), Some(&waves));
    let [canary, field] = waves.list.as_slice() else {
        panic!("{waves:?}");
    };
    assert_eq!((&*canary.name, canary.approve), ("canary", false));
    assert_eq!(canary.max_unavailable, Some(IntOrPercent::Percent(50)));
    assert_eq!(canary.soak, Duration::from_secs(1800));
    assert_eq!((&*field.name, field.approve), ("field", true));
    assert_eq!(field.max_unavailable, Some(IntOrPercent::Number(2)));
    let approved: Vec<String> = waves.approved.iter().map(ToString::to_string).collect();
    assert_eq!(approved, ["field@abc", "canary@x"]);
    assert_eq!((waves.count(), waves.name(2)), (3, "rest"));
}

#[test]
fn a_wave_may_be_empty_if_allow_empty_is_true() {
    let read = |field: &str| {
        let text = format!("[{{name: a, selector: x=y{field}}}]");
        without_notes(rolling(&[(WAVES, &text)]))
            .waves
            .unwrap()
            .list[0]
            .allow_empty
    };
    assert_eq!(
        ["", ", allowEmpty: true", ", allowEmpty: false"].map(read),
        [false, true, false]
    );
    let text = "[{name: a, selector: x=y, allowEmpty: maybe}]";
    let invalid = refusal(rolling(&[(WAVES, text)]));
    assert_eq!(invalid.key, format!("{WAVES}[0].allowEmpty"));
    assert!(invalid.why.ends_with("use true or false"), "{invalid}");
}

#[test]
fn a_percentage_above_100_is_accepted_with_a_note() {
    for key in [MAX_UNAVAILABLE, MAX_SURGE, PARTITION] {
        let note = only_note(rolling(&[(key, "150%")]));
        assert_eq!(
            note.text,
            format!("{key} is 150%, which counts as 100%: all nodes")
        );
        assert!(!note.warning);
    }
    without_notes(rolling(&[(MAX_UNAVAILABLE, "100%")]));
    without_notes(rolling(&[(MAX_UNAVAILABLE, "150")]));
}

#[test]
fn similar_keys_of_an_unmanaged_daemonset_are_reported_and_foreign_keys_are_not() {
    #[track_caller]
    fn case(annotations: &[(&str, &str)], expected: Option<&str>) {
        let annotations = annotations
            .iter()
            .map(|(key, value)| (format!("apps.openyurt.io/{key}"), (*value).to_owned()));
        let annotations = annotations.collect();
        let stray = |strategy| stray(&annotations, strategy, &[]);
        assert_eq!(stray(Some("OnDelete")).as_deref(), expected);
        assert_eq!(stray(Some("RollingUpdate")), None);
        assert_eq!(stray(None), None);
    }
    let nobody = "Its pods are not replaced: updateStrategy.type is OnDelete and apps.openyurt.io/update-strategy is not set";
    case(
        &[("update-stategy", "auto")],
        Some(&format!(
            "apps.openyurt.io/update-stategy has no effect (similar setting: apps.openyurt.io/update-strategy). {nobody}"
        )),
    );
    case(
        &[("max-unavailable", "1"), ("partition", "1")],
        Some(&format!(
            "apps.openyurt.io/max-unavailable, apps.openyurt.io/partition have no effect without \
             apps.openyurt.io/update-strategy. {nobody}"
        )),
    );
    case(
        &[("update-strategy", "auto"), ("max-unavailabel", "1")],
        None,
    );
    // Annotations of OpenYurt and other programs on DaemonSets cause no warning.
    for key in [
        "nodepool",
        "desired-nodepool",
        "pool-name",
        "pool-kind",
        "binding",
        "hold",
        "config-hash",
        "controller-revision-hash",
        "image-pre-pull",
        "image-pre-pull-revision",
        "nodes",
        "used",
    ] {
        case(&[(key, "x")], None);
    }
}

#[test]
fn settings_without_effect_under_ota_are_reported_in_one_note() {
    let ota =
        |extra: &[(&str, &str)]| read_annotations(&[&[(UPDATE_STRATEGY, "OTA")], extra].concat());
    let note = only_note(ota(&[
        (MAX_UNAVAILABLE, "1"),
        (PARTITION, "3"),
        (PAUSED, "false"),
    ]));
    assert!(!note.warning);
    assert_eq!(
        note.text,
        format!(
            "{MAX_UNAVAILABLE}, {PARTITION} have no effect under OTA, because node owners start the updates"
        )
    );
    without_notes(ota(&[(PAUSED, "false")]));
}

#[test]
fn a_setting_with_another_prefix_or_on_the_template_is_reported() {
    let stray = |keys: &[&str], in_template: &[String]| {
        let annotations = keys
            .iter()
            .map(|key| ((*key).to_owned(), "auto".to_owned()));
        stray(&annotations.collect(), Some("OnDelete"), in_template)
    };
    for key in [
        "openyurt.io/update-strategy",
        "app.openyurt.io/update-strategy",
        "apps.openyurt.com/update-strategy",
        "apps.openyurt.io.io/update-strategy",
        "apps.opneyurt.io/update-strategy",
        "apps.openyurt.com/update-stategy",
        "update-strategy",
    ] {
        let told = stray(&[key], &[]).expect(key);
        let meant = format!("{key} has no effect (similar setting: {UPDATE_STRATEGY}). Its pods");
        assert!(told.starts_with(&meant), "{told}");
        let note = only_note(read_annotations(&[
            (UPDATE_STRATEGY, "auto"),
            (key, "auto"),
        ]));
        assert!(note.warning && note.text.starts_with(key), "{note:?}");
    }
    for key in [
        "selector",
        "paused",
        "update",
        "apps.kruise.io/update-strategy",
        "example.com/update-strategy",
        "deprecated.daemonset.template.generation",
        "node.openyurt.io/autonomy-duration",
    ] {
        assert_eq!(stray(&[key], &[]), None, "{key}");
    }
    let on_pods = [UPDATE_STRATEGY.to_owned()];
    let told = stray(&[], &on_pods).expect("told");
    assert!(
        told.starts_with(&format!(
            "{UPDATE_STRATEGY} has no effect in spec.template.metadata.annotations"
        )),
        "{told}"
    );
}

#[test]
fn an_invalid_wave_is_reported_with_its_index_and_field() {
    let wave =
        |rest: &str| format!("[{{name: a, selector: {{}}}}, {{name: b, selector: x=y{rest}}}]");
    let place = |place: &str| format!("{WAVES}{place}");
    for (text, key, value, why) in [
        (
            wave(", soak: long"),
            place("[1].soak"),
            "long",
            "which is not a valid value; use a duration",
        ),
        (
            wave(", soak: 99d"),
            place("[1].soak"),
            "99d",
            "which is too long; use at most 30days",
        ),
        (
            wave(", maxUnavailable: 0"),
            place("[1].maxUnavailable"),
            "0",
            "which is zero; use a number",
        ),
        (
            wave(", maxUnavailable: 1.5"),
            place("[1].maxUnavailable"),
            "1.5",
            "which is not a whole number",
        ),
        (
            wave(", approve: yes please"),
            place("[1].approve"),
            "yes please",
            "which is not a valid value; use manual",
        ),
        (
            wave(", maxUnavailble: 1"),
            place("[1].maxUnavailble"),
            "1",
            "which is not a field of a wave (similar: maxUnavailable)",
        ),
        (
            "[{name: a, selector: {}}, {name: a, selector: {}}]".into(),
            place("[1].name"),
            "a",
            "which is also the name of waves[0]",
        ),
        (
            "[{selector: {}}]".into(),
            place("[0].name"),
            "",
            "because it is not set; use at most 63",
        ),
        (
            "[{name: rest, selector: {}}]".into(),
            place("[0].name"),
            "rest",
            "which is not a valid value; use at most 63",
        ),
        (
            "[{name: a}]".into(),
            place("[0].selector"),
            "",
            "because it is not set; use a label selector",
        ),
        (
            "[{name: a, selector: \"\"}]".into(),
            place("[0].selector"),
            "",
            "which is empty; use a label selector",
        ),
        (
            "[{name: a, selector: 'a in b'}]".into(),
            place("[0].selector"),
            "a in b",
            "which is not a valid value; use a label selector",
        ),
        (
            "[canary]".into(),
            place("[0]"),
            "canary",
            "which is not a valid value; use an object",
        ),
        (
            "[]".into(),
            place(""),
            "[]",
            "which is not a valid value; use a YAML or JSON list",
        ),
        (
            "canary".into(),
            place(""),
            "canary",
            "which is not a valid value; use a YAML or JSON list",
        ),
        (
            "".into(),
            place(""),
            "",
            "which is empty; use a YAML or JSON list",
        ),
    ] {
        let invalid = refusal(rolling(&[(WAVES, text.as_str())]));
        assert_eq!(
            (invalid.key.as_str(), invalid.value.as_str()),
            (key.as_str(), value),
            "{invalid}"
        );
        assert!(invalid.why.starts_with(why), "{invalid}");
    }
    let broken = refusal(rolling(&[(WAVES, "[{name: a")]));
    assert!(
        broken.why.starts_with("which is neither YAML nor JSON ("),
        "{broken}"
    );
    let waves = "[{name: a, selector: {}}]";
    let invalid = refusal(rolling(&[(WAVES, waves), (APPROVED_WAVES, "a")]));
    assert_eq!(
        (invalid.key.as_str(), invalid.value.as_str()),
        (APPROVED_WAVES, "a")
    );
    let note = only_note(rolling(&[(WAVES, waves), (APPROVED_WAVES, "b@1")]));
    assert!(
        note.text.contains("names the wave b, which is not in"),
        "{}",
        note.text
    );
    let note = only_note(rolling(&[(APPROVED_WAVES, "b@1")]));
    assert!(note.text.contains("has no effect without"), "{}", note.text);
}

#[test]
fn an_invalid_maintenance_window_is_named() {
    let windows = "Mon-Fri 22:00-05:00 Europe/Berlin; Sun 00:00-24:00 UTC";
    let read = without_notes(rolling(&[(MAINTENANCE_WINDOW, windows)]));
    assert_eq!(
        read.window.map(|read| read.to_string()).as_deref(),
        Some(windows)
    );
    let invalid = refusal(rolling(&[(MAINTENANCE_WINDOW, "at night")]));
    assert_eq!(
        invalid.to_string(),
        "apps.openyurt.io/maintenance-window is \"at night\", of which \"at night\" lacks days, times or time zone: use a window such as Mon-Fri 22:00-05:00 Europe/Berlin"
    );
}

#[test]
fn a_disruption_is_a_deletion_or_an_eviction() {
    let read = |text| without_notes(rolling(&[(DISRUPTION, text)])).disruption;
    assert_eq!(
        ["delete", "Delete", "evict", "EVICT"].map(read),
        [
            Disruption::Delete,
            Disruption::Delete,
            Disruption::Evict,
            Disruption::Evict
        ]
    );
    let invalid = refusal(rolling(&[(DISRUPTION, "eviction")]));
    assert_eq!(
        invalid.to_string(),
        "apps.openyurt.io/disruption is \"eviction\", which is not a valid value; use delete or evict"
    );
    let invalid = refusal(rolling(&[(DISRUPTION, "")]));
    assert!(invalid.to_string().contains("which is empty"), "{invalid}");
    let note = only_note(read_annotations(&[
        (UPDATE_STRATEGY, "OTA"),
        (DISRUPTION, "eviction"),
    ]));
    assert!(
        note.text.ends_with("(no effect under OTA)"),
        "{}",
        note.text
    );
}

#[test]
fn misspelled_keys_are_reported_with_the_similar_setting() {
    let cases = [
        ("max-unavailabe", MAX_UNAVAILABLE),
        ("maxUnavailable", MAX_UNAVAILABLE),
        ("max_unavailable", MAX_UNAVAILABLE),
        ("Max-Unavailable", MAX_UNAVAILABLE),
        ("pause", PAUSED),
        ("ready-setle", READY_SETTLE),
        ("upgrade-stratgy", UPGRADE_STRATEGY),
        ("max-surges", MAX_SURGE),
    ];
    for (name, meant) in cases {
        let key = format!("apps.openyurt.io/{name}");
        assert_eq!(
            only_note(rolling(&[(&key, "1")])).text,
            format!("{key} has no effect (similar setting: {meant})")
        );
    }
}

#[test]
fn foreign_annotations_are_ignored() {
    without_notes(rolling(&[
        ("apps.openyurt.io/binding", "true"),
        ("apps.openyurt.io/", "x"),
        ("apps.openyurt.io", "x"),
        ("max-unavailabe", "x"),
        ("deprecated.daemonset.template.generation", "1"),
    ]));
}

#[test]
fn hostile_values_give_a_short_error_and_no_panic() {
    let million = "x".repeat(1 << 20);
    let nines = "9".repeat(1 << 20);
    let wide = "ｘ\u{202e}\0".repeat(1 << 18);
    for value in [&million, &nines, &wide] {
        for key in [UPDATE_STRATEGY, UPGRADE_STRATEGY] {
            let text = refusal(read_annotations(&[(key, value)])).to_string();
            assert!(text.len() < 1024, "{} bytes", text.len());
        }
        for key in [PAUSED, READY_SETTLE] {
            let text = refusal(rolling(&[(key, value)])).to_string();
            assert!(text.len() < 1024, "{} bytes", text.len());
        }
    }
    let text = refusal(rolling(&[(MAX_UNAVAILABLE, &nines)])).to_string();
    assert!(
        text.ends_with("longer than 8192 bytes; shorten it"),
        "{text}"
    );
    let all = without_notes(rolling(&[(MAX_UNAVAILABLE, &nines[..8192])]));
    assert_eq!(all.max_unavailable, IntOrPercent::Number(u32::MAX));
    let both = [
        (UPDATE_STRATEGY, "OTA"),
        (UPGRADE_STRATEGY, million.as_str()),
    ];
    assert!(only_note(read_annotations(&both)).text.len() < 1024);
    let many: Vec<String> = ('a'..='z')
        .map(|c| format!("apps.openyurt.io/paused{c}"))
        .collect();
    let many: Vec<_> = many.iter().map(|key| (key.as_str(), "true")).collect();
    assert_eq!(settings(rolling(&many)).1.len(), 8);
}

#[test]
fn every_mode_and_share_round_trips() {
    for mode in Mode::ALL {
        assert_eq!(mode.to_string().parse(), Ok(mode));
    }
    for number in [0, 1, 5, 10, 100, u32::MAX] {
        for share in [IntOrPercent::Number(number), IntOrPercent::Percent(number)] {
            assert_eq!(share.to_string().parse(), Ok(share));
        }
    }
}

#[test]
fn a_pause_with_a_time_round_trips() {
    let until = Timestamp::from_second(1_900_000_000).unwrap();
    assert_eq!(
        Pause::parse(&until.to_string()),
        Ok(Some(Pause::Until(until)))
    );
}

/// Checks the table in the module documentation of `settings/max_unavailable.rs`.
#[test]
fn max_surge_and_max_unavailable_combine_as_in_the_documented_table() {
    #[track_caller]
    fn case(
        surge: Option<&str>,
        unavailable: Option<&str>,
        expected: (IntOrPercent, IntOrPercent),
    ) {
        let settings = [(MAX_SURGE, surge), (MAX_UNAVAILABLE, unavailable)];
        let settings: Vec<_> = settings
            .iter()
            .filter_map(|(key, value)| value.map(|value| (*key, value)))
            .collect();
        let strategy = without_notes(rolling(&settings));
        assert_eq!((strategy.max_surge, strategy.max_unavailable), expected);
    }
    use IntOrPercent::{Number, Percent};
    case(None, Some("0"), (Number(0), Percent(10)));
    case(Some("0"), None, (Number(0), Percent(10)));
    case(Some("0%"), Some("2"), (Percent(0), Number(2)));
    case(Some("1"), None, (Number(1), Number(0)));
    case(Some("25%"), Some("0"), (Percent(25), Number(0)));
    case(Some("1"), Some("0%"), (Number(1), Percent(0)));
    case(Some("1"), Some("20%"), (Number(1), Percent(20)));
    let left_over = json!(5);
    let reading = read_with(
        &[(UPDATE_STRATEGY, "auto"), (MAX_SURGE, "1")],
        Some("OnDelete"),
        Some(&left_over),
    );
    assert_eq!(without_notes(reading).max_unavailable, Number(0));
    let invalid = refusal(rolling(&[(MAX_SURGE, "0"), (MAX_UNAVAILABLE, "0%")]));
    assert_eq!(
        invalid.to_string(),
        "apps.openyurt.io/max-surge is \"0\", and apps.openyurt.io/max-unavailable is zero too, so no pod could ever be replaced; set one of them to 1 or more, or remove one"
    );
    let invalid = refusal(rolling(&[
        (MAX_SURGE, "1"),
        (ROLLING_UPDATE_TYPE, "InPlaceIfPossible"),
    ]));
    assert!(
        invalid.to_string().contains("remove one of them"),
        "{invalid}"
    );
    let invalid = refusal(rolling(&[(MAX_SURGE, "-1")]));
    assert_eq!(
        (invalid.key.as_str(), invalid.value.as_str()),
        (MAX_SURGE, "-1")
    );
}

#[test]
fn surging_rolling_update_is_a_rolling_update_with_a_surge_of_one() {
    for text in ["SurgingRollingUpdate", "surgingrollingupdate"] {
        let strategy = without_notes(read_annotations(&[(UPDATE_STRATEGY, text)]));
        assert_eq!(strategy.mode, Mode::AdvancedRollingUpdate);
        assert_eq!(strategy.max_surge, IntOrPercent::Number(1));
        assert_eq!(strategy.max_unavailable, IntOrPercent::Number(0));
    }
    let surging =
        |extra: (&str, &str)| read_annotations(&[(UPDATE_STRATEGY, "SurgingRollingUpdate"), extra]);
    let strategy = without_notes(surging((MAX_SURGE, "10%")));
    assert_eq!(strategy.max_surge, IntOrPercent::Percent(10));
    let invalid = refusal(surging((MAX_SURGE, "0")));
    assert!(invalid.to_string().contains("which is zero"), "{invalid}");
    let old = only_note(read_annotations(&[(
        UPGRADE_STRATEGY,
        "SurgingRollingUpdate",
    )]));
    assert!(
        old.text.contains("update-strategy: SurgingRollingUpdate"),
        "{}",
        old.text
    );
}

#[test]
fn surge_is_disabled_with_a_note_where_two_pods_cannot_run_together() {
    fn case(settings: &[(&str, &str)]) -> (Strategy, Vec<Note>) {
        let annotations = settings
            .iter()
            .map(|(key, value)| ((*key).into(), (*value).into()));
        let annotations: BTreeMap<String, String> = annotations.collect();
        settings_of(&annotations)
    }
    fn settings_of(annotations: &BTreeMap<String, String>) -> (Strategy, Vec<Note>) {
        let exclusive = crate::core::Exclusive::HostPort(8080);
        settings(read(&Source {
            annotations,
            update_strategy: Some("OnDelete"),
            rolling_update_max_unavailable: None,
            min_ready_seconds: 0,
            in_template: &[],
            exclusive: Some(&exclusive),
            preempting: None,
            fields: None,
        }))
    }
    let (strategy, notes) = case(&[(UPDATE_STRATEGY, "auto"), (MAX_SURGE, "2")]);
    assert_eq!(
        (strategy.max_surge, strategy.max_unavailable),
        (IntOrPercent::Number(0), IntOrPercent::Number(1))
    );
    let warning = Note {
        warning: true,
        text: "apps.openyurt.io/max-surge is 2, but only one pod per node can use hostPort 8080. Old pods are deleted before the new ones start (apps.openyurt.io/max-unavailable: 1)"
            .into(),
    };
    assert_eq!(notes, [warning]);
    let (strategy, _) = case(&[
        (UPDATE_STRATEGY, "SurgingRollingUpdate"),
        (MAX_UNAVAILABLE, "30%"),
    ]);
    assert_eq!(strategy.max_unavailable, IntOrPercent::Percent(30));
    let (_, notes) = case(&[(UPDATE_STRATEGY, "auto")]);
    assert_eq!(notes, []);
}

#[test]
fn on_failure_accepts_stop_and_revert_in_place_and_rejects_revert_spec() {
    let read = |text| rolling(&[(ON_FAILURE, text)]);
    assert_eq!(without_notes(read("Stop")).on_failure, OnFailure::Stop);
    let reverts = without_notes(read("RevertInPlace"));
    assert_eq!(reverts.on_failure, OnFailure::RevertInPlace);
    for (text, cure) in [
        (
            "RevertSpec",
            "use RevertInPlace, which rolls back only the pods",
        ),
        ("revertinplace", "use Stop or RevertInPlace"),
    ] {
        let ParsedSettings::Invalid(invalid, _) = read(text) else {
            panic!("{text} is accepted");
        };
        assert!(invalid.to_string().contains(cure), "{invalid}");
    }
}

#[test]
fn kruise_annotations_on_native_daemonsets_are_rejected_or_warned_about() {
    let auto = (UPDATE_STRATEGY, "auto");
    let progressive = "daemonset.kruise.io/progressive-create-pod";
    let invalid = refusal(read_annotations(&[auto, (progressive, "true")]));
    let said = invalid.to_string();
    assert!(said.starts_with(
        "daemonset.kruise.io/progressive-create-pod is \"true\", which is not supported"
    ));
    assert!(said.ends_with("remove the annotation"));
    without_notes(read_annotations(&[auto, (progressive, "false")]));
    let ota = only_note(read_annotations(&[
        (UPDATE_STRATEGY, "OTA"),
        (progressive, "true"),
    ]));
    assert!(ota.text.ends_with("(no effect under OTA)"), "{}", ota.text);
    for name in ["parallelism", "timeout-seconds", "min-updated-ready-pods"] {
        let key = format!("apps.kruise.io/image-predownload-{name}");
        let note = only_note(read_annotations(&[auto, (&key, "2")]));
        let meant = format!("apps.openyurt.io/image-predownload-{name}");
        assert!(note.warning && note.text.contains(&meant), "{}", note.text);
    }
    let predownload = ("apps.kruise.io/image-predownload-parallelism", "2");
    let both = (IMAGE_PREDOWNLOAD_PARALLELISM, "2");
    without_notes(read_annotations(&[auto, predownload, both]));
}

#[test]
fn pre_pull_timeout_and_min_ready_pods_are_parsed_and_bounded() {
    let pulls = (IMAGE_PREDOWNLOAD_PARALLELISM, "1");
    let timeout = (IMAGE_PREDOWNLOAD_TIMEOUT_SECONDS, "90");
    let min_ready = (IMAGE_PREDOWNLOAD_MIN_UPDATED_READY_PODS, "2");
    let strategy = without_notes(rolling(&[pulls, timeout, min_ready]));
    assert_eq!(strategy.image_predownload_timeout, Duration::from_secs(90));
    let ready = strategy.image_predownload_min_updated_ready_pods;
    assert_eq!(ready, IntOrPercent::Number(2));
    let endless = (IMAGE_PREDOWNLOAD_TIMEOUT_SECONDS, "99999999999999999999");
    let strategy = without_notes(rolling(&[pulls, endless]));
    let longest = Duration::from_secs(u32::MAX.into());
    assert_eq!(strategy.image_predownload_timeout, longest);
    // In two more cases the settings have an effect. Updates in place always pre-pull, and under OTA node owners request pre-pulls.
    let in_place = (ROLLING_UPDATE_TYPE, "InPlaceIfPossible");
    without_notes(rolling(&[in_place, timeout, min_ready]));
    without_notes(read_annotations(&[(UPDATE_STRATEGY, "OTA"), timeout]));
    for setting in [timeout, min_ready] {
        let note = only_note(rolling(&[setting]));
        let says =
            "has no effect without apps.openyurt.io/image-predownload-parallelism or an in-place";
        assert!(note.warning && note.text.contains(says), "{}", note.text);
    }
    let refused = refusal(rolling(&[pulls, (IMAGE_PREDOWNLOAD_TIMEOUT_SECONDS, "5m")]));
    assert_eq!(
        refused.to_string(),
        "apps.openyurt.io/image-predownload-timeout-seconds is \"5m\", which is not a valid value; use a whole number of \
         seconds, at least 1, such as 300"
    );
}

#[test]
fn a_surge_with_a_preempting_template_warns_with_its_priority_class() {
    let preempting = crate::core::Preempting::Class("edge-critical".into());
    let notes = |asked: &[(&str, &str)]| {
        let annotations = asked
            .iter()
            .map(|(key, value)| ((*key).into(), (*value).into()));
        let annotations: BTreeMap<String, String> = annotations.collect();
        let (_, notes) = settings(read(&Source {
            annotations: &annotations,
            update_strategy: Some("OnDelete"),
            rolling_update_max_unavailable: None,
            min_ready_seconds: 0,
            in_template: &[],
            exclusive: None,
            preempting: Some(&preempting),
            fields: None,
        }));
        notes
    };
    let told = notes(&[(UPDATE_STRATEGY, "auto"), (MAX_SURGE, "2")]);
    let [note] = told.as_slice() else {
        panic!("{told:?}");
    };
    assert!(note.warning);
    let begins = "apps.openyurt.io/max-surge is 2, and the template's priorityClassName is \"edge-critical\": on a node \
                  without room for two pods, the new pod preempts pods of lower priority";
    assert!(note.text.starts_with(begins), "{}", note.text);
    assert_eq!(notes(&[(UPDATE_STRATEGY, "auto")]), []);
}

#[test]
fn an_invalid_setting_changes_no_other_setting() {
    let values = [
        (MAX_UNAVAILABLE, "3"),
        (MAX_SURGE, "2"),
        (PAUSED, "true"),
        (PARTITION, "5"),
        (SELECTOR, "pool=canary"),
        (MIN_INTERVAL, "90s"),
        (RAMP_UP, "1"),
        (WAVES, "[{name: a, selector: pool=a, approve: manual}]"),
        (APPROVED_WAVES, "a@abc"),
        (START_NOW, "abc"),
        (TOPOLOGY_KEY, "topology.kubernetes.io/zone"),
        (MAX_DOMAINS, "2"),
        (FAILURE_THRESHOLD, "4"),
        (FAILURE_WINDOW, "7m"),
        (ON_FAILURE, "RevertInPlace"),
        (RESUME, "abc"),
        (REPLACE_BROKEN_FIRST, "unlimited"),
        (MAINTENANCE_WINDOW, "Mon-Fri 22:00-05:00 Europe/Berlin"),
        (IMAGE_PREDOWNLOAD_PARALLELISM, "2"),
        (PREDOWNLOAD, "required"),
        (IMAGE_PREDOWNLOAD_TIMEOUT_SECONDS, "77"),
        (IMAGE_PREDOWNLOAD_MIN_UPDATED_READY_PODS, "1"),
        (
            LIFECYCLE,
            r#"{"preDelete": {"labelsHandler": {"drain": "true"}}}"#,
        ),
        (DISRUPTION, "evict"),
        (READY_SETTLE, "44s"),
    ];
    let spoilt = |key: &str| {
        let spoil = |(other, value): (&'static str, &'static str)| {
            if other == key {
                (other, "\u{1}")
            } else {
                (other, value)
            }
        };
        values.map(spoil)
    };
    let without = |key: &str| {
        let mut values = values.to_vec();
        // `approved-waves` needs `waves`, and `max-domains` needs `topology-key`. Remove both settings of such a pair.
        let whole = match key {
            APPROVED_WAVES => WAVES,
            MAX_DOMAINS => TOPOLOGY_KEY,
            key => key,
        };
        values.retain(|(other, _)| ![key, whole].contains(other));
        values
    };
    let usable = |reading: ParsedSettings| reading.usable().cloned().expect("it is ours");
    let mut tried = 0;
    for setting in SETTINGS
        .iter()
        .filter(|setting| values.iter().any(|(key, _)| *key == setting.key))
    {
        let reading = rolling(&spoilt(setting.key));
        assert_eq!(refusal(reading.clone()).key, setting.key);
        assert_eq!(
            usable(reading),
            usable(rolling(&without(setting.key))),
            "{}",
            setting.key
        );
        tried += 1;
    }
    assert_eq!(
        tried,
        SETTINGS.len() - 2,
        "update-strategy, and rolling-update-type, which excludes max-surge"
    );
}
