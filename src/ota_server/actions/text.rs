//! Texts of the answers to both actions, byte for byte as documented (docs/reference/node-api.md).

use http::StatusCode;

use super::reason::Reason;
use crate::k8s::Condition;
use crate::k8s::client::{CallError, Failure};
use crate::ota_server::answer::Answer;
use crate::ota_server::cloud::is_silent;
use crate::ota_server::pod::PodKey;

/// Maximum length in characters of an admission message in an answer.
const LONGEST: usize = 400;

/// Action that a node owner requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ActionVerb {
    /// Replace the pod with one of the newer revision.
    Upgrade {
        /// True to ignore missing images and taints.
        force: bool,
    },
    /// Pull the images of the pod's newer revision.
    ImagePull,
}

impl ActionVerb {
    /// Returns the answer of check 12: the action was accepted, or is in progress or complete already.
    pub(super) fn accepted(self, key: &PodKey, reason: Reason) -> Answer {
        let text = match self {
            Self::Upgrade { .. } => format!("Start updating pod {key}"),
            Self::ImagePull => format!("Image pre-pull requested for pod {key}"),
        };
        answer(StatusCode::OK, reason, text)
    }

    /// Returns the answer of check 3: the pod is being deleted.
    pub(super) fn deleting(self, key: &PodKey) -> Answer {
        let detail = format!("Pod {key} is deleting, can not be updated");
        self.refused(key, Reason::Deleting, &detail)
    }

    /// Returns the answer of check 4: the pod runs on another node.
    pub(super) fn other_node(self, key: &PodKey, node: &str) -> Answer {
        let detail = format!("Pod: {key} is running on {node}, can not be updated");
        self.refused(key, Reason::OtherNode, &detail)
    }

    /// Returns the answer if no newer revision is available for the pod (check 5). `reason` says why, for programs.
    pub(super) fn not_upgradable(self, key: &PodKey, reason: Reason) -> Answer {
        let detail = format!("Pod: {key} update status is False, can not be updated");
        self.refused(key, reason, &detail)
    }

    fn refused(self, key: &PodKey, reason: Reason, detail: &str) -> Answer {
        let text = match self {
            Self::Upgrade { .. } => format!(
                "Pre check update pod failed, Failed to check pod {key} status, error: {detail}"
            ),
            Self::ImagePull => format!("Failed to check pod status {key}, error: {detail}"),
        };
        answer(StatusCode::FORBIDDEN, reason, text)
    }

    /// Returns the answer of check 11: the write was rejected, or there was no response.
    pub(super) fn not_applied(self, reason: Reason) -> Answer {
        answer(StatusCode::INTERNAL_SERVER_ERROR, reason, self.failed())
    }

    /// Returns the answer of check 11 for a write that admission rejected. The admission message is appended to OpenYurt's text,
    /// because existing programs parse that text.
    pub(super) fn refused_by_admission(self, message: &str) -> Answer {
        let words: Vec<&str> = message.split_whitespace().collect();
        let message: String = words.join(" ").chars().take(LONGEST).collect();
        let text = format!("{}, rejected by the API server: {message}", self.failed());
        answer(StatusCode::INTERNAL_SERVER_ERROR, Reason::Refused, text)
    }

    fn failed(self) -> &'static str {
        match self {
            Self::Upgrade { .. } => "Apply update failed",
            Self::ImagePull => "Patch pod status for imagepull failed",
        }
    }
}

/// Returns the answer of check 1: the API server is unreachable or asks for fewer requests.
pub(super) fn disconnected(reason: Reason) -> Answer {
    let text = "OTA upgrade is not allowed when node is disconnected to cloud";
    answer(StatusCode::SERVICE_UNAVAILABLE, reason, text)
}

/// Returns the answer of check 2: the pod does not exist.
pub(super) fn not_found(key: &PodKey) -> Answer {
    let text = format!("Get pod failed, pods {:?} not found", key.name);
    answer(StatusCode::INTERNAL_SERVER_ERROR, Reason::NotFound, text)
}

/// Returns the answer of check 1 or 2: a required object could not be read.
pub(super) fn not_read(error: &CallError) -> Answer {
    let failed = |reason| {
        let text = match error {
            CallError::Kube(kube::Error::Api(status)) => status.message.clone(),
            error => error.to_string(),
        };
        let text = format!("Get pod failed, {text}");
        answer(StatusCode::INTERNAL_SERVER_ERROR, reason, text)
    };
    match error.failure() {
        _ if is_silent(error) => disconnected(Reason::Disconnected),
        Failure::Throttled => disconnected(Reason::Throttled),
        Failure::Gone => failed(Reason::NotFound),
        Failure::Forbidden => failed(Reason::Forbidden),
        _ => failed(Reason::ReadFailed),
    }
}

/// Returns the answer of check 6: the images are missing. After a failed pull, the next step is appended to OpenYurt's text,
/// because existing programs parse that text.
pub(super) fn image_not_ready(key: &PodKey, image: &Condition, failed: bool) -> Answer {
    let (reason, cure) = if failed {
        (
            Reason::ImagePullFailed,
            ". Request imagepull again, or upgrade with ?force=true to skip this check.",
        )
    } else {
        (Reason::ImageNotReady, "")
    };
    let text = format!(
        "Pre check update pod failed, Failed to check pod {key} image ready, error: Pod: {key} image is not ready, \
         reason: {}, message: {}{cure}",
        image.reason, image.message
    );
    answer(StatusCode::FORBIDDEN, reason, text)
}

/// Reason why the node would have no pod after an upgrade.
pub(super) const REPELLED: &str = "this node has a NoSchedule taint that its DaemonSet does not tolerate, so no new pod would \
                                   be created";

/// Returns the answer for a node whose taints would repel the new pod. OpenYurt has no such check.
pub(super) fn repelled(key: &PodKey) -> Answer {
    let text = format!(
        "Pre check update pod failed, Pod: {key} is not replaced: {REPELLED}. Remove the taint first, or upgrade with \
         ?force=true and have no pod."
    );
    answer(StatusCode::CONFLICT, Reason::UntoleratedTaint, text)
}

/// Returns the answer of check 7: the pod has no owner that would create it again.
pub(super) fn no_owner() -> Answer {
    let text = "Pod has no owner references";
    answer(StatusCode::BAD_REQUEST, Reason::NoOwner, text)
}

/// Returns the answer of check 8: the kind of the owner is not supported.
pub(super) fn unsupported(kind: &str) -> Answer {
    let text = format!("Not support ota upgrade pod type {kind}");
    answer(StatusCode::BAD_REQUEST, Reason::UnsupportedKind, text)
}

/// Returns the answer of check 9: the static pod's name doesn't end in the name of the node.
pub(super) fn static_name() -> Answer {
    let text = "Static pod pre-check failed";
    answer(
        StatusCode::INTERNAL_SERVER_ERROR,
        Reason::StaticPodName,
        text,
    )
}

/// Creates an answer with the reason in its header.
pub(super) fn answer(status: StatusCode, reason: Reason, text: impl Into<String>) -> Answer {
    Answer::new(status, reason.word(), text)
}
