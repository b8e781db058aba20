//! Requests for image pulls, the steps that carry them out, and the results of steps.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;

use super::job_store::{JobRef, PullKey};
use super::{DesiredPulls, PullOutcome};
use crate::core::Pull;
use crate::index::SetKey;

/// Desired pull, with all facts that are needed to carry it out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PullRequest {
    /// DaemonSet of the pod.
    pub(super) key: SetKey,
    /// UID of the DaemonSet.
    pub(super) set_uid: Arc<str>,
    /// Generation of the DaemonSet whose template contains the images.
    pub(super) generation: i64,
    /// Maximum duration of the pull.
    pub(super) timeout: Duration,
    /// Pod, node and revision of the pull.
    pub(super) pull: Pull,
}

impl PullRequest {
    pub(super) fn new(key: &SetKey, desired: &DesiredPulls, pull: &Pull) -> Self {
        Self {
            key: key.clone(),
            set_uid: desired.uid.clone(),
            generation: desired.generation,
            timeout: desired.timeout,
            pull: pull.clone(),
        }
    }

    /// Returns the pod and revision that identify the pull.
    pub(super) fn pull_key(&self) -> PullKey {
        (self.pull.pod.uid.clone(), self.pull.revision.clone())
    }
}

/// Step of a pull. It takes one or a few API requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PullStep {
    /// Creates the Job of a pull.
    Begin(PullRequest),
    /// Reads why a Job has no pod.
    Look(PullRequest, JobRef),
    /// Writes the result of a pull.
    Tell(PullRequest, PullOutcome, Option<JobRef>),
    /// Deletes a Job.
    Clear(JobRef),
}

/// Result of a step.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PullStepResult {
    /// The Job was created.
    Begun(Box<Job>),
    /// The pull ended without a Job: there was nothing to pull, or the API server rejected the Job.
    Ended(PullOutcome),
    /// Reason for the missing pod, according to the Job's Events; `None`: they contain none.
    Looked(Option<String>),
    /// The pod's condition now has the result, or no longer requests this pull. Contains the version of the pod.
    Told(Option<u64>),
    /// The step failed and will be repeated.
    Failed,
}
