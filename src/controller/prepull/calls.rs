//! API requests of each step of an image pull: few, each with a deadline. All writes go through [`Writer`].

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::core::Request;
use kube::{Api, Client, Resource};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tracing::{info, warn};

use super::job_store::JobRef;
use super::name::job_name;
use super::request::{PullRequest, PullStep, PullStepResult};
use super::{PullOutcome, PullResultWrite, manifest};
use crate::clock::Clock;
use crate::controller::apply::{WriteError, Writer};
use crate::controller::events::{Events, Severity, Subject};
use crate::controller::live_reads::last_event;
use crate::controller::metrics::Metrics;
use crate::controller::permissions::PERMISSION_MISSING;
use crate::controller::refused;
use crate::controller::report::refused::WRITE_REFUSED;
use crate::core::foreign::one_line;
use crate::core::messages::refusals::lacks_permission;
use crate::core::names::{
    BASE_RBAC, POD_IMAGE_READY, PRE_PULL_RBAC, PULL_FAILED, PULL_IMAGE_FAIL, PULL_IMAGE_SUCCESS,
    WAIT_PULL_IMAGE,
};
use crate::core::{PullInitiator, message_of};
use crate::k8s::client::{CallError, Failure, WRITE_DEADLINE, within};
use crate::k8s::{self, AdvancedDaemonSet};
use std::sync::Arc;

/// Maximum length of the failure reason in a condition, in bytes: enough for a registry's error, but not for an HTML error page.
const LONGEST: usize = 400;

/// Attempts to write a result. An attempt conflicts if the kubelet writes to the same pod's status at that moment.
const ATTEMPTS: usize = 4;

/// Prefix that the Job controller adds to the API server's error message.
const REFUSED_POD: &str = "Error creating: ";

/// Dependencies of the requests.
#[derive(Clone)]
pub(super) struct Calls {
    pub(super) client: Client,
    pub(super) writer: Writer,
    pub(super) events: Events,
    pub(super) metrics: Arc<Metrics>,
    pub(super) clock: Clock,
    pub(super) written: mpsc::UnboundedSender<PullResultWrite>,
}

impl Calls {
    /// Carries out one step.
    pub(super) async fn take(&self, step: &PullStep) -> PullStepResult {
        match step {
            PullStep::Begin(request) => self.begin(request).await,
            PullStep::Look(request, job) => self.look(request, job).await,
            PullStep::Tell(request, outcome, job) => {
                self.tell(request, outcome, job.as_ref()).await
            }
            PullStep::Clear(job) => self.clear(job).await,
        }
    }

    /// Creates the Job from the current template, if that is still the template of the request.
    async fn begin(&self, request: &PullRequest) -> PullStepResult {
        let name = &request.key.name;
        let set = if request.key.is_advanced() {
            self.read::<AdvancedDaemonSet>(request, name).await
        } else {
            self.read::<DaemonSet>(request, name).await
        };
        let (Some(set), Some(pod)) = (
            set,
            self.read::<Pod>(request, request.pull.pod.name.as_str())
                .await,
        ) else {
            return PullStepResult::Failed;
        };
        let meant = set["metadata"]["uid"] == *request.set_uid
            && set["metadata"]["generation"] == request.generation
            && pod["metadata"]["uid"] == request.pull.pod.uid.to_string();
        if !meant {
            return PullStepResult::Failed; // the object has changed; the watches are about to report it
        }
        let template = &set["spec"]["template"];
        let images = manifest::images(template, &pod);
        if images.is_empty() {
            return PullStepResult::Ended(PullOutcome::Pulled);
        }
        let (namespace, daemonset) = (&*request.key.namespace, &*request.key.name);
        let name = name_of(request);
        let job = manifest::job(
            &name,
            namespace,
            daemonset,
            &request.pull,
            request.timeout,
            template,
            &images,
        );
        match self.writer.create_job(namespace, &job).await {
            Ok(made) => {
                info!(daemonset = %request.key, job = name, node = %request.pull.node, "Made a Job that pulls images");
                match serde_json::from_str(&made) {
                    Ok(job) => PullStepResult::Begun(Box::new(job)),
                    Err(_) => PullStepResult::Failed, // the Job was created, and the watch reports it
                }
            }
            Err(refusal) => self.refused(request, &refusal),
        }
    }

    /// Converts a rejected Job to a failed pull, because another attempt would be rejected too.
    fn refused(&self, request: &PullRequest, refusal: &WriteError) -> PullStepResult {
        let WriteError::Failed { error, .. } = refusal else {
            return PullStepResult::Failed;
        };
        match error.failure() {
            // The credentials may have just been renewed, so try again.
            Failure::Forbidden if is_unauthorized(error) => PullStepResult::Failed,
            Failure::Forbidden | Failure::Refused => {
                warn!(daemonset = %request.key, %error, "A Job that pulls images was refused");
                let mut why = error.to_string();
                if lacks_permission(&why) {
                    why.push_str("; grant it: kubectl apply -k ");
                    why.push_str(PRE_PULL_RBAC);
                    self.complain(request, &why);
                }
                PullStepResult::Ended(PullOutcome::Failed(why))
            }
            Failure::Gone
            | Failure::Conflict
            | Failure::Blocked
            | Failure::Throttled
            | Failure::Unreachable => PullStepResult::Failed,
        }
    }

    fn complain(&self, request: &PullRequest, why: &str) {
        let about = Subject::of_set(&request.key, &request.set_uid);
        let note = format!("cannot pull images ahead: {why}");
        self.events
            .publish(&about, Severity::Warning, PERMISSION_MISSING, &note);
    }

    /// Passes the result of a status write on to the engine, for a pull that the rollout requested. A pull that a node owner
    /// requested is reported in an Event.
    fn report(&self, request: &PullRequest, result: Result<(), WriteError>) {
        if request.pull.initiator == PullInitiator::Rollout {
            let (key, pod) = (request.key.clone(), request.pull.pod.clone());
            // Sending fails only during shutdown, when the receiver is gone.
            let _ = self.written.send(PullResultWrite { key, pod, result });
        }
    }

    /// Publishes that the result of a pull cannot be written, because the node owner waits for it.
    fn tell_unwritten(&self, request: &PullRequest, why: &str) {
        let about = Subject::of_set(&request.key, &request.set_uid);
        let why = refused::sentence(why, request.pull.pod.name.as_str());
        let note = format!(
            "the API server refuses to write how pulls of images ended: {why}; it is tried again, and until it is \
             written their owners wait"
        );
        self.events
            .publish(&about, Severity::Warning, WRITE_REFUSED, &note);
    }

    /// Reads why a Job has no pod from the Events of the Job controller.
    async fn look(&self, request: &PullRequest, job: &JobRef) -> PullStepResult {
        let failed = format!("involvedObject.uid={},reason=FailedCreate", job.uid);
        let last = match last_event(&self.client, &request.key.namespace, &failed).await {
            Ok(last) => last,
            Err(error) => {
                warn!(daemonset = %request.key, job = job.name, %error, "Cannot read the Events of a Job");
                return PullStepResult::Looked(None);
            }
        };
        let said = last.and_then(|event| event.message);
        PullStepResult::Looked(said.map(|said| said.trim_start_matches(REFUSED_POD).to_owned()))
    }

    /// Writes the result of a pull if the pod still requests the pull of this revision.
    async fn tell(
        &self,
        request: &PullRequest,
        outcome: &PullOutcome,
        job: Option<&JobRef>,
    ) -> PullStepResult {
        let name = job.map_or_else(|| name_of(request), |job| job.name.clone());
        for _ in 0..ATTEMPTS {
            let api: Api<k8s::Pod> = Api::namespaced(self.client.clone(), &request.key.namespace);
            let pod = request.pull.pod.name.as_str();
            let pod = match within(WRITE_DEADLINE, api.get(pod)).await {
                Ok(pod) => pod,
                Err(error) if error.failure() == Failure::Gone => {
                    return PullStepResult::Told(None);
                }
                Err(error) => return self.hold(request, &error),
            };
            let version = pod.metadata.resource_version.clone().unwrap_or_default();
            if !asks(&pod, request) {
                return PullStepResult::Told(version.parse().ok());
            }
            let condition = condition(request, outcome, &name, &self.clock);
            let written = self
                .writer
                .set_condition(&request.key, &request.pull.pod, &version, condition)
                .await;
            match written {
                Ok(pod) => {
                    let pulled = *outcome == PullOutcome::Pulled;
                    info!(daemonset = %request.key, pod = %request.pull.pod.name, job = name, pulled, "Told how a pull ended");
                    self.metrics.image_pulled(pulled);
                    self.report(request, Ok(()));
                    return PullStepResult::Told(version_of(&pod));
                }
                Err(refusal) if refusal.failure() == Some(Failure::Conflict) => {}
                Err(refusal) => {
                    let result = match &refusal {
                        WriteError::Failed { error, .. } => self.hold(request, error),
                        WriteError::NotLeader => PullStepResult::Failed,
                    };
                    self.report(request, Err(refusal));
                    return result;
                }
            }
        }
        PullStepResult::Failed
    }

    fn hold(&self, request: &PullRequest, error: &CallError) -> PullStepResult {
        warn!(daemonset = %request.key, pod = %request.pull.pod.name, %error, "Cannot tell how a pull ended yet");
        let why = error.to_string();
        match error.failure() {
            Failure::Forbidden if lacks_permission(&why) => {
                let cure = format!("{why}; grant it: kubectl apply -k {BASE_RBAC}");
                self.complain(request, &cure);
            }
            Failure::Forbidden | Failure::Refused
                if request.pull.initiator == PullInitiator::Owner =>
            {
                self.tell_unwritten(request, &why);
            }
            _ => {}
        }
        PullStepResult::Failed
    }

    async fn clear(&self, job: &JobRef) -> PullStepResult {
        let cleared = self.writer.delete_job(&job.namespace, &job.name, &job.uid);
        match cleared.await {
            Ok(()) => PullStepResult::Told(None),
            Err(refusal) => match refusal.failure() {
                // The Job is gone. A conflict means that another Job has the same name.
                Some(Failure::Gone | Failure::Conflict) => PullStepResult::Told(None),
                _ => {
                    if let WriteError::Failed { error, .. } = refusal {
                        warn!(job = job.name, %error, "Cannot remove a Job yet");
                    }
                    PullStepResult::Failed
                }
            },
        }
    }

    /// Reads the whole present object.
    async fn read<K: Resource<DynamicType = ()>>(
        &self,
        request: &PullRequest,
        name: &str,
    ) -> Option<Value> {
        let url = K::url_path(&(), Some(&request.key.namespace));
        let call = Request::new(url).get(name, &Default::default());
        let call = async {
            let call = call.map_err(kube::Error::BuildRequest)?;
            self.client.request::<Value>(call).await
        };
        match within(WRITE_DEADLINE, call).await {
            Ok(object) => Some(object),
            Err(error) => {
                warn!(daemonset = %request.key, name, %error, "Cannot read what a pull needs yet");
                None
            }
        }
    }
}

/// Returns the name of the Job for a request.
fn name_of(request: &PullRequest) -> String {
    job_name(
        request.pull.pod.name.as_str(),
        request.pull.revision.as_str(),
    )
}

/// Returns true if a pod requests the pull of this revision and has no result yet.
fn asks(pod: &k8s::Pod, request: &PullRequest) -> bool {
    let message = message_of(request.pull.revision.as_str());
    pod.metadata.uid == Some(request.pull.pod.uid.to_string())
        && pod.metadata.deletion_timestamp.is_none()
        && pod.status.conditions.iter().any(|condition| {
            condition.kind == POD_IMAGE_READY
                && condition.status != "True"
                && ["", WAIT_PULL_IMAGE].contains(&condition.reason.as_str())
                && condition.message.trim() == message
        })
}

fn condition(request: &PullRequest, outcome: &PullOutcome, job: &str, clock: &Clock) -> Value {
    match outcome {
        PullOutcome::Pulled => json!({
            "type": POD_IMAGE_READY,
            "status": "True",
            "reason": PULL_IMAGE_SUCCESS,
            "message": message_of(request.pull.revision.as_str()),
            "lastTransitionTime": clock.time(),
        }),
        // The transition time is kept: the status remains `False`. The probe time of a failure determines when the next attempt
        // starts.
        PullOutcome::Failed(why) => json!({
            "type": POD_IMAGE_READY,
            "status": "False",
            "reason": PULL_IMAGE_FAIL,
            "message": format!(
                "pull image job {job}{PULL_FAILED}{} ({})",
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

fn version_of(object: &str) -> Option<u64> {
    let object: Value = serde_json::from_str(object).ok()?;
    object["metadata"]["resourceVersion"].as_str()?.parse().ok()
}

/// Returns the label selector for pre-pull Jobs and their pods.
pub(super) fn selector() -> &'static str {
    crate::core::names::PRE_PULL_POD
}

/// Returns the Job that a step created.
pub(super) fn made(answer: &PullStepResult) -> Option<Job> {
    match answer {
        PullStepResult::Begun(job) => Some((**job).clone()),
        _ => None,
    }
}
