use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::core::ParsedSettings;
use crate::core::settings::read as read_settings;

fn deep(levels: usize) -> String {
    format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels))
}

#[test]
fn a_too_deeply_nested_revision_is_named_with_its_owner() {
    let json = format!(
        r#"{{"metadata":{{"name":"deep","namespace":"tenant","uid":"u","resourceVersion":"5","ownerReferences":
        [{{"apiVersion":"apps/v1","kind":"DaemonSet","name":"web","uid":"w","controller":true}}]}},"data":{}}}"#,
        deep(200)
    );
    let unreadable = read::<ControllerRevision>(json.as_bytes()).unwrap_err();
    assert_eq!(unreadable.reason, UnreadableReason::TooDeep);
    assert_eq!(unreadable.metadata.name.as_deref(), Some("deep"));
    assert_eq!(unreadable.metadata.namespace.as_deref(), Some("tenant"));
    let owners = unreadable.metadata.owner_references.unwrap();
    assert_eq!(owners[0].uid, "w");
    // Data that is nested less deep than the limit, without a template, is readable.
    let json = format!(r#"{{"metadata":{{"name":"flat"}},"data":{}}}"#, deep(100));
    assert!(read::<ControllerRevision>(json.as_bytes()).is_ok());
}

#[test]
fn a_partly_unreadable_daemonset_keeps_its_name_settings_and_conditions() {
    let json = format!(
        r#"{{"metadata":{{"name":"web","namespace":"shop","uid":"u","annotations":
        {{"apps.openyurt.io/update-strategy":"AdvancedRollingUpdate"}}}},"spec":{{"template":{}}},
        "status":{{"conditions":[{{"type":"Guard","status":"True"}}]}}}}"#,
        deep(200)
    );
    let set = read::<DaemonSet>(json.as_bytes()).unwrap();
    assert!(set.spec.unreadable.is_some());
    assert_eq!(set.status.conditions[0].kind, "Guard");
    let advanced = DaemonSet::from(read::<AdvancedDaemonSet>(json.as_bytes()).unwrap());
    assert!(advanced.spec.unreadable.is_some() && advanced.is_advanced());
    let ParsedSettings::Invalid(invalid, _) = read_settings(&advanced.settings()) else {
        panic!("an Advanced DaemonSet that cannot be read is used");
    };
    assert_eq!(invalid.key, "spec");
    assert!(invalid.why.contains("127 levels"), "{invalid}");
}

#[test]
fn fields_without_influence_on_decisions_may_have_any_content() {
    let json = format!(
        r#"{{"metadata":{{"name":"n"}},"spec":{{"other":{}}},"status":{{"other":[[["9999"]]]}}}}"#,
        deep(500)
    );
    for name in [
        read::<Pod>(json.as_bytes()).unwrap().metadata.name,
        read::<Node>(json.as_bytes()).unwrap().metadata.name,
        read::<DaemonSet>(json.as_bytes()).unwrap().metadata.name,
    ] {
        assert_eq!(name.as_deref(), Some("n"));
    }
}

#[test]
fn times_of_the_year_9999_are_read() {
    let time = "9999-12-31T23:59:59Z";
    let json = json!({
        "metadata": { "name": "n", "managedFields": [{ "manager": "x", "time": time }] },
        "status": {
            "startTime": time,
            "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": time, "lastHeartbeatTime": time, "lastProbeTime": time }],
            "containerStatuses": [{ "name": "c", "state": { "running": { "startedAt": time } }, "lastState": { "terminated": { "finishedAt": time } } }],
        },
    })
    .to_string();
    assert!(read::<Node>(json.as_bytes()).is_ok());
    assert!(read::<Pod>(json.as_bytes()).is_ok());
    assert!(read::<DaemonSet>(json.as_bytes()).is_ok());
    assert!(read::<AdvancedDaemonSet>(json.as_bytes()).is_ok());
    assert!(read::<ControllerRevision>(json.as_bytes()).is_ok());
}

#[test]
fn an_object_with_too_many_values_or_bytes_is_too_large() {
    let many = format!(
        r#"{{"metadata":{{"name":"many"}},"data":[{}0]}}"#,
        "0,".repeat(MOST_VALUES)
    );
    let large = format!(
        r#"{{"metadata":{{"name":"large"}},"data":"{}"}}"#,
        "x".repeat(LARGEST)
    );
    for (json, name) in [(many, "many"), (large, "large")] {
        let unreadable = read::<ControllerRevision>(json.as_bytes()).unwrap_err();
        assert_eq!(unreadable.reason, UnreadableReason::TooLarge);
        assert_eq!(unreadable.metadata.name.as_deref(), Some(name));
    }
    let text = format!(
        r#"{{"metadata":{{"name":"a","annotations":{{"k":"{}"}}}}}}"#,
        ",".repeat(LARGEST / 2)
    );
    assert!(read::<Node>(text.as_bytes()).is_ok());
}

#[test]
fn an_object_that_would_use_much_memory_is_named_and_not_kept() {
    let terms: Vec<Value> = (0..3000)
        .map(|i| json!({ "matchExpressions": [{ "key": format!("k{i}"), "operator": "Exists" }] }))
        .collect();
    let affinity = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } } });
    let tolerations: Vec<Value> = (0..3000)
        .map(|i| json!({ "key": format!("k{i}") }))
        .collect();
    let labels: serde_json::Map<String, Value> =
        (0..3000).map(|i| (format!("k{i}"), json!("v"))).collect();
    let conditions: Vec<Value> = (0..101)
        .map(|i| json!({ "type": format!("C{i}") }))
        .collect();
    let set = |selector: Value, spec: Value, conditions: Value| {
        json!({
            "metadata": { "name": "n", "uid": "u", "annotations": { "apps.openyurt.io/paused": "true" } },
            "spec": { "selector": selector, "template": { "metadata": { "labels": { "a": "b" } }, "spec": spec } },
            "status": { "conditions": conditions },
        })
        .to_string()
    };
    let plain = || json!({ "matchLabels": { "a": "b" } });
    for (json, place) in [
        (
            set(plain(), json!({ "affinity": affinity }), json!([])),
            "spec.template.spec",
        ),
        (
            set(plain(), json!({ "tolerations": tolerations }), json!([])),
            "spec.template.spec",
        ),
        (
            set(plain(), json!({ "nodeSelector": labels }), json!([])),
            "spec.template.spec",
        ),
        (
            set(json!({ "matchLabels": labels }), json!({}), json!([])),
            "spec.selector",
        ),
        (
            set(plain(), json!({}), json!(conditions)),
            "status has more than 100",
        ),
    ] {
        let native = read::<DaemonSet>(json.as_bytes()).expect("its name can be read");
        let advanced = read::<AdvancedDaemonSet>(json.as_bytes()).expect("its name can be read");
        for set in [native, advanced.into()] {
            let why = set.spec.unreadable.expect("it is too large");
            assert_eq!(why.reason, UnreadableReason::TooLarge);
            assert!(why.error.contains(place), "{why}");
            assert!(set.spec.scheduling.size() == 0 && set.status.conditions.len() <= 100);
        }
    }
    let containers: Vec<Value> = (0..3000)
        .map(|i| json!({ "name": format!("c{i}"), "image": "x" }))
        .collect();
    for spec in [
        json!({ "containers": containers }),
        json!({ "containers": [{ "name": "c", "image": "x".repeat(300_000) }] }),
    ] {
        let revision = json!({ "metadata": { "name": "n" }, "data": { "spec": { "template": { "spec": spec } } } });
        let unreadable = read::<ControllerRevision>(revision.to_string().as_bytes()).unwrap_err();
        assert_eq!(
            unreadable.reason,
            UnreadableReason::TooLarge,
            "{unreadable}"
        );
    }
}

#[test]
fn the_template_of_an_unmanaged_daemonset_is_skipped() {
    let json = format!(
        r#"{{"metadata":{{"name":"n"}},"spec":{{"updateStrategy":{{"type":"OnDelete"}},"template":{{"metadata":{{"annotations":
        {{"apps.openyurt.io/paused":"true","other":"x"}}}},"spec":{}}}}}}}"#,
        deep(200)
    );
    let set = read::<DaemonSet>(json.as_bytes()).unwrap();
    assert_eq!(set.spec.unreadable, None);
    assert_eq!(set.spec.in_template, ["apps.openyurt.io/paused"]);
    assert_eq!(set.spec.update_strategy.kind.as_deref(), Some("OnDelete"));
}

/// Generates arbitrary JSON that contains some of the keys that the parser reads.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[ -~\u{7f}-\u{2ff}]{0,20}".prop_map(Value::from),
        Just(json!("9999-12-31T23:59:59Z")),
        Just(json!("0000-01-01T00:00:00Z")),
    ];
    let key = prop_oneof![
        Just("metadata"),
        Just("spec"),
        Just("status"),
        Just("data"),
        Just("name"),
        Just("conditions"),
        Just("type"),
        Just("lastTransitionTime"),
        Just("template"),
        Just("containers"),
        Just("ownerReferences"),
        Just("annotations"),
        Just("taints"),
        Just("nodeName"),
        Just("selector"),
        Just("containerStatuses"),
    ];
    leaf.prop_recursive(6, 60, 5, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::btree_map(key.clone(), inner, 0..5).prop_map(|map| map
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect()),
        ]
    })
}

proptest! {
    #[test]
    fn nothing_that_arrives_makes_a_reader_panic(value in any_json(), cut in 0..2_000_usize) {
        let json = value.to_string();
        let beginning = &json.as_bytes()[..cut.min(json.len())];
        for json in [json.as_bytes(), beginning] {
            let _read = read::<Node>(json);
            let _read = read::<Pod>(json);
            let _read = serde_json::from_slice(json).map(Pod::read_leniently);
            let _read = read::<DaemonSet>(json);
            let _read = read::<AdvancedDaemonSet>(json);
            let _read = read::<ControllerRevision>(json);
        }
    }
}
