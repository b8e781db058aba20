//! Manifest of a pre-pull Job: the images to pull, and a pod that makes the kubelet of one node pull them.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::PullRequest;
use crate::core::Pull;
use crate::core::images::names_latest;
use crate::core::names::{PRE_PULL_DAEMONSET, PRE_PULL_POD, PRE_PULL_REVISION};

/// Prefix of the container names in the Job's pod, followed by a number.
pub(super) const CONTAINER_PREFIX: &str = "prepull-";

/// Prefix of the name of every pre-pull Job (OpenYurt).
const NAME_PREFIX: &str = "image-pre-pull-";

/// Maximum length of a Job's name. The name is also a label of the Job's pod.
const LONGEST_NAME: usize = 63;

/// Number of hexadecimal digits in the digest that replaces the end of a long name.
const DIGEST_DIGITS: usize = 16;

/// Time after which Kubernetes deletes a finished Job. Usually the controller deletes the Job within a second after the result.
const TIME_TO_LIVE_SECONDS: u32 = 3600;

/// User ID for images that would run as root. Namespaces with the Pod Security Standard `restricted` reject root.
const NOBODY: u32 = 65534;

/// Image to pull, with the pull policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Image {
    pub(super) reference: String,
    pub(super) policy: Policy,
}

/// `imagePullPolicy`, in ascending order. If a template lists one image with several policies, the greatest policy is used.
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

/// Returns the images of a pod template that a node has to pull before `pod` is replaced.
///
/// An image that the pod already runs under the same reference is skipped, unless its pull policy is `Always`. Each image is
/// listed once, in the order of the template.
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

/// References of the images that a pod runs or ran. These images are on the pod's node.
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

/// Returns the Job that pulls `images` on the node of the requesting pod.
///
/// - The owner of the Job is the pod, so the Job is deleted with the pod. `blockOwnerDeletion` is not set, because it would require
///   a permission for finalizers.
/// - `nodeName` bypasses the scheduler, so a cordoned or full node pulls too. The Job's pod tolerates every `NoExecute` taint, so
///   that it is not evicted.
/// - The Job's pod requests no resources, so a full node starts it. It has minimal limits, so it satisfies a quota that requires
///   requests and limits. It has no priority, so it never preempts another pod.
/// - The containers run `true`. If an image lacks that program, starting the container fails, but by then the image is on the node.
/// - Pull secrets come from the template or, through admission, from the template's service account. The token of that account is
///   not mounted.
/// - The Job's pod uses the host network only if the DaemonSet does. In that case the namespace allows it, and the DaemonSet may be
///   the network plug-in without which other pods can't start.
pub(super) fn job(request: &PullRequest, template: &Value, images: &[Image]) -> Value {
    let pull = &request.pull;
    let labels = json!({ PRE_PULL_POD: pull.pod.uid.to_string() });
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job_name(pull),
            "namespace": request.key.namespace,
            "labels": labels,
            "annotations": {
                PRE_PULL_REVISION: pull.revision.as_str(),
                PRE_PULL_DAEMONSET: request.key.name,
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
            "activeDeadlineSeconds": request.timeout.as_secs(),
            "ttlSecondsAfterFinished": TIME_TO_LIVE_SECONDS,
            "template": {
                "metadata": {
                    "labels": labels,
                    // Prevent the injection of a side-car. A side-car would never end, so the Job would never complete. Its image
                    // need not be pulled.
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

/// Copies the given fields of the template, if they are set.
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

/// Returns the name of the Job: `image-pre-pull-<pod>-<hash>`, as in OpenYurt. In a name that is too long, a digest of the whole
/// name replaces the end.
pub(super) fn job_name(pull: &Pull) -> String {
    name_of(pull.pod.name.as_str(), pull.revision.as_str())
}

fn name_of(pod: &str, revision: &str) -> String {
    let whole = format!("{NAME_PREFIX}{pod}-{revision}");
    if whole.len() <= LONGEST_NAME {
        return whole;
    }
    let room = LONGEST_NAME - DIGEST_DIGITS - 1;
    let mut head: String = whole.chars().take_while(char::is_ascii).collect();
    head.truncate(room);
    let head = head.trim_end_matches(['-', '.']);
    format!("{head}-{:0DIGEST_DIGITS$x}", fnv(whole.as_bytes()))
}

/// FNV-1a hash with 64 bits. A collision requires two long names with the same beginning in one namespace at the same time.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests;
