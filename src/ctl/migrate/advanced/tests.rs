//! Tests of the conversion of native DaemonSets, which must not change the meaning of any setting.

use serde::Deserialize as _;

use super::*;
use crate::core::settings::{DecidingFields, read};
use crate::core::{NodeOrder, ParsedSettings, Scaling};
use crate::ctl::migrate::native::to_native;
use crate::k8s::{AdvancedDaemonSet, DaemonSet};

fn native(annotations: &Value, update: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": { "name": "web", "namespace": "default", "uid": "1", "resourceVersion": "7",
                      "annotations": annotations },
        "spec": {
            "selector": { "matchLabels": { "app": "web" } },
            "updateStrategy": update,
            "minReadySeconds": 5,
            "revisionHistoryLimit": 3,
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "c", "image": "web:1" }] },
            },
        },
        "status": { "numberReady": 3 },
    })
}

fn on_delete(annotations: &Value) -> Value {
    native(annotations, &json!({ "type": "OnDelete" }))
}

fn strategy_of(set: &DaemonSet) -> Option<Strategy> {
    match read(&set.settings()) {
        ParsedSettings::Strategy { strategy, .. } => Some(*strategy),
        ParsedSettings::NotOurs => None,
        ParsedSettings::Invalid(invalid, _) => panic!("{invalid}"),
    }
}

fn read_native(set: &Value) -> Option<Strategy> {
    strategy_of(&DaemonSet::deserialize(set).unwrap())
}

fn read_advanced(set: &Value) -> Strategy {
    let set = AdvancedDaemonSet::deserialize(set).unwrap();
    strategy_of(&set.into()).unwrap()
}

fn migrated(set: &Value) -> Translation {
    to_advanced(set, read_native(set).as_ref())
}

/// Clears values that differ between the kinds although the settings have the same meaning.
fn plain(strategy: Strategy) -> Strategy {
    Strategy {
        order: NodeOrder::Ascending,
        fields: DecidingFields::default(),
        ..strategy
    }
}

#[test]
fn annotations_and_fields_are_converted_both_ways() {
    #[track_caller]
    fn case(annotations: Value, update: &Value) {
        let mut all = json!({ "apps.openyurt.io/update-strategy": "AdvancedRollingUpdate" });
        json_patch::merge(&mut all, &annotations);
        let before = on_delete(&all);
        let asked = read_native(&before).unwrap();
        let made = migrated(&before);
        assert_eq!(
            &made.object["spec"]["updateStrategy"], update,
            "{annotations}"
        );
        assert_eq!(made.lost, [""; 0], "{annotations}");
        let now = read_advanced(&made.object);
        let is_quiet = annotations["apps.openyurt.io/image-predownload-parallelism"].is_null();
        let asked = match now.image_predownload_parallelism {
            // Accept an added `image-predownload-parallelism`: the default of a native DaemonSet has to be explicit on an Advanced
            // one.
            output if is_quiet => Strategy {
                image_predownload_parallelism: output,
                ..asked
            },
            _ => asked,
        };
        assert_eq!(plain(now.clone()), plain(asked.clone()), "{annotations}");
        let back = to_native(&made.object, &now, Scaling::default());
        let mut again = read_native(&back.object).unwrap();
        if again.image_predownload_parallelism.is_none() {
            again.image_predownload_parallelism = asked.image_predownload_parallelism;
        }
        assert_eq!(again, asked, "back: {annotations}");
    }
    let rolling = |fields: Value| json!({ "type": "RollingUpdate", "rollingUpdate": fields });
    case(json!({}), &rolling(json!({ "maxUnavailable": "10%" })));
    case(
        json!({ "apps.openyurt.io/max-unavailable": "3", "apps.openyurt.io/partition": "50%",
                "apps.openyurt.io/paused": "true", "apps.openyurt.io/selector": "pool=a,!old" }),
        &rolling(json!({
            "maxUnavailable": 3, "partition": "50%", "paused": true,
            "selector": { "matchExpressions": [
                { "key": "pool", "operator": "In", "values": ["a"] },
                { "key": "old", "operator": "DoesNotExist", "values": [] },
            ] },
        })),
    );
    case(
        json!({ "apps.openyurt.io/max-surge": "25%" }),
        &rolling(json!({ "maxSurge": "25%" })),
    );
    case(
        json!({ "apps.openyurt.io/update-strategy": "SurgingRollingUpdate" }),
        &rolling(json!({ "maxSurge": 1 })),
    );
    // Both annotations remain, because the API server rejects an Advanced DaemonSet in which both fields are above zero.
    case(
        json!({ "apps.openyurt.io/max-surge": "1", "apps.openyurt.io/max-unavailable": "2" }),
        &json!({ "type": "RollingUpdate" }),
    );
    case(
        json!({ "apps.openyurt.io/rolling-update-type": "InPlaceIfPossible", "apps.openyurt.io/max-unavailable": "2" }),
        &rolling(json!({ "maxUnavailable": 2, "rollingUpdateType": "InPlaceIfPossible" })),
    );
    // Settings without a field remain annotations, and so does a pause with an end.
    case(
        json!({ "apps.openyurt.io/paused": "2030-01-31T18:00:00Z", "apps.openyurt.io/min-interval": "1m",
                "apps.openyurt.io/image-predownload-parallelism": "2", "apps.openyurt.io/failure-threshold": "1" }),
        &rolling(json!({ "maxUnavailable": "10%" })),
    );
}

#[test]
fn a_lifecycle_annotation_becomes_the_lifecycle_field() {
    let hook = json!({ "preDelete": { "labelsHandler": { "example.io/drain": "true" } } });
    let annotations = json!({ "apps.openyurt.io/update-strategy": "auto", "apps.openyurt.io/lifecycle": hook.to_string() });
    let made = migrated(&on_delete(&annotations));
    assert_eq!(made.object["spec"]["lifecycle"], hook);
    assert_eq!(made.object["metadata"]["annotations"], Value::Null);
}

#[test]
fn shared_fields_stay_and_object_specific_metadata_is_dropped() {
    let annotations = json!({
        "apps.openyurt.io/update-strategy": "OTA", "example.io/team": "edge",
        "deprecated.daemonset.template.generation": "4", "kubectl.kubernetes.io/last-applied-configuration": "{}",
    });
    let before = on_delete(&annotations);
    let made = migrated(&before);
    assert_eq!(
        made.object["metadata"],
        json!({ "name": "web", "namespace": "default", "annotations": {
            "apps.openyurt.io/update-strategy": "OTA", "example.io/team": "edge",
        } })
    );
    for field in [
        "selector",
        "template",
        "minReadySeconds",
        "revisionHistoryLimit",
    ] {
        assert_eq!(made.object["spec"][field], before["spec"][field]);
    }
    assert_eq!(
        made.object["spec"]["updateStrategy"],
        json!({ "type": "OnDelete" })
    );
    assert_eq!(read_advanced(&made.object).mode, Mode::Ota);
    assert!(made.object["status"].is_null());
}

#[test]
fn the_native_strategy_is_kept_and_annotations_without_effect_are_dropped() {
    let update =
        json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 2, "maxSurge": 0 } });
    let waves = json!({ "apps.openyurt.io/min-interval": "1h" });
    let made = migrated(&native(&waves, &update));
    assert_eq!(made.object["spec"]["updateStrategy"], update);
    assert_eq!(made.object["metadata"]["annotations"], Value::Null);
    assert!(
        made.lost[0].starts_with("apps.openyurt.io/min-interval: 1h has no effect"),
        "{made:?}"
    );
    let made = migrated(&on_delete(&json!({})));
    assert_eq!(
        made.object["spec"]["updateStrategy"],
        json!({ "type": "OnDelete" })
    );
}
