//! Checks 3 to 9 of docs/reference/node-api.md, in order. The pod's own fields decide whether it may be replaced, or its images
//! pulled.
//!
//! The checks run twice. They run first on the cached pod, so that invalid requests cost no API request. Then they run on the pod
//! read from the API server.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::reason::Reason;
use super::text::{self, ActionVerb};
use crate::core::names::{KRUISE_GROUP, PULL_IMAGE_FAIL};
use crate::k8s::Condition;
use crate::ota_server::answer::Answer;
use crate::ota_server::pod::{NodePod, PodDetails, PodKey};

/// Owner that creates the pod again after its deletion.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PodOwner {
    /// A native or Advanced DaemonSet.
    DaemonSet(OwnerReference),
    /// The kubelet, which creates static pods from manifest files.
    Node {
        /// Name of the pod without the node's name, which the kubelet appends to it.
        name: String,
    },
}

/// Runs checks 3 to 9, and returns the owner of the pod.
///
/// # Errors
/// Returns the answer of the first failed check.
pub(super) fn precheck(verb: ActionVerb, node: &str, pod: &NodePod) -> Result<PodOwner, Answer> {
    let (key, facts) = (pod.key(), pod.facts());
    if facts.deleting {
        return Err(verb.deleting(key));
    }
    if facts.node != node {
        return Err(verb.other_node(key, &facts.node));
    }
    if !needs_upgrade(facts) {
        return Err(verb.not_upgradable(key, Reason::NotUpgradable));
    }
    if verb == (ActionVerb::Upgrade { force: false }) {
        check_node(key, facts)?;
        check_image(key, facts)?;
    }
    owner(verb, node, pod)
}

/// Returns true if the pod's condition reports a newer revision.
pub(super) fn needs_upgrade(facts: &PodDetails) -> bool {
    facts.need_upgrade.as_ref().is_some_and(Condition::is_true)
}

/// Returns true if the node's taints would repel a new pod.
pub(super) fn is_repelled(facts: &PodDetails) -> bool {
    let offered = facts.need_upgrade.as_ref();
    offered.is_some_and(Condition::is_repelled)
}

/// Returns the condition `PodImageReady`, unless it names another revision than `PodNeedUpgrade`.
pub(super) fn image_of(facts: &PodDetails) -> Option<&Condition> {
    let (offered, image) = (facts.need_upgrade.as_ref(), facts.image_ready.as_ref()?);
    let is_stale = offered.is_some_and(|offered| offered.names_other_revision(image));
    (!is_stale).then_some(image)
}

/// Returns true if the pull has failed and is not in progress.
pub(super) fn is_failed(image: &Condition) -> bool {
    !image.is_true() && image.reason == PULL_IMAGE_FAIL
}

/// Rejects an upgrade if the node's taints would repel the new pod. The old pod keeps running, which is better than no pod.
fn check_node(key: &PodKey, facts: &PodDetails) -> Result<(), Answer> {
    if is_repelled(facts) {
        Err(text::repelled(key))
    } else {
        Ok(())
    }
}

/// Rejects an upgrade while a requested pull is not complete. If no pull was requested, allows the upgrade.
fn check_image(key: &PodKey, facts: &PodDetails) -> Result<(), Answer> {
    match image_of(facts) {
        Some(image) if !image.is_true() => Err(text::image_not_ready(key, image, is_failed(image))),
        _ => Ok(()),
    }
}

/// Returns true for the API version of a native or an Advanced DaemonSet.
fn is_known(api_version: &str) -> bool {
    let group = api_version.split_once('/').map(|(group, _)| group);
    [Some("apps"), Some(KRUISE_GROUP)].contains(&group)
}

fn owner(verb: ActionVerb, node: &str, pod: &NodePod) -> Result<PodOwner, Answer> {
    let Some(owner) = &pod.facts().owner else {
        return Err(text::no_owner());
    };
    if owner.controller != Some(true) {
        return Err(text::unsupported(&owner.kind));
    }
    match (owner.kind.as_str(), verb) {
        ("DaemonSet", _) if is_known(&owner.api_version) => Ok(PodOwner::DaemonSet(owner.clone())),
        ("DaemonSet", _) => {
            let group = owner.api_version.split('/').next().unwrap_or_default();
            Err(text::unsupported(&format!("DaemonSet.{group}")))
        }
        ("Node", ActionVerb::Upgrade { .. }) => match static_name(&pod.key().name, node) {
            Some(name) => Ok(PodOwner::Node {
                name: name.to_owned(),
            }),
            None => Err(text::static_name()),
        },
        (kind, _) => Err(text::unsupported(kind)),
    }
}

/// Returns the name of a static pod without the node's name. Removes the node's name only once, because the kubelet appended it
/// once.
fn static_name<'a>(name: &'a str, node: &str) -> Option<&'a str> {
    let name = name.strip_suffix(node)?.strip_suffix('-')?;
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests;
