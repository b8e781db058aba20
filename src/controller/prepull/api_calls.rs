//! API requests of each step of an image pull: few, each with a deadline. All writes go through
//! [`Writer`](crate::controller::apply::Writer).

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use kube::core::Request;
use serde_json::{Value, json};
use tracing::{info, warn};

use super::job_store::JobRef;
use super::manifest::{self, job_name};
use super::planner::{PullStep, PullStepResult};
use super::{PullOutcome, PullRequest, PullResultWrite, PullerParts};
use crate::clock::Clock;
use crate::controller::apply::WriteError;
use crate::controller::events::{Severity, Subject};
use crate::controller::live_reads::last_event;
use crate::controller::permissions::PERMISSION_MISSING;
use crate::controller::refused;
use crate::controller::report::refused::WRITE_REFUSED;
use crate::core::foreign::one_line;
use crate::core::messages::refusals::lacks_permission;
use crate::core::names::{
    BASE_RBAC, POD_IMAGE_READY, PRE_PULL_RBAC, PULL_FAILED, PULL_IMAGE_FAIL, PULL_IMAGE_SUCCESS,
    WAIT_PULL_IMAGE,
};
use crate::core::{PullInitiator, message_of, revision_in};
use crate::k8s::AdvancedDaemonSet;
use crate::k8s::client::{CallError, Failure, WRITE_DEADLINE, within};

/// Maximum length of the failure reason in a condition, in bytes: enough for a registry's error, but not for an HTML error page.
const LONGEST: usize = 400;

/// Maximum number of attempts to write a result. An attempt conflicts if the kubelet writes to the pod's status at the same
/// time.
const ATTEMPTS: usize = 4;

/// Prefix that the Job controller adds to the API server's error message.
const FAILED_CREATE_PREFIX: &str = "Error creating: ";

impl PullerParts {
    pub(super) async fn carry_out(&self, step: &PullStep) -> PullStepResult {
        match step {
            PullStep::Create(request) => self.create(request).await,
            PullStep::ExplainMissingPod(request, job) => {
                self.explain_missing_pod(request, job).await
            }
            PullStep::Report(request, outcome) => self.report(request, outcome).await,
            PullStep::Delete(job) => self.delete(job).await,
        }
    }

    /// Creates the Job from the current template. If the pod already runs all images, reports success without a Job. Creates
    /// nothing if the DaemonSet changed since the request, or the pod no longer requests the pull.
    async fn create(&self, request: &PullRequest) -> PullStepResult {
        let (set, pod) = match self.read_set_and_pod(request).await {
            Ok(objects) => objects,
            Err(error) => {
                warn!(daemonset = %request.key, %error, "Cannot read what a pull needs yet");
                return PullStepResult::Retry;
            }
        };
        let is_current = set["metadata"]["uid"] == *request.set_uid
            && set["metadata"]["generation"] == request.generation
            && is_requested(&pod, request);
        if !is_current {
            return PullStepResult::Retry; // an object has changed; the watches are about to report it
        }
        let template = &set["spec"]["template"];
        let images = manifest::images(template, &pod);
        if images.is_empty() {
            return self.report(request, &PullOutcome::Pulled).await;
        }
        let job = manifest::job(request, template, &images);
        match self.writer.create_job(&request.key.namespace, &job).await {
            Ok(created) => {
                info!(daemonset = %request.key, job = job_name(&request.pull), node = %request.pull.node, "Made a Job that pulls images");
                match serde_json::from_str(&created) {
                    Ok(job) => PullStepResult::Created(Box::new(job)),
                    Err(_) => PullStepResult::Retry, // the Job was created, and the watch reports it
                }
            }
            Err(error) => self.not_created(request, &error).await,
        }
    }

    /// Reports a rejected Job as a failed pull. Another attempt to create the Job would be rejected too.
    async fn not_created(&self, request: &PullRequest, error: &WriteError) -> PullStepResult {
        let WriteError::Failed { error, .. } = error else {
            return PullStepResult::Retry;
        };
        // The credentials may have just been renewed, so try again.
        let is_final = matches!(error.failure(), Failure::Forbidden | Failure::Refused)
            && !is_unauthorized(error);
        if !is_final {
            return PullStepResult::Retry;
        }
        warn!(daemonset = %request.key, %error, "A Job that pulls images was refused");
        let mut why = error.to_string();
        if lacks_permission(&why) {
            why.push_str("; grant it: kubectl apply -k ");
            why.push_str(PRE_PULL_RBAC);
            self.warn_of_missing_permission(request, &why);
        }
        self.report(request, &PullOutcome::Failed(why)).await
    }

    fn warn_of_missing_permission(&self, request: &PullRequest, why: &str) {
        let note = format!("cannot pull images ahead: {why}");
        self.publish_warning(request, PERMISSION_MISSING, &note);
    }

    fn publish_warning(&self, request: &PullRequest, reason: &'static str, note: &str) {
        let about = Subject::of_set(&request.key, &request.set_uid);
        self.events.publish(&about, Severity::Warning, reason, note);
    }

    /// Reports the result of a status write to the engine, if the rollout requested the pull. For a pull that a node owner
    /// requested, the engine does nothing; [`Self::not_reported`] publishes the failure.
    fn pass_on(&self, request: &PullRequest, result: Result<(), WriteError>) {
        if request.pull.initiator == PullInitiator::Rollout {
            let (key, pod) = (request.key.clone(), request.pull.pod.clone());
            // Sending fails only during shutdown, when the receiver is gone.
            let _ = self.written.send(PullResultWrite { key, pod, result });
        }
    }

    /// Reads the Events of the Job controller to find out why a Job has no pod, and writes the reason to the requesting pod.
    async fn explain_missing_pod(&self, request: &PullRequest, job: &JobRef) -> PullStepResult {
        let failed = format!("involvedObject.uid={},reason=FailedCreate", job.uid);
        let last = match last_event(&self.client, &request.key.namespace, &failed).await {
            Ok(last) => last,
            Err(error) => {
                warn!(daemonset = %request.key, job = job.name, %error, "Cannot read the Events of a Job");
                return PullStepResult::Unexplained;
            }
        };
        let Some(message) = last.and_then(|event| event.message) else {
            return PullStepResult::Unexplained;
        };
        let why = message.trim_start_matches(FAILED_CREATE_PREFIX).to_owned();
        self.report(request, &PullOutcome::Failed(why)).await
    }

    /// Writes the result of a pull to the pod, if the pod still requests the pull of this revision.
    async fn report(&self, request: &PullRequest, outcome: &PullOutcome) -> PullStepResult {
        for _ in 0..ATTEMPTS {
            let pod = match self
                .read::<Pod>(request, request.pull.pod.name.as_str())
                .await
            {
                Ok(pod) => pod,
                Err(error) if error.failure() == Failure::Gone => return PullStepResult::Done,
                Err(error) => return self.not_reported(request, &error),
            };
            if !is_requested(&pod, request) {
                return PullStepResult::Done;
            }
            let version = pod["metadata"]["resourceVersion"].as_str();
            let condition = condition(request, outcome, &self.clock);
            let written = self
                .writer
                .set_condition(
                    &request.key,
                    &request.pull.pod,
                    version.unwrap_or_default(),
                    condition,
                )
                .await;
            match written {
                Ok(_) => {
                    let pulled = *outcome == PullOutcome::Pulled;
                    info!(daemonset = %request.key, pod = %request.pull.pod.name, job = job_name(&request.pull), pulled, "Told how a pull ended");
                    self.metrics.image_pulled(pulled);
                    self.pass_on(request, Ok(()));
                    return PullStepResult::Done;
                }
                Err(error) if error.failure() == Some(Failure::Conflict) => {}
                Err(error) => {
                    let result = match &error {
                        WriteError::Failed { error, .. } => self.not_reported(request, error),
                        WriteError::NotLeader => PullStepResult::Retry,
                    };
                    self.pass_on(request, Err(error));
                    return result;
                }
            }
        }
        PullStepResult::Retry
    }

    /// Publishes that the result of a pull can't be written. Does so only if an operator has to act or a node owner waits for the
    /// result.
    fn not_reported(&self, request: &PullRequest, error: &CallError) -> PullStepResult {
        warn!(daemonset = %request.key, pod = %request.pull.pod.name, %error, "Cannot tell how a pull ended yet");
        let why = error.to_string();
        let is_refused = matches!(error.failure(), Failure::Forbidden | Failure::Refused);
        if error.failure() == Failure::Forbidden && lacks_permission(&why) {
            let why = format!("{why}; grant it: kubectl apply -k {BASE_RBAC}");
            self.warn_of_missing_permission(request, &why);
        } else if is_refused && request.pull.initiator == PullInitiator::Owner {
            let why = refused::sentence(&why, request.pull.pod.name.as_str());
            let note = format!(
                "the API server refuses to write how pulls of images ended: {why}; it is tried again, and until it is \
                 written their owners wait"
            );
            self.publish_warning(request, WRITE_REFUSED, &note);
        }
        PullStepResult::Retry
    }

    async fn delete(&self, job: &JobRef) -> PullStepResult {
        let deleted = self.writer.delete_job(&job.namespace, &job.name, &job.uid);
        match deleted.await {
            Ok(()) => PullStepResult::Done,
            Err(error) => match error.failure() {
                // In each of these cases the Job is gone. A conflict means that another Job has its name.
                Some(Failure::Gone | Failure::Conflict) => PullStepResult::Done,
                _ => {
                    if let WriteError::Failed { error, .. } = error {
                        warn!(job = job.name, %error, "Cannot remove a Job yet");
                    }
                    PullStepResult::Retry
                }
            },
        }
    }

    async fn read_set_and_pod(&self, request: &PullRequest) -> Result<(Value, Value), CallError> {
        let name = &request.key.name;
        let set = if request.key.is_advanced() {
            self.read::<AdvancedDaemonSet>(request, name).await?
        } else {
            self.read::<DaemonSet>(request, name).await?
        };
        let pod = self
            .read::<Pod>(request, request.pull.pod.name.as_str())
            .await?;
        Ok((set, pod))
    }

    /// Reads the complete object from the API server.
    async fn read<K: Resource<DynamicType = ()>>(
        &self,
        request: &PullRequest,
        name: &str,
    ) -> Result<Value, CallError> {
        let url = K::url_path(&(), Some(&request.key.namespace));
        let call = Request::new(url).get(name, &Default::default());
        let call = async {
            let call = call.map_err(kube::Error::BuildRequest)?;
            self.client.request::<Value>(call).await
        };
        within(WRITE_DEADLINE, call).await
    }
}

/// Returns true if a pod requests the pull of this revision and has no result yet.
fn is_requested(pod: &Value, request: &PullRequest) -> bool {
    let revision = Some(request.pull.revision.as_str());
    let conditions = pod["status"]["conditions"].as_array();
    pod["metadata"]["uid"] == request.pull.pod.uid.to_string()
        && pod["metadata"]["deletionTimestamp"].is_null()
        && conditions.into_iter().flatten().any(|condition| {
            let reason = condition["reason"].as_str().unwrap_or_default();
            condition["type"] == POD_IMAGE_READY
                && condition["status"] != "True"
                && ["", WAIT_PULL_IMAGE].contains(&reason)
                && condition["message"].as_str().and_then(revision_in) == revision
        })
}

fn condition(request: &PullRequest, outcome: &PullOutcome, clock: &Clock) -> Value {
    match outcome {
        PullOutcome::Pulled => json!({
            "type": POD_IMAGE_READY,
            "status": "True",
            "reason": PULL_IMAGE_SUCCESS,
            "message": message_of(request.pull.revision.as_str()),
            "lastTransitionTime": clock.time(),
        }),
        // The status remains `False`, so the transition time is kept. The next attempt starts a fixed time after the probe time.
        PullOutcome::Failed(why) => json!({
            "type": POD_IMAGE_READY,
            "status": "False",
            "reason": PULL_IMAGE_FAIL,
            "message": format!(
                "pull image job {}{PULL_FAILED}{} ({})",
                job_name(&request.pull),
                one_line(why, LONGEST),
                message_of(request.pull.revision.as_str())
            ),
            "lastProbeTime": clock.time(),
        }),
    }
}

fn is_unauthorized(error: &CallError) -> bool {
    matches!(error, CallError::Kube(kube::Error::Api(status)) if status.code == 401)
}
