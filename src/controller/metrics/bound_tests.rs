//! Tests of the maximum number of metric series per DaemonSet, with extreme contents of DaemonSet and nodes.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::DaemonSet;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::rollouts::SERIES;
use super::*;
use crate::clock::Clock;
use crate::controller::{self, ControllerConfig, Kinds, WakeupBatching, lease};
use crate::k8s::client::Role;
use crate::serve::ReadinessHandle;
use crate::shutdown;
use crate::sim::kubelet::{Behaviour, FakeNodeSpec, KubeletOptions};
use crate::sim::world::{World, WorldSetup};

/// Maximum total size of a DaemonSet's series in bytes, with the longest names that Kubernetes allows.
const BYTES: usize = 20 << 10;

const PAGE: &str = include_str!("../../../docs/reference/metrics.md");

fn daemonset(name: &str, annotations: &Value) -> DaemonSet {
    let set = json!({
        "metadata": { "name": name, "annotations": annotations },
        "spec": {
            "selector": { "matchLabels": { "app": name } },
            "updateStrategy": { "type": "OnDelete" },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{ "name": "c", "image": "web:1" }] },
            },
        },
    });
    serde_json::from_value(set).unwrap()
}

/// Returns fifty waves, which is the maximum. Each has a unique name.
fn many_waves() -> String {
    let wave = |number| {
        let name = format!("wave-{number}-{}", "x".repeat(40));
        json!({ "name": name, "selector": "kubernetes.io/hostname=n2", "allowEmpty": true, "soak": "1m" })
    };
    Value::from_iter((0..50).map(wave)).to_string()
}

/// Returns a status with many conditions, each with a unique type and reason.
fn many_conditions() -> Value {
    let condition = |number| {
        let (kind, reason) = (format!("Condition{number}"), format!("Reason{number}"));
        let message = "yurt_ds_leader 1\n".repeat(200);
        json!({ "type": kind, "status": "True", "reason": reason, "message": message })
    };
    json!({ "status": { "conditions": Value::from_iter((0..60).map(condition)) } })
}

/// Returns the lines of a metrics page, by DaemonSet.
fn series(page: &str) -> BTreeMap<String, Vec<&str>> {
    let mut found: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for line in page.lines() {
        if let Some((_, rest)) = line.split_once("daemonset=\"") {
            let name = rest.split('"').next().unwrap_or_default();
            found.entry(name.to_owned()).or_default().push(line);
        }
    }
    found
}

#[tokio::test(start_paused = true)]
async fn no_annotation_status_or_node_adds_series_beyond_the_documented_number() {
    assert!(
        PAGE.contains(&format!("at most {SERIES} series")),
        "{SERIES}"
    );
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    let sim = World::start(WorldSetup {
        clock: clock.clone(),
        seed: 1,
        kubelets: KubeletOptions::default(),
        controller: false,
        advanced: false,
    });
    let nodes = ["n1", "n2", "n3", "n4"].map(FakeNodeSpec::named);
    sim.kubelets.add_nodes(nodes.into()).await.unwrap();
    let metrics = Metrics::new();
    let (_end, ending) = shutdown::channel();
    let settings = lease::Settings {
        namespace: "default".to_owned(),
        identity: "one".to_owned(),
        duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        renew_every: Duration::from_secs(5),
    };
    let running = controller::run(
        ControllerConfig {
            client: sim.cluster.client(&Role::Controller.user_agent()),
            clock,
            settings,
            elects: true,
            metrics: metrics.clone(),
            readiness: ReadinessHandle::default(),
            gathering: WakeupBatching::default(),
            kinds: Kinds {
                native: true,
                advanced: false,
            },
            notifications: None,
            traces: None,
        },
        ending,
    );
    tokio::spawn(running);
    let mode = |more: Value| {
        let mut all = json!({ "apps.openyurt.io/update-strategy": "AdvancedRollingUpdate" });
        for (key, value) in more.as_object().into_iter().flatten() {
            all[format!("apps.openyurt.io/{key}")] = value.clone();
        }
        all
    };
    let plain = json!({ "max-unavailable": "1", "failure-threshold": "0", "paused": "false" });
    let worst = [
        (
            "waves",
            mode(json!({ "waves": many_waves(), "max-unavailable": "1" })),
        ),
        ("crashes", mode(plain)),
        (
            "invalid",
            mode(json!({ "waves": "x".repeat(100_000), "selector": "\u{7}", "hold": "\n" })),
        ),
    ];
    let sets: Api<DaemonSet> = Api::namespaced(sim.cluster.client("test"), "default");
    let params = PatchParams::default();
    for (name, annotations) in &worst {
        let set = daemonset(name, annotations);
        sets.create(&PostParams::default(), &set).await.unwrap();
        let patch = Patch::Strategic(many_conditions());
        sets.patch_status(name, &params, &patch).await.unwrap();
    }
    let crashing = Behaviour {
        crash_after: Some(Duration::from_secs(1)),
        ..Behaviour::default()
    };
    sim.kubelets.behaviour("web:2", crashing).await.unwrap();
    let mut most = BTreeMap::new();
    for image in ["web:1", "web:2", "web:3"] {
        let containers = json!([{ "name": "c", "image": image }]);
        let patch = json!({ "spec": { "template": { "spec": { "containers": containers } } } });
        for (name, _) in &worst {
            sets.patch(name, &params, &Patch::Strategic(&patch))
                .await
                .unwrap();
        }
        for _ in 0..60 {
            tokio::time::sleep(Duration::from_secs(10)).await;
            let page = metrics.encode();
            for (name, lines) in series(&page) {
                assert!(lines.len() <= SERIES, "{name}: {lines:?}");
                let most = most.entry(name).or_insert(0);
                *most = lines.len().max(*most);
            }
        }
    }
    // No DaemonSet in this test is paused, so the series about a pause is missing.
    assert_eq!(most.get("waves"), Some(&(SERIES - 1)), "{most:?}");
    assert_eq!(most.get("crashes"), Some(&(SERIES - 1)), "{most:?}");
    assert_eq!(most.get("invalid"), Some(&1), "{most:?}");
}

#[test]
fn series_with_the_longest_names_stay_below_the_documented_size() {
    let metrics = Metrics::new();
    let key = SetKey::of_kind(
        crate::core::SetKind::Advanced,
        &"n".repeat(63),
        &"d".repeat(253),
    );
    metrics.record_plan(
        key,
        &super::tests::paused_plan(),
        crate::core::Phase::Invalid,
    );
    let page = metrics.encode();
    let series = series(&page).into_values().next().unwrap();
    assert_eq!(series.len(), SERIES);
    let bytes: usize = series.iter().map(|line| line.len() + 1).sum();
    assert!(bytes <= BYTES, "{bytes}");
    assert!(PAGE.contains(&format!("{} KiB", BYTES >> 10)));
}
