//! Differences between native DaemonSets (`apps/v1`) and Advanced ones (`apps.kruise.io`) for a measurement.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use yurt_ds::core::names::ANNOTATION_PREFIX;

use super::plane::wait_within;

/// Kind of the DaemonSets that are rolled out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Native,
    Advanced,
}

impl Kind {
    pub(crate) fn resource(self) -> ApiResource {
        let (group, version) = match self {
            Self::Native => ("apps", "v1"),
            Self::Advanced => ("apps.kruise.io", "v1beta1"),
        };
        ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, "DaemonSet"))
    }

    /// Returns the API for objects of this kind. Installs the CRD of Advanced DaemonSets first if it is missing.
    pub(crate) async fn api(self, client: &Client) -> Result<Api<DynamicObject>> {
        let api = Api::default_namespaced_with(client.clone(), &self.resource());
        if self == Self::Advanced {
            define(client, &api).await?;
        }
        Ok(api)
    }

    /// Returns a prefix for output lines about this kind.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Native => "yurt-ds",
            Self::Advanced => "advanced",
        }
    }

    /// Returns the flags of a controller for this kind: the default ones, or `--controllers` to serve only Advanced DaemonSets.
    pub(crate) fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Native => &[], // default deployment
            Self::Advanced => &["--controllers=advanced"],
        }
    }

    /// Returns the name of a DaemonSet, which is also the label `app` of its pods.
    pub(crate) fn name(self, number: usize) -> String {
        match self {
            Self::Native => format!("agent-{number:03}"),
            Self::Advanced => format!("advanced-{number:03}"),
        }
    }

    /// Returns a patch with which yurt-ds rolls out a DaemonSet, 10 % of the nodes at a time.
    pub(crate) fn rolled_by_us(self) -> Value {
        match self {
            Self::Native => {
                let annotation = |name: &str| format!("{ANNOTATION_PREFIX}{name}");
                let annotations = json!({
                    annotation("update-strategy"): "AdvancedRollingUpdate",
                    annotation("max-unavailable"): "10%",
                });
                let strategy = json!({"type": "OnDelete", "rollingUpdate": null});
                json!({"metadata": {"annotations": annotations}, "spec": {"updateStrategy": strategy}})
            }
            Self::Advanced => {
                let rolling = json!({"maxUnavailable": "10%"});
                let strategy = json!({"type": "RollingUpdate", "rollingUpdate": rolling});
                json!({"spec": {"updateStrategy": strategy}})
            }
        }
    }
}

/// Installs the Advanced DaemonSet CRD and waits until it is served.
async fn define(client: &Client, served: &Api<DynamicObject>) -> Result<()> {
    let definition: CustomResourceDefinition = serde_saphyr::from_str(&yurt_ds::manifests::crd()?)?;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    if definitions.get_opt(&definition.name_any()).await?.is_some() {
        return Ok(());
    }
    let parameters = PostParams::default();
    definitions.create(&parameters, &definition).await?;
    let (limit, pause) = (Duration::from_secs(60), Duration::from_millis(200));
    wait_within(limit, pause, "the definition is served", || async {
        Ok(served.list(&ListParams::default()).await.is_ok())
    })
    .await
}
