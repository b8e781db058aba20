//! Writes for Advanced DaemonSets (`apps.kruise.io`): revisions, status, and pod ownership.
//!
//! For native DaemonSets, Kubernetes' DaemonSet controller makes these writes. [`crate::core::engine::manage`] decides which pods
//! to create and delete.

mod revisions;

use kube::Resource as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::apply::{WriteError, Writer, patched, read, requests};
use super::owner::DaemonSetOwner;
use super::surge::manifest::controlled_by_advanced;
use crate::core::PodRef;
use crate::core::names::{CONTROLLER, IN_PLACE_UPDATE_READY, KRUISE_VERSION};
use crate::index::{Orphan, PodController, SetKey, StatusNumbers};
use crate::k8s;
use crate::k8s::client::Failure;
use crate::k8s::client::conditions::patch_conditions;

pub(super) use revisions::{RevisionSync, RevisionsRead};

/// Name of the status subresource of Advanced DaemonSets in RBAC roles.
pub(super) const STATUS: &str = "daemonsets/status.apps.kruise.io";

impl Writer {
    /// Writes the status fields that this controller owns. Fields and conditions of other writers are kept (server-side apply).
    pub(super) async fn apply_status(
        &self,
        key: &SetKey,
        uid: &str,
        conditions: &[Value],
        numbers: &StatusNumbers,
    ) -> Result<Option<u64>, WriteError> {
        let parameters = PatchParams {
            force: true,
            ..patched()
        };
        let body = json!({
            "apiVersion": KRUISE_VERSION,
            "kind": "DaemonSet",
            "metadata": { "name": &*key.name, "namespace": &*key.namespace, "uid": uid },
            "status": status(conditions, numbers),
        });
        let requests = requests::<k8s::AdvancedDaemonSet>(&key.namespace);
        let patch = Patch::Apply(&body);
        let request = requests.patch_subresource("status", &key.name, &parameters, &patch);
        self.send_for_version("patch", STATUS, request).await
    }

    /// Makes the DaemonSet the controller of a pod (`controller: true`). Replaces a ControllerRevision that controls the pod, as in
    /// surge pods.
    ///
    /// Reads the DaemonSet from the API server first. Writes nothing if the DaemonSet no longer exists.
    pub(super) async fn adopt(
        &self,
        key: &SetKey,
        set: &DaemonSetOwner,
        Orphan { pod, revision }: &Orphan,
    ) -> Result<(), WriteError> {
        let path = k8s::AdvancedDaemonSet::url_path(&(), Some(&key.namespace));
        let resource = "daemonsets.apps.kruise.io";
        let found: Value = read(self.client(), path, resource, &key.name).await?;
        let meta = &found["metadata"];
        if meta["uid"] != *set.uid || !meta["deletionTimestamp"].is_null() {
            return Ok(());
        }
        let given_up = revision
            .iter()
            .map(|uid| json!({ "$patch": "delete", "uid": uid }));
        let owner = controlled_by_advanced(&key.name, &set.uid);
        let owners: Vec<Value> = given_up.chain([owner]).collect();
        let patch = json!({ "metadata": {
            "uid": pod.uid.to_string(),
            "resourceVersion": pod.resource_version.to_string(),
            "ownerReferences": owners,
        } });
        self.patch_meta(key, pod.name.as_str(), &Patch::Strategic(patch))
            .await
    }

    /// Removes the DaemonSet, or one of its ControllerRevisions, from the owner references of a pod that the selector no longer
    /// matches.
    ///
    /// Returns true if the pod was released, and false if the pod is gone or need not be released.
    pub(super) async fn release(
        &self,
        key: &SetKey,
        set: &DaemonSetOwner,
        name: &str,
        uid: &str,
    ) -> Result<bool, WriteError> {
        let path = k8s::Pod::url_path(&(), Some(&key.namespace));
        let pod: k8s::Pod = match read(self.client(), path, "pods", name).await {
            Ok(pod) => pod,
            Err(refusal) if refusal.failure() == Some(Failure::Gone) => return Ok(false),
            Err(refusal) => return Err(refusal),
        };
        let meta = &pod.metadata;
        let is_it = meta.uid.as_deref() == Some(uid) && meta.deletion_timestamp.is_none();
        let is_ours = PodController::new(meta, &set.uid).is_some();
        let label = |key: &str| meta.labels.as_ref()?.get(key).map(String::as_str);
        let is_selected = set
            .selector
            .as_ref()
            .is_none_or(|selector| selector.matches(label));
        if !is_it || !is_ours || is_selected {
            return Ok(false);
        }
        let owners = meta.owner_references.iter().flatten();
        let own = owners.filter(|owner| owner.uid == set.uid || owner.controller == Some(true));
        let removed = own.map(|owner| json!({ "$patch": "delete", "uid": owner.uid }));
        let patch = json!({ "metadata": {
            "uid": uid,
            "ownerReferences": removed.collect::<Vec<Value>>(),
        } });
        self.patch_meta(key, name, &Patch::Strategic(patch)).await?;
        Ok(true)
    }

    async fn patch_meta(
        &self,
        key: &SetKey,
        name: &str,
        patch: &Patch<Value>,
    ) -> Result<(), WriteError> {
        let parameters = patched();
        let request = requests::<k8s::Pod>(&key.namespace).patch(name, &parameters, patch);
        self.send_briefly("patch", "pods", request).await
    }

    /// Opens or closes the readiness gate `InPlaceUpdateReady` of a pod: sets its condition to `True` or `False`. While the gate is
    /// closed, the pod is not Ready. The gate must be closed before containers of the pod change.
    ///
    /// Returns the pod as the API server stored it.
    pub(super) async fn set_in_place_gate(
        &self,
        key: &SetKey,
        pod: &PodRef,
        open: bool,
        now: Value,
    ) -> Result<String, WriteError> {
        let mut condition = json!({
            "type": IN_PLACE_UPDATE_READY,
            "status": if open { "True" } else { "False" },
            "reason": if open { "" } else { "StartInPlaceUpdate" },
            "message": "",
        });
        condition["lastTransitionTime"] = now;
        let requests = requests::<k8s::Pod>(&key.namespace);
        let uid = pod.uid.to_string();
        let name = pod.name.as_str();
        let request = patch_conditions(&requests, name, &uid, CONTROLLER, vec![condition]);
        self.send("patch", "pods/status", request).await
    }

    /// Deletes a ControllerRevision. Succeeds if the revision is already gone.
    ///
    /// `parameters` can contain a UID as a precondition. Then no other revision of the same name is deleted.
    pub(super) async fn delete_revision(
        &self,
        namespace: &str,
        name: &str,
        parameters: &DeleteParams,
    ) -> Result<(), WriteError> {
        let request = requests::<k8s::ControllerRevision>(namespace).delete(name, parameters);
        let resource = "controllerrevisions";
        match self.send_briefly("delete", resource, request).await {
            Err(refusal) if refusal.failure() == Some(Failure::Gone) => Ok(()),
            answer => answer,
        }
    }
}

fn status(conditions: &[Value], numbers: &StatusNumbers) -> Value {
    let counts = &numbers.counts;
    let mut status = json!({
        "observedGeneration": numbers.observed,
        "desiredNumberScheduled": counts.desired,
        "currentNumberScheduled": counts.current,
        "numberMisscheduled": counts.misscheduled,
        "numberReady": counts.ready,
        "numberAvailable": counts.available,
        "numberUnavailable": counts.unavailable,
        "updatedNumberScheduled": counts.updated,
        "conditions": conditions,
    });
    if let Some(revision) = &numbers.revision {
        status["updateRevision"] = json!(revision.as_str());
        // The API version v1alpha1 stores the hash of the current revision in this field.
        status["daemonSetHash"] = json!(revision.as_str());
    }
    if numbers.collisions > 0 {
        status["collisionCount"] = json!(numbers.collisions);
    }
    status
}
