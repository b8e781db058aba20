//! Tests of the lifecycle of objects: defaults, generation counters, finalizers, quotas, namespaces.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Pod, ResourceQuota};
use k8s_openapi::api::events::v1::Event as NewEvent;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use serde_json::{Value, json};

use super::{cluster, config_map, pod};

fn of<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

fn code<T: std::fmt::Debug>(result: Result<T, kube::Error>) -> u16 {
    match result.unwrap_err() {
        kube::Error::Api(status) => status.code,
        other => panic!("{other}"),
    }
}

fn daemon_set() -> DaemonSet {
    of(json!({
        "metadata": { "name": "d" },
        "spec": {
            "selector": { "matchLabels": { "a": "b" } },
            "template": {
                "metadata": { "labels": { "a": "b" } },
                "spec": { "containers": [{ "name": "c", "image": "i" }] },
            },
        },
    }))
}

#[tokio::test(start_paused = true)]
async fn generations_count_changes_of_the_spec_and_of_the_template() {
    let api: Api<DaemonSet> = Api::namespaced(cluster().client("test"), "default");
    let made = api
        .create(&PostParams::default(), &daemon_set())
        .await
        .unwrap();
    const KEY: &str = crate::core::names::TEMPLATE_GENERATION_ANNOTATION;
    let generations = |object: &DaemonSet| {
        let template = object.metadata.annotations.as_ref().unwrap()[KEY].clone();
        (object.metadata.generation.unwrap(), template)
    };
    assert_eq!(generations(&made), (1, "1".to_owned()));
    let strategy = made.spec.unwrap().update_strategy.unwrap();
    assert_eq!(strategy.type_.as_deref(), Some("RollingUpdate"));
    let steps = [
        (json!({ "metadata": { "labels": { "x": "y" } } }), (1, "1")),
        (json!({ "spec": { "minReadySeconds": 5 } }), (2, "1")),
        (
            json!({ "spec": { "template": { "spec": { "hostNetwork": true } } } }),
            (3, "2"),
        ),
        (
            json!({ "metadata": { "annotations": { KEY: "9" } } }),
            (3, "2"),
        ),
        (
            json!({ "metadata": { "annotations": { KEY: null } } }),
            (3, "2"),
        ),
    ];
    for (patch, (generation, template)) in steps {
        let patched = api
            .patch("d", &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .unwrap();
        assert_eq!(
            generations(&patched),
            (generation, template.to_owned()),
            "{patch}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_patch_that_changes_nothing_writes_nothing() {
    let api: Api<ConfigMap> = Api::namespaced(cluster().client("test"), "default");
    let made = api
        .create(&PostParams::default(), &config_map("a"))
        .await
        .unwrap();
    let same = Patch::Strategic(json!({ "metadata": { "labels": { "app": "a" } } }));
    let patched = api
        .patch("a", &PatchParams::default(), &same)
        .await
        .unwrap();
    assert_eq!(
        patched.metadata.resource_version,
        made.metadata.resource_version
    );
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_responds_and_writes_nothing() {
    let api: Api<ConfigMap> = Api::namespaced(cluster().client("test"), "default");
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    api.create(&dry, &config_map("a")).await.unwrap();
    assert!(api.get_opt("a").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_delete_with_the_uid_of_another_object_is_a_conflict() {
    let api: Api<ConfigMap> = Api::namespaced(cluster().client("test"), "default");
    let made = api
        .create(&PostParams::default(), &config_map("a"))
        .await
        .unwrap();
    let with = |uid: Option<String>| DeleteParams {
        preconditions: Some(Preconditions {
            uid,
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    assert_eq!(
        code(api.delete("a", &with(Some("other".to_owned()))).await),
        409
    );
    api.delete("a", &with(made.metadata.uid)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_object_with_a_finalizer_is_deleted_when_the_finalizer_is_removed() {
    let api: Api<DaemonSet> = Api::namespaced(cluster().client("test"), "default");
    api.create(&PostParams::default(), &daemon_set())
        .await
        .unwrap();
    api.delete("d", &DeleteParams::foreground()).await.unwrap();
    let waiting = api.get("d").await.unwrap().metadata;
    assert_eq!(waiting.finalizers.unwrap(), ["foregroundDeletion"]);
    assert!(waiting.deletion_timestamp.is_some());
    let patch = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    api.patch("d", &PatchParams::default(), &patch)
        .await
        .unwrap();
    assert!(api.get_opt("d").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_grace_period_can_only_become_shorter() {
    let api: Api<Pod> = Api::namespaced(cluster().client("test"), "default");
    api.create(&PostParams::default(), &pod("p", Some("n")))
        .await
        .unwrap();
    for (asked, have) in [(20, 20), (40, 20), (5, 5)] {
        api.delete("p", &DeleteParams::default().grace_period(asked))
            .await
            .unwrap();
        let metadata = api.get("p").await.unwrap().metadata;
        assert_eq!(metadata.deletion_grace_period_seconds, Some(have));
    }
    let due = api
        .get("p")
        .await
        .unwrap()
        .metadata
        .deletion_timestamp
        .unwrap();
    assert_eq!(due.0.to_string(), "2026-01-01T00:00:05Z");
}

#[tokio::test(start_paused = true)]
async fn a_quota_rejects_the_pod_beyond_its_limit() {
    let client = cluster().client("test");
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let quotas: Api<ResourceQuota> = Api::namespaced(client, "default");
    let quota = of(json!({ "metadata": { "name": "q" }, "spec": { "hard": { "pods": 1 } } }));
    quotas.create(&PostParams::default(), &quota).await.unwrap();
    pods.create(&PostParams::default(), &pod("a", None))
        .await
        .unwrap();
    let used = quotas.get("q").await.unwrap().status.unwrap().used.unwrap();
    assert_eq!(used["pods"].0, "1");
    assert_eq!(
        code(pods.create(&PostParams::default(), &pod("b", None)).await),
        403
    );
    pods.delete("a", &DeleteParams::default()).await.unwrap();
    pods.create(&PostParams::default(), &pod("b", None))
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_deleted_namespace_deletes_its_objects_and_waits_for_its_pods() {
    let client = cluster().client("test");
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = of(json!({ "metadata": { "name": "edge" } }));
    namespaces
        .create(&PostParams::default(), &namespace)
        .await
        .unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "edge");
    let pods: Api<Pod> = Api::namespaced(client, "edge");
    maps.create(&PostParams::default(), &config_map("a"))
        .await
        .unwrap();
    pods.create(&PostParams::default(), &pod("p", Some("n")))
        .await
        .unwrap();
    namespaces
        .delete("edge", &DeleteParams::default())
        .await
        .unwrap();
    assert!(maps.get_opt("a").await.unwrap().is_none());
    let phase = namespaces.get("edge").await.unwrap().status.unwrap().phase;
    assert_eq!(phase.as_deref(), Some("Terminating"));
    assert_eq!(
        code(maps.create(&PostParams::default(), &config_map("b")).await),
        403
    );
    pods.delete("p", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    assert!(namespaces.get_opt("edge").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn an_event_is_the_same_object_in_both_groups() {
    let client = cluster().client("test");
    let new: Api<NewEvent> = Api::namespaced(client.clone(), "default");
    let event = of(json!({
        "metadata": { "name": "e" },
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "c",
        "reportingInstance": "c-1",
        "action": "Act",
        "reason": "Started",
        "type": "Normal",
        "note": "it started",
        "regarding": { "kind": "Pod", "name": "p", "namespace": "default" },
    }));
    new.create(&PostParams::default(), &event).await.unwrap();
    let core: Api<Event> = Api::namespaced(client, "default");
    let seen = core.get("e").await.unwrap();
    assert_eq!(seen.message.as_deref(), Some("it started"));
    assert_eq!(seen.involved_object.name.as_deref(), Some("p"));
    assert_eq!(
        new.get("e").await.unwrap().note.as_deref(),
        Some("it started")
    );
}
