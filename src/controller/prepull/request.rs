//! Requests for pulls, steps to carry them out, and results of steps.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;

use super::job_store::{JobRef, PullKey};
use super::{DesiredPulls, PullOutcome};
use crate::core::Pull;
use crate::index::SetKey;

/// Desired pull with everything needed to carry it out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PullRequest {
    /// DaemonSet of the pod.
    pub(super) key: SetKey,
    /// UID of the DaemonSet.
    pub(super) set_uid: Arc<str>,
    /// Generation of the DaemonSet whose template is pulled.
    pub(super) generation: i64,
    /// Longest duration of the pull.
    pub(super) timeout: Duration,
    /// Pod, node and revision.
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

    /// Returns the pod and revision of the request.
    pub(super) fn pull_key(&self) -> PullKey {
        (self.pull.pod.uid.clone(), self.pull.revision.clone())
    }
}

/// Next step, which takes one request or a few.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PullStep {
    /// Creates the Job.
    Begin(PullRequest),
    /// Reads why a Job has no pod.
    Look(PullRequest, JobRef),
    /// Writes the result.
    Tell(PullRequest, PullOutcome, Option<JobRef>),
    /// Deletes a Job.
    Clear(JobRef),
}

/// Result of a step.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PullStepResult {
    /// The Job was created.
    Begun(Box<Job>),
    /// The pull ended without a Job: there was nothing to pull, or the Job was rejected.
    Ended(PullOutcome),
    /// Reason in the Events for a missing pod; `None`: they have none.
    Looked(Option<String>),
    /// The pod's condition has the result, or requests something else by now. With the version of the pod.
    Told(Option<u64>),
    /// The step failed and is repeated.
    Failed,
}
