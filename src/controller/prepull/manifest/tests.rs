//! Tests of the images that a Job pulls, and of the Job's pod.

use std::time::Duration;

use super::*;
use crate::core::{PodRef, PullInitiator};
use crate::index::SetKey;

fn request() -> PullRequest {
    PullRequest {
        key: SetKey::new("shop", "web"),
        set_uid: "s1".into(),
        generation: 1,
        timeout: Duration::from_secs(300),
        pull: Pull {
            pod: PodRef {
                name: "web-x".into(),
                uid: "u1".into(),
                resource_version: "7".into(),
            },
            node: "edge-1".into(),
            revision: "abc".into(),
            initiator: PullInitiator::Owner,
            may_start: true,
            may_report: true,
        },
    }
}

/// Returns a pod of the template whose containers all run.
fn running(template: &Value) -> Value {
    let statuses = |list: &str| -> Vec<Value> {
        let containers = template["spec"][list].as_array();
        let names = containers.into_iter().flatten().map(|c| c["name"].clone());
        names
            .map(|name| json!({ "name": name, "imageID": "sha256:1" }))
            .collect()
    };
    json!({
        "spec": template["spec"],
        "status": {
            "initContainerStatuses": statuses("initContainers"),
            "containerStatuses": statuses("containers"),
        },
    })
}

fn template(init: &[(&str, &str)], containers: &[(&str, &str)]) -> Value {
    let list = |of: &[(&str, &str)]| -> Vec<Value> {
        let one = |(number, (image, policy)): (usize, &(&str, &str))| json!({ "name": format!("c{number}"), "image": image, "imagePullPolicy": policy });
        of.iter().enumerate().map(one).collect()
    };
    json!({ "spec": { "initContainers": list(init), "containers": list(containers) } })
}

#[track_caller]
fn case(new: &Value, old: &Value, expected: &[(&str, Policy)]) {
    let images = images(new, &running(old));
    let images: Vec<_> = images
        .iter()
        .map(|i| (i.reference.as_str(), i.policy))
        .collect();
    assert_eq!(images, expected);
}

#[test]
fn only_images_that_the_node_lacks_are_pulled_once_each() {
    use Policy::{Always, IfNotPresent, Never};
    let old = template(
        &[("setup:1", "IfNotPresent")],
        &[("web:1", "IfNotPresent"), ("log:1", "IfNotPresent")],
    );
    case(&old, &old, &[]);
    let new = template(
        &[("setup:2", "IfNotPresent")],
        &[("web:2", "IfNotPresent"), ("log:1", "IfNotPresent")],
    );
    case(
        &new,
        &old,
        &[("setup:2", IfNotPresent), ("web:2", IfNotPresent)],
    );
    let twice = template(
        &[("web:2", "IfNotPresent")],
        &[("web:2", "Always"), ("log:2", "Never")],
    );
    case(&twice, &old, &[("web:2", Always), ("log:2", Never)]);
    // The pull policy `Always` pulls an image even if an image of that name already runs on the node. The registry may have a newer
    // one.
    let moving = template(&[], &[("web:latest", "Always"), ("log:1", "IfNotPresent")]);
    case(&moving, &moving, &[("web:latest", Always)]);
    let pinned = template(
        &[],
        &[("web@sha256:aa", "IfNotPresent"), ("log:1", "IfNotPresent")],
    );
    case(&pinned, &old, &[("web@sha256:aa", IfNotPresent)]);
}

#[test]
fn an_image_that_the_old_pod_never_pulled_is_pulled() {
    let template = template(&[], &[("web:1", "IfNotPresent")]);
    let mut pod = running(&template);
    pod["status"]["containerStatuses"][0]["imageID"] = json!("");
    assert_eq!(images(&template, &pod).len(), 1);
    pod["status"] = json!({});
    assert_eq!(images(&template, &pod).len(), 1);
}

#[test]
fn the_default_pull_policy_follows_the_tag_as_in_the_api_server() {
    #[track_caller]
    fn case(image: &str, expected: Policy) {
        assert_eq!(Policy::new(&json!({}), image), expected, "{image}");
    }
    case("web", Policy::Always);
    case("registry:5000/web", Policy::Always);
    case("registry:5000/web:latest", Policy::Always);
    case("registry:5000/web:1", Policy::IfNotPresent);
    case("web@sha256:aa", Policy::IfNotPresent);
}

#[test]
fn the_job_copies_only_the_pull_settings_of_the_daemonset() {
    let template = json!({ "spec": {
        "serviceAccountName": "agent",
        "imagePullSecrets": [{ "name": "registry" }],
        "runtimeClassName": "kata",
        "hostNetwork": true,
        "priorityClassName": "system-node-critical",
        "tolerations": [{ "key": "edge", "operator": "Exists" }],
        "containers": [{ "name": "c", "image": "web:2", "securityContext": { "privileged": true } }],
    } });
    let image = Image {
        reference: "web:2".to_owned(),
        policy: Policy::IfNotPresent,
    };
    let job = job(&request(), &template, &[image]);
    let expected = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "image-pre-pull-web-x-abc",
            "namespace": "shop",
            "labels": { "apps.openyurt.io/image-pre-pull": "u1" },
            "annotations": {
                "apps.openyurt.io/image-pre-pull-revision": "abc",
                "apps.openyurt.io/image-pre-pull-daemonset": "web",
            },
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Pod", "name": "web-x", "uid": "u1",
                "controller": false, "blockOwnerDeletion": false,
            }],
        },
        "spec": {
            "parallelism": 1, "completions": 1, "backoffLimit": 0,
            "activeDeadlineSeconds": 300, "ttlSecondsAfterFinished": 3600,
            "template": {
                "metadata": {
                    "labels": { "apps.openyurt.io/image-pre-pull": "u1" },
                    "annotations": { "sidecar.istio.io/inject": "false" },
                },
                "spec": {
                    "nodeName": "edge-1",
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 1,
                    "automountServiceAccountToken": false,
                    "enableServiceLinks": false,
                    "serviceAccountName": "agent",
                    "imagePullSecrets": [{ "name": "registry" }],
                    "runtimeClassName": "kata",
                    "hostNetwork": true,
                    "tolerations": [
                        { "key": "edge", "operator": "Exists" },
                        { "operator": "Exists", "effect": "NoExecute" },
                    ],
                    "securityContext": {
                        "runAsNonRoot": true, "runAsUser": 65534, "runAsGroup": 65534,
                        "seccompProfile": { "type": "RuntimeDefault" },
                    },
                    "containers": [{
                        "name": "prepull-0",
                        "image": "web:2",
                        "imagePullPolicy": "IfNotPresent",
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
                    }],
                },
            },
        },
    });
    assert_eq!(job, expected);
}

#[test]
fn a_job_name_has_the_form_of_openyurt_and_is_never_too_long() {
    #[track_caller]
    fn case(pod: &str, revision: &str, expected: &str) {
        let name = name_of(pod, revision);
        assert_eq!(name, expected);
        assert!(name.len() <= LONGEST_NAME, "{name}");
    }
    case(
        "nginx-daemonset-bwzss",
        "7f9f6846dc",
        "image-pre-pull-nginx-daemonset-bwzss-7f9f6846dc",
    );
    let fits = "a".repeat(37);
    case(
        &fits,
        "7f9f6846dc",
        &format!("image-pre-pull-{fits}-7f9f6846dc"),
    );
    let long = "a".repeat(38);
    case(
        &long,
        "7f9f6846dc",
        "image-pre-pull-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-8cd909abc0b8600d",
    );
    let dotted = format!("{}.{}", "a".repeat(30), "b".repeat(250));
    let name = name_of(&dotted, "7f9f6846dc");
    assert!(
        name.starts_with(&format!("{NAME_PREFIX}{}-", "a".repeat(30))),
        "{name}"
    );
    for before in 20..40 {
        let name = name_of(&format!("{}.b-{}", "a".repeat(before), "b".repeat(60)), "1");
        let ends_badly = |part: &str| part.ends_with('-') || part.starts_with('-');
        assert!(!name.split('.').any(ends_badly), "{name}");
    }
}

#[test]
fn shortened_job_names_of_different_pulls_differ() {
    let pod = |end: &str| format!("{}-{end}", "a".repeat(60));
    let names = [
        name_of(&pod("aaaaa"), "1"),
        name_of(&pod("aaaab"), "1"),
        name_of(&pod("aaaaa"), "2"),
    ];
    assert!(names[0] != names[1] && names[0] != names[2] && names[1] != names[2]);
}
