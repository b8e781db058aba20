//! Tests of the conversion of Advanced DaemonSets to native ones.

use serde::Deserialize as _;

use super::*;
use crate::core::ParsedSettings;
use crate::core::settings::read;
use crate::k8s::{AdvancedDaemonSet, DaemonSet};

fn migrated(annotations: &Value, spec: &Value) -> Translation {
    let mut set = json!({
        "apiVersion": "apps.kruise.io/v1beta1",
        "kind": "DaemonSet",
        "metadata": { "name": "web", "namespace": "default", "annotations": annotations },
        "spec": {
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "c", "image": "web:1" }] },
            },
        },
    });
    json_patch::merge(&mut set["spec"], spec);
    let read_of = |set: &DaemonSet| match read(&set.settings()) {
        ParsedSettings::Strategy { strategy, .. } => strategy,
        other => panic!("{other:?}"),
    };
    let advanced: DaemonSet = AdvancedDaemonSet::deserialize(&set).unwrap().into();
    let scaling = advanced.spec.fields.as_ref().unwrap().scaling;
    let made = to_native(&set, &read_of(&advanced), scaling);
    assert_eq!(
        made.object["spec"]["updateStrategy"],
        json!({ "type": "OnDelete" })
    );
    made
}

#[test]
fn fields_become_equivalent_annotations() {
    let rolling = json!({
        "maxUnavailable": "20%", "partition": 3, "paused": true, "rollingUpdateType": "InPlaceIfPossible",
        "selector": { "matchLabels": { "pool": "a" } },
    });
    let hook = json!({ "preDelete": { "finalizersHandler": ["example.io/wait"] } });
    let made = migrated(
        &json!({ "apps.kruise.io/image-predownload-parallelism": "2", "apps.openyurt.io/partition": "9" }),
        &json!({ "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": rolling }, "lifecycle": hook }),
    );
    assert_eq!(
        made.object["metadata"]["annotations"],
        json!({
            "apps.openyurt.io/update-strategy": "AdvancedRollingUpdate",
            "apps.openyurt.io/max-unavailable": "20%",
            "apps.openyurt.io/partition": "3",
            "apps.openyurt.io/paused": "true",
            "apps.openyurt.io/rolling-update-type": "InPlaceIfPossible",
            "apps.openyurt.io/selector": r#"{"matchLabels":{"pool":"a"}}"#,
            "apps.openyurt.io/lifecycle": hook.to_string(),
            "apps.openyurt.io/image-predownload-parallelism": "2",
        })
    );
    assert_eq!(made.lost, [""; 0]);
}

#[test]
fn differing_defaults_are_written_explicitly() {
    let made = migrated(&json!({}), &json!({}));
    let annotations = &made.object["metadata"]["annotations"];
    assert_eq!(annotations["apps.openyurt.io/max-unavailable"], "1");
    let in_place = json!({ "rollingUpdate": { "rollingUpdateType": "InPlaceIfPossible" } });
    let made = migrated(&json!({}), &json!({ "updateStrategy": in_place }));
    let annotations = &made.object["metadata"]["annotations"];
    assert_eq!(
        annotations["apps.openyurt.io/image-predownload-parallelism"],
        "0"
    );
    let surging = json!({ "rollingUpdate": { "rollingUpdateType": "Surging" } });
    let made = migrated(&json!({}), &json!({ "updateStrategy": surging }));
    assert_eq!(
        made.object["metadata"]["annotations"],
        json!({ "apps.openyurt.io/update-strategy": "AdvancedRollingUpdate", "apps.openyurt.io/max-surge": "1" })
    );
}

#[test]
fn fields_without_a_counterpart_are_reported() {
    let spec = json!({
        "burstReplicas": "5%",
        "scaleStrategy": { "partitionedScaling": true },
        "updateStrategy": { "type": "OnDelete", "rollingUpdate": { "maxUnavailable": 2 } },
    });
    let made = migrated(&json!({ "apps.openyurt.io/waves": "[]" }), &spec);
    let lost = made.lost.join("\n");
    for words in [
        "burstReplicas: 5%",
        "partitionedScaling",
        "rollingUpdate has no effect under OnDelete",
    ] {
        assert!(lost.contains(words), "{words}: {lost}");
    }
    let twice = json!({
        "apps.kruise.io/image-predownload-parallelism": "2", "apps.openyurt.io/image-predownload-parallelism": "3",
    });
    let made_twice = migrated(&twice, &json!({}));
    let annotations = &made_twice.object["metadata"]["annotations"];
    assert_eq!(
        annotations["apps.openyurt.io/image-predownload-parallelism"],
        "3"
    );
    let no_effect = "apps.kruise.io/image-predownload-parallelism: 2 has no effect, because \
        apps.openyurt.io/image-predownload-parallelism is 3, and is removed.";
    assert_eq!(made_twice.lost, [no_effect]);
    // Under OnDelete the Advanced DaemonSet is not rolled out, so the native one gets no annotation `update-strategy`.
    assert_eq!(
        made.object["metadata"]["annotations"],
        json!({ "apps.openyurt.io/waves": "[]" })
    );
}
