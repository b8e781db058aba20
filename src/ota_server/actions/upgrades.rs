//! Available upgrades of this node with their images: `GET /yurt-ds/v1/upgrades`.
//!
//! The pods come from the cache. The images of a revision are read once and cached, because a ControllerRevision never changes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::StatusCode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::precheck::{image_of, is_repelled, needs_upgrade};
use super::reason::Reason;
use super::{Actions, text};
use crate::core::names::REVISION_HASH_LABEL;
use crate::k8s::{self, Container, ControllerRevision, PodSpec, nullable};
use crate::ota_server::answer::Answer;
use crate::ota_server::cloud::SPACING;
use crate::ota_server::pod::NodePod;

/// Maximum number of cached revisions. Each DaemonSet of a node has only a few.
const REVISIONS: usize = 256;
/// Time until a missing revision is read again.
const ABSENT: Duration = Duration::from_secs(30);

/// Cache of the images of revisions. Cheap to clone: all clones share the cache.
#[derive(Clone, Debug, Default)]
pub(super) struct Revisions(Arc<Mutex<BTreeMap<RevisionKey, CachedRevision>>>);

/// UID of the DaemonSet, and hash of the revision.
type RevisionKey = (String, String);

#[derive(Clone, Debug)]
enum CachedRevision {
    Containers(Arc<[ListedContainer]>),
    AbsentUntil(Instant),
}

/// Container of a pod or a pod template, with its type.
#[derive(Clone, Debug)]
struct ListedContainer {
    container: Container,
    is_init: bool,
}

/// Fields of a ControllerRevision that a node owner needs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Revision {
    #[serde(deserialize_with = "nullable")]
    metadata: RevisionMeta,
    #[serde(deserialize_with = "nullable")]
    data: Data,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RevisionMeta {
    #[serde(deserialize_with = "nullable")]
    owner_references: Vec<OwnerReference>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Data {
    #[serde(deserialize_with = "nullable")]
    spec: DataSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct DataSpec {
    #[serde(deserialize_with = "nullable")]
    template: Template,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Template {
    #[serde(deserialize_with = "nullable")]
    spec: PodSpec,
}

impl Actions {
    /// Returns the available upgrades as JSON.
    ///
    /// # Errors
    /// Fails if the agent has not received the pods of this node yet.
    pub(in crate::ota_server) async fn upgrades(&self) -> Result<Value, Answer> {
        let Some(mut pods) = self.setup.pod_cache.pods() else {
            let (status, text) = (StatusCode::INTERNAL_SERVER_ERROR, "Get pod list failed");
            return Err(text::answer(status, Reason::NothingKnownYet, text));
        };
        pods.retain(|pod| needs_upgrade(pod.facts()));
        self.learn(&pods).await;
        let items: Vec<Value> = pods.iter().map(|pod| self.upgrade_of(pod)).collect();
        Ok(json!({
            "kind": "UpgradeList",
            "apiVersion": "yurt-ds/v1",
            "node": self.setup.node,
            "items": items,
        }))
    }

    fn upgrade_of(&self, pod: &NodePod) -> Value {
        let (key, facts) = (pod.key(), pod.facts());
        let revision = revision_of(pod);
        let new = revision.as_ref().and_then(|key| self.revisions.get(key));
        let image = image_of(facts).map(|image| {
            json!({ "status": image.status, "reason": image.reason, "message": image.message })
        });
        json!({
            "namespace": key.namespace,
            "pod": key.name,
            "daemonSet": daemonset(pod).map(|owner| &owner.name),
            "revision": facts.need_upgrade.as_ref().and_then(|condition| condition.hash()),
            "containers": containers(pod, new.as_deref()),
            "imageReady": image,
            "refused": is_repelled(facts).then(|| json!({
                "reason": Reason::UntoleratedTaint.word(),
                "message": text::REPELLED,
            })),
            "deleting": facts.deleting,
        })
    }

    /// Reads all missing revisions concurrently. If a read fails, a later call reads the revision again.
    async fn learn(&self, pods: &[NodePod]) {
        if self.setup.cloud.is_throttled() || self.setup.cloud.is_lost() {
            return; // Without a connection to the API server, reads would time out and delay the caller.
        }
        let wanted = pods
            .iter()
            .filter_map(|pod| Some((revision_of(pod)?, pod)))
            .filter(|(key, _)| self.revisions.is_wanted(key))
            .collect::<BTreeMap<_, _>>();
        let asked = wanted.into_iter().map(|(key, pod)| async move {
            let selector = format!("{REVISION_HASH_LABEL}={}", key.1);
            let list = self
                .live
                .list::<Revision, ControllerRevision>(&pod.key().namespace, &selector);
            match list.await {
                Ok(found) => self.revisions.take(key, found),
                Err(_) => self
                    .revisions
                    .put(key, CachedRevision::AbsentUntil(Instant::now() + SPACING)),
            }
        });
        futures::future::join_all(asked).await;
    }
}

impl Revisions {
    fn get(&self, key: &RevisionKey) -> Option<Arc<[ListedContainer]>> {
        match self.state().get(key) {
            Some(CachedRevision::Containers(containers)) => Some(containers.clone()),
            _ => None,
        }
    }

    fn is_wanted(&self, key: &RevisionKey) -> bool {
        match self.state().get(key) {
            None => true,
            Some(CachedRevision::Containers(_)) => false,
            Some(CachedRevision::AbsentUntil(until)) => *until <= Instant::now(),
        }
    }

    fn take(&self, key: RevisionKey, found: Vec<Revision>) {
        let is_owned = |revision: &Revision| {
            let mut owners = revision.metadata.owner_references.iter();
            owners.any(|owner| owner.controller == Some(true) && owner.uid == key.0)
        };
        let known = match found.into_iter().find(is_owned) {
            Some(revision) => {
                let containers = revision.data.spec.template.spec;
                let containers = containers.in_order().map(|(container, is_init)| {
                    let container = container.clone();
                    ListedContainer { container, is_init }
                });
                CachedRevision::Containers(containers.collect())
            }
            None => CachedRevision::AbsentUntil(Instant::now() + ABSENT),
        };
        self.put(key, known);
    }

    fn put(&self, key: RevisionKey, known: CachedRevision) {
        let mut state = self.state();
        if state.len() >= REVISIONS {
            state.clear();
        }
        state.insert(key, known);
    }

    fn state(&self) -> MutexGuard<'_, BTreeMap<RevisionKey, CachedRevision>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn daemonset(pod: &NodePod) -> Option<&OwnerReference> {
    pod.controller().filter(|owner| owner.kind == "DaemonSet")
}

/// Returns the revision of a pod after an upgrade; `None` if its condition names no valid revision.
fn revision_of(pod: &NodePod) -> Option<RevisionKey> {
    let hash = pod.facts().need_upgrade.as_ref()?.hash()?;
    let is_label = hash.len() <= 63 && hash.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_label.then_some((daemonset(pod)?.uid.clone(), hash.to_owned()))
}

/// Returns the containers of a pod with their present and new images. `new` has the containers of the new revision, if known.
fn containers(pod: &NodePod, new: Option<&[ListedContainer]>) -> Vec<Value> {
    let running: k8s::Pod = serde_json::from_str(pod.raw()).unwrap_or_default();
    let status_of = |name: &str| {
        let init = running.status.init_container_statuses.iter();
        let mut statuses = init.chain(&running.status.container_statuses);
        statuses.find(|status| status.name == name)
    };
    let image_of = |name: &str| {
        let mut new = new.into_iter().flatten();
        new.find(|listed| listed.container.name == name)
            .map(|listed| &listed.container.image)
    };
    let mut listed: Vec<Value> = running
        .spec
        .in_order()
        .map(|(container, is_init)| {
            let name = &container.name;
            let mut entry = json!({
                "name": name,
                "init": is_init,
                "image": container.image,
                "newImage": image_of(name),
            });
            let status = status_of(name);
            if let Some(status) = status.filter(|status| !status.image_id.is_empty()) {
                entry["imageID"] = json!(status.image_id);
            }
            entry
        })
        .collect();
    let comes = |new: &&ListedContainer| {
        let mut present = running.spec.in_order();
        present.all(|(container, _)| container.name != new.container.name)
    };
    let added = new.into_iter().flatten().filter(comes);
    let added = added.map(|ListedContainer { container, is_init }| {
        json!({
            "name": container.name,
            "init": is_init,
            "image": null,
            "newImage": container.image,
        })
    });
    listed.extend(added);
    listed
}
