//! Makes pods beside old ones (`max-surge`) and hands them over to their DaemonSet.
//!
//! What such a pod is: `core::surge` says why, [`manifest`] how it looks. The template is that of the ControllerRevision,
//! read live once per batch and taken as it is, so that fields that are new to us survive; the native controller makes
//! its pods from the same.

mod manifest;

use futures::future::join_all;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::Request;
use kube::{Client, Resource as _};
use serde_json::{Value, json};

use super::apply::{Refusal, Writer, requests};
use crate::api;
use crate::client::{CallError, WRITE_DEADLINE, within};
use crate::core::names::CONTROLLER;
use crate::core::revision::TemplateFingerprint;
use crate::core::{NodeName, PodRef, Revision};
use crate::index::{SetKey, SetRecord};
use manifest::{Origin, manifest};

/// A pod that is to be made.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// On which node.
    pub(super) node: NodeName,
    /// Beside which pod.
    pub(super) beside: PodRef,
    /// Of which revision.
    pub(super) revision: Revision,
}

/// The DaemonSet that it is for, as the decision saw it.
#[derive(Clone, Debug)]
pub(super) struct For {
    uid: String,
    template_generation: Option<String>,
    /// The template that is expected in the revision; `None` where the revision decides alone.
    template: Option<TemplateFingerprint>,
}

impl For {
    /// What is to be known of a DaemonSet.
    pub(super) fn of(set: &SetRecord) -> Self {
        Self {
            uid: set.uid.to_string(),
            template_generation: set.template_generation().map(str::to_owned),
            template: (!set.trusts_greatest()).then_some(set.template),
        }
    }
}

/// What became of one of them: the pod as the API server has it, where its answer can be read.
pub(super) type Made = Result<Option<api::Pod>, Refusal>;

impl Writer {
    /// Makes these pods of one revision; the answers are in the same order. None are made, and there are no answers, when
    /// the revision turns out to be another one than was decided upon.
    ///
    /// # Errors
    /// When the revision cannot be read.
    pub(super) async fn surge(
        &self,
        key: &SetKey,
        set: &For,
        wanted: &[Wanted],
    ) -> Result<Vec<Made>, Refusal> {
        let Some(revision) = wanted.first().map(|wanted| &wanted.revision) else {
            return Ok(Vec::new());
        };
        let name = format!("{}-{revision}", key.name);
        let read = read(self.client(), key, &name).await;
        let object = read.map_err(|error| Refusal::Failed {
            verb: "get",
            resource: "controllerrevisions",
            error,
        })?;
        let Some(origin) = Origin::read(&object, set, key, revision) else {
            return Ok(Vec::new());
        };
        Ok(join_all(wanted.iter().map(|one| self.make(&origin, one))).await)
    }

    async fn make(&self, origin: &Origin<'_>, wanted: &Wanted) -> Made {
        let parameters = PostParams {
            field_manager: Some(CONTROLLER.to_owned()),
            ..PostParams::default()
        };
        let pod = manifest(origin, &wanted.node, &wanted.beside.uid);
        let request = requests::<api::Pod>(origin.namespace());
        let request = request.create(&parameters, pod.to_string().into_bytes());
        let answer = self.send("create", "pods", request).await?;
        Ok(serde_json::from_str(&answer).ok())
    }

    /// Makes the DaemonSet the only owner of a pod that was made beside another one.
    pub(super) async fn hand_over(
        &self,
        key: &SetKey,
        set: &For,
        pod: &PodRef,
    ) -> Result<(), Refusal> {
        let parameters = PatchParams {
            field_manager: Some(CONTROLLER.to_owned()),
            ..PatchParams::default()
        };
        let patch = json!({ "metadata": {
            "uid": pod.uid.as_str(),
            "ownerReferences": [manifest::controlled_by("DaemonSet", &key.name, &set.uid)],
        } });
        let request = requests::<api::Pod>(&key.namespace);
        let request = request.patch(pod.name.as_str(), &parameters, &Patch::Merge(&patch));
        self.send("patch", "pods", request).await.map(drop)
    }
}

/// Reads a ControllerRevision whole.
async fn read(client: &Client, key: &SetKey, name: &str) -> Result<Value, CallError> {
    let path = api::ControllerRevision::url_path(&(), Some(&key.namespace));
    let request = Request::new(path).get(name, &Default::default());
    let request = request.map_err(kube::Error::BuildRequest);
    within(WRITE_DEADLINE, async {
        client.request::<Value>(request?).await
    })
    .await
}
