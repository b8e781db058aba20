//! Requests of the fake kubelets, and acknowledgements for callers that wait for a command.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, Error};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::options::StatusWrite;
use crate::sim::pod_view::PodView;
use crate::sim::watched::version;

/// Time limit for a request.
const DEADLINE: Duration = Duration::from_secs(30);

/// Object that a request writes.
#[derive(Clone, Debug)]
pub(super) enum WriteSubject {
    /// Status of the pod with this UID.
    Status(String),
    /// Removal of the pod with this UID.
    Removal(String),
    /// Status of the node with this name.
    Node(String),
    /// Any other object. Nothing has to be done when the write completes.
    Other,
}

/// Result of a request.
#[derive(Debug)]
pub(super) enum StatusWriteOutcome {
    /// The write succeeded. Contains the new resourceVersion.
    Done(u64),
    /// The object is gone or was replaced, so the write is no longer needed.
    Moot,
    /// The write failed and must be retried.
    Failed,
}

pub(super) type Request = BoxFuture<'static, (WriteSubject, StatusWriteOutcome)>;

/// Acknowledgement of a command. It completes when all requests of the command have ended.
#[derive(Clone)]
pub(super) struct Ack(Arc<Shared>);

struct Shared {
    failure: Mutex<Option<String>>,
    done: Mutex<Option<oneshot::Sender<Result<(), String>>>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let failure = self
            .failure
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        let result = failure.take().map_or(Ok(()), Err);
        let done = self.done.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(done) = done.take() {
            // Ignore the error: the caller may have stopped waiting.
            let _ = done.send(result);
        }
    }
}

impl Ack {
    pub(super) fn new() -> (Self, oneshot::Receiver<Result<(), String>>) {
        let (sender, receiver) = oneshot::channel();
        let shared = Shared {
            failure: Mutex::new(None),
            done: Mutex::new(Some(sender)),
        };
        (Self(Arc::new(shared)), receiver)
    }

    pub(super) fn fail(&self, why: String) {
        let mut failure = self
            .0
            .failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert(why);
    }
}

/// Namespace, name and UID of a pod.
#[derive(Clone, Debug)]
pub(super) struct PodAddress {
    namespace: String,
    name: String,
    uid: String,
}

impl From<&PodView> for PodAddress {
    fn from(pod: &PodView) -> Self {
        Self {
            namespace: pod.namespace().to_owned(),
            name: pod.name().to_owned(),
            uid: pod.uid().to_owned(),
        }
    }
}

pub(super) fn pod_status(
    client: Client,
    key: PodAddress,
    status: Value,
    how: StatusWrite,
) -> Request {
    Box::pin(async move {
        let result = within(write_status(&client, &key, status, how)).await;
        (WriteSubject::Status(key.uid), outcome(result))
    })
}

async fn write_status(
    client: &Client,
    key: &PodAddress,
    status: Value,
    how: StatusWrite,
) -> kube::Result<u64> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &key.namespace);
    let StatusWrite::Put { age, blind } = how else {
        let patch = json!({ "metadata": { "uid": key.uid }, "status": status });
        let api: Api<PodView> = Api::namespaced(client.clone(), &key.namespace);
        let pod = api
            .patch_status(&key.name, &PatchParams::default(), &Patch::Strategic(patch))
            .await?;
        return Ok(version(&pod));
    };
    let mut pod = pods.get(&key.name).await?;
    tokio::time::sleep(age).await;
    put_into(&mut pod, status);
    if blind {
        pod.metadata.resource_version = None;
    }
    pod.metadata.uid = Some(key.uid.clone());
    let pod = pods
        .replace_status(&key.name, &PostParams::default(), &pod)
        .await?;
    Ok(version(&pod))
}

/// Replaces the status of a pod that was read. Conditions of types that `status` doesn't contain are kept.
fn put_into(pod: &mut Pod, status: Value) {
    let Ok(mut ours) = serde_json::from_value::<k8s_openapi::api::core::v1::PodStatus>(status)
    else {
        return;
    };
    let old = pod.status.take().and_then(|status| status.conditions);
    let mut conditions = ours.conditions.take().unwrap_or_default();
    for other in old.unwrap_or_default() {
        if !conditions.iter().any(|c| c.type_ == other.type_) {
            conditions.push(other);
        }
    }
    ours.conditions = Some(conditions);
    pod.status = Some(ours);
}

/// Writes the last status of a stopped pod, if given, and then removes the pod object.
pub(super) fn pod_removal(client: Client, key: PodAddress, status: Option<Value>) -> Request {
    Box::pin(async move {
        let result = within(remove(&client, &key, status)).await;
        (WriteSubject::Removal(key.uid), outcome(result))
    })
}

async fn remove(client: &Client, key: &PodAddress, status: Option<Value>) -> kube::Result<u64> {
    if let Some(status) = status {
        write_status(client, key, status, StatusWrite::Patch).await?;
    }
    let api: Api<PodView> = Api::namespaced(client.clone(), &key.namespace);
    let params = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions {
            uid: Some(key.uid.clone()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    api.delete(&key.name, &params).await.map(|_| 0)
}

/// Sets a pod's Ready condition to `False`, like the node lifecycle controller.
pub(super) fn mark_not_ready(client: Client, key: PodAddress, now: Timestamp, ack: Ack) -> Request {
    let condition = json!({ "type": "Ready", "status": "False", "lastTransitionTime": k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now) });
    let status = json!({ "conditions": [condition] });
    Box::pin(async move {
        let result = within(write_status(&client, &key, status, StatusWrite::Patch)).await;
        settle(
            &ack,
            &format!("mark pod {}/{} not ready", key.namespace, key.name),
            &result,
        );
        (WriteSubject::Other, outcome(result))
    })
}

/// Registers a node. If the Node object exists, it gets the labels and status of `object`.
pub(super) fn register(client: Client, name: String, object: Value, ack: Ack) -> Request {
    Box::pin(async move {
        let result = within(create_node(&client, &name, object)).await;
        settle(&ack, &format!("register node {name}"), &result);
        (WriteSubject::Node(name), outcome(result))
    })
}

async fn create_node(client: &Client, name: &str, object: Value) -> kube::Result<u64> {
    let nodes: Api<Node> = Api::all(client.clone());
    let node: Node = serde_json::from_value(object.clone()).map_err(Error::SerdeError)?;
    let made = match nodes.create(&PostParams::default(), &node).await {
        Err(Error::Api(status)) if status.is_already_exists() => {
            let meta = json!({ "metadata": {
                "labels": object["metadata"]["labels"], "annotations": object["metadata"]["annotations"],
            } });
            nodes
                .patch(name, &PatchParams::default(), &Patch::Merge(meta))
                .await?;
            None
        }
        made => Some(made?),
    };
    let reported = made.as_ref().and_then(|node| node.status.as_ref());
    if reported.is_some_and(|status| status.conditions.is_some()) {
        return Ok(made.map_or(0, |node| version(&node)));
    }
    patch_node(client, name, &object["status"]).await
}

async fn patch_node(client: &Client, name: &str, status: &Value) -> kube::Result<u64> {
    let nodes: Api<Node> = Api::all(client.clone());
    let patch = Patch::Strategic(json!({ "status": status }));
    let node = nodes
        .patch_status(name, &PatchParams::default(), &patch)
        .await?;
    Ok(version(&node))
}

pub(super) fn node_status(
    client: Client,
    name: String,
    status: Value,
    ack: Option<Ack>,
) -> Request {
    Box::pin(async move {
        let result = within(patch_node(&client, &name, &status)).await;
        if let Some(ack) = ack {
            settle(&ack, &format!("write the status of node {name}"), &result);
        }
        (WriteSubject::Node(name), outcome(result))
    })
}

pub(super) fn delete_node(client: Client, name: String, ack: Ack) -> Request {
    Box::pin(async move {
        let nodes: Api<Node> = Api::all(client.clone());
        let leases: Api<Lease> = Api::namespaced(client, "kube-node-lease");
        let gone = |result: kube::Result<()>| match result {
            Err(Error::Api(status)) if status.is_not_found() => Ok(0),
            other => other.map(|()| 0),
        };
        let params = DeleteParams::default();
        let result = within(async { gone(nodes.delete(&name, &params).await.map(drop)) }).await;
        settle(&ack, &format!("delete node {name}"), &result);
        // Ignore the result, because the node may have no Lease. In a real cluster, the garbage collector deletes the Lease.
        let _ = within(async { gone(leases.delete(&name, &params).await.map(drop)) }).await;
        (WriteSubject::Other, outcome(result))
    })
}

pub(super) fn renew(client: Client, name: String, now: Timestamp) -> Request {
    Box::pin(async move {
        let result = within(write_lease(&client, &name, now)).await;
        (WriteSubject::Other, outcome(result))
    })
}

async fn write_lease(client: &Client, name: &str, now: Timestamp) -> kube::Result<u64> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
    let spec =
        json!({ "holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": MicroTime(now) });
    let patch = Patch::Merge(json!({ "spec": spec }));
    match leases.patch(name, &PatchParams::default(), &patch).await {
        Err(Error::Api(status)) if status.is_not_found() => {
            let lease = json!({ "metadata": { "name": name }, "spec": spec });
            let lease = serde_json::from_value(lease).map_err(Error::SerdeError)?;
            leases
                .create(&PostParams::default(), &lease)
                .await
                .map(|_| 0)
        }
        other => other.map(|_| 0),
    }
}

async fn within<T>(request: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    match tokio::time::timeout(DEADLINE, request).await {
        Ok(result) => result,
        Err(late) => Err(Error::Service(Box::new(late))),
    }
}

fn outcome(result: kube::Result<u64>) -> StatusWriteOutcome {
    match result {
        Ok(version) => StatusWriteOutcome::Done(version),
        Err(Error::Api(status)) if status.is_not_found() => StatusWriteOutcome::Moot,
        Err(error) => {
            tracing::debug!(%error, "A request of a fake kubelet failed");
            StatusWriteOutcome::Failed
        }
    }
}

fn settle(ack: &Ack, what: &str, result: &kube::Result<u64>) {
    if let Err(error) = result {
        ack.fail(format!("{what}: {error}"));
    }
}
