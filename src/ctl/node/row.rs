//! Data of every output format. Tables, JSON and YAML are rendered from the same rows.
//!
//! Field names are stable for scripts: fields may be added, but are never renamed or removed. Times are in RFC 3339.

use serde::Serialize;

use super::answer::{Pods, one_line};
use super::pod::{AnnouncedUpdate, Problem, PulledImages, daemonset, refused, target};
use super::upgrades::{PodUpgrade, Upgrades};
use crate::core::instant;
use crate::k8s::Pod;

/// Description of the fields of `-o json` and `-o yaml`, for the reference.
pub(crate) const FIELDS: &str = "\
Fields of -o json and -o yaml (fields may be added, but not renamed; null if unknown):
  of a pod        namespace, name, node, daemonSet, ready, readyContainers, problem, terminating, created, revision,
                  update (available or upToDate), updateRefused (UntoleratedTaint: the node would get no new pod,
                  so an upgrade needs --force; else null), target (the revision announced), newRevision,
                  imageReady (pulled, pulling, failed or stale), imageReadyMessage, containers,
                  cacheAgeSeconds (age of this data; null if the server does not report it)
  of a container  name, init, image, newImage
  of a request    namespace, name, request (upgrade or imagepull), answer (of the server), outcome, message,
                  pod (the new pod, or the one whose images were pulled; null if there is none)
  outcome         Accepted, Upgraded, OldRevision, Pulled, PullFailed, Withdrawn, Gone, TimedOut";

/// State of a pod of this node in the output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePodRow {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// Node of the pod.
    pub node: Option<String>,
    /// DaemonSet that owns the pod.
    pub daemon_set: Option<String>,
    /// True if the pod is Ready.
    pub ready: bool,
    /// Number of ready containers and of all containers, as in `1/1`.
    pub ready_containers: String,
    /// Problem that keeps the pod from running, in one word such as `ImagePullBackOff`.
    pub problem: Option<String>,
    /// True if the pod is being deleted.
    pub terminating: bool,
    /// Creation time of the pod.
    pub created: Option<String>,
    /// Hash of the revision that the pod was created from.
    pub revision: Option<String>,
    /// Update state: `available` or `upToDate`; `null` if no condition reports it.
    pub update: Option<&'static str>,
    /// `UntoleratedTaint` if an upgrade needs `--force` because the node would get no new pod; otherwise `null`.
    pub update_refused: Option<&'static str>,
    /// Hash of the current revision, as the pod's condition `PodNeedUpgrade` has it.
    pub target: Option<String>,
    /// Hash of the revision that an upgrade installs; `null` if the server does not report it.
    pub new_revision: Option<String>,
    /// State of an image pull in advance: `pulled`, `pulling`, `failed` or `stale`; `null` if no pull was requested.
    pub image_ready: Option<&'static str>,
    /// Reason of a failed image pull; `null` otherwise.
    pub image_ready_message: Option<String>,
    /// Init containers and containers of the pod.
    pub containers: Vec<ContainerRow>,
    /// Age of the server's data in seconds; `null` if the server does not report it.
    pub cache_age_seconds: Option<u64>,
}

/// A container of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerRow {
    /// Name of the container.
    pub name: String,
    /// True if it is an init container.
    pub init: bool,
    /// Present image; `null` for a container that an upgrade adds.
    pub image: Option<String>,
    /// Image after the upgrade; `null` if unknown or if the upgrade removes the container.
    pub new_image: Option<String>,
}

/// Result of a request in the output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ActRow {
    /// Namespace of the pod in the request.
    pub namespace: String,
    /// Name of the pod in the request.
    pub name: String,
    /// Request that was sent: `upgrade` or `imagepull`.
    pub request: &'static str,
    /// Text of the server's response.
    pub answer: String,
    /// Result in one word.
    pub outcome: &'static str,
    /// Result as a sentence.
    pub message: String,
    /// New pod, or the pod whose images were pulled; `null` if there is none.
    pub pod: Option<NodePodRow>,
}

impl NodePodRow {
    pub(super) fn new(pod: &Pod, pods: &Pods, upgrades: Option<&Upgrades>) -> Self {
        let (images, upgrade) = (
            PulledImages::of(pod),
            upgrades.and_then(|upgrades| upgrades.for_pod(pod)),
        );
        let statuses = pod.status.container_statuses.iter();
        let ready = statuses.filter(|status| status.ready).count();
        let node = pod.spec.node_name.clone();
        let created = pod.metadata.creation_timestamp.as_ref();
        Self {
            namespace: pod.namespace().to_owned(),
            name: pod.name().to_owned(),
            node: node.filter(|node| !node.is_empty()),
            daemon_set: daemonset(pod).map(str::to_owned),
            ready: pod.is_ready(),
            ready_containers: format!("{ready}/{}", pod.spec.containers.len()),
            problem: Problem::of(pod).map(|problem| problem.word),
            terminating: pod.is_deleting(),
            created: created.map(|time| instant::words(time.0)),
            revision: pod.revision().map(str::to_owned),
            update: AnnouncedUpdate::of(pod).map(AnnouncedUpdate::word),
            update_refused: refused(pod),
            target: target(pod).map(str::to_owned),
            new_revision: upgrade.and_then(|upgrade| upgrade.revision.clone()),
            image_ready: images.as_ref().map(PulledImages::word),
            image_ready_message: match images {
                Some(PulledImages::Failed(message)) => Some(one_line(&message)),
                _ => None,
            },
            containers: containers(pod, upgrade),
            cache_age_seconds: pods.age(),
        }
    }

    /// Returns `namespace/name`.
    pub(super) fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

fn containers(pod: &Pod, upgrade: Option<&PodUpgrade>) -> Vec<ContainerRow> {
    let announced = upgrade.map_or(&[][..], |upgrade| &upgrade.containers);
    let mut rows: Vec<ContainerRow> = pod
        .spec
        .in_order()
        .map(|(container, init)| {
            let mut same = announced
                .iter()
                .filter(|other| other.name == container.name);
            ContainerRow {
                name: container.name.clone(),
                init,
                image: Some(container.image.clone()),
                new_image: same.next().and_then(|other| other.new_image.clone()),
            }
        })
        .collect();
    for added in announced {
        if rows.iter().all(|row| row.name != added.name) && added.new_image.is_some() {
            rows.push(ContainerRow {
                name: added.name.clone(),
                init: added.init,
                image: None,
                new_image: added.new_image.clone(),
            });
        }
    }
    rows
}

/// Returns the problem as one word, followed by the kubelet's message.
pub(super) fn describe_problem(problem: &Problem) -> String {
    if problem.message.is_empty() {
        one_line(&problem.word)
    } else {
        one_line(&format!("{} ({})", problem.word, problem.message))
    }
}
