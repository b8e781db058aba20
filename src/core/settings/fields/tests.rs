use std::time::Duration;

use serde_json::json;

use super::*;
use crate::core::settings::image_predownload_min_updated_ready_pods::IMAGE_PREDOWNLOAD_MIN_UPDATED_READY_PODS;
use crate::core::settings::image_predownload_parallelism::IMAGE_PREDOWNLOAD_PARALLELISM;
use crate::core::settings::image_predownload_timeout_seconds::IMAGE_PREDOWNLOAD_TIMEOUT_SECONDS;
use crate::core::settings::max_unavailable::MAX_UNAVAILABLE;
use crate::core::settings::mode::Mode;
use crate::core::settings::partition::PARTITION;
use crate::core::settings::paused::{PAUSED, Pause};
use crate::core::settings::rolling_update_type::RollingUpdateType;
use crate::core::settings::{NodeOrder, ParsedSettings, SettingsSource, Strategy, read};

/// An Advanced DaemonSet, given by its `spec` and its annotations.
struct Given {
    spec: Value,
    annotations: BTreeMap<String, String>,
}

impl Given {
    fn spec(spec: Value) -> Self {
        Self {
            spec,
            annotations: BTreeMap::new(),
        }
    }

    fn rolling(rolling_update: Value) -> Self {
        Self::spec(json!({ "updateStrategy": { "rollingUpdate": rolling_update } }))
    }

    fn annotated(mut self, annotations: &[(&str, &str)]) -> Self {
        let texts = annotations.iter();
        let texts = texts.map(|(key, text)| ((*key).to_owned(), (*text).to_owned()));
        self.annotations.extend(texts);
        self
    }

    fn fields(&self) -> FieldSettings {
        let spec = &self.spec;
        FieldSettings::from_spec(AdvancedSpec {
            rolling_update: spec.pointer("/updateStrategy/rollingUpdate"),
            lifecycle: spec.get("lifecycle"),
            burst_replicas: spec.get("burstReplicas"),
            revision_history_limit: spec["revisionHistoryLimit"].as_i64(),
            partitioned_scaling: spec["scaleStrategy"]["partitionedScaling"].as_bool(),
            annotations: &self.annotations,
        })
    }

    fn read(&self) -> ParsedSettings {
        read(&SettingsSource {
            annotations: &self.annotations,
            update_strategy: self.spec["updateStrategy"]["type"].as_str(),
            rolling_update_max_unavailable: None,
            min_ready_seconds: self.spec["minReadySeconds"].as_i64().unwrap_or(0),
            in_template: &[],
            exclusive: None,
            preempting: None,
            fields: Some(&self.fields()),
        })
    }

    #[track_caller]
    fn noted(&self) -> (Strategy, Vec<String>) {
        match self.read() {
            ParsedSettings::Strategy { strategy, notes } => {
                (*strategy, notes.into_iter().map(|note| note.text).collect())
            }
            other => panic!("not a strategy: {other:?}"),
        }
    }

    #[track_caller]
    fn strategy(&self) -> Strategy {
        let (strategy, notes) = self.noted();
        assert_eq!(notes, [""; 0]);
        strategy
    }

    #[track_caller]
    fn refused(&self) -> Invalid {
        match self.read() {
            ParsedSettings::Invalid(invalid, _) => invalid,
            other => panic!("not refused: {other:?}"),
        }
    }
}

/// Returns the path of a field of `rollingUpdate`.
fn path(name: &str) -> String {
    format!("spec.updateStrategy.rollingUpdate.{name}")
}

#[test]
fn absent_fields_have_the_defaults_of_kruise() {
    let expected = Strategy {
        max_unavailable: IntOrPercent::Number(1),
        image_predownload_parallelism: Some(IntOrPercent::Number(0)),
        order: NodeOrder::Descending,
        ..Strategy::with_mode(Mode::AdvancedRollingUpdate)
    };
    let nothing = [
        json!({}),
        json!({ "updateStrategy": {} }),
        json!({ "updateStrategy": { "type": "RollingUpdate" } }),
        json!({ "updateStrategy": { "type": "", "rollingUpdate": null } }),
        json!({ "updateStrategy": { "rollingUpdate": {} } }),
        json!({ "updateStrategy": { "rollingUpdate": {
            "maxUnavailable": null, "maxSurge": null, "partition": null, "selector": null, "paused": null,
            "rollingUpdateType": null,
        } }, "lifecycle": null, "burstReplicas": null }),
    ];
    for spec in nothing {
        let given = Given::spec(spec.clone());
        let read = given.strategy();
        let fields = read.fields; // `fields` is checked in another test
        assert_eq!(
            read,
            Strategy {
                fields,
                ..expected.clone()
            },
            "{spec}"
        );
        assert_eq!(given.fields(), FieldSettings::default(), "{spec}");
    }
    let scaling = Scaling {
        burst: IntOrPercent::Number(250),
        partitioned: false,
        history_limit: 10,
    };
    assert_eq!(Scaling::default(), scaling);
}

#[test]
fn the_update_type_and_annotation_decide_the_strategy() {
    let given = |kind: &str| Given::spec(json!({ "updateStrategy": { "type": kind } }));
    assert_eq!(given("OnDelete").strategy().mode, Mode::OnDelete);
    let rolls = given("RollingUpdate").strategy().mode;
    assert_eq!(rolls, Mode::AdvancedRollingUpdate);
    for kind in ["ondelete", "Recreate", "BlueGreen"] {
        let refused = given(kind).refused();
        assert_eq!(refused.key, "spec.updateStrategy.type");
        assert_eq!(
            refused.why,
            "which is not a valid value; use RollingUpdate or OnDelete"
        );
    }
    // The annotation has the value `OTA`, so node owners decide on updates.
    let ota = [("apps.openyurt.io/update-strategy", "OTA")];
    let given = given("RollingUpdate").annotated(&ota);
    assert_eq!(given.strategy().mode, Mode::Ota);
}

#[test]
fn every_field_sets_its_corresponding_setting() {
    let numbers = [
        (json!(0), IntOrPercent::Number(0)),
        (json!(3), IntOrPercent::Number(3)),
        (json!("3"), IntOrPercent::Number(3)),
        (json!("0%"), IntOrPercent::Percent(0)),
        (json!("30%"), IntOrPercent::Percent(30)),
        (json!("100%"), IntOrPercent::Percent(100)),
        (json!("150%"), IntOrPercent::Percent(150)),
        (json!(2147483647), IntOrPercent::Number(2147483647)),
        // A number that doesn't fit into `u32` means all nodes.
        (json!(4294967296_i64), IntOrPercent::Number(u32::MAX)),
        (
            json!("99999999999999999999%"),
            IntOrPercent::Percent(u32::MAX),
        ),
    ];
    for (value, share) in numbers {
        let given = Given::rolling(json!({ "partition": value }));
        assert_eq!(given.strategy().partition, share, "{value}");
        let strategy = Given::rolling(json!({ "maxUnavailable": value })).strategy();
        // As in Kruise, a `maxUnavailable` of 0 is read as 1. Zero would block the rollout permanently.
        let least = if share.is_zero() {
            IntOrPercent::Number(1)
        } else {
            share
        };
        assert_eq!(strategy.max_unavailable, least, "{value}");
        let strategy = Given::rolling(json!({ "maxSurge": value })).strategy();
        assert_eq!(strategy.max_surge, share, "{value}");
        let down = if share.is_zero() {
            IntOrPercent::Number(1)
        } else {
            IntOrPercent::Number(0)
        };
        assert_eq!(strategy.max_unavailable, down, "{value}");
    }
    let none = Given::rolling(json!({ "maxUnavailable": 0, "maxSurge": "0%" })).strategy();
    assert_eq!(
        (none.max_unavailable, none.max_surge.is_zero()),
        (IntOrPercent::Number(1), true)
    );
    let both = Given::rolling(json!({ "maxUnavailable": 2, "maxSurge": 3 })).strategy();
    assert_eq!(
        (both.max_unavailable, both.max_surge),
        (IntOrPercent::Number(2), IntOrPercent::Number(3))
    );

    let pause = |value: Value| Given::rolling(json!({ "paused": value })).strategy().pause;
    assert_eq!(pause(json!(true)), Some(Pause::Indefinite));
    assert_eq!(pause(json!(false)), None);
    let until = pause(json!("2030-01-31T18:00:00Z"));
    assert!(matches!(until, Some(Pause::Until(_))));

    let kind = |kind: &str| Given::rolling(json!({ "rollingUpdateType": kind })).strategy();
    assert_eq!(
        kind("Standard").rolling_update_type,
        RollingUpdateType::Standard
    );
    let in_place = kind("InPlaceIfPossible").rolling_update_type;
    assert_eq!(in_place, RollingUpdateType::InPlaceIfPossible);

    let min_ready = Given::spec(json!({ "minReadySeconds": 30 }))
        .strategy()
        .min_ready;
    assert_eq!(min_ready, Duration::from_secs(30));
    let hook = json!({ "preDelete": { "labelsHandler": { "a": "b" }, "markPodNotReady": true } });
    let hook = Given::spec(json!({ "lifecycle": hook }))
        .strategy()
        .pre_delete;
    assert!(hook.is_some_and(|hook| hook.mark_not_ready && hook.labels["a"] == "b"));
    for nobody in [
        json!({}),
        json!({ "preDelete": null }),
        json!({ "preNormal": {} }),
    ] {
        let given = Given::spec(json!({ "lifecycle": nobody }));
        assert_eq!(given.strategy().pre_delete, None, "{nobody}");
    }
}

#[test]
fn surging_means_max_surge_1_and_max_unavailable_0() {
    #[track_caller]
    fn case(beside: Value, max_surge: IntOrPercent, max_unavailable: IntOrPercent) {
        let mut block = json!({ "rollingUpdateType": "Surging" });
        json_merge(&mut block, beside);
        let strategy = Given::rolling(block).strategy();
        assert_eq!(
            (strategy.max_surge, strategy.max_unavailable),
            (max_surge, max_unavailable)
        );
        assert_eq!(strategy.rolling_update_type, RollingUpdateType::Standard);
    }
    fn json_merge(block: &mut Value, beside: Value) {
        for (name, value) in beside.as_object().unwrap() {
            block[name] = value.clone();
        }
    }
    case(json!({}), IntOrPercent::Number(1), IntOrPercent::Number(0));
    case(
        json!({ "maxSurge": "30%" }),
        IntOrPercent::Percent(30),
        IntOrPercent::Number(0),
    );
    case(
        json!({ "maxSurge": null }),
        IntOrPercent::Number(1),
        IntOrPercent::Number(0),
    );
    case(
        json!({ "maxUnavailable": 2 }),
        IntOrPercent::Number(1),
        IntOrPercent::Number(2),
    );
}

#[test]
fn a_selector_field_is_parsed_like_in_kubernetes() {
    let matches = |selector: Value, labels: &[(&str, &str)]| {
        let selector = Given::rolling(json!({ "selector": selector }))
            .strategy()
            .selector;
        let selector = selector.expect("a selector");
        let label = |key: &str| {
            labels
                .iter()
                .find(|(known, _)| *known == key)
                .map(|(_, text)| *text)
        };
        selector.matches(label)
    };
    let canary = [("pool", "canary")];
    assert!(matches(
        json!({ "matchLabels": { "pool": "canary" } }),
        &canary
    ));
    assert!(!matches(
        json!({ "matchLabels": { "pool": "other" } }),
        &canary
    ));
    let not = json!({ "matchExpressions": [{ "key": "pool", "operator": "NotIn", "values": ["canary"] }] });
    assert!(!matches(not.clone(), &canary));
    assert!(matches(not, &[]));
    // An empty selector matches all nodes.
    assert!(matches(json!({}), &canary));
    assert!(matches(
        json!({ "matchLabels": {}, "matchExpressions": [] }),
        &[]
    ));
}

#[test]
fn invalid_values_are_rejected_with_the_path_of_their_field() {
    #[track_caller]
    fn case(name: &str, value: Value) {
        let refused = Given::rolling(json!({ name: value })).refused();
        assert_eq!(refused.key, path(name), "{value}");
    }
    let no_shares = [
        json!(-1),
        json!("-1"),
        json!(1.5),
        json!("1.5%"),
        json!("%"),
        json!("-5%"),
        json!(""),
        json!(" 1"),
        json!("all"),
        json!("1 %"),
        json!(true),
        json!([1]),
        json!({ "type": 0, "intVal": 1 }),
    ];
    for value in no_shares {
        for name in ["maxUnavailable", "maxSurge", "partition"] {
            case(name, value.clone());
        }
        let refused = Given::spec(json!({ "burstReplicas": value })).refused();
        assert_eq!(refused.key, "spec.burstReplicas", "{value}");
    }
    for value in [json!("yes"), json!(1), json!(""), json!([]), json!({})] {
        case("paused", value);
    }
    for value in [
        json!("standard"),
        json!("surging"),
        json!(""),
        json!(1),
        json!({}),
    ] {
        case("rollingUpdateType", value);
    }
    let no_selectors = [
        json!({ "matchExpressions": [{ "key": "pool", "operator": "Like", "values": ["a"] }] }),
        json!({ "matchExpressions": [{ "key": "pool", "operator": "In" }] }),
        json!({ "matchExpressions": [{ "key": "pool", "operator": "Exists", "values": ["a"] }] }),
        json!({ "matchLabels": { "pool": 5 } }),
        json!({ "matchLabels": { "no key!": "a" } }),
        json!({ "labels": { "pool": "a" } }),
        json!([]),
        json!(true),
        json!("pool=canary"),
    ];
    for value in no_selectors {
        case("selector", value);
    }
    let no_hooks = [
        json!({ "inPlaceUpdate": {} }),
        json!({ "preDelete": { "labelHandler": {} } }),
        json!({ "preDelete": { "markPodNotReady": "yes" } }),
        json!({ "preDelete": [] }),
        json!("drain"),
        json!(5),
    ];
    for value in no_hooks {
        let refused = Given::spec(json!({ "lifecycle": value })).refused();
        assert_eq!(refused.key, "spec.lifecycle", "{value}");
    }
    // `maxSurge` and `InPlaceIfPossible` exclude each other: a surge pod replaces its predecessor, but an update in place keeps the
    // pod.
    let block = json!({ "maxSurge": 1, "rollingUpdateType": "InPlaceIfPossible" });
    let refused = Given::rolling(block).refused();
    assert_eq!(refused.key, path("maxSurge"));
    let told = format!("{}: \"InPlaceIfPossible\"", path("rollingUpdateType"));
    let told = told.replace('"', "");
    assert!(refused.why.contains(&told), "{}", refused.why);
}

#[test]
fn pod_creation_fields_are_validated_separately_from_the_rollout() {
    let burst = |value: Value| Given::spec(json!({ "burstReplicas": value }));
    for (value, share) in [
        (json!(1), IntOrPercent::Number(1)),
        (json!("10%"), IntOrPercent::Percent(10)),
        (json!(2147483647), IntOrPercent::Number(2147483647)),
    ] {
        assert_eq!(burst(value).fields().scaling.burst, share);
    }
    // With a `burstReplicas` of 0, no pod could be created. Therefore the value is invalid, and the default applies.
    for value in [json!(0), json!("0%"), json!("0")] {
        let given = burst(value);
        assert!(given.refused().why.starts_with("which is zero"));
        assert_eq!(given.fields().scaling, Scaling::default());
    }
    let limit = |limit: i64| Given::spec(json!({ "revisionHistoryLimit": limit }));
    assert_eq!(limit(0).fields().scaling.history_limit, 0);
    assert_eq!(limit(2147483647).fields().scaling.history_limit, 2147483647);
    let refused = limit(-1).refused();
    assert_eq!(
        (refused.key.as_str(), refused.value.as_str()),
        ("spec.revisionHistoryLimit", "-1")
    );
    assert_eq!(limit(-1).fields().scaling, Scaling::default());
    // If two fields are invalid, only the first is reported.
    let both = Given::spec(json!({ "burstReplicas": "x", "revisionHistoryLimit": -1 }));
    assert_eq!(both.refused().key, "spec.burstReplicas");
}

#[test]
fn partitioned_scaling_comes_from_the_field_or_else_the_older_annotation() {
    let progressive = "daemonset.kruise.io/progressive-create-pod";
    let with = |field: Option<bool>, annotations: &[(&str, &str)]| {
        let spec = json!({ "scaleStrategy": { "partitionedScaling": field } });
        Given::spec(spec)
            .annotated(annotations)
            .fields()
            .scaling
            .partitioned
    };
    assert!(!with(None, &[]));
    assert!(!with(None, &[("other", "true")]));
    assert!(with(None, &[(progressive, "true")]));
    assert!(!with(None, &[(progressive, "True")]));
    assert!(!with(None, &[(progressive, "1")]));
    assert!(with(Some(true), &[]));
    assert!(with(Some(true), &[(progressive, "false")]));
    assert!(!with(Some(false), &[(progressive, "true")]));
}

#[test]
fn a_field_overrides_the_annotation_of_the_same_setting() {
    let annotations = [(MAX_UNAVAILABLE, "5"), (PARTITION, "4"), (PAUSED, "true")];
    let given = Given::rolling(json!({ "maxUnavailable": 2, "paused": false }));
    let (strategy, mut notes) = given.annotated(&annotations).noted();
    assert_eq!(strategy.max_unavailable, IntOrPercent::Number(2));
    assert_eq!(strategy.pause, None);
    // The field is absent, for example after a conversion from a native DaemonSet. Then the annotation applies.
    assert_eq!(strategy.partition, IntOrPercent::Number(4));
    notes.sort();
    let told = |name: &str, value: &str, key: &str| {
        let path = path(name);
        format!("{path} is {value} and overrides the annotation {key}; remove the annotation")
    };
    let expected = [
        told("maxUnavailable", "2", MAX_UNAVAILABLE),
        told("paused", "false", PAUSED),
    ];
    assert_eq!(notes, expected);
    // An invalid annotation is reported by its own name. If a field overrides the annotation, it is not reported.
    let bad = [(PARTITION, "x")];
    let refused = Given::spec(json!({})).annotated(&bad).refused();
    assert_eq!(refused.key, PARTITION);
    let (strategy, _) = Given::rolling(json!({ "partition": 1 }))
        .annotated(&bad)
        .noted();
    assert_eq!(strategy.partition, IntOrPercent::Number(1));
}

#[test]
fn no_image_is_pre_pulled_without_the_setting() {
    let kruise = "apps.kruise.io/image-predownload-parallelism";
    let pulls = |annotations: &[(&str, &str)]| {
        let given = Given::rolling(json!({ "rollingUpdateType": "InPlaceIfPossible" }));
        given
            .annotated(annotations)
            .strategy()
            .image_predownload_parallelism
    };
    assert_eq!(pulls(&[]), Some(IntOrPercent::Number(0)));
    assert_eq!(pulls(&[(kruise, "5")]), Some(IntOrPercent::Number(5)));
    let own = (IMAGE_PREDOWNLOAD_PARALLELISM, "10%");
    assert_eq!(pulls(&[own]), Some(IntOrPercent::Percent(10)));
    assert_eq!(
        pulls(&[(kruise, "5"), own]),
        Some(IntOrPercent::Percent(10))
    );
    let refused = Given::spec(json!({}))
        .annotated(&[(kruise, "many")])
        .refused();
    assert_eq!(refused.key, kruise);
}

#[test]
fn pre_pull_settings_come_from_kruise_annotations_unless_own_ones_are_set() {
    let key = |name: &str| format!("apps.kruise.io/image-predownload-{name}");
    let (parallelism, timeout) = (key("parallelism"), key("timeout-seconds"));
    let min_ready = key("min-updated-ready-pods");
    let parallelism = (parallelism.as_str(), "1");
    let read = |annotations: &[(&str, &str)]| {
        let given = Given::rolling(json!({})).annotated(&[parallelism]);
        let strategy = given.annotated(annotations).strategy();
        (
            strategy.image_predownload_timeout.as_secs(),
            strategy.image_predownload_min_updated_ready_pods,
        )
    };
    assert_eq!(read(&[]), (3600, IntOrPercent::Number(0)));
    let theirs = [(timeout.as_str(), "300"), (min_ready.as_str(), "10%")];
    assert_eq!(read(&theirs), (300, IntOrPercent::Percent(10)));
    let ours = [
        (IMAGE_PREDOWNLOAD_TIMEOUT_SECONDS, "60"),
        (IMAGE_PREDOWNLOAD_MIN_UPDATED_READY_PODS, "2"),
    ];
    let both = [theirs, ours].concat();
    assert_eq!(read(&both), (60, IntOrPercent::Number(2)));
    let refused = |key: &str, value: &str, expected: &str| {
        let invalid = Given::spec(json!({})).annotated(&[(key, value)]).refused();
        assert_eq!((&*invalid.key, &*invalid.value), (key, value));
        assert!(invalid.why.contains(expected), "{invalid}");
    };
    for value in ["5m", "0", "-1", "1.5", ""] {
        refused(
            &timeout,
            value,
            "use a whole number of seconds, at least 1, such as 300",
        );
    }
    for value in ["many", "-1", "1.5"] {
        refused(
            &min_ready,
            value,
            "use a number of nodes such as 3 or a percentage such as 10%",
        );
    }
    // Without pre-pulls these annotations have no effect, which a note reports.
    for (key, value) in theirs {
        let (_, notes) = Given::spec(json!({})).annotated(&[(key, value)]).noted();
        let [note] = notes.as_slice() else {
            panic!("{notes:?}");
        };
        let says =
            "has no effect without apps.openyurt.io/image-predownload-parallelism; set the number";
        assert!(note.starts_with(key) && note.contains(says), "{note}");
    }
}
