//! Carries out what was decided: one request per action, each with a precondition, a deadline and a counter.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};

use super::lease::Leadership;
use super::metrics::{Metrics, Withheld};
use crate::api;
use crate::client::{CallError, Failure, WRITE_DEADLINE, within};
use crate::core::names::{CONDITION_MESSAGE_PREFIX, CONTROLLER, POD_NEED_UPGRADE};
use crate::core::{Action, PodRef};
use crate::index::SetKey;

/// Requests under way at once: a batch of 250 deletions takes a fraction of a second, and the API server hardly notices.
const PARALLEL: usize = 16;

/// Writes to the API server, while this replica leads.
#[derive(Clone)]
pub(super) struct Writer {
    client: Client,
    metrics: Arc<Metrics>,
    leadership: watch::Receiver<Leadership>,
    slots: Arc<Semaphore>,
}

/// Why a write did not succeed.
#[derive(Debug)]
pub(super) enum Refusal {
    /// It was not sent: this replica does not lead (any more).
    NotLeader,
    /// It was sent.
    Failed(CallError),
}

impl Writer {
    /// A writer that stops when leadership does.
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
        }
    }

    /// Whether a write may begin now.
    pub(super) fn may_write(&self) -> bool {
        self.leadership.borrow().may_write()
    }

    /// Carries out one action on a pod of `key`.
    pub(super) async fn act(
        &self,
        key: &SetKey,
        action: &Action,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let pods: Api<api::Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        match action {
            Action::Delete(pod) => {
                let parameters = DeleteParams {
                    preconditions: Some(Preconditions {
                        uid: Some(pod.uid.to_string()),
                        resource_version: Some(pod.resource_version.to_string()),
                    }),
                    ..DeleteParams::default()
                };
                self.send("delete", "pods", async {
                    pods.delete(pod.name.as_str(), &parameters).await.map(drop)
                })
                .await
            }
            Action::SetNeedUpgrade {
                pod,
                needed,
                revision,
                flips,
            } => {
                let mut condition = json!({
                    "type": POD_NEED_UPGRADE,
                    "status": if *needed { "True" } else { "False" },
                    "message": format!("{CONDITION_MESSAGE_PREFIX}{revision}"),
                });
                if *flips {
                    condition["lastTransitionTime"] = json!(now_on_the_wire(now));
                }
                self.patch_conditions(&pods, pod, vec![condition]).await
            }
            Action::RemoveConditions { pod, types } => {
                let removals = types
                    .iter()
                    .map(|kind| json!({ "$patch": "delete", "type": kind }));
                self.patch_conditions(&pods, pod, removals.collect()).await
            }
        }
    }

    /// Changes these conditions and no other, of this pod and no other of its name.
    async fn patch_conditions(
        &self,
        pods: &Api<api::Pod>,
        pod: &PodRef,
        conditions: Vec<Value>,
    ) -> Result<(), Refusal> {
        let patch = json!({ "metadata": { "uid": pod.uid.as_str() }, "status": { "conditions": conditions } });
        let call = async {
            pods.patch_status(pod.name.as_str(), &parameters(), &Patch::Strategic(&patch))
                .await
                .map(drop)
        };
        self.send("patch", "pods/status", call).await
    }

    /// Changes these conditions of the DaemonSet and no other.
    pub(super) async fn patch_set(
        &self,
        key: &SetKey,
        uid: &str,
        conditions: Vec<Value>,
    ) -> Result<(), Refusal> {
        let sets: Api<api::DaemonSet> = Api::namespaced(self.client.clone(), &key.namespace);
        let patch = json!({ "metadata": { "uid": uid }, "status": { "conditions": conditions } });
        let call = async {
            sets.patch_status(&key.name, &parameters(), &Patch::Strategic(&patch))
                .await
                .map(drop)
        };
        self.send("patch", "daemonsets/status", call).await
    }

    async fn send(
        &self,
        verb: &'static str,
        resource: &'static str,
        call: impl Future<Output = kube::Result<()>>,
    ) -> Result<(), Refusal> {
        let _slot = self.slots.acquire().await;
        if !self.may_write() {
            self.metrics.withheld(Withheld::NotLeader, 1);
            return Err(Refusal::NotLeader);
        }
        let result = within(WRITE_DEADLINE, call).await;
        self.metrics.write(
            verb,
            resource,
            result.as_ref().copied().map_err(CallError::failure),
        );
        result.map_err(Refusal::Failed)
    }
}

impl Refusal {
    /// What it means; `None` when nothing was sent.
    pub(super) fn failure(&self) -> Option<Failure> {
        match self {
            Self::NotLeader => None,
            Self::Failed(error) => Some(error.failure()),
        }
    }
}

fn parameters() -> PatchParams {
    PatchParams {
        field_manager: Some(CONTROLLER.to_owned()),
        ..PatchParams::default()
    }
}

/// An instant as the API has it: whole seconds.
pub(super) fn now_on_the_wire(
    now: Timestamp,
) -> k8s_openapi::apimachinery::pkg::apis::meta::v1::Time {
    k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now)
}
