//! Tests of checks 3 to 9 (docs/reference/node-api.md). Each pod also fails all later checks, so the answer shows that the checks
//! run in order.

use serde_json::{Value, json};

use super::*;

const UPGRADE: ActionVerb = ActionVerb::Upgrade { force: false };
const FORCED: ActionVerb = ActionVerb::Upgrade { force: true };

fn pod(change: impl FnOnce(&mut Value)) -> NodePod {
    let mut pod = json!({
        "metadata": {
            "name": "web-bwzss",
            "namespace": "default",
            "uid": "u1",
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "web", "uid": "d1", "controller": true,
            }],
        },
        "spec": { "nodeName": "n1" },
        "status": { "conditions": [] },
    });
    condition(&mut pod, "PodNeedUpgrade", "True", "", NEW);
    change(&mut pod);
    serde_json::from_value(pod).unwrap()
}

const NEW: &str = "controllerrevision: new";
const OLD: &str = "controllerrevision: old";

fn condition(pod: &mut Value, kind: &str, status: &str, reason: &str, message: &str) {
    let conditions = pod["status"]["conditions"].as_array_mut().unwrap();
    conditions.retain(|present| present["type"] != kind);
    conditions
        .push(json!({ "type": kind, "status": status, "reason": reason, "message": message }));
}

fn asks(pod: &mut Value, status: &str) {
    condition(pod, "PodNeedUpgrade", status, "", NEW);
}

fn pulls(pod: &mut Value, status: &str, reason: &str, message: &str) {
    condition(pod, "PodImageReady", status, reason, message);
}

fn owned_by(pod: &mut Value, api_version: &str, kind: &str) {
    let owner = &mut pod["metadata"]["ownerReferences"][0];
    (owner["apiVersion"], owner["kind"]) = (api_version.into(), kind.into());
}

#[track_caller]
fn refused(verb: ActionVerb, pod: &NodePod, status: u16, reason: Reason, text: &str) {
    let answer = precheck(verb, "n1", pod).expect_err("a refusal");
    assert_eq!(answer.text, text);
    assert_eq!(
        (answer.status.as_u16(), answer.reason),
        (status, reason.word())
    );
}

/// Expects that both `upgrade` and `imagepull` reject the pod with a text that has `detail`.
#[track_caller]
fn refused_by_both(pod: &NodePod, reason: Reason, detail: &str) {
    let text = format!(
        "Pre check update pod failed, Failed to check pod default/web-bwzss status, error: {detail}"
    );
    refused(UPGRADE, pod, 403, reason, &text);
    refused(FORCED, pod, 403, reason, &text);
    let text = format!("Failed to check pod status default/web-bwzss, error: {detail}");
    refused(ActionVerb::ImagePull, pod, 403, reason, &text);
}

#[test]
fn an_outdated_pod_of_a_daemonset_is_accepted() {
    let pod = pod(|_| {});
    for verb in [UPGRADE, FORCED, ActionVerb::ImagePull] {
        let Ok(PodOwner::DaemonSet(owner)) = precheck(verb, "n1", &pod) else {
            panic!("{verb:?} is refused");
        };
        assert_eq!(owner.name, "web");
    }
}

#[test]
fn a_terminating_pod_is_refused() {
    let pod = pod(|pod| {
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        pod["metadata"]["ownerReferences"] = json!([]);
        pod["spec"]["nodeName"] = "n2".into();
        asks(pod, "False");
    });
    let detail = "Pod default/web-bwzss is deleting, can not be updated";
    refused_by_both(&pod, Reason::Deleting, detail);
}

#[test]
fn a_pod_of_another_node_is_refused() {
    let pod = pod(|pod| {
        pod["metadata"]["ownerReferences"] = json!([]);
        pod["spec"]["nodeName"] = "n2".into();
        asks(pod, "False");
    });
    let detail = "Pod: default/web-bwzss is running on n2, can not be updated";
    refused_by_both(&pod, Reason::OtherNode, detail);
}

#[test]
fn a_pod_without_an_announced_update_is_refused() {
    let detail = "Pod: default/web-bwzss update status is False, can not be updated";
    let mut cases: Vec<NodePod> = ["False", "Unknown", ""]
        .map(|status| {
            pod(|pod| {
                asks(pod, status);
                pulls(pod, "False", "WaitPullImage", NEW);
                pod["metadata"]["ownerReferences"] = json!([]);
            })
        })
        .into();
    cases.push(pod(|pod| pod["status"]["conditions"] = json!([])));
    cases.push(pod(|pod| pod["status"] = Value::Null));
    for pod in cases {
        refused_by_both(&pod, Reason::NotUpgradable, detail);
    }
}

#[test]
fn an_upgrade_waits_for_requested_images_unless_forced() {
    #[track_caller]
    fn case(status: &str, reason: &str, message: &str, expected: Option<(Reason, &str)>) {
        let pod = pod(|pod| pulls(pod, status, reason, message));
        assert!(precheck(FORCED, "n1", &pod).is_ok());
        assert!(precheck(ActionVerb::ImagePull, "n1", &pod).is_ok());
        let Some((word, cure)) = expected else {
            assert!(precheck(UPGRADE, "n1", &pod).is_ok());
            return;
        };
        let text = format!(
            "Pre check update pod failed, Failed to check pod default/web-bwzss image ready, error: Pod: \
             default/web-bwzss image is not ready, reason: {reason}, message: {message}{cure}"
        );
        refused(UPGRADE, &pod, 403, word, &text);
    }
    case("True", "PullImageSuccess", NEW, None);
    case(
        "False",
        "WaitPullImage",
        NEW,
        Some((Reason::ImageNotReady, "")),
    );
    case("False", "", NEW, Some((Reason::ImageNotReady, ""))); // OpenYurt may write no reason
    case("Unknown", "", NEW, Some((Reason::ImageNotReady, "")));
    // A pull of another revision never prevents the upgrade, whatever its state.
    for status in ["True", "False"] {
        case(status, "WaitPullImage", OLD, None);
        case(status, "PullImageFail", OLD, None);
    }
    let cure = ". Request imagepull again, or upgrade with ?force=true to skip this check.";
    let failed = "pull image job image-pre-pull-1 failed";
    case(
        "False",
        "PullImageFail",
        failed,
        Some((Reason::ImagePullFailed, cure)),
    );
    case(
        "False",
        "PullImageFail",
        NEW,
        Some((Reason::ImagePullFailed, cure)),
    );
}

#[test]
fn a_pod_without_a_possible_successor_is_upgraded_only_if_forced() {
    let pod = pod(|pod| {
        condition(pod, "PodNeedUpgrade", "True", "UntoleratedTaint", NEW);
        pulls(pod, "False", "WaitPullImage", NEW);
    });
    let text = "Pre check update pod failed, Pod: default/web-bwzss is not replaced: this node has a NoSchedule taint that \
                its DaemonSet does not tolerate, so no new pod would be created. Remove the taint first, or upgrade with \
                ?force=true and have no pod.";
    refused(UPGRADE, &pod, 409, Reason::UntoleratedTaint, text);
    assert!(precheck(FORCED, "n1", &pod).is_ok());
    assert!(precheck(ActionVerb::ImagePull, "n1", &pod).is_ok());
}

#[test]
fn an_old_condition_without_a_hash_does_not_block_a_pulled_upgrade() {
    let pod = pod(|pod| {
        condition(pod, "PodNeedUpgrade", "True", "", "");
        pulls(pod, "True", "PullImageSuccess", OLD);
    });
    assert!(precheck(UPGRADE, "n1", &pod).is_ok());
}

#[test]
fn a_pod_without_an_owner_is_refused() {
    let pod = pod(|pod| pod["metadata"]["ownerReferences"] = json!([]));
    for verb in [UPGRADE, ActionVerb::ImagePull] {
        refused(
            verb,
            &pod,
            400,
            Reason::NoOwner,
            "Pod has no owner references",
        );
    }
}

#[test]
fn a_pod_with_an_unsupported_owner_is_refused() {
    #[track_caller]
    fn case(api_version: &str, kind: &str, told: &str) {
        let pod = pod(|pod| owned_by(pod, api_version, kind));
        let text = format!("Not support ota upgrade pod type {told}");
        for verb in [UPGRADE, ActionVerb::ImagePull] {
            refused(verb, &pod, 400, Reason::UnsupportedKind, &text);
        }
    }
    case("apps/v1", "ReplicaSet", "ReplicaSet");
    case("batch/v1", "Job", "Job");
    case("example.io/v1", "DaemonSet", "DaemonSet.example.io");
    for version in ["v1alpha1", "v1beta1"] {
        let advanced = pod(|pod| owned_by(pod, &format!("apps.kruise.io/{version}"), "DaemonSet"));
        assert!(precheck(UPGRADE, "n1", &advanced).is_ok());
    }
    // The owner with `controller: true` counts, at any position in the list.
    let several = pod(|pod| {
        let owners = pod["metadata"]["ownerReferences"].as_array_mut().unwrap();
        owners.insert(
            0,
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "c1" }),
        );
    });
    assert!(precheck(UPGRADE, "n1", &several).is_ok());
    let none = pod(|pod| pod["metadata"]["ownerReferences"][0]["controller"] = false.into());
    let text = "Not support ota upgrade pod type DaemonSet";
    refused(UPGRADE, &none, 400, Reason::UnsupportedKind, text);
}

#[test]
fn a_static_pod_is_recognized_by_its_node_name_suffix() {
    #[track_caller]
    fn case(name: &str, node: &str, expected: Option<&str>) {
        let pod = pod(|pod| {
            owned_by(pod, "v1", "Node");
            pod["metadata"]["name"] = name.into();
            pod["spec"]["nodeName"] = node.into();
        });
        match (precheck(UPGRADE, node, &pod), expected) {
            (Ok(PodOwner::Node { name }), Some(expected)) => assert_eq!(name, expected),
            (Err(answer), None) => assert_eq!(answer, text::static_name()),
            (result, _) => panic!("{name} on {node}: {result:?}"),
        }
    }
    case("nginx-n1", "n1", Some("nginx"));
    case("nginx-n1-n1", "n1", Some("nginx-n1")); // only the last "-n1" is removed, which the kubelet appended
    case("a-edge-a-edge", "a-edge", Some("a-edge"));
    case("nginx-n2", "n1", None);
    case("nginxn1", "n1", None);
    case("-n1", "n1", None);
    case("n1", "n1", None);
    let pod = pod(|pod| {
        owned_by(pod, "v1", "Node");
        pod["metadata"]["name"] = "web-bwzss".into();
    });
    refused(
        UPGRADE,
        &pod,
        500,
        Reason::StaticPodName,
        "Static pod pre-check failed",
    );
    let text = "Not support ota upgrade pod type Node";
    refused(
        ActionVerb::ImagePull,
        &pod,
        400,
        Reason::UnsupportedKind,
        text,
    );
}
