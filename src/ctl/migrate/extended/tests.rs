//! Tests of the conversion of ExtendedDaemonSets.

use super::*;

fn extended(strategy: Value) -> Value {
    json!({
        "apiVersion": "datadoghq.com/v1alpha1",
        "kind": "ExtendedDaemonSet",
        "metadata": { "name": "agent", "namespace": "monitoring", "uid": "1",
                      "annotations": { "extendeddaemonset.datadoghq.com/rolling-update-paused": "true", "team": "edge" } },
        "spec": {
            "template": {
                "metadata": { "labels": { "app": "agent" } },
                "spec": { "containers": [{ "name": "agent", "image": "agent:7" }] },
            },
            "strategy": strategy,
        },
    })
}

fn full() -> Value {
    extended(json!({
        "reconcileFrequency": "10s",
        "rollingUpdate": { "maxUnavailable": "10%", "maxParallelPodCreation": 50, "maxPodSchedulerFailure": "5%",
                           "slowStartIntervalDuration": "1m", "slowStartAdditiveIncrease": 5 },
        "canary": { "replicas": 2, "duration": "30m", "nodeSelector": { "matchLabels": { "pool": "canary" } },
                    "noRestartsDuration": "5m", "autoFail": { "enabled": true, "maxRestarts": 5 } },
    }))
}

fn made(extended: &Value, kind: SetKind) -> Translation {
    translate(&SetKey::new("monitoring", "agent"), extended, kind).unwrap()
}

#[test]
fn fields_with_a_counterpart_are_converted_and_the_rest_is_reported() {
    let made = made(&full(), SetKind::Advanced);
    let spec = &made.object["spec"];
    assert_eq!(
        spec["updateStrategy"],
        json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": "10%", "paused": true } })
    );
    assert_eq!(spec["burstReplicas"], 50);
    assert_eq!(
        spec["selector"],
        json!({ "matchLabels": { "app": "agent" } })
    );
    assert_eq!(
        made.object["metadata"]["annotations"],
        json!({
            "team": "edge",
            "apps.openyurt.io/ramp-up": "5",
            "apps.openyurt.io/failure-threshold": "0",
            "apps.openyurt.io/waves":
                r#"[{"name":"canary","selector":{"matchLabels":{"pool":"canary"}},"soak":"30m"}]"#,
        })
    );
    let lost = made.lost.join("\n");
    for name in [
        "reconcileFrequency",
        "slowStartIntervalDuration",
        "maxPodSchedulerFailure",
        "canary.replicas: 2",
        "canary.noRestartsDuration: 5m",
        "canary.autoFail.maxRestarts: 5",
    ] {
        assert!(lost.contains(name), "{name}: {lost}");
    }
}

#[test]
fn conversion_to_a_native_daemonset_uses_annotations() {
    let made = made(&full(), SetKind::Native);
    let annotations = &made.object["metadata"]["annotations"];
    assert_eq!(made.object["apiVersion"], "apps/v1");
    assert_eq!(
        annotations["apps.openyurt.io/update-strategy"],
        "AdvancedRollingUpdate"
    );
    assert_eq!(annotations["apps.openyurt.io/max-unavailable"], "10%");
    assert_eq!(annotations["apps.openyurt.io/paused"], "true");
    assert_eq!(annotations["apps.openyurt.io/ramp-up"], "5");
    assert!(made.lost.join("\n").contains("burstReplicas: 50"));
}

#[test]
fn a_canary_without_nodes_is_reported_with_the_wave_to_write() {
    let canary = json!({ "replicas": 1, "validationMode": "manual", "autoPause": { "enabled": false },
                         "autoFail": { "enabled": false } });
    let made = made(&extended(json!({ "canary": canary })), SetKind::Advanced);
    assert_eq!(
        made.object["metadata"]["annotations"],
        json!({ "team": "edge" })
    );
    // The approval is for the wave after the canary.
    let waves = r#"[{"name":"canary","selector":"yurt-ds-canary=true"},{"approve":"manual","name":"field","selector":{}}]"#;
    assert!(made.lost[0].ends_with(waves), "{:?}", made.lost);
}

#[test]
fn an_extended_daemonset_is_named_by_its_kind() {
    for name in [
        "eds/agent",
        "ExtendedDaemonSet/agent",
        "extendeddaemonsets.datadoghq.com/agent",
    ] {
        assert_eq!(typed(name), Some("agent"), "{name}");
    }
    assert_eq!(typed("eds/monitoring/agent"), Some("monitoring/agent"));
    assert_eq!(typed("ads/agent"), None);
}
