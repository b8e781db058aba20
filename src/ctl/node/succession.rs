//! Progress of the replacement of a pod, derived from the node's pods. Has no side effects.

use std::fmt;

use super::answer::{Pods, one_line};
use super::pod::{AnnouncedUpdate, Problem, has_images};
use super::row::describe_problem;
use crate::k8s::Pod;

/// A pod that is being replaced, and the data that identifies the new pod.
#[derive(Clone, Debug)]
pub(super) struct PodSuccession {
    namespace: String,
    name: String,
    uid: String,
    /// UID of the pod's DaemonSet. A pod without a DaemonSet is identified by its name.
    daemonset: Option<String>,
    revision: Option<String>,
    /// UIDs of all pods on the node before the request. None of them is the new pod.
    before: Vec<String>,
}

/// Stage of a replacement.
#[derive(Clone, Debug)]
pub(super) enum SuccessionStage<'a> {
    /// The old pod is running.
    Running,
    /// The old pod is terminating.
    Stopping,
    /// The old pod is gone and there is no new pod yet.
    Gone,
    /// The new pod is not Ready yet.
    Coming(&'a Pod),
    /// The new pod is Ready.
    Ready(&'a Pod),
}

/// Revision of the new pod, once Ready, compared with the old pod's revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SuccessorRevision {
    /// A different revision: the upgrade succeeded.
    New,
    /// The old revision, which is the current one again: the upgrade was withdrawn.
    Back,
    /// The old revision, although a newer one is available.
    Old,
    /// The old revision. No condition reports yet which revision is the current one.
    Unknown,
}

impl PodSuccession {
    /// Records the old pod and all pods on the node before the request.
    pub(super) fn new(pod: &Pod, pods: &Pods) -> Self {
        let owner = pod.owner().filter(|owner| owner.kind == "DaemonSet");
        Self {
            namespace: pod.namespace().to_owned(),
            name: pod.name().to_owned(),
            uid: pod.uid().to_owned(),
            daemonset: owner.map(|owner| owner.uid.clone()),
            revision: pod.revision().map(str::to_owned),
            before: pods.items.iter().map(|pod| pod.uid().to_owned()).collect(),
        }
    }

    /// Returns the name of the old pod as `namespace/name`.
    pub(super) fn key(&self) -> String {
        one_line(&format!("{}/{}", self.namespace, self.name))
    }

    /// Returns the revision of the old pod.
    pub(super) fn revision(&self) -> Option<&str> {
        self.revision.as_deref()
    }

    pub(super) fn stage<'a>(&self, pods: &'a Pods) -> SuccessionStage<'a> {
        let new = pods.items.iter().filter(|pod| self.is_succeeded_by(pod));
        if let Some(new) = new.max_by_key(|pod| (&pod.metadata.creation_timestamp, pod.name())) {
            return if new.is_ready() {
                SuccessionStage::Ready(new)
            } else {
                SuccessionStage::Coming(new)
            };
        }
        match pods.items.iter().find(|pod| pod.uid() == self.uid) {
            None => SuccessionStage::Gone,
            Some(old) if old.is_deleting() => SuccessionStage::Stopping,
            Some(_) => SuccessionStage::Running,
        }
    }

    fn is_succeeded_by(&self, pod: &Pod) -> bool {
        let related = match &self.daemonset {
            Some(uid) => pod.owner().is_some_and(|owner| owner.uid == *uid),
            None => pod.name() == self.name,
        };
        related
            && pod.namespace() == self.namespace
            && !pod.is_deleting()
            && !self.before.iter().any(|uid| uid == pod.uid())
    }

    /// Compares the revision of the new pod with the old pod's.
    pub(super) fn result(&self, new: &Pod) -> SuccessorRevision {
        // Compare the labels. The hash in the condition cannot be used: OpenYurt's own controller writes a different hash there.
        if self.revision().is_none() || new.revision() != self.revision() {
            return SuccessorRevision::New;
        }
        match AnnouncedUpdate::of(new) {
            Some(AnnouncedUpdate::UpToDate) => SuccessorRevision::Back,
            Some(AnnouncedUpdate::Available) => SuccessorRevision::Old,
            None => SuccessorRevision::Unknown,
        }
    }

    /// Returns a line about the stage.
    pub(super) fn describe<'a>(&'a self, stage: &'a SuccessionStage<'a>) -> impl fmt::Display + 'a {
        StageText(self, stage)
    }
}

impl PodSuccession {
    /// Returns the line for a completed step.
    pub(super) fn passed(&self, step: usize) -> String {
        let what = match step {
            1 => "deleted",
            2 => "gone",
            _ => "new pod started",
        };
        format!("[{step}/4] {}: {what}", self.key())
    }
}

impl SuccessionStage<'_> {
    /// Returns the step number of the stage, from 1 to 4.
    pub(super) fn step(&self) -> usize {
        match self {
            Self::Running | Self::Stopping => 1,
            Self::Gone => 2,
            Self::Coming(new) if !has_images(new) => 3,
            Self::Coming(_) | Self::Ready(_) => 4,
        }
    }
}

struct StageText<'a>(&'a PodSuccession, &'a SuccessionStage<'a>);

impl fmt::Display for StageText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let old = self.0.key();
        let new = match self.1 {
            SuccessionStage::Running => return write!(f, "[1/4] {old}: waiting for its deletion"),
            SuccessionStage::Stopping => return write!(f, "[1/4] {old}: stopping"),
            SuccessionStage::Gone => {
                return write!(f, "[2/4] {old}: gone, waiting for the new pod");
            }
            SuccessionStage::Coming(new) => new,
            SuccessionStage::Ready(new) => {
                return write!(f, "[4/4] {}: Ready", one_line(&new.key()));
            }
        };
        let key = one_line(&new.key());
        if has_images(new) {
            write!(f, "[4/4] {key}: images pulled, not Ready yet")?
        } else {
            write!(f, "[3/4] {key}: pulling images and starting")?
        }
        match Problem::of(new) {
            Some(problem) => write!(f, ": {}", describe_problem(&problem)),
            None => Ok(()),
        }
    }
}
