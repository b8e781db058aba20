//! Builds the status that a kubelet writes: conditions, container statuses and addresses.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::pod::{
    Flag, KubeletContainer, KubeletPod, PodExit, PodStage, PodState, PullError, START_ERROR,
};
use crate::sim::fnv::fnv;

/// Returns the status of a pod as a strategic merge patch.
///
/// It contains only the kubelet's own conditions, so other conditions are kept.
pub(super) fn pod(pod: &KubeletPod, host_ip: &str) -> Value {
    let statuses: Vec<Value> = pod.containers.iter().map(container).collect();
    json!({
        "observedGeneration": pod.observed,
        "phase": pod.phase(),
        "reason": pod.evicted.then_some("Evicted"),
        "message": pod.evicted.then_some("The node was low on resource: ephemeral-storage."),
        "startTime": pod.started.map(Time),
        "hostIP": host_ip,
        "hostIPs": [{ "ip": host_ip }],
        "podIP": pod.ip,
        "podIPs": [{ "ip": pod.ip }],
        "conditions": conditions(pod),
        "containerStatuses": statuses,
        "initContainerStatuses": init_containers(pod),
    })
}

/// Reason and message that explain why a condition is not `True`.
#[derive(Clone, Default)]
struct ConditionCause {
    reason: &'static str,
    message: String,
}

fn conditions(pod: &KubeletPod) -> Value {
    let finished = pod.phase() == "Succeeded" || pod.stage == PodStage::Stopped;
    let unready: Vec<&str> = pod
        .containers
        .iter()
        .filter(|c| !c.ready)
        .map(|c| c.name.as_str())
        .collect();
    let not_ready = if finished {
        ConditionCause {
            reason: "PodCompleted",
            message: String::new(),
        }
    } else {
        ConditionCause {
            reason: "ContainersNotReady",
            message: format!("containers with unready status: [{}]", unready.join(" ")),
        }
    };
    let closed: Vec<String> = pod
        .closed_gates()
        .map(|gate| closed_gate(pod, gate))
        .collect();
    let not_open = if closed.is_empty() || !pod.containers_ready.is {
        not_ready.clone()
    } else {
        ConditionCause {
            reason: "ReadinessGatesNotReady",
            message: closed.join(", "),
        }
    };
    json!([
        condition("PodScheduled", pod.initialized, Default::default()),
        condition("Initialized", pod.initialized, Default::default()),
        condition("ContainersReady", pod.containers_ready, not_ready),
        condition("Ready", pod.ready, not_open),
    ])
}

/// Returns the kubelet's message for a readiness gate whose condition is not `True`.
fn closed_gate(pod: &KubeletPod, gate: &str) -> String {
    match pod.seen.condition(gate) {
        None => {
            format!("corresponding condition of pod readiness gate \"{gate}\" does not exist.")
        }
        Some(seen) => format!(
            "the status of pod readiness gate \"{gate}\" is not \"True\", but {}",
            seen.status
        ),
    }
}

/// Returns a condition. Reason and message are omitted if the condition is `True`.
fn condition(kind: &str, flag: Flag, cause: ConditionCause) -> Value {
    let shown = |text: &str| (!flag.is && !text.is_empty()).then(|| text.to_owned());
    json!({
        "type": kind,
        "status": if flag.is { "True" } else { "False" },
        "lastTransitionTime": Time(flag.since),
        "reason": shown(cause.reason),
        "message": shown(&cause.message),
    })
}

fn container(container: &KubeletContainer) -> Value {
    let state = match &container.state {
        PodState::Waiting(reason) => json!({ "waiting": waiting(reason, container) }),
        PodState::Running { since } => json!({ "running": { "startedAt": Time(*since) } }),
        PodState::Terminated(exit) => json!({ "terminated": terminated(exit, container) }),
    };
    let last = match &container.last {
        Some(exit) => json!({ "terminated": terminated(exit, container) }),
        None => json!({}),
    };
    let since = match &container.state {
        PodState::Running { since } => Some(*since),
        PodState::Terminated(exit) => Some(exit.started),
        PodState::Waiting(_) => container.last.as_ref().map(|exit| exit.started),
    };
    let own_id = container.ran_image.as_deref().map(image_id);
    json!({
        "name": container.name,
        "image": container.ran_image.as_ref().unwrap_or(&container.image),
        "imageID": container.reported_id.clone().or(own_id).unwrap_or_default(),
        "ready": container.ready,
        "containerID": since.map(|since| container_id(container, since)),
        "started": matches!(container.state, PodState::Running { .. }),
        "restartCount": container.restarts,
        "state": state,
        "lastState": last,
    })
}

fn waiting(reason: &str, container: &KubeletContainer) -> Value {
    let image = &container.image;
    let message = match reason {
        "ErrImagePull" => pull_error(container),
        "ImagePullBackOff" => {
            let error = pull_error(container);
            format!("Back-off pulling image \"{image}\": ErrImagePull: {error}")
        }
        "CrashLoopBackOff" => "back-off restarting failed container".to_owned(),
        _ => return json!({ "reason": reason }),
    };
    json!({ "reason": reason, "message": message })
}

/// Returns the message of a failed pull, in the words of containerd 1.6 with a kubelet of Kubernetes 1.36.
fn pull_error(container: &KubeletContainer) -> String {
    let image = &container.image;
    let (before, why) = match container.pull_error {
        Some(PullError::Unreachable) => (
            "",
            "failed to do request: Head: dial tcp 127.0.0.1:443: connect: connection refused".to_owned(),
        ),
        Some(PullError::Denied) => (
            "",
            "pull access denied, repository does not exist or may require authorization: authorization failed: \
             no basic auth credentials"
                .to_owned(),
        ),
        Some(PullError::NotFound) | None => (
            "rpc error: code = NotFound desc = ",
            format!("{image}: not found"),
        ),
    };
    format!(
        "{before}failed to pull and unpack image \"{image}\": failed to resolve reference \"{image}\": {why}"
    )
}

fn terminated(exit: &PodExit, container: &KubeletContainer) -> Value {
    let (reason, message) = match exit.code {
        0 => ("Completed", None),
        START_ERROR => (
            "StartError",
            Some(
                "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create \
                 failed: unable to start container process: exec: \"true\": executable file not found in $PATH: unknown",
            ),
        ),
        _ => ("Error", None),
    };
    json!({
        "exitCode": exit.code,
        "reason": reason,
        "message": message,
        "startedAt": Time(exit.started),
        "finishedAt": Time(exit.finished),
        "containerID": container_id(container, exit.started),
    })
}

/// Returns the ID of a container. Each start of the container has a different ID.
fn container_id(container: &KubeletContainer, started: Timestamp) -> String {
    format!(
        "fake://{:016x}",
        number([&container.name, &started.to_string()])
    )
}

/// Returns the statuses of the init containers. They always have ended, because they take no time in the simulation.
fn init_containers(pod: &KubeletPod) -> Value {
    let at = pod.started.unwrap_or(Timestamp::UNIX_EPOCH);
    let exit = json!({
        "exitCode": 0, "reason": "Completed", "startedAt": Time(at), "finishedAt": Time(at),
    });
    let statuses = pod.seen.spec.init_containers.iter().map(|c| {
        json!({
            "name": c.name, "image": c.image, "imageID": image_id(&c.image), "ready": true, "started": false,
            "restartCount": 0, "state": { "terminated": exit }, "lastState": {},
        })
    });
    match statuses.collect::<Vec<Value>>() {
        none if none.is_empty() => Value::Null,
        some => Value::Array(some),
    }
}

/// Returns an image digest that is derived from the image's name, so that it is equal on all nodes.
fn image_id(image: &str) -> String {
    let repository = match image.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => repository,
        _ => image,
    };
    let part = |salt: &str| number([salt, image]);
    format!(
        "{repository}@sha256:{:016x}{:016x}{:016x}{:016x}",
        part("a"),
        part("b"),
        part("c"),
        part("d")
    )
}

/// Returns a hash of the two texts in this order.
fn number(texts: [&str; 2]) -> u64 {
    fnv(texts.iter().flat_map(|text| text.bytes().chain([0])))
}
