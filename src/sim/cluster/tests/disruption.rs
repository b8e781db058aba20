//! Evictions with disruption budgets. The expected responses are those of Kubernetes 1.36.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, EvictParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{cluster, pod};
use crate::core::PodRef;
use crate::k8s::client::eviction::eviction;

fn of<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

/// Returns the status code and message of an expected error.
fn refusal<T: std::fmt::Debug>(result: Result<T, kube::Error>) -> (u16, String) {
    match result.unwrap_err() {
        kube::Error::Api(status) => {
            let details = status.details.as_ref();
            let cause = details.and_then(|details| details.causes.first());
            let said = cause.map_or(&status.message, |cause| &cause.message);
            (status.code, said.clone())
        }
        other => panic!("{other}"),
    }
}

fn code<T: std::fmt::Debug>(result: Result<T, kube::Error>) -> u16 {
    refusal(result).0
}

struct Stage {
    client: kube::Client,
    pods: Api<Pod>,
    budgets: Api<PodDisruptionBudget>,
}

impl Stage {
    /// Creates the pods `a`, `b` and `c` of a DaemonSet, all Ready.
    async fn set() -> Self {
        let client = cluster().client("test");
        let stage = Self {
            pods: Api::namespaced(client.clone(), "default"),
            budgets: Api::namespaced(client.clone(), "default"),
            client,
        };
        for name in ["a", "b", "c"] {
            let mut made = pod(name, Some("n"));
            made.metadata.owner_references = Some(vec![of(json!({
                "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": true,
            }))]);
            stage
                .pods
                .create(&PostParams::default(), &made)
                .await
                .unwrap();
            stage.turn(name, "True").await;
        }
        stage
    }

    async fn turn(&self, name: &str, ready: &str) {
        let patch = Patch::Merge(json!({ "status": {
            "phase": "Running",
            "conditions": [{ "type": "Ready", "status": ready }],
        } }));
        let params = PatchParams::default();
        let patched = self.pods.patch_status(name, &params, &patch);
        patched.await.unwrap();
    }

    async fn budget(&self, name: &str, mut spec: Value) {
        spec["selector"] = json!({ "matchLabels": { "app": "a" } });
        let budget = of(json!({ "metadata": { "name": name }, "spec": spec }));
        self.budgets
            .create(&PostParams::default(), &budget)
            .await
            .unwrap();
    }

    /// Returns the number of disruptions that budget `b` allows, and the reason in its condition.
    async fn allowed(&self) -> (i32, String) {
        let status = self.budgets.get("b").await.unwrap().status.unwrap();
        let mut conditions = status.conditions.into_iter().flatten();
        let condition = conditions.find(|condition| condition.type_ == "DisruptionAllowed");
        (status.disruptions_allowed, condition.unwrap().reason)
    }

    async fn evict(&self, name: &str) -> Result<(), kube::Error> {
        let evicted = self.pods.evict(name, &EvictParams::default()).await;
        evicted.map(drop)
    }
}

#[tokio::test(start_paused = true)]
async fn a_disruption_budget_rejects_the_eviction_that_would_violate_it() {
    let client = cluster().client("test");
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(client, "default");
    let ready = Patch::Merge(json!({ "status": {
        "phase": "Running",
        "conditions": [{ "type": "Ready", "status": "True" }],
    } }));
    for name in ["a", "b"] {
        pods.create(&PostParams::default(), &pod(name, Some("n")))
            .await
            .unwrap();
        pods.patch_status(name, &PatchParams::default(), &ready)
            .await
            .unwrap();
    }
    let budget = of(json!({
        "metadata": { "name": "b" },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "a" } } },
    }));
    budgets
        .create(&PostParams::default(), &budget)
        .await
        .unwrap();
    let allowed = async || {
        let status = budgets.get("b").await.unwrap().status.unwrap();
        status.disruptions_allowed
    };
    assert_eq!(allowed().await, 1);
    pods.evict("a", &EvictParams::default()).await.unwrap();
    assert_eq!(allowed().await, 0);
    assert!(
        pods.get("a")
            .await
            .unwrap()
            .metadata
            .deletion_timestamp
            .is_some()
    );
    assert_eq!(code(pods.evict("b", &EvictParams::default()).await), 429);
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_cannot_be_computed_allows_no_eviction() {
    for spec in [
        json!({ "maxUnavailable": 1 }),
        json!({ "minAvailable": "50%" }),
    ] {
        let stage = Stage::set().await;
        stage.budget("b", spec).await;
        assert_eq!(stage.allowed().await, (0, "SyncFailed".to_owned()));
        let (code, said) = refusal(stage.evict("a").await);
        assert_eq!(code, 429);
        assert_eq!(
            said,
            "The disruption budget b is still being processed by the server."
        );
    }
}

#[tokio::test(start_paused = true)]
async fn two_budgets_for_one_pod_are_an_error() {
    let stage = Stage::set().await;
    stage.budget("b", json!({ "minAvailable": 1 })).await;
    stage.budget("c", json!({ "minAvailable": 1 })).await;
    let (code, said) = refusal(stage.evict("a").await);
    assert_eq!(code, 500);
    assert!(said.contains("more than one PodDisruptionBudget"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn an_unready_pod_is_evicted_if_enough_others_are_healthy_or_the_policy_allows_it() {
    let stage = Stage::set().await;
    stage.budget("b", json!({ "minAvailable": 2 })).await;
    stage.turn("a", "False").await;
    assert_eq!(stage.allowed().await, (0, "InsufficientPods".to_owned()));
    assert_eq!(code(stage.evict("b").await), 429);
    stage.evict("a").await.unwrap();
    let lowered = Patch::Merge(json!({ "spec": { "minAvailable": 3 } }));
    let params = PatchParams::default();
    stage.budgets.patch("b", &params, &lowered).await.unwrap();
    stage.turn("b", "False").await;
    let (code, said) = refusal(stage.evict("b").await);
    assert_eq!(
        (code, &*said),
        (
            429,
            "The disruption budget b needs 3 healthy pods and has 1 currently"
        )
    );
    let always = Patch::Merge(json!({ "spec": { "unhealthyPodEvictionPolicy": "AlwaysAllow" } }));
    stage.budgets.patch("b", &params, &always).await.unwrap();
    stage.evict("b").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_eviction_with_an_old_version_fails_and_uses_the_budget_for_two_minutes() {
    let stage = Stage::set().await;
    stage.budget("b", json!({ "minAvailable": 2 })).await;
    let seen = stage.pods.get("a").await.unwrap();
    let reference = |version: &str| PodRef {
        name: "a".into(),
        uid: seen.metadata.uid.clone().unwrap().into(),
        resource_version: version.into(),
    };
    let ask = async |version: &str| {
        let request = eviction("default", &reference(version)).unwrap();
        stage.client.request_text(request).await
    };
    assert_eq!(code(ask("1").await), 409);
    assert_eq!(stage.allowed().await, (0, "InsufficientPods".to_owned()));
    let version = seen.metadata.resource_version.clone().unwrap();
    assert_eq!(code(ask(&version).await), 429);
    tokio::time::sleep(std::time::Duration::from_secs(121)).await;
    ask(&version).await.unwrap();
    let marked = stage.pods.get("a").await.unwrap().status.unwrap();
    let told = marked.conditions.unwrap();
    assert!(
        told.iter()
            .any(|condition| condition.type_ == "DisruptionTarget")
    );
}
