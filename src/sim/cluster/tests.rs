//! Tests of the embedded cluster with ordinary `kube` clients, in virtual time.

mod advanced;
mod apply;
mod away;
mod disruption;
mod life;
mod refusals;

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchParams};
use kube::runtime::watcher;
use serde_json::json;

use super::*;

fn cluster() -> Cluster {
    let epoch: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
    Cluster::new(ClusterOptions::new(Clock::starting_at(epoch), 1))
}

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({ "metadata": { "name": name, "labels": { "app": "a" } } }))
        .expect("a ConfigMap")
}

fn pod(name: &str, node: Option<&str>) -> Pod {
    serde_json::from_value(json!({
        "metadata": { "name": name, "labels": { "app": "a" } },
        "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "i:1" }] },
    }))
    .expect("a Pod")
}

#[tokio::test(start_paused = true)]
async fn an_object_is_created_read_patched_and_deleted() {
    let cluster = cluster();
    let api: Api<ConfigMap> = Api::namespaced(cluster.client("test"), "default");
    let made = api
        .create(&PostParams::default(), &config_map("a"))
        .await
        .unwrap();
    assert!(made.metadata.uid.is_some());
    assert_eq!(
        made.metadata.creation_timestamp.unwrap().0.to_string(),
        "2026-01-01T00:00:00Z"
    );
    let again = api
        .create(&PostParams::default(), &config_map("a"))
        .await
        .unwrap_err();
    assert!(matches!(again, kube::Error::Api(status) if status.is_already_exists()));
    let patch = Patch::Merge(json!({ "data": { "key": "value" } }));
    api.patch("a", &PatchParams::default(), &patch)
        .await
        .unwrap();
    assert_eq!(api.get("a").await.unwrap().data.unwrap()["key"], "value");
    api.delete("a", &DeleteParams::default()).await.unwrap();
    let gone = api.get("a").await.unwrap_err();
    assert!(matches!(gone, kube::Error::Api(status) if status.is_not_found()));
}

#[tokio::test(start_paused = true)]
async fn a_watch_replays_from_a_version_and_reports_objects_that_leave_its_selector() {
    let cluster = cluster();
    let api: Api<ConfigMap> = Api::namespaced(cluster.client("test"), "default");
    let since = api
        .list(&ListParams::default())
        .await
        .unwrap()
        .metadata
        .resource_version
        .unwrap();
    api.create(&PostParams::default(), &config_map("a"))
        .await
        .unwrap();
    let mut events = api
        .watch(&WatchParams::default().labels("app=a"), &since)
        .await
        .unwrap()
        .boxed();
    let patch = Patch::Merge(json!({ "metadata": { "labels": { "app": "b" } } }));
    api.patch("a", &PatchParams::default(), &patch)
        .await
        .unwrap();
    use kube::core::WatchEvent;
    assert!(matches!(
        events.try_next().await.unwrap(),
        Some(WatchEvent::Added(_))
    ));
    let Some(WatchEvent::Deleted(left)) = events.try_next().await.unwrap() else {
        panic!("an object that leaves the selector is told as deleted");
    };
    assert_eq!(left.metadata.labels.unwrap()["app"], "a");
}

#[tokio::test(start_paused = true)]
async fn a_watcher_survives_disconnection_and_compaction() {
    let cluster = cluster();
    let api: Api<ConfigMap> = Api::namespaced(cluster.client("test"), "default");
    let mut events = watcher(api.clone(), watcher::Config::default()).boxed();
    assert!(matches!(
        events.next().await.unwrap().unwrap(),
        watcher::Event::Init
    ));
    assert!(matches!(
        events.next().await.unwrap().unwrap(),
        watcher::Event::InitDone
    ));
    cluster.disconnect_watches();
    api.create(&PostParams::default(), &config_map("a"))
        .await
        .unwrap();
    api.delete("a", &DeleteParams::default()).await.unwrap();
    cluster.compact();
    api.create(&PostParams::default(), &config_map("b"))
        .await
        .unwrap();
    let seen = async {
        loop {
            if let Some(Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object))) =
                events.next().await
                && object.metadata.name.as_deref() == Some("b")
            {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), seen)
        .await
        .expect("the watcher starts over");
}

#[tokio::test(start_paused = true)]
async fn a_bound_pod_waits_for_its_kubelet_and_an_unbound_pod_is_deleted_at_once() {
    let cluster = cluster();
    let api: Api<Pod> = Api::namespaced(cluster.client("test"), "default");
    for (name, node) in [("bound", Some("n1")), ("unbound", None)] {
        api.create(&PostParams::default(), &pod(name, node))
            .await
            .unwrap();
        api.delete(name, &DeleteParams::default()).await.unwrap();
    }
    assert!(api.get_opt("unbound").await.unwrap().is_none());
    let waiting = api.get("bound").await.unwrap().metadata;
    assert_eq!(waiting.deletion_grace_period_seconds, Some(30));
    assert_eq!(
        waiting.deletion_timestamp.unwrap().0.to_string(),
        "2026-01-01T00:00:30Z"
    );
    api.delete("bound", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    assert!(api.get_opt("bound").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_write_with_a_lost_response_takes_effect() {
    let cluster = cluster();
    let api: Api<ConfigMap> = Api::namespaced(cluster.client("test"), "default");
    let guard = cluster.faults().add(|request| match request.verb.as_str() {
        "create" => Fault::ResetAfter,
        _ => Fault::Pass,
    });
    let lost = api.create(&PostParams::default(), &config_map("a")).await;
    assert!(lost.is_err());
    drop(guard);
    assert!(api.get_opt("a").await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn status_and_spec_are_written_separately() {
    let cluster = cluster();
    let api: Api<Node> = Api::all(cluster.client("test"));
    let node = serde_json::from_value(json!({ "metadata": { "name": "n1" } })).unwrap();
    api.create(&PostParams::default(), &node).await.unwrap();
    let patch = Patch::Strategic(json!({
        "spec": { "unschedulable": true },
        "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
    }));
    let patched = api
        .patch_status("n1", &PatchParams::default(), &patch)
        .await
        .unwrap();
    assert_eq!(patched.spec.unwrap_or_default().unschedulable, None);
    let patched = api
        .patch("n1", &PatchParams::default(), &patch)
        .await
        .unwrap();
    assert_eq!(patched.spec.unwrap().unschedulable, Some(true));
    assert_eq!(patched.status.unwrap().conditions.unwrap().len(), 1);
}
