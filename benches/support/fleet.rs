//! One node with thirty pods in OTA mode, each of a separate DaemonSet.

use std::collections::BTreeMap;

use anyhow::Result;
use futures::future::try_join_all;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use yurt_ds::clock::Clock;
use yurt_ds::sim::kubelet::{FakeNodeSpec, KubeletOptions, Kubelets};

use super::plane::{Plane, wait};
use super::process::Process;

/// Name of the only node.
pub(crate) const NODE: &str = "edge";
/// Number of pods on the node.
pub(crate) const PODS: usize = 30;

/// Node with pods of many DaemonSets.
pub(crate) struct Fleet {
    sets: Api<DaemonSet>,
    pods: Api<Pod>,
    _kubelets: Kubelets,
}

impl Fleet {
    /// Creates the node and the DaemonSets, and waits for the pods.
    pub(crate) async fn start(client: &Client) -> Result<Self> {
        let kubelets = Kubelets::start(client.clone(), Clock::System, KubeletOptions::default());
        kubelets.add_node(FakeNodeSpec::named(NODE)).await?;
        let fleet = Self {
            sets: Api::default_namespaced(client.clone()),
            pods: Api::default_namespaced(client.clone()),
            _kubelets: kubelets,
        };
        let sets = (0..PODS).map(daemonset).collect::<Vec<_>>();
        let parameters = PostParams::default();
        try_join_all(sets.iter().map(|set| fleet.sets.create(&parameters, set))).await?;
        fleet.settle().await?;
        Ok(fleet)
    }

    /// Waits until every DaemonSet has a Ready pod.
    pub(crate) async fn settle(&self) -> Result<()> {
        wait("the pods", || async {
            let pods = self.pods.list(&ListParams::default()).await?.items;
            let ready = pods.iter().filter(|pod| {
                pod.metadata.deletion_timestamp.is_none()
                    && condition(pod, "Ready").is_some_and(|(status, _)| status == "True")
            });
            Ok(pods.len() == PODS && ready.count() == PODS)
        })
        .await
    }

    /// Changes the image of all DaemonSets. Then runs a controller until it has announced the new version on every pod.
    ///
    /// The controller ends before the measurement, so that only the node owner changes pods.
    pub(crate) async fn announce(&self, plane: &Plane, version: &str) -> Result<()> {
        let before = self.announced().await?;
        let image = format!("registry.example.com/edge/agent:{version}");
        let containers = json!([{ "name": "agent", "image": image }]);
        let patch = Patch::Strategic(
            json!({ "spec": { "template": { "spec": { "containers": containers } } } }),
        );
        let parameters = PatchParams::default();
        let names = (0..PODS).map(name).collect::<Vec<_>>();
        let patches = names.iter();
        try_join_all(patches.map(|name| self.sets.patch(name, &parameters, &patch))).await?;
        let arguments = [
            "controller",
            "--listen",
            "127.0.0.1:0",
            "--leader-elect=false",
        ];
        let _controller = Process::start(&arguments, &plane.kubeconfig())?;
        wait("the announcement", || async {
            let now = self.announced().await?;
            let is_new = |(pod, hash): (&String, &String)| before.get(pod) != Some(hash);
            Ok(now.len() == PODS && now.iter().all(is_new))
        })
        .await
    }

    /// Returns the message of `PodNeedUpgrade` by pod, for pods with a new version.
    async fn announced(&self) -> Result<BTreeMap<String, String>> {
        let pods = self.pods.list(&ListParams::default()).await?.items;
        let announced = pods.into_iter().filter_map(|pod| {
            let (status, message) = condition(&pod, "PodNeedUpgrade")?;
            (status == "True").then_some((pod.metadata.name?, message))
        });
        Ok(announced.collect())
    }

    pub(crate) async fn names(&self) -> Result<Vec<String>> {
        let pods = self.pods.list(&ListParams::default()).await?.items;
        Ok(pods
            .into_iter()
            .filter_map(|pod| pod.metadata.name)
            .collect())
    }

    /// Changes an annotation of every pod.
    pub(crate) async fn touch(&self, names: &[String], round: usize) -> Result<()> {
        let patch = json!({ "metadata": { "annotations": { "round": round.to_string() } } });
        let (patch, parameters) = (Patch::Merge(patch), PatchParams::default());
        for name in names {
            self.pods.patch(name, &parameters, &patch).await?;
        }
        Ok(())
    }
}

fn condition(pod: &Pod, kind: &str) -> Option<(String, String)> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let found = conditions.iter().find(|found| found.type_ == kind)?;
    Some((
        found.status.clone(),
        found.message.clone().unwrap_or_default(),
    ))
}

pub(crate) fn name(number: usize) -> String {
    format!("agent-{number:02}")
}

/// Returns a DaemonSet with a typical template for device agents: settings, probes, resources.
fn daemonset(number: usize) -> DaemonSet {
    let name = name(number);
    let settings = (0..SETTINGS).map(|setting| {
        json!({ "name": format!("SETTING_{setting:02}"), "value": format!("value of {setting:02} for {name}") })
    });
    let container = json!({
        "name": "agent",
        "image": "registry.example.com/edge/agent:v1",
        "args": ["--config", "/etc/agent/config.yaml", "--listen", ":8080"],
        "env": settings.collect::<Vec<Value>>(),
        "ports": [{ "name": "http", "containerPort": 8080 }],
        "resources": { "requests": { "cpu": "10m", "memory": "32Mi" }, "limits": { "memory": "128Mi" } },
        "readinessProbe": { "httpGet": { "path": "/ready", "port": 8080 }, "periodSeconds": 10 },
        "securityContext": { "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true },
    });
    let set = json!({
        "metadata": {
            "name": name,
            "annotations": { "apps.openyurt.io/update-strategy": "OTA" },
        },
        "spec": {
            "selector": { "matchLabels": { "app": name } },
            "updateStrategy": { "type": "OnDelete" },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": {
                    "containers": [container],
                },
            },
        },
    });
    serde_json::from_value(set).expect("a DaemonSet")
}

/// Number of settings in the template. With this number, the list of all pods has a size of about 170 KB.
const SETTINGS: usize = 2;
