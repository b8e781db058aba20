//! Pre-pull Jobs and their pods, as known from watches and from the controller's own writes.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::Event;

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

/// All pre-pull Jobs and their pods.
#[derive(Debug, Default)]
pub(super) struct JobStore {
    jobs: BTreeMap<String, Job>,
    pods: BTreeMap<String, Pod>,
    /// UIDs of Jobs that the controller deleted, while the watch still shows them.
    removed: BTreeSet<String>,
    listed_jobs: Listing,
    listed_pods: Listing,
}

/// Progress of a list.
#[derive(Debug, Default)]
struct Listing {
    seen: Option<BTreeSet<String>>,
    complete: bool,
}

impl JobStore {
    /// Returns true if the first lists of Jobs and of pods are complete.
    pub(super) fn is_complete(&self) -> bool {
        self.listed_jobs.complete && self.listed_pods.complete
    }

    /// Returns true if there is no Job.
    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Applies an event about a Job.
    pub(super) fn take_job(&mut self, event: Event<Job>) {
        match event {
            Event::Init => self.listed_jobs.seen = Some(BTreeSet::new()),
            Event::InitApply(job) | Event::Apply(job) => self.put(job),
            Event::Delete(job) => {
                let uid = job.metadata.uid.unwrap_or_default();
                self.jobs.remove(&uid);
                self.removed.remove(&uid);
            }
            Event::InitDone => {
                let seen = self.listed_jobs.finish();
                self.jobs.retain(|uid, _| seen.contains(uid));
                self.removed.retain(|uid| seen.contains(uid));
            }
        }
    }

    /// Adds a Job, from a watch or from the response to its creation.
    pub(super) fn put(&mut self, job: Job) {
        let Some(uid) = job.metadata.uid.clone() else {
            return;
        };
        if let Some(seen) = &mut self.listed_jobs.seen {
            seen.insert(uid.clone());
        }
        if !self.removed.contains(&uid) {
            self.jobs.insert(uid, slim_job(job));
        }
    }

    /// Records that the controller deleted a Job. Later events about the Job are ignored.
    pub(super) fn note_removed(&mut self, job: &JobRef) {
        if self.jobs.remove(&job.uid).is_some() {
            self.removed.insert(job.uid.clone());
        }
    }

    /// Applies an event about the pod of a Job.
    pub(super) fn take_pod(&mut self, event: Event<Pod>) {
        let uid = |pod: &Pod| pod.metadata.uid.clone().unwrap_or_default();
        match event {
            Event::Init => self.listed_pods.seen = Some(BTreeSet::new()),
            Event::InitApply(pod) | Event::Apply(pod) => {
                if let Some(seen) = &mut self.listed_pods.seen {
                    seen.insert(uid(&pod));
                }
                self.pods.insert(uid(&pod), slim_pod(pod));
            }
            Event::Delete(pod) => drop(self.pods.remove(&uid(&pod))),
            Event::InitDone => {
                let seen = self.listed_pods.finish();
                self.pods.retain(|uid, _| seen.contains(uid));
            }
        }
    }

    /// Forgets all Jobs and pods, because the watches end.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Jobs, each with the pod and the revision that it pulls images for.
    pub(super) fn jobs(&self) -> impl Iterator<Item = (PullKey, &Job)> {
        self.jobs
            .values()
            .filter_map(|job| Some((pull_key(job)?, job)))
    }

    /// Returns the newest pod of a Job.
    pub(super) fn pod_of(&self, job: &Job) -> Option<&Pod> {
        let uid = job.metadata.uid.as_deref()?;
        let of_it = |pod: &&Pod| {
            let owners = pod.metadata.owner_references.iter().flatten();
            owners.into_iter().any(|owner| owner.uid == uid)
        };
        let pods = self.pods.values().filter(of_it);
        pods.max_by_key(|pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0))
    }
}

impl Listing {
    fn finish(&mut self) -> BTreeSet<String> {
        self.complete = true;
        self.seen.take().unwrap_or_default()
    }
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

/// Returns the pod and revision of a Job; `None`: it is not a pre-pull Job. The pod that the label names must also own the Job.
fn pull_key(job: &Job) -> Option<PullKey> {
    let pod = job.metadata.labels.as_ref()?.get(PRE_PULL_POD)?;
    let revision = job.metadata.annotations.as_ref()?.get(PRE_PULL_REVISION)?;
    let mut owners = job.metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.kind == "Pod" && owner.uid == *pod)?;
    Some((pod.as_str().into(), revision.as_str().into()))
}

impl JobRef {
    /// Returns the reference to a Job.
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
    fn of_a_job_and_its_pod_only_what_is_looked_at_is_kept() {
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
        store.take_pod(Event::Apply(serde_json::from_value(pod).unwrap()));
        let kept = serde_json::to_string(&(&store.jobs, &store.pods)).unwrap();
        assert!(kept.len() < 2_000, "{} bytes", kept.len());
        assert_eq!(store.jobs().count(), 1);
        let spec = store.jobs["j1"].spec.clone().unwrap();
        assert_eq!(spec.active_deadline_seconds, Some(60));
        let spec = store.pods["p1"].spec.clone().unwrap();
        assert_eq!(spec.containers[0].name, "pull-0");
    }

    #[test]
    fn a_job_larger_than_any_of_a_pre_pull_is_not_read() {
        let job = |length: usize| {
            let text = "x".repeat(length);
            let job = json!({ "metadata": { "uid": "j1", "annotations": { "other": text } } });
            object::read::<Job>(job.to_string().as_bytes())
        };
        assert!(job(500_000).is_ok());
        assert!(job(600_000).is_err());
    }
}
