//! Simulated controller for Jobs whose pods run to completion, with the features that image pre-pulls need.
//!
//! Parallelism, completions, back-off limit, deadline, suspension and time to live work as in Kubernetes. Unlike in Kubernetes,
//! pods get no finalizer. So a pod that is deleted before the controller has seen its end is never counted.

mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, PropagationPolicy,
    Request,
};
use kube::{Api, Client, Error, Resource as _};
use serde_json::Value;

use self::state::{JobStep, next};
use crate::clock::Clock;
use crate::k8s::Pod;
use crate::sim::events::{EventSink, Recorder};
use crate::sim::queue::Queue;
use crate::sim::watched::{Cache, WatchedKey, WatchedWrites, events, key};
use crate::task::Task;

/// Delay before a failed write is retried.
const RETRY: Duration = Duration::from_secs(1);

/// Starts the controller. It stops when the returned task is dropped.
pub fn start(client: Client, clock: Clock) -> Task {
    Task::spawn(Controller::new(client, clock).run())
}

struct Controller {
    client: Client,
    clock: Clock,
    recorder: EventSink,
    jobs: Cache<DynamicObject>,
    pods: Cache<Pod>,
    /// Keys of pods by the UID of their Job.
    owned: BTreeMap<String, BTreeSet<WatchedKey>>,
    busy: BTreeSet<WatchedKey>,
    due: Queue<WatchedKey>,
    writes: WatchedWrites<(WatchedKey, Answer)>,
}

/// Result of a write of the controller.
enum Answer {
    Job(Box<DynamicObject>),
    Pods(Vec<Pod>),
    Failed(Error),
    Nothing,
}

impl Controller {
    fn new(client: Client, clock: Clock) -> Self {
        Self {
            recorder: EventSink::new(client.clone(), clock.clone(), "job-controller"),
            client,
            clock,
            jobs: Cache::default(),
            pods: Cache::default(),
            owned: BTreeMap::new(),
            busy: BTreeSet::new(),
            due: Queue::default(),
            writes: WatchedWrites::default(),
        }
    }

    async fn run(mut self) {
        let job = ApiResource::erase::<Job>(&());
        let mut jobs = events(
            Api::<DynamicObject>::all_with(self.client.clone(), &job),
            "",
        );
        let mut pods = events(Api::<Pod>::all(self.client.clone()), "");
        loop {
            tokio::select! {
                biased;
                (key, answer) = self.writes.next() => self.answered(key, answer),
                Some(event) = jobs.next() => {
                    for change in self.jobs.event(event) {
                        self.due.add(Duration::ZERO, change.key);
                    }
                }
                Some(event) = pods.next() => {
                    for change in self.pods.event(event) {
                        self.pod_changed(&change.key, change.before.as_ref());
                    }
                }
                () = self.due.wait() => {
                    while let Some(key) = self.due.take() {
                        self.sync(&key);
                    }
                }
            }
        }
    }

    fn pod_changed(&mut self, key: &WatchedKey, before: Option<&Pod>) {
        if let Some(pods) = before
            .and_then(owner)
            .and_then(|(uid, _)| self.owned.get_mut(&uid))
        {
            pods.remove(key);
        }
        let now = self.pods.get(key).and_then(owner);
        if let Some((uid, _)) = &now {
            self.owned
                .entry(uid.clone())
                .or_default()
                .insert(key.clone());
        }
        if let Some((_, name)) = now.or_else(|| before.and_then(owner)) {
            self.due
                .add(Duration::ZERO, WatchedKey::new(&key.namespace, &name));
        }
        self.owned.retain(|_, pods| !pods.is_empty());
    }

    fn sync(&mut self, key: &WatchedKey) {
        let synced = self.jobs.is_synced() && self.pods.is_synced();
        let Some(job) = self
            .jobs
            .get(key)
            .filter(|_| synced && !self.busy.contains(key))
        else {
            return;
        };
        let uid = job.metadata.uid.clone().unwrap_or_default();
        let keys = self.owned.get(&uid).into_iter().flatten();
        let pods: Vec<&Pod> = keys.filter_map(|key| self.pods.get(key)).collect();
        match next(job, &pods, self.clock.now()) {
            JobStep::Nothing => {}
            JobStep::Wait(delay) => self.due.add(delay, key.clone()),
            step => {
                let recorder = self.recorder.about(reference(key, &uid));
                let client = self.client.clone();
                let key = key.clone();
                self.busy.insert(key.clone());
                self.writes.add(async move {
                    let answer = write(client, &key, step, &recorder).await;
                    (key, answer.unwrap_or_else(Answer::Failed))
                });
            }
        }
    }

    fn answered(&mut self, key: WatchedKey, answer: Answer) {
        self.busy.remove(&key);
        let mut delay = Duration::ZERO;
        match answer {
            Answer::Job(job) => {
                self.jobs.answer(*job);
            }
            Answer::Pods(pods) => {
                for pod in pods {
                    if let Some(change) = self.pods.answer(pod) {
                        self.pod_changed(&change.key, change.before.as_ref());
                    }
                }
            }
            Answer::Failed(error) => {
                tracing::debug!(%error, job = key.name, "A write of the Job controller failed");
                delay = RETRY;
            }
            Answer::Nothing => delay = RETRY,
        }
        if self.busy.is_empty() {
            self.pods.quiet();
            self.jobs.quiet();
        }
        self.due.add(delay, key);
    }
}

/// Returns UID and name of the Job that owns a pod.
fn owner(pod: &Pod) -> Option<(String, String)> {
    let owners = pod.metadata.owner_references.as_ref()?;
    let job = owners.iter().find(|owner| owner.kind == "Job")?;
    Some((job.uid.clone(), job.name.clone()))
}

fn reference(key: &WatchedKey, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("batch/v1".to_owned()),
        kind: Some("Job".to_owned()),
        namespace: Some(key.namespace.clone()),
        name: Some(key.name.clone()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

async fn write(
    client: Client,
    key: &WatchedKey,
    step: JobStep,
    recorder: &Recorder,
) -> Result<Answer, Error> {
    let WatchedKey { namespace, name } = key;
    let resource = ApiResource::erase::<Job>(&());
    let jobs = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource);
    match step {
        JobStep::Create { pod, count } => {
            let mut made = Vec::new();
            for _ in 0..count {
                made.push(create(&client, namespace, &pod, recorder).await?);
            }
            Ok(Answer::Pods(made))
        }
        JobStep::Delete(names) => {
            let pods: Api<Pod> = Api::namespaced(client, namespace);
            for pod in names {
                not_found(pods.delete(&pod, &DeleteParams::default()).await)?;
                let note = format!("Deleted pod: {pod}");
                recorder.record("Normal", "SuccessfulDelete", &note).await;
            }
            Ok(Answer::Nothing)
        }
        JobStep::Status { status, event } => {
            let patch = Patch::Merge(serde_json::json!({ "status": status }));
            let job = jobs
                .patch_status(name, &PatchParams::default(), &patch)
                .await;
            if let Some((kind, reason, note)) = event {
                recorder.record(kind, reason, note).await;
            }
            Ok(not_found(job)?.map_or(Answer::Nothing, |job| Answer::Job(Box::new(job))))
        }
        JobStep::Remove => {
            let params = DeleteParams {
                propagation_policy: Some(PropagationPolicy::Foreground),
                ..DeleteParams::default()
            };
            not_found(jobs.delete(name, &params).await)?;
            Ok(Answer::Nothing)
        }
        JobStep::Nothing | JobStep::Wait(_) => Ok(Answer::Nothing),
    }
}

async fn create(
    client: &Client,
    namespace: &str,
    pod: &Value,
    recorder: &Recorder,
) -> Result<Pod, Error> {
    let url = Pod::url_path(&(), Some(namespace));
    let request = Request::new(url).create(&PostParams::default(), pod.to_string().into_bytes());
    let request = request.map_err(Error::BuildRequest)?;
    match client.request::<Pod>(request).await {
        Ok(pod) => {
            let note = format!("Created pod: {}", key(&pod).name);
            recorder.record("Normal", "SuccessfulCreate", &note).await;
            Ok(pod)
        }
        Err(error) => {
            let note = match &error {
                Error::Api(status) => format!("Error creating: {}", status.message),
                error => format!("Error creating: {error}"),
            };
            recorder.record("Warning", "FailedCreate", &note).await;
            Err(error)
        }
    }
}

fn not_found<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Err(Error::Api(status)) if status.is_not_found() => Ok(None),
        other => other.map(Some),
    }
}
