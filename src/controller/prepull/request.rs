//! What is asked of those who pull, the steps to it, and what comes of each.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;

use super::job_store::{JobRef, PullKey};
use super::{DesiredPulls, PullOutcome};
use crate::core::Pull;
use crate::index::SetKey;

/// A desired pull with all that is needed to make it true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PullRequest {
    /// The DaemonSet.
    pub(super) key: SetKey,
    /// Its UID.
    pub(super) set_uid: Arc<str>,
    /// The generation whose template is meant.
    pub(super) generation: i64,
    /// How long it may take.
    pub(super) timeout: Duration,
    /// The pod, its node and the revision.
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

    /// What it is about, whoever asks.
    pub(super) fn pull_key(&self) -> PullKey {
        (self.pull.pod.uid.clone(), self.pull.revision.clone())
    }
}

/// The next thing to do, one request or a few.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PullStep {
    /// Make the Job.
    Begin(PullRequest),
    /// Read why a Job has no pod.
    Look(PullRequest, JobRef),
    /// Write how it ended.
    Tell(PullRequest, PullOutcome, Option<JobRef>),
    /// Remove a Job.
    Clear(JobRef),
}

/// What came of a step.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PullStepResult {
    /// There is a Job now.
    Begun(Box<Job>),
    /// It ended before there was a Job: nothing to pull, or the Job was refused.
    Ended(PullOutcome),
    /// The Events said why there is no pod; `None`: they did not.
    Looked(Option<String>),
    /// The pod's condition says it, or asks for something else by now. With the version of the pod.
    Told(Option<u64>),
    /// It did not work and is tried again.
    Failed,
}
