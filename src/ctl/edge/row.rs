//! The rows that every form of an answer is made of: tables, JSON and YAML say the same.
//!
//! Field names are a promise to scripts: fields may be added, none is renamed or removed. Instants are RFC 3339.

use serde::Serialize;

use super::answer::{Pods, one_line};
use super::pod::{LocalPod, Problem, PulledImages};
use super::upgrades::{PodUpgrade, Upgrades};
use crate::core::instant;

/// What `-o json` and `-o yaml` contain, for the reference.
pub(crate) const FIELDS: &str = "\
Fields of -o json and -o yaml (fields may be added, none is renamed; null where nothing is known):
  of a pod        namespace, name, node, daemonSet, ready, readyContainers, problem, terminating, created, revision,
                  update (available or upToDate), updateRefused (UntoleratedTaint: no new pod would come to the
                  node, so an upgrade is refused without --force; null where it is not), target (the revision announced), newRevision,
                  imageReady (pulled, pulling, failed or stale), imageReadyMessage, containers,
                  cacheAgeSeconds (how old this is; null when the server does not tell)
  of a container  name, init, image, newImage
  of a request    namespace, name, request (upgrade or imagepull), answer (of the server), outcome, message,
                  pod (the one that came, or whose images were pulled; null when there is none)
  outcome         Accepted, Upgraded, OldRevision, Pulled, PullFailed, Withdrawn, Gone, TimedOut";

/// A pod of this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePodRow {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The node it runs on.
    pub node: Option<String>,
    /// The DaemonSet it belongs to.
    pub daemon_set: Option<String>,
    /// Whether it is Ready.
    pub ready: bool,
    /// Ready containers of all, as in `1/1`.
    pub ready_containers: String,
    /// What keeps it from running, one word such as `ImagePullBackOff`.
    pub problem: Option<String>,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// When it was made.
    pub created: Option<String>,
    /// Hash of the revision it was made from.
    pub revision: Option<String>,
    /// `available` or `upToDate`; `null` when nobody said.
    pub update: Option<&'static str>,
    /// `UntoleratedTaint`: an upgrade is refused without `--force`, because no new pod would come; `null` where it is not.
    pub update_refused: Option<&'static str>,
    /// The revision it should run, as announced.
    pub target: Option<String>,
    /// Hash of the revision an upgrade brings; `null` unless the server tells.
    pub new_revision: Option<String>,
    /// `pulled`, `pulling`, `failed` or `stale`; `null` when nobody asked.
    pub image_ready: Option<&'static str>,
    /// Why pulling failed.
    pub image_ready_message: Option<String>,
    /// Init containers and containers.
    pub containers: Vec<ContainerRow>,
    /// How old this is, in seconds; `null` when the server does not tell.
    pub cache_age_seconds: Option<u64>,
}

/// A container of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerRow {
    /// Its name; `null` where only images are known.
    pub name: String,
    /// Whether it is an init container.
    pub init: bool,
    /// What it runs; `null` for one that an upgrade adds.
    pub image: Option<String>,
    /// What it is to run; `null` when unknown, or when an upgrade removes it.
    pub new_image: Option<String>,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ActRow {
    /// Namespace of the pod that was named.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// `upgrade` or `imagepull`.
    pub request: &'static str,
    /// What the server said.
    pub answer: String,
    /// How it ended, one word.
    pub outcome: &'static str,
    /// The same as a sentence.
    pub message: String,
    /// The pod that came, or whose images were pulled.
    pub pod: Option<NodePodRow>,
}

impl NodePodRow {
    /// The row of a pod.
    pub(super) fn new(pod: &LocalPod, pods: &Pods, upgrades: Option<&Upgrades>) -> Self {
        let (images, upgrade) = (pod.images(), upgrades.and_then(|told| told.for_pod(pod)));
        let (ready, all) = pod.ready_containers();
        let node = pod.node();
        Self {
            namespace: pod.namespace().to_owned(),
            name: pod.name().to_owned(),
            node: (!node.is_empty()).then(|| node.to_owned()),
            daemon_set: pod.daemonset().map(str::to_owned),
            ready: pod.is_ready(),
            ready_containers: format!("{ready}/{all}"),
            problem: pod.problem().map(|problem| problem.word),
            terminating: pod.is_deleting(),
            created: pod.created().map(instant::words),
            revision: pod.revision().map(str::to_owned),
            update: pod.update().map(super::pod::AnnouncedUpdate::word),
            update_refused: pod.refused(),
            target: pod.target().map(str::to_owned),
            new_revision: upgrade.and_then(|told| told.revision.clone()),
            image_ready: images.as_ref().map(PulledImages::word),
            image_ready_message: match images {
                Some(PulledImages::Failed(message)) => Some(one_line(&message)),
                _ => None,
            },
            containers: containers(pod, upgrade),
            cache_age_seconds: pods.age(),
        }
    }

    /// Namespace and name.
    pub(super) fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

fn containers(pod: &LocalPod, upgrade: Option<&PodUpgrade>) -> Vec<ContainerRow> {
    let told = upgrade.map_or(&[][..], |told| &told.containers);
    let mut rows: Vec<ContainerRow> = pod
        .containers()
        .map(|(container, init)| {
            let mut same = told.iter().filter(|other| other.name == container.name);
            ContainerRow {
                name: container.name.clone(),
                init,
                image: Some(container.image.clone()),
                new_image: same.next().and_then(|other| other.new_image.clone()),
            }
        })
        .collect();
    for added in told {
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

/// A problem as a word, and what the kubelet says about it.
pub(super) fn told(problem: &Problem) -> String {
    if problem.message.is_empty() {
        one_line(&problem.word)
    } else {
        one_line(&format!("{} ({})", problem.word, problem.message))
    }
}
