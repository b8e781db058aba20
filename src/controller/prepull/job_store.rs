//! Pre-pull Jobs and their pods, as known from watches and from the controller's own writes.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::runtime::watcher::Event;

use super::PullRequest;
use crate::core::names::{PRE_PULL_DAEMONSET, PRE_PULL_POD, PRE_PULL_REVISION};
use crate::core::{PodUid, Revision};

/// Reference to a Job, which is identified by its UID.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct JobRef {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
}

/// Pod and revision that a Job pulls images for.
pub(super) type PullKey = (PodUid, Revision);

impl PullRequest {
    /// Returns the pod and revision that identify the pull.
    pub(super) fn pull_key(&self) -> PullKey {
        (self.pull.pod.uid.clone(), self.pull.revision.clone())
    }
}

/// All pre-pull Jobs and their pods.
#[derive(Debug, Default)]
pub(super) struct JobStore {
    jobs: Listing<Job>,
    pods: Listing<Pod>,
    /// UIDs of Jobs that the watch still shows although their result was written or they were deleted.
    reported: BTreeSet<String>,
}

/// Objects of one kind, by UID.
#[derive(Debug)]
struct Listing<K> {
    objects: BTreeMap<String, K>,
    /// UIDs that the list in progress has shown.
    seen: Option<BTreeSet<String>>,
    /// True if the first list is complete.
    complete: bool,
}

impl JobStore {
    /// Returns true if the first lists of Jobs and of pods are complete.
    pub(super) fn is_complete(&self) -> bool {
        self.jobs.complete && self.pods.complete
    }

    pub(super) fn is_empty(&self) -> bool {
        self.jobs.objects.is_empty()
    }

    pub(super) fn on_job(&mut self, event: Event<Job>) {
        match event {
            Event::InitApply(job) | Event::Apply(job) => self.put(job),
            Event::Delete(job) => {
                self.reported.remove(&self.jobs.remove(&job));
            }
            Event::Init => self.jobs.begin(),
            Event::InitDone => {
                let seen = self.jobs.finish();
                self.reported.retain(|uid| seen.contains(uid));
            }
        }
    }

    pub(super) fn on_pod(&mut self, event: Event<Pod>) {
        match event {
            Event::InitApply(pod) | Event::Apply(pod) => self.pods.put(slim_pod(pod)),
            Event::Delete(pod) => drop(self.pods.remove(&pod)),
            Event::Init => self.pods.begin(),
            Event::InitDone => drop(self.pods.finish()),
        }
    }

    /// Adds a Job, from a watch or from the response to its creation. Ignores a deleted Job.
    pub(super) fn put(&mut self, job: Job) {
        let uid = uid_of(&job);
        if self.reported.contains(&uid) && !self.jobs.objects.contains_key(&uid) {
            self.jobs.note_seen(uid);
        } else {
            self.jobs.put(slim_job(job));
        }
    }

    /// Records that the result of a pull was written. The Jobs of the pull can then be deleted.
    pub(super) fn note_reported(&mut self, key: &PullKey) {
        let jobs = self.jobs.objects.iter();
        let of_pull = jobs.filter(|(_, job)| pull_key(job).as_ref() == Some(key));
        self.reported.extend(of_pull.map(|(uid, _)| uid.clone()));
    }

    /// Records that the controller deleted a Job. Later events about the Job are ignored.
    pub(super) fn note_deleted(&mut self, job: &JobRef) {
        if self.jobs.objects.remove(&job.uid).is_some() {
            self.reported.insert(job.uid.clone());
        }
    }

    /// Returns true if the result of the Job was written.
    pub(super) fn is_reported(&self, job: &Job) -> bool {
        self.reported.contains(&uid_of(job))
    }

    /// Jobs, each with the pod and the revision that it pulls images for.
    pub(super) fn jobs(&self) -> impl Iterator<Item = (PullKey, &Job)> {
        let jobs = self.jobs.objects.values();
        jobs.filter_map(|job| Some((pull_key(job)?, job)))
    }

    /// Jobs whose result was not written.
    pub(super) fn unreported(&self) -> impl Iterator<Item = (PullKey, &Job)> {
        self.jobs().filter(|(_, job)| !self.is_reported(job))
    }

    /// Returns the newest pod of a Job. There are several if the Job controller replaced a pod.
    pub(super) fn pod_of(&self, job: &Job) -> Option<&Pod> {
        let uid = job.metadata.uid.as_deref()?;
        let of_it = |pod: &&Pod| {
            let owners = pod.metadata.owner_references.iter().flatten();
            owners.into_iter().any(|owner| owner.uid == uid)
        };
        let pods = self.pods.objects.values().filter(of_it);
        pods.max_by_key(|pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0))
    }
}

impl<K> Default for Listing<K> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            seen: None,
            complete: false,
        }
    }
}

impl<K: ResourceExt> Listing<K> {
    fn begin(&mut self) {
        self.seen = Some(BTreeSet::new());
    }

    /// Removes the objects that the list didn't show. Returns the UIDs that it showed.
    fn finish(&mut self) -> BTreeSet<String> {
        self.complete = true;
        let seen = self.seen.take().unwrap_or_default();
        self.objects.retain(|uid, _| seen.contains(uid));
        seen
    }

    fn note_seen(&mut self, uid: String) {
        if let Some(seen) = &mut self.seen {
            seen.insert(uid);
        }
    }

    fn put(&mut self, object: K) {
        let uid = uid_of(&object);
        self.note_seen(uid.clone());
        self.objects.insert(uid, object);
    }

    fn remove(&mut self, object: &K) -> String {
        let uid = uid_of(object);
        self.objects.remove(&uid);
        uid
    }
}

fn uid_of(object: &impl ResourceExt) -> String {
    object.uid().unwrap_or_default()
}

/// Returns a Job with only the fields that the controller reads.
fn slim_job(job: Job) -> Job {
    let spec = job.spec.map(|spec| JobSpec {
        active_deadline_seconds: spec.active_deadline_seconds,
        ..JobSpec::default()
    });
    Job {
        metadata: slim_meta(job.metadata),
        spec,
        status: job.status,
    }
}

/// Returns a pod with only the fields that the controller reads.
fn slim_pod(pod: Pod) -> Pod {
    let slim = |container: Container| Container {
        name: container.name,
        ..Container::default()
    };
    let spec = pod.spec.map(|spec| PodSpec {
        containers: spec.containers.into_iter().map(slim).collect(),
        ..PodSpec::default()
    });
    Pod {
        metadata: slim_meta(pod.metadata),
        spec,
        status: pod.status,
    }
}

fn slim_meta(meta: ObjectMeta) -> ObjectMeta {
    let ours = |texts: Option<BTreeMap<String, String>>| {
        let mut texts = texts?;
        let known = [PRE_PULL_POD, PRE_PULL_REVISION, PRE_PULL_DAEMONSET];
        texts.retain(|key, _| known.contains(&key.as_str()));
        Some(texts)
    };
    ObjectMeta {
        annotations: ours(meta.annotations),
        labels: ours(meta.labels),
        finalizers: None,
        managed_fields: None,
        ..meta
    }
}

/// Returns the pod and revision of a Job. `None`: the Job is not a pre-pull Job.
///
/// The label contains the UID of the pod. The pod must also be an owner of the Job.
fn pull_key(job: &Job) -> Option<PullKey> {
    let pod = job.metadata.labels.as_ref()?.get(PRE_PULL_POD)?;
    let revision = job.metadata.annotations.as_ref()?.get(PRE_PULL_REVISION)?;
    let mut owners = job.metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.kind == "Pod" && owner.uid == *pod)?;
    Some((pod.as_str().into(), revision.as_str().into()))
}

impl JobRef {
    pub(super) fn from_job(job: &Job) -> Self {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        Self {
            namespace: text(&job.metadata.namespace),
            name: text(&job.metadata.name),
            uid: text(&job.metadata.uid),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::k8s::object;

    #[test]
    fn the_job_cache_keeps_only_the_fields_that_it_needs() {
        let large = "x".repeat(60_000);
        let metadata = |uid: &str| {
            json!({
                "uid": uid,
                "labels": { PRE_PULL_POD: "u1", "other": large },
                "annotations": { PRE_PULL_REVISION: "aaa", "other": large },
                "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u1" }],
            })
        };
        let container = json!({ "name": "pull-0", "image": large });
        let job = json!({
            "metadata": metadata("j1"),
            "spec": {
                "activeDeadlineSeconds": 60,
                "template": { "spec": { "containers": [container.clone()] } },
            },
        });
        let pod = json!({ "metadata": metadata("p1"), "spec": { "containers": [container] } });
        let mut store = JobStore::default();
        store.put(serde_json::from_value(job).unwrap());
        store.on_pod(Event::Apply(serde_json::from_value(pod).unwrap()));
        let kept = serde_json::to_string(&(&store.jobs.objects, &store.pods.objects)).unwrap();
        assert!(kept.len() < 2_000, "{} bytes", kept.len());
        assert_eq!(store.jobs().count(), 1);
        let spec = store.jobs.objects["j1"].spec.clone().unwrap();
        assert_eq!(spec.active_deadline_seconds, Some(60));
        let spec = store.pods.objects["p1"].spec.clone().unwrap();
        assert_eq!(spec.containers[0].name, "pull-0");
    }

    #[test]
    fn a_job_larger_than_any_pre_pull_is_not_parsed() {
        let job = |length: usize| {
            let text = "x".repeat(length);
            let job = json!({ "metadata": { "uid": "j1", "annotations": { "other": text } } });
            object::read::<Job>(job.to_string().as_bytes())
        };
        assert!(job(500_000).is_ok());
        assert!(job(600_000).is_err());
    }
}
