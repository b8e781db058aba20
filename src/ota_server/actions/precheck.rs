//! Whether a pod may be replaced, or its images be pulled, by what is known of the pod itself: checks 3 to 9 of
//! docs/reference/node-api.md, in order.
//!
//! Asked twice with the same rules: of the cache, so that junk costs nothing, and of the pod as the API server has it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::reason::Reason;
use super::text::{self, ActionVerb};
use crate::core::names::{KRUISE_GROUP, PULL_IMAGE_FAIL, UNTOLERATED_TAINT};
use crate::ota_server::answer::Answer;
use crate::ota_server::pod::{NodePod, NodePodCondition, PodDetails, PodKey};

/// Who makes a pod again.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PodOwner {
    /// That DaemonSet.
    DaemonSet(OwnerReference),
    /// The kubelet, from a manifest of that name.
    Node {
        /// The name of the pod without that of the node.
        name: String,
    },
}

/// The first row that refuses `pod` on `node`, or who makes it again.
///
/// # Errors
/// The answer of that row.
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

/// Whether a new version waits for the pod, as far as its conditions say.
pub(super) fn needs_upgrade(facts: &PodDetails) -> bool {
    facts
        .need_upgrade
        .as_ref()
        .is_some_and(NodePodCondition::is_true)
}

/// Whether no other pod would come to this node if this one went: the controller, which sees the node, says so in the reason.
pub(super) fn is_repelled(facts: &PodDetails) -> bool {
    let announced = facts.need_upgrade.as_ref();
    announced.is_some_and(|told| told.is_true() && told.reason == UNTOLERATED_TAINT)
}

/// The pre-pull that counts: one of another revision than the one that waits is stale, and nobody's concern.
pub(super) fn image_of(facts: &PodDetails) -> Option<&NodePodCondition> {
    let target = facts.need_upgrade.as_ref().and_then(NodePodCondition::hash);
    let image = facts.image_ready.as_ref()?;
    let stale = target
        .zip(image.hash())
        .is_some_and(|(target, pulled)| target != pulled);
    (!stale).then_some(image)
}

/// Whether that is a pull that failed, rather than one that is on its way.
pub(super) fn is_failed(image: &NodePodCondition) -> bool {
    !image.is_true() && image.reason == PULL_IMAGE_FAIL
}

/// A node without any pod is worse than one with an old pod.
fn check_node(key: &PodKey, facts: &PodDetails) -> Result<(), Answer> {
    if is_repelled(facts) {
        Err(text::repelled(key))
    } else {
        Ok(())
    }
}

/// A pull is optional until it is asked for.
fn check_image(key: &PodKey, facts: &PodDetails) -> Result<(), Answer> {
    match image_of(facts) {
        Some(image) if !image.is_true() => Err(text::image_not_ready(key, image, is_failed(image))),
        _ => Ok(()),
    }
}

/// Whether a DaemonSet of that API version is one that can be rolled out: a native or an Advanced one.
fn is_known(api_version: &str) -> bool {
    let group = api_version.split_once('/').map(|(group, _)| group);
    [Some("apps"), Some(KRUISE_GROUP)].contains(&group)
}

fn owner(verb: ActionVerb, node: &str, pod: &NodePod) -> Result<PodOwner, Answer> {
    let Some(first) = pod.facts().owners.first() else {
        return Err(text::no_owner());
    };
    let Some(owner) = pod.controller() else {
        return Err(text::unsupported(&first.kind));
    };
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

/// The name of a static pod: the kubelet appends that of its node, which may also occur before.
fn static_name<'a>(name: &'a str, node: &str) -> Option<&'a str> {
    let name = name.strip_suffix(node)?.strip_suffix('-')?;
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests;
