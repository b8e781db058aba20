//! DaemonSets to roll out. All have the same image and a pod on every node.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::apps::v1::DaemonSetStatus;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use yurt_ds::core::names::ANNOTATION_PREFIX;

use super::kind::Kind;
use super::plane::wait_within;

/// Number of writes that are sent in parallel.
const WRITES: usize = 32;

/// All DaemonSets of one kind in the benchmark.
pub(crate) struct Sets {
    pub(crate) kind: Kind,
    api: Api<DynamicObject>,
    count: usize,
}

impl Sets {
    /// Creates this many DaemonSets with the strategy `OnDelete`. Advanced DaemonSets get pods only after a controller has started.
    pub(crate) async fn create(client: &Client, kind: Kind, count: usize) -> Result<Self> {
        let sets = Self {
            kind,
            api: kind.api(client).await?,
            count,
        };
        let results = stream::iter(0..count).map(|number| {
            let api = sets.api.clone();
            async move {
                let set = daemonset(kind, &kind.name(number));
                api.create(&PostParams::default(), &set).await.map(drop)
            }
        });
        results.buffer_unordered(WRITES).try_collect::<()>().await?;
        Ok(sets)
    }

    /// Waits until every DaemonSet has an available pod on this many nodes.
    pub(crate) async fn wait_for_pods(&self, nodes: usize) -> Result<()> {
        self.wait("the pods", self.count * nodes, |statuses| {
            statuses
                .iter()
                .all(|status| status.number_available.unwrap_or(0) as usize == nodes)
        })
        .await
    }

    /// Sets a strategy with which yurt-ds rolls out all DaemonSets, 10 % of the nodes at a time.
    pub(crate) async fn take_over(&self) -> Result<()> {
        self.patch(&self.kind.rolled_by_us()).await
    }

    /// Sets or removes yurt-ds annotations on all DaemonSets.
    pub(crate) async fn annotate(&self, settings: &[(&str, Option<&str>)]) -> Result<()> {
        let setting = |(name, value): &(&str, Option<&str>)| {
            (format!("{ANNOTATION_PREFIX}{name}"), json!(value))
        };
        let annotations: serde_json::Map<_, _> = settings.iter().map(setting).collect();
        self.patch(&json!({"metadata": {"annotations": annotations}}))
            .await
    }

    /// Changes the image of all DaemonSets.
    pub(crate) async fn set_image(&self, version: &str) -> Result<()> {
        let container = json!({"name": "main", "image": image(version)});
        self.patch(&json!({"spec": {"template": {"spec": {"containers": [container]}}}}))
            .await
    }

    pub(crate) async fn patch(&self, patch: &Value) -> Result<()> {
        let results = stream::iter(0..self.count).map(|number| {
            let api = self.api.clone();
            async move {
                let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
                api.patch(&self.kind.name(number), &parameters, &patch)
                    .await
                    .map(drop)
            }
        });
        results.buffer_unordered(WRITES).try_collect::<()>().await?;
        Ok(())
    }

    /// Removes all conditions of the DaemonSets, so that later checks can find only new conditions.
    pub(crate) async fn forget_reports(&self) -> Result<()> {
        let patch = json!({"status": {"conditions": null}});
        let results = stream::iter(0..self.count).map(|number| {
            let (api, patch) = (self.api.clone(), &patch);
            async move {
                let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
                api.patch_status(&self.kind.name(number), &parameters, &patch)
                    .await
                    .map(drop)
            }
        });
        results.buffer_unordered(WRITES).try_collect::<()>().await?;
        Ok(())
    }

    /// Waits until yurt-ds reports a complete rollout for every DaemonSet.
    pub(crate) async fn wait_for_reports(&self) -> Result<()> {
        self.wait("the reports", self.count, |statuses| {
            statuses.iter().all(|status| says(status, "True"))
        })
        .await
    }

    /// Rolls out a new image and waits until yurt-ds has reported the start and the end of every rollout.
    pub(crate) async fn roll_out(&self, version: &str, nodes: usize) -> Result<()> {
        self.set_image(version).await?;
        let mut begun = BTreeSet::new();
        self.wait("the rollout", self.count * nodes, |statuses| {
            let rolling = statuses.iter().enumerate();
            begun.extend(rolling.filter_map(|(n, status)| says(status, "False").then_some(n)));
            begun.len() == self.count && statuses.iter().all(|status| says(status, "True"))
        })
        .await
    }

    /// Waits until every rollout is complete, with an available new pod on this many nodes.
    pub(crate) async fn wait_for_new_pods(&self, nodes: usize) -> Result<()> {
        self.wait("the new pods", self.count * nodes, |statuses| {
            statuses.iter().all(|status| {
                let updated = status.updated_number_scheduled.unwrap_or(0) as usize;
                let available = status.number_available.unwrap_or(0) as usize;
                says(status, "True") && updated == nodes && available == nodes
            })
        })
        .await
    }

    /// Rolls out a new image with the native controller and waits until the rollout is complete.
    pub(crate) async fn roll_out_natively(&self, version: &str, nodes: usize) -> Result<()> {
        self.set_image(version).await?;
        let generations = self.api.list_metadata(&ListParams::default()).await?;
        let generation = |n: usize| generations.items.get(n)?.metadata.generation;
        self.wait("the native rollout", self.count * nodes, |statuses| {
            statuses.iter().enumerate().all(|(n, status)| {
                let seen = status.observed_generation == generation(n);
                let updated = status.updated_number_scheduled.unwrap_or(0) as usize;
                let available = status.number_available.unwrap_or(0) as usize;
                seen && updated == nodes && available == nodes
            })
        })
        .await
    }

    /// Waits until `reached` is true for the statuses of all DaemonSets, sorted by name. `pods` is the number of pods to change,
    /// which determines the time limit.
    async fn wait(
        &self,
        what: &str,
        pods: usize,
        mut reached: impl FnMut(&[DaemonSetStatus]) -> bool,
    ) -> Result<()> {
        let limit = Duration::from_secs(600) + Duration::from_millis(60) * u32::try_from(pods)?;
        let pause =
            Duration::from_millis(20) + Duration::from_millis(2) * u32::try_from(self.count)?;
        let reached = std::cell::RefCell::new(&mut reached);
        wait_within(limit, pause, what, || async {
            let sets = self.api.list(&ListParams::default()).await?.items;
            let statuses = sets.into_iter().map(status).collect::<Result<Vec<_>>>()?;
            Ok((reached.borrow_mut())(&statuses))
        })
        .await
    }
}

fn says(status: &DaemonSetStatus, wanted: &str) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    conditions.any(|condition| condition.type_ == "RolloutComplete" && condition.status == wanted)
}

pub(crate) fn image(version: &str) -> String {
    format!("agent:{version}")
}

/// Returns the status of a DaemonSet. The fields that the benchmark uses are the same in both kinds.
fn status(mut set: DynamicObject) -> Result<DaemonSetStatus> {
    Ok(match set.data["status"].take() {
        Value::Null => DaemonSetStatus::default(),
        status => serde_json::from_value(status)?,
    })
}

fn daemonset(kind: Kind, name: &str) -> DynamicObject {
    DynamicObject::new(name, &kind.resource()).data(json!({"spec": {
        "selector": {"matchLabels": {"app": name}}, "updateStrategy": {"type": "OnDelete"},
        "template": {"metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "main", "image": image("v1")}]}}}}))
}
