//! The Job of a pre-pull: which images, and a pod that has them pulled on one node and does nothing else.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::core::Pull;
use crate::core::images::names_latest;
use crate::core::names::{PRE_PULL_DAEMONSET, PRE_PULL_POD, PRE_PULL_REVISION};

/// What the containers of the Job's pod are called, followed by a number.
pub(super) const CONTAINER_PREFIX: &str = "prepull-";

/// How long a Job that ended stays when nobody removes it: the controller does so within a second of the result.
const TIME_TO_LIVE_SECONDS: u32 = 3600;

/// A user that is nobody, for images that would run as root: namespaces under the `restricted` standard refuse root.
const NOBODY: u32 = 65534;

/// An image that has to be pulled, and how its node decides whether to ask the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Image {
    pub(super) reference: String,
    pub(super) policy: Policy,
}

/// `imagePullPolicy`; of two that differ for one image the greater holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Policy {
    Never,
    IfNotPresent,
    Always,
}

impl Policy {
    fn new(container: &Value, reference: &str) -> Self {
        match container["imagePullPolicy"].as_str() {
            Some("Always") => Self::Always,
            Some("Never") => Self::Never,
            Some(_) => Self::IfNotPresent,
            None if names_latest(reference) => Self::Always,
            None => Self::IfNotPresent,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Never => "Never",
            Self::IfNotPresent => "IfNotPresent",
            Self::Always => "Always",
        }
    }
}

/// The images of a pod template that a node has to pull before a pod of it starts there in place of `pod`.
///
/// An image that the pod runs already under the same reference is left out, unless the template has the registry asked at
/// every start. Each is named once, in the order of the template.
pub(super) fn images(template: &Value, pod: &Value) -> Vec<Image> {
    let present = images_of(pod);
    let mut images: Vec<Image> = Vec::new();
    for container in containers(&template["spec"]) {
        let Some(reference) = container["image"].as_str().filter(|text| !text.is_empty()) else {
            continue;
        };
        let policy = Policy::new(container, reference);
        if policy != Policy::Always && present.contains(&reference) {
            continue;
        }
        match images.iter_mut().find(|image| image.reference == reference) {
            Some(image) => image.policy = image.policy.max(policy),
            None => images.push(Image {
                reference: reference.to_owned(),
                policy,
            }),
        }
    }
    images
}

fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["initContainers", "containers"].into_iter();
    lists.filter_map(|list| spec[list].as_array()).flatten()
}

/// References of the images that a pod runs or has run: its node has them.
fn images_of(pod: &Value) -> Vec<&str> {
    let statuses = ["initContainerStatuses", "containerStatuses"]
        .into_iter()
        .filter_map(|list| pod["status"][list].as_array())
        .flatten();
    let pulled: BTreeMap<&str, &str> = statuses
        .filter_map(|status| Some((status["name"].as_str()?, status["imageID"].as_str()?)))
        .filter(|(_, id)| !id.is_empty())
        .collect();
    containers(&pod["spec"])
        .filter(|container| {
            container["name"]
                .as_str()
                .is_some_and(|name| pulled.contains_key(name))
        })
        .filter_map(|container| container["image"].as_str())
        .collect()
}

/// The Job that pulls `images` on the node of a pod, and is ended when that takes longer than it may.
///
/// - It belongs to the pod and goes when the pod goes; `blockOwnerDeletion` would need a permission for finalizers.
/// - `nodeName` passes the scheduler by, so that a cordoned or full node pulls as well; against eviction it tolerates
///   every `NoExecute` taint.
/// - It asks for nothing and is limited to next to nothing: a node that is full starts it, and a quota that wants both
///   said is content. No priority: a pull never pushes anything out.
/// - What runs is `true`, or nothing where an image has no such program: the image is on the node by then.
/// - Pull secrets come from the template or, by admission, from its service account, whose token is not mounted.
/// - Network of the node only where the DaemonSet has it: its namespace allows that, and it may be the very network
///   plug-in that pods would need.
pub(super) fn job(
    name: &str,
    namespace: &str,
    daemonset: &str,
    pull: &Pull,
    timeout: Duration,
    template: &Value,
    images: &[Image],
) -> Value {
    let labels = json!({ PRE_PULL_POD: pull.pod.uid.to_string() });
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": labels,
            "annotations": {
                PRE_PULL_REVISION: pull.revision.as_str(),
                PRE_PULL_DAEMONSET: daemonset,
            },
            "ownerReferences": [{
                "apiVersion": "v1",
                "kind": "Pod",
                "name": pull.pod.name.as_str(),
                "uid": pull.pod.uid.to_string(),
                "controller": false,
                "blockOwnerDeletion": false,
            }],
        },
        "spec": {
            "parallelism": 1,
            "completions": 1,
            "backoffLimit": 0,
            "activeDeadlineSeconds": timeout.as_secs(),
            "ttlSecondsAfterFinished": TIME_TO_LIVE_SECONDS,
            "template": {
                "metadata": {
                    "labels": labels,
                    // A side-car would neither end nor be pulled for.
                    "annotations": { "sidecar.istio.io/inject": "false" },
                },
                "spec": pod_spec(pull, &template["spec"], images),
            },
        },
    })
}

fn pod_spec(pull: &Pull, template: &Value, images: &[Image]) -> Value {
    let mut tolerations = template["tolerations"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    tolerations.push(json!({ "operator": "Exists", "effect": "NoExecute" }));
    let containers: Vec<Value> = (images.iter().enumerate())
        .map(|(number, image)| container(number, image))
        .collect();
    let mut spec = json!({
        "nodeName": pull.node.as_str(),
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "tolerations": tolerations,
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": NOBODY,
            "runAsGroup": NOBODY,
            "seccompProfile": { "type": "RuntimeDefault" },
        },
        "containers": containers,
    });
    let kept = [
        "imagePullSecrets",
        "serviceAccountName",
        "runtimeClassName",
        "hostNetwork",
    ];
    if let Some(spec) = spec.as_object_mut() {
        keep(spec, template, &kept);
    }
    spec
}

/// Takes over these fields where the template has them.
fn keep(spec: &mut Map<String, Value>, template: &Value, fields: &[&str]) {
    for field in fields {
        let value = &template[*field];
        if !value.is_null() {
            spec.insert((*field).to_owned(), value.clone());
        }
    }
}

fn container(number: usize, image: &Image) -> Value {
    json!({
        "name": format!("{CONTAINER_PREFIX}{number}"),
        "image": image.reference,
        "imagePullPolicy": image.policy.word(),
        "command": ["true"],
        "resources": {
            "requests": { "cpu": "0", "memory": "0", "ephemeral-storage": "0" },
            "limits": { "cpu": "100m", "memory": "32Mi", "ephemeral-storage": "16Mi" },
        },
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": { "drop": ["ALL"] },
        },
    })
}

#[cfg(test)]
mod tests;
