//! Progress from a pod to its successor, evaluated from the node's pods. Pure.

use std::fmt;

use super::answer::{Pods, one_line};
use super::pod::{AnnouncedUpdate, LocalPod};
use super::row::told;

/// A pod that is being replaced, with the data that identifies its successor.
#[derive(Clone, Debug)]
pub(super) struct PodSuccession {
    namespace: String,
    name: String,
    uid: String,
    /// UID of its DaemonSet. A pod without one is succeeded by a pod of the same name.
    daemonset: Option<String>,
    revision: Option<String>,
    /// UIDs of all pods that existed before.
    before: Vec<String>,
}

/// Stage of the replacement.
#[derive(Clone, Debug)]
pub(super) enum SuccessionStage<'a> {
    /// The old pod is running.
    Running,
    /// The old pod is terminating.
    Stopping,
    /// The old pod is gone and there is no new pod yet.
    Gone,
    /// The new pod is not Ready yet.
    Coming(&'a LocalPod),
    /// The new pod is Ready.
    Ready(&'a LocalPod),
}

/// Revision of a Ready successor, compared with its predecessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SuccessorRevision {
    /// Another revision.
    New,
    /// Its predecessor's revision, which is the one it should run.
    Back,
    /// Its predecessor's revision, although another one is available.
    Old,
    /// Its predecessor's revision, and no condition reports whether it should run it.
    Unknown,
}

impl PodSuccession {
    /// Prepares to follow the replacement of a pod.
    pub(super) fn new(pod: &LocalPod, pods: &Pods) -> Self {
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

    /// Returns the old pod as `namespace/name`.
    pub(super) fn key(&self) -> String {
        one_line(&format!("{}/{}", self.namespace, self.name))
    }

    /// Returns the revision of the old pod.
    pub(super) fn revision(&self) -> Option<&str> {
        self.revision.as_deref()
    }

    /// Returns the stage.
    pub(super) fn stage<'a>(&self, pods: &'a Pods) -> SuccessionStage<'a> {
        let new = pods.items.iter().filter(|pod| self.is_succeeded_by(pod));
        if let Some(new) = new.max_by_key(|pod| (pod.created(), pod.name())) {
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

    fn is_succeeded_by(&self, pod: &LocalPod) -> bool {
        let related = match &self.daemonset {
            Some(uid) => pod.owner().is_some_and(|owner| owner.uid == *uid),
            None => pod.name() == self.name,
        };
        related
            && pod.namespace() == self.namespace
            && !pod.is_deleting()
            && !self.before.iter().any(|uid| uid == pod.uid())
    }

    /// Compares the revision of the new pod with its predecessor's.
    pub(super) fn result(&self, new: &LocalPod) -> SuccessorRevision {
        // Only the label is reliable: OpenYurt's own controller announces a different hash.
        if self.revision().is_none() || new.revision() != self.revision() {
            return SuccessorRevision::New;
        }
        match new.update() {
            Some(AnnouncedUpdate::UpToDate) => SuccessorRevision::Back,
            Some(AnnouncedUpdate::Available) => SuccessorRevision::Old,
            None => SuccessorRevision::Unknown,
        }
    }

    /// Returns the stage as text.
    pub(super) fn told<'a>(&'a self, stage: &'a SuccessionStage<'a>) -> impl fmt::Display + 'a {
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
    /// Returns the number of the step, from 1 to 4.
    pub(super) fn step(&self) -> usize {
        match self {
            Self::Running | Self::Stopping => 1,
            Self::Gone => 2,
            Self::Coming(new) if !new.has_images() => 3,
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
        if new.has_images() {
            write!(f, "[4/4] {key}: images pulled, not Ready yet")?
        } else {
            write!(f, "[3/4] {key}: pulling images and starting")?
        }
        match new.problem() {
            Some(problem) => write!(f, ": {}", told(&problem)),
            None => Ok(()),
        }
    }
}
