//! Actions of a node owner on a pod: replace the pod, or pull its new images in advance.
//!
//! ```text
//! request ─► admit (cache: checks 1-9, no API request) ─► lock (one call per pod) ─► live (checks 1-9 again, the
//!                                                                                    DaemonSet and its revisions)
//!                                        DELETE / PATCH / manifest ◄────────────────────┘
//! ```
//!
//! docs/reference/node-api.md lists the checks with their order, statuses and texts. A call writes only once, after the API server
//! has answered a read of the same call.

mod admit;
mod api_reader;
mod pod_lookups;
mod precheck;
mod reason;
mod static_pod;
mod text;
mod upgrade_locks;
mod upgrades;

use std::path::PathBuf;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use kube::api::{DeleteParams, Preconditions};
use serde_json::json;
use tokio::sync::Mutex as AsyncMutex;
use tracing::{info, warn};

use self::admit::Admitted;
use self::api_reader::{ApiReader, LiveJudgement, requests};
use self::pod_lookups::PodLookups;
use self::precheck::{PodOwner, is_failed, precheck};
use self::reason::Reason;
use self::static_pod::GuardedManifest;
use self::text::ActionVerb;
use self::upgrade_locks::{UpgradeLock, UpgradeLocks};
use self::upgrades::Revisions;
use super::answer::Answer;
use super::cloud::Cloud;
use super::pod::{NodePod, PodKey};
use super::pod_cache::PodCache;
use crate::clock::Clock;
use crate::core::Revision;
use crate::core::names::OTA_SERVER;
use crate::k8s;
use crate::k8s::client::conditions::{image_request, patch_conditions};
use crate::k8s::client::{CallError, Failure};

/// Dependencies of the actions.
#[derive(Clone)]
pub(super) struct Setup {
    pub(super) client: Client,
    /// Pods of this node.
    pub(super) pod_cache: PodCache,
    pub(super) cloud: Cloud,
    pub(super) node: String,
    pub(super) clock: Clock,
    /// Directory from which the kubelet reads static pods.
    pub(super) manifest_dir: PathBuf,
}

/// Actions of node owners. Cheap to clone: all clones share their state.
#[derive(Clone)]
pub(super) struct Actions {
    setup: Setup,
    live: ApiReader,
    upgrade_locks: UpgradeLocks,
    pod_lookups: PodLookups,
    revisions: Revisions,
    guarded: GuardedManifest,
    /// Lock of the call that checks whether the API server answers again after an outage. Other calls wait for the result of that
    /// check.
    probe: Arc<AsyncMutex<()>>,
}

impl Actions {
    /// Creates the actions without sending a request.
    pub(super) fn new(setup: Setup) -> Self {
        Self {
            live: ApiReader::new(
                setup.client.clone(),
                setup.cloud.clone(),
                setup.pod_cache.clone(),
            ),
            upgrade_locks: UpgradeLocks::default(),
            pod_lookups: PodLookups::default(),
            revisions: Revisions::default(),
            guarded: GuardedManifest::new(setup.manifest_dir.clone()),
            probe: Arc::default(),
            setup,
        }
    }

    /// Replaces a pod. `force` overrides two checks: requested images may be missing, and taints may repel the new pod.
    pub(super) async fn upgrade(&self, key: &PodKey, force: bool) -> Answer {
        self.replace(ActionVerb::Upgrade { force }, key)
            .await
            .unwrap_or_else(|refusal| refusal)
    }

    /// Requests a pull of the images of a pod's newer revision.
    pub(super) async fn image_pull(&self, key: &PodKey) -> Answer {
        self.request_pull(key)
            .await
            .unwrap_or_else(|refusal| refusal)
    }

    /// Watches replaced static pods until dropped, including pods that an earlier run of the agent replaced.
    pub(super) async fn guard_static_pods(self) {
        let Setup {
            pod_cache, clock, ..
        } = &self.setup;
        self.guarded.watch(pod_cache, clock).await;
    }

    async fn replace(&self, verb: ActionVerb, key: &PodKey) -> Result<Answer, Answer> {
        let Admitted { pod, owner } = self.admit(verb, key).await?;
        let held = self.lock(verb, &pod).await?;
        match owner {
            PodOwner::DaemonSet(owner) => {
                let (pod, target) = self.verify(verb, key, &owner).await?;
                self.delete(verb, &pod, &target, &held).await
            }
            PodOwner::Node { name } => self.replace_static(verb, key, &name).await,
        }
    }

    async fn request_pull(&self, key: &PodKey) -> Result<Answer, Answer> {
        let verb = ActionVerb::ImagePull;
        let Admitted { pod, owner } = self.admit(verb, key).await?;
        let _held = self.lock(verb, &pod).await?;
        let PodOwner::DaemonSet(owner) = owner else {
            return Err(text::unsupported("Node"));
        };
        let (pod, target) = self.verify(verb, key, &owner).await?;
        self.ask_for_images(verb, &pod, &target).await
    }

    /// Waits until no other call for this pod is in progress, and returns the lock.
    async fn lock(&self, verb: ActionVerb, pod: &NodePod) -> Result<UpgradeLock, Answer> {
        let held = self.upgrade_locks.take(pod, &self.setup.pod_cache).await;
        if held.is_deleted() {
            return Err(verb.deleting(pod.key()));
        }
        if held.waited && self.setup.cloud.is_lost() {
            return Err(text::disconnected(Reason::Disconnected)); // The call that held the lock got no answer.
        }
        Ok(held)
    }

    /// Reads all objects from the API server, and returns the pod with the revision that replaces it.
    ///
    /// # Errors
    /// Returns the answer to the node owner if the pod must not be replaced.
    async fn verify(
        &self,
        verb: ActionVerb,
        key: &PodKey,
        owner: &OwnerReference,
    ) -> Result<(NodePod, Revision), Answer> {
        let mut seen = self.live.look(key, owner).await;
        for last in [false, true] {
            let pod = seen.pod.map_err(|error| text::not_read(&error))?;
            precheck(verb, &self.setup.node, &pod)?;
            let (set, revisions) = seen.set.map_err(|error| match error.failure() {
                Failure::Gone => verb.not_upgradable(key, Reason::DaemonSetGone),
                _ => text::not_read(&error),
            })?;
            let now = self.setup.clock.now();
            match api_reader::evaluate(&pod, owner, &set, &revisions, last, now) {
                LiveJudgement::Outdated(target) => return Ok((pod, target)),
                LiveJudgement::Refused(reason) => return Err(verb.not_upgradable(key, reason)),
                LiveJudgement::InDoubt => seen = self.live.look_again(key, owner).await,
            }
        }
        Err(verb.not_upgradable(key, Reason::NativeControllerBehind))
    }

    /// Deletes exactly this pod. The only precondition is the UID. A precondition on the resourceVersion would fail after each
    /// status write of the kubelet.
    async fn delete(
        &self,
        verb: ActionVerb,
        pod: &NodePod,
        target: &Revision,
        held: &UpgradeLock,
    ) -> Result<Answer, Answer> {
        let key = pod.key();
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(pod.facts().uid.clone()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let request = requests::<k8s::Pod>(&key.namespace).delete(&key.name, &parameters);
        let mut answer = self.live.write(request).await;
        if let Err(error) = &answer
            && error.failure() == Failure::Unreachable
            && self.is_going(pod).await
        {
            answer = Ok(());
        }
        match answer {
            Ok(()) => {
                held.deleted();
                info!(pod = %key, %target, "Deleted the old pod, as requested by the node owner");
                Ok(verb.accepted(key, Reason::Started))
            }
            Err(error) => Err(match error.failure() {
                Failure::Gone => {
                    held.deleted();
                    verb.deleting(key)
                }
                Failure::Conflict => text::not_found(key),
                _ => not_applied(verb, key, "delete pods", &error),
            }),
        }
    }

    /// Returns true if the API server reports that the pod is gone or terminating.
    async fn is_going(&self, pod: &NodePod) -> bool {
        match self.live.pod(pod.key()).await {
            Ok(read) => read.facts().uid != pod.facts().uid || read.facts().deleting,
            Err(error) => error.failure() == Failure::Gone,
        }
    }

    /// Requests a pull by setting the condition `PodImageReady`, unless a pull of this revision is in progress or complete.
    async fn ask_for_images(
        &self,
        verb: ActionVerb,
        pod: &NodePod,
        target: &Revision,
    ) -> Result<Answer, Answer> {
        let (key, facts) = (pod.key(), pod.facts());
        let announced = facts.need_upgrade.as_ref();
        // `PodImageReady` must name the same revision as `PodNeedUpgrade`. An old `PodNeedUpgrade` may name no revision. In that
        // case, use the current revision.
        let hash = announced
            .and_then(|condition| condition.hash())
            .unwrap_or(target.as_str());
        let present = facts.image_ready.as_ref();
        match present.filter(|image| image.hash() == Some(hash) && !is_failed(image)) {
            Some(image) if image.is_true() => {
                return Ok(verb.accepted(key, Reason::AlreadyPulled));
            }
            Some(_) => return Ok(verb.accepted(key, Reason::AlreadyRequested)),
            None => {}
        }
        let mut condition = image_request(hash);
        if present.is_none_or(|image| image.status != "False") {
            condition["lastTransitionTime"] = json!(self.setup.clock.time());
        }
        let requests = requests::<k8s::Pod>(&key.namespace);
        let uid = facts.uid.as_str();
        let request = patch_conditions(&requests, &key.name, uid, OTA_SERVER, vec![condition]);
        match self.live.write(request).await {
            Ok(()) => {
                info!(pod = %key, %hash, "Requested an image pull, as requested by the node owner");
                Ok(verb.accepted(key, Reason::Requested))
            }
            Err(error) => Err(match error.failure() {
                Failure::Gone | Failure::Conflict => text::not_found(key),
                _ => not_applied(verb, key, "patch pods/status", &error),
            }),
        }
    }
}

/// Logs the error of a failed write, and returns the answer of check 11 to the node owner.
fn not_applied(verb: ActionVerb, key: &PodKey, what: &str, error: &CallError) -> Answer {
    warn!(pod = %key, %error, "Cannot {what}");
    match (error.refused_by_admission(), error.failure()) {
        (Some(message), _) => verb.refused_by_admission(message),
        (None, Failure::Forbidden) => verb.not_applied(Reason::Forbidden),
        (None, _) => verb.not_applied(Reason::ApplyFailed),
    }
}

#[cfg(test)]
mod tests;
