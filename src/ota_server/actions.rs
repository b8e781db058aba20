//! What an owner may do to a pod: replace it, and have its images pulled before.
//!
//! ```text
//! request ─► admit (memory: checks 1-9, no API request) ─► turn (one call per pod) ─► live (checks 1-9 again, the
//!                                                                                    DaemonSet and its revisions)
//!                                        DELETE / PATCH / manifest ◄────────────────────┘
//! ```
//!
//! The checks, their order, statuses and texts: docs/reference/node-api.md. One call writes once, and
//! never before a read of the same call was answered.

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

/// What actions need.
#[derive(Clone)]
pub(super) struct Setup {
    /// The API server.
    pub(super) client: Client,
    /// The pods of this node.
    pub(super) pod_cache: PodCache,
    /// Whether the API server answers.
    pub(super) cloud: Cloud,
    /// This node.
    pub(super) node: String,
    /// The time.
    pub(super) clock: Clock,
    /// Where the kubelet finds the manifests of static pods.
    pub(super) manifest_dir: PathBuf,
}

/// What owners may do. Cheap to clone; all clones are one.
#[derive(Clone)]
pub(super) struct Actions {
    setup: Setup,
    live: ApiReader,
    upgrade_locks: UpgradeLocks,
    pod_lookups: PodLookups,
    revisions: Revisions,
    guarded: GuardedManifest,
    /// Held by the one call that finds out whether a lost cloud is back.
    probe: Arc<AsyncMutex<()>>,
}

impl Actions {
    /// Ready to act; nothing is asked before somebody does.
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

    /// Replaces that pod; `force`: also when the images that were asked for are not there.
    pub(super) async fn upgrade(&self, key: &PodKey, force: bool) -> Answer {
        self.replace(ActionVerb::Upgrade { force }, key)
            .await
            .unwrap_or_else(|refusal| refusal)
    }

    /// Has the images of that pod's new version pulled.
    pub(super) async fn image_pull(&self, key: &PodKey) -> Answer {
        self.request_pull(key)
            .await
            .unwrap_or_else(|refusal| refusal)
    }

    /// Watches over replaced static pods until dropped, beginning with those of an earlier run.
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

    /// Waits for the end of other calls for this pod.
    async fn lock(&self, verb: ActionVerb, pod: &NodePod) -> Result<UpgradeLock, Answer> {
        let held = self.upgrade_locks.take(pod, &self.setup.pod_cache).await;
        if held.is_deleted() {
            return Err(verb.deleting(pod.key()));
        }
        if held.waited && self.setup.cloud.is_lost() {
            return Err(text::disconnected(Reason::Disconnected)); // the call before found that out, just now
        }
        Ok(held)
    }

    /// Reads everything live, and says whether the pod is to be replaced, and by which revision.
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
            match api_reader::judge(&pod, owner, &set, &revisions, last, now) {
                LiveJudgement::Outdated(target) => return Ok((pod, target)),
                LiveJudgement::Refused(reason) => return Err(verb.not_upgradable(key, reason)),
                LiveJudgement::InDoubt => seen = self.live.look_again(key, owner).await,
            }
        }
        Err(verb.not_upgradable(key, Reason::NativeControllerBehind))
    }

    /// Deletes this pod and no other of its name. The kubelet writes its status all the time, so the version is left out.
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
                info!(pod = %key, %target, "Deleted the old pod, as the owner of the node asked");
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

    /// Whether this pod ends or is gone by now, as the API server says.
    async fn is_going(&self, pod: &NodePod) -> bool {
        match self.live.pod(pod.key()).await {
            Ok(read) => read.facts().uid != pod.facts().uid || read.facts().deleting,
            Err(error) => error.failure() == Failure::Gone,
        }
    }

    /// Sets the one condition that asks for a pull, unless it was asked for already.
    async fn ask_for_images(
        &self,
        verb: ActionVerb,
        pod: &NodePod,
        target: &Revision,
    ) -> Result<Answer, Answer> {
        let (key, facts) = (pod.key(), pod.facts());
        let announced = facts.need_upgrade.as_ref();
        // Without a hash the condition is an old one; with one, both conditions have to name the same.
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
                info!(pod = %key, %hash, "Asked for the images, as the owner of the node did");
                Ok(verb.accepted(key, Reason::Requested))
            }
            Err(error) => Err(match error.failure() {
                Failure::Gone | Failure::Conflict => text::not_found(key),
                _ => not_applied(verb, key, "patch pods/status", &error),
            }),
        }
    }
}

/// Check 11: the write failed, and the log says why.
fn not_applied(verb: ActionVerb, key: &PodKey, what: &str, error: &CallError) -> Answer {
    warn!(pod = %key, %error, "Cannot {what}");
    match (error.refused_by_admission(), error.failure()) {
        (Some(said), _) => verb.refused_by_admission(said),
        (None, Failure::Forbidden) => verb.not_applied(Reason::Forbidden),
        (None, _) => verb.not_applied(Reason::ApplyFailed),
    }
}

#[cfg(test)]
mod tests;
