//! Creates surge pods and makes their DaemonSet the owner. A surge pod starts while the old pod still runs (`max-surge`).
//!
//! `core::surge` explains surge pods, and [`manifest()`] builds them. The template of surge pods is read from the
//! ControllerRevision in the API server, once per batch, and used unchanged, so that unknown fields are kept. The native controller
//! creates pods from the same template.

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

/// Size of the first batch of created pods. After each batch without a failure, the size doubles (Kubernetes, `slowStartBatch`).
const FIRST_BATCH: usize = 1;
/// Size of the first batch if all pods of the last request for the revision were created.
const FLOWING_BATCH: usize = 16;

/// Maximum number of names tried for one surge pod. A name is taken if a user detached an earlier surge pod from the DaemonSet.
const NAMES: usize = 5;

/// Surge pod to be created.
#[derive(Clone, Debug)]
pub(super) struct SurgeRequest {
    pub(super) node: NodeName,
    /// Old pod on that node.
    pub(super) beside: PodRef,
    pub(super) revision: Revision,
}

impl SurgeRequest {
    /// Returns the action that the decision contained.
    pub(super) fn action(&self) -> Action {
        Action::Surge {
            node: self.node.clone(),
            beside: self.beside.clone(),
            revision: self.revision.clone(),
        }
    }
}

/// Result of creating one pod: the pod as the API server stored it, or `None` if the response is unreadable.
pub(super) type SurgeResult = Result<Option<k8s::Pod>, WriteError>;

impl Writer {
    /// Creates surge pods of one revision. `name` is the name of the ControllerRevision. Returns the results in the order of the
    /// requests.
    ///
    /// If the ControllerRevision has changed since the decision, creates nothing and returns no results.
    ///
    /// # Errors
    /// If the revision cannot be read.
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

    /// Creates pods of one revision of an Advanced DaemonSet on nodes without a pod, in growing batches.
    ///
    /// After a failure, no further batch starts. The results are in the order of `nodes`; after a failure, the last ones are
    /// missing. The revision is read as in [`surge`](Self::surge). If `flows` is true, the first batch is larger, because the API
    /// server accepted all pods of the last request.
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
            // A batch larger than [`PARALLEL`] would only wait in memory.
            batch = (batch * 2).min(PARALLEL);
        }
        Ok(answers)
    }

    /// Creates a pod of an Advanced DaemonSet. If `whole` is true, the response contains the whole pod, otherwise only its
    /// metadata.
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
        // A webhook changed the labels of the pod, and the DaemonSet no longer selects it. No watch would report the pod, so delete
        // it.
        let meta = &pod.metadata;
        if let (Some(name), Some(uid)) = (&meta.name, &meta.uid) {
            let request = requests::<k8s::Pod>(origin.namespace()).delete(name, &deleted(uid));
            self.send_briefly("delete", "pods", request).await?;
        }
        let message = "pods is invalid: metadata.labels: the admitted pod does not match the selector of its DaemonSet and was \
                    deleted. Look for a webhook that changes labels or owner references";
        let status = kube::core::Status::failure(message, "Invalid").with_code(422);
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
            // A pod of this name exists. If a user detached it from the DaemonSet for debugging, leave it alone and try the next
            // name.
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

    /// Makes the DaemonSet the only owner of a surge pod.
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
