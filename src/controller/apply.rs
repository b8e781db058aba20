//! Sends the actions of a decision to the API server, one request per action. Each request has a precondition and a deadline, and
//! is counted in the metrics.

use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{PartialObjectMeta, Request, request};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit, watch};

use super::in_place;
use super::lease::Leadership;
use super::metrics::{Metrics, SkipReason};
use super::owner::DaemonSetOwner;
use crate::core::names::{
    CONTROLLER, IN_PLACE_STATE, KRUISE_IN_PLACE_STATE, KRUISE_POD_READY, LIFECYCLE_STATE,
    LIFECYCLE_TIMESTAMP, POD_IMAGE_READY, POD_NEED_UPGRADE, PREPARING_DELETE, UNTOLERATED_TAINT,
};
use crate::core::{Action, GateWrite, InPlacePatch, PodRef, StaleImage, message_of};
use crate::index::SetKey;
use crate::k8s;
use crate::k8s::client::conditions::{image_request, patch_conditions, removal};
use crate::k8s::client::eviction::{eviction, refusal};
use crate::k8s::client::{CallError, Failure, WRITE_DEADLINE, within};

/// Maximum number of requests in flight. At this limit, 250 deletions take a fraction of a second and put little load on the
/// API server.
pub(super) const PARALLEL: usize = 64;

/// Maximum number of attempts to update a pod of an Advanced DaemonSet in place, as in Kruise. An attempt fails with a conflict if
/// the kubelet writes to the pod between its last read and the update.
const CONFLICTS: u32 = 5;

/// Name of the status subresource of native DaemonSets in RBAC roles.
pub(super) const STATUS: &str = "daemonsets/status";

/// `Accept` header that requests only the metadata of an object in the response. The API server supports it since Kubernetes
/// 1.15.
const BRIEFLY: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// Maximum number of complete templates in memory. A template can have a megabyte, and comparing and writing it takes several
/// megabytes.
const WHOLE_TEMPLATES: usize = 1;

/// Sender of writes, which sends only while this replica leads.
#[derive(Clone)]
pub(super) struct Writer {
    client: Client,
    metrics: Arc<Metrics>,
    leadership: watch::Receiver<Leadership>,
    slots: Arc<Semaphore>,
    whole_templates: Arc<Semaphore>,
}

/// Reason why a write failed.
#[derive(Debug)]
pub(super) enum WriteError {
    /// The write was not sent, because this replica doesn't lead or is shutting down.
    NotLeader,
    /// The write was sent and failed.
    Failed {
        verb: &'static str,
        resource: &'static str,
        /// Error response, or the reason why there is no response.
        error: CallError,
    },
}

impl Writer {
    /// Creates a writer that sends nothing after leadership ends.
    pub(super) fn new(
        client: Client,
        metrics: Arc<Metrics>,
        leadership: watch::Receiver<Leadership>,
    ) -> Self {
        Self {
            client,
            metrics,
            leadership,
            slots: Arc::new(Semaphore::new(PARALLEL)),
            whole_templates: Arc::new(Semaphore::new(WHOLE_TEMPLATES)),
        }
    }

    /// Waits for the permit to hold a complete template in memory. Never returns `None`, because the semaphore is never closed.
    pub(super) async fn whole_template(&self) -> Option<SemaphorePermit<'_>> {
        self.whole_templates.acquire().await.ok()
    }

    /// Returns true if writes may be sent now.
    pub(super) fn may_write(&self) -> bool {
        self.leadership.borrow().may_write()
    }

    /// Stops sending new requests. Requests in flight continue.
    pub(super) fn close(&self) {
        self.slots.close();
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Carries out one action on a pod of the DaemonSet `key`, except for the creation of surge pods ([`Self::surge`]).
    pub(super) async fn act(
        &self,
        key: &SetKey,
        set: &DaemonSetOwner,
        action: &Action,
        now: Timestamp,
    ) -> Result<(), WriteError> {
        match action {
            Action::Delete(pod) => self.delete(key, pod).await,
            Action::Evict(pod) => self.evict(key, pod).await,
            Action::UpdateInPlace { pod, patch } => self.renew(key, set, pod, patch, now).await,
            Action::Mark {
                pod,
                preparing,
                gate,
            } => {
                if let Some(gate) = gate {
                    self.set_gate(key, pod, gate, now).await?;
                }
                match preparing {
                    Some(preparing) => self.set_preparing(key, pod, *preparing, now).await,
                    None => Ok(()),
                }
            }
            // Only deletes the old pod that a surge pod replaces. The caller then makes the DaemonSet the owner of the surge pod.
            Action::DeleteAfterSurge {
                pod, evict: true, ..
            } => self.evict(key, pod).await,
            Action::DeleteAfterSurge { pod, .. } => self.delete(key, pod).await,
            Action::TransferOwnership(pod) => self.transfer_ownership(key, set, pod).await,
            Action::Surge { .. } => Ok(()),
            Action::SetNeedUpgrade {
                pod,
                needed,
                revision,
                flips,
                repelled,
                stale_image,
            } => {
                let mut condition = json!({
                    "type": POD_NEED_UPGRADE,
                    "status": if *needed { "True" } else { "False" },
                    "reason": if *repelled { UNTOLERATED_TAINT } else { "" },
                    "message": message_of(revision.as_str()),
                });
                if *flips {
                    condition["lastTransitionTime"] = json!(on_the_wire(now));
                }
                let image = stale_image.map(|stale| match stale {
                    StaleImage::Drop => removal(POD_IMAGE_READY),
                    // The status remains `False`, so the old transition time is kept.
                    StaleImage::AskAgain => image_request(revision.as_str()),
                });
                let conditions = [condition].into_iter().chain(image).collect();
                self.patch_pod(key, pod, conditions).await
            }
            Action::AskForImages {
                pod,
                revision,
                anew,
            } => {
                let mut request = image_request(revision.as_str());
                if *anew {
                    request["lastTransitionTime"] = json!(on_the_wire(now));
                    request["lastProbeTime"] = Value::Null;
                }
                self.patch_pod(key, pod, vec![request]).await
            }
            Action::RemoveConditions { pod, types } => {
                let remove = |kind: &&str| removal(kind);
                self.patch_pod(key, pod, types.iter().map(remove).collect())
                    .await
            }
        }
    }

    /// Writes the condition of Kruise's readiness gate [`KRUISE_POD_READY`], if the pod is unchanged since the decision.
    ///
    /// Other programs store lists in the message of this condition. The precondition on the resource version prevents the write
    /// from overwriting a list that another program has just changed.
    async fn set_gate(
        &self,
        key: &SetKey,
        pod: &PodRef,
        gate: &GateWrite,
        now: Timestamp,
    ) -> Result<(), WriteError> {
        let mut condition = json!({
            "type": KRUISE_POD_READY,
            "status": if gate.open { "True" } else { "False" },
            "message": gate.message,
        });
        if gate.flips {
            condition["lastTransitionTime"] = json!(on_the_wire(now));
        }
        let version = &pod.resource_version.to_string();
        self.set_condition(key, pod, version, condition)
            .await
            .map(drop)
    }

    /// Sets or removes the pod's label `lifecycle.apps.kruise.io/state: PreparingDelete`, which announces the deletion to a hook.
    async fn set_preparing(
        &self,
        key: &SetKey,
        pod: &PodRef,
        preparing: bool,
        now: Timestamp,
    ) -> Result<(), WriteError> {
        let parameters = patched();
        let patch = json!({
            "metadata": {
                "uid": pod.uid.to_string(),
                "labels": { LIFECYCLE_STATE: preparing.then_some(PREPARING_DELETE) },
                "annotations": { LIFECYCLE_TIMESTAMP: preparing.then(|| on_the_wire(now)) },
            },
        });
        let request = requests::<k8s::Pod>(&key.namespace);
        let request = request.patch(pod.name.as_str(), &parameters, &Patch::Merge(&patch));
        self.send_briefly("patch", "pods", request).await
    }

    /// Deletes a pod if its UID and resource version are those of the decision.
    ///
    /// A newer pod of the same name is never deleted.
    async fn delete(&self, key: &SetKey, pod: &PodRef) -> Result<(), WriteError> {
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(pod.uid.to_string()),
                resource_version: pod.resource_version.precondition(),
            }),
            ..DeleteParams::default()
        };
        let request = requests::<k8s::Pod>(&key.namespace).delete(pod.name.as_str(), &parameters);
        self.send_briefly("delete", "pods", request).await
    }

    /// Evicts a pod if its UID and resource version are those of the decision.
    ///
    /// A newer pod of the same name is never evicted.
    async fn evict(&self, key: &SetKey, pod: &PodRef) -> Result<(), WriteError> {
        let request = eviction(&key.namespace, pod);
        self.send("create", "pods/eviction", request)
            .await
            .map(drop)
    }

    /// Updates a pod in place if its UID is the one of the decision. A newer pod of the same name is never updated.
    ///
    /// The resource version is a precondition, too. For a pod with a readiness gate, a conflict is retried with the newest version,
    /// because closing the gate makes the kubelet write to the pod.
    async fn renew(
        &self,
        key: &SetKey,
        set: &DaemonSetOwner,
        pod: &PodRef,
        patch: &InPlacePatch,
        now: Timestamp,
    ) -> Result<(), WriteError> {
        if !set.is_advanced() {
            return self
                .patch_in_place(key, pod, patch, IN_PLACE_STATE, now)
                .await;
        }
        let mut pod = pod.clone();
        if patch.gate == Some(true) {
            // Close the gate first: the pod gets no traffic while its containers change. Kruise does the same.
            let at = json!(on_the_wire(now));
            let shut = self.set_in_place_gate(key, &pod, false, at).await?;
            let shut: Option<k8s::Pod> = serde_json::from_str(&shut).ok();
            if let Some(version) = shut.and_then(|shut| shut.metadata.resource_version) {
                pod.resource_version = version.as_str().into();
            }
        }
        let mut tries = CONFLICTS;
        loop {
            let state = KRUISE_IN_PLACE_STATE;
            let answer = self.patch_in_place(key, &pod, patch, state, now).await;
            let Err(refusal) = &answer else { return answer };
            tries -= 1;
            if patch.gate.is_none() || tries == 0 || refusal.failure() != Some(Failure::Conflict) {
                return answer;
            }
            // When the gate closed, the kubelet wrote to the pod's status, so the resource version changed. Read the pod and try
            // again.
            let path = k8s::Pod::url_path(&(), Some(&key.namespace));
            let now: k8s::Pod = read(&self.client, path, "pods", pod.name.as_str()).await?;
            let meta = &now.metadata;
            if meta.uid.as_deref() != Some(&pod.uid.to_string())
                || meta.deletion_timestamp.is_some()
            {
                return answer;
            }
            pod.resource_version = meta.resource_version.as_deref().unwrap_or_default().into();
        }
    }

    /// Updates the pod in one write, without closing its readiness gate. `state` is the key of the annotation that records the
    /// update.
    async fn patch_in_place(
        &self,
        key: &SetKey,
        pod: &PodRef,
        patch: &InPlacePatch,
        state: &str,
        now: Timestamp,
    ) -> Result<(), WriteError> {
        let parameters = patched();
        let patch = Patch::Strategic(in_place::patch(pod, patch, state, now));
        let request = requests::<k8s::Pod>(&key.namespace);
        let request = request.patch(pod.name.as_str(), &parameters, &patch);
        self.send_briefly("patch", "pods", request).await
    }

    /// Creates a Job. Returns the Job as the API server stored it.
    pub(super) async fn create_job(
        &self,
        namespace: &str,
        job: &Value,
    ) -> Result<String, WriteError> {
        let parameters = posted();
        let body = job.to_string().into_bytes();
        let request = requests::<Job>(namespace).create(&parameters, body);
        self.send("create", "jobs", request).await
    }

    /// Deletes this Job, and never another one of the same name. The garbage collector deletes the Job's pods afterwards.
    pub(super) async fn delete_job(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> Result<(), WriteError> {
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: None,
            }),
            ..DeleteParams::background()
        };
        let request = requests::<Job>(namespace).delete(name, &parameters);
        self.send_briefly("delete", "jobs", request).await
    }

    /// Sets one condition of a pod, if the pod is unchanged since it was read. Returns the pod as the API server stored it.
    pub(super) async fn set_condition(
        &self,
        key: &SetKey,
        pod: &PodRef,
        version: &str,
        condition: Value,
    ) -> Result<String, WriteError> {
        let parameters = patched();
        let patch = json!({
            "metadata": { "uid": pod.uid.to_string(), "resourceVersion": version },
            "status": { "conditions": [condition] },
        });
        let patch = Patch::Strategic(&patch);
        let request = requests::<k8s::Pod>(&key.namespace);
        let request = request.patch_subresource("status", pod.name.as_str(), &parameters, &patch);
        self.send("patch", "pods/status", request).await
    }

    /// Changes only the given conditions of this pod.
    async fn patch_pod(
        &self,
        key: &SetKey,
        pod: &PodRef,
        conditions: Vec<Value>,
    ) -> Result<(), WriteError> {
        let requests = requests::<k8s::Pod>(&key.namespace);
        let uid = pod.uid.to_string();
        let name = pod.name.as_str();
        let request = patch_conditions(&requests, name, &uid, CONTROLLER, conditions);
        self.send_briefly("patch", "pods/status", request).await
    }

    /// Changes only the given conditions of the DaemonSet.
    pub(super) async fn patch_set(
        &self,
        key: &SetKey,
        uid: &str,
        conditions: Vec<Value>,
    ) -> Result<Option<u64>, WriteError> {
        let requests = requests::<k8s::DaemonSet>(&key.namespace);
        let request = patch_conditions(&requests, &key.name, uid, CONTROLLER, conditions);
        self.send_for_version("patch", STATUS, request).await
    }

    /// Sends a request. Returns the resource version of the written object; `None` if it is not a number.
    pub(super) async fn send_for_version(
        &self,
        verb: &'static str,
        resource: &'static str,
        request: Result<http::Request<Vec<u8>>, request::Error>,
    ) -> Result<Option<u64>, WriteError> {
        let answer = self.send_for_metadata(verb, resource, request).await?;
        let object: Option<PartialObjectMeta> = serde_json::from_str(&answer).ok();
        let version = object.and_then(|object| object.metadata.resource_version);
        Ok(version.and_then(|version| version.parse().ok()))
    }

    /// Sends a request and returns only its success or failure. The response contains only the object's metadata.
    pub(super) async fn send_briefly(
        &self,
        verb: &'static str,
        resource: &'static str,
        request: Result<http::Request<Vec<u8>>, request::Error>,
    ) -> Result<(), WriteError> {
        self.send_for_metadata(verb, resource, request)
            .await
            .map(drop)
    }

    /// Sends a request. Returns the metadata of the written object.
    pub(super) async fn send_for_metadata(
        &self,
        verb: &'static str,
        resource: &'static str,
        request: Result<http::Request<Vec<u8>>, request::Error>,
    ) -> Result<String, WriteError> {
        let request = request.map(|mut request| {
            let accept = http::HeaderValue::from_static(BRIEFLY);
            request.headers_mut().insert(http::header::ACCEPT, accept);
            request
        });
        self.send(verb, resource, request).await
    }

    /// Sends one request when fewer than [`PARALLEL`] are in flight, if this replica still leads.
    pub(super) async fn send(
        &self,
        verb: &'static str,
        resource: &'static str,
        request: Result<http::Request<Vec<u8>>, request::Error>,
    ) -> Result<String, WriteError> {
        let slot = self.slots.acquire().await;
        if slot.is_err() || !self.may_write() {
            self.metrics.withheld(SkipReason::NotLeader, 1);
            return Err(WriteError::NotLeader);
        }
        // The call takes nearly five kilobytes, and hundreds of calls may wait here. The box keeps them on the heap.
        let call = Box::pin(async {
            let request = request.map_err(kube::Error::BuildRequest)?;
            self.client.request_text(request).await
        });
        let result = within(WRITE_DEADLINE, call).await;
        let outcome = result.as_ref().map(drop).map_err(CallError::failure);
        self.metrics.write(verb, resource, outcome);
        result.map_err(|error| WriteError::Failed {
            verb,
            resource,
            error,
        })
    }
}

/// Reads an object with all its fields.
pub(super) async fn read<T: DeserializeOwned>(
    client: &Client,
    path: String,
    resource: &'static str,
    name: &str,
) -> Result<T, WriteError> {
    let request = Request::new(path).get(name, &Default::default());
    let request = request.map_err(kube::Error::BuildRequest);
    let read = within(WRITE_DEADLINE, async {
        client.request::<T>(request?).await
    });
    read.await.map_err(|error| WriteError::Failed {
        verb: "get",
        resource,
        error,
    })
}

/// Parameters for patches by this controller. They set its field manager.
pub(super) fn patched() -> PatchParams {
    PatchParams {
        field_manager: Some(CONTROLLER.to_owned()),
        ..PatchParams::default()
    }
}

/// Parameters for objects that this controller creates.
pub(super) fn posted() -> PostParams {
    PostParams {
        field_manager: Some(CONTROLLER.to_owned()),
        ..PostParams::default()
    }
}

/// Parameters for deleting an object only if it has this UID.
pub(super) fn deleted(uid: &str) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    }
}

/// Returns a builder for requests about objects of this kind in a namespace.
pub(super) fn requests<K: Resource<DynamicType = ()>>(namespace: &str) -> Request {
    Request::new(K::url_path(&(), Some(namespace)))
}

impl WriteError {
    /// Returns the rejection by a PodDisruptionBudget, if a PodDisruptionBudget caused the failure.
    pub(super) fn of_budget(&self) -> Option<crate::core::Refusal> {
        match self {
            Self::NotLeader => None,
            Self::Failed { error, .. } => refusal(error),
        }
    }

    /// Returns the kind of failure; `None`: the write was not sent.
    pub(super) fn failure(&self) -> Option<Failure> {
        match self {
            Self::NotLeader => None,
            Self::Failed { error, .. } => Some(error.failure()),
        }
    }
}

/// Converts a timestamp to the format of API objects, in whole seconds.
pub(super) fn on_the_wire(now: Timestamp) -> k8s_openapi::apimachinery::pkg::apis::meta::v1::Time {
    k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now)
}
