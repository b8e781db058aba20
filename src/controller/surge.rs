//! Makes pods beside old ones (`max-surge`) and hands them over to their DaemonSet.
//!
//! What such a pod is: `core::surge` says why, [`manifest()`] how it looks. The template is that of the ControllerRevision,
//! read live once per batch and taken as it is, so that fields that are new to us survive; the native controller makes
//! its pods from the same.

pub(super) mod manifest;

use futures::future::join_all;
use kube::Resource as _;
use kube::api::Patch;
use serde_json::{Value, json};

use super::apply::{PARALLEL, WriteError, Writer, deleted, patched, posted, read, requests};
use super::owner::DaemonSetOwner;
use crate::core::{Action, NodeName, PodRef, Revision};
use crate::index::SetKey;
use crate::k8s;
use crate::k8s::client::{CallError, Failure};
use manifest::{TemplateOrigin, manifest};

/// The pods that a batch of creations begins with; each batch without a refusal is followed by one of twice as many (Kubernetes,
/// `slowStartBatch`).
const FIRST_BATCH: usize = 1;
/// The same where the last ones of the revision were all made.
const FLOWING_BATCH: usize = 16;

/// Names that are tried for one pod: so often somebody may have taken its predecessor out of the DaemonSet.
const NAMES: usize = 5;

/// A pod that is to be made.
#[derive(Clone, Debug)]
pub(super) struct SurgeRequest {
    /// On which node.
    pub(super) node: NodeName,
    /// Beside which pod.
    pub(super) beside: PodRef,
    /// Of which revision.
    pub(super) revision: Revision,
}

impl SurgeRequest {
    /// What was decided.
    pub(super) fn action(&self) -> Action {
        Action::Surge {
            node: self.node.clone(),
            beside: self.beside.clone(),
            revision: self.revision.clone(),
        }
    }
}

/// What became of one of them: the pod as the API server has it, where its answer can be read.
pub(super) type SurgeResult = Result<Option<k8s::Pod>, WriteError>;

impl Writer {
    /// Makes these pods of one revision, whose ControllerRevision has this name; the answers are in the same order. None are made, and there are no answers, when
    /// the revision turns out to be another one than was decided upon.
    ///
    /// # Errors
    /// When the revision cannot be read.
    pub(super) async fn surge(
        &self,
        key: &SetKey,
        set: &DaemonSetOwner,
        name: &str,
        wanted: &[SurgeRequest],
    ) -> Result<Vec<SurgeResult>, WriteError> {
        let Some(revision) = wanted.first().map(|wanted| &wanted.revision) else {
            return Ok(Vec::new());
        };
        let path = k8s::ControllerRevision::url_path(&(), Some(&key.namespace));
        let object: Value = read(self.client(), path, "controllerrevisions", name).await?;
        let Some(origin) = TemplateOrigin::read(&object, set, key, revision) else {
            return Ok(Vec::new());
        };
        Ok(join_all(wanted.iter().map(|one| self.make(&origin, one))).await)
    }

    /// Makes pods of one revision of an Advanced DaemonSet on nodes that have none, in batches that grow; after a refusal no
    /// further one begins. The answers are in the order of `nodes`, and fewer then. The same of what is read as with
    /// [`surge`](Self::surge). `flows`: the last ones of this revision were all made, so the first batch is not a careful one.
    pub(super) async fn create_pods(
        &self,
        key: &SetKey,
        set: &DaemonSetOwner,
        name: &str,
        revision: &Revision,
        nodes: &[NodeName],
        flows: bool,
    ) -> Result<Vec<SurgeResult>, WriteError> {
        let path = k8s::ControllerRevision::url_path(&(), Some(&key.namespace));
        let object: Value = read(self.client(), path, "controllerrevisions", name).await?;
        let Some(origin) = TemplateOrigin::read(&object, set, key, revision) else {
            return Ok(Vec::new());
        };
        let first = if flows { FLOWING_BATCH } else { FIRST_BATCH };
        let (mut answers, mut batch) = (Vec::new(), first);
        while answers.len() < nodes.len() {
            let rest = &nodes[answers.len()..];
            let now = &rest[..batch.min(rest.len())];
            let made = now
                .iter()
                .map(|node| self.make_advanced(&origin, node, false));
            let made = join_all(made).await;
            let is_refused = made.iter().any(Result::is_err);
            answers.extend(made);
            if is_refused {
                break;
            }
            // More than can be under way would only wait, each with its pod in hand.
            batch = (batch * 2).min(PARALLEL);
        }
        Ok(answers)
    }

    /// Makes a pod of an Advanced DaemonSet; `whole`: all of it is wanted in the answer, not only its metadata.
    async fn make_advanced(
        &self,
        origin: &TemplateOrigin<'_>,
        node: &NodeName,
        whole: bool,
    ) -> SurgeResult {
        let parameters = posted();
        let pod = manifest::advanced_manifest(origin, node);
        let request = requests::<k8s::Pod>(origin.namespace());
        let request = request.create(&parameters, pod.to_string().into_bytes());
        let answer = if whole {
            self.send("create", "pods", request).await?
        } else {
            self.send_for_metadata("create", "pods", request).await?
        };
        let Ok(pod) = serde_json::from_str::<k8s::Pod>(&answer) else {
            return Ok(None);
        };
        if origin.owns(&pod) {
            return Ok(Some(pod));
        }
        // Nobody would ever find it again.
        let meta = &pod.metadata;
        if let (Some(name), Some(uid)) = (&meta.name, &meta.uid) {
            let request = requests::<k8s::Pod>(origin.namespace()).delete(name, &deleted(uid));
            self.send_briefly("delete", "pods", request).await?;
        }
        let said = "pods is invalid: metadata.labels: as it was admitted it does not match the selector of its DaemonSet, and was \
                    deleted; look for a webhook that changes labels or owners";
        let status = kube::core::Status::failure(said, "Invalid").with_code(422);
        Err(WriteError::Failed {
            verb: "create",
            resource: "pods",
            error: CallError::Kube(kube::Error::Api(status.boxed())),
        })
    }

    async fn make(&self, origin: &TemplateOrigin<'_>, wanted: &SurgeRequest) -> SurgeResult {
        let parameters = posted();
        if origin.is_advanced() {
            return self.make_advanced(origin, &wanted.node, true).await;
        }
        let mut taken = 0;
        loop {
            let name = origin.name(&wanted.beside.uid, taken);
            let pod = manifest(origin, &wanted.node, &name);
            let request = requests::<k8s::Pod>(origin.namespace());
            let request = request.create(&parameters, pod.to_string().into_bytes());
            let refusal = match self.send("create", "pods", request).await {
                Ok(answer) => return Ok(serde_json::from_str(&answer).ok()),
                Err(refusal) => refusal,
            };
            if refusal.failure() != Some(Failure::Conflict) {
                return Err(refusal);
            }
            // Somebody may have taken it out of the DaemonSet, to look at it: that one stays, and another is made.
            let path = k8s::Pod::url_path(&(), Some(origin.namespace()));
            match read(self.client(), path, "pods", &name).await {
                Ok(pod) if origin.owns(&pod) => return Ok(Some(pod)),
                Ok(_) => taken += 1,
                Err(_) => return Err(refusal),
            }
            if taken >= NAMES {
                return Err(refusal);
            }
        }
    }

    /// Makes the DaemonSet the only owner of a pod that was made beside another one.
    pub(super) async fn transfer_ownership(
        &self,
        key: &SetKey,
        set: &DaemonSetOwner,
        pod: &PodRef,
    ) -> Result<(), WriteError> {
        let parameters = patched();
        let patch = json!({ "metadata": {
            "uid": pod.uid.to_string(),
            "ownerReferences": [manifest::controlled_by("DaemonSet", &key.name, &set.uid)],
        } });
        let request = requests::<k8s::Pod>(&key.namespace);
        let request = request.patch(pod.name.as_str(), &parameters, &Patch::Merge(&patch));
        self.send("patch", "pods", request).await.map(drop)
    }
}
