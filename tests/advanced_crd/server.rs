//! API server on which the tests have installed the CRD, with a namespace for their objects.

use std::time::Duration;

use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

const NAMESPACE: &str = "advanced-crd";
/// Name of the CRD.
const DEFINITION: &str = "daemonsets.apps.kruise.io";
/// Number of polls, [`PAUSE`] apart.
const TRIES: usize = 600;
const PAUSE: Duration = Duration::from_millis(100);

/// API server of the tests.
pub(super) struct Server {
    client: Client,
    /// True if the tests have created the CRD. They then delete it at the end.
    is_new: bool,
}

fn resource(group: &str, version: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

/// Returns the CRD from the repository as JSON.
pub(super) fn definition() -> Value {
    let text = yurt_ds::manifests::crd().expect("the definition");
    serde_saphyr::from_str(&text).expect("YAML")
}

impl Server {
    /// Installs the CRD and creates an empty namespace.
    pub(super) async fn prepare(client: Client) -> Self {
        let mut server = Self {
            client,
            is_new: false,
        };
        let definitions = server.definitions();
        let found = definitions.get_opt(DEFINITION).await;
        server.is_new = found.expect("an answer").is_none();
        server.define(&definition()).await;
        let namespace = from(json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": { "name": NAMESPACE },
        }));
        let (namespaces, params) = (server.namespaces(), PostParams::default());
        let made = namespaces.create(&params, &namespace).await;
        made.expect("the namespace is new");
        server
    }

    /// Deletes the namespace and removes or restores the CRD.
    pub(super) async fn tidy_up(self) {
        let params = DeleteParams::default();
        for version in super::VERSIONS {
            for set in self
                .sets(version)
                .list(&Default::default())
                .await
                .expect("a list")
            {
                let name = set.name_any();
                let _gone = self.sets(version).delete(&name, &params).await;
            }
        }
        let _going = self.namespaces().delete(NAMESPACE, &params).await;
        if self.is_new {
            let _going = self.definitions().delete(DEFINITION, &params).await;
        }
    }

    fn definitions(&self) -> Api<DynamicObject> {
        let kind = resource("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        Api::all_with(self.client.clone(), &kind)
    }

    fn namespaces(&self) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &resource("", "v1", "Namespace"))
    }

    /// Returns an API for Advanced DaemonSets in this version.
    pub(super) fn sets(&self, version: &str) -> Api<DynamicObject> {
        let kind = resource("apps.kruise.io", version, "DaemonSet");
        Api::namespaced_with(self.client.clone(), NAMESPACE, &kind)
    }

    /// Applies this CRD and waits until the API server serves both versions.
    pub(super) async fn define(&self, definition: &Value) {
        let params = PatchParams::apply("yurt-ds-suite").force();
        let patch = Patch::Apply(definition);
        let applied = self.definitions().patch(DEFINITION, &params, &patch).await;
        applied.expect("the API server takes the definition");
        for _ in 0..TRIES {
            let mut served = 0;
            for version in super::VERSIONS {
                let listed = self.sets(version).list(&Default::default()).await;
                served += usize::from(listed.is_ok());
            }
            if served == super::VERSIONS.len() {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
        panic!("{DEFINITION} is not served");
    }

    /// Creates a DaemonSet in this version. A dry run stores nothing.
    pub(super) async fn create(
        &self,
        version: &str,
        set: &Value,
        dry_run: bool,
    ) -> Result<Value, String> {
        let mut set = set.clone();
        set["apiVersion"] = format!("apps.kruise.io/{version}").into();
        let params = PostParams {
            dry_run,
            ..PostParams::default()
        };
        let created = self.sets(version).create(&params, &from(set)).await;
        told(created)
    }

    pub(super) async fn get(&self, version: &str, name: &str) -> Value {
        told(self.sets(version).get(name).await).expect("it is there")
    }

    /// Applies a merge patch to a DaemonSet or to its status.
    pub(super) async fn merge(
        &self,
        version: &str,
        name: &str,
        status: bool,
        change: &Value,
    ) -> Result<Value, String> {
        let (api, params) = (self.sets(version), PatchParams::default());
        let patch = Patch::Merge(change);
        told(if status {
            api.patch_status(name, &params, &patch).await
        } else {
            api.patch(name, &params, &patch).await
        })
    }

    /// Applies a DaemonSet with server-side apply.
    pub(super) async fn apply(
        &self,
        version: &str,
        manager: &str,
        set: &Value,
    ) -> Result<Value, String> {
        let mut set = set.clone();
        set["apiVersion"] = format!("apps.kruise.io/{version}").into();
        let name = set["metadata"]["name"].as_str().expect("a name").to_owned();
        let params = PatchParams::apply(manager);
        told(
            self.sets(version)
                .patch(&name, &params, &Patch::Apply(&set))
                .await,
        )
    }

    pub(super) async fn replace(&self, version: &str, set: &Value) -> Result<Value, String> {
        let name = set["metadata"]["name"].as_str().expect("a name");
        let params = PostParams::default();
        told(
            self.sets(version)
                .replace(name, &params, &from(set.clone()))
                .await,
        )
    }

    /// Waits until `holds` returns true for a DaemonSet, read in this version.
    pub(super) async fn until(
        &self,
        version: &str,
        name: &str,
        holds: impl Fn(&Value) -> bool,
    ) -> Value {
        for _ in 0..TRIES {
            let set = self.get(version, name).await;
            if holds(&set) {
                return set;
            }
            tokio::time::sleep(PAUSE).await;
        }
        panic!("{name} never becomes what it should");
    }
}

fn from(value: Value) -> DynamicObject {
    serde_json::from_value(value).expect("an object")
}

fn told(answer: kube::Result<DynamicObject>) -> Result<Value, String> {
    match answer {
        Ok(object) => Ok(serde_json::to_value(object).expect("an object")),
        // Messages of older API servers also contain the type of the value. Remove it, so that one expected message fits all
        // versions.
        Err(kube::Error::Api(status)) => Err(status.message.replace("\"object\": ", "")),
        Err(other) => panic!("no answer: {other}"),
    }
}
