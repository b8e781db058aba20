//! Writes of the DaemonSet controller. Their responses update its caches.

use futures::future::join_all;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions,
    Request,
};
use kube::{Api, Client, Error, Resource as _};
use serde_json::{Value, json};

use crate::k8s::Pod;
use crate::sim::events::Recorder;

/// Write request of the controller.
#[derive(Clone, Debug)]
pub(super) enum DaemonSetWrite {
    /// Create this pod.
    NewPod { object: Value },
    /// Delete the pod with this UID.
    DropPod { name: String, uid: String },
    /// Patch the metadata of a pod.
    Pod { name: String, patch: Value },
    /// Create this ControllerRevision.
    NewRevision { object: Value },
    /// Patch a ControllerRevision.
    Revision { name: String, patch: Value },
    /// Delete a ControllerRevision.
    DropRevision { name: String },
    /// Patch the status of the DaemonSet.
    Status { patch: Value },
}

/// Effect of a write on the caches.
pub(super) enum NativeWriteAnswer {
    Pod(Box<Pod>),
    PodGone(String),
    Revision(Box<DynamicObject>),
    RevisionGone(String),
    Set(Box<DynamicObject>),
    /// The object is gone or was replaced. The watch is about to report this.
    Stale,
}

/// Sends the writes for one DaemonSet.
#[derive(Clone)]
pub(super) struct DaemonSetWriter {
    pub(super) client: Client,
    pub(super) namespace: String,
    pub(super) set: String,
    pub(super) recorder: Recorder,
}

/// Number of pods in the first group of creations. Further groups have 2, 4, … pods, so that an exhausted quota rejects few
/// requests.
const FIRST_GROUP: usize = 1;

impl DaemonSetWriter {
    /// Sends all writes. After a failed creation, no further pods are created.
    pub(super) async fn run(
        self,
        writes: Vec<DaemonSetWrite>,
    ) -> (Vec<NativeWriteAnswer>, Result<(), Error>) {
        let (new, other): (Vec<DaemonSetWrite>, Vec<DaemonSetWrite>) = writes
            .into_iter()
            .partition(|write| matches!(write, DaemonSetWrite::NewPod { .. }));
        let (mut answers, mut result) = (Vec::new(), Ok(()));
        let mut new = new.into_iter().peekable();
        let mut group = FIRST_GROUP;
        while result.is_ok() && new.peek().is_some() {
            let results = join_all(new.by_ref().take(group).map(|write| self.one(write))).await;
            collect(results, &mut answers, &mut result);
            group *= 2;
        }
        let results = join_all(other.into_iter().map(|write| self.one(write))).await;
        collect(results, &mut answers, &mut result);
        (answers, result)
    }

    async fn one(&self, write: DaemonSetWrite) -> Result<NativeWriteAnswer, Error> {
        let params = PatchParams::default();
        let answer = match write {
            DaemonSetWrite::NewPod { object } => return self.new_pod(object).await,
            DaemonSetWrite::DropPod { name, uid } => return self.drop_pod(name, uid).await,
            DaemonSetWrite::NewRevision { object } => return self.new_revision(object).await,
            DaemonSetWrite::Pod { name, patch } => {
                let patch = Patch::Strategic(patch);
                let patched = self.pods().patch(&name, &params, &patch).await;
                stale(patched)?.map(|pod| NativeWriteAnswer::Pod(Box::new(pod)))
            }
            DaemonSetWrite::Revision { name, patch } => {
                let patch = Patch::Strategic(patch);
                let patched = self.revisions().patch(&name, &params, &patch).await;
                stale(patched)?.map(|revision| NativeWriteAnswer::Revision(Box::new(revision)))
            }
            DaemonSetWrite::DropRevision { name } => {
                let params = DeleteParams::default();
                let deleted = self.revisions().delete(&name, &params).await;
                stale(deleted)?.map(|_| NativeWriteAnswer::RevisionGone(name))
            }
            DaemonSetWrite::Status { patch } => {
                let patch = Patch::Merge(patch);
                let sets = self.sets();
                let patched = sets.patch_status(&self.set, &params, &patch).await;
                stale(patched)?.map(|set| NativeWriteAnswer::Set(Box::new(set)))
            }
        };
        Ok(answer.unwrap_or(NativeWriteAnswer::Stale))
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn revisions(&self) -> Api<DynamicObject> {
        let resource = ApiResource::erase::<ControllerRevision>(&());
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    fn sets(&self) -> Api<DynamicObject> {
        let resource = ApiResource::erase::<DaemonSet>(&());
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    async fn new_pod(&self, object: Value) -> Result<NativeWriteAnswer, Error> {
        let url = Pod::url_path(&(), Some(&self.namespace));
        let body = object.to_string().into_bytes();
        let request = Request::new(url).create(&PostParams::default(), body);
        let request = request.map_err(Error::BuildRequest)?;
        match self.client.request::<Pod>(request).await {
            Ok(pod) => {
                let note = format!("Created pod: {}", pod.name());
                self.recorder
                    .record("Normal", "SuccessfulCreate", &note)
                    .await;
                Ok(NativeWriteAnswer::Pod(Box::new(pod)))
            }
            Err(error) => {
                let note = format!("Error creating: {}", message_of(&error));
                self.recorder.record("Warning", "FailedCreate", &note).await;
                Err(error)
            }
        }
    }

    async fn drop_pod(&self, name: String, uid: String) -> Result<NativeWriteAnswer, Error> {
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(uid),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match stale(self.pods().delete(&name, &params).await) {
            Ok(Some(deleted)) => {
                let note = format!("Deleted pod: {name}");
                self.recorder
                    .record("Normal", "SuccessfulDelete", &note)
                    .await;
                let going = deleted.left().filter(Pod::is_deleting);
                Ok(going.map_or(NativeWriteAnswer::PodGone(name), |pod| {
                    NativeWriteAnswer::Pod(Box::new(pod))
                }))
            }
            Ok(None) => Ok(NativeWriteAnswer::Stale),
            Err(error) => {
                let note = format!("Error deleting: {}", message_of(&error));
                self.recorder.record("Warning", "FailedDelete", &note).await;
                Err(error)
            }
        }
    }

    /// Creates a revision.
    ///
    /// If a revision with this name has different content, the hashes collide. The collision is counted in the status, so that the
    /// next attempt uses another name.
    async fn new_revision(&self, object: Value) -> Result<NativeWriteAnswer, Error> {
        let api = self.revisions();
        let wanted: DynamicObject =
            serde_json::from_value(object.clone()).map_err(Error::SerdeError)?;
        match api.create(&PostParams::default(), &wanted).await {
            Err(Error::Api(status)) if status.is_already_exists() => {
                let existing = api
                    .get(wanted.metadata.name.as_deref().unwrap_or_default())
                    .await?;
                if holds_the_same(&existing, &object) {
                    return Ok(NativeWriteAnswer::Revision(Box::new(existing)));
                }
                let set = self.sets().get(&self.set).await?;
                let collisions = set.data["status"]["collisionCount"].as_u64().unwrap_or(0) + 1;
                let patch = json!({ "status": { "collisionCount": collisions } });
                let patched = self
                    .sets()
                    .patch_status(&self.set, &PatchParams::default(), &Patch::Merge(patch))
                    .await?;
                Ok(NativeWriteAnswer::Set(Box::new(patched)))
            }
            made => Ok(NativeWriteAnswer::Revision(Box::new(made?))),
        }
    }
}

fn collect(
    results: Vec<Result<NativeWriteAnswer, Error>>,
    answers: &mut Vec<NativeWriteAnswer>,
    all: &mut Result<(), Error>,
) {
    for result in results {
        match result {
            Ok(answer) => answers.push(answer),
            Err(error) => *all = Err(error),
        }
    }
}

/// Returns `None` if the object of a write is gone or was replaced.
fn stale<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Err(Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(None),
        other => other.map(Some),
    }
}

/// Returns the message of an error. For an API error, it is the API server's message.
fn message_of(error: &Error) -> String {
    match error {
        Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// Returns true if an existing revision has the same data as the wanted one.
fn holds_the_same(existing: &DynamicObject, wanted: &Value) -> bool {
    existing.data["data"] == wanted["data"]
}
